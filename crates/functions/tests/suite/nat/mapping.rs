//! RFC 4787: mapping, ports, filtering, refresh, hairpinning.

use asterism_function::{Endpoint, Reason, Verdict};
use asterism_functions::nat::{Filtering, Forward};
use proptest::prelude::*;

use crate::nat::network::*;

/// Sends a packet out and tells the endpoint that it left with.
fn bind(kit: &mut Kit, inside: Endpoint, remote: Endpoint) -> Endpoint {
    let out = send(kit, INSIDE, inside, remote, Wish::default());
    left_by(&out, OUTSIDE).source()
}

const REMOTE: [u8; 4] = [198, 51, 100, 7];
const OTHER: [u8; 4] = [198, 51, 100, 8];

#[test]
fn req_1_a_binding_is_the_same_for_all_remote_endpoints() {
    let mut kit = kit();
    let inside = udp([10, 0, 0, 5], 40_000);
    let first = bind(&mut kit, inside, udp(REMOTE, 443));
    for remote in [udp(REMOTE, 444), udp(OTHER, 443), udp([8, 8, 8, 8], 53)] {
        assert_eq!(bind(&mut kit, inside, remote), first);
    }
    assert_eq!(kit.state().sessions.len_now(), 4);
    assert_eq!(kit.state().ports.usage().in_use, 1, "one port for all");
}

#[test]
fn req_2_an_inside_address_has_one_outside_address() {
    let mut kit = kit();
    let mut used = [0; 2];
    for host in 0..64 {
        let first = bind(&mut kit, udp([10, 0, 1, host], 5_000), udp(REMOTE, 443));
        let second = bind(&mut kit, tcp([10, 0, 1, host], 6_000), tcp(OTHER, 443));
        assert_eq!(first.address, second.address);
        used[usize::from(first.address != OUTSIDE_ADDRESS)] += 1;
    }
    assert!(
        used[0] > 10 && used[1] > 10,
        "addresses are used alike: {used:?}"
    );
}

#[test]
fn req_3_two_inside_endpoints_never_share_an_outside_endpoint() {
    let mut kit = kit_with(|config| {
        config.outside_addresses.truncate(1);
        config.outside_ports = (2_000, 2_127);
    });
    let mut seen = std::collections::HashSet::new();
    for host in 0..128 {
        assert!(seen.insert(bind(&mut kit, udp([10, 0, 1, host], 2_050), udp(REMOTE, 443)).port));
    }
    // RFC 5508 REQ-8: no port left, and the sender gets an error.
    let out = send(
        &mut kit,
        INSIDE,
        udp([10, 0, 2, 1], 2_050),
        udp(REMOTE, 443),
        Wish::default(),
    );
    assert_eq!(out.verdict, Verdict::Drop(Reason::PortsExhausted));
    let error = the_error(&out);
    assert_eq!((error.icmp_type, error.code), (3, 13));
    // Other protocols have ports of their own.
    bind(&mut kit, tcp([10, 0, 2, 1], 2_050), tcp(REMOTE, 443));
}

#[test]
fn req_4_parity_is_kept_where_the_port_cannot_be() {
    let mut kit = kit_with(|config| config.outside_addresses.truncate(1));
    for host in 0..40 {
        let outside = bind(&mut kit, udp([10, 0, 1, host], 7_001), udp(REMOTE, 443));
        assert_eq!(outside.port & 1, 1);
    }
}

#[test]
fn req_5_a_binding_ends_after_its_idle_time_and_its_port_returns() {
    let mut kit = kit_with(|config| config.port_quarantine.seconds = 0);
    let inside = udp([10, 0, 0, 5], 40_000);
    let outside = bind(&mut kit, inside, udp(REMOTE, 443));
    kit.advance(300);
    let back = send(
        &mut kit,
        OUTSIDE,
        udp(REMOTE, 443),
        outside,
        Wish::default(),
    );
    left_by(&back, INSIDE);
    // At most an idle time, the quarter by which uses are announced late, and a tick.
    kit.advance(300);
    assert_eq!(kit.state().sessions.len_now(), 1);
    kit.advance(100);
    assert_eq!(kit.state().sessions.len_now(), 0);
    assert_eq!(kit.state().ports.usage().in_use, 0);
    let late = send(
        &mut kit,
        OUTSIDE,
        udp(REMOTE, 443),
        outside,
        Wish::default(),
    );
    assert_eq!(late.verdict, Verdict::Drop(Reason::NoBinding));
}

#[test]
fn req_6_packets_from_inside_refresh_and_strangers_do_not() {
    let mut kit = kit();
    let inside = udp([10, 0, 0, 5], 40_000);
    let outside = bind(&mut kit, inside, udp(REMOTE, 443));
    for _ in 0..10 {
        kit.advance(200);
        bind(&mut kit, inside, udp(REMOTE, 443));
    }
    for _ in 0..3 {
        kit.advance(200);
        send(&mut kit, OUTSIDE, udp(OTHER, 443), outside, Wish::default());
    }
    assert_eq!(kit.state().sessions.len_now(), 0);
}

