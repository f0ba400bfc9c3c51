//! The host's end: sends heartbeats to every orchestrator, and puts epochs together that come back.

use std::collections::VecDeque;
use std::time::Duration;

use asterism_placement::Time;
use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::answers::{AnswerError, Answers};
use crate::envelope;
use crate::message::{
    Heartbeat, HostMessage, LeaderHeard, Part, RegistrationRefused, Reply, Stage, TenantUsage,
    USAGE_AT_ONCE,
};
use crate::mutant::{self, Mutant};
use crate::parts::{Assembly, Taken};
use crate::question::Question;

/// Orchestrators of a cluster at most.
pub const ORCHESTRATORS_MAX: usize = 8;
/// A change is sent at once, but no sooner after the heartbeat before it.
const SPACING: Duration = Duration::from_millis(5);
/// Heartbeats stop when what they say was not confirmed for so long: the host's main thread does not go on.
const FACTS_AGE_MAX: Duration = Duration::from_secs(2);
/// A reply echoes one of the last so many datagrams of this process.
const ECHOES_MAX: u64 = 256;
/// An epoch that the host has not taken is handed to it again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// An epoch of which no part came for so long is given up; the orchestrator offers it again.
const PART_WAIT_MAX: Duration = Duration::from_secs(1);
/// The term of a leader that was not heard for so long is forgotten: a store that lost what it had counts from the beginning.
const TERM_FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// Epochs and questions that wait to be polled at most; beyond, the oldest is lost, and comes again.
const EVENTS_MAX: usize = 16;
/// Parts of answers that wait to be sent at most; beyond, parts are lost, and asked for again.
const PARTS_MAX: usize = 256;

/// How a [`HostLink`] is made.
#[derive(Clone, Debug)]
pub struct HostLinkConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its keys.
    pub keys: KeyRing,
    /// Random bytes of this start.
    pub salt: [u8; 16],
    /// Orchestrators, at most [`ORCHESTRATORS_MAX`]; the rest is ignored.
    pub orchestrators: usize,
    /// Time between heartbeats. Sane: 50 ms.
    pub interval: Duration,
}

/// What a host is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// To take this epoch, if it may follow the one that it has.
    Epoch {
        /// The orchestrator that handed it.
        orchestrator: usize,
        /// Its number.
        epoch: u32,
        /// Its text, unchecked but for its digest.
        text: String,
    },
    /// An orchestrator gives this host no place, for another reason than it said last, or gives it one again.
    Registration {
        /// The orchestrator.
        orchestrator: usize,
        /// Why; `None`: it does not refuse any more.
        refused: Option<RegistrationRefused>,
    },
    /// To answer a question, by [`HostLink::answer`].
    Question {
        /// The orchestrator that asks.
        orchestrator: usize,
        /// The number under which this link expects the answer.
        number: u64,
        /// The question.
        text: Vec<u8>,
    },
}

/// What is known of an orchestrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orchestrator {
    /// When it answered last.
    pub heard: Option<Time>,
    /// The last round trip.
    pub round_trip: Option<Duration>,
}

/// What an orchestrator sent.
enum Received {
    Reply(Reply),
    /// A question, with the salt of the orchestrator's start.
    Question([u8; 16], Question),
}

/// The orchestrator that said last that it leads.
#[derive(Clone, Copy, Debug)]
struct Leader {
    number: usize,
    term: u64,
    heard: Time,
    /// Heartbeats to it since then.
    sent: u32,
}

impl Leader {
    /// How long it did not answer. A host that stood still itself missed no answer meanwhile.
    fn silence(&self, now: Time, interval: Duration) -> Duration {
        now.since(self.heard).min(interval * self.sent)
    }
}

#[derive(Debug, Default)]
struct Peer {
    known: Orchestrator,
    challenge: [u8; 16],
    /// The last heartbeat to it: its sequence number, and when it was sent.
    sent: Option<(u64, Time)>,
    /// The highest sequence number that it has echoed.
    echoed: u64,
    /// Whether a change was not sent to it yet.
    is_behind: bool,
    /// Why it gives this host no place, as reported last.
    refused: Option<RegistrationRefused>,
    next: Time,
    /// The place in the list of tenants of the one whose usage is sent next.
    tenant: usize,
    /// Tenants whose last usage was not sent yet, once the host has ended.
    untold: usize,
}

