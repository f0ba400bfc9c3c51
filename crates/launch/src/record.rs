//! The folder of a launcher: one small record a host, written whole and synced before and after each step, and two locks.
//!
//! - `NAME.json` is the record: what is to run, and what has been seen of it.
//! - `NAME.lock` is held by the call that works with the host, so that two orchestrators of one machine take turns.
//! - `NAME.run` is held by the host's process itself, as its standard input, from the moment of its fork until its end. The
//!   kernel releases it when the last process that has it ends, so a free lock proves that none is left. An orchestrator that
//!   dies at any step neither loses nor doubles a host.
//!
//! The folder must be on a local disk that survives a start of the machine.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Exit, LaunchError, ProcessId, check_name};
use crate::clock;

/// Hosts of one launcher that are found at most.
pub const HOSTS_MAX: usize = 1_024;
/// Bytes of a record at most: 64 arguments and paths are a tenth of it.
pub const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// How long a call waits for another one that works with the same host.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// Earlier incarnations of a host that are remembered as ended. Of others there is no evidence.
const EARLIER_MAX: usize = 64;
/// Time between two attempts to take a lock.
const LOCK_AGAIN: Duration = Duration::from_millis(5);
/// The form of records.
const VERSION: u32 = 1;

/// How far a launch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Phase {
    /// The process is about to be started, or was started by an orchestrator that died then.
    Starting,
    /// The process was started.
    Started,
    /// It has reported that it takes packets.
    Ready,
    /// The launch failed, and the process has ended.
    Failed,
    /// The process has ended.
    Ended,
}

/// What is known of a host's latest incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) incarnation: u64,
    pub(super) phase: Phase,
    /// The command, for people and for the comparison of two specifications.
    pub(super) command: String,
    /// The start of the machine during which the process was started.
    pub(super) boot: String,
    pub(super) process: Option<ProcessId>,
    pub(super) container: Option<String>,
    /// Whether the process was sent SIGTERM: a second one would end it without draining.
    pub(super) draining: bool,
    pub(super) exit: Option<Exit>,
    /// Evidence was given of the end of this incarnation: it and those before are never started again.
    pub(super) fenced: u64,
    /// Earlier incarnations that were launched here, and had ended when a later one was launched. The oldest first.
    pub(super) earlier: Vec<u64>,
}

impl Record {
    /// Of an incarnation that is about to be started.
    pub(super) fn starting(
        folder: &Folder,
        name: &str,
        incarnation: u64,
        command: String,
        before: Option<&Record>,
    ) -> Record {
        let mut earlier = before.map_or_else(Vec::new, |before| before.earlier.clone());
        earlier.extend(
            before
                .map(|before| before.incarnation)
                .filter(|before| *before < incarnation),
        );
        let excess = earlier.len().saturating_sub(EARLIER_MAX);
        earlier.drain(..excess);
        Record {
            version: VERSION,
            cluster: folder.cluster.clone(),
            name: name.to_owned(),
            incarnation,
            phase: Phase::Starting,
            command,
            boot: folder.boot.clone(),
            process: None,
            container: None,
            draining: false,
            exit: None,
            fenced: before.map_or(0, |before| before.fenced),
            earlier,
        }
    }

    /// Notes the end of its process.
    pub(super) fn ended(&mut self, phase: Phase, exit: Exit) {
        self.phase = phase;
        self.exit = Some(exit);
    }
}

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    cluster: String,
    boot: String,
}

