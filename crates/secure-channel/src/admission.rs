//! The channel's rules of admission.
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
//! the place only when the first was silent for [`SecureConfig::silence`](super::SecureConfig::silence), or the epoch names the contender's
//! incarnation. If the first is still heard a grace after the contender proved itself, both are alive: an
//! [`Event::DuplicateIdentity`], as also when a session that was replaced comes back. So a host that restarts waits out
//! the silence and raises no alarm, and two hosts neither take turns nor do so unsaid. The rule needs the admitted host
//! to say something within the silence: the replication's keep-alives do.

use core::time::Duration;

use super::channel::{Destination, Event, SecureChannel, WithoutKey};
use super::handshake::{
    Addressee, CHALLENGES_BURST_MAX, CHALLENGES_PER_SECOND_MAX, DUPLICATE_GRACE_MS,
    DUPLICATE_REPORT_INTERVAL_MS, HELLO_INTERVAL_FIRST_MS, Kind, MESSAGE_BYTES, Message,
    STRANGER_HANDSHAKES_BURST_MAX, STRANGER_HANDSHAKES_PER_SECOND_MAX, Versions,
};
use super::header::Header;
use super::key::Session;
use super::opener::Opened;
use super::refusal::Refusal;
use super::retry::{Budget, Retriable, Retry};
use super::terms::Terms;
use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

/// What a channel knows of one member, besides its admitted session.
pub(super) struct Peer {
    pub(super) member: MemberId,
    /// When the admitted session was last heard, by a datagram that opened and was no replay.
    pub(super) heard_at: Time,
    /// The one incarnation that the epoch lets in.
    pub(super) named: Option<Incarnation>,
    /// Admissions, revocations and refused proofs so far: part of each challenge, so that none serves twice.
    pub(super) generation: u64,
    pub(super) contender: Option<Contender>,
    /// The wire versions that the admitted session understands, once it said so.
    pub(super) understands: Option<Versions>,
    /// What the last session had that was not admitted because of it, and when.
    pub(super) other_terms: Option<(Terms, Time)>,
    pub(super) takes_part: bool,
    /// The session that was admitted before, and the greatest of its counters that was opened.
    pub(super) replaced: Option<(Session, u64)>,
    pub(super) reported_at: Option<Time>,
    pub(super) without_key: WithoutKey,
    pub(super) without_key_reported_at: Option<Time>,
    /// The member's session that said this host is admitted.
    pub(super) welcomed_by: Option<Session>,
    pub(super) hello_at: Time,
    pub(super) hello_interval: Duration,
    /// Handshakes in its name from addresses that are not configured and show no cookie.
    pub(super) strangers: Budget,
    /// Challenges to such addresses.
    pub(super) challenges: Budget,
    pub(super) retriable: Retriable,
}

/// A session that proved itself while another of its member was alive.
pub(super) struct Contender {
    session: Session,
    since: Time,
}

