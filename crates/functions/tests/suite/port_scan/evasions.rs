//! Scans that hide: behind changing addresses of a prefix, in fragments, in other protocols than TCP, UDP and ICMP.

use core::net::Ipv6Addr;

use asterism_blocking::manual::Order;
use asterism_function::testkit::Testkit;
use asterism_function::{CONTROL, IpPrefix, PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::port_scan::{Class, PortScan, PortScanConfig, Shape};

use crate::port_scan::capture::{Step, detect, names, run};
use crate::port_scan::cluster::deal;
use crate::port_scan::ip::{icmp_error, ip};
use crate::port_scan::packets::{syn6, tcp};

const IN: PortNumber = PortNumber(0);
const PASSES: Verdict = Verdict::Forward(PortNumber(1));
const BLOCKED: Verdict = Verdict::Drop(Reason::Blocked);

/// A SYN from an address of `2001:db8:0:link::/64` to a port of `2001:db8::2`.
fn syn_from(link: u16, interface: u64, port: u16) -> Vec<u8> {
    let mut frame = syn6(1, (2, port));
    frame[14 + 8 + 6..14 + 8 + 8].copy_from_slice(&link.to_be_bytes());
    frame[14 + 8 + 8..14 + 8 + 16].copy_from_slice(&interface.to_be_bytes());
    frame
}

/// An address for each probe.
fn rotating(count: u16) -> Vec<Step> {
    (0..count)
        .map(|port| {
            let interface = u64::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            (0, syn_from(7, interface, 1_000 + port))
        })
        .collect()
}

#[test]
fn a_scan_from_changing_addresses_of_a_prefix_is_found_and_the_prefix_blocked() {
    let (alerts, dropped) = run(PortScanConfig::default(), &rotating(40));
    assert_eq!(names(&alerts), ["TCP port scan of 2001:db8:0:7:: (syn)"]);
    assert!(dropped >= 30, "{dropped}");
    for seed in [1, 2, 3] {
        assert_eq!(deal(&rotating(40), 3, 1, seed).len(), 1);
    }
    let apart = PortScanConfig {
        ipv6_prefix: 128,
        ..PortScanConfig::default()
    };
    assert_eq!(
        run(apart, &rotating(40)),
        (vec![], 0),
        "addresses on their own"
    );
    // A site of which each probe has another link.
    let links: Vec<_> = (0..40).map(|port| (0, syn_from(port, 1, port))).collect();
    assert_eq!(run(detect(), &links).0, []);
    let site = PortScanConfig {
        ipv6_prefix: 48,
        ..detect()
    };
    assert_eq!(run(site, &links).0.len(), 1);
}

#[test]
fn a_block_of_a_prefix_is_of_its_addresses_alone_and_is_lifted_by_any_of_them() {
    let mut kit = Testkit::new(PortScan::new(PortScanConfig::default()));
    for (_, frame) in rotating(40) {
        kit.packet(IN, &frame);
    }
    let other = syn_from(7, 0xffff, 80);
    assert_eq!(kit.packet(IN, &other).verdict, BLOCKED);
    assert_eq!(kit.packet(IN, &syn_from(8, 0xffff, 80)).verdict, PASSES);
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 9);
    let reported = kit.packet(CONTROL, &Order::Unblock(address.into()).frame());
    assert_eq!(reported.verdict, Verdict::Consumed);
    kit.advance(180);
    assert_eq!(kit.packet(IN, &other).verdict, PASSES);
    // Manually each address is blocked alone, the first of a prefix too.
    let first = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0);
    let order = Order::Block {
        source: first.into(),
        seconds: 60,
    };
    kit.packet(CONTROL, &order.frame());
    assert_eq!(kit.packet(IN, &syn_from(7, 0, 81)).verdict, BLOCKED);
    assert_eq!(kit.packet(IN, &syn_from(7, 9, 81)).verdict, PASSES);
    kit.packet(CONTROL, &Order::Unblock(address.into()).frame());
    assert_eq!(kit.packet(IN, &syn_from(7, 0, 82)).verdict, BLOCKED);
}

#[test]
fn an_exempt_address_of_a_prefix_brings_no_block_upon_the_others() {
    let exempt: IpPrefix = "2001:db8:0:7::42/128".parse().unwrap();
    let mut kit = Testkit::new(PortScan::new(PortScanConfig {
        exempt: vec![exempt],
        ..PortScanConfig::default()
    }));
    for port in 0..60 {
        let probe = syn_from(7, 0x42, port);
        assert_eq!(kit.packet(IN, &probe).verdict, PASSES);
    }
    assert_eq!(kit.packet(IN, &syn_from(7, 1, 80)).verdict, PASSES);
    for (_, frame) in rotating(40) {
        kit.packet(IN, &frame);
    }
    assert_eq!(kit.packet(IN, &syn_from(7, 1, 80)).verdict, BLOCKED);
    assert_eq!(kit.packet(IN, &syn_from(7, 0x42, 80)).verdict, PASSES);
}

