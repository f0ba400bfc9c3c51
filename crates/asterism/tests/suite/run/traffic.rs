//! `asterism traffic`: either host tells what both counted, the flows of an interval, what they say since the start, and nothing where
//! nobody watches.

use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, outbound, wait};

/// A cluster of two whose function is this, after what stands before all else.
fn cluster(head: &str, function: &str) -> Cluster {
    let cluster = Cluster::new(2, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    std::fs::write(&path, format!("{head}{}{function}", &text[..nat])).unwrap();
    cluster
}

fn flow(flows: &Value, port: u16) -> Option<&Value> {
    let flows = flows.as_array().unwrap();
    flows.iter().find(|flow| flow["source_port"] == port)
}

/// Twelve packets of one flow through the one host and the other in turn, and one of another flow.
fn send(cluster: &Cluster) {
    let mut ends = [cluster.end("a", "inside"), cluster.end("b", "inside")];
    let mut outsides = [cluster.end("a", "outside"), cluster.end("b", "outside")];
    for number in 0..13 {
        let packet = outbound(if number < 12 { 4_000 } else { 4_001 });
        ends[number % 2].send(&packet);
        assert_eq!(outsides[number % 2].next(), packet);
    }
}

#[test]
fn either_host_tells_what_both_saw() {
    let cluster = cluster(
        "",
        "[function.monitor]\ninterval = \"10s\"\nout_degree = 1\n",
    );
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    send(&cluster);
    // Five bytes of UDP.
    let bytes = 20 + 8 + 5;
    for host in [&a, &b] {
        let traffic = wait("both hosts' packets", || {
            let traffic = host.ask(&["traffic"]);
            let since = &traffic["since_start"];
            // Each object's sums are reported by themselves, and not all in one turn.
            let heavy = flow(&since["by_bytes"]["flows"], 4_000)?;
            let hosts = &traffic["hosts"];
            let sums = [
                (&since["by_packets"]["total"], 13),
                (&since["by_bytes"]["total"], 13 * bytes),
                (&heavy["sum"], 12 * bytes),
                (&since["protocols"][0]["packets"], 13),
                (&hosts["by_bytes"][0]["bytes"], 13 * bytes),
                (&hosts["count"], 2),
                (&hosts["links"], 1),
                (&traffic["alarms"][0]["others"], 1),
            ];
            let is_whole = sums.iter().all(|(sum, whole)| **sum == *whole);
            is_whole.then_some(traffic)
        });
        let since = &traffic["since_start"];
        let heavy = flow(&since["by_bytes"]["flows"], 4_000).unwrap();
        assert_eq!(
            (&heavy["sum"], &heavy["protocol"]),
            (&(12 * bytes).into(), &"udp".into())
        );
        assert!(heavy["at_most"].as_u64() >= Some(12 * bytes));
        let protocol = &since["protocols"][0];
        assert_eq!(
            (&protocol["protocol"], &protocol["ip"]),
            (&"udp".into(), &4.into())
        );
        assert_eq!(protocol["packets"], 13);
        let hosts = &traffic["hosts"];
        assert_eq!((&hosts["count"], &hosts["links"]), (&2.into(), &1.into()));
        assert_eq!(hosts["by_out_degree"].as_array().unwrap().len(), 1);
        assert_eq!(hosts["by_bytes"][0]["bytes"], 13 * bytes);
        assert_eq!(traffic["alarms"][0]["others"], 1);
        // Ten seconds at most until the interval is over; if it ended while packets came, they are in two.
        let over = wait("the interval's end", || {
            let traffic = host.ask(&["traffic", "-n", "1"]);
            let one = flow(&traffic["flows"]["by_packets"], 4_000).is_some();
            one.then_some(traffic)
        });
        assert_eq!(over["flows"]["by_bytes"].as_array().unwrap().len(), 1);
        assert_eq!(over["interval"]["over"], true);
        let sizes = over["sizes"]["at_least"].as_array().unwrap();
        assert!(!sizes.is_empty() && sizes.len() <= 4);
    }
    let source = a.ask(&["traffic"])["hosts"]["by_out_degree"][0]["address"].clone();
    let of = |address: &str| a.ask(&["traffic", "--address", address]);
    let with = of(source.as_str().unwrap());
    assert_eq!(with["hosts"]["links"], 1);
    assert_eq!(with["hosts"]["by_bytes"].as_array().unwrap().len(), 1);
    let without = of("203.0.113.200");
    let lists = [
        &without["hosts"]["by_bytes"],
        &without["alarms"],
        &without["since_start"]["by_bytes"]["flows"],
    ];
    assert!(lists.iter().all(|list| list.as_array().unwrap().is_empty()));
    let (end, text) = b.command(&["traffic", "--now"]);
    assert_eq!(end, End::Done);
    assert!(
        text.contains("(goes on)") && text.contains("ALARM"),
        "{text}"
    );
    let metrics = &a.ask(&["status"])["instances"][0];
    assert_eq!(metrics["own"]["udp_packets_total"], 13, "{metrics}");
}

#[test]
fn a_stage_of_a_chain_is_asked_and_what_watches_nothing_says_so() {
    let chain = "chain = [\"pass-through\", \"monitor\"]\n";
    let monitor = "[function.pass-through]\n[function.monitor]\ninterval = \"10s\"\n";
    for (head, function, watches) in [
        (chain, monitor, true),
        ("", "[function.pass-through]\n", false),
    ] {
        let cluster = cluster(head, function);
        let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
        a.wait_for("READY=1");
        b.wait_for("READY=1");
        if !watches {
            let (end, text) = a.command(&["traffic"]);
            assert_eq!(end, End::File);
            assert!(text.contains("needs [function.monitor]"), "{text}");
            continue;
        }
        send(&cluster);
        wait("both hosts' packets", || {
            let since = &b.ask(&["traffic"])["since_start"];
            (since["by_packets"]["total"] == 13).then_some(())
        });
    }
}
