//! The cluster key, its text file, and the session keys that come of it.

use core::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf;
use zeroize::{Zeroize, Zeroizing};

use super::header::{HEADER_BYTES, SALT_BYTES, TAG_BYTES};
use crate::{ClusterId, Incarnation, MemberId};

/// What a key's line starts with; the digit is the version of the format.
pub const KEY_TEXT_PREFIX: &str = "asterism-key-1";
/// What a key's line starts with that names its cluster's hash seed.
pub const SEEDED_KEY_TEXT_PREFIX: &str = "asterism-key-2";

/// The longest line of a key, and a newline.
pub(super) const LINE_BYTES_MAX: usize = 104;

/// Names the derivation of what two hosts compare to see whether they have the same key.
const CHECK_LABEL: &[u8; 20] = b"asterism key check 1";

/// Names the derivation of what authenticates a Retry.
const RETRY_LABEL: &[u8; 16] = b"asterism retry 1";

/// Names the derivation of passwords.
const PASSWORD_LABEL: &[u8; 19] = b"asterism password 1";

/// A Retry without its tag, in bytes.
const RETRY_BODY_BYTES: usize = HEADER_BYTES + 2 * TAG_BYTES;

/// Names the use and version of the derivation, so that no other use of the cluster key yields the same bytes.
const SESSION_LABEL: &[u8; 22] = b"asterism session key 1";

/// The secret that the hosts of one cluster share, with its number. Overwritten when dropped; never shown by `Debug`.
///
/// As text it is one line, `asterism-key-1:<key id>:<64 hexadecimal digits>`, or `asterism-key-2` with another field: 16
/// digits of the hash seed. What a file of them looks like says [`KeyRing`](super::KeyRing).
///
/// The *hash seed* is what all hosts of the cluster hash by, now and after the key has changed: places in sketches and
/// filters depend on it, so it must outlive the key that it first came from. A key without one implies it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey {
    id: u8,
    secret: [u8; 32],
    seed: Option<u64>,
}

/// Why a text is no key. No variant repeats what the text says: it may be a secret in the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is no line in it.
    Empty,
    /// A second line that is neither empty nor a comment.
    MoreThanOneLine,
    /// The line does not start with [`KEY_TEXT_PREFIX`] or [`SEEDED_KEY_TEXT_PREFIX`] and a colon.
    NotAKey,
    /// The line starts with `asterism-key-` but with another version of the format.
    OtherFormatVersion,
    /// A field is missing, or there is one too many: the line has this many.
    Fields(usize),
    /// The key id is not a decimal number from 0 to 255.
    KeyId,
    /// The secret has this many characters instead of 64.
    SecretLength(usize),
    /// The secret's character at this place (from 0) is no hexadecimal digit.
    SecretDigit(usize),
    /// All bytes of the secret are equal: a placeholder, not a key.
    Placeholder,
    /// The hash seed is not of 16 hexadecimal digits.
    Seed,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Empty => write!(
                f,
                "the key file holds no key; write one with `asterism keygen`"
            ),
            KeyError::MoreThanOneLine => {
                write!(f, "there is more than one line; one key was expected")
            }
            KeyError::NotAKey => write!(
                f,
                "not a key: the line starts with neither `{KEY_TEXT_PREFIX}:` nor `{SEEDED_KEY_TEXT_PREFIX}:`"
            ),
            KeyError::OtherFormatVersion => {
                write!(
                    f,
                    "a key of another format version; this program reads `{KEY_TEXT_PREFIX}` and `{SEEDED_KEY_TEXT_PREFIX}`"
                )
            }
            KeyError::Fields(found) => write!(
                f,
                "the key has {found} fields separated by colons; it is `{KEY_TEXT_PREFIX}:<key id>:<64 hexadecimal digits>` or `{SEEDED_KEY_TEXT_PREFIX}:<key id>:<64 hexadecimal digits>:<16 hexadecimal digits>`"
            ),
            KeyError::KeyId => write!(f, "the key id is not a decimal number from 0 to 255"),
            KeyError::SecretLength(found) => {
                write!(
                    f,
                    "the secret has {found} characters; it needs 64 hexadecimal digits"
                )
            }
            KeyError::SecretDigit(at) => {
                write!(
                    f,
                    "character {} of the secret is no hexadecimal digit",
                    at + 1
                )
            }
            KeyError::Placeholder => write!(
                f,
                "all bytes of the secret are equal: a placeholder, not a key; write one with `asterism keygen`"
            ),
            KeyError::Seed => write!(
                f,
                "the hash seed, the line's last field, is not of 16 hexadecimal digits"
            ),
        }
    }
}

