//! Operators' commands where blocks, or flows, are in a store: they find there what any host wrote, what they change holds at all hosts, and
//! they say so if the store does not answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use asterism_output::End;
use asterism_packet::Flow4;

use crate::run::host::{Cluster, FIREWALL, Host, answer, outbound, wait};
use crate::run::stores::{Ends, StoreProcess, again, hosts};
use crate::up::{Up, ask};

const ALLOW: &str = "allow udp on inside to any port 7\n";

/// Two firewalls with these of their objects in a store.
fn firewalls(
    store: &str,
    firewall: &str,
    remote: &[&str],
    rules: &str,
) -> (Cluster, [Host; 2], [Ends; 2]) {
    let objects = remote.iter();
    let objects: String = objects
        .map(|object| format!("{object} = {{ placement = \"remote\" }}\n"))
        .collect();
    let tables = format!("{store}{FIREWALL}{firewall}[function.firewall.state]\n{objects}");
    let cluster = Cluster::of(2, "", &tables);
    std::fs::write(cluster.path("some.rules"), rules).unwrap();
    let hosts = hosts(&cluster);
    let ends = ["a", "b"].map(|host| Ends::of(&cluster, host));
    (cluster, hosts, ends)
}

fn at(store: &StoreProcess) -> String {
    format!("[store]\naddress = \"{}\"\n", store.address)
}

fn dropped(host: &Host, reason: &str) -> u64 {
    let status = host.ask(&["status"]);
    status["instances"][0]["dropped"][reason]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn blocks_in_a_store_are_shown_written_and_lifted_by_any_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let rules = "block 10m udp on inside to any port 9\nallow udp on inside\n";
    let (_cluster, [a, b], [mut at_a, mut at_b]) = firewalls(&at(&store), "", &["blocked"], rules);
    let document = a.ask(&["block", "10.0.0.2", "--for", "10m"]);
    assert_eq!(
        document["refused"].as_array().unwrap().len(),
        0,
        "{document}"
    );
    assert_eq!(document["blocked"][0]["by"], "manually");
    // No update travels: the other host reads what is there.
    let document = b.ask(&["blocked"]);
    assert_eq!(
        document["blocked"].as_array().unwrap().len(),
        1,
        "{document}"
    );
    assert_eq!(document["blocked"][0]["source"], "10.0.0.2");
    at_b.inside.send(&outbound(4_000));
    wait("the drop", || (dropped(&b, "blocked") == 1).then_some(()));
    let lifted = [
        "no longer blocked: 10.0.0.2 by firewall, until 2",
        ": manually\n",
    ];
    b.says(&["unblock", "10.0.0.2"], End::Done, &lifted);
    let none = ["no function blocks 10.0.0.2\n"];
    a.says(&["unblock", "10.0.0.2"], End::DoesNotHold, &none);
    a.says(&["blocked"], End::Done, &["no source is blocked\n"]);
    at_a.inside.send(&outbound(4_000));
    assert_eq!(at_a.outside.next(), outbound(4_000));
    // What a rule blocks at one host any lifts, whichever address others are blocked by.
    let mut probe = outbound(4_001);
    probe.destination_port = 9;
    at_a.inside.send(&probe);
    let by = wait("the rule's block", || {
        let document = b.ask(&["blocked"]);
        document["blocked"][0]["by"].as_str().map(str::to_owned)
    });
    assert!(by.starts_with("line 1: block"), "{by}");
    b.ask(&["block", "192.0.2.7", "--for", "1h"]);
    b.says(&["unblock", "10.0.0.2"], End::Done, &["line 1: block"]);
    let left = a.ask(&["blocked"]);
    assert_eq!(left["blocked"].as_array().unwrap().len(), 1, "{left}");

    store.stop();
    let away = format!("the store {} is away", store.address);
    let unknown = ["no blocked source was found", &away];
    a.says(&["blocked"], End::Done, &unknown);
    let unknown = [
        "whether 192.0.2.7 is blocked by firewall is not known",
        &away,
    ];
    a.says(&["unblock", "192.0.2.7"], End::DoesNotHold, &unknown);
    let block = ["block", "192.0.2.8", "--for", "1h"];
    let unknown = ["firewall has not confirmed the block of 192.0.2.8", &away];
    a.says(&block, End::DoesNotHold, &unknown);
}

