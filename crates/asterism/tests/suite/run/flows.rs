//! `asterism flows end`, and reloads after which flows that the new rules deny end: at all hosts, though one had the order.

use asterism_output::End;

use crate::run::host::{Cluster, FIREWALL, Host, answer, outbound, wait};

const ALLOW: &str = "allow udp on inside to any port 7\n";

/// How many flows a host knows, as soon as it is so many.
fn knows(host: &Host, count: u64) {
    wait("the flows", || (host.live("flows") == count).then_some(()));
}

#[test]
fn flows_that_are_ended_at_one_host_end_at_all() {
    let (cluster, hosts) = Cluster::of_rules("", FIREWALL, ALLOW);
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    for port in 4_000..4_020 {
        inside.send(&outbound(port));
        assert_eq!(outside.next(), outbound(port));
    }
    outside.send(&answer(&outbound(4_003)));
    assert_eq!(inside.next(), answer(&outbound(4_003)));
    knows(&hosts[0], 20);
    let document = hosts[0].ask(&["flows", "end", "--port", "4003", "--protocol", "udp"]);
    let ended = &document["ended"][0];
    assert_eq!(
        (&ended["function"], &ended["ended"], &ended["left"]),
        (&"firewall".into(), &1.into(), &0.into())
    );
    let flow = ended["flows"][0].as_str().unwrap();
    assert!(flow.contains(":4003 "), "{flow}");
    knows(&hosts[1], 19);
    // The answer is to nothing any more; the question begins the flow again.
    outside.send(&answer(&outbound(4_003)));
    wait("the drop", || {
        let status = hosts[1].ask(&["status"]);
        (status["instances"][0]["dropped"]["denied"] == 1).then_some(())
    });
    assert!(inside.take().is_empty());
    inside.send(&outbound(4_003));
    assert_eq!(outside.next(), outbound(4_003));
    knows(&hosts[0], 20);
    wait("the event", || {
        hosts[0].log().contains("event=flows-ended").then_some(())
    });
    // What nobody means, and what means nobody.
    let none = ["flows", "end", "--address", "192.0.2.99"];
    hosts[1].says(&none, End::DoesNotHold, &["0 flows ended"]);
    let denied = ["flows", "end", "--denied"];
    hosts[1].says(&denied, End::DoesNotHold, &["0 flows ended"]);
    hosts[1].says(&["flows", "end"], End::CommandLine, &["--all"]);
    let elsewhere = ["flows", "end", "--all", "--function", "firewal"];
    hosts[1].says(&elsewhere, End::File, &["is \"firewall\" meant?"]);
    hosts[1].says(&["flows", "end", "--all"], End::Done, &["20 flows ended"]);
    knows(&hosts[0], 0);
    knows(&hosts[1], 0);
}

#[test]
fn a_reload_ends_what_the_new_rules_deny_where_that_is_chosen() {
    let tables = FIREWALL.replace(
        "[function.firewall]",
        "[function.firewall]\non_reload = \"end-denied\"",
    );
    assert_ne!(tables, FIREWALL);
    let (cluster, hosts) = Cluster::of_rules("", &tables, ALLOW);
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    for port in [4_000, 4_001] {
        inside.send(&outbound(port));
        assert_eq!(outside.next(), outbound(port));
    }
    knows(&hosts[0], 2);
    // One of both goes on: what holds for it has not changed.
    let rules = cluster.path("some.rules");
    let some = "allow udp on inside from any port 4001\n";
    std::fs::write(rules, some).unwrap();
    for host in &hosts {
        host.says(&["reload"], End::Done, &["rules"]);
    }
    for host in &hosts {
        knows(host, 1);
    }
    wait("the event", || {
        let logs = hosts.iter().map(Host::log);
        let ended = |log: String| log.contains("event=flows-ended") && log.contains("by=reload");
        logs.into_iter().any(ended).then_some(())
    });
    outside.send(&answer(&outbound(4_001)));
    assert_eq!(inside.next(), answer(&outbound(4_001)));
    outside.send(&answer(&outbound(4_000)));
    inside.send(&outbound(4_000));
    wait("the drops", || {
        let status = hosts[1].ask(&["status"]);
        (status["instances"][0]["dropped"]["denied"] == 2).then_some(())
    });
    assert!(inside.take().is_empty() && outside.take().is_empty());
}
