//! [`SecureChannel`]: sealing, opening and admission in one, with five verbs: [`SecureChannel::handle`],
//! [`SecureChannel::poll_transmit`], [`SecureChannel::poll_timeout`], [`SecureChannel::handle_timeout`],
//! [`SecureChannel::poll_event`].
//!
//! # Who is admitted
//!
//! A session is admitted when it echoed a fresh nonce of this host (see `handshake`), or when the epoch names it
//! ([`SecureChannel::admit_by_epoch`]). Its datagrams count from the echo on: earlier ones are refused, since they may
//! be replays.
//!
//! # Two hosts with one identity
//!
//! The first live session stays. Another session of the same member that proves itself becomes a contender, and takes
//! the place only when the first was silent for [`SecureConfig::silence`], or the epoch names the contender's
//! incarnation. If the first is still heard a grace after the contender proved itself, both are alive: an
//! [`Event::DuplicateIdentity`], as also when a session that was replaced comes back. So a host that restarts waits out
//! the silence and raises no alarm, and two hosts neither take turns nor do so unsaid. The rule needs the admitted host
//! to say something within the silence: the replication's keep-alives do.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use super::handshake::{
    Addressee, Budget, CHALLENGES_BURST_MAX, CHALLENGES_PER_SECOND_MAX, Challenger,
    DUPLICATE_GRACE_MS, DUPLICATE_REPORT_INTERVAL_MS, EVENTS_WAITING_MAX, HELLO_INTERVAL_FIRST_MS,
    HELLO_INTERVAL_MAX_MS, Kind, Message, SILENCE_DEFAULT_MS, STRANGER_HANDSHAKES_BURST_MAX,
    STRANGER_HANDSHAKES_PER_SECOND_MAX, TRANSMITS_WAITING_MAX,
};
use super::header::{Header, WIRE_VERSION_MAX};
use super::key::{ClusterKey, Salt, Session};
use super::opener::{AddKeyError, Opened, Opener, OpenerConfig};
use super::refusal::{Refusal, RefusalCounts};
use super::sealer::{SealError, Sealer};
use crate::{ClusterId, Epoch, Incarnation, MemberId, Time};

/// What a [`SecureChannel`] is told once.
#[derive(Clone, Debug)]
pub struct SecureConfig {
    /// The key that this host seals with; its number is in it. Also accepted.
    pub cluster_key: ClusterKey,
    /// Further keys that are accepted, for rotation: at most three.
    pub accepted_keys: Vec<ClusterKey>,
    /// The cluster.
    pub cluster: ClusterId,
    /// This host.
    pub member: MemberId,
    /// This life of this host.
    pub incarnation: Incarnation,
    /// The epoch in the header of what is sealed, until [`SecureChannel::set_epoch`].
    pub epoch: Epoch,
    /// The wire version that this host speaks, 0 to [`WIRE_VERSION_MAX`]; later ones are refused.
    pub wire_version: u8,
    /// The oldest wire version that this host understands.
    pub wire_version_oldest: u8,
    /// The other members. This host among them is passed over.
    pub peers: Vec<MemberId>,
    /// How long an admitted session must be silent before another of the same member takes its place. At least several
    /// keep-alive intervals; 3 s unless told.
    pub silence: Duration,
}

impl SecureConfig {
    /// A configuration at epoch 0 that speaks and understands wire version 1, with the default silence.
    #[must_use]
    pub fn new(
        cluster_key: ClusterKey,
        cluster: ClusterId,
        member: MemberId,
        incarnation: Incarnation,
        peers: Vec<MemberId>,
    ) -> SecureConfig {
        SecureConfig {
            cluster_key,
            accepted_keys: Vec::new(),
            cluster,
            member,
            incarnation,
            epoch: Epoch(0),
            wire_version: 1,
            wire_version_oldest: 1,
            peers,
            silence: Duration::from_millis(SILENCE_DEFAULT_MS),
        }
    }
}

/// Why there is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureConfigError {
    /// The wire version exceeds [`WIRE_VERSION_MAX`], or is below the oldest understood.
    WireVersion,
    /// A key could not be added.
    Key(AddKeyError),
}

