//! The key file, watched: other keys are taken up once a change of it has settled. Hosts and orchestrators watch it alike.

use std::path::PathBuf;

use asterism_config::key_file::{self, KeyFileError};
use asterism_engine::hash_seed;
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;
use asterism_watched_files::{LOOK, Watched};
use thiserror::Error;

/// Why the keys of the file are not taken. Those in force stay.
#[derive(Debug, Error)]
pub enum KeysError {
    /// The keys of this file are another cluster's, or need a new start.
    #[error(
        "{} is not of this cluster, or of its next start: its keys name another hash seed than this host runs with", .0.display()
    )]
    OtherSeed(PathBuf),
    /// The file is no key file, or cannot be read.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

/// The key file, watched, and the keys in force.
#[derive(Debug)]
pub struct KeyWatch {
    file: Watched,
    looked: Time,
    installed: KeyRing,
}

impl KeyWatch {
    /// The file of this path, from which these keys were read.
    #[must_use]
    pub fn new(path: PathBuf, installed: KeyRing) -> KeyWatch {
        KeyWatch {
            file: Watched::new(path),
            looked: Time::ZERO,
            installed,
        }
    }

    /// The keys of the file, if it changed to others and has stayed as it is from one look to the next: what is being
    /// copied is not read.
    ///
    /// # Errors
    /// A mistake in the file that stayed, or another cluster's keys; said once. The keys in force stay.
    pub fn query(&mut self, now: Time) -> Option<Result<KeyRing, KeysError>> {
        if now < self.looked + LOOK {
            return None;
        }
        self.looked = now;
        match self.file.query(now, key_file::read)? {
            Ok(keys) if keys == self.installed => None,
            Ok(keys) if hash_seed(keys.sending()) != hash_seed(self.installed.sending()) => {
                Some(Err(KeysError::OtherSeed(self.file.path().to_owned())))
            }
            read => Some(read.map_err(KeysError::from)),
        }
    }

    /// These keys are in force.
    pub fn note_installed(&mut self, keys: KeyRing) {
        self.installed = keys;
    }

    /// The keys in force.
    #[must_use]
    pub fn installed(&self) -> &KeyRing {
        &self.installed
    }

    /// Has the next look read the file, whether it changed or not, as if it had been as it is since then.
    pub fn read_again(&mut self, since: Time) {
        self.file.read_again(since);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn watch(path: &Path) -> KeyWatch {
        KeyWatch::new(path.to_owned(), key_file::read(path).unwrap())
    }

    /// Looks until something comes of it, at most so many times.
    fn looks(
        watch: &mut KeyWatch,
        now: &mut Time,
        times: usize,
    ) -> Option<Result<KeyRing, String>> {
        (0..times).find_map(|_| {
            *now = *now + LOOK;
            let read = watch.query(*now)?;
            Some(read.map_err(|error| error.to_string()))
        })
    }

    #[test]
    fn a_change_is_read_once_it_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        key_file::write_new(&path, 1).unwrap();
        let (mut watch, mut now) = (watch(&path), Time::ZERO);
        assert_eq!(
            looks(&mut watch, &mut now, 5),
            None,
            "what was read at the start"
        );
        let seed = hash_seed(watch.installed.sending());
        let one = watch.installed.sending().clone().with_hash_seed(seed);
        let two = key_file::draw(2).unwrap().with_hash_seed(seed);
        let ring = KeyRing::new(vec![one, two], 1).unwrap();
        key_file::replace(&path, &ring).unwrap();
        assert!(watch.query(now).is_none(), "not so soon");
        assert_eq!(
            looks(&mut watch, &mut now, 1),
            None,
            "it may still be written"
        );
        assert_eq!(looks(&mut watch, &mut now, 1), Some(Ok(ring.clone())));
        watch.installed = ring.clone();
        assert_eq!(looks(&mut watch, &mut now, 5), None);

        // A copy that is slow: empty, then half there, then whole.
        let text = ring.to_text();
        for end in [0, text.len() / 2] {
            fs::write(&path, &text[..end]).unwrap();
            assert_eq!(looks(&mut watch, &mut now, 9), None, "being copied");
        }
        fs::write(&path, &*text).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 20), None, "the same keys again");

        // Reported once; a mode put right is a change though the content is not.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let reported = looks(&mut watch, &mut now, 12).unwrap().unwrap_err();
        assert!(reported.contains("0644"), "{reported}");
        assert_eq!(looks(&mut watch, &mut now, 20), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 5), None, "the same keys again");

        fs::remove_file(&path).unwrap();
        assert!(looks(&mut watch, &mut now, 12).unwrap().is_err());
        key_file::write_new(&path, 2).unwrap();
        let reported = looks(&mut watch, &mut now, 5).unwrap().unwrap_err();
        assert!(reported.contains("another hash seed"), "{reported}");
        fs::write(&path, &*ring.to_text()).unwrap();
        assert_eq!(looks(&mut watch, &mut now, 5), None, "as it is in force");
    }
}
