//! An instance's side of a store: which commands go by which connection, and what replies mean. Sans I/O.

use core::fmt::Debug;
use std::collections::{BTreeMap, VecDeque};

use asterism_engine::{Attempt, Dropped, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_resp::Value;
use asterism_state::{
    Depends, LANE_ANY, LANE_ROOM, Query, SumsShown, Tick, Ticket, Transaction, stable_hash,
};

use crate::cache::{Cache, CacheConfig, Found};
use crate::commits::{CommitPipe, Named, TOGETHER_MAX};
use crate::filter::{Filter, Rooms};
use crate::keys::Keys;
use crate::loaded::Outdated;
use crate::reads::{Answered, Reads, any_answer, room_answer};
use crate::refusals::Refusals;
use crate::shards::Shard;
use crate::statistics::AwayReason;
use crate::steps::{Replicas, Replied, Try};
use crate::sums::{FOR_PEOPLE_MAX, KeptSums};
use crate::workbench::{NOTHING, Workbench};

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The name of the function: that of its keys in the store.
    pub function: String,
    /// The name of this client, which no other has, nor has had.
    pub client: String,
    /// The seed by which the function's instances hash keys.
    pub seed: u64,
    /// The objects that are in the store, a bit for each by its number.
    pub objects: u64,
    /// Connections that commit, at most: so many batches are under way at a time. One more reads.
    pub commit_pipes: usize,
    /// How answers are kept; `None`: each read is asked for.
    pub cache: Option<CacheConfig>,
    /// Of a store of several shards the one that it is a client of.
    pub shard: Option<Shard>,
}

/// What came from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<A> {
    /// The answer to a read.
    Answer {
        /// Of which one.
        ticket: Ticket,
        /// What was found.
        answer: Vec<u8>,
    },
    /// What became of a transaction.
    Decision {
        /// Of which one.
        name: A,
        /// Its writes are made; else it is refused whole.
        is_committed: bool,
    },
    /// The sums of an object, which nobody asked for.
    Sums {
        /// Of which object, by its number.
        object: u8,
        /// What was found.
        answer: Vec<u8>,
    },
}

impl ClientEvent<Attempt> {
    /// The same as an instance takes it.
    #[must_use]
    pub fn for_instance(&self) -> StoreEvent<'_> {
        match self {
            Self::Answer { ticket, answer } => StoreEvent::Answer {
                ticket: *ticket,
                answer,
            },
            Self::Sums { object, answer } => StoreEvent::Sums {
                object: *object,
                answer,
            },
            Self::Decision { name, is_committed } => StoreEvent::Decision {
                attempt: *name,
                is_committed: *is_committed,
            },
        }
    }
}

/// What a client has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTally {
    /// Keys that reads named.
    pub keys_read: u64,
    /// Reads that were answered by what was kept, and calls that were by entries of it that stay in the instance's tables.
    pub cache_hits: u64,
    /// Reads that were answered by the filter: no such key is there, or there is room.
    pub filter_answers: u64,
    /// Keys that were read since the filter may have them, and were not there.
    pub filter_in_vain: u64,
    /// Scans of the filter that came to their end.
    pub filter_scans: u64,
    /// Memory of the filter; 0: there is none.
    pub filter_bytes: u64,
    /// The filter has all keys.
    pub filter_is_complete: bool,
    /// Changes that the store announced.
    pub changes_heard: u64,
    /// Answers that are kept now.
    pub cache_entries: u64,
    /// Transactions that were committed, or refused.
    pub decided: u64,
    /// Transactions that went without the store while it was away: they read what was kept, and wrote no more than that it is in use.
    pub decided_away: u64,
    /// Entries whose end this client has committed.
    pub ends_committed: u64,
    /// Additions that were left out, for their buckets of time were dropped before the store took them.
    pub additions_expired: u64,
    /// Batches that another client crossed, and that began again.
    pub crossed: u64,
    /// Commands that the store refused for the time being.
    pub refused: u64,
    /// Batches of which the store made a part, since it refused the rest: a key has another type than it should, or a sum is too large.
    pub torn: u64,
    /// Connections that were given up, since a reply was none to what was sent.
    pub nonsense: u64,
    /// Reads and transactions of keys that another shard has, and that were refused: the function's keys are not those of its packets.
    pub misplaced: u64,
    /// Connections that it needs now, by the load.
    pub connections: u64,
}

