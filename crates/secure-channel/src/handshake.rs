//! The four messages by which a session is admitted, the nonce that proves it fresh, and the budgets.
//!
//! ```text
//!  newcomer                                    receiver
//!     | Hello  (salt in the clear)  ------------> |   or any datagram of a session not admitted
//!     | <-------------------- Challenge (nonce)   |   stores nothing
//!     | Echo (nonce)  --------------------------> |   admits
//!     | <-------------------------------- Welcome |
//! ```
//!
//! All four are sealed under their sender's session key; the receiver derives it from the salt that follows the header.
//! The nonce is a keyed hash of its addressee and the time, so that pending admissions take no memory. A recorded
//! Hello draws a challenge that its replayer cannot echo; a recorded Echo holds a nonce that has passed. An Echo carries the settings
//! that both must share (`terms`): a host with others is not admitted.
//!
//! A message is 32 bytes: kind, the newest wire version that the sender understands (0: the one in the header, which is the
//! oldest), addressee's member (2), its session (4), its incarnation (8), nonce (16), integers
//! little-endian; behind an Echo come its sender's terms, if it has any. A Hello does not know its addressee's session and incarnation and says zero.

use zeroize::Zeroizing;

use super::header::{Header, OVERHEAD_BYTES, SALT_BYTES, WIRE_VERSION_MAX};
use super::key::{Salt, Session, expand};
use crate::{Incarnation, MemberId, Time};

/// A challenge can be echoed for at least this long, and less than twice as long, in milliseconds.
pub const CHALLENGE_LIFETIME_MS: u64 = 2_000;
/// The first repetition of a Hello to a peer that has not welcomed this host, in milliseconds; each doubles.
pub const HELLO_INTERVAL_FIRST_MS: u64 = 50;
/// The longest interval between two Hellos to one peer, in milliseconds.
pub const HELLO_INTERVAL_MAX_MS: u64 = 1_000;
/// Handshakes of sessions not admitted that are decrypted per member and second. Each costs under 2 µs.
pub const STRANGER_HANDSHAKES_PER_SECOND_MAX: u64 = 64;
/// How many of those may come at once.
pub const STRANGER_HANDSHAKES_BURST_MAX: u64 = 16;
/// Challenges per member and second that datagrams of sessions not admitted draw; anyone can forge those.
pub const CHALLENGES_PER_SECOND_MAX: u64 = 10;
/// How many of those may come at once.
pub const CHALLENGES_BURST_MAX: u64 = 4;
/// An admitted session that was not heard for so long gives way to another that proves itself, in milliseconds.
pub const SILENCE_DEFAULT_MS: u64 = 3_000;
/// Two sessions of one member are two hosts if the admitted one is heard later than this after the other proved itself,
/// in milliseconds: longer than a datagram of a host that restarted stays under way.
pub const DUPLICATE_GRACE_MS: u64 = 500;
/// Least interval between two reports of one duplicate identity, in milliseconds.
pub const DUPLICATE_REPORT_INTERVAL_MS: u64 = 10_000;
/// Least interval between two reports that a member's datagrams come under keys that are not here, in milliseconds.
pub const UNKNOWN_KEY_REPORT_INTERVAL_MS: u64 = 10_000;
/// How long the settings of a host are shown that was refused because of them, in milliseconds: several of its attempts.
pub const OTHER_TERMS_SHOWN_MS: u64 = 10_000;
/// Handshakes that wait to be sent, besides one per peer. One more is dropped and counted; handshakes are repeated.
pub const TRANSMITS_WAITING_MAX: usize = 256;
/// Events that wait to be polled. One more is dropped and counted.
pub const EVENTS_WAITING_MAX: usize = 256;

pub(super) const MESSAGE_BYTES: usize = 32;
/// Length of a handshake: header, salt, message and tag, in bytes.
pub(super) const HANDSHAKE_BYTES: usize = OVERHEAD_BYTES + SALT_BYTES + MESSAGE_BYTES;
pub(super) type ChallengeNonce = [u8; 16];

const CHALLENGE_LABEL: &[u8; 20] = b"asterism challenge 1";
const COOKIE_LABEL: &[u8; 17] = b"asterism cookie 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hello = 1,
    Challenge = 2,
    Echo = 3,
    Welcome = 4,
}

