//! A flow: which backend a client's packets to a service go to, and what its packets become. Imports `asterism_forwarding`,
//! `asterism_function` and `service`.

use core::cmp::Ordering;
use core::net::Ipv4Addr;

use asterism_forwarding::{Connection, Direction, Ends, Side};
use asterism_function::{
    At, BadBytes, Changes4, End, Endpoint, Forwarding4, Key, Late, Packet, Paired, Protocol,
    Reader, Row, Table, TcpFlags, Wire, Writer, layout,
};

use crate::service::Mode;

/// Which backend each flow has, and what was seen of it.
pub type Flows = Table<Flow, Connection>;

/// One flow, 28 bytes: found by packets of its client, and by those of its backend where they come back this way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Who asks.
    pub client: Endpoint,
    /// What it asks for, as its packets say.
    pub service: Endpoint,
    /// Who answers.
    pub backend: Endpoint,
    /// How packets reach the backend.
    pub mode: Mode,
    /// The backend's place in the vector of usage.
    pub place: u16,
}

impl core::fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "client {} service {} backend {} {}",
            self.client, self.service, self.backend, self.mode
        )
    }
}

impl Flow {
    /// The flow of a packet with these ends that came by the link of a side.
    #[inline(always)]
    pub fn of(
        flows: &Flows,
        from: Side,
        ends: &Ends,
    ) -> Result<Option<At<Self, Connection>>, Late> {
        match from {
            Side::Outside => flows.by_left(ends),
            Side::Inside => flows.by_right(ends),
        }
    }

    /// The host that a packet goes to which came from a side: the backend, or the client.
    #[inline(always)]
    #[must_use]
    pub fn towards(&self, from: Side) -> Ipv4Addr {
        match from {
            Side::Outside => self.backend.address,
            Side::Inside => self.client.address,
        }
    }

    /// What is known after a packet that came from a side. Where the backend answers directly, nobody here sees that: what the
    /// client acknowledges was sent, and a connection that it finishes is taken as finished.
    #[inline]
    #[must_use]
    pub fn after(&self, known: Connection, from: Side, flags: TcpFlags) -> Connection {
        let known = known.after(flags, direction(from));
        match from {
            Side::Outside if self.mode != Mode::Nat => known.after(flags, direction(Side::Inside)),
            _ => known,
        }
    }

    /// Does all that a plain packet of a translated flow needs to leave, which came from a side: for the common path. Otherwise see
    /// [`Path`](crate::Path).
    #[inline(always)]
    pub fn forward_plain(&self, packet: &mut Packet<'_>, from: Side, ethernet: &[u8; 12]) {
        let (end, old, new) = match from {
            Side::Outside => (End::Destination, self.service, self.backend),
            Side::Inside => (End::Source, self.backend, self.service),
        };
        packet.forward_plain4(
            end,
            &Forwarding4 {
                changes: Changes4::between(old, new),
                address: new.address.octets(),
                port: new.port.to_be_bytes(),
                ethernet,
            },
        );
    }
}

/// Which way a packet goes in the words of a [`Connection`], if it came from a side: a client is whom the connection is of.
#[inline(always)]
#[must_use]
pub const fn direction(from: Side) -> Direction {
    match from {
        Side::Outside => Direction::Outbound,
        Side::Inside => Direction::Inbound,
    }
}

/// Whether a segment opens a connection.
#[inline]
#[must_use]
pub fn opens(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && !flags.intersects(TcpFlags(TcpFlags::ACK.0 | TcpFlags::RST.0))
}

impl Paired for Flow {
    type Left = Ends;
    type Right = Ends;

    /// Of a packet from the client.
    #[inline(always)]
    fn left(&self) -> Ends {
        Ends::between(self.client, self.service)
    }

    /// Of a packet from the backend. Where the balancer sees none, a key that no packet has: two flows of one client to one
    /// backend by different services must not displace one another.
    #[inline(always)]
    fn right(&self) -> Ends {
        match self.mode {
            Mode::Nat => Ends::between(self.backend, self.client),
            Mode::Direct | Mode::Tunnel => Ends::between(self.service, self.client).unseen(),
        }
    }
}

impl Row for Flow {
    const UNIQUE: usize = 2;
    const LANES: usize = 2;

    #[inline(always)]
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        if lane == 0 {
            self.left().hash(seed)
        } else {
            self.right().hash(seed)
        }
    }

    #[inline(always)]
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        if lane == 0 {
            self.left() == other.left()
        } else {
            self.right() == other.right()
        }
    }

    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        let key = |flow: &Self| {
            let ends = (flow.client, flow.service, flow.backend);
            (ends, flow.mode.code(), flow.place)
        };
        key(self).cmp(&key(other))
    }
}

/// 24 bytes at most.
impl Wire for Flow {
    const LAYOUT: u64 = layout::by_hand("balancer flow", 1);
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.client.protocol.0);
        for endpoint in [self.client, self.service, self.backend] {
            out.address(endpoint.address.to_bits());
            out.u16(endpoint.port);
        }
        out.u8(self.mode.code());
        out.u16(self.place);
    }

    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let protocol = Protocol(input.u8()?);
        let mut endpoint = || {
            let address = input.address()?;
            let port = input.u16()?;
            Ok(Endpoint::new(address.into(), port, protocol))
        };
        let (client, service, backend) = (endpoint()?, endpoint()?, endpoint()?);
        Ok(Self {
            client,
            service,
            backend,
            mode: Mode::from_code(input.u8()?).ok_or(BadBytes)?,
            place: input.u16()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_syn_opens() {
        let with = |flags: &[TcpFlags]| TcpFlags(flags.iter().fold(0, |all, one| all | one.0));
        assert!(opens(TcpFlags::SYN));
        for flags in [TcpFlags::ACK, TcpFlags::RST, TcpFlags::FIN] {
            assert!(!opens(flags));
        }
        assert!(!opens(with(&[TcpFlags::SYN, TcpFlags::ACK])));
        assert!(!opens(with(&[TcpFlags::SYN, TcpFlags::RST])));
    }

    fn flow(service: u8, mode: Mode) -> Flow {
        let end = |last, port| Endpoint::new([10, 0, 0, last].into(), port, Protocol::TCP);
        Flow {
            client: end(1, 5),
            service: end(service, 80),
            backend: end(9, 80),
            mode,
            place: 0,
        }
    }

    #[test]
    fn a_connection_of_which_one_side_is_seen_is_established_and_ends() {
        let after = |known, mode, flags| flow(2, mode).after(known, Side::Outside, flags);
        let service = flow(2, Mode::Direct).service;
        let open = after(Connection::new(service), Mode::Direct, TcpFlags::SYN);
        assert!(!open.is_established());
        let open = after(open, Mode::Direct, TcpFlags::ACK);
        assert!(open.is_established());
        let flags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);
        assert!(after(open, Mode::Tunnel, flags).ended());
        assert!(!after(open, Mode::Nat, flags).ended());
        let both = after(open, Mode::Nat, flags);
        assert!(flow(2, Mode::Nat).after(both, Side::Inside, flags).ended());
    }

    #[test]
    fn flows_of_one_client_without_answers_do_not_displace_one_another() {
        for mode in [Mode::Direct, Mode::Tunnel] {
            let (one, other) = (flow(2, mode), flow(3, mode));
            assert_ne!(one.right(), other.right());
            assert_ne!(one.right(), Ends::between(one.service, one.client));
        }
    }
}
