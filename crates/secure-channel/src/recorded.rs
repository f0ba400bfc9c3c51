//! Opens recorded datagrams: for anyone who looks at a capture and holds the cluster key, not for a host.
//!
//! A capture is read by no member, and after the fact. So nobody is admitted, no counter is refused for having been seen,
//! and a datagram says nothing of whether a host believed it: only that anyone who sealed it held the key. What is needed of a
//! session is its salt, which its handshakes carry; so a capture is gone through twice, first for salts
//! ([`RecordedOpener::learn`]), then to open ([`RecordedOpener::open`]).

use core::fmt;
use core::ops::Range;
use std::collections::BTreeMap;

use super::header::{HEADER_BYTES, Header, OVERHEAD_BYTES, SALT_BYTES, TAG_BYTES};
use super::key::{Cipher, ClusterKey, Salt, Session};
use super::opener::{AddKeyError, KEYS_MAX, open_with, salt_of};
use super::retry::sealed_bytes;
use crate::{ClusterId, Incarnation, MemberId};

/// Sessions whose keys are kept, of all clusters and members together; each costs under 1 KiB for each cluster key.
pub const RECORDED_SESSIONS_MAX: usize = 16_384;
/// What stands in an opened datagram where its tag was, so that it is distinguished from a sealed one.
pub const OPENED_MARK: &[u8; TAG_BYTES] = b"asterism-opened1";

/// A recorded datagram that was opened in place: its text stands where its ciphertext was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its clear header, which is authentic.
    pub header: Header,
    /// Where what was sealed is.
    pub payload: Range<usize>,
}

/// Why a recorded datagram is as sealed as it was. Its bytes are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unopened {
    /// The bytes cannot be a datagram of this protocol and version under one of these keys.
    Foreign,
    /// No handshake of its session was learnt, so its key cannot be derived.
    NoSalt,
    /// The tag does not hold: another cluster key of that number, or damaged bytes.
    Forged,
    /// There are [`RECORDED_SESSIONS_MAX`] sessions already.
    TooManySessions,
}

impl Unopened {
    /// The name that reports use.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Unopened::Foreign => "foreign",
            Unopened::NoSalt => "no_salt",
            Unopened::Forged => "forged",
            Unopened::TooManySessions => "too_many_sessions",
        }
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl core::error::Error for Unopened {}

/// What headers say of a session: not enough to tell two with salts that begin alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    cluster: ClusterId,
    member: MemberId,
    incarnation: Incarnation,
    session: u32,
}

/// A session whose salt is known, with its session key under each cluster key: a sender goes over to another without a
/// handshake.
struct Learnt {
    salt: Salt,
    ciphers: Vec<(u8, Cipher)>,
}

/// Opens recorded datagrams of every session whose salt was learnt.
pub struct RecordedOpener {
    version: u8,
    keys: Vec<ClusterKey>,
    sessions: BTreeMap<Name, Vec<Learnt>>,
    sessions_known: usize,
    /// A failed opening leaves garbage, so none is done in the caller's buffer.
    text: Vec<u8>,
}

impl RecordedOpener {
    /// An opener of datagrams of one wire version that knows no key yet.
    #[must_use]
    pub fn new(version: u8) -> RecordedOpener {
        RecordedOpener {
            version,
            keys: Vec::new(),
            sessions: BTreeMap::new(),
            sessions_known: 0,
            text: Vec::new(),
        }
    }

    /// Opens what was sealed under one more cluster key; to be called before the first [`Self::learn`].
    ///
    /// # Errors
    /// [`AddKeyError`]; the keys are then as they were.
    pub fn add_key(&mut self, key: ClusterKey) -> Result<(), AddKeyError> {
        if self
            .keys
            .iter()
            .any(|known| known.opens_what_was_sealed_under(&key))
        {
            return Ok(());
        }
        if self.keys.iter().any(|known| known.id() == key.id()) {
            return Err(AddKeyError::NumberTaken(key.id()));
        }
        if self.keys.len() == KEYS_MAX {
            return Err(AddKeyError::TooMany);
        }
        self.keys.push(key);
        Ok(())
    }