#[test]
fn req_8_filtering_lets_in_which_it_says() {
    let policies = [
        (Filtering::EndpointIndependent, true, true),
        (Filtering::AddressDependent, true, false),
        (Filtering::AddressAndPortDependent, false, false),
    ];
    for (filtering, other_port, other_address) in policies {
        let mut kit = kit_with(|config| config.filtering = filtering);
        let inside = udp([10, 0, 0, 5], 40_000);
        let outside = bind(&mut kit, inside, udp(REMOTE, 443));
        // More sessions, so that the one that counts is not the first that is found.
        for port in 1..20 {
            bind(&mut kit, inside, udp([198, 51, 99, 1], port));
        }
        let sessions = kit.state().sessions.len_now();
        let mut enters = |remote| {
            let back = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
            match back.verdict {
                Verdict::Forward(_) => {
                    assert_eq!(left_by(&back, INSIDE).destination(), inside);
                    assert_eq!(left_by(&back, INSIDE).source(), remote);
                    true
                }
                verdict => {
                    assert_eq!(verdict, Verdict::Drop(Reason::Filtered));
                    false
                }
            }
        };
        assert!(enters(udp(REMOTE, 443)));
        assert_eq!(enters(udp(REMOTE, 444)), other_port, "{filtering:?}");
        assert_eq!(enters(udp(OTHER, 443)), other_address, "{filtering:?}");
        assert_eq!(
            kit.state().sessions.len_now(),
            sessions,
            "strangers leave no trace"
        );
    }
}

#[test]
fn req_9_inside_hosts_meet_by_their_outside_endpoints() {
    let mut kit = kit();
    let (one, two) = (udp([10, 0, 0, 5], 40_000), udp([10, 0, 0, 6], 50_000));
    let outside_one = bind(&mut kit, one, udp(REMOTE, 443));
    let outside_two = bind(&mut kit, two, udp(REMOTE, 443));
    for _ in 0..3 {
        let there = send(&mut kit, INSIDE, one, outside_two, Wish::default());
        let flow = left_by(&there, INSIDE);
        assert_eq!((flow.source(), flow.destination()), (outside_one, two));
        let back = send(&mut kit, INSIDE, two, outside_one, Wish::default());
        let flow = left_by(&back, INSIDE);
        assert_eq!((flow.source(), flow.destination()), (outside_two, one));
        // Nobody outside speaks in the name of either.
        for (from, to) in [(outside_one, outside_two), (outside_two, outside_one)] {
            let before = digests(&kit);
            let forged = send(&mut kit, OUTSIDE, from, to, Wish::default());
            assert_eq!(forged.verdict, Verdict::Drop(Reason::SpoofedSource));
            assert_eq!(digests(&kit), before);
        }
    }
    let mut kit = kit_with(|config| config.hairpinning = false);
    bind(&mut kit, two, udp(REMOTE, 443));
    let out = send(&mut kit, INSIDE, one, outside_two, Wish::default());
    assert_eq!(out.verdict, Verdict::Drop(Reason::Filtered));
}

#[test]
fn forwards_are_reached_from_everywhere_and_answer_from_where_they_were_asked() {
    let server = tcp([10, 0, 0, 80], 80);
    let public = tcp(OUTSIDE_ADDRESS.octets(), 8_080);
    let mut kit = kit_with(|config| {
        config.filtering = Filtering::AddressAndPortDependent;
        config.forwards.push(Forward {
            outside: public,
            inside: server,
        });
    });
    let client = tcp(REMOTE, 49_200);
    let asked = send(&mut kit, OUTSIDE, client, public, flagged(SYN));
    assert_eq!(left_by(&asked, INSIDE).destination(), server);
    assert!(
        kit.state().sessions.is_empty_now(),
        "a SYN from outside leaves no trace"
    );
    let answer = send(&mut kit, INSIDE, server, client, flagged(SYN | ACK));
    assert_eq!(left_by(&answer, OUTSIDE).source(), public);
    // Its other sessions have the same outside endpoint, and nobody is granted it.
    assert_eq!(bind(&mut kit, server, tcp(OTHER, 443)), public);
    for host in 0..20 {
        assert_ne!(
            bind(&mut kit, tcp([10, 0, 1, host], 8_080), tcp(OTHER, 443)),
            public
        );
    }
    // From inside too (hairpin).
    let neighbour = tcp([10, 0, 0, 5], 40_000);
    let asked = send(&mut kit, INSIDE, neighbour, public, flagged(SYN));
    assert_eq!(left_by(&asked, INSIDE).destination(), server);
    assert_eq!(kit.state().ports.usage().in_use, 21);
}

