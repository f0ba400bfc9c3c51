//! Fragments: the first one has the ports and is translated like any packet; it leaves here what the later ones of
//! its datagram need. Imports `asterism_function`, `config`, `neighbour`.
//!
//! Later fragments that overtake the first one wait for it, parked within the engine's bounds: 256 packets, of which the
//! oldest is given up, so that no flood of fragments hurts those that come in order (RFC 4787 REQ-14a). Nothing is
//! reassembled.

use core::net::Ipv4Addr;

use asterism_function::{
    Ask, BadBytes, Key, Late, Packet, Reader, Reason, Tick, Value, Verdict, Wire, Writer, objects,
};

use super::config::Side;
use super::neighbour::NextHop;
use super::open::send_parts;
use super::report::Report;
use super::route::TooLong;
use super::{Nat, NatState};

/// Seconds after which a fragmented datagram is forgotten: receivers give up after 15 to 120 (RFC 791, RFC 1122).
pub(crate) const IDLE: [Tick; 1] = [30];

/// Microseconds for which a later fragment waits for the first one, parked.
pub(crate) const FIRST_WAIT_US: u64 = 100_000;

/// Names a fragmented datagram before its translation (RFC 791 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FragmentKey {
    source: u32,
    destination: u32,
    identification: u16,
    protocol: u8,
}

impl FragmentKey {
    /// The key of a packet; `None` if it is not IPv4.
    pub(crate) fn of(packet: &Packet<'_>) -> Option<Self> {
        Some(Self {
            source: packet.ipv4_source()?.to_bits(),
            destination: packet.ipv4_destination()?.to_bits(),
            identification: packet.ipv4_identification()?,
            protocol: packet.layout().protocol(),
        })
    }
}

impl Wire for FragmentKey {
    fn encode(&self, out: &mut Writer<'_>) {
        out.address(self.source);
        out.address(self.destination);
        out.u16(self.identification);
        out.u8(self.protocol);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            source: input.address()?,
            destination: input.address()?,
            identification: input.u16()?,
            protocol: input.u8()?,
        })
    }
}

impl Key for FragmentKey {
    fn hash(&self, seed: u64) -> u64 {
        objects::hash::words(
            u64::from(self.source) << 32 | u64::from(self.destination),
            u64::from(self.identification) << 8 | u64::from(self.protocol),
            seed,
        )
    }
}

/// The addresses of a fragmented datagram after its translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragmented {
    /// The source.
    pub source: Ipv4Addr,
    /// The destination.
    pub destination: Ipv4Addr,
}

impl Wire for Fragmented {
    fn encode(&self, out: &mut Writer<'_>) {
        self.source.encode(out);
        self.destination.encode(out);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            source: Ipv4Addr::decode(input)?,
            destination: Ipv4Addr::decode(input)?,
        })
    }
}

impl Value for Fragmented {
    fn order(&self, other: &Self) -> core::cmp::Ordering {
        (self.source, self.destination).cmp(&(other.source, other.destination))
    }
}

impl Nat {
    /// A fragment without a transport header.
    #[cold]
    pub(super) fn later_fragment(
        &self,
        ask: Ask<'_, NatState>,
        _side: Side,
    ) -> Result<Verdict, Late> {
        let Some(key) = FragmentKey::of(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(datagram) = ask.fragments.get(&key)? else {
            // Perhaps it overtook the first one.
            ask.expect(FIRST_WAIT_US)?;
            return Ok(Verdict::Drop(Reason::FragmentUnmatched));
        };
        let Fragmented {
            source,
            destination,
        } = datagram.value;
        let link = match self.side_of(destination) {
            Some(side) => self.link(side),
            None => return Ok(Verdict::Drop(Reason::NoRoute)),
        };
        if ask.packet().ttl().is_none_or(|ttl| ttl <= 1) {
            return self.report(ask, Report::TimeExceeded, Reason::TtlExceeded);
        }
        let cut = match link.cut(ask.packet()) {
            Ok(cut) => cut,
            Err(TooLong) => return self.too_long(ask, link),
        };
        let hop = self.next_hop(&ask, link, destination)?;
        let station = match hop {
            NextHop::Station(station) => station,
            NextHop::Ageing(known) => known.value.mac,
            NextHop::Unresolved(address) => return self.resolve(ask, link, address),
            NextHop::Unreachable => return Ok(Verdict::Drop(Reason::NoRoute)),
        };
        let mut act = ask.act()?;
        act.packet.decrement_ttl();
        act.packet.set_source(portless(source));
        act.packet.set_destination(portless(destination));
        act.packet.set_ethernet(link.interface.mac, station);
        act.fragments.touch(&datagram);
        let port = link.interface.port;
        Ok(match cut {
            Some(cut) => send_parts(&mut act, port, &cut),
            None => Verdict::Forward(port),
        })
    }
}

/// An endpoint of a packet that has no port to be set.
pub(crate) fn portless(address: Ipv4Addr) -> asterism_function::Endpoint {
    asterism_function::Endpoint::new(address, 0, asterism_function::Protocol(0))
}
