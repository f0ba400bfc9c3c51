//! Which cluster keys a member accepts: for anyone who changes the key to look at before hosts send with another.

use crate::envelope::FRAME_BYTES_MAX;
use asterism_secure_channel::KEYS_MAX;

/// The most bytes of a frame of keys.
pub(crate) const KEYS_BYTES_MAX: usize = FRAME_BYTES_MAX + KEYS_MAX * KEY_BYTES;
const KEY_BYTES: usize = 5;

/// A cluster key that a member accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedKey {
    /// Its number.
    pub id: u8,
    /// Derived from the key ([`ClusterKey::check`](asterism_secure_channel::ClusterKey::check)): differs between two keys of one number,
    /// but for one pair in 2^32.
    pub check: u32,
}

/// The cluster keys that a member accepts: 1 to [`KEYS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedKeys {
    keys: [AcceptedKey; KEYS_MAX],
    count: usize,
}

impl AcceptedKeys {
    /// The first [`KEYS_MAX`] of these keys.
    pub fn new(keys: impl IntoIterator<Item = AcceptedKey>) -> AcceptedKeys {
        let mut accepted = AcceptedKeys::default();
        for (place, key) in accepted.keys.iter_mut().zip(keys) {
            *place = key;
            accepted.count += 1;
        }
        accepted
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = AcceptedKey> + '_ {
        self.keys.iter().take(self.count).copied()
    }

    /// The keys' numbers.
    pub fn ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.iter().map(|key| key.id)
    }

    /// The numbers under which both have a key, and not the same.
    pub fn differing(&self, other: &AcceptedKeys) -> impl Iterator<Item = u8> + '_ {
        let other = *other;
        let differs = move |key: &AcceptedKey| {
            let mut others = other.iter();
            others.any(|other| other.id == key.id && other.check != key.check)
        };
        self.iter().filter(differs).map(|key| key.id)
    }

    pub(crate) fn read(body: &[u8]) -> Option<AcceptedKeys> {
        let (keys, rest) = body.as_chunks::<KEY_BYTES>();
        if !rest.is_empty() || keys.is_empty() || keys.len() > KEYS_MAX {
            return None;
        }
        Some(AcceptedKeys::new(keys.iter().map(|[id, check @ ..]| {
            AcceptedKey {
                id: *id,
                check: u32::from_le_bytes(*check),
            }
        })))
    }

    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        for key in self.iter() {
            body.push(key.id);
            body.extend(key.check.to_le_bytes());
        }
    }
}
