//! The same traffic through Linux (nftables masquerade and one forward) and through this NAT: what Linux sent is
//! compared with what this NAT sends, byte for byte. `../shared/traces/nat-oracle` has both sides of the recording.
//!
//! Where the two differ, a rule below says why, and each rule has its clause.

use std::collections::HashMap;

use asterism_function::testkit::Testkit;
use asterism_function::{
    Endpoint, IcmpKind, MacAddress, Network, Packet, PortNumber, Protocol, Transport, Verdict,
};
use asterism_functions::nat::{Filtering, Forward, Interface, Nat, NatConfig};

use crate::capture::frames;
use crate::network::{INSIDE, OUTSIDE, tcp};

const INSIDE_ADDRESS: [u8; 4] = [192, 168, 50, 1];
const OUTSIDE_ADDRESS: [u8; 4] = [198, 51, 100, 1];

/// Why an output differs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rule {
    /// Linux answers for itself what is addressed to it and no translation (a reset or "port unreachable"); this NAT is
    /// silent (RFC 5382 REQ-4a: silence is right where a response breaks the security policy; RFC 4787 REQ-8).
    AnswersForItself,
    /// In errors of their own both choose an identification, Linux a counter's, this NAT zero (RFC 6864 §4.1: it has no
    /// meaning in datagrams that are not fragmented).
    OwnIdentification,
}

struct Recorded {
    time: u64,
    port: PortNumber,
    frame: Vec<u8>,
}

fn mac_of(frames: &[(u64, Vec<u8>)], address: [u8; 4]) -> Option<MacAddress> {
    frames.iter().find_map(|(_, frame)| {
        let mut frame = frame.clone();
        let packet = Packet::parse(&mut frame).ok()?;
        let source = packet
            .ipv4_source()
            .or(packet.arp().map(|arp| arp.sender))?;
        (source == std::net::Ipv4Addr::from(address)).then(|| packet.ethernet_source())
    })
}

/// Whom the hosts of a link send their packets to.
fn gateway_of(frames: &[(u64, Vec<u8>)], host: MacAddress) -> MacAddress {
    frames
        .iter()
        .find_map(|(_, frame)| {
            let mut frame = frame.clone();
            let packet = Packet::parse(&mut frame).ok()?;
            let sent =
                packet.ethernet_source() == host && packet.layout().network() == Network::Ipv4;
            (sent && !packet.ethernet_destination().is_multicast())
                .then(|| packet.ethernet_destination())
        })
        .expect("a packet to the gateway")
}

/// What both must agree on, whatever port was chosen: the frame with the outside port and what depends on it blanked.
fn comparable(frame: &[u8], side: PortNumber) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Ok(mut packet) = Packet::parse(&mut frame) else {
        return frame;
    };
    let ours = std::net::Ipv4Addr::from(OUTSIDE_ADDRESS);
    if side == OUTSIDE && packet.ipv4_source() == Some(ours) && packet.flow4().is_some() {
        packet.set_source_port(0);
    }
    if is_own_error(&packet) {
        let at = packet.layout().network_offset();
        packet.bytes_mut()[at + 4..at + 6].copy_from_slice(&[0, 0]);
        packet.bytes_mut()[at + 10..at + 12].copy_from_slice(&[0, 0]);
    }
    if side == OUTSIDE && packet.icmp_kind() == Some(IcmpKind::Error) {
        packet.set_embedded_destination(Endpoint::new(ours, 0, Protocol::UDP));
    }
    // The hosts of the recording leave transport checksums to hardware that is not there, and only Linux, which knows
    // that, leaves them so: see `checksums_stay`.
    let at = packet.layout().transport_offset();
    let offset = match packet.layout().transport() {
        Transport::Tcp => Some(16),
        Transport::Udp => Some(6),
        _ => None,
    };
    if let Some(offset) = offset {
        packet.bytes_mut()[at + offset..at + offset + 2].copy_from_slice(&[0, 0]);
    }
    frame
}

