//! `hold.latency`: how much later a packet leaves that changed a flow, where it waits until another host has the change.
//!
//! Two whole hosts on two threads, joined by links of no delay, take packets that become due at a steady rate: half of what their
//! loops take when packets lie ready. One packet in a thousand opens a flow, and is timed from when it was due until its port is
//! given it. The same runs alternate with held output and without. Beside the packets small datagrams go to the other host, whose loop
//! sends them back at once: the round trip of the state channel's way, as these loops take it, of which the median is subtracted.
//!
//! A machine of two cores has one for each host: its packet loop and its state channel take turns there, each a part of the other's
//! wait, where a host with more cores has one for each. Time is wall time. Packets on whose way either thread was not running measure
//! the scheduler, and are counted apart.

mod loops;

use std::time::Duration;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::LostTime;

use loops::{Load, Ran, run};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "hold.latency",
    make: latency,
}];

/// The share of what the loops take.
const LOAD: f64 = 0.5;
/// Packets that are timed at least, of all runs with held packets, and of all without.
const TIMED_LEAST: usize = 2_000;
/// Time of a run that counts.
const TIME: Duration = Duration::from_millis(700);

fn latency(context: &Context) -> Result<Outcome, Failure> {
    let pairs = if context.full { 40 } else { 7 };
    context.say("packets that lie ready");
    let ready = run(&Load::ready(TIME), context.seed)?;
    let ready_ns = ready.cpu_ns_per_packet();
    let pace = |holds| Load::paced(TIME, ready_ns / LOAD, holds);
    let (mut at_once, mut held) = (Found::default(), Found::default());
    for pair in 0..pairs {
        let seed = context.seed + 1 + pair;
        let order = match pair % 2 {
            0 => [(&mut at_once, false), (&mut held, true)],
            _ => [(&mut held, true), (&mut at_once, false)],
        };
        for (found, holds) in order {
            found.add(&run(&pace(holds), seed)?);
        }
        let timed = held.times_us.len();
        context.say(&format!(
            "pair {} of {pairs}: {timed} packets were held and timed",
            pair + 1
        ));
    }
    let least = held.times_us.len().min(at_once.times_us.len());
    if least.min(held.trips_us.len()) < TIMED_LEAST {
        return Err(Failure::Unsound(format!(
            "{least} packets were timed: both threads were hardly ever running at once"
        )));
    }
    let trip = high(&mut held.trips_us, 50);
    let mut beyond = |percent| {
        let [held, at_once] =
            [&mut held, &mut at_once].map(|found| high(&mut found.times_us, percent));
        (held - at_once - trip, held, at_once)
    };
    let (middle, held_50, at_once_50) = beyond(50);
    let (value, held_99, at_once_99) = beyond(99);
    Ok(Outcome::new(value, pairs as u32)
        .variant("median", middle)
        .variant("round-trip", trip)
        .variant("round-trip-99", high(&mut held.trips_us, 99))
        .variant("held-99", held_99)
        .variant("held-median", held_50)
        .variant("at-once-99", at_once_99)
        .variant("at-once-median", at_once_50)
        .variant("ready-ns-per-packet", ready_ns)
        .variant("timed", held.times_us.len() as f64)
        .variant("disturbed", held.disturbed as f64)
        .lost(at_once.lost.and(held.lost)))
}

/// What all runs of a kind gave.
#[derive(Default)]
struct Found {
    times_us: Vec<f64>,
    trips_us: Vec<f64>,
    /// Packets on whose way either thread was not running.
    disturbed: usize,
    lost: LostTime,
}

impl Found {
    fn add(&mut self, ran: &Ran) {
        let (times, disturbed) = ran.times_us();
        self.times_us.extend(times);
        self.trips_us.extend(ran.round_trips_us());
        self.disturbed += disturbed;
        self.lost = self.lost.and(ran.lost());
    }
}

/// What so many in a hundred do not exceed.
fn high(all: &mut [f64], percent: usize) -> f64 {
    let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
    *all.select_nth_unstable_by(place, f64::total_cmp).1
}