impl fmt::Display for SecureConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecureConfigError::WireVersion => write!(
                f,
                "the wire version must be at least the oldest understood and at most {WIRE_VERSION_MAX}"
            ),
            SecureConfigError::Key(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SecureConfigError {}

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
}

/// One host's sealed channel to all its peers. See the module for its rules.
pub struct SecureChannel {
    sealer: Sealer,
    opener: Opener,
    challenger: Challenger,
    epoch: Epoch,
    silence: Duration,
    /// By the opener's slots; this host has one too, that stays without a session.
    peers: Vec<Peer>,
    transmits: VecDeque<(Destination, Message)>,
    transmits_dropped: u64,
    events: VecDeque<Event>,
    events_dropped: u64,
}

struct Peer {
    member: MemberId,
    /// When the admitted session was last heard, by a datagram that opened and was no replay.
    heard_at: Time,
    /// The one incarnation that the epoch lets in.
    named: Option<Incarnation>,
    /// Admissions, revocations and refused proofs so far: part of each challenge, so that none serves twice.
    generation: u64,
    contender: Option<Contender>,
    /// The session that the admitted one replaced.
    replaced: Option<Session>,
    reported_at: Option<Time>,
    /// The member's session that said this host is admitted.
    welcomed_by: Option<Session>,
    hello_at: Time,
    hello_interval: Duration,
    strangers: Budget,
    challenges: Budget,
}

