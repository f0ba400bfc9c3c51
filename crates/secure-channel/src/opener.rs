//! The receiving side: which sessions are admitted, and what of theirs was already opened.
//!
//! The cheap checks come first: length, version, cluster, key number, member, session, replay window. Only then is a
//! tag computed. Nothing here allocates but admitting a session.

use core::fmt;
use core::ops::Range;

use super::handshake::Versions;
use super::header::{HEADER_BYTES, Header, OVERHEAD_BYTES, SALT_BYTES, TAG_BYTES};
use super::key::{Cipher, ClusterKey, Salt, Session};
use super::key_ring::KeyRing;
use super::refusal::{Refusal, RefusalCounts};
use super::window::{ReplayWindow, Seen};
use crate::{ClusterId, Epoch, Incarnation, MemberId};

/// How many cluster keys an opener accepts at one time: the current one, the next, and room for a slow rotation.
pub const KEYS_MAX: usize = 4;

/// What an [`Opener`] accepts.
#[derive(Clone, Debug)]
pub struct OpenerConfig {
    /// The one cluster.
    pub cluster: ClusterId,
    /// The newest wire version accepted: this program's.
    pub wire_version: u8,
    /// The oldest wire version accepted; at most `wire_version`.
    pub wire_version_oldest: u8,
    /// The members that may be admitted. Repeated ones count once.
    pub members: Vec<MemberId>,
}

/// A datagram that opened: who sealed it, and where its payload is in the buffer that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The sender.
    pub member: MemberId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The sender's epoch when it sealed. Not judged here.
    pub epoch: Epoch,
    /// The wire version of the payload.
    pub version: u8,
    /// The sender's counter.
    pub counter: u64,
    /// Where the payload is.
    pub payload: Range<usize>,
}

/// Why a cluster key was not added. The keys are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddKeyError {
    /// There are [`KEYS_MAX`] keys already: retire one first.
    TooMany,
    /// Another key has that number.
    NumberTaken(u8),
}

impl fmt::Display for AddKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddKeyError::TooMany => write!(
                f,
                "there are {KEYS_MAX} cluster keys already; retire one first"
            ),
            AddKeyError::NumberTaken(id) => write!(f, "another cluster key has the number {id}"),
        }
    }
}

impl core::error::Error for AddKeyError {}

/// Opens datagrams of admitted sessions, at most one session per member. Memory: about 6 KiB per admitted session, and
/// two bytes per number up to the greatest member's.
pub struct Opener {
    cluster: ClusterId,
    versions: core::ops::RangeInclusive<u8>,
    keys: Vec<ClusterKey>,
    /// The numbers of keys that were accepted and are no more, a bit each.
    dropped: [u64; 4],
    slots: Vec<Slot>,
    /// From a member's number to its slot; `NO_SLOT` for strangers.
    slot_of: Vec<u16>,
    refusals: RefusalCounts,
}

const NO_SLOT: u16 = u16::MAX;

struct Slot {
    member: MemberId,
    admitted: Option<Box<Admitted>>,
}

struct Admitted {
    session: Session,
    /// One per cluster key, so that a sender may change its key between two datagrams. One window for all: the sender's
    /// counter goes on.
    ciphers: Vec<(u8, Cipher)>,
    window: ReplayWindow,
    /// The number of the key under which the datagram of the greatest counter opened.
    heard_under: Option<u8>,
}

impl Opener {
    /// An opener that knows its members and has admitted none.
    #[must_use]
    pub fn new(config: &OpenerConfig) -> Opener {
        let mut members = config.members.clone();
        members.sort_unstable();
        members.dedup();
        // A table of 65,536 members would not fit 16-bit slots; the last number is then a stranger.
        members.truncate(usize::from(NO_SLOT));
        let mut slot_of = vec![NO_SLOT; members.last().map_or(0, |last| usize::from(last.0) + 1)];
        for (slot, member) in members.iter().enumerate() {
            slot_of[usize::from(member.0)] = slot as u16;
        }
        let slots = members
            .into_iter()
            .map(|member| Slot {
                member,
                admitted: None,
            })
            .collect();
        Opener {
            cluster: config.cluster,
            versions: config.wire_version_oldest..=config.wire_version,
            keys: Vec::new(),
            dropped: [0; 4],
            slots,
            slot_of,
            refusals: RefusalCounts::default(),
        }
    }

