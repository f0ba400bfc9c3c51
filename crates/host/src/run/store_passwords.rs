//! What a host shows to its store, and what the store that it runs itself lets in.

use std::path::Path;

use asterism_config::key_file::{self, SecretFileError};
use asterism_config::{Config, Store, files};
use asterism_embedded_store::Passwords;
use asterism_remote_store::Password;
use asterism_secure_channel::{ClusterId, KeyRing};

/// The purpose that the passwords of embedded stores are derived for.
const PURPOSE: &str = "store";

/// The passwords of a host's store: the one of `password_file`, or of an embedded store without one those of the cluster's keys, which follow
/// them.
#[derive(Clone, Debug)]
pub(super) struct StorePasswords {
    /// What instances show.
    pub(super) shown: Option<Password>,
    /// What the store lets in where this host runs it.
    pub(super) accepted: Option<Passwords>,
    /// The cluster whose keys they are of.
    cluster: Option<ClusterId>,
}

impl StorePasswords {
    /// Reads the file, if one is named.
    ///
    /// # Errors
    /// There is no password in it.
    pub(super) fn of(
        config: &Config,
        (store, file): (&Store, &Path),
        keys: &KeyRing,
    ) -> Result<Self, SecretFileError> {
        let (shown, accepted, cluster) = match (&store.password, &store.embedded) {
            (Some(path), _) => {
                let path = files::key_path(file, path);
                let password = key_file::password(&path, "password_file of [store]")?;
                let accepted = Passwords::new([password.clone()]);
                (Some(Password::new(password)), Some(accepted), None)
            }
            (None, Some(_)) => {
                let cluster = config.cluster.id();
                let accepted = Passwords::new(of_all(keys, cluster));
                let shown = Password::new(of_sending(keys, cluster));
                (Some(shown), Some(accepted), Some(cluster))
            }
            (None, None) => (None, None, None),
        };
        Ok(Self {
            shown,
            accepted,
            cluster,
        })
    }

    /// These keys are in force. While hosts go over to them one after the other, the store lets in those that still send under another.
    pub(super) fn set_keys(&self, keys: &KeyRing) {
        let Some(cluster) = self.cluster else {
            return;
        };
        if let Some(accepted) = &self.accepted {
            accepted.set(of_all(keys, cluster));
        }
        if let Some(shown) = &self.shown {
            shown.set(of_sending(keys, cluster));
        }
    }
}

fn of_all(keys: &KeyRing, cluster: ClusterId) -> impl Iterator<Item = String> + '_ {
    let keys = keys.keys().iter();
    keys.map(move |key| key.password(cluster, PURPOSE).to_string())
}

fn of_sending(keys: &KeyRing, cluster: ClusterId) -> String {
    keys.sending().password(cluster, PURPOSE).to_string()
}
