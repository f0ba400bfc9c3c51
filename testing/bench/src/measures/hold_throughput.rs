//! `hold.throughput`: what it costs a NAT that packets wait until another host has the flow that they opened.
//!
//! Two clusters of two whole hosts get the same packets: one holds packets, one sends them at once. The first host takes the packets; the
//! other applies the first one's flows and acknowledges them. Between the two is a link with a delay, in virtual time: packets take
//! as long there as they take on the processor, so as many are held as would be with such a link. Time is on-CPU time of the first
//! host's packet loop; the state channel's stands beside it.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{HoldSettings, Overdue};
use asterism_functions::nat::Nat;
use asterism_io::frame::BURST;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::ring::RingWriter;
use asterism_state::ObjectSettings;

use super::nat_bench::{Placed, nat, settings};
use super::nat_churn::Source;
use super::replication_hosts::{Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{Spread, Stopwatch};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "hold.throughput",
    make: throughput,
}];

/// More than all tables here come to hold.
const MEMORY_BYTES: usize = 1 << 28;
/// Members of each cluster.
const MEMBERS: usize = 2;
/// The link's delay one way, by the name of the round trip.
const DELAYS: [(&str, Duration); 2] = [
    ("100us", Duration::from_micros(50)),
    ("1ms", Duration::from_micros(500)),
];
/// Set-ups, each with memory of its own: where tables happen to lie is worth up to a tenth, the same for all pairs of one.
const SET_UPS: u64 = 5;
/// Rounds before those that count.
const WARM_ROUNDS: usize = 3;
/// Flows that are known before.
const KNOWN: usize = 10_000;
/// Of them are opened every 100 µs: few enough to be held together for a round trip.
const OPENED_AT_ONCE: usize = 8;
/// Packets between two looks at the link, the last but some of which opens a flow, and what they take at about thirty nanoseconds each.
const SLICE: usize = 1_000;
const SLICE_TIME: Duration = Duration::from_micros(31);
/// Slices of a window: some ten milliseconds. Each opens one flow.
const SLICES: usize = 256;
/// In so long the change of every flow is confirmed: packets of others take a longer path.
const SWEPT: Duration = Duration::from_millis(1_500);
/// Pairs before that, of flows that are all younger.
const YOUNG_PAIRS: usize = 3;
/// Hosts must agree within so many steps of 100 µs.
const SETTLE_STEPS: usize = 100_000;

/// How the one that holds does so: bounds that nothing here comes to.
fn hold() -> HoldSettings {
    HoldSettings {
        copies: 1,
        packets_max: 256,
        bytes_max: 1 << 20,
        age_max: Duration::from_millis(100),
        overdue: Overdue::Drop,
        exempt: Vec::new(),
    }
}

/// A cluster whose first member takes packets.
struct Subject {
    hosts: Hosts<Nat>,
    network: Network,
    source: Source,
    feed: RingWriter,
}

/// What a window of a subject gave; ns per packet.
struct Window {
    packet_ns: f64,
    channel_ns: f64,
}

impl Subject {
    fn new(holds: bool, delay: Duration, flows: usize, seed: u64) -> Result<Self, Failure> {
        let (ports, feed) = fed_ports();
        let (others, _) = fed_ports();
        let starts = [ports, others].map(|ports| Start {
            function: Arc::new(nat(flows as u32, MEMBERS as u32)),
            ports,
        });
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(delay));
        let placed = settings(Placed::Replicated(delay));
        let hosts = Hosts::through(
            &mut network,
            starts.into(),
            |config| config.hold = holds.then(hold),
            move |object| ObjectSettings {
                holds_output: holds,
                ..placed(object)
            },
        )?;
        let mut subject = Self {
            hosts,
            network,
            source: Source::new(seed, flows),
            feed,
        };
        for _ in 0..KNOWN / OPENED_AT_ONCE {
            subject.source.open(OPENED_AT_ONCE, &mut subject.feed)?;
            subject.step();
        }
        subject.settle()?;
        Ok(subject)
    }

    /// Lets 100 µs pass.
    fn step(&mut self) {
        self.hosts.now = self.hosts.now + Duration::from_micros(100);
        for member in &mut self.hosts.members {
            member.pass(self.hosts.now, usize::MAX);
        }
        self.hosts.deliver_through(&mut self.network);
    }

    fn rest(&mut self, time: Duration) {
        let until = self.hosts.now + time;
        while self.hosts.now < until {
            self.step();
        }
    }

    /// Lets time pass until both have the same, and nothing is held.
    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..SETTLE_STEPS {
            self.step();
            let members = &self.hosts.members;
            let is_quiet = members
                .iter()
                .all(|host| host.mail.channel().is_quiet() && !host.has_work());
            if is_quiet && members[0].instance.held() == 0 && self.network.in_flight() == 0 {
                return Ok(());
            }
        }
        Err(Failure::Unsound("two hosts did not come to agree".into()))
    }

    fn window(
        &mut self,
        packets: &mut Stopwatch,
        channel: &mut Stopwatch,
    ) -> Result<Window, Failure> {
        for _ in 0..SLICES {
            let Self {
                hosts,
                network,
                source,
                feed,
            } = self;
            source.pass(SLICE, SLICE, feed)?;
            hosts.now = hosts.now + SLICE_TIME;
            let now = hosts.now;
            hosts.receive_through(network);
            hosts.members[1].pass(now, usize::MAX);
            let first = &mut hosts.members[0];
            channel.window(|| first.mail.pass(now, usize::MAX));
            packets.window(|| {
                for _ in 0..SLICE / BURST + 1 {
                    first.instance.turn(now);
                }
            });
            channel.window(|| first.mail.pass(now, usize::MAX));
            hosts.send_through(network);
        }
        let count = (SLICES * SLICE) as f64;
        Ok(Window {
            packet_ns: packets.take_cpu_ns() as f64 / count,
            channel_ns: channel.take_cpu_ns() as f64 / count,
        })
    }

    /// That nothing was lost, and that both know all flows; packets that were held, and the most at a time.
    fn check(&mut self) -> Result<(u64, usize), Failure> {
        self.settle()?;
        self.hosts.check()?;
        let known = self.hosts.members[1].instance.state().sessions.len_now();
        let opened = self.source.opened;
        if known != opened {
            return Err(Failure::Unsound(format!(
                "{opened} flows were opened, the other host knows {known}"
            )));
        }
        let tally = self.hosts.members[0].instance.tally();
        Ok((tally.held, tally.held_most))
    }
}

