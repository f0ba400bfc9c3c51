//! What a signature function measures.

use asterism_function::PortNumber;
use asterism_function::testkit::{Testkit, measured};
use asterism_functions::signature::{Response, SignatureConfig, Signatures};

use crate::signature::packets::{first_fragment, list, made, tcp};

const SERVER: (u16, u16) = (2, 80);
const NAMES: [&str; 5] = [
    "alerts_total",
    "blocked_targets",
    "short_segments_total",
    "fragments_total",
    "unrecorded_total",
];

fn counts(kit: &Testkit<Signatures>) -> [u64; 5] {
    NAMES.map(|name| measured(kit.function(), kit.state(), name))
}

#[test]
fn alerts_blocks_and_what_was_not_looked_at_are_counted() {
    let mut kit = Testkit::new(made(&SignatureConfig {
        response: Response::BlockConnection { block_s: 60 },
        alert_keep_s: 600,
        alerts_max: 3,
        ..SignatureConfig::new(list(&[b"EVIL-stuf7+X"]))
    }));
    let send = |kit: &mut Testkit<Signatures>, port: u16, payload: &[u8]| {
        kit.packet(PortNumber(0), &tcp((1, port), SERVER, 1_000, payload));
    };
    assert_eq!(counts(&kit), [0; 5]);
    for _ in 0..4 {
        send(&mut kit, 1, b"x");
    }
    let fragment = first_fragment(tcp((1, 2), SERVER, 1_000, b"EVIL-stuf7+X...."));
    kit.packet(PortNumber(0), &fragment);
    assert_eq!(counts(&kit), [0, 0, 4, 1, 0]);
    send(&mut kit, 2, b"..EVIL-stuf7+X..");
    send(&mut kit, 2, b"..EVIL-stuf7+X..");
    assert_eq!(counts(&kit), [1, 1, 4, 1, 0], "the rest is blocked");
    for port in 3..5 {
        send(&mut kit, port, b"..EVIL-stuf7+X..");
    }
    assert_eq!(counts(&kit), [3, 3, 4, 1, 0]);
    // Neither the alert nor the block finds room.
    send(&mut kit, 5, b"..EVIL-stuf7+X..");
    assert_eq!(counts(&kit), [3, 3, 4, 1, 2]);
    kit.advance(100);
    assert_eq!(counts(&kit), [3, 0, 4, 1, 2], "blocks end");
    for _ in 0..10 {
        kit.advance(100);
    }
    send(&mut kit, 6, b"..EVIL-stuf7+X..");
    assert_eq!(counts(&kit), [4, 1, 4, 1, 2], "and alerts are forgotten");
}
