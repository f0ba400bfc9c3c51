//! `paper.table-4`, `paper.figure-6`: how late packets leave a NAT, by instances and by load.
//!
//! Constellation's table 4 is the average end-to-end latency of a NAT at a million packets and two thousand new flows a second, of
//! one to three instances; its figure 6 the average and the 99 % of the first of two, as the load grows up to what an instance can
//! take. "Sharded" is the same NAT without shared state: here one with local state that knows its own flows alone. The paper's
//! latencies have network cards, a switch and the generator's clock in them; here they are from when the first packet of a burst was
//! due to the end of the turn that sent it on, so only what is added compares. How time is taken: `nat_latency.rs`.
//!
//! The paper's highest loads fill the queue of a network card. Here a pass begins with an empty queue and has so many packets,
//! which bounds how long one can wait.

use super::due_packets::{Figures, KNOWN, MEMBERS_MAX, Pace, Subjected};
use super::replication_hosts::provide_memory;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::cores::stay_on_core;
use crate::timing::{LostTime, Spread};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "paper.table-4",
        make: table_4,
    },
    Measure {
        name: "paper.figure-6",
        make: figure_6,
    },
];

/// New flows a second at each member, as in the paper.
const NEW_FLOWS_PER_SECOND: f64 = 2_000.0;
/// Of table 4: nanoseconds between packets, a million a second, and packets of a pass, a millisecond.
const TABLE_NS: f64 = 1_000.0;
const TABLE_PASS: usize = 1_000;
const TABLE_PASSES: u32 = 80;
/// Of figure 6: packets of a pass, about a hundred microseconds when they lie ready.
const FIGURE_PASS: usize = 3_000;
const FIGURE_PASSES: u32 = 64;
/// Passes of a window that warm the caches.
const WARM_PASSES: u32 = 16;
/// Windows in which all packets lie ready, for the rate of the NAT alone: that of the fastest, or a busy machine's
/// saturation would be none.
const READY_WINDOWS: usize = 12;
/// Shares of that rate, the last of which is more than there is.
const LOADS: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1];
/// The load of the row.
const LOAD_OF_THE_ROW: f64 = 0.9;
/// Slower NATs than this have no flows left before the end; ns per packet.
const READY_NS_MAX: f64 = 200.0;
/// Windows that other processes disturbed most of, in all, before there is no figure; each is made again.
const VOID_MAX: usize = 24;
/// More than all tables here come to hold.
const MEMORY_BYTES: usize = 1 << 28;

fn pace(pass: usize, passes: u32, ns_per_packet: f64) -> Pace {
    Pace {
        pass,
        passes,
        warm: WARM_PASSES,
        new_flows: NEW_FLOWS_PER_SECOND * pass as f64 * ns_per_packet / 1e9,
        ns_per_packet,
    }
}

/// The NAT without shared state, and the first of clusters of two and so on.
fn subjects(context: &Context, members_max: usize, new: usize) -> Result<Vec<Subjected>, Failure> {
    stay_on_core(0);
    provide_memory(MEMORY_BYTES);
    (1..=members_max)
        .map(|members| Subjected::new(members, 1, KNOWN + new, context.seed))
        .collect()
}

type Part = (&'static str, fn(&Figures) -> f64);

/// What is reported of each.
const PARTS: [Part; 4] = [
    ("average-us", |one| one.response_average_us),
    ("99-us", |one| one.response_high_us),
    ("service-average-us", |one| one.service_average_us),
    ("service-99-us", |one| one.service_high_us),
];

/// Windows of all subjects in turn: what each gave, and the time that was lost.
fn rounds(
    subjects: &mut [Subjected],
    pace: Pace,
    rounds: usize,
    void: &mut usize,
) -> Result<(Vec<Vec<Figures>>, LostTime), Failure> {
    let mut found: Vec<Vec<Figures>> = vec![Vec::new(); subjects.len()];
    let mut lost = LostTime::default();
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            // A B C, C B A, ...
            let place = match round % 2 {
                0 => turn,
                _ => subjects.len() - 1 - turn,
            };
            let figures = loop {
                match subjects[place].window(pace)?.figures() {
                    Ok(figures) => break figures,
                    Err(failure) if *void == VOID_MAX => return Err(failure),
                    Err(_) => *void += 1,
                }
            };
            lost = lost.and(figures.lost);
            found[place].push(figures);
        }
    }
    Ok((found, lost))
}

/// Of one part: the median of `own`, and how the pairs with `alone` differ.
fn added(part: fn(&Figures) -> f64, own: &[Figures], alone: &[Figures]) -> (f64, Vec<f64>) {
    let of = |rounds: &[Figures]| rounds.iter().map(part).collect::<Vec<f64>>();
    let (own, alone) = (of(own), of(alone));
    let differ = own.iter().zip(&alone).map(|(own, alone)| own - alone);
    (Spread::of(&own).median, differ.collect())
}

