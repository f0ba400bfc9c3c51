//! The room as an author uses it: a wire that lets in only answers, on two pairs of ports, with limits on half-open connections and
//! without.

use core::net::Ipv4Addr;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, Late, NetworkFunction, PortNumber, Reason, TcpFlags, Verdict, checksum, state,
};
use asterism_tracking::{
    ByHost, ByLink, Flows, Fragments, IdleTimes, Limits, Link, NoRoom, Tracker, Tracks, flows,
    fragments, half_open, tracks,
};

#[state]
struct Plain {
    flows: Flows,
    fragments: Fragments,
}
tracks!(Plain);

#[state]
struct Counted {
    flows: Flows,
    handshakes: ByHost,
    destinations: ByHost,
    links: ByLink,
    fragments: Fragments,
}
tracks!(Counted, half_open);

/// What both wires do: ports 2 and 3 are a second pair.
fn handle<S: Tracks>(tracker: Tracker, ask: Ask<'_, S>) -> Result<Verdict, Late> {
    let Some(link) = Link::of(PortNumber(ask.port().0 % 2)) else {
        return Ok(Verdict::Drop(Reason::NotForUs));
    };
    tracker.follow(ask, link, |ask, opening| match opening.link {
        Link::Inside => tracker.open(ask, opening),
        Link::Outside => tracker.refuse(&ask, opening, Reason::Denied),
    })
}

/// Counts nothing.
struct Wire(Tracker);

impl NetworkFunction for Wire {
    type State = Plain;

    fn state(&self, builder: &Builder) -> Plain {
        Plain {
            flows: flows(builder, 64, &IdleTimes::DEFAULT),
            fragments: fragments(builder, 64),
        }
    }

    fn packet(&self, ask: Ask<'_, Plain>) -> Result<Verdict, Late> {
        handle(self.0, ask)
    }
}

/// Counts half-open connections.
struct CountingWire(Tracker);

impl NetworkFunction for CountingWire {
    type State = Counted;

    fn state(&self, builder: &Builder) -> Counted {
        let flows = flows(builder, 1_024, &IdleTimes::DEFAULT);
        let (handshakes, destinations, links) = half_open(builder, 64, 64);
        Counted {
            flows,
            handshakes,
            destinations,
            links,
            fragments: fragments(builder, 64),
        }
    }

    fn packet(&self, ask: Ask<'_, Counted>) -> Result<Verdict, Late> {
        handle(self.0, ask)
    }
}

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const ALONE: Tracker = Tracker {
    picks_up: false,
    asymmetric: false,
    per_vlan: true,
    settle_us: 0,
    limits: Limits {
        per_source: 3,
        per_destination: 4,
        per_link: 6,
    },
};
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);

