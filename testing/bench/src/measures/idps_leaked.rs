//! `idps.leaked`: packets that a flooded port still gets because news of the others' traffic takes its time.
//!
//! Constellation §6.6: two instances of the IDPS in a WAN, each flooded at the same rate, block a port once its traffic
//! over both passes a threshold. What leaks is what an instance lets through beyond its share of what one box with the whole
//! traffic would: that box is here a third IDPS with local state, given the same packets in the order of their arrival.
//! With rate r, one-way delay d and window w, news is at most d + w old, and at the threshold the others' part of it is
//! missing: an instance blocks (d + w)/2 late, and leaks r·(d + w)/2. Whole hosts in virtual time on emulated links.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_function::{NetworkFunction, Reason};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response, VolumePolicy};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::ring::RingWriter;
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use super::replication_hosts::{Hosts, Start, fed_ports, feed};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::Spread;
use crate::traffic::frames::{FRAME_BYTES, frame_between};
use crate::traffic::{Endpoint, Protocol, Random, SmallFrame};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "idps.leaked",
    make: leaked,
}];

/// Instances, each flooded.
const INSTANCES: usize = 2;
/// Packets a second at each instance.
const RATE: u64 = 1_000_000;
/// Packets of a pass of the loop. One that polls at this rate has nearly nothing to do, and takes few at once.
const PACKETS_PER_PASS: u64 = 8;
/// Virtual time of a pass.
const PASS: Duration = Duration::from_micros(PACKETS_PER_PASS * 1_000_000 / RATE);
/// Bits of a packet, as the policy counts them.
const BITS: u64 = 8 * FRAME_BYTES as u64;
/// Sources of the flood.
const SOURCES: u32 = 1_024;
/// The flooded port.
const FLOODED_PORT: u16 = 9_999;
/// One generator begins at most this much before the other, drawn for each run.
const HEAD_START_MAX: Duration = Duration::from_millis(2);
/// A flood that is not blocked everywhere this long after the box would have blocked it is not going to be.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a run is made with.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    /// One way, of the state channel.
    delay: Duration,
    /// Microseconds between two flushes of what was counted: the window.
    window_us: u64,
}

/// The setting of the row: the paper's delay, and the window that hosts have unless configured otherwise.
const OF_THE_ROW: Setting = setting("row", 5, 200);
const SETTINGS: [Setting; 5] = [
    OF_THE_ROW,
    setting("window-20us", 5, 20),
    setting("window-1ms", 5, 1_000),
    setting("window-5ms", 5, 5_000),
    setting("delay-50ms", 50, 200),
];

const fn setting(name: &'static str, delay_ms: u64, window_us: u64) -> Setting {
    Setting {
        name,
        delay: Duration::from_millis(delay_ms),
        window_us,
    }
}

impl Setting {
    /// Packets that an instance is expected to leak if news is as old as it may be.
    fn expected(&self) -> f64 {
        let age = self.delay + Duration::from_micros(self.window_us);
        RATE as f64 * age.as_secs_f64() / 2.0
    }
}

/// The IDPS with the paper's policy: a port that got more than 1,024 Mbit is blocked for ever.
fn idps() -> Arc<PortScan> {
    Arc::new(PortScan::new(PortScanConfig {
        response: Response::Detect,
        volume: Some(VolumePolicy::default()),
        ..PortScanConfig::default()
    }))
}

/// Packets to the flooded port, one from each source.
fn flood() -> Vec<SmallFrame> {
    let service = Endpoint {
        address: 0xc633_6402,
        port: FLOODED_PORT,
    };
    let from = |source: u32| Endpoint {
        address: 0x0a00_0001 + source,
        port: 4_000,
    };
    let frames = (0..SOURCES).map(|source| frame_between(Protocol::Udp, from(source), service));
    frames.collect()
}

/// Packets let through, having checked that all others were dropped for the port and for nothing else.
fn passed<F: NetworkFunction>(instance: &Instance<F>) -> Result<u64, Failure> {
    let tally = instance.tally();
    let blocked: u64 = tally
        .drops()
        .filter(|(reason, _)| *reason == Reason::PortBlocked)
        .map(|(_, count)| count)
        .sum();
    if tally.dropped_total() != blocked || tally.received != tally.forwarded + blocked {
        return Err(Failure::Unsound(format!(
            "of {} packets {} passed and {blocked} were dropped for the port; others: {:?}",
            tally.received,
            tally.forwarded,
            tally.drops().collect::<Vec<_>>()
        )));
    }
    Ok(tally.forwarded)
}

