//! Tokens: who may call. A token is 256 random bits that are shown once; a file has their SHA-256 hashes.
//!
//! The hash has no salt and no rounds: nobody guesses 256 random bits, so a fast hash is as good as a slow one, and cannot be made to
//! cost the server time. Read `file.rs` for the format of the file, `date.rs` for dates in it.

mod date;
mod file;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SecureRandom;
use subtle::ConstantTimeEq;

pub use file::{FILE_BYTES_MAX, TOKENS_MAX, TokenFileError, add, read, remove};

use crate::cluster_api::Scope;
use crate::data::NAME_BYTES_MAX;

/// What every token begins with, so that people and scanners recognise one.
pub const TOKEN_PREFIX: &str = "asterism-token-1:";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// The secret of a token, as its owner keeps it. Neither its `Debug` nor any message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Draws one from the operating system's randomness.
    ///
    /// # Errors
    /// The operating system has none.
    pub fn draw() -> Result<Secret, NoRandomness> {
        let mut bytes = [0; TOKEN_BYTES];
        let random = ring::rand::SystemRandom::new();
        random.fill(&mut bytes).map_err(|_| NoRandomness)?;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        Ok(Secret(format!("{TOKEN_PREFIX}{text}")))
    }

    /// The text that the owner keeps and sends. Show it once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The operating system gave no random bytes. Nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct NoRandomness;

/// The hash of a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash([u8; HASH_BYTES]);

impl Hash {
    /// The hash of what a caller sent.
    #[must_use]
    pub fn of(secret: &str) -> Hash {
        let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(digest.as_ref());
        Hash(hash)
    }

    /// Reads 64 hexadecimal digits.
    fn parse(text: &str) -> Option<Hash> {
        let mut hash = [0; HASH_BYTES];
        if text.len() != 2 * HASH_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (place, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
        }
        Some(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A token as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, for events and for removing it: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What its owner may do.
    pub scope: Scope,
    /// From when on it is refused, in seconds since 1970; `None`: never.
    pub expires: Option<u64>,
    /// The hash of its secret.
    pub hash: Hash,
}

/// The tokens of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

/// What a secret is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A token that is in force.
    Valid(&'a Token),
    /// A token that has expired.
    Expired(&'a Token),
    /// No token of the file.
    Unknown,
}

impl Tokens {
    /// All tokens, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[Token] {
        &self.0
    }

    /// Looks up a secret. The time depends on the number of tokens alone: hashes are compared in constant time, and all of them.
    #[must_use]
    pub fn find(&self, secret: &str, now_seconds: u64) -> Found<'_> {
        let hash = Hash::of(secret);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.0.ct_eq(&hash.0)) {
                found = Some(token);
            }
        }
        match found {
            None => Found::Unknown,
            Some(token) if token.expires.is_some_and(|end| end <= now_seconds) => {
                Found::Expired(token)
            }
            Some(token) => Found::Valid(token),
        }
    }

    /// Whether a token of this name, scope and hash is in force: what an open stream asks again and again.
    #[must_use]
    pub fn has(&self, token: &Token, now_seconds: u64) -> bool {
        let is_in_force = token.expires.is_none_or(|end| end > now_seconds);
        is_in_force && self.0.contains(token)
    }
}

/// Whether a name of a token or tenant can be used.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let (one, other) = (Secret::draw().unwrap(), Secret::draw().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), TOKEN_PREFIX.len() + 43);
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }

    #[test]
    fn hashes_are_sha_256() {
        let hash = Hash::of("abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(Hash::parse(text), Some(hash));
        for bad in [
            "",
            "ba78",
            &text.replace('b', "g"),
            &text.replace("ba", "+a"),
        ] {
            assert_eq!(Hash::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_is_valid_until_its_token_expires() {
        let token = Token {
            name: "one".to_owned(),
            scope: Scope::Operator,
            expires: Some(100),
            hash: Hash::of("secret"),
        };
        let tokens = Tokens(vec![token.clone()]);
        assert_eq!(tokens.find("secret", 99), Found::Valid(&token));
        assert_eq!(tokens.find("secret", 100), Found::Expired(&token));
        assert_eq!(tokens.find("Secret", 99), Found::Unknown);
        assert!(tokens.has(&token, 99) && !tokens.has(&token, 100));
        assert!(!Tokens::default().has(&token, 99));
    }
}
