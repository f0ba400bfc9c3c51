//! The replicator as a protocol among others: its five verbs.

use crate::envelope::{Message, Refused};
use crate::protocol::Protocol;
use crate::{Time, replicated};

use super::Destination;
use super::deliver::Deliver;
use super::replicator::Replicator;

impl Protocol for Replicator {
    type Event = replicated::Event;

    #[inline]
    fn handle(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        mut deliver: &mut dyn Deliver,
    ) -> Result<(), Refused> {
        self.handle_message(now, message, &mut deliver)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        Replicator::poll_transmit(self, now, buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Replicator::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Time) {
        Replicator::handle_timeout(self, now);
    }

    fn poll_event(&mut self) -> Option<replicated::Event> {
        Replicator::poll_event(self)
    }
}
