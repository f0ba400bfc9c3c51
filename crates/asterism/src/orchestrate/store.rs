//! The truth store that the configuration names: etcd, or the embedded store in the orchestrator's folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_config::key_file::{SecretFileError, password as password_of, text};
use asterism_config::{Etcd, EtcdFiles, Orchestrator, files};
use asterism_orchestrator::run::StoreFactory;
use asterism_truth_store::Key;
use asterism_truth_store::clock::monotonic;
use asterism_truth_store::embedded::EmbeddedStore;
use asterism_truth_store::etcd::{EtcdConfig, EtcdStore, EtcdTls, EtcdUser};

/// How long one answer of etcd may take.
const ETCD_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// What all keys in etcd begin with.
const ETCD_ROOT: &str = "asterism";

/// Why the store is not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreConfigError {
    #[error("the folder {path} cannot be made: {error}", path = .0.display(), error = .1)]
    Folder(PathBuf, io::Error),
    #[error(transparent)]
    Secret(#[from] SecretFileError),
}

/// How the store is opened. The files that it needs are read now.
pub(super) fn store(
    file: &Path,
    orchestrator: &Orchestrator,
    name: &str,
    incarnation: u64,
) -> Result<StoreFactory, StoreConfigError> {
    let etcd = &orchestrator.etcd;
    if etcd.addresses.is_empty() {
        let folder = files::key_path(file, &orchestrator.folder).join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| StoreConfigError::Folder(folder.clone(), error))?;
        return Ok(Box::new(move || {
            Ok(Box::new(EmbeddedStore::open(&folder, monotonic())?))
        }));
    }
    let tls = etcd
        .tls
        .as_ref()
        .map(|files| tls(file, files))
        .transpose()?;
    let user = user(file, etcd)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let addresses = etcd.addresses.iter();
    let endpoints = addresses
        .map(|address| format!("{scheme}://{address}"))
        .collect();
    let name = name.to_owned();
    Ok(Box::new(move || {
        let config = EtcdConfig {
            endpoints,
            root: Key::new(ETCD_ROOT)?,
            name: Key::new(name)?,
            incarnation,
            cluster_id: None,
            answer_wait: ETCD_ANSWER_WAIT,
            tls,
            user,
        };
        Ok(Box::new(EtcdStore::new(&config, monotonic())?))
    }))
}

fn tls(file: &Path, named: &EtcdFiles) -> Result<EtcdTls, StoreConfigError> {
    let authorities = text(&files::key_path(file, &named.authorities), "etcd_ca", false)?;
    let client = match &named.client {
        None => None,
        Some((certificate, key)) => Some((
            text(
                &files::key_path(file, certificate),
                "etcd_certificate",
                false,
            )?,
            text(&files::key_path(file, key), "etcd_key", true)?,
        )),
    };
    Ok(EtcdTls {
        authorities,
        client,
    })
}

fn user(file: &Path, etcd: &Etcd) -> Result<Option<EtcdUser>, StoreConfigError> {
    let Some((name, password)) = &etcd.user else {
        return Ok(None);
    };
    let password = password_of(&files::key_path(file, password), "etcd_password")?;
    let name = name.clone();
    Ok(Some(EtcdUser { name, password }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_a_file_of_its_owner_alone() {
        let folder = std::env::temp_dir().join(format!("asterism-store-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = folder.join("asterism.toml");
        let etcd = Etcd {
            user: Some(("root".to_owned(), PathBuf::from("password"))),
            ..Etcd::default()
        };
        let refused = |error: &str| {
            let said = user(&config, &etcd).err().unwrap().to_string();
            assert!(said.contains(error), "{said}");
        };
        refused("etcd_password");
        let path = folder.join("password");
        std::fs::write(&path, "secret\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        refused("chmod 600");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let read = user(&config, &etcd).unwrap().unwrap();
        assert_eq!(
            (read.name.as_str(), read.password.as_str()),
            ("root", "secret")
        );
        std::fs::write(&path, "\nsecret").unwrap();
        refused("no password");
        std::fs::write(&path, vec![b'x'; 1 << 20 | 1]).unwrap();
        refused("longer than");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
