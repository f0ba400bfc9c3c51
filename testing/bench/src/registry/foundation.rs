//! "Foundation": the core, and the same on real networks.

use super::Bar::{AtLeast, AtMost, Exactly};
use super::Group::{Constellation, Foundation, Networks};
use super::{Anchor, Row, measured, published, row};

const PAPER: &str = "the Constellation paper, its evaluation section";

const NAT_PEERS: &[Anchor] = &[
    measured(
        "VPP nat44-ed",
        "82 / 134 / 256 ns at 10 k / 100 k / 1 M flows",
    ),
    measured("BESS NAT", "32 / 38 / 100 ns"),
    measured("Maestro/Vigor NAT", "75 / 126 / 277 ns"),
    measured("FastClick IPRewriter", "121 / 249 / 1176 ns"),
    measured("Linux nftables masquerade", "421 / 603 / 1144 ns"),
];

pub(super) const CORE: &[Row] = &[
    row(Foundation, "pass-through.noop", "ns per packet", AtMost(15.0), "a function that does nothing, between memory ports").anchors(&[
        measured("BESS", "5 ns"),
        measured("FastClick", "17 ns"),
        measured("S6", "20 ns"),
        measured("VPP", "12–19 ns"),
    ]),
    row(
        Foundation,
        "pass-through.read-write",
        "ns per packet",
        AtMost(2.0),
        "ns added by a read and a write of a shared replicated counter on every packet",
    )
    .also(&[("instructions", AtMost(12.0))])
    .anchors(&[
        published("Constellation", "0.9 ns (9.28 → 9.20 Mpps)", PAPER),
        published("S6", "557 ns", "the S6 paper's shared counters, as the Constellation paper compares them"),
    ]),
    row(
        Foundation,
        "nat.instructions",
        "instructions per packet",
        AtMost(250.0),
        "per packet of an established flow, 1 k flows, parse and checksums included",
    ),
    row(
        Foundation,
        "nat.replicated-instructions",
        "instructions per packet",
        AtMost(5.0),
        "added per packet of a known flow by `replicated` over `local`, the worse of a delay of 0 and of 100 ms",
    )
    .anchors(&[measured("VPP NAT HA", "0 ns per packet of a known flow")]),
    row(
        Foundation,
        "parking.cost",
        "ns per packet",
        AtMost(5.0),
        "ns that 992 parked packets (a thousand less what lets a burst be read) add to each other packet, which come one in a turn or in bursts (worse); all leave when their answers come",
    ),
    row(
        Foundation,
        "parking.update",
        "ns per group",
        AtMost(50.0),
        "ns that they add to each group of another member that none of them waits for",
    ),
    row(Foundation, "nat.10k", "ns per packet", AtMost(41.0), "established flows, `replicated`, 10 k flows").anchors(NAT_PEERS),
    row(Foundation, "nat.100k", "ns per packet", AtMost(67.0), "established flows, `replicated`, 100 k flows").anchors(NAT_PEERS),
    row(Foundation, "nat.1m", "ns per packet", AtMost(128.0), "established flows, `replicated`, 1 M flows").anchors(NAT_PEERS),
    row(
        Foundation,
        "nat.over-floor",
        "ratio",
        AtMost(1.6),
        "worst ratio over the three sizes to a hand-written loop that does the same work, in the same run",
    )
    .anchors(&[measured("hand-written floor, one-way UDP", "22 / 28 / 64 ns, to be met within 1.15 by `floor.one-way`")]),
    row(
        Foundation,
        "nat.churn",
        "ratio",
        AtLeast(0.95),
        "packets a second over `local` with 1 new flow per 1,000 packets at each of 3 members, receiving included",
    )
    .anchors(&[published("Constellation", "0.96–0.98 at 2,000 flows/s", PAPER)]),
    row(
        Foundation,
        "nat.allocations",
        "allocations",
        Exactly(0.0),
        "heap allocations of all packet-path threads over ≥ 10 M packets with 2,000 new flows/s, expiry, table growth and replication on",
    )
    .anchors(&[measured("malloc + free of 64 bytes", "10.9 ns")]),
    row(
        Foundation,
        "replication.bytes-per-binding",
        "bytes",
        AtMost(26.0),
        "Ethernet bytes at MTU 1500 per NAT binding, random endpoints, TCP, headers and tag included; the receiver rebuilds all; acknowledgements in `variants`",
    )
    .anchors(&[measured("VPP NAT HA", "44 bytes")]),
    row(Foundation, "replication.new-flow-sender", "ns per new flow", AtMost(300.0), "ns of all host threads of the sender added per new NAT flow")
        .anchors(&[measured("VPP NAT HA", "293 ns"), measured("conntrackd", "3,200 ns")]),
    row(Foundation, "replication.new-flow-receiver", "ns per new flow", AtMost(600.0), "ns of all host threads of the receiver added per new NAT flow")
        .anchors(&[measured("VPP NAT HA", "606 ns"), measured("conntrackd", "1,550 ns")]),
    row(
        Foundation,
        "replication.inserts",
        "inserts per on-CPU second",
        AtLeast(3_000_000.0),
        "distinct inserts (16-byte key, 8-byte value), sealed, ordered, per on-CPU second of the sender; three receivers verified",
    )
    .anchors(&[measured("HAProxy peers", "0.37 M"), measured("conntrackd", "0.2 M")]),
    row(
        Foundation,
        "counters.both-sides",
        "Mpps per on-CPU second",
        AtLeast(10.0),
        "the slower of two instances that both add to the same 10 k counters on every packet; sums exact at quiescence",
    )
    .anchors(&[measured("S6", "0.36–0.8 Mpps")]),
    row(Foundation, "counters.lag", "ms", AtMost(1.0), "median from a write to its being visible in the other instance")
        .anchors(&[measured("HAProxy peers", "0.042 ms")]),
    row(
        Foundation,
        "sim.seeds",
        "seeds",
        AtLeast(10_000.0),
        "seeds passed, each ≥ 50 effective faults of ≥ 4 kinds and ≥ 500 operations a member; two runs of a seed, one trace hash; every branch counted ≥ 100 times over all",
    )
    .anchors(&[published("openraft, TigerBeetle", "seeded simulation of a whole cluster", "their repositories")])
    .later(Constellation, "with join, leave, death, eviction, return, upgrade and sites; 1,000,000 seeds once"),
    row(
        Foundation,
        "sim.mutants",
        "mutants",
        Exactly(0.0),
        "planted bugs that survived, each named after the field complaint it stands for; median seeds to kill in `variants`",
    )
    .also(&[("planted", AtLeast(10.0))])
    .later(Constellation, "≥ 30 planted, median ≤ 200 seeds to kill"),
];

