//! The state that a host saves when it stops and takes up when the whole cluster restarts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::files;

use super::{Interrupted, Service};
use crate::run::environment::moment;
use crate::run::error::{RunError, StartError, StateError};
use crate::run::others::others;
use crate::run::saved::{self, SavedState};
use asterism_event_log::Event;
use asterism_host_view::requests::Request;

/// How much longer than the host before it in the list a host waits before it restores a saved state.
const RESTORE_STAGGER: Duration = Duration::from_millis(250);
/// How long a part of a state is waited for until the service manager hears that this goes on.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Parts of a state on their way between a file and an instance at most.
const PARTS_MAX: usize = 256;

/// Why a saved state was not restored.
enum NotRestored {
    /// The host stops.
    Interrupted(Interrupted),
    /// Nothing or not all of it was taken.
    Refused(StateError),
}

impl From<Interrupted> for NotRestored {
    fn from(interrupted: Interrupted) -> NotRestored {
        NotRestored::Interrupted(interrupted)
    }
}

impl Service<'_, '_> {
    /// Restores what was saved, if nobody has anything. Gives the file that is not the newest any more once packets are read.
    pub(super) fn take_up_state(&mut self, mut cold: bool) -> Result<Option<PathBuf>, Interrupted> {
        let Some(path) = self.state_path() else {
            self.require(cold, StateError::NoName)?;
            return Ok(None);
        };
        if cold && path.exists() {
            // One host restores: the others see that it has something, and take it from there.
            let place = u32::from(self.host.member.0.saturating_sub(1));
            let until = self.host.clock.now() + RESTORE_STAGGER * place;
            while cold && self.host.clock.now() < until {
                self.query()?;
                let snapshot = self.host.channel.snapshot();
                cold = others(&snapshot, self.host.member).all(|other| other.head == 0);
            }
            if !cold {
                self.listen()?;
            }
        }
        if !cold {
            if path.exists() {
                self.log(
                    &Event::info("state-not-restored")
                        .with("file", path.display())
                        .effect("other hosts have the state already, which is newer"),
                );
            }
        } else {
            let opened = saved::open(&path, self.identity).and_then(|state| {
                let since = state
                    .as_ref()
                    .map(|state| state.since(&moment(0, &self.host.clock)));
                Ok(state.zip(since.transpose()?))
            });
            match opened {
                Ok(None) => {
                    self.require(cold, StateError::NoFile(path))?;
                    return Ok(None);
                }
                Ok(Some((state, since))) => {
                    let parts = state.parts();
                    self.settle_time()?;
                    match self.restore(state, since) {
                        Ok(entries) => self.log(
                            &Event::info("state-restored")
                                .with("file", path.display())
                                .with("entries", entries)
                                .with("parts", parts)
                                .with("away_s", since.away),
                        ),
                        Err(NotRestored::Interrupted(interrupted)) => return Err(interrupted),
                        Err(NotRestored::Refused(error)) => {
                            self.log(
                                &Event::error("state-not-restored")
                                    .with("file", path.display())
                                    .effect(&error)
                                    .cure("the rest of the state comes back as traffic does"),
                            );
                            self.require(cold, error)?;
                        }
                    }
                }
                Err(error) => {
                    self.log(
                        &Event::error("state-not-restored")
                            .effect(format!("{error}; the host starts empty"))
                            .cure("move the file away, or keep it for who wrote it"),
                    );
                    self.require(cold, error.into())?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(path))
    }

    /// Renames a file that was restored: from the first packet on it is not the newest state any more.
    pub(super) fn put_aside(&mut self, path: &Path) {
        if let Err(error) = saved::put_aside(path) {
            self.log(&Event::warning("state-not-archived").effect(error));
        }
    }

    fn require(&self, cold: bool, why: StateError) -> Result<(), Interrupted> {
        if cold && self.prepared.arguments.require_state {
            return Err(RunError::from(StartError::from(why)).into());
        }
        Ok(())
    }

    fn restore(
        &mut self,
        mut state: SavedState,
        since: asterism_state::Since,
    ) -> Result<u64, NotRestored> {
        let (sender, parts) = sync_channel(PARTS_MAX);
        let (reply, answer) = sync_channel(1);
        let request = Request::Restore {
            parts,
            since,
            reply,
        };
        if self.host.requests[0].try_send(request).is_err() {
            return Err(NotRestored::Refused(StateError::NoRequests));
        }
        self.manager.status("restoring the saved state");
        let mut sender = Some(sender);
        let (mut number, mut waiting) = (0, None);
        loop {
            if let Some(open) = &sender {
                match waiting
                    .take()
                    .map_or_else(|| state.next_part(number), |part| Ok(Some(part)))
                {
                    Ok(None) => sender = None,
                    Ok(Some(part)) => match open.try_send(part) {
                        Ok(()) => {
                            number += 1;
                            continue;
                        }
                        Err(TrySendError::Full(part)) => waiting = Some(part),
                        Err(TrySendError::Disconnected(_)) => sender = None,
                    },
                    Err(error) => return Err(NotRestored::Refused(error.into())),
                }
            }
            if let Ok(restored) = answer.try_recv() {
                return restored.map_err(|error| NotRestored::Refused(error.into()));
            }
            self.query()?;
        }
    }

    pub(super) fn save(&mut self) {
        let Some(path) = self.state_path() else {
            return;
        };
        let (sender, parts) = sync_channel(PARTS_MAX);
        if self.host.requests[0]
            .send(Request::Save { parts: sender })
            .is_err()
        {
            return;
        }
        let tick = self.host.tick(self.host.clock.now());
        let moment = moment(tick, &self.host.clock);
        let (identity, member) = (self.identity, self.host.member.0);
        let reported = core::iter::from_fn(|| {
            loop {
                match parts.recv_timeout(LOOK_AGAIN) {
                    Ok(part) if part.is_empty() => return None,
                    Ok(part) => return Some(Ok(part)),
                    Err(RecvTimeoutError::Timeout) => self.stay_alive(),
                    Err(RecvTimeoutError::Disconnected) => {
                        return Some(Err(io::Error::other(
                            "the instance ended before it had reported all of it",
                        )));
                    }
                }
            }
        });
        match saved::write(&path, identity, member, moment, reported) {
            Ok(parts) => self.log(&Event::info("state-saved").with("file", path.display()).with("parts", parts)),
            Err(error) => self.log(&Event::error("state-not-saved")
                .effect(error)
                .cure("see that the folder exists and the disk has room; other hosts still have the state")),
        }
    }

    fn state_path(&self) -> Option<PathBuf> {
        let state = self.host.config.host.state.as_ref()?;
        Some(files::key_path(&self.prepared.arguments.config, state))
    }
}
