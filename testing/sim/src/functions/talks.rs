//! Conversations through the hosts: clients that ask and ask again, servers that answer, each direction on its own way.
//!
//! NAT, firewall and balancer are judged by them. The number of a conversation stands in the upper half of TCP sequence numbers, and
//! in the payload of datagrams: so anyone who gets a packet sees whose it is, whatever became of its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::{Endpoint, NetworkFunction, Packet, PortNumber, Protocol, TcpFlags};
use asterism_placement::Time;
use asterism_state::hash;

use super::bindings::Bindings;
use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, Place};
use super::plan::Plan;
use crate::report::Failure;
use crate::scenario::Draws;

/// The number of nobody's conversation: no packet with it may pass.
pub(crate) const NOBODY: u16 = 0xffff;
/// The number of resets that a stranger sends in a client's name: they may pass, as nobody's, and end nothing.
pub(crate) const BLIND: u16 = 0x7000;
/// A client asks again after so long.
const ASKS_AGAIN: Duration = Duration::from_millis(25);
/// Rounds that each conversation must have once links are good.
const ROUNDS_IN_CALM: u32 = 2;
/// Bytes of a message.
const MESSAGE: usize = 8;
/// Sequence numbers of a server are so much greater than its client's.
const SERVER: u32 = 0x8000;
/// Those of the next connection between the same ends are so much greater, or smaller: beyond any window.
const NEXT: u32 = 0x4000;
/// A message that was sent twice by the network comes the second time after at most so long, in microseconds.
const REPEATED_WITHIN_US: u64 = 4_000;

/// The answer to a SYN.
pub(super) const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);

/// What a function is to those who talk through it.
pub(crate) trait Service {
    /// The function.
    type Function: NetworkFunction;
    /// The port that clients come by, and the one that servers come by.
    const CLIENTS: PortNumber;
    /// See [`Service::CLIENTS`].
    const SERVERS: PortNumber;
    /// Whether a conversation may come to nothing if only the dead host knew how it began.
    const MAY_LOSE: bool;
    /// Whether several flows may not have the same at once.
    const EXCLUSIVE: bool;
    /// The function, configured.
    fn function(&mut self) -> Self::Function;
    /// Which hosts talk to which others.
    fn ends(&self, number: u16, draws: &mut Draws) -> (Endpoint, Endpoint);
    /// What a flow is given, of a packet that left for a server: the flow, and what.
    fn given(&self, talk: &Talk, source: Endpoint, destination: Endpoint) -> Option<(u64, u64)>;
    /// The flow of a client's packet.
    fn flow(&self, talk: &Talk) -> u64;
    /// What must hold of an instance's state once all is reported, if it does not.
    fn mistaken(&self, _: &<Self::Function as NetworkFunction>::State) -> Option<String> {
        None
    }
    /// A packet that must not pass, or if it is a [blind](BLIND) reset not end anything, and the port that it comes by.
    fn attack(&mut self, _: &mut Draws, _: &[Talk]) -> Option<(PortNumber, Vec<u8>)> {
        None
    }
}

/// How far a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Going,
    Over,
    /// Only a dead host knew how it began.
    Lost,
}

/// A conversation.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) number: u16,
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    /// Rounds after which it ends; TCP alone.
    rounds: Option<u32>,
    /// The next to be answered: 0 is the handshake.
    step: u32,
    due: Time,
    think: Duration,
    state: State,
    is_closing: bool,
    /// Connections between the same ends before this one.
    pub(crate) before: u16,
    /// What the server agreed with to a connection of which it has heard nothing since: it says so again.
    accepts: Option<Vec<u8>>,
    /// Rounds since links are good.
    in_calm: u32,
    /// When an instance of a host last handled what begins or ends it.
    touched: BTreeMap<usize, Time>,
}

impl Talk {
    fn is_tcp(&self) -> bool {
        self.client.protocol == Protocol::TCP
    }

    /// The first sequence number of the client; those of the server are so much more.
    fn base(&self) -> u32 {
        (u32::from(self.number) << 16) + u32::from(self.before % 2) * NEXT
    }

