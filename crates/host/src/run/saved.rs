//! The file that the shared state is saved to at a graceful stop, and restored from when the whole cluster restarts.
//!
//! All numbers are little-endian. A header (what the file is of, and when it was written), then parts as
//! [`Instance::save`](asterism_engine::Instance::save) gives them, then an end with their count; each with a checksum of its
//! own. A file is written beside its place, synced, and renamed into it, so that there is a whole one or none. It is read
//! twice: once to see that all of it is good, and only then for what is in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use asterism_engine::SAVED_PART_BYTES_MAX;
use asterism_state::{Since, hash};
use thiserror::Error;

/// What a file begins with.
const MAGIC: [u8; 16] = *b"asterism state\r\n";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Bytes of the header: magic, version, cluster, schema, addresses, member, tick, date, boot time, boot, checksum.
const HEADER_BYTES: usize = 16 + 4 + 4 + 8 + 8 + 2 + 4 + 8 + 8 + 16 + 8;
/// The length that stands for the end.
const END: u32 = u32::MAX;
/// The key of the checksums, which find damage and no forgery.
const CHECKSUM_KEY: u64 = 0x5AFE_57A7_E000_0001;
/// Parts of a file at most: more than any state has.
const PARTS_MAX: u64 = 1 << 32;

/// Why a state was not saved, restored or moved away. What was saved before is as it was.
#[derive(Debug, Error)]
pub enum SavedError {
    /// The file could not be written; what was written of it is removed.
    #[error("the state was not saved to {}: {error}; what was saved before is as it was", .path.display())]
    NotWritten {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that is old by now is where it was: a later start may restore it.
    #[error("{} could not be moved away: {error}; move it yourself, or a later start may restore it though it is old", .path.display())]
    NotMoved {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file could not be read. Nothing is restored from here on.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is no whole state of this function and cluster. Nothing of it is restored if it was so when it was opened.
    #[error("{} {fault}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: FileFault,
    },
}

/// What is wrong with a file of a saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FileFault {
    /// It begins as no state does.
    #[error("is no saved state of Asterism")]
    Foreign,
    /// Another version of the program wrote it.
    #[error(
        "is of version {0}, and this program reads version {VERSION}: start the program that wrote it, or move the file away"
    )]
    Version(u32),
    /// Its header is not as it was written.
    #[error("is damaged at its beginning")]
    Header,
    /// Its entries mean something else, or nothing, to this host.
    #[error("is of another cluster or of another network function")]
    OtherFunction,
    /// Its entries name addresses by their places in another list.
    #[error(
        "was written while the function had other addresses, by which it shortens what it holds"
    )]
    OtherAddresses,
    /// It has more parts than a state can have.
    #[error("has more parts than any state")]
    TooLong,
    /// There is something behind its end.
    #[error("goes on behind its end")]
    Trailing,
    /// It ends too early.
    #[error("ends before its end: it was cut off")]
    Truncated,
    /// A part is not as it was written.
    #[error("is damaged in part {0}")]
    Part(u64),
    /// It was saved so many seconds after the date of this machine: how long ago that was is not known.
    #[error(
        "was saved at a date {0} s ahead of this machine's: set the clock, or nobody knows what of it expired"
    )]
    FromFuture(u64),
}

impl FileFault {
    fn of(self, path: &Path) -> SavedError {
        let (path, fault) = (path.to_owned(), self);
        SavedError::Unusable { path, fault }
    }
}

fn unreadable(path: &Path, error: io::Error) -> SavedError {
    let path = path.to_owned();
    SavedError::Unreadable { path, error }
}

/// What a state is of: files of another are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name as a number, with `schema` in it.
    pub cluster: u32,
    /// Which function it is, its own number, and how its objects are laid out.
    pub schema: u64,
    /// A digest of the function's addresses, which stand in parts by their places.
    pub addresses: u64,
}

/// When a state was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The cluster's common time, in seconds.
    pub tick: u32,
    /// Seconds since 1970 by the machine's date.
    pub wall_s: u64,
    /// Seconds since the machine was started, suspended ones included.
    pub boot_s: u64,
    /// Which start of the machine that is.
    pub boot: [u8; 16],
}

