//! The laws of every driver, as a suite: each law runs alone, on a driver of its own, so that one broken law hides no other.
//!
//! A driver's tests call [`check`] with a world in memory and with the real one; the measure `steering.conformance` counts
//! the laws that hold. `tests.rs` has a faulty driver for every law: a law that no driver can break proves nothing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{
    Desired, DesiredError, Generation, InForce, Observed, Standing, Steering, SteeringError, Target,
};
use crate::clock;

/// How far two figures in thousandths may lie apart that were rounded in different directions.
const ROUNDING_PERMILLE: u32 = 2;

/// Why a law did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// The driver answered, and did otherwise.
    #[error("it does not")]
    Broken,
    /// Fewer than two targets were given: no law was tried.
    #[error("the laws need two targets")]
    FewTargets,
    /// The given names cannot be those of targets.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// The driver failed where no law wants it to, or could not be made.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The driver, or the maker of drivers, panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
}

/// One law, and whether the driver keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The law: what a driver must do.
    pub law: &'static str,
    /// Whether it does.
    pub kept: Result<(), LawError>,
}

/// A verdict for each law, in the order of [`laws`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// All of them. A law that was not reached is among them, as broken.
    pub verdicts: Vec<Verdict>,
}

impl Report {
    /// How many laws the driver keeps.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.verdicts.len() - self.broken().count()
    }

    /// The share of laws that the driver keeps: 1 only if it keeps all.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.kept() as f64 / self.verdicts.len() as f64
    }

    /// The laws that the driver breaks, or that were not reached.
    pub fn broken(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| verdict.kept.is_err())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} laws kept", self.kept(), self.verdicts.len())?;
        for Verdict { law, kept } in self.broken() {
            if let Err(why) = kept {
                write!(f, "; a driver must {law}: {why}")?;
            }
        }
        Ok(())
    }
}

/// The sentences of all laws, each after "a driver must".
pub fn laws() -> impl Iterator<Item = &'static str> {
    LAWS.iter().map(|law| law.must)
}

