//! Packets that lie, floods, and clients that are not scanners.

use asterism_function::objects::hash;
use asterism_function::testkit::{Testkit, late_everywhere, measured};
use asterism_function::{PortNumber, TcpFlags, Verdict};
use asterism_functions::port_scan::{Class, PortScan, PortScanConfig, Shape};

use crate::port_scan::capture::{detect, names, read, run, traces};
use crate::port_scan::packets::{host, ping, syn, syn6, tcp, udp};

const ACK: TcpFlags = TcpFlags::ACK;
const SYN_ACK: TcpFlags = TcpFlags(0x12);

/// A connection that carries something.
fn connection(client: (u16, u16), server: (u16, u16)) -> Vec<(u32, Vec<u8>)> {
    [
        tcp(client, server, TcpFlags::SYN, b""),
        tcp(server, client, SYN_ACK, b""),
        tcp(client, server, ACK, b"question"),
        tcp(server, client, ACK, b"answer"),
        tcp(client, server, TcpFlags::RST, b""),
    ]
    .into_iter()
    .map(|frame| (0, frame))
    .collect()
}

#[test]
fn a_busy_client_a_monitor_and_a_peer_are_no_scanners() {
    let mut steps = Vec::new();
    for number in 0..200 {
        // A client of two hundred servers that resets each connection when it has its answer.
        steps.extend(connection((1, 40_000 + number), (1_000 + number, 443)));
        // A resolver that asks two hundred name servers, and is answered.
        steps.push((0, udp((2, 30_000 + number), (2_000 + number, 53), b"?")));
        steps.push((0, udp((2_000 + number, 53), (2, 30_000 + number), b"!")));
        // A server that answers each request from another port.
        steps.push((0, udp((300, 49_000 + number), (3, 69), b"?")));
        steps.push((0, udp((3, 20_000 + number), (300, 49_000 + number), b"!")));
    }
    // A burst of connections, all of them yet unanswered.
    steps.extend((0..15).map(|number| (0, syn(4, (4_000 + number, 443)))));
    // One server that is down, tried for ever.
    steps.extend(
        (0..300).map(|number| (1, tcp((5, 40_000 + number), (6, 443), TcpFlags::SYN, b""))),
    );
    let (alerts, _) = run(detect(), &steps);
    assert_eq!(names(&alerts), [""; 0]);
}

#[test]
fn a_sweep_of_hosts_that_all_accept_is_found_by_what_it_leaves_out() {
    let mut steps = Vec::new();
    for number in 0..12 {
        let (scanner, target) = ((1, 50_000), (100 + number, 22));
        steps.push((0, tcp(scanner, target, TcpFlags::SYN, b"")));
        steps.push((0, tcp(target, scanner, SYN_ACK, b"")));
        steps.push((0, tcp(scanner, target, TcpFlags::RST, b"")));
    }
    let (alerts, _) = run(detect(), &steps);
    assert_eq!(names(&alerts), ["TCP host sweep of 10.0.0.1 (syn)"]);
}

#[test]
fn slower_than_the_window_is_not_found_and_a_wider_window_finds_it() {
    let steps: Vec<_> = (0..40).map(|port| (30, syn(1, (2, port)))).collect();
    assert_eq!(run(detect(), &steps).0, []);
    let (alerts, _) = run(
        PortScanConfig {
            window_s: 300,
            ..detect()
        },
        &steps,
    );
    assert_eq!(names(&alerts), ["TCP port scan of 10.0.0.1 (syn)"]);
}

#[test]
fn a_scan_over_ipv6_is_found() {
    let steps: Vec<_> = (0..12).map(|port| (0, syn6(1, (2, port)))).collect();
    let (alerts, dropped) = run(PortScanConfig::default(), &steps);
    assert_eq!(names(&alerts), ["TCP port scan of 2001:db8:: (syn)"]);
    assert!(dropped >= 3);
    let sweep: Vec<_> = (0..40)
        .map(|target| (0, syn6(1, (target + 9, 23))))
        .collect();
    let (alerts, _) = run(detect(), &sweep);
    assert_eq!(
        (alerts[0].0.class, alerts[0].0.shape),
        (Class::Tcp, Shape::Hosts)
    );
}

