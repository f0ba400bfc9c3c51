//! `asterism block` and `asterism unblock`: all hosts block a source that an operator blocks at one of them, and none blocks it after he lifts the block.

use std::net::{Ipv4Addr, Ipv6Addr};

use asterism_function::TcpFlags;
use asterism_function::build::{self, Header4, Segment};
use asterism_output::End;
use serde_json::Value;

use crate::run::host::{Cluster, FIREWALL, Host, NAT, outbound, wait};
use crate::run::stores::{LONG, StoreProcess};

const RULE: &str = "block 10m udp on inside to any port 7";

/// How many a host says are blocked, as soon as it says so.
fn knows(host: &Host, count: usize) -> Vec<Value> {
    wait("what the other host was reported", || {
        let blocked = host.ask(&["blocked"])["blocked"]
            .as_array()
            .unwrap()
            .clone();
        (blocked.len() == count).then_some(blocked)
    })
}

#[test]
fn a_manual_block_of_one_host_holds_at_all_until_any_lifts_it() {
    let rules = format!("\n{RULE}\nallow udp on inside\n");
    let (cluster, hosts) = Cluster::of_rules("", FIREWALL, &rules);
    let document = hosts[0].ask(&["block", "10.0.0.2", "--for", "10m"]);
    assert_eq!(document["source"], "10.0.0.2");
    assert_eq!(document["refused"].as_array().unwrap().len(), 0);
    let block = &document["blocked"][0];
    assert_eq!(
        (&block["function"], &block["by"]),
        (&"firewall".into(), &"manually".into())
    );
    let seconds = block["seconds"].as_u64().unwrap();
    assert!((500..=601).contains(&seconds), "{block}");
    wait("the event", || {
        let log = hosts[0].log();
        log.contains("event=blocked-by-operator").then_some(())
    });
    for block in knows(&hosts[1], 1) {
        assert_eq!(
            (&block["source"], &block["by"]),
            (&"10.0.0.2".into(), &"manually".into())
        );
    }
    let mut allowed = outbound(4_000);
    allowed.destination_port = 9;
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    inside.send(&allowed);
    wait("the drop", || {
        let status = hosts[1].ask(&["status"]);
        (status["instances"][0]["dropped"]["blocked"] == 1).then_some(())
    });
    assert!(outside.take().is_empty());
    let metric = &hosts[1].ask(&["status"])["instances"][0]["own"]["blocked_sources"];
    assert_eq!(metric, 1);
    // A shorter one changes nothing, and says until when.
    hosts[1].says(
        &["block", "10.0.0.2", "--for", "1s"],
        End::Done,
        &[
            "blocked: 10.0.0.2 by firewall, until 2",
            "s more: manually\n",
        ],
    );
    hosts[1].says(
        &["unblock", "10.0.0.2"],
        End::Done,
        &[
            "no longer blocked: 10.0.0.2 by firewall, until 2",
            ": manually\n",
        ],
    );
    wait("the event", || {
        hosts[1]
            .log()
            .contains("event=unblocked-by-operator")
            .then_some(())
    });
    knows(&hosts[0], 0);
    inside.send(&allowed);
    assert_eq!(outside.next().destination_port, 9);
    hosts[0].says(
        &["unblock", "10.0.0.2"],
        End::DoesNotHold,
        &["no function blocks 10.0.0.2\n"],
    );
    // The rule's own block is lifted at the other host, and comes again with what the rule is for.
    for _ in 0..2 {
        inside.send(&outbound(4_000));
        assert_eq!(knows(&hosts[0], 1)[0]["by"], format!("line 2: {RULE}"));
        let document = hosts[0].ask(&["unblock", "10.0.0.2", "--function", "firewall"]);
        assert_eq!(document["lifted"][0]["by"], format!("line 2: {RULE}"));
        assert_eq!(document["left"].as_array().unwrap().len(), 0);
        knows(&hosts[1], 0);
        inside.send(&allowed);
        assert_eq!(outside.next().destination_port, 9);
    }
}

