//! What the papers and other programs show that no table asks for.

use super::Bar::{AtLeast, AtMost, Reported};
use super::Group::Beside;
use super::{Row, published, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Beside,
        "nat.stations",
        "ratio",
        AtMost(2.0),
        "a packet whose next hop was learnt by ARP over one whose next hop is configured, 10 k flows, the worse of a router on each side and of 1,000 hosts on the link",
    ),
    row(
        Beside,
        "paper.coalescing",
        "ratio",
        Reported,
        "bytes without coalescing over bytes with it, of a count-min sketch and of a counting Bloom filter by themselves over real captures, the worst",
    )
    .anchors(&[published(
        "Constellation",
        "both sketches over a backbone trace (MAWI, February 2020); no figure stands in its text",
        "the Constellation paper, §6.5",
    )]),
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
        "paper.figure-5",
        "ratio",
        AtLeast(0.95),
        "throughput of two NATs with a delay of 5 to 100 ms on the state channel over that of a local network, the worst delay",
    )
    .anchors(&[
        published(
            "Constellation",
            "0.97–0.98 of its local network's throughput, 0.95–0.98 of Sharded's",
            "the Constellation paper, §6.3, fig. 5",
        ),
        published("S6", "6 to 32 times slower from 5 to 100 ms", "the Constellation paper, fig. 5"),
    ]),
    row(
        Beside,
        "paper.figure-6",
        "µs",
        Reported,
        "99 % latency of the first of two NATs over that of one without shared state, at 0.9 of what that one takes; average and ten more loads in `variants`",
    )
    .anchors(&[
        published(
            "Constellation",
            "average up to 209 µs, 99 % up to 451 µs near saturation, as Sharded (539 µs)",
            "the Constellation paper, §6.3, fig. 6",
        ),
        published("S6", "average up to 500 µs, 99 % up to 2.1 ms", "the Constellation paper, §6.3, fig. 6"),
    ]),
    row(
        Beside,
        "paper.table-3",
        "ratio",
        Reported,
        "throughput of a pass-through that reads and writes a counter for each packet over one that does neither; other columns in `variants`",
    )
    .anchors(&[
        published(
            "Constellation",
            "0.991 (9.20 of 9.28 Mpps: 0.94 ns more a packet; toolkit 10.00, read 9.26, write 9.20)",
            "the Constellation paper, table 3",
        ),
        published(
            "S6",
            "0.232 (1.38 of 5.96 Mpps: 557 ns more a packet; toolkit 11.80, read 2.52, write 2.08)",
            "the Constellation paper, table 3",
        ),
    ])
    .also(&[("read-write-added-ns", AtMost(0.94))]),
    row(
        Beside,
        "paper.table-4",
        "µs",
        AtMost(12.0),
        "average latency of a NAT among 3 over that of one without shared state, at a million packets and 2,000 new flows a second",
    )
    .anchors(&[
        published(
            "Constellation",
            "12 more than Sharded (31, 44, 46 with 1 to 3 instances; Sharded 31, 32, 34)",
            "the Constellation paper, table 4, §6.3",
        ),
        published("S6", "21, 25, 26 with 1 to 3 instances", "the Constellation paper, table 4"),
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
