//! How a running host learns of epochs: it reads their file when it starts and whenever the file changes, and is handed them over
//! the control socket. What is handed is on the disk before it is in force, so that both ways say the same.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use asterism_config::Cluster;
use asterism_config::files;
use asterism_epochs::{InForce, Refusal, Standing};
use asterism_io::clock::MonotonicClock;
use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};

use super::error::RunError;
use super::heartbeats::Heartbeats;
use super::prepared::Prepared;
use crate::control::request_handler::{Command, CommandKind, LAST_WORD, Refused, in_json};
use asterism_epochs::{EpochFile, RecordError, StartDecision, Step, StepError};
use asterism_event_log::Event;
use asterism_service_manager::Manager;
use asterism_watched_files::{LOOK, Watched};

/// How often a host looks that waits for the file to settle.
const UNSETTLED_LOOK: Duration = Duration::from_millis(50);

/// The file of epochs, watched.
#[derive(Debug)]
pub(super) struct Watch {
    file: Watched,
    cluster: Cluster,
    /// The host's name, which is its place's too unless hosts register.
    name: String,
    looked: Time,
    /// The last epoch that the file said, or that was handed in and is on the disk.
    known: EpochFile,
    /// The epoch that the state channel was given last.
    given: Epoch,
    /// Whether the cluster has orchestrators. Then the host begins no incarnation that was handed to an earlier process.
    is_orchestrated: bool,
    /// Whether the last epoch was handed to this process.
    is_handed: bool,
}

/// The incarnation that a host begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) incarnation: Incarnation,
    /// Whether others may run already.
    pub(super) joins: bool,
    pub(super) member: MemberId,
    pub(super) installed: Installed,
}

/// An epoch as the state channel takes it.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) roster: Roster,
    /// Where hosts register, what the epoch says of them.
    pub(super) hosts: Option<RegisteredHosts>,
}

/// The hosts that an epoch names.
#[derive(Clone, Debug)]
pub(super) struct RegisteredHosts {
    /// The addresses of participants.
    pub(super) addresses: Vec<(MemberId, SocketAddr)>,
    /// The names of all members, in the order of their places.
    pub(super) names: Vec<String>,
}

impl Watch {
    /// The file that the configuration names; `None` if it names none. `date` is in seconds since 1970.
    pub(super) fn of(prepared: &Prepared, date: u64) -> Option<Watch> {
        let config = &prepared.config;
        let path = config.cluster.epochs.as_ref()?;
        let path = files::key_path(&prepared.arguments.config, path);
        Some(Watch {
            file: Watched::new(path).at_once(date),
            cluster: config.cluster.clone(),
            name: config.host.name.clone(),
            looked: Time::ZERO,
            known: EpochFile::default(),
            given: Epoch(0),
            is_orchestrated: !config.cluster.orchestrators.is_empty(),
            is_handed: false,
        })
    }

    /// Where the file is.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Finds the incarnation that the file names, once it names one that was not used before; until then it waits, and takes what it is
    /// handed.
    pub(super) fn begin_incarnation(
        &mut self,
        clock: MonotonicClock,
        stop: &AtomicBool,
        commands: &Receiver<Command>,
        manager: &Manager,
        mut heartbeats: Option<&mut Heartbeats>,
        log: &mut impl FnMut(&Event),
    ) -> Result<Begun, RunError> {
        if !self.file.path().exists() && !self.is_orchestrated {
            // A copy empties a file, and takes none away: what is not there does not come by itself.
            EpochFile::read(self.file.path(), &self.cluster.members)?;
        }
        let mut said = String::new();
        loop {
            let now = clock.now();
            if let Some(heartbeats) = &mut heartbeats {
                let handed = if self.is_handed { self.known.epoch } else { 0 };
                heartbeats.post_waiting(now, handed, log);
            }
            let cluster = &self.cluster;
            let looked = match self.file.path().exists() || !self.is_orchestrated {
                true => self
                    .file
                    .query(now, |path| EpochFile::read(path, &cluster.members)),
                false => None,
            };
            if let Some(file) = looked {
                let file = file?;
                self.is_handed &= file == self.known;
                self.known = file;
            }
            match self.incarnation()? {
                // It may be half a copy still.
                None => {}
                Some(StartDecision::Begins { incarnation, joins }) => {
                    let place = self.place().unwrap_or_default();
                    return Ok(Begun {
                        incarnation,
                        joins,
                        member: self.cluster.member(place).ok_or(RunError::NoMember)?,
                        installed: self.installed(),
                    });
                }
                Some(StartDecision::Waits(why)) if why != said => {
                    manager.status("waits to be named by an epoch");
                    log(&Event::warning("awaiting-epoch")
                        .with("why", &why)
                        .effect("the host takes no part in the cluster"));
                    said = why;
                }
                Some(StartDecision::Waits(_)) => {}
            }
            let wait = match self.file.is_unread() {
                true => UNSETTLED_LOOK,
                false => LOOK,
            };
            if let Ok(command) = commands.recv_timeout(wait) {
                self.obey_waiting(command, stop, log);
            }
            if stop.load(Ordering::Acquire) {
                return Err(RunError::Unnamed);
            }
        }
    }

