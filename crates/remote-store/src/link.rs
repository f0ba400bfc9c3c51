//! A store as an instance's [`Store`]: its client, and a connection for each of its pipes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Attempt, Dropped, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_resp::Value;
use asterism_state::{Query, Tick, Ticket, Transaction, hash};

use crate::client::{Client, ClientConfig, ClientEvent, ClientTally, READS};
use crate::connection::{Connection, Made};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::login::{Greeting, Login, PATIENCE_MIN, Tracks};
use crate::mutant::{self, Mutant};
use crate::network::{Network, Sockets};
use crate::primary::{Found, Notice, Primary};
use crate::statistics::{AwayReason, StoreStatistics};

/// How long an instance sleeps at most while it waits for replies: they wake nobody.
pub(crate) const LOOK: Duration = Duration::from_micros(50);
/// The same while nothing is waited for.
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// The same while a connection is away.
const LOOK_AWAY: Duration = Duration::from_millis(1);

/// Microseconds from one look to the next at a connection by which no reply is waited for: each look is a system call.
const LOOK_QUIET_US: u64 = 100;
/// The same at all connections while packets come that what is kept may answer: a burst of them takes less than a look.
const LOOK_SERVING_US: u64 = 20;
/// Milliseconds that the reply to `WAIT` may take at most.
const WAIT_MS_MAX: u128 = 250;

/// How an instance's store is reached.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The store's servers, in any order: a primary and its replicas, or members of a cluster.
    pub addresses: Vec<SocketAddr>,
    /// The user, and the password.
    pub login: Login,
    /// A packet leaves when a replica has its writes, not when the primary has them.
    pub waits_for_replica: bool,
    /// How long a reply may take: then the connection counts as lost.
    pub timeout: Duration,
    /// A number for how the function's entries are laid out: a store that has entries of another layout under the same name is refused. So is
    /// one whose entries were written by hashes of another seed than the client's.
    pub layout: u64,
    /// The client.
    pub client: ClientConfig,
}

impl RemoteConfig {
    /// A client of the store at this address, without login and with a second for each reply.
    #[must_use]
    pub fn new(address: SocketAddr, client: ClientConfig) -> Self {
        let (user, password) = (None, None);
        Self {
            addresses: vec![address],
            login: Login { user, password },
            waits_for_replica: false,
            timeout: Duration::from_secs(1),
            layout: 0,
            client,
        }
    }

    /// The key that says how entries are laid out, and what it has to say.
    pub(crate) fn layout_at(&self) -> (Vec<u8>, Layout) {
        let key = Keys::new(&self.client.function).of_layout();
        (key, Layout::new(self.layout, self.client.seed))
    }
}

/// What became of a connection.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// Nothing is known of the server.
    Alone(AwayReason),
    /// It refuses what is written: another one may be the primary.
    Refusing(AwayReason),
    /// The server is no primary any more.
    Demoted,
    /// The keys are at this address.
    Moved(SocketAddr),
}

/// A store that speaks the protocol of Redis, as an instance uses it: nothing here waits. Its connections come from `N`.
pub struct RemoteStore<F: NetworkFunction, N: Network = Sockets> {
    client: Client<F, Attempt>,
    network: N,
    connections: Vec<Connection<N>>,
    primary: Primary,
    timeout_us: u64,
    statistics: Arc<StoreStatistics>,
    event: Option<ClientEvent<Attempt>>,
    /// Whether this turn's replies were taken.
    has_read: bool,
    /// Something is under way, or is to be asked.
    is_busy: bool,
    /// Else there is nothing to do before.
    look_us: u64,
    /// Packets came in this turn, and what is kept may answer them.
    is_serving: bool,
    /// When replies were looked for last.
    looked_us: u64,
    /// There may be something to send: it was asked for something in this turn, or has looked for replies.
    may_send: bool,
    now: Time,
}

impl<F: NetworkFunction, N: Network> core::fmt::Debug for RemoteStore<F, N> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "RemoteStore({:?})", self.client.tally())
    }
}

impl<F: NetworkFunction> RemoteStore<F> {
    /// For an instance of this function; other threads see by `statistics` what becomes of it.
    pub fn new(function: &F, config: &RemoteConfig, statistics: Arc<StoreStatistics>) -> Self {
        Self::over(Sockets, function, config, statistics)
    }
}

