//! A balancer that flows tell of a backend which stops to answer and answers again later, as its clients and backends see it.
//!
//! New flows leave the silent backend once so many places of failures are known as its service says, for whole seconds, and come back:
//! at its first answer, or 30 s later. A flow moves only from the silent backend, which did not answer it as far as the instance could
//! know, and not before silence has lasted. So those of the others never do, however often their SYNs come before the answer.
//! Where the silent one answers a flow late that was dealt to another meanwhile, the client talks to the one by the other and is
//! refused: this, and flows that only a dead host knew, is all that may break.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, Protocol, TcpFlags};
use asterism_functions::balancer::{
    Balancer, Choice, FAILURES, SILENCE_SECONDS, Service, VOTE_SECONDS,
};
use asterism_placement::Time;
use asterism_state::hash;

use super::bindings::Bindings;
use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use super::services::{backend_of, balancer};
use super::talks::{Message, SYN_ACK, frame};
use crate::report::Failure;
use crate::scenario::Draws;

/// The port of clients, and that of backends.
const CLIENTS: usize = 1;
const BACKENDS: usize = 0;
/// A connection is opened so often while it matters how many are, and while time is waited for.
const OPENS: Duration = Duration::from_millis(8);
const OPENS_SELDOM: Duration = Duration::from_millis(25);
/// What was sent in vain is sent again after so long.
const ASKS_AGAIN: Duration = Duration::from_millis(200);
/// New flows that must have avoided the silent backend before it returns.
const AVOIDING: u64 = 150;
/// Each host has dealt it a flow so long after it could be known, as often as connections are opened.
const BACK_WITHIN: Duration = Duration::from_secs(4);
/// No flow is dealt to another backend sooner after the fall: silence that counts was whole a second, and began before the fall by what
/// an answer takes.
const MOVES_AFTER: Duration = Duration::from_millis(900);
/// What an instance does is done so long before or after it is seen.
const HANDLED: Duration = Duration::from_millis(5);
/// Nobody dies later than this.
const ALL_DIED_BY: Time = Time::from_micros(1_000_000);
/// Bytes of a message, and messages of a connection.
const MESSAGE: u32 = 8;
const ROUNDS: u32 = 4;
/// Sequence numbers of backends are so much greater than their client's, and those of one backend than those of the one before.
const BACKEND: u32 = 0x8000;
const STEP: u32 = 0x100;
/// Connections that the roll call asks for at each host.
const CALLED: usize = 30;

/// A connection, as its client and its backends know it.
#[derive(Debug)]
struct Connection {
    client: Endpoint,
    /// The SYN is sent again after so long; `None`: not before the silent backend returns.
    patience: Option<Duration>,
    /// SYNs that follow at once, before there can be an answer.
    repeats: u32,
    due: Time,
    is_known: bool,
    /// Backends that got its SYN, each with its client and time.
    given: Vec<(u8, Place, Time)>,
    /// Who answered it, by which instance and when the answer left.
    answered: Option<(u8, Place, Time)>,
    round: u32,
    is_broken: bool,
    /// Instances that a packet came to which might deal it to another backend.
    may_move: BTreeSet<Place>,
    /// Instances that had to know when its first SYN came that the silent backend is to be avoided.
    avoids: BTreeSet<Place>,
}

/// An instance was informed that a flow failed.
#[derive(Debug)]
struct Note {
    place: usize,
    by: Place,
    at: Time,
}

#[derive(Debug, Default)]
struct Call {
    next: usize,
    asked: BTreeSet<u16>,
    answered: BTreeSet<u16>,
}

