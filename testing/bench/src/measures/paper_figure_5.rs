//! `paper.figure-5`: throughput of two NAT instances whose state channel crosses a wide area network.
//!
//! Constellation's figure 5: two instances with 2,000 new flows a second each, and a delay of 5 to 100 ms on the state channel, which
//! S6's packets wait for. Here are two whole hosts joined by links of that delay, one way, in virtual time; both take as many
//! packets, so the throughput of both is twice that of the first, whose packet loop is measured. It applies what the other sent that long ago.
//! Held against the same at a delay of a local network, and against a NAT with local state that knows its own flows
//! alone, the paper's "Sharded". Time, passes and windows are those of `paper_figure_4.rs`.
//!
//! Every cluster has run for longer than the longest round trip before it is timed, and all equally long: their tables are alike.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::Instance;
use asterism_functions::nat::Nat;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::Port;
use asterism_placement::Time;

use super::nat_bench::{Placed, nat, settings};
use super::paper_figure_4::{
    Fed, KNOWN, MEMORY_BYTES, NEW_FLOWS_PER_SECOND, PASS, PASS_TIME_MAX, PASS_TIME_MIN,
    WARM_PASSES, as_drawn, local_instance, turns,
};
use super::replication_hosts::{Host, Hosts, Start, fed_ports, provide_memory};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread, Stopwatch};
use crate::traffic::{Flows, Protocol};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "paper.figure-5",
    make: figure_5,
}];

/// Members of the clusters.
const MEMBERS: usize = 2;
/// Delays of the state channel, one way: of a local network, then of wide area networks; µs.
const DELAYS_US: [u64; 5] = [50, 5_000, 20_000, 50_000, 100_000];
/// How long all run before they are timed: longer than two round trips of the longest delay.
const WARM_UP: Duration = Duration::from_millis(500);
/// Packets of a pass meanwhile.
const WARM_UP_PASS: usize = 500;
/// Passes of a window.
const PASSES: u32 = 12;
/// How long hosts may take to agree in the end.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// Two instances and the network between them.
struct Cluster {
    hosts: Hosts<Nat>,
    network: Network,
    fed: Vec<Fed>,
    packets: u64,
    packet_thread: Stopwatch,
    channel_thread: Stopwatch,
}