fn table_4(context: &Context) -> Result<Outcome, Failure> {
    let count = if context.full { 81 } else { 21 };
    let pace = pace(TABLE_PASS, TABLE_PASSES, TABLE_NS);
    let new = (VOID_MAX + count + 1) * (pace.new_flows * f64::from(TABLE_PASSES)) as usize;
    let mut void = 0;
    let mut subjects = subjects(context, MEMBERS_MAX, new)?;
    rounds(&mut subjects, pace, 1, &mut void)?;
    let (found, lost) = rounds(&mut subjects, pace, count, &mut void)?;
    let mut outcome = Outcome::default().variant("void-windows", void as f64);
    for (members, own) in (1..).zip(&found) {
        for (name, part) in PARTS {
            let (median, added) = added(part, own, &found[0]);
            outcome = outcome.variant(format!("members-{members}-{name}"), median);
            if members == 1 {
                continue;
            }
            let spread = Spread::of(&added);
            outcome = outcome.variant(format!("members-{members}-{name}-added"), spread.median);
            if name == PARTS[0].0 {
                context.say(&format!(
                    "{members} members: {median:.3} µs on average, {:.3} more than without shared state",
                    spread.median
                ));
                if members == MEMBERS_MAX {
                    outcome = outcome
                        .with_value(spread.median, spread.runs)
                        .quartiles(spread.first_quartile, spread.third_quartile)
                        .samples("added-us", added);
                }
            }
        }
        let disturbed: u32 = own.iter().map(|one| one.disturbed).sum();
        outcome = outcome.variant(
            format!("members-{members}-disturbed-passes"),
            f64::from(disturbed),
        );
    }
    for subject in &mut subjects {
        subject.check()?;
    }
    Ok(outcome.lost(lost))
}

fn figure_6(context: &Context) -> Result<Outcome, Failure> {
    let count = if context.full { 61 } else { 15 };
    let new: f64 = LOADS
        .iter()
        .map(|load| pace(FIGURE_PASS, FIGURE_PASSES, READY_NS_MAX / load).new_flows)
        .sum();
    let new = (new * f64::from(FIGURE_PASSES)) as usize * (count + VOID_MAX);
    let mut subjects = subjects(context, 2, new)?;
    let mut ready_ns = f64::INFINITY;
    for _ in 0..READY_WINDOWS {
        for (place, subject) in subjects.iter_mut().enumerate() {
            let window = subject.window(pace(FIGURE_PASS, FIGURE_PASSES, 0.0))?;
            if place == 0 && window.packets > 0 {
                ready_ns = ready_ns.min(window.busy_ns as f64 / window.packets as f64);
            }
        }
    }
    if ready_ns > READY_NS_MAX {
        return Err(Failure::Unsound(format!(
            "the NAT alone takes {ready_ns:.0} ns per packet, too long for the flows that were drawn"
        )));
    }
    context.say(&format!(
        "the NAT without shared state takes {ready_ns:.1} ns per packet"
    ));
    let mut outcome = Outcome::default().variant("ready-ns-per-packet", ready_ns);
    let (mut lost, mut void) = (LostTime::default(), 0);
    let mut curves: [[Vec<f64>; 2]; 2] = Default::default();
    for load in LOADS {
        let pace = pace(FIGURE_PASS, FIGURE_PASSES, ready_ns / load);
        let (found, more) = rounds(&mut subjects, pace, count, &mut void)?;
        lost = lost.and(more);
        for (name, part) in PARTS {
            let (alone, _) = added(part, &found[0], &found[0]);
            let (own, added) = added(part, &found[1], &found[0]);
            let spread = Spread::of(&added);
            outcome = outcome
                .variant(format!("load-{load}-sharded-{name}"), alone)
                .variant(format!("load-{load}-shared-{name}"), own)
                .variant(format!("load-{load}-{name}-added"), spread.median);
            for (place, (curve, _)) in PARTS.iter().take(2).enumerate() {
                if name == *curve {
                    curves[place][0].push(alone);
                    curves[place][1].push(own);
                }
            }
            if name == PARTS[1].0 {
                context.say(&format!(
                    "load {load}: 99 % within {own:.2} µs, {:.2} more than without shared state",
                    spread.median
                ));
                if load == LOAD_OF_THE_ROW {
                    outcome = outcome
                        .with_value(spread.median, spread.runs)
                        .quartiles(spread.first_quartile, spread.third_quartile)
                        .samples("added-us", added);
                }
            }
        }
        let disturbed: u32 = found.iter().flatten().map(|one| one.disturbed).sum();
        outcome = outcome.variant(
            format!("load-{load}-disturbed-passes"),
            f64::from(disturbed),
        );
    }
    for subject in &mut subjects {
        subject.check()?;
    }
    outcome = outcome.variant("void-windows", void as f64);
    let mpps = LOADS.map(|load| load / ready_ns * 1e3);
    outcome = outcome.samples("mpps", mpps.to_vec());
    for ((name, _), [sharded, shared]) in PARTS.iter().zip(curves) {
        outcome = outcome
            .samples(format!("sharded-{name}"), sharded)
            .samples(format!("shared-{name}"), shared);
    }
    Ok(outcome.lost(lost))
}