/// A part with its checksum before it.
fn write_part(out: &mut impl Write, number: u64, part: &[u8]) -> io::Result<()> {
    out.write_all(&(part.len() as u32).to_le_bytes())?;
    out.write_all(&checksum(part, number).to_le_bytes())?;
    out.write_all(part)
}

/// Of the bytes and of where they stand, so that parts that changed places are found.
fn checksum(bytes: &[u8], number: u64) -> u64 {
    hash::word(hash::bytes(bytes, CHECKSUM_KEY), number)
}

/// Writes a file with all `parts`. Syncs twice: takes some milliseconds, or as long as the disk does.
///
/// # Errors
/// In words. What was at `path` before is as it was.
pub fn write(
    path: &Path,
    identity: Identity,
    member: u16,
    moment: Moment,
    parts: impl IntoIterator<Item = io::Result<Vec<u8>>>,
) -> Result<u64, SavedError> {
    let beside = beside(path, "new");
    let written = write_beside(&beside, identity, member, moment, parts).and_then(|count| {
        fs::rename(&beside, path)?;
        // The name is as safe as the bytes only now.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(count)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        let path = path.to_owned();
        SavedError::NotWritten { path, error }
    })
}

fn write_beside(
    path: &Path,
    identity: Identity,
    member: u16,
    moment: Moment,
    parts: impl IntoIterator<Item = io::Result<Vec<u8>>>,
) -> io::Result<u64> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    out.write_all(&header(identity, member, moment))?;
    let mut count = 0;
    for part in parts {
        write_part(&mut out, count, &part?)?;
        count += 1;
    }
    out.write_all(&END.to_le_bytes())?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&checksum(&count.to_le_bytes(), u64::MAX).to_le_bytes())?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    Ok(count)
}

fn header(identity: Identity, member: u16, moment: Moment) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend(identity.cluster.to_le_bytes());
    header.extend(identity.schema.to_le_bytes());
    header.extend(identity.addresses.to_le_bytes());
    header.extend(member.to_le_bytes());
    header.extend(moment.tick.to_le_bytes());
    header.extend(moment.wall_s.to_le_bytes());
    header.extend(moment.boot_s.to_le_bytes());
    header.extend(moment.boot);
    header.extend(checksum(&header, 0).to_le_bytes());
    header
}

/// The name of a file beside another.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// Moves a file away whose state is not the newest any more: `FILE.used`.
///
/// # Errors
/// In words.
pub fn put_aside(path: &Path) -> Result<(), SavedError> {
    match fs::rename(path, beside(path, "used")) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = path.to_owned();
            Err(SavedError::NotMoved { path, error })
        }
        _ => Ok(()),
    }
}

/// A file that was read through once and is good.
#[derive(Debug)]
pub struct SavedState {
    path: PathBuf,
    input: BufReader<File>,
    moment: Moment,
    count: u64,
}

/// Takes fixed numbers off a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .map_or(([0; N], &[][..]), |(head, tail)| (*head, tail));
        self.0 = tail;
        head
    }
}

