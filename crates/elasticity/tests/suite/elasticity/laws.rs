//! What must hold of every decision, checked by other means than the decisions are made with.

use asterism_elasticity::{Action, Decision, HostSample, Metric, Reason, Rules, Standing, UnixMs};

/// What is remembered of the calls so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Laws {
    changed: Option<UnixMs>,
    moved: Option<UnixMs>,
    /// Since when each metric is above its threshold, at every call.
    above: [Option<UnixMs>; 5],
    /// Since when all metrics are below their thresholds, at every call.
    below: Option<UnixMs>,
    failures: u32,
    failed: Option<UnixMs>,
    /// Changes so far, those that only keep the bounds left out.
    pub(crate) changes: u64,
    pub(crate) moves: u64,
}

type Law = Result<(), String>;

fn demand(holds: bool, law: impl FnOnce() -> String) -> Law {
    if holds { Ok(()) } else { Err(law()) }
}

/// What the samples of one call show.
struct Seen<'a> {
    serving: Vec<&'a HostSample>,
    fresh: Vec<&'a HostSample>,
    suspected: usize,
    starting: usize,
    draining: usize,
}

impl<'a> Seen<'a> {
    fn new(rules: &Rules, samples: &'a [HostSample]) -> Seen<'a> {
        let of = |standing: Standing| samples.iter().filter(move |one| one.standing == standing);
        let is_fresh = |one: &&HostSample| one.age_ms.is_some_and(|age| age < rules.stale_after.0);
        Seen {
            serving: of(Standing::Serving).collect(),
            fresh: of(Standing::Serving).filter(is_fresh).collect(),
            suspected: of(Standing::Suspected).count(),
            starting: of(Standing::Starting).count(),
            draining: of(Standing::Draining).count(),
        }
    }

    fn sound(&self, metric: Metric) -> Vec<u64> {
        let sound = |one: &&HostSample| one.figure(metric);
        self.fresh.iter().filter_map(sound).collect()
    }

    fn is_above(&self, metric: Metric, out: u64) -> bool {
        let figures = self.sound(metric);
        let enough = !figures.is_empty() && 2 * figures.len() >= self.serving.len();
        let above = match metric.is_shared() {
            true => figures.iter().sum::<u64>() / figures.len().max(1) as u64 > out,
            false => 2 * figures.iter().filter(|figure| **figure > out).count() > figures.len(),
        };
        enough && above
    }

    /// Whether the figure would stay below the threshold by the hysteresis, were there one host less.
    fn fits(&self, rules: &Rules, metric: Metric, out: u64) -> bool {
        let figures = self.sound(metric);
        let hosts = figures.len() as u64;
        let sum: u64 = match metric.is_shared() {
            true => figures.iter().sum(),
            false => hosts * figures.iter().max().copied().unwrap_or(0),
        };
        let ceiling = out * u64::from(1_000 - rules.hysteresis_permille) / 1_000;
        hosts >= 2 && sum / (hosts - 1) <= ceiling
    }

    fn is_below(&self, metric: Metric, within: u64) -> bool {
        let figures = self.sound(metric);
        let sum: u64 = figures.iter().sum();
        let all = !figures.is_empty() && figures.len() == self.serving.len();
        all && match metric.is_shared() {
            true => sum < within * figures.len() as u64,
            false => figures.iter().all(|figure| *figure < within),
        }
    }
}

impl Laws {
    /// A launch ended.
    pub(crate) fn launch_failed(&mut self, now: UnixMs) {
        self.failures += 1;
        self.failed = Some(now);
    }

    /// A launch ended well.
    pub(crate) fn launch_succeeded(&mut self) {
        self.failures = 0;
        self.failed = None;
    }

    /// The clock leapt: nothing is known of spans.
    pub(crate) fn clock_leapt(&mut self) {
        self.changed = None;
        self.moved = None;
        self.failed = None;
        self.above = [None; 5];
        self.below = None;
    }

