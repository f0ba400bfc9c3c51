//! How a running host learns of epochs: it reads their file when it starts and whenever the file changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use asterism_placement::replicated::Roster;
use asterism_placement::{Epoch, Incarnation, Time};

use super::Prepared;
use super::journal::Event;
use super::notify::Manager;
use crate::check;
use crate::config::Cluster;
use crate::epochs::{EpochFile, Life};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The file of epochs, watched.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    cluster: Cluster,
    name: String,
    looked: Time,
    /// When the file that was read last was changed.
    changed: Option<SystemTime>,
    /// The epoch that was put in force last.
    pub(super) installed: Epoch,
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
            changed: None,
            installed: Epoch(0),
        })
    }

    /// Begins the life that the file names, once it names one that was not used before; until then it waits.
    pub(super) fn begin_life(
        &self,
        stop: &AtomicBool,
        manager: &Manager,
        log: &mut impl FnMut(&Event),
    ) -> Result<Begun, String> {
        let mut said = String::new();
        loop {
            let (file, life) = Life::find(&self.path, &self.cluster, &self.name)
                .map_err(|error| format!("the host was not started: {error}"))?;
            match life {
                Life::Begins { life, joins } => {
                    Life::note_used(&self.path, &self.name, life)
                        .map_err(|error| format!("the host was not started: {error}"))?;
                    let roster = file.roster(&self.cluster);
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
            if stop.load(Ordering::Acquire) {
                return Err("stopped before an epoch named this host".to_owned());
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// What the file says, if it changed and is later than what is in force.
    pub(super) fn look(&mut self, now: Time) -> Option<Result<Roster, String>> {
        if now < self.looked + LOOK {
            return None;
        }
        self.looked = now;
        let changed = std::fs::metadata(&self.path).and_then(|file| file.modified());
        let changed = changed.ok();
        if changed == self.changed {
            return None;
        }
        self.changed = changed;
        match EpochFile::read(&self.path, &self.cluster) {
            Ok(file) if file.epoch > self.installed.0 => Some(Ok(file.roster(&self.cluster))),
            Ok(_) => None,
            Err(why) => Some(Err(why)),
        }
    }
}
