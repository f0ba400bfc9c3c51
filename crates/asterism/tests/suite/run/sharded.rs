//! A store of several shards, one beside each host: flows go on through any host, and one shard that is away holds up its own alone.

use std::net::Ipv4Addr;

use asterism_packet::Flow4;

use crate::run::host::{Cluster, FIREWALL, Host, answer, outbound, wait};
use crate::run::stores::{Ends, StoreProcess, hosts};

const FLOWS: u8 = 30;

/// Flows of as many clients.
fn flow(number: u8) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::new(10, 0, 0, 10 + number),
        ..outbound(4_000)
    }
}

/// What a host shows of a shard.
fn of_shard(host: &Host, place: usize, field: &str) -> serde_json::Value {
    host.ask(&["status"])["store"]["shards"][place][field].clone()
}

#[test]
fn a_store_beside_each_host_has_the_flows_of_its_conversations() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start =
        |folder: &tempfile::TempDir, listen: &str| StoreProcess::start(folder.path(), listen, &[]);
    let [beside_a, mut beside_b] = [0, 1].map(|place| start(&folders[place], "127.0.0.1:0"));
    let address = beside_b.address;
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "[store.shards]\na = {{ address = \"{}\" }}\nb = {{ address = \"{address}\" }}\n\
         {FIREWALL}[function.firewall.state]\nflows = {remote}\nfragments = {remote}\n",
        beside_a.address
    );
    let rules = "allow udp on inside\ndefault drop\n";
    let cluster = Cluster::of(2, "", &tables);
    std::fs::write(cluster.path("some.rules"), rules).unwrap();
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    for number in 0..FLOWS {
        let flow = flow(number);
        at_a.inside.send(&flow);
        assert_eq!(at_a.outside.next(), flow);
        at_b.outside.send(&answer(&flow));
        assert_eq!(at_b.inside.next(), answer(&flow));
    }
    wait("the flows of both shards to be counted", || {
        let store = &a.ask(&["status"])["store"];
        (store["entries"]["flows"] == FLOWS).then_some(())
    });
    for (place, name) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(of_shard(&a, place, "name"), name);
        assert_eq!(of_shard(&a, place, "connected"), true);
        assert!(of_shard(&b, place, "keys_read").as_u64() > Some(0));
    }
    assert_eq!(a.ask(&["status"])["store"]["misplaced"], 0);
    // People see the flows of all shards.
    for number in 0..FLOWS {
        let source = flow(number).source.to_string();
        let found = b.ask(&["state", "get", &format!("{source}:4000")]);
        assert_eq!(found["entries"][0]["object"], "flows", "{source}: {found}");
    }

    // One shard ends with all that it had: its flows wait, others go on.
    beside_b.stop();
    wait("the host to miss it", || {
        (of_shard(&a, 1, "connected") == false).then_some(())
    });
    let missing = format!("shard b at {address}");
    wait("the host to say so", || {
        a.log().contains(&missing).then_some(())
    });
    let (_, shown) = a.command(&["status"]);
    assert!(
        shown.contains(&missing) && shown.contains("shard a at"),
        "{shown}"
    );
    for number in 0..FLOWS {
        at_a.inside.send(&flow(number));
    }
    let parked = || {
        let status = a.ask(&["status"]);
        status["instances"][0]["parked"].as_u64().unwrap()
    };
    let mut left = Vec::new();
    wait("what becomes of the packets", || {
        left.extend(at_a.outside.take());
        let waiting = parked();
        // For a moment all wait, since the shard that is there has to answer as well.
        let settled = !left.is_empty() && waiting > 0;
        (settled && left.len() as u64 + waiting == u64::from(FLOWS)).then_some(())
    });
    // It comes back, empty: packets that waited open their flows again.
    let _again = start(&folders[1], &address.to_string());
    wait("the rest of the packets", || {
        left.extend(at_a.outside.take());
        (left.len() == usize::from(FLOWS)).then_some(())
    });
    wait("the host to have it again", || {
        (of_shard(&a, 1, "connected") == true).then_some(())
    });
}
