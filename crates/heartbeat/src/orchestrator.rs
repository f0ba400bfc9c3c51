//! The orchestrator's end: believes fresh heartbeats, answers them, and hands epochs to processes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use asterism_epochs::{EPOCH_BYTES_MAX, Process};
use asterism_placement::Time;
use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::challenge::Challenges;
use crate::envelope;
use crate::message::{Heartbeat, HostMessage, LeaderHeard, Part, RegistrationRefused, Reply};
use crate::mutant::{self, Mutant};
use crate::parts;
use crate::question::AnswerPart;
use crate::questions::{AskError, Ended, HEARD_WITHIN, NoAnswer, Questions, Target};

/// Processes of one name that are known at a time; beyond, the one that was silent for longest is forgotten.
pub const PROCESSES_MAX: usize = 4;
/// Datagrams that wait to be sent at most; beyond, the oldest is lost, as on any network.
const TRANSMITS_MAX: usize = 1_024;
/// Heartbeats that wait to be polled at most; beyond, the oldest is lost.
const EVENTS_MAX: usize = 1_024;

/// How an [`OrchestratorLink`] is made.
#[derive(Clone, Debug)]
pub struct OrchestratorLinkConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its keys.
    pub keys: KeyRing,
    /// Random bytes of this start.
    pub salt: [u8; 16],
    /// Random bytes of this start, which nobody else knows: challenges are made of them.
    pub secret: [u8; 32],
    /// The names that hosts may have.
    pub names: Names,
}

/// The names that hosts of a cluster may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// These.
    Listed(Vec<String>),
    /// Any, [`NAMES_MAX`] at a time.
    Any,
}

/// Names that are known at a time where hosts may have any: two for each place that a cluster can have. Of one that was silent for
/// longer than [`FORGOTTEN_AFTER`] nothing is known any more when another one needs the room; without room a new one is not heard.
pub const NAMES_MAX: usize = 128;
/// Recorded heartbeats are not believed for that long: challenges are at most four seconds old.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// What an orchestrator learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrchestratorEvent {
    /// A fresh heartbeat, and when the host heard the leading orchestrator last. Its name may be no place of the cluster.
    Heartbeat(Heartbeat, Option<LeaderHeard>),
    /// What became of the question with this number.
    Answer(u64, Result<Vec<u8>, NoAnswer>),
}

/// Why datagrams were not believed, each counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Not sealed under a key of this cluster.
    pub not_sealed: u64,
    /// Sealed, and no heartbeat: another version's, perhaps.
    pub malformed: u64,
    /// The challenge was too old, or none. The sender was given the current one.
    pub stale: u64,
    /// A heartbeat that came before, or that a later one has overtaken.
    pub repeated: u64,
    /// The process is known to have ended, or says of itself what it is not.
    pub ended: u64,
    /// There are too many names.
    pub names: u64,
    /// A part of an answer to no question that is under way: it came twice, or too late.
    pub not_asked: u64,
}

/// What an [`OrchestratorLink`] has done. For metrics; the figures only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Heartbeats that were believed.
    pub heartbeats: u64,
    /// Datagrams that were not.
    pub refused: Refused,
    /// Answers.
    pub replies: u64,
    /// Of these, answers with a part of an epoch.
    pub parts: u64,
    /// Questions to hosts, repetitions included.
    pub questions: u64,
    /// Parts of answers that were taken.
    pub answer_parts: u64,
}

/// Why an epoch is not offered. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// Nothing was heard of this process.
    #[error("the process was not heard, so there is no address to hand the epoch to")]
    NotHeard,
    /// The text is too long.
    #[error("{0} bytes are no epoch: it has {EPOCH_BYTES_MAX} at most")]
    TooLong(usize),
}

/// An epoch for one process.
#[derive(Clone, Debug)]
struct Offer {
    epoch: u32,
    text: String,
    digest: [u8; 16],
}