/// The lock of a host, held by the call that works with it.
#[derive(Debug)]
pub(super) struct HostLock {
    file: File,
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Explicitly: a process that another call is just starting has a copy of the file until it runs its program.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Folder {
    /// The folder of a cluster within a launcher's folder, which is made if it is not there.
    pub(super) fn open(path: &Path, cluster: &str) -> Result<Folder, LaunchError> {
        check_name(cluster).map_err(|_| LaunchError::Spec {
            name: cluster.to_owned(),
            why: "this is no name of a cluster",
        })?;
        let path = path.join(cluster);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&path)
            .map_err(|error| failed("making", &path, error))?;
        let boot_file = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = std::fs::read_to_string(boot_file)
            .map_err(|error| failed("reading", boot_file, error))?;
        Ok(Folder {
            path,
            cluster: cluster.to_owned(),
            boot: boot.trim().to_owned(),
        })
    }

    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the machine's present start.
    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    /// A host's file with this ending.
    pub(super) fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.path.join(format!("{name}.{ending}"))
    }

    /// Takes a host's lock; waits for another call, [`LOCK_WAIT_MAX`] at most.
    pub(super) fn lock(&self, name: &str) -> Result<HostLock, LaunchError> {
        let path = self.file(name, "lock");
        let file = open_lock(&path).map_err(|error| failed("opening", &path, error))?;
        if took(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed("locking", &path, error))?
        {
            return Ok(HostLock { file });
        }
        Err(LaunchError::Busy {
            name: name.to_owned(),
            waited: LOCK_WAIT_MAX,
        })
    }

    /// Takes a host's lock if it is free.
    pub(super) fn try_lock(&self, name: &str) -> Option<HostLock> {
        let file = open_lock(&self.file(name, "lock")).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(HostLock { file })
    }

    /// Takes the lock that the host's process is to hold; none if a process holds it.
    pub(super) fn run_lock(&self, name: &str) -> Result<Option<File>, LaunchError> {
        let path = self.file(name, "run");
        let file = open_lock(&path).map_err(|error| failed("opening", &path, error))?;
        let took = took(&file, FlockOperation::NonBlockingLockExclusive);
        let took = took.map_err(|error| failed("locking", &path, error))?;
        Ok(took.then_some(file))
    }

    /// Whether a process holds the lock of a running host.
    pub(super) fn is_run_lock_held(&self, name: &str) -> Result<bool, LaunchError> {
        let path = self.file(name, "run");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed("opening", &path, error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(failed("locking", &path, error.into())),
        }
    }

    /// A host's record; none if it was never launched.
    pub(super) fn read(&self, name: &str) -> Result<Option<Record>, LaunchError> {
        let path = self.file(name, "json");
        let damaged = |why: String| LaunchError::Record {
            name: name.to_owned(),
            path: path.clone(),
            why,
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("opening", &path, error)),
        };
        let mut bytes = Vec::new();
        file.take(RECORD_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed("reading", &path, error))?;
        if bytes.len() as u64 > RECORD_BYTES_MAX {
            return Err(damaged(format!(
                "it is longer than {RECORD_BYTES_MAX} bytes"
            )));
        }
        let record: Record =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if record.version != VERSION {
            return Err(damaged(format!("its version is {}", record.version)));
        }
        if record.name != name || record.cluster != self.cluster {
            return Err(damaged(format!(
                "it is of {} in {}",
                record.name, record.cluster
            )));
        }
        Ok(Some(record))
    }

    /// Writes a record: whole and on the disk, or not at all.
    pub(super) fn write(&self, record: &Record) -> Result<(), LaunchError> {
        let (path, fresh) = (
            self.file(&record.name, "json"),
            self.file(&record.name, "json.new"),
        );
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| failed("writing", &path, error))
    }

    /// The names of all hosts with a record, sorted; [`HOSTS_MAX`] at most.
    pub(super) fn names(&self) -> Result<Vec<String>, LaunchError> {
        let entries =
            std::fs::read_dir(&self.path).map_err(|error| failed("reading", &self.path, error))?;
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let name = name.strip_suffix(".json")?.to_owned();
            check_name(&name).is_ok().then_some(name)
        };
        let mut names: Vec<_> = entries.filter_map(name).take(HOSTS_MAX).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// An error of the folder.
pub(super) fn failed(doing: &'static str, path: &Path, error: std::io::Error) -> LaunchError {
    LaunchError::Folder {
        doing,
        path: path.to_owned(),
        error,
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Tries to take a lock for a while: processes that are just being started hold copies of it for a moment.
fn took(file: &File, operation: FlockOperation) -> std::io::Result<bool> {
    let started = clock::now();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT_MAX => {
                clock::pause(LOCK_AGAIN);
            }
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), "lab").unwrap();
        assert_eq!(folder.read("a").unwrap(), None);
        let mut record = Record::starting(&folder, "a", 3, "asterism run".to_owned(), None);
        record.fenced = 2;
        folder.write(&record).unwrap();
        assert_eq!(folder.read("a").unwrap(), Some(record.clone()));
        record.ended(Phase::Ended, Exit::Signal(9));
        folder.write(&record).unwrap();
        assert_eq!(folder.read("a").unwrap(), Some(record.clone()));
        let next = Record::starting(&folder, "a", 4, String::new(), Some(&record));
        assert_eq!((next.fenced, next.exit), (2, None));
        assert_eq!(next.earlier, [3]);
        let mut last = next;
        for incarnation in 4..100 {
            last = Record::starting(&folder, "a", incarnation, String::new(), Some(&last));
        }
        assert_eq!(last.earlier, (35..99).collect::<Vec<_>>());
        std::fs::write(folder.file("b", "json.new"), "half").unwrap();
        std::fs::write(folder.file("No Name", "json"), "{}").unwrap();
        assert_eq!(folder.names().unwrap(), ["a"]);
    }

    #[test]
    fn records_that_are_none_are_refused_with_their_file() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), "lab").unwrap();
        let sound = Record::starting(&folder, "a", 1, String::new(), None);
        let sound = serde_json::to_string(&sound).unwrap();
        let other = |from: &str, to: &str| sound.replace(from, to);
        let long = format!("{sound}{}", " ".repeat(RECORD_BYTES_MAX as usize));
        for text in [
            String::new(),
            sound[..20].to_owned(),
            "[]".to_owned(),
            other("\"version\":1", "\"version\":2"),
            other("\"name\":\"a\"", "\"name\":\"b\""),
            other("\"cluster\":\"lab\"", "\"cluster\":\"x\""),
            other("\"incarnation\":1", "\"incarnation\":-1"),
            long,
        ] {
            std::fs::write(folder.file("a", "json"), &text).unwrap();
            let error = folder.read("a").unwrap_err();
            let shown = error.to_string();
            assert!(matches!(error, LaunchError::Record { .. }), "{shown}");
            assert!(shown.contains("a.json"), "{shown}");
        }
    }

    #[test]
    fn locks_exclude_each_other_and_end_with_their_holder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), "lab").unwrap();
        assert!(!folder.is_run_lock_held("a").unwrap());
        let held = folder.run_lock("a").unwrap().unwrap();
        assert!(folder.is_run_lock_held("a").unwrap());
        drop(held);
        assert!(!folder.is_run_lock_held("a").unwrap());
        let lock = folder.lock("a").unwrap();
        assert!(folder.try_lock("a").is_none());
        assert!(matches!(
            folder.lock("a").unwrap_err(),
            LaunchError::Busy { .. }
        ));
        drop(lock);
        assert!(folder.try_lock("a").is_some());
    }
}
