//! The settings that two hosts must share, as an Echo carries them: a session whose host has others is not admitted.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | FNV-1a of the whole text |
//! | 8..16 | the sender's keep-alive interval in microseconds |
//! | 16..24 | after how long it takes a silent member for silent, in microseconds |
//! | 24.. | the text, in UTF-8: its first [`TERMS_TEXT_BYTES_MAX`] bytes, and line ends up to a multiple of 32 bytes |
//!
//! Integers are little-endian. The text is for readers of both: one setting a line, `name = value`. It may be cut; the number tells
//! longer texts apart.

use core::time::Duration;

/// Bytes of the text that travel at most: an Echo with it fits a link of 1,280 bytes.
pub const TERMS_TEXT_BYTES_MAX: usize = 960;
/// The length of the whole is a multiple of so many bytes: a cookie behind a handshake is recognised by its length.
const MULTIPLE_BYTES: usize = 32;
/// Bytes in front of the text.
const FIXED_BYTES: usize = 24;

/// The settings of a host that others must share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    digest: u64,
    keep_alive_us: u64,
    silent_after_us: u64,
    text: String,
}

impl Terms {
    /// Settings that must be alike, one a line, and two times that must fit each other: a member is silent after two keep-alives of any
    /// other at the earliest.
    #[must_use]
    pub fn new(text: &str, keep_alive: Duration, silent_after: Duration) -> Terms {
        let digest = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        let mut length = text.len().min(TERMS_TEXT_BYTES_MAX);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        Terms {
            digest,
            keep_alive_us: keep_alive.as_micros() as u64,
            silent_after_us: silent_after.as_micros() as u64,
            text: text[..length].trim_end_matches('\n').to_owned(),
        }
    }

    /// The text, as far as it travels.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The keep-alive interval.
    #[must_use]
    pub fn keep_alive(&self) -> Duration {
        Duration::from_micros(self.keep_alive_us)
    }

    /// After how long a silent member counts as silent.
    #[must_use]
    pub fn silent_after(&self) -> Duration {
        Duration::from_micros(self.silent_after_us)
    }

    /// Whether two hosts with these settings may work together.
    #[must_use]
    pub fn agree(&self, other: &Terms) -> bool {
        self.digest == other.digest && self.fits(other) && other.fits(self)
    }

    /// Whether an idle host with the other settings is never silent to this one.
    fn fits(&self, other: &Terms) -> bool {
        other.keep_alive_us.saturating_mul(2) <= self.silent_after_us
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.digest.to_le_bytes());
        out.extend(self.keep_alive_us.to_le_bytes());
        out.extend(self.silent_after_us.to_le_bytes());
        out.extend(self.text.as_bytes());
        let bytes = FIXED_BYTES + self.text.len();
        out.extend(core::iter::repeat_n(
            b'\n',
            bytes.next_multiple_of(MULTIPLE_BYTES) - bytes,
        ));
    }

    /// `None` if these bytes are none. They are authentic, so text of another encoding is another build's.
    pub(super) fn decode(bytes: &[u8]) -> Option<Terms> {
        let (fixed, text) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let text = core::str::from_utf8(text).ok()?.trim_end_matches('\n');
        if text.len() > TERMS_TEXT_BYTES_MAX {
            return None;
        }
        let number = |at: usize| {
            let eight = fixed.get(at..at + 8)?;
            Some(u64::from_le_bytes(eight.try_into().ok()?))
        };
        Some(Terms {
            digest: number(0)?,
            keep_alive_us: number(8)?,
            silent_after_us: number(16)?,
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str, keep_alive_ms: u64, silent_after_ms: u64) -> Terms {
        let ms = Duration::from_millis;
        Terms::new(text, ms(keep_alive_ms), ms(silent_after_ms))
    }

    #[test]
    fn terms_survive_the_wire_and_are_reported_apart_beyond_what_travels() {
        let long = format!("members = {}", "ä, ".repeat(TERMS_TEXT_BYTES_MAX));
        for text in ["", "members = a, b", &long] {
            let terms = terms(text, 20, 1_000);
            let mut bytes = Vec::new();
            terms.encode(&mut bytes);
            assert!(bytes.len() < FIXED_BYTES + TERMS_TEXT_BYTES_MAX + MULTIPLE_BYTES);
            assert_eq!(bytes.len() % MULTIPLE_BYTES, 0);
            assert_eq!(Terms::decode(&bytes), Some(terms.clone()));
            assert!(terms.agree(&terms) && text.starts_with(terms.text()));
        }
        let longer = format!("{long}z");
        let (one, other) = (terms(&long, 20, 1_000), terms(&longer, 20, 1_000));
        assert_eq!(one.text(), other.text());
        assert!(!one.agree(&other));
        assert_eq!(Terms::decode(&[0; FIXED_BYTES - 1]), None);
        assert_eq!(
            Terms::decode(&[0; FIXED_BYTES + TERMS_TEXT_BYTES_MAX + 1]),
            None
        );
        assert_eq!(Terms::decode(&[0xFF; FIXED_BYTES + 1]), None);
    }

    #[test]
    fn times_need_not_be_alike_but_must_fit() {
        let one = terms("", 20, 1_000);
        assert!(one.agree(&terms("", 500, 1_000)));
        assert!(one.agree(&terms("", 500, 40)));
        assert!(!one.agree(&terms("", 501, 2_000)), "silent to the first");
        assert!(!one.agree(&terms("", 10, 39)), "the first is silent to it");
    }
}
