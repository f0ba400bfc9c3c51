//! Changes in a file, as the commands that make them: read again at start, and rewritten when they have grown.
//!
//! The format is that of Redis' append-only file without a preamble. What a transaction changed stands between `MULTI` and `EXEC`. A file that
//! ends within a command or a transaction was cut by the end of a process: what is not whole is cut off, and nothing of it was
//! acknowledged under [`Sync::Always`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use asterism_resp::{CommandWriter, Scanner, Value};

use crate::command;
use crate::keyspace::{Keyspace, Stored};

/// An append file is not rewritten below so many bytes.
const REWRITTEN_FROM_BYTES: u64 = 1 << 20;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 16;
/// Bytes of one command at most, as of those that clients send.
pub(crate) const COMMAND_BYTES_MAX: usize = 64 << 20;

/// When what was appended is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Before it is acknowledged.
    Always,
    /// Within a second: what was acknowledged in the last one is lost if the machine fails, not if the process does.
    #[default]
    EverySecond,
    /// When the system writes it.
    Never,
}

/// Why an append file is not read or written.
#[derive(Debug)]
pub enum AppendFileError {
    /// The system says so, of this file.
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another store has it open.
    InUse {
        /// Which one.
        path: PathBuf,
    },
    /// The file is no append file: what stands at this byte is no command that changes keys.
    NotRead {
        /// Which one.
        path: PathBuf,
        /// Bytes before it.
        at: u64,
    },
}

impl core::fmt::Display for AppendFileError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::File { path, error } => write!(formatter, "{}: {error}", path.display()),
            Self::InUse { path } => write!(
                formatter,
                "{}: another store has it open: stop that one, or name another file",
                path.display()
            ),
            Self::NotRead { path, at } => write!(
                formatter,
                "{}: no command that changes keys at byte {at}: move the file away, or restore it",
                path.display()
            ),
        }
    }
}

impl core::error::Error for AppendFileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(error),
            Self::InUse { .. } | Self::NotRead { .. } => None,
        }
    }
}

/// The file, open at its end.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
    sync: Sync,
    bytes: u64,
    /// After the last time it was rewritten.
    bytes_rewritten: u64,
    is_synced: bool,
    synced_ms: u64,
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        // Explicitly: a process that this one is just starting has a copy of the file until it runs its program.
        let _ = self.file.unlock();
    }
}

/// Appends what one transaction changed.
pub(crate) fn write_together(append_file: &mut Vec<u8>, noted: &[u8]) {
    CommandWriter::new(append_file).command(&[b"multi"]);
    append_file.extend_from_slice(noted);
    CommandWriter::new(append_file).command(&[b"exec"]);
}

impl AppendFile {
    /// Opens an append file, which is made if there is none, and has the keyspace as it says. Tells how many bytes at the end were not
    /// whole, and are cut off.
    ///
    /// # Errors
    /// It cannot be read, or is none. The file is as it was.
    pub fn open(
        path: &Path,
        sync: Sync,
        keyspace: &mut Keyspace,
    ) -> Result<(Self, u64), AppendFileError> {
        let failed = |error| AppendFileError::File {
            path: path.to_owned(),
            error,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(AppendFileError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let whole = read(&mut file, keyspace).map_err(|error| match error {
            ReadError::File(error) => failed(error),
            ReadError::At(at) => AppendFileError::NotRead {
                path: path.to_owned(),
                at,
            },
        })?;
        let length = file.metadata().map_err(failed)?.len();
        let cut = length.saturating_sub(whole);
        if cut > 0 {
            file.set_len(whole).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(whole)).map_err(failed)?;
        keyspace.note_ended();
        let append_file = Self {
            path: path.to_owned(),
            file,
            sync,
            bytes: whole,
            bytes_rewritten: whole,
            is_synced: true,
            synced_ms: 0,
        };
        Ok((append_file, cut))
    }

    /// Appends changes. Once it returns they may be acknowledged.
    ///
    /// # Errors
    /// The system says so. What the file holds then is not known: the store must not go on.
    pub fn append(&mut self, changes: &[u8], now_ms: u64) -> Result<(), AppendFileError> {
        let result = self.try_append(changes, now_ms);
        result.map_err(|error| self.failed(error))
    }

    fn try_append(&mut self, changes: &[u8], now_ms: u64) -> io::Result<()> {
        if !changes.is_empty() {
            self.file.write_all(changes)?;
            self.bytes += changes.len() as u64;
            self.is_synced = false;
        }
        let is_due = match self.sync {
            Sync::Always => true,
            Sync::EverySecond => now_ms.saturating_sub(self.synced_ms) >= 1_000,
            Sync::Never => false,
        };
        if is_due && !self.is_synced {
            self.file.sync_data()?;
            (self.is_synced, self.synced_ms) = (true, now_ms);
        }
        Ok(())
    }

    /// Has all be on the disk, unless the system is to say when.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    pub fn finish(&mut self, now_ms: u64) -> Result<(), AppendFileError> {
        if self.sync != Sync::Never {
            self.file.sync_data().map_err(|error| self.failed(error))?;
            (self.is_synced, self.synced_ms) = (true, now_ms);
        }
        Ok(())
    }

    /// Whether it has grown to twice what it was, so that it is to be rewritten.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.bytes > REWRITTEN_FROM_BYTES.max(2 * self.bytes_rewritten)
    }

