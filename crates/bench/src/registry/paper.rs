//! What the papers and other programs show that no table asks for.

use super::Bar::{AtLeast, Reported};
use super::Group::Beside;
use super::{Row, published, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Beside,
        "paper.figure-4",
        "ratio",
        AtLeast(0.95),
        "throughput of an instance among 3 over that of one with local state, the worse of NAT and IDPS; 2, 8 and 16 members in `variants`",
    )
    .anchors(&[
        published("Constellation, NAT", "0.96–0.98 with 1 to 3 instances", "the Constellation paper, fig. 4"),
        published("Constellation, IDPS", "0.95–0.99 with 1 to 3 instances", "the Constellation paper, fig. 4"),
        published("S6, NAT", "0.79 and better with 1 to 3 instances", "the Constellation paper, §6.3"),
    ]),
    row(
        Beside,
        "paper.lines",
        "lines",
        Reported,
        "the NAT's path of known and new sessions in lines neither blank nor comment, without tests; whole functions in `variants`",
    )
    .anchors(&[
        published("Constellation, NAT", "361 lines", "the Constellation paper, §6.7"),
        published("S6, NAT", "283 lines", "the Constellation paper, §6.7"),
    ]),
    row(
        Beside,
        "peers.redis",
        "ratio",
        Reported,
        "counts of packets by source per on-CPU second, ours over `INCR` in Redis with 512 commands at once; one at a time in `variants`",
    )
    .also(&[("one-at-a-time", AtLeast(10.0))]),
];