/// The link of one start of a host to all orchestrators. The five verbs: [`HostLink::handle`], [`HostLink::handle_timeout`],
/// [`HostLink::poll_timeout`], [`HostLink::poll_transmit`], [`HostLink::poll_event`].
#[derive(Debug)]
pub struct HostLink {
    envelope: Envelope,
    interval: Duration,
    peers: Vec<Peer>,
    facts: Option<(Heartbeat, Time)>,
    leader: Option<Leader>,
    /// The epoch that is being put together, the orchestrator that sends it, and when its last part came.
    assembly: Option<(usize, Assembly, Time)>,
    /// The epoch that was reported last: number, digest, and when.
    reported: Option<(u32, [u8; 16], Time)>,
    answers: Answers,
    transmits: VecDeque<(usize, Vec<u8>)>,
    events: VecDeque<HostEvent>,
    refused: u64,
}

impl HostLink {
    /// A link that has nothing to say until [`HostLink::set`].
    #[must_use]
    pub fn new(config: HostLinkConfig) -> HostLink {
        let orchestrators = config.orchestrators.min(ORCHESTRATORS_MAX);
        let (cluster, keys, salt) = (config.cluster, config.keys, config.salt);
        HostLink {
            answers: Answers::new(cluster, keys.clone(), salt, orchestrators),
            envelope: envelope::of_host(cluster, keys, salt),
            interval: config.interval,
            peers: (0..orchestrators).map(|_| Peer::default()).collect(),
            facts: None,
            leader: None,
            assembly: None,
            reported: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            refused: 0,
        }
    }

    /// What is to be said from now on; called again and again, since heartbeats stop two seconds after the last call. A change of the
    /// stage or the epoch is sent at once.
    pub fn set(&mut self, now: Time, heartbeat: Heartbeat) {
        let is_news = self.facts.as_ref().is_none_or(|(before, _)| {
            (before.stage, before.epoch) != (heartbeat.stage, heartbeat.epoch)
        });
        if is_news {
            for peer in &mut self.peers {
                peer.is_behind = true;
                peer.send_soon(now);
                peer.untold = match heartbeat.stage {
                    Stage::Ended(_) => heartbeat.usage.len(),
                    _ => 0,
                };
            }
        }
        self.facts = Some((heartbeat, now));
    }