/// Packets that one box with all traffic lets through.
fn passed_by_one_box(seed: u64, frames: &[SmallFrame]) -> Result<u64, Failure> {
    let (ports, mut ring) = fed_ports();
    let pool = FramePool::new(512).map_err(|error| Failure::Absent(error.to_string()))?;
    let mut instance =
        InstanceParts::alone(seed).start(idps(), |_| ObjectSettings::LOCAL, pool, ports);
    let mut fed = 0;
    while instance.tally().dropped_total() == 0 {
        for frame in frames {
            feed(&mut ring, frame)?;
        }
        fed += frames.len() as u64;
        ring.publish();
        while instance.tally().received < fed {
            instance.turn(Time::ZERO);
        }
        if fed * BITS > 2 * VolumePolicy::default().bits {
            return Err(Failure::Unsound("one box alone does not block".into()));
        }
    }
    passed(&instance)
}

/// How `count` packets in the order of their arrival are shared between two generators of one rate, the first of which
/// begins `head_start` packets before the other.
fn shares(count: u64, head_start: u64) -> [u64; INSTANCES] {
    let together = count.saturating_sub(head_start);
    let second = together / 2;
    [count - second, second]
}

/// Two hosts, their generators, and the links between them.
struct Wan {
    hosts: Hosts<PortScan>,
    network: Network,
    feeds: Vec<RingWriter>,
}

impl Wan {
    fn new(setting: &Setting, seed: u64) -> Result<Self, Failure> {
        let (mut starts, mut feeds) = (Vec::new(), Vec::new());
        for _ in 0..INSTANCES {
            let (ports, ring) = fed_ports();
            feeds.push(ring);
            starts.push(Start {
                function: idps(),
                ports,
            });
        }
        let mut network = Network::new(seed);
        network.set_defaults(LinkConditions::with_delay(setting.delay));
        let hosts = Hosts::through(
            &mut network,
            starts,
            |config| config.flush_us = setting.window_us,
            |_| ObjectSettings::REPLICATED,
        )?;
        Ok(Self {
            hosts,
            network,
            feeds,
        })
    }

    /// One pass of both hosts; a generator that is on sends its packets first.
    fn pass(
        &mut self,
        on: [bool; INSTANCES],
        frames: &[SmallFrame],
        at: usize,
    ) -> Result<(), Failure> {
        self.hosts.now = self.hosts.now + PASS;
        for (ring, on) in self.feeds.iter_mut().zip(on) {
            if on {
                for number in 0..PACKETS_PER_PASS as usize {
                    feed(ring, &frames[(at + number) % frames.len()])?;
                }
                ring.publish();
            }
        }
        for host in &mut self.hosts.members {
            host.pass(self.hosts.now, usize::MAX);
        }
        self.hosts.deliver_through(&mut self.network);
        Ok(())
    }

    /// Floods until all block; packets that each leaked.
    fn run(
        &mut self,
        setting: &Setting,
        head_start_passes: u64,
        one_box: u64,
        frames: &[SmallFrame],
    ) -> Result<[f64; INSTANCES], Failure> {
        let passes_of = |time: Duration| (time.as_nanos() / PASS.as_nanos()) as u64;
        let last = one_box / PACKETS_PER_PASS + passes_of(PATIENCE);
        let mut number = 0;
        let mut blocked_for = 0;
        // The flood goes on for a while at instances that all block.
        while blocked_for < 2 * passes_of(setting.delay) {
            if number > last {
                return Err(Failure::Unsound(
                    "a flood was not blocked everywhere".into(),
                ));
            }
            let at = number as usize * PACKETS_PER_PASS as usize;
            self.pass([true, number >= head_start_passes], frames, at)?;
            number += 1;
            let members = &self.hosts.members;
            if members
                .iter()
                .all(|host| host.instance.tally().dropped_total() > 0)
            {
                blocked_for += 1;
            }
        }
        for _ in 0..2 * passes_of(setting.delay) {
            self.pass([false; INSTANCES], frames, 0)?;
        }
        self.hosts.settle()?;
        let central = shares(one_box, head_start_passes * PACKETS_PER_PASS);
        let mut leaked = [0.0; INSTANCES];
        let mut sum = 0;
        for (place, host) in self.hosts.members.iter().enumerate() {
            let passed = passed(&host.instance)?;
            leaked[place] = passed as f64 - central[place] as f64;
            sum += passed;
        }
        self.check(sum)?;
        Ok(leaked)
    }

