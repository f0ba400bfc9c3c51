//! Connections between hosts and the store's servers on virtual time: they delay, stall, and end in the midst of anything.
#![expect(
    clippy::disallowed_types,
    reason = "one thread runs all hosts of a seed, whose ends of the store must be `Send`"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asterism_engine::Attempt;
use asterism_function::testkit::RecordedCall;
use asterism_remote_store::{AwayReason, Greeting, Network, Try};
use asterism_state::Transaction;

use super::plan::RemotePlan;
use super::servers::{Executed, Served, Server, UNBLOCKED};
use crate::scenario::Draws;

/// The incarnation of a host: none is ever used again.
pub(super) type Incarnation = u64;
/// A connection's number.
pub(super) type ConnectionId = u64;
/// The store's servers.
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
    /// A try is under way, of transactions, or of the ends of entries.
    pub(super) is_executing: bool,
    pub(super) is_ending: bool,
}

/// One direction: what is under way, in order, and when it comes.
#[derive(Debug, Default)]
struct Direction(VecDeque<(u64, Vec<u8>)>);

impl Direction {
    fn send(&mut self, at_us: u64, bytes: Vec<u8>) {
        let last = self.0.back().map_or(0, |(at, _)| *at);
        self.0.push_back((last.max(at_us), bytes));
    }

    fn take(&mut self, now_us: u64) -> Option<Vec<u8>> {
        let is_here = self.0.front().is_some_and(|(at, _)| *at <= now_us);
        is_here
            .then(|| self.0.pop_front())
            .flatten()
            .map(|(_, bytes)| bytes)
    }

    fn next_due_us(&self) -> Option<u64> {
        self.0.front().map(|(at, _)| *at)
    }

    fn later(&mut self, by_us: u64) {
        self.0.iter_mut().for_each(|(at, _)| *at += by_us);
    }

