//! RFC 5508: queries and errors; and the errors that a router sends itself.

use asterism_function::{Endpoint, IcmpKind, Packet, Protocol, Reason, TcpFlags, Verdict};

use crate::nat::network::*;

const REMOTE: [u8; 4] = [198, 51, 100, 7];
const HOST: [u8; 4] = [10, 0, 0, 5];

fn query(address: [u8; 4], identifier: u16) -> Endpoint {
    Endpoint::new(address.into(), identifier, Protocol::ICMP)
}

/// The network layer of a frame: what an error quotes.
fn quoted(frame: &[u8]) -> &[u8] {
    &frame[14..]
}

#[test]
fn req_1_queries_come_back_and_last_a_minute() {
    let mut kit = kit();
    let ask = echo(INSIDE, HOST.into(), REMOTE.into(), 7_700, IcmpKind::Query);
    let outside = left_by(&kit.packet(INSIDE, &ask), OUTSIDE).source();
    assert_eq!(outside.port, 7_700, "the identifier is kept");
    let other = echo(
        INSIDE,
        HOST.into(),
        [9, 9, 9, 9].into(),
        7_700,
        IcmpKind::Query,
    );
    assert_eq!(
        left_by(&kit.packet(INSIDE, &other), OUTSIDE).source(),
        outside
    );
    let answer = echo(
        OUTSIDE,
        REMOTE.into(),
        outside.address,
        outside.port,
        IcmpKind::Reply,
    );
    let back = left_by(&kit.packet(OUTSIDE, &answer), INSIDE);
    assert_eq!(
        (back.source, back.destination()),
        (REMOTE.into(), query(HOST, 7_700))
    );
    assert_eq!(kit.state().sessions.len_now(), 2);
    kit.advance(60);
    assert_eq!(kit.state().sessions.len_now(), 2);
    kit.advance(17);
    assert_eq!(kit.state().sessions.len_now(), 0);
    let late = kit.packet(OUTSIDE, &answer);
    assert_eq!(late.verdict, Verdict::Drop(Reason::NoBinding));
}

#[test]
fn two_hosts_with_one_identifier_get_two() {
    let mut kit = kit_with(|config| config.outside_addresses.truncate(1));
    let mut seen = Vec::new();
    for host in 1..5 {
        let ask = echo(
            INSIDE,
            [10, 0, 0, host].into(),
            REMOTE.into(),
            77,
            IcmpKind::Query,
        );
        let outside = left_by(&kit.packet(INSIDE, &ask), OUTSIDE).source();
        assert!(!seen.contains(&outside));
        let answer = echo(
            OUTSIDE,
            REMOTE.into(),
            outside.address,
            outside.port,
            IcmpKind::Reply,
        );
        let back = left_by(&kit.packet(OUTSIDE, &answer), INSIDE);
        assert_eq!(back.destination(), query([10, 0, 0, host], 77));
        seen.push(outside);
    }
}

#[test]
fn req_4_errors_from_outside_reach_who_sent_the_packet() {
    for end in [tcp, udp] {
        let mut kit = kit();
        let (inside, remote) = (end(HOST, 40_000), end(REMOTE, 443));
        let out = send(&mut kit, INSIDE, inside, remote, Wish::default());
        let outside = left_by(&out, OUTSIDE).source();
        let before = digests(&kit);
        // From a router on the way, quoting all and quoting eight bytes of the transport header.
        for length in [quoted(&out.packet).len(), 28] {
            let error = icmp(
                OUTSIDE,
                [192, 0, 2, 1].into(),
                outside.address,
                11,
                0,
                [0; 4],
                &quoted(&out.packet)[..length],
            );
            let mut back = kit.packet(OUTSIDE, &error);
            assert_eq!(back.verdict, Verdict::Forward(INSIDE));
            let packet = Packet::parse(&mut back.packet).unwrap();
            assert_eq!(packet.verify_transport_checksum(), Some(true));
            assert_eq!(packet.ipv4_source(), Some([192, 0, 2, 1].into()));
            assert_eq!(packet.ipv4_destination(), Some(HOST.into()));
            let embedded = packet.embedded().unwrap();
            assert!(embedded.header_checksum_valid());
            let flow = embedded.flow4().unwrap();
            assert_eq!((flow.source(), flow.destination()), (inside, remote));
        }
        assert_eq!(digests(&kit), before, "errors change nothing (REQ-6)");
    }
}

#[test]
fn req_4_errors_about_queries_too() {
    let mut kit = kit();
    let ask = echo(INSIDE, HOST.into(), REMOTE.into(), 77, IcmpKind::Query);
    let out = kit.packet(INSIDE, &ask);
    let outside = left_by(&out, OUTSIDE).source();
    let error = icmp(
        OUTSIDE,
        [192, 0, 2, 1].into(),
        outside.address,
        3,
        1,
        [0; 4],
        quoted(&out.packet),
    );
    let mut back = kit.packet(OUTSIDE, &error);
    assert_eq!(back.verdict, Verdict::Forward(INSIDE));
    let packet = Packet::parse(&mut back.packet).unwrap();
    assert_eq!(
        packet.embedded().unwrap().flow4().unwrap().source(),
        query(HOST, 77)
    );
}

