//! What is under way between hosts and their store, and a host's end of it.
#![expect(
    clippy::disallowed_types,
    reason = "one thread runs all hosts of a seed, whose ends of the store must be `Send`"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asterism_engine::{Attempt, Store, StoreEvent};
use asterism_function::testkit::{FromStore, RecordedCall, RecordedCalls};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::{Link, LinkConditions, LinkStatistics, SeededRandom};
use asterism_io::port::{Port, PortStatistics};
use asterism_placement::Time;
use asterism_state::{Query, Ticket, Transaction, hash};

/// The incarnation of a host: none is ever used again.
pub(super) type Incarnation = u64;
/// A transaction's name in the store: the host that has it committed, and the host's own name for it.
pub(super) type Name = (Incarnation, Attempt);

/// What a host asks the store for.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Read {
        ticket: Ticket,
        object: u8,
        lane: u8,
        hash: u64,
        key: Vec<u8>,
    },
    Commit {
        attempt: Attempt,
        transaction: Transaction,
    },
}

/// Messages under way to one recipient, by the time of arrival.
type UnderWay<T> = BTreeMap<(Time, u64), T>;

/// The links between the hosts and the store.
#[derive(Debug)]
pub(super) struct Network {
    conditions: LinkConditions,
    seed: u64,
    /// From a host to the store, and back.
    links: BTreeMap<Incarnation, [Link; 2]>,
    to_store: UnderWay<(Incarnation, Request)>,
    to_hosts: BTreeMap<Incarnation, UnderWay<FromStore<Attempt>>>,
    sent: u64,
    /// The call and the transaction of each name.
    pub(super) called: BTreeMap<Name, (RecordedCall, Transaction)>,
    /// What calls read that took effect by that alone: by the host, and the packet's number there.
    read_alone: BTreeMap<(Incarnation, u64), Transaction>,
}

/// Shared by the hosts' ends.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Network>>);