/// What all set-ups gave with one delay.
#[derive(Default)]
struct Found {
    ratios: Vec<f64>,
    /// Where all flows were opened within the last tenth of a second.
    young: Vec<f64>,
    with_state_channel: Vec<f64>,
    at_once_ns: Vec<f64>,
    held_ns: Vec<f64>,
    held: u64,
    held_most: usize,
    opened: usize,
    watches: [Stopwatch; 2],
}

impl Found {
    /// Pairs of one set-up; its clusters are handed back.
    fn measure(
        &mut self,
        delay: Duration,
        pairs: usize,
        seed: u64,
    ) -> Result<[Subject; 2], Failure> {
        let rounds = YOUNG_PAIRS + WARM_ROUNDS + pairs;
        let flows = KNOWN + rounds * SLICES + 16;
        let mut at_once = Subject::new(false, delay, flows, seed)?;
        let mut holds = Subject::new(true, delay, flows, seed)?;
        let [packets, channel] = &mut self.watches;
        for round in 0..rounds {
            if round == YOUNG_PAIRS {
                at_once.rest(SWEPT);
                holds.rest(SWEPT);
            }
            let (one, other) = if round % 2 == 0 {
                let one = at_once.window(packets, channel)?;
                (one, holds.window(packets, channel)?)
            } else {
                let other = holds.window(packets, channel)?;
                (at_once.window(packets, channel)?, other)
            };
            if round < YOUNG_PAIRS {
                self.young.push(one.packet_ns / other.packet_ns);
            } else if round >= YOUNG_PAIRS + WARM_ROUNDS {
                self.ratios.push(one.packet_ns / other.packet_ns);
                self.with_state_channel
                    .push((one.packet_ns + one.channel_ns) / (other.packet_ns + other.channel_ns));
                self.at_once_ns.push(one.packet_ns);
                self.held_ns.push(other.packet_ns);
            }
        }
        at_once.check()?;
        let (held, most) = holds.check()?;
        if held < holds.source.opened as u64 {
            return Err(Failure::Unsound(format!(
                "{held} packets were held and {} flows opened",
                holds.source.opened
            )));
        }
        self.held += held;
        self.held_most = self.held_most.max(most);
        self.opened += holds.source.opened;
        Ok([at_once, holds])
    }
}

fn throughput(context: &Context) -> Result<Outcome, Failure> {
    let pairs = if context.full { 41 } else { 9 };
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    let mut outcome = Outcome::default();
    let mut worst = f64::INFINITY;
    for (name, delay) in DELAYS {
        let mut found = Found::default();
        // Kept until the end, or the next one would lie where the one before lay.
        let mut set_ups = Vec::new();
        for set_up in 0..SET_UPS {
            context.say(&format!(
                "round trip of {name}, {} of {SET_UPS}",
                set_up + 1
            ));
            set_ups.push(found.measure(delay, pairs, context.seed + set_up * 1_000)?);
        }
        let spread = Spread::of(&found.ratios);
        if spread.median < worst {
            worst = spread.median;
            outcome = outcome
                .with_value(spread.median, spread.runs)
                .quartiles(spread.first_quartile, spread.third_quartile);
        }
        let median = |all: &[f64]| Spread::of(all).median;
        outcome = outcome
            .variant(name, spread.median)
            .variant(format!("{name}-young-flows"), median(&found.young))
            .variant(
                format!("{name}-with-state-channel"),
                median(&found.with_state_channel),
            )
            .variant(format!("{name}-at-once-ns"), median(&found.at_once_ns))
            .variant(format!("{name}-held-ns"), median(&found.held_ns))
            .variant(format!("{name}-held-most"), found.held_most as f64)
            .variant(
                format!("{name}-held-per-new-flow"),
                found.held as f64 / found.opened as f64,
            )
            .samples(name, found.ratios)
            .lost(found.watches[0].lost());
    }
    Ok(outcome)
}