/// A segment in fragments with so many bytes of payload each, as `nmap -f` sends.
fn fragments(ends: (u16, u16), port: u16, flags: TcpFlags, bytes: usize) -> Vec<Vec<u8>> {
    let whole = tcp((ends.0, 40_000), (ends.1, port), flags, b"");
    let segment = &whole[34..];
    let parts = segment.chunks(bytes).enumerate();
    parts
        .map(|(place, part)| {
            let offset = place * bytes;
            let more = offset + part.len() < segment.len();
            ip(ends, (6, 64), (offset as u16, more), part)
        })
        .collect()
}

#[test]
fn scans_in_fragments_are_found_whatever_cuts_the_header() {
    let fin = TcpFlags(1);
    for (flags, method) in [(TcpFlags::SYN, "syn"), (fin, "fin"), (TcpFlags(0), "null")] {
        for bytes in [8, 16] {
            for reversed in [false, true] {
                let mut steps: Vec<Step> = Vec::new();
                for port in 0..30 {
                    let mut parts = fragments((1, 2), 1_000 + port, flags, bytes);
                    if reversed {
                        parts.reverse();
                    }
                    steps.extend(parts.into_iter().map(|part| (0, part)));
                }
                let (alerts, dropped) = run(PortScanConfig::default(), &steps);
                let case = format!("{method} in {bytes} bytes: {:?}", names(&alerts));
                assert_eq!(alerts.len(), 1, "{case}");
                assert!(names(&alerts)[0].contains(method), "{case}");
                assert!(dropped > steps.len() / 2, "{case}: {dropped} dropped");
                assert_eq!(deal(&steps, 3, 1, 3).len(), 1, "{case}");
            }
        }
    }
}

#[test]
fn a_sweep_in_fragments_is_found_and_a_conversation_in_fragments_is_none() {
    let refused = TcpFlags::RST | TcpFlags::ACK;
    let sweep: Vec<Step> = (0..20)
        .flat_map(|host| {
            let mut parts = fragments((1, 100 + host), 22, TcpFlags::SYN, 8);
            parts.push(tcp((100 + host, 22), (1, 40_000), refused, b""));
            parts.into_iter().map(|part| (0, part))
        })
        .collect();
    let (alerts, _) = run(detect(), &sweep);
    assert_eq!(
        names(&alerts),
        ["TCP host sweep of 10.0.0.1 (syn fragments)"]
    );
    // What these fragments carry says that it is no probe: segments of connections to many ports.
    let talk: Vec<Step> = (0..40)
        .flat_map(|port| fragments((1, 2), 1_000 + port, TcpFlags::ACK, 8))
        .map(|part| (0, part))
        .collect();
    assert_eq!(run(PortScanConfig::default(), &talk), (vec![], 0));
}

#[test]
fn scans_over_ip_protocols_are_found_by_what_is_unreachable() {
    let probe = |protocol| ip((1, 2), (protocol, 64), (0, false), b"");
    let others = || (0..=255u8).filter(|protocol| ![1, 6, 17].contains(protocol));
    let mut steps: Vec<Step> = Vec::new();
    for protocol in others().take(60) {
        let frame = probe(protocol);
        let unreachable = icmp_error(2, (3, 2), &frame);
        steps.extend([(0, frame), (0, unreachable)]);
    }
    let (alerts, dropped) = run(PortScanConfig::default(), &steps);
    assert_eq!(names(&alerts), ["IP protocol scan of 10.0.0.1 (protocols)"]);
    let subject = alerts[0].0;
    assert_eq!((subject.class, subject.shape), (Class::Ip, Shape::Ports));
    assert!(dropped >= 40, "{dropped}");
    for seed in [1, 2, 3] {
        assert_eq!(deal(&steps, 3, 1, seed).len(), 1);
    }
    // Behind a firewall nobody says anything.
    let silent: Vec<Step> = others().map(|protocol| (0, probe(protocol))).collect();
    assert_eq!(run(detect(), &silent).0.len(), 1);
    // Nobody is accused by reports of what was never sent.
    let forged: Vec<Step> = others()
        .map(|protocol| (0, icmp_error(9, (3, 2), &probe(protocol))))
        .collect();
    assert_eq!(run(PortScanConfig::default(), &forged), (vec![], 0));
}

/// Unreachable of ICMPv6 is another message: an unknown next header.
#[test]
fn scans_over_protocols_of_ipv6_are_found() {
    let mut steps: Vec<Step> = Vec::new();
    for protocol in 100..130 {
        let mut probe = syn6(1, (2, 0));
        probe.truncate(14 + 40);
        probe[18..20].copy_from_slice(&[0, 0]);
        probe[20] = protocol;
        let mut answer = syn6(2, (1, 0));
        answer.truncate(14 + 40);
        answer[18..20].copy_from_slice(&48u16.to_be_bytes());
        answer[20] = 58;
        answer.extend([4, 1, 0, 0, 0, 0, 0, 6]);
        answer.extend(&probe[14..54]);
        steps.extend([(0, probe), (0, answer)]);
    }
    let (alerts, _) = run(detect(), &steps);
    assert_eq!(
        names(&alerts),
        ["IP protocol scan of 2001:db8:: (protocols)"]
    );
}