    /// Only so many bytes of it come.
    fn cut(&mut self, mut bytes: usize) {
        let mut kept = VecDeque::new();
        for (at, mut piece) in self.0.drain(..) {
            piece.truncate(bytes);
            bytes -= piece.len();
            if !piece.is_empty() {
                kept.push_back((at, piece));
            }
        }
        self.0 = kept;
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, piece)| piece.len()).sum()
    }
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
    lag_us: u64,
    pub(super) cut_of: u64,
    pub(super) servers: [Server; SERVERS],
    connections: BTreeMap<ConnectionId, Connection>,
    last: ConnectionId,
    /// Until when nothing comes through to or from a host.
    stalls: BTreeMap<Incarnation, u64>,
    /// Tries that were sent, by their pipes' keys and numbers.
    decided: BTreeMap<(Vec<u8>, Vec<u8>), Decided>,
    /// What hosts did.
    pub(super) done: BTreeMap<Incarnation, HostDone>,
    /// Transactions that a primary has made and that nobody has judged.
    pub(super) executed: Vec<Executed>,
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
        Self(Arc::new(Mutex::new(Net {
            now_us: 0,
            draws: Draws::new(plan.seed, 71),
            delay_us: plan.delay_us,
            lag_us: plan.lag_us,
            cut_of: plan.cut_of,
            servers: [server(false), server(true)],
            connections: BTreeMap::new(),
            last: 0,
            stalls: BTreeMap::new(),
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

/// Where the servers are.
pub(super) fn addresses() -> Vec<SocketAddr> {
    let address = |number: usize| SocketAddr::from(([192, 0, 2, 1 + number as u8], PORT));
    (0..SERVERS).map(address).collect()
}

impl Net {
    fn arrives_us(&mut self, host: Incarnation) -> u64 {
        let delay_us = self.delay_us + self.draws.within(0, self.delay_us);
        let stalled_us = self.stalls.get(&host).copied().unwrap_or_default();
        (self.now_us + delay_us).max(stalled_us)
    }

    fn is_cut_now(&mut self) -> bool {
        self.cut_of > 0 && self.draws.within(1, self.cut_of) == 1
    }

    fn connect(&mut self, host: Incarnation, address: SocketAddr) -> Option<ConnectionId> {
        let server = addresses().iter().position(|one| *one == address)?;
        let is_stalled = self
            .stalls
            .get(&host)
            .is_some_and(|until| *until > self.now_us);
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

    fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> io::Result<usize> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let host = connection.host;
        if connection.is_instant {
            connection.served.received.extend(bytes);
            let server = connection.server;
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
            self.send(id, host, piece);
            rest = behind;
        }
        self.send(id, host, rest);
        if self.is_cut_now() {
            self.cut(id);
        }
        Ok(bytes.len())
    }

    fn send(&mut self, id: ConnectionId, host: Incarnation, bytes: &[u8]) {
        let at_us = self.arrives_us(host);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.to_server.send(at_us, bytes.to_vec());
        }
    }

    fn read(&mut self, id: ConnectionId, room: &mut [u8]) -> io::Result<usize> {
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
    fn leave(&mut self, id: ConnectionId) {
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

    /// All connections of a host, or to a server, end.
    pub(super) fn cut_all(&mut self, host: Option<Incarnation>, server: Option<usize>) {
        let all = self.connections.iter().filter(|(_, connection)| {
            host.is_none_or(|host| connection.host == host)
                && server.is_none_or(|server| connection.server == server)
        });
        let all: Vec<ConnectionId> = all.map(|(id, _)| *id).collect();
        for id in all {
            self.cut(id);
        }
    }

    /// Nothing comes through for a host until then.
    pub(super) fn stall(&mut self, host: Incarnation, until_us: u64) {
        self.stalls.insert(host, until_us);
        for connection in self.connections.values_mut() {
            if connection.host == host {
                for direction in [&mut connection.to_server, &mut connection.to_host] {
                    direction
                        .0
                        .iter_mut()
                        .for_each(|(at, _)| *at = (*at).max(until_us));
                }
            }
        }
    }

    /// The session is over once nothing is under way to it.
    fn end_if_over(&mut self, id: ConnectionId) {
        let is_over = self.connections.get(&id).is_some_and(|connection| {
            let is_served = connection.to_server.0.is_empty();
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
        self.executed.extend(done.executed);
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
        let host = connection.host;
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        while rest.len() > PIECE_BYTES && self.draws.percent(30) {
            let at = self.draws.within(1, rest.len() as u64 - 1) as usize;
            let (piece, behind) = rest.split_at(at);
            pieces.push((self.arrives_us(host), piece));
            rest = behind;
        }
        pieces.push((self.arrives_us(host), rest));
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
        let other = 1 - server;
        let one = &self.servers[server];
        if !one.has_replica || one.offset == before {
            return;
        }
        let changes = one.changes_since(before).to_vec();
        for (offset, bytes) in changes {
            let at_us = self.now_us + self.draws.within(self.lag_us / 4, self.lag_us);
            self.servers[other].sends_at(at_us, offset, bytes);
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
        for server in 0..SERVERS {
            self.servers[server].hear_acknowledgements(now_us);
            let mut is_any = false;
            while let Some((offset, bytes)) = self.servers[server].take_coming(now_us) {
                is_any = true;
                self.servers[server].advance(now_us);
                self.servers[server].apply(offset, bytes);
                let at_us = now_us + self.draws.within(self.lag_us / 4, self.lag_us);
                self.servers[1 - server].acknowledges_at(at_us, offset);
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

    /// Whether nothing is under way to a server.
    pub(super) fn is_quiet(&self) -> bool {
        let mut all = self.connections.values();
        all.all(|one| one.to_server.0.is_empty() && one.served.waits.is_none())
    }

    /// The primary dies, with what is under way to and from it.
    pub(super) fn dies(&mut self, server: usize) {
        self.servers[server].is_dead = true;
        self.cut_all(None, Some(server));
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
        let other = 1 - server;
        for one in &mut self.servers {
            one.is_cut_off();
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

    /// The other server has all that the primary has, and follows it from now on.
    pub(super) fn follows(&mut self, server: usize) {
        let log = self.servers[1 - server].log();
        let offset = self.servers[1 - server].offset;
        let now_us = self.now_us;
        self.servers[server].is_dead = false;
        self.servers[server].advance(now_us);
        self.servers[server].copy(&log);
        self.servers[server].offset = offset;
        self.servers[1 - server].has_replica = true;
        self.servers[1 - server].acknowledges_at(now_us + self.lag_us, offset);
        self.tell(server);
    }
}

/// A host's end of a connection.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Shared,
    id: ConnectionId,
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.shared.net().read(self.id, room)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.net().write(self.id, bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.net().leave(self.id);
    }
}

/// Where a host's connections come from.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) shared: Shared,
    pub(super) host: Incarnation,
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Begun {
    due_us: u64,
    candidates: Vec<SocketAddr>,
    greeting: Arc<Greeting>,
}

impl Network for Links {
    type Stream = Stream;
    type Attempt = Begun;

    fn begin(&mut self, candidates: Vec<SocketAddr>, greeting: &Arc<Greeting>) -> Option<Begun> {
        Some(Begun {
            due_us: self.shared.net().arrives_us(self.host),
            candidates,
            greeting: greeting.clone(),
        })
    }

    fn made(&mut self, attempt: &mut Begun) -> Option<Result<(Stream, SocketAddr), AwayReason>> {
        if attempt.due_us > self.shared.net().now_us {
            return None;
        }
        let candidates = core::mem::take(&mut attempt.candidates);
        let made = attempt.greeting.open(candidates, |address| {
            let id = self.shared.net().connect(self.host, address);
            let shared = self.shared.clone();
            let stream = id.map(|id| Stream { shared, id });
            stream.ok_or(AwayReason::Unreachable)
        });
        if let Ok((stream, _)) = &made {
            let mut net = self.shared.net();
            if let Some(connection) = net.connections.get_mut(&stream.id) {
                connection.is_instant = false;
            }
        }
        Some(made)
    }
}
