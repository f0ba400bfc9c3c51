//! A store as an instance's [`Store`]: its client, and a connection for each of its pipes.

use std::net::SocketAddr;
use std::time::Duration;

use asterism_engine::{Attempt, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_state::{Query, Tick, Ticket, Transaction, hash};

use crate::client::{Client, ClientConfig, ClientEvent, ClientTally};
use crate::connection::Connection;

/// How long an instance sleeps at most while it waits for replies: they wake nobody.
const LOOK: Duration = Duration::from_micros(50);
/// The same while a connection is away.
const LOOK_AWAY: Duration = Duration::from_millis(1);

/// How an instance's store is reached.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The store.
    pub address: SocketAddr,
    /// The client.
    pub client: ClientConfig,
}

/// A store that speaks the protocol of Redis, as an instance uses it: nothing here waits.
pub struct RemoteStore<F: NetworkFunction> {
    client: Client<F, Attempt>,
    connections: Vec<Connection>,
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
    /// For an instance of this function.
    pub fn new(function: &F, config: &RemoteConfig) -> Self {
        let client = Client::new(function, &config.client);
        let name = hash::bytes(config.client.client.as_bytes(), 0);
        let connection = |number| Connection::new(config.address, hash::word(number, name));
        Self {
            connections: (0..client.connections() as u64).map(connection).collect(),
            client,
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
            if connection.connect(now_us) {
                self.client.connected(number);
            }
            if !connection.is_open() {
                continue;
            }
            let mut is_well = connection.receive();
            loop {
                match connection.next_reply() {
                    Ok(Some(value)) if self.client.reply(number, &value, now_us) => {}
                    Ok(None) => break,
                    Ok(Some(_)) | Err(()) => {
                        is_well = false;
                        break;
                    }
                }
            }
            if !is_well {
                self.client.lost(number);
                connection.close(now_us);
            }
        }
    }
}

impl<F: NetworkFunction> Store for RemoteStore<F> {
    fn set_tick(&mut self, tick: Tick) {
        self.client.set_tick(tick);
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, _: Time) {
        self.client.ask(ticket, &query);
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, _: Time) {
        self.client.commit(attempt, transaction);
    }

    fn forget(&mut self, attempt: Attempt) {
        self.client.forget(attempt);
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        if !core::mem::replace(&mut self.has_read, true) {
            self.receive(now);
        }
        self.event = self.client.next_event();
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
                self.client.lost(number);
                connection.close(now_us);
            }
        }
    }

    fn next_due(&self) -> Option<Time> {
        let is_away = self.connections.iter().any(|one| !one.is_open());
        match self.client.is_waiting() {
            true => Some(self.now + LOOK),
            false => is_away.then_some(self.now + LOOK_AWAY),
        }
    }
}
