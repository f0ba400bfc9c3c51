//! The folder of the embedded store: the file, its replacement, and the lock. [`Disk`] is what tests put a failing disk behind.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "truth.log";
const REPLACEMENT: &str = "truth.new";
const LOCK: &str = "truth.lock";

/// What the store does with its file.
pub(super) trait Disk {
    /// Writes bytes at the end. After an error any part of them may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when what was written is durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file to a length.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Puts another file in its place, durably: after an error `Kept` the old one is there and in use.
    fn replace(&mut self, bytes: &[u8]) -> Result<(), ReplaceError>;
}

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// The old file is in its place.
    Kept(io::Error),
    /// The new one is in its place; whether it stays there after a power cut is unknown.
    Unsynced(io::Error),
}

/// Why a folder could not be taken.
#[derive(Debug)]
pub(super) enum TakeError {
    Locked,
    Io(io::Error),
}

impl From<io::Error> for TakeError {
    fn from(error: io::Error) -> TakeError {
        TakeError::Io(error)
    }
}

/// A folder, for as long as this is held.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    file: File,
    _lock: FolderLock,
}

/// The lock of a folder, which ends with this or with the process. Dropping unlocks it explicitly: a process that this one is just
/// starting has a copy of the file until it runs its program, and closing alone would leave the lock to that copy.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file is left where this fails.
        let _ = self.0.unlock();
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600);
    options.open(path)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open(path, true)?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Folder {
    /// Takes a folder that exists, makes the file with these bytes if it is absent, and returns the file's bytes, at most so
    /// many.
    pub(super) fn take(
        path: &Path,
        empty: &[u8],
        most: u64,
    ) -> Result<(Folder, Vec<u8>), TakeError> {
        let lock = open(&path.join(LOCK), true)?;
        let lock = match lock.try_lock() {
            Ok(()) => FolderLock(lock),
            Err(TryLockError::WouldBlock) => return Err(TakeError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        };
        // What a compaction left that did not come to its end.
        match std::fs::remove_file(path.join(REPLACEMENT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let file = path.join(FILE);
        let opened = match open(&file, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_synced(&path.join(REPLACEMENT), empty)?;
                std::fs::rename(path.join(REPLACEMENT), &file)?;
                open(&file, false)?
            }
            other => other?,
        };
        // Also where another start made the file and ended before this.
        sync_folder(path)?;
        let mut bytes = Vec::new();
        (&opened).take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large").into());
        }
        let folder = Folder {
            path: path.to_owned(),
            file: opened,
            _lock: lock,
        };
        Ok((folder, bytes))
    }
}

impl Disk for Folder {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<(), ReplaceError> {
        let (file, replacement) = (self.path.join(FILE), self.path.join(REPLACEMENT));
        let made = write_synced(&replacement, bytes)
            .and_then(|()| open(&replacement, false))
            .and_then(|opened| std::fs::rename(&replacement, &file).map(|()| opened));
        match made {
            Ok(opened) => self.file = opened,
            Err(error) => {
                // It takes space; the next start removes it too.
                let _ = std::fs::remove_file(&replacement);
                return Err(ReplaceError::Kept(error));
            }
        }
        sync_folder(&self.path).map_err(ReplaceError::Unsynced)
    }
}
