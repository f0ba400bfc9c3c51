//! What a NAT logs as IPFIX, as the real collector `nfcapd` takes it and `nfdump` shows it.

use core::net::Ipv4Addr;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use asterism_function::{Endpoint, Protocol};
use asterism_functions::nat::{NatEvent, NatEventKind, export::EventExporter};

use crate::network::{tcp, udp};

fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        eprintln!("SKIPPED ({program} is not installed)");
    }
    found
}

/// Sends messages to a collector, ends it, and shows these fields of what it has.
fn collected(messages: &[Vec<u8>], fields: &[&str]) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("asterism-nat-events-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let free = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
    let port = free.local_addr().expect("it has an address").port();
    drop(free);
    let mut collector = Command::new("nfcapd")
        .args(["-b", "127.0.0.1", "-t", "3600", "-B", "4000000", "-p"])
        .arg(port.to_string())
        .arg("-w")
        .arg(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nfcapd runs");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
    socket
        .connect(("127.0.0.1", port))
        .expect("an address of this machine");
    // A port that nobody listens on refuses; what no collector understands is left out by it.
    let listens = (0..500).any(|_| {
        let _ = socket.send(&[0]);
        std::thread::park_timeout(Duration::from_millis(20));
        socket.send(&[0]).is_ok()
    });
    assert!(listens, "nfcapd does not listen");
    for message in messages {
        socket.send(message).expect("the collector listens");
        std::thread::park_timeout(Duration::from_micros(200));
    }
    std::thread::park_timeout(Duration::from_millis(500));
    let id = collector.id().to_string();
    let killed = Command::new("kill").arg(&id).status().expect("kill runs");
    assert!(killed.success());
    collector.wait().expect("nfcapd ends");
    let output = Command::new("nfdump")
        .arg("-R")
        .arg(&folder)
        .args(["-q", "-6", "-o", "json"])
        .output()
        .expect("nfdump runs");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let text = String::from_utf8(output.stdout).expect("nfdump writes text");
    records(&text, fields)
}

/// Of each record of nfdump's JSON these fields, one line each.
fn records(text: &str, fields: &[&str]) -> Vec<String> {
    let records = text.split('{').skip(1).map(|record| {
        let value = |name: &&str| {
            let line = record.lines().find(|line| {
                let line = line.trim_start();
                line.starts_with(&format!("\"{name}\""))
            });
            let (_, value) = line.unwrap_or_default().split_once(':').unwrap_or_default();
            value.trim_matches([' ', ',', '"']).to_owned()
        };
        fields.iter().map(value).collect::<Vec<_>>().join(",")
    });
    records.collect()
}

fn block(number: u16, kind: NatEventKind) -> NatEvent {
    let first = 1_024 + number % 100 * 512;
    NatEvent {
        kind,
        at: 1_700_000_000 + u32::from(number),
        since: 1_700_000_000,
        inside: Endpoint::new(
            Ipv4Addr::from_bits(0x0A00_0000 + u32::from(number)),
            0,
            Protocol(0),
        ),
        outside: Ipv4Addr::new(203, 0, 113, 1 + (number / 100) as u8),
        ports: (first, first + 511),
    }
}

#[test]
fn a_real_collector_has_every_block_and_binding() {
    if !has("nfcapd") || !has("nfdump") {
        return;
    }
    let mut exporter = EventExporter::new(1);
    let mut messages = Vec::new();
    let mut expected = Vec::new();
    for number in 0..500 {
        let kind = if number % 3 == 0 {
            NatEventKind::BlockFreed
        } else {
            NatEventKind::BlockAllocated
        };
        let event = block(number, kind);
        let word = if number % 3 == 0 {
            "17,Port block de-allocation"
        } else {
            "16,Port block allocation"
        };
        // Of the ports the first alone: it reads no ranges from IPFIX.
        expected.push(format!(
            "{word},{},{},{}",
            event.inside.address, event.outside, event.ports.0
        ));
        exporter.add(&event, 1_700_001_000, |message| {
            messages.push(message.to_vec())
        });
    }
    exporter.finish(1_700_001_000, |message| messages.push(message.to_vec()));
    let fields = [
        "nat_event_id",
        "nat_event",
        "src4_addr",
        "src4_xlt_ip",
        "src_xlt_port",
    ];
    assert_eq!(sorted(collected(&messages, &fields)), sorted(expected));

    let mut exporter = EventExporter::new(1);
    let (mut messages, mut expected) = (Vec::new(), Vec::new());
    for (number, inside) in [tcp([10, 0, 0, 5], 4_000), udp([10, 0, 0, 6], 5_000)]
        .into_iter()
        .enumerate()
    {
        for (kind, word) in [
            (NatEventKind::BindingMade, 8),
            (NatEventKind::BindingEnded, 9),
        ] {
            let event = NatEvent {
                kind,
                at: 1_700_000_000,
                since: 0,
                inside,
                outside: Ipv4Addr::new(203, 0, 113, 1),
                ports: (7_000 + number as u16, 7_000 + number as u16),
            };
            let protocol = inside.protocol.0;
            expected.push(format!(
                "{word},{protocol},{},{},{},{}",
                inside.address, inside.port, event.outside, event.ports.0
            ));
            exporter.add(&event, 1_700_001_000, |message| {
                messages.push(message.to_vec())
            });
        }
    }
    exporter.finish(1_700_001_000, |message| messages.push(message.to_vec()));
    let fields = [
        "nat_event_id",
        "proto",
        "src4_addr",
        "src_port",
        "src4_xlt_ip",
        "src_xlt_port",
    ];
    assert_eq!(sorted(collected(&messages, &fields)), sorted(expected));
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}
