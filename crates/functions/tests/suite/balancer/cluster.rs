//! Three instances that tell each other what they wrote: connections whose packets take any of them, and a death.

use asterism_function::testkit::ClusterKit;
use asterism_function::{Endpoint, Late, TcpFlags, Verdict};
use asterism_functions::balancer::{Balancer, CONTROL, CheckResult, Choice, Service};

use crate::balancer::network::*;

const MS: u64 = 1_000;

type Three = ClusterKit<Balancer>;

fn three(choice: Choice) -> Three {
    let service = Service {
        choice,
        checked: true,
        ..service(5)
    };
    let mut three = ClusterKit::new(balancer(config(vec![service])), 3, 7);
    three.advance_us(50 * MS);
    three
}

/// Where an instance sends a client's packet, which waited for word of its flow as long as packets do.
fn goes_to(three: &mut Three, member: usize, from: Endpoint, flags: TcpFlags) -> Endpoint {
    let bytes = frame(CLIENTS, from, asked(), flags);
    let arrived_us = three.now_us() - 50 * MS;
    let outcome = three.packet_since(member, arrived_us, CLIENTS, &bytes);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.verdict, Verdict::Forward(BACKENDS));
    ends_of(&outcome.packet).destination()
}

/// The sender that a client sees when a backend's packet comes to an instance, if that knows by now.
fn answers(
    three: &mut Three,
    member: usize,
    (from, to): (Endpoint, Endpoint),
    flags: TcpFlags,
) -> Result<Endpoint, Late> {
    let bytes = frame(BACKENDS, from, to, flags);
    let outcome = three.packet_since(member, three.now_us(), BACKENDS, &bytes)?;
    assert_eq!(outcome.verdict, Verdict::Forward(CLIENTS));
    Ok(ends_of(&outcome.packet).source())
}

/// A SYN by one, the answer by another, which waits for word of the flow; then the first dies, and all goes on.
#[test]
fn a_connection_outlives_the_instance_that_opened_it() {
    let mut three = three(Choice::LeastConnections);
    let mut flows = Vec::new();
    for number in 0..60 {
        let server = goes_to(&mut three, 0, client(number), SYN);
        flows.push((server, client(number)));
    }
    for flow in &flows {
        assert!(answers(&mut three, 1, *flow, SYN_ACK).is_err(), "it waits");
    }
    three.exchange();
    for flow in &flows {
        assert_eq!(answers(&mut three, 1, *flow, SYN_ACK).unwrap(), asked());
    }
    three.exchange();
    three.kill(0);
    for (server, client) in flows {
        for member in 1..3 {
            assert_eq!(goes_to(&mut three, member, client, ACK), server);
            let seen = answers(&mut three, member, (server, client), ACK);
            assert_eq!(seen.unwrap(), asked());
        }
    }
    three.agree();
}

/// Instances that know nothing of one another choose alike, and so do those that learnt of a death.
#[test]
fn instances_choose_alike() {
    let mut three = three(Choice::Hash);
    let dead = endpoint_of(2);
    for reported in [false, true] {
        if reported {
            for member in 0..3 {
                let finding = CheckResult {
                    member: member as u16,
                    backend: dead,
                    is_down: member != 1,
                };
                three.packet(member, CONTROL, &finding.frame());
            }
            three.exchange();
        }
        for number in 0..100 {
            let from = client(number + if reported { 1_000 } else { 0 });
            let server = goes_to(&mut three, 0, from, SYN);
            for member in 1..3 {
                assert_eq!(goes_to(&mut three, member, from, SYN), server);
            }
            assert!(!reported || server != dead);
        }
    }
}

/// What each counts is the sum of all.
#[test]
fn least_connections_count_all_instances() {
    let mut three = three(Choice::LeastConnections);
    for number in 0..100 {
        goes_to(&mut three, number as usize % 3, client(number), SYN);
        three.exchange();
    }
    for member in 0..3 {
        for number in 0..5 {
            let place = three.function().usage_place(endpoint_of(number)).unwrap();
            assert_eq!(three.state(member).usage.get(place), Ok(20));
        }
    }
    three.agree();
}

