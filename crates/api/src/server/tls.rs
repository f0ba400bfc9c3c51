//! Certificate and key from files, for rustls with `ring`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::config::TlsFiles;

/// Bytes of a file of certificates or of a key.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Mode bits that let everybody use a key.
const EVERYBODY: u32 = 0o007;

/// Why a certificate or key is refused. Those that were in force stay so.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is too long to be one.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// Everybody on the machine can read the key.
    #[error("the key {} is open to everybody on this machine (mode {mode:03o}); do chmod 640 or 600", path.display())]
    OpenKey {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file has no certificate or no key in PEM.
    #[error("{} has no {what} in PEM: {why}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("{} and {} cannot be used together: {why}", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        why: String,
    },
}

/// The contents of both files, and whether they changed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Reads both files.
pub(super) fn read(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    build(files, &texts(files)?)
}

pub(super) fn texts(files: &TlsFiles) -> Result<Texts, TlsError> {
    let certificate = contents(&files.certificate, false)?;
    let key = contents(&files.key, true)?;
    Ok(Texts { certificate, key })
}

fn contents(path: &Path, is_key: bool) -> Result<Vec<u8>, TlsError> {
    let io = |source| TlsError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o777;
    if is_key && mode & EVERYBODY != 0 {
        return Err(TlsError::OpenKey {
            path: path.to_owned(),
            mode,
        });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(TlsError::Long {
            path: path.to_owned(),
        }),
        false => Ok(bytes),
    }
}

pub(super) fn build(
    files: &TlsFiles,
    texts: &Texts,
) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let pem = |path: &Path, what, why: String| TlsError::Pem {
        path: path.to_owned(),
        what,
        why,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&texts.certificate).collect();
    let chain = chain.map_err(|error| pem(&files.certificate, "certificate", error.to_string()))?;
    if chain.is_empty() {
        let why = "no section is one".to_owned();
        return Err(pem(&files.certificate, "certificate", why));
    }
    let key = PrivateKeyDer::from_pem_slice(&texts.key)
        .map_err(|error| pem(&files.key, "private key", error.to_string()))?;
    let unusable = |error: rustls::Error| TlsError::Unusable {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        why: error.to_string(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