impl core::error::Error for KeyError {}

impl ClusterKey {
    /// A key of 32 bytes from a secure random source.
    #[must_use]
    pub fn from_random(id: u8, random: [u8; 32]) -> ClusterKey {
        ClusterKey {
            id,
            secret: random,
            seed: None,
        }
    }

    /// The same key, naming the seed that its cluster's hosts hash by.
    #[must_use]
    pub fn with_hash_seed(mut self, seed: u64) -> ClusterKey {
        self.seed = Some(seed);
        self
    }

    /// The seed that the cluster's hosts hash by, if the key names it.
    #[must_use]
    pub fn hash_seed(&self) -> Option<u64> {
        self.seed
    }

    /// Whether both have one number and one secret: what is sealed under one opens under the other.
    #[must_use]
    pub fn opens_what_was_sealed_under(&self, other: &ClusterKey) -> bool {
        self.id == other.id && self.secret == other.secret
    }

    /// The key's number, which every datagram names.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Reads a text with one key; empty lines and lines that start with `#` are passed over.
    ///
    /// # Errors
    /// Says what is wrong with the text, without repeating it.
    pub fn parse(text: &str) -> Result<ClusterKey, KeyError> {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().ok_or(KeyError::Empty)?;
        if lines.next().is_some() {
            return Err(KeyError::MoreThanOneLine);
        }
        ClusterKey::parse_line(line)
    }

