//! A file that somebody else writes while a host runs, and that the host reads whenever it has changed: never while it is being
//! copied.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_placement::Time;

/// How often a file is looked at, and how long it must stay as it is before it is read.
pub const LOOK: Duration = Duration::from_millis(200);

/// How long a mistake must stay before it is reported: a copy empties the file first, and what it writes may come a round trip of a
/// WAN or a busy disk later.
pub const MISTAKE: Duration = Duration::from_secs(2);

/// How often a file is read again that could not be made sense of, though it has not changed: why may have passed, as when no
/// descriptor was left or a disk did not answer.
pub const AGAIN: Duration = Duration::from_secs(1);

/// What changes when a file is written, replaced, or given another mode or owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// Seconds and nanoseconds.
    changed: (i64, i64),
    written: (i64, i64),
    inode: u64,
    bytes: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let file = std::fs::metadata(path).ok()?;
        Some(Stamp {
            changed: (file.ctime(), file.ctime_nsec()),
            written: (file.mtime(), file.mtime_nsec()),
            inode: file.ino(),
            bytes: file.len(),
        })
    }

    /// Whether something was done to it after it had been written, as it is when a file is written beside and renamed, or copied with
    /// its times. What is being written has both times alike.
    fn is_put_there(&self) -> bool {
        self.changed > self.written
    }
}

/// A file, watched.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    /// Whether what was put there whole is read at once.
    believes_renames: bool,
    seen: Option<Stamp>,
    /// Since when it is as it is, if nothing came of that yet.
    unread_since: Option<Time>,
    /// When that has been so for long enough to read it.
    settles: Time,
    /// The mistake that was reported last of the file as it is, and when the file is read again.
    mistake: Option<(String, Time)>,
}

impl Watched {
    /// A file that is to be read once it has settled, whatever it is.
    pub fn new(path: PathBuf) -> Watched {
        Watched {
            path,
            believes_renames: false,
            seen: None,
            unread_since: Some(Time::ZERO),
            settles: Time::ZERO,
            mistake: None,
        }
    }

    /// Has what was renamed into its place read at the first look, and also what was not touched for a second before `date`, in
    /// seconds since 1970.
    pub fn at_once(self, date: u64) -> Watched {
        let stamp = Stamp::of(&self.path);
        let is_old = |one: &Stamp| one.changed.0.saturating_add(1) < date.cast_signed();
        Watched {
            believes_renames: true,
            seen: stamp.filter(is_old),
            ..self
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What comes of reading it, if it changed and has settled: it has been as it is for [`LOOK`]. A mistake only if that stayed for
    /// [`MISTAKE`], and once; it is read again every [`AGAIN`] until nothing is wrong any more.
    pub fn query<T, E: ToString>(
        &mut self,
        now: Time,
        read: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let stamp = Stamp::of(&self.path);
        if stamp != self.seen {
            self.seen = stamp;
            self.unread_since = Some(now);
            self.mistake = None;
            self.settles = match self.is_put_there(stamp) {
                true => now,
                false => now + LOOK,
            };
        }
        let reported = self
            .mistake
            .as_ref()
            .filter(|_| self.unread_since.is_none());
        let due = match (self.unread_since, reported) {
            (Some(_), _) => self.settles,
            (None, Some((_, again))) => *again,
            (None, None) => return None,
        };
        if now < due {
            return None;
        }
        match read(&self.path) {
            Ok(read) => {
                self.unread_since = None;
                self.mistake = None;
                Some(Ok(read))
            }
            Err(_) if self.unread_since.is_some_and(|since| now < since + MISTAKE) => None,
            Err(why) => {
                let text = why.to_string();
                let is_known = reported.is_some_and(|(before, _)| *before == text);
                self.unread_since = None;
                self.mistake = Some((text, now + AGAIN));
                (!is_known).then_some(Err(why))
            }
        }
    }

    /// Whether it changed and was not read yet, so far as was looked.
    pub fn is_unread(&self) -> bool {
        self.unread_since.is_some()
    }

    /// Whether it is not being copied now: it was read as it is, or was put there whole.
    pub fn has_settled(&self) -> bool {
        let stamp = Stamp::of(&self.path);
        stamp == self.seen && !self.is_unread() || self.is_put_there(stamp)
    }

    fn is_put_there(&self, stamp: Option<Stamp>) -> bool {
        self.believes_renames && stamp.is_some_and(|one| one.is_put_there())
    }

    /// Has the next look read it, whether it changed or not, as if it had been as it is since then.
    pub fn read_again(&mut self, since: Time) {
        self.unread_since = Some(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes wrong for longer than a mistake is waited for, and then passes without a change of the file.
    #[test]
    fn a_file_that_could_not_be_read_for_a_while_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch.toml");
        std::fs::write(&path, "2").unwrap();
        let (mut watched, mut now) = (Watched::new(path), Time::ZERO);
        let mut looks = |seconds: u64, watched: &mut Watched, fails: Option<&str>| {
            let mut seen = Vec::new();
            for _ in 0..seconds * 5 {
                now = now + LOOK;
                let read = |path: &Path| match fails {
                    Some(why) => Err(why.to_owned()),
                    None => Ok(std::fs::read_to_string(path).unwrap()),
                };
                seen.extend(watched.query(now, read));
            }
            seen
        };
        let no_descriptor = "too many open files";
        let reported = vec![Err(no_descriptor.to_owned())];
        assert_eq!(
            looks(60, &mut watched, Some(no_descriptor)),
            reported,
            "once"
        );
        assert!(watched.has_settled());
        let other = "input/output error";
        assert_eq!(
            looks(60, &mut watched, Some(other)),
            [Err(other.to_owned())]
        );
        assert_eq!(looks(2, &mut watched, None), [Ok("2".to_owned())]);
        assert_eq!(looks(60, &mut watched, None), [], "read once");
    }
}
