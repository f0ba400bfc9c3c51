//! Who gets a flow, and who keeps it.

use asterism_function::records::read_records;
use asterism_function::testkit::{START_TICK, late_everywhere};
use asterism_function::{Endpoint, Observable, Protocol, Reason, Verdict};
use asterism_functions::balancer::{BACKENDS_QUESTION, BackendRecord, Balancer, Choice, Service};

use crate::balancer::network::*;

fn checked(backends: u8) -> Service {
    Service {
        checked: true,
        ..service(backends)
    }
}

#[test]
fn flows_spread_evenly_and_by_weight() {
    let mut even = kit(vec![service(10)]);
    let mut counts = [0u32; 10];
    for number in 0..10_000 {
        counts[usize::from(opened(&mut even, client(number), asked()))] += 1;
    }
    // Of 10,000 draws of one in ten, five standard deviations are 150.
    assert!(
        counts.iter().all(|count| count.abs_diff(1_000) < 150),
        "{counts:?}"
    );

    let mut weighted = service(3);
    for (backend, weight) in weighted.backends.iter_mut().zip([1, 2, 5]) {
        backend.weight = weight;
    }
    let mut kit = kit(vec![weighted]);
    let mut counts = [0u32; 3];
    for number in 0..8_000 {
        counts[usize::from(opened(&mut kit, client(number), asked()))] += 1;
    }
    for (count, due) in counts.iter().zip([1_000, 2_000, 5_000]) {
        assert!(count.abs_diff(due) < 250, "{counts:?}");
    }
}

#[test]
fn backends_are_reported_with_their_flows_and_what_is_said_of_them() {
    let mut draining = checked(4);
    draining.backends[3].drains = true;
    let mut kit = kit(vec![draining]);
    let mut counts = [0u64; 4];
    for number in 0..100 {
        counts[usize::from(opened(&mut kit, client(number), asked()))] += 1;
    }
    tell(&mut kit, 0, endpoint_of(1), true);
    tell(&mut kit, 1, endpoint_of(1), true);
    tell(&mut kit, 2, endpoint_of(1), false);
    for step in [1, 3, 4, 100] {
        let (mut reported, mut cursor) = (Vec::new(), Some(0));
        while let Some(from) = cursor {
            let mut part = Vec::new();
            let range = (from, step);
            cursor = kit
                .function()
                .report(kit.state(), BACKENDS_QUESTION, range, &mut part);
            assert!(read_records(&part, |record: BackendRecord| reported.push(record)));
            let short = &part[..part.len() - 1];
            assert!(!read_records(short, |_: BackendRecord| ()));
        }
        assert_eq!(reported.len(), 4);
        let now = START_TICK;
        for (place, record) in reported.iter().enumerate() {
            assert_eq!((record.service, record.last_port), (asked(), asked().port));
            assert_eq!(record.backend, endpoint_of(place as u8));
            assert_eq!(record.flows, counts[place]);
            assert_eq!(record.is_down(now), place == 1);
            assert_eq!(record.drains, place == 3);
        }
        assert_eq!(reported[1].votes.counted(now), (3, 2));
    }
    assert_eq!(counts[3], 0);
}