/// Holds drivers to the laws of [`Steering`], each law on one that `make` hands out: it has applied nothing yet, and knows these
/// targets, at least two. All may be of one world, as the law before left it; the last law leaves every target with packets.
pub fn check(
    names: &[&str],
    make: &mut dyn FnMut() -> Result<Box<dyn Steering>, SteeringError>,
) -> Report {
    let verdict = |law: &Law| {
        let mut run = || law.run(names, make);
        // A driver that panicked is dropped with its trial; the next law gets another one.
        let kept = catch_unwind(AssertUnwindSafe(&mut run));
        let kept = kept.unwrap_or_else(|panic| Err(LawError::Panicked(message(&*panic))));
        Verdict {
            law: law.must,
            kept,
        }
    };
    Report {
        verdicts: LAWS.iter().map(verdict).collect(),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

struct Law {
    must: &'static str,
    holds: fn(&mut Trial<'_>) -> Result<bool, LawError>,
}

impl Law {
    fn run(
        &self,
        names: &[&str],
        make: &mut dyn FnMut() -> Result<Box<dyn Steering>, SteeringError>,
    ) -> Result<(), LawError> {
        let [first, .., last] = names else {
            return Err(LawError::FewTargets);
        };
        let mut trial = Trial {
            driver: make()?,
            names,
            first,
            last,
        };
        match (self.holds)(&mut trial)? {
            true => Ok(()),
            false => Err(LawError::Broken),
        }
    }
}

const LAWS: &[Law] = &[
    Law {
        must: "have nothing applied at first",
        holds: |trial| {
            let seen = trial.driver.observe()?;
            Ok(seen.generation.is_none() && !seen.as_applied)
        },
    },
    Law {
        must: "report which state is in force",
        holds: |trial| {
            let done = trial.all(2)?;
            let seen = trial.driver.observe()?;
            Ok(done.generation == Generation(2) && seen.generation == Some(Generation(2)))
        },
    },
    Law {
        must: "be seen to have applied what it reported",
        holds: |trial| {
            trial.all(2)?;
            Ok(trial.driver.observe()?.as_applied)
        },
    },
    Law {
        must: "give each target that takes packets its share",
        holds: |trial| {
            trial.all(2)?;
            Ok(trial.all_have_shares()?)
        },
    },
    Law {
        must: "give a heavier target more",
        holds: |trial| {
            let heavy = Target {
                weight: 3,
                ..Target::TAKES
            };
            let (first, last) = (trial.first, trial.last);
            trial.apply(2, |name| {
                let light = if name == last {
                    Target::TAKES
                } else {
                    Target::OUT
                };
                Some(if name == first { heavy } else { light })
            })?;
            let seen = trial.driver.observe()?;
            Ok(share(&seen, first) > share(&seen, last) && share(&seen, last) > 0)
        },
    },
    Law {
        must: "change nothing that is so already",
        holds: |trial| {
            trial.all(2)?;
            Ok(trial.all(2)?.changed == 0 && trial.all(3)?.changed == 0)
        },
    },
    Law {
        must: "report that something changed",
        holds: |trial| {
            trial.all(2)?;
            Ok(trial.without_last(3)?.changed > 0)
        },
    },
    Law {
        must: "report all that moved, and leave the flows of others alone if it claims to",
        holds: |trial| {
            trial.all(2)?;
            let left = share(&trial.driver.observe()?, trial.last);
            let Some(moved) = trial.without_last(3)?.moved_permille else {
                return Ok(!trial.driver.abilities().moves_least);
            };
            let (moved, most) = (u32::from(moved), left + ROUNDING_PERMILLE);
            Ok(moved >= left && (moved <= most || !trial.driver.abilities().moves_least))
        },
    },
    Law {
        must: "send nothing to a target that is out",
        holds: |trial| {
            trial.all(2)?;
            trial.without_last(3)?;
            Ok(share(&trial.driver.observe()?, trial.last) == 0)
        },
    },
    Law {
        must: "send nothing to a target that is not named",
        holds: |trial| {
            trial.all(2)?;
            let last = trial.last;
            trial.apply(3, |name| (name != last).then_some(Target::TAKES))?;
            Ok(share(&trial.driver.observe()?, last) == 0)
        },
    },
    Law {
        must: "send packets to the targets that are left",
        holds: |trial| {
            trial.all(2)?;
            trial.without_last(3)?;
            let seen = trial.driver.observe()?;
            let mut left = trial.names.iter().filter(|name| **name != trial.last);
            Ok(left.all(|name| share(&seen, name) > 0))
        },
    },
    Law {
        must: "leave no packet without a target",
        holds: |trial| {
            trial.all(2)?;
            trial.without_last(3)?;
            let seen = trial.driver.observe()?;
            let total: u32 = trial.names.iter().map(|name| share(&seen, name)).sum();
            // Each share is rounded down.
            Ok(total + trial.names.len() as u32 >= 1_000 && seen.elsewhere_permille == 0)
        },
    },
    Law {
        must: "send everything to the only target that takes packets",
        holds: |trial| {
            trial.all(2)?;
            let first = trial.first;
            trial.apply(3, |name| {
                Some(if name == first {
                    Target::TAKES
                } else {
                    Target::OUT
                })
            })?;
            Ok(share(&trial.driver.observe()?, first) == 1_000)
        },
    },
    Law {
        must: "refuse an older state",
        holds: |trial| {
            trial.without_last(3)?;
            Ok(matches!(trial.all(2), Err(SteeringError::Stale { .. })))
        },
    },
    Law {
        must: "refuse another state of one number",
        holds: |trial| {
            trial.without_last(3)?;
            Ok(matches!(trial.all(3), Err(SteeringError::Contradicts(_))))
        },
    },
    Law {
        must: "refuse a target that it does not know",
        holds: |trial| {
            trial.all(2)?;
            let refused = trial.driver.apply(&trial.unknown(3)?);
            Ok(matches!(refused, Err(SteeringError::UnknownTarget(_))))
        },
    },
    Law {
        must: "touch nothing when it refuses",
        holds: |trial| {
            trial.without_last(3)?;
            let before = trial.driver.observe()?;
            let refused = trial.refused_three(3)?;
            Ok(refused == 3 && trial.driver.observe()? == before)
        },
    },
    Law {
        must: "count what it refused",
        holds: |trial| {
            trial.without_last(3)?;
            let refused = trial.refused_three(3)?;
            Ok(trial.driver.counts().refused == refused)
        },
    },
    Law {
        must: "go on after a refusal",
        holds: |trial| {
            trial.without_last(3)?;
            let _ = trial.refused_three(3)?;
            let done = trial.all(4)?;
            let seen = trial.driver.observe()?;
            Ok(done.generation == Generation(4) && seen.generation == Some(Generation(4)))
        },
    },
    Law {
        must: "count what it applied and changed",
        holds: |trial| {
            let changed = trial.all(2)?.changed + trial.without_last(3)?.changed;
            let counts = trial.driver.counts();
            Ok(counts.applied == 2 && counts.changed == u64::from(changed) && counts.failed == 0)
        },
    },
    Law {
        must: "change nothing when it is asked what is there",
        holds: |trial| {
            trial.all(2)?;
            let (counts, before) = (trial.driver.counts(), trial.driver.observe()?);
            let after = trial.driver.observe()?;
            Ok(before == after && counts == trial.driver.counts() && trial.all(2)?.changed == 0)
        },
    },
    Law {
        must: "send a draining target nothing, unless it keeps flows",
        holds: |trial| {
            trial.all(2)?;
            let drains = Target {
                standing: Standing::Drains,
                ..Target::TAKES
            };
            let last = trial.last;
            trial.apply(3, |name| {
                Some(if name == last { drains } else { Target::TAKES })
            })?;
            let seen = trial.driver.observe()?;
            Ok(trial.driver.abilities().keeps_flows || share(&seen, last) == 0)
        },
    },
    Law {
        must: "answer within the time that it states",
        holds: |trial| {
            let most = trial.driver.abilities().waits_max;
            let timed = |trial: &mut Trial<'_>, generation| -> Result<Duration, LawError> {
                let began = clock::now();
                trial.all(generation)?;
                trial.driver.observe()?;
                Ok(began.elapsed())
            };
            // Two calls each.
            Ok(timed(trial, 2)? <= 2 * most && timed(trial, 3)? <= 2 * most)
        },
    },
    // The last one: it leaves every target with packets.
    Law {
        must: "take a target that returns",
        holds: |trial| {
            trial.all(2)?;
            trial.without_last(3)?;
            trial.all(4)?;
            Ok(trial.all_have_shares()?)
        },
    },
];

/// One law's driver and targets.
struct Trial<'a> {
    driver: Box<dyn Steering>,
    names: &'a [&'a str],
    first: &'a str,
    last: &'a str,
}

