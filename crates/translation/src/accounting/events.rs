//! Events for a NAT's log: the block of ports, or the single port, that a subscriber held, with begin and end.
//!
//! A ring of fixed size lies between the packet loop, which records events, and the control plane, which takes them a few
//! times a second ([`Observable::report`](asterism_function::Observable::report)). Destinations are never recorded
//! (RFC 6888 REQ-12).

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use asterism_function::{BadBytes, Endpoint, Protocol, Reader, Tick, Wire, Writer};

/// Events that may wait for the control plane: at 200 ms between two looks, 80,000 a second.
pub const EVENTS_MAX: usize = 1 << 14;

/// What happened to a port or block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatEventKind {
    /// A subscriber got a block of ports.
    BlockAllocated,
    /// The block may be given to others from here on.
    BlockFreed,
    /// An inside endpoint got an outside one.
    BindingMade,
    /// The outside endpoint was used by nobody any more.
    BindingEnded,
}

impl NatEventKind {
    const ALL: [Self; 4] = [
        Self::BlockAllocated,
        Self::BlockFreed,
        Self::BindingMade,
        Self::BindingEnded,
    ];

    /// Whether it is of a block.
    #[must_use]
    pub const fn is_of_block(self) -> bool {
        matches!(self, Self::BlockAllocated | Self::BlockFreed)
    }
}

/// One event, with all that the log says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatEvent {
    /// What happened.
    pub kind: NatEventKind,
    /// When, in seconds of the cluster's common base: since 1970 on a running host.
    pub at: Tick,
    /// Since when the subscriber has had it, for what ends; the same as `at` for what begins. An instance that learnt of it from
    /// others says when it learnt of it.
    pub since: Tick,
    /// The inside endpoint; of a block the subscriber's address and port 0.
    pub inside: Endpoint,
    /// The outside address.
    pub outside: Ipv4Addr,
    /// The outside ports, first and last.
    pub ports: (u16, u16),
}

/// Bytes of an event in a report.
pub(super) const EVENT_BYTES: usize = 1 + 4 + 4 + 4 + 2 + 1 + 4 + 2 + 2;

impl Wire for NatEvent {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.kind as u8);
        out.u32(self.at);
        out.u32(self.since);
        out.u32(self.inside.address.to_bits());
        out.u16(self.inside.port);
        out.u8(self.inside.protocol.0);
        out.u32(self.outside.to_bits());
        out.u16(self.ports.0);
        out.u16(self.ports.1);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let kind = usize::from(input.u8()?);
        let kind = *NatEventKind::ALL.get(kind).ok_or(BadBytes)?;
        let (at, since) = (input.u32()?, input.u32()?);
        let (address, port, protocol) = (input.u32()?, input.u16()?, input.u8()?);
        Ok(Self {
            kind,
            at,
            since,
            inside: Endpoint::new(Ipv4Addr::from_bits(address), port, Protocol(protocol)),
            outside: Ipv4Addr::from_bits(input.u32()?),
            ports: (input.u16()?, input.u16()?),
        })
    }
}

/// Events that wait.
#[derive(Debug)]
pub(super) struct Events {
    waiting: VecDeque<NatEvent>,
    is_on: bool,
    /// Events for which there was no room.
    pub(super) lost: u64,
}

impl Events {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            waiting: VecDeque::with_capacity(if is_on { EVENTS_MAX } else { 0 }),
            is_on,
            lost: 0,
        }
    }

    pub(super) fn note(&mut self, event: NatEvent) {
        if !self.is_on {
            return;
        }
        if self.waiting.len() >= EVENTS_MAX {
            self.lost += 1;
            return;
        }
        self.waiting.push_back(event);
    }

    pub(super) fn take(&mut self) -> Option<NatEvent> {
        self.waiting.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: NatEventKind) -> NatEvent {
        NatEvent {
            kind,
            at: 1_700_000_001,
            since: 1_700_000_000,
            inside: Endpoint::new(Ipv4Addr::new(10, 0, 0, 5), 40_000, Protocol::UDP),
            outside: Ipv4Addr::new(203, 0, 113, 1),
            ports: (1_024, 1_535),
        }
    }

    #[test]
    fn events_come_back_from_a_report() {
        for kind in NatEventKind::ALL {
            let mut bytes = Vec::new();
            event(kind).encode(&mut Writer::new(&mut bytes, &[]));
            assert_eq!(bytes.len(), EVENT_BYTES);
            let back = NatEvent::decode(&mut Reader::new(&bytes, &[]));
            assert_eq!(back, Ok(event(kind)));
            for length in 0..bytes.len() {
                assert!(NatEvent::decode(&mut Reader::new(&bytes[..length], &[])).is_err());
            }
            bytes[0] = 4;
            assert!(NatEvent::decode(&mut Reader::new(&bytes, &[])).is_err());
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut events = Events::new(true);
        for _ in 0..EVENTS_MAX + 3 {
            events.note(event(NatEventKind::BlockFreed));
        }
        assert_eq!(events.lost, 3);
        assert_eq!(
            core::iter::from_fn(|| events.take()).count(),
            EVENTS_MAX,
            "the first ones are kept"
        );
        let mut off = Events::new(false);
        off.note(event(NatEventKind::BlockFreed));
        assert!(off.is_empty() && off.lost == 0);
    }
}