#[test]
fn a_store_whose_table_is_full_takes_no_further_block() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let (_cluster, [a, b], _ends) = {
        let tables = format!(
            "{}{FIREWALL}[function.firewall.state.blocked]\nplacement = \"remote\"\ncapacity = 64\n",
            at(&store)
        );
        let cluster = Cluster::of(2, "", &tables);
        std::fs::write(cluster.path("some.rules"), ALLOW).unwrap();
        let hosts = hosts(&cluster);
        (cluster, hosts, ())
    };
    for number in 0..64 {
        let address = format!("192.0.2.{number}");
        a.says(&["block", &address, "--for", "1h"], End::Done, &[]);
    }
    let document = b.ask(&["blocked"]);
    assert_eq!(document["blocked"].as_array().unwrap().len(), 64);
    let no_room = ["it has no room for another block"];
    let one_more = ["block", "2001:db8::7", "--for", "1h"];
    b.says(&one_more, End::DoesNotHold, &no_room);
    b.says(&["unblock", "192.0.2.2"], End::Done, &[]);
    a.says(&one_more, End::Done, &[]);
}

/// Opens flows through the first host, by these ports.
fn open(ends: &mut Ends, ports: impl IntoIterator<Item = u16>) {
    for port in ports {
        ends.inside.send(&outbound(port));
        assert_eq!(ends.outside.next(), outbound(port));
    }
}

#[test]
fn flows_in_a_store_are_ended_by_a_command_at_any_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let remote = ["flows", "fragments"];
    let (_cluster, [a, b], [mut at_a, mut at_b]) = firewalls(&at(&store), "", &remote, ALLOW);
    open(&mut at_a, 4_000..4_020);
    let document = b.ask(&["flows", "end", "--port", "4003", "--protocol", "udp"]);
    let ended = &document["ended"][0];
    assert_eq!(
        (&ended["ended"], &ended["left"]),
        (&1.into(), &0.into()),
        "{document}"
    );
    // The answer is to nothing any more, at either host.
    at_a.outside.send(&answer(&outbound(4_003)));
    wait("the drop", || (dropped(&a, "denied") == 1).then_some(()));
    assert!(at_a.inside.take().is_empty());
    at_b.outside.send(&answer(&outbound(4_004)));
    assert_eq!(at_b.inside.next(), answer(&outbound(4_004)));
    let none = ["flows", "end", "--denied"];
    a.says(&none, End::DoesNotHold, &["0 flows ended"]);
    // More than an order names.
    a.says(&["flows", "end", "--all"], End::Done, &["19 flows ended"]);
    a.says(
        &["flows", "end", "--all"],
        End::DoesNotHold,
        &["0 flows ended"],
    );
    store.stop();
    let away = format!("the store {} is away", store.address);
    a.says(&["flows", "end", "--all"], End::DoesNotHold, &[&away]);
}

#[test]
fn a_reload_ends_flows_in_a_store_that_the_new_rules_deny() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let remote = ["flows", "fragments"];
    let (cluster, [a, b], [mut at_a, mut at_b]) =
        firewalls(&at(&store), "on_reload = \"end-denied\"\n", &remote, ALLOW);
    open(&mut at_a, [4_000, 4_001]);
    let some = "allow udp on inside from any port 4001\n";
    std::fs::write(cluster.path("some.rules"), some).unwrap();
    for host in [&b, &a] {
        host.says(&["reload"], End::Done, &["rules"]);
    }
    wait("the event", || {
        let ended = |log: String| log.contains("event=flows-ended") && log.contains("by=reload");
        [&a, &b]
            .into_iter()
            .any(|host| ended(host.log()))
            .then_some(())
    });
    at_b.outside.send(&answer(&outbound(4_001)));
    assert_eq!(at_b.inside.next(), answer(&outbound(4_001)));
    at_b.outside.send(&answer(&outbound(4_000)));
    wait("the drop", || (dropped(&b, "denied") == 1).then_some(()));
    assert!(at_b.inside.take().is_empty());
}