    /// Sessions whose salts were learnt.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions_known
    }

    /// Takes the salt of a handshake, if that is authentic: a forger cannot fill the memory. Tells whether it was news; other
    /// datagrams are none. Costs a key derivation for each new session, a decryption for each handshake.
    ///
    /// # Errors
    /// [`Unopened`]; nothing was learnt.
    pub fn learn(&mut self, datagram: &[u8]) -> Result<bool, Unopened> {
        let header = self.check(datagram)?;
        let datagram = &datagram[..sealed_bytes(&header, datagram)];
        let Some(salt) = salt_of(datagram).filter(|_| header.handshake) else {
            return Ok(false);
        };
        let known = self.sessions.get(&Name::of(&header));
        if known.is_some_and(|known| known.iter().any(|known| known.salt == salt)) {
            return Ok(false);
        }
        let learnt = self.derive(&header, salt);
        let cipher = learnt.cipher(header.key_id).ok_or(Unopened::Foreign)?;
        if salt.short_name() != header.session {
            return Err(Unopened::Forged);
        }
        copy(&mut self.text, datagram);
        open_with(cipher, &header, &mut self.text).map_err(|_| Unopened::Forged)?;
        if self.sessions_known == RECORDED_SESSIONS_MAX {
            return Err(Unopened::TooManySessions);
        }
        self.sessions_known += 1;
        let sessions = self.sessions.entry(Name::of(&header)).or_default();
        sessions.push(learnt);
        Ok(true)
    }

    /// Opens a datagram in place and puts [`OPENED_MARK`] where its tag was, so its length stays.
    ///
    /// # Errors
    /// [`Unopened`]; the datagram is as it was.
    pub fn open(&mut self, datagram: &mut [u8]) -> Result<Recorded, Unopened> {
        let header = self.check(datagram)?;
        let sealed_bytes = sealed_bytes(&header, datagram);
        let datagram = &mut datagram[..sealed_bytes];
        if header.handshake {
            self.learn(datagram)?;
        }
        let salt = salt_of(datagram).filter(|_| header.handshake);
        let sessions = self.sessions.get(&Name::of(&header));
        let mut why = Unopened::NoSalt;
        for learnt in sessions.into_iter().flatten() {
            if salt.is_some_and(|salt| salt != learnt.salt) {
                continue;
            }
            let Some(cipher) = learnt.cipher(header.key_id) else {
                continue;
            };
            copy(&mut self.text, datagram);
            why = Unopened::Forged;
            if let Ok(payload) = open_with(cipher, &header, &mut self.text) {
                datagram[payload.clone()].copy_from_slice(&self.text[payload.clone()]);
                datagram[payload.end..].copy_from_slice(OPENED_MARK);
                return Ok(Recorded { header, payload });
            }
        }
        Err(why)
    }

    fn check(&self, datagram: &[u8]) -> Result<Header, Unopened> {
        let header = Header::decode(datagram).ok_or(Unopened::Foreign)?;
        let least = OVERHEAD_BYTES + if header.handshake { SALT_BYTES } else { 0 };
        let known = self.keys.iter().any(|key| key.id() == header.key_id);
        // A sender's first counter is 1.
        let is_ours = header.version == self.version && known && header.counter > 0;
        if datagram.len() < least || !is_ours {
            return Err(Unopened::Foreign);
        }
        Ok(header)
    }

    fn derive(&self, header: &Header, salt: Salt) -> Learnt {
        let session = Session {
            member: header.member,
            incarnation: header.incarnation,
            salt,
        };
        let keys = self.keys.iter();
        let ciphers = keys.map(|key| (key.id(), key.session_cipher(header.cluster, &session)));
        Learnt {
            salt,
            ciphers: ciphers.collect(),
        }
    }
}

impl Learnt {
    fn cipher(&self, key_id: u8) -> Option<&Cipher> {
        let mut ciphers = self.ciphers.iter();
        ciphers
            .find(|(id, _)| *id == key_id)
            .map(|(_, cipher)| cipher)
    }
}

impl fmt::Debug for RecordedOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedOpener")
            .field("keys", &self.keys)
            .field("sessions", &self.sessions_known)
            .finish_non_exhaustive()
    }
}

impl Name {
    fn of(header: &Header) -> Name {
        Name {
            cluster: header.cluster,
            member: header.member,
            incarnation: header.incarnation,
            session: header.session,
        }
    }
}

fn copy(to: &mut Vec<u8>, from: &[u8]) {
    to.clear();
    to.extend_from_slice(from);
}

/// The datagrams in what the kernel handed on as one: a sender gives it several of one length, the last perhaps shorter,
/// and a capture on that host sees them before they are cut. Any other bytes are one datagram, and none is none.
pub fn segments(joined: &[u8]) -> impl Iterator<Item = Range<usize>> + use<> {
    let (end, length) = (joined.len(), segment_length(joined).max(1));
    (0..end)
        .step_by(length)
        .map(move |start| start..end.min(start + length))
}

/// The length of all datagrams but the last. Their headers differ in the counter alone, by which the second is found, and
/// in the key's number if the sender went over to another key between two of them.
fn segment_length(joined: &[u8]) -> usize {
    /// All of the header but the counter. The byte of the key's number is passed over.
    const ALIKE: usize = HEADER_BYTES - 8;
    let (Some(first), Some(rest)) = (Header::decode(joined), joined.get(OVERHEAD_BYTES..)) else {
        return joined.len();
    };
    let alike = |other: &[u8]| other[0] == joined[0] && other[2..] == joined[2..ALIKE];
    let Some(second) = rest.windows(ALIKE).position(alike) else {
        return joined.len();
    };
    let length = second + OVERHEAD_BYTES;
    let mut before = first.counter;
    for segment in joined.chunks(length).skip(1) {
        match Header::decode(segment) {
            Some(header)
                if segment.len() >= OVERHEAD_BYTES
                    && alike(&segment[..ALIKE])
                    && header.counter > before =>
            {
                before = header.counter;
            }
            _ => return joined.len(),
        }
    }
    length
}
