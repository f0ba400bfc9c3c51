//! Epochs in a host that runs: from their file or handed in, put in force, and the answer to the one who handed it in.

use std::time::Duration;

use asterism_orchestrator::epochs::{Refusal, Standing};
use asterism_placement::{Epoch, Time};

use super::{LAST_WORD, Service};
use crate::control::request_handler::{Command, Refused, in_json};
use crate::epochs::{EpochFile, Step};
use crate::run::epochs::{Watch, reported};

/// How long an epoch may take to be in force until anyone who handed it is asked to ask again: the state channel takes it at its next turn.
const IN_FORCE_MAX: Duration = Duration::from_secs(5);

/// An epoch that was handed in, is on the disk, and is not known to be in force.
#[derive(Debug)]
pub(super) struct Handed {
    command: Command,
    epoch: Epoch,
    changed: bool,
    since: Time,
}

impl Service<'_, '_> {
    /// Looks whether the file of epochs has another, and puts it in force.
    pub(super) fn watch_epochs(&mut self) {
        let now = self.clock.now();
        let reported = self.epochs.as_mut().and_then(|epochs| epochs.query(now));
        if let Some(event) = reported {
            self.log(&event);
        }
        self.go_over();
    }

    /// Gives the state channel what was found, if it has room; else the next look does.
    fn go_over(&mut self) {
        if let Some(epochs) = &mut self.epochs
            && let Some(roster) = epochs.due()
        {
            let epoch = roster.epoch;
            if self.channel.install(roster) {
                epochs.note_given(epoch);
            }
        }
    }

    /// Takes an epoch that somebody hands in. The answer follows when it is in force.
    pub(super) fn hand(&mut self, command: Command, file: &EpochFile) {
        let Some(epochs) = &mut self.epochs else {
            let why = "[cluster] epochs names no file";
            return command.answer(Err(Refused::new(Refusal::NoEpochs, why)));
        };
        let taken = epochs.take(file);
        self.log(&reported(file, &taken));
        self.go_over();
        match taken {
            Ok(step) => self.handed.push(Handed {
                command,
                epoch: Epoch(file.epoch),
                changed: step == Step::Later,
                since: self.clock.now(),
            }),
            Err(refused) => command.answer(Err(refused)),
        }
        self.answer_handed();
    }

    /// Tells anyone who handed in what is in force now.
    pub(super) fn answer_handed(&mut self) {
        if self.handed.is_empty() {
            return;
        }
        let (now, in_force) = (self.clock.now(), self.channel.snapshot().epoch);
        // The sender of one learns of a later one that came meanwhile, once that is in force.
        let known = self.epochs.as_ref().map_or(Epoch(0), Watch::epoch);
        for handed in core::mem::take(&mut self.handed) {
            if in_force >= handed.epoch.max(known) {
                handed.answer(self.epochs.as_ref(), Standing::TakesPart);
            } else if now >= handed.since + IN_FORCE_MAX {
                let why = format!(
                    "epoch {} is on the disk, and the state channel has not put it in force yet; it does by itself",
                    handed.epoch.0
                );
                handed.command.answer(Err(Refused::new(Refusal::Busy, why)));
            } else {
                self.handed.push(handed);
            }
        }
    }
}

impl Handed {
    fn answer(self, epochs: Option<&Watch>, standing: Standing) {
        let answer = epochs.map(|epochs| in_json(&epochs.in_force(self.changed, standing)));
        self.command
            .answer(answer.unwrap_or_else(|| Err("the host has no epochs".into())));
    }
}

/// Tells anyone who still waits when the host ends.
pub(super) fn answer_last(handed: Vec<Handed>, epochs: Option<&Watch>) {
    if handed.is_empty() {
        return;
    }
    for handed in handed {
        handed.answer(epochs, Standing::Ends);
    }
    std::thread::park_timeout(LAST_WORD);
}