/// The connection that reads.
pub(crate) const READS: usize = 0;
/// Connections that commit however little there is to be committed.
const PIPES_LEAST: usize = 2;
/// Microseconds for which a store may refuse what is written until it counts as away, unless it is set.
const PATIENCE_US: u64 = 500_000;
/// Microseconds after which a further one is closed that had nothing to do, and for which none is made after one that could not be.
const PIPE_QUIET_US: u64 = 10_000_000;
/// Answers whose memory is used again, at most.
const SPARE_MAX: usize = 256;

/// See the module. `A` names transactions.
pub struct Client<F: NetworkFunction, A> {
    keys: Keys,
    bench: Workbench<F>,
    reads: Reads,
    cache: Option<Cache>,
    kept_sums: Option<KeptSums>,
    reads_connected: bool,
    commits: Vec<CommitPipe<A>>,
    /// How many of them are to have connections, by the load; and when the last one had something to do.
    pipes_wanted: usize,
    pipe_used_us: u64,
    /// None is made further before this time.
    pipes_from_us: u64,
    refusals: Refusals,
    waiting: VecDeque<Named<A>>,
    /// What replies have to be sent by each connection.
    to_send: Vec<Vec<u8>>,
    events: VecDeque<ClientEvent<A>>,
    /// Entries of each object, as counted last.
    entry_counts: BTreeMap<u8, u64>,
    /// Objects whose sums are asked for, for people.
    with_sums: Vec<(u8, SumsShown)>,
    rooms: Rooms,
    /// A key that is looked for.
    key: Vec<u8>,
    /// Memory of answers that were taken.
    spare: Vec<Vec<u8>>,
    tick: Tick,
    tally: ClientTally,
}

impl<F: NetworkFunction, A> Debug for Client<F, A> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Client({:?}, {:?})", self.keys, self.tally)
    }
}

impl<F: NetworkFunction, A: Copy + PartialEq> Client<F, A> {
    /// For the instances of a function.
    pub fn new(function: &F, config: &ClientConfig) -> Self {
        let bench = Workbench::new(function, config.seed, config.objects);
        let bench = bench.of_shard(config.shard.clone());
        let that_end = bench.that_end();
        let keys = Keys::new(&config.function).with_sums(bench.sums(), bench.timed());
        let pipe = |number| {
            // One connection of a client is enough.
            let objects = (number == 0).then(|| that_end.clone());
            let objects = objects.unwrap_or_default();
            CommitPipe::new(keys.of_pipe(&config.client, number), objects)
        };
        let objects = (0..u64::BITS as u8).filter(|number| config.objects >> number & 1 != 0);
        let entries: u64 = objects.map(|object| bench.capacity(object)).sum();
        let cache = |cache| Cache::new(cache, (entries, config.seed));
        let kept_sums = |cache: CacheConfig| {
            KeptSums::new(cache.staleness.as_micros() as u64, cache.entries.max(1))
        };
        let is_shown = |object| !bench.has_sums(object) || bench.capacity(object) <= FOR_PEOPLE_MAX;
        let with_sums = bench.with_sums().into_iter();
        let with_sums = with_sums.map(|object| (object, bench.shows_sums(object)));
        let with_sums = with_sums
            .filter(|(object, shown)| *shown != SumsShown::All || is_shown(*object))
            .collect();
        Self {
            with_sums,
            kept_sums: config.cache.map(kept_sums),
            bench,
            reads: Reads::default(),
            cache: config.cache.map(cache),
            reads_connected: false,
            commits: (0..config.commit_pipes.max(1)).map(pipe).collect(),
            waiting: VecDeque::new(),
            pipes_wanted: config.commit_pipes.clamp(1, PIPES_LEAST),
            pipe_used_us: 0,
            pipes_from_us: 0,
            refusals: Refusals::new(PATIENCE_US),
            to_send: vec![Vec::new(); config.commit_pipes.max(1) + 1],
            events: VecDeque::new(),
            entry_counts: BTreeMap::new(),
            rooms: Rooms::default(),
            key: Vec::new(),
            spare: Vec::new(),
            tick: 0,
            tally: ClientTally::default(),
            keys,
        }
    }

