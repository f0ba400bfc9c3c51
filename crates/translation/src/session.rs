//! A session: one inside endpoint talking to one remote endpoint through one outside endpoint.
//!
//! A session pins its outside port until it ends. The *binding* of an inside endpoint (RFC 4787 §4.1: endpoint-independent
//! mapping) is the outside endpoint of any of its sessions, so it needs no record of its own and ends with the last of them.

use core::cmp::Ordering;
use core::net::Ipv4Addr;

use asterism_forwarding::Ends;
use asterism_function::{
    BadBytes, Changes4, Endpoint, Forwarding4, Grouped, Key, Paired, Protocol, Reader, Row, Wire,
    Writer, layout,
};

/// The group of all sessions of one inside endpoint.
pub const BY_INSIDE: usize = 0;
/// The group of all sessions through one outside endpoint.
pub const BY_OUTSIDE: usize = 1;

/// One session, 28 bytes: found by its packets in either direction.
///
/// Addresses and ports are kept as they stand in packets, in network order, and side by side as there: (inside,
/// remote) are source and destination of packets from inside, (remote, outside) of packets from outside. So a probe
/// compares three words of the packet with three of the session. Of an ICMP query the remote port is zero and the
/// others are the identifier inside and outside (RFC 5508 §3.1).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Session {
    /// Inside, remote, outside.
    addresses: [u8; 12],
    /// Inside, remote, outside.
    ports: [u8; 6],
    protocol: u8,
    /// That of packets from outside; with [`UNSEEN`] where no packet from outside is of this session.
    protocol_outside: u8,
    /// What its translation does to checksums, outwards and inwards: follows from the rest.
    changes: [Changes4; 2],
}

impl core::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (inside, remote, outside) = (self.inside(), self.remote(), self.outside());
        write!(
            formatter,
            "inside {inside} outside {outside} remote {remote}"
        )?;
        if self.hairpins() {
            formatter.write_str(" hairpin")?;
        }
        Ok(())
    }
}

const INSIDE: usize = 0;
const REMOTE: usize = 1;
const OUTSIDE: usize = 2;

/// What [`Ends::unseen`] adds to a protocol. Such a session is found from outside by nobody who sends in the name of its remote
/// endpoint, and the probe for everybody else's pays nothing for that.
const UNSEEN: u8 = 0x80;

/// The remote endpoint of a session with nobody: what holds a place for some (see `pcp/`).
pub(crate) const fn nobody(protocol: Protocol) -> Endpoint {
    Endpoint::new(Ipv4Addr::UNSPECIFIED, 0, protocol)
}

impl Session {
    /// A session. `hairpins` says that the remote endpoint is itself an outside endpoint of this NAT.
    pub fn new(inside: Endpoint, remote: Endpoint, outside: Endpoint, hairpins: bool) -> Self {
        let is_unseen = hairpins || remote == nobody(remote.protocol);
        let mut session = Self {
            addresses: [0; 12],
            ports: [0; 6],
            protocol: inside.protocol.0,
            protocol_outside: inside.protocol.0 | if is_unseen { UNSEEN } else { 0 },
            changes: [
                Changes4::between(inside, outside),
                Changes4::between(outside, inside),
            ],
        };
        for (end, endpoint) in [inside, remote, outside].iter().enumerate() {
            session.addresses[4 * end..4 * end + 4].copy_from_slice(&endpoint.address.octets());
            session.ports[2 * end..2 * end + 2].copy_from_slice(&endpoint.port.to_be_bytes());
        }
        session
    }

    /// The endpoint of the inside host.
    #[inline(always)]
    pub fn inside(&self) -> Endpoint {
        self.endpoint::<INSIDE>()
    }
    /// The address of the inside host, in network order.
    #[inline(always)]
    pub fn inside_address(&self) -> [u8; 4] {
        part(&self.addresses, 4 * INSIDE)
    }
    /// The endpoint that the remote host sees instead.
    #[inline(always)]
    pub fn outside(&self) -> Endpoint {
        self.endpoint::<OUTSIDE>()
    }
    /// The endpoint of the remote host.
    #[inline(always)]
    pub fn remote(&self) -> Endpoint {
        self.endpoint::<REMOTE>()
    }
    /// Whether the remote endpoint is an outside endpoint of this NAT (RFC 4787 §6).
    pub fn hairpins(&self) -> bool {
        self.is_unseen() && self.remote() != nobody(Protocol(self.protocol))
    }
    /// Whether no packet from outside is of it: it hairpins, or is with nobody.
    #[inline(always)]
    pub fn is_unseen(&self) -> bool {
        self.protocol_outside & UNSEEN != 0
    }