    /// Goes on under other keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.answers.set_keys(keys.clone());
        self.envelope.set_keys(keys);
    }

    /// Takes a datagram that came from the address of this orchestrator.
    pub fn handle(&mut self, now: Time, orchestrator: usize, datagram: &mut [u8]) {
        let reply = match self.open(datagram) {
            Some(Received::Reply(reply)) => reply,
            Some(Received::Question(asker, question)) => {
                return self.take_question(now, orchestrator, asker, &question);
            }
            None => {
                self.refused += 1;
                return;
            }
        };
        let (is_recent, is_own) = (self.is_recent(&reply), self.is_own(&reply));
        let Some(peer) = self.peers.get_mut(orchestrator) else {
            return;
        };
        if !is_own || !is_recent {
            self.refused += 1;
            return;
        }
        if let Some((sequence, at)) = peer.sent
            && sequence == reply.sequence
            && peer.echoed < sequence
        {
            peer.known.round_trip = Some(now.since(at));
        }
        peer.known.heard = Some(now);
        if let Some(term) = reply.leads
            && may_lead(now, self.leader, term)
        {
            self.leader = Some(Leader {
                number: orchestrator,
                term,
                heard: now,
                sent: 0,
            });
        }
        // One that was overtaken has an earlier challenge.
        if reply.sequence >= peer.echoed {
            peer.echoed = reply.sequence;
            if peer.challenge != reply.challenge {
                peer.challenge = reply.challenge;
                if reply.is_stale {
                    peer.send_soon(now);
                }
            }
            if !reply.is_stale && peer.refused != reply.refused {
                peer.refused = reply.refused;
                let refused = reply.refused;
                self.push_event(HostEvent::Registration {
                    orchestrator,
                    refused,
                });
            }
        }
        if let Some(part) = reply.part {
            self.take(now, orchestrator, &part);
        }
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assembly
            .take_if(|(_, _, at)| now.since(*at) >= PART_WAIT_MAX);
        self.answers.handle_timeout(now);
        let Some((heartbeat, at)) = &self.facts else {
            return;
        };
        if are_old(now, *at) {
            return;
        }
        for (number, peer) in self.peers.iter_mut().enumerate() {
            if now < peer.next {
                continue;
            }
            let message = HostMessage {
                challenge: peer.challenge,
                heartbeat: Heartbeat {
                    usage: peer.next_usage(&heartbeat.usage).collect(),
                    ..heartbeat.clone()
                },
                wants: self
                    .assembly
                    .as_ref()
                    .filter(|(from, _, at)| *from == number && asks(now, *at, self.interval))
                    .map(|(_, assembly, _)| (assembly.epoch, assembly.offset())),
                leader: self.leader.map(|leader| LeaderHeard {
                    term: leader.term,
                    silence: leader.silence(now, self.interval),
                }),
            };
            if let Some(leader) = self
                .leader
                .as_mut()
                .filter(|leader| leader.number == number)
            {
                leader.sent = leader.sent.saturating_add(1);
            }
            let datagram = self.envelope.seal(|out| message.encode(out));
            peer.sent = Some((self.envelope.last(), now));
            peer.is_behind = false;
            // What a host that ends did last is sent at once, since nothing follows.
            peer.next = match peer.untold {
                0 => now + self.interval,
                _ => now + SPACING,
            };
            self.transmits.push_back((number, datagram));
        }
    }

    /// When [`HostLink::handle_timeout`] is to be called; `None` before there is anything to say.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.facts.as_ref()?;
        self.peers.iter().map(|peer| peer.next).min()
    }

    /// The next datagram, and the orchestrator that it is for.
    pub fn poll_transmit(&mut self) -> Option<(usize, Vec<u8>)> {
        self.transmits.pop_front()
    }

    /// The next thing to do.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    /// The orchestrators, as far as they are heard.
    pub fn orchestrators(&self) -> impl Iterator<Item = Orchestrator> + '_ {
        self.peers.iter().map(|peer| peer.known)
    }

    /// Whether every orchestrator that is heard has answered a heartbeat with the last change, and was sent the usage of all tenants
    /// if the host has ended.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.peers.iter().all(|peer| {
            let is_echoed = |(sequence, _): (u64, Time)| peer.echoed >= sequence;
            let is_answered = !peer.is_behind && peer.sent.is_none_or(is_echoed);
            peer.known.heard.is_none() || is_answered && peer.untold == 0
        })
    }

    /// Datagrams that were refused: not sealed for this cluster, or no answer to a heartbeat of this process.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Answers a question by the number of its event: its first parts are sent now, the others as the orchestrator asks for them. An answer to a question that is
    /// not the orchestrator's last one any more is dropped.
    ///
    /// # Errors
    /// The answer is empty or too long.
    pub fn answer(
        &mut self,
        now: Time,
        orchestrator: usize,
        number: u64,
        answer: Vec<u8>,
    ) -> Result<(), AnswerError> {
        let send = part_sender(&mut self.transmits, orchestrator);
        self.answers.answer(now, orchestrator, number, answer, send)
    }

    /// Gives a question up that cannot be answered now: it comes up again when it is asked again.
    pub fn give_up(&mut self, orchestrator: usize, number: u64) {
        self.answers.give_up(orchestrator, number);
    }

    /// Forgets all answers.
    #[cfg(test)]
    pub(crate) fn forget_answers(&mut self) {
        self.answers.forget();
    }

    /// Bytes of answers that are kept.
    #[cfg(test)]
    pub(crate) fn answers_kept(&self) -> usize {
        self.answers.kept()
    }

    fn open(&mut self, datagram: &mut [u8]) -> Option<Received> {
        let opened = self.envelope.open(datagram)?;
        match opened.sender {
            envelope::ASKING => {
                let question = Question::decode(opened.message)?;
                Some(Received::Question(opened.salt, question))
            }
            _ => Reply::decode(opened.message).map(Received::Reply),
        }
    }

    /// Takes a question to this process that echoes the last heartbeat which this orchestrator is known to have, or a later one.
    fn take_question(
        &mut self,
        now: Time,
        orchestrator: usize,
        asker: [u8; 16],
        question: &Question,
    ) {
        let is_own =
            question.salt == self.envelope.salt() || mutant::active(Mutant::QuestionOfAnyStart);
        let Some(peer) = self.peers.get(orchestrator) else {
            return;
        };
        let echoes = peer.echoed.max(1)..=self.envelope.last();
        if !is_own || !is_fresh(question, echoes) {
            self.refused += 1;
            return;
        }
        let send = part_sender(&mut self.transmits, orchestrator);
        let number = self.answers.take(now, orchestrator, asker, question, send);
        if let Some(number) = number {
            self.push_event(HostEvent::Question {
                orchestrator,
                number,
                text: question.text.clone(),
            });
        }
    }

    /// A question that is lost here is worked on when it is asked again.
    fn push_event(&mut self, event: HostEvent) {
        if self.events.len() >= EVENTS_MAX
            && let Some(HostEvent::Question {
                orchestrator,
                number,
                ..
            }) = self.events.pop_front()
        {
            self.answers.give_up(orchestrator, number);
        }
        self.events.push_back(event);
    }

    /// Whether an answer echoes one of the last datagrams.
    fn is_recent(&self, reply: &Reply) -> bool {
        let last = self.envelope.last();
        reply.sequence <= last
            && (last - reply.sequence < ECHOES_MAX || mutant::active(Mutant::ReplyForEver))
    }

    /// Whether an answer is to this process.
    fn is_own(&self, reply: &Reply) -> bool {
        reply.salt == self.envelope.salt() || mutant::active(Mutant::ReplyToAnyProcess)
    }

    /// Takes a part of an epoch.
    fn take(&mut self, now: Time, orchestrator: usize, part: &Part) {
        let is_known = |(heartbeat, _): &(Heartbeat, Time)| part.epoch <= heartbeat.epoch;
        let was_reported = self.reported.is_some_and(|(epoch, digest, at)| {
            (epoch, digest) == (part.epoch, part.digest) && now.since(at) < AGAIN_AFTER
        });
        if was_reported || self.facts.as_ref().is_none_or(is_known) {
            return;
        }
        let goes_on = |(_, assembly, _): &(usize, Assembly, Time)| assembly.is_of(part);
        let is_older = |(_, assembly, _): &(usize, Assembly, Time)| part.epoch < assembly.epoch;
        if !self.assembly.as_ref().is_some_and(goes_on) {
            let waits = self.assembly.is_some() && mutant::active(Mutant::LaterEpochWaits);
            if waits || self.assembly.as_ref().is_some_and(is_older) {
                return;
            }
            let Some(assembly) = Assembly::begin(part) else {
                return;
            };
            self.assembly = Some((orchestrator, assembly, now));
        }
        let Some((from, assembly, at)) = &mut self.assembly else {
            return;
        };
        match assembly.take(part) {
            Taken::NotNext => {}
            Taken::More => {
                *at = now;
                if let Some(peer) = self.peers.get_mut(*from) {
                    peer.next = now;
                }
            }
            Taken::Damaged => self.assembly = None,
            Taken::Whole(text) => {
                let epoch = part.epoch;
                self.assembly = None;
                self.reported = Some((epoch, part.digest, now));
                self.push_event(HostEvent::Epoch {
                    orchestrator,
                    epoch,
                    text,
                });
            }
        }
    }
}