fn frame(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 1_600];
    let length = write(&mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

fn header(from: u8, to: u8) -> Header4 {
    let host = |number| Ipv4Addr::new(192, 0, 2, number);
    Header4::between(host(from), host(to))
}

fn udp(from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
    let header = header(from.0, to.0);
    frame(|out| build::udp4(&header, from.1, to.1, &[7; 32], out))
}

fn tcp(from: (u8, u16), to: (u8, u16), flags: TcpFlags, numbers: (u32, u32)) -> Vec<u8> {
    let segment = Segment {
        sequence: numbers.0,
        acknowledgement: numbers.1,
        ..Segment::with_flags(flags)
    };
    let header = header(from.0, to.0);
    frame(|out| build::tcp4(&header, from.1, to.1, &segment, b"", out))
}

fn syn(from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
    tcp(from, to, TcpFlags::SYN, (100, 0))
}

/// A part of an IPv4 packet: 16 bytes from an offset.
fn part(frame: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let mut bytes = frame[..34].to_vec();
    bytes.extend(&frame[34 + usize::from(offset)..][..16]);
    bytes[16..18].copy_from_slice(&36_u16.to_be_bytes());
    bytes[20..22].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    bytes[24..26].fill(0);
    let sum = checksum::of(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn passes<F: NetworkFunction>(kit: &mut Testkit<F>, port: PortNumber, frame: &[u8]) {
    let out = PortNumber(port.0 ^ 1);
    let outcome = kit.packet(port, frame);
    assert_eq!(outcome.verdict, Verdict::Forward(out));
    assert_eq!(outcome.packet, frame, "it leaves as it came");
}

fn drops<F: NetworkFunction>(kit: &mut Testkit<F>, port: PortNumber, frame: &[u8], reason: Reason) {
    assert_eq!(kit.packet(port, frame).verdict, Verdict::Drop(reason));
}

#[test]
fn answers_are_let_in_and_nothing_else_by_either_pair_of_ports() {
    let mut kit = Testkit::new(Wire(ALONE));
    for (inside, outside) in [(INSIDE, OUTSIDE), (PortNumber(2), PortNumber(3))] {
        let ours = (inside.0 as u8 + 1, 4_000);
        drops(&mut kit, outside, &udp((9, 53), ours), Reason::Denied);
        passes(&mut kit, inside, &udp(ours, (9, 53)));
        passes(&mut kit, outside, &udp((9, 53), ours));
        drops(&mut kit, outside, &udp((9, 54), ours), Reason::Denied);
        drops(&mut kit, outside, &syn((9, 80), ours), Reason::Denied);
        let stray = tcp((9, 80), ours, TcpFlags::ACK, (1, 1));
        drops(&mut kit, outside, &stray, Reason::NoConnection);
        let scan = tcp((9, 80), ours, TcpFlags(0), (1, 1));
        drops(&mut kit, outside, &scan, Reason::BadTcpFlags);
    }
}

#[test]
fn errors_pass_if_they_are_about_a_flow() {
    let mut kit = Testkit::new(Wire(ALONE));
    let question = udp((1, 4_000), (9, 53));
    let router = Ipv4Addr::new(198, 51, 100, 1);
    let error = frame(|out| build::icmp_unreachable(&question, router, 1, out));
    drops(&mut kit, OUTSIDE, &error, Reason::IcmpUnmatched);
    passes(&mut kit, INSIDE, &question);
    passes(&mut kit, OUTSIDE, &error);
}

#[test]
fn later_fragments_pass_where_the_first_one_did() {
    let mut kit = Testkit::new(Wire(ALONE));
    let whole = udp((1, 4_000), (9, 53));
    drops(
        &mut kit,
        INSIDE,
        &part(&whole, 16, false),
        Reason::FragmentUnmatched,
    );
    passes(&mut kit, INSIDE, &part(&whole, 0, true));
    passes(&mut kit, INSIDE, &part(&whole, 16, false));
    kit.advance(10);
    drops(
        &mut kit,
        INSIDE,
        &part(&whole, 16, false),
        Reason::FragmentUnmatched,
    );
    let connection = syn((1, 4_000), (9, 80));
    let connection = [&connection[..], &[7; 32]].concat();
    let beyond = part(&connection, 8, false);
    drops(&mut kit, INSIDE, &beyond, Reason::FragmentTiny);
}

#[test]
fn a_table_that_is_full_opens_nothing() {
    let mut kit = Testkit::new(Wire(ALONE));
    for port in 0..64 {
        passes(&mut kit, INSIDE, &udp((1, port), (9, 53)));
    }
    drops(&mut kit, INSIDE, &udp((1, 64), (9, 53)), Reason::TableFull);
    passes(&mut kit, OUTSIDE, &udp((9, 53), (1, 0)));
    assert_eq!(NoRoom::Flows.reason(), Reason::TableFull);
}

#[test]
fn what_may_be_an_answer_waits_and_what_begins_does_not() {
    let mut kit = Testkit::new(Wire(Tracker {
        settle_us: 500,
        ..ALONE
    }));
    for (packet, calls) in [
        (udp((9, 53), (1, 4_000)), 2),
        (tcp((9, 80), (1, 4_000), SYN_ACK, (1, 1)), 2),
        (syn((9, 80), (1, 4_000)), 1),
        (tcp((9, 80), (1, 4_000), TcpFlags(0), (1, 1)), 1),
    ] {
        assert_eq!(kit.packet(OUTSIDE, &packet).calls, calls);
    }
}

#[test]
fn half_open_connections_are_bounded_by_source_destination_and_link() {
    let mut kit = Testkit::new(CountingWire(ALONE));
    let over = |kit: &mut Testkit<CountingWire>, packet: &[u8]| {
        drops(kit, INSIDE, packet, Reason::HalfOpenLimit);
    };
    for port in 1..=3 {
        passes(&mut kit, INSIDE, &syn((1, port), (9, 80)));
    }
    // A SYN that is sent again begins nothing.
    passes(&mut kit, INSIDE, &syn((1, 3), (9, 80)));
    over(&mut kit, &syn((1, 4), (8, 80)));
    passes(&mut kit, INSIDE, &syn((2, 1), (9, 80)));
    over(&mut kit, &syn((3, 1), (9, 80)));
    for port in 1..=2 {
        passes(&mut kit, INSIDE, &syn((3, port), (8, 80)));
    }
    over(&mut kit, &syn((4, 1), (7, 80)));
    // Only TCP is half open.
    passes(&mut kit, INSIDE, &udp((1, 5), (9, 80)));
    let half_open = |kit: &Testkit<CountingWire>| {
        let counts = kit.state().tracked().half_open;
        counts.expect("it counts").total()
    };
    assert_eq!(half_open(&kit), 6);

    // One is completed, one refused; then there is room for two.
    let answer = |to, flags| tcp((9, 80), (1, to), flags, (900, 101));
    passes(&mut kit, OUTSIDE, &answer(1, SYN_ACK));
    let last = tcp((1, 1), (9, 80), TcpFlags::ACK, (101, 901));
    passes(&mut kit, INSIDE, &last);
    let refusal = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
    passes(&mut kit, OUTSIDE, &answer(2, refusal));
    assert_eq!(half_open(&kit), 4);
    assert_eq!(
        kit.state().flows.len_now(),
        6,
        "what was refused is not a flow any more"
    );
    passes(&mut kit, INSIDE, &syn((1, 4), (9, 80)));
    passes(&mut kit, INSIDE, &syn((1, 5), (9, 80)));
    over(&mut kit, &syn((1, 6), (9, 80)));

    // A minute later nothing is half open.
    kit.advance(75);
    assert_eq!(half_open(&kit), 0);
    passes(&mut kit, INSIDE, &syn((4, 1), (7, 80)));
}

#[test]
fn who_does_not_count_has_no_limits() {
    let mut kit = Testkit::new(Wire(ALONE));
    for port in 0..20 {
        passes(&mut kit, INSIDE, &syn((1, port), (9, 80)));
    }
    assert!(kit.state().tracked().half_open.is_none());
}

#[test]
fn late_state_changes_no_verdict() {
    let whole = udp((1, 4_000), (9, 53));
    let mut steps = vec![
        (0, INSIDE, syn((1, 1), (9, 80))),
        (0, OUTSIDE, tcp((9, 80), (1, 1), SYN_ACK, (900, 101))),
        (0, INSIDE, tcp((1, 1), (9, 80), TcpFlags::ACK, (101, 901))),
        (1, INSIDE, part(&whole, 0, true)),
        (0, INSIDE, part(&whole, 16, false)),
        (0, OUTSIDE, udp((9, 53), (1, 4_000))),
        (0, OUTSIDE, udp((9, 54), (1, 4_000))),
    ];
    steps.extend((2..9).map(|port| (0, INSIDE, syn((1, port), (9, 80)))));
    late_everywhere(|| CountingWire(ALONE), &steps);
    late_everywhere(|| Wire(ALONE), &steps);
}