/// A flow of a client of its own, so that shards have some each.
fn of_client(number: u8) -> Flow4 {
    Flow4 {
        source: Ipv4Addr::new(10, 0, 0, 10 + number),
        ..outbound(4_000)
    }
}

/// While one of two shards is away, what the other has is found and ended, and the answer names the one that is not reached.
#[test]
fn a_shard_that_is_away_hides_none_of_the_other() {
    const FLOWS: u8 = 16;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let append = ["--append", "store.aof"];
    let [one, mut other] =
        [0, 1].map(|place: usize| StoreProcess::start(folders[place].path(), &again(), &append));
    let address: SocketAddr = other.address;
    let shards = format!(
        "[store.shards]\na = {{ address = \"{}\" }}\nb = {{ address = \"{address}\" }}\n",
        one.address
    );
    let remote = ["flows", "fragments"];
    let (_cluster, [a, b], [mut at_a, _at_b]) = firewalls(&shards, "", &remote, ALLOW);
    for number in 0..FLOWS {
        at_a.inside.send(&of_client(number));
        assert_eq!(at_a.outside.next(), of_client(number));
    }
    other.stop();
    let away = format!("the shard b of the store, {address}, is away");
    let mut found = 0;
    for number in 0..FLOWS {
        let key = format!("{}:4000", of_client(number).source);
        let document = b.ask(&["state", "get", &key]);
        let unsearched = document["unsearched"][0].as_str().unwrap();
        assert!(unsearched.contains(&away), "{document}");
        let entries = document["entries"].as_array().unwrap().len();
        found += entries;
        if entries == 0 {
            let none = ["no entry was found with the key", &away];
            a.says(&["state", "get", &key], End::DoesNotHold, &none);
        }
        let (_, text) = b.command(&["flows", "find", &key]);
        assert!(text.contains(&away), "{text}");
    }
    assert!((1..usize::from(FLOWS)).contains(&found), "{found}");
    let ended = format!("{found} flows ended");
    let all = ["flows", "end", "--all"];
    a.says(&all, End::DoesNotHold, &[&ended, &away]);
    // It comes back with what it had, and the order is given again.
    let _other = StoreProcess::start(folders[1].path(), &address.to_string(), &append);
    wait("the shard", || {
        let shards = &a.ask(&["status"])["store"]["shards"];
        (shards[1]["connected"] == true).then_some(())
    });
    let ended = format!("{} flows ended", usize::from(FLOWS) - found);
    a.says(&all, End::Done, &[&ended]);
    assert_eq!(b.ask(&["status"])["store"]["misplaced"], 0);
}

