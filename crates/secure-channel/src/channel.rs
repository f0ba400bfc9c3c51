//! [`SecureChannel`]: sealing, opening and admission in one, with five verbs: [`SecureChannel::handle`],
//! [`SecureChannel::poll_transmit`], [`SecureChannel::poll_timeout`], [`SecureChannel::handle_timeout`],
//! [`SecureChannel::poll_event`].
//!
//! `config` says what it is reported, `admission` who is admitted and what two hosts with one identity lead to.

use core::time::Duration;
use std::collections::VecDeque;

use super::admission::Peer;
use super::config::{SecureConfig, SecureConfigError};
use super::handshake::{
    Addressee, Challenger, EVENTS_WAITING_MAX, HELLO_INTERVAL_MAX_MS, Kind, Message,
    OTHER_TERMS_SHOWN_MS, TRANSMITS_WAITING_MAX, UNKNOWN_KEY_REPORT_INTERVAL_MS, Versions,
};
use super::header::{Header, WIRE_VERSION_MAX};
use super::key::{Salt, Session};
use super::key_ring::KeyRing;
use super::opener::{Opened, Opener, OpenerConfig, salt_of};
use super::refusal::{Refusal, RefusalCounts};
use super::retry::{Cookie, Retry, SourceBudgets, split_cookie, tag_of};
use super::sealer::{SealError, Sealer};
use super::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::{ClusterId, Epoch, Incarnation, MemberId, Time};

/// Where a handshake datagram goes. Addresses are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the member's configured address.
    Member(MemberId),
    /// Back to where the datagram came from that was handed to [`SecureChannel::handle`] with this number.
    Source(u64),
}

/// What happened; for the log, metrics and membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session is admitted: the member's datagrams open from now on.
    Admitted {
        /// The member.
        member: MemberId,
        /// The admitted incarnation.
        incarnation: Incarnation,
        /// The incarnation whose session it replaced, silent or closed by the epoch.
        replaced: Option<Incarnation>,
    },
    /// The member has admitted this host: what this host sends there opens from now on.
    Welcomed {
        /// The member.
        member: MemberId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// Two hosts run under one identity. The one that stays is `live`; an operator has to stop one of the two.
    DuplicateIdentity {
        /// The identity; this host's own if another runs under it.
        member: MemberId,
        /// The session that stays admitted.
        live: Incarnation,
        /// The other; a copied host may have the same incarnation.
        other: Incarnation,
    },
    /// What this host seals is of this wire version from now on: the newest that all who take part understand.
    Speaks {
        /// The version.
        version: u8,
    },
    /// Datagrams come that name a member and a key that this host does not have (any more). Their headers are not
    /// authentic: a stranger can cause this, at most once in [`UNKNOWN_KEY_REPORT_INTERVAL_MS`] for each member.
    NoKey {
        /// Who is said to have sealed them.
        member: MemberId,
        /// The key's number.
        key_id: u8,
        /// Whether this host accepted a key of that number earlier in its incarnation.
        dropped: bool,
    },
}

/// Datagrams that named a member and a key that this host does not have. Not authentic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutKey {
    /// How many.
    pub datagrams: u64,
    /// The key's number that the last of them named, and when it came.
    pub last: Option<(u8, Time)>,
}

/// One host's sealed channel to all its peers. See the module for its rules.
pub struct SecureChannel {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) challenger: Challenger,
    cluster: ClusterId,
    epoch: Epoch,
    /// The latest time that was handed in.
    seen_at: Time,
    /// The latest epoch beyond the one in force that a fresh, authentic datagram named, and its sender.
    later_epoch: Option<(MemberId, Epoch)>,
    pub(super) terms: Option<Terms>,
    pub(super) silence: Duration,
    /// By the opener's slots; this host has one too, that stays without a session.
    pub(super) peers: Vec<Peer>,
    pub(super) budgets: SourceBudgets,
    transmits: VecDeque<(Destination, Message)>,
    /// Retries that wait to be sent, with the key's number of what they answer: at most [`TRANSMITS_WAITING_MAX`].
    retries: VecDeque<(u64, u8, Retry)>,
    transmits_dropped: u64,
    events: VecDeque<Event>,
    events_dropped: u64,
}