    /// The client's packet of a step.
    fn message(&self, step: u32) -> Vec<u8> {
        let offset = step.saturating_sub(1) * MESSAGE as u32;
        let (flags, sequence, acknowledgement, length) = match step {
            0 => (TcpFlags::SYN, 0, None, 0),
            _ if self.is_closing => (FIN_ACK, 1 + offset, Some(1 + offset), 0),
            _ => (TcpFlags::ACK, 1 + offset, Some(1 + offset), MESSAGE),
        };
        let acknowledgement = acknowledgement.map_or(0, |offset| self.base() + SERVER + offset);
        let mut payload = [0; MESSAGE];
        payload[..2].copy_from_slice(&self.number.to_be_bytes());
        payload[2..6].copy_from_slice(&step.to_be_bytes());
        let segment = Segment {
            sequence: self.base() + sequence,
            acknowledgement,
            window: 8_192,
            ..Segment::with_flags(flags)
        };
        frame(
            (self.client, self.server),
            &segment,
            &payload[..length.max(self.least())],
        )
    }

    /// Datagrams always say whose they are.
    fn least(&self) -> usize {
        if self.is_tcp() { 0 } else { MESSAGE }
    }
}

/// A packet between two ends.
pub(crate) fn frame(ends: (Endpoint, Endpoint), segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ends;
    let header = Header4::between(from.address, to.address);
    let mut bytes = vec![0; 256];
    let length = match from.protocol {
        Protocol::TCP => build::tcp4(&header, from.port, to.port, segment, payload, &mut bytes),
        _ => build::udp4(&header, from.port, to.port, payload, &mut bytes),
    };
    bytes.truncate(length.expect("a short packet fits"));
    bytes
}

/// What a packet says of itself.
pub(crate) struct Message {
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    pub(crate) number: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// `None` of what is no packet of a conversation.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let mut frame = frame.to_vec();
        let packet = Packet::parse(&mut frame).ok()?;
        let flow = packet.flow4()?;
        let payload = packet.payload().to_vec();
        let sequence = packet.tcp_sequence().unwrap_or_default();
        let number = match flow.source().protocol {
            Protocol::TCP => (sequence >> 16) as u16,
            _ => u16::from_be_bytes([*payload.first()?, *payload.get(1)?]),
        };
        Some(Self {
            source: flow.source(),
            destination: flow.destination(),
            number,
            flags: packet.tcp_flags().unwrap_or_default(),
            sequence,
            acknowledgement: packet.tcp_acknowledgement().unwrap_or_default(),
            payload,
        })
    }

    fn is_tcp(&self) -> bool {
        self.source.protocol == Protocol::TCP
    }

    /// The step of a packet of a client, or of an answer.
    fn step(&self) -> u32 {
        if !self.is_tcp() {
            let word = self.payload.get(2..6).and_then(|word| word.try_into().ok());
            return word.map_or(0, u32::from_be_bytes);
        }
        if self.flags.contains(TcpFlags::SYN) {
            return 0;
        }
        let offset = (self.sequence & (NEXT - 1)).saturating_sub(1);
        offset / MESSAGE as u32 + 1
    }

    /// What a server answers; nothing to what only acknowledges.
    fn answer(&self) -> Option<Vec<u8>> {
        let ends = (self.destination, self.source);
        let size = self.payload.len() as u32;
        let (flags, sequence, takes) = if self.flags.contains(TcpFlags::SYN) {
            (SYN_ACK, self.sequence + SERVER, 1)
        } else if self.flags.contains(TcpFlags::FIN) {
            (FIN_ACK, self.acknowledgement, 1)
        } else if size > 0 {
            (TcpFlags::ACK, self.acknowledgement, size)
        } else {
            return None;
        };
        let segment = Segment {
            sequence,
            acknowledgement: self.sequence.wrapping_add(takes),
            window: 8_192,
            ..Segment::with_flags(flags)
        };
        Some(frame(ends, &segment, &self.payload))
    }
}

/// The roll call of a host: whose packets it was given, and which of them were answered.
#[derive(Debug, Default)]
struct Call {
    /// Where answers go.
    next: usize,
    asked: BTreeSet<u16>,
    answered: BTreeSet<u16>,
}

