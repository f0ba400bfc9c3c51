//! The auditor as a protocol beside the replicator that it audits.

use super::super::{Deliver, Destination, Replicator};
use super::{Ask, AuditResult, Auditor, StreamFault};
use crate::Time;
use crate::envelope::{Message, Reads, Refused};
use crate::protocol::Protocol;

/// What an auditor tells its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// Instances are to read digests: all that they got before, and nothing more, must be in it.
    Ask(Ask),
    /// Parts differ from now on, or are equal again.
    Result(AuditResult),
    /// A range of a stream was not delivered as it was sent.
    Fault(StreamFault),
}

/// An auditor, with the replicator that it audits.
#[derive(Debug)]
pub struct Auditing<'a> {
    auditor: &'a mut Auditor,
    replicator: &'a mut Replicator,
}

impl Auditor {
    /// The auditor as a protocol beside that replicator.
    pub fn beside<'a>(&'a mut self, replicator: &'a mut Replicator) -> Auditing<'a> {
        Auditing {
            auditor: self,
            replicator,
        }
    }
}

impl Protocol for Auditing<'_> {
    type Event = AuditEvent;

    /// Takes readings and positions of streams, and notes how far the sender's stream is delivered now.
    fn handle(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        _: &mut dyn Deliver,
    ) -> Result<(), Refused> {
        let from = message.from();
        for frame in message.frames_of(Reads::Audit) {
            self.auditor
                .handle(now, (from, message.incarnation()), frame);
        }
        self.auditor.note_position(now, from, self.replicator);
        Ok(())
    }

    fn poll_transmit(&mut self, _: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        let (auditor, replicator) = (&mut *self.auditor, &mut *self.replicator);
        let is_written =
            auditor.poll_reading(replicator, buffer) || auditor.poll_stream(replicator, buffer);
        is_written.then_some(Destination::All)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.auditor.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.auditor.turn(now, self.replicator);
    }

    fn poll_event(&mut self) -> Option<AuditEvent> {
        let auditor = &mut *self.auditor;
        let ask = auditor.poll_ask().map(AuditEvent::Ask);
        ask.or_else(|| auditor.poll_finding().map(AuditEvent::Result))
            .or_else(|| auditor.poll_fault().map(AuditEvent::Fault))
    }
}
