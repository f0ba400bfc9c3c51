//! Names in the store: [`Key`] and [`Prefix`]. Both have few characters, so that a key means the same in a file, in etcd and
//! in a log line.

use std::fmt;

use crate::error::RefusedError;

/// Bytes of a key at most.
pub const KEY_BYTES_MAX: usize = 256;

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b':' | b'@')
}

/// The name of an entry, such as `epochs/12`: 1 to [`KEY_BYTES_MAX`] bytes of `A-Z a-z 0-9 / - _ . : @`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Checks a name.
    ///
    /// # Errors
    /// [`RefusedError::Key`]: it is empty, too long, or has another character.
    pub fn new(name: impl Into<String>) -> Result<Key, RefusedError> {
        let name = name.into();
        if name.is_empty() || name.len() > KEY_BYTES_MAX || !name.bytes().all(is_allowed) {
            let shown = name.chars().take(40).collect();
            return Err(RefusedError::Key(shown));
        }
        Ok(Key(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of keys. The empty one is that of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// All keys.
    #[must_use]
    pub fn all() -> Prefix {
        Prefix::default()
    }

    /// Checks a beginning.
    ///
    /// # Errors
    /// [`RefusedError::Key`]: it is too long, or has a character that no key has.
    pub fn new(name: &str) -> Result<Prefix, RefusedError> {
        if name.is_empty() {
            return Ok(Prefix::all());
        }
        Key::new(name).map(|key| Prefix(key.0))
    }

    /// The beginning.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a key begins so.
    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_plain() {
        assert!(Key::new("epochs/12").is_ok());
        assert!(Key::new("a".repeat(KEY_BYTES_MAX)).is_ok());
        for bad in ["", "a b", "a\0", "ä", &"a".repeat(KEY_BYTES_MAX + 1)] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        let prefix = Prefix::new("epochs/").unwrap();
        assert!(prefix.covers(&Key::new("epochs/1").unwrap()));
        assert!(!prefix.covers(&Key::new("epoch").unwrap()));
        assert!(Prefix::all().covers(&Key::new("x").unwrap()));
    }
}