/// A reload ends denied flows in both shards, by whichever host it comes first.
#[test]
fn a_reload_ends_flows_in_shards_that_the_new_rules_deny() {
    const FLOWS: u8 = 60;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let shards =
        [0, 1].map(|place: usize| StoreProcess::start(folders[place].path(), "127.0.0.1:0", &[]));
    let [one, other] = [0, 1].map(|place: usize| shards[place].address);
    let shards =
        format!("[store.shards]\na = {{ address = \"{one}\" }}\nb = {{ address = \"{other}\" }}\n");
    let remote = ["flows", "fragments"];
    let denies = "on_reload = \"end-denied\"\n";
    let (cluster, [a, b], [mut at_a, mut at_b]) = firewalls(&shards, denies, &remote, ALLOW);
    for number in 0..FLOWS {
        at_a.inside.send(&of_client(number));
        assert_eq!(at_a.outside.next(), of_client(number));
    }
    // Those of clients up to 10.0.0.31 stay. Each of the others has an order of its own, more than are given at a time.
    let some = "allow udp on inside from 10.0.0.0/27\n";
    std::fs::write(cluster.path("some.rules"), some).unwrap();
    for host in [&a, &b] {
        host.says(&["reload"], End::Done, &["rules"]);
    }
    let ended = |log: String| log.contains("event=flows-ended") && log.contains("by=reload");
    wait("the event", || {
        let hosts = [&a, &b].into_iter();
        hosts.map(|host| host.log()).any(ended).then_some(())
    });
    for number in 0..FLOWS {
        let (flow, denied) = (of_client(number), dropped(&b, "denied"));
        at_b.outside.send(&answer(&flow));
        match number < 22 {
            true => assert_eq!(at_b.inside.next(), answer(&flow)),
            false => wait("the drop", || {
                (dropped(&b, "denied") > denied).then_some(())
            }),
        }
    }
    assert!(at_b.inside.take().is_empty());
}

/// By the API every host is asked, and each answers from the one store, or says that it is away.
#[test]
fn flows_in_a_store_are_found_from_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let path = folder.path().to_str().unwrap();
    let mut up = Up::start(&["--folder", path, "--hosts", "2"]);
    up.wait_for("is started as process");
    up.kill();
    let file = folder.path().join("asterism.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    let chain = "chain = [\"firewall\", \"nat\"]\n\n[cluster]\n";
    let remote = "{ placement = \"remote\" }";
    let changed = format!(
        "{}\n{}{FIREWALL}[function.firewall.state]\nflows = {remote}\nfragments = {remote}\n",
        written.replacen("[cluster]\n", chain, 1),
        at(&store)
    );
    std::fs::write(folder.path().join("some.rules"), "allow any on inside\n").unwrap();
    std::fs::write(&file, changed).unwrap();
    let mut up = Up::start(&[file.to_str().unwrap(), "--flows", "20"]);
    let line = up.wait_for("asterism hosts --api");
    let api = line.split_whitespace().nth(3).unwrap().to_owned();
    up.wait_for("2 of 2 hosts take packets");
    let key = wait("a flow that both hosts find", || {
        let all = ask(&api, &["flows", "find", "--protocol", "udp"]);
        let flow = all["flows"][0]["flow"].as_str()?.to_owned();
        let key = flow.split(' ').nth(1)?.to_owned();
        let (_, document) = place_of(&api, &key, "firewall.flows");
        let entry = &document["objects"][0]["entries"][0];
        let holders = entry["holders"].as_array()?;
        let in_store =
            |holder: &serde_json::Value| holder["instances"].as_array().unwrap().is_empty();
        assert!(holders.iter().all(in_store), "{document}");
        (holders.len() == 2 && entry["agree"] == true).then_some(key)
    });
    wait("the flows to be counted", || {
        let objects = ask(&api, &["state", "ls"])["objects"]
            .as_array()
            .unwrap()
            .clone();
        let flows = objects.iter().find(|one| one["name"] == "firewall.flows")?;
        (flows["in_store"].as_u64()? > 0).then_some(())
    });
    store.stop();
    let (end, document) = place_of(&api, &key, "firewall.flows");
    let unanswered = document["unanswered"].as_array().unwrap();
    let is_away = |one: &serde_json::Value| one["why"].as_str().unwrap().contains("is away");
    assert_eq!((end, unanswered.len()), (Some(1), 2), "{document}");
    assert!(unanswered.iter().all(is_away), "{document}");
}

/// What `state where` says of a key, and how it ends.
fn place_of(api: &str, key: &str, object: &str) -> (Option<i32>, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_asterism"))
        .args([
            "--format", "json", "state", "where", key, "--object", object,
        ])
        .args(["--api", api])
        .output()
        .unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap();
    crate::validator::validate(&document);
    (output.status.code(), document)
}
