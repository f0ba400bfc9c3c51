//! How a running host learns of other keys: it reads the key file again whenever that changes.

use std::path::PathBuf;

use asterism_config::files;
use asterism_config::key_file::{self, KeyFileError};
use asterism_engine::hash_seed;
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;
use thiserror::Error;

use super::job::{HostContext, HostLog, Job};
use crate::run::event_log::Event;
use crate::run::prepared::Prepared;
use crate::run::watched::{LOOK, Watched};

/// Why the keys of the file are not taken. Those in force stay.
#[derive(Debug, Error)]
enum KeysError {
    /// The keys of this file are another cluster's, or need a new start.
    #[error(
        "{} is not of this cluster, or of its next start: its keys name another hash seed than this host runs with", .0.display()
    )]
    OtherSeed(PathBuf),
    /// The file is no key file, or cannot be read.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

/// The key file, watched.
#[derive(Debug)]
pub(in crate::run) struct Keys {
    file: Watched,
    looked: Time,
    /// The keys in force.
    installed: KeyRing,
    /// Whether they came into force since anyone asked.
    is_news: bool,
}

impl Keys {
    /// The file that the configuration names; `None` if it names none.
    pub(super) fn of(prepared: &Prepared) -> Option<Keys> {
        let path = prepared.config.cluster.key.as_ref()?;
        Some(Keys {
            file: Watched::new(files::key_path(&prepared.arguments.config, path)),
            looked: Time::ZERO,
            installed: prepared.keys.clone(),
            is_news: false,
        })
    }

    /// The keys in force, if they came into force since this was last asked.
    pub(super) fn take_installed(&mut self) -> Option<KeyRing> {
        core::mem::take(&mut self.is_news).then(|| self.installed.clone())
    }

    /// The keys of the file, if it changed to others and has stayed as it is from one look to the next: what is being
    /// copied is not read. A mistake in it only if that stayed.
    fn query(&mut self, now: Time) -> Option<Result<KeyRing, KeysError>> {
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

    /// Has the next looks read the key file, whether it changed or not.
    pub(super) fn read_again(&mut self) {
        self.file.read_again(Time::ZERO);
    }
}

impl Job for Keys {
    /// Looks whether the key file has other keys, and goes over to them.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        match self.query(now) {
            Some(Ok(keys)) => {
                if !host.channel.set_keys(keys.clone()) {
                    // The thread has much to do: the next look reads the file again.
                    self.file.read_again(now);
                    return;
                }
                let accepts = listed(&keys.ids().collect::<Vec<_>>());
                let event = Event::info("keys")
                    .with("sends_with", keys.sending().id())
                    .with("accepts", accepts);
                (self.installed, self.is_news) = (keys, true);
                log.write(&event);
            }
            Some(Err(why)) => log.write(
                &Event::warning("keys-refused")
                    .with("why", why)
                    .effect("the keys in force stay")
                    .cure("change keys with `asterism key`, and copy its file to every host with mode 0600; another cluster's key needs a new start of all hosts"),
            ),
            None => {}
        }
    }
}

/// Numbers as text.
#[must_use]
pub fn listed(ids: &[u8]) -> String {
    let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn watch(path: &Path) -> Keys {
        Keys {
            file: Watched::new(path.to_owned()),
            looked: Time::ZERO,
            installed: key_file::read(path).unwrap(),
            is_news: false,
        }
    }

    /// Looks until something comes of it, at most so many times.
    fn looks(watch: &mut Keys, now: &mut Time, times: usize) -> Option<Result<KeyRing, String>> {
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