    /// Notes that the incarnation that was begun is used: before the first datagram that other members may receive, and not earlier, so that a
    /// start that fails before leaves the incarnation to the next one.
    pub(super) fn note_used(&self, incarnation: Incarnation) -> Result<(), RecordError> {
        let place = self.place().unwrap_or(&self.name);
        StartDecision::note_used(self.file.path(), place, incarnation)
    }

    /// The place of this host; `None` if the epoch that is known gives it none.
    fn place(&self) -> Option<&str> {
        match self.cluster.is_open {
            true => self.known.place_of(&self.name),
            false => Some(&self.name),
        }
    }

    /// What the epoch that is known means to this host.
    fn decision(&self) -> Result<StartDecision, RecordError> {
        let Some(place) = self.place() else {
            let (epoch, name) = (self.known.epoch, &self.name);
            return Ok(StartDecision::Waits(format!(
                "epoch {epoch} does not know {name}: an orchestrator admits it"
            )));
        };
        let used = StartDecision::last_used(self.file.path(), place)?;
        Ok(StartDecision::of(&self.known, place, used))
    }

    fn installed(&self) -> Installed {
        let places = &self.cluster.members;
        let hosts = || RegisteredHosts {
            addresses: self.known.addresses(places),
            names: self.known.host_names(places),
        };
        Installed {
            roster: self.known.roster(places),
            hosts: self.cluster.is_open.then(hosts),
        }
    }

    /// What the epoch that is known means to this host; nothing if none is.
    fn incarnation(&self) -> Result<Option<StartDecision>, RecordError> {
        if self.known.epoch == 0 {
            return Ok(None);
        }
        let decision = self.decision()?;
        if self.is_orchestrated
            && !self.is_handed
            && matches!(decision, StartDecision::Begins { .. })
        {
            return Ok(Some(StartDecision::Waits(format!(
                "epoch {} was handed to an earlier process: an orchestrator hands this one its epoch",
                self.known.epoch
            ))));
        }
        Ok(Some(decision))
    }

