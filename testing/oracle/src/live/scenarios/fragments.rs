//! Fragments in every order, doubled and missing.

use asterism_functions::nat::Side::{Inside, Outside};

use super::PLAIN;
use crate::live::Scenario;
use crate::live::hosts::{A, ACK, B, Hosts, OUTSIDE, Seg, Wish, X, ends, fragments, only};
use crate::wire::End;

pub(super) const FRAGMENTS: Scenario = Scenario {
    name: "fragments",
    about: "Datagrams in fragments of several sizes, in order, reversed, mixed, doubled and with parts missing, both ways.",
    play: all,
    ..PLAIN
};

const MAY_FRAGMENT: Wish = Wish {
    ttl: 64,
    dont_fragment: false,
    service: 0,
};

fn data(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number / 7) as u8).collect()
}

/// In which order the parts of a datagram are sent; a number that there is not is left out.
const ORDERS: &[&[usize]] = &[
    &[0, 1, 2, 3],
    &[3, 2, 1, 0],
    &[1, 0, 3, 2],
    &[0, 2, 1, 3],
    &[2, 0, 1, 3],
    // Doubled.
    &[0, 1, 1, 2, 3],
    // Not whole: without the last, the first, one between, and alone.
    &[0, 1, 2],
    &[1, 2, 3],
    &[0, 1, 3],
    &[0],
    &[2],
];

fn all(hosts: &mut Hosts<'_>) -> Result<(), String> {
    let (inside, remote) = ((A, 42_000), (X, 5_000));
    let first = only(hosts.udp(Inside, inside, remote, b"whole")?)?;
    let outside: End = ends(&first)?.0;
    for piece in [1_480, 64] {
        for order in ORDERS {
            let payload = data(3 * piece + 33 - 8);
            let frame = hosts.udp_frame(Inside, inside, remote, &payload, &MAY_FRAGMENT);
            let parts = fragments(&frame, piece);
            let chosen = order.iter().filter_map(|place| parts.get(*place));
            hosts.raw_all(Inside, chosen.cloned().collect())?;
            let frame = hosts.udp_frame(Outside, remote, outside, &payload, &MAY_FRAGMENT);
            let parts = fragments(&frame, piece);
            let chosen = order.iter().filter_map(|place| parts.get(*place));
            hosts.raw_all(Outside, chosen.cloned().collect())?;
        }
    }
    // The session begins with a fragment, of hosts that have one port.
    for host in [A, B] {
        let frame = hosts.udp_frame(Inside, (host, 42_001), remote, &data(3_000), &MAY_FRAGMENT);
        hosts.raw_all(Inside, fragments(&frame, 1_480))?;
    }
    // Queries and segments.
    let frame = hosts.icmp_frame(
        Inside,
        (A, X),
        (8, 0),
        [0, 9, 0, 1],
        &data(2_000),
        &MAY_FRAGMENT,
    );
    hosts.raw_all(Inside, fragments(&frame, 1_480))?;
    let frame = hosts.icmp_frame(
        Outside,
        (X, OUTSIDE),
        (0, 0),
        [0, 9, 0, 1],
        &data(2_000),
        &MAY_FRAGMENT,
    );
    hosts.raw_all(Outside, fragments(&frame, 800))?;
    let talk = hosts.connect((A, 45_000), (X, 80))?;
    let seg = Seg {
        flags: ACK,
        sequence: talk.ours,
        acknowledgement: talk.theirs,
    };
    let frame = hosts.tcp_frame(
        Inside,
        talk.inside,
        talk.remote,
        seg,
        &data(2_000),
        &MAY_FRAGMENT,
    );
    hosts.raw_all(Inside, fragments(&frame, 1_024))?;
    Ok(())
}
