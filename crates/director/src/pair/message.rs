//! The bytes of a heartbeat.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `ADH` and the version, 1 |
//! | 4..12 | the pair |
//! | 12..20, 20..28 | the sender's incarnation, and its number of the heartbeat |
//! | 28..36, 36..44 | incarnation and number of the newest heartbeat that the sender has received; 0 for none |
//! | 44 | role: 1 active, 0 standby |
//! | 45 | priority |
//! | 46..48 | zero |
//! | 48..80 | HMAC-SHA256 of the bytes before, by the pair's key |
//!
//! Numbers are big-endian.

use ring::hmac;

use super::Role;

/// Bytes of a heartbeat.
pub const HEARTBEAT_BYTES: usize = 80;
const TAGGED: usize = 48;
const MAGIC: [u8; 4] = *b"ADH\x01";

/// Why bytes are no heartbeat of the other director. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    /// Too short or too long, or not in this form.
    #[error("no heartbeat in the form of this version")]
    Form,
    /// Of another pair.
    #[error("a heartbeat of another pair")]
    OtherPair,
    /// The tag is wrong: it was made without the key, or damaged.
    #[error("a heartbeat with a wrong tag")]
    Tag,
    /// Of this director itself.
    #[error("a heartbeat of this director's own")]
    Own,
    /// Older than what was received, or of an incarnation that has not shown that it is alive.
    #[error("an old heartbeat")]
    Old,
}

/// Which heartbeat a director has received last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Echo {
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
}

impl Echo {
    pub(super) const NONE: Echo = Echo {
        incarnation: 0,
        sequence: 0,
    };
}

/// What a heartbeat says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heartbeat {
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
    pub(super) echo: Echo,
    pub(super) role: Role,
    pub(super) priority: u8,
}

/// Writes and reads the heartbeats of a pair.
#[derive(Debug)]
pub(super) struct Opener {
    pair: u64,
    key: hmac::Key,
}

impl Opener {
    pub(super) fn new(pair: u64, key: &[u8; 32]) -> Opener {
        Opener {
            pair,
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// Writes a heartbeat; `None` if it does not fit.
    pub(super) fn seal(&self, heartbeat: &Heartbeat, out: &mut [u8]) -> Option<usize> {
        let out = out.first_chunk_mut::<HEARTBEAT_BYTES>()?;
        out[..4].copy_from_slice(&MAGIC);
        let numbers = [
            self.pair,
            heartbeat.incarnation,
            heartbeat.sequence,
            heartbeat.echo.incarnation,
            heartbeat.echo.sequence,
        ];
        for (place, number) in out[4..44].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        out[44] = u8::from(heartbeat.role == Role::Active);
        out[45] = heartbeat.priority;
        out[46..48].fill(0);
        let tag = hmac::sign(&self.key, &out[..TAGGED]);
        out[TAGGED..].copy_from_slice(tag.as_ref());
        Some(HEARTBEAT_BYTES)
    }

    /// Reads a heartbeat of this pair.
    pub(super) fn open(&self, bytes: &[u8]) -> Result<Heartbeat, HeartbeatError> {
        let bytes: &[u8; HEARTBEAT_BYTES] = bytes.try_into().map_err(|_| HeartbeatError::Form)?;
        if bytes[..4] != MAGIC || bytes[44] > 1 || bytes[46..48] != [0, 0] {
            return Err(HeartbeatError::Form);
        }
        let mut numbers = [0; 5];
        let (words, _) = bytes[4..44].as_chunks::<8>();
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = u64::from_be_bytes(*word);
        }
        let [
            pair,
            incarnation,
            sequence,
            echoed_incarnation,
            echoed_sequence,
        ] = numbers;
        if pair != self.pair {
            return Err(HeartbeatError::OtherPair);
        }
        hmac::verify(&self.key, &bytes[..TAGGED], &bytes[TAGGED..])
            .map_err(|_| HeartbeatError::Tag)?;
        Ok(Heartbeat {
            incarnation,
            sequence,
            echo: Echo {
                incarnation: echoed_incarnation,
                sequence: echoed_sequence,
            },
            role: if bytes[44] == 1 {
                Role::Active
            } else {
                Role::Standby
            },
            priority: bytes[45],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_goes_through_bytes_and_no_damaged_one_does() {
        let opener = Opener::new(7, &[3; 32]);
        let heartbeat = Heartbeat {
            incarnation: 1,
            sequence: 2,
            echo: Echo {
                incarnation: 3,
                sequence: 4,
            },
            role: Role::Active,
            priority: 5,
        };
        let mut bytes = [0; HEARTBEAT_BYTES];
        assert_eq!(opener.seal(&heartbeat, &mut [0; 79]), None);
        assert_eq!(opener.seal(&heartbeat, &mut bytes), Some(HEARTBEAT_BYTES));
        assert_eq!(opener.open(&bytes), Ok(heartbeat));
        for place in 0..HEARTBEAT_BYTES {
            let mut damaged = bytes;
            damaged[place] ^= 0x10;
            assert!(opener.open(&damaged).is_err(), "byte {place}");
            assert_eq!(opener.open(&bytes[..place]), Err(HeartbeatError::Form));
        }
        let other = Opener::new(8, &[3; 32]);
        assert_eq!(other.open(&bytes), Err(HeartbeatError::OtherPair));
        let stranger = Opener::new(7, &[4; 32]);
        assert_eq!(stranger.open(&bytes), Err(HeartbeatError::Tag));
    }
}