/// The world around a balancer of one watched service.
pub(crate) struct Watched {
    choice: Choice,
    backends: u8,
    passive: u8,
    draws: Draws,
    silent: u8,
    falls: Time,
    returns: Option<Time>,
    /// When it returns it answers what came meanwhile.
    keeps_queue: bool,
    queue: Vec<u16>,
    /// When it got a SYN last that it did not answer: no failure is of later.
    asked_in_vain: Time,
    connections: Vec<Connection>,
    next_open: Time,
    bindings: Bindings,
    notes: Vec<Note>,
    /// When the silent backend's answer to a SYN left last.
    answered: Time,
    living: Vec<usize>,
    /// When each host dealt it a new flow first, after it returned.
    back: BTreeMap<usize, Time>,
    back_by: Option<Time>,
    /// New flows of each backend while one was silent and avoided.
    dealt: BTreeMap<u8, u64>,
    coming: BTreeMap<(Time, u64), Arrival>,
    sent: u64,
    call: Option<Call>,
    judged: BTreeMap<&'static str, u64>,
}

impl Watched {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut draws = super::drive::draws(plan);
        let backends = draws.within(3, 6) as u8;
        let load = plan.load.as_micros() as u64;
        Self {
            choice: draws.one_of(&[Choice::LeastConnections, Choice::Hash]),
            backends,
            passive: draws.within(1, 3) as u8,
            silent: draws.within(0, u64::from(backends) - 1) as u8,
            falls: Time::from_micros(80_000) + draws.micros(0, load),
            returns: None,
            keeps_queue: draws.percent(70),
            queue: Vec::new(),
            asked_in_vain: Time::ZERO,
            connections: Vec::new(),
            next_open: Time::from_micros(60_000),
            bindings: Bindings::default(),
            notes: Vec::new(),
            answered: Time::ZERO,
            living: Vec::new(),
            back: BTreeMap::new(),
            back_by: None,
            dealt: BTreeMap::new(),
            coming: BTreeMap::new(),
            sent: 0,
            call: None,
            judged: BTreeMap::new(),
            draws,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.judged.entry(what).or_default() += 1;
    }

    fn counted(&self, what: &'static str) -> u64 {
        self.judged.get(what).copied().unwrap_or_default()
    }

    fn send(&mut self, at: Time, port: usize, number: u16, frame: Vec<u8>) {
        self.sent += 1;
        let way = 1 + (port == BACKENDS) as u64;
        let host = self.call.as_ref().filter(|_| port == BACKENDS);
        let arrival = Arrival {
            port: PORTS[port],
            path: hash::words(number.into(), way, 0),
            host: host.map(|call| call.next),
            frame,
        };
        self.coming.insert((at, self.sent), arrival);
    }

    fn service(&self) -> Endpoint {
        super::services::virtual_service(Protocol::TCP)
    }

    fn is_silent(&self, backend: u8, now: Time) -> bool {
        backend == self.silent && now >= self.falls && !self.has_returned(now)
    }

    fn has_returned(&self, now: Time) -> bool {
        self.returns.is_some_and(|returns| now >= returns)
    }

    /// All living hosts dealt flows to the backend that returned.
    fn is_back(&self) -> bool {
        let is_back = |host: &usize| self.back.contains_key(host);
        self.returns.is_some() && !self.living.is_empty() && self.living.iter().all(is_back)
    }

    fn base(number: u16) -> u32 {
        u32::from(number) << 16
    }

    fn message(&self, number: u16) -> Vec<u8> {
        let connection = &self.connections[usize::from(number)];
        let ends = (connection.client, self.service());
        let Some((backend, ..)) = connection.answered else {
            let segment = Segment {
                sequence: Self::base(number),
                window: 8_192,
                ..Segment::with_flags(TcpFlags::SYN)
            };
            return frame(ends, &segment, &[]);
        };
        let offset = 1 + connection.round * MESSAGE;
        let segment = Segment {
            sequence: Self::base(number) + offset,
            acknowledgement: Self::base(number) + BACKEND + u32::from(backend) * STEP + offset,
            window: 8_192,
            ..Segment::with_flags(TcpFlags::ACK)
        };
        frame(ends, &segment, &[7; MESSAGE as usize])
    }