/// Whether a question echoes one of these heartbeats.
fn is_fresh(question: &Question, echoes: core::ops::RangeInclusive<u64>) -> bool {
    echoes.contains(&question.sequence) || mutant::active(Mutant::QuestionForEver)
}

/// Sends parts of answers to an orchestrator, as long as there is room.
fn part_sender(
    transmits: &mut VecDeque<(usize, Vec<u8>)>,
    orchestrator: usize,
) -> impl FnMut(Vec<u8>) + '_ {
    move |datagram| {
        if transmits.len() < PARTS_MAX {
            transmits.push_back((orchestrator, datagram));
        }
    }
}

/// Whether facts were posted too long ago to be true still.
fn are_old(now: Time, posted: Time) -> bool {
    now.since(posted) >= FACTS_AGE_MAX && !mutant::active(Mutant::FactsForEver)
}

/// Whether an orchestrator that says it leads in this term is the leader, where another one said so then. One that was replaced does
/// not know it until it asks the store.
fn may_lead(now: Time, before: Option<Leader>, term: u64) -> bool {
    before.is_none_or(|known| {
        term >= known.term
            || now.since(known.heard) >= TERM_FORGOTTEN_AFTER
            || mutant::active(Mutant::FormerLeaderHeard)
    })
}

/// Whether the next part of an epoch is asked for, whose last part came then: always, also for one that was lost.
fn asks(now: Time, came: Time, interval: Duration) -> bool {
    now.since(came) < interval || !mutant::active(Mutant::PartNotRepeated)
}

impl Peer {
    /// The usage that the next heartbeat has: of a few tenants, in turn.
    fn next_usage<'u>(
        &mut self,
        all: &'u [TenantUsage],
    ) -> impl Iterator<Item = TenantUsage> + use<'u> {
        let first = match all.len() {
            0 => 0,
            count => self.tenant % count,
        };
        let count = all.len().min(USAGE_AT_ONCE);
        self.tenant = match mutant::active(Mutant::FirstTenantsAlone) {
            true => 0,
            false => first + count,
        };
        self.untold = self.untold.saturating_sub(count);
        all.iter().cycle().skip(first).take(count).cloned()
    }

    fn send_soon(&mut self, now: Time) {
        let earliest = self.sent.map_or(now, |(_, at)| now.max(at + SPACING));
        self.next = self.next.min(earliest);
    }
}
