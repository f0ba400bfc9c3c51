//! `replication.bytes-per-binding`, `replication.new-flow-sender`, `replication.new-flow-receiver`: what a new flow of
//! the NAT costs the host that opens it, the host that hears of it, and the link between them.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_functions::nat::Nat;
use asterism_io::frame::FramePool;
use asterism_io::ring::RingWriter;
use asterism_state::ObjectSettings;

use super::nat_bench::nat;
use super::replication_hosts::{Hosts, Sent, Start, fed_ports, feed, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{LostTime, Spread, Stopwatch};
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Protocol, Random, SmallFrame, flows};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "replication.bytes-per-binding",
        make: bytes_per_binding,
    },
    Measure {
        name: "replication.new-flow-sender",
        make: |context| new_flow(context, Side::Sender),
    },
    Measure {
        name: "replication.new-flow-receiver",
        make: |context| new_flow(context, Side::Receiver),
    },
];

/// New flows of a pass of the sender's loop: one burst.
const FLOWS_PER_PASS: usize = 32;
/// Passes of a window, between two deliveries.
const PASSES: usize = 16;
/// Virtual microseconds of a pass: a million new flows a second.
const PASS_US: u64 = 32;
/// Windows of a round.
const WINDOWS: usize = 64;
/// New flows of a round.
const FLOWS_PER_ROUND: usize = FLOWS_PER_PASS * PASSES * WINDOWS;
/// Datagrams that the receiver takes in a pass: about what a million new flows a second send in one of its passes.
const DATAGRAMS_PER_PASS: usize = 4;
/// Bytes of a NAT's tables for a flow, generously.
const TABLE_BYTES_PER_FLOW: usize = 320;
/// How long a group may wait for others to fill its datagram.
const LOOKAHEAD: Duration = Duration::from_micros(200);

/// SYNs between random endpoints, no inside endpoint twice.
struct Opening {
    inside: std::vec::IntoIter<flows::Session>,
    random: Random,
}

impl Opening {
    fn new(count: usize, seed: u64) -> Self {
        let flows = Flows::of(Protocol::Tcp, count as u32, seed);
        Self {
            inside: flows.sessions().to_vec().into_iter(),
            random: Random::new(seed ^ 0x0FE4),
        }
    }

    fn next(&mut self) -> Result<SmallFrame, Failure> {
        let session = self
            .inside
            .next()
            .ok_or_else(|| Failure::Unsound("flows ran out".into()))?;
        let remote = flows::Endpoint {
            // 32.0.0.0/3: neither link of the NAT.
            address: 0x2000_0000 | self.random.below(1 << 29) as u32,
            port: 1 + self.random.below(65_535) as u16,
        };
        Ok(syn(frame_between(Protocol::Tcp, session.inside, remote)))
    }
}

/// A segment with ACK becomes one with SYN.
fn syn(mut frame: SmallFrame) -> SmallFrame {
    const FLAGS: usize = 14 + 20 + 13;
    const CHECKSUM: usize = 14 + 20 + 16;
    const ACK: u8 = 0x10;
    const SYN: u8 = 0x02;
    debug_assert_eq!(frame[FLAGS], ACK);
    frame[FLAGS] = SYN;
    // The sum falls by the difference, so its complement rises by it (RFC 1624).
    let checksum = u16::from_be_bytes([frame[CHECKSUM], frame[CHECKSUM + 1]]);
    let (sum, carried) = checksum.overflowing_add(u16::from(ACK - SYN));
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(sum + u16::from(carried)).to_be_bytes());
    frame
}

/// A NAT by itself, one that tells another, and that other one.
struct NewFlows {
    alone: Instance<Nat>,
    feed_alone: RingWriter,
    hosts: Hosts<Nat>,
    feed_hosts: RingWriter,
    opening: Opening,
    opened: usize,
}