    /// What a backend says to a packet of a client.
    fn answer(&self, said: &Message, backend: u8) -> Vec<u8> {
        let begin = Self::base(said.number) + BACKEND + u32::from(backend) * STEP;
        let is_its = (begin..begin + STEP).contains(&said.acknowledgement);
        let (flags, sequence, takes) = if said.flags.contains(TcpFlags::SYN) {
            (SYN_ACK, begin, 1)
        } else if is_its {
            (
                TcpFlags::ACK,
                said.acknowledgement,
                said.payload.len() as u32,
            )
        } else {
            (TcpFlags::RST, said.acknowledgement, 0)
        };
        let segment = Segment {
            sequence,
            acknowledgement: said.sequence.wrapping_add(takes),
            window: 8_192,
            ..Segment::with_flags(flags)
        };
        frame((said.destination, said.source), &segment, &said.payload)
    }

    /// Notes of a place that no answer cleared.
    fn notes_of(&self, place: usize) -> impl Iterator<Item = &Note> {
        let stands = |at: Time| second(at) > second(self.answered + HANDLED);
        let notes = self.notes.iter();
        notes.filter(move |note| note.place == place && stands(note.at))
    }

    /// Whether an instance must know now that the silent backend is to be avoided.
    fn must_avoid(&self, at: Place, hosts: &Hosts<Balancer>) -> bool {
        let now = hosts.now();
        let mut places = 0;
        for place in 0..FAILURES {
            let notes = || self.notes_of(place).map(|note| note.at);
            let (Some(first), Some(last)) = (notes().min(), notes().max()) else {
                continue;
            };
            let stands = self
                .notes_of(place)
                .any(|note| hosts.knows(at, note.by, note.at))
                && second(now) >= second(last + HANDLED) + u64::from(SILENCE_SECONDS)
                && second(now + HANDLED) <= second(first) + u64::from(VOTE_SECONDS);
            places += usize::from(stands);
        }
        places >= usize::from(self.passive) && !self.has_returned(now)
    }

    /// A SYN comes to an instance: what that tells it, and what it may do.
    fn asked(&mut self, number: u16, at: Place, hosts: &Hosts<Balancer>) {
        let now = hosts.now();
        let connection = &self.connections[usize::from(number)];
        let Some(&(backend, ..)) = connection.given.last() else {
            if self.must_avoid(at, hosts) {
                self.connections[usize::from(number)].avoids.insert(at);
            }
            return;
        };
        let knows = |(_, by, since): &(u8, Place, Time)| hosts.knows(at, *by, *since);
        if backend != self.silent {
            return;
        }
        let is_known = connection.given.iter().all(knows);
        let is_answered = connection.answered.as_ref().is_some_and(knows);
        let place = hash::word(connection.client.to_bits(), 0) as usize % FAILURES;
        if now >= self.falls + MOVES_AFTER && !is_answered {
            self.connections[usize::from(number)].may_move.insert(at);
        }
        let noted = |note: &Note| hosts.knows(at, note.by, note.at);
        if is_known && self.is_silent(backend, now) && !self.notes_of(place).any(noted) {
            self.notes.push(Note {
                place,
                by: at,
                at: now,
            });
        }
    }