/// Where throughput's anchors are from.
const ONE_STREAM: &str = "measured by us beside the design: one iperf3 stream by the clock, on a 2-core 3.0 GHz virtual machine";

pub(super) const NETWORKS: &[Row] = &[
    row(
        Networks,
        "lab.asymmetric-tcp",
        "%",
        Exactly(100.0),
        "of 200 downloads of 1 MiB (100 at once) complete with the right hash over asymmetric paths; delays 5 and 50 ms; added SYN-ACK delay in `variants`",
    )
    .anchors(&[published("Constellation", "losses were retried", "the Constellation paper, §5.2")]),
    row(Networks, "lab.throughput", "Gb/s", AtLeast(20.0), "one iperf3 stream (cubic) through a NAT on AF_PACKET by the clock, offloads on; off in `variants`")
        .also(&[("offloads-off", AtLeast(4.0))])
        .anchors(&[
            Anchor { whose: "plain forwarder", figure: "36 / 6.5 Gb/s, offloads on / off", from: ONE_STREAM },
            Anchor { whose: "nftables", figure: "44 Gb/s, offloads on", from: ONE_STREAM },
        ]),
    row(
        Networks,
        "nat.oracle",
        "differences",
        Exactly(0.0),
        "differences to Linux, beyond the choice of port, that no documented rule (≤ 5, each citing an RFC clause) explains",
    )
    .anchors(&[published("Linux 6.18", "the oracle itself", "nftables masquerade of the running kernel")]),
    row(
        Networks,
        "ports.conformance",
        "share",
        Exactly(1.0),
        "share of port tests passed, over all port kinds (burst, short frame, checksum offload, 64 KiB, link down, close and reopen)",
    ),
    row(
        Networks,
        "replication.multicast-cost",
        "ns per operation",
        AtMost(250.0),
        "ns per 200-byte operation sent to three hosts by multicast with segmentation; one frame per update on the bridge, counted",
    )
    .anchors(&[measured("the platform", "208 ns with segmentation, 6,300 ns without")]),
];
