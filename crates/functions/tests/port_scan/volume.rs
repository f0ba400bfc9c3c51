//! The volume policy, on one instance.

use asterism_function::testkit::Testkit;
use asterism_function::{PortNumber, Reason, Verdict};
use asterism_functions::port_scan::{PortScan, PortScanConfig, VolumePolicy};

use crate::capture::detect;
use crate::packets::udp;

const FORWARD: Verdict = Verdict::Forward(PortNumber(1));

fn kit(volume: VolumePolicy) -> Testkit<PortScan> {
    Testkit::new(PortScan::new(PortScanConfig {
        volume: Some(volume),
        ..detect()
    }))
}

#[test]
fn the_papers_threshold_is_kept_to_the_packet() {
    let mut kit = kit(VolumePolicy::default());
    let frame = udp((1, 9_000), (2, 9), &[0; 1_458]);
    assert_eq!(frame.len(), 1_500);
    let allowed = 1_024_000_000 / 12_000 + 1;
    for number in 0..allowed {
        assert_eq!(
            kit.packet(PortNumber(0), &frame).verdict,
            FORWARD,
            "packet {number}"
        );
    }
    kit.advance(1_000_000);
    assert_eq!(
        kit.packet(PortNumber(0), &frame).verdict,
        Verdict::Drop(Reason::PortBlocked)
    );
    assert_eq!(
        kit.packet(PortNumber(0), &udp((1, 9_000), (2, 10), b""))
            .verdict,
        FORWARD,
        "another port"
    );
    assert_eq!(
        kit.packet(PortNumber(0), &udp((2, 9), (1, 9_000), b""))
            .verdict,
        FORWARD,
        "from the port"
    );
}

#[test]
fn a_window_starts_anew_and_a_block_ends() {
    let mut kit = kit(VolumePolicy {
        bits: 16 * 8_000,
        window_s: 10,
        block_s: 25,
    });
    let frame = udp((1, 9_000), (2, 9), &[0; 958]);
    assert_eq!(frame.len(), 1_000);
    let mut passed = 0;
    // Fifteen frames in each window are below sixteen.
    for _ in 0..8 {
        for _ in 0..15 {
            passed += u32::from(kit.packet(PortNumber(0), &frame).verdict == FORWARD);
        }
        kit.advance(10);
    }
    assert_eq!(passed, 120);
    // The window's first frame, and sixteen that fit; the next one passes and is the last.
    let flood = |kit: &mut Testkit<PortScan>| {
        (0..100)
            .filter(|_| kit.packet(PortNumber(0), &frame).verdict == FORWARD)
            .count()
    };
    assert_eq!(flood(&mut kit), 18);
    kit.advance(24);
    assert_eq!(flood(&mut kit), 0);
    kit.advance(6);
    assert_eq!(flood(&mut kit), 18, "the block is over and a window began");
}
