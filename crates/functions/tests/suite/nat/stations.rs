//! Who a packet of a known session is handed to: routers that are configured, or learnt by ARP, and hosts on the link.

use core::net::Ipv4Addr;

use asterism_function::testkit::late_everywhere;
use asterism_function::{Endpoint, MacAddress, Packet, PortNumber, Reason, Verdict};
use asterism_functions::nat::{NatConfig, Prefix, Route, Side};

use crate::nat::network::*;

const ROUTERS: [(PortNumber, Ipv4Addr, Ipv4Addr, MacAddress); 2] = [
    (
        INSIDE,
        INSIDE_ADDRESS,
        Ipv4Addr::new(192, 168, 0, 2),
        INSIDE_ROUTER,
    ),
    (
        OUTSIDE,
        OUTSIDE_ADDRESS,
        Ipv4Addr::new(203, 0, 113, 254),
        OUTSIDE_ROUTER,
    ),
];
const REPLACED: MacAddress = MacAddress([2, 0, 0, 0, 7, 7]);
const REMOTE: [u8; 4] = [198, 51, 100, 7];

/// A station asks for the NAT's address, by which the NAT learns its own.
fn asks(kit: &mut Kit, port: PortNumber, ours: Ipv4Addr, asker: Ipv4Addr, mac: MacAddress) {
    let out = kit.packet(port, &arp_request(mac, asker, ours));
    assert_eq!(out.emitted.len(), 1, "it is answered");
}

/// A NAT that knows of no station.
fn unconfigured() -> NatConfig {
    NatConfig {
        neighbours: Vec::new(),
        ..config()
    }
}

/// The same, which has learnt both routers'.
fn learnt() -> Kit {
    kit_that_learns(unconfigured())
}

fn kit_that_learns(config: NatConfig) -> Kit {
    let mut kit = Kit::new(nat(config));
    for (port, ours, router, mac) in ROUTERS {
        asks(&mut kit, port, ours, router, mac);
    }
    kit
}

/// The packet of a session that left by `port`, and the station that it was handed to.
fn handed_to(kit: &mut Kit, port: PortNumber, from: Endpoint, to: Endpoint) -> MacAddress {
    let other = if port == INSIDE { OUTSIDE } else { INSIDE };
    let mut out = send(kit, port, from, to, Wish::default());
    left_by(&out, other);
    let packet = Packet::parse(&mut out.packet).unwrap();
    let ours = if other == INSIDE {
        INSIDE_MAC
    } else {
        OUTSIDE_MAC
    };
    assert_eq!(packet.ethernet_source(), ours);
    packet.ethernet_destination()
}

#[test]
fn packets_are_the_same_whether_stations_are_configured_or_learnt() {
    let mut kits = [kit(), learnt()];
    for (inside, remote) in [
        (tcp([10, 0, 0, 5], 40_000), tcp(REMOTE, 443)),
        (udp([10, 9, 0, 5], 40_001), udp(REMOTE, 53)),
    ] {
        let mut outside = None;
        for (port, flags) in [
            (INSIDE, SYN),
            (OUTSIDE, SYN_ACK),
            (INSIDE, ACK),
            (INSIDE, ACK),
            (OUTSIDE, ACK),
            (OUTSIDE, ACK),
        ] {
            let (from, to) = match outside {
                Some(outside) if port == OUTSIDE => (remote, outside),
                _ => (inside, remote),
            };
            let [configured, learnt] = kits
                .each_mut()
                .map(|kit| send(kit, port, from, to, flagged(flags)));
            assert_eq!(configured.verdict, learnt.verdict);
            assert_eq!(configured.packet, learnt.packet);
            if port == INSIDE {
                outside = Some(left_by(&learnt, OUTSIDE).source());
            }
        }
    }
}

#[test]
fn late_answers_change_nothing() {
    let mut steps = Vec::new();
    for (port, ours, router, mac) in ROUTERS {
        steps.push((0, port, arp_request(mac, router, ours)));
    }
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp(REMOTE, 443));
    for seconds in [0, 0, 200, 200, 0, 1, 800, 200] {
        let packet = frame(INSIDE, inside, remote, Wish::default());
        steps.push((seconds, INSIDE, packet));
    }
    late_everywhere(|| nat(unconfigured()), &steps);
}

#[test]
fn a_router_that_has_another_station_now_gets_packets_there_at_once() {
    let mut kit = learnt();
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp(REMOTE, 443));
    let opened = send(&mut kit, INSIDE, inside, remote, Wish::default());
    let outside = left_by(&opened, OUTSIDE).source();
    assert_eq!(handed_to(&mut kit, INSIDE, inside, remote), OUTSIDE_ROUTER);
    assert_eq!(handed_to(&mut kit, OUTSIDE, remote, outside), INSIDE_ROUTER);
    kit.advance(1);
    for (port, ours, router, _) in ROUTERS {
        asks(&mut kit, port, ours, router, REPLACED);
    }
    assert_eq!(handed_to(&mut kit, INSIDE, inside, remote), REPLACED);
    assert_eq!(handed_to(&mut kit, OUTSIDE, remote, outside), REPLACED);
}

