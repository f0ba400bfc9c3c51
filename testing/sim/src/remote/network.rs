//! Connections between hosts and the store's servers on virtual time: they delay, stall, and end in the midst of anything.
#![expect(
    clippy::disallowed_types,
    reason = "one thread runs all hosts of a seed, whose ends of the store must be `Send`"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asterism_engine::Attempt;
use asterism_function::testkit::RecordedCall;
use asterism_remote_store::Try;
use asterism_state::Transaction;

use super::direction::Direction;
use super::plan::RemotePlan;
use super::servers::{Executed, Refusal, Served, Server, UNBLOCKED};
use crate::scenario::Draws;

/// The incarnation of a host: none is ever used again.
pub(super) type Incarnation = u64;
/// A connection's number.
pub(super) type ConnectionId = u64;
/// A shard's servers: those of the first one have the first numbers.
const SERVERS: usize = 2;
/// The port of the first one.
const PORT: u16 = 6_379;
/// What is under way by a connection that its host has given up comes that much later, at most.
const LATE_US: u64 = 4_000;
/// Bytes of a message that is cut into pieces on its way, at least.
const PIECE_BYTES: usize = 64;

/// What was decided in a try that is under way.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) host: Incarnation,
    pub(super) transactions: Vec<(Attempt, bool)>,
}

/// What a host has asked its store for.
#[derive(Clone, Debug, Default)]
pub(super) struct HostDone {
    /// The call and the transaction of each name.
    pub(super) called: BTreeMap<Attempt, (RecordedCall, Transaction)>,
    /// What calls read that took effect by that alone, by the packet's number.
    pub(super) read_alone: BTreeMap<u64, Transaction>,
    /// Packets, by their numbers, that were answered by what the host keeps.
    pub(super) was_kept: BTreeSet<u64>,
    /// Transactions that wait for a decision.
    pub(super) undecided: BTreeSet<Attempt>,
    /// A try is under way to some shard, of transactions, or of the ends of entries.
    pub(super) is_executing: bool,
    pub(super) is_ending: bool,
}

/// A connection.
#[derive(Debug)]
struct Connection {
    host: Incarnation,
    server: usize,
    served: Served,
    to_server: Direction,
    to_host: Direction,
    /// It is greeted now, which takes no time.
    is_instant: bool,
    /// What the greeting was answered.
    greeted: Vec<u8>,
    /// When the host sees that it ended, once all that came before that is read; `u64::MAX`: not by that.
    ends_us: Option<u64>,
    /// The host has given it up: what is under way to the server may still come.
    is_left: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) now_us: u64,
    draws: Draws,
    delay_us: u64,
    /// Of each shard.
    lags_us: Vec<u64>,
    pub(super) cut_of: u64,
    pub(super) servers: Vec<Server>,
    connections: BTreeMap<ConnectionId, Connection>,
    last: ConnectionId,
    /// Until when nothing comes through between a host and a shard, and between any host and a shard.
    stalls: BTreeMap<(Incarnation, usize), u64>,
    away: Vec<u64>,
    /// Tries that were sent, by their pipes' keys and numbers.
    decided: BTreeMap<(Vec<u8>, Vec<u8>), Decided>,
    /// What hosts did.
    pub(super) done: BTreeMap<Incarnation, HostDone>,
    /// Transactions that the primary of a shard has made and that nobody has judged.
    pub(super) executed: Vec<(usize, Executed)>,
    /// Connections that were cut in the midst of something.
    pub(super) cuts: u64,
}

/// Shared by the hosts' ends.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Net>>);

