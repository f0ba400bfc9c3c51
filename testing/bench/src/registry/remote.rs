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
        "packets a second of a NAT whose sessions are in Redis, known flows, one instance, 448 packets under way: reads batched, over each read a command and a write of its own; `over-pipelined`: over single commands that are written together; `over-one-at-a-time`: over one packet under way",
    )
    .anchors(&[published("StatelessNF", "12", "the StatelessNF paper, section 4.4.3")]),
    row(
        Remote,
        "remote.ceiling",
        "ratio",
        AtLeast(0.9),
        "keys that Redis answers in a second of its core's time to that NAT, over those of its own benchmark tool with the same commands: as many keys by an MGET as the NAT's at the median, keys and values as long and all there, as many commands under way; no writes on either side",
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
        "packets per on-CPU second of the packet loop, flows of 1,000 packets each, their opening included, in Redis with a cache and a filter, over the same in the instance's own memory: the lowest of NAT, firewall and balancer; `…-remote`: without a cache",
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
        "that Redis counts for each TCP connection of a NAT and its end, with a cache, a mean over flows of which 448 are under way at a time and whose entries end together; `tcp-together-begin`: from its SYN to its last ACK; `tcp-together-end`: for the ends of its entries; `tcp-alone`: each begins and ends by itself; `udp-…`: a question and its answer",
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
        "flows of a balancer in Redis whose idle time is over, ended by one client; `twice-or-never`: flows that were not ended once, through kills of those who end them (eight, 20 in the long form, all of which must happen)",
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
