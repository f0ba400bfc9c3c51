//! "Constellation, whole": membership, joins, repair and coalescing beside the foundation.

use super::Bar::{self, AtLeast, AtMost, Exactly};
use super::Group::Constellation;
use super::{Row, measured, published, row};

const PAPER: &str = "the Constellation paper, its evaluation section";

pub(super) const ROWS: &[Row] = &[
    row(
        Constellation,
        "soak.operations",
        "operations",
        AtLeast(4_000_000_000.0),
        "operations (after coalescing, times the receivers that applied them) delivered by the soak over links with loss, none lost; the long form runs as many as the bar",
    )
    .anchors(&[published("Jool", "0.39 % lost of 3.6·10⁹", "a complaint in its issue tracker")]),
    row(
        Constellation,
        "join.pause",
        "µs",
        AtMost(100.0),
        "worst on-CPU time between two bursts of the snapshotting instance, 1 M entries (20 k and 10 M in `variants`), full write load",
    )
    .anchors(&[published("Constellation", "< 1,000 µs at 20 k entries", PAPER), measured("fork", "8,700 µs per GiB")]),
    row(
        Constellation,
        "paper.figure-7",
        "ratio",
        Bar::Reported,
        "throughput of the instance whose tables another joins by, worst slice of 100 µs over the mean before, 20 k entries (1 M and 10 M, and the instance beside it, in `variants`), full write load",
    )
    .anchors(&[published("Constellation", "a disruption of less than a millisecond in fork, then unsteady for a few milliseconds at 20 k flows; 10 ms of fork unless pages are excluded", "the Constellation paper, §6.4 and figure 7")]),
    row(Constellation, "join.cold-100k", "ms", AtMost(80.0), "wall time from exec to ready with equal digest, 100 k entries, median of 9")
        .anchors(&[measured("HAProxy peers", "76 ms")]),
    row(Constellation, "join.cold-1m", "ms", AtMost(1_000.0), "wall time from exec to ready with equal digest, 1 M entries, median of 9")
        .anchors(&[measured("HAProxy peers", "76 ms at 100 k entries")]),
    row(
        Constellation,
        "replication.straggler",
        "ratio",
        AtLeast(0.95),
        "worst ratio of the others' throughput with one member stalled, or at a tenth of the bandwidth: whole hosts on emulated links, updates that they applied of each other per on-CPU second of theirs and per virtual second",
    ),
    row(
        Constellation,
        "replication.coalescing",
        "ratio",
        AtLeast(20.0),
        "bytes without over with coalescing, batched in full datagrams both, window ≤ 100 ms, link = 1/20 of the demand, Zipf counters and real captures (worst)",
    )
    .anchors(&[published("Constellation", "its coalescing figures", "the Constellation paper, §6.5")]),
    row(Constellation, "replication.repair", "ms", AtMost(1.0), "beyond two round trips, 99 %, 1 % loss").anchors(&[measured("VPP NAT HA", "2,000 ms")]),
    row(
        Constellation,
        "peers.haproxy",
        "ratio",
        AtLeast(5.0),
        "updates per on-CPU second, ours over HAProxy peers, worse side, same feeder",
    )
    .anchors(&[measured("HAProxy peers", "0.37 M/s")]),
    row(
        Constellation,
        "peers.conntrackd",
        "ratio",
        AtLeast(10.0),
        "flow events per on-CPU second, ours (new-flow packet included) over conntrackd FTFW",
    )
    .anchors(&[measured("conntrackd FTFW", "4.75 µs per event, both sides")]),
    row(
        Constellation,
        "nat.latency-added",
        "µs",
        AtMost(5.0),
        "difference of the 99 % burst service time with and without replication at 0.7 load; descheduled windows counted apart",
    )
    .anchors(&[published("Constellation", "+12 µs on average", PAPER)]),
    row(
        Constellation,
        "idps.leaked",
        "ratio",
        AtMost(1.1),
        "leaked packets over r·(d + window)/2, per instance, r = 1 Mpps, d = 5 ms",
    )
    .anchors(&[published("Constellation", "1.28", PAPER)]),
    row(Constellation, "audit.alarm", "s", AtMost(1.0), "from a planted divergence to the alarm")
        .also(&[("instructions", AtMost(2.0)), ("host-cpu-percent", AtMost(1.0))]),
    row(Constellation, "lab.kill", "%", Exactly(100.0), "of 200 downloads complete through `kill -9` of one of three hosts")
        .anchors(&[published("StatelessNF", "its failure figure", "the StatelessNF paper, fig. 4.7")]),
];