    /// Writes what the keyspace holds to a new file, which takes the old one's place once it is on the disk. Takes as long as it
    /// takes to write all keys. If that fails, on a disk that is full, say, the old file is as it was and goes on until it has grown to twice as much
    /// again: why is what is returned.
    ///
    /// # Errors
    /// The new file has the old one's name, and may not have it after the machine failed: the store must not go on.
    pub fn rewrite(
        &mut self,
        keyspace: &Keyspace,
    ) -> Result<Option<AppendFileError>, AppendFileError> {
        let beside = self.path.with_extension("rewritten");
        match self.write_beside(&beside, keyspace) {
            Ok((file, bytes)) => {
                (self.file, self.bytes, self.is_synced) = (file, bytes, true);
                self.bytes_rewritten = bytes;
                let named = self.sync_name();
                named.map_err(|error| self.failed(error)).map(|()| None)
            }
            Err(error) => {
                // What it takes of the disk is of no use.
                let _ = std::fs::remove_file(&beside);
                self.bytes_rewritten = self.bytes;
                Ok(Some(self.failed(error)))
            }
        }
    }

    /// The new file, under the old one's name, and its bytes.
    fn write_beside(&self, beside: &Path, keyspace: &Keyspace) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let mut file = options.open(beside)?;
        // Before it has the name of the one that is locked now.
        file.lock()?;
        let (mut bytes, mut commands) = (0, Vec::new());
        for (key, value, expires_ms) in keyspace.all() {
            write_key(&mut commands, key, value, expires_ms);
            if commands.len() >= READ_BYTES {
                file.write_all(&commands)?;
                bytes += commands.len() as u64;
                commands.clear();
            }
        }
        file.write_all(&commands)?;
        bytes += commands.len() as u64;
        file.sync_all()?;
        std::fs::rename(beside, &self.path)?;
        Ok((file, bytes))
    }

    fn sync_name(&self) -> io::Result<()> {
        let folder = self.path.parent();
        match folder.filter(|path| !path.as_os_str().is_empty()) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> AppendFileError {
        AppendFileError::File {
            path: self.path.clone(),
            error,
        }
    }
}

/// The commands that make a key what it is.
fn write_key(out: &mut Vec<u8>, key: &[u8], value: &Stored, expires_ms: Option<u64>) {
    let mut commands = CommandWriter::new(out);
    match value {
        Stored::String(bytes) => commands.command(&[b"set", key, bytes]),
        Stored::Hash(fields) => {
            for (field, value) in fields.all() {
                commands.command(&[b"hset", key, field, value]);
            }
        }
        Stored::Sorted(members) => {
            for (member, score) in members.all() {
                let score = command::shown(score);
                commands.command(&[b"zadd", key, score.as_bytes(), member]);
            }
        }
    }
    if let Some(ms) = expires_ms {
        commands.command(&[b"pexpireat", key, ms.to_string().as_bytes()]);
    }
}

enum ReadError {
    File(io::Error),
    /// What stands there is no command.
    At(u64),
}

/// Runs all commands of a file that are whole. How many bytes they take.
fn read(file: &mut File, keyspace: &mut Keyspace) -> Result<u64, ReadError> {
    file.seek(SeekFrom::Start(0)).map_err(ReadError::File)?;
    let (mut bytes, mut scanner, mut at) = (Vec::new(), Scanner::new(), 0);
    // The commands of a transaction, and where it began.
    let mut together: Option<(Vec<Vec<u8>>, u64)> = None;
    let mut whole = 0;
    loop {
        let mut from = 0;
        while let Some(length) = scanner
            .scan(bytes.get(from..).unwrap_or_default())
            .map_err(|_| ReadError::At(at))?
        {
            let command = bytes.get(from..from + length).unwrap_or_default();
            let name = name_of(command).ok_or(ReadError::At(at))?;
            match (name.to_ascii_lowercase().as_slice(), &mut together) {
                (b"multi", None) => together = Some((Vec::new(), at)),
                (b"exec", Some((commands, _))) => {
                    for command in commands {
                        run(keyspace, command).ok_or(ReadError::At(at))?;
                    }
                    together = None;
                }
                (b"multi" | b"exec", _) => return Err(ReadError::At(at)),
                (_, Some((commands, _))) => commands.push(command.to_vec()),
                (_, None) => run(keyspace, command).ok_or(ReadError::At(at))?,
            }
            from += length;
            at += length as u64;
            if together.is_none() {
                whole = at;
            }
        }
        bytes.drain(..from);
        let before = bytes.len();
        if before > COMMAND_BYTES_MAX {
            return Err(ReadError::At(at));
        }
        bytes.resize(before + READ_BYTES, 0);
        let read = file.read(&mut bytes[before..]).map_err(ReadError::File)?;
        bytes.truncate(before + read);
        if read == 0 {
            return Ok(whole);
        }
    }
}

fn name_of(command: &[u8]) -> Option<&[u8]> {
    match Value::read(command).ok()?? {
        (Value::Array(mut values), _) => values.next()?.bytes(),
        _ => None,
    }
}

/// Runs a command of an append file. `None` if it is none that changes keys.
fn run(keyspace: &mut Keyspace, bytes: &[u8]) -> Option<()> {
    let (Value::Array(values), _) = Value::read(bytes).ok()?? else {
        return None;
    };
    let arguments: Vec<&[u8]> = values.map(|value| value.bytes()).collect::<Option<_>>()?;
    let command = command::find(arguments.first()?)?;
    let mut reply = Vec::new();
    if !command.takes(arguments.len()) {
        return None;
    }
    let mut writer = asterism_resp::ReplyWriter::new(&mut reply, false);
    command.run(keyspace, &arguments, &mut writer, None);
    (reply.first() != Some(&b'-')).then_some(())
}