    /// Reads a key's line, without blanks around it.
    pub(super) fn parse_line(line: &str) -> Result<ClusterKey, KeyError> {
        let mut fields = line.split(':');
        let seeded = match fields.next() {
            Some(KEY_TEXT_PREFIX) => false,
            Some(SEEDED_KEY_TEXT_PREFIX) => true,
            Some(first) if first.starts_with("asterism-key-") => {
                return Err(KeyError::OtherFormatVersion);
            }
            _ => return Err(KeyError::NotAKey),
        };
        let wrong = || KeyError::Fields(line.split(':').count());
        let (Some(id), Some(digits)) = (fields.next(), fields.next()) else {
            return Err(wrong());
        };
        let seed = if seeded {
            Some(fields.next().ok_or_else(wrong)?)
        } else {
            None
        };
        if fields.next().is_some() {
            return Err(wrong());
        }
        let id = parse_id(id)?;
        let mut key = ClusterKey {
            id,
            secret: [0; 32],
            seed: seed.map(parse_seed).transpose()?,
        };
        if let Some(at) = digits.chars().position(|c| !c.is_ascii_hexdigit()) {
            return Err(KeyError::SecretDigit(at));
        }
        if digits.len() != 64 {
            return Err(KeyError::SecretLength(digits.len()));
        }
        for (byte, pair) in key.secret.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = hex_value(pair[0]) << 4 | hex_value(pair[1]);
        }
        if key.secret.iter().all(|byte| *byte == key.secret[0]) {
            return Err(KeyError::Placeholder);
        }
        Ok(key)
    }

    /// The key's line, ending in a newline. Overwritten when dropped, like the key.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Room for all of it at once: a string that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(LINE_BYTES_MAX));
        text.push_str(match self.seed {
            None => KEY_TEXT_PREFIX,
            Some(_) => SEEDED_KEY_TEXT_PREFIX,
        });
        text.push(':');
        text.push_str(&self.id.to_string());
        text.push(':');
        let seed = self.seed.map(u64::to_be_bytes);
        for (place, byte) in self.secret.iter().chain(seed.iter().flatten()).enumerate() {
            if place == self.secret.len() {
                text.push(':');
            }
            text.push(char::from(hex_digit(byte >> 4)));
            text.push(char::from(hex_digit(byte & 0x0f)));
        }
        text.push('\n');
        text
    }

    /// 32 bits derived from the key and its number, by which hosts of a cluster see whether their keys of one number are the
    /// same. They tell nothing of other derivations; hosts say them under seal only.
    #[must_use]
    pub fn check(&self, cluster: ClusterId) -> u32 {
        let mut info = [0; CHECK_LABEL.len() + 5];
        let (label, fields) = info.split_at_mut(CHECK_LABEL.len());
        label.copy_from_slice(CHECK_LABEL);
        fields[0] = self.id;
        fields[1..].copy_from_slice(&cluster.0.to_le_bytes());
        let mut check = [0; 4];
        expand(&[], &self.secret, &info, &mut check);
        u32::from_le_bytes(check)
    }

    /// What hosts of a cluster show where only they are let in: 64 hexadecimal digits for each purpose, from which neither the key nor any
    /// other derivation can be found. Costs some 2 µs.
    #[must_use]
    pub fn password(&self, cluster: ClusterId, purpose: &str) -> Zeroizing<String> {
        let mut info = PASSWORD_LABEL.to_vec();
        info.push(self.id);
        info.extend_from_slice(&cluster.0.to_le_bytes());
        info.extend_from_slice(purpose.as_bytes());
        let mut bytes = Zeroizing::new([0; 32]);
        expand(&[], &self.secret, &info, &mut *bytes);
        let mut text = Zeroizing::new(String::with_capacity(2 * bytes.len()));
        for byte in bytes.iter() {
            text.push(char::from(hex_digit(byte >> 4)));
            text.push(char::from(hex_digit(byte & 0x0f)));
        }
        text
    }

    /// What authenticates a Retry, whose bytes name cluster and sender. Costs some 2 µs.
    pub(super) fn retry_tag(&self, retry: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        let mut info = [0; RETRY_LABEL.len() + RETRY_BODY_BYTES];
        let (label, body) = info.split_at_mut(RETRY_LABEL.len());
        label.copy_from_slice(RETRY_LABEL);
        let bytes = retry.len().min(body.len());
        body[..bytes].copy_from_slice(&retry[..bytes]);
        expand(&[self.id], &self.secret, &info, &mut tag);
        tag
    }

    /// The key schedule of one sender's session. Costs under 1 µs with the processor's SHA and AES instructions: per session, never per datagram.
    pub(super) fn session_cipher(&self, cluster: ClusterId, session: &Session) -> Cipher {
        let mut info = [0; SESSION_LABEL.len() + 15];
        let (label, fields) = info.split_at_mut(SESSION_LABEL.len());
        label.copy_from_slice(SESSION_LABEL);
        fields[0] = self.id;
        fields[1..5].copy_from_slice(&cluster.0.to_le_bytes());
        fields[5..7].copy_from_slice(&session.member.0.to_le_bytes());
        fields[7..15].copy_from_slice(&session.incarnation.0.to_le_bytes());
        let mut key = Zeroizing::new([0; 32]);
        expand(&session.salt.0, &self.secret, &info, &mut *key);
        Cipher::new(&key)
    }

    /// What all derivations begin with.
    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl Drop for ClusterKey {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.seed.zeroize();
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey(id {}, secret hidden)", self.id)
    }
}

/// 128 random bits drawn at each start of a host. Not secret: it travels in the clear in handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Salt(pub [u8; SALT_BYTES]);

impl Salt {
    /// The four bytes that headers carry in its stead. Two salts may share them; their keys still differ.
    #[must_use]
    pub fn short_name(&self) -> u32 {
        u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

/// One incarnation of one sender: what its key is derived from, besides the cluster key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Session {
    /// The sender.
    pub member: MemberId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its salt.
    pub salt: Salt,
}

/// The AEAD under one session key. "Less safe" is the library's word for nonces that the caller counts.
pub(super) struct Cipher(LessSafeKey);

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Cipher {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of this cipher has 32 bytes");
        Cipher(LessSafeKey::new(key))
    }

