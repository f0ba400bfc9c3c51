//! Who had which block of ports: in a file, at a collector, and in `status`; reported by one host of the cluster.

use std::net::UdpSocket;

use serde_json::Value;

use crate::run::host::{Cluster, Host, outbound, own_loopback_socket, wait};
use crate::validator::validate;

/// Bytes of a message's header, of a set's header, and of an event of a block.
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const RECORD: usize = 27;

/// The lines of the log.
fn lines(cluster: &Cluster) -> Vec<Value> {
    let text = std::fs::read_to_string(cluster.path("nat.log")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.inspect(validate).collect()
}

/// Events of blocks that came to the collector: what, and the first and last port.
fn collected(socket: &UdpSocket, events: &mut Vec<(u8, u16, u16)>) {
    let mut buffer = [0; 2_000];
    while let Ok(length) = socket.recv(&mut buffer) {
        let message = &buffer[..length];
        let short = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let mut at = HEADER;
        while at < length {
            let (set, end) = (short(at), at + usize::from(short(at + 2)));
            if set == 258 {
                for record in message[at + SET_HEADER..end].chunks_exact(RECORD) {
                    let port = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
                    events.push((record[8], port(19), port(21)));
                }
            }
            at = end;
        }
    }
}

fn counted(host: &Host, name: &str) -> u64 {
    host.ask(&["status"])["nat_ports"][name].as_u64().unwrap()
}

#[test]
fn a_block_is_logged_once_from_its_begin_to_its_end() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let address = collector.local_addr().unwrap();
    let cluster = Cluster::new(2, "");
    cluster.edit(
        "outside = [\"203.0.113.1\"]\n",
        &format!(
            "outside = [\"203.0.113.1\"]\nshort_idle = true\nidle = {{ udp = \"8s\" }}\nport_quarantine = {{ time = \"2s\" }}\n\
             blocks = {{ ports = 256, most = 2 }}\nsubscribers = {{ ports = 4 }}\n\
             log = {{ file = \"nat.log\", collector = \"{address}\" }}\n"
        ),
    );
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let mut insides = [cluster.end("a", "inside"), cluster.end("b", "inside")];
    let mut outsides = [cluster.end("a", "outside"), cluster.end("b", "outside")];
    let mut ports = Vec::new();
    for number in 0..4 {
        let host = number % 2;
        insides[host].send(&outbound(4_000 + number as u16));
        ports.push(outsides[host].next().source_port);
        wait("both to know of it", || {
            let known = [&a, &b].map(|host| host.live("sessions"));
            (known == [number as u64 + 1; 2]).then_some(())
        });
    }
    // A fifth port is refused by either host.
    for host in [0, 1] {
        insides[host].send(&outbound(5_000));
    }
    for host in [&a, &b] {
        wait("the drop to be counted", || {
            let status = host.ask(&["status"]);
            let dropped = &status["instances"][0]["dropped"]["subscriber-quota"];
            (dropped.as_u64() == Some(1)).then_some(())
        });
    }
    let (first, last) = wait("the block", || {
        let lines = lines(&cluster);
        let line = lines.first()?;
        assert_eq!(line["event"], "block-allocated");
        assert_eq!(
            (&line["inside"], lines.len()),
            (&Value::from("10.0.0.2"), 1)
        );
        let port = |name: &str| line[name].as_u64().unwrap() as u16;
        Some((port("first_port"), port("last_port")))
    });
    assert_eq!(last - first, 255);
    assert!(
        ports.iter().all(|port| (first..=last).contains(port)),
        "{ports:?}"
    );
    for host in [&a, &b] {
        wait("the block in status", || {
            (counted(host, "blocks_used") == 1 && counted(host, "subscribers") == 1).then_some(())
        });
        assert!(host.command(&["status"]).1.contains("1 blocks used"));
    }
    wait("the end of the block", || {
        let freed = lines(&cluster).into_iter().nth(1)?;
        assert_eq!(freed["event"], "block-freed");
        assert_eq!(freed["first_port"].as_u64(), Some(first.into()));
        assert!(freed["since"].as_u64() <= freed["at"].as_u64());
        Some(())
    });
    let mut events = Vec::new();
    wait("both events at the collector", || {
        collected(&collector, &mut events);
        (events.len() >= 2).then_some(())
    });
    assert_eq!(events, [(16, first, last), (17, first, last)]);
    for host in [&a, &b] {
        wait("the end in status", || {
            (counted(host, "subscribers") == 0).then_some(())
        });
    }
    // The lines are there a moment before their count is.
    let logged = wait("both events to be counted", || {
        let logged = counted(&a, "events") + counted(&b, "events");
        (logged >= 2).then_some(logged)
    });
    assert_eq!(logged, 2, "reported by one host");
    assert_eq!(lines(&cluster).len(), 2);
}

