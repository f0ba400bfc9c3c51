//! Objects in a store that no file names: hosts run it themselves, whole or a shard each, and keep what it has over a restart if they are to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use asterism_output::End;
use rustix::process::Signal;

use crate::run::host::{Cluster, FIREWALL, Host, answer, outbound, wait};
use crate::run::keys::key;
use crate::run::stores::{Ends, hosts};

const FLOWS: u16 = 20;

/// Firewalls whose flows are in a store; `store` is what is said of it, if anything.
fn firewalls(count: usize, store: &str) -> Cluster {
    let remote = "{ placement = \"remote\" }";
    let tables = format!(
        "{store}{FIREWALL}[function.firewall.state]\nflows = {remote}\nfragments = {remote}\n"
    );
    let cluster = Cluster::of(count, "", &tables);
    let rules = "allow udp on inside\ndefault drop\n";
    std::fs::write(cluster.path("some.rules"), rules).unwrap();
    cluster
}

fn address_of_a(cluster: &Cluster) -> String {
    let text = std::fs::read_to_string(cluster.path("asterism.toml")).unwrap();
    let (_, rest) = text.split_once("[cluster.member.a]\naddress = \"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

fn store(host: &Host, field: &str) -> serde_json::Value {
    host.ask(&["status"])["store"][field].clone()
}

fn opens_flows(ends: &mut Ends) {
    for number in 0..FLOWS {
        ends.inside.send(&outbound(4_000 + number));
        assert_eq!(ends.outside.next(), outbound(4_000 + number));
    }
}

/// They are known there.
fn answers(ends: &mut Ends) {
    for number in 0..FLOWS {
        let answer = answer(&outbound(4_000 + number));
        ends.outside.send(&answer);
        assert_eq!(ends.inside.next(), answer);
    }
}

#[test]
fn the_first_host_runs_the_store_that_no_file_names() {
    let cluster = firewalls(2, "");
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    opens_flows(&mut at_b);
    answers(&mut at_a);
    wait("its memory to be shown", || {
        (store(&a, "embedded_bytes").as_u64() > Some(0)).then_some(())
    });
    assert!(store(&b, "embedded_bytes").is_null(), "it runs none");
    assert!(a.log().contains("event=store-started"), "{}", a.log());
    let (_, shown) = a.command(&["status"]);
    assert!(
        shown.contains("the embedded store of this host has"),
        "{shown}"
    );
    // The other host had nothing that is missed.
    b.signal(Signal::KILL);
    answers(&mut at_a);
}

#[test]
fn a_host_alone_keeps_its_flows_in_a_file_over_a_restart() {
    let cluster = firewalls(
        1,
        "[store.embedded]\nfolder = \"kept\"\nsync = \"always\"\n",
    );
    let mut alone = cluster.start(0);
    wait("its store", || {
        (store(&alone, "connected") == true).then_some(())
    });
    opens_flows(&mut Ends::of(&cluster, "a"));
    // Nothing is written in a hurry: what left is in the file.
    alone.signal(Signal::KILL);
    alone.ended();
    assert!(cluster.path("kept/a.append").is_file());
    let again = cluster.start(0);
    wait("its store", || {
        (store(&again, "connected") == true).then_some(())
    });
    answers(&mut Ends::of(&cluster, "a"));
}

#[test]
fn each_of_several_hosts_runs_a_shard() {
    let cluster = firewalls(2, "[store.embedded]\nmembers = [\"a\", \"b\"]\n");
    let [a, b] = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    opens_flows(&mut at_a);
    answers(&mut at_b);
    for host in [&a, &b] {
        wait("both shards", || {
            let shards = store(host, "shards");
            let shards = shards.as_array().unwrap();
            assert_eq!(shards.len(), 2, "{shards:?}");
            let are_there = shards.iter().all(|shard| shard["connected"] == true);
            are_there.then_some(())
        });
        assert!(store(host, "embedded_bytes").is_u64());
    }
}

#[test]
fn a_host_whose_address_is_taken_runs_no_store_and_says_so() {
    let cluster = firewalls(2, "");
    let address = address_of_a(&cluster);
    let _taken = TcpListener::bind(&address).unwrap();
    let mut a = cluster.begin(0, &[]);
    assert!(a.ended() > Some(0));
    let said = format!("the embedded store cannot listen at {address}");
    assert!(a.log().contains(&said), "{}", a.log());
}

/// The store lets in who has the cluster's key, and nobody else; also while the key changes, and packets come.
#[test]
fn the_keys_of_the_cluster_open_its_store() {
    let cluster = firewalls(2, "");
    let both = hosts(&cluster);
    let (mut at_a, mut at_b) = (Ends::of(&cluster, "a"), Ends::of(&cluster, "b"));
    opens_flows(&mut at_a);
    let mut stranger = TcpStream::connect(address_of_a(&cluster)).unwrap();
    for said in [
        &b"*1\r\n$8\r\nFLUSHALL\r\n"[..],
        b"*2\r\n$4\r\nAUTH\r\n$0\r\n\r\n",
    ] {
        stranger.write_all(said).unwrap();
        let mut reply = [0; 512];
        let length = stranger.read(&mut reply).unwrap();
        let reply = String::from_utf8_lossy(&reply[..length]);
        assert!(
            reply.starts_with("-NOAUTH") || reply.starts_with("-WRONGPASS"),
            "{reply}"
        );
    }
    let connects = both.each_ref().map(|host| store(host, "connects").as_u64());
    // While it began a busy host may have said so.
    let times_away = |host: &Host| host.log().matches("event=store-away").count();
    let away = both.each_ref().map(times_away);
    for (step, sends_with, accepts) in [
        (&["--new"][..], 1, &[1, 2][..]),
        (&["--use", "2"], 2, &[1, 2]),
        (&["--drop", "1"], 2, &[2]),
    ] {
        // Until all hosts have taken up the step before.
        wait("the step", || {
            (key(&cluster, "a", step).0 == End::Done).then_some(())
        });
        for host in &both {
            wait("the keys to be taken up", || {
                let channel = &host.ask(&["status"])["channel"];
                let is_so = channel["sends_with"] == sends_with
                    && channel["accepts"] == serde_json::json!(accepts);
                is_so.then_some(())
            });
        }
        answers(&mut at_a);
        answers(&mut at_b);
    }
    // All had logged in by the key that was dropped.
    for ((host, before), away) in both.iter().zip(connects).zip(away) {
        wait("its connections are made again", || {
            let is_again = store(host, "connected") == true;
            (is_again && store(host, "connects").as_u64() > before).then_some(())
        });
        assert_eq!(times_away(host), away, "{}", host.log());
    }
    answers(&mut at_a);
    answers(&mut at_b);
}
