//! Destinations that are not translated (RFC 6888 REQ-6): the packet alone tells, at any instance.

use asterism_function::testkit::{ClusterKit, Outcome};
use asterism_function::{
    Endpoint, Flow4, IcmpKind, Observable, Packet, PortNumber, Protocol, Reason, TcpFlags, Verdict,
    checksum,
};
use asterism_functions::nat::{NEWS_QUESTION, Nat, NatExemption, NatReportPart, Prefix};

use crate::nat::links::fragments;
use crate::nat::network::*;

const HOST: [u8; 4] = [10, 0, 0, 5];
/// All of its network is exempt.
const SERVER: [u8; 4] = [198, 51, 100, 7];
/// UDP to port 53 is exempt.
const RESOLVER: [u8; 4] = [192, 0, 2, 53];
const STRANGER: [u8; 4] = [192, 0, 2, 99];

fn network() -> NatExemption {
    NatExemption::all(Prefix::new([198, 51, 100, 0].into(), 24))
}

fn resolver() -> NatExemption {
    NatExemption {
        to: Prefix::new(RESOLVER.into(), 32),
        protocol: Some(Protocol::UDP),
        ports: Some((53, 53)),
    }
}

fn exempting() -> Kit {
    kit_with(|config| config.exempt = vec![network(), resolver()])
}

/// A packet that left as it came, but for what a router does to it.
fn routed(outcome: &Outcome, port: PortNumber, sent: &[u8]) {
    assert_eq!(outcome.verdict, Verdict::Forward(port));
    let mut bytes = outcome.packet.clone();
    let packet = Packet::parse(&mut bytes).expect("a whole packet");
    assert_eq!(packet.verify_ipv4_checksum(), Some(true));
    assert_ne!(packet.verify_transport_checksum(), Some(false));
    assert_eq!(packet.ttl(), Some(sent[22] - 1));
    let router = if port == INSIDE {
        INSIDE_ROUTER
    } else {
        OUTSIDE_ROUTER
    };
    assert_eq!(packet.ethernet_destination(), router);
    let rest = |bytes: &[u8]| [&bytes[14..22], &bytes[23..24], &bytes[26..]].concat();
    assert_eq!(rest(&outcome.packet), rest(sent));
}

fn dropped(outcome: &Outcome, reason: Reason) {
    assert_eq!(outcome.verdict, Verdict::Drop(reason));
}

fn counted(kit: &Kit) -> u64 {
    let mut report = Vec::new();
    let more = kit
        .function()
        .report(kit.state(), NEWS_QUESTION, (0, 16), &mut report);
    assert_eq!(more, None, "nothing is logged");
    let mut counted = 0;
    assert!(NatReportPart::read_all(&report, |news| {
        if let NatReportPart::Use(of) = news {
            counted = of.exempt;
        }
    }));
    counted
}