/// In a chain every stage that blocks does, or the one that is named; what a detector that only reports is reported holds too.
#[test]
fn stages_are_reported_by_their_names() {
    let tables = format!(
        "[stage.guard]\nfunction = \"firewall\"\n[function.guard]\nrules = \"some.rules\"\n\
         [function.port-scan]\nresponse = \"detect\"\n\
         [function.signature.signatures.evil]\nid = 1\nbytes = \"EVIL-stuff\"\n{NAT}"
    );
    let (cluster, hosts) = Cluster::of_rules(
        "chain = [\"signature\", \"guard\", \"nat\", \"port-scan\"]",
        &tables,
        "default allow\n",
    );
    let functions = |document: &Value, list: &str| {
        let blocks = document[list].as_array().unwrap().clone();
        let name = |block: &Value| block["function"].as_str().unwrap().to_owned();
        blocks.iter().map(name).collect::<Vec<_>>()
    };
    let document = hosts[0].ask(&["block", "10.0.0.2", "--for", "1h"]);
    assert_eq!(
        functions(&document, "blocked"),
        ["signature", "guard", "port-scan"]
    );
    knows(&hosts[1], 3);
    let document = hosts[1].ask(&["unblock", "10.0.0.2", "--function", "signature"]);
    assert_eq!(functions(&document, "lifted"), ["signature"]);
    knows(&hosts[0], 2);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    inside.send(&outbound(4_000));
    wait("the drop", || {
        let status = hosts[0].ask(&["status"]);
        let stages = status["instances"][0]["stages"].as_array().unwrap();
        let guard = stages
            .iter()
            .find(|stage| stage["name"] == "guard")
            .unwrap();
        (guard["dropped"]["blocked"] == 1).then_some(())
    });
    assert!(outside.take().is_empty());
    let document = hosts[0].ask(&["unblock", "10.0.0.2"]);
    assert_eq!(functions(&document, "lifted"), ["guard", "port-scan"]);
    knows(&hosts[1], 0);
    inside.send(&outbound(4_000));
    let _ = outside.next();
    // What only the last stage sees: the address behind the NAT.
    let arguments = [
        "block",
        "203.0.113.1",
        "--for",
        "1m",
        "--function",
        "port-scan",
    ];
    let document = hosts[0].ask(&arguments);
    assert_eq!(functions(&document, "blocked"), ["port-scan"]);
    inside.send(&outbound(4_000));
    wait("the drop", || {
        let status = hosts[0].ask(&["status"]);
        (status["instances"][0]["dropped"]["blocked"] == 2).then_some(())
    });
    hosts[0].says(
        &["block", "10.0.0.2", "--for", "1m", "--function", "gard"],
        End::File,
        &["\"gard\" blocks nobody here: is \"guard\" meant?"],
    );
    hosts[0].says(
        &["unblock", "10.0.0.2", "--function", "nat"],
        End::File,
        &["\"nat\" blocks nobody here: name \"signature\", \"guard\" or \"port-scan\""],
    );
}

/// Connections that a signature blocks are lifted with the address at either end.
#[test]
fn connections_of_a_source_are_lifted_with_it() {
    let tables = "[function.signature]\nresponse = \"block\"\n\
         [function.signature.signatures.hello]\nid = 1\nbytes = \"hello\"\n";
    let cluster = Cluster::of(1, "", tables);
    let host = cluster.start(0);
    let mut inside = cluster.end("a", "inside");
    let _outside = cluster.end("a", "outside");
    for port in 4_000..4_010 {
        inside.send(&outbound(port));
    }
    knows(&host, 10);
    host.says(
        &["unblock", "198.51.100.99"],
        End::DoesNotHold,
        &["no function blocks 198.51.100.99"],
    );
    knows(&host, 10);
    let document = host.ask(&["unblock", "10.0.0.2"]);
    let lifted = document["lifted"].as_array().unwrap();
    assert_eq!(lifted.len(), 10);
    assert!(
        lifted
            .iter()
            .all(|block| block["by"] == "a signature was found")
    );
    assert_eq!(document["left"].as_array().unwrap().len(), 0);
    knows(&host, 0);
    inside.send(&outbound(4_000));
    let blocks = knows(&host, 1);
    assert_eq!(blocks[0]["by"], "a signature was found");
}

/// A table without room says so; so does a host that accepts no changes.
#[test]
fn who_cannot_be_blocked_is_reported() {
    let tables = format!("{FIREWALL}[function.firewall.state.blocked]\ncapacity = 64\n");
    let cluster = Cluster::of(1, "", &tables);
    std::fs::write(cluster.path("some.rules"), "default allow\n").unwrap();
    let host = cluster.start(0);
    for number in 0..64 {
        let address = format!("192.0.2.{number}");
        host.says(&["block", &address, "--for", "1h"], End::Done, &[]);
    }
    let arguments = ["block", "2001:db8::7", "--for", "1h"];
    host.says(
        &arguments,
        End::DoesNotHold,
        &["firewall has not confirmed the block of 2001:db8::7: it has no room for another block"],
    );
    let document = host.ask(&arguments);
    assert_eq!(document["refused"][0]["function"], "firewall");
    // Who is blocked already needs none, and who is lifted leaves one.
    host.says(&["block", "192.0.2.1", "--for", "2h"], End::Done, &[]);
    host.says(&["unblock", "192.0.2.1"], End::Done, &[]);
    wait("a place", || {
        (host.command(&arguments).0 == End::Done).then_some(())
    });
    // A host that drains is a member still.
    host.says(&["drain"], End::Done, &[]);
    host.says(&["unblock", "192.0.2.2"], End::Done, &[]);
}

