//! `nat.stations`: what it costs to look up who a packet is handed to, where nobody configured the Ethernet addresses.

use super::nat_bench::{NatBench, Placed, Stations};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions::{self, Work, Workload};
use crate::timing::{Spread, Stopwatch};
use crate::traffic::Flows;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.stations",
    make: stations,
}];

/// What is counted in instructions, and by which stations.
const COUNTED: [&str; 3] = [
    "nat.stations-configured",
    "nat.stations-learnt",
    "nat.stations-on-link",
];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: COUNTED[0],
        prepare: || work(Stations::Configured),
    },
    Workload {
        name: COUNTED[1],
        prepare: || work(Stations::Learnt),
    },
    Workload {
        name: COUNTED[2],
        prepare: || work(Stations::OnLink),
    },
];

/// Sessions that are timed, of so many inside hosts, and those that are counted.
const SESSIONS: u32 = 10_000;
const HOSTS: u32 = 1_000;
const COUNTED_SESSIONS: u32 = 1_000;
const COUNTED_HOSTS: u32 = 100;
/// Set-ups, each with memory of its own.
const SET_UPS: u64 = 5;

fn work(stations: Stations) -> Work {
    let flows = Flows::of_both(COUNTED_SESSIONS, 1).from_hosts(COUNTED_HOSTS);
    let bench = NatBench::among(&flows, Placed::Local, stations, 1);
    bench
        .unwrap_or_else(|failure| panic!("{failure:?}"))
        .counted()
}

/// The same flows through three NATs, in turn.
fn stations(context: &Context) -> Result<Outcome, Failure> {
    context.say("stepping");
    let [configured, learnt, on_link] = instructions::per_packet_each(COUNTED)?;
    let mut watch = Stopwatch::default();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut ratios = [Vec::new(), Vec::new()];
    // Kept until the end, or the next set-up would lie where the one before lay.
    let mut set_ups = Vec::new();
    for set_up in 0..SET_UPS {
        context.say(&format!("{} of {SET_UPS}", set_up + 1));
        let seed = context.seed + set_up;
        let flows = Flows::of_both(SESSIONS, seed).from_hosts(HOSTS);
        let bench = |stations| {
            NatBench::among(
                &flows,
                Placed::Replicated(Default::default()),
                stations,
                seed,
            )
        };
        let mut benches = [
            bench(Stations::Configured)?,
            bench(Stations::Learnt)?,
            bench(Stations::OnLink)?,
        ];
        for turn in 0..=if context.full { 21 } else { 5 } {
            let mut took = [0.0; 3];
            for (bench, took) in benches.iter_mut().zip(&mut took) {
                *took = bench.window(&mut watch)?;
            }
            // The first is not counted.
            if turn > 0 {
                for (times, took) in times.iter_mut().zip(took) {
                    times.push(took);
                }
                let [configured, others @ ..] = took;
                for (ratios, other) in ratios.iter_mut().zip(others) {
                    ratios.push(other / configured);
                }
            }
        }
        set_ups.push(benches);
    }
    let [of_learnt, of_on_link] = ratios.map(|ratios| Spread::of(&ratios));
    let median = |times: &[f64]| Spread::of(times).median;
    let worst = if of_learnt.median > of_on_link.median {
        &of_learnt
    } else {
        &of_on_link
    };
    Ok(Outcome::of(worst)
        .variant("learnt-routers", of_learnt.median)
        .variant("on-link", of_on_link.median)
        .variant("configured-ns", median(&times[0]))
        .variant("learnt-routers-ns", median(&times[1]))
        .variant("on-link-ns", median(&times[2]))
        .variant("configured-instructions", configured)
        .variant("learnt-routers-instructions", learnt)
        .variant("on-link-instructions", on_link)
        .lost(watch.lost()))
}
