//! A store of several shards as an instance's [`Store`]: a [`RemoteStore`] for each, which are asked by the conversations of packets.

use std::sync::Arc;

use asterism_engine::{Attempt, Dropped, Store, StoreEvent};
use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_state::{Query, Tick, Ticket, Transaction};

use crate::link::{LOOK, RemoteConfig, RemoteStore};
use crate::mutant::{self, Mutant};
use crate::network::Network;
use crate::shards::Shards;
use crate::statistics::StoreStatistics;

/// A store that can be one of several shards: its next event is taken and then looked at.
pub trait ShardStore: Store {
    /// Takes what came next, if anything did.
    fn take_event(&mut self, now: Time) -> bool;
    /// What was taken last.
    fn event(&self) -> Option<StoreEvent<'_>>;
}

impl<F: NetworkFunction, N: Network> ShardStore for RemoteStore<F, N> {
    fn take_event(&mut self, now: Time) -> bool {
        Self::take_event(self, now)
    }
    fn event(&self) -> Option<StoreEvent<'_>> {
        Self::event(self)
    }
}

/// A store of several shards, as an instance uses it: each has connections, a cache and a filter of its own, so one that is slow or away
/// holds up packets of its own conversations alone.
#[derive(Debug)]
pub struct ShardedStore<S> {
    shards: Arc<Shards>,
    stores: Vec<S>,
    /// Whose events are taken, and how many shards were asked for theirs in this turn.
    taking: usize,
    taken: usize,
}

impl<F: NetworkFunction> ShardedStore<RemoteStore<F>> {
    /// For an instance of this function, with how each shard is reached and where other threads see what becomes of it.
    pub fn new(
        function: &F,
        shards: Arc<Shards>,
        each: impl IntoIterator<Item = (RemoteConfig, Arc<StoreStatistics>)>,
    ) -> Self {
        let each = each.into_iter();
        let stores =
            each.map(|(config, statistics)| RemoteStore::new(function, &config, statistics));
        Self::of(shards, stores.collect())
    }
}

impl<S: ShardStore> ShardedStore<S> {
    /// Of these shards, by their places; each was made with [`ClientConfig::shard`](crate::ClientConfig::shard).
    pub fn of(shards: Arc<Shards>, stores: Vec<S>) -> Self {
        debug_assert_eq!(shards.count(), stores.len(), "one store for each shard");
        Self {
            shards,
            stores,
            taking: 0,
            taken: 0,
        }
    }

    fn of_conversation(&mut self, conversation: u64) -> &mut S {
        let place = match mutant::active(Mutant::ShardOfAnother) {
            true => self.shards.of(conversation >> 20),
            false => self.shards.of(conversation),
        };
        &mut self.stores[place]
    }

    /// A planted bug: the shard whose events are taken has not answered all that it was asked.
    fn holds_up_all(&self, now: Time) -> bool {
        mutant::active(Mutant::ShardHoldsUpAll) && {
            let due = self.stores[self.taking].next_due();
            due.is_some_and(|due| due <= now + LOOK)
        }
    }
}

impl<S: ShardStore> Store for ShardedStore<S> {
    fn set_tick(&mut self, tick: Tick) {
        self.stores
            .iter_mut()
            .for_each(|store| store.set_tick(tick));
    }

    fn conversation_seed(&self) -> Option<u64> {
        Some(self.shards.conversation_seed())
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.of_conversation(query.conversation)
            .ask(ticket, query, now);
    }

    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.of_conversation(query.conversation)
            .answer_at_once(query, now, out)
    }

    fn may_keep(&self) -> bool {
        self.stores.iter().all(Store::may_keep)
    }

    fn keeps(&mut self, now: Time) -> bool {
        // A packet may read what any of them answered.
        let count = match mutant::active(Mutant::FirstShardKeeps) {
            true => 1,
            false => self.stores.len(),
        };
        let mut stores = self.stores.iter_mut().take(count);
        stores.all(|store| store.keeps(now))
    }

    fn next_dropped(&mut self) -> Option<Dropped> {
        let count = match mutant::active(Mutant::FirstShardDrops) {
            true => 1,
            false => self.stores.len(),
        };
        let mut stores = self.stores.iter_mut().take(count);
        stores.find_map(Store::next_dropped)
    }

    fn was_kept(&mut self, calls: u64) {
        // Whose entries they were nobody asked.
        if let Some(store) = self.stores.first_mut() {
            store.was_kept(calls);
        }
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        self.of_conversation(transaction.conversation())
            .commit(attempt, transaction, now);
    }

    fn forget(&mut self, attempt: Attempt) {
        self.stores
            .iter_mut()
            .for_each(|store| store.forget(attempt));
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        while self.taken < self.stores.len() {
            if self.stores[self.taking].take_event(now) {
                let next = usize::from(mutant::active(Mutant::EventOfAnotherShard));
                return self.stores[(self.taking + next) % self.stores.len()].event();
            }
            if self.holds_up_all(now) {
                return None;
            }
            self.taking = (self.taking + 1) % self.stores.len();
            self.taken += 1;
        }
        None
    }

    fn send(&mut self, now: Time) {
        // The next turn begins with another one, so that none waits for the events of the rest each time.
        if !self.holds_up_all(now) {
            self.taking = (self.taking + 1) % self.stores.len();
        }
        self.taken = 0;
        self.stores.iter_mut().for_each(|store| store.send(now));
    }

    fn next_due(&self) -> Option<Time> {
        self.stores.iter().filter_map(Store::next_due).min()
    }
}
