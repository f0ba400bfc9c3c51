//! The record of a flow: its backend, and how its packets are rewritten.

use core::cmp::Ordering;
use core::net::Ipv4Addr;

use asterism_forwarding::{Connection, Direction, Ends, Progress, Segment, Side};
use asterism_function::{
    At, BadBytes, Changes4, End, Endpoint, Forwarding4, Key, Late, Packet, Paired, Protocol,
    Reader, Row, Table, TcpFlags, Wire, Writer, layout,
};

use crate::mutant::{self, Mutant};
use crate::role::Role;
use crate::service::Mode;

/// Which backend each flow has, and what was seen of it.
pub type Flows = Table<Flow, Progress>;

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
    /// What it is beside that, mostly nothing.
    pub role: Role,
}

impl core::fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "client {} service {} backend {} {}{}",
            self.client, self.service, self.backend, self.mode, self.role
        )
    }
}

impl Flow {
    /// The flow of a packet with these ends that came by the link of a side.
    #[inline(always)]
    pub fn of(flows: &Flows, from: Side, ends: &Ends) -> Result<Option<At<Self, Progress>>, Late> {
        match from {
            Side::Outside => flows.by_left(ends),
            Side::Inside => flows.by_right(ends),
        }
    }

    /// Whether two are of the same client and service.
    #[inline]
    #[must_use]
    pub fn has_same_ends(&self, other: &Self) -> bool {
        (self.client, self.service) == (other.client, other.service)
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
    /// client acknowledges was sent, and a connection that it finishes is half-closed.
    #[inline]
    #[must_use]
    pub fn after(&self, known: Progress, from: Side, segment: &Segment) -> Progress {
        if mutant::active(Mutant::BlindResetBelieved) && segment.flags.contains(TcpFlags::RST) {
            return Connection::after(*known, segment.flags, direction(from)).into();
        }
        match self.mode {
            Mode::Nat => known.after(segment, direction(from)),
            Mode::Direct | Mode::Tunnel => known.after_alone(segment, direction(from)),
        }
    }

    /// What is known of it with the client's packet that opens it.
    #[must_use]
    pub fn opened_by(&self, segment: &Segment) -> Progress {
        let begun = Progress::new(self.service).opened_by(segment);
        self.after(begun, Side::Outside, segment)
    }

    /// What is known after a backend's SYN-ACK that answers another SYN than the one of this connection: its client began again, and
    /// the backend has agreed. `None`: it is no such answer.
    #[must_use]
    pub fn begun_again(&self, known: &Progress, answer: &Segment) -> Option<Progress> {
        const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
        let syn = Segment {
            flags: TcpFlags::SYN,
            sequence: answer.acknowledgement.wrapping_sub(1),
            acknowledgement: 0,
        };
        let is_another =
            answer.flags.contains(SYN_ACK) && !known.is_begun_by(&syn, Direction::Outbound);
        is_another.then(|| self.after(self.opened_by(&syn), Side::Inside, answer))
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

/// Which way a packet goes in the words of a [`Progress`], if it came from a side: the connection is the client's.
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
        let ends = Ends::between(self.client, self.service);
        match self.role.is_rival() {
            true => ends.unseen(),
            false => ends,
        }
    }

    /// Of a packet from the backend. Where the balancer sees none, a key that no packet has: two flows of one client to one
    /// backend by different services must not displace one another.
    #[inline(always)]
    fn right(&self) -> Ends {
        match self.mode {
            Mode::Nat => Ends::between(self.backend, self.seen_client()),
            // Of two rivals as well.
            _ if self.role.is_rival() => Ends::between(self.client, self.service).unseen(),
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

    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            0 => self.left().encode(out),
            _ => self.right().encode(out),
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
            (ends, flow.mode.code(), flow.place, flow.role)
        };
        key(self).cmp(&key(other))
    }
}

/// Bits of a mode's code on the wire; those above are the role's.
const MODE_BITS: u32 = 2;

/// 24 bytes at most.
impl Wire for Flow {
    const LAYOUT: u64 = layout::manual("balancer flow", 2);
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.client.protocol.0);
        for endpoint in [self.client, self.service, self.backend] {
            out.address(endpoint.address.to_bits());
            out.u16(endpoint.port);
        }
        out.u8(self.mode.code() | self.role.code() << MODE_BITS);
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
        let code = input.u8()?;
        Ok(Self {
            client,
            service,
            backend,
            mode: Mode::from_code(code & ((1 << MODE_BITS) - 1)).ok_or(BadBytes)?,
            place: input.u16()?,
            role: Role::from_code(code >> MODE_BITS).ok_or(BadBytes)?,
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
            role: Role::default(),
        }
    }