    /// Checks one call. `running` is how many hosts run or are ordered, `minimum` the least number of hosts now.
    pub(crate) fn check(
        &mut self,
        rules: &Rules,
        now: UnixMs,
        samples: &[HostSample],
        decisions: &[Decision],
        (running, ordered): (u32, u32),
        minimum: u32,
    ) -> Law {
        let seen = Seen::new(rules, samples);
        self.follow(rules, now, &seen);
        demand(!decisions.is_empty(), || "no decision at all".to_owned())?;
        let sizes = decisions
            .iter()
            .filter(|one| matches!(one.action, Action::ScaleOut { .. } | Action::ScaleIn { .. }));
        let changes = sizes.count();
        demand(changes <= 1, || format!("{changes} changes in one call"))?;
        let acts = decisions.iter().any(|one| one.action != Action::Hold);
        let known = seen.serving.len() + seen.suspected;
        demand(!acts || 2 * seen.fresh.len() >= known, || {
            format!("acts on {} samples of {known}", seen.fresh.len())
        })?;
        for decision in decisions {
            match &decision.action {
                Action::ScaleOut { count } => {
                    self.added(
                        rules,
                        now,
                        &seen,
                        decision,
                        *count,
                        (running, ordered),
                        minimum,
                    )?;
                }
                Action::ScaleIn { host, .. } => {
                    self.removed(rules, now, &seen, decision, host, minimum)?;
                }
                Action::MoveBuckets { from, to, buckets } => {
                    demand(changes == 0, || "moves buckets at a change".to_owned())?;
                    self.moved(rules, now, &seen, (from, to), buckets)?;
                }
                Action::Hold => {}
            }
        }
        if decisions
            .iter()
            .any(|one| matches!(one.action, Action::MoveBuckets { .. }))
        {
            self.moved = Some(now);
            self.moves += 1;
        }
        Ok(())
    }

    fn follow(&mut self, rules: &Rules, now: UnixMs, seen: &Seen<'_>) {
        for (place, metric) in Metric::ALL.into_iter().enumerate() {
            let thresholds = rules.thresholds.get(&metric);
            let is_above = thresholds.is_some_and(|one| seen.is_above(metric, one.out));
            self.above[place] = is_above.then(|| self.above[place].unwrap_or(now));
        }
        let mut all = rules.thresholds.iter();
        let is_below = !rules.thresholds.is_empty()
            && all.all(|(metric, one)| {
                seen.is_below(*metric, one.within) && seen.fits(rules, *metric, one.out)
            });
        self.below = is_below.then(|| self.below.unwrap_or(now));
    }

    #[allow(clippy::too_many_arguments)]
    fn added(
        &mut self,
        rules: &Rules,
        now: UnixMs,
        seen: &Seen<'_>,
        decision: &Decision,
        count: u32,
        (running, ordered): (u32, u32),
        minimum: u32,
    ) -> Law {
        demand((1..=rules.step).contains(&count), || {
            format!("adds {count}")
        })?;
        demand(running + count <= rules.max, || {
            format!(
                "{running} hosts run, {count} are added, {} is the maximum",
                rules.max
            )
        })?;
        if let Some(failed) = self.failed {
            let pause = rules.back_off.first.0 << (self.failures - 1).min(20);
            let until = failed.0 + pause.min(rules.back_off.most.0);
            demand(now.0 >= until && count == 1, || {
                format!(
                    "launches {count} after {} failures, {} ms early",
                    self.failures,
                    until - now.0
                )
            })?;
        }
        match &decision.reason {
            Reason::BelowMinimum { .. } => demand(ordered + count <= minimum, || {
                format!(
                    "{ordered} hosts are on their way, {count} are added, {minimum} are asked for"
                )
            }),
            Reason::Above { excess, .. } => {
                self.change(rules, now)?;
                let place = Metric::ALL.iter().position(|one| *one == excess.metric);
                let above = place.and_then(|place| self.above[place]);
                demand(
                    above.is_some_and(|above| now.since(above) >= rules.out_for),
                    || {
                        format!(
                            "{} was above since {above:?}, and it is {now:?}",
                            excess.metric
                        )
                    },
                )?;
                let figures = seen.sound(excess.metric);
                let mean = figures.iter().sum::<u64>() / figures.len().max(1) as u64;
                let kept = u64::from(1_000 - rules.hysteresis_permille);
                let ceiling = excess.out * kept / 1_000;
                let serving = seen.serving.len() as u64;
                let needed = match excess.metric.is_shared() {
                    true => (mean * serving).div_ceil(ceiling.max(1)),
                    false => serving + 1,
                };
                let coming = u64::from(ordered) - seen.suspected as u64 + u64::from(count);
                demand(coming <= needed, || {
                    format!("{coming} hosts would be there, {needed} are needed")
                })
            }
            other => Err(format!("adds hosts because {other:?}")),
        }
    }