/// What a round took, in ns per new flow.
#[derive(Clone, Copy)]
struct Round {
    local: f64,
    sender: f64,
    receiver: f64,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

impl NewFlows {
    fn new(rounds: usize, lookahead: Duration, seed: u64) -> Result<Self, Failure> {
        let flows = rounds * FLOWS_PER_ROUND;
        provide_memory(3 * flows * TABLE_BYTES_PER_FLOW);
        // Twice as many, since all are of TCP and all of one member.
        let function = Arc::new(nat(2 * flows as u32, 2));
        let (ports_alone, feed_alone) = fed_ports();
        let (ports_sender, feed_hosts) = fed_ports();
        let (ports_receiver, _) = fed_ports();
        let pool = FramePool::new(512).expect("memory for frames");
        let alone = InstanceParts::alone(seed).start(
            function.clone(),
            |_| ObjectSettings::LOCAL,
            pool,
            ports_alone,
        );
        let hosts = Hosts::new(
            vec![
                Start {
                    function: function.clone(),
                    ports: ports_sender,
                },
                Start {
                    function,
                    ports: ports_receiver,
                },
            ],
            |config| config.replica.lookahead = lookahead,
            |object| {
                if object == "errors" {
                    ObjectSettings::LOCAL
                } else {
                    ObjectSettings::REPLICATED
                }
            },
        )?;
        Ok(Self {
            alone,
            feed_alone,
            hosts,
            feed_hosts,
            opening: Opening::new(flows, seed),
            opened: 0,
        })
    }

    /// Opens [`FLOWS_PER_ROUND`] flows at both NATs, and waits until the second host has them and has said so.
    fn round(&mut self, local_first: bool, watches: &mut [Stopwatch; 3]) -> Result<Round, Failure> {
        let [local, sender, receiver] = watches;
        for _ in 0..WINDOWS {
            for _ in 0..PASSES * FLOWS_PER_PASS {
                let frame = self.opening.next()?;
                feed(&mut self.feed_alone, &frame)?;
                feed(&mut self.feed_hosts, &frame)?;
            }
            self.feed_alone.publish();
            self.feed_hosts.publish();
            let begin = self.hosts.now;
            let pass = |number: usize| begin + Duration::from_micros(PASS_US * (number as u64 + 1));
            for turn in [local_first, !local_first] {
                if turn {
                    let alone = &mut self.alone;
                    local.window(|| {
                        for number in 0..PASSES {
                            alone.turn(pass(number));
                        }
                    });
                } else {
                    let host = &mut self.hosts.members[SENDER];
                    sender.window(|| {
                        (0..PASSES).for_each(|number| host.pass(pass(number), usize::MAX))
                    });
                }
            }
            self.hosts.now = pass(PASSES - 1);
            self.deliver_to_receiver(receiver);
        }
        // What waits for company goes, and is acknowledged.
        for _ in 0..8 {
            self.hosts.now = self.hosts.now + Duration::from_micros(250);
            let now = self.hosts.now;
            let host = &mut self.hosts.members[SENDER];
            sender.window(|| host.pass(now, usize::MAX));
            let alone = &mut self.alone;
            local.window(|| alone.turn(now));
            self.deliver_to_receiver(receiver);
        }
        self.opened += FLOWS_PER_ROUND;
        let per_flow = |watch: &mut Stopwatch| watch.take_cpu_ns() as f64 / FLOWS_PER_ROUND as f64;
        Ok(Round {
            local: per_flow(local),
            sender: per_flow(sender),
            receiver: per_flow(receiver),
        })
    }

    fn deliver_to_receiver(&mut self, watch: &mut Stopwatch) {
        self.hosts.deliver();
        let now = self.hosts.now;
        let host = &mut self.hosts.members[RECEIVER];
        watch.window(|| {
            host.pass(now, DATAGRAMS_PER_PASS);
            while host.has_work() {
                host.pass(now, DATAGRAMS_PER_PASS);
            }
        });
        self.hosts.deliver();
    }

    /// That every flow is in every table, equal at both hosts, and that no packet was lost.
    fn check(&mut self) -> Result<(), Failure> {
        self.hosts.settle()?;
        self.hosts.check()?;
        let alone = self.alone.tally();
        if alone.dropped_total() > 0 || alone.received != alone.forwarded {
            return Err(Failure::Unsound("the local NAT lost packets".into()));
        }
        let members = self.hosts.members.iter().map(|member| &member.instance);
        for instance in members.chain([&self.alone]) {
            let held = instance.state().sessions.len_now();
            if held != self.opened {
                return Err(Failure::Unsound(format!(
                    "{} flows were opened, {held} are there",
                    self.opened
                )));
            }
        }
        Ok(())
    }

