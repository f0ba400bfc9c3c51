//! The laws on a driver in memory that keeps them, and on one with a fault for each of them: every law can fail.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::applied::Applied;
use crate::slots::{Stretch, assign, moved_permille, share_permille};
use crate::{Abilities, Counts, ObservedTarget};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SLOTS: usize = 24;

macro_rules! faults {
    ($($fault:ident breaks $law:literal,)+) => {
        /// What is wrong with a driver, each with the law that it breaks.
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Fault {
            $($fault,)+
        }

        const FAULTS: [(Fault, &str); [$($law),+].len()] = [$((Fault::$fault, $law)),+];
    };
}

faults! {
    BeginsAsApplied breaks "have nothing applied at first",
    ReportsTheStateBefore breaks "report which state is in force",
    NeverSeenAsApplied breaks "be seen to have applied what it reported",
    LastGetsNothing breaks "give each target that takes packets its share",
    IgnoresWeights breaks "give a heavier target more",
    WritesAllAgain breaks "change nothing that is so already",
    ReportsNoChange breaks "report that something changed",
    MovesEverything breaks "report all that moved, and leave the flows of others alone if it claims to",
    SendsToWhoIsOut breaks "send nothing to a target that is out",
    KeepsTheUnnamed breaks "send nothing to a target that is not named",
    StarvesTheSecond breaks "send packets to the targets that are left",
    LeavesAGap breaks "leave no packet without a target",
    SparesTheOnlyOne breaks "send everything to the only target that takes packets",
    GoesBack breaks "refuse an older state",
    TakesTwoOfOneNumber breaks "refuse another state of one number",
    LeavesOutTheUnknown breaks "refuse a target that it does not know",
    AppliesWhatItRefuses breaks "touch nothing when it refuses",
    CountsNoRefusals breaks "count what it refused",
    StopsAfterARefusal breaks "go on after a refusal",
    CountsNoChanges breaks "count what it applied and changed",
    ForgetsWhenObserved breaks "change nothing when it is asked what is there",
    DrainsGetNewFlows breaks "send a draining target nothing, unless it keeps flows",
    ClaimsToBeFaster breaks "answer within the time that it states",
    NeverTakesBack breaks "take a target that returns",
}

/// A driver whose world is its own list of slots.
struct Model {
    fault: Option<Fault>,
    slots: Vec<Stretch>,
    applied: Applied,
    /// Targets that were out once.
    were_out: BTreeSet<String>,
    has_refused: bool,
    counts: Counts,
}