    /// What a host that waits to be named does with a new epoch or a request.
    fn obey_waiting(&mut self, command: Command, stop: &AtomicBool, log: &mut impl FnMut(&Event)) {
        match command.kind() {
            CommandKind::Hand(file) => {
                let file = file.clone();
                let taken = self.take(&file);
                log(&reported(&file, &taken));
                let standing = match self.decision() {
                    Ok(StartDecision::Begins { .. }) => Standing::Begins,
                    Ok(StartDecision::Waits(_)) | Err(_) => Standing::Waits,
                };
                command.answer(
                    taken.and_then(|step| in_json(&self.in_force(step == Step::Later, standing))),
                );
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

    /// Looks whether the file has a later epoch, if the last look was some time ago. What is to be said of the file, once for a change:
    /// it is none, or it is ignored.
    pub(super) fn query(&mut self, now: Time) -> Option<Event> {
        if now < self.looked + LOOK {
            return None;
        }
        self.looked = now;
        let cluster = &self.cluster;
        match self.file.query(now, |path| EpochFile::read(path, &cluster.members))? {
            Ok(file) if file.epoch > self.known.epoch => {
                self.known = file;
                None
            }
            Ok(file) => self.known.step_to(&file).err().map(|why| {
                Event::warning("epoch-ignored")
                    .with("file", self.file.path().display())
                    .with("why", why)
                    .effect("the epoch in force stays")
                    .cure("give a changed epoch the next number with `asterism epoch`, and copy it to every host")
            }),
            Err(why) => Some(
                Event::warning("epochs-unreadable")
                    .with("why", why)
                    .effect("the epoch in force stays")
                    .cure("write it with `asterism epoch`, and copy it to every host"),
            ),
        }
    }

    /// What the state channel has not been given yet.
    pub(super) fn due(&self) -> Option<Installed> {
        let is_due = self.known.epoch > self.given.0;
        is_due.then(|| self.installed())
    }

    /// It has been given this.
    pub(super) fn note_given(&mut self, epoch: Epoch) {
        self.given = epoch;
    }

    /// Takes an epoch that was handed in: if it is the one that is known or a later one, it is on the disk when this returns.
    pub(super) fn take(&mut self, file: &EpochFile) -> Result<Step, Refused> {
        let refused = |why: StepError| Refused::new(why.refusal(), why.to_string());
        let there = EpochFile::read(self.file.path(), &self.cluster.members).ok();
        // What the file says counts, also if nobody has looked at it yet. Half a copy may contradict, and is not believed.
        if let Some(there) = there.as_ref().filter(|one| one.epoch > self.known.epoch) {
            if there == file || self.file.has_settled() {
                self.known = there.clone();
            } else {
                there.step_to(file).map_err(refused)?;
            }
        }
        let step = self.known.step_to(file).map_err(refused)?;
        let is_there = step == Step::Same && there.is_some_and(|there| there == *file);
        if !is_there {
            let written = file.write_as(self.file.path(), &self.name);
            written.map_err(|why| Refused::new(Refusal::NotWritten, why.to_string()))?;
        }
        self.known = file.clone();
        self.is_handed = true;
        Ok(step)
    }

    /// The number of the epoch that is known.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.known.epoch)
    }

    /// The epoch that is known, for anyone who handed one.
    pub(super) fn in_force(&self, changed: bool, standing: Standing) -> InForce {
        InForce {
            host: self.name.clone(),
            epoch: self.known.epoch,
            changed,
            standing,
            members: self
                .known
                .members
                .iter()
                .map(|(place, incarnation)| {
                    let host = self.known.host_at(place).unwrap_or(place);
                    (host.to_owned(), *incarnation)
                })
                .collect(),
        }
    }
}

/// What is said in the log of an epoch that was handed in.
pub(super) fn reported(file: &EpochFile, taken: &Result<Step, Refused>) -> Event {
    match taken {
        Ok(step) => Event::info("epoch-received")
            .with("epoch", file.epoch)
            .with("new", *step == Step::Later),
        Err(refused) => Event::warning("epoch-rejected")
            .with("epoch", file.epoch)
            .with("why", refused)
            .effect("the epoch in force stays, and the file of epochs"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use asterism_config::Config;

    const FIRST: &str = "epoch = 1\n[members]\na = 1\nb = 1\nc = 1\n";

    fn watch(path: &Path) -> Watch {
        let text = "[cluster]\nmembers = [\"a\", \"b\", \"c\"]\n[function.pass-through]\n";
        let cluster = Config::read("test.toml", text).0.unwrap().cluster;
        let known = EpochFile::parse(FIRST, "epoch.toml", &cluster.members).unwrap();
        let mut watch = Watch {
            file: Watched::new(path.to_owned()).at_once(0),
            cluster,
            name: "a".to_owned(),
            looked: Time::ZERO,
            known,
            given: Epoch(1),
            is_orchestrated: false,
            is_handed: false,
        };
        let mut now = Time::ZERO;
        assert_eq!(looks(&mut watch, &mut now, 3), None);
        watch
    }

    /// Looks so many times; the first thing that is said.
    fn looks(watch: &mut Watch, now: &mut Time, times: usize) -> Option<String> {
        (0..times).fold(None, |said, _| {
            *now = *now + LOOK;
            let event = watch.query(*now).map(|event| format!("{event:?}"));
            said.or(event)
        })
    }

    #[test]
    fn an_epoch_is_read_once_its_file_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch.toml");
        fs::write(&path, FIRST).unwrap();
        let (mut watch, mut now) = (watch(&path), Time::ZERO + LOOK * 3);
        let whole = FIRST.replace("epoch = 1", "epoch = 2");
        let half = &whole[..whole.len() - "c = 1\n".len()];

        // A copy that is slow: empty, then half there, which is an epoch too, then whole.
        fs::write(&path, "").unwrap();
        assert_eq!(looks(&mut watch, &mut now, 9), None, "being copied");
        fs::write(&path, half).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 1), None);
        assert_eq!(watch.epoch(), Epoch(1), "it may still be written");
        fs::write(&path, &whole).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 1), None);
        assert_eq!(watch.epoch(), Epoch(1), "it may still be written");
        assert_eq!(looks(&mut watch, &mut now, 1), None);
        assert_eq!(watch.epoch(), Epoch(2));
        assert_eq!(watch.known.members.len(), 3);

        // One that is put there whole is read at the first look.
        let epoch = EpochFile {
            epoch: 3,
            ..watch.known.clone()
        };
        epoch.write(&path).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 1), None);
        assert_eq!(watch.epoch(), Epoch(3));

        // A mistake that stays is reported, once.
        fs::write(&path, "epoch = 4\nmembers = 7\n").unwrap();
        assert_eq!(looks(&mut watch, &mut now, 9), None);
        let said = looks(&mut watch, &mut now, 9).unwrap();
        assert!(said.contains("epochs-unreadable"), "{said}");
        assert_eq!(looks(&mut watch, &mut now, 20), None);
    }

    #[test]
    fn what_is_not_taken_from_the_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch.toml");
        fs::write(&path, FIRST).unwrap();
        let (mut watch, mut now) = (watch(&path), Time::ZERO + LOOK * 3);
        fs::write(&path, FIRST.replace("epoch = 1", "epoch = 2")).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 3), None);
        for other in [
            FIRST
                .replace("epoch = 1", "epoch = 2")
                .replace("c = 1", "c = 2"),
            FIRST.to_owned(),
        ] {
            fs::write(&path, other).unwrap();
            let said = looks(&mut watch, &mut now, 3).unwrap();
            assert!(said.contains("epoch-ignored"), "{said}");
            assert_eq!(watch.epoch(), Epoch(2));
        }
        assert_eq!(looks(&mut watch, &mut now, 20), None, "reported once");
    }
}