/// Conversations through one function.
pub(crate) struct Talks<S: Service> {
    service: S,
    draws: Draws,
    talks: Vec<Talk>,
    bindings: Bindings,
    /// What comes to the hosts, when.
    coming: BTreeMap<(Time, u64), Arrival>,
    sent: u64,
    calm_since: Option<Time>,
    call: Option<Call>,
    /// What each conversation was given when all had settled.
    settled: BTreeMap<u16, u64>,
    attacks: u64,
    judged: BTreeMap<&'static str, u64>,
}

impl<S: Service> Talks<S> {
    pub(crate) fn new(service: S, plan: &Plan) -> Self {
        let mut draws = super::drive::draws(plan);
        let count = draws.within(10, 22) as u16;
        let talks = (0..count).map(|number| {
            let (client, server) = service.ends(number, &mut draws);
            let is_tcp = client.protocol == Protocol::TCP;
            let rounds = draws.within(2, 30) as u32;
            Talk {
                number,
                client,
                server,
                rounds: (is_tcp && draws.percent(40)).then_some(rounds),
                step: u32::from(!is_tcp),
                due: Time::from_micros(60_000) + draws.micros(0, plan.load.as_micros() as u64),
                think: draws.micros(2_000, 14_000),
                state: State::Going,
                is_closing: false,
                before: 0,
                accepts: None,
                in_calm: 0,
                touched: BTreeMap::new(),
            }
        });
        let talks = talks.collect();
        Self {
            service,
            draws,
            talks,
            bindings: Bindings::new(plan),
            coming: BTreeMap::new(),
            sent: 0,
            calm_since: None,
            call: None,
            settled: BTreeMap::new(),
            attacks: 0,
            judged: BTreeMap::new(),
        }
    }

    fn send(&mut self, at: Time, arrival: Arrival) {
        self.sent += 1;
        self.coming.insert((at, self.sent), arrival);
    }

    fn path(number: u16, way: u64) -> u64 {
        hash::words(number.into(), way, 0)
    }

    /// A packet came out on the servers' side.
    fn reaches_server(&mut self, said: &Message, at: Place, now: Time) -> Result<(), Failure> {
        if said.number == BLIND && said.flags == TcpFlags::RST {
            let passed = "blind resets that passed";
            *self.judged.entry(passed).or_default() += 1;
            return Ok(());
        }
        let Some(talk) = self.talks.get(usize::from(said.number)) else {
            return Err(Failure::new(
                "only what may pass does",
                format!(
                    "{at:?} let a packet of {} to {} pass",
                    said.source, said.destination
                ),
            ));
        };
        if let Some((flow, value)) = self.service.given(talk, said.source, said.destination) {
            let given = self.bindings.leaves(flow, value, at, now);
            given.map_err(|why| Failure::new("a flow keeps what it was given", why))?;
            if S::EXCLUSIVE
                && let Some(other) = self.bindings.others(flow, value)
            {
                return Err(Failure::new(
                    "no two flows have the same",
                    format!("{at:?}: {value:x} is of flows {flow:x} and {other:x}"),
                ));
            }
            let number = said.number;
            if self.call.is_some() && *self.settled.entry(number).or_insert(value) != value {
                return Err(Failure::new(
                    "all hosts give a flow the same",
                    format!(
                        "{at:?} gives {value:x} to talk {number}, another host {:x}",
                        self.settled[&number]
                    ),
                ));
            }
            *self.judged.entry("given").or_default() += 1;
        }
        let answer = said.answer();
        if let Some(talk) = self.talks.get_mut(usize::from(said.number)) {
            let begins = said.flags.contains(TcpFlags::SYN);
            talk.accepts = answer.clone().filter(|_| begins);
        }
        let Some(frame) = answer else {
            return Ok(());
        };
        let arrival = Arrival {
            port: S::SERVERS,
            path: Self::path(said.number, 2),
            host: self.call.as_ref().map(|call| call.next),
            frame,
        };
        let takes = match self.call {
            Some(_) => Duration::from_micros(300),
            None => self.draws.micros(50, 3_000),
        };
        self.send(now + takes, arrival.clone());
        if self.call.is_none() && self.draws.percent(4) {
            let later = self.draws.micros(10, REPEATED_WITHIN_US);
            self.send(now + takes + later, arrival);
        }
        Ok(())
    }

