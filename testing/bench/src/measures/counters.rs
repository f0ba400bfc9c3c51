//! `counters.both-sides`, `counters.lag`: two instances add to the same counters on every packet.

use std::time::Duration;

use super::counters_pair::{Lags, Load, Ran, Side, run};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::Spread;

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "counters.both-sides",
        make: both_sides,
    },
    Measure {
        name: "counters.lag",
        make: lag,
    },
];

/// The interval at which totals are reported, as the throughput is measured: a counter of ten thousand that is added to
/// at fifteen million packets a second changes four times in it. Longer is faster, and lags more: see the variants.
const FLUSH_US: u64 = 3_000;
/// The interval at which the lag is measured: the shorter, the more is reported.
const FLUSH_LAG_US: u64 = 20;
/// Packets that an instance handles between two turns of its channel, in bursts.
const BURSTS: u32 = 4;

/// Million packets per on-CPU second of the slower side, window by window.
fn slower(ran: &Ran) -> Vec<f64> {
    let [one, two] = &ran.sides;
    let rate = |side: &Side| {
        side.windows
            .iter()
            .map(|window| window.per_microsecond())
            .collect::<Vec<_>>()
    };
    rate(one)
        .into_iter()
        .zip(rate(two))
        .map(|(one, two)| one.min(two))
        .collect()
}

fn both_sides(context: &Context) -> Result<Outcome, Failure> {
    let time = Duration::from_millis(if context.full { 30_000 } else { 6_000 });
    context.say("measuring");
    let ran = run(&Load::unpaced(FLUSH_US, BURSTS, time), context.seed)?;
    let found = slower(&ran);
    let mut outcome = Outcome::of(&Spread::of(&found)).lost(ran.lost());
    outcome = outcome
        .variant("packets", ran.packets() as f64)
        .variant("datagrams-refused", ran.refused() as f64)
        .variant("flush-ms", FLUSH_US as f64 / 1e3);
    for flush_us in [200, 1_000, 10_000, 30_000] {
        context.say("measuring another flush interval");
        let ran = run(
            &Load::unpaced(flush_us, BURSTS, Duration::from_millis(2_000)),
            context.seed,
        )?;
        outcome = outcome.variant(
            format!("flush-{flush_us}-us"),
            Spread::of(&slower(&ran)).median,
        );
    }
    context.say("measuring the lag");
    let half = Spread::of(&found).median / 2.0;
    let ran = run(
        &Load::paced(FLUSH_US, BURSTS, Duration::from_millis(3_000), half),
        context.seed,
    )?;
    let lags = ran.lags_ms()?.while_running;
    Ok(outcome
        .variant("lag-ms", Spread::of(&lags).median)
        .samples("both-sides", found))
}

fn lag(context: &Context) -> Result<Outcome, Failure> {
    let time = Duration::from_millis(if context.full { 60_000 } else { 10_000 });
    context.say("measuring the capacity");
    let ran = run(
        &Load::unpaced(FLUSH_LAG_US, 1, Duration::from_millis(3_000)),
        context.seed,
    )?;
    let half = Spread::of(&slower(&ran)).median / 2.0;
    context.say("measuring the lag at half of it");
    let ran = run(&Load::paced(FLUSH_LAG_US, 1, time, half), context.seed)?;
    let Lags {
        while_running: lags,
        all,
    } = ran.lags_ms()?;
    let mut sorted = lags.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let mut outcome = Outcome::of(&Spread::of(&lags))
        .variant("99-percent", at(0.99))
        .variant("longest", at(1.0))
        .variant("writes-seen", all.len() as f64)
        // Of those, how many met a thread that another program kept from running; they are not in the value.
        .variant(
            "share-interrupted",
            1.0 - lags.len() as f64 / all.len() as f64,
        )
        .variant("median-interrupted-too", Spread::of(&all).median)
        .variant("flush-us", FLUSH_LAG_US as f64)
        .variant("load-mpps", half)
        .lost(ran.lost());
    for flush_us in [5, 50, 200] {
        context.say("measuring another flush interval");
        let ran = run(
            &Load::paced(flush_us, 1, Duration::from_millis(3_000), half),
            context.seed,
        )?;
        outcome = outcome.variant(
            format!("flush-{flush_us}-us"),
            Spread::of(&ran.lags_ms()?.while_running).median,
        );
    }
    Ok(outcome)
}