#[test]
fn a_learnt_router_in_use_is_asked_again_and_not_trusted_for_ever() {
    a_router_falls_silent(learnt(), |_| {});
}

/// Anyone who fills the table with stations of its own does not keep a router from being found again.
#[test]
fn a_silent_router_is_asked_again_though_there_is_room_for_no_other() {
    let room = 8;
    let kit = kit_that_learns(NatConfig {
        neighbours_max: room,
        ..unconfigured()
    });
    a_router_falls_silent(kit, |kit| {
        for host in 10..40 {
            let station = Ipv4Addr::new(192, 168, 0, host);
            asks(kit, INSIDE, INSIDE_ADDRESS, station, REPLACED);
        }
        assert_eq!(kit.state().neighbours.len_now(), room as usize);
    });
}

/// The router of the outside link says nothing more; `meanwhile` comes before each of the packets towards it.
fn a_router_falls_silent(mut kit: Kit, meanwhile: impl Fn(&mut Kit)) {
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp(REMOTE, 443));
    send(&mut kit, INSIDE, inside, remote, Wish::default());
    let mut asked = Vec::new();
    let mut refused = Vec::new();
    for second in (0..1_500).step_by(50) {
        meanwhile(&mut kit);
        // Two of the same second: it is asked once, and the second is handed on as the first.
        let both = [(); 2].map(|()| send(&mut kit, INSIDE, inside, remote, Wish::default()));
        let emitted = both.each_ref().map(|out| out.emitted.len());
        match emitted {
            [1, 0] => asked.push(second),
            other => assert_eq!(other, [0, 0]),
        }
        match both.map(|out| out.verdict) {
            [Verdict::Forward(OUTSIDE), Verdict::Forward(OUTSIDE)] => {}
            other => {
                assert_eq!(other, [Verdict::Drop(Reason::NoRoute); 2]);
                refused.push(second);
            }
        }
        kit.advance(50);
    }
    let all = |from: u32| Vec::from_iter((from..1_500).step_by(50));
    assert_eq!((asked, refused), (all(350), all(1_250)));
    // It comes back.
    let (port, ours, router, _) = ROUTERS[1];
    asks(&mut kit, port, ours, router, REPLACED);
    assert_eq!(handed_to(&mut kit, INSIDE, inside, remote), REPLACED);
}

#[test]
fn hosts_on_the_link_are_each_handed_their_own() {
    let mut kit = kit_with(|config| {
        config.neighbours.clear();
        config.routes.retain(|route| route.side == Side::Outside);
    });
    let (port, ours, router, mac) = ROUTERS[1];
    asks(&mut kit, port, ours, router, mac);
    let remote = udp(REMOTE, 443);
    for host in 10..40_u8 {
        let station = MacAddress([2, 0, 0, 1, 0, host]);
        let address = [192, 168, 0, host];
        asks(&mut kit, INSIDE, INSIDE_ADDRESS, address.into(), station);
        let opened = send(
            &mut kit,
            INSIDE,
            udp(address, 4_000),
            remote,
            Wish::default(),
        );
        let outside = left_by(&opened, OUTSIDE).source();
        for _ in 0..2 {
            assert_eq!(handed_to(&mut kit, OUTSIDE, remote, outside), station);
        }
    }
}

/// A second network on the outside link is reached there, and not by the one router of all others.
#[test]
fn a_route_without_a_router_stays_on_the_link() {
    let second = [192, 0, 2, 9];
    let station = MacAddress([2, 0, 0, 0, 5, 5]);
    let mut kit = kit_with(|config| {
        config.routes.push(Route {
            prefix: Prefix::new(Ipv4Addr::new(192, 0, 2, 0), 24),
            side: Side::Outside,
            next_hop: None,
        });
        config.neighbours.push((second.into(), station));
    });
    for (remote, expected) in [(second, station), (REMOTE, OUTSIDE_ROUTER)] {
        let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp(remote, 443));
        for _ in 0..3 {
            assert_eq!(handed_to(&mut kit, INSIDE, inside, remote), expected);
        }
    }
}

/// Nobody has the address that means all of them.
#[test]
fn who_claims_the_broadcast_address_is_not_learnt() {
    let mut kit = learnt();
    let known = kit.state().neighbours.len_now();
    let everybody = Ipv4Addr::new(192, 168, 0, 255);
    asks(&mut kit, INSIDE, INSIDE_ADDRESS, everybody, REPLACED);
    assert_eq!(kit.state().neighbours.len_now(), known);
}
