//! Frames without addresses go to the shard of what they ask for: orders to end flows, each of which is of one conversation.

use std::net::Ipv4Addr;

use asterism_function::{CONTROL, Host, Reader, Reason, Wire, Writer};
use asterism_functions::firewall::{Firewall, Flow, end_frame};

use super::{Hosts, INSIDE, OUTSIDE, client, each_alone, embedded, firewall, server, udp};
use crate::stores::Embedded;

/// A flow as a firewall knows it, of UDP to port 53.
fn known(there: (Ipv4Addr, Ipv4Addr), port: u16) -> Flow {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes, &[]);
    let mut ends = [(there.0, port), (there.1, 53)];
    ends.sort_unstable();
    for (host, _) in ends {
        Host::from(host).encode(&mut out);
    }
    ends.map(|(_, port)| port).encode(&mut out);
    out.varint(17);
    Flow::decode(&mut Reader::new(&bytes, &[])).expect("a flow")
}

#[test]
fn an_order_reaches_the_shard_of_its_flows() {
    const PEERS: u8 = 16;
    let mut stores = embedded(2);
    let mut hosts = Hosts::new(firewall(), each_alone(&stores), 3);
    hosts.slowness = 4;
    hosts.connected();
    let (of, ports) = (|number| (client(number), server(number)), [5_000, 5_001]);
    for number in 0..PEERS {
        for port in ports {
            assert!(hosts.passes_soon(
                usize::from(number % 3),
                INSIDE,
                &udp(of(number), (port, 53))
            ));
        }
    }
    let all = hosts.entries(0);
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
    // One of two conversations reaches neither, and ends nothing.
    let shard = |hosts: &Hosts<Firewall>, number| hosts.shard_of(client(number), server(number));
    let other = (1..PEERS).find(|number| shard(&hosts, *number) != shard(&hosts, 0));
    let torn = [0, other.expect("both have some")].map(|number| known(of(number), ports[0]));
    hosts.inject(0, CONTROL, &end_frame(&torn));
    hosts.turn();
    hosts.turn_until(|hosts| hosts.parked() == 0);
    assert_eq!(hosts.dropped(Reason::ParkedTooLong), 1);
    assert_eq!(hosts.entries(0), all);
    let misplaced = hosts.misplaced();
    assert!(misplaced > 0);
    for number in 1..PEERS {
        let flows = ports.map(|port| known(of(number), port));
        hosts.inject(usize::from(number % 3), CONTROL, &end_frame(&flows));
    }
    hosts.turn();
    hosts.turn_until(|hosts| hosts.parked() == 0);
    assert_eq!(
        hosts.entries(0).iter().sum::<usize>(),
        2,
        "those of the first peer"
    );
    assert!(!hosts.passes(0, OUTSIDE, &udp((server(1), client(1)), (53, 5_000))));
    assert!(hosts.passes_soon(1, OUTSIDE, &udp((server(0), client(0)), (53, 5_000))));
    assert_eq!(hosts.misplaced(), misplaced);
    // One for a shard that is away waits for it, as packets do.
    let (place, address) = (shard(&hosts, 0), stores[shard(&hosts, 0)].address);
    stores[place].end();
    hosts.turn_until(|hosts| !hosts.statistics[0][place].snapshot().is_connected);
    hosts.inject(
        0,
        CONTROL,
        &end_frame(&ports.map(|port| known(of(0), port))),
    );
    hosts.turn();
    assert_eq!(hosts.parked(), 1);
    stores.push(Embedded::start(address));
    hosts.turn_until(|hosts| hosts.parked() == 0);
    assert_eq!(hosts.dropped(Reason::ParkedTooLong), 1);
}
