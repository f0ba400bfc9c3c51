//! The processes of the simulated hosts: they wait to be named, begin, join, serve, and end.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_epochs::{EpochFile, StepError};
use asterism_heartbeat::{Heartbeat, Load};
use asterism_orchestrator::controller::{Process, Stage};
use asterism_placement::Time;

use crate::report::Failure;

/// A host that its state channel has not received for so long is silent.
const SILENT_AFTER: Duration = Duration::from_millis(250);

/// One process of a host.
#[derive(Clone, Debug)]
pub(super) struct Proc {
    pub(super) place: usize,
    pub(super) process: Process,
    pub(super) is_alive: bool,
    pub(super) stage: Stage,
    pub(super) epoch: Option<EpochFile>,
    /// When it has the others' state, if it can get it.
    pub(super) joined_at: Time,
    /// When it began to serve.
    pub(super) serves_since: Option<Time>,
    /// When it was last of no use to the others: paused, cut off, or not there.
    pub(super) unwell_at: Time,
    /// When each place was received last.
    heard: BTreeMap<usize, Time>,
    /// Cut off from everything for good: its machine was given up.
    pub(super) is_given_up: bool,
}

/// What an epoch means to a process that was handed it.
pub(super) enum Taken {
    Nothing,
    Begins(u64),
    Ends,
}

impl Proc {
    pub(super) fn new(place: usize, process: Process, now: Time) -> Proc {
        Proc {
            place,
            process,
            is_alive: true,
            stage: Stage::Awaiting,
            epoch: None,
            joined_at: Time::MAX,
            serves_since: None,
            unwell_at: now,
            heard: BTreeMap::new(),
            is_given_up: false,
        }
    }

    /// Takes an epoch as a host does. `used` is the last incarnation that was used in its folder.
    pub(super) fn take(
        &mut self,
        name: &str,
        epoch: &EpochFile,
        used: u64,
    ) -> Result<Taken, Failure> {
        if let Some(known) = &self.epoch {
            match known.step_to(epoch) {
                Ok(_) => {}
                Err(StepError::Older { .. }) => return Ok(Taken::Nothing),
                Err(error) => {
                    return Err(Failure::new(
                        "one history",
                        format!("{name} refuses: {error}"),
                    ));
                }
            }
        }
        self.epoch = Some(epoch.clone());
        let named = epoch.members.get(name).copied();
        Ok(match (self.stage.incarnation(), named) {
            (None, Some(incarnation)) if incarnation > used => Taken::Begins(incarnation),
            (Some(incarnation), named) if named != Some(incarnation) => Taken::Ends,
            _ => Taken::Nothing,
        })
    }

    /// Another place was received, in the incarnation of this process's epoch.
    pub(super) fn hear(&mut self, place: usize, now: Time) {
        self.heard.insert(place, now);
    }

    /// The members that it has not received for too long, a bit for each place.
    fn silent(&self, names: &[String], now: Time) -> u64 {
        let Some(epoch) = &self.epoch else {
            return 0;
        };
        let is_silent = |place: &usize| {
            let heard = self.heard.get(place).copied().unwrap_or(Time::ZERO);
            *place != self.place
                && epoch.members.contains_key(&names[*place])
                && now.since(heard) > SILENT_AFTER
        };
        (0..names.len())
            .filter(is_silent)
            .fold(0, |silent, place| silent | 1 << place)
    }

    pub(super) fn heartbeat(&self, names: &[String], now: Time, differs: bool) -> Heartbeat {
        Heartbeat {
            host: names[self.place].clone(),
            address: None,
            process: self.process,
            stage: self.stage,
            epoch: self.epoch.as_ref().map_or(0, |epoch| epoch.epoch),
            silent: self.silent(names, now),
            digests_agree: !differs,
            launch: 0,
            load: Load::default(),
            usage: [].into(),
        }
    }
}
