//! Who exports an interval's flows: one host of the cluster, and the next one when it dies. For the control plane; no I/O, no clock.
//!
//! All hosts hold all counts, so any of them may export. The first living host of the member list does, once the interval is
//! over everywhere (clocks differ by up to [`SKEW_SECONDS_MAX`]) and its last counts have arrived. The others look whether it
//! lived past that moment. If it fell silent before, the next one exports the whole interval: so an interval is exported once, and
//! twice if its exporter died while it was at it; never not at all while any host lives and hears the others. The second
//! time the records are the same, from another exporter.

use asterism_function::Tick;
use asterism_function::objects::SKEW_SECONDS_MAX;

/// Seconds after an interval's end at which its counts are complete: clocks that differ, and the lag of the state channel.
pub const GRACE_S: Tick = SKEW_SECONDS_MAX + 2;
/// Seconds within which an exporter is done.
pub const EXPORT_S: Tick = 3;
/// A host that was not heard for so many seconds is taken for dead.
pub const SILENCE_S: Tick = 3;

/// A host that is before this one in the member list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// When this incarnation of it was first heard.
    pub since: Tick,
    /// When it was last heard.
    pub heard: Tick,
}

/// Which intervals this host exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExporterElection {
    interval_s: Tick,
    next: u32,
}

impl ExporterElection {
    /// Of a host that begins at `now`: with the first interval that is not due yet.
    #[must_use]
    pub fn new(interval_s: Tick, now: Tick) -> Self {
        let interval_s = interval_s.max(1);
        Self {
            interval_s,
            next: now.saturating_sub(GRACE_S) / interval_s,
        }
    }

    /// When an interval's counts are complete.
    fn due_at(&self, interval: u32) -> Tick {
        (interval + 1)
            .saturating_mul(self.interval_s)
            .saturating_add(GRACE_S)
    }

    /// The number of an interval that this host has to export now: it is from then on its election alone. `before` are the hosts before
    /// this one in the member list that were ever heard. To be asked every second or more often.
    pub fn due(&mut self, now: Tick, before: &[Before]) -> Option<u32> {
        loop {
            let (interval, due_at) = (self.next, self.due_at(self.next));
            if now < due_at {
                return None;
            }
            // An incarnation that began later has not exported it and is not going to.
            let mut exporters = before.iter().filter(|host| host.since < due_at);
            if exporters
                .clone()
                .any(|host| host.heard >= due_at.saturating_add(EXPORT_S))
            {
                self.next += 1;
                continue;
            }
            if exporters.any(|host| now.saturating_sub(host.heard) < SILENCE_S) {
                return None;
            }
            self.next += 1;
            return Some(interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tick = 60;

    /// Seconds at which a host exports which interval, if the one before it is heard as `before` says.
    fn run(from: Tick, to: Tick, before: impl Fn(Tick) -> Option<Before>) -> Vec<(Tick, u32)> {
        let mut election = ExporterElection::new(T, from);
        let mut exported = Vec::new();
        for now in from..to {
            let known: Vec<Before> = before(now).into_iter().collect();
            while let Some(interval) = election.due(now, &known) {
                exported.push((now, interval));
            }
        }
        exported
    }

    #[test]
    fn the_first_host_exports_every_interval_once_it_is_complete() {
        assert_eq!(
            run(0, 200, |_| None),
            [(T + GRACE_S, 0), (2 * T + GRACE_S, 1), (3 * T + GRACE_S, 2)]
        );
    }

    #[test]
    fn the_second_exports_nothing_while_the_first_is_alive() {
        let alive = |now| {
            Some(Before {
                since: 0,
                heard: now,
            })
        };
        assert_eq!(run(0, 1_000, alive), []);
    }

    #[test]
    fn whenever_the_first_dies_every_interval_is_exported_and_at_most_one_twice() {
        for death in 0..300 {
            let first = run(0, death, |_| None);
            let second = run(0, 600, |now| {
                Some(Before {
                    since: 0,
                    heard: now.min(death),
                })
            });
            for interval in 0..8 {
                let times = [&first, &second]
                    .iter()
                    .map(|of| of.iter().filter(|(_, other)| *other == interval).count())
                    .sum::<usize>();
                let due_at = (interval + 1) * T + GRACE_S;
                let under_way = (due_at..due_at + EXPORT_S).contains(&death.saturating_sub(1));
                assert!(
                    times == 1 || times == 2 && (under_way || death == due_at + EXPORT_S),
                    "died at {death}: interval {interval} was exported {times} times"
                );
            }
        }
    }

    #[test]
    fn a_first_host_that_comes_back_takes_over_and_nothing_is_left_out() {
        for death in 100..260 {
            for away in 1..90 {
                let back = death + away;
                let mut first = run(0, death, |_| None);
                first.extend(run(back, 800, |_| None));
                let second = run(0, 800, |now| {
                    Some(if now < back {
                        Before {
                            since: 0,
                            heard: now.min(death),
                        }
                    } else {
                        Before {
                            since: back,
                            heard: now,
                        }
                    })
                });
                for interval in 0..12 {
                    let exported = first
                        .iter()
                        .chain(&second)
                        .any(|(_, other)| *other == interval);
                    assert!(exported, "died at {death}, back at {back}: {interval}");
                }
            }
        }
    }
}