    /// That the instances agree, and that what they counted is what they let through.
    fn check(&self, passed: u64) -> Result<(), Failure> {
        let members = &self.hosts.members;
        let digests = members[0].instance.digests();
        for host in members {
            let state = host.instance.state();
            let mut bits = 0;
            state.volume.for_each(|_, total| bits += total);
            if bits != passed * BITS || state.unrecorded.get() != Ok(0) {
                return Err(Failure::Unsound(format!(
                    "{passed} packets passed and {} were counted; without a record: {:?}",
                    bits / BITS,
                    state.unrecorded.get()
                )));
            }
            if host.instance.digests() != digests
                || host.instance.tally().groups_bad > 0
                || host.refused() > 0
            {
                return Err(Failure::Unsound(format!(
                    "the instances' states differ; groups bad {}, datagrams refused {}",
                    host.instance.tally().groups_bad,
                    host.refused()
                )));
            }
        }
        Ok(())
    }
}

fn leaked(context: &Context) -> Result<Outcome, Failure> {
    let frames = flood();
    let one_box = passed_by_one_box(context.seed, &frames)?;
    context.say(&format!("one box lets {one_box} packets through"));
    let mut outcome = Outcome::default().variant("one-box-packets", one_box as f64);
    for setting in &SETTINGS {
        let runs = match (context.full, setting.name == OF_THE_ROW.name) {
            (true, true) => 50,
            (true, false) | (false, true) => 10,
            (false, false) => 3,
        };
        let mut random = Random::new(context.seed);
        let mut packets: [Vec<f64>; INSTANCES] = Default::default();
        for _ in 0..runs {
            let head_start_passes =
                random.below((HEAD_START_MAX.as_nanos() / PASS.as_nanos()) as u64);
            let mut wan = Wan::new(setting, random.bits())?;
            let leaked = wan.run(setting, head_start_passes, one_box, &frames)?;
            for (all, leaked) in packets.iter_mut().zip(leaked) {
                all.push(leaked);
            }
        }
        let mean = |all: &Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
        let means = packets.each_ref().map(mean);
        let worse = usize::from(means[1] > means[0]);
        let (mean, expected) = (means[worse], setting.expected());
        let over_delay = mean / (RATE as f64 * setting.delay.as_secs_f64() / 2.0);
        context.say(&format!(
            "{}: {mean:.0} packets leaked at the worse instance, {:.3} of what is expected",
            setting.name,
            mean / expected
        ));
        outcome = outcome
            .variant(format!("{}-leaked-packets", setting.name), mean)
            .variant(format!("{}-ratio", setting.name), mean / expected)
            .variant(format!("{}-over-delay-alone", setting.name), over_delay);
        if setting.name == OF_THE_ROW.name {
            let ratios: Vec<f64> = packets[worse].iter().map(|one| one / expected).collect();
            let spread = Spread::of(&ratios);
            outcome = outcome
                .with_value(mean / expected, spread.runs)
                .quartiles(spread.first_quartile, spread.third_quartile);
            for (name, all) in ["first", "second"].into_iter().zip(packets) {
                outcome = outcome.samples(format!("leaked-packets-{name}"), all);
            }
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_two_generators_are_those_of_a_count_packet_by_packet() {
        for head_start in [0, 1, 2, 7, 300] {
            for count in [0, 1, 5, 8, 299, 300, 301, 1_000] {
                let mut sent = [0; INSTANCES];
                for number in 0..count {
                    // After the head start they take turns, the first first.
                    let second = number >= head_start && (number - head_start) % 2 == 1;
                    sent[usize::from(second)] += 1;
                }
                assert_eq!(shares(count, head_start), sent, "{count} {head_start}");
            }
        }
    }

    #[test]
    fn what_is_expected_is_half_of_what_comes_while_news_is_on_the_way() {
        assert_eq!(OF_THE_ROW.expected(), 2_600.0);
        assert_eq!(setting("", 50, 0).expected(), 25_000.0);
    }

    #[test]
    fn one_box_passes_the_packet_that_crosses_the_threshold() {
        let passed = passed_by_one_box(1, &flood()).expect("a flood is blocked");
        assert_eq!(passed, VolumePolicy::default().bits / BITS + 1);
    }
}