    fn sent(&self) -> [Sent; 2] {
        [SENDER, RECEIVER].map(|place| self.hosts.members[place].sent())
    }
}

fn bytes_per_binding(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 16 } else { 4 };
    let mut found = Vec::new();
    let mut outcome = None;
    for (lookahead, name) in [(LOOKAHEAD, ""), (Duration::ZERO, "-without-lookahead")] {
        let mut bench = NewFlows::new(rounds, lookahead, context.seed)?;
        let before = bench.sent();
        let mut watches = Default::default();
        for _ in 0..rounds {
            let [data, _] = bench.sent();
            bench.round(true, &mut watches)?;
            if name.is_empty() {
                found.push(
                    bench.sent()[SENDER].since(data).ethernet_bytes as f64 / FLOWS_PER_ROUND as f64,
                );
            }
        }
        let after = bench.sent();
        bench.check()?;
        let bindings = (rounds * FLOWS_PER_ROUND) as f64;
        let [data, acknowledgements] =
            [SENDER, RECEIVER].map(|place| after[place].since(before[place]));
        let tally = bench.hosts.members[SENDER].instance.tally();
        let so_far = outcome
            .take()
            .unwrap_or_else(|| Outcome::of(&Spread::of(&found)));
        outcome = Some(
            so_far
                .variant(
                    format!("bytes{name}"),
                    data.ethernet_bytes as f64 / bindings,
                )
                .variant(
                    format!("acknowledgements{name}"),
                    acknowledgements.ethernet_bytes as f64 / bindings,
                )
                .variant(
                    format!("bindings-per-datagram{name}"),
                    bindings / data.datagrams as f64,
                )
                .variant(
                    "operation-bytes",
                    tally.group_bytes_written as f64 / tally.groups_written as f64,
                )
                .variant("bindings", bindings),
        );
    }
    let outcome = outcome.ok_or_else(|| Failure::Unsound("nothing was sent".into()))?;
    Ok(outcome.samples("bytes", found))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Sender,
    Receiver,
}

fn new_flow(context: &Context, side: Side) -> Result<Outcome, Failure> {
    let rounds = if context.full { 61 } else { 21 };
    let mut bench = NewFlows::new(rounds + 1, LOOKAHEAD, context.seed)?;
    let mut watches: [Stopwatch; 3] = Default::default();
    bench.round(true, &mut watches)?;
    let mut found = Vec::new();
    for round in 0..rounds {
        found.push(bench.round(round % 2 == 0, &mut watches)?);
    }
    bench.check()?;
    let of = |figure: fn(&Round) -> f64| found.iter().map(figure).collect::<Vec<_>>();
    let added = of(|round| round.sender - round.local);
    let receiver = of(|round| round.receiver);
    let figures = if side == Side::Sender {
        &added
    } else {
        &receiver
    };
    let lost = watches
        .iter()
        .map(Stopwatch::lost)
        .fold(LostTime::default(), LostTime::and);
    Ok(Outcome::of(&Spread::of(figures))
        .variant("local", Spread::of(&of(|round| round.local)).median)
        .variant("replicated", Spread::of(&of(|round| round.sender)).median)
        .variant("sender-added", Spread::of(&added).median)
        .variant("receiver", Spread::of(&receiver).median)
        .variant("flows", (rounds * FLOWS_PER_ROUND) as f64)
        .samples("added", added)
        .samples("receiver", receiver)
        .lost(lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::frames::checksums_are_right;

    #[test]
    fn opening_packets_are_whole() {
        let mut opening = Opening::new(1_000, 3);
        for _ in 0..1_000 {
            let frame = opening.next().expect("there are as many");
            assert!(checksums_are_right(&frame));
            assert_eq!(frame[47], 0x02);
        }
        assert!(opening.next().is_err());
    }
}
