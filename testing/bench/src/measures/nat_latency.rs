//! `nat.latency-added`: how much later packets leave a NAT that shares its state than one that does not.
//!
//! Packets become due at a steady rate, whatever the loop does: a share of what the NAT with local state takes when packets
//! lie ready. The loop polls; the service time of a burst is that of the turn that takes it, from what the turn first applies of
//! the others to what it tells them in the end. The response time is from the moment when its first packet was due, waiting for
//! the turns before included. The same packets go to a NAT
//! alone, and to one member of a cluster of two and of three, each of which opens flows and applies those of the others
//! (Constellation table 4 and figure 6 have one to three instances under several loads). A member's state channel takes what the
//! others sent between two passes, untimed and on the same core, whose caches it shares then: in a host it has another one, and
//! the first turns of a pass wait for less. Response times show that most: a slow first turn keeps those behind it waiting.
//!
//! Time is wall time, since what waits for a descheduled loop waits. A pass in which the thread was not on its core all the
//! time measures the scheduler, and is counted apart.

use super::due_packets::{Figures, KNOWN, MEMBERS_MAX, Pace, Subjected};
use super::replication_hosts::provide_memory;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.latency-added",
    make: latency_added,
}];

/// Packets of a pass, one of which opens a flow.
const PASS: usize = 1_000;
/// Passes of a window: together some ten thousand bursts.
const PASSES: u32 = 128;
/// Windows before those that count.
const WARM_WINDOWS: usize = 1;
/// Windows in which all packets lie ready, for the rate of the NAT alone.
const READY_WINDOWS: usize = 5;
/// Shares of that rate.
const LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];
/// The load of the row.
const LOAD_OF_THE_ROW: f64 = 0.7;
/// More than all tables here come to hold.
const MEMORY_BYTES: usize = 1 << 29;

fn pace(ns_per_packet: f64) -> Pace {
    Pace {
        pass: PASS,
        passes: PASSES,
        warm: 0,
        new_flows: 1.0,
        ns_per_packet,
    }
}

fn latency_added(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 81 } else { 21 };
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    let windows = WARM_WINDOWS + READY_WINDOWS + rounds * LOADS.len();
    let flows = KNOWN + PASS + windows * PASSES as usize;
    let mut subjects = Vec::new();
    for members in 1..=MEMBERS_MAX {
        context.say(&format!("opening flows, {members} of {MEMBERS_MAX}"));
        subjects.push(Subjected::new(members, MEMBERS_MAX, flows, context.seed)?);
    }
    let mut ready = Vec::new();
    for round in 0..WARM_WINDOWS + READY_WINDOWS {
        for (place, subject) in subjects.iter_mut().enumerate() {
            let window = subject.window(pace(0.0))?;
            if place == 0 && round >= WARM_WINDOWS && window.packets > 0 {
                ready.push(window.busy_ns as f64 / window.packets as f64);
            }
        }
    }
    let ready_ns = Spread::of(&ready).median;
    if !ready_ns.is_finite() {
        return Err(Failure::Unsound("every pass was disturbed".into()));
    }
    context.say(&format!("the NAT alone takes {ready_ns:.1} ns per packet"));
    let mut outcome = Outcome::default()
        .variant("ready-ns-per-packet", ready_ns)
        .variant(
            "new-flows-per-second-at-0.7",
            LOAD_OF_THE_ROW / ready_ns * 1e9 / PASS as f64,
        );
    let mut lost = LostTime::default();
    for load in LOADS {
        // By members, by round.
        let mut found: Vec<Vec<Figures>> = vec![Vec::new(); MEMBERS_MAX];
        for round in 0..rounds {
            for turn in 0..MEMBERS_MAX {
                // A B C, C B A, ...
                let place = if round % 2 == 0 {
                    turn
                } else {
                    MEMBERS_MAX - 1 - turn
                };
                let figures = subjects[place].window(pace(ready_ns / load))?.figures()?;
                lost = lost.and(figures.lost);
                found[place].push(figures);
            }
        }
        outcome = report(context, outcome, load, &found);
    }
    for subject in &mut subjects {
        subject.check()?;
    }
    Ok(outcome.lost(lost))
}

/// The figures of a load.
fn report(context: &Context, mut outcome: Outcome, load: f64, found: &[Vec<Figures>]) -> Outcome {
    type Part = (&'static str, fn(&Figures) -> f64);
    let parts: [Part; 4] = [
        ("service-average", |one| one.service_average_us),
        ("service-99", |one| one.service_high_us),
        ("response-average", |one| one.response_average_us),
        ("response-99", |one| one.response_high_us),
    ];
    for (members, rounds) in (1..).zip(found) {
        for (name, part) in parts {
            let of = |rounds: &[Figures]| rounds.iter().map(part).collect::<Vec<f64>>();
            let (own, alone) = (of(rounds), of(&found[0]));
            outcome = outcome.variant(
                format!("load-{load}-members-{members}-{name}-us"),
                Spread::of(&own).median,
            );
            if members == 1 {
                continue;
            }
            let added: Vec<f64> = own
                .iter()
                .zip(&alone)
                .map(|(own, alone)| own - alone)
                .collect();
            let spread = Spread::of(&added);
            outcome = outcome.variant(
                format!("load-{load}-members-{members}-{name}-added-us"),
                spread.median,
            );
            if name == "service-99" {
                context.say(&format!(
                    "load {load}, {members} members: 99 % of the bursts in {:.2} µs, {:.2} more than alone",
                    Spread::of(&own).median,
                    spread.median
                ));
                if load == LOAD_OF_THE_ROW && members == MEMBERS_MAX {
                    outcome = outcome
                        .with_value(spread.median, spread.runs)
                        .quartiles(spread.first_quartile, spread.third_quartile)
                        .samples("added-us", added);
                }
            }
        }
        let disturbed: u32 = rounds.iter().map(|one| one.disturbed).sum();
        outcome = outcome.variant(
            format!("load-{load}-members-{members}-disturbed-passes"),
            f64::from(disturbed),
        );
    }
    outcome
}
