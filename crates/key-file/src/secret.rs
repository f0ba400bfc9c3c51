//! Files of other secrets: passwords, and keys of certificates, which only their owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of such a file at most.
const BYTES_MAX: u64 = 1 << 20;

/// Why there is no secret. `what` is what the file is for: the setting that names it, say.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be read.
    #[error("{what} {path} cannot be read: {error}", path = .path.display())]
    Unreadable {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others than the owner can read it.
    #[error("{what} {path} can be read by others: chmod 600 {path}", path = .path.display())]
    NotPrivate {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No such file is so long.
    #[error("{what} {path} is longer than {BYTES_MAX} bytes", path = .path.display())]
    TooLong {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// It has no password.
    #[error("{what} {path} has no password: write it on the first line", path = .path.display())]
    NoPassword {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// The first line of a file that only its owner may read.
///
/// # Errors
/// See [`SecretFileError`].
pub fn password(path: &Path, what: &'static str) -> Result<String, SecretFileError> {
    let text = text(path, what, true)?;
    let line = text.lines().next().filter(|line| !line.is_empty());
    let path = path.to_owned();
    line.map(str::to_owned)
        .ok_or(SecretFileError::NoPassword { what, path })
}

/// The text of a file, which only its owner may read if it is a secret.
///
/// # Errors
/// See [`SecretFileError`].
pub fn text(path: &Path, what: &'static str, is_secret: bool) -> Result<String, SecretFileError> {
    let path = path.to_owned();
    let read = || {
        let file = File::open(&path)?;
        let mode = file.metadata()?.permissions().mode();
        let mut text = String::new();
        if !is_secret || mode & 0o077 == 0 {
            // One byte more, since the file may be an endless device.
            file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        }
        io::Result::Ok((mode, text))
    };
    match read() {
        Err(error) => Err(SecretFileError::Unreadable { what, path, error }),
        Ok((mode, _)) if is_secret && mode & 0o077 != 0 => {
            Err(SecretFileError::NotPrivate { what, path })
        }
        Ok((_, text)) if text.len() as u64 > BYTES_MAX => {
            Err(SecretFileError::TooLong { what, path })
        }
        Ok((_, text)) => Ok(text),
    }
}
