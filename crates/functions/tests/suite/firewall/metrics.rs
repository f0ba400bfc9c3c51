//! What a firewall measures.

use asterism_function::testkit::{ClusterKit, Testkit, measured};
use asterism_function::{Reason, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::packets::*;

const NAMES: [&str; 7] = [
    "flows",
    "half_open_connections",
    "blocked_sources",
    "events",
    "allowed_flows_total",
    "dropped_flows_total",
    "blocked_flows_total",
];

fn counts(kit: &Testkit<Firewall>) -> [u64; 7] {
    NAMES.map(|name| measured(kit.function(), kit.state(), name))
}

#[test]
fn flows_handshakes_events_and_decisions_are_counted() {
    let mut kit = kit();
    assert_eq!(counts(&kit), [0; 7]);
    let server = (2_000_000, 443);
    for port in 1..=5 {
        passes(&mut kit, INSIDE, &tcp((5, port), server, SYN, (1, 0), 0));
    }
    passes(&mut kit, INSIDE, &udp((5, 9), (2_000_000, 53)));
    assert_eq!(counts(&kit), [6, 5, 0, 0, 6, 0, 0]);
    // Packets of known flows decide nothing; a handshake that completes is not half open.
    for port in 1..=2 {
        let client = (5, port);
        passes(&mut kit, OUTSIDE, &tcp(server, client, SYN_ACK, (7, 2), 0));
        passes(&mut kit, INSIDE, &tcp(client, server, ACK, (2, 8), 0));
        passes(&mut kit, INSIDE, &tcp(client, server, ACK, (2, 8), 100));
    }
    assert_eq!(counts(&kit), [6, 3, 0, 0, 6, 0, 0]);
    let denied = tcp((2_000_001, 9), (5, 81), SYN, (1, 0), 0);
    for _ in 0..3 {
        drops(&mut kit, OUTSIDE, &denied, Reason::Denied);
    }
    assert_eq!(counts(&kit), [6, 3, 0, 0, 6, 3, 0]);
    // Port 23 is a trap whose rule logs; what is blocked comes to no rule any more.
    let trap = tcp((2_000_002, 9), (5, 23), SYN, (1, 0), 0);
    drops(&mut kit, OUTSIDE, &trap, Reason::Denied);
    drops(&mut kit, OUTSIDE, &trap, Reason::Blocked);
    assert_eq!(counts(&kit), [6, 3, 1, 1, 6, 3, 1]);
    // Nobody sends anything, and they are forgotten all the same.
    kit.advance(80);
    assert_eq!(counts(&kit)[1..], [0, 1, 0, 6, 3, 1]);
    assert_eq!(counts(&kit)[0], 2, "the established ones");
}

#[test]
fn who_meets_the_limit_of_half_open_connections_is_an_event_and_no_flow() {
    let mut kit = Testkit::new(Firewall::new(FirewallConfig {
        half_open_per_source: 4,
        ..config()
    }));
    for port in 0..10 {
        let syn = tcp((2_000_001, port), (9, 80), SYN, (1, 0), 0);
        let verdict = kit.packet(OUTSIDE, &syn).verdict;
        let is_over = verdict == Verdict::Drop(Reason::HalfOpenLimit);
        assert_eq!(is_over, port >= 4);
    }
    assert_eq!(counts(&kit), [4, 4, 0, 1, 4, 0, 0]);
}

#[test]
fn each_instance_tells_what_all_did() {
    let mut three = ClusterKit::new(Firewall::new(config()), 3, 7);
    for member in 0..3 {
        for port in 0..=member as u16 {
            let client = (5 + member as u32, port);
            three.packet(
                member,
                INSIDE,
                &tcp(client, (2_000_000, 443), SYN, (1, 0), 0),
            );
        }
        let denied = tcp((2_000_001, 9), (5, 81), SYN, (1, 0), 0);
        three.packet(member, OUTSIDE, &denied);
    }
    three.exchange();
    for member in 0..3 {
        let named = |name| measured(three.function(), three.state(member), name);
        assert_eq!(NAMES.map(named), [6, 6, 0, 0, 6, 3, 0]);
    }
}
