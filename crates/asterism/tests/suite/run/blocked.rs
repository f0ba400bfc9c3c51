//! `asterism blocked`: any host shows the sources that the rules of all hosts block, until when and by which rule.

use asterism_output::End;
use asterism_packet::Flow4;
use serde_json::Value;

use crate::run::host::{Cluster, FIREWALL, Host, NAT, outbound, wait};

const RULE: &str = "block 10m udp on inside to any port 7";

/// The one block that each of the hosts knows, once it has come there.
fn blocks_of_all(hosts: &[Host]) -> impl Iterator<Item = Value> {
    hosts.iter().map(|host| {
        wait("the block of the first host", || {
            let document = host.ask(&["blocked"]);
            let blocked = document["blocked"].as_array().unwrap();
            assert!(blocked.len() <= 1, "{document}");
            blocked.first().cloned()
        })
    })
}

/// It is the rule's, and by this function.
fn is_by_the_rule(block: &Value, function: &str) {
    assert_eq!(block["function"], function);
    assert_eq!(block["source"], "10.0.0.2");
    assert_eq!(block["destination"], Value::Null);
    assert_eq!(block["by"], format!("line 2: {RULE}"));
    let seconds = block["seconds"].as_u64().unwrap();
    assert!((500..=601).contains(&seconds), "{block}");
}

#[test]
fn any_host_tells_which_all_of_them_block() {
    let (cluster, hosts) = Cluster::of_rules("", FIREWALL, &format!("\n{RULE}\n"));
    let (end, text) = hosts[1].command(&["blocked"]);
    assert_eq!((end, text.as_str()), (End::Done, "no source is blocked\n"));
    let mut inside = cluster.end("a", "inside");
    let _outside = cluster.end("a", "outside");
    inside.send(&outbound(4_000));
    for block in blocks_of_all(&hosts) {
        is_by_the_rule(&block, "firewall");
    }
}

/// Behind it a NAT and a detector that blocks, too: the source is inside's own, and the function is called by its stage's name.
#[test]
fn which_a_stage_of_a_chain_blocks_is_reported_by_its_name() {
    let tables = format!(
        "[stage.guard]\nfunction = \"firewall\"\n[function.guard]\nrules = \"some.rules\"\n{NAT}"
    );
    let (cluster, hosts) = Cluster::of_rules(
        "chain = [\"guard\", \"nat\", \"port-scan\"]",
        &tables,
        &format!("\n{RULE}\nallow udp on inside\n"),
    );
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let allowed = Flow4 {
        destination_port: 9,
        ..outbound(4_000)
    };
    inside.send(&allowed);
    assert_eq!(outside.next().destination_port, 9);
    let (end, text) = hosts[1].command(&["blocked"]);
    assert_eq!((end, text.as_str()), (End::Done, "no source is blocked\n"));
    inside.send(&outbound(4_000));
    for block in blocks_of_all(&hosts) {
        is_by_the_rule(&block, "guard");
    }
    // By any host, whatever he sends.
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    inside.send(&allowed);
    wait("the drop", || {
        let status = hosts[1].ask(&["status"]);
        (status["instances"][0]["dropped"]["blocked"] == 1).then_some(())
    });
    assert!(outside.take().is_empty());
    let (end, text) = hosts[1].command(&["blocked"]);
    assert_eq!(end, End::Done);
    assert!(
        text.contains("guard") && text.contains(RULE) && text.contains("10.0.0.2"),
        "{text}"
    );
}

#[test]
fn what_blocks_nobody_says_so() {
    let cluster = Cluster::new(1, "");
    let mut host = cluster.begin(0, &[]);
    host.wait_for("READY=1");
    let (end, text) = host.command(&["blocked"]);
    assert_eq!(end, End::File);
    assert!(text.contains("blocks nobody: it needs"), "{text}");
}