    /// Encrypts in place. The caller never passes one counter twice.
    pub(super) fn seal(
        &self,
        counter: u64,
        clear: &[u8],
        text: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        // Fails only for texts of 64 GiB and more.
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(counter), Aad::from(clear), text)
            .ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Checks and decrypts in place; on `false` the text is unspecified and must not be used.
    #[must_use]
    pub(super) fn open(
        &self,
        counter: u64,
        clear: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        self.0
            .open_in_place_separate_tag(
                nonce(counter),
                Aad::from(clear),
                Tag::from(*tag),
                text,
                0..,
            )
            .is_ok()
    }
}

/// HKDF-SHA256, extract and expand (RFC 5869, sections 2.2 and 2.3). `out` is at most 8,160 bytes.
pub(super) fn expand(salt: &[u8], secret: &[u8], info: &[u8], out: &mut [u8]) {
    struct Bytes(usize);
    impl hkdf::KeyType for Bytes {
        fn len(&self) -> usize {
            self.0
        }
    }
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[info], Bytes(out.len()))
        .and_then(|found| found.fill(out))
        .expect("no caller asks for more than 255 hashes");
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Reads a key's number.
pub(super) fn parse_id(text: &str) -> Result<u8, KeyError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(KeyError::KeyId);
    }
    text.parse().map_err(|_| KeyError::KeyId)
}

