//! A store as an instance's [`Store`]: its client, and a connection for each of its pipes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Attempt, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_resp::Value;
use asterism_state::{Query, Tick, Ticket, Transaction, hash};

use crate::client::{Client, ClientConfig, ClientEvent, ClientTally, READS};
use crate::connection::Connection;
use crate::keys::Keys;
use crate::login::{Greeting, Login};
use crate::statistics::{AwayReason, StoreStatistics};

/// How long an instance sleeps at most while it waits for replies: they wake nobody.
const LOOK: Duration = Duration::from_micros(50);
/// The same while nothing is waited for.
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// The same while a connection is away.
const LOOK_AWAY: Duration = Duration::from_millis(1);

/// How an instance's store is reached.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The store.
    pub address: SocketAddr,
    /// The user, and the password.
    pub login: Login,
    /// How long a reply may take: then the connection counts as lost.
    pub timeout: Duration,
    /// A number for how the function's entries are laid out: a store that has entries of another layout under the same name is refused.
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
            address,
            login: Login { user, password },
            timeout: Duration::from_secs(1),
            layout: 0,
            client,
        }
    }

    /// The layout as it stands in the store.
    pub(crate) fn layout_text(&self) -> Vec<u8> {
        format!("{:016x}", self.layout).into_bytes()
    }
}

/// A store that speaks the protocol of Redis, as an instance uses it: nothing here waits.
pub struct RemoteStore<F: NetworkFunction> {
    client: Client<F, Attempt>,
    connections: Vec<Connection>,
    timeout_us: u64,
    statistics: Arc<StoreStatistics>,
    event: Option<ClientEvent<Attempt>>,
    /// Whether this turn's replies were taken.
    has_read: bool,
    now: Time,
}

impl<F: NetworkFunction> core::fmt::Debug for RemoteStore<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "RemoteStore({:?})", self.client.tally())
    }
}

impl<F: NetworkFunction> RemoteStore<F> {
    /// For an instance of this function; other threads see by `statistics` what becomes of it.
    pub fn new(function: &F, config: &RemoteConfig, statistics: Arc<StoreStatistics>) -> Self {
        let client = Client::new(function, &config.client);
        let name = hash::bytes(config.client.client.as_bytes(), 0);
        let greeting = |tracks| {
            Arc::new(Greeting {
                login: config.login.clone(),
                layout: (
                    Keys::new(&config.client.function).of_layout(),
                    config.layout_text(),
                ),
                tracks,
            })
        };
        let of_commits = greeting(false);
        let of_reads = greeting(config.client.cache.is_some());
        let connection = |number| {
            let salt = hash::word(number, name);
            let greeting = match number == READS as u64 {
                true => &of_reads,
                false => &of_commits,
            };
            Connection::new(config.address, greeting.clone(), salt)
        };
        Self {
            connections: (0..client.connections() as u64).map(connection).collect(),
            client,
            timeout_us: config.timeout.as_micros() as u64,
            statistics,
            event: None,
            has_read: false,
            now: Time::ZERO,
        }
    }

    /// What it counted.
    pub fn tally(&self) -> ClientTally {
        self.client.tally()
    }

    /// Takes the replies that have come.
    fn receive(&mut self, now: Time) {
        let now_us = now.as_micros();
        for (number, connection) in self.connections.iter_mut().enumerate() {
            match connection.connect(now_us) {
                Some(Ok(())) => {
                    self.client.connected(number);
                    self.statistics.note_made();
                }
                Some(Err(why)) => self.statistics.note_away(why),
                None => {}
            }
            if !connection.is_open() {
                continue;
            }
            let mut lost = (!connection.receive()).then_some(AwayReason::Closed);
            let mut has_reply = false;
            loop {
                match connection.next_reply() {
                    Ok(Some(value)) if self.client.reply(number, &value, now_us) => {
                        has_reply |= !matches!(value, Value::Push(_));
                    }
                    Ok(None) => break,
                    Ok(Some(value)) => {
                        let is_error = matches!(value, Value::Error(_));
                        let why = [AwayReason::NoStore, AwayReason::Refused];
                        lost = Some(why[usize::from(is_error)]);
                        break;
                    }
                    Err(()) => {
                        lost = Some(AwayReason::NoStore);
                        break;
                    }
                }
            }
            if has_reply {
                let awaits = self.client.awaits_reply(number);
                if let Some(us) = connection.note_answered(awaits, now_us) {
                    self.statistics.note_round_trip(us);
                }
            }
            if lost.is_none() && connection.is_silent(now_us, self.timeout_us) {
                lost = Some(AwayReason::Silent);
            }
            if let Some(why) = lost {
                self.statistics.note_away(why);
                self.client.lost(number);
                connection.close(now_us);
            }
        }
    }

    /// Shows other threads what became of it in this turn.
    fn publish(&self, now_us: u64) {
        let is_connected = self.connections.iter().all(Connection::is_open);
        self.statistics.note_connected(is_connected, now_us);
        self.statistics.note_tally(self.client.tally());
        self.statistics.note_census(self.client.census());
    }
}

impl<F: NetworkFunction> Store for RemoteStore<F> {
    fn set_tick(&mut self, tick: Tick) {
        self.client.set_tick(tick);
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.client.ask(ticket, &query, now.as_micros());
    }

    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.client.answer_at_once(&query, now.as_micros(), out)
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        self.client.commit(attempt, transaction, now.as_micros());
    }

    fn forget(&mut self, attempt: Attempt) {
        self.client.forget(attempt);
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        if !core::mem::replace(&mut self.has_read, true) {
            self.receive(now);
        }
        let taken = core::mem::replace(&mut self.event, self.client.next_event());
        taken
            .into_iter()
            .for_each(|event| self.client.recycle(event));
        self.event.as_ref().map(ClientEvent::for_instance)
    }

    fn send(&mut self, now: Time) {
        (self.has_read, self.now) = (false, now);
        let now_us = now.as_micros();
        for (number, connection) in self.connections.iter_mut().enumerate() {
            if !connection.is_open() {
                continue;
            }
            self.client.write(number, now_us, &mut connection.to_send);
            if !connection.send() {
                self.statistics.note_away(AwayReason::Closed);
                self.client.lost(number);
                connection.close(now_us);
                continue;
            }
            connection.note_asked(self.client.awaits_reply(number), now_us);
        }
        self.publish(now_us);
    }

    fn next_due(&self) -> Option<Time> {
        if self.client.has_events() {
            return Some(self.now);
        }
        let is_away = self.connections.iter().any(|one| !one.is_open());
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
