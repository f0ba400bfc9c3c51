//! [`Transaction`]: guards and writes that take effect together or not at all, and their bounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::{Leadership, Token, Version};
use crate::error::RefusedError;
use crate::key::Key;

/// Bytes of a value at most: an epoch's text.
pub const VALUE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of keys and values of a transaction at most. A request to etcd may have 1.5 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 1024 * 1024;
/// Guards of a transaction at most. etcd permits 128 operations, two of which are the store's own.
pub const GUARDS_MAX: usize = 64;
/// Writes of a transaction at most.
pub const WRITES_MAX: usize = 64;
/// The shortest term of a leadership.
pub const TERM_MIN: Duration = Duration::from_secs(1);
/// The longest term of a leadership.
pub const TERM_MAX: Duration = Duration::from_secs(600);
/// The longest wait for changes in one call.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: Key,
    /// `None` removes; removing what is absent is no error.
    pub(crate) value: Option<Arc<[u8]>>,
}

/// Guards and writes. Nothing is checked before [`crate::TruthStore::commit`], which refuses a transaction out of bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) guards: Vec<(Key, Version)>,
    pub(crate) writes: Vec<Write>,
    pub(crate) leadership: Option<(Key, Token)>,
}

impl Transaction {
    /// An empty one.
    #[must_use]
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Takes effect only if a key has this version; [`Version::ABSENT`]: only if it has no entry.
    #[must_use]
    pub fn expect(mut self, key: Key, version: Version) -> Transaction {
        self.guards.push((key, version));
        self
    }

    /// Takes effect only while this leadership lasts.
    #[must_use]
    pub fn under(mut self, leadership: &Leadership) -> Transaction {
        self.leadership = Some((leadership.election.clone(), leadership.token));
        self
    }

    /// Writes a value.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Arc<[u8]>>) -> Transaction {
        let value = Some(value.into());
        self.writes.push(Write { key, value });
        self
    }

    /// Removes an entry. That it is absent is no error.
    #[must_use]
    pub fn remove(mut self, key: Key) -> Transaction {
        self.writes.push(Write { key, value: None });
        self
    }

    pub(crate) fn check(&self) -> Result<(), RefusedError> {
        let most = |what, is, most| match is <= most {
            true => Ok(()),
            false => Err(RefusedError::Transaction { what, is, most }),
        };
        if self.writes.is_empty() {
            return Err(RefusedError::Empty);
        }
        most("guards", self.guards.len(), GUARDS_MAX)?;
        most("writes", self.writes.len(), WRITES_MAX)?;
        let mut bytes = 0;
        let mut written = BTreeSet::new();
        for write in &self.writes {
            let value = write.value.as_ref().map_or(0, |value| value.len());
            if value > VALUE_BYTES_MAX {
                return Err(RefusedError::Value {
                    key: write.key.to_string(),
                    bytes: value,
                    most: VALUE_BYTES_MAX,
                });
            }
            bytes += write.key.as_str().len() + value;
            if !written.insert(&write.key) {
                return Err(RefusedError::Twice(write.key.to_string()));
            }
        }
        let mut guarded = BTreeSet::new();
        for (key, _) in &self.guards {
            bytes += key.as_str().len();
            if !guarded.insert(key) {
                return Err(RefusedError::Twice(key.to_string()));
            }
        }
        most("bytes", bytes, TRANSACTION_BYTES_MAX)
    }
}

/// Whole seconds of a term, rounded up.
pub(crate) fn term_seconds(term: Duration) -> Result<u64, RefusedError> {
    if !(TERM_MIN..=TERM_MAX).contains(&term) {
        return Err(RefusedError::Term(term));
    }
    Ok(term.as_secs() + u64::from(term.subsec_nanos() > 0))
}

pub(crate) fn check_wait(wait: Duration) -> Result<(), RefusedError> {
    match wait <= WAIT_MAX {
        true => Ok(()),
        false => Err(RefusedError::Wait(wait)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn bounds_are_refused_with_what_they_are() {
        let put = |bytes| Transaction::new().put(key("a"), vec![0; bytes]);
        assert_eq!(put(VALUE_BYTES_MAX).check(), Ok(()));
        assert!(matches!(
            put(VALUE_BYTES_MAX + 1).check(),
            Err(RefusedError::Value { .. })
        ));
        assert_eq!(Transaction::new().check(), Err(RefusedError::Empty));
        let twice = put(1).remove(key("a"));
        assert_eq!(twice.check(), Err(RefusedError::Twice("a".into())));
        let many =
            |n: usize| (0..n).fold(Transaction::new(), |all, i| all.remove(key(&i.to_string())));
        assert_eq!(many(WRITES_MAX).check(), Ok(()));
        assert!(many(WRITES_MAX + 1).check().is_err());
        let full = (0..3).fold(Transaction::new(), |all, i| {
            all.put(key(&i.to_string()), vec![0; VALUE_BYTES_MAX])
        });
        assert!(matches!(
            full.check(),
            Err(RefusedError::Transaction { what: "bytes", .. })
        ));
        assert_eq!(term_seconds(Duration::from_millis(1_001)), Ok(2));
        assert!(term_seconds(Duration::from_millis(999)).is_err());
    }
}
