//! What must hold at every moment of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_epochs::EpochFile;
use asterism_orchestrator::controller::{Record, Stage};
use asterism_orchestrator::steering::Desired;
use asterism_placement::Time;

use super::hosts::Proc;
use crate::report::Failure;

/// Records of what was so, against which what happens is held.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The text of each epoch that a host was handed.
    epochs: BTreeMap<u32, String>,
    /// Heartbeats of a hundred that are lost.
    loss_percent: u64,
    /// Claims that were judged.
    pub(super) judged: u64,
}

/// A host that was well for so long may not be left out, nor lose its packets together with most others.
pub(super) const WELL_FOR: Duration = Duration::from_millis(1_200);

impl Claims {
    pub(super) fn new(loss_percent: u64) -> Claims {
        Claims {
            loss_percent,
            ..Claims::default()
        }
    }

    /// A process begins an incarnation.
    pub(super) fn begins(
        &mut self,
        processes: &[Proc],
        place: usize,
        incarnation: u64,
    ) -> Result<(), Failure> {
        self.judged += 1;
        let other = processes.iter().find(|other| {
            other.place == place && other.is_alive && other.stage.incarnation().is_some()
        });
        match other {
            Some(other) => Err(Failure::new(
                "one life in a place",
                format!(
                    "place {place} begins {incarnation} while {:?} lives",
                    other.stage
                ),
            )),
            None => Ok(()),
        }
    }

    /// A host is handed an epoch.
    pub(super) fn handed(&mut self, epoch: &EpochFile) -> Result<(), Failure> {
        self.judged += 1;
        let text = epoch.text();
        let known = self
            .epochs
            .entry(epoch.epoch)
            .or_insert_with(|| text.clone());
        match *known == text {
            true => Ok(()),
            false => Err(Failure::new(
                "one epoch of a number",
                format!("{known}\n{text}"),
            )),
        }
    }

    /// The store has a new record.
    pub(super) fn stored(
        &mut self,
        names: &[String],
        processes: &[Proc],
        before: &Record,
        after: &Record,
        now: Time,
    ) -> Result<(), Failure> {
        self.judged += 1;
        let Some(epoch) = &after.epoch else {
            return Ok(());
        };
        for (name, incarnation) in &epoch.fenced {
            let lives = processes.iter().any(|process| {
                names[process.place] == *name
                    && process.is_alive
                    && process
                        .stage
                        .incarnation()
                        .is_some_and(|one| one <= *incarnation)
            });
            if lives {
                let detail = format!("incarnation {incarnation} of {name} lives, and is fenced");
                return Err(Failure::new("only the ended are fenced", detail));
            }
        }
        for (name, incarnation) in before.epoch.iter().flat_map(|epoch| &epoch.members) {
            let well = processes.iter().any(|process| {
                names[process.place] == *name
                    && process.is_alive
                    && process.stage == Stage::Serving(*incarnation)
                    && now.since(process.unwell_at) >= WELL_FOR
            });
            if well && epoch.members.get(name) != Some(incarnation) {
                let detail = format!("incarnation {incarnation} of {name} is well, and left out");
                return Err(Failure::new("who is well takes part", detail));
            }
        }
        Ok(())
    }

    /// A leader was deposed that so many hosts hear which are well.
    pub(super) fn deposed(
        &mut self,
        leader: usize,
        is_well: bool,
        hearing: usize,
    ) -> Result<(), Failure> {
        self.judged += 1;
        // With a twentieth of the datagrams lost, one host misses four answers in a row now and then.
        if self.loss_percent <= 2 && is_well && hearing > 0 {
            let detail = format!(
                "orchestrator {leader} is well, {hearing} hosts hear it, and it is deposed"
            );
            return Err(Failure::new("who is heard leads on", detail));
        }
        Ok(())
    }

    /// The steering is applied.
    pub(super) fn steered(
        &mut self,
        names: &[String],
        processes: &[Proc],
        before: Option<&Desired>,
        after: &Desired,
        differing: &BTreeMap<usize, Time>,
        now: Time,
    ) -> Result<(), Failure> {
        self.judged += 1;
        let targets: BTreeSet<&str> = after.targets().map(|(name, _)| name).collect();
        let had: BTreeSet<&str> = before
            .iter()
            .flat_map(|before| before.targets())
            .map(|(name, _)| name)
            .collect();
        for process in processes.iter().filter(|process| process.is_alive) {
            let name = names[process.place].as_str();
            let is_new = targets.contains(name) && !had.contains(name);
            let joins = matches!(process.stage, Stage::Joining(_));
            if is_new && joins && !process.is_given_up {
                return Err(Failure::new("only who has joined gets packets", name));
            }
            // One that agreed once, and differs since, is the auditor's concern.
            let differs = matches!(process.stage, Stage::Serving(_))
                && differing.get(&process.place).is_some_and(|began| {
                    let since = process.serves_since;
                    since.is_some_and(|since| *began <= since)
                });
            if is_new && differs && !process.is_given_up {
                return Err(Failure::new("only who agrees gets packets", name));
            }
        }
        let well: Vec<&str> = processes
            .iter()
            .filter(|process| {
                process.is_alive
                    && matches!(process.stage, Stage::Serving(_))
                    && now.since(process.unwell_at) >= WELL_FOR
            })
            .map(|process| names[process.place].as_str())
            .filter(|name| had.contains(name))
            .collect();
        let lost = well.iter().filter(|name| !targets.contains(*name)).count();
        // Where nobody who is well is heard, nobody can know that the others are.
        // With a fifth of the heartbeats lost, hosts that are well are silent now and then.
        if self.loss_percent <= 5 && lost >= 2 && 2 * lost > well.len() && lost < well.len() {
            let detail = format!("{lost} of {well:?} lose their packets at once: {targets:?}");
            return Err(Failure::new("the well keep their packets", detail));
        }
        Ok(())
    }
}