impl<F: NetworkFunction, N: Network> RemoteStore<F, N> {
    /// The same over another network.
    pub fn over(
        network: N,
        function: &F,
        config: &RemoteConfig,
        statistics: Arc<StoreStatistics>,
    ) -> Self {
        let mut client = Client::new(function, &config.client);
        client.set_patience(config.timeout.as_micros() as u64);
        if config.waits_for_replica {
            let wait_ms = (config.timeout.as_millis() / 4).clamp(1, WAIT_MS_MAX);
            client.wait_for_replica(wait_ms as u32, config.timeout.as_micros() as u64);
        }
        let name = hash::bytes(config.client.client.as_bytes(), 0);
        let greeting = |tracks| {
            Arc::new(Greeting {
                login: config.login.clone(),
                layout: config.layout_at(),
                tracks,
                waits_for_replica: config.waits_for_replica,
                patience: config.timeout.max(PATIENCE_MIN),
                takes_replicas: mutant::active(Mutant::ReplicaTakenForPrimary),
            })
        };
        let of_commits = greeting(Tracks::Nothing);
        let of_reads = greeting(match &config.client.cache {
            None => Tracks::Nothing,
            Some(cache) if cache.has_filter => {
                Tracks::KeysFrom(Keys::new(&config.client.function).prefix().to_vec())
            }
            Some(_) => Tracks::WhatIsRead,
        });
        let connection = |number| {
            let salt = hash::word(number, name);
            let greeting = match number == READS as u64 {
                true => &of_reads,
                false => &of_commits,
            };
            Connection::new(greeting.clone(), salt)
        };
        Self {
            connections: (0..client.connections() as u64).map(connection).collect(),
            client,
            network,
            primary: Primary::new(&config.addresses),
            timeout_us: config.timeout.as_micros() as u64,
            statistics,
            event: None,
            has_read: false,
            is_busy: true,
            look_us: 0,
            is_serving: false,
            looked_us: 0,
            may_send: true,
            now: Time::ZERO,
        }
    }

    /// What it counted.
    pub fn tally(&self) -> ClientTally {
        self.client.tally()
    }
    /// From now on each key is asked for by a command of its own: what the batching of reads is measured against.
    pub fn ask_each_alone(&mut self) {
        self.client.ask_each_alone();
    }
    /// What it has the store commit.
    pub fn client(&self) -> &Client<F, Attempt> {
        &self.client
    }