impl Trial<'_> {
    /// Applies a state in which each target is as `target` says; none: it is not named.
    fn apply(
        &mut self,
        generation: u64,
        target: impl Fn(&str) -> Option<Target>,
    ) -> Result<InForce, SteeringError> {
        let named = self.names.iter();
        let targets = named.filter_map(|name| Some(((*name).to_owned(), target(name)?)));
        let desired = Desired::new(Generation(generation), targets);
        let desired = desired.map_err(|error| SteeringError::Refused {
            what: "a state of the laws".to_owned(),
            said: error.to_string(),
        })?;
        self.driver.apply(&desired)
    }

    /// All targets take packets.
    fn all(&mut self, generation: u64) -> Result<InForce, SteeringError> {
        self.apply(generation, |_| Some(Target::TAKES))
    }

    /// All but the last do, which is out.
    fn without_last(&mut self, generation: u64) -> Result<InForce, SteeringError> {
        let last = self.last;
        self.apply(generation, |name| {
            Some(if name == last {
                Target::OUT
            } else {
                Target::TAKES
            })
        })
    }

    /// A state with a target that the driver does not know.
    fn unknown(&self, generation: u64) -> Result<Desired, DesiredError> {
        let names = ["nobody knows this", self.first];
        let targets = names.map(|name| (name.to_owned(), Target::TAKES));
        Desired::new(Generation(generation), targets)
    }

    /// Tries an older state, another one of this number, and an unknown target: how many were refused as such.
    fn refused_three(&mut self, generation: u64) -> Result<u64, LawError> {
        let unknown = self.unknown(generation + 1)?;
        let tried = [
            self.all(generation - 1),
            self.all(generation),
            self.driver.apply(&unknown),
        ];
        let is_refusal = |tried: &Result<InForce, SteeringError>| {
            tried.as_ref().is_err_and(SteeringError::is_refusal)
        };
        Ok(tried.iter().filter(|tried| is_refusal(tried)).count() as u64)
    }

    fn all_have_shares(&mut self) -> Result<bool, SteeringError> {
        let seen = self.driver.observe()?;
        Ok(self.names.iter().all(|name| share(&seen, name) > 0))
    }
}

/// A target's share, in thousandths; 0 of one that was not seen.
fn share(seen: &Observed, name: &str) -> u32 {
    let target = seen.targets.iter().find(|target| target.name == name);
    target.map_or(0, |target| u32::from(target.share_permille))
}

#[cfg(test)]
mod tests;