impl Cluster {
    fn new(delay: Duration, flows: usize, seed: u64) -> Result<Self, Failure> {
        let function = Arc::new(nat(flows as u32, MEMBERS as u32));
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(delay));
        let (mut fed, mut starts) = (Vec::new(), Vec::new());
        for member in 0..MEMBERS as u64 {
            let (own, one) = fed_member(flows, seed + 100 * member);
            fed.push(one);
            starts.push(Start {
                function: function.clone(),
                ports: own,
            });
        }
        let hosts = Hosts::through(
            &mut network,
            starts,
            |_| {},
            settings(Placed::Replicated(delay)),
        )?;
        let mut cluster = Self {
            hosts,
            network,
            fed,
            packets: 0,
            packet_thread: Stopwatch::default(),
            channel_thread: Stopwatch::default(),
        };
        for fed in &mut cluster.fed {
            fed.source.open(KNOWN, &mut fed.feed)?;
        }
        cluster.packets += (KNOWN * MEMBERS) as u64;
        cluster.settle()?;
        Ok(cluster)
    }

    /// Lets time pass without packets until all have come to agree.
    fn settle(&mut self) -> Result<(), Failure> {
        let until = self.hosts.now + SETTLES_WITHIN;
        let mut quiet_since = self.hosts.now;
        while self.hosts.now < until {
            self.hosts.now = self.hosts.now + Duration::from_micros(100);
            let now = self.hosts.now;
            for member in &mut self.hosts.members {
                member.pass(now, usize::MAX);
            }
            self.hosts.deliver_through(&mut self.network);
            let members = &self.hosts.members;
            let is_quiet = |host: &Host<Nat>| host.mail.channel().is_quiet() && !host.has_work();
            if !members.iter().all(is_quiet) {
                quiet_since = now;
            }
            // The last flush comes after the last packet.
            if now.since(quiet_since) > Duration::from_millis(2) {
                return Ok(());
            }
        }
        Err(Failure::Unsound(format!(
            "hosts did not come to agree in {} s",
            SETTLES_WITHIN.as_secs()
        )))
    }

    /// A window of both, of whose passes each has so many packets and takes `time`: on-CPU nanoseconds per packet of the first
    /// one's threads.
    fn window(&mut self, packets: usize, time: Duration) -> Result<Cost, Failure> {
        let Self {
            hosts,
            network,
            fed,
            packet_thread,
            channel_thread,
            ..
        } = self;
        let start = hosts.now;
        let (first, others) = fed.split_at_mut(1);
        // First the other in full.
        for (place, fed) in (1..).zip(others) {
            for pass in 0..PASSES {
                hosts.now = start + time * pass;
                fed.pass(packets, time)?;
                let now = hosts.now;
                let Host { instance, mail, .. } = &mut hosts.members[place];
                turns(instance, now, time);
                // What came in the last window, evenly over this one.
                let some = mail.waiting().div_ceil((PASSES - pass) as usize);
                mail.pass(now, some);
                hosts.send_through(network);
            }
        }
        for pass in 0..PASSES {
            hosts.now = start + time * pass;
            first[0].pass(packets, time)?;
            hosts.receive_through(network);
            let now = hosts.now;
            let Host { instance, mail, .. } = &mut hosts.members[0];
            channel_thread.window(|| mail.pass(now, usize::MAX));
            packet_thread.window(|| turns(instance, now, time));
            if pass + 1 == WARM_PASSES {
                channel_thread.take_cpu_ns();
                packet_thread.take_cpu_ns();
            }
            hosts.send_through(network);
        }
        hosts.now = start + time * PASSES;
        hosts.receive_through(network);
        self.packets += (MEMBERS * PASSES as usize * packets) as u64;
        let timed = ((PASSES - WARM_PASSES) as usize * packets) as f64;
        Ok(Cost {
            packet_thread: self.packet_thread.take_cpu_ns() as f64 / timed,
            channel_thread: self.channel_thread.take_cpu_ns() as f64 / timed,
        })
    }

    /// That nothing was lost and both have the same.
    fn check(&mut self) -> Result<(), Failure> {
        self.settle()?;
        self.hosts.check()?;
        let members = &self.hosts.members;
        let taken: u64 = members
            .iter()
            .map(|one| one.instance.tally().received)
            .sum();
        let opened: usize = self.fed.iter().map(|fed| fed.source.opened).sum();
        let known = members[0].instance.state().sessions.len_now();
        if taken != self.packets || known != opened {
            return Err(Failure::Unsound(format!(
                "of {} packets {taken} were taken; {opened} flows were opened and {known} are known",
                self.packets
            )));
        }
        Ok(())
    }
}

/// Ports, and what feeds the first of them.
fn fed_member(flows: usize, seed: u64) -> (Vec<Box<dyn Port>>, Fed) {
    let frames = as_drawn(&Flows::of(Protocol::Udp, flows as u32, seed));
    let (own, feed) = fed_ports();
    (own, Fed::new(frames, seed, feed))
}

/// Nanoseconds per packet.
#[derive(Clone, Copy, Default)]
struct Cost {
    packet_thread: f64,
    channel_thread: f64,
}

/// The NAT with local state.
struct Sharded {
    instance: Box<Instance<Nat>>,
    fed: Fed,
    now: Time,
    packets: u64,
    packet_thread: Stopwatch,
}

impl Sharded {
    fn new(flows: usize, seed: u64) -> Result<Self, Failure> {
        let (ports, mut fed) = fed_member(flows, seed);
        let function = Arc::new(nat(flows as u32, MEMBERS as u32));
        let mut instance = local_instance(function, ports, seed)?;
        fed.source.open(KNOWN, &mut fed.feed)?;
        let now = Time::ZERO + Duration::from_millis(1);
        turns(&mut instance, now, Duration::from_millis(1));
        Ok(Self {
            instance: Box::new(instance),
            fed,
            now: now + Duration::from_millis(1),
            packets: KNOWN as u64,
            packet_thread: Stopwatch::default(),
        })
    }

    fn window(&mut self, time: Duration) -> Result<f64, Failure> {
        for pass in 0..PASSES {
            self.fed.pass(PASS, time)?;
            let Self { instance, now, .. } = self;
            self.packet_thread.window(|| turns(instance, *now, time));
            self.now = self.now + time;
            if pass + 1 == WARM_PASSES {
                self.packet_thread.take_cpu_ns();
            }
        }
        self.packets += (PASSES as usize * PASS) as u64;
        let timed = (PASSES - WARM_PASSES) as usize * PASS;
        Ok(self.packet_thread.take_cpu_ns() as f64 / timed as f64)
    }