    #[inline(always)]
    fn endpoint<const END: usize>(&self) -> Endpoint {
        Endpoint::new(
            Ipv4Addr::from_octets(part(&self.addresses, 4 * END)),
            u16::from_be_bytes(part(&self.ports, 2 * END)),
            Protocol(self.protocol),
        )
    }

    #[inline(always)]
    fn ends<const END: usize>(&self, protocol: u8) -> Ends {
        Ends::of(
            part(&self.addresses, 4 * END),
            part(&self.ports, 2 * END),
            Protocol(protocol),
        )
    }

    /// What makes a packet from inside one from the outside endpoint.
    #[inline(always)]
    pub fn forwards_out<'a>(&self, ethernet: &'a [u8; 12]) -> Forwarding4<'a> {
        self.forwards::<OUTSIDE>(self.changes[0], ethernet)
    }
    /// What makes a packet to the outside endpoint one to the inside host.
    #[inline(always)]
    pub fn forwards_in<'a>(&self, ethernet: &'a [u8; 12]) -> Forwarding4<'a> {
        self.forwards::<INSIDE>(self.changes[1], ethernet)
    }

    #[inline(always)]
    fn forwards<'a, const END: usize>(
        &self,
        changes: Changes4,
        ethernet: &'a [u8; 12],
    ) -> Forwarding4<'a> {
        Forwarding4 {
            changes,
            address: part(&self.addresses, 4 * END),
            port: part(&self.ports, 2 * END),
            ethernet,
        }
    }
}

/// `N` of the bytes from `at`.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

impl Paired for Session {
    type Left = Ends;
    type Right = Ends;
    /// Of a packet from inside.
    #[inline(always)]
    fn left(&self) -> Ends {
        self.ends::<INSIDE>(self.protocol)
    }
    /// Of a packet from outside, or [unseen](Ends::unseen) where there is none.
    #[inline(always)]
    fn right(&self) -> Ends {
        self.ends::<REMOTE>(self.protocol_outside)
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

    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            0 => self.left().encode(out),
            1 => self.right().encode(out),
            lane => self.group(lane - Self::UNIQUE).encode(out),
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
        let key = |session: &Self| (session.left(), session.right());
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
    const LAYOUT: u64 = layout::manual("nat session", 1);
    fn encode(&self, out: &mut Writer<'_>) {
        let (inside, remote, outside) = (self.inside(), self.remote(), self.outside());
        let protocol = match inside.protocol {
            Protocol::TCP => PROTOCOL_TCP,
            Protocol::UDP => PROTOCOL_UDP,
            _ => PROTOCOL_ICMP,
        };
        let preserved = inside.port == outside.port;
        out.u8(protocol
            | if preserved { PORT_PRESERVED } else { 0 }
            | if self.hairpins() { HAIRPINS } else { 0 });
        out.u32(inside.address.to_bits());
        out.u16(inside.port);
        out.u32(remote.address.to_bits());
        if protocol != PROTOCOL_ICMP {
            out.u16(remote.port);
        }
        out.address(outside.address.to_bits());
        if !preserved {
            out.u16(outside.port);
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
        let endpoint = |address, port| Endpoint::new(Ipv4Addr::from_bits(address), port, protocol);
        let inside = endpoint(input.u32()?, input.u16()?);
        let remote_address = input.u32()?;
        let remote_port = match protocol {
            Protocol::ICMP => 0,
            _ => input.u16()?,
        };
        let outside_address = input.address()?;
        let outside_port = if first & PORT_PRESERVED != 0 {
            inside.port
        } else {
            input.u16()?
        };
        Ok(Self::new(
            inside,
            endpoint(remote_address, remote_port),
            endpoint(outside_address, outside_port),
            first & HAIRPINS != 0,
        ))
    }
}
