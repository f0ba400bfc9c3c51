//! The library as an author uses it: a function that forwards what has a route, made of nothing else.

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_forwarding::{
    Egress, Errors, ForwardingMode, Fragmented, Fragments, Interface, Neighbours, PacketClass,
    Prefix, Report, Route, Router, RouterConfig, Side, StationRequest, forwards, tables,
};
use asterism_function::testkit::{Outcome, Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, CONTROL, Late, MacAddress, NetworkFunction, Packet, PortNumber, Reason, Verdict,
    build, state,
};

#[state]
struct RelayState {
    fragments: Fragments<Fragmented>,
    neighbours: Neighbours,
    errors: Errors,
}
forwards!(RelayState, Fragmented);

/// Forwards what has a route, to its destination; outwards in a way of the test's choice.
struct Relay {
    router: Router,
    mode: ForwardingMode,
}

impl NetworkFunction for Relay {
    type State = RelayState;

    fn state(&self, builder: &Builder) -> RelayState {
        let (fragments, neighbours, errors) = tables(builder, 64, 64);
        RelayState {
            fragments,
            neighbours,
            errors,
        }
    }

    fn packet(&self, ask: Ask<'_, RelayState>) -> Result<Verdict, Late> {
        if ask.port() == CONTROL {
            return match StationRequest::read(ask.packet().bytes()) {
                Some(request) => self.router.resolve_ahead(ask, request),
                None => Ok(Verdict::Drop(Reason::UnsupportedProtocol)),
            };
        }
        let (ask, side, came) = match self.router.admit(ask)? {
            ControlFlow::Continue(admitted) => admitted,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let (PacketClass::Flow(flow)
        | PacketClass::Query(flow)
        | PacketClass::Reply(flow)
        | PacketClass::Error(flow)) = came;
        let to = match came {
            // Back to who sent the packet that it is about.
            PacketClass::Error(_) => flow.source().address,
            _ => flow.destination().address,
        };
        if self.router.is_interface(to) || self.router.answers_for(to) {
            return self
                .router
                .own(ask, |source| self.router.side_of(source) == Some(side));
        }
        match self.router.side_of(to) {
            Some(Side::Outside) => {
                let egress = Egress::new(Side::Outside, to, self.mode);
                self.router.forward(ask, egress, |_| {})
            }
            Some(Side::Inside) => {
                self.router
                    .forward(ask, Egress::routed(Side::Inside, to), |_| {})
            }
            None => self
                .router
                .report(ask, Report::NetworkUnreachable, Reason::NoRoute),
        }
    }
}

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const INSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OUTSIDE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// A station behind every configured address.
const KNOWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 9, 9]);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
/// Behind a configured router.
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// On the outside link, its station not configured.
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ANSWERED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
const NOWHERE: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);

fn relay(mode: ForwardingMode) -> Relay {
    let router = Ipv4Addr::new(192, 0, 2, 254);
    let config = RouterConfig {
        inside: Interface::new(INSIDE, [10, 0, 0, 1].into(), 24, INSIDE_MAC),
        outside: Interface {
            mtu: 600,
            ..Interface::new(OUTSIDE, OWN, 24, OUTSIDE_MAC)
        },
        routes: &[Route {
            prefix: Prefix::new([198, 51, 100, 0].into(), 24),
            side: Side::Outside,
            next_hop: Some(router),
        }],
        neighbours: &[(router, KNOWN_MAC), (HOST, KNOWN_MAC)],
        answers_for: vec![ANSWERED],
        answers_echo: true,
        icmp_errors_per_second: 2,
    };
    Relay {
        router: Router::new(config),
        mode,
    }
}

fn kit() -> Testkit<Relay> {
    Testkit::new(relay(ForwardingMode::Routed))
}

fn header(port: PortNumber, from: Ipv4Addr, to: Ipv4Addr) -> build::Header4 {
    build::Header4 {
        ethernet_destination: if port == INSIDE {
            INSIDE_MAC
        } else {
            OUTSIDE_MAC
        },
        ..build::Header4::between(from, to)
    }
}

fn udp_of(header: &build::Header4, payload: usize) -> Vec<u8> {
    let mut out = vec![0; 4_096];
    let length = build::udp4(header, 1_000, 53, &vec![7; payload], &mut out);
    out.truncate(length.expect("room for the frame"));
    out
}

fn udp(port: PortNumber, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    udp_of(&header(port, from, to), 8)
}