/// Sessions that are opened right before a host is asked to stop.
const LAST: u16 = 600;

/// A host alone that logs its bindings, and that has no time to drain: `log` is the setting of its log.
fn hurried(log: &str) -> (Cluster, Host) {
    let cluster = Cluster::new(1, "");
    let log = format!("outside = [\"203.0.113.1\"]\nlog = {{ {log} }}\n");
    cluster.edit("outside = [\"203.0.113.1\"]\n", &log);
    cluster.edit("join_wait", "drain_max = \"10ms\"\njoin_wait");
    let host = cluster.start(0);
    (cluster, host)
}

/// Opens sessions, each of which has left before this returns: the outside ports, in order.
fn opened(cluster: &Cluster) -> Vec<u16> {
    let (mut inside, mut outside) = (cluster.end("a", "inside"), cluster.end("a", "outside"));
    let mut ports = Vec::new();
    for number in 0..LAST {
        inside.send(&outbound(4_000 + number));
        if number % 16 == 15 {
            wait("the sessions", || {
                ports.extend(outside.take().iter().map(|flow| flow.source_port));
                (ports.len() > usize::from(number)).then_some(())
            });
        }
    }
    wait("the last sessions", || {
        ports.extend(outside.take().iter().map(|flow| flow.source_port));
        (ports.len() == usize::from(LAST)).then_some(())
    });
    ports.sort_unstable();
    ports
}

#[test]
fn what_was_noted_right_before_a_stop_is_in_the_log() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let address = collector.local_addr().unwrap();
    let (cluster, mut a) = hurried(&format!("file = \"nat.log\", collector = \"{address}\""));
    let ports = opened(&cluster);
    a.stop();
    let made = lines(&cluster).into_iter().map(|line| {
        assert_eq!(line["event"], "binding-made");
        line["first_port"].as_u64().unwrap() as u16
    });
    let mut made: Vec<u16> = made.collect();
    made.sort_unstable();
    assert_eq!(made, ports);
    assert!(!a.log().contains("port-log-lost"), "{}", a.log());
    // Each message has up to 1,400 bytes, and all of them wait here by now.
    let (mut buffer, mut records) = ([0; 2_000], 0);
    while let Ok(length) = collector.recv(&mut buffer) {
        records += bindings(&buffer[..length]);
    }
    assert_eq!(records, ports.len());
}

/// Events of bindings in a message.
fn bindings(message: &[u8]) -> usize {
    const BINDING: usize = 22;
    let short = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    let (mut at, mut count) = (HEADER, 0);
    while at < message.len() {
        if short(at) == 259 {
            count += (short(at + 2) - SET_HEADER) / BINDING;
        }
        at += short(at + 2);
    }
    count
}

#[test]
fn a_log_that_takes_nothing_holds_no_stop_up_and_is_reported() {
    // Nobody listens there.
    let address = own_loopback_socket();
    let (cluster, mut a) = hurried(&format!("collector = \"{address}\""));
    opened(&cluster);
    a.stop();
    let said = format!("collector {address}: ");
    assert!(
        a.log().contains("port-log-lost") && a.log().contains(&said),
        "{}",
        a.log()
    );
    // A pipe whose reader does not read.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("nat.pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut options = std::fs::OpenOptions::new();
    let reader = options.read(true).write(true).open(&pipe).unwrap();
    let (cluster, mut a) = hurried(&format!("file = \"{}\"", pipe.display()));
    opened(&cluster);
    a.stop();
    drop(reader);
    assert!(
        a.log().contains("port-log-lost") && a.log().contains("lines lost"),
        "{}",
        a.log()
    );
}