    /// Has what is committed wait until a replica has it too: each time for so many milliseconds, and after so many microseconds in all by
    /// another connection.
    pub fn wait_for_replica(&mut self, wait_ms: u32, patience_us: u64) {
        let replicas = Replicas {
            wait_ms,
            patience_us,
        };
        for pipe in &mut self.commits {
            pipe.replicas = Some(replicas);
        }
    }
    /// Whether no replica has acknowledged something for longer than that.
    pub fn lacks_replica(&self, now_us: u64) -> bool {
        self.commits.iter().any(|pipe| pipe.lacks_replica(now_us))
    }

    /// Has the store count as away when it has refused all that is written for so many microseconds.
    pub fn set_patience(&mut self, patience_us: u64) {
        self.refusals = Refusals::new(patience_us);
    }
    /// Why the store refuses all that is written, though it answers, if it does so for long enough.
    pub fn why_refused(&self, now_us: u64) -> Option<AwayReason> {
        self.refusals.why(now_us)
    }
    /// Whether it has done so by this connection for longer than this.
    pub fn is_refused_for(&self, connection: usize, now_us: u64, us: u64) -> bool {
        connection != READS && self.commits[connection - 1].is_refused_for(now_us, us)
    }

    /// The tries to commit that are under way.
    pub fn tries(&self) -> impl Iterator<Item = Try<'_, A>> {
        self.commits.iter().filter_map(Try::of)
    }

    /// How many connections it uses at most, numbered from 0 on.
    pub fn connections(&self) -> usize {
        self.to_send.len()
    }
    /// Whether it needs this connection, by the load.
    pub fn wants(&self, connection: usize) -> bool {
        connection <= self.pipes_wanted
    }
    /// Whether it cannot do without it, however little there is to be done.
    pub fn needs(&self, connection: usize) -> bool {
        connection <= self.pipes_wanted.min(PIPES_LEAST)
    }
    /// A connection could not be made. One that the load alone asks for is done without for a while: the store may have no more to give.
    pub fn not_made(&mut self, connection: usize, now_us: u64) {
        let is_last = connection == self.pipes_wanted && !self.needs(connection);
        if is_last && !self.commits[connection - 1].is_waiting() {
            self.pipes_wanted -= 1;
            self.pipes_from_us = now_us + PIPE_QUIET_US;
        }
    }
    /// What it counted.
    pub fn tally(&self) -> ClientTally {
        let filter = self.cache.as_ref().and_then(Cache::filter);
        ClientTally {
            cache_entries: self.cache.as_ref().map_or(0, |cache| cache.len() as u64),
            filter_scans: filter.map_or(0, Filter::scans),
            filter_bytes: filter.map_or(0, Filter::bytes),
            filter_is_complete: filter.is_some_and(Filter::is_complete),
            connections: self.pipes_wanted as u64 + 1,
            ..self.tally
        }
    }
    /// Entries that the store has of each object, as counted some seconds ago at most; none before that.
    pub fn entry_counts(&self) -> &BTreeMap<u8, u64> {
        &self.entry_counts
    }
    /// The second of the cluster's time.
    pub fn set_tick(&mut self, tick: Tick) {
        self.tick = tick;
        self.bench.set_tick(tick);
    }

    /// From now on asks for each key by a command of its own: what the batching of reads is measured against.
    pub fn ask_each_alone(&mut self) {
        self.reads.ask_each_alone();
    }
    /// Asks for a read; one that is asked for already is not asked for twice. A key that another shard has is not answered.
    pub fn ask(&mut self, ticket: Ticket, query: &Query<'_>, now_us: u64) {
        if !self.bench.is_here(query) {
            self.tally.misplaced += 1;
            return;
        }
        if !self.reads.is_asked(ticket) {
            // It was not there when the packet came, or the connection is lost since.
            let mut answer = self.spare.pop().unwrap_or_default();
            if self.answer_at_once(query, now_us, &mut answer) {
                return self
                    .events
                    .push_back(ClientEvent::Answer { ticket, answer });
            }
            self.spare.push(answer);
        }
        if self.reads_connected {
            self.reads.ask(ticket, query, &self.keys);
        }
    }
    /// Appends the answer to a read, if it is kept, or known without.
    pub fn answer_at_once(&mut self, query: &Query<'_>, now_us: u64, out: &mut Vec<u8>) -> bool {
        let Some(cache) = &mut self.cache else {
            return false;
        };
        if !self.bench.is_here(query) {
            return false;
        }
        if query.is_of_sums() {
            let kept = self.kept_sums.as_mut();
            let answer = kept.and_then(|kept| kept.get(query, now_us));
            out.extend_from_slice(answer.unwrap_or_default());
            self.tally.cache_hits += u64::from(answer.is_some());
            return answer.is_some();
        }
        if query.lane == LANE_ROOM {
            let capacity = self.bench.capacity(query.object);
            let Some(room) = self.rooms.plenty(query.object, capacity, self.tick) else {
                return false;
            };
            out.extend(room_answer(room));
            self.tally.filter_answers += 1;
            return true;
        }
        self.key.clear();
        match query.lane {
            LANE_ANY => self.keys.append_ends(query.object, &mut self.key),
            _ => self.keys.append_read(query, &mut self.key),
        }
        let Query {
            object, lane, hash, ..
        } = *query;
        let read = Dropped::Read { object, lane, hash };
        let Some(found) = cache.give((&self.key, read), (now_us, self.tick)) else {
            return false;
        };
        match &found {
            Found::Absent if query.lane == LANE_ANY => out.extend(any_answer(0)),
            found => out.extend_from_slice(found.answer()),
        }
        match found {
            Found::Kept(_) => self.tally.cache_hits += 1,
            Found::Absent => self.tally.filter_answers += 1,
        }
        true
    }
    /// Whether it keeps answers at all.
    pub fn may_keep(&self) -> bool {
        self.cache.is_some()
    }
    /// Whether what it gave at once is so now, but for what was dropped since.
    pub fn keeps(&self, now_us: u64) -> bool {
        let mut cache = self.cache.iter();
        cache.any(|cache| cache.is_fresh(now_us))
    }
    /// So many calls were answered by entries of what it gave at once.
    pub fn was_kept(&mut self, calls: u64) {
        self.tally.cache_hits += calls;
    }
    /// An answer that was given at once and is not so any more, or may not be.
    pub fn next_dropped(&mut self) -> Option<Dropped> {
        self.cache.as_mut()?.next_dropped()
    }
    /// Has a transaction committed; one that waits for that already is not committed twice.
    pub fn commit(&mut self, name: A, transaction: &Transaction, now_us: u64) {
        if !self.bench.is_whole_here(transaction) {
            self.tally.misplaced += 1;
            let is_committed = false;
            let decision = ClientEvent::Decision { name, is_committed };
            return self.events.push_back(decision);
        }
        let is_away = !self.reads_connected || self.refusals.why(now_us).is_some();
        if is_away && self.goes_without_store(transaction, now_us) {
            self.forget(name);
            self.tally.decided_away += 1;
            let is_committed = true;
            let decision = ClientEvent::Decision { name, is_committed };
            return self.events.push_back(decision);
        }
        let is_known = self.waiting.iter().any(|(known, _)| *known == name)
            || self.commits.iter().any(|pipe| pipe.has(name));
        if !is_known {
            self.waiting.push_back((name, transaction.clone()));
        }
    }
    /// Whether a transaction reads what is kept, and writes no more than that it is in use. While the store is away, or takes nothing, that goes
    /// without it: should it have taken the transaction all the same, it hears of a use twice.
    fn goes_without_store(&mut self, transaction: &Transaction, now_us: u64) -> bool {
        let (Some(cache), key) = (&mut self.cache, &mut self.key) else {
            return false;
        };
        let (keys, now, bench) = (&self.keys, (now_us, self.tick), &self.bench);
        if !cache.serves_away() {
            return false;
        }
        let are_kept = transaction.reads().all(|(query, depends)| {
            key.clear();
            keys.append_read(&query, key);
            let kept = cache.get(key, now);
            kept.is_some_and(|found| match depends {
                Depends::OnAnswer(hash) => stable_hash(found.answer()) == hash,
                Depends::OnEntry(hash) => bench.is_in(query.object, found.answer(), hash),
            })
        });
        are_kept && self.bench.uses_alone(transaction)
    }
    /// Nobody waits for the decision on a transaction any more. If it was not sent yet, it is not made.
    pub fn forget(&mut self, name: A) {
        self.waiting.retain(|(known, _)| *known != name);
    }

    /// A connection is there.
    pub fn connected(&mut self, connection: usize) {
        self.to_send[connection].clear();
        match connection {
            READS => {
                self.reads_connected = true;
                self.cache.iter_mut().for_each(Cache::connected);
            }
            pipe => self.commits[pipe - 1].connected(),
        }
    }
    /// A connection is lost, or could not be made. What waits for replies by it waits for another connection.
    pub fn lost(&mut self, connection: usize) {
        self.to_send[connection].clear();
        match connection {
            READS => {
                self.reads_connected = false;
                self.reads.lost();
                self.cache.iter_mut().for_each(Cache::lost);
            }
            pipe => self.commits[pipe - 1].lost(),
        }
    }
    /// Appends what is to be sent by a connection now.
    pub fn write(&mut self, connection: usize, now_us: u64, out: &mut Vec<u8>) {
        out.append(&mut self.to_send[connection]);
        if connection == READS {
            self.follow_load(now_us);
        }
        match connection {
            READS if self.reads_connected => {
                let now = (now_us, self.tick);
                let cache = self.cache.as_mut();
                let keys = (&self.keys, self.bench.objects(), &*self.with_sums);
                self.tally.keys_read += self.reads.write(now, keys, cache, out);
            }
            READS => {}
            pipe => {
                // Batches of further ones are whole: else those that are always there take what waits.
                let is_further = pipe > PIPES_LEAST;
                let enough = if is_further { TOGETHER_MAX } else { 1 };
                let pipe = &mut self.commits[pipe - 1];
                if pipe.is_free_for_packets(now_us) && self.waiting.len() >= enough {
                    pipe.begin(&mut self.waiting);
                    if is_further {
                        self.pipe_used_us = now_us;
                    }
                }
                pipe.write((now_us, self.tick), &self.keys, &self.bench, out);
            }
        }
    }
    /// One more connection where a whole batch waits and all have something to do; one less where the last one had nothing for long.
    fn follow_load(&mut self, now_us: u64) {
        let (wanted, further) = self.commits.split_at(self.pipes_wanted);
        let is_much = self.waiting.len() >= TOGETHER_MAX;
        let last = wanted.last().filter(|_| wanted.len() > PIPES_LEAST);
        let may_grow = !further.is_empty() && now_us >= self.pipes_from_us;
        if is_much && may_grow && wanted.iter().all(CommitPipe::is_busy) {
            self.pipes_wanted += 1;
            self.pipe_used_us = now_us;
        } else if last.is_some_and(CommitPipe::is_free)
            && now_us >= self.pipe_used_us + PIPE_QUIET_US
        {
            self.pipes_wanted -= 1;
            self.pipe_used_us = now_us;
        }
    }
    /// The next reply of a connection. False: it is none to what was sent, and the connection is to be closed.
    #[must_use]
    pub fn reply(&mut self, connection: usize, value: &Value<'_>, now_us: u64) -> bool {
        let (events, bench) = (&mut self.events, &mut self.bench);
        let replied = match connection {
            READS if matches!(value, Value::Push(_)) => match hear(value, self.cache.as_mut()) {
                Some(changes) => {
                    self.tally.changes_heard += changes;
                    Replied::Well
                }
                None => Replied::Nonsense,
            },
            READS => {
                let capacity = |object| bench.capacity(object);
                let cache = self.cache.as_mut();
                let (entry_counts, rooms) = (&mut self.entry_counts, &mut self.rooms);
                let (tally, tick) = (&mut self.tally, self.tick);
                let kept_sums = &mut self.kept_sums;
                let has_filter = cache.as_ref().is_some_and(|cache| cache.filter().is_some());
                let counted = |object, count| {
                    entry_counts.insert(object, count);
                    if has_filter {
                        rooms.note(object, count, tick);
                    }
                };
                let is_well =
                    self.reads
                        .reply(value, capacity, cache, counted, |cache, answered| {
                            let Answered {
                                object,
                                key,
                                sums,
                                tickets,
                                answer,
                            } = answered;
                            if sums.is_some() && tickets.is_empty() {
                                let answer = answer.to_vec();
                                events.push_back(ClientEvent::Sums { object, answer });
                            }
                            if let (Some((sent_us, field)), Some(kept)) = (sums, &mut *kept_sums) {
                                kept.keep((object, field), sent_us, answer);
                            }
                            for &ticket in tickets {
                                let answer = answer.to_vec();
                                events.push_back(ClientEvent::Answer { ticket, answer });
                            }
                            if let (Some(cache), Some(key)) = (cache, key) {
                                let is_in_vain = answer == NOTHING && cache.is_in_vain(&key);
                                tally.filter_in_vain += u64::from(is_in_vain);
                                cache.keep(key, answer, through(bench, object, answer));
                            }
                        });
                match (is_well, value) {
                    (true, _) => Replied::Well,
                    (false, Value::Error(_)) => Replied::Refused,
                    (false, _) => Replied::Nonsense,
                }
            }
            pipe => {
                let out = &mut self.to_send[connection];
                let (tally, rooms) = (&mut self.tally, &mut self.rooms);
                let mut decided = |name, is_committed: bool| {
                    tally.decided += 1;
                    if !is_committed {
                        rooms.forget();
                    }
                    events.push_back(ClientEvent::Decision { name, is_committed });
                };
                let pipe = &mut self.commits[pipe - 1];
                tally.torn += u64::from(pipe.step.is_torn_by(value));
                let replied = pipe.reply(value, now_us, (&self.keys, bench), out, &mut decided);
                if let Some(taken) = pipe.take_taken() {
                    self.refusals.note(taken, now_us);
                }
                tally.ends_committed += pipe.take_ended();
                tally.additions_expired += pipe.take_expired();
                let outdated = pipe.take_outdated();
                if let Some(cache) = &mut self.cache {
                    match outdated {
                        Outdated::Keys(changed) => cache.bar(&changed, &self.keys),
                        Outdated::All => cache.bar_all(),
                    }
                }
                replied
            }
        };
        match replied {
            Replied::Well => {}
            Replied::Refused => self.tally.refused += 1,
            Replied::Crossed => self.tally.crossed += 1,
            Replied::Nonsense => self.tally.nonsense += 1,
        }
        let is_lost = connection != READS && self.commits[connection - 1].needs_connection();
        replied != Replied::Nonsense && !is_lost
    }
    /// Whether a connection's server has said that it is no primary any more.
    pub fn meets_replica(&self, connection: usize) -> bool {
        connection != READS && self.commits[connection - 1].meets_replica()
    }
    /// Whether a reply is to come by a connection.
    pub fn awaits_reply(&self, connection: usize) -> bool {
        match connection {
            READS => self.reads.awaits_reply(),
            pipe => self.commits[pipe - 1].awaits_reply(),
        }
    }
    /// When something is to be sent though nothing is asked for, in microseconds; `None`: that is not known to be.
    pub fn next_due_us(&self) -> Option<u64> {
        let cache = self.cache.as_ref().filter(|_| self.reads_connected)?;
        self.reads.ping_due_us(cache)
    }
    /// Whether something came that was not taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
    /// What an event was made of may be used again.
    pub fn recycle(&mut self, event: ClientEvent<A>) {
        if let ClientEvent::Answer { mut answer, .. } = event
            && self.spare.len() < SPARE_MAX
        {
            answer.clear();
            self.spare.push(answer);
        }
    }
    /// What came next.
    pub fn next_event(&mut self) -> Option<ClientEvent<A>> {
        self.events.pop_front()
    }
    /// Whether anything is waited for.
    pub fn is_waiting(&self) -> bool {
        let commits = self.commits.iter().any(CommitPipe::is_waiting);
        let filter = self.cache.as_ref().and_then(Cache::filter);
        let is_busy = self.reads_connected && filter.is_some_and(Filter::is_busy);
        let reads = self.reads.is_waiting() || self.reads.awaits_reply() || is_busy;
        commits || !self.waiting.is_empty() || reads
    }
}

/// Takes what a store tells of keys that have changed; how many. `None`: it is something else.
fn hear(pushed: &Value<'_>, mut cache: Option<&mut Cache>) -> Option<u64> {
    let Value::Push(mut values) = *pushed else {
        return None;
    };
    let kind = values.next()?;
    if kind.bytes() != Some(b"invalidate") {
        // What else a store tells of its own nobody asked for.
        return Some(0);
    }
    let mut changed = |key| {
        if let Some(cache) = &mut cache {
            cache.changed(key);
        }
    };
    match values.next()? {
        Value::Array(keys) => {
            let count = keys.len() as u64;
            for key in keys {
                changed(Some(key.bytes()?));
            }
            Some(count)
        }
        Value::Null => {
            changed(None);
            Some(1)
        }
        _ => None,
    }
}

/// The last second in which none of an answer's entries has ended.
fn through<F: NetworkFunction>(bench: &Workbench<F>, object: u8, answer: &[u8]) -> Tick {
    let mut through = Tick::MAX;
    let read = bench.each_entry(object, answer, &mut |entry| {
        through = through.min(entry.ends.unwrap_or(Tick::MAX));
    });
    // What is no answer is found out when it is installed.
    read.map_or(0, |()| through)
}