    fn reaches_backend(
        &mut self,
        said: &Message,
        at: Place,
        hosts: &Hosts<Balancer>,
    ) -> Result<(), Failure> {
        let now = hosts.now();
        let (number, backend) = (said.number, backend_of(said.destination.address));
        let Some(connection) = self.connections.get_mut(usize::from(number)) else {
            return Err(stray(said, at));
        };
        let is_new = connection.given.is_empty();
        if let Err(why) = self.bindings.leaves(number.into(), backend.into(), at, now) {
            let from_silent = connection.given.iter().any(|one| one.0 == self.silent);
            if !from_silent || !connection.may_move.contains(&at) {
                return Err(Failure::new("flows of backends that answer stay", why));
            }
            self.bindings.moved(number.into(), backend.into(), at, now);
            *self.judged.entry("flows dealt to another").or_default() += 1;
        }
        if is_new && !connection.avoids.is_empty() {
            let had_to = connection.avoids.contains(&at);
            if had_to && backend == self.silent {
                return Err(Failure::new(
                    "new flows leave a backend that is dead",
                    format!(
                        "{at:?} gave it {number}, reported by {:?}, silent since {}",
                        self.notes, self.falls
                    ),
                ));
            }
            if had_to {
                *self.dealt.entry(backend).or_default() += 1;
                *self.judged.entry("new flows that avoid").or_default() += 1;
            }
        }
        if !connection.given.iter().any(|one| one.0 == backend) {
            connection.given.push((backend, at, now));
        }
        if is_new && backend == self.silent && self.has_returned(now) {
            self.back.entry(at.host).or_insert(now);
        }
        if self.is_silent(backend, now) {
            if said.flags.contains(TcpFlags::SYN) {
                self.queue.push(number);
                self.asked_in_vain = now;
            }
            return Ok(());
        }
        let frame = self.answer(said, backend);
        let takes = match self.call {
            Some(_) => Duration::from_micros(300),
            None => self.draws.micros(50, 3_000),
        };
        self.send(now + takes, BACKENDS, number, frame);
        Ok(())
    }

    fn reaches_client(&mut self, said: &Message, at: Place, now: Time) -> Result<(), Failure> {
        let service = self.service();
        let number = said.number;
        let Some(connection) = self.connections.get_mut(usize::from(number)) else {
            return Err(stray(said, at));
        };
        if (said.source, said.destination) != (service, connection.client) {
            return Err(Failure::new(
                "answers reach who asked",
                format!(
                    "{at:?} sent {} what is {}'s",
                    said.destination, connection.client
                ),
            ));
        }
        if said.flags.contains(TcpFlags::RST) {
            if connection.given.len() < 2 {
                return Err(Failure::new(
                    "only flows that were dealt twice break",
                    format!("{at:?}: {connection:?}"),
                ));
            }
            connection.is_broken = true;
            if let Some(call) = &mut self.call {
                call.answered.insert(number);
            }
            self.count("connections that broke");
            return Ok(());
        }
        if said.flags.contains(TcpFlags::SYN) {
            let offset = said.sequence.wrapping_sub(Self::base(number) + BACKEND);
            let backend = (offset / STEP) as u8;
            if backend == self.silent {
                self.answered = now;
            }
            if connection.answered.is_none() {
                connection.answered = Some((backend, at, now));
                connection.due = now;
            }
            return Ok(());
        }
        if let Some(call) = &mut self.call {
            call.answered.insert(number);
        } else if said.acknowledgement == Self::base(number) + 1 + (connection.round + 1) * MESSAGE
        {
            connection.round += 1;
            connection.due = now;
        }
        Ok(())
    }

    /// The silent backend returns.
    fn return_at(&mut self, now: Time) {
        if self.back_by.is_some() || !self.has_returned(now) {
            return;
        }
        // What had come before it fell silent was answered.
        let queue = core::mem::take(&mut self.queue);
        let waiting: BTreeSet<u16> = queue.into_iter().collect();
        let waiting: Vec<u16> = match self.keeps_queue {
            true => waiting.into_iter().collect(),
            false => Vec::new(),
        };
        for connection in &mut self.connections {
            if connection.patience.is_none() {
                (connection.patience, connection.due) = (Some(ASKS_AGAIN), now + ASKS_AGAIN);
            }
        }
        // An answer to a flow that is dealt to another meanwhile, or that only a dead host knew, may be seen by nobody.
        let is_its = |number: &u16| {
            let connection = &self.connections[usize::from(*number)];
            let since = connection.given.first().map(|one| one.2);
            connection.given.len() == 1
                && since >= Some(ALL_DIED_BY)
                && connection.answered.is_none()
                && connection.due > now + ASKS_AGAIN / 2
        };
        let is_heard = waiting.iter().any(is_its);
        let forgotten = self.asked_in_vain + Duration::from_secs(u64::from(VOTE_SECONDS) + 1);
        let known = match is_heard {
            true => now,
            false => forgotten.max(now),
        };
        self.back_by = Some(known + BACK_WITHIN);
        for number in waiting {
            let client = self.connections[usize::from(number)].client;
            let port = 8_080;
            let backend = Endpoint::new(
                super::services::backend_address(self.silent),
                port,
                client.protocol,
            );
            let begin = Self::base(number) + BACKEND + u32::from(self.silent) * STEP;
            let segment = Segment {
                sequence: begin,
                acknowledgement: Self::base(number) + 1,
                window: 8_192,
                ..Segment::with_flags(SYN_ACK)
            };
            let takes = self.draws.micros(50, 20_000);
            self.send(
                now + takes,
                BACKENDS,
                number,
                frame((backend, client), &segment, &[]),
            );
            self.count("late answers");
        }
    }