impl Shared {
    pub(super) fn new(plan: &RemotePlan) -> Self {
        let server = |is_replica| {
            let mut server = Server::new(is_replica);
            server.has_others_keys(plan.others_keys);
            server
        };
        let shards = &plan.shards;
        Self(Arc::new(Mutex::new(Net {
            now_us: 0,
            draws: Draws::new(plan.seed, 71),
            delay_us: plan.delay_us,
            lags_us: shards.iter().map(|shard| shard.lag_us).collect(),
            cut_of: plan.cut_of,
            servers: (0..SERVERS * shards.len())
                .map(|number| server(number % SERVERS > 0))
                .collect(),
            connections: BTreeMap::new(),
            last: 0,
            stalls: BTreeMap::new(),
            away: vec![0; shards.len()],
            decided: BTreeMap::new(),
            done: BTreeMap::new(),
            executed: Vec::new(),
            cuts: 0,
        })))
    }

    pub(super) fn net(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the servers of a shard are.
pub(super) fn addresses(shard: usize) -> Vec<SocketAddr> {
    let address = |number: usize| SocketAddr::from(([192, 0, 2, 1 + number as u8], PORT));
    servers(shard).map(address).collect()
}

/// The numbers of the servers of a shard, of which the first one is its primary at first.
pub(super) fn servers(shard: usize) -> Range<usize> {
    SERVERS * shard..SERVERS * (shard + 1)
}

/// The other server of the same shard.
pub(super) fn other(server: usize) -> usize {
    server ^ 1
}

/// Of which shard a server is.
fn shard_of(server: usize) -> usize {
    server / SERVERS
}

impl Net {
    /// Until when nothing comes through between a host and a shard.
    fn stalled_until_us(&self, host: Incarnation, shard: usize) -> u64 {
        let own = self.stalls.get(&(host, shard)).copied();
        own.unwrap_or_default().max(self.away[shard])
    }

    pub(super) fn arrives_us(&mut self, host: Incarnation, shard: usize) -> u64 {
        let delay_us = self.delay_us + self.draws.within(0, self.delay_us);
        (self.now_us + delay_us).max(self.stalled_until_us(host, shard))
    }

    /// What comes by replication, or about it, comes then.
    fn replicated_us(&mut self, server: usize) -> u64 {
        let lag_us = self.lags_us[shard_of(server)];
        self.now_us + self.draws.within(lag_us / 4, lag_us)
    }

    fn is_cut_now(&mut self) -> bool {
        self.cut_of > 0 && self.draws.within(1, self.cut_of) == 1
    }

    pub(super) fn connect(
        &mut self,
        (host, shard): (Incarnation, usize),
        address: SocketAddr,
    ) -> Option<ConnectionId> {
        let mut all = servers(shard).zip(addresses(shard));
        let (server, _) = all.find(|(_, one)| *one == address)?;
        let is_stalled = self.stalled_until_us(host, shard) > self.now_us;
        if self.servers[server].is_dead || is_stalled {
            return None;
        }
        self.last += 1;
        let connection = Connection {
            host,
            server,
            served: Served::default(),
            to_server: Direction::default(),
            to_host: Direction::default(),
            is_instant: true,
            greeted: Vec::new(),
            ends_us: None,
            is_left: false,
        };
        self.connections.insert(self.last, connection);
        Some(self.last)
    }

    /// The login is over.
    pub(super) fn is_greeted(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_instant = false;
        }
    }

    pub(super) fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> io::Result<usize> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let (host, server) = (connection.host, connection.server);
        if connection.is_instant {
            connection.served.received.extend(bytes);
            self.serve(id, server);
            return Ok(bytes.len());
        }
        if connection.ends_us.is_some() {
            // Nobody takes it, which the host does not know.
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        // It comes in pieces now and then.
        while rest.len() > PIECE_BYTES && self.draws.percent(30) {
            let at = self.draws.within(1, rest.len() as u64 - 1) as usize;
            let (piece, behind) = rest.split_at(at);
            self.send(id, (host, server), piece);
            rest = behind;
        }
        self.send(id, (host, server), rest);
        if self.is_cut_now() {
            self.cut(id);
        }
        Ok(bytes.len())
    }

    fn send(&mut self, id: ConnectionId, (host, server): (Incarnation, usize), bytes: &[u8]) {
        let at_us = self.arrives_us(host, shard_of(server));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.to_server.send(at_us, bytes.to_vec());
        }
    }

