//! The incarnation that a starting host begins: the one that the epoch names, if the host never used it before.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_placement::Incarnation;

use crate::error::RecordError;
use crate::file::EpochFile;

/// Maximum milliseconds that the kernel's clock for file times stands still: its step is 10 ms or less.
const CLOCK_STEPS_MAX: usize = 20;

/// The decision of a starting host, from the epoch file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDecision {
    /// The host begins this incarnation. If it joins, others have state that it lacks.
    Begins {
        /// The incarnation.
        incarnation: Incarnation,
        /// Whether others may run already.
        joins: bool,
    },
    /// The epoch does not name the host, or names an ended incarnation: the host waits for a later epoch. Reason and cure.
    Waits(String),
}

impl StartDecision {
    /// The decision of this member for the epoch. `used` is its last incarnation.
    #[must_use]
    pub fn of(file: &EpochFile, name: &str, used: u64) -> StartDecision {
        match file.members.get(name) {
            None => StartDecision::Waits(format!(
                "epoch {} does not name {name}: admit it with `asterism epoch CONFIG --again {name}`, on all hosts",
                file.epoch
            )),
            Some(incarnation) if *incarnation <= used => StartDecision::Waits(format!(
                "epoch {} names incarnation {incarnation} of {name}, which has ended: name the next incarnation with `asterism epoch CONFIG --again {name}`, on all hosts",
                file.epoch
            )),
            Some(incarnation) => StartDecision::Begins {
                incarnation: Incarnation(*incarnation),
                joins: !file.is_founding(),
            },
        }
    }

    /// The last incarnation that a member used on this host; 0 before the first.
    ///
    /// # Errors
    /// The file cannot be read or holds no number: an incarnation might be used twice.
    pub fn last_used(epochs: &Path, name: &str) -> Result<u64, RecordError> {
        let path = place(epochs, name);
        match std::fs::read_to_string(&path) {
            Ok(text) => text
                .trim_start_matches('\u{feff}')
                .trim()
                .parse()
                .map_err(|_| {
                    let member = name.to_owned();
                    RecordError::NoNumber { path, member }
                }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(RecordError::Unreadable { path, error }),
        }
    }

    /// Records an incarnation as used; the record is on disk when this returns.
    ///
    /// # Errors
    /// No record was written; the incarnation must not begin.
    pub fn note_used(
        epochs: &Path,
        name: &str,
        incarnation: Incarnation,
    ) -> Result<(), RecordError> {
        write_synced(
            &place(epochs, name),
            ".new",
            &format!("{}\n", incarnation.0),
        )
    }
}

/// The file that records a member's last incarnation.
fn place(epochs: &Path, name: &str) -> PathBuf {
    beside(epochs, name, "incarnation")
}

/// A member's own file of this kind, beside the epoch file.
pub(crate) fn beside(epochs: &Path, name: &str, kind: &str) -> PathBuf {
    let mut place = epochs.as_os_str().to_owned();
    place.push(format!(".{name}.{kind}"));
    PathBuf::from(place)
}

/// Replaces a file atomically, with its mode, and syncs it to disk. The incomplete file lies beside, under a name with `ending`, to
/// which no other process may write.
pub(crate) fn write_synced(path: &Path, ending: &str, text: &str) -> Result<(), RecordError> {
    // The target of a link is replaced, not the link.
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut incomplete = place.as_os_str().to_owned();
    incomplete.push(ending);
    let incomplete = PathBuf::from(incomplete);
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&incomplete)?;
        if let Ok(before) = std::fs::metadata(&place) {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&incomplete, &place)?;
        let folder = place
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        let path = path.to_owned();
        RecordError::NotWritten { path, error }
    })
}

/// Marks a file as renamed into place by its times: changed later than written. Hosts that see the mark need not wait for a copy in
/// progress. If the kernel's clock for file times has not moved on within some milliseconds, the mark is missing, which costs only
/// speed.
pub(crate) fn show_renamed(path: &Path) {
    for _ in 0..CLOCK_STEPS_MAX {
        let Ok(file) = std::fs::metadata(path) else {
            return;
        };
        if (file.ctime(), file.ctime_nsec()) > (file.mtime(), file.mtime_nsec()) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
        // Setting the present mode changes only the time.
        if std::fs::set_permissions(path, file.permissions()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_behind_its_link() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        write_synced(&file, ".new", "1").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_synced(&link, ".a.new", "2").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let absent = folder.path().join("absent/file");
        assert!(
            write_synced(&absent, ".new", "3")
                .unwrap_err()
                .to_string()
                .contains("cannot write")
        );
    }

    #[test]
    fn an_incarnation_begins_once() {
        let folder = tempfile::tempdir().unwrap();
        let epochs = folder.path().join("epoch.toml");
        let mut file = EpochFile {
            epoch: 1,
            members: [("a".to_owned(), 1)].into(),
            ..EpochFile::default()
        };
        let begins = |incarnation, joins| StartDecision::Begins {
            incarnation: Incarnation(incarnation),
            joins,
        };
        assert_eq!(StartDecision::last_used(&epochs, "a").unwrap(), 0);
        assert_eq!(StartDecision::of(&file, "a", 0), begins(1, false));
        StartDecision::note_used(&epochs, "a", Incarnation(1)).unwrap();
        let used = StartDecision::last_used(&epochs, "a").unwrap();
        assert!(
            matches!(StartDecision::of(&file, "a", used), StartDecision::Waits(why) if why.contains("has ended"))
        );
        assert!(
            matches!(StartDecision::of(&file, "b", 0), StartDecision::Waits(why) if why.contains("does not name"))
        );
        file.epoch = 2;
        file.members.insert("a".to_owned(), 2);
        assert_eq!(StartDecision::of(&file, "a", used), begins(2, true));
        file.founding = true;
        assert_eq!(StartDecision::of(&file, "a", used), begins(2, false));
        std::fs::write(place(&epochs, "a"), "x").unwrap();
        assert!(
            StartDecision::last_used(&epochs, "a")
                .unwrap_err()
                .to_string()
                .contains("or 0")
        );
    }
}