/// Opens a file and looks through all of it; `None` if there is none.
///
/// # Errors
/// Why it cannot be used, in a sentence.
pub fn open(path: &Path, identity: Identity) -> Result<Option<SavedState>, SavedError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| unreadable(path, error))?,
    };
    let mut input = BufReader::with_capacity(1 << 18, file);
    let mut header = [0; HEADER_BYTES];
    read(&mut input, &mut header, path)?;
    let mut fields = Fields(&header);
    if fields.take() != MAGIC {
        return Err(FileFault::Foreign.of(path));
    }
    let version = u32::from_le_bytes(fields.take());
    if version != VERSION {
        return Err(FileFault::Version(version).of(path));
    }
    let stored = header
        .last_chunk::<8>()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if checksum(&header[..HEADER_BYTES - 8], 0) != stored {
        return Err(FileFault::Header.of(path));
    }
    let of = Identity {
        cluster: u32::from_le_bytes(fields.take()),
        schema: u64::from_le_bytes(fields.take()),
        addresses: u64::from_le_bytes(fields.take()),
    };
    if (of.cluster, of.schema) != (identity.cluster, identity.schema) {
        return Err(FileFault::OtherFunction.of(path));
    }
    if of != identity {
        return Err(FileFault::OtherAddresses.of(path));
    }
    let _member: [u8; 2] = fields.take();
    let moment = Moment {
        tick: u32::from_le_bytes(fields.take()),
        wall_s: u64::from_le_bytes(fields.take()),
        boot_s: u64::from_le_bytes(fields.take()),
        boot: fields.take(),
    };
    let mut state = SavedState {
        path: path.to_owned(),
        input,
        moment,
        count: 0,
    };
    let mut count = 0;
    while state.next_part(count)?.is_some() {
        count += 1;
        if count > PARTS_MAX {
            return Err(FileFault::TooLong.of(path));
        }
    }
    state.count = count;
    let mut rest = [0; 1];
    if state.input.read(&mut rest).is_ok_and(|length| length > 0) {
        return Err(FileFault::Trailing.of(path));
    }
    let again = File::open(path).map_err(|error| unreadable(path, error))?;
    state.input = BufReader::with_capacity(1 << 18, again);
    read(&mut state.input, &mut header, path)?;
    Ok(Some(state))
}

fn read(input: &mut impl Read, bytes: &mut [u8], path: &Path) -> Result<(), SavedError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => FileFault::Truncated.of(path),
        _ => unreadable(path, error),
    })
}

impl SavedState {
    /// How many parts it has.
    #[must_use]
    pub fn parts(&self) -> u64 {
        self.count
    }

    /// How long it was away, by a clock that counts suspended time and does not jump if the machine was not restarted
    /// since, else by the date.
    ///
    /// # Errors
    /// The date is before that of saving: nobody knows how long it was.
    pub fn since(&self, now: &Moment) -> Result<Since, SavedError> {
        let away = if now.boot == self.moment.boot && now.boot != [0; 16] {
            now.boot_s.saturating_sub(self.moment.boot_s)
        } else {
            now.wall_s.checked_sub(self.moment.wall_s).ok_or_else(|| {
                let ahead_s = self.moment.wall_s - now.wall_s;
                FileFault::FromFuture(ahead_s).of(&self.path)
            })?
        };
        Ok(Since {
            saved: self.moment.tick,
            away: u32::try_from(away).unwrap_or(u32::MAX),
        })
    }

