//! A store in virtual time, and instances' connections to it: replies take a while, connections break, and what was sent by a broken one may
//! come to the store later than what is sent by the next.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use asterism_embedded_store::{Keyspace, Session};
use asterism_engine::{Attempt, Dropped, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_remote_store::{Client, ClientConfig, ClientEvent, ClientTally, ShardStore};
use asterism_resp::{CommandWriter, Value};
use asterism_state::{Query, Tick, Ticket, Transaction, hash};

use crate::lying::lie;

/// A store that several clients use.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) keyspace: Rc<RefCell<Keyspace>>,
    /// Nobody reaches it.
    pub(crate) is_away: Rc<Cell<bool>>,
    /// Of so many pieces of what it says one is changed; 0: none.
    pub(crate) lies_of: Rc<Cell<u64>>,
}

/// How bad the wires are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One look of so many finds a connection broken; 0: none.
    pub(crate) broken_of: u64,
    pub(crate) delay_us: u64,
    /// From the end of a connection to the next one.
    pub(crate) away_us: u64,
}

impl Faults {
    /// Wires that never break.
    pub(crate) fn none(delay_us: u64) -> Self {
        Self::breaking(0, delay_us)
    }

    pub(crate) fn breaking(broken_of: u64, delay_us: u64) -> Self {
        Self {
            broken_of,
            delay_us,
            away_us: 1_000,
        }
    }
}

/// Microseconds for which a reply is waited for, by a connection of which a part may be missing.
const SILENT_US: u64 = 50_000;

/// One direction of a connection: what is under way, in order, and when it comes.
#[derive(Debug, Default)]
struct Direction(VecDeque<(u64, Vec<u8>)>);

impl Direction {
    fn send(&mut self, at_us: u64, bytes: Vec<u8>) {
        let last = self.0.back().map_or(0, |(at, _)| *at);
        self.0.push_back((last.max(at_us), bytes));
    }

    fn arrived(&mut self, now_us: u64) -> Option<Vec<u8>> {
        let (at, _) = self.0.front()?;
        let is_here = *at <= now_us;
        is_here
            .then(|| self.0.pop_front())
            .flatten()
            .map(|(_, bytes)| bytes)
    }
}

/// The store's end of a connection.
struct Served {
    session: Session,
    received: Vec<u8>,
    coming: Direction,
}

impl Served {
    /// These words are said to the store first.
    fn new(keyspace: &mut Keyspace, greeting: &[Vec<&[u8]>]) -> Self {
        let mut session = Session::new();
        for words in greeting {
            let mut command = Vec::new();
            CommandWriter::new(&mut command).command(words);
            let (sent, _) = Value::read(&command).expect("a command").expect("whole");
            session.call(keyspace, sent, &mut Vec::new(), None);
        }
        Self {
            session,
            received: Vec::new(),
            coming: Direction::default(),
        }
    }

    /// Does what has come; the replies, and what the store tells behind them.
    fn serve(&mut self, keyspace: &mut Keyspace, now_us: u64) -> [Vec<u8>; 2] {
        let (mut replies, mut announced) = (Vec::new(), Vec::new());
        while let Some(bytes) = self.coming.arrived(now_us) {
            self.received.extend(bytes);
        }
        let mut taken = 0;
        while let Ok(Some((command, length))) = Value::read(&self.received[taken..]) {
            self.session.call(keyspace, command, &mut replies, None);
            taken += length;
        }
        self.received.drain(..taken);
        self.session.tell(keyspace, &mut announced);
        [replies, announced]
    }
}

/// A connection of a client.
struct Pipe {
    served: Option<Served>,
    replies: Direction,
    received: Vec<u8>,
    /// When there is the next one.
    opens_us: u64,
    /// When something came last, or nothing was waited for.
    heard_us: u64,
    /// Something that came by it may be changed.
    may_be_lied_to: bool,
}

/// An instance's end.
pub(crate) struct Wires<F: NetworkFunction> {
    client: Client<F, Attempt>,
    pipes: Vec<Pipe>,
    /// Connections that the client has given up, of which something is still under way.
    orphans: Vec<Served>,
    store: Shared,
    faults: Faults,
    tally: Rc<RefCell<ClientTally>>,
    broken: Rc<RefCell<u64>>,
    seed: u64,
    draws: u64,
    /// Of what the store tells by the connection that reads: of all keys that begin so, or of what was read (`Some`).
    tracks: Option<Option<Vec<u8>>>,
    event: Option<ClientEvent<Attempt>>,
    now_us: u64,
}