/// The same packet of another protocol without ports here, as GRE is.
fn of_protocol(mut frame: Vec<u8>, protocol: u8) -> Vec<u8> {
    frame[23] = protocol;
    frame[24..26].copy_from_slice(&[0, 0]);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

const GRE: u8 = 47;

/// Packets from inside and from outside that are exempt, of every kind.
fn exempt_packets() -> Vec<(PortNumber, Vec<u8>)> {
    let wish = Wish::default();
    let mut packets = Vec::new();
    for (inside, remote) in [
        (udp(HOST, 40_000), udp(SERVER, 443)),
        (tcp(HOST, 40_000), tcp(SERVER, 443)),
        (udp(HOST, 40_000), udp(RESOLVER, 53)),
    ] {
        packets.push((INSIDE, frame(INSIDE, inside, remote, wish)));
        packets.push((OUTSIDE, frame(OUTSIDE, remote, inside, wish)));
    }
    for (port, from, to) in [(INSIDE, HOST, SERVER), (OUTSIDE, SERVER, HOST)] {
        for kind in [IcmpKind::Query, IcmpKind::Reply] {
            packets.push((port, echo(port, from.into(), to.into(), 7, kind)));
        }
        let gre = of_protocol(frame(port, udp(from, 1), udp(to, 2), wish), GRE);
        packets.push((port, gre));
        // The later part of a datagram alone: nothing of its first one is needed.
        packets.push((port, fragments(port, udp(from, 1), udp(to, 2), 9).remove(1)));
    }
    packets
}

#[test]
fn rfc_6888_req_6_packets_are_routed_as_they_are_by_any_instance_alone() {
    let function = || {
        let mut config = config();
        config.exempt = vec![network(), resolver()];
        nat(config)
    };
    let mut cluster = ClusterKit::new(function(), 3, 7);
    let digests =
        |cluster: &ClusterKit<Nat>, at| asterism_function::State::digests(cluster.state(at));
    let before: Vec<_> = (0..3).map(|member| digests(&cluster, member)).collect();
    for (port, sent) in exempt_packets() {
        let by = if port == INSIDE { OUTSIDE } else { INSIDE };
        // Nobody hears of anybody: each does the same.
        for member in 0..3 {
            routed(&cluster.packet(member, port, &sent), by, &sent);
        }
    }
    for (member, before) in before.iter().enumerate() {
        assert_eq!(digests(&cluster, member), *before, "no state is written");
    }
}

#[test]
fn they_count_for_nobody_but_are_counted() {
    let mut kit = kit_with(|config| {
        config.exempt = vec![network()];
        config.subscribers.ports_max = 1;
        config.subscribers.sessions_per_second = 1;
        config.subscribers.sessions_burst = 1;
    });
    for port in 0..50 {
        let sent = frame(
            INSIDE,
            udp(HOST, 5_000 + port),
            udp(SERVER, 443),
            Wish::default(),
        );
        routed(&kit.packet(INSIDE, &sent), OUTSIDE, &sent);
    }
    let stranger = udp(STRANGER, 443);
    let first = send(
        &mut kit,
        INSIDE,
        udp(HOST, 1_100),
        stranger,
        Wish::default(),
    );
    assert_ne!(left_by(&first, OUTSIDE).source.octets(), HOST);
    assert_eq!(counted(&kit), 50);
    assert_eq!(kit.state().sessions.len_now(), 1);
}

#[test]
fn other_ports_and_protocols_of_an_exempt_address_are_translated() {
    let mut kit = exempting();
    for (inside, remote) in [
        (udp(HOST, 40_000), udp(RESOLVER, 54)),
        (tcp(HOST, 40_000), tcp(RESOLVER, 53)),
    ] {
        let out = send(&mut kit, INSIDE, inside, remote, Wish::default());
        let outside = left_by(&out, OUTSIDE).source();
        assert_ne!(outside.address, inside.address);
        let back = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
        assert_eq!(left_by(&back, INSIDE).destination(), inside);
    }
    let ping = echo(INSIDE, HOST.into(), RESOLVER.into(), 7, IcmpKind::Query);
    let sent = left_by(&kit.packet(INSIDE, &ping), OUTSIDE);
    assert_ne!(sent.source.octets(), HOST);
    assert_eq!(counted(&kit), 0);
}

#[test]
fn only_exempt_sources_reach_inside_addresses() {
    let mut kit = exempting();
    let inside = udp(HOST, 40_000);
    let comes = |kit: &mut Kit, from: Endpoint, to: Endpoint| {
        send(kit, OUTSIDE, from, to, flagged(TcpFlags::SYN))
    };
    for from in [
        udp(STRANGER, 53),
        udp(RESOLVER, 54),
        udp([198, 51, 101, 7], 1),
    ] {
        dropped(&comes(&mut kit, from, inside), Reason::NotForUs);
    }
    let other = tcp(RESOLVER, 53);
    dropped(&comes(&mut kit, other, tcp(HOST, 1)), Reason::NotForUs);
    let ping = echo(OUTSIDE, RESOLVER.into(), HOST.into(), 7, IcmpKind::Query);
    dropped(&kit.packet(OUTSIDE, &ping), Reason::NotForUs);
    // The recipient is nobody inside: routed back outside it would circle.
    let server = udp(SERVER, 443);
    dropped(&comes(&mut kit, server, udp(STRANGER, 1)), Reason::NotForUs);
    let own = udp(INSIDE_ADDRESS.octets(), 1);
    dropped(&comes(&mut kit, server, own), Reason::NotForUs);
    // And from inside only who is inside.
    let spoofed = send(
        &mut kit,
        INSIDE,
        udp([172, 16, 0, 1], 1),
        server,
        Wish::default(),
    );
    dropped(&spoofed, Reason::SpoofedSource);
    assert_eq!(counted(&kit), 0);
}

/// Whatever the list says: a source that is inside does not come from outside, and own addresses are the NAT's.
#[test]
fn a_list_of_everything_leaves_out_what_is_inside_and_the_nat_itself() {
    let mut kit = kit_with(|config| config.exempt = vec![NatExemption::all(Prefix::ALL)]);
    let (inside, neighbour) = (udp(HOST, 40_000), udp([10, 0, 0, 6], 50_000));
    let spoofed = send(&mut kit, OUTSIDE, neighbour, inside, Wish::default());
    dropped(&spoofed, Reason::NotForUs);
    // A hairpin is translated, so that a host that knows only the outside endpoint is reached.
    let hairpin = send(
        &mut kit,
        INSIDE,
        inside,
        udp(OUTSIDE_ADDRESS.octets(), 4_000),
        Wish::default(),
    );
    dropped(&hairpin, Reason::NoBinding);
    let between = send(&mut kit, INSIDE, inside, neighbour, Wish::default());
    assert_eq!(left_by(&between, INSIDE).source(), inside);
    for address in [INSIDE_ADDRESS, OUTSIDE_ADDRESS] {
        let ping = echo(INSIDE, HOST.into(), address, 7, IcmpKind::Query);
        assert_eq!(left_by(&kit.packet(INSIDE, &ping), INSIDE).source, address);
    }
    assert_eq!(counted(&kit), 0);
}

/// The answer would come from the inside address, which the asker does not know: it could only fail later.
#[test]
fn an_exempt_source_reaches_no_outside_port() {
    let mut kit = kit_with(|config| {
        config.exempt = vec![network()];
        config.forwards = vec![asterism_functions::nat::Forward {
            outside: tcp(OUTSIDE_ADDRESS.octets(), 80),
            inside: tcp(HOST, 8_080),
        }];
    });
    let to = tcp(OUTSIDE_ADDRESS.octets(), 80);
    let from_server = send(&mut kit, OUTSIDE, tcp(SERVER, 9), to, flagged(SYN));
    dropped(&from_server, Reason::Filtered);
    let from_stranger = send(&mut kit, OUTSIDE, tcp(STRANGER, 9), to, flagged(SYN));
    assert_eq!(
        left_by(&from_stranger, INSIDE).destination(),
        tcp(HOST, 8_080)
    );
    // The NAT itself answers.
    let ping = echo(OUTSIDE, SERVER.into(), OUTSIDE_ADDRESS, 7, IcmpKind::Query);
    left_by(&kit.packet(OUTSIDE, &ping), OUTSIDE);
}

#[test]
fn later_fragments_to_an_exempt_port_follow_the_first_one() {
    let mut config = config();
    config.exempt = vec![resolver()];
    let mut cluster = ClusterKit::new(nat(config), 3, 7);
    for (port, by, from, to) in [
        (INSIDE, OUTSIDE, udp(HOST, 40_000), udp(RESOLVER, 53)),
        (OUTSIDE, INSIDE, udp(RESOLVER, 53), udp(HOST, 40_000)),
    ] {
        let parts = fragments(port, from, to, 9);
        routed(&cluster.packet(0, port, &parts[0]), by, &parts[0]);
        cluster.tell(0, 2);
        routed(&cluster.packet(2, port, &parts[1]), by, &parts[1]);
        // A part of another datagram, whose port nobody knows, is not guessed at.
        let alone = fragments(port, from, to, 10).remove(1);
        cluster.advance_us(200_000);
        let outcome = cluster.packet_since(1, 0, port, &alone).unwrap();
        dropped(&outcome, Reason::FragmentUnmatched);
    }
}

#[test]
fn a_router_tells_the_sender_why_a_packet_goes_no_further() {
    let mut kit = exempting();
    let dying = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let (inside, server) = (udp(HOST, 40_000), udp(SERVER, 443));
    for (port, from, to, own) in [
        (INSIDE, inside, server, INSIDE_ADDRESS),
        (OUTSIDE, server, inside, OUTSIDE_ADDRESS),
    ] {
        let out = send(&mut kit, port, from, to, dying);
        dropped(&out, Reason::TtlExceeded);
        let error = the_error(&out);
        assert_eq!((error.port, error.source), (port, own));
        assert_eq!((error.icmp_type, error.destination), (11, from.address));
        assert_eq!(error.quoted.source(), from);
    }
    let mut narrow = kit_with(|config| {
        config.exempt = vec![network()];
        config.outside.mtu = 100;
    });
    let long = Wish {
        payload: &[0; 100],
        ..Wish::default()
    };
    let out = send(&mut narrow, INSIDE, inside, server, long);
    dropped(&out, Reason::PacketTooBig);
    let error = the_error(&out);
    assert_eq!(
        (error.icmp_type, error.code, error.rest),
        (3, 4, [0, 0, 0, 100])
    );
    let may_be_cut = Wish {
        dont_fragment: false,
        ..long
    };
    let out = send(&mut narrow, INSIDE, inside, server, may_be_cut);
    assert_eq!((out.verdict, out.emitted.len()), (Verdict::Consumed, 2));
}

/// An ICMP error by `reporter` about a packet, as it comes in by `port`.
fn error_about(port: PortNumber, reporter: [u8; 4], about: &[u8], quoted: usize) -> Vec<u8> {
    let sender: [u8; 4] = about[26..30].try_into().unwrap();
    let quote = &about[14..about.len().min(14 + quoted)];
    icmp(port, reporter.into(), sender.into(), 3, 4, [0; 4], quote)
}

#[test]
fn errors_about_exempt_packets_pass_both_ways() {
    let mut kit = exempting();
    for (port, sent) in exempt_packets() {
        // An error from the other side is about what went out by the one.
        let (back, by, reporter) = if port == INSIDE {
            (OUTSIDE, INSIDE, STRANGER)
        } else {
            (INSIDE, OUTSIDE, [192, 168, 0, 2])
        };
        for quoted in [28, 500] {
            let error = error_about(back, reporter, &sent, quoted);
            routed(&kit.packet(back, &error), by, &error);
        }
    }
    assert!(kit.state().sessions.is_empty_now());
}

#[test]
fn errors_about_other_packets_do_not() {
    let mut kit = exempting();
    let (inside, wish) = (udp(HOST, 40_000), Wish::default());
    let about = |from, to| frame(INSIDE, from, to, wish);
    let exempt = about(inside, udp(RESOLVER, 53));
    let mut refuses = |port, reporter, about: &[u8], reason| {
        let error = error_about(port, reporter, about, 500);
        dropped(&kit.packet(port, &error), reason);
    };
    let unmatched = Reason::IcmpUnmatched;
    refuses(
        OUTSIDE,
        STRANGER,
        &about(inside, udp(RESOLVER, 54)),
        unmatched,
    );
    refuses(
        OUTSIDE,
        STRANGER,
        &about(inside, udp(STRANGER, 53)),
        unmatched,
    );
    // About what an exempt source is said to have sent: it went the other way.
    refuses(
        OUTSIDE,
        STRANGER,
        &about(udp(RESOLVER, 53), inside),
        unmatched,
    );
    // The sender cannot be there.
    refuses(OUTSIDE, [10, 0, 0, 9], &exempt, Reason::SpoofedSource);
    refuses(
        INSIDE,
        STRANGER,
        &about(udp(RESOLVER, 53), inside),
        Reason::SpoofedSource,
    );
    // About a packet to nobody inside.
    refuses(
        INSIDE,
        HOST,
        &about(udp(RESOLVER, 53), udp(STRANGER, 9)),
        unmatched,
    );
    let mut damaged = exempt.clone();
    damaged[24] ^= 1;
    refuses(OUTSIDE, STRANGER, &damaged, unmatched);
    assert_eq!(counted(&kit), 0);
}

/// Ends of what may come: exempt addresses and others, own and inside ones, either way round.
fn any_end(number: u8) -> [u8; 4] {
    match number % 7 {
        0 => HOST,
        1 => SERVER,
        2 => RESOLVER,
        3 => STRANGER,
        4 => OUTSIDE_ADDRESS.octets(),
        5 => INSIDE_ADDRESS.octets(),
        _ => [192, 168, 0, 77],
    }
}

proptest::proptest! {
    /// What leaves with an inside address in it is between an inside host and an exempt remote end, or between inside hosts.
    #[test]
    fn no_inside_address_is_seen_by_others(
        outside: bool, from: u8, to: u8, ports in (0_u16..3, 0_u16..3), is_tcp: bool,
    ) {
        let mut kit = exempting();
        let port = if outside { OUTSIDE } else { INSIDE };
        let end = |address, port| if is_tcp { tcp(address, port) } else { udp(address, port) };
        let (from, to) = (end(any_end(from), 52 + ports.0), end(any_end(to), 52 + ports.1));
        let out = send(&mut kit, port, from, to, flagged(SYN));
        let Verdict::Forward(by) = out.verdict else {
            return Ok(());
        };
        let flow: Flow4 = left_by(&out, by);
        let is_inside = |end: Endpoint| matches!(end.address.octets(), [10, ..] | [192, 168, ..]);
        let is_exempt = |end: Endpoint| {
            end.address.octets()[..3] == [198, 51, 100] || end == udp(RESOLVER, 53)
        };
        if by == OUTSIDE {
            proptest::prop_assert!(!is_inside(flow.source()) || is_exempt(flow.destination()));
            proptest::prop_assert!(!is_inside(flow.destination()));
        } else if port == OUTSIDE {
            proptest::prop_assert!(is_exempt(flow.source()) && is_inside(flow.destination()));
        }
    }
}
