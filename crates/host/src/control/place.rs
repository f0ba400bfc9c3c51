//! The control socket's place in the file system. The process that holds the lock beside the socket holds the member: a
//! second process is refused, and the socket of a killed process is removed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// The folder of sockets that the configuration does not name.
pub const FOLDER: &str = "/run/asterism";

/// Interval and number of checks of a place that is about to become free.
const FREE_TRIED_EVERY: Duration = Duration::from_millis(5);
const FREE_TRIES_MAX: u32 = 2_000;

/// Why a place is not taken. What was there is as it was.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The folder of sockets is missing and cannot be made.
    #[error(
        "{FOLDER} cannot be made: {0}; make the folder, or name another place with control in [host]"
    )]
    NoFolder(io::Error),
    /// The lock's file cannot be opened.
    #[error(
        "{}.lock cannot be made: {error}; name a place that the host may write to with control in [host]", .path.display()
    )]
    NoLock {
        /// The place.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process holds the place.
    #[error(
        "another process ({holder}) runs as this member and holds {}; stop that process first, or start this host as another member", .path.display()
    )]
    Held {
        /// The place.
        path: PathBuf,
        /// The process, as it wrote itself into the lock's file.
        holder: String,
    },
    /// The socket cannot be made.
    #[error("the control socket {} cannot be made: {error}", .path.display())]
    NoSocket {
        /// The place.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A place that this process holds until the process ends, in whatever manner.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The lock ends with the process.
    lock: File,
    listener: UnixListener,
}

impl Place {
    /// Takes the place.
    ///
    /// # Errors
    /// Another process holds the place, or the file system refuses.
    pub fn take(path: &Path) -> Result<Place, PlaceError> {
        if path.parent() == Some(Path::new(FOLDER)) {
            let made = DirBuilder::new().mode(0o700).recursive(true).create(FOLDER);
            made.map_err(PlaceError::NoFolder)?;
        }
        let mut lock_name = path.as_os_str().to_owned();
        lock_name.push(".lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_name)
            .map_err(|error| PlaceError::NoLock {
                path: path.to_owned(),
                error,
            })?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = (&mut lock).take(32).read_to_string(&mut holder);
            return Err(PlaceError::Held {
                path: path.to_owned(),
                holder: holder.trim().to_owned(),
            });
        }
        let _ = lock.set_len(0);
        let _ = write!(lock, "pid {}", std::process::id());
        // No process holds the place: an existing socket is left over from a killed process.
        let _ = fs::remove_file(path);
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener.map_err(|error| PlaceError::NoSocket {
            path: path.to_owned(),
            error,
        })?;
        Ok(Place {
            path: path.to_owned(),
            lock,
            listener,
        })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket to listen at.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listener(&self) -> std::io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

/// Waits until no process holds the place, some ten seconds at most: a host that reported its stop ends a moment later, and the
/// next host must not start before.
pub fn wait_until_free(path: &Path) {
    let mut lock_name = path.as_os_str().to_owned();
    lock_name.push(".lock");
    let Ok(lock) = File::open(&lock_name) else {
        return;
    };
    for _ in 0..FREE_TRIES_MAX {
        if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
            return;
        }
        std::thread::park_timeout(FREE_TRIED_EVERY);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock's file stays: to remove it would let two processes lock two files of one name.
        let _ = fs::remove_file(&self.path);
        // Explicitly: a process that this one is just starting has a copy of the lock's file until it runs its program.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}