    fn removed(
        &mut self,
        rules: &Rules,
        now: UnixMs,
        seen: &Seen<'_>,
        decision: &Decision,
        host: &str,
        minimum: u32,
    ) -> Law {
        self.change(rules, now)?;
        let serving = seen.serving.len();
        let serves = seen.serving.iter().any(|one| one.host == host);
        demand(serves, || format!("removes {host}, which does not serve"))?;
        let settled = seen.suspected + seen.starting + seen.draining == 0;
        demand(settled, || {
            format!("removes {host} while others come, go or may be dead")
        })?;
        demand(serving as u32 > minimum, || {
            format!("removes one of {serving}, and {minimum} are asked for")
        })?;
        if matches!(decision.reason, Reason::AboveMaximum { .. }) {
            return demand(serving as u32 > rules.max, || "above no maximum".to_owned());
        }
        if matches!(decision.reason, Reason::Below { .. }) {
            let lasted = self
                .below
                .is_some_and(|below| now.since(below) >= rules.in_for);
            demand(lasted, || "removes too early".to_owned())?;
        }
        for (metric, thresholds) in &rules.thresholds {
            let figures = seen.sound(*metric);
            demand(figures.len() == serving, || {
                format!(
                    "removes {host} and knows {metric} of {} of {serving}",
                    figures.len()
                )
            })?;
            let others = serving as u64 - 1;
            let after = match metric.is_shared() {
                true => figures.iter().sum::<u64>() / others,
                false => figures.iter().max().copied().unwrap_or(0),
            };
            demand(after <= thresholds.out, || {
                format!(
                    "removes {host}, and {metric} becomes {after} above {}",
                    thresholds.out
                )
            })?;
        }
        Ok(())
    }

    fn moved(
        &mut self,
        rules: &Rules,
        now: UnixMs,
        seen: &Seen<'_>,
        (from, to): (&str, &str),
        buckets: &[u32],
    ) -> Law {
        let hot_spot = rules.hot_spot.ok_or("moves buckets without a rule")?;
        if let Some(moved) = self.moved {
            demand(now.since(moved) >= hot_spot.cool_down, || {
                format!("moves buckets {} after others", now.since(moved))
            })?;
        }
        let host = |name: &str| seen.fresh.iter().find(|one| one.host == name);
        let (Some(from), Some(_)) = (host(from), host(to)) else {
            return Err(format!(
                "moves buckets from {from} to {to}, and one does not serve"
            ));
        };
        let own = from.buckets.as_deref().unwrap_or_default();
        let all_own = buckets
            .iter()
            .all(|bucket| own.iter().any(|one| one.bucket == *bucket));
        demand(all_own && !buckets.is_empty(), || {
            format!("moves {buckets:?}, which {} has not", from.host)
        })?;
        demand(buckets.len() <= hot_spot.buckets_max as usize, || {
            format!("moves {} buckets", buckets.len())
        })
    }

    /// A change that no bound asks for.
    fn change(&mut self, rules: &Rules, now: UnixMs) -> Law {
        if let Some(changed) = self.changed {
            demand(now.since(changed) >= rules.cool_down, || {
                format!("changes {} after a change", now.since(changed))
            })?;
        }
        self.changed = Some(now);
        self.changes += 1;
        Ok(())
    }
}
