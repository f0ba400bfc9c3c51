//! What the monitor exports, as the real collector `nfcapd` takes it and `nfdump` shows it.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asterism_functions::monitor::{Exporter, Flow, FlowRecord, MonitorConfig, Span};

use crate::capture::{Counts, captures, has, read, run};

/// A running collector.
pub(crate) struct Collector {
    child: Child,
    folder: std::path::PathBuf,
    pub(crate) socket: UdpSocket,
}

impl Collector {
    /// Starts it; `None` where it is not installed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        if !has("nfcapd", test) || !has("nfdump", test) {
            return None;
        }
        let folder = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let free = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
        let port = free.local_addr().expect("it has an address").port();
        drop(free);
        let child = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-t", "3600", "-B", "4000000", "-p"])
            .arg(port.to_string())
            .arg("-w")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfcapd runs");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
        // Unbound: sends fail, and are tried again, until the collector listens.
        socket
            .connect(("127.0.0.1", port))
            .expect("an address of this machine");
        let collector = Self {
            child,
            folder,
            socket,
        };
        for _ in 0..200 {
            // What no collector understands is left out by it. A port that nobody listens on refuses the datagram before.
            let _ = collector.socket.send(&[0]);
            std::thread::park_timeout(Duration::from_millis(20));
            if collector.socket.send(&[0]).is_ok() {
                return Some(collector);
            }
        }
        panic!("nfcapd does not listen");
    }

    /// Ends it; the flows that it has.
    pub(crate) fn flows(mut self) -> Vec<FlowRecord> {
        std::thread::park_timeout(Duration::from_millis(300));
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .arg(&id)
                .status()
                .expect("kill runs")
                .success()
        );
        self.child.wait().expect("nfcapd ends");
        let format = "fmt:%pr,%sa,%da,%sp,%dp,%pkt,%byt";
        let output = Command::new("nfdump")
            .arg("-R")
            .arg(&self.folder)
            .args(["-q", "-N", "-6", "-o", format])
            .output()
            .expect("nfdump runs");
        std::fs::remove_dir_all(&self.folder).expect("the folder goes");
        let text = String::from_utf8(output.stdout).expect("nfdump writes text");
        text.lines().filter_map(record).collect()
    }
}

fn record(line: &str) -> Option<FlowRecord> {
    let field: Vec<&str> = line.split(',').map(str::trim).collect();
    if field.len() != 7 {
        return None;
    }
    let address = |at: usize| field[at].parse::<core::net::IpAddr>().expect(line);
    let number = |at: usize| field[at].parse::<u64>().expect(line);
    Some(FlowRecord {
        flow: Flow {
            source: address(1).into(),
            destination: address(2).into(),
            source_port: number(3) as u16,
            // Of ICMP it is shown as type and code.
            destination_port: field[4].parse().unwrap_or(0),
            protocol: match field[0] {
                "TCP" => 6,
                "UDP" => 17,
                "ICMP" => 1,
                "ICMP6" => 58,
                "IGMP" => 2,
                other => other.parse().expect(line),
            },
        },
        packets: number(5),
        bytes: number(6),
    })
}

#[test]
fn a_real_collector_has_every_flow_with_its_packets_and_bytes() {
    let test = "a_real_collector_has_every_flow_with_its_packets_and_bytes";
    for path in captures(test) {
        let Some(collector) = Collector::start(test) else {
            return;
        };
        let (counts, _) = run(MonitorConfig::default(), &read(&path));
        let span = Span {
            start_s: 1_700_000_040,
            length_s: 60,
        };
        let mut exporter = Exporter::new(1);
        let send = |message: &[u8]| {
            collector
                .socket
                .send(message)
                .expect("the collector listens");
            // A burst that the receiver's buffer does not hold is lost, as with every exporter over UDP.
            std::thread::park_timeout(Duration::from_micros(200));
        };
        for (flow, (packets, bytes)) in &counts {
            let record = FlowRecord {
                flow: *flow,
                packets: *packets,
                bytes: *bytes,
            };
            exporter.add(&record, span, 1_700_000_110, send);
        }
        exporter.finish(1_700_000_110, send);
        let mut collected = Counts::new();
        for record in collector.flows() {
            let count = collected.entry(record.flow).or_default();
            *count = (count.0 + record.packets, count.1 + record.bytes);
        }
        assert_eq!(collected, counts, "{}", path.display());
    }
}