    /// A packet came out on the clients' side.
    fn reaches_client(&mut self, said: &Message, at: Place, now: Time) -> Result<(), Failure> {
        let calm = self.calm_since.is_some();
        let Some(talk) = self.talks.get_mut(usize::from(said.number)) else {
            return Err(Failure::new(
                "only what may pass does",
                format!(
                    "{at:?} let a packet of {} to {} pass",
                    said.source, said.destination
                ),
            ));
        };
        if (said.source, said.destination) != (talk.server, talk.client) {
            return Err(Failure::new(
                "answers reach who asked",
                format!(
                    "{at:?} sent an answer of {} to {}, which is of {} to {}",
                    said.source, said.destination, talk.server, talk.client
                ),
            ));
        }
        *self.judged.entry("answered").or_default() += 1;
        if let Some(call) = &mut self.call {
            call.answered.insert(said.number);
            return Ok(());
        }
        if talk.state != State::Going || said.step() != talk.step {
            return Ok(());
        }
        if said.flags.contains(TcpFlags::FIN) {
            talk.state = State::Over;
            // The last acknowledgement, which nobody answers.
            let segment = Segment {
                sequence: said.acknowledgement,
                acknowledgement: said.sequence.wrapping_add(1),
                window: 8_192,
                ..Segment::with_flags(TcpFlags::ACK)
            };
            let frame = frame((talk.client, talk.server), &segment, &[]);
            let path = Self::path(said.number, 1);
            let arrival = Arrival {
                port: S::CLIENTS,
                path,
                host: None,
                frame,
            };
            self.send(now, arrival);
            return Ok(());
        }
        if talk.is_closing {
            return Ok(());
        }
        talk.step += 1;
        talk.in_calm += u32::from(calm);
        talk.due = now + talk.think;
        let rounds = talk.step.saturating_sub(1);
        if talk.rounds.is_some_and(|last| rounds >= last) {
            talk.is_closing = true;
        }
        Ok(())
    }
}

impl<S: Service> World for Talks<S> {
    type Function = S::Function;

    fn function(&mut self) -> S::Function {
        self.service.function()
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        if self.call.is_none() {
            for at in 0..self.talks.len() {
                let talk = &mut self.talks[at];
                if talk.state != State::Going || talk.due > now {
                    continue;
                }
                talk.due = now + ASKS_AGAIN;
                let accepts = talk.accepts.clone().filter(|_| talk.step > 0);
                let accepts = accepts.map(|frame| Arrival {
                    port: S::SERVERS,
                    path: Self::path(talk.number, 2),
                    host: None,
                    frame,
                });
                let arrival = Arrival {
                    port: S::CLIENTS,
                    path: Self::path(talk.number, 1),
                    host: None,
                    frame: talk.message(talk.step),
                };
                if self.draws.percent(4) {
                    let later = self.draws.micros(10, REPEATED_WITHIN_US);
                    self.send(now + later, arrival.clone());
                }
                self.send(now, arrival);
                if let Some(accepts) = accepts {
                    self.send(now + ASKS_AGAIN / 2, accepts);
                }
            }
            if self.draws.percent(12)
                && let Some((port, frame)) = self.service.attack(&mut self.draws, &self.talks)
            {
                self.attacks += 1;
                let path = self.draws.word();
                let arrival = Arrival {
                    port,
                    path,
                    host: None,
                    frame,
                };
                self.send(now, arrival);
            }
        }
        while let Some(first) = self.coming.first_entry()
            && first.key().0 <= now
        {
            out.push(first.remove());
        }
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<S::Function>) {
        let Some(said) = Message::of(&arrival.frame) else {
            return;
        };
        let Some(talk) = self.talks.get_mut(usize::from(said.number)) else {
            return;
        };
        if arrival.port == S::CLIENTS {
            let flow = self.service.flow(talk);
            self.bindings.arrives(flow, at, hosts);
        }
        if said.step() <= 1 || talk.is_closing || talk.state != State::Going {
            talk.touched.insert(at.host, hosts.now());
        }
    }

