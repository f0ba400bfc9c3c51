//! "Orchestrator": membership, elasticity and steering.

use super::Bar::{AtMost, Exactly};
use super::Group::Orchestrator;
use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Orchestrator,
        "lab.up",
        "s",
        AtMost(5.0),
        "wall time from `asterism up` to the first translated packet, three hosts behind the director, worst of five runs",
    ),
    row(
        Orchestrator,
        "lab.failover",
        "ms",
        AtMost(500.0),
        "worst of 10 kills (`--full`: 99 % of 50), detection and takeover by the orchestrator, all downloads complete",
    ),
    row(
        Orchestrator,
        "lab.false-alarm",
        "hosts and packets",
        Exactly(0.0),
        "hosts left out by an epoch, and packets lost, over ten pauses of 300 ms and a minute in which every link of the state channel and of the heartbeats loses 5 %",
    ),
    row(
        Orchestrator,
        "lab.scale",
        "packets",
        Exactly(0.0),
        "packets lost after the director over 1 → 3 → 1 under load; a generator that drops voids the run",
    ),
    row(
        Orchestrator,
        "lab.launch",
        "s",
        AtMost(2.0),
        "from decision to first packet of a new instance",
    ),
    row(
        Orchestrator,
        "lab.hotspot",
        "ratio",
        AtMost(1.2),
        "99 % of round trips after rebalancing over an even spread: two hosts behind slow links, one with four fifths of the flows",
    ),
    row(
        Orchestrator,
        "lab.headless",
        "packets and instances",
        Exactly(0.0),
        "packets lost and instances restarted needlessly while orchestrator and etcd are down for a minute",
    ),
    row(
        Orchestrator,
        "steering.conformance",
        "share",
        Exactly(1.0),
        "worst over the drivers (routes, Open vSwitch, director) of laws kept, each law on a driver of its own",
    ),
    row(
        Orchestrator,
        "director.cost",
        "ns",
        AtMost(40.0),
        "on-CPU per packet that the built-in director adds to a loop that sends back what it receives: 1 M flows, 64-byte packets, three hosts",
    ),
    row(
        Orchestrator,
        "sim.orchestrator",
        "seeds",
        Exactly(0.0),
        "seeds failed, with flapping hosts, paused leaders, a stale store and partitions; planted bugs of the controller are part of sim.mutants",
    ),
    row(
        Orchestrator,
        "api.intruder",
        "accesses",
        Exactly(0.0),
        "accesses that succeeded, of ≥ 4 cases for every route in the OpenAPI document",
    ),
];
