//! Counts of entries that are in a store with these: balancers choose by them, and those who live end what the dead had.

use std::net::{Ipv4Addr, SocketAddr};

use asterism_packet::{Flow4, Protocol};
use rustix::process::Signal;

use crate::run::host::{Cluster, Host, answer, wait};
use crate::run::stores::{Ends, LONG, hosts, on_a_redis, on_the_embedded_store};

/// The flows of both backends as a host shows them.
fn flows_of_backends(host: &Host) -> Vec<u64> {
    let reported = host.ask(&["backends"]);
    let backends = reported["services"][0]["backends"].as_array().unwrap();
    let flows = backends.iter().map(|one| one["flows"].as_u64().unwrap());
    flows.collect()
}

/// Two balancers count their flows in the store: each flow goes to the backend with fewer of both hosts, and those of a host that is killed are
/// ended by the other.
fn balancers_share_the_store(address: SocketAddr) {
    let tables = format!(
        r#"
[store]
address = "{address}"
{LONG}[function.balancer]
idle.udp = "4s"
state.flows.placement = "remote"
[function.balancer.services.echo]
address = "203.0.113.10:5353"
protocol = "udp"
choice = "least-connections"
backends = [{{ address = "10.0.0.10" }}, {{ address = "10.0.0.11" }}]
[function.balancer.clients_link]
promiscuous = true
address = "192.0.2.5/30"
next_hop = "192.0.2.6"
next_hop_mac = "02:00:00:00:02:02"
[function.balancer.backends_link]
promiscuous = true
address = "192.0.2.1/30"
next_hop = "192.0.2.2"
next_hop_mac = "02:00:00:00:01:02"
"#
    );
    let cluster = Cluster::of(2, "", &tables);
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    let client = |number: u16| Flow4 {
        source: Ipv4Addr::new(100, 64, 0, 2),
        destination: Ipv4Addr::new(203, 0, 113, 10),
        source_port: 4_000 + number,
        destination_port: 5353,
        protocol: Protocol::UDP.0,
    };
    let mut chosen = Vec::new();
    for number in 0..20 {
        let (one, other) = match number % 2 {
            0 => (&mut at_a, &mut at_b),
            _ => (&mut at_b, &mut at_a),
        };
        one.outside.send(&client(number));
        let left = one.inside.next();
        other.inside.send(&answer(&left));
        assert_eq!(other.outside.next(), answer(&client(number)));
        chosen.push(left.destination.octets()[3]);
    }
    // Each has the one more that the other one had before.
    let at = |last: u8| chosen.iter().filter(|one| **one == last).count();
    assert_eq!((at(10), at(11)), (10, 10), "{chosen:?}");
    for host in [&a, &b] {
        wait("the counts to be shown", || {
            (flows_of_backends(host) == [10, 10]).then_some(())
        });
    }
    a.signal(Signal::KILL);
    wait("the flows to end", || {
        (flows_of_backends(&b) == [0, 0]).then_some(())
    });
    let store = wait("the entries to be gone", || {
        let store = b.ask(&["status"])["store"].clone();
        (store["entries"]["flows"] == 0).then_some(store)
    });
    // What the other one ended before its death it took with it.
    assert!(store["ended"].as_u64().unwrap() <= 20, "{store}");
}

#[test]
fn balancers_count_their_flows_in_the_embedded_store() {
    on_the_embedded_store(balancers_share_the_store);
}

#[test]
fn balancers_count_their_flows_in_a_redis() {
    on_a_redis("balancers that share a Redis", balancers_share_the_store);
}