    /// The next part; `None` behind the last. `number` counts them from 0.
    ///
    /// # Errors
    /// The file changed since it was looked through.
    pub fn next_part(&mut self, number: u64) -> Result<Option<Vec<u8>>, SavedError> {
        let damaged = |path: &Path| FileFault::Part(number).of(path);
        let mut word = [0; 4];
        read(&mut self.input, &mut word, &self.path)?;
        let length = u32::from_le_bytes(word);
        let mut long = [0; 8];
        read(&mut self.input, &mut long, &self.path)?;
        if length == END {
            let count = u64::from_le_bytes(long);
            let mut stored = [0; 8];
            read(&mut self.input, &mut stored, &self.path)?;
            let expected = checksum(&long, u64::MAX);
            if count != number || expected != u64::from_le_bytes(stored) {
                return Err(damaged(&self.path));
            }
            return Ok(None);
        }
        if length == 0 || length as usize > SAVED_PART_BYTES_MAX + 512 {
            return Err(damaged(&self.path));
        }
        let mut part = vec![0; length as usize];
        read(&mut self.input, &mut part, &self.path)?;
        if checksum(&part, number) != u64::from_le_bytes(long) {
            return Err(damaged(&self.path));
        }
        Ok(Some(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        cluster: 1,
        schema: 2,
        addresses: 3,
    };
    const SAVED: Moment = Moment {
        tick: 1_000,
        wall_s: 5_000,
        boot_s: 100,
        boot: [7; 16],
    };

    fn saved(folder: &Path) -> PathBuf {
        let path = folder.join("state");
        let parts = [vec![1; 100], vec![2; 1_000], vec![3]].map(Ok);
        assert_eq!(write(&path, IDENTITY, 1, SAVED, parts).unwrap(), 3);
        path
    }

    fn all(path: &Path) -> Result<Vec<Vec<u8>>, String> {
        let mut state = open(path, IDENTITY)
            .map_err(|error| error.to_string())?
            .ok_or("there is none")?;
        let mut parts = Vec::new();
        while let Some(part) = state
            .next_part(parts.len() as u64)
            .map_err(|error| error.to_string())?
        {
            parts.push(part);
        }
        assert_eq!(state.parts(), parts.len() as u64);
        Ok(parts)
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        assert!(
            open(&folder.path().join("state"), IDENTITY)
                .unwrap()
                .is_none()
        );
        let path = saved(folder.path());
        assert_eq!(all(&path).unwrap(), [vec![1; 100], vec![2; 1_000], vec![3]]);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        put_aside(&path).unwrap();
        assert!(!path.exists() && folder.path().join("state.used").exists());
        put_aside(&path).unwrap();
    }

    /// Cut off anywhere, or any one bit turned: a sentence, never a part of it.
    #[test]
    fn torn_and_damaged_files_are_refused_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path());
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = all(&path).unwrap_err();
            assert!(error.contains("state"), "{error}");
        }
        for byte in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            fs::write(&path, damaged).unwrap();
            assert!(all(&path).is_err(), "byte {byte}");
        }
        fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(all(&path).unwrap_err().contains("behind its end"));
        fs::write(&path, b"[cluster]\nname = \"this is a configuration, which is no state at all, of course\"\n\n\n\n\n\n\n\n\n").unwrap();
        assert!(all(&path).unwrap_err().contains("no saved state"));
    }

    #[test]
    fn foreign_files_and_those_of_the_future_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path());
        let other = |identity| open(&path, identity).unwrap_err().to_string();
        assert!(
            other(Identity {
                cluster: 9,
                ..IDENTITY
            })
            .contains("another cluster")
        );
        assert!(
            other(Identity {
                schema: 9,
                ..IDENTITY
            })
            .contains("another")
        );
        assert!(
            other(Identity {
                addresses: 9,
                ..IDENTITY
            })
            .contains("other addresses")
        );
        let mut bytes = fs::read(&path).unwrap();
        bytes[16] = 2;
        fs::write(&path, bytes).unwrap();
        assert!(other(IDENTITY).contains("version 2"));
    }

    #[test]
    fn time_away_is_counted_by_the_clock_that_knows() {
        let folder = tempfile::tempdir().unwrap();
        let state = open(&saved(folder.path()), IDENTITY).unwrap().unwrap();
        let since = |moment| {
            let since = state.since(&moment).map_err(|error| error.to_string())?;
            Ok::<_, String>((since.saved, since.away))
        };
        // The same start of the machine: its date may have been set to anything.
        for wall_s in [0, 5_000, u64::MAX] {
            assert_eq!(
                since(Moment {
                    boot_s: 160,
                    wall_s,
                    ..SAVED
                }),
                Ok((1_000, 60))
            );
        }
        let other = Moment {
            boot: [8; 16],
            boot_s: 5,
            wall_s: 5_300,
            tick: 0,
        };
        assert_eq!(since(other), Ok((1_000, 300)));
        let back = since(Moment {
            wall_s: 4_000,
            ..other
        })
        .unwrap_err();
        assert!(back.contains("1000 s ahead"), "{back}");
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = saved(folder.path());
        let before = fs::read(&path).unwrap();
        let missing = folder.path().join("absent/state");
        assert!(
            write(&missing, IDENTITY, 1, SAVED, [])
                .unwrap_err()
                .to_string()
                .contains("not saved")
        );
        fs::create_dir(folder.path().join("state.new")).unwrap();
        assert!(
            write(&path, IDENTITY, 1, SAVED, [])
                .unwrap_err()
                .to_string()
                .contains("as it was")
        );
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}