    fn check(&self) -> Result<(), Failure> {
        let tally = self.instance.tally();
        if tally.received != self.packets || tally.forwarded != self.packets {
            return Err(Failure::Unsound(format!(
                "of {} packets {} were taken and {} forwarded with local state",
                self.packets, tally.received, tally.forwarded
            )));
        }
        Ok(())
    }
}

fn figure_5(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 121 } else { 31 };
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    // No pass takes longer than the longest that it may be taken to take.
    let timed = PASS_TIME_MAX * PASSES * (rounds as u32 + 1);
    let new = (WARM_UP + PASS_TIME_MAX * PASSES + timed).as_secs_f64() * NEW_FLOWS_PER_SECOND;
    let flows = KNOWN + new as usize;
    let mut sharded = Sharded::new(flows, context.seed)?;
    // What a pass takes by itself is what it is taken to take everywhere.
    let mut time = Duration::from_micros(300);
    for _ in 0..3 {
        let ns = sharded.window(time)? * PASS as f64;
        time = Duration::from_nanos(ns as u64).clamp(PASS_TIME_MIN, PASS_TIME_MAX);
    }
    let warm_windows = WARM_UP.as_nanos().div_ceil((time * PASSES).as_nanos());
    let mut clusters = Vec::new();
    for delay in DELAYS_US {
        context.say(&format!("warming up at {} ms", delay as f64 / 1e3));
        let mut cluster = Cluster::new(Duration::from_micros(delay), flows, context.seed)?;
        for _ in 0..warm_windows {
            cluster.window(WARM_UP_PASS, time)?;
        }
        clusters.push(cluster);
    }
    let mut alone = Vec::new();
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); clusters.len()];
    for round in 0..rounds {
        let places: Vec<usize> = match round % 2 {
            0 => (0..=clusters.len()).collect(),
            _ => (0..=clusters.len()).rev().collect(),
        };
        for place in places {
            match clusters.get_mut(place) {
                Some(cluster) => costs[place].push(cluster.window(PASS, time)?),
                None => alone.push(sharded.window(time)?),
            }
        }
    }
    sharded.check()?;
    let mut lost: LostTime = sharded.packet_thread.lost();
    let mut outcome = Outcome::default().variant("sharded-ns", Spread::of(&alone).median);
    let (mut worst, mut total_mpps): (Option<Spread>, _) = (None, Vec::new());
    for ((delay, cluster), own) in DELAYS_US.into_iter().zip(&mut clusters).zip(&costs) {
        cluster.check()?;
        lost = lost.and(cluster.packet_thread.lost());
        let packet_ns: Vec<f64> = own.iter().map(|one| one.packet_thread).collect();
        let channel_ns: Vec<f64> = own.iter().map(|one| one.channel_thread).collect();
        let over = |others: &[f64]| {
            let pairs = others.iter().zip(&packet_ns);
            Spread::of(&pairs.map(|(other, own)| other / own).collect::<Vec<f64>>())
        };
        let local: Vec<f64> = costs[0].iter().map(|one| one.packet_thread).collect();
        let (over_local, over_sharded) = (over(&local), over(&alone));
        let ns = Spread::of(&packet_ns).median;
        let ms = delay as f64 / 1e3;
        context.say(&format!(
            "{ms} ms: {ns:.1} ns per packet, {:.3} of the local network's throughput, {:.3} of Sharded's",
            over_local.median, over_sharded.median
        ));
        outcome = outcome
            .variant(format!("{ms}-ms-ns"), ns)
            .variant(
                format!("{ms}-ms-channel-ns"),
                Spread::of(&channel_ns).median,
            )
            .variant(format!("{ms}-ms-over-local"), over_local.median)
            .variant(format!("{ms}-ms-over-sharded"), over_sharded.median);
        total_mpps.push(MEMBERS as f64 * 1e3 / ns);
        let is_worse = |worst: &Spread| over_local.median < worst.median;
        if delay != DELAYS_US[0] && worst.as_ref().is_none_or(is_worse) {
            worst = Some(over_local);
        }
    }
    let worst = worst.ok_or_else(|| Failure::Unsound("no delay was tried".into()))?;
    Ok(outcome
        .with_value(worst.median, worst.runs)
        .quartiles(worst.first_quartile, worst.third_quartile)
        .samples("delay-ms", DELAYS_US.map(|us| us as f64 / 1e3).to_vec())
        .samples("shared-mpps", total_mpps)
        .samples(
            "sharded-mpps",
            vec![MEMBERS as f64 * 1e3 / Spread::of(&alone).median; DELAYS_US.len()],
        )
        .lost(lost))
}