impl SecureChannel {
    /// An authentic handshake; from the admitted session it is no replay, from another it may be.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        from: u64,
        slot: usize,
        session: Session,
        message: &[u8],
        header: &Header,
    ) -> Result<Option<Opened>, Refusal> {
        let said = Versions::said(header, message);
        let terms = message.get(MESSAGE_BYTES..).filter(|more| !more.is_empty());
        let message = Message::decode(message).ok_or(Refusal::MalformedHandshake)?;
        if said.newest < self.opener.versions().oldest {
            return Err(Refusal::PastVersion);
        }
        let sender = addressee(&session);
        let admitted = self.opener.admitted(session.member) == Some(&session);
        let own = addressee(self.sealer.session());
        let for_us = match message.kind {
            // A host whose list of members is another one may take this host for another member: the terms in its Echo tell.
            Kind::Hello => message.to.member == own.member || self.terms.is_some(),
            _ => message.to == own,
        };
        if !for_us {
            return Err(Refusal::NotForUs);
        }
        if message.kind != Kind::Hello {
            // It answers this session, so it is no recording of an earlier one.
            self.note_epoch(header);
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
                self.compare_terms(now, slot, terms)?;
                if self.is_other_incarnation(slot, session.incarnation) {
                    return Err(Refusal::WrongIncarnation);
                }
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
                if self.is_other_incarnation(slot, session.incarnation) {
                    return Err(Refusal::WrongIncarnation);
                }
                // A recorded Welcome of an earlier incarnation must not end the Hellos to the present one.
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
        // A session that is not admitted may be a recorded one, of another build.
        if self.opener.admitted(session.member) == Some(&session)
            && self.peers[slot].understands.replace(said) != Some(said)
        {
            self.agree();
        }
        Ok(None)
    }

    /// Refuses a session whose host has other settings than this one of those that hosts must share, and keeps them to be shown. A host
    /// that says nothing of them, or is asked for none, is taken as it is.
    fn compare_terms(
        &mut self,
        now: Time,
        slot: usize,
        terms: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let (Some(ours), Some(theirs)) = (&self.terms, terms) else {
            return Ok(());
        };
        let theirs = Terms::decode(theirs).ok_or(Refusal::MalformedHandshake)?;
        if ours.agree(&theirs) || mutant::active(Mutant::TermsNotCompared) {
            return Ok(());
        }
        self.peers[slot].other_terms = Some((theirs, now));
        Err(Refusal::OtherTerms)
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

    pub(super) fn admit(&mut self, now: Time, slot: usize, session: Session, floor: u64) {
        let came_back = self.peers[slot]
            .replaced
            .filter(|(before, _)| *before == session);
        self.close(slot);
        // What was opened before must not open again, no matter who vouches for the session.
        let floor = floor.max(came_back.map_or(0, |(_, greatest)| greatest));
        self.opener.admit(session, floor);
        let peer = &mut self.peers[slot];
        peer.heard_at = now;
        peer.other_terms = None;
        if peer.welcomed_by != Some(session) {
            peer.forget_welcome(now);
        }
        let other = peer
            .replaced
            .map(|(before, _)| before)
            .filter(|before| *before != session);
        if came_back.is_some()
            && let Some(other) = other
        {
            self.report_duplicate(now, slot, &session, &other);
        }
        self.emit(Event::Admitted {
            member: session.member,
            incarnation: session.incarnation,
            replaced: other.map(|other| other.incarnation),
        });
    }

    /// Closes the member's session, if there is one, and makes the challenges handed out so far void.
    pub(super) fn close(&mut self, slot: usize) {
        let peer = &mut self.peers[slot];
        let greatest = self.opener.greatest(peer.member);
        if let Some(session) = self.opener.admitted(peer.member) {
            peer.replaced = Some((*session, greatest));
        }
        self.opener.revoke(peer.member);
        peer.understands = None;
        peer.contender = None;
        peer.generation += 1;
    }

    /// The admitted session said something new.
    pub(super) fn heard(&mut self, now: Time, slot: usize) {
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

    /// Takes a Retry: a handshake that it names goes again with its cookie.
    pub(super) fn handle_retry(
        &mut self,
        now: Time,
        slot: usize,
        header: &Header,
        datagram: &[u8],
    ) -> Result<(), Refusal> {
        let retry = Retry::read(datagram).ok_or(Refusal::TooShort)?;
        // Before its authentication is computed: a flood of Retries costs a comparison each.
        if !self.peers[slot].retriable.is_sent(&retry.answers) {
            return Err(Refusal::StaleRetry);
        }
        let key = self.opener.key(header.key_id);
        if !key.is_some_and(|key| Retry::is_authentic(datagram, key)) {
            return Err(Refusal::Forged);
        }
        if let Some((to, message)) = self.peers[slot].retriable.take(now, &retry) {
            self.transmit(to, message);
        }
        Ok(())
    }

    pub(super) fn challenge(&mut self, now: Time, from: u64, slot: usize, to: Addressee) {
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
}

impl Peer {
    pub(super) fn new(member: MemberId) -> Peer {
        Peer {
            member,
            heard_at: Time::ZERO,
            named: None,
            generation: 0,
            contender: None,
            understands: None,
            other_terms: None,
            takes_part: true,
            replaced: None,
            reported_at: None,
            without_key: WithoutKey::default(),
            without_key_reported_at: None,
            welcomed_by: None,
            hello_at: Time::ZERO,
            hello_interval: Duration::from_millis(HELLO_INTERVAL_FIRST_MS),
            strangers: Budget::new(
                STRANGER_HANDSHAKES_PER_SECOND_MAX,
                STRANGER_HANDSHAKES_BURST_MAX,
            ),
            challenges: Budget::new(CHALLENGES_PER_SECOND_MAX, CHALLENGES_BURST_MAX),
            retriable: Retriable::default(),
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

pub(super) fn addressee(session: &Session) -> Addressee {
    Addressee {
        member: session.member,
        session: session.salt.short_name(),
        incarnation: session.incarnation,
    }
}