/// One start of a host's process.
#[derive(Debug)]
struct Peer {
    salt: [u8; 16],
    sequence: u64,
    process: Process,
    address: SocketAddr,
    heard: Time,
    offer: Option<Offer>,
    refused: Option<RegistrationRefused>,
}

/// The link of one start of an orchestrator to all hosts. The verbs: [`OrchestratorLink::handle`],
/// [`OrchestratorLink::poll_transmit`], [`OrchestratorLink::poll_event`]; by time alone, questions are due:
/// [`OrchestratorLink::poll_timeout`], [`OrchestratorLink::handle_timeout`].
#[derive(Debug)]
pub struct OrchestratorLink {
    envelope: Envelope,
    challenges: Challenges,
    hosts: BTreeMap<String, Vec<Peer>>,
    /// Whether hosts may have any name.
    is_open: bool,
    /// The term in which this orchestrator leads.
    leads: Option<u64>,
    questions: Questions,
    transmits: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<OrchestratorEvent>,
    traffic: Traffic,
}

impl OrchestratorLink {
    /// A link that has heard nothing.
    #[must_use]
    pub fn new(config: OrchestratorLinkConfig) -> OrchestratorLink {
        let (names, is_open) = match config.names {
            Names::Listed(names) => (names, false),
            Names::Any => (Vec::new(), true),
        };
        let hosts = names.into_iter().map(|name| (name, Vec::new()));
        let (cluster, keys, salt) = (config.cluster, config.keys, config.salt);
        OrchestratorLink {
            questions: Questions::new(cluster, keys.clone(), salt),
            envelope: envelope::of_orchestrator(cluster, keys, salt),
            challenges: Challenges::new(config.secret),
            hosts: hosts.collect(),
            is_open,
            leads: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            traffic: Traffic::default(),
        }
    }