impl<F: NetworkFunction> Wires<F> {
    pub(crate) fn new(
        function: &F,
        config: &ClientConfig,
        (store, faults): (Shared, Faults),
        (tally, broken): (Rc<RefCell<ClientTally>>, Rc<RefCell<u64>>),
    ) -> Self {
        let client = Client::new(function, config);
        let pipe = |_| Pipe {
            served: None,
            replies: Direction::default(),
            received: Vec::new(),
            opens_us: 0,
            heard_us: 0,
            may_be_lied_to: false,
        };
        Self {
            pipes: (0..client.connections()).map(pipe).collect(),
            client,
            orphans: Vec::new(),
            store,
            faults,
            tally,
            broken,
            seed: hash::bytes(config.client.as_bytes(), 7),
            draws: 0,
            tracks: config.cache.as_ref().map(|cache| {
                let prefix = format!("{{{}}}", config.function);
                cache.has_filter.then(|| prefix.into_bytes())
            }),
            event: None,
            now_us: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        hash::words(self.draws, 0x0031_7E5A, self.seed) % below
    }

    fn delay(&mut self) -> u64 {
        self.faults.delay_us / 2 + self.draw(self.faults.delay_us + 1)
    }

    fn pump(&mut self) {
        let now_us = self.now_us;
        let keyspace = self.store.keyspace.clone();
        let mut keyspace = keyspace.borrow_mut();
        keyspace.advance(now_us / 1_000 + 1);
        for orphan in &mut self.orphans {
            orphan.serve(&mut keyspace, now_us);
        }
        self.orphans.retain(|orphan| !orphan.coming.0.is_empty());
        for number in 0..self.pipes.len() {
            self.pump_pipe(number, &mut keyspace);
        }
        *self.tally.borrow_mut() = self.client.tally();
    }

    fn pump_pipe(&mut self, number: usize, keyspace: &mut Keyspace) {
        let now_us = self.now_us;
        let (delay, later) = (self.delay(), self.delay());
        let breaks = self.faults.broken_of > 0 && self.draw(self.faults.broken_of) == 0;
        let lies_of = self.store.lies_of.get();
        let lies = [0; 2].map(|_| {
            let is_one = lies_of > 0 && self.draw(lies_of) == 0;
            is_one.then(|| self.draw(u64::MAX))
        });
        let is_broken = breaks || self.store.is_away.get();
        let pipe = &mut self.pipes[number];
        let is_wanted = self.client.wants(number);
        if !is_wanted && let Some(served) = pipe.served.take() {
            self.client.lost(number);
            return served.session.end(keyspace);
        }
        let Some(served) = &mut pipe.served else {
            if is_wanted && now_us >= pipe.opens_us && !self.store.is_away.get() {
                let mut greeting: Vec<Vec<&[u8]>> = Vec::new();
                if let (0, Some(prefix)) = (number, &self.tracks) {
                    greeting.push(vec![b"HELLO", b"3"]);
                    greeting.push(vec![b"CLIENT", b"TRACKING", b"ON"]);
                    if let Some(prefix) = prefix {
                        greeting[1].extend([&b"BCAST"[..], b"PREFIX", prefix]);
                    }
                }
                pipe.served = Some(Served::new(keyspace, &greeting));
                pipe.replies = Direction::default();
                pipe.received.clear();
                (pipe.heard_us, pipe.may_be_lied_to) = (now_us, false);
                self.client.connected(number);
            }
            return;
        };
        pipe.may_be_lied_to |= lies_of > 0;
        let [replies, announced] = served.serve(keyspace, now_us);
        // The network may have the two apart.
        for ((mut bytes, delay), drawn) in
            [(replies, delay), (announced, later)].into_iter().zip(lies)
        {
            if !bytes.is_empty() {
                drawn.into_iter().for_each(|drawn| lie(&mut bytes, drawn));
                pipe.replies.send(now_us + delay, bytes);
            }
        }
        while let Some(bytes) = pipe.replies.arrived(now_us) {
            pipe.received.extend(bytes);
            pipe.heard_us = now_us;
        }
        let mut taken = 0;
        let is_well = loop {
            match Value::read(&pipe.received[taken..]) {
                Ok(Some((reply, length))) => {
                    taken += length;
                    if !self.client.reply(number, &reply, now_us) {
                        break false;
                    }
                }
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        pipe.received.drain(..taken);
        if !self.client.awaits_reply(number) {
            pipe.heard_us = now_us;
        }
        let is_silent = pipe.may_be_lied_to && now_us - pipe.heard_us > SILENT_US;
        assert!(
            is_well || pipe.may_be_lied_to,
            "the store says what it should"
        );
        if is_broken || !is_well || is_silent {
            *self.broken.borrow_mut() += 1;
            let mut orphan = pipe.served.take().expect("it is there");
            pipe.opens_us = now_us + self.faults.away_us;
            self.client.lost(number);
            // What is under way comes late, or never.
            let late_us = match delay % 3 {
                0 => return orphan.session.end(keyspace),
                1 => 0,
                _ => 5_000,
            };
            orphan
                .coming
                .0
                .iter_mut()
                .for_each(|(at, _)| *at += late_us);
            self.orphans.push(orphan);
        }
    }
}

impl<F: NetworkFunction> Store for Wires<F> {
    fn set_tick(&mut self, tick: Tick) {
        self.client.set_tick(tick);
    }
    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.client.ask(ticket, &query, now.as_micros());
    }
    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.client.answer_at_once(&query, now.as_micros(), out)
    }
    fn may_keep(&self) -> bool {
        self.client.may_keep()
    }
    fn keeps(&mut self, now: Time) -> bool {
        self.client.keeps(now.as_micros())
    }
    fn next_dropped(&mut self) -> Option<Dropped> {
        self.client.next_dropped()
    }
    fn was_kept(&mut self, calls: u64) {
        self.client.was_kept(calls);
    }
    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        self.client.commit(attempt, transaction, now.as_micros());
    }
    fn forget(&mut self, attempt: Attempt) {
        self.client.forget(attempt);
    }
    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        self.take_event(now);
        self.event()
    }
    fn send(&mut self, now: Time) {
        for number in 0..self.pipes.len() {
            let mut bytes = Vec::new();
            self.client.write(number, now.as_micros(), &mut bytes);
            let at_us = now.as_micros() + self.delay();
            if let (Some(served), false) = (&mut self.pipes[number].served, bytes.is_empty()) {
                served.coming.send(at_us, bytes);
            }
        }
    }
}

impl<F: NetworkFunction> ShardStore for Wires<F> {
    fn take_event(&mut self, now: Time) -> bool {
        if self.now_us < now.as_micros() {
            self.now_us = now.as_micros();
            self.pump();
        }
        self.event = self.client.next_event();
        self.event.is_some()
    }
    fn event(&self) -> Option<StoreEvent<'_>> {
        self.event.as_ref().map(ClientEvent::for_instance)
    }
}
