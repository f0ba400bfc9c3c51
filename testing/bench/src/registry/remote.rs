//! "Remote state": objects in a store of the network.

use super::Bar::{AtLeast, AtMost, Exactly};
use super::Group::Remote;
use super::{Row, published, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Remote,
        "remote.batching",
        "ratio",
        AtLeast(8.0),
        "packets a second of a NAT whose sessions are in Redis, known flows, one instance: with 448 packets that wait at a time, over one",
    )
    .anchors(&[published("StatelessNF", "12", "the StatelessNF paper, section 4.4.3")]),
    row(
        Remote,
        "remote.ceiling",
        "ratio",
        AtLeast(0.9),
        "keys that Redis answers in a second of its core's time to that NAT, over those of its own benchmark tool, values of the same length, pipelined by 64",
    ),
    row(
        Remote,
        "remote.elastic",
        "ratio",
        AtLeast(0.999),
        "datagrams received over datagrams sent, through a ramp of load: two firewalls are added at its top and taken away on the way down; `dropped-as-unknown`: by firewalls that did not know their flow",
    )
    .also(&[("dropped-as-unknown", Exactly(0.0))])
    .anchors(&[published("StatelessNF", "no visible loss", "the StatelessNF paper, figure 4.8")]),
    row(
        Remote,
        "remote.failure",
        "%",
        Exactly(100.0),
        "of downloads through three firewalls complete though one is killed, 100 at once; `slowest-over-no-failure`: the slowest one over that of a run in which none dies",
    )
    .also(&[("slowest-over-no-failure", AtMost(1.1))])
    .anchors(&[published("StatelessNF", "500 of 500 downloads of 20 MB, as fast as without failure", "the StatelessNF paper, figure 4.7")]),
    row(
        Remote,
        "remote.functions",
        "ratio",
        AtLeast(0.9),
        "packets a second of known flows in Redis with a cache, over the same in the instance's own memory: the lowest of NAT, firewall and balancer",
    )
    .anchors(&[published("StatelessNF", "0.95 to 1.0", "the StatelessNF paper, figure 4.4")]),
    row(
        Remote,
        "remote.latency",
        "µs",
        AtMost(20.0),
        "added at the median to a packet of a known flow, beyond one round trip of a single read, load 0.5; `at-95`: the same at 95 %",
    )
    .also(&[("at-95", AtMost(60.0))])
    .anchors(&[published("StatelessNF", "100 µs at the median, 300 µs at 95 %", "the StatelessNF paper, figure 4.6")]),
    row(
        Remote,
        "remote.new-flow",
        "commands",
        AtMost(4.0),
        "that Redis counts for each TCP connection of a NAT, from its SYN to its last ACK, 448 under way at a time, with a cache; `alone`: one at a time; `udp`: a question and its answer",
    )
    .anchors(&[published("StatelessNF", "a read and a write at the beginning and at the end each", "the StatelessNF paper, section 4.2")]),
    row(
        Remote,
        "remote.store-death",
        "packets",
        Exactly(0.0),
        "of known flows lost when the store's primary is killed and a replica promoted, through two firewalls with a cache; `state-lost`: flows that left and are not known afterwards, with `ack = \"replica\"`",
    )
    .also(&[("state-lost", Exactly(0.0))]),
    row(
        Remote,
        "remote.timers",
        "ends/s",
        AtLeast(100_000.0),
        "flows of a balancer in Redis whose idle time is over, ended by one client; `twice-or-never`: flows that were not ended once, through kills of those who end them (eight, 20 in the long form)",
    )
    .also(&[("twice-or-never", Exactly(0.0))]),
    row(
        Remote,
        "sim.remote",
        "seeds",
        Exactly(0.0),
        "seeds failed, of hosts whose objects are in a hostile store: conflicts, lost answers, outages and deaths; planted bugs of stores are part of sim.mutants",
    ),
];