    /// Goes on under other keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.questions.set_keys(keys.clone());
        self.envelope.set_keys(keys);
    }

    /// Says in each answer from now on in which term this orchestrator leads.
    pub fn set_leads(&mut self, term: Option<u64>) {
        self.leads = term;
    }

    /// Takes a datagram.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        let refused = &mut self.traffic.refused;
        let Some(opened) = self.envelope.open(datagram) else {
            refused.not_sealed += 1;
            return;
        };
        let (salt, sequence) = (opened.salt, opened.sequence);
        if opened.sender == envelope::ANSWERING {
            let Some(part) = AnswerPart::decode(opened.message) else {
                refused.malformed += 1;
                return;
            };
            return self.take_answer(now, salt, &part);
        }
        let Some(message) = HostMessage::decode(opened.message) else {
            refused.malformed += 1;
            return;
        };
        if !self.challenges.is_fresh(now, &message.challenge) {
            refused.stale += 1;
            return self.reply(now, from, (salt, sequence), true, (None, None));
        }
        let HostMessage {
            heartbeat,
            wants,
            leader,
            ..
        } = message;
        if self.is_open && !self.has_room(now, &heartbeat.host) {
            return self.traffic.refused.names += 1;
        }
        let refused = &mut self.traffic.refused;
        let (mut part, mut why) = (None, None);
        if let Some(peers) = self.hosts.get_mut(&heartbeat.host) {
            match admit(peers, salt, sequence, &heartbeat) {
                Admitted::Repeated => return refused.repeated += 1,
                Admitted::Ended => return refused.ended += 1,
                Admitted::Fresh(place) => {
                    let peer = &mut peers[place];
                    (peer.sequence, peer.address, peer.heard) = (sequence, from, now);
                    part = peer.next_part(heartbeat.epoch, wants);
                    why = peer.refused;
                }
            }
        }
        self.traffic.heartbeats += 1;
        self.push_event(OrchestratorEvent::Heartbeat(heartbeat, leader));
        self.reply(now, from, (salt, sequence), false, (part, why));
    }

    /// Makes room for a name, if it is not known; whether there is.
    fn has_room(&mut self, now: Time, name: &str) -> bool {
        if self.hosts.contains_key(name) {
            return true;
        }
        if self.hosts.len() >= NAMES_MAX {
            let heard = |peers: &Vec<Peer>| peers.iter().map(|peer| peer.heard).max();
            let mut names = self.hosts.iter().map(|(name, peers)| (heard(peers), name));
            let silent = |at: &Time| now.since(*at) >= FORGOTTEN_AFTER;
            let oldest = names.by_ref().min();
            let Some((heard, oldest)) = oldest.map(|(heard, name)| (heard, name.clone())) else {
                return false;
            };
            if !heard.as_ref().is_none_or(silent) {
                return false;
            }
            self.hosts.remove(&oldest);
        }
        self.hosts.insert(name.to_owned(), Vec::new());
        true
    }

    /// Says in each answer to a process why it gets no place, until it gets one.
    pub fn refuse(&mut self, host: &str, process: Process, why: Option<RegistrationRefused>) {
        let peers = self.hosts.get_mut(host).into_iter().flatten();
        for peer in peers.filter(|peer| peer.process == process) {
            peer.refused = why;
        }
    }

    /// Hands an epoch to one process, now and with each answer until its heartbeats show that epoch or a later one.
    ///
    /// # Errors
    /// Nothing was heard of the process yet, or the text is no epoch.
    pub fn offer(
        &mut self,
        now: Time,
        host: &str,
        process: Process,
        epoch: u32,
        text: &str,
    ) -> Result<(), OfferError> {
        if text.len() > EPOCH_BYTES_MAX {
            return Err(OfferError::TooLong(text.len()));
        }
        let is_it = |peer: &Peer| peer.process == process || mutant::active(Mutant::OfferByName);
        let peer = self
            .hosts
            .get_mut(host)
            .and_then(|peers| peers.iter_mut().find(|peer| is_it(peer)))
            .ok_or(OfferError::NotHeard)?;
        let digest = parts::digest_of(text.as_bytes());
        let is_new = |offer: &Offer| (offer.epoch, offer.digest) != (epoch, digest);
        if peer.offer.as_ref().is_none_or(is_new) {
            peer.offer = Some(Offer {
                epoch,
                text: text.to_owned(),
                digest,
            });
        }
        peer.refused = None;
        let (address, salt, sequence) = (peer.address, peer.salt, peer.sequence);
        let part = parts::part(epoch, text, digest, 0);
        self.reply(now, address, (salt, sequence), false, (part, None));
        Ok(())
    }

    /// Asks the process of a host that was heard last a question, and returns the question's number; [`OrchestratorEvent::Answer`] has
    /// the answer. The question must change nothing at the host, which may work on it more than once.
    ///
    /// # Errors
    /// [`AskError`]; nothing is sent.
    pub fn ask(&mut self, now: Time, host: &str, question: &[u8]) -> Result<u64, AskError> {
        if target(&self.hosts, now, host).is_none() {
            return Err(AskError::NotHeard);
        }
        let number = self.questions.ask(now, host, question)?;
        self.handle_timeout(now);
        Ok(number)
    }

    /// When [`OrchestratorLink::handle_timeout`] is to be called; `None` while no question is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.questions.poll_timeout()
    }

    /// Asks again what is not answered, and gives up what is late.
    pub fn handle_timeout(&mut self, now: Time) {
        let (hosts, mut sent, mut ended) = (&self.hosts, Vec::new(), Vec::new());
        self.questions.handle_timeout(
            now,
            |host| target(hosts, now, host),
            |to, datagram| sent.push((to, datagram)),
            |end| ended.push(end),
        );
        self.traffic.questions += sent.len() as u64;
        for (to, datagram) in sent {
            self.push_transmit(to, datagram);
        }
        for end in ended {
            self.end(end);
        }
    }

    fn take_answer(&mut self, now: Time, salt: [u8; 16], part: &AnswerPart) {
        match self.questions.take(now, salt, part) {
            None => self.traffic.refused.not_asked += 1,
            Some(end) => {
                self.traffic.answer_parts += 1;
                if let Some(end) = end {
                    self.end(end);
                }
                // The next window, or the next question.
                self.handle_timeout(now);
            }
        }
    }

    fn end(&mut self, (number, result): Ended) {
        self.push_event(OrchestratorEvent::Answer(number, result));
    }

    fn push_event(&mut self, event: OrchestratorEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn push_transmit(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.transmits.len() >= TRANSMITS_MAX {
            self.transmits.pop_front();
        }
        self.transmits.push_back((to, datagram));
    }

    /// The next datagram, and where it goes.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.transmits.pop_front()
    }

    /// The next thing that was learnt.
    pub fn poll_event(&mut self) -> Option<OrchestratorEvent> {
        self.events.pop_front()
    }

    /// What this link has done.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn reply(
        &mut self,
        now: Time,
        to: SocketAddr,
        (salt, sequence): ([u8; 16], u64),
        is_stale: bool,
        (part, refused): (Option<Part>, Option<RegistrationRefused>),
    ) {
        self.traffic.replies += 1;
        self.traffic.parts += u64::from(part.is_some());
        let reply = Reply {
            challenge: self.challenges.current(now),
            salt,
            sequence,
            is_stale,
            leads: self.leads,
            part,
            refused,
        };
        let datagram = self.envelope.seal(|out| reply.encode(out));
        self.push_transmit(to, datagram);
    }
}