#[test]
fn req_5_errors_from_inside_hide_who_sends_them() {
    let mut kit = kit();
    let (inside, remote) = (udp(HOST, 40_000), udp(REMOTE, 443));
    let out = send(&mut kit, INSIDE, inside, remote, Wish::default());
    let outside = left_by(&out, OUTSIDE).source();
    // About a packet of the session, and about one of a stranger that the binding let in.
    for sender in [remote, udp([9, 9, 9, 9], 9)] {
        let entered = send(&mut kit, OUTSIDE, sender, outside, Wish::default());
        assert_eq!(entered.verdict, Verdict::Forward(INSIDE));
        let error = icmp(
            INSIDE,
            HOST.into(),
            sender.address,
            3,
            3,
            [0; 4],
            quoted(&entered.packet),
        );
        let mut back = kit.packet(INSIDE, &error);
        assert_eq!(back.verdict, Verdict::Forward(OUTSIDE));
        let packet = Packet::parse(&mut back.packet).unwrap();
        assert_eq!(packet.verify_transport_checksum(), Some(true));
        assert_eq!(packet.ipv4_source(), Some(outside.address));
        assert_eq!(packet.ipv4_destination(), Some(sender.address));
        let flow = packet.embedded().unwrap().flow4().unwrap();
        assert_eq!((flow.source(), flow.destination()), (sender, outside));
    }
}

#[test]
fn req_7_errors_hairpin() {
    let mut kit = kit();
    let (one, two) = (udp(HOST, 40_000), udp([10, 0, 0, 6], 50_000));
    let remote = udp(REMOTE, 443);
    let outside_one = left_by(
        &send(&mut kit, INSIDE, one, remote, Wish::default()),
        OUTSIDE,
    )
    .source();
    let outside_two = left_by(
        &send(&mut kit, INSIDE, two, remote, Wish::default()),
        OUTSIDE,
    )
    .source();
    let there = send(&mut kit, INSIDE, one, outside_two, Wish::default());
    assert_eq!(left_by(&there, INSIDE).destination(), two);
    let error = icmp(
        INSIDE,
        two.address,
        outside_one.address,
        3,
        3,
        [0; 4],
        quoted(&there.packet),
    );
    let mut back = kit.packet(INSIDE, &error);
    assert_eq!(back.verdict, Verdict::Forward(INSIDE));
    let packet = Packet::parse(&mut back.packet).unwrap();
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    assert_eq!(packet.ipv4_source(), Some(outside_two.address));
    assert_eq!(packet.ipv4_destination(), Some(one.address));
    let flow = packet.embedded().unwrap().flow4().unwrap();
    assert_eq!((flow.source(), flow.destination()), (one, outside_two));
    // Of outside nobody has seen it.
    let seen = frame(OUTSIDE, outside_one, outside_two, Wish::default());
    let router = [192, 0, 2, 1].into();
    let error = icmp(
        OUTSIDE,
        router,
        outside_one.address,
        3,
        3,
        [0; 4],
        quoted(&seen),
    );
    let forged = kit.packet(OUTSIDE, &error);
    assert_eq!(forged.verdict, Verdict::Drop(Reason::IcmpUnmatched));
}

#[test]
fn errors_of_nothing_known_are_dropped() {
    let mut kit = kit();
    let (inside, remote) = (udp(HOST, 40_000), udp(REMOTE, 443));
    let out = send(&mut kit, INSIDE, inside, remote, Wish::default());
    let outside = left_by(&out, OUTSIDE).source();
    let mut drop_of = |to: Endpoint, icmp_type, quoted: &[u8]| {
        let error = icmp(
            OUTSIDE,
            [192, 0, 2, 1].into(),
            to.address,
            icmp_type,
            0,
            [0; 4],
            quoted,
        );
        kit.packet(OUTSIDE, &error).verdict
    };
    let whole = quoted(&out.packet).to_vec();
    let unmatched = Verdict::Drop(Reason::IcmpUnmatched);
    let mut other_port = whole.clone();
    other_port[21] ^= 1;
    assert_eq!(drop_of(outside, 3, &other_port), unmatched);
    let mut damaged = whole.clone();
    damaged[10] ^= 1;
    assert_eq!(
        drop_of(outside, 3, &damaged),
        unmatched,
        "REQ-3a: the quoted checksum is wrong"
    );
    for length in 0..28 {
        assert_eq!(drop_of(outside, 3, &whole[..length]), unmatched);
    }
    let elsewhere = udp(
        [
            203,
            0,
            113,
            if outside.address == OUTSIDE_ADDRESS {
                2
            } else {
                1
            },
        ],
        1,
    );
    assert_eq!(drop_of(elsewhere, 3, &whole), unmatched);
    assert_eq!(
        drop_of(outside, 5, &whole),
        Verdict::Drop(Reason::UnsupportedProtocol),
        "a redirect"
    );
}

