//! Epochs in a host that runs: from their file or handed in, put in force, and the answer to the one who handed it in.

use std::time::Duration;

use asterism_epochs::{Refusal, Standing};
use asterism_placement::{Epoch, Incarnation, Time};

use super::job::{HostContext, HostLog, Job};
use crate::control::request_handler::{Command, LAST_WORD, Refused, in_json};
use crate::run::epochs::{Installed, Watch, reported};
use asterism_epochs::{EpochFile, RecordError, Step};

/// How long an epoch may take to be in force until anyone who handed it is asked to ask again: the state channel takes it at its next turn.
const IN_FORCE_MAX: Duration = Duration::from_secs(5);

/// The epochs of a host that runs.
#[derive(Debug)]
pub(in crate::run) struct Epochs {
    /// The file of epochs, and the incarnation that an epoch named; `None` where the configuration names no file.
    file: Option<(Watch, Incarnation)>,
    handed: Vec<Handed>,
}

/// An epoch that was handed in, is on the disk, and is not known to be in force.
#[derive(Debug)]
struct Handed {
    command: Command,
    epoch: Epoch,
    changed: bool,
    since: Time,
}

impl Job for Epochs {
    /// Looks whether the file of epochs has another, puts it in force, and answers those that handed one in.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some((file, _)) = &mut self.file
            && let Some(event) = file.query(now)
        {
            log.write(&event);
        }
        self.go_over(host);
        self.answer_handed(host);
    }
}

impl Epochs {
    pub(super) fn new(file: Option<(Watch, Incarnation)>) -> Epochs {
        Epochs {
            file,
            handed: Vec::new(),
        }
    }

    /// Notes that the incarnation is used, before the first datagram that other members may receive.
    pub(super) fn note_used(&self) -> Result<(), RecordError> {
        match &self.file {
            Some((file, incarnation)) => file.note_used(*incarnation),
            None => Ok(()),
        }
    }

    /// Whether somebody waits until an epoch is in force.
    pub(super) fn is_awaited(&self) -> bool {
        !self.handed.is_empty()
    }

    /// Gives the state channel what was found, if it has room; else the next turn does.
    fn go_over(&mut self, host: &HostContext) {
        if let Some((file, _)) = &mut self.file
            && let Some(Installed { roster, hosts }) = file.due()
        {
            let epoch = roster.epoch;
            let is_taken = match &hosts {
                Some(hosts) => host.channel.install_at(roster, hosts.addresses.clone()),
                None => host.channel.install(roster),
            };
            if is_taken {
                file.note_given(epoch);
            }
            if let Some(hosts) = hosts {
                host.view.names.members.set(hosts.names);
            }
        }
    }

    /// Takes an epoch that somebody hands in. The answer follows when it is in force.
    pub(super) fn hand(
        &mut self,
        command: Command,
        handed: &EpochFile,
        host: &HostContext,
        log: &mut HostLog<'_>,
    ) {
        let Some((file, _)) = &mut self.file else {
            let why = "[cluster] epochs names no file";
            return command.answer(Err(Refused::new(Refusal::NoEpochs, why)));
        };
        let taken = file.take(handed);
        log.write(&reported(handed, &taken));
        self.go_over(host);
        match taken {
            Ok(step) => self.handed.push(Handed {
                command,
                epoch: Epoch(handed.epoch),
                changed: step == Step::Later,
                since: host.clock.now(),
            }),
            Err(refused) => command.answer(Err(refused)),
        }
        self.answer_handed(host);
    }

    /// Tells anyone who handed in what is in force now.
    fn answer_handed(&mut self, host: &HostContext) {
        if self.handed.is_empty() {
            return;
        }
        let (now, in_force) = (host.clock.now(), host.channel.snapshot().epoch);
        let file = self.file.as_ref().map(|(file, _)| file);
        // The sender of one learns of a later one that came meanwhile, once that is in force.
        let known = file.map_or(Epoch(0), Watch::epoch);
        for handed in core::mem::take(&mut self.handed) {
            if in_force >= handed.epoch.max(known) {
                handed.answer(file, Standing::TakesPart);
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

    /// Tells anyone who still waits when the host ends.
    pub(in crate::run) fn answer_last(self) {
        if self.handed.is_empty() {
            return;
        }
        let file = self.file.as_ref().map(|(file, _)| file);
        for handed in self.handed {
            handed.answer(file, Standing::Ends);
        }
        std::thread::park_timeout(LAST_WORD);
    }
}

impl Handed {
    fn answer(self, file: Option<&Watch>, standing: Standing) {
        let answer = file.map(|file| in_json(&file.in_force(self.changed, standing)));
        self.command
            .answer(answer.unwrap_or_else(|| Err("the host has no epochs".into())));
    }
}