    fn segment(flags: TcpFlags, sequence: u32, acknowledgement: u32) -> Segment {
        Segment {
            flags,
            sequence,
            acknowledgement,
        }
    }

    #[test]
    fn a_connection_of_which_one_side_is_seen_is_established_and_half_closed() {
        let fin = segment(TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0), 101, 901);
        for mode in [Mode::Direct, Mode::Tunnel] {
            let flow = flow(2, mode);
            let open = flow.opened_by(&segment(TcpFlags::SYN, 100, 0));
            assert!(!open.is_established());
            let open = flow.after(open, Side::Outside, &segment(TcpFlags::ACK, 101, 901));
            assert!(open.is_established());
            let closed = flow.after(open, Side::Outside, &fin);
            assert!(closed.is_half_closed() && closed.ended());
        }
        let flow = flow(2, Mode::Nat);
        let open = flow.opened_by(&segment(TcpFlags::SYN, 100, 0));
        let closed = flow.after(open, Side::Outside, &fin);
        assert!(!closed.is_half_closed() && !closed.ended());
        let answer = segment(TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0), 901, 102);
        assert!(flow.after(closed, Side::Inside, &answer).ended());
    }

    #[test]
    fn a_backend_that_answers_another_syn_begins_the_connection_again() {
        let flow = flow(2, Mode::Nat);
        let answer = |number| segment(TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0), 900, number);
        let half = flow.opened_by(&segment(TcpFlags::SYN, 100, 0));
        let half = flow.after(half, Side::Inside, &answer(101));
        let known = flow.after(half, Side::Outside, &segment(TcpFlags::ACK, 101, 901));
        assert!(known.is_established());
        assert_eq!(flow.begun_again(&known, &answer(101)), None);
        let again = flow.begun_again(&known, &answer(1 << 30)).unwrap();
        assert!(!again.is_established() && again.is_answered());
        let reset = segment(TcpFlags::RST, 1 << 30, 0);
        assert!(flow.after(again, Side::Outside, &reset).ended());
        assert!(!flow.after(known, Side::Outside, &reset).ended());
    }

    #[test]
    fn flows_of_one_client_without_answers_do_not_displace_one_another() {
        for mode in [Mode::Direct, Mode::Tunnel] {
            let (one, other) = (flow(2, mode), flow(3, mode));
            assert_ne!(one.right(), other.right());
            assert_ne!(one.right(), Ends::between(one.service, one.client));
        }
    }

    #[test]
    fn a_rival_displaces_nobody_and_comes_back_from_the_wire() {
        for mode in [Mode::Nat, Mode::Direct, Mode::Tunnel] {
            let known = flow(2, mode);
            let mut rival = known.as_rival();
            rival.backend.address = [10, 0, 0, 8].into();
            assert_ne!((known.left(), known.right()), (rival.left(), rival.right()));
            assert!(known.left() != rival.left() && known.right() != rival.right());
            assert_eq!(rival.promoted().left(), known.left());
            let mut bytes = Vec::new();
            rival.encode(&mut Writer::new(&mut bytes, &[]));
            assert_eq!(Flow::decode(&mut Reader::new(&bytes, &[])), Ok(rival));
        }
        assert_eq!(size_of::<Flow>(), 28);
    }
}
