//! The identity of a host's process: the folder of its state, and the number of its start there.
//!
//! A folder's process holds a lock, so two never run in one folder, and each start is counted on the disk before anything else.
//! So a later start in the same folder proves that every earlier process of that folder has ended. A process of another folder proves
//! nothing. A folder that was copied, to another machine or on the same one, is another folder: the record names the machine and the
//! lock's file (its inode), and draws a new number where they differ.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::RecordError;
use crate::start_decision::{beside, write_synced};

/// One start of a host's process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The folder's random number.
    pub folder: u64,
    /// The number of this start in it, from 1.
    pub start: u64,
}

impl Process {
    /// Whether that this process runs proves that `other` has ended.
    #[must_use]
    pub fn proves_ended(self, other: Process) -> bool {
        self.folder == other.folder && self.start > other.start
    }
}

/// The record of a folder's starts, locked by this process until it ends.
#[derive(Debug)]
pub struct ProcessRecord {
    process: Process,
    /// Holds the lock. The kernel gives it up with the process.
    _lock: File,
}

impl ProcessRecord {
    /// Locks the record beside the epoch file, and counts this start; on the disk when this returns. `random` is the number of a folder
    /// that has none yet, `machine` a name of this machine that no other one has.
    ///
    /// # Errors
    /// Another process of this member runs here, or the record cannot be read or written: the host must not take part.
    pub fn begin(
        epochs: &Path,
        name: &str,
        random: u64,
        machine: &str,
    ) -> Result<ProcessRecord, RecordError> {
        let lock_path = beside(epochs, name, "lock");
        let not_written = |path: &PathBuf| {
            let path = path.clone();
            |error| RecordError::NotWritten { path, error }
        };
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(not_written(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let member = name.to_owned();
                let path = lock_path;
                return Err(RecordError::Held { path, member });
            }
            Err(TryLockError::Error(error)) => return Err(not_written(&lock_path)(error)),
        }
        let inode = lock.metadata().map_err(not_written(&lock_path))?;
        let place = format!("{machine}/{}/{}", inode.dev(), inode.ino());
        let path = beside(epochs, name, "process");
        let before = read(&path, name)?.filter(|(_, known)| *known == place);
        let process = match before {
            Some((last, _)) => Process {
                start: last.start + 1,
                ..last
            },
            None => Process {
                folder: random,
                start: 1,
            },
        };
        let Process { folder, start } = process;
        let text = format!("{folder:016x} {start} {place}\n");
        write_synced(&path, ".new", &text)?;
        Ok(ProcessRecord {
            process,
            _lock: lock,
        })
    }

    /// This start.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }
}

/// The last start and where it was; `None` before the first.
fn read(path: &Path, name: &str) -> Result<Option<(Process, String)>, RecordError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let path = path.to_owned();
            return Err(RecordError::Unreadable { path, error });
        }
    };
    let parsed = || {
        let line = text.strip_suffix('\n')?;
        let (folder, rest) = line.split_once(' ')?;
        let (start, place) = rest.split_once(' ')?;
        let process = Process {
            folder: u64::from_str_radix(folder, 16).ok()?,
            start: start.parse().ok().filter(|start| *start < u64::MAX)?,
        };
        Some((process, place.to_owned()))
    };
    match parsed() {
        Some(found) => Ok(Some(found)),
        None => Err(RecordError::NoProcess {
            path: path.to_owned(),
            member: name.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(epochs: &Path, random: u64) -> Result<ProcessRecord, RecordError> {
        ProcessRecord::begin(epochs, "a", random, "machine")
    }

    #[test]
    fn starts_in_a_folder_are_counted_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let epochs = folder.path().join("epoch.toml");
        let first = begin(&epochs, 7).unwrap();
        assert_eq!(
            first.process(),
            Process {
                folder: 7,
                start: 1
            }
        );
        let held = begin(&epochs, 8).unwrap_err();
        assert!(matches!(held, RecordError::Held { .. }), "{held}");
        drop(first);
        let second = begin(&epochs, 9).unwrap().process();
        assert_eq!(
            second,
            Process {
                folder: 7,
                start: 2
            }
        );
        let other = ProcessRecord::begin(&epochs, "b", 5, "machine").unwrap();
        assert_eq!(
            other.process(),
            Process {
                folder: 5,
                start: 1
            },
            "another member's"
        );
    }

    #[test]
    fn a_copied_folder_is_another_one() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let epochs = here.path().join("epoch.toml");
        drop(begin(&epochs, 7).unwrap());
        for file in ["epoch.toml.a.process", "epoch.toml.a.lock"] {
            std::fs::copy(here.path().join(file), there.path().join(file)).unwrap();
        }
        let copy = begin(&there.path().join("epoch.toml"), 9)
            .unwrap()
            .process();
        assert_eq!(
            copy,
            Process {
                folder: 9,
                start: 1
            }
        );
        let elsewhere = ProcessRecord::begin(&epochs, "a", 11, "other machine").unwrap();
        assert_eq!(elsewhere.process().folder, 11);
    }

    #[test]
    fn a_record_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let epochs = folder.path().join("epoch.toml");
        for text in [
            "",
            "x",
            "7 1 place",
            "7 x place\n",
            "7\n",
            "7 18446744073709551615 p\n",
        ] {
            std::fs::write(folder.path().join("epoch.toml.a.process"), text).unwrap();
            let error = begin(&epochs, 7).unwrap_err();
            assert!(matches!(error, RecordError::NoProcess { .. }), "{text:?}");
            assert!(error.to_string().contains("remove"), "{error}");
        }
    }

    #[test]
    fn only_a_later_start_in_the_same_folder_is_proof() {
        let process = |folder, start| Process { folder, start };
        assert!(process(1, 3).proves_ended(process(1, 2)));
        assert!(!process(1, 2).proves_ended(process(1, 2)));
        assert!(!process(1, 2).proves_ended(process(1, 3)));
        assert!(!process(2, 3).proves_ended(process(1, 2)));
    }
}