#[test]
fn a_death_moves_only_its_own_flows_and_only_new_connections() {
    const FLOWS: u32 = 2_000;
    let mut kit = kit(vec![checked(10)]);
    let before: Vec<u8> = (0..FLOWS)
        .map(|number| opened(&mut kit, client(number), asked()))
        .collect();
    for number in 0..FLOWS / 2 {
        let server = endpoint_of(before[number as usize]);
        send(&mut kit, BACKENDS, server, client(number), SYN_ACK);
    }
    tell(&mut kit, 0, endpoint_of(4), true);
    let mut own = 0;
    for number in 0..FLOWS {
        let had = before[number as usize];
        // Established ones stay, no matter which one they have: another server knows nothing of them.
        let outcome = send(&mut kit, CLIENTS, client(number), asked(), ACK);
        let goes_on = left_by(&outcome, BACKENDS).destination.octets()[3] - 10;
        assert_eq!(goes_on, had);
        // A SYN that was not answered goes to somebody who lives.
        let again = opened(&mut kit, client(number), asked());
        if had == 4 {
            own += 1;
            assert_ne!(again, 4);
        } else {
            assert_eq!(again, had, "a flow of another backend moved");
        }
    }
    assert!(own > 100, "{own}");
    assert_eq!(kit.state().flows.len_now(), FLOWS as usize);
    // New flows avoid it as long as it counts as dead.
    for number in FLOWS..2 * FLOWS {
        assert_ne!(opened(&mut kit, client(number), asked()), 4);
    }
    // Of two votes of one second, the worse counts.
    kit.advance(1);
    tell(&mut kit, 0, endpoint_of(4), false);
    let back =
        (2 * FLOWS..3 * FLOWS).filter(|number| opened(&mut kit, client(*number), asked()) == 4);
    assert!(back.count() > 100);
}

#[test]
fn without_a_living_backend_the_client_is_reported() {
    let mut kit = kit(vec![checked(2)]);
    for number in 0..2 {
        tell(&mut kit, 0, endpoint_of(number), true);
    }
    let outcome = send(&mut kit, CLIENTS, client(1), asked(), SYN);
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBackend));
    let [(port, error)] = &outcome.emitted[..] else {
        panic!("{:?}", outcome.emitted)
    };
    assert_eq!(*port, CLIENTS);
    // Destination unreachable: host unreachable.
    assert_eq!(error[34..36], [3, 1]);
    assert_eq!(kit.state().flows.len_now(), 0);
    // HealthVotes grow old: without news the backends are tried again.
    kit.advance(31);
    opened(&mut kit, client(1), asked());
}

#[test]
fn draining_backends_keep_their_flows_and_get_no_new_ones() {
    let mut draining = service(4);
    draining.backends[1].drains = true;
    draining.backends[2].weight = 0;
    let mut kit = kit(vec![draining]);
    for number in 0..500 {
        let got = opened(&mut kit, client(number), asked());
        assert!(got == 0 || got == 3);
    }
    let mut all = service(2);
    all.backends.iter_mut().for_each(|one| one.drains = true);
    let mut kit = crate::balancer::network::kit(vec![all]);
    let outcome = send(&mut kit, CLIENTS, client(1), asked(), SYN);
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBackend));
}

#[test]
fn least_connections_by_weight_and_back_when_they_end() {
    let mut least = service(3);
    least.choice = Choice::LeastConnections;
    least.backends[2].weight = 2;
    let mut kit = kit(vec![least]);
    let mut counts = [0u32; 3];
    for number in 0..400 {
        counts[usize::from(opened(&mut kit, client(number), asked()))] += 1;
    }
    assert_eq!(counts, [100, 100, 200]);
    let usage = |kit: &Kit| -> Vec<i64> {
        let place = |number| kit.function().usage_place(endpoint_of(number)).unwrap();
        (0..3)
            .map(|number| kit.state().usage.get(place(number)).unwrap())
            .collect()
    };
    assert_eq!(usage(&kit), [100, 100, 200]);
    // Connections that were never complete end after a minute, a quarter and a second.
    kit.advance(78);
    assert_eq!(usage(&kit), [0, 0, 0]);
    assert_eq!(kit.state().flows.len_now(), 0);
    // The same ends again count once.
    let got = opened(&mut kit, client(1), asked());
    for flags in [SYN, RST, SYN] {
        send(&mut kit, CLIENTS, client(1), asked(), flags);
    }
    assert_eq!(usage(&kit).iter().sum::<i64>(), 1, "{got}");
}

