//! Options of PCP that stand in its answers.

use crate::nat::network::INSIDE;
use crate::nat::pcp::{Asks, HOST, MAP, answer_of, datagram, kit};

/// RFC 6887 §7.3: options that were processed stand in the answer, in the order of the request, and no others.
#[test]
fn answers_hold_the_options_that_were_processed() {
    const PREFER_FAILURE: [u8; 4] = [2, 0, 0, 0];
    const UNKNOWN: [u8; 8] = [200, 0, 0, 3, 1, 2, 3, 0];
    let insists = Asks { lifetime: 0, ..MAP };
    let mut announces = MAP.bytes();
    announces.truncate(24);
    announces[1] = 0;
    announces[4..8].fill(0);
    let cases: Vec<(Vec<u8>, usize, Vec<u8>)> = vec![
        (MAP.bytes(), 60, vec![]),
        ([&MAP.bytes()[..], &UNKNOWN].concat(), 60, vec![]),
        ([&MAP.bytes()[..], &UNKNOWN, &UNKNOWN].concat(), 60, vec![]),
        ([&announces[..], &UNKNOWN].concat(), 24, vec![]),
        ([&insists.bytes()[..], &UNKNOWN].concat(), 60, vec![]),
        // A message that is wrong comes back whole (§7.3).
        (
            [&MAP.bytes()[..], &PREFER_FAILURE, &[3, 0, 0, 0]].concat(),
            60,
            [&PREFER_FAILURE[..], &[3, 0, 0, 0]].concat(),
        ),
    ];
    for (message, length, options) in cases {
        let mut kit = kit();
        let out = kit.packet(INSIDE, &datagram(HOST, &message));
        let answer = answer_of(&out, HOST).expect("an answer");
        assert_eq!(answer.len(), length + options.len(), "{message:?}");
        assert_eq!(answer[length..], options, "{message:?}");
    }
    // One that is processed, between two that are not.
    let mut kit = kit();
    let wish = Asks {
        insists: true,
        external: 20_000,
        ..MAP
    };
    let bytes = wish.bytes();
    let (map, option) = bytes.split_at(60);
    assert_eq!(option, PREFER_FAILURE);
    let message = [map, &UNKNOWN, option, &UNKNOWN].concat();
    let out = kit.packet(INSIDE, &datagram(HOST, &message));
    let answer = answer_of(&out, HOST).expect("an answer");
    assert_eq!(answer[60..], PREFER_FAILURE);
}
