//! How a running host learns of epochs: it reads their file when it starts and whenever the file changes, and is handed them over
//! the control socket. What is handed is on the disk before it is in force, so that both ways say the same.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use asterism_orchestrator::epochs::{InForce, Refusal, Standing};
use asterism_placement::replicated::Roster;
use asterism_placement::{Epoch, Incarnation, Time};

use super::Prepared;
use super::journal::Event;
use super::notify::Manager;
use crate::check;
use crate::config::Cluster;
use crate::control::desk::{Command, CommandKind, Refused, in_json};
use crate::epochs::{EpochFile, Life, Step};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long the word that a waiting host stops has to reach who asked for it.
const LAST_WORD: Duration = Duration::from_millis(50);

/// What changes when a file is written or replaced: when that was last, inode and length.
type Stamp = (i64, i64, u64, u64);

/// The file of epochs, watched.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    cluster: Cluster,
    name: String,
    looked: Time,
    /// What the file was like when it was read last.
    seen: Option<Stamp>,
    /// The last epoch that the file said, or that was handed in and is on the disk.
    known: EpochFile,
    /// The epoch that the state channel was given last.
    given: Epoch,
}

/// The life that a host begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) life: Incarnation,
    /// Whether others may run already.
    pub(super) joins: bool,
    pub(super) roster: Roster,
}

impl Watch {
    /// The file that the configuration names; `None` if it names none.
    pub(super) fn of(prepared: &Prepared) -> Option<Watch> {
        let config = &prepared.config;
        let path = config.cluster.epochs.as_ref()?;
        Some(Watch {
            path: check::key_path(&prepared.arguments.config, path),
            cluster: config.cluster.clone(),
            name: config.host.name.clone(),
            looked: Time::ZERO,
            seen: None,
            known: EpochFile::default(),
            given: Epoch(0),
        })
    }

    /// Begins the life that the file names, once it names one that was not used before; until then it waits, and takes what it is
    /// handed.
    pub(super) fn begin_life(
        &mut self,
        stop: &AtomicBool,
        commands: &Receiver<Command>,
        manager: &Manager,
        log: &mut impl FnMut(&Event),
    ) -> Result<Begun, String> {
        let mut said = String::new();
        loop {
            let (file, life) = Life::find(&self.path, &self.cluster, &self.name)
                .map_err(|error| format!("the host was not started: {error}"))?;
            let roster = file.roster(&self.cluster);
            self.known = file;
            match life {
                Life::Begins { life, joins } => {
                    Life::note_used(&self.path, &self.name, life)
                        .map_err(|error| format!("the host was not started: {error}"))?;
                    return Ok(Begun {
                        life,
                        joins,
                        roster,
                    });
                }
                Life::Waits(why) if why != said => {
                    manager.status("waits to be named by an epoch");
                    log(&Event::warning("waits-to-be-named")
                        .with("why", &why)
                        .effect("the host takes no part in the cluster"));
                    said = why;
                }
                Life::Waits(_) => {}
            }
            if let Ok(command) = commands.recv_timeout(LOOK) {
                self.obey_waiting(command, stop, log);
            }
            if stop.load(Ordering::Acquire) {
                return Err("stopped before an epoch named this host".to_owned());
            }
        }
    }

    /// What a host that waits to be named does when it is told something.
    fn obey_waiting(&mut self, command: Command, stop: &AtomicBool, log: &mut impl FnMut(&Event)) {
        match command.kind() {
            CommandKind::Hand(file) => {
                let file = file.clone();
                let taken = self.take(&file);
                log(&told(&file, &taken));
                let standing = |file: &EpochFile| {
                    let used = Life::last_used(&self.path, &self.name).unwrap_or(u64::MAX);
                    match Life::of(file, &self.name, used) {
                        Life::Begins { .. } => Standing::Begins,
                        Life::Waits(_) => Standing::Waits,
                    }
                };
                command.answer(taken.and_then(|step| {
                    in_json(&self.in_force(step == Step::Later, standing(&self.known)))
                }));
            }
            CommandKind::Stop => {
                stop.store(true, Ordering::Release);
                command.answer(Ok("the host has stopped".into()));
                std::thread::park_timeout(LAST_WORD);
            }
            CommandKind::Drain | CommandKind::Reload => {
                command.answer(Err(
                    "the host waits to be named by an epoch, and reads no packets".into(),
                ));
            }
        }
    }

    /// Looks whether the file has a later epoch, if the last look was some time ago.
    ///
    /// # Errors
    /// It changed, and is none: told once for a change.
    pub(super) fn look(&mut self, now: Time) -> Result<(), String> {
        if now < self.looked + LOOK {
            return Ok(());
        }
        self.looked = now;
        self.look_at_once()
    }

    /// The same, however long ago the last look was.
    pub(super) fn look_at_once(&mut self) -> Result<(), String> {
        let stamp = std::fs::metadata(&self.path).ok();
        let stamp = stamp.map(|file| (file.ctime(), file.ctime_nsec(), file.ino(), file.len()));
        if stamp == self.seen {
            return Ok(());
        }
        self.seen = stamp;
        let file = EpochFile::read(&self.path, &self.cluster)?;
        if file.epoch > self.known.epoch {
            self.known = file;
        }
        Ok(())
    }

    /// What the state channel has not been given yet.
    pub(super) fn due(&self) -> Option<Roster> {
        let is_due = self.known.epoch > self.given.0;
        is_due.then(|| self.known.roster(&self.cluster))
    }

    /// It has been given this.
    pub(super) fn note_given(&mut self, epoch: Epoch) {
        self.given = epoch;
    }

    /// Takes an epoch that was handed in: if it is the one that is known or a later one, it is on the disk when this returns.
    pub(super) fn take(&mut self, file: &EpochFile) -> Result<Step, Refused> {
        let step = self
            .known
            .step_to(file)
            .map_err(|(reason, why)| Refused::new(reason, why))?;
        let is_there = step == Step::Same
            && EpochFile::read(&self.path, &self.cluster).is_ok_and(|there| there == *file);
        if !is_there {
            let written = file.write_as(&self.path, &self.name);
            written.map_err(|why| Refused::new(Refusal::NotWritten, why))?;
        }
        self.known = file.clone();
        Ok(step)
    }

    /// The number of the epoch that is known.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.known.epoch)
    }

    /// The epoch that is known, for whoever handed one.
    pub(super) fn in_force(&self, changed: bool, standing: Standing) -> InForce {
        InForce {
            host: self.name.clone(),
            epoch: self.known.epoch,
            changed,
            standing,
            members: self.known.members.clone(),
        }
    }
}

/// What is said in the log of an epoch that was handed in.
pub(super) fn told(file: &EpochFile, taken: &Result<Step, Refused>) -> Event {
    match taken {
        Ok(step) => Event::info("epoch-handed")
            .with("epoch", file.epoch)
            .with("new", *step == Step::Later),
        Err(refused) => Event::warning("epoch-not-taken")
            .with("epoch", file.epoch)
            .with("why", refused)
            .effect("the epoch in force stays, and the file of epochs"),
    }
}
