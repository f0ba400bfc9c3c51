//! Packets that nobody sane sends: a drop with a reason or a packet, never a panic.

use asterism_function::{IcmpKind, Packet, PortNumber, Verdict};
use proptest::prelude::*;

use crate::nat::network::*;

/// One frame of each kind that the NAT handles, after a session was opened.
fn examples(kit: &mut Kit) -> Vec<(PortNumber, Vec<u8>)> {
    let (inside, remote) = (udp([10, 0, 0, 5], 40_000), udp([198, 51, 100, 7], 443));
    let out = send(kit, INSIDE, inside, remote, Wish::default());
    let outside = left_by(&out, OUTSIDE).source();
    let quoted = &out.packet[14..];
    let mut arp = vec![0; 60];
    asterism_function::build::arp_request(
        INSIDE_ROUTER,
        [192, 168, 0, 9].into(),
        INSIDE_ADDRESS,
        &mut arp,
    )
    .unwrap();
    let mut tagged = frame(INSIDE, inside, remote, Wish::default());
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    vec![
        (INSIDE, frame(INSIDE, inside, remote, Wish::default())),
        (
            INSIDE,
            frame(
                INSIDE,
                tcp([10, 0, 0, 5], 1),
                tcp([198, 51, 100, 7], 2),
                flagged(SYN),
            ),
        ),
        (INSIDE, frame(INSIDE, inside, outside, Wish::default())),
        (OUTSIDE, frame(OUTSIDE, remote, outside, Wish::default())),
        (
            OUTSIDE,
            icmp(
                OUTSIDE,
                [192, 0, 2, 1].into(),
                outside.address,
                3,
                3,
                [0; 4],
                quoted,
            ),
        ),
        (
            INSIDE,
            icmp(
                INSIDE,
                [10, 0, 0, 5].into(),
                remote.address,
                3,
                3,
                [0; 4],
                quoted,
            ),
        ),
        (
            INSIDE,
            echo(
                INSIDE,
                [10, 0, 0, 5].into(),
                remote.address,
                9,
                IcmpKind::Query,
            ),
        ),
        (
            OUTSIDE,
            echo(OUTSIDE, remote.address, outside.address, 9, IcmpKind::Query),
        ),
        (INSIDE, arp),
        (INSIDE, tagged),
    ]
}

/// What left is a packet; how many bytes it is does not change.
fn handle(kit: &mut Kit, port: PortNumber, bytes: &[u8]) {
    let outcome = kit.packet(port, bytes);
    if let Verdict::Forward(_) = outcome.verdict {
        let mut left = outcome.packet.clone();
        assert_eq!(left.len(), bytes.len());
        assert!(Packet::parse(&mut left).is_ok());
    }
    for (_, emitted) in &outcome.emitted {
        assert!(Packet::parse(&mut emitted.clone()).is_ok());
    }
}

#[test]
fn frames_cut_anywhere_and_bytes_changed_anywhere() {
    let mut kit = kit_with(|config| config.short_idle = true);
    for (port, whole) in examples(&mut kit) {
        for length in 0..=whole.len() {
            handle(&mut kit, port, &whole[..length]);
        }
        for place in 0..whole.len() {
            for value in [0, 1, 0x45, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[place] = value;
                // So that the change is seen behind the header's checksum.
                if changed.len() >= 34 && changed[12..15] == [8, 0, 0x45] {
                    changed[24..26].copy_from_slice(&[0, 0]);
                    let checksum = asterism_function::checksum::of(&changed[14..34]);
                    changed[24..26].copy_from_slice(&checksum.to_be_bytes());
                }
                handle(&mut kit, port, &changed);
                handle(&mut kit, PortNumber(7), &changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_bytes(frames: Vec<(bool, u8, Vec<u8>)>) {
        let mut kit = kit();
        for (is_inside, start, bytes) in frames {
            let port = if is_inside { INSIDE } else { OUTSIDE };
            handle(&mut kit, port, &bytes);
            // Behind a frame's start that is right.
            let mut frame = frame(port, udp([10, 0, 0, 5], 1), udp([198, 51, 100, 7], 2), Wish::default());
            frame.truncate(usize::from(start) % 54);
            frame.extend(bytes);
            handle(&mut kit, port, &frame);
        }
    }

    #[test]
    fn a_flood_of_new_flows_ends_at_the_table(seed: u64) {
        let mut kit = kit_with(|config| config.sessions_max = 50);
        let mut refused = 0;
        for number in 0..80u64 {
            let bits = seed.wrapping_mul(number | 1).to_le_bytes();
            let inside = tcp([10, bits[0], bits[1], number as u8], 1_024 + number as u16);
            let out = send(&mut kit, INSIDE, inside, tcp([198, 51, 100, 7], 443), flagged(SYN));
            refused += u32::from(!matches!(out.verdict, Verdict::Forward(_)));
        }
        prop_assert_eq!(refused, 30);
        prop_assert_eq!(kit.state().sessions.len_now(), 50);
        prop_assert_eq!(kit.state().ports.usage().in_use, 50, "ports of refused flows returned");
    }
}