/// What it wrote now would keep the others from taking up what they saved.
#[test]
fn a_host_that_waits_for_the_others_takes_no_order() {
    let cluster = Cluster::of(2, "", FIREWALL);
    std::fs::write(cluster.path("some.rules"), "default allow\n").unwrap();
    cluster.edit("join_wait = \"2s\"", "join_wait = \"20s\"");
    let host = cluster.begin(0, &[]);
    let text = wait("an answer", || {
        let (end, text) = host.command(&["block", "10.0.0.2", "--for", "1m"]);
        (end == End::DoesNotHold).then_some(text)
    });
    assert!(text.contains("accepts no changes before it runs"), "{text}");
    host.says(
        &["unblock", "10.0.0.2"],
        End::DoesNotHold,
        &["no function blocks 10.0.0.2"],
    );
}

#[test]
fn what_blocks_nobody_says_so_and_what_is_no_address_or_time_too() {
    let cluster = Cluster::new(1, "");
    let host = cluster.start(0);
    for arguments in [
        &["block", "10.0.0.2", "--for", "1m"][..],
        &["unblock", "10.0.0.2"],
    ] {
        host.says(arguments, End::File, &["blocks nobody: it needs"]);
    }
    for (arguments, said) in [
        (&["block", "10.0.0.2"][..], "--for <TIME>"),
        (
            &["block", "10.0.0.0/8", "--for", "1m"],
            "for a network write a rule",
        ),
        (&["unblock", "10.0.0"], "write an address such as"),
        (&["block", "10.0.0.2", "--for", "8d"], "write 1s to 7d"),
        (&["block", "10.0.0.2", "--for", "0s"], "write 1s to 7d"),
    ] {
        host.says(arguments, End::CommandLine, &[said]);
    }
}

/// A SYN over IPv6 to this port, from an address of a prefix that scans.
fn probe(last: u16, port: u16) -> Vec<u8> {
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last);
    let header = Header4::between(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let segment = Segment::with_flags(TcpFlags::SYN);
    let mut whole = [0; 128];
    let length = build::tcp4(&header, 4_000, port, &segment, &[], &mut whole).unwrap();
    let (ethernet, transport) = (&whole[..12], &whole[34..length]);
    let mut bytes = ethernet.to_vec();
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend((transport.len() as u16).to_be_bytes());
    bytes.extend([6, 64]);
    bytes.extend(address(last).octets());
    bytes.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 7).octets());
    bytes.extend(transport);
    bytes
}

/// A scan from changing addresses blocks their prefix, which any of them lifts, at any host; a manual block is of one address.
fn prefixes_are_lifted_by_any_address(tables: &str) {
    let function = "[function.port-scan]\nwindow = \"1s\"\nblock = \"10m\"\n";
    let (cluster, hosts) = Cluster::of_rules("", &format!("{tables}{function}"), "");
    let mut inside = cluster.end("a", "inside");
    let _outside = cluster.end("a", "outside");
    for port in 1_000..1_030 {
        inside.send_frame(&probe(port, port));
    }
    for host in &hosts {
        assert_eq!(knows(host, 1)[0]["source"], "2001:db8:0:1::");
    }
    // Of another prefix.
    let none = ["no function blocks 2001:db8:0:2::99"];
    hosts[1].says(&["unblock", "2001:db8:0:2::99"], End::DoesNotHold, &none);
    // An operator's own block of an address stays when another one is lifted.
    hosts[0].ask(&["block", "2001:db8:0:1::98", "--for", "1h"]);
    hosts.iter().for_each(|host| drop(knows(host, 2)));
    let lifted = [
        "no longer blocked: 2001:db8:0:1:: by port-scan, until 2",
        "it scanned; from addresses of 2001:db8:0:1::/64",
    ];
    hosts[1].says(&["unblock", "2001:db8:0:1::99"], End::Done, &lifted);
    for host in &hosts {
        assert_eq!(knows(host, 1)[0]["source"], "2001:db8:0:1::98");
    }
    hosts[0].says(&["unblock", "2001:db8:0:1::98"], End::Done, &["manually"]);
    // So does that of the address by which a prefix is shown.
    hosts[0].ask(&["block", "2001:db8:0:1::", "--for", "1h"]);
    hosts.iter().for_each(|host| drop(knows(host, 1)));
    let none = ["no function blocks 2001:db8:0:1::99"];
    hosts[1].says(&["unblock", "2001:db8:0:1::99"], End::DoesNotHold, &none);
    hosts[1].says(&["unblock", "2001:db8:0:1::"], End::Done, &["manually"]);
    hosts.iter().for_each(|host| drop(knows(host, 0)));
}

#[test]
fn an_address_lifts_the_block_of_its_prefix() {
    prefixes_are_lifted_by_any_address("");
}

#[test]
fn an_address_lifts_the_block_of_its_prefix_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let tables = format!(
        "[store]\naddress = \"{}\"\n{LONG}[function.port-scan.state]\nblocked.placement = \"remote\"\n",
        store.address
    );
    prefixes_are_lifted_by_any_address(&tables);
}
