//! A session: one inside endpoint talking to one remote endpoint through one outside endpoint.
//!
//! Imports `asterism_function`. A session pins its outside port for as long as it lives; the *binding* of an
//! inside endpoint (RFC 4787 §4.1: endpoint-independent mapping) is the outside endpoint of any of its sessions,
//! so it needs no record of its own and ends with the last of them.

use core::cmp::Ordering;
use core::net::Ipv4Addr;

use asterism_function::{
    BadBytes, Endpoint, Flow4, Flow4Key, Grouped, Key, Paired, Protocol, Reader, Row, Wire, Writer,
};

/// The group of all sessions of one inside endpoint.
pub const BY_INSIDE: usize = 0;
/// The group of all sessions through one outside endpoint.
pub const BY_OUTSIDE: usize = 1;

/// One session, 20 bytes: found by its packets in either direction with two words each.
///
/// The order of the fields makes both keys neighbouring words: (remote, inside) as the source and destination of
/// packets from inside, (outside, remote) of packets from outside. Of an ICMP query the remote port is zero and
/// the others are the identifier inside and outside (RFC 5508 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Session {
    outside_address: u32,
    remote_address: u32,
    inside_address: u32,
    outside_port: u16,
    remote_port: u16,
    inside_port: u16,
    protocol: u8,
    hairpins: bool,
}

impl Session {
    /// A session. `hairpins` says that the remote endpoint is itself an outside endpoint of this NAT.
    pub fn new(inside: Endpoint, remote: Endpoint, outside: Endpoint, hairpins: bool) -> Self {
        Self {
            outside_address: outside.address.to_bits(),
            remote_address: remote.address.to_bits(),
            inside_address: inside.address.to_bits(),
            outside_port: outside.port,
            remote_port: remote.port,
            inside_port: inside.port,
            protocol: inside.protocol.0,
            hairpins,
        }
    }

    /// The endpoint of the inside host.
    #[inline(always)]
    pub fn inside(&self) -> Endpoint {
        self.endpoint(self.inside_address, self.inside_port)
    }
    /// The endpoint that the remote host sees instead.
    #[inline(always)]
    pub fn outside(&self) -> Endpoint {
        self.endpoint(self.outside_address, self.outside_port)
    }
    /// The endpoint of the remote host.
    #[inline(always)]
    pub fn remote(&self) -> Endpoint {
        self.endpoint(self.remote_address, self.remote_port)
    }
    /// Whether the remote endpoint is an outside endpoint of this NAT (RFC 4787 §6).
    #[inline(always)]
    pub fn hairpins(&self) -> bool {
        self.hairpins
    }

    #[inline(always)]
    fn endpoint(&self, address: u32, port: u16) -> Endpoint {
        Endpoint::new(Ipv4Addr::from_bits(address), port, Protocol(self.protocol))
    }
}

/// The key of a packet from inside: its source and destination.
#[inline(always)]
pub(super) fn outbound(inside: Endpoint, remote: Endpoint) -> Flow4Key {
    Flow4 {
        source: inside.address,
        destination: remote.address,
        source_port: inside.port,
        destination_port: remote.port,
        protocol: inside.protocol.0,
    }
    .into()
}

/// The key of a packet from outside: its source and destination.
#[inline(always)]
pub(super) fn inbound(remote: Endpoint, outside: Endpoint) -> Flow4Key {
    outbound(remote, outside)
}

impl Paired for Session {
    type Left = Flow4Key;
    type Right = Flow4Key;
    #[inline(always)]
    fn left(&self) -> Flow4Key {
        outbound(self.inside(), self.remote())
    }
    #[inline(always)]
    fn right(&self) -> Flow4Key {
        inbound(self.remote(), self.outside())
    }
}

impl Grouped for Session {
    type Group = Endpoint;
    #[inline(always)]
    fn group(&self, group: usize) -> Endpoint {
        if group == BY_INSIDE {
            self.inside()
        } else {
            self.outside()
        }
    }
}

impl Row for Session {
    const UNIQUE: usize = 2;
    const LANES: usize = 4;

    #[inline(always)]
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        match lane {
            0 => self.left().hash(seed),
            1 => self.right().hash(seed),
            lane => self.group(lane - Self::UNIQUE).hash(seed),
        }
    }

    #[inline(always)]
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        match lane {
            0 => self.left() == other.left(),
            1 => self.right() == other.right(),
            lane => self.group(lane - Self::UNIQUE) == other.group(lane - Self::UNIQUE),
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let key = |session: &Self| {
            let ends = (session.left(), session.right());
            (ends, session.hairpins)
        };
        key(self).cmp(&key(other))
    }
}

// The first byte on the wire.
const PROTOCOL_MASK: u8 = 0b11;
const PROTOCOL_TCP: u8 = 0;
const PROTOCOL_UDP: u8 = 1;
const PROTOCOL_ICMP: u8 = 2;
/// The outside port is the inside port and left out.
const PORT_PRESERVED: u8 = 1 << 2;
const HAIRPINS: u8 = 1 << 3;
/// Bits that have a meaning.
const KNOWN: u8 = PROTOCOL_MASK | PORT_PRESERVED | HAIRPINS;

/// 16 bytes, 14 where the port was preserved, 2 less of ICMP: the outside address is one byte.
impl Wire for Session {
    fn encode(&self, out: &mut Writer<'_>) {
        let protocol = match Protocol(self.protocol) {
            Protocol::TCP => PROTOCOL_TCP,
            Protocol::UDP => PROTOCOL_UDP,
            _ => PROTOCOL_ICMP,
        };
        let preserved = self.inside_port == self.outside_port;
        out.u8(protocol
            | if preserved { PORT_PRESERVED } else { 0 }
            | if self.hairpins { HAIRPINS } else { 0 });
        out.u32(self.inside_address);
        out.u16(self.inside_port);
        out.u32(self.remote_address);
        if protocol != PROTOCOL_ICMP {
            out.u16(self.remote_port);
        }
        out.address(self.outside_address);
        if !preserved {
            out.u16(self.outside_port);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let first = input.u8()?;
        if first & !KNOWN != 0 {
            return Err(BadBytes);
        }
        let protocol = match first & PROTOCOL_MASK {
            PROTOCOL_TCP => Protocol::TCP,
            PROTOCOL_UDP => Protocol::UDP,
            PROTOCOL_ICMP => Protocol::ICMP,
            _ => return Err(BadBytes),
        };
        let (inside_address, inside_port) = (input.u32()?, input.u16()?);
        let remote_address = input.u32()?;
        let remote_port = match protocol {
            Protocol::ICMP => 0,
            _ => input.u16()?,
        };
        let outside_address = input.address()?;
        let outside_port = if first & PORT_PRESERVED != 0 {
            inside_port
        } else {
            input.u16()?
        };
        Ok(Self {
            outside_address,
            remote_address,
            inside_address,
            outside_port,
            remote_port,
            inside_port,
            protocol: protocol.0,
            hairpins: first & HAIRPINS != 0,
        })
    }
}
