//! `asterism run` as operators run it: real processes, real sockets, signals, files. See `host.rs`.

mod audit;
mod backends;
mod blocked;
mod caches;
mod differing;
mod embedded;
mod epochs;
mod eve;
mod exports;
mod flows;
mod full_store;
mod handed;
pub(crate) mod host;
mod keys;
mod launched;
mod limits;
mod manual;
mod metrics;
mod peers;
mod placements;
mod ports;
mod recipe;
mod reload;
mod rules;
mod seeds;
mod shapes;
mod sharded;
mod sites;
mod span;
mod starts;
mod stored_commands;
mod stored_counts;
pub(crate) mod stores;
mod traffic;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use asterism_output::End;
use host::{Cluster, OUTSIDE, answer, outbound, wait};
use rustix::process::Signal;

#[test]
fn packets_of_one_flow_go_through_two_hosts() {
    let cluster = Cluster::new(2, "");
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let mut inside = cluster.end("a", "inside");
    let mut outside = cluster.end("a", "outside");
    inside.send(&outbound(4_000));
    let left = outside.next();
    assert_eq!(left.source, OUTSIDE);
    // The answer comes by the other host, which knows the session by now.
    wait("the session at b", || {
        (b.live("sessions") == 1).then_some(())
    });
    let (mut b_inside, mut b_outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    b_outside.send(&answer(&left));
    let came = b_inside.next();
    assert_eq!(came, answer(&outbound(4_000)));
    let digests = |host: &host::Host| {
        let status = host.ask(&["status", "--digests"]);
        status["instances"][0]["objects"][0]["digest"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    wait("equal states", || {
        (digests(&a) == digests(&b)).then_some(())
    });
    let found = b.ask(&["state", "get", "10.0.0.2:4000"]);
    assert_eq!(found["entries"].as_array().unwrap().len(), 1);
    assert_eq!(found["entries"][0]["member"], 1);
    assert_eq!(found["entries"][0]["value"], "udp");
    assert_eq!(
        b.command(&["state", "get", "10.9.9.9:1"]).0,
        End::DoesNotHold
    );
    assert!(
        b.command(&["state", "get", "x", "--object", "session"])
            .1
            .contains("objects are sessions")
    );
    // Not `congested`, as a path looks whose first round trips were late because hosts began then.
    wait("a path that is as it should be", || {
        let said = a.command(&["status"]).1;
        said.contains("b            joined").then_some(())
    });
    let status = a.ask(&["status"]);
    assert_eq!(status["peers"][0]["name"], "b");
    assert_eq!(status["peers"][0]["admitted"], true);
    assert!(a.command(&["top", "--once"]).1.contains("inside"));
    assert_eq!(a.ask(&["top", "--once"])["ports"][0]["name"], "inside");
    assert_eq!(a.ask(&["reload"])["done"], "nothing");
    a.stop();
    b.stop();
    assert!(a.log().contains("event=stopped") && !a.socket.exists());
}

#[test]
fn a_stopped_cluster_goes_on_where_it_was() {
    let cluster = Cluster::new(1, "");
    let mut a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let mut ports = HashSet::new();
    let mut left = Vec::new();
    for port in 4_000..4_100 {
        inside.send(&outbound(port));
        let flow = outside.next();
        assert!(ports.insert(flow.source_port));
        left.push(flow);
    }
    a.stop();
    assert!(a.log().contains("event=state-saved"), "{}", a.log());
    assert!(cluster.path("a.state").exists());
    let mut a = cluster.start(0);
    assert!(
        a.log().contains("event=state-restored") && a.log().contains("entries=100"),
        "{}",
        a.log()
    );
    assert!(!cluster.path("a.state").exists() && cluster.path("a.state.used").exists());
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    for flow in left.iter().take(10) {
        outside.send(&answer(flow));
        assert_eq!(
            inside.next().destination_port,
            flow.source_port,
            "kept ports are kept"
        );
    }
    // No port of a restored session is granted to another one.
    for port in 5_000..5_100 {
        inside.send(&outbound(port));
        assert!(
            ports.insert(outside.next().source_port),
            "a port was granted twice"
        );
    }
    a.stop();
}

#[test]
fn a_host_that_never_rests_tells_of_a_port_that_fails() {
    let cluster = Cluster::new(1, "");
    cluster.edit("join_wait", "idle = \"spin\"\njoin_wait");
    let mut a = cluster.start(0);
    drop(cluster.end("a", "outside"));
    let mut inside = cluster.end("a", "inside");
    wait("the failure", || {
        inside.send(&outbound(4_000));
        a.log().contains("event=port-failed").then_some(())
    });
    a.stop();
}

#[test]
fn a_start_that_fails_leaves_the_saved_state_to_the_next_one() {
    let cluster = Cluster::new(1, "");
    let mut a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    for port in 4_000..4_010 {
        inside.send(&outbound(port));
        outside.next();
    }
    a.stop();
    cluster.edit(
        "join_wait",
        "eve = { file = \"absent/eve.json\" }\njoin_wait",
    );
    let mut refused = cluster.begin(0, &[]);
    assert_eq!(refused.ended(), Some(1));
    assert!(
        refused.log().contains("absent/eve.json"),
        "{}",
        refused.log()
    );
    cluster.edit("absent/eve.json", "eve.json");
    let mut a = cluster.start(0);
    assert!(
        a.log().contains("event=state-restored") && a.log().contains("entries=10"),
        "{}",
        a.log()
    );
    a.stop();
}

#[test]
fn a_host_that_does_not_run_yet_is_not_drained_and_saves_nothing() {
    let cluster = Cluster::new(2, "");
    cluster.edit("join_wait = \"2s\"", "join_wait = \"20s\"");
    std::fs::write(cluster.path("a.state"), "what was saved before").unwrap();
    let mut a = cluster.begin(0, &[]);
    wait("its socket", || {
        let (_, said) = a.command(&["drain"]);
        said.contains("does not read packets yet").then_some(())
    });
    a.stop();
    let saved = std::fs::read_to_string(cluster.path("a.state")).unwrap();
    assert_eq!(saved, "what was saved before");
}

#[test]
fn files_that_cannot_be_used_are_refused_and_may_be_required() {
    let cluster = Cluster::new(1, "");
    let mut without = cluster.begin(0, &["--require-state"]);
    assert_eq!(without.ended(), Some(1));
    assert!(
        without.log().contains("there is no file"),
        "{}",
        without.log()
    );
    let mut a = cluster.start(0);
    a.stop();
    let saved = std::fs::read(cluster.path("a.state")).unwrap();
    std::fs::write(cluster.path("a.state"), &saved[..saved.len() - 1]).unwrap();
    let mut torn = cluster.begin(0, &["--require-state"]);
    assert_eq!(torn.ended(), Some(1));
    assert!(torn.log().contains("cut off"), "{}", torn.log());
    let mut empty = cluster.start(0);
    assert!(empty.log().contains("starts empty"), "{}", empty.log());
    empty.stop();
}

#[test]
fn a_restored_state_reaches_all_hosts_and_none_grants_its_ports() {
    let cluster = Cluster::new(2, "");
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let mut ports = HashSet::new();
    for (host, first) in [("a", 4_000), ("b", 4_100)] {
        let (mut inside, mut outside) = (cluster.end(host, "inside"), cluster.end(host, "outside"));
        for port in first..first + 100 {
            inside.send(&outbound(port));
            assert!(ports.insert(outside.next().source_port));
        }
    }
    wait("the sessions at a", || {
        (a.live("sessions") == 200).then_some(())
    });
    a.stop();
    b.stop();
    // Only one of the two restores: the other takes over what that one has.
    std::fs::remove_file(cluster.path("a.state")).unwrap();
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    assert!(b.log().contains("entries=200"), "{}", b.log());
    wait("the sessions at a", || {
        (a.live("sessions") == 200).then_some(())
    });
    for (host, first) in [("a", 5_000), ("b", 5_100)] {
        let (mut inside, mut outside) = (cluster.end(host, "inside"), cluster.end(host, "outside"));
        for port in first..first + 100 {
            inside.send(&outbound(port));
            assert!(
                ports.insert(outside.next().source_port),
                "a port was granted twice"
            );
        }
    }
}

#[test]
fn a_killed_host_leaves_nothing_in_the_way() {
    let cluster = Cluster::new(2, "");
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    for port in 4_000..4_010 {
        inside.send(&outbound(port));
        outside.next();
    }
    wait("the sessions at b", || {
        (b.live("sessions") == 10).then_some(())
    });
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    assert!(cluster.path("a.sock").exists(), "it could clean nothing up");
    // Of this release: members let no other incarnation of a host in. It says so, and takes no packets.
    let mut again = cluster.begin(0, &[]);
    assert_eq!(again.ended(), Some(1), "{}", again.log());
    assert!(
        again.log().contains("earlier incarnation"),
        "{}",
        again.log()
    );
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    inside.send(&outbound(4_000));
    outside.next();
    wait("the session at b", || {
        (b.live("sessions") == 1).then_some(())
    });
}

#[test]
fn a_second_process_of_a_member_is_refused() {
    let cluster = Cluster::new(1, "");
    let a = cluster.start(0);
    let mut second = cluster.begin(0, &[]);
    assert_eq!(second.ended(), Some(4));
    let log = second.log();
    assert!(
        log.contains(&format!("pid {}", a.child.id())) && log.contains("stop that process first"),
        "{log}"
    );
    assert_eq!(a.ask(&["status"])["phase"], "running");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    // With a member that never comes and a long wait for it, there is something to interrupt.
    let cluster = Cluster::new(
        1,
        "[function.nat.state]\nsessions = { absent = \"wait 900ms\" }\n",
    );
    let a = cluster.start(0);
    let mut a = a;
    a.signal(Signal::INT);
    a.signal(Signal::INT);
    assert!(matches!(a.ended(), Some(0 | 1)));
}

#[test]
fn reload_changes_what_can_change_or_nothing() {
    let cluster = Cluster::new(1, "");
    let mut a = cluster.start(0);
    assert!(a.command(&["reload"]).1.contains("nothing"));
    cluster.edit(
        "join_wait = \"2s\"",
        "join_wait = \"2s\"\nidle = \"spin\"\ndrain_max = \"1s\"",
    );
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::Done && text.contains("[host] idle, [host] drain_max"),
        "{text}"
    );
    cluster.edit("idle = \"spin\"", "idle = \"sleep\"\ninstances = 2");
    cluster.edit("kind = \"shared_memory\"", "kind = \"tap\"");
    let (end, text) = a.command(&["reload"]);
    assert!(end == End::File && text.contains("mistake"), "{text}");
    cluster.edit("kind = \"tap\"", "kind = \"shared_memory\"");
    cluster.edit("\ninstances = 2", "");
    cluster.edit("203.0.113.1", "203.0.113.2");
    let (end, text) = a.command(&["reload"]);
    assert!(
        end == End::File && text.contains("[function.nat] outside cannot change"),
        "{text}"
    );
    a.signal(Signal::HUP);
    wait("the log", || {
        a.log().contains("event=reload-refused").then_some(())
    });
    a.wait_for("RELOADING=1");
    // By the command as by the signal.
    let (end, text) = a.command(&["stop"]);
    assert!(end == End::Done && text.contains("has stopped"), "{text}");
    assert_eq!(a.ended(), Some(0));
    a.wait_for("STOPPING=1");
    assert!(a.command(&["status"]).1.contains("no host runs"));
}

#[test]
fn packets_are_traced_and_a_drained_host_takes_none() {
    let cluster = Cluster::new(1, "");
    let a = cluster.start(0);
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let (mut sent, mut left) = (0, 0);
    std::thread::scope(|scope| {
        let tracing = scope.spawn(|| a.ask(&["trace", "-n", "2"]));
        wait("the trace", || {
            if tracing.is_finished() {
                return Some(());
            }
            inside.send(&outbound(4_000));
            sent += 1;
            left += outside.take().len();
            None
        });
        let trace = tracing.join().unwrap();
        let packets = trace["packets"].as_array().unwrap();
        assert_eq!(packets.len(), 2);
        let packet = &packets[1];
        assert_eq!(packet["port"], "inside");
        assert_eq!(packet["end"], "forwarded by outside");
        assert!(
            packet["left_as"]
                .as_str()
                .unwrap()
                .starts_with("203.0.113.1:")
        );
        assert_eq!(packet["steps"][0], "ask sessions by key 0: found");
        assert!(packet["cost_ns"].as_u64().unwrap() > 0);
    });
    assert!(a.command(&["trace", "-n", "1001"]).1.contains("1000"));
    // None of them is on its way when the host is drained.
    wait("all packets to leave", || {
        left += outside.take().len();
        (left == sent).then_some(())
    });
    assert!(a.command(&["drain"]).1.contains("no packets"));
    inside.send(&outbound(4_001));
    std::thread::park_timeout(std::time::Duration::from_millis(100));
    assert_eq!(a.ask(&["status"])["phase"], "draining");
    assert!(outside.take().is_empty());
}

#[test]
fn whatever_comes_over_the_control_socket_is_answered_or_closed() {
    let cluster = Cluster::new(1, "");
    let a = cluster.start(0);
    let say = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&a.socket).unwrap();
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    };
    for bad in [
        &b"\n"[..],
        b"{}\n",
        b"status\n",
        b"{\"do\":\"status\",\"more\":1}\n",
        b"{\"do\":\"remove\"}\n",
        b"{\"do\":\"trace\",\"packets\":-1,\"within_ms\":1}\n",
        b"{\"do\":\"trace\",\"packets\":0,\"within_ms\":1}\n",
        b"{\"do\":\"trace\",\"packets\":1,\"within_ms\":99999999}\n",
        b"{\"do\":\"trace\",\"packets\":1,\"instance\":9,\"within_ms\":1}\n",
        b"{\"do\":\"state-get\",\"key\":\"x\",\"object\":\"y\"}\n",
        b"\xFF\xFE\n",
        b"{\"do\":\"status\"}",
        &[b'['; 4_000],
        &[b'x'; 100_000],
    ] {
        let said = say(bad);
        assert!(
            said.contains("\"error\":"),
            "{:?}: {said}",
            String::from_utf8_lossy(&bad[..bad.len().min(60)])
        );
    }
    assert_eq!(say(b""), "");
    let two = say(b"{\"do\":\"status\"}\n{\"do\":\"status\"}\n");
    assert_eq!(
        two.lines()
            .filter(|line| line.contains("\"phase\":\"running\""))
            .count(),
        2
    );
    // More connections than are answered at a time, all silent: the one that has been silent longest makes room for the next.
    let silent: Vec<_> = (0..20)
        .map(|_| UnixStream::connect(&a.socket).unwrap())
        .collect();
    for _ in 0..20 {
        assert!(say(b"{\"do\":\"status\"}\n").contains("running"));
    }
    drop(silent);
    assert_eq!(a.ask(&["status"])["phase"], "running");
}