    /// Takes what came next, if anything did.
    pub(crate) fn take_event(&mut self, now: Time) -> bool {
        if !core::mem::replace(&mut self.has_read, true) && self.is_look_due(now) {
            self.receive(now);
        }
        let taken = core::mem::replace(&mut self.event, self.client.next_event());
        taken
            .into_iter()
            .for_each(|event| self.client.recycle(event));
        self.event.is_some()
    }
    /// What was taken last.
    pub(crate) fn event(&self) -> Option<StoreEvent<'_>> {
        self.event.as_ref().map(ClientEvent::for_instance)
    }

    /// Goes on with connections that are not open, and takes the replies that have come by the others.
    fn receive(&mut self, now: Time) {
        let now_us = now.as_micros();
        (self.looked_us, self.may_send) = (now_us, true);
        for number in 0..self.connections.len() {
            if !self.client.wants(number) {
                self.give_up(number, now_us);
                continue;
            }
            let connection = &mut self.connections[number];
            match connection.connect(&mut self.network, now_us, &self.primary) {
                Some(Ok(made)) => self.take_connection(number, made, now_us),
                Some(Err(why)) => {
                    self.statistics.note_away(why);
                    self.client.not_made(number, now_us);
                }
                None => {}
            }
            let lost = self.take_replies(number, now_us);
            if let Some(lost) = lost {
                self.lose(number, lost, now_us);
            }
        }
    }

    /// Closes a connection that the load does not need any more: nothing is under way by it.
    fn give_up(&mut self, number: usize, now_us: u64) {
        if self.connections[number].is_open() {
            self.client.lost(number);
            self.connections[number].close_for(now_us, 0);
        }
    }

    /// Whether all connections that it cannot do without are open.
    fn are_open(&self) -> bool {
        let mut all = self.connections.iter().enumerate();
        all.all(|(number, one)| one.is_open() || !self.client.needs(number))
    }

    /// A connection was made: it stays with the others, or they follow it.
    fn take_connection(&mut self, number: usize, made: Made, now_us: u64) {
        match self.primary.found(made.address, made.since) {
            Found::Outdated => return self.connections[number].close_for(now_us, 0),
            Found::Elsewhere => {
                for other in 0..self.connections.len() {
                    let address = self.connections[other].address();
                    if address.is_some_and(|address| address != made.address) {
                        self.client.lost(other);
                        self.connections[other].close_for(now_us, 0);
                    }
                    self.connections[other].hurry(now_us);
                }
            }
            Found::Together => {}
        }
        self.client.connected(number);
        self.statistics.note_made();
        self.statistics.note_address(made.address);
    }

    /// Why the connection is lost, if it is.
    fn take_replies(&mut self, number: usize, now_us: u64) -> Option<Lost> {
        let connection = &mut self.connections[number];
        let from = connection.address()?;
        let is_quiet = !self.client.awaits_reply(number);
        if is_quiet && !connection.is_look_due(now_us, LOOK_QUIET_US) {
            return None;
        }
        let mut lost = (!connection.receive()).then_some(Lost::Alone(AwayReason::Closed));
        let mut has_reply = false;
        loop {
            let value = match connection.next_reply() {
                Ok(Some(value)) => value,
                Ok(None) => break,
                Err(()) => {
                    lost = Some(Lost::Alone(AwayReason::NoStore));
                    break;
                }
            };
            lost = match Notice::of(&value, from) {
                Some(Notice::Moved(to)) => Some(Lost::Moved(to)),
                Some(Notice::MovedNowhere) => Some(Lost::Alone(AwayReason::NoStore)),
                Some(Notice::Replica) => Some(Lost::Demoted),
                None if self.client.reply(number, &value, now_us) => {
                    has_reply |= !matches!(value, Value::Push(_));
                    continue;
                }
                None if self.client.meets_replica(number) => Some(Lost::Demoted),
                None if matches!(value, Value::Integer(_)) && self.client.lacks_replica(now_us) => {
                    Some(Lost::Alone(AwayReason::NoReplica))
                }
                None if matches!(value, Value::Error(_)) => Some(Lost::Alone(AwayReason::Refused)),
                None => Some(Lost::Alone(AwayReason::NoStore)),
            };
            break;
        }
        if has_reply {
            let awaits = self.client.awaits_reply(number);
            if let Some(us) = connection.note_answered(awaits, now_us) {
                self.statistics.note_round_trip(us);
            }
        }
        let is_silent = connection.is_silent(now_us, self.timeout_us);
        lost.or(is_silent.then_some(Lost::Alone(AwayReason::Silent)))
            .or_else(|| self.refusing(number, now_us))
    }

    /// Whether another server is to be looked for, since this one refuses what is written: another may have been promoted in its place.
    fn refusing(&self, number: usize, now_us: u64) -> Option<Lost> {
        let is_refused = self.client.is_refused_for(number, now_us, self.timeout_us);
        let why = self.client.why_refused(now_us);
        let looks = self.primary.has_others() && !mutant::active(Mutant::RefusingStays);
        let why = why.filter(|why| is_refused && looks && may_be_cut_off(*why));
        why.map(Lost::Refusing)
    }

    /// A connection is lost; and what that says about the others.
    fn lose(&mut self, number: usize, lost: Lost, now_us: u64) {
        let Some(from) = self.connections[number].address() else {
            return;
        };
        let why = match lost {
            Lost::Alone(why) => {
                self.statistics.note_away(why);
                self.client.lost(number);
                match why {
                    AwayReason::Refused => self.connections[number].close_refused(now_us),
                    _ => self.connections[number].close(now_us),
                }
                if matches!(why, AwayReason::Silent | AwayReason::NoReplica) {
                    self.primary.leave(from);
                }
                return;
            }
            Lost::Refusing(why) => {
                // The others stay: this one comes back unless there is another primary, which they follow then.
                self.statistics.note_away(why);
                self.client.lost(number);
                self.connections[number].close_for(now_us, 0);
                self.primary.leave(from);
                return;
            }
            Lost::Demoted => {
                self.primary.leave(from);
                AwayReason::Replica
            }
            Lost::Moved(to) => {
                self.primary.moved(to);
                AwayReason::Moved
            }
        };
        self.statistics.note_away(why);
        let pause_us = self.primary.pause_us(now_us);
        for other in 0..self.connections.len() {
            let is_alone = mutant::active(Mutant::MovedAlone) && other != number;
            if self.connections[other].is_open() && !is_alone {
                self.client.lost(other);
                self.connections[other].close_for(now_us, pause_us);
            }
        }
    }

    /// Whether replies are to be looked for in this turn.
    fn is_look_due(&self, now: Time) -> bool {
        let from_us = match (self.is_busy, self.is_serving) {
            (false, _) => self.look_us,
            (true, true) => self.looked_us + LOOK_SERVING_US,
            (true, false) => 0,
        };
        now.as_micros() >= from_us
    }

    /// Shows other threads what became of it in this turn.
    fn publish(&self, now_us: u64) {
        let lacks_replica = self.client.lacks_replica(now_us);
        if lacks_replica {
            self.statistics.note_away(AwayReason::NoReplica);
        }
        let refused = self.client.why_refused(now_us);
        refused
            .into_iter()
            .for_each(|why| self.statistics.note_away(why));
        let is_connected = !lacks_replica && refused.is_none() && self.are_open();
        self.statistics.note_connected(is_connected, now_us);
        self.statistics.note_tally(self.client.tally());
        self.statistics
            .note_entry_counts(self.client.entry_counts());
    }
}

