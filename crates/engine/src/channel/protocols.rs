//! The protocols of a host: the replicator, and beside it those that the configuration uses. The state channel's loop goes over them
//! and names none.

use asterism_placement::envelope::{Message, Refused};
use asterism_placement::replicated::audit::{AuditEvent, Auditing, Auditor};
use asterism_placement::replicated::{Deliver, Destination, Event, Replicator};
use asterism_placement::{Incarnation, MemberId, Protocol, Time};

use super::homes::HomeOnChannel;
use super::outlet::{Delivering, Outlet};
use crate::home::{ChannelHome, HomeEvent};

/// The protocols, each in its own state.
#[derive(Debug)]
pub(super) struct Protocols {
    /// Checks every message, writes every header, and holds the host's stream.
    pub(super) replicator: Replicator,
    pub(super) auditor: Auditor,
    /// Where objects of the instances live that live elsewhere, if that is here.
    pub(super) home: Option<Box<HomeOnChannel>>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Replication,
    Audit,
    Home,
}

/// What one of them reports.
#[derive(Debug)]
pub(super) enum ProtocolEvent {
    Replication(Event),
    Audit(AuditEvent),
    Home(HomeEvent),
}

impl Protocols {
    /// All that are in use, in the order in which they are handed messages, have their turns and send.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let home = self.home.as_ref().map(|_| Place::Home);
        [Place::Replication, Place::Audit].into_iter().chain(home)
    }

    /// One of them, with what it is lent; `None` if it is not in use.
    pub(super) fn at(&mut self, place: Place) -> Option<Core<'_>> {
        Some(match place {
            Place::Replication => Core::Replicator(&mut self.replicator),
            Place::Audit => Core::Auditor(self.auditor.beside(&mut self.replicator)),
            Place::Home => Core::Home(&mut *self.home.as_mut()?.home),
        })
    }

    /// Hands all of them a message. Of one that the replicator refuses, the others find no frames.
    pub(super) fn handle(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        (outlet, snapshots): (&mut Outlet, &mut Vec<(MemberId, u32)>),
    ) -> Result<(), Refused> {
        let auditor = &mut self.auditor;
        let mut deliver = Delivering {
            outlet,
            snapshots,
            auditor,
        };
        let handled = Protocol::handle(&mut self.replicator, now, message, &mut deliver);
        for place in self.places().skip(1) {
            if let Some(mut core) = self.at(place) {
                core.handle(now, message, &mut Nowhere)?;
            }
        }
        handled
    }

    /// When the first of them has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let home = self.home.as_ref();
        let timeouts = [
            self.replicator.poll_timeout(),
            self.auditor.poll_timeout(),
            home.and_then(|home| home.home.poll_timeout()),
        ];
        timeouts.into_iter().flatten().min()
    }
}

/// Where protocols beside the replicator deliver: they report events instead.
struct Nowhere;

impl Deliver for Nowhere {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

/// A protocol with what it is lent for a call.
pub(super) enum Core<'a> {
    Replicator(&'a mut Replicator),
    Auditor(Auditing<'a>),
    Home(&'a mut dyn ChannelHome),
}

impl Protocol for Core<'_> {
    type Event = ProtocolEvent;

    fn handle(
        &mut self,
        now: Time,
        message: &mut Message<'_>,
        deliver: &mut dyn Deliver,
    ) -> Result<(), Refused> {
        match self {
            Core::Replicator(core) => Protocol::handle(*core, now, message, deliver),
            Core::Auditor(core) => core.handle(now, message, deliver),
            Core::Home(core) => core.handle(now, message, deliver),
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Destination> {
        match self {
            Core::Replicator(core) => core.poll_transmit(now, buffer),
            Core::Auditor(core) => core.poll_transmit(now, buffer),
            Core::Home(core) => core.poll_transmit(now, buffer),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Core::Replicator(core) => core.poll_timeout(),
            Core::Auditor(core) => core.poll_timeout(),
            Core::Home(core) => core.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Core::Replicator(core) => core.handle_timeout(now),
            Core::Auditor(core) => core.handle_timeout(now),
            Core::Home(core) => core.handle_timeout(now),
        }
    }

    fn poll_event(&mut self) -> Option<ProtocolEvent> {
        match self {
            Core::Replicator(core) => core.poll_event().map(ProtocolEvent::Replication),
            Core::Auditor(core) => core.poll_event().map(ProtocolEvent::Audit),
            Core::Home(core) => core.poll_event().map(ProtocolEvent::Home),
        }
    }
}
