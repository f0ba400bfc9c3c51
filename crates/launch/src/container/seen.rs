//! What is true of a host's container, by podman and the kernel, and its certain end.

use std::time::Duration;

use rustix::process::Signal;

use super::ContainerLauncher;
use super::podman::{Shown, ShownState};
use crate::clock;
use crate::identity::Process;
use crate::program::NoAnswer;
use crate::record::Record;
use crate::{Exit, KILL_WAIT_MAX, LaunchError};

/// How long podman may take to show the end of a process that has ended.
pub(super) const END_SHOWN_WITHIN: Duration = Duration::from_secs(5);
/// Time between two looks at what gives no notice.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What is true of a host's container.
#[derive(Debug)]
pub(super) enum Seen {
    Runs(Process),
    Created,
    Ended(Exit),
    Unclear(String),
}

impl ContainerLauncher {
    /// What is true of a container, by podman and the kernel.
    pub(super) fn see(&self, record: Option<&Record>, shown: Option<&Shown>) -> Seen {
        let recorded = record.filter(|record| record.boot == self.folder.boot());
        let recorded = recorded.and_then(|record| record.process);
        let lives = |id| match Process::open(id) {
            Ok(process) => Ok(process.filter(|process| !process.ends_within(Duration::ZERO))),
            Err(error) => Err(Seen::Unclear(error.to_string())),
        };
        let known = match recorded.map(lives).transpose() {
            Ok(known) => known.flatten(),
            Err(unclear) => return unclear,
        };
        let exit = record.and_then(|record| record.exit);
        let Some(shown) = shown else {
            return known.map_or(Seen::Ended(exit.unwrap_or(Exit::Unknown)), |process| {
                Seen::Unclear(format!(
                    "its container was removed, and {} still runs",
                    process.id()
                ))
            });
        };
        match (&shown.state, known) {
            (ShownState::Runs, Some(process)) => Seen::Runs(process),
            (ShownState::Runs, None) => self.see_running(recorded.map(|id| id.pid), shown, exit),
            (ShownState::Created, None) => Seen::Created,
            (ShownState::Ended(exit), None) => Seen::Ended(*exit),
            (ShownState::Other(state), _) => {
                Seen::Unclear(format!("podman shows its container as {state:?}"))
            }
            (_, Some(process)) => Seen::Unclear(format!(
                "podman shows its container as ended, and {} still runs",
                process.id()
            )),
        }
    }

    /// Of a container that podman shows as running, and whose recorded process is not there: podman's own may be another.
    fn see_running(&self, recorded: Option<u32>, shown: &Shown, exit: Option<Exit>) -> Seen {
        let ended = Seen::Ended(exit.unwrap_or(Exit::Unknown));
        let Some(pid) = shown.pid else {
            return Seen::Unclear(
                "podman shows its container as running without a process".to_owned(),
            );
        };
        if recorded == Some(pid) {
            return ended;
        }
        match Process::open_number(pid) {
            Ok(Some(process)) if !process.ends_within(Duration::ZERO) => Seen::Runs(process),
            Ok(_) => ended,
            Err(error) => Seen::Unclear(error.to_string()),
        }
    }

    /// Waits until a container is seen to have ended with its exit, or any end once the time has passed; none if it runs.
    pub(super) fn await_end(
        &self,
        record: &Record,
        time: Duration,
    ) -> Result<Option<Exit>, LaunchError> {
        let began = clock::now();
        loop {
            let shown = self.shown(&record.name)?;
            let seen = self.see(Some(record), shown.as_ref());
            let is_over = began.elapsed() >= time;
            match seen {
                Seen::Ended(exit) if exit != Exit::Unknown || is_over => return Ok(Some(exit)),
                Seen::Created => return Ok(Some(Exit::Unknown)),
                _ if is_over => return Ok(None),
                _ => clock::pause(LOOK_AGAIN),
            }
        }
    }

    /// Kills a container and waits for its end.
    pub(super) fn kill(&self, record: &Record) -> Result<Exit, LaunchError> {
        let not_ended = |why: String| LaunchError::NotEnded {
            name: record.name.clone(),
            waited: KILL_WAIT_MAX,
            why,
        };
        // The kernel does it where the process is known, also if the process that watches the container was killed.
        let process = record.process.map(Process::open).transpose();
        let said = match process {
            Ok(Some(Some(process))) => {
                process
                    .signal(Signal::KILL)
                    .map_err(|error| not_ended(error.to_string()))?;
                process.ends_within(KILL_WAIT_MAX);
                String::new()
            }
            _ => {
                let container = self.container(&record.name);
                match self.podman.call(["kill", "--signal=KILL", &container]) {
                    Ok(answer) => answer.errors,
                    Err(error) => error.to_string(),
                }
            }
        };
        let exit = self.await_end(record, END_SHOWN_WITHIN)?;
        exit.ok_or_else(|| not_ended(format!("podman shows no end of it: {said}")))
    }

    /// Removes a container that was seen to have ended, or that was never started. Podman refuses to remove one that runs, unless
    /// it only believes so.
    pub(super) fn remove(&self, host: &str, shown: &Shown) -> Result<(), LaunchError> {
        let doing = format!("removing the ended container of {host}");
        let container = self.container(host);
        let words: &[&str] = if shown.state == ShownState::Runs {
            &["rm", "--force", "--time=0", &container]
        } else {
            &["rm", &container]
        };
        match self.podman.call(words.iter().copied()) {
            Ok(answer) if answer.success => Ok(()),
            Ok(answer) => Err(LaunchError::Refused {
                doing,
                said: answer.errors,
            }),
            Err(NoAnswer::NotStarted(error)) => Err(error),
            Err(error) => Err(LaunchError::Engine {
                doing,
                said: error.to_string(),
            }),
        }
    }
}
