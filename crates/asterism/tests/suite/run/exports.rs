//! Flows that go to a collector: those of all hosts, each once, and by the next host when the exporter is killed.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use crate::run::host::{Cluster, outbound, wait};

/// Bytes of a message's header, of its set of templates, of a set's header, and of a record of IPv4.
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const RECORD: usize = 50;

/// What came: packets by exporter and source port, and how many records.
#[derive(Default)]
struct Collected {
    packets: BTreeMap<(u32, u16), u64>,
    records: u64,
}

impl Collected {
    /// Takes what came by now.
    fn take(&mut self, socket: &UdpSocket) {
        let mut buffer = [0; 2_000];
        while let Ok(length) = socket.recv(&mut buffer) {
            let message = &buffer[..length];
            let short = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            let exporter = u32::from_be_bytes(message[12..16].try_into().unwrap());
            assert_eq!((short(0), usize::from(short(2))), (10, length));
            let mut at = HEADER;
            while at < length {
                let (set, end) = (short(at), at + usize::from(short(at + 2)));
                if set == 256 {
                    for record in message[at + SET_HEADER..end].chunks_exact(RECORD) {
                        let port = u16::from_be_bytes([record[8], record[9]]);
                        let packets = u64::from_be_bytes(record[26..34].try_into().unwrap());
                        *self.packets.entry((exporter, port)).or_default() += packets;
                        self.records += 1;
                    }
                }
                at = end;
            }
        }
    }
}

/// A cluster of two monitors with a collector, to which another line of its configuration may be added.
fn monitored(line: &str) -> (UdpSocket, Cluster) {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let cluster = Cluster::new(2, "");
    let path = cluster.path("asterism.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let nat = text.find("[function.nat]").unwrap();
    let address = collector.local_addr().unwrap();
    let monitor =
        format!("[function.monitor]\ninterval = \"10s\"\ncollector = \"{address}\"\n{line}\n");
    std::fs::write(&path, format!("{}{monitor}", &text[..nat])).unwrap();
    (collector, cluster)
}

#[test]
fn a_collector_of_netflow_9_is_reported_by_it() {
    let (collector, cluster) = monitored("protocol = \"netflow-v9\"");
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let (mut inside, mut outside) = (cluster.end("b", "inside"), cluster.end("b", "outside"));
    inside.send(&outbound(4_000));
    assert_eq!(outside.next(), outbound(4_000));
    let mut buffer = [0; 2_000];
    let message = wait("a message", || {
        let length = collector.recv(&mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    });
    let short = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    // Two templates and the flow; the first message, of the first host.
    assert_eq!((short(0), short(2)), (9, 3));
    assert_eq!(message[12..20], [0, 0, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn flows_of_all_hosts_are_exported_once_and_by_the_next_when_the_exporter_is_killed() {
    let (collector, cluster) = monitored("");
    let (mut a, mut b) = (cluster.begin(0, &[]), cluster.begin(1, &[]));
    a.wait_for("READY=1");
    b.wait_for("READY=1");
    let mut ends = [cluster.end("a", "inside"), cluster.end("b", "inside")];
    let mut outsides = [cluster.end("a", "outside"), cluster.end("b", "outside")];
    let mut collected = Collected::default();
    for number in 0..5 {
        ends[number % 2].send(&outbound(4_000));
        assert_eq!(outsides[number % 2].next(), outbound(4_000));
    }
    // Members count from 1, exporters from 2: which they are matters less than that it is one.
    let first = wait("the flow's packets", || {
        collected.take(&collector);
        let mut of_flow = collected
            .packets
            .iter()
            .filter(|((_, port), _)| *port == 4_000);
        let (&(exporter, _), &packets) = of_flow.next()?;
        assert!(packets <= 5 && of_flow.next().is_none());
        (packets == 5).then_some(exporter)
    });
    let exports = |host: &crate::run::host::Host| {
        let status = host.ask(&["status"]);
        let count = |name: &str| status["exports"][name].as_u64().unwrap();
        assert_eq!(count("messages_lost"), 0);
        count("records")
    };
    // What has left is counted a moment later.
    wait("all records to be counted", || {
        collected.take(&collector);
        (exports(&a) == collected.records).then_some(())
    });
    assert_eq!(exports(&b), 0);
    assert!(a.command(&["status"]).1.contains("intervals of flows"));
    // One that dies within three seconds of an export may not have finished it: then the next host tells it again.
    std::thread::park_timeout(Duration::from_secs(5));
    a.child.kill().unwrap();
    a.ended();
    for _ in 0..3 {
        ends[1].send(&outbound(4_001));
        assert_eq!(outsides[1].next(), outbound(4_001));
    }
    let second = wait("the flow after the death", || {
        collected.take(&collector);
        let of_flow = collected
            .packets
            .iter()
            .find(|((_, port), _)| *port == 4_001);
        let (&(exporter, _), &packets) = of_flow?;
        (packets == 3).then_some(exporter)
    });
    assert_ne!(first, second);
    assert_eq!(collected.packets[&(first, 4_000)], 5);
    assert!(
        !collected.packets.contains_key(&(second, 4_000)),
        "it is not reported again"
    );
}
