//! The file with the cluster's keys: written for its owner alone, and read only if it is for its owner alone. Files of other secrets are read
//! likewise.

mod secret;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use asterism_secure_channel::{ClusterKey, KeyRing, KeyRingError};

use asterism_notation::text::without_mark;

pub use secret::{SecretFileError, password, text};

/// Longer files hold no key.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Owner may read and write, nobody else anything.
const MODE: u32 = 0o600;

/// Why there are no keys, or none were written. None of them holds what the file does.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A new file was to be written, and there is one; it stays as it is.
    #[error(
        "{} exists and was left as it is: hosts that use it would be cut off. Name another file, or move it away first",
        .0.display()
    )]
    Exists(PathBuf),
    /// No file was made.
    #[error("no key was written: cannot create {}: {error}", file.display())]
    NotCreated {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A new file is gone again, and an existing one is as it was.
    #[error("no key was written: cannot write {}: {error}", file.display())]
    NotWritten {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no key, and no file was made.
    #[error("no key was written: the operating system gives no randomness: {0}")]
    NoRandomness(getrandom::Error),
    /// There is no such file.
    #[error(
        "there is no key file {name}: write one with `asterism keygen {name}`, or copy that of the cluster",
        name = .0.display()
    )]
    Missing(PathBuf),
    /// The file could not be read.
    #[error("cannot read the key file {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is something else of that name.
    #[error("the key file {} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// Others than the owner could read or write it.
    #[error(
        "the key file {name} has mode {mode:04o}: others may have read the key. If they could not, `chmod 600 {name}`; otherwise write a new key",
        name = file.display()
    )]
    NotPrivate {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// No key file is so long.
    #[error("the key file {} has {bytes} bytes: it holds no key", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file holds something else than keys.
    #[error("{}: {error}", place(file, error.line))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong, and at which line.
        error: KeyRingError,
    },
}

/// A file, with a line of it.
fn place(file: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    }
}

/// Writes a new key into a new file of mode 0600. Takes a few milliseconds (the file is synced).
///
/// # Errors
/// Says why there is no key file; a file that was there is as it was.
pub fn write_new(path: &Path, id: u8) -> Result<(), KeyFileError> {
    let file = path.to_owned();
    let text = draw(id)?.to_text();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE);
    let mut made = match options.open(path) {
        Ok(made) => made,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(KeyFileError::Exists(file));
        }
        Err(error) => return Err(KeyFileError::NotCreated { file, error }),
    };
    let written = made
        // The mode asked for above is cut by the process's mask; this one is not.
        .set_permissions(fs::Permissions::from_mode(MODE))
        .and_then(|()| made.write_all(text.as_bytes()))
        .and_then(|()| made.sync_all());
    written.map_err(|error| {
        // A part of a key is of no use, and its name would be taken.
        let _ = fs::remove_file(path);
        KeyFileError::NotWritten { file, error }
    })
}

/// A new key from the operating system's randomness.
///
/// # Errors
/// There is none.
pub fn draw(id: u8) -> Result<ClusterKey, KeyFileError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(KeyFileError::NoRandomness)?;
    let key = ClusterKey::from_random(id, random);
    random.fill(0);
    core::hint::black_box(&random);
    Ok(key)
}

/// Writes keys in place of those of an existing file, of mode 0600 and of the same owner: a reader finds the ones or the
/// others, whole. A symbolic link stays one. Takes a few milliseconds (file and folder are synced).
///
/// # Errors
/// Says why; the file is as it was.
pub fn replace(path: &Path, keys: &KeyRing) -> Result<(), KeyFileError> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut beside = place.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> io::Result<()> {
        let before = fs::metadata(&place)?;
        // What an interrupted command left would keep its owner and who has it open.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(MODE))?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.write_all(keys.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &place)?;
        let folder = place
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        // Keys must not lie about; if it is not there that is as well.
        let _ = fs::remove_file(&beside);
        KeyFileError::NotWritten { file: place, error }
    })
}