impl Shared {
    pub(super) fn new(conditions: LinkConditions, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Network {
            conditions,
            seed,
            links: BTreeMap::new(),
            to_store: BTreeMap::new(),
            to_hosts: BTreeMap::new(),
            sent: 0,
            called: BTreeMap::new(),
            read_alone: BTreeMap::new(),
        })))
    }

    pub(super) fn network(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Network {
    /// When a message arrives: never, once or twice.
    fn arrivals(&mut self, host: Incarnation, direction: usize, now: Time) -> Vec<Time> {
        let (conditions, seed) = (&self.conditions, self.seed);
        let links = self.links.entry(host).or_insert_with(|| {
            [0, 1].map(|direction| {
                let random = SeededRandom::new(hash::words(host, direction, seed));
                Link::new(conditions.clone(), random)
            })
        });
        let arrivals = links[direction].send(now, 1);
        [arrivals.first, arrivals.second]
            .into_iter()
            .flatten()
            .collect()
    }

    fn request(&mut self, from: Incarnation, request: &Request, now: Time) {
        for at in self.arrivals(from, 0, now) {
            self.sent += 1;
            self.to_store
                .insert((at, self.sent), (from, request.clone()));
        }
    }

    pub(super) fn reply(&mut self, to: Incarnation, reply: &FromStore<Attempt>, now: Time) {
        for at in self.arrivals(to, 1, now) {
            self.sent += 1;
            let inbox = self.to_hosts.entry(to).or_default();
            inbox.insert((at, self.sent), reply.clone());
        }
    }

    /// The next request that the store has got by now.
    pub(super) fn take_request(&mut self, now: Time) -> Option<(Incarnation, Request)> {
        let first = self.to_store.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn next_request(&self) -> Option<Time> {
        self.to_store.keys().next().map(|(at, _)| *at)
    }

    fn next_reply(&self, to: Incarnation) -> Option<Time> {
        let inbox = self.to_hosts.get(&to)?;
        inbox.keys().next().map(|(at, _)| *at)
    }

    fn take_reply(&mut self, to: Incarnation, now: Time) -> Option<FromStore<Attempt>> {
        let first = self.to_hosts.get_mut(&to)?.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// What is under way to the store never arrives: of one host, or of all.
    pub(super) fn lose_requests(&mut self, of: Option<Incarnation>) -> u64 {
        let before = self.to_store.len();
        self.to_store
            .retain(|_, (from, _)| of.is_some_and(|of| of != *from));
        (before - self.to_store.len()) as u64
    }

    /// A host is gone: what is sent to it reaches nobody.
    pub(super) fn forget_host(&mut self, host: Incarnation) {
        self.to_hosts.remove(&host);
    }

    /// Whether the store has yet to get a transaction of a host.
    pub(super) fn has_commit_of(&self, host: Incarnation) -> bool {
        let mut under_way = self.to_store.values();
        under_way.any(|(from, what)| *from == host && matches!(what, Request::Commit { .. }))
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.to_store.is_empty()
    }

    /// Links lose, repeat and reorder nothing any more.
    pub(super) fn calm(&mut self) {
        let calm = LinkConditions {
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            ..self.conditions.clone()
        };
        for link in self.links.values_mut().flatten() {
            link.conditions = calm.clone();
        }
        self.conditions = calm;
    }

    pub(super) fn statistics(&self) -> LinkStatistics {
        let mut total = LinkStatistics::default();
        for link in self.links.values().flatten() {
            total.add(&link.statistics);
        }
        total
    }

    /// What a call read that took effect by that alone.
    pub(super) fn take_read_alone(
        &mut self,
        host: Incarnation,
        serial: u64,
    ) -> Option<Transaction> {
        self.read_alone.remove(&(host, serial))
    }

    /// Notes the call whose transaction has this name: the call that just ended, or that of another name for the same transaction.
    fn note_call(&mut self, name: Name, calls: &RecordedCalls, transaction: &Transaction) {
        if self.called.contains_key(&name) {
            return;
        }
        let of_another_name = || {
            let mut names = self.called.iter().rev();
            let same =
                names.find(|((host, _), (_, other))| *host == name.0 && other == transaction);
            same.map(|(_, (call, _))| call.clone())
        };
        let call = calls.take_last_staged().or_else(of_another_name);
        let call = call.expect("a transaction is that of a call that ended");
        self.called.insert(name, (call, transaction.clone()));
    }
}

/// A host's end of the store.
pub(super) struct HostEnd {
    pub(super) host: Incarnation,
    pub(super) shared: Shared,
    pub(super) calls: RecordedCalls,
    pub(super) answer: Vec<u8>,
}

impl Store for HostEnd {
    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        let Query {
            object,
            lane,
            hash,
            key,
            conversation: _,
        } = query;
        let request = Request::Read {
            ticket,
            object,
            lane,
            hash,
            key: key.to_vec(),
        };
        self.shared.network().request(self.host, &request, now);
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        let mut network = self.shared.network();
        network.note_call((self.host, attempt), &self.calls, transaction);
        let request = Request::Commit {
            attempt,
            transaction: transaction.clone(),
        };
        network.request(self.host, &request, now);
    }

    fn read_alone(&mut self, transaction: &Transaction) {
        let serial = self.calls.last_serial();
        let serial = serial.expect("a call that ended read it");
        let mut network = self.shared.network();
        network
            .read_alone
            .insert((self.host, serial), transaction.clone());
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        let reply = self.shared.network().take_reply(self.host, now)?;
        Some(match reply {
            FromStore::Answer(ticket, answer) => {
                self.answer = answer;
                StoreEvent::Answer {
                    ticket,
                    answer: &self.answer,
                }
            }
            FromStore::Decision(attempt, is_committed) => StoreEvent::Decision {
                attempt,
                is_committed,
            },
        })
    }

    fn next_due(&self) -> Option<Time> {
        self.shared.network().next_reply(self.host)
    }
}

/// Packets with the ports by which they left.
type Left = Vec<(u16, Vec<u8>)>;

/// Packets that left a host, until they are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(Arc<Mutex<Left>>);

impl Outside {
    pub(crate) fn take(&self) -> Left {
        core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A port by which nothing comes, and of which what leaves is kept here.
    pub(crate) fn port(&self, number: u16) -> Box<dyn Port> {
        let outside = self.clone();
        Box::new(Tap { number, outside })
    }
}

struct Tap {
    number: u16,
    outside: Outside,
}

impl Port for Tap {
    fn name(&self) -> &str {
        "tap"
    }
    fn receive(&mut self, _: &mut FramePool, _: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let mut left = self
            .outside
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for frame in burst.iter() {
            left.push((self.number, pool.bytes(frame).to_vec()));
        }
        let count = burst.len();
        pool.release_all(burst);
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}
