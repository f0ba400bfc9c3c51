//! Three instances that tell each other what they wrote: connections whose packets take any of them, and a death.

use asterism_function::testkit::ClusterKit;
use asterism_function::{Endpoint, Late, TcpFlags, Verdict};
use asterism_functions::balancer::{Balancer, CONTROL, Choice, Finding, Service};

use crate::network::*;

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

/// Whom a client sees when a backend's packet comes to an instance, if that knows by now.
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
    for told in [false, true] {
        if told {
            for member in 0..3 {
                let finding = Finding {
                    member: member as u16,
                    backend: dead,
                    is_down: member != 1,
                };
                three.packet(member, CONTROL, &finding.frame());
            }
            three.exchange();
        }
        for number in 0..100 {
            let from = client(number + if told { 1_000 } else { 0 });
            let server = goes_to(&mut three, 0, from, SYN);
            for member in 1..3 {
                assert_eq!(goes_to(&mut three, member, from, SYN), server);
            }
            assert!(!told || server != dead);
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