/// What an instance counts for each of the backends, which is what it holds.
fn counted(three: &Three, member: usize) -> [i64; 5] {
    let state = three.state(member);
    let mut held = [0; 5];
    state.flows.for_each(|flow, _| {
        held[usize::from(flow.backend.address.octets()[3] - 10)] += 1;
    });
    let place = |number| three.function().usage_place(endpoint_of(number)).unwrap();
    let counts: Vec<_> = (0..5)
        .map(|number| state.usage.get(place(number)))
        .collect();
    assert_eq!(counts, held.map(Ok));
    held
}

/// Nothing is counted once all flows idled out.
fn all_end(three: &mut Three) {
    three.advance(20_000);
    three.idle_out();
    for member in 0..3 {
        assert_eq!(counted(three, member), [0; 5]);
    }
    three.agree();
}

/// Both handle a SYN before they hear of one another.
#[test]
fn a_flow_that_two_open_within_the_lag_is_counted_once() {
    let mut three = three(Choice::Hash);
    for number in 0..20 {
        let server = goes_to(&mut three, 0, client(number), SYN);
        assert_eq!(goes_to(&mut three, 1, client(number), SYN), server);
    }
    three.exchange();
    for member in 0..3 {
        assert_eq!(counted(&three, member).iter().sum::<i64>(), 20);
    }
    all_end(&mut three);
}

/// The same where they choose different backends: the flow has one, and the other one's row counts until it idles out.
#[test]
fn a_flow_that_two_deal_to_different_backends_leaves_nothing() {
    let mut three = three(Choice::LeastConnections);
    // What each knows alone.
    for member in 0..2 {
        for number in 0..3 {
            goes_to(
                &mut three,
                member,
                client(100 * member as u32 + number),
                SYN,
            );
        }
    }
    let differs = |number: &u32| {
        goes_to(&mut three, 0, client(*number), SYN) != goes_to(&mut three, 1, client(*number), SYN)
    };
    let differing = (1_000..1_020).filter(differs).count();
    assert!(differing > 0);
    three.exchange();
    for member in 0..3 {
        let all = counted(&three, member).iter().sum::<i64>();
        assert_eq!(all, 6 + 20 + differing as i64);
    }
    all_end(&mut three);
}

/// All used it last in one second, so each of them says that it ended.
#[test]
fn a_flow_that_several_end_is_taken_away_once() {
    let mut three = three(Choice::LeastConnections);
    for number in 0..20 {
        let server = goes_to(&mut three, 0, client(number), SYN);
        three.exchange();
        goes_to(&mut three, 2, client(number), ACK);
        answers(&mut three, 1, (server, client(number)), SYN_ACK).unwrap();
        three.exchange();
    }
    all_end(&mut three);
}

/// It ends at one while another still uses it, and then ends again.
#[test]
fn a_flow_that_comes_back_after_its_end_is_counted_again_and_taken_away_again() {
    let mut three = three(Choice::LeastConnections);
    let mut backends = Vec::new();
    for number in 0..20 {
        backends.push(goes_to(&mut three, 0, client(number), SYN));
    }
    three.exchange();
    three.set_behind(1, 10);
    three.advance(77);
    for (number, server) in (0..20).zip(&backends) {
        assert_eq!(goes_to(&mut three, 1, client(number), SYN), *server);
    }
    three.idle_out();
    let resurrected = three.state(0).flows.tally().resurrected;
    assert_eq!(resurrected, 20, "ended here, and used there");
    for member in 0..3 {
        assert_eq!(counted(&three, member), [4; 5]);
    }
    all_end(&mut three);
}

/// A host dies whose flows others end; and one comes to another backend, as a SYN of two hosts may move it.
#[test]
fn deaths_and_moves_leave_nothing() {
    let mut three = three(Choice::LeastConnections);
    for number in 0..30 {
        goes_to(&mut three, number as usize % 3, client(number), SYN);
    }
    three.exchange();
    for member in 0..3 {
        let finding = CheckResult {
            member: member as u16,
            backend: endpoint_of(2),
            is_down: true,
        };
        three.packet(member, CONTROL, &finding.frame());
    }
    three.exchange();
    for number in 0..30 {
        for member in [1, 2] {
            assert_ne!(
                goes_to(&mut three, member, client(number), SYN),
                endpoint_of(2)
            );
        }
    }
    three.kill(0);
    three.exchange();
    assert_eq!(counted(&three, 1)[2], 0, "all were moved");
    assert_eq!(counted(&three, 1), counted(&three, 2));
    three.advance(20_000);
    three.idle_out();
    for member in [1, 2] {
        assert_eq!(counted(&three, member), [0; 5]);
    }
}
