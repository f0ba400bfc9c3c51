//! The function that the first screen of README.md shows, compiled as it stands there and tried.

use std::net::Ipv4Addr;

use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, Counters, Flow4, Late, NetworkFunction, PortNumber, Reason, Verdict, build, state,
};

// A file of its own, so that it keeps the shape that fits the first screen.
include!("readme/function.rs");

fn packet(source: [u8; 4]) -> Vec<u8> {
    let flow = Flow4 {
        source: source.into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 5_000,
        destination_port: 53,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, b"", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn a_source_has_a_million_packets() {
    let mut kit = Testkit::new(Quota);
    let bytes = packet([10, 0, 0, 1]);
    for _ in 0..1_000_000 {
        assert_eq!(
            kit.packet(PortNumber(0), &bytes).verdict,
            Verdict::Forward(PortNumber(1))
        );
    }
    assert_eq!(
        kit.packet(PortNumber(0), &bytes).verdict,
        Verdict::Drop(Reason::Blocked)
    );
    let other = kit.packet(PortNumber(0), &packet([10, 0, 0, 2]));
    assert_eq!(other.verdict, Verdict::Forward(PortNumber(1)));
}

#[test]
fn late_reads_change_nothing() {
    let steps: Vec<_> = (0..4)
        .map(|last| (0, PortNumber(0), packet([10, 0, 0, last % 2])))
        .collect();
    late_everywhere(|| Quota, &steps);
}
