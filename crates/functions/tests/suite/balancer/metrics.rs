//! What a balancer measures.

use asterism_function::testkit::{ClusterKit, measured};
use asterism_function::{Endpoint, Protocol, Reason, Verdict};
use asterism_functions::balancer::{CONTROL, CheckResult, Service};

use crate::balancer::network::*;

const NAMES: [&str; 6] = [
    "flows",
    "backends",
    "alive_backends",
    "dead_by_checks_backends",
    "dead_by_flows_backends",
    "drained_backends",
];

fn counts(kit: &Kit) -> [u64; 6] {
    NAMES.map(|name| measured(kit.function(), kit.state(), name))
}

#[test]
fn backends_count_once_by_what_is_said_of_them() {
    let mut first = Service {
        checked: true,
        ..service(4)
    };
    first.backends[3].drains = true;
    // Another service of two of them, which drains one of its own and one that the first does not drain.
    let at = Endpoint::new(SERVICE, 81, Protocol::TCP);
    let mut second = Service::new(at, [0, 3, 7].map(backend).into());
    second.backends[0].drains = true;
    second.backends[2].drains = true;
    let mut kit = kit(vec![first, second]);
    assert_eq!(counts(&kit), [0, 5, 5, 0, 0, 1]);
    for number in 0..30 {
        opened(&mut kit, client(number), asked());
    }
    assert_eq!(counts(&kit), [30, 5, 5, 0, 0, 1]);
    // Divided hosts find nobody dead.
    tell(&mut kit, 0, endpoint_of(1), true);
    tell(&mut kit, 1, endpoint_of(1), false);
    assert_eq!(counts(&kit), [30, 5, 5, 0, 0, 1]);
    for dead in 1..4 {
        tell(&mut kit, 0, endpoint_of(dead), true);
        tell(&mut kit, 2, endpoint_of(dead), true);
    }
    assert_eq!(counts(&kit), [30, 5, 2, 3, 0, 1]);
    // What nobody renews is over, without a packet.
    kit.advance(31);
    assert_eq!(counts(&kit)[1..], [5, 5, 0, 0, 1]);
}

#[test]
fn who_judges_a_backend_is_reported() {
    let mut kit = kit(vec![Service {
        checked: true,
        passive: 2,
        ..service(2)
    }]);
    let clients: Vec<_> = (0..40).map(client).collect();
    let mut refusals = 0;
    for one in &clients {
        if opened(&mut kit, *one, asked()) == 0 {
            send(&mut kit, BACKENDS, endpoint_of(0), *one, RST_ACK);
            refusals += 1;
        }
    }
    assert!(refusals >= 2);
    assert_eq!(counts(&kit)[1..], [2, 1, 0, 1, 0]);
    tell(&mut kit, 0, endpoint_of(0), true);
    assert_eq!(counts(&kit)[1..], [2, 1, 1, 1, 0], "by both, and dead once");
    tell(&mut kit, 0, endpoint_of(1), true);
    assert_eq!(counts(&kit)[1..], [2, 0, 2, 1, 0]);
    let refused = send(&mut kit, CLIENTS, client(900), asked(), SYN);
    assert_eq!(refused.verdict, Verdict::Drop(Reason::NoBackend));
}

#[test]
fn each_instance_tells_of_all_flows_and_votes() {
    let service = Service {
        checked: true,
        ..service(3)
    };
    let mut three = ClusterKit::new(balancer(config(vec![service])), 3, 7);
    for number in 0..30 {
        let bytes = frame(CLIENTS, client(number), asked(), SYN);
        three.packet(number as usize % 3, CLIENTS, &bytes);
    }
    for member in 0..3u16 {
        let finding = CheckResult {
            member,
            backend: endpoint_of(2),
            is_down: member != 1,
        };
        three.packet(member.into(), CONTROL, &finding.frame());
    }
    three.exchange();
    for member in 0..3 {
        let named = |name| measured(three.function(), three.state(member), name);
        assert_eq!(NAMES.map(named), [30, 3, 2, 1, 0, 0]);
    }
}