/// The process of a host that was heard last, unless that was too long ago.
fn target(
    hosts: &BTreeMap<String, Vec<Peer>>,
    now: Time,
    host: &str,
) -> Option<Target<SocketAddr>> {
    let last = hosts.get(host)?.iter().max_by_key(|peer| peer.heard)?;
    (now.since(last.heard) < HEARD_WITHIN).then_some(Target {
        salt: last.salt,
        sequence: last.sequence,
        address: last.address,
    })
}

enum Admitted {
    /// It is of the process at this place.
    Fresh(usize),
    Repeated,
    Ended,
}

/// Finds the process of a heartbeat among those of its name, or adds it.
fn admit(peers: &mut Vec<Peer>, salt: [u8; 16], sequence: u64, heartbeat: &Heartbeat) -> Admitted {
    let process = heartbeat.process;
    if let Some(place) = peers.iter().position(|peer| peer.salt == salt) {
        return match &peers[place] {
            peer if peer.process != process => Admitted::Ended,
            peer if is_repeated(sequence, peer) => Admitted::Repeated,
            _ => Admitted::Fresh(place),
        };
    }
    let has_ended = peers.iter().any(|peer| peer.process.proves_ended(process));
    if has_ended && !mutant::active(Mutant::EndedBelieved) {
        return Admitted::Ended;
    }
    peers.retain(|peer| !process.proves_ended(peer.process));
    if peers.len() >= PROCESSES_MAX
        && let Some(place) = (0..peers.len()).min_by_key(|place| peers[*place].heard)
    {
        peers.swap_remove(place);
    }
    peers.push(Peer {
        salt,
        sequence: 0,
        process,
        // Both are set by the heartbeat that is admitted.
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        heard: Time::ZERO,
        offer: None,
        refused: None,
    });
    Admitted::Fresh(peers.len() - 1)
}

/// Whether a heartbeat came before, or a later one of its process did.
fn is_repeated(sequence: u64, peer: &Peer) -> bool {
    sequence <= peer.sequence && !mutant::active(Mutant::RepeatedBelieved)
}

impl Peer {
    /// The part to send to a process that has this epoch; forgets an offer that it has taken.
    fn next_part(&mut self, epoch: u32, wants: Option<(u32, u32)>) -> Option<Part> {
        self.offer
            .take_if(|offer| epoch >= offer.epoch && !mutant::active(Mutant::OfferNeverForgotten));
        let offer = self.offer.as_ref()?;
        let offset = match wants {
            Some((wanted, offset)) if wanted == offer.epoch => offset,
            _ => 0,
        };
        parts::part(offer.epoch, &offer.text, offer.digest, offset)
    }
}
