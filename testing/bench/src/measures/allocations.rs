//! `nat.allocations`: what the packet path takes from the heap while flows come and go. Nothing.

use std::sync::Arc;
use std::time::Duration;

use asterism_functions::nat::{IdleTimes, Nat, NatConfig};
use asterism_io::frame::{Burst, Frame, FramePool};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use super::nat_bench::nat;
use super::replication_hosts::{Hosts, Start};
use super::{Context, Measure};
use crate::allocations::{counted, mark_this_thread};
use crate::contract::{Failure, Outcome};
use crate::traffic::frames::{GATEWAY_MAC, frame_between};
use crate::traffic::{Flows, Random};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.allocations",
    make: allocations,
}];

/// Packets of both hosts together.
const PACKETS: u64 = 12_000_000;
/// New flows a second at each host.
const NEW_FLOWS_PER_SECOND: u64 = 2_000;
/// Virtual microseconds of a pass: a burst from inside and one from outside.
const PASS_US: u64 = 128;
/// Flows that have packets at a time: each for two seconds.
const ACTIVE_FLOWS: u64 = 2 * NEW_FLOWS_PER_SECOND;
/// UDP flows end after so many seconds without a packet; TCP flows stay for the whole run, so that tables grow.
const UDP_IDLE_S: u32 = 3;
/// When the first packet comes: by then the hosts know each other.
const FIRST_PACKET: Duration = Duration::from_millis(1_000);
/// Answers that wait to be received, at most.
const ANSWERS: usize = 256;

/// The inside: packets of the flows that are active, and a new flow now and then.
struct InsidePort {
    flows: Flows,
    random: Random,
    now: Time,
    opened: u64,
}

impl Port for InsidePort {
    fn name(&self) -> &str {
        "inside"
    }
    fn advance(&mut self, now: Time) {
        self.now = now;
    }
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let due = self
            .now
            .as_micros()
            .saturating_sub(FIRST_PACKET.as_micros() as u64)
            * NEW_FLOWS_PER_SECOND
            / 1_000_000;
        while burst.room() > 0 {
            let place = if self.opened < due {
                self.opened += 1;
                self.opened - 1
            } else if self.opened == 0 {
                break;
            } else {
                let active = self.opened.min(ACTIVE_FLOWS);
                self.opened - active + self.random.below(active)
            };
            let Some(session) = self.flows.sessions().get(place as usize) else {
                break;
            };
            let bytes = frame_between(session.protocol, session.inside, session.remote);
            let Some(frame) = pool.allocate_copy(&bytes) else {
                break;
            };
            // There is room.
            let _ = burst.push(frame);
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// The world: it answers every packet.
struct AnsweringPort {
    answers: Vec<Frame>,
}

/// Turns a packet that left into its answer: the ends change places, which no checksum sees.
fn answer(frame: &mut [u8]) {
    const ADDRESSES: usize = 14 + 12;
    const PORTS: usize = 14 + 20;
    frame[..6].copy_from_slice(&GATEWAY_MAC);
    let (source, destination) = frame[ADDRESSES..ADDRESSES + 8].split_at_mut(4);
    source.swap_with_slice(destination);
    let (source, destination) = frame[PORTS..PORTS + 4].split_at_mut(2);
    source.swap_with_slice(destination);
}

impl Port for AnsweringPort {
    fn name(&self) -> &str {
        "world"
    }
    fn receive(&mut self, _: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.room() > 0
            && let Some(frame) = self.answers.pop()
        {
            // There is room.
            let _ = burst.push(frame);
        }
        burst.len() - before
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        while let Some(mut frame) = burst.pop() {
            if self.answers.len() < ANSWERS {
                answer(pool.bytes_mut(&mut frame));
                self.answers.push(frame);
            } else {
                pool.release(frame);
            }
        }
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

fn short_lived(flows: u32) -> NatConfig {
    let mut config = nat(flows, 2).config().clone();
    config.idle = IdleTimes {
        udp: UDP_IDLE_S,
        udp_dns: UDP_IDLE_S,
        ..IdleTimes::RFC
    };
    config.short_idle = true;
    config
}

fn allocations(context: &Context) -> Result<Outcome, Failure> {
    let packets = if context.full { 10 * PACKETS } else { PACKETS };
    // A pass is about 32 packets from inside and as many from outside, at each of two hosts.
    let passes = packets / (2 * 64) + 1;
    let seconds = passes * PASS_US / 1_000_000 + 2;
    let flows = seconds * NEW_FLOWS_PER_SECOND;
    let function =
        Arc::new(Nat::new(short_lived(2 * flows as u32)).expect("a sound configuration"));
    let starts = [1, 2].map(|place| {
        let inside = InsidePort {
            flows: Flows::of_both(flows as u32, context.seed * 2 + place),
            random: Random::new(context.seed ^ place),
            now: Time::ZERO,
            opened: 0,
        };
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(inside),
            Box::new(AnsweringPort {
                answers: Vec::with_capacity(ANSWERS),
            }),
        ];
        Start {
            function: function.clone(),
            ports,
        }
    });
    let mut hosts = Hosts::new(
        starts.into(),
        |_| (),
        |object| match object {
            "errors" => ObjectSettings::LOCAL,
            _ => ObjectSettings::REPLICATED,
        },
    )?;
    hosts.now = hosts.now.max(Time::ZERO + FIRST_PACKET);
    let received = |hosts: &Hosts<Nat>| {
        hosts
            .members
            .iter()
            .map(|host| host.instance.tally().received)
            .sum::<u64>()
    };
    let before = received(&hosts);
    let began = hosts.now;
    let (mut taken, mut taken_bytes) = (0, 0);
    while received(&hosts) - before < packets {
        let ((), more) = counted(|| {
            for _ in 0..64 {
                hosts.now = hosts.now + Duration::from_micros(PASS_US);
                let now = hosts.now;
                mark_this_thread(true);
                hosts
                    .members
                    .iter_mut()
                    .for_each(|host| host.pass(now, usize::MAX));
                mark_this_thread(false);
                hosts.deliver();
            }
        });
        taken += more.allocations;
        taken_bytes += more.bytes;
    }
    let handled = received(&hosts) - before;
    hosts.members.iter().try_for_each(|host| {
        let tally = host.instance.tally();
        if tally.dropped_total() > 0 || tally.groups_bad > 0 {
            let drops: Vec<_> = tally.drops().collect();
            return Err(Failure::Unsound(format!("packets were dropped: {drops:?}")));
        }
        Ok(())
    })?;
    let virtual_seconds = (hosts.now.as_micros() - began.as_micros()) as f64 / 1e6;
    let opened = 2.0 * virtual_seconds * NEW_FLOWS_PER_SECOND as f64;
    let live = hosts.members[0].instance.state().sessions.len_now();
    let groups: u64 = hosts
        .members
        .iter()
        .map(|host| host.instance.tally().groups_applied)
        .sum();
    if (live as f64) > 0.9 * opened || groups == 0 {
        return Err(Failure::Unsound(format!(
            "of {opened} flows {live} are live and {groups} groups were applied: nothing ended, or nothing was reported"
        )));
    }
    Ok(Outcome::new(taken as f64, 1)
        .variant("bytes", taken_bytes as f64)
        .variant("packets", handled as f64)
        .variant("flows-opened", opened)
        .variant("flows-live", live as f64)
        .variant("groups-applied", groups as f64)
        .variant("virtual-seconds", virtual_seconds))
}