    fn open(&mut self, now: Time) {
        if now < self.next_open || self.is_back() || self.call.is_some() {
            return;
        }
        let is_seldom = self.back_by.is_some_and(|by| now + BACK_WITHIN < by);
        self.next_open = now + if is_seldom { OPENS_SELDOM } else { OPENS };
        let has_returned = self.back_by.is_some();
        let number = self.connections.len() as u32;
        let address = Ipv4Addr::from_bits(0x0a00_0001 + number / 7);
        let patience = [
            Duration::from_millis(60),
            ASKS_AGAIN,
            Duration::from_secs(1),
        ];
        let repeats = self.draws.one_of(&[0, 0, 1, 3]);
        self.connections.push(Connection {
            client: Endpoint::new(address, 2_000 + (number % 7) as u16, Protocol::TCP),
            patience: match self.draws.percent(20) && !has_returned {
                true => None,
                false => Some(self.draws.one_of(&patience)),
            },
            repeats: if has_returned { 0 } else { repeats },
            due: now,
            is_known: false,
            given: Vec::new(),
            answered: None,
            round: 0,
            is_broken: false,
            may_move: BTreeSet::new(),
            avoids: BTreeSet::new(),
        });
    }
}

/// The second of a moment, as the cluster's clock counts.
fn second(at: Time) -> u64 {
    at.as_micros() / 1_000_000
}

fn stray(said: &Message, at: Place) -> Failure {
    Failure::new(
        "only what may pass does",
        format!(
            "{at:?} let a packet of {} to {} pass",
            said.source, said.destination
        ),
    )
}

impl World for Watched {
    type Function = Balancer;

    fn function(&mut self) -> Balancer {
        let service = self.service();
        balancer(self.backends, 1 << 12, |backends| {
            vec![Service {
                choice: self.choice,
                passive: self.passive,
                ..Service::new(service, backends)
            }]
        })
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.open(now);
        self.return_at(now);
        for number in 0..self.connections.len() as u16 {
            let at = usize::from(number);
            let connection = &mut self.connections[at];
            let is_over = connection.is_broken || connection.round >= ROUNDS;
            if connection.due > now || is_over || self.call.is_some() {
                continue;
            }
            let is_open = connection.answered.is_some();
            if !is_open && connection.is_known && connection.patience.is_none() {
                continue;
            }
            connection.is_known = true;
            let repeats = core::mem::take(&mut connection.repeats);
            let patience = connection.patience.unwrap_or(ASKS_AGAIN);
            connection.due = now + if is_open { ASKS_AGAIN } else { patience };
            let message = self.message(number);
            for repeat in 0..=repeats {
                let after = Duration::from_micros(u64::from(repeat) * 600);
                self.send(now + after, CLIENTS, number, message.clone());
            }
        }
        if self.returns.is_none() && self.counted("new flows that avoid") >= AVOIDING {
            self.returns = Some(now + self.draws.micros(0, 2_000_000));
        }
        while let Some(first) = self.coming.first_entry()
            && first.key().0 <= now
        {
            out.push(first.remove());
        }
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<Balancer>) {
        let Some(said) = Message::of(&arrival.frame) else {
            return;
        };
        self.living = hosts.living().collect();
        if arrival.port != PORTS[CLIENTS] {
            return;
        }
        self.bindings.arrives(said.number.into(), at, hosts);
        if said.flags.contains(TcpFlags::SYN) {
            self.asked(said.number, at, hosts);
        }
    }