fn parse_seed(text: &str) -> Result<u64, KeyError> {
    if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(KeyError::Seed);
    }
    u64::from_str_radix(text, 16).map_err(|_| KeyError::Seed)
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value & 0x0f)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ClusterKey {
        ClusterKey::from_random(7, core::array::from_fn(|i| i as u8))
    }

    #[test]
    fn text_round_trip() {
        let text = key().to_text();
        assert_eq!(
            text.as_str(),
            "asterism-key-1:7:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
        );
        assert_eq!(ClusterKey::parse(&text), Ok(key()));
        let commented = format!(
            "# cluster one\r\n\r\n  {}\r\n",
            text.to_uppercase()
                .trim()
                .replace("ASTERISM-KEY", "asterism-key")
        );
        assert_eq!(ClusterKey::parse(&commented), Ok(key()));
        let seeded = key().with_hash_seed(0x0102_0304_0506_0708);
        let text = seeded.to_text();
        assert_eq!(
            text.as_str(),
            "asterism-key-2:7:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:0102030405060708\n"
        );
        let longest = ClusterKey::from_random(255, [1; 32]).with_hash_seed(0);
        assert!(longest.to_text().len() <= LINE_BYTES_MAX);
        let read = ClusterKey::parse(&text).unwrap();
        assert_eq!(read, seeded);
        assert_eq!(read.hash_seed(), Some(0x0102_0304_0506_0708));
        assert!(read.opens_what_was_sealed_under(&key()) && read != key());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let good = key().to_text();
        let digits = &good.trim()["asterism-key-1:7:".len()..];
        let cases = [
            (String::new(), KeyError::Empty),
            ("# nothing\n\n".into(), KeyError::Empty),
            (format!("{}{}", *good, *good), KeyError::MoreThanOneLine),
            ("-----BEGIN PRIVATE KEY-----".into(), KeyError::NotAKey),
            (
                format!("asterism-key-3:7:{digits}"),
                KeyError::OtherFormatVersion,
            ),
            (format!("asterism-key-2:7:{digits}"), KeyError::Fields(3)),
            (
                format!("asterism-key-2:7:{digits}:0123456789abcdef:"),
                KeyError::Fields(5),
            ),
            (
                format!("asterism-key-2:7:{digits}:0123456789abcde"),
                KeyError::Seed,
            ),
            (
                format!("asterism-key-2:7:{digits}:+123456789abcdef"),
                KeyError::Seed,
            ),
            ("asterism-key-1".into(), KeyError::Fields(1)),
            ("asterism-key-1:7".into(), KeyError::Fields(2)),
            (format!("asterism-key-1:7:{digits}:"), KeyError::Fields(4)),
            (format!("asterism-key-1::{digits}"), KeyError::KeyId),
            (format!("asterism-key-1:256:{digits}"), KeyError::KeyId),
            (format!("asterism-key-1:+7:{digits}"), KeyError::KeyId),
            (
                format!("asterism-key-1:7:{}", &digits[1..]),
                KeyError::SecretLength(63),
            ),
            (
                format!("asterism-key-1:7:{digits}00"),
                KeyError::SecretLength(66),
            ),
            (
                format!("asterism-key-1:7:0x{}", &digits[2..]),
                KeyError::SecretDigit(1),
            ),
            (
                format!("asterism-key-1:7:ß{}", &digits[2..]),
                KeyError::SecretDigit(0),
            ),
            (
                format!("asterism-key-1:7:{}", "00".repeat(32)),
                KeyError::Placeholder,
            ),
        ];
        for (text, error) in cases {
            assert_eq!(ClusterKey::parse(&text), Err(error), "{text:?}");
            assert!(
                !error.to_string().contains(digits),
                "an error must not repeat the secret"
            );
        }
    }

    const GOLDEN_CHECK: u32 = 0x3c17_5dc8;

    #[test]
    fn a_check_depends_on_secret_number_and_cluster_alone() {
        let check = |id, byte, cluster| {
            let key = ClusterKey::from_random(id, [byte; 32]);
            let seeded = key.clone().with_hash_seed(3);
            let check = key.check(ClusterId(cluster));
            assert_eq!(check, seeded.check(ClusterId(cluster)));
            check
        };
        let all = [(7, 1, 1), (8, 1, 1), (7, 2, 1), (7, 1, 2)];
        let all: Vec<u32> = all
            .map(|(id, byte, cluster)| check(id, byte, cluster))
            .into();
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one), "{all:x?}");
        }
        // Computed apart from this program, by Python's `hmac`.
        assert_eq!(key().check(ClusterId(300)), GOLDEN_CHECK);
    }

    #[test]
    fn a_password_depends_on_secret_number_cluster_and_purpose_alone() {
        let password = |id, byte, cluster, purpose| {
            let key = ClusterKey::from_random(id, [byte; 32]).with_hash_seed(3);
            key.password(ClusterId(cluster), purpose)
        };
        let all = [
            password(7, 1, 1, "a"),
            password(8, 1, 1, "a"),
            password(7, 2, 1, "a"),
            password(7, 1, 2, "a"),
            password(7, 1, 1, "b"),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one), "{all:?}");
        }
        // Computed apart from this program, by Python's `hmac`.
        let golden = "a558f134ab20c29c1f9e9856254eb3426381f0b5933fbe43e94142aca732f9b4";
        assert_eq!(*key().password(ClusterId(300), "store"), golden);
        let seeded = key().with_hash_seed(3);
        assert_eq!(*seeded.password(ClusterId(300), "store"), golden);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", key()), "ClusterKey(id 7, secret hidden)");
    }

    /// Test case 1 of RFC 5869, appendix A.1 (its first 42 bytes of output).
    #[test]
    fn derivation_is_hkdf_sha256() {
        let mut out = [0; 42];
        let salt: [u8; 13] = core::array::from_fn(|i| i as u8);
        let info: [u8; 10] = core::array::from_fn(|i| 0xf0 + i as u8);
        expand(&salt, &[0x0b; 22], &info, &mut out);
        let text: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
    }

    #[test]
    fn every_input_of_the_derivation_changes_the_key() {
        let session = Session {
            member: MemberId(1),
            incarnation: Incarnation(2),
            salt: Salt([3; 16]),
        };
        let tag = |key: &ClusterKey, cluster, session: &Session| {
            key.session_cipher(ClusterId(cluster), session)
                .seal(1, b"", &mut [])
                .unwrap()
        };
        let all = [
            tag(&key(), 1, &session),
            tag(&ClusterKey::from_random(8, key().secret), 1, &session),
            tag(&ClusterKey::from_random(7, [9; 32]), 1, &session),
            tag(&key(), 2, &session),
            tag(
                &key(),
                1,
                &Session {
                    member: MemberId(2),
                    ..session
                },
            ),
            tag(
                &key(),
                1,
                &Session {
                    incarnation: Incarnation(3),
                    ..session
                },
            ),
            tag(
                &key(),
                1,
                &Session {
                    salt: Salt([4; 16]),
                    ..session
                },
            ),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "case {i} repeats a key");
        }
    }
}
