//! Held output (`release = "acked"`), for which packets wait until other hosts have what they depend on, and other placements than replicas.

use super::Bar::{AtLeast, AtMost, Exactly};
use super::Group::Constellation;
use super::{Row, published, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Constellation,
        "hold.kill",
        "connections",
        Exactly(0.0),
        "connections that broke, of 10,000 opened while hosts were killed at random and new ones joined, of those whose first packet was seen outside; one copy, links with loss; `at-once`: the same without held output",
    )
    .also(&[("at-once", AtLeast(50.0))])
    .anchors(&[published("Pico Replication", "output leaves after its checkpoint, 1,000 a second", "the Pico Replication paper, section 3")]),
    row(
        Constellation,
        "hold.throughput",
        "ratio",
        AtLeast(0.95),
        "throughput of a NAT that holds packets over that of one that does not, 1 new flow per 1,000 packets, one copy, on two whole hosts; the worse of the round trips in `variants`",
    )
    .anchors(&[published("Pico Replication", "0.968", "the Pico Replication paper, table 4")]),
    row(
        Constellation,
        "hold.latency",
        "µs",
        AtMost(50.0),
        "added at 99 % to a packet that changed a flow, beyond one round trip of the state channel, one copy, load 0.5; each of two hosts has one core for its packet loop and its state channel",
    )
    .anchors(&[
        published("Pico Replication", "8,500 µs at 95 % of a transaction", "the Pico Replication paper, table 4"),
        published("FTMB", "30 µs at the median", "\"Rollback-Recovery for Middleboxes\" (SIGCOMM 2015), its abstract"),
    ]),
    row(
        Constellation,
        "placement.instructions",
        "ratio",
        AtMost(1.0),
        "instructions per packet over those recorded before packets could be held, the worst of a NAT of 1 k known flows, a pass-through that reads and writes, and a chain of four",
    ),
    row(
        Constellation,
        "placement.hostile",
        "seeds",
        Exactly(0.0),
        "functions × homes × seeds in which the output, or an object, differs from one sequential box in the order of the commits: several hosts with objects in one hostile store, with deaths and outages",
    ),
];
