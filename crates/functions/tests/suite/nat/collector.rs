//! What a NAT logs as IPFIX and as NetFlow version 9, as the real collector `nfcapd` takes it and `nfdump` shows it.

use core::net::Ipv4Addr;

use asterism_function::{Endpoint, Protocol};
use asterism_functions::ipfix::Export;
use asterism_functions::nat::{NatEvent, NatEventKind, export::EventExporter};

use crate::nat::network::{tcp, udp};
use crate::nfcapd::Collector;

/// Of each record that a collector has these fields, one line each.
fn records(collector: Collector, fields: &[&str]) -> Vec<String> {
    let text = collector.shown(&["-o", "json"]);
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
    collected(
        "a_real_collector_has_every_block_and_binding",
        Export::Ipfix,
    );
}

#[test]
fn a_collector_of_netflow_9_has_every_block_and_binding() {
    collected(
        "a_collector_of_netflow_9_has_every_block_and_binding",
        Export::NetFlow9,
    );
}

fn collected(test: &str, export: Export) {
    let Some(collector) = Collector::start(test) else {
        return;
    };
    let mut exporter = EventExporter::new(1).by(export);
    let send = |message: &[u8]| collector.send(message);
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
        exporter.add(&event, 1_700_001_000, send);
    }
    exporter.finish(1_700_001_000, send);
    let fields = [
        "nat_event_id",
        "nat_event",
        "src4_addr",
        "src4_xlt_ip",
        "src_xlt_port",
    ];
    assert_eq!(sorted(records(collector, &fields)), sorted(expected));

    let collector = Collector::start(test).expect("it was there before");
    let send = |message: &[u8]| collector.send(message);
    let mut exporter = EventExporter::new(1).by(export);
    let mut expected = Vec::new();
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
            exporter.add(&event, 1_700_001_000, send);
        }
    }
    exporter.finish(1_700_001_000, send);
    let fields = [
        "nat_event_id",
        "proto",
        "src4_addr",
        "src_port",
        "src4_xlt_ip",
        "src_xlt_port",
    ];
    assert_eq!(sorted(records(collector, &fields)), sorted(expected));
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}