fn with<T>(frame: &[u8], look: impl FnOnce(&Packet<'_>) -> T) -> T {
    let mut frame = frame.to_vec();
    look(&Packet::parse(&mut frame).expect("the packet is well-formed"))
}

fn arp(request: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = vec![0; 64];
    let length = request(&mut out).expect("room for the frame");
    out.truncate(length);
    out
}

#[test]
fn a_packet_with_a_route_leaves_as_a_routers_does() {
    let outcome = kit().packet(INSIDE, &udp(INSIDE, HOST, FAR));
    assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(outcome.emitted, []);
    assert_eq!(outcome.packet[..6], KNOWN_MAC.0);
    assert_eq!(outcome.packet[6..12], OUTSIDE_MAC.0);
    with(&outcome.packet, |packet| {
        assert_eq!(packet.ttl(), Some(63));
        assert_eq!(packet.ipv4_source(), Some(HOST));
        assert_eq!(packet.verify_transport_checksum(), Some(true));
    });
}

#[test]
fn what_is_not_for_us_or_not_ipv4_is_dropped_with_its_reason() {
    let mut kit = kit();
    let mut astray = udp(INSIDE, HOST, FAR);
    astray[5] ^= 1;
    let drops = |reason| Verdict::Drop(reason);
    assert_eq!(kit.packet(INSIDE, &astray).verdict, drops(Reason::NotForUs));
    let frame = udp(INSIDE, HOST, FAR);
    let elsewhere = kit.packet(PortNumber(7), &frame);
    assert_eq!(elsewhere.verdict, drops(Reason::NotForUs));
    let mut other = frame.clone();
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let other = kit.packet(INSIDE, &other);
    assert_eq!(other.verdict, drops(Reason::UnsupportedProtocol));
}

#[test]
fn an_unknown_station_is_asked_for_once_a_second_and_learnt() {
    let mut kit = kit();
    let frame = udp(INSIDE, HOST, NEAR);
    let asked = kit.packet(INSIDE, &frame);
    assert_eq!(asked.verdict, Verdict::Drop(Reason::NoRoute));
    let [(OUTSIDE, request)] = &asked.emitted[..] else {
        panic!("one request on the outside link: {:?}", asked.emitted);
    };
    let request = with(request, |packet| packet.arp().expect("an ARP packet"));
    assert_eq!((request.sender, request.target), (OWN, NEAR));
    assert_eq!(kit.packet(INSIDE, &frame).emitted, []);
    let mac = MacAddress([2, 0, 0, 0, 0, 77]);
    let reply = arp(|out| build::arp_reply(&request, mac, out));
    assert_eq!(kit.packet(OUTSIDE, &reply).verdict, Verdict::Consumed);
    let known = kit.packet(INSIDE, &frame);
    assert_eq!(known.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(known.packet[..6], mac.0);
    // In use, so it is asked whether it is still there, and the packet leaves.
    kit.advance(301);
    let ageing = kit.packet(INSIDE, &frame);
    assert_eq!(ageing.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(ageing.emitted.len(), 1);
    assert_eq!(kit.packet(INSIDE, &frame).emitted, []);
}

fn ahead(kit: &mut Testkit<Relay>, side: Side, address: Ipv4Addr) -> Outcome {
    kit.packet(CONTROL, &StationRequest { side, address }.frame())
}

/// The answer of a station to the one request by ARP that was emitted.
fn answer(outcome: &Outcome, target: Ipv4Addr, mac: MacAddress) -> Vec<u8> {
    let [(OUTSIDE, request)] = &outcome.emitted[..] else {
        panic!("one request on the outside link: {:?}", outcome.emitted);
    };
    let request = with(request, |packet| packet.arp().expect("an ARP packet"));
    assert_eq!((request.sender, request.target), (OWN, target));
    arp(|out| build::arp_reply(&request, mac, out))
}

#[test]
fn a_station_that_was_asked_for_ahead_gets_the_first_packet() {
    let mut kit = kit();
    let mac = MacAddress([2, 0, 0, 0, 0, 77]);
    let asked = ahead(&mut kit, Side::Outside, NEAR);
    assert_eq!(asked.verdict, Verdict::Consumed);
    let reply = answer(&asked, NEAR, mac);
    let quiet = |kit: &mut Testkit<Relay>| {
        let outcome = ahead(kit, Side::Outside, NEAR);
        assert_eq!(
            (outcome.verdict, outcome.emitted),
            (Verdict::Consumed, vec![])
        );
    };
    quiet(&mut kit);
    kit.advance(1);
    // Nobody answered: it is asked again, once a second.
    let again = ahead(&mut kit, Side::Outside, NEAR);
    assert_eq!(answer(&again, NEAR, mac), reply);
    quiet(&mut kit);
    assert_eq!(kit.packet(OUTSIDE, &reply).verdict, Verdict::Consumed);
    let first = kit.packet(INSIDE, &udp(INSIDE, HOST, NEAR));
    assert_eq!(first.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(first.packet[..6], mac.0);

    // Requests alone keep it, without any packet, beyond the time after which a silent one is unknown.
    for _ in 0..5 {
        kit.advance(300);
        quiet(&mut kit);
        kit.advance(1);
        let ageing = ahead(&mut kit, Side::Outside, NEAR);
        quiet(&mut kit);
        let reply = answer(&ageing, NEAR, mac);
        assert_eq!(kit.packet(OUTSIDE, &reply).verdict, Verdict::Consumed);
    }
    let later = kit.packet(INSIDE, &udp(INSIDE, HOST, NEAR));
    assert_eq!(later.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(later.emitted, []);
}

#[test]
fn what_has_a_station_or_no_route_is_not_asked_for_ahead() {
    let mut kit = kit();
    // Behind a configured router, configured itself, the link's broadcast address, and on the other link.
    let broadcast = [192, 0, 2, 255].into();
    for (side, address) in [
        (Side::Outside, FAR),
        (Side::Inside, HOST),
        (Side::Outside, broadcast),
        (Side::Inside, NEAR),
        (Side::Outside, NOWHERE),
    ] {
        let outcome = ahead(&mut kit, side, address);
        assert_eq!(outcome.verdict, Verdict::Consumed, "{address}");
        assert_eq!(outcome.emitted, [], "{address}");
    }
    assert_eq!(kit.state().neighbours.len_now(), 0);
    // A damaged frame is a counted drop, and a frame of the outside world is no request.
    let frame = StationRequest {
        side: Side::Outside,
        address: NEAR,
    }
    .frame();
    let mut damaged = frame;
    damaged[16] = 9;
    for (port, frame) in [(CONTROL, damaged), (INSIDE, frame), (OUTSIDE, frame)] {
        let outcome = kit.packet(port, &frame);
        let dropped = Verdict::Drop(Reason::UnsupportedProtocol);
        assert_eq!((outcome.verdict, outcome.emitted), (dropped, vec![]));
    }
}

#[test]
fn a_full_table_of_neighbours_refuses_requests_and_counts_them() {
    let mut kit = kit();
    let mut refused = 0;
    for last in 2..=250 {
        let outcome = ahead(&mut kit, Side::Inside, [10, 0, 0, last].into());
        match outcome.verdict {
            Verdict::Consumed => {}
            verdict => {
                assert_eq!(verdict, Verdict::Drop(Reason::TableFull));
                assert_eq!(outcome.emitted, []);
                refused += 1;
            }
        }
    }
    // All but the configured host, which needs no entry.
    assert_eq!(kit.state().neighbours.len_now() + refused, 248);
    assert!(refused > 0);
}

#[test]
fn arp_is_answered_for_our_addresses_on_their_link() {
    let mut kit = kit();
    let mac = MacAddress([2, 0, 0, 0, 0, 77]);
    for (port, sender, target, answers) in [
        (OUTSIDE, NEAR, OWN, true),
        (OUTSIDE, NEAR, ANSWERED, true),
        (OUTSIDE, NEAR, [192, 0, 2, 3].into(), false),
        (INSIDE, [10, 0, 0, 6].into(), [10, 0, 0, 1].into(), true),
        (INSIDE, [10, 0, 0, 6].into(), ANSWERED, false),
    ] {
        let asked = arp(|out| build::arp_request(mac, sender, target, out));
        let outcome = kit.packet(port, &asked);
        assert_eq!(outcome.verdict, Verdict::Consumed);
        assert_eq!(outcome.emitted.len(), usize::from(answers), "{target}");
    }
}

#[test]
fn errors_are_due_with_their_sender_reported_and_limited() {
    let mut kit = kit();
    let ended = udp_of(
        &build::Header4 {
            ttl: 1,
            ..header(INSIDE, HOST, FAR)
        },
        8,
    );
    let long = udp_of(&header(INSIDE, HOST, FAR), 700);
    let astray = udp(INSIDE, HOST, NOWHERE);
    for (frame, reason, icmp_type) in [
        (&ended, Reason::TtlExceeded, 11),
        (&long, Reason::PacketTooBig, 3),
        (&astray, Reason::NoRoute, 3),
    ] {
        kit.advance(1);
        let outcome = kit.packet(INSIDE, frame);
        assert_eq!(outcome.verdict, Verdict::Drop(reason));
        let [(INSIDE, error)] = &outcome.emitted[..] else {
            panic!("{reason}: one error to its sender: {:?}", outcome.emitted);
        };
        with(error, |packet| {
            assert_eq!(packet.icmp_type(), Some(icmp_type));
            assert_eq!(packet.ipv4_source(), Some([10, 0, 0, 1].into()));
            assert_eq!(packet.ipv4_destination(), Some(HOST));
            assert_eq!(packet.verify_transport_checksum(), Some(true));
        });
    }
    kit.advance(1);
    let reasons: Vec<Verdict> = (0..3).map(|_| kit.packet(INSIDE, &ended).verdict).collect();
    let reported = Verdict::Drop(Reason::TtlExceeded);
    assert_eq!(
        reasons,
        [reported, reported, Verdict::Drop(Reason::IcmpLimited)],
        "two a second"
    );
}

#[test]
fn errors_of_others_are_led_back_and_damaged_ones_are_not() {
    let mut kit = kit();
    let mut sent = udp(OUTSIDE, HOST, FAR);
    sent[..6].copy_from_slice(&OUTSIDE_MAC.0);
    let mut error = vec![0; 256];
    let from = [198, 51, 100, 1].into();
    let length = build::icmp_time_exceeded(&sent, from, &mut error).expect("room");
    error.truncate(length);
    error[..6].copy_from_slice(&OUTSIDE_MAC.0);
    let led = kit.packet(OUTSIDE, &error);
    assert_eq!(led.verdict, Verdict::Forward(INSIDE));
    let last = error.len() - 1;
    error[last] ^= 1;
    let damaged = kit.packet(OUTSIDE, &error);
    assert_eq!(damaged.verdict, Verdict::Drop(Reason::IcmpUnmatched));
}

#[test]
fn long_packets_are_cut_and_their_parts_follow_the_first_through_the_next() {
    let mut kit = kit();
    let header = build::Header4 {
        dont_fragment: false,
        identification: 9,
        ..header(INSIDE, HOST, FAR)
    };
    let cut = kit.packet(INSIDE, &udp_of(&header, 1_200));
    assert_eq!(cut.verdict, Verdict::Consumed);
    assert_eq!(cut.emitted.len(), 3);
    let parts: Vec<Vec<u8>> = cut
        .emitted
        .iter()
        .map(|(port, part)| {
            assert_eq!(*port, OUTSIDE);
            assert!(part.len() <= 614);
            let mut part = part.clone();
            part[..6].copy_from_slice(&INSIDE_MAC.0);
            part
        })
        .collect();
    let early = kit.packet(INSIDE, &parts[1]);
    assert_eq!(early.verdict, Verdict::Drop(Reason::FragmentUnmatched));
    for part in &parts {
        let outcome = kit.packet(INSIDE, part);
        assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
    }
}

/// A datagram in two parts, as it comes by a port.
fn parts(port: PortNumber, from: Ipv4Addr, to: Ipv4Addr, identification: u16) -> [Vec<u8>; 2] {
    let header = build::Header4 {
        dont_fragment: false,
        identification,
        ..header(port, from, to)
    };
    let whole = udp_of(&header, 56);
    let (headers, data) = whole.split_at(34);
    [(0u16, 0..32, true), (4, 32..64, false)].map(|(offset, range, more)| {
        let mut part = [headers, &data[range]].concat();
        part[16..18].copy_from_slice(&52u16.to_be_bytes());
        part[20..22].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
        part[24..26].copy_from_slice(&[0, 0]);
        let sum = asterism_function::checksum::of(&part[14..34]);
        part[24..26].copy_from_slice(&sum.to_be_bytes());
        part
    })
}

#[test]
fn datagrams_whose_parts_have_passed_hold_no_places_for_long() {
    let mut kit = kit();
    for number in 0..64 {
        for part in parts(INSIDE, HOST, FAR, number) {
            let outcome = kit.packet(INSIDE, &part);
            assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE), "{number}");
        }
    }
    let next = parts(INSIDE, HOST, FAR, 64);
    let refused = kit.packet(INSIDE, &next[0]);
    assert_eq!(refused.verdict, Verdict::Drop(Reason::TableFull));
    kit.advance(3);
    for part in next {
        let outcome = kit.packet(INSIDE, &part);
        assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
    }
}

/// As long as parts come, so long is it known where they go.
#[test]
fn a_datagram_whose_parts_come_slowly_is_followed_to_its_end() {
    let mut kit = kit();
    let [first, later] = parts(INSIDE, HOST, FAR, 1);
    kit.packet(INSIDE, &first);
    for _ in 0..20 {
        kit.advance(1);
        let outcome = kit.packet(INSIDE, &later);
        assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
    }
    kit.advance(3);
    let outcome = kit.packet(INSIDE, &later);
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::FragmentUnmatched));
}

#[test]
fn first_fragments_of_strangers_take_no_place_from_hosts_inside() {
    let mut kit = kit();
    let mut passed = 0;
    for number in 0..1_000 {
        let outcome = kit.packet(OUTSIDE, &parts(OUTSIDE, FAR, HOST, number)[0]);
        match outcome.verdict {
            Verdict::Forward(INSIDE) => passed += 1,
            other => assert_eq!(other, Verdict::Drop(Reason::TableFull)),
        }
    }
    assert_eq!(passed, 32, "half of the table");
    for number in 0..32 {
        for part in parts(INSIDE, HOST, FAR, number) {
            let outcome = kit.packet(INSIDE, &part);
            assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE), "{number}");
        }
    }
}