/// A session that proved itself while another of its member was alive.
struct Contender {
    session: Session,
    since: Time,
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
            &config.cluster_key,
            config.cluster,
            session,
            config.wire_version,
        );
        for key in core::iter::once(config.cluster_key).chain(config.accepted_keys) {
            opener.add_key(key).map_err(SecureConfigError::Key)?;
        }
        Ok(SecureChannel {
            challenger: Challenger::new(&random_seed, &salt),
            peers: opener.members().map(Peer::new).collect(),
            sealer,
            opener,
            epoch: config.epoch,
            silence: config.silence,
            transmits: VecDeque::new(),
            transmits_dropped: 0,
            events: VecDeque::new(),
            events_dropped: 0,
        })
    }

    /// The longest payload for datagrams of at most so many bytes of UDP payload.
    #[must_use]
    pub const fn max_payload(datagram_bytes_max: usize) -> usize {
        Sealer::max_payload(datagram_bytes_max)
    }

    /// Clears `out` and writes a datagram that every peer can open once it admitted this host. Seal a retransmission
    /// anew; sending the same sealed bytes to several peers is right.
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
    /// address it came from, handed back in [`Destination::Source`].
    ///
    /// # Errors
    /// A [`Refusal`], which is counted. The datagram's bytes are then unspecified.
    pub fn handle(
        &mut self,
        now: Time,
        from: u64,
        datagram: &mut [u8],
    ) -> Result<Option<Opened>, Refusal> {
        let handled = self.handle_uncounted(now, from, datagram);
        handled.map_err(|reason| self.opener.count(reason))
    }

    /// Clears `out` and writes the next handshake datagram to it; `None` when there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Destination> {
        out.clear();
        let (destination, message) = self.transmits.pop_front()?;
        match self
            .sealer
            .seal_handshake(self.epoch, &message.encode(), out)
        {
            Ok(()) => Some(destination),
            Err(_) => {
                // No counter is left: nothing will be sent again in this life.
                self.transmits.clear();
                out.clear();
                None
            }
        }
    }

    /// When [`Self::handle_timeout`] is due; `None` when every peer has welcomed this host. Costs a walk over the peers.
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
    }

    /// Takes the truth store's word: of this member only that incarnation is let in, and a session of another is closed
    /// at once. With the session's salt it is admitted at once; then, after a restart of *this* host, it may accept
    /// again what it accepted before. Without, the session still proves itself by echo, and waits for no silence.
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
    }

    /// Closes the member's session; only a new proof brings it back.
    pub fn revoke(&mut self, member: MemberId) {
        if let Some(slot) = self.opener.slot(member) {
            let closed = self.opener.admitted(member).copied();
            self.opener.revoke(member);
            let peer = &mut self.peers[slot];
            peer.replaced = closed.or(peer.replaced);
            peer.contender = None;
            peer.generation += 1;
        }
    }

    /// Accepts one more cluster key (the first step of a rotation, on all hosts).
    ///
    /// # Errors
    /// [`AddKeyError`]; nothing changed.
    pub fn add_key(&mut self, key: ClusterKey) -> Result<(), AddKeyError> {
        self.opener.add_key(key)
    }

    /// Seals under the added key of that number from now on (the second step). Returns whether there is one.
    pub fn use_key(&mut self, id: u8) -> bool {
        match self.opener.key(id) {
            Some(key) => {
                self.sealer.use_key(key);
                true
            }
            None => false,
        }
    }

    /// Accepts the key of that number no more (the last step).
    pub fn retire_key(&mut self, id: u8) {
        self.opener.retire_key(id);
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
        if self.peers[slot]
            .named
            .is_some_and(|named| named != header.incarnation)
        {
            return Err(Refusal::WrongIncarnation);
        }
        if header.handshake {
            if !self.peers[slot].strangers.spend(now) {
                return Err(Refusal::HandshakeBudget);
            }
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
        // A peer that does not know that this host restarted goes on sending: a challenge tells it.
        if self.peers[slot].challenges.spend(now) {
            let to = Addressee {
                member: header.member,
                session: header.session,
                incarnation: header.incarnation,
            };
            self.challenge(now, from, slot, to);
        }
        Err(Refusal::NotAdmitted)
    }

    /// An authentic handshake; from the admitted session it is no replay, from another it may be.
    fn handle_message(
        &mut self,
        now: Time,
        from: u64,
        slot: usize,
        session: Session,
        message: &[u8],
        header: &Header,
    ) -> Result<Option<Opened>, Refusal> {
        let message = Message::decode(message).ok_or(Refusal::MalformedHandshake)?;
        let sender = addressee(&session);
        let admitted = self.opener.admitted(session.member) == Some(&session);
        let own = addressee(self.sealer.session());
        let for_us = match message.kind {
            Kind::Hello => message.to.member == own.member,
            _ => message.to == own,
        };
        if !for_us {
            return Err(Refusal::NotForUs);
        }
        match message.kind {
            Kind::Hello | Kind::Echo if admitted => {
                self.transmit(
                    Destination::Source(from),
                    Message {
                        kind: Kind::Welcome,
                        to: sender,
                        nonce: [0; 16],
                    },
                );
            }
            Kind::Hello => self.challenge(now, from, slot, sender),
            Kind::Challenge => {
                let echo = Message {
                    kind: Kind::Echo,
                    to: sender,
                    nonce: message.nonce,
                };
                self.transmit(Destination::Source(from), echo);
                // Should the echo be lost, the next Hello draws another challenge.
                self.peers[slot].forget_welcome(now);
            }
            Kind::Echo => {
                let generation = self.peers[slot].generation;
                if !self
                    .challenger
                    .knows(now, &sender, generation, &message.nonce)
                {
                    return Err(Refusal::StaleEcho);
                }
                self.peers[slot].generation += 1;
                self.judge(now, slot, session, header.counter)?;
                self.transmit(
                    Destination::Source(from),
                    Message {
                        kind: Kind::Welcome,
                        to: sender,
                        nonce: [0; 16],
                    },
                );
            }
            Kind::Welcome => {
                // A recorded Welcome of an earlier life must not end the Hellos to the present one.
                if !admitted && self.opener.admitted(session.member).is_some() {
                    return Err(Refusal::NotAdmitted);
                }
                let peer = &mut self.peers[slot];
                if peer.welcomed_by.replace(session) != Some(session) {
                    self.emit(Event::Welcomed {
                        member: session.member,
                        incarnation: session.incarnation,
                    });
                }
            }
        }
        Ok(None)
    }

    /// A session that is not admitted has proved itself alive: admit it, unless another of its member is.
    fn judge(
        &mut self,
        now: Time,
        slot: usize,
        session: Session,
        counter: u64,
    ) -> Result<(), Refusal> {
        let own = *self.sealer.session();
        if session.member == own.member {
            self.report_duplicate(now, slot, &own, &session);
            return Err(Refusal::DuplicateIdentity);
        }
        let live = self.opener.admitted(session.member).is_some()
            && now.since(self.peers[slot].heard_at) < self.silence;
        if live {
            let contender = &mut self.peers[slot].contender;
            if contender
                .as_ref()
                .is_none_or(|known| known.session != session)
            {
                *contender = Some(Contender {
                    session,
                    since: now,
                });
            }
            return Err(Refusal::DuplicateIdentity);
        }
        self.admit(now, slot, session, counter);
        Ok(())
    }

    fn admit(&mut self, now: Time, slot: usize, session: Session, floor: u64) {
        let before = self.opener.admitted(session.member).copied();
        self.opener.admit(session, floor);
        let peer = &mut self.peers[slot];
        let came_back = peer.replaced == Some(session);
        peer.replaced = before.or(peer.replaced);
        let replaced = peer.replaced;
        peer.heard_at = now;
        peer.contender = None;
        peer.generation += 1;
        if peer.welcomed_by != Some(session) {
            peer.forget_welcome(now);
        }
        if came_back && let Some(other) = replaced.filter(|other| *other != session) {
            self.report_duplicate(now, slot, &session, &other);
        }
        self.emit(Event::Admitted {
            member: session.member,
            incarnation: session.incarnation,
            replaced: replaced
                .filter(|other| *other != session)
                .map(|other| other.incarnation),
        });
    }

    /// The admitted session said something new.
    fn heard(&mut self, now: Time, slot: usize) {
        let peer = &mut self.peers[slot];
        peer.heard_at = now;
        let both_alive = |contender: &mut Contender| {
            now.since(contender.since) >= Duration::from_millis(DUPLICATE_GRACE_MS)
        };
        // Taken away, so that it is reported again only after it proved itself again.
        if let Some(contender) = peer.contender.take_if(both_alive)
            && let Some(live) = self.opener.admitted(contender.session.member).copied()
        {
            self.report_duplicate(now, slot, &live, &contender.session);
        }
    }

    fn report_duplicate(&mut self, now: Time, slot: usize, live: &Session, other: &Session) {
        let interval = Duration::from_millis(DUPLICATE_REPORT_INTERVAL_MS);
        let peer = &mut self.peers[slot];
        if peer
            .reported_at
            .is_some_and(|reported| now.since(reported) < interval)
        {
            return;
        }
        peer.reported_at = Some(now);
        self.emit(Event::DuplicateIdentity {
            member: live.member,
            live: live.incarnation,
            other: other.incarnation,
        });
    }

    fn challenge(&mut self, now: Time, from: u64, slot: usize, to: Addressee) {
        let nonce = self.challenger.nonce(now, &to, self.peers[slot].generation);
        self.transmit(
            Destination::Source(from),
            Message {
                kind: Kind::Challenge,
                to,
                nonce,
            },
        );
    }

    fn transmit(&mut self, destination: Destination, message: Message) {
        if self.transmits.len() < TRANSMITS_WAITING_MAX + self.peers.len() {
            self.transmits.push_back((destination, message));
        } else {
            self.transmits_dropped += 1;
        }
    }

    fn emit(&mut self, event: Event) {
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
        self.transmits.len() + self.events.len()
    }
}

impl Peer {
    fn new(member: MemberId) -> Peer {
        Peer {
            member,
            heard_at: Time::ZERO,
            named: None,
            generation: 0,
            contender: None,
            replaced: None,
            reported_at: None,
            welcomed_by: None,
            hello_at: Time::ZERO,
            hello_interval: Duration::from_millis(HELLO_INTERVAL_FIRST_MS),
            strangers: Budget::new(
                STRANGER_HANDSHAKES_PER_SECOND_MAX,
                STRANGER_HANDSHAKES_BURST_MAX,
            ),
            challenges: Budget::new(CHALLENGES_PER_SECOND_MAX, CHALLENGES_BURST_MAX),
        }
    }

    /// The member does not know this host, or no more: say Hello again, soon.
    fn forget_welcome(&mut self, now: Time) {
        if self.welcomed_by.take().is_some() {
            self.hello_interval = Duration::from_millis(HELLO_INTERVAL_FIRST_MS);
            self.hello_at = now + self.hello_interval;
        }
    }
}

fn addressee(session: &Session) -> Addressee {
    Addressee {
        member: session.member,
        session: session.salt.short_name(),
        incarnation: session.incarnation,
    }
}