    /// Accepts datagrams under one more cluster key, of admitted sessions too. Costs a derivation per admitted session.
    ///
    /// # Errors
    /// [`AddKeyError`]; adding a key that is there already succeeds.
    pub fn add_key(&mut self, key: ClusterKey) -> Result<(), AddKeyError> {
        if let Some(present) = self.keys.iter().find(|present| present.id() == key.id()) {
            return if present.opens_what_was_sealed_under(&key) {
                Ok(())
            } else {
                Err(AddKeyError::NumberTaken(key.id()))
            };
        }
        if self.keys.len() == KEYS_MAX {
            return Err(AddKeyError::TooMany);
        }
        for admitted in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.admitted.as_mut())
        {
            let cipher = key.session_cipher(self.cluster, &admitted.session);
            admitted.ciphers.push((key.id(), cipher));
        }
        let id = key.id();
        self.dropped[usize::from(id / 64)] &= !(1 << (id % 64));
        self.keys.push(key);
        Ok(())
    }

    /// Refuses the key of that number from now on; its derivations are dropped. Unknown numbers change nothing.
    pub fn retire_key(&mut self, id: u8) {
        let before = self.keys.len();
        self.keys.retain(|key| key.id() != id);
        if self.keys.len() == before {
            return;
        }
        self.dropped[usize::from(id / 64)] |= 1 << (id % 64);
        for admitted in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.admitted.as_mut())
        {
            admitted.ciphers.retain(|(key_id, _)| *key_id != id);
        }
    }

    /// Accepts the ring's keys from now on and no others. Replay windows go on. Costs a derivation per admitted session
    /// and new key; keys that stay cost nothing.
    pub fn set_keys(&mut self, ring: &KeyRing) {
        let stays = |key: &ClusterKey| {
            let mut wanted = ring.keys().iter();
            wanted.any(|other| other.opens_what_was_sealed_under(key))
        };
        let gone: Vec<u8> = self
            .keys
            .iter()
            .filter(|key| !stays(key))
            .map(ClusterKey::id)
            .collect();
        gone.into_iter().for_each(|id| self.retire_key(id));
        for key in ring
            .keys()
            .iter()
            .filter(|key| self.key(key.id()).is_none())
            .cloned()
            .collect::<Vec<_>>()
        {
            // There is room, and no other key of that number: a ring has at most as many as fit, all different.
            let _ = self.add_key(key);
        }
    }

    /// The numbers of the keys that are accepted.
    pub fn key_ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys.iter().map(ClusterKey::id)
    }

    /// The same with the keys' checks.
    pub(super) fn key_checks(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.keys
            .iter()
            .map(|key| (key.id(), key.check(self.cluster)))
    }

    /// The number of the key under which the member's admitted session was last heard: that of the greatest counter, so
    /// that what was overtaken on the way says nothing.
    #[must_use]
    pub fn heard_under(&self, member: MemberId) -> Option<u8> {
        let slot = self.slot(member)?;
        self.slots[slot].admitted.as_ref()?.heard_under
    }

    /// Admits a session in place of the member's earlier one, if any. Counters at or below `floor` are never accepted:
    /// the caller knows that they may be replays. Returns whether the member is known; else nothing changed.
    pub fn admit(&mut self, session: Session, floor: u64) -> bool {
        let Some(slot) = self.slot(session.member) else {
            return false;
        };
        let ciphers = self
            .keys
            .iter()
            .map(|key| (key.id(), key.session_cipher(self.cluster, &session)))
            .collect();
        let window = ReplayWindow::above(floor);
        self.slots[slot].admitted = Some(Box::new(Admitted {
            session,
            ciphers,
            window,
            heard_under: None,
        }));
        true
    }

    /// Forgets the member's session: its datagrams are refused until one is admitted again.
    pub fn revoke(&mut self, member: MemberId) {
        if let Some(slot) = self.slot(member) {
            self.slots[slot].admitted = None;
        }
    }

    /// The member's admitted session.
    #[must_use]
    pub fn admitted(&self, member: MemberId) -> Option<&Session> {
        let slot = self.slot(member)?;
        self.slots[slot]
            .admitted
            .as_ref()
            .map(|admitted| &admitted.session)
    }

    /// The greatest counter opened of the member's admitted session (or its floor), and zero without one.
    #[must_use]
    pub fn greatest(&self, member: MemberId) -> u64 {
        let admitted = self
            .slot(member)
            .and_then(|slot| self.slots[slot].admitted.as_ref());
        admitted.map_or(0, |admitted| admitted.window.greatest())
    }

    /// Opens a datagram in place.
    ///
    /// # Errors
    /// A [`Refusal`], which is counted. Handshakes are [`Refusal::NotAdmitted`] here: they are the channel's.
    pub fn open(&mut self, datagram: &mut [u8]) -> Result<Opened, Refusal> {
        let opened = self.check(datagram).and_then(|(header, slot)| {
            if header.handshake {
                return Err(Refusal::NotAdmitted);
            }
            self.open_admitted(&header, slot, datagram)
        });
        opened.map_err(|reason| self.count(reason))
    }

    /// The wire versions that are accepted.
    pub(super) fn versions(&self) -> Versions {
        Versions {
            oldest: *self.versions.start(),
            newest: *self.versions.end(),
        }
    }

    /// How many datagrams were refused, by reason.
    #[must_use]
    pub fn refusals(&self) -> &RefusalCounts {
        &self.refusals
    }

    /// Counts a refusal and hands it back.
    pub(super) fn count(&mut self, reason: Refusal) -> Refusal {
        self.refusals.add(reason);
        reason
    }

    /// The checks that need no cryptography and no session. Answers the member's slot.
    pub(super) fn check(&self, datagram: &[u8]) -> Result<(Header, usize), Refusal> {
        let header = Header::decode(datagram).ok_or(Refusal::TooShort)?;
        let least = OVERHEAD_BYTES + if header.handshake { SALT_BYTES } else { 0 };
        if datagram.len() < least {
            return Err(Refusal::TooShort);
        }
        if header.version > *self.versions.end() {
            return Err(Refusal::FutureVersion);
        }
        // A handshake names the oldest version that its sender understands; its body says the newest.
        if header.version < *self.versions.start() && !header.handshake {
            return Err(Refusal::PastVersion);
        }
        if header.cluster != self.cluster {
            return Err(Refusal::WrongCluster);
        }
        if !self.keys.iter().any(|key| key.id() == header.key_id) {
            return Err(self.no_key(header.key_id));
        }
        let slot = self.slot(header.member).ok_or(Refusal::UnknownMember)?;
        Ok((header, slot))
    }

    /// Whether the datagram claims to be of the slot's admitted session (for a handshake, by its whole salt).
    pub(super) fn claims_admitted(&self, header: &Header, slot: usize, datagram: &[u8]) -> bool {
        let Some(admitted) = &self.slots[slot].admitted else {
            return false;
        };
        admitted.session.incarnation == header.incarnation
            && admitted.session.salt.short_name() == header.session
            && (!header.handshake || salt_of(datagram) == Some(admitted.session.salt))
    }

    /// Opens a checked datagram, handshake or not, of the slot's admitted session.
    pub(super) fn open_admitted(
        &mut self,
        header: &Header,
        slot: usize,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        if !self.claims_admitted(header, slot, datagram) {
            return Err(Refusal::NotAdmitted);
        }
        let Some(admitted) = &mut self.slots[slot].admitted else {
            return Err(Refusal::NotAdmitted);
        };
        match admitted.window.query(header.counter) {
            Seen::New => {}
            Seen::Before => return Err(Refusal::Replayed),
            Seen::TooOld => return Err(Refusal::TooOld),
        }
        let Some((_, cipher)) = admitted.ciphers.iter().find(|(id, _)| *id == header.key_id) else {
            return Err(Refusal::UnknownKeyId);
        };
        let payload = open_with(cipher, header, datagram)?;
        if header.counter > admitted.window.greatest() {
            admitted.heard_under = Some(header.key_id);
        }
        admitted.window.mark(header.counter);
        Ok(opened(header, payload))
    }

    /// Opens a checked handshake of a session that is not admitted, under the salt it carries. Costs a key derivation,
    /// so the caller keeps a budget. Says nothing of freshness.
    pub(super) fn open_stranger(
        &self,
        header: &Header,
        datagram: &mut [u8],
    ) -> Result<(Session, Opened), Refusal> {
        let salt = salt_of(datagram).ok_or(Refusal::TooShort)?;
        if salt.short_name() != header.session {
            return Err(Refusal::Forged);
        }
        let key = self
            .keys
            .iter()
            .find(|key| key.id() == header.key_id)
            .ok_or(Refusal::UnknownKeyId)?;
        let session = Session {
            member: header.member,
            incarnation: header.incarnation,
            salt,
        };
        let cipher = key.session_cipher(self.cluster, &session);
        let payload = open_with(&cipher, header, datagram)?;
        Ok((session, opened(header, payload)))
    }

    /// Why there is no key of that number.
    fn no_key(&self, id: u8) -> Refusal {
        if self.dropped[usize::from(id / 64)] & 1 << (id % 64) == 0 {
            Refusal::UnknownKeyId
        } else {
            Refusal::DroppedKeyId
        }
    }

    pub(super) fn slot(&self, member: MemberId) -> Option<usize> {
        match self.slot_of.get(usize::from(member.0)) {
            None | Some(&NO_SLOT) => None,
            Some(&slot) => Some(usize::from(slot)),
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.slots.iter().map(|slot| slot.member)
    }

    pub(super) fn key(&self, id: u8) -> Option<&ClusterKey> {
        self.keys.iter().find(|key| key.id() == id)
    }
}

pub(super) fn salt_of(datagram: &[u8]) -> Option<Salt> {
    datagram
        .get(HEADER_BYTES..)?
        .first_chunk()
        .copied()
        .map(Salt)
}

pub(super) fn open_with(
    cipher: &Cipher,
    header: &Header,
    datagram: &mut [u8],
) -> Result<Range<usize>, Refusal> {
    let start = HEADER_BYTES + if header.handshake { SALT_BYTES } else { 0 };
    let (clear, rest) = datagram
        .split_at_mut_checked(start)
        .ok_or(Refusal::TooShort)?;
    let (text, tag) = rest
        .split_last_chunk_mut::<TAG_BYTES>()
        .ok_or(Refusal::TooShort)?;
    if cipher.open(header.counter, clear, text, tag) {
        Ok(start..start + text.len())
    } else {
        Err(Refusal::Forged)
    }
}

fn opened(header: &Header, payload: Range<usize>) -> Opened {
    Opened {
        member: header.member,
        incarnation: header.incarnation,
        epoch: header.epoch,
        version: header.version,
        counter: header.counter,
        payload,
    }
}