/// Whether a server that refuses what is written may have been cut off from the one that was promoted in its place. One that is full was not.
fn may_be_cut_off(why: AwayReason) -> bool {
    why != AwayReason::Full || mutant::active(Mutant::FullIsLeft)
}

impl<F: NetworkFunction, N: Network> Store for RemoteStore<F, N> {
    fn set_tick(&mut self, tick: Tick) {
        self.client.set_tick(tick);
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        (self.is_busy, self.may_send) = (true, true);
        self.client.ask(ticket, &query, now.as_micros());
    }

    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.client.answer_at_once(&query, now.as_micros(), out)
    }

    fn may_keep(&self) -> bool {
        self.client.may_keep()
    }

    fn keeps(&mut self, now: Time) -> bool {
        self.is_serving = self.client.keeps(now.as_micros());
        self.is_serving
    }

    fn next_dropped(&mut self) -> Option<Dropped> {
        self.client.next_dropped()
    }

    fn was_kept(&mut self, calls: u64) {
        self.client.was_kept(calls);
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        (self.is_busy, self.may_send) = (true, true);
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
        (self.has_read, self.is_serving, self.now) = (false, false, now);
        if !core::mem::take(&mut self.may_send) {
            return;
        }
        let now_us = now.as_micros();
        for number in 0..self.connections.len() {
            let connection = &mut self.connections[number];
            if !connection.is_open() {
                continue;
            }
            self.client.write(number, now_us, &mut connection.to_send);
            if !connection.send() {
                self.lose(number, Lost::Alone(AwayReason::Closed), now_us);
                continue;
            }
            connection.note_asked(self.client.awaits_reply(number), now_us);
        }
        self.is_busy = self.client.is_waiting() || self.client.has_events() || !self.are_open();
        self.look_us = now_us + LOOK_QUIET_US;
        self.publish(now_us);
    }

    fn next_due(&self) -> Option<Time> {
        if self.client.has_events() {
            return Some(self.now);
        }
        let is_away = !self.are_open();
        match self.client.is_waiting() {
            true => Some(self.now + LOOK),
            false if is_away => Some(self.now + LOOK_AWAY),
            // Its entries are counted now and then.
            false => {
                let due = self.client.next_due_us().map(Time::from_micros);
                Some(due.unwrap_or(self.now + LOOK_IDLE))
            }
        }
    }
}