#[test]
fn sends_what_linux_sends() {
    let (Some(inside), Some(outside)) = (
        frames("nat-oracle/nft-nat44-inside.pcap", "nat/oracle"),
        frames("nat-oracle/nft-nat44-outside.pcap", "nat/oracle"),
    ) else {
        return;
    };
    let mut neighbours = Vec::new();
    for (link, host) in [
        (&inside, [192, 168, 50, 2]),
        (&inside, [192, 168, 50, 3]),
        (&outside, [198, 51, 100, 10]),
        (&outside, [198, 51, 100, 11]),
    ] {
        if let Some(mac) = mac_of(link, host) {
            neighbours.push((std::net::Ipv4Addr::from(host), mac));
        }
    }
    let inside_mac = gateway_of(&inside, neighbours[0].1);
    let outside_mac = gateway_of(&outside, mac_of(&outside, [198, 51, 100, 10]).unwrap());
    let config = NatConfig {
        neighbours,
        filtering: Filtering::AddressAndPortDependent,
        forwards: vec![Forward {
            outside: tcp(OUTSIDE_ADDRESS, 8_080),
            inside: tcp([192, 168, 50, 2], 80),
        }],
        ..NatConfig::new(
            Interface::new(INSIDE, INSIDE_ADDRESS.into(), 24, inside_mac),
            Interface::new(OUTSIDE, OUTSIDE_ADDRESS.into(), 24, outside_mac),
            vec![OUTSIDE_ADDRESS.into()],
        )
    };
    let mut kit = Testkit::new(Nat::new(config).unwrap());

    let mut arrived = Vec::new();
    let mut linux: Vec<Recorded> = Vec::new();
    for (frames, port, mac) in [
        (inside, INSIDE, inside_mac),
        (outside, OUTSIDE, outside_mac),
    ] {
        for (time, frame) in frames {
            let sent_by_linux = frame[6..12] == mac.0;
            let is_ipv4 = frame[12..14] == [8, 0];
            let list = if sent_by_linux {
                &mut linux
            } else {
                &mut arrived
            };
            if is_ipv4 {
                list.push(Recorded { time, port, frame });
            }
        }
    }
    arrived.sort_by_key(|recorded| recorded.time);
    assert!(
        arrived.len() > 50 && linux.len() > 50,
        "{} in, {} out",
        arrived.len(),
        linux.len()
    );

    // Linux's outside ports and ours.
    let mut ports: HashMap<(Protocol, u16), u16> = HashMap::new();
    let mut ours_alone = Vec::new();
    let mut compared = 0;
    let mut explained: HashMap<Rule, usize> = HashMap::new();
    for recorded in &arrived {
        let mut frame = recorded.frame.clone();
        if recorded.port == OUTSIDE {
            translate_port(&mut frame, &ports);
        }
        let outcome = kit.packet(recorded.port, &frame);
        let mut sent = outcome.emitted.clone();
        if let Verdict::Forward(port) = outcome.verdict {
            assert!(checksums_stay(&frame, &outcome.packet));
            sent.push((port, outcome.packet));
        }
        for (port, frame) in sent {
            let wanted = comparable(&frame, port);
            let found = linux
                .iter()
                .position(|other| other.port == port && comparable(&other.frame, port) == wanted);
            let Some(found) = found else {
                ours_alone.push((port, frame));
                continue;
            };
            let theirs = linux.remove(found);
            compared += 1;
            if Packet::parse(&mut frame.clone()).is_ok_and(|packet| is_own_error(&packet)) {
                *explained.entry(Rule::OwnIdentification).or_default() += 1;
            }
            if port == OUTSIDE
                && let (Some(our), Some(their)) = (source_of(&frame), source_of(&theirs.frame))
            {
                let known = *ports
                    .entry((their.protocol, their.port))
                    .or_insert(our.port);
                assert_eq!(known, our.port, "one outside port of Linux is one of ours");
            }
        }
    }
    let mut unexplained = Vec::new();
    for Recorded { port, frame, .. } in &linux {
        match rule_of(*port, frame) {
            Some(rule) => *explained.entry(rule).or_default() += 1,
            None => unexplained.push(describe(*port, frame)),
        }
    }
    let ours_alone: Vec<_> = ours_alone
        .iter()
        .map(|(port, frame)| describe(*port, frame))
        .collect();
    assert_eq!(
        (unexplained, ours_alone),
        (vec![], vec![]),
        "after {compared} equal frames"
    );
    assert!(explained.len() <= 5, "{explained:?}");
    eprintln!("{compared} frames equal; explained: {explained:?}");
    assert!(compared > 100);
}

/// A transport checksum is right after the translation exactly if it was before.
fn checksums_stay(before: &[u8], after: &[u8]) -> bool {
    let right = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        Packet::parse(&mut frame).map(|packet| packet.verify_transport_checksum())
    };
    right(before) == right(after)
}

fn is_own_error(packet: &Packet<'_>) -> bool {
    packet.icmp_kind() == Some(IcmpKind::Error)
        && packet.ipv4_source() == Some(std::net::Ipv4Addr::from(INSIDE_ADDRESS))
}

/// Linux's own voice: from its address, and no translation of an inside host's packet.
fn rule_of(port: PortNumber, frame: &[u8]) -> Option<Rule> {
    let mut frame = frame.to_vec();
    let packet = Packet::parse(&mut frame).ok()?;
    let own = packet.ipv4_source()? == std::net::Ipv4Addr::from(OUTSIDE_ADDRESS) && port == OUTSIDE;
    let reset = packet
        .tcp_flags()
        .is_some_and(|flags| flags.contains(asterism_function::TcpFlags::RST));
    let unreachable = (packet.icmp_type(), packet.icmp_code()) == (Some(3), Some(3));
    (own && (reset || unreachable)).then_some(Rule::AnswersForItself)
}

fn source_of(frame: &[u8]) -> Option<Endpoint> {
    let mut frame = frame.to_vec();
    Some(Packet::parse(&mut frame).ok()?.flow4()?.source())
}

/// Readdresses a packet to our outside port, as its sender would have if Linux had chosen it.
fn translate_port(frame: &mut [u8], ports: &HashMap<(Protocol, u16), u16>) {
    let Ok(mut packet) = Packet::parse(frame) else {
        return;
    };
    if let Some(flow) = packet.flow4()
        && packet.icmp_kind() != Some(IcmpKind::Query)
        && let Some(port) = ports.get(&(Protocol(flow.protocol), flow.destination_port))
    {
        packet.set_destination_port(*port);
    }
    if let Some(flow) = packet.embedded().and_then(|embedded| embedded.flow4())
        && let Some(port) = ports.get(&(Protocol(flow.protocol), flow.source_port))
    {
        packet.set_embedded_source(Endpoint::new(flow.source, *port, Protocol(flow.protocol)));
    }
}

fn describe(port: PortNumber, frame: &[u8]) -> String {
    let mut bytes = frame.to_vec();
    match Packet::parse(&mut bytes) {
        Ok(packet) => format!(
            "{port:?} {:?} > {:?} {:?} {:?} icmp {:?} ttl {:?} {} bytes",
            packet.ipv4_source(),
            packet.ipv4_destination(),
            packet.flow4().map(|flow| flow.to_string()),
            packet.tcp_flags(),
            packet.icmp_type(),
            packet.ttl(),
            frame.len()
        ),
        Err(malformed) => format!("{port:?} {malformed:?}"),
    }
}