impl SecureChannel {
    /// A channel that has admitted nobody. `salt` is 16 bytes drawn from a secure source at this start, never reused;
    /// `random_seed` is 32 more.
    ///
    /// # Errors
    /// [`SecureConfigError`].
    pub fn new(
        config: SecureConfig,
        salt: [u8; 16],
        random_seed: [u8; 32],
    ) -> Result<SecureChannel, SecureConfigError> {
        if config.wire_version > WIRE_VERSION_MAX
            || config.wire_version_oldest > config.wire_version
        {
            return Err(SecureConfigError::WireVersion);
        }
        let salt = Salt(salt);
        let session = Session {
            member: config.member,
            incarnation: config.incarnation,
            salt,
        };
        let mut members = config.peers;
        members.push(config.member);
        let mut opener = Opener::new(&OpenerConfig {
            cluster: config.cluster,
            wire_version: config.wire_version,
            wire_version_oldest: config.wire_version_oldest,
            members,
        });
        let sealer = Sealer::new(
            config.keys.sending(),
            config.cluster,
            session,
            config.wire_version_oldest,
        );
        opener.set_keys(&config.keys);
        let mut channel = SecureChannel {
            challenger: Challenger::new(&random_seed, &salt),
            budgets: SourceBudgets::new(opener.members().count()),
            retries: VecDeque::new(),
            peers: opener.members().map(Peer::new).collect(),
            sealer,
            opener,
            cluster: config.cluster,
            epoch: config.epoch,
            seen_at: Time::ZERO,
            later_epoch: None,
            terms: config.terms,
            silence: config.silence,
            transmits: VecDeque::new(),
            transmits_dropped: 0,
            events: VecDeque::new(),
            events_dropped: 0,
        };
        channel.agree();
        Ok(channel)
    }

    /// The longest payload for datagrams of at most so many bytes of UDP payload.
    #[must_use]
    pub const fn max_payload(datagram_bytes_max: usize) -> usize {
        Sealer::max_payload(datagram_bytes_max)
    }