    fn leaves(&mut self, left: Left, hosts: &Hosts<Balancer>) -> Result<(), Failure> {
        let Some(said) = Message::of(&left.frame) else {
            return Ok(());
        };
        match left.port == PORTS[BACKENDS] {
            true => self.reaches_backend(&said, left.at, hosts),
            false => self.reaches_client(&said, left.at, hosts.now()),
        }
    }

    fn died(&mut self, victim: usize, reported: Time, _: &Hosts<Balancer>) {
        self.bindings.died(victim, reported);
        self.back.remove(&victim);
    }

    fn unfinished(&self) -> Option<String> {
        if !self.is_back() {
            return Some(format!(
                "silent {} since {}, returns {:?}, back at {:?} of {:?}, {:?}",
                self.silent, self.falls, self.returns, self.back, self.living, self.judged
            ));
        }
        let going = |one: &&Connection| !one.is_broken && one.round < ROUNDS;
        let connection = self.connections.iter().find(going)?;
        Some(format!("{connection:?}"))
    }

    fn ending(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn settles(&mut self, _: &Hosts<Balancer>) -> Result<(), Failure> {
        self.coming.clear();
        Ok(())
    }

    fn roll_call(&mut self, host: usize, next: usize, _: Time, out: &mut Vec<Arrival>) {
        self.coming.clear();
        let mut call = Call {
            next,
            ..Call::default()
        };
        let whole = |one: &Connection| !one.is_broken && one.answered.is_some();
        let all = (0..self.connections.len() as u16)
            .filter(|number| whole(&self.connections[usize::from(*number)]));
        let all: Vec<u16> = all.collect();
        let every = (all.len() / CALLED).max(1);
        for &number in all.iter().skip(host).step_by(every).take(CALLED) {
            call.asked.insert(number);
            out.push(Arrival {
                port: PORTS[CLIENTS],
                path: number.into(),
                host: Some(host),
                frame: self.message(number),
            });
        }
        self.call = Some(call);
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        let Some(call) = &self.call else {
            return Ok(());
        };
        let missing = call.asked.difference(&call.answered).next().copied();
        let asked = call.asked.len() as u64;
        *self.judged.entry("roll calls").or_default() += asked;
        match missing {
            Some(number) => Err(Failure::new(
                "established flows go on at every host",
                format!("m{host}: {:?}", self.connections[usize::from(number)]),
            )),
            None => Ok(()),
        }
    }

    fn judge(&mut self, hosts: &Hosts<Balancer>) -> Result<(), Failure> {
        let by = self.back_by.unwrap_or(Time::ZERO);
        for host in hosts.living() {
            if self.back.get(&host).is_none_or(|at| *at > by) {
                return Err(Failure::new(
                    "a backend that answers again is back in time",
                    format!("m{host} at {:?}, not by {by}", self.back.get(&host)),
                ));
            }
        }
        let starved = |number: &u8| {
            *number != self.silent && self.dealt.get(number).is_none_or(|count| *count == 0)
        };
        match (0..self.backends).find(starved) {
            Some(number) => Err(Failure::new(
                "backends that answer get new flows",
                format!("not {number}: {:?}", self.dealt),
            )),
            None => Ok(()),
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.judged.clone();
        counts.insert("backends that fell silent", 1);
        counts.insert("bindings given again", self.bindings.again);
        counts
    }
}
