//! Recorded traffic: captures read from `../shared/traces`, and what the NAT makes of them.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{Packet, PortNumber, Verdict};
use asterism_functions::nat::{Interface, Nat, NatConfig, Prefix, Route, Side};

use crate::nat::network::{INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, OUTSIDE_ROUTER};

/// Frames of a capture in the classic format, little-endian, with their times in microseconds; `None`, said loudly, when
/// the shared data is absent.
pub(crate) fn frames(name: &str, test: &str) -> Option<Vec<(u64, Vec<u8>)>> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/traces", name]
        .iter()
        .collect();
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("SKIPPED (shared data absent): {test}");
        return None;
    };
    assert_eq!(
        bytes[..4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        "{name}: another format"
    );
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut frames = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let length = word(at + 8) as usize;
        let end = (at + 16 + length).min(bytes.len());
        let time = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        frames.push((time, bytes[at + 16..end].to_vec()));
        at = end;
    }
    Some(frames)
}

/// A NAT for any capture: private addresses are inside, behind a router as everything else is outside.
fn any_capture() -> NatConfig {
    let mut inside = Interface::new(INSIDE, Ipv4Addr::new(100, 64, 0, 1), 24, INSIDE_MAC);
    let mut outside = Interface::new(OUTSIDE, Ipv4Addr::new(203, 0, 113, 1), 24, OUTSIDE_MAC);
    for interface in [&mut inside, &mut outside] {
        interface.promiscuous = true;
        interface.mtu = 0;
    }
    let routers = [
        Ipv4Addr::new(100, 64, 0, 2),
        Ipv4Addr::new(203, 0, 113, 254),
    ];
    let to = |prefix, side, next_hop| Route {
        prefix,
        side,
        next_hop: Some(next_hop),
    };
    NatConfig {
        routes: vec![
            to(
                Prefix::new([10, 0, 0, 0].into(), 8),
                Side::Inside,
                routers[0],
            ),
            to(
                Prefix::new([172, 16, 0, 0].into(), 12),
                Side::Inside,
                routers[0],
            ),
            to(
                Prefix::new([192, 168, 0, 0].into(), 16),
                Side::Inside,
                routers[0],
            ),
            to(Prefix::ALL, Side::Outside, routers[1]),
        ],
        neighbours: routers
            .iter()
            .map(|router| (*router, OUTSIDE_ROUTER))
            .collect(),
        ..NatConfig::new(inside, outside, vec![Ipv4Addr::new(203, 0, 113, 1)])
    }
}

fn is_private(address: Ipv4Addr) -> bool {
    address.is_private()
}

/// Packets of a capture as a NAT meets them: those from private addresses come from inside; replies to them are
/// addressed to the outside endpoint that the NAT chose, as the remote hosts would.
fn steps(name: &str, test: &str, packets_max: usize) -> Option<Vec<(u32, PortNumber, Vec<u8>)>> {
    let frames = frames(name, test)?;
    let mut kit = Testkit::new(Nat::new(any_capture()).unwrap());
    let mut steps = Vec::new();
    let mut last = frames.first()?.0;
    let mut replies = 0;
    for (time, frame) in frames.into_iter().take(packets_max) {
        // Captures that were put together from several jump in time.
        let seconds = (time.saturating_sub(last) / 1_000_000).min(600) as u32;
        last = time.max(last);
        let mut frame = frame;
        let Ok(mut packet) = Packet::parse(&mut frame) else {
            steps.push((seconds, INSIDE, frame));
            continue;
        };
        let port = match packet.ipv4_source() {
            Some(source) if !is_private(source) => OUTSIDE,
            _ => INSIDE,
        };
        if port == OUTSIDE
            && let Some(flow) = packet.flow4()
        {
            let mut outside = None;
            kit.state().sessions.for_each(|session, _| {
                if session.inside() == flow.destination() {
                    outside = Some(session.outside());
                }
            });
            if let Some(outside) = outside {
                packet.set_destination(outside);
                replies += 1;
            }
        }
        kit.advance(seconds);
        let outcome = kit.packet(port, &frame);
        if let Verdict::Forward(_) = outcome.verdict {
            let mut before = frame.clone();
            let mut after = outcome.packet.clone();
            let before = Packet::parse(&mut before).unwrap();
            let after = Packet::parse(&mut after).expect("what leaves is a packet");
            // Right stays right and wrong stays wrong.
            assert_eq!(
                after.verify_transport_checksum(),
                before.verify_transport_checksum()
            );
            assert_eq!(after.payload(), before.payload());
        }
        steps.push((seconds, port, frame));
    }
    assert!(replies > 0, "{name}: no packet came back");
    Some(steps)
}

fn fares_alike_late(name: &str, test: &str, packets_max: usize) {
    if let Some(steps) = steps(name, test, packets_max) {
        late_everywhere(|| Nat::new(any_capture()).unwrap(), &steps);
    }
}

#[test]
fn teams_fares_alike_when_reads_are_late() {
    fares_alike_late("mixed/ndpi-teams.pcap", "nat/teams", 2_000);
}

#[test]
fn kxun_fares_alike_when_reads_are_late() {
    fares_alike_late("mixed/ndpi-1kxun.pcap", "nat/1kxun", 2_000);
}

#[test]
fn wechat_fares_alike_when_reads_are_late() {
    fares_alike_late("mixed/ndpi-wechat.pcap", "nat/wechat", 2_000);
}

#[test]
fn fragments_fare_alike_when_reads_are_late() {
    // The capture has public addresses on both sides: all of it enters from inside and outside alike.
    let Some(frames) = frames("frag/ppp-ip-frag.pcap", "nat/fragments") else {
        return;
    };
    let steps: Vec<_> = frames
        .into_iter()
        .take(1_500)
        .flat_map(|(_, frame)| [(0, INSIDE, frame.clone()), (0, OUTSIDE, frame)])
        .collect();
    let config = || {
        let mut config = any_capture();
        config.routes[0].prefix = Prefix::new([0, 0, 0, 0].into(), 1);
        config
    };
    late_everywhere(|| Nat::new(config()).unwrap(), &steps);
}