#[test]
fn a_flood_from_forged_sources_fills_the_table_and_is_counted() {
    let config = PortScanConfig {
        histories_max: 1_000,
        ..PortScanConfig::default()
    };
    let mut kit = Testkit::new(PortScan::new(config));
    for source in 0..5_000 {
        let outcome = kit.packet(PortNumber(0), &syn(10_000 + source, (2, 80)));
        assert_eq!(
            outcome.verdict,
            Verdict::Forward(PortNumber(1)),
            "it fails open"
        );
    }
    assert_eq!(kit.state().histories.len_now(), 1_000);
    let unrecorded = measured(kit.function(), kit.state(), "unrecorded_total");
    assert_eq!(unrecorded, 4_000, "and anyone who collects metrics sees it");
    assert_eq!(kit.state().alerts(), []);
    kit.advance(1_000);
    for port in 0..20 {
        kit.packet(PortNumber(0), &syn(1, (2, port)));
    }
    assert_eq!(kit.state().alerts().len(), 1, "it recovers");
    assert_eq!(
        kit.state()
            .blocked(asterism_function::testkit::START_TICK + 1_000)[0]
            .0,
        host(1).into()
    );
}

/// Frames of every kind, some with bytes overwritten, cut or appended.
fn mangled(count: u64) -> Vec<Vec<u8>> {
    let draw = |number: u64, place: u64| hash::words(number, place, 99);
    (0..count)
        .map(|number| {
            let small = |place: u64, below: u64| (draw(number, place) % below) as u16;
            let (a, b) = (
                (small(0, 6), small(1, 9)),
                (small(2, 6), 1_020 + small(3, 9)),
            );
            let (from, to) = if number % 2 == 0 { (a, b) } else { (b, a) };
            let mut frame = match number % 5 {
                0 | 1 => tcp(from, to, TcpFlags(draw(number, 4) as u8), b"xy"),
                2 => udp(from, to, b"x"),
                3 => ping(from.0, to.0),
                _ => syn6(from.0, to),
            };
            for change in 0..draw(number, 5) % 4 {
                let at = draw(number, 10 + change) as usize % frame.len();
                frame[at] = draw(number, 20 + change) as u8;
            }
            frame.truncate((draw(number, 6) as usize % 200).max(frame.len() / 2));
            frame
        })
        .collect()
}

#[test]
fn mangled_packets_neither_panic_nor_change_and_late_answers_change_nothing() {
    let steps: Vec<_> = mangled(4_000)
        .into_iter()
        .map(|frame| (0, PortNumber(0), frame))
        .collect();
    for config in [
        detect(),
        PortScanConfig {
            volume: Some(Default::default()),
            ..PortScanConfig::default()
        },
    ] {
        late_everywhere(|| PortScan::new(config.clone()), &steps);
    }
}

#[test]
fn any_bytes_after_the_ethernet_header_are_survived() {
    let steps: Vec<_> = (0..20_000u64)
        .map(|number| {
            let mut frame = vec![0; 12];
            frame.extend_from_slice(if number % 2 == 0 {
                &[8, 0, 0x45]
            } else {
                &[0x86, 0xdd, 0x60]
            });
            frame.extend((0..number % 90).map(|place| hash::words(number, place, 3) as u8));
            (0, frame)
        })
        .collect();
    run(detect(), &steps);
}

#[test]
fn captured_floods_are_survived() {
    let Some(traces) = traces("captured_floods_are_survived") else {
        return;
    };
    for name in ["sv-dhcp-request-flood", "sv-ipv6-dos-ext-headers-6"] {
        let (alerts, _) = run(
            detect(),
            &read(&traces.join("flood").join(name).with_extension("pcap")),
        );
        assert_eq!(names(&alerts), [""; 0], "{name}");
    }
}
