//! Fragments: the first has the ports and is handled like any packet; it leaves a context here that the later fragments of
//! its datagram need.
//!
//! Later fragments that overtake the first wait for it, parked within the engine's bounds: 256 packets, of which the oldest
//! is dropped, so that no flood of later fragments hurts those that arrive in order (RFC 4787 REQ-14a). Nothing is
//! reassembled.
//!
//! A flood of *first* fragments takes table space: each takes a place until the datagram is idle for [`IDLE`] plus the
//! table's own delay, three seconds at most, and then until all hosts know. So a table of 65,536 holds 21,845 datagrams a
//! second of the whole cluster, and each of eight instances 2,730; further first fragments are dropped. Packets from the
//! outside link are dropped once half of the table is taken, so outsiders who flood it through all instances take no place
//! from inside hosts. Datagrams from outside fail as long as the flood lasts; so do all at an instance that gets more of the
//! flood than its share.

use core::net::Ipv4Addr;

use asterism_function::{
    Ask, Endpoint, Key, Late, Map, Packet, Protocol, Reason, Tick, Vacancy, Value, Verdict, Wire,
};

use crate::interface::Side;
use crate::link::ForwardingMode;
use crate::router::{Egress, Router};
use crate::state::Forwards;

/// Fragmented datagrams whose first fragment was seen.
pub type Fragments<L> = Map<FragmentKey, L>;

/// Seconds after the last part after which a fragmented datagram is forgotten. Senders send the parts one after the other, and
/// one that comes first waits for 100 ms alone: so a longer time serves nobody but who wants the table full.
pub(crate) const IDLE: [Tick; 1] = [1];

/// Microseconds for which a later fragment waits for the first one, parked.
const FIRST_WAIT_US: u64 = 100_000;

/// Names a fragmented datagram before its translation (RFC 791 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
pub struct FragmentKey {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    identification: u16,
    protocol: u8,
}

impl FragmentKey {
    /// The key of a packet; `None` if it is not IPv4.
    #[must_use]
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        Some(Self {
            source: packet.ipv4_source()?,
            destination: packet.ipv4_destination()?,
            identification: packet.ipv4_identification()?,
            protocol: packet.layout().protocol(),
        })
    }
}

/// What the first fragment of a datagram leaves for the later ones, which have no ports.
pub trait FragmentContext: Value {
    /// What is to be remembered of a first fragment that was edited and leaves now.
    fn of(packet: &Packet<'_>, egress: &Egress) -> Option<Self>;
    /// Where a later one goes; `None`: there is no route.
    fn egress(&self, router: &Router, packet: &Packet<'_>) -> Option<Egress>;
    /// Edits a later one as the first one was.
    fn edit(&self, packet: &mut Packet<'_>);
}

/// The addresses of a fragmented datagram after its translation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[value(order)]
pub struct Fragmented {
    /// The source.
    pub source: Ipv4Addr,
    /// The destination.
    pub destination: Ipv4Addr,
}

impl FragmentContext for Fragmented {
    fn of(packet: &Packet<'_>, _: &Egress) -> Option<Self> {
        Some(Self {
            source: packet.ipv4_source()?,
            destination: packet.ipv4_destination()?,
        })
    }
    fn egress(&self, router: &Router, _: &Packet<'_>) -> Option<Egress> {
        let side = router.side_of(self.destination)?;
        Some(Egress::new(side, self.destination, ForwardingMode::Routed))
    }
    fn edit(&self, packet: &mut Packet<'_>) {
        packet.set_source(portless(self.source));
        packet.set_destination(portless(self.destination));
    }
}

impl Router {
    /// A place for the datagram of a first fragment; `None`: there is none for what comes by that link.
    #[cold]
    pub(crate) fn room_for_parts<S: Forwards>(
        &self,
        ask: &Ask<'_, S>,
    ) -> Result<Option<(FragmentKey, Vacancy)>, Late> {
        let fragments = ask.tables().fragments;
        let is_outside = self.side(ask.port()) == Some(Side::Outside);
        if is_outside && fragments.is_half_full()? {
            return Ok(None);
        }
        Ok(FragmentKey::of(ask.packet()).zip(fragments.vacancy()?))
    }

    /// A fragment without a transport header: goes where the first one of its datagram went.
    #[cold]
    pub(crate) fn later_fragment<S: Forwards>(&self, ask: Ask<'_, S>) -> Result<Verdict, Late> {
        let Some(key) = FragmentKey::of(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(datagram) = ask.tables().fragments.get(&key)? else {
            // Perhaps it overtook the first one.
            ask.expect(FIRST_WAIT_US)?;
            return Ok(Verdict::Drop(Reason::FragmentUnmatched));
        };
        let Some(egress) = datagram.value.egress(self, ask.packet()) else {
            return Ok(Verdict::Drop(Reason::NoRoute));
        };
        self.forward(ask, egress, |act| {
            datagram.value.edit(&mut act.packet);
            S::writes(act).fragments.touch(&datagram);
        })
    }
}

/// An endpoint of a packet that has no port to be set.
#[must_use]
pub fn portless(address: Ipv4Addr) -> Endpoint {
    Endpoint::new(address, 0, Protocol(0))
}