/// Reads a key file, if nobody but its owner can read or write it.
///
/// # Errors
/// Says why there are no keys, at which line, what that means, and what to do. Never shows what the file holds.
pub fn read(path: &Path) -> Result<KeyRing, KeyFileError> {
    let unreadable = |error| KeyFileError::Unreadable {
        file: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
        _ => unreadable(error),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    check(path, &metadata)?;
    let mut text = String::with_capacity(metadata.len() as usize + 1);
    let read = file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text);
    let keys = read.map_err(unreadable).and_then(|_| {
        KeyRing::parse(without_mark(&text)).map_err(|error| KeyFileError::Malformed {
            file: path.to_owned(),
            error,
        })
    });
    // The text is overwritten: the allocator would keep the secret otherwise.
    let mut bytes = text.into_bytes();
    bytes.fill(0);
    core::hint::black_box(&bytes);
    keys
}

/// Whether it is a file of its owner alone, and of the length of one.
fn check(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyFileError> {
    let file = path.to_owned();
    let (mode, bytes) = (metadata.permissions().mode() & 0o777, metadata.len());
    if !metadata.is_file() {
        return Err(KeyFileError::NotAFile(file));
    }
    if mode & 0o177 != 0 {
        return Err(KeyFileError::NotPrivate { file, mode });
    }
    if bytes > KEY_FILE_BYTES_MAX {
        return Err(KeyFileError::TooLong { file, bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_written_key_is_private_reads_back_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        write_new(&path, 7).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(read(&path).unwrap().sending().id(), 7);
        let before = fs::read(&path).unwrap();
        let error = write_new(&path, 8).unwrap_err().to_string();
        assert!(error.contains("left as it is"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        let other = folder.path().join("other.key");
        write_new(&other, 7).unwrap();
        assert_ne!(
            fs::read(&other).unwrap(),
            before,
            "two keys are never equal"
        );
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        write_new(&path, 1).unwrap();
        for bad in [0o640, 0o604, 0o620, 0o700, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bad)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{bad:04o}")) && error.contains("chmod 600"),
                "{error}"
            );
        }
        for good in [0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(good)).unwrap();
            assert!(read(&path).is_ok());
        }
    }

    #[test]
    fn keys_take_the_place_of_keys_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        write_new(&path, 1).unwrap();
        let first = read(&path).unwrap().sending().clone();
        let seed = asterism_engine::hash_seed(&first);
        let keys = vec![
            first.with_hash_seed(seed),
            draw(2).unwrap().with_hash_seed(seed),
        ];
        let ring = KeyRing::new(keys, 2).unwrap();
        let link = folder.path().join("link.key");
        std::os::unix::fs::symlink("cluster.key", &link).unwrap();
        // What an interrupted command left, readable by all.
        let left = folder.path().join("cluster.key.new");
        fs::write(&left, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        replace(&link, &ring).unwrap();
        assert_eq!(read(&path).unwrap(), ring);
        assert_eq!(mode(&path), 0o600);
        assert!(!left.exists() && fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(asterism_engine::hash_seed(ring.sending()), seed);
        // Nothing is made where nothing was, and a folder that is in the way is an error.
        assert!(replace(&folder.path().join("absent.key"), &ring).is_err());
        fs::create_dir(&left).unwrap();
        let error = replace(&path, &KeyRing::from(draw(3).unwrap()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no key was written"), "{error}");
        assert_eq!(read(&path).unwrap(), ring);
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        write_new(&path, 1).unwrap();
        let text = format!(
            "# of this cluster\n{0}{0}",
            fs::read_to_string(&path).unwrap()
        );
        fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.contains("cluster.key:3: several keys need a first line"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_key_file_is_refused_without_showing_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("asterism keygen")
        );
        assert!(
            read(folder.path())
                .unwrap_err()
                .to_string()
                .contains("not a file")
        );
        let secret = "my-password-1234";
        for text in ["", secret, "asterism-key-1:1:00"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(!error.contains(secret), "{error}");
        }
        fs::write(&path, [0xFF; 100]).unwrap();
        assert!(read(&path).is_err());
        fs::write(&path, vec![b'#'; 100_000]).unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("holds no key")
        );
        assert!(
            write_new(&folder.path().join("absent/cluster.key"), 1)
                .unwrap_err()
                .to_string()
                .contains("no key was written")
        );
    }
}