    /// Clears `out` and writes a datagram that every peer can open once it admitted this host. Seal a retransmission
    /// again; sending the same sealed bytes to several peers is right.
    ///
    /// # Errors
    /// [`SealError`]; `out` is then empty.
    pub fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        self.sealer.seal(self.epoch, payload, out)
    }

    /// Seals where it is a buffer of [`super::HEADER_BYTES`] bytes of any content and then the payload; no copy.
    ///
    /// # Errors
    /// [`SealError`]; the buffer is not to be sent.
    pub fn seal_in_place(&mut self, buffer: &mut Vec<u8>) -> Result<(), SealError> {
        self.sealer.seal_in_place(self.epoch, buffer)
    }

    /// Takes a datagram, and opens it in place: `Some` with the sender and where the payload is, or `None` for a
    /// handshake, which asks for [`Self::poll_transmit`] and [`Self::poll_event`]. `from` is the caller's number for the
    /// address it came from, handed back in [`Destination::Source`]. An address keeps its number: below
    /// [`super::STRANGER_SOURCES_FROM`] (or from [`super::RELAYED_SOURCES_FROM`] on) it is a configured one, which has budgets of its own.
    ///
    /// # Errors
    /// A [`Refusal`], which is counted. The datagram's bytes are then unspecified.
    pub fn handle(
        &mut self,
        now: Time,
        from: u64,
        datagram: &mut [u8],
    ) -> Result<Option<Opened>, Refusal> {
        self.seen_at = self.seen_at.max(now);
        let handled = self.handle_uncounted(now, from, datagram);
        handled.map_err(|reason| {
            if let Refusal::UnknownKeyId | Refusal::DroppedKeyId = reason {
                self.note_without_key(now, datagram, reason);
            }
            self.opener.count(reason)
        })
    }

    /// Clears `out` and writes the next handshake datagram to it; `None` when there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Destination> {
        out.clear();
        if let Some(destination) = self.poll_retry(out) {
            return Some(destination);
        }
        let (destination, message) = self.transmits.pop_front()?;
        let versions = self.opener.versions();
        let mut body = message.encode(versions).to_vec();
        if let Some(terms) = self.terms.as_ref().filter(|_| message.kind == Kind::Echo) {
            terms.encode(&mut body);
        }
        match self
            .sealer
            .seal_handshake(self.epoch, versions.oldest, &body, out)
        {
            Ok(()) => {
                let slot = self.opener.slot(message.to.member);
                if let (Some(slot), Some(tag)) = (slot, tag_of(out)) {
                    let retriable = &mut self.peers[slot].retriable;
                    retriable.note_sent(tag, destination, message);
                    if let Some(cookie) = retriable.cookie(self.seen_at) {
                        out.extend_from_slice(&cookie);
                    }
                }
                Some(destination)
            }
            Err(_) => {
                // No counter is left: nothing will be sent again in this incarnation.
                self.transmits.clear();
                out.clear();
                None
            }
        }
    }

    /// Writes the next Retry.
    fn poll_retry(&mut self, out: &mut Vec<u8>) -> Option<Destination> {
        while let Some((from, key_id, retry)) = self.retries.pop_front() {
            // A key that was dropped since then authenticates nothing.
            let Some(key) = self.opener.key(key_id) else {
                continue;
            };
            let own = self.sealer.session();
            let header = Header {
                version: self.opener.versions().oldest,
                handshake: true,
                key_id,
                member: own.member,
                cluster: self.cluster,
                epoch: self.epoch,
                session: own.salt.short_name(),
                incarnation: own.incarnation,
                counter: 0,
            };
            retry.write(&header, key, out);
            return Some(Destination::Source(from));
        }
        None
    }

    /// When [`Self::handle_timeout`] is due; `None` when every peer has welcomed this host. Costs a scan over the peers.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.peers
            .iter()
            .filter(|peer| self.wants_hello(peer))
            .map(|peer| peer.hello_at)
            .min()
    }

    /// Says Hello to the peers that have not welcomed this host and whose interval has passed. Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.seen_at = self.seen_at.max(now);
        for slot in 0..self.peers.len() {
            if !self.wants_hello(&self.peers[slot]) || self.peers[slot].hello_at > now {
                continue;
            }
            let peer = &mut self.peers[slot];
            peer.hello_at = now + peer.hello_interval;
            peer.hello_interval =
                (peer.hello_interval * 2).min(Duration::from_millis(HELLO_INTERVAL_MAX_MS));
            let to = Addressee {
                member: peer.member,
                session: 0,
                incarnation: Incarnation(0),
            };
            let hello = Message {
                kind: Kind::Hello,
                to,
                nonce: [0; 16],
            };
            self.transmit(Destination::Member(to.member), hello);
        }
    }

    /// The next event; `None` when there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The epoch that headers say from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.later_epoch = self.later_epoch.filter(|&(_, later)| later > epoch);
    }

    /// The latest epoch beyond the one in force that was received, and its sender. The evidence is authentic and is no replay: it came in an
    /// admitted session, or in an answer to this session of this host.
    #[must_use]
    pub fn later_epoch(&self) -> Option<(MemberId, Epoch)> {
        self.later_epoch
    }

    /// Notes the epoch of an authentic header that is no replay.
    pub(super) fn note_epoch(&mut self, header: &Header) {
        let known = self.later_epoch.map_or(self.epoch, |(_, later)| later);
        if header.epoch > known && !mutant::active(Mutant::LaterEpochIgnored) {
            self.later_epoch = Some((header.member, header.epoch));
        }
    }

    /// Takes the truth store's word: of this member only that incarnation is let in, and a session of another is closed
    /// at once. With the session's salt it is admitted at once; then, after a restart of *this* host, it may open
    /// again what it opened before. Without, the session still proves itself by echo, and waits for no silence.
    /// Unknown members and this host itself change nothing.
    pub fn admit_by_epoch(
        &mut self,
        now: Time,
        member: MemberId,
        incarnation: Incarnation,
        salt: Option<[u8; 16]>,
    ) {
        let Some(slot) = self.opener.slot(member) else {
            return;
        };
        if member == self.member() {
            return;
        }
        self.peers[slot].named = Some(incarnation);
        let admitted = self.opener.admitted(member).copied();
        if admitted.is_some_and(|session| session.incarnation != incarnation) {
            self.revoke(member);
        }
        if let Some(salt) = salt.map(Salt) {
            let session = Session {
                member,
                incarnation,
                salt,
            };
            if admitted != Some(session) {
                self.admit(now, slot, session, 0);
            }
        }
        self.agree();
    }

    /// Closes the member's session; only a new proof brings it back.
    pub fn revoke(&mut self, member: MemberId) {
        if let Some(slot) = self.opener.slot(member) {
            self.close(slot);
            self.agree();
        }
    }

    /// Whether the epoch lets the member take part: which wire versions it understands counts only then. All do at first.
    pub fn set_takes_part(&mut self, member: MemberId, takes_part: bool) {
        if let Some(slot) = self.opener.slot(member) {
            self.peers[slot].takes_part = takes_part;
            self.agree();
        }
    }

    /// The wire version that this host speaks: the newest that all understand who take part. Anyone who was not admitted yet may
    /// understand only the oldest that this host does.
    #[must_use]
    pub fn speaks(&self) -> u8 {
        self.sealer.version()
    }

    /// The wire versions that this host understands.
    #[must_use]
    pub fn understands(&self) -> Versions {
        self.opener.versions()
    }

    /// The wire versions that a member's admitted session says it understands.
    #[must_use]
    pub fn understood_by(&self, member: MemberId) -> Option<Versions> {
        let slot = self.opener.slot(member)?;
        self.peers[slot].understands
    }

    /// Speaks what all understand, from the next datagram on.
    pub(super) fn agree(&mut self) {
        let (own, me) = (self.opener.versions(), self.member());
        let others = self.peers.iter();
        let others = others.filter(|peer| peer.takes_part && peer.member != me);
        let version = match mutant::active(Mutant::SpeaksTooEarly) {
            true => own.newest,
            false => own.agree(others.map(|peer| peer.understands)),
        };
        if version != self.sealer.version() {
            self.sealer.set_version(version);
            self.emit(Event::Speaks { version });
        }
    }

    /// Accepts the ring's keys from now on and no others, and seals under the one that it names. Sessions, counters and
    /// replay windows go on: nothing that is under way is lost, if every peer accepts the key sealed under. A key may come back, or
    /// be replaced by another of its number.
    pub fn set_keys(&mut self, ring: &KeyRing) {
        self.opener.set_keys(ring);
        self.sealer.use_key(ring.sending());
    }

    /// The number of the key that this host seals under.
    #[must_use]
    pub fn sends_under(&self) -> u8 {
        self.sealer.key_id()
    }

    /// The numbers of the keys that this host accepts.
    pub fn accepts(&self) -> impl Iterator<Item = u8> + '_ {
        self.opener.key_ids()
    }

    /// The numbers of the keys that this host accepts, each with its check ([`ClusterKey::check`](super::ClusterKey::check)).
    /// Costs a derivation for each.
    pub fn key_checks(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.opener.key_checks()
    }

    /// The number of the key under which the member was last heard in its admitted session.
    #[must_use]
    pub fn heard_under(&self, member: MemberId) -> Option<u8> {
        self.opener.heard_under(member)
    }

    /// What came in the member's name under keys that this host does not have.
    #[must_use]
    pub fn without_key(&self, member: MemberId) -> WithoutKey {
        let slot = self.opener.slot(member);
        slot.map_or_else(WithoutKey::default, |slot| self.peers[slot].without_key)
    }

    /// The settings of this host that others must share.
    #[must_use]
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// The settings of a member that is not admitted because they are others than this host's, if it was refused lately. Under this host's
    /// own number: those of a host whose list has another member in this host's place.
    #[must_use]
    pub fn other_terms(&self, now: Time, member: MemberId) -> Option<&Terms> {
        let slot = self.opener.slot(member)?;
        let (terms, at) = self.peers[slot].other_terms.as_ref()?;
        (now.since(*at) < Duration::from_millis(OTHER_TERMS_SHOWN_MS)).then_some(terms)
    }

    /// This host.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.sealer.session().member
    }

    /// The admitted incarnation of a member.
    #[must_use]
    pub fn admitted(&self, member: MemberId) -> Option<Incarnation> {
        self.opener
            .admitted(member)
            .map(|session| session.incarnation)
    }

    /// Whether the member said that it admitted this host.
    #[must_use]
    pub fn welcomed_by(&self, member: MemberId) -> bool {
        self.opener
            .slot(member)
            .is_some_and(|slot| self.peers[slot].welcomed_by.is_some())
    }

    /// How many datagrams were refused, by reason.
    #[must_use]
    pub fn refusals(&self) -> &RefusalCounts {
        self.opener.refusals()
    }

    /// Handshakes and events that were dropped because their queue was full.
    #[must_use]
    pub fn dropped(&self) -> (u64, u64) {
        (self.transmits_dropped, self.events_dropped)
    }

    fn handle_uncounted(
        &mut self,
        now: Time,
        from: u64,
        datagram: &mut [u8],
    ) -> Result<Option<Opened>, Refusal> {
        let (header, slot) = self.opener.check(datagram)?;
        if Retry::is_one(&header, datagram) {
            return self
                .handle_retry(now, slot, &header, datagram)
                .map(|()| None);
        }
        let (datagram, cookie) = split_cookie(&header, datagram);
        let own = self.sealer.session();
        if header.member == own.member
            && header.session == own.salt.short_name()
            && header.incarnation == own.incarnation
        {
            return Err(Refusal::OwnDatagram);
        }
        if self.opener.claims_admitted(&header, slot, datagram) {
            let opened = self.opener.open_admitted(&header, slot, datagram)?;
            self.heard(now, slot);
            self.note_epoch(&header);
            if !header.handshake {
                return Ok(Some(opened));
            }
            let session = *self
                .opener
                .admitted(header.member)
                .ok_or(Refusal::NotAdmitted)?;
            return self.handle_message(
                now,
                from,
                slot,
                session,
                &datagram[opened.payload],
                &header,
            );
        }
        if header.handshake {
            self.spend_handshake(now, from, slot, &header, datagram, cookie)?;
            let (session, opened) = self.opener.open_stranger(&header, datagram)?;
            return self.handle_message(
                now,
                from,
                slot,
                session,
                &datagram[opened.payload],
                &header,
            );
        }
        // Only what it says in an older epoch is answered: it may be a host that was restored from a snapshot, and a challenge names this epoch.
        if self.is_other_incarnation(slot, header.incarnation) && header.epoch >= self.epoch {
            return Err(Refusal::WrongIncarnation);
        }
        // A peer that does not know that this host restarted goes on sending: a challenge tells it.
        let strangers = &mut self.peers[slot].challenges;
        if self.budgets.spend_challenge(now, from, strangers) {
            let to = Addressee {
                member: header.member,
                session: header.session,
                incarnation: header.incarnation,
            };
            self.challenge(now, from, slot, to);
        }
        Err(match self.is_other_incarnation(slot, header.incarnation) {
            true => Refusal::WrongIncarnation,
            false => Refusal::NotAdmitted,
        })
    }

    /// Whether the epoch names another incarnation of a member. What such a host has in common with this one is compared all the same, so that
    /// both see which epoch is later and which settings differ; it is not admitted.
    pub(super) fn is_other_incarnation(&self, slot: usize, incarnation: Incarnation) -> bool {
        let named = self.peers[slot].named;
        named.is_some_and(|named| named != incarnation)
    }

    /// Spends what decrypting a handshake of a session that is not admitted costs. Where nothing is left, its source is
    /// asked to prove its address.
    fn spend_handshake(
        &mut self,
        now: Time,
        from: u64,
        slot: usize,
        header: &Header,
        datagram: &[u8],
        cookie: Option<Cookie>,
    ) -> Result<(), Refusal> {
        let session = Session {
            member: header.member,
            incarnation: header.incarnation,
            salt: salt_of(datagram).ok_or(Refusal::TooShort)?,
        };
        if cookie.is_some_and(|cookie| self.challenger.made(now, from, &session, &cookie)) {
            let is_left = self.budgets.spend_proven(now, from);
            return is_left.then_some(()).ok_or(Refusal::HandshakeBudget);
        }
        let strangers = &mut self.peers[slot].strangers;
        if self.budgets.spend_unproven(now, from, strangers) {
            return Ok(());
        }
        if self.retries.len() < TRANSMITS_WAITING_MAX
            && !mutant::active(Mutant::CookieUnasked)
            && self.budgets.spend_retry(now, from)
            && let Some(answers) = tag_of(datagram)
        {
            let cookie = self.challenger.cookie(now, from, &session);
            let retry = Retry { answers, cookie };
            self.retries.push_back((from, header.key_id, retry));
        }
        Err(Refusal::HandshakeBudget)
    }

    /// Keeps that a datagram named a key that is not here, for its sender's operator; the header was not decrypted over.
    fn note_without_key(&mut self, now: Time, datagram: &[u8], reason: Refusal) {
        let Some(header) = Header::decode(datagram) else {
            return;
        };
        let Some(slot) = self.opener.slot(header.member) else {
            return;
        };
        if header.member == self.member() {
            return;
        }
        let without_key = &mut self.peers[slot].without_key;
        without_key.datagrams += 1;
        without_key.last = Some((header.key_id, now));
        let interval = Duration::from_millis(UNKNOWN_KEY_REPORT_INTERVAL_MS);
        let reported = &mut self.peers[slot].without_key_reported_at;
        if reported.is_none_or(|reported| now.since(reported) >= interval) {
            *reported = Some(now);
            self.emit(Event::NoKey {
                member: header.member,
                key_id: header.key_id,
                dropped: reason == Refusal::DroppedKeyId,
            });
        }
    }

    pub(super) fn transmit(&mut self, destination: Destination, message: Message) {
        if self.transmits.len() < TRANSMITS_WAITING_MAX + self.peers.len() {
            self.transmits.push_back((destination, message));
        } else {
            self.transmits_dropped += 1;
        }
    }

    pub(super) fn emit(&mut self, event: Event) {
        if self.events.len() < EVENTS_WAITING_MAX {
            self.events.push_back(event);
        } else {
            self.events_dropped += 1;
        }
    }

    fn wants_hello(&self, peer: &Peer) -> bool {
        peer.welcomed_by.is_none() && peer.member != self.member()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.transmits.len() + self.retries.len() + self.events.len()
    }
}
