//! Sealing for other datagrams than the state channel's, under the same cluster key.
//!
//! A purpose's keys are derived with its own label, so what is sealed for one purpose opens for no other. The caller counts nonces,
//! as [`super::sealer`] does for the state channel, and sees to replays.

use zeroize::Zeroizing;

use super::header::TAG_BYTES;
use super::key::{Cipher, ClusterKey, Salt, expand};
use crate::ClusterId;

/// The longest name of a purpose.
pub const PURPOSE_BYTES_MAX: usize = 32;

/// What is put before a purpose's name, so that no purpose is another derivation's label.
const LABEL: &[u8; 19] = b"asterism purpose 1 ";
/// The same of keys that are handed out.
const KEY_LABEL: &[u8; 19] = b"asterism key tags 1";
/// The same of marks of hash seeds.
const SEED_LABEL: &[u8; 20] = b"asterism hash seed 1";

/// The cipher of one sender for one purpose: AES-256-GCM under a key of its own. [`Salt`] is drawn at each start of a sender.
pub struct PurposeCipher(Cipher);

impl core::fmt::Debug for PurposeCipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PurposeCipher(key hidden)")
    }
}

impl ClusterKey {
    /// The cipher of the sender with this salt. A name beyond [`PURPOSE_BYTES_MAX`] is cut. Costs some microseconds.
    #[must_use]
    pub fn purpose_cipher(&self, purpose: &str, cluster: ClusterId, salt: &Salt) -> PurposeCipher {
        let key = Zeroizing::new(self.derive(LABEL, purpose, cluster, salt));
        PurposeCipher(Cipher::new(&key))
    }

    /// A key for tags of a purpose, the same for all of the cluster that hold this one. A name beyond [`PURPOSE_BYTES_MAX`] is cut.
    #[must_use]
    pub fn purpose_key(&self, purpose: &str, cluster: ClusterId) -> [u8; 32] {
        self.derive(KEY_LABEL, purpose, cluster, &Salt([0; 16]))
    }

    fn derive(
        &self,
        label: &[u8; LABEL.len()],
        purpose: &str,
        cluster: ClusterId,
        salt: &Salt,
    ) -> [u8; 32] {
        let mut info = [0; LABEL.len() + PURPOSE_BYTES_MAX + 5];
        let (start, fields) = info.split_at_mut(LABEL.len());
        start.copy_from_slice(label);
        let bytes = purpose.len().min(PURPOSE_BYTES_MAX);
        fields[..bytes].copy_from_slice(&purpose.as_bytes()[..bytes]);
        fields[PURPOSE_BYTES_MAX] = self.id();
        fields[PURPOSE_BYTES_MAX + 1..].copy_from_slice(&cluster.0.to_le_bytes());
        let mut key = [0; 32];
        expand(&salt.0, self.secret(), &info, &mut key);
        key
    }
}

/// A number by which clusters of two hash seeds are distinguished where strangers may read it: the first 64 bits of HKDF-SHA256, from which
/// the seed does not follow but by trying them all. Costs some microseconds.
#[must_use]
pub fn hash_seed_mark(seed: u64) -> u64 {
    let mut mark = [0; 8];
    expand(&[], &seed.to_le_bytes(), SEED_LABEL, &mut mark);
    u64::from_be_bytes(mark)
}

impl PurposeCipher {
    /// Encrypts what follows the first `clear` bytes of the datagram in place, authenticates all of it, and appends the tag of
    /// [`TAG_BYTES`]. The caller never passes one counter twice.
    pub fn seal(&self, counter: u64, datagram: &mut Vec<u8>, clear: usize) {
        let (head, text) = datagram.split_at_mut(clear);
        // Fails only for texts of 64 GiB and more.
        if let Some(tag) = self.0.seal(counter, head, text) {
            datagram.extend_from_slice(&tag);
        }
    }

    /// Checks a datagram and decrypts what follows its first `clear` bytes in place. `None`: it was not sealed by this sender for this
    /// purpose, and its bytes must not be used.
    #[must_use]
    pub fn open<'d>(&self, counter: u64, datagram: &'d mut [u8], clear: usize) -> Option<&'d [u8]> {
        let (head, rest) = datagram.split_at_mut_checked(clear)?;
        let (text, tag) = rest.split_at_mut_checked(rest.len().checked_sub(TAG_BYTES)?)?;
        let tag: &[u8; TAG_BYTES] = (&*tag).try_into().ok()?;
        self.0.open(counter, head, text, tag).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);
    const SALT: Salt = Salt([3; 16]);

    fn key() -> ClusterKey {
        ClusterKey::from_random(1, core::array::from_fn(|i| i as u8))
    }

    #[test]
    fn keys_for_tags_differ_by_purpose_cluster_and_key() {
        let one = key().purpose_key("one", CLUSTER);
        assert_eq!(one, key().purpose_key("one", CLUSTER));
        let other = ClusterKey::from_random(2, core::array::from_fn(|i| i as u8));
        let others = [
            key().purpose_key("two", CLUSTER),
            key().purpose_key("one", ClusterId(8)),
            other.purpose_key("one", CLUSTER),
        ];
        assert!(!others.contains(&one));
    }

    /// Stores keep marks: other ones would lock clusters out of theirs.
    #[test]
    fn marks_of_hash_seeds_are_those_that_stores_keep() {
        assert_eq!(hash_seed_mark(0x5EED), 0xEE91_ECE5_6A31_14B3);
        assert_ne!(hash_seed_mark(0x5EED), hash_seed_mark(0x5EEE));
        assert_ne!(hash_seed_mark(1), hash_seed_mark(1 << 56));
    }

    #[test]
    fn what_was_sealed_opens_for_the_same_sender_and_purpose_alone() {
        let cipher = key().purpose_cipher("one", CLUSTER, &SALT);
        let mut sealed = b"head text".to_vec();
        cipher.seal(5, &mut sealed, 5);
        let opened = cipher.open(5, &mut sealed.clone(), 5).map(<[u8]>::to_vec);
        assert_eq!(opened.as_deref(), Some(&b"text"[..]));
        assert_ne!(&sealed[5..9], b"text");
        let opens = |cipher: &PurposeCipher, counter, bytes: &[u8]| {
            cipher.open(counter, &mut bytes.to_vec(), 5).is_some()
        };
        for other in [
            key().purpose_cipher("two", CLUSTER, &SALT),
            key().purpose_cipher("one", ClusterId(8), &SALT),
            key().purpose_cipher("one", CLUSTER, &Salt([4; 16])),
            ClusterKey::from_random(2, core::array::from_fn(|i| i as u8))
                .purpose_cipher("one", CLUSTER, &SALT),
        ] {
            assert!(!opens(&other, 5, &sealed));
        }
        assert!(!opens(&cipher, 6, &sealed), "another counter");
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(!opens(&cipher, 5, &changed), "byte {place}");
            assert!(!opens(&cipher, 5, &sealed[..place]), "cut at {place}");
        }
    }
}