#[test]
fn a_switched_packet_keeps_its_time_to_live_and_a_tunnelled_one_is_put_into_another() {
    let frame = udp(INSIDE, HOST, FAR);
    let switched = Testkit::new(relay(ForwardingMode::Switched)).packet(INSIDE, &frame);
    assert_eq!(switched.verdict, Verdict::Forward(OUTSIDE));
    assert_eq!(switched.packet[14..], frame[14..]);
    let tunnelled = Testkit::new(relay(ForwardingMode::Tunnelled)).packet(INSIDE, &frame);
    assert_eq!(tunnelled.verdict, Verdict::Consumed);
    let [(OUTSIDE, outer)] = &tunnelled.emitted[..] else {
        panic!("one packet: {:?}", tunnelled.emitted);
    };
    with(outer, |packet| {
        assert_eq!(packet.layout().protocol(), 4);
        assert_eq!(packet.ipv4_source(), Some(OWN));
        assert_eq!(packet.ipv4_destination(), Some(FAR));
    });
    assert_eq!(outer[34 + 8], 63, "the inner time to live is one less");
    assert_eq!(outer[34 + 12..], frame[14 + 12..]);
}

#[test]
fn echo_requests_to_our_addresses_are_answered_where_the_asker_is_genuine() {
    let mut kit = kit();
    let echo = |port, from: Ipv4Addr, to| {
        let mut out = vec![0; 128];
        let header = header(port, from, to);
        let length = build::icmp4(&header, 8, 0, [0, 5, 0, 1], b"echo", &mut out);
        out.truncate(length.expect("room"));
        out
    };
    for to in [OWN, ANSWERED] {
        let answer = kit.packet(OUTSIDE, &echo(OUTSIDE, FAR, to));
        assert_eq!(answer.verdict, Verdict::Forward(OUTSIDE));
        with(&answer.packet, |packet| {
            assert_eq!(packet.icmp_type(), Some(0));
            assert_eq!(packet.ipv4_source(), Some(to));
            assert_eq!(packet.ipv4_destination(), Some(FAR));
            assert_eq!(packet.verify_transport_checksum(), Some(true));
        });
    }
    let forged = kit.packet(OUTSIDE, &echo(OUTSIDE, HOST, OWN));
    assert_eq!(forged.verdict, Verdict::Drop(Reason::SpoofedSource));
}

#[test]
fn late_reads_change_nothing() {
    let cut_off = build::Header4 {
        ttl: 1,
        ..header(INSIDE, HOST, FAR)
    };
    let mac = MacAddress([2, 0, 0, 0, 0, 77]);
    let asks = arp(|out| build::arp_request(mac, NEAR, OWN, out));
    let request = StationRequest {
        side: Side::Outside,
        address: [192, 0, 2, 10].into(),
    };
    let steps = [
        (0, CONTROL, request.frame().to_vec()),
        (0, INSIDE, udp(INSIDE, HOST, NEAR)),
        (0, OUTSIDE, asks),
        (1, INSIDE, udp(INSIDE, HOST, NEAR)),
        (400, INSIDE, udp(INSIDE, HOST, NEAR)),
        (0, INSIDE, udp_of(&cut_off, 8)),
        (0, INSIDE, udp(INSIDE, HOST, FAR)),
    ];
    late_everywhere(|| relay(ForwardingMode::Routed), &steps);
}