    fn leaves(&mut self, left: Left, hosts: &Hosts<S::Function>) -> Result<(), Failure> {
        let Some(said) = Message::of(&left.frame) else {
            return Ok(());
        };
        let now = hosts.now();
        if left.port == S::SERVERS {
            self.reaches_server(&said, left.at, now)
        } else {
            self.reaches_client(&said, left.at, now)
        }
    }

    fn died(&mut self, victim: usize, reported: Time, _: &Hosts<S::Function>) {
        self.bindings.died(victim, reported);
        for talk in &mut self.talks {
            let touched = talk.touched.remove(&victim);
            // A packet that waited was handled later than it came.
            let late = Duration::from_millis(25);
            let may_lose = S::MAY_LOSE && !self.bindings.holds();
            if may_lose && touched.is_some_and(|touched| touched + late >= reported) {
                talk.state = State::Lost;
            }
        }
    }

    fn calms(&mut self, now: Time) {
        self.calm_since = Some(now);
    }

    fn unfinished(&self) -> Option<String> {
        let going = |talk: &&Talk| {
            talk.state == State::Going && (talk.is_closing || talk.in_calm < ROUNDS_IN_CALM)
        };
        let talk = self.talks.iter().find(going)?;
        Some(format!("{talk:?}"))
    }

    /// Who ended a connection opens another one between the same ends.
    fn begins_again(&mut self, now: Time) -> bool {
        self.coming.clear();
        for talk in &mut self.talks {
            if talk.state != State::Over {
                continue;
            }
            talk.state = State::Going;
            (talk.step, talk.in_calm, talk.rounds) = (0, 0, None);
            (talk.is_closing, talk.due) = (false, now);
            talk.before += 1;
            *self
                .judged
                .entry("connections between the ends of one that ended")
                .or_default() += 1;
        }
        true
    }

    fn settles(&mut self, hosts: &Hosts<S::Function>) -> Result<(), Failure> {
        // Of what is still on its way nothing matters any more.
        self.coming.clear();
        self.judge(hosts)
    }

    fn roll_call(&mut self, host: usize, next: usize, _: Time, out: &mut Vec<Arrival>) {
        self.coming.clear();
        let mut call = Call {
            next,
            ..Call::default()
        };
        for talk in &self.talks {
            if talk.state == State::Going && talk.step > 0 {
                call.asked.insert(talk.number);
                out.push(Arrival {
                    port: S::CLIENTS,
                    path: Self::path(talk.number, 1),
                    host: Some(host),
                    frame: talk.message(talk.step),
                });
            }
        }
        self.call = Some(call);
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        let Some(call) = &self.call else {
            return Ok(());
        };
        *self.judged.entry("roll calls").or_default() += call.asked.len() as u64;
        match call.asked.difference(&call.answered).next() {
            Some(number) => Err(Failure::new(
                "established flows go on at every host",
                format!(
                    "m{host}, answers by m{}: {:?}",
                    call.next,
                    self.talks[usize::from(*number)]
                ),
            )),
            None => Ok(()),
        }
    }

    fn judge(&mut self, hosts: &Hosts<S::Function>) -> Result<(), Failure> {
        for (at, instance) in hosts.instances() {
            if let Some(mistake) = self.service.mistaken(instance.state()) {
                return Err(Failure::new(
                    "what follows from the state is right",
                    format!("{at:?}: {mistake}"),
                ));
            }
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.judged.clone();
        let of = |state| self.talks.iter().filter(|talk| talk.state == state).count() as u64;
        counts.insert("attacks", self.attacks);
        counts.insert("talks lost with their host", of(State::Lost));
        counts.insert("bindings given again", self.bindings.again);
        counts.insert("bindings lost with their host", self.bindings.lost);
        counts.insert("packets that had to keep a binding", self.bindings.kept);
        counts
    }
}