#[test]
fn a_packet_at_the_end_of_its_incarnation_is_reported_to_its_sender_as_it_was() {
    let mut kit = kit();
    let (inside, remote) = (udp(HOST, 40_000), udp(REMOTE, 443));
    let dying = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let out = send(&mut kit, INSIDE, inside, remote, dying);
    assert_eq!(out.verdict, Verdict::Drop(Reason::TtlExceeded));
    assert!(kit.state().sessions.is_empty_now());
    assert_eq!(
        kit.state().ports.usage().in_use,
        0,
        "the port was given back"
    );
    let error = the_error(&out);
    assert_eq!(
        (error.port, error.source, error.destination),
        (INSIDE, INSIDE_ADDRESS, HOST.into())
    );
    assert_eq!((error.icmp_type, error.code), (11, 0));
    assert_eq!(
        (error.quoted.source(), error.quoted.destination()),
        (inside, remote)
    );
    // Known sessions, both ways.
    let outside = left_by(
        &send(&mut kit, INSIDE, inside, remote, Wish::default()),
        OUTSIDE,
    )
    .source();
    for ttl in [0, 1] {
        let dying = Wish {
            ttl,
            ..Wish::default()
        };
        let out = send(&mut kit, INSIDE, inside, remote, dying);
        assert_eq!(out.verdict, Verdict::Drop(Reason::TtlExceeded));
        let back = send(&mut kit, OUTSIDE, remote, outside, dying);
        assert_eq!(back.verdict, Verdict::Drop(Reason::TtlExceeded));
        let error = the_error(&back);
        assert_eq!(
            (error.port, error.source, error.destination),
            (OUTSIDE, OUTSIDE_ADDRESS, REMOTE.into())
        );
        assert_eq!(
            (error.quoted.source(), error.quoted.destination()),
            (remote, outside)
        );
    }
    let last = Wish {
        ttl: 2,
        ..Wish::default()
    };
    left_by(&send(&mut kit, INSIDE, inside, remote, last), OUTSIDE);
}

#[test]
fn a_packet_too_long_for_the_next_link_is_reported_where_it_may_not_be_cut() {
    let mut kit = kit_with(|config| config.outside.mtu = 100);
    let (inside, remote) = (udp(HOST, 40_000), udp(REMOTE, 443));
    let fits = Wish {
        payload: &[0; 72],
        ..Wish::default()
    };
    let long = Wish {
        payload: &[0; 73],
        ..Wish::default()
    };
    for _ in 0..2 {
        let out = send(&mut kit, INSIDE, inside, remote, long);
        assert_eq!(out.verdict, Verdict::Drop(Reason::PacketTooBig));
        let error = the_error(&out);
        assert_eq!(
            (error.icmp_type, error.code, error.rest),
            (3, 4, [0, 0, 0, 100])
        );
        left_by(&send(&mut kit, INSIDE, inside, remote, fits), OUTSIDE);
    }
}

#[test]
fn errors_are_limited_and_the_limit_is_counted() {
    let mut kit = kit_with(|config| config.icmp_errors_per_second = 3);
    let dying = Wish {
        ttl: 1,
        ..Wish::default()
    };
    let one_more = |kit: &mut Kit| send(kit, INSIDE, udp(HOST, 1), udp(REMOTE, 2), dying);
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(one_more(&mut kit).emitted.len(), 1);
        }
        let limited = one_more(&mut kit);
        assert_eq!(limited.verdict, Verdict::Drop(Reason::IcmpLimited));
        assert!(limited.emitted.is_empty());
        kit.advance(1);
    }
}

#[test]
fn its_own_addresses_answer_echo_requests_and_nothing_else() {
    let mut kit = kit();
    for (port, from, to) in [
        (INSIDE, HOST.into(), INSIDE_ADDRESS),
        (INSIDE, HOST.into(), OUTSIDE_ADDRESS),
        (OUTSIDE, REMOTE.into(), OUTSIDE_ADDRESS),
        (OUTSIDE, REMOTE.into(), [203, 0, 113, 2].into()),
    ] {
        let answer = kit.packet(port, &echo(port, from, to, 5, IcmpKind::Query));
        let flow = left_by(&answer, port);
        assert_eq!(
            (flow.source, flow.destination, flow.source_port),
            (to, from, 5)
        );
        let mut bytes = answer.packet.clone();
        let packet = Packet::parse(&mut bytes).unwrap();
        assert_eq!((packet.icmp_type(), packet.ttl()), (Some(0), Some(64)));
        assert_eq!(packet.payload(), b"ping");
    }
    let knock = send(
        &mut kit,
        INSIDE,
        tcp(HOST, 1),
        tcp(INSIDE_ADDRESS.octets(), 22),
        flagged(TcpFlags::SYN),
    );
    assert_eq!(knock.verdict, Verdict::Drop(Reason::NotForUs));
    assert!(kit.state().sessions.is_empty_now());
}