impl Model {
    fn new(fault: Option<Fault>) -> Model {
        Model {
            fault,
            slots: Vec::new(),
            applied: Applied::default(),
            were_out: BTreeSet::new(),
            has_refused: false,
            counts: Counts::default(),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn refuse(&mut self, desired: &Desired) -> Result<(), SteeringError> {
        let refused = match self.applied.check(desired) {
            Err(SteeringError::Stale { .. }) if self.has(Fault::GoesBack) => Ok(()),
            Err(SteeringError::Contradicts(_)) if self.has(Fault::TakesTwoOfOneNumber) => Ok(()),
            checked => checked,
        };
        let mut named = desired.targets().map(|(name, _)| name);
        let unknown = named.find(|name| !NAMES.contains(name));
        let refused = refused.and_then(|()| match unknown {
            Some(name) if !self.has(Fault::LeavesOutTheUnknown) => {
                Err(SteeringError::UnknownTarget(name.to_owned()))
            }
            _ => Ok(()),
        });
        if self.has_refused && self.has(Fault::StopsAfterARefusal) {
            let said = "refused before".to_owned();
            let what = "anything".to_owned();
            return Err(SteeringError::Refused { what, said });
        }
        refused
    }

    /// Weights of the targets that get packets.
    fn takers(&self, desired: &Desired) -> Vec<(usize, u16)> {
        let place = |name: &str| NAMES.iter().position(|one| *one == name);
        let mut takers = BTreeMap::new();
        for (name, target) in desired.targets() {
            let Some(place) = place(name) else {
                continue;
            };
            let takes = match target.standing {
                Standing::Takes => {
                    !(self.were_out.contains(name) && self.has(Fault::NeverTakesBack))
                }
                Standing::Drains => self.has(Fault::DrainsGetNewFlows),
                Standing::Out => self.has(Fault::SendsToWhoIsOut),
            };
            if takes {
                let is_even = self.has(Fault::IgnoresWeights);
                takers.insert(place, if is_even { 1 } else { target.weight });
            }
        }
        if self.has(Fault::KeepsTheUnnamed) {
            let had: BTreeSet<_> = self.slots.iter().filter_map(|slot| slot.target).collect();
            let is_named = |place: usize| desired.targets().any(|(name, _)| name == NAMES[place]);
            let unnamed = had.into_iter().filter(|place| !is_named(*place));
            takers.extend(unnamed.map(|place| (place, 1)));
        }
        if self.has(Fault::LastGetsNothing) && takers.len() == NAMES.len() {
            takers.pop_last();
        }
        if self.has(Fault::StarvesTheSecond) && takers.len() == 2 {
            takers.pop_last();
        }
        takers.into_iter().collect()
    }

    fn planned(&self, desired: &Desired) -> Vec<Stretch> {
        let takers = self.takers(desired);
        let before = (!self.slots.is_empty()).then_some(&self.slots[..]);
        let mut slots = assign(SLOTS, &takers, before);
        if self.has(Fault::MovesEverything) && before.is_some_and(|before| before != slots) {
            slots.rotate_left(1);
        }
        let has_gap = self.has(Fault::LeavesAGap) && takers.len() == 2
            || self.has(Fault::SparesTheOnlyOne) && takers.len() == 1;
        if has_gap {
            slots[0].target = None;
        }
        slots
    }
}

impl Steering for Model {
    fn abilities(&self) -> Abilities {
        let is_slow = self.has(Fault::ClaimsToBeFaster);
        Abilities {
            keeps_flows: false,
            moves_least: true,
            waits_max: Duration::from_millis(if is_slow { 0 } else { 1_000 }),
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        if let Err(refusal) = self.refuse(desired) {
            self.has_refused = true;
            self.counts.refused += u64::from(!self.has(Fault::CountsNoRefusals));
            if self.has(Fault::AppliesWhatItRefuses) {
                self.slots = self.planned(desired);
            }
            return Err(refusal);
        }
        self.applied.begin(desired);
        let slots = self.planned(desired);
        let pairs = slots.iter().zip(&self.slots);
        let differ = pairs.filter(|(new, old)| new != old).count();
        let mut changed = (differ + SLOTS - self.slots.len()) as u32;
        if self.has(Fault::WritesAllAgain) {
            changed = SLOTS as u32;
        }
        if self.has(Fault::ReportsNoChange) {
            changed = 0;
        }
        let moved = moved_permille(Some(&self.slots), &slots);
        self.slots = slots;
        for (name, target) in desired.targets() {
            if target.standing == Standing::Out {
                self.were_out.insert(name.to_owned());
            }
        }
        self.applied.finish();
        self.counts.applied += 1;
        self.counts.changed += u64::from(changed) * u64::from(!self.has(Fault::CountsNoChanges));
        let before = u64::from(self.has(Fault::ReportsTheStateBefore));
        Ok(InForce {
            generation: Generation(desired.generation().0 - before),
            changed,
            moved_permille: Some(moved),
            took: Duration::ZERO,
        })
    }

    fn observe(&mut self) -> Result<Observed, SteeringError> {
        let generation = self.applied.begun().map(Desired::generation);
        let target = |(place, name): (usize, &&str)| ObservedTarget {
            name: (*name).to_owned(),
            share_permille: share_permille(&self.slots, Some(place)),
            link_down: false,
        };
        let observed = Observed {
            generation,
            as_applied: match self.fault {
                Some(Fault::BeginsAsApplied) => true,
                Some(Fault::NeverSeenAsApplied) => false,
                _ => self.applied.is_finished(),
            },
            targets: NAMES.iter().enumerate().map(target).collect(),
            elsewhere_permille: share_permille(&self.slots, None),
        };
        if self.has(Fault::ForgetsWhenObserved) {
            self.slots.rotate_left(1);
            if let Some(slot) = self.slots.first_mut() {
                *slot = Stretch::slot(0);
            }
        }
        Ok(observed)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

fn report(fault: Option<Fault>) -> Report {
    check(&NAMES, &mut || Ok(Box::new(Model::new(fault))))
}

#[test]
fn a_sound_driver_keeps_every_law() {
    let report = report(None);
    assert_eq!(report.share(), 1.0, "{report}");
    assert_eq!(report.kept(), LAWS.len());
}

/// Every law fails on some driver, and such a driver scores below 1.
#[test]
fn each_law_can_fail() {
    for (fault, law) in FAULTS {
        let report = report(Some(fault));
        let mut broken = report.broken().map(|verdict| verdict.law);
        assert!(broken.any(|broken| broken == law), "{fault:?}: {report}");
        assert!(report.share() < 1.0, "{fault:?}: {report}");
        assert_eq!(report.verdicts.len(), LAWS.len());
    }
    let covered: BTreeSet<_> = FAULTS.iter().map(|(_, law)| *law).collect();
    assert_eq!(covered, laws().collect());
    assert_eq!(covered.len(), LAWS.len(), "no law is there twice");
}

/// A fault breaks few laws: the others are judged all the same, by drivers of their own.
#[test]
fn a_broken_law_hides_no_other() {
    for (fault, _) in FAULTS {
        let report = report(Some(fault));
        assert!(
            report.kept() * 2 >= LAWS.len(),
            "{fault:?} breaks more than half of the laws: {report}"
        );
    }
}

#[test]
fn a_law_that_panics_or_is_not_reached_is_broken() {
    let mut made = 0;
    let report = check(&NAMES, &mut || {
        made += 1;
        match made {
            1 => panic!("no world"),
            2 => Err(SteeringError::Unreachable {
                what: "the world".to_owned(),
                said: "gone".to_owned(),
            }),
            _ => Ok(Box::new(Model::new(None))),
        }
    });
    assert_eq!(report.kept(), LAWS.len() - 2, "{report}");
    let text = report.to_string();
    let first = "a driver must have nothing applied at first: it panicked: no world";
    assert!(text.contains(first), "{text}");
    assert!(
        text.contains("the world could not be asked (gone)"),
        "{text}"
    );

    let alone = check(&["a"], &mut || Ok(Box::new(Model::new(None))));
    assert_eq!(alone.share(), 0.0, "{alone}");
    assert!(matches!(alone.verdicts[0].kept, Err(LawError::FewTargets)));
}