#[test]
fn a_client_keeps_its_backend_for_a_time() {
    let mut keeping = checked(10);
    keeping.persistent = true;
    keeping.choice = Choice::LeastConnections;
    let mut kit = kit(vec![keeping]);
    let first = opened(&mut kit, client(0), asked());
    for number in 1_000..1_300 {
        opened(&mut kit, client(number), asked());
    }
    for number in 1..100 {
        assert_eq!(opened(&mut kit, client(number), asked()), first);
    }
    // Another one when its own dies, and then that.
    tell(&mut kit, 0, endpoint_of(first), true);
    let second = opened(&mut kit, client(100), asked());
    assert_ne!(second, first);
    kit.advance(1);
    tell(&mut kit, 0, endpoint_of(first), false);
    assert_eq!(opened(&mut kit, client(101), asked()), second);
    assert_eq!(kit.state().affinity.len_now(), 2);
    kit.advance(400);
    assert_eq!(kit.state().affinity.len_now(), 0);
}

#[test]
fn a_flow_outlives_changes_of_its_pool() {
    use asterism_function::NetworkFunction;
    // The function changes, the state stays: as when a host reads its configuration again.
    let with: Balancer = balancer(config(vec![service(5)]));
    let mut kit = Kit::new(with);
    let had: Vec<u8> = (0..200)
        .map(|number| opened(&mut kit, client(number), asked()))
        .collect();
    assert_eq!(
        kit.function().schema(),
        balancer(config(vec![service(1)])).schema()
    );
    kit.replace_function(balancer(config(vec![service(1)])));
    for number in 0..200u32 {
        let outcome = send(&mut kit, CLIENTS, client(number), asked(), ACK);
        let got = left_by(&outcome, BACKENDS).destination.octets()[3] - 10;
        assert_eq!(got, had[number as usize]);
        let server = endpoint_of(got);
        let outcome = send(&mut kit, BACKENDS, server, client(number), ACK);
        assert_eq!(left_by(&outcome, CLIENTS).source(), asked());
    }
    assert_eq!(opened(&mut kit, client(900), asked()), 0);
}

#[test]
fn two_services_with_one_backend_never_share_its_answers() {
    let mut other = service(1);
    other.ports = (81, 81);
    let second = Endpoint::new(SERVICE, 81, Protocol::TCP);
    let mut kit = kit(vec![service(1), other]);
    opened(&mut kit, client(1), asked());
    // The only backend has a flow of these very ends already.
    let outcome = send(&mut kit, CLIENTS, client(1), second, SYN);
    assert_eq!(outcome.verdict, Verdict::Drop(Reason::NoBackend));
    opened(&mut kit, client(2), second);
}

#[test]
fn late_reads_change_nothing() {
    let build = || {
        let mut keeping = checked(3);
        keeping.persistent = true;
        balancer(config(vec![keeping]))
    };
    let mut steps = Vec::new();
    for number in 0..20 {
        steps.push((0, CLIENTS, frame(CLIENTS, client(number), asked(), SYN)));
        for server in 0..3 {
            let from = endpoint_of(server);
            steps.push((0, BACKENDS, frame(BACKENDS, from, client(number), SYN_ACK)));
        }
        for flags in [ACK, FIN_ACK, SYN] {
            steps.push((1, CLIENTS, frame(CLIENTS, client(number), asked(), flags)));
        }
    }
    late_everywhere(build, &steps);
}

#[test]
fn faults_of_a_configuration_are_all_reported() {
    let mut first = service(2);
    first.ports = (80, 90);
    first.backends[1] = first.backends[0];
    let mut second = service(1);
    second.ports = (90, 95);
    let mut third = service(1);
    third.address = OWN;
    third.protocol = Protocol::ICMP;
    third.backends[0].weight = 5_000;
    let faults = Balancer::new(config(vec![first, second, third])).unwrap_err();
    let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
    for needle in [
        "twice",
        "some of its ports",
        "own address",
        "only tcp and udp",
        "weight",
    ] {
        assert!(
            text.iter().any(|line| line.contains(needle)),
            "{needle}: {text:?}"
        );
    }
}