    pub(super) fn read(&mut self, id: ConnectionId, room: &mut [u8]) -> io::Result<usize> {
        let now_us = self.now_us;
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(0);
        };
        while let Some(bytes) = connection.to_host.take(now_us) {
            connection.greeted.extend(bytes);
        }
        let count = connection.greeted.len().min(room.len());
        room[..count].copy_from_slice(&connection.greeted[..count]);
        connection.greeted.drain(..count);
        match (count, connection.ends_us) {
            (0, Some(at)) if at <= now_us => Ok(0),
            (0, _) => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(count),
        }
    }

    /// The host does not use it any more.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        let late_us = match self.draws.within(0, 2) {
            0 => 0,
            _ => self.draws.within(0, LATE_US),
        };
        let is_lost = self.draws.percent(40);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.is_left = true;
        connection.to_host = Direction::default();
        if connection.ends_us.is_none() {
            let bytes = connection.to_server.bytes();
            let kept = match is_lost {
                true => self.draws.within(0, bytes as u64) as usize,
                false => bytes,
            };
            connection.to_server.cut(kept);
            connection.to_server.later(late_us);
        }
        self.end_if_over(id);
    }

    /// The connection ends in the midst of what is under way.
    pub(super) fn cut(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.ends_us.is_some() || connection.is_instant {
            return;
        }
        let [to_server, to_host] =
            [&connection.to_server, &connection.to_host].map(Direction::bytes);
        let draws = &mut self.draws;
        let mut kept = |bytes: usize| match draws.percent(30) {
            true => bytes,
            false => draws.within(0, bytes as u64) as usize,
        };
        connection.to_server.cut(kept(to_server));
        connection.to_host.cut(kept(to_host));
        // Now and then nobody says so.
        connection.ends_us = Some(match draws.percent(15) {
            true => u64::MAX,
            false => self.now_us + draws.within(0, self.delay_us * 2),
        });
        self.cuts += 1;
    }

    /// All connections of a host to a shard end.
    pub(super) fn cut_all(&mut self, host: Incarnation, shard: usize) {
        self.cut_those(|one| one.host == host && shard_of(one.server) == shard);
    }

    fn cut_those(&mut self, is_it: impl Fn(&Connection) -> bool) {
        let all = self.connections.iter().filter(|(_, one)| is_it(one));
        let all: Vec<ConnectionId> = all.map(|(id, _)| *id).collect();
        for id in all {
            self.cut(id);
        }
    }

    /// Nothing comes through between a host, or any, and a shard until then.
    pub(super) fn stall(&mut self, host: Option<Incarnation>, shard: usize, until_us: u64) {
        match host {
            Some(host) => _ = self.stalls.insert((host, shard), until_us),
            None => self.away[shard] = until_us,
        }
        for connection in self.connections.values_mut() {
            let is_it = host.is_none_or(|host| connection.host == host);
            if is_it && shard_of(connection.server) == shard {
                connection.to_server.not_before(until_us);
                connection.to_host.not_before(until_us);
            }
        }
    }

    /// From now on until then a server refuses what is written.
    pub(super) fn refuses(&mut self, server: usize, until_us: u64, refusal: Refusal) {
        self.servers[server].refuses_until(until_us, refusal);
    }

    /// The session is over once nothing is under way to it.
    fn end_if_over(&mut self, id: ConnectionId) {
        let is_over = self.connections.get(&id).is_some_and(|connection| {
            let is_served = connection.to_server.is_empty();
            connection.is_left && is_served && connection.served.waits.is_none()
        });
        if is_over && let Some(connection) = self.connections.remove(&id) {
            let keyspace = &mut self.servers[connection.server].keyspace;
            connection.served.session.end(keyspace);
        }
    }

    /// A server answers what has come by a connection.
    fn serve(&mut self, id: ConnectionId, server: usize) {
        let now_us = self.now_us;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let server_at = &mut self.servers[server];
        if server_at.is_dead {
            connection.served.received.clear();
            return;
        }
        server_at.advance(now_us);
        let before = server_at.offset;
        let done = server_at.serve(&mut connection.served, now_us);
        let executed = done.executed.into_iter();
        self.executed
            .extend(executed.map(|one| (shard_of(server), one)));
        self.reply(id, done.replies);
        self.replicate(server, before);
        self.tell(server);
    }

    fn reply(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if bytes.is_empty() || connection.ends_us.is_some() || connection.is_left {
            return;
        }
        if connection.is_instant {
            connection.greeted.extend(bytes);
            return;
        }
        let (host, shard) = (connection.host, shard_of(connection.server));
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        while rest.len() > PIECE_BYTES && self.draws.percent(30) {
            let at = self.draws.within(1, rest.len() as u64 - 1) as usize;
            let (piece, behind) = rest.split_at(at);
            pieces.push((self.arrives_us(host, shard), piece));
            rest = behind;
        }
        pieces.push((self.arrives_us(host, shard), rest));
        let is_cut = self.is_cut_now();
        if let Some(connection) = self.connections.get_mut(&id) {
            for (at_us, piece) in pieces {
                connection.to_host.send(at_us, piece.to_vec());
            }
        }
        if is_cut {
            self.cut(id);
        }
    }

    /// What a primary has changed goes to its replica.
    fn replicate(&mut self, server: usize, before: u64) {
        let one = &self.servers[server];
        if !one.has_replica || one.offset == before {
            return;
        }
        let changes = one.changes_since(before).to_vec();
        for (offset, bytes) in changes {
            let at_us = self.replicated_us(server);
            self.servers[other(server)].sends_at(at_us, offset, bytes);
        }
    }

    /// A server tells those who keep what they read.
    fn tell(&mut self, server: usize) {
        let of_server = self.connections.iter().filter(|(_, connection)| {
            connection.server == server && !connection.is_instant && connection.ends_us.is_none()
        });
        let all: Vec<ConnectionId> = of_server.map(|(id, _)| *id).collect();
        for id in all {
            let mut announced = Vec::new();
            if let Some(connection) = self.connections.get_mut(&id) {
                let keyspace = &mut self.servers[server].keyspace;
                connection.served.session.tell(keyspace, &mut announced);
            }
            self.reply(id, announced);
        }
    }

    /// When something happens next that no host sees at once.
    pub(super) fn next_due_us(&self) -> Option<u64> {
        let connections = self.connections.values();
        let of_connections = connections.flat_map(|connection| {
            let waits = connection.served.waits.map(|waits| waits.until_us);
            connection.to_server.next_due_us().into_iter().chain(waits)
        });
        let of_servers = self.servers.iter().filter_map(Server::next_due_us);
        of_connections.chain(of_servers).min()
    }

    /// When a host has something to read.
    pub(super) fn next_for_us(&self, host: Incarnation) -> Option<u64> {
        let own = self
            .connections
            .values()
            .filter(|one| one.host == host && !one.is_left);
        own.flat_map(|connection| {
            let ends = connection.ends_us.filter(|at| *at != u64::MAX);
            connection.to_host.next_due_us().into_iter().chain(ends)
        })
        .min()
    }

    /// Does all that is due.
    pub(super) fn step(&mut self) {
        let now_us = self.now_us;
        for server in 0..self.servers.len() {
            self.servers[server].hear_acknowledgements(now_us);
            let mut is_any = false;
            while let Some((offset, bytes)) = self.servers[server].take_coming(now_us) {
                is_any = true;
                self.servers[server].advance(now_us);
                self.servers[server].apply(offset, bytes);
                let at_us = self.replicated_us(server);
                self.servers[other(server)].acknowledges_at(at_us, offset);
            }
            if is_any {
                self.tell(server);
            }
        }
        let due = self.connections.iter().filter(|(_, connection)| {
            let comes = connection.to_server.next_due_us();
            comes.is_some_and(|at| at <= now_us) || connection.served.waits.is_some()
        });
        let due: Vec<ConnectionId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.step_connection(id);
        }
    }

    fn step_connection(&mut self, id: ConnectionId) {
        let now_us = self.now_us;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let server = connection.server;
        if let Some(waits) = connection.served.waits {
            let has = self.servers[server].replicas_with(waits.offset);
            if has > 0 || waits.until_us <= now_us {
                connection.served.waits = None;
                self.reply(id, format!(":{has}\r\n").into_bytes());
                self.serve(id, server);
            }
        }
        let mut is_any = false;
        if let Some(connection) = self.connections.get_mut(&id) {
            while let Some(bytes) = connection.to_server.take(now_us) {
                connection.served.received.extend(bytes);
                is_any = true;
            }
        }
        if is_any {
            self.serve(id, server);
        }
        self.end_if_over(id);
    }

    /// Notes what a host is committing.
    pub(super) fn note_try(&mut self, host: Incarnation, tried: &Try<'_, Attempt>) {
        let names = tried.transactions.iter().map(|(name, _)| *name);
        let decided = Decided {
            host,
            transactions: names.zip(tried.are_committed.iter().copied()).collect(),
        };
        let name = (tried.key.to_vec(), tried.number.clone().into_bytes());
        self.decided.insert(name, decided);
    }

    /// What was decided in the try that has this number under this key.
    pub(super) fn decided(&self, key: &[u8], number: &[u8]) -> Option<&Decided> {
        self.decided.get(&(key.to_vec(), number.to_vec()))
    }

    /// Whether a connection of a host waits for a replica.
    pub(super) fn is_replicating(&self, host: Incarnation) -> bool {
        let mut own = self.connections.values().filter(|one| one.host == host);
        own.any(|connection| connection.served.waits.is_some())
    }

    /// The connections by which something is under way to a server.
    pub(super) fn busy(&self) -> BTreeSet<ConnectionId> {
        let all = self.connections.iter();
        let busy = all.filter(|(_, one)| !one.to_server.is_empty() || one.served.waits.is_some());
        busy.map(|(id, _)| *id).collect()
    }

    /// The primary dies, with what is under way to and from it.
    pub(super) fn dies(&mut self, server: usize) {
        self.servers[server].is_dead = true;
        self.cut_those(|one| one.server == server);
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id)
                && connection.server == server
            {
                connection.to_server = Direction::default();
                connection.served.waits = None;
            }
            self.end_if_over(id);
        }
    }

    /// A replica is the primary from now on, with what it has: so many bytes of changes.
    pub(super) fn promote(&mut self, server: usize) -> u64 {
        let other = other(server);
        for one in [server, other] {
            self.servers[one].is_cut_off();
        }
        self.servers[other].is_replica = true;
        self.servers[server].is_replica = false;
        let waiting = self.connections.iter().filter(|(_, connection)| {
            connection.server == other && connection.served.waits.is_some()
        });
        let waiting: Vec<ConnectionId> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.served.waits = None;
            }
            self.reply(id, UNBLOCKED.to_vec());
        }
        self.servers[server].offset
    }

    /// A server has all that the primary has, and follows it from now on.
    pub(super) fn follows(&mut self, server: usize) {
        let (primary, now_us) = (other(server), self.now_us);
        let log = self.servers[primary].log();
        let offset = self.servers[primary].offset;
        self.servers[server].is_dead = false;
        self.servers[server].advance(now_us);
        self.servers[server].copy(&log);
        self.servers[server].offset = offset;
        self.servers[primary].has_replica = true;
        let lag_us = self.lags_us[shard_of(server)];
        self.servers[primary].acknowledges_at(now_us + lag_us, offset);
        self.tell(server);
    }
}