#[test]
fn what_a_binding_lets_in_and_its_host_refuses_is_refused_outside() {
    let client = tcp(REMOTE, 49_200);
    let refusals = [RST, RST_ACK];
    // Behind a forward, where nothing listens.
    let server = tcp([10, 0, 0, 80], 80);
    let public = tcp(OUTSIDE_ADDRESS.octets(), 8_080);
    let mut kit = kit_with(|config| {
        config.forwards.push(Forward {
            outside: public,
            inside: server,
        });
    });
    for refusal in refusals {
        let asked = send(&mut kit, OUTSIDE, client, public, flagged(SYN));
        assert_eq!(left_by(&asked, INSIDE).destination(), server);
        let refused = send(&mut kit, INSIDE, server, client, flagged(refusal));
        let flow = left_by(&refused, OUTSIDE);
        assert_eq!((flow.source(), flow.destination()), (public, client));
        assert!(
            kit.state().sessions.is_empty_now(),
            "neither leaves a trace"
        );
    }
    // Of a neighbour inside, who has a session (hairpin): it ends.
    let neighbour = tcp([10, 0, 0, 5], 40_000);
    let asked = send(&mut kit, INSIDE, neighbour, public, flagged(SYN));
    let seen = left_by(&asked, INSIDE).source();
    let refused = send(&mut kit, INSIDE, server, seen, flagged(RST_ACK));
    let flow = left_by(&refused, INSIDE);
    assert_eq!((flow.source(), flow.destination()), (public, neighbour));
    assert_eq!(kit.state().sessions.len_now(), 1);
    kit.state()
        .sessions
        .for_each(|_, connection| assert!(connection.ended()));

    // Behind a binding that lets everybody in, also once the session that was has idled out: the far end may not know.
    let mut kit = kit_with(|config| config.filtering = Filtering::EndpointIndependent);
    let idle = tcp([198, 51, 100, 9], 443);
    let inside = tcp([10, 0, 0, 5], 40_000);
    let outside = bind(&mut kit, inside, idle);
    for _ in 0..3 {
        kit.advance(200);
        bind(&mut kit, inside, tcp(OTHER, 443));
    }
    assert_eq!(kit.state().sessions.len_now(), 1, "one is idle");
    let before = digests(&kit);
    for (remote, flags) in [(client, SYN), (idle, ACK)] {
        for refusal in refusals {
            let asked = send(&mut kit, OUTSIDE, remote, outside, flagged(flags));
            assert_eq!(left_by(&asked, INSIDE).destination(), inside);
            let refused = send(&mut kit, INSIDE, inside, remote, flagged(refusal));
            let flow = left_by(&refused, OUTSIDE);
            assert_eq!((flow.source(), flow.destination()), (outside, remote));
        }
    }
    assert_eq!(digests(&kit), before, "nothing was written");
    // Without a binding there is nothing that it could be an answer to.
    let other = tcp([10, 0, 0, 6], 40_000);
    let refused = send(&mut kit, INSIDE, other, client, flagged(RST_ACK));
    assert_eq!(refused.verdict, Verdict::Drop(Reason::NoBinding));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever hosts send to whatever, checksums are right, replies come back to who asked, and no two sessions
    /// share a remote and an outside endpoint.
    #[test]
    fn replies_find_who_asked(
        packets in proptest::collection::vec((0u8..4, 0u16..6, 0u8..3, 0u16..3, any::<bool>()), 1..60),
    ) {
        let mut kit = kit_with(|config| config.outside_ports = (4_000, 4_063));
        for (host, port, remote, remote_port, is_tcp) in packets {
            let end = if is_tcp { tcp } else { udp };
            let inside = end([10, 0, 0, host], 4_000 + 61 * port);
            let remote = end([198, 51, 100, remote], 80 + remote_port);
            let outside = bind(&mut kit, inside, remote);
            let back = send(&mut kit, OUTSIDE, remote, outside, Wish::default());
            let flow = left_by(&back, INSIDE);
            prop_assert_eq!((flow.source(), flow.destination()), (remote, inside));
        }
        let mut outsides = std::collections::HashMap::new();
        let mut pairs = std::collections::HashSet::new();
        kit.state().sessions.for_each(|session, _| {
            assert!(pairs.insert((session.outside(), session.remote())));
            assert_eq!(*outsides.entry(session.inside()).or_insert(session.outside()), session.outside());
        });
        let distinct: std::collections::HashSet<_> = outsides.values().collect();
        prop_assert_eq!(distinct.len(), outsides.len());
        prop_assert_eq!(kit.state().ports.usage().in_use as usize, outsides.len());
    }
}
