//! How a running host learns of other keys: it reads the key file again whenever that changes.

use asterism_config::files;
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;

use super::job::{HostContext, HostLog, Job};
use crate::run::key_watch::KeyWatch;
use crate::run::prepared::Prepared;
use asterism_event_log::Event;

/// The key file, watched.
#[derive(Debug)]
pub(in crate::run) struct Keys {
    watch: KeyWatch,
    /// Whether the keys in force came into force since anyone asked.
    is_news: bool,
}

impl Keys {
    /// The file that the configuration names; `None` if it names none.
    pub(super) fn of(prepared: &Prepared) -> Option<Keys> {
        let path = prepared.config.cluster.key.as_ref()?;
        let path = files::key_path(&prepared.arguments.config, path);
        Some(Keys {
            watch: KeyWatch::new(path, prepared.keys.clone()),
            is_news: false,
        })
    }

    /// The keys in force, if they came into force since this was last asked.
    pub(super) fn take_installed(&mut self) -> Option<KeyRing> {
        core::mem::take(&mut self.is_news).then(|| self.watch.installed().clone())
    }

    /// Has the next looks read the key file, whether it changed or not.
    pub(super) fn read_again(&mut self) {
        self.watch.read_again(Time::ZERO);
    }
}

impl Job for Keys {
    /// Looks whether the key file has other keys, and goes over to them.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        match self.watch.query(now) {
            Some(Ok(keys)) => {
                if !host.channel.set_keys(keys.clone()) {
                    // The thread has much to do: the next look reads the file again.
                    self.watch.read_again(now);
                    return;
                }
                let accepts = listed(&keys.ids().collect::<Vec<_>>());
                let event = Event::info("keys")
                    .with("sends_with", keys.sending().id())
                    .with("accepts", accepts);
                self.watch.note_installed(keys);
                self.is_news = true;
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