/// The addressee of a message: one incarnation of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addressee {
    pub(super) member: MemberId,
    pub(super) session: u32,
    pub(super) incarnation: Incarnation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) to: Addressee,
    pub(super) nonce: ChallengeNonce,
}

impl Message {
    pub(super) fn encode(&self, versions: Versions) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = self.kind as u8;
        if versions.newest > versions.oldest {
            bytes[1] = versions.newest;
        }
        bytes[2..4].copy_from_slice(&self.to.member.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.to.session.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.to.incarnation.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.nonce);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let (bytes, more) = bytes.split_first_chunk::<MESSAGE_BYTES>()?;
        let kind = match bytes[0] {
            1 => Kind::Hello,
            2 => Kind::Challenge,
            3 => Kind::Echo,
            4 => Kind::Welcome,
            _ => return None,
        };
        if kind != Kind::Echo && !more.is_empty() {
            return None;
        }
        let (head, nonce) = bytes.split_first_chunk::<16>()?;
        let number = u128::from_le_bytes(*head);
        Some(Message {
            kind,
            to: Addressee {
                member: MemberId((number >> 16) as u16),
                session: (number >> 32) as u32,
                incarnation: Incarnation((number >> 64) as u64),
            },
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// The wire versions that a host understands: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl Versions {
    /// What the sender of an authentic handshake says of itself.
    pub(super) fn said(header: &Header, message: &[u8]) -> Versions {
        let newest = message.get(1).copied().unwrap_or(0);
        Versions {
            oldest: header.version,
            newest: newest.clamp(header.version, WIRE_VERSION_MAX),
        }
    }

    /// The version that a host speaks which understands these: the newest that all others understand. Anyone who has not said yet
    /// what it understands may understand the oldest alone, unless somebody else no longer does.
    pub(super) fn agree(self, others: impl Iterator<Item = Option<Versions>>) -> u8 {
        let (mut least, mut most) = (self.oldest, self.newest);
        for other in others {
            most = most.min(other.map_or(self.oldest, |other| other.newest));
            least = least.max(other.map_or(self.oldest, |other| other.oldest));
        }
        most.max(least).min(self.newest)
    }
}

/// Makes the nonces of challenges and knows them again, without storing any.
pub(super) struct Challenger {
    secret: Zeroizing<[u8; 32]>,
}

impl Challenger {
    /// The salt goes in too: a restored snapshot whose random seed repeats has a fresh salt, and so fresh nonces.
    pub(super) fn new(random_seed: &[u8; 32], salt: &Salt) -> Challenger {
        let mut secret = Zeroizing::new([0; 32]);
        expand(&salt.0, random_seed, CHALLENGE_LABEL, &mut *secret);
        Challenger { secret }
    }

    /// The nonce for a session at this time. `generation` is how many admissions and revocations of the member there
    /// were: each challenge serves once.
    pub(super) fn nonce(
        &self,
        now: Time,
        addressee: &Addressee,
        generation: u64,
    ) -> ChallengeNonce {
        self.nonce_of(
            now.as_micros() / (CHALLENGE_LIFETIME_MS * 1_000),
            addressee,
            generation,
        )
    }

    /// Whether the nonce was made for this session lately.
    pub(super) fn knows(
        &self,
        now: Time,
        addressee: &Addressee,
        generation: u64,
        nonce: &ChallengeNonce,
    ) -> bool {
        let period = now.as_micros() / (CHALLENGE_LIFETIME_MS * 1_000);
        // Compared in variable time: anyone who sends an echo that decrypts holds the cluster key.
        *nonce == self.nonce_of(period, addressee, generation)
            || period > 0 && *nonce == self.nonce_of(period - 1, addressee, generation)
    }

    fn nonce_of(&self, period: u64, addressee: &Addressee, generation: u64) -> ChallengeNonce {
        let mut info = [0; 30];
        info[..2].copy_from_slice(&addressee.member.0.to_le_bytes());
        info[2..6].copy_from_slice(&addressee.session.to_le_bytes());
        info[6..14].copy_from_slice(&addressee.incarnation.0.to_le_bytes());
        info[14..22].copy_from_slice(&generation.to_le_bytes());
        info[22..].copy_from_slice(&period.to_le_bytes());
        let mut nonce = [0; 16];
        expand(CHALLENGE_LABEL, &*self.secret, &info, &mut nonce);
        nonce
    }

    /// The cookie for handshakes of a session from a source in a period.
    pub(super) fn cookie_of(&self, period: u64, from: u64, session: &Session) -> [u8; 16] {
        let mut info = [0; 42];
        info[..2].copy_from_slice(&session.member.0.to_le_bytes());
        info[2..10].copy_from_slice(&session.incarnation.0.to_le_bytes());
        info[10..26].copy_from_slice(&session.salt.0);
        info[26..34].copy_from_slice(&from.to_le_bytes());
        info[34..].copy_from_slice(&period.to_le_bytes());
        let mut cookie = [0; 16];
        expand(COOKIE_LABEL, &*self.secret, &info, &mut cookie);
        cookie
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSEE: Addressee = Addressee {
        member: MemberId(1),
        session: 0x0203_0405,
        incarnation: Incarnation(6),
    };

    #[test]
    fn message_golden_bytes() {
        let message = Message {
            kind: Kind::Echo,
            to: ADDRESSEE,
            nonce: [0xab; 16],
        };
        let mut golden = [0xab; MESSAGE_BYTES];
        golden[..16].copy_from_slice(&[3, 0, 1, 0, 5, 4, 3, 2, 6, 0, 0, 0, 0, 0, 0, 0]);
        let versions = |oldest, newest| Versions { oldest, newest };
        assert_eq!(message.encode(versions(1, 1)), golden);
        assert_eq!(message.encode(versions(1, 2))[1], 2);
        assert_eq!(Message::decode(&golden), Some(message));
        assert_eq!(Message::decode(&golden[1..]), None);
        golden[0] = 5;
        assert_eq!(Message::decode(&golden), None);
    }

    #[test]
    fn the_newest_version_that_all_understand_is_spoken() {
        let host = |oldest, newest| Versions { oldest, newest };
        let agree = |own: Versions, others: &[Option<Versions>]| own.agree(others.iter().copied());
        let (old, new, newer) = (Some(host(1, 1)), Some(host(1, 2)), Some(host(2, 3)));
        assert_eq!(agree(host(1, 2), &[]), 2);
        assert_eq!(agree(host(1, 2), &[new, new]), 2);
        assert_eq!(agree(host(1, 2), &[new, old]), 1);
        assert_eq!(agree(host(1, 2), &[new, None]), 1, "it may be old");
        assert_eq!(agree(host(1, 2), &[newer, None]), 2, "it cannot be");
        assert_eq!(agree(host(2, 3), &[newer, new, None]), 2);
        assert_eq!(agree(host(2, 3), &[old]), 2, "it is refused, and refuses");
        assert_eq!(agree(host(1, 1), &[newer]), 1, "and the other way round");
    }

    #[test]
    fn a_nonce_is_for_one_session_one_time_and_one_generation() {
        let challenger = Challenger::new(&[1; 32], &Salt([2; 16]));
        let at = Time::from_micros(10_500_000);
        let nonce = challenger.nonce(at, &ADDRESSEE, 3);
        assert!(challenger.knows(at, &ADDRESSEE, 3, &nonce));
        assert!(challenger.knows(Time::from_micros(12_500_000), &ADDRESSEE, 3, &nonce));
        assert!(
            !challenger.knows(Time::from_micros(14_500_000), &ADDRESSEE, 3, &nonce),
            "late"
        );
        assert!(
            !challenger.knows(Time::from_micros(9_500_000), &ADDRESSEE, 3, &nonce),
            "early"
        );
        assert!(!challenger.knows(at, &ADDRESSEE, 4, &nonce));
        assert!(!challenger.knows(
            at,
            &Addressee {
                session: 1,
                ..ADDRESSEE
            },
            3,
            &nonce
        ));
        assert!(!challenger.knows(
            at,
            &Addressee {
                member: MemberId(2),
                ..ADDRESSEE
            },
            3,
            &nonce
        ));
        assert!(!challenger.knows(
            at,
            &Addressee {
                incarnation: Incarnation(7),
                ..ADDRESSEE
            },
            3,
            &nonce
        ));
        for other in [
            Challenger::new(&[1; 32], &Salt([3; 16])),
            Challenger::new(&[2; 32], &Salt([2; 16])),
        ] {
            assert!(!other.knows(at, &ADDRESSEE, 3, &nonce));
        }
    }
}
