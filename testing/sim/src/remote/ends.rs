//! A host's end of the store: the shipped client of each shard and its connections, and what the oracle is to know of its calls.

use asterism_engine::{Attempt, Dropped, Store, StoreEvent};
use asterism_function::testkit::RecordedCalls;
use asterism_placement::Time;
use asterism_remote_store::{RemoteStore, ShardStore};
use asterism_state::{Query, Tick, Ticket, Transaction};

use super::ledger::Ledger;
use super::links::Links;
use super::network::{Incarnation, Shared};

/// How often a host that waits looks at its connections, besides when something comes.
const LOOK_US: u64 = 500;

pub(super) struct HostEnd {
    pub(super) host: Incarnation,
    /// A [`ShardEnd`], or several of them.
    pub(super) store: Box<dyn Store>,
    pub(super) shared: Shared,
    pub(super) calls: RecordedCalls,
    pub(super) now: Time,
}

impl Store for HostEnd {
    fn set_tick(&mut self, tick: Tick) {
        self.store.set_tick(tick);
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.store.ask(ticket, query, now);
    }

    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.store.answer_at_once(query, now, out)
    }

    fn conversation_seed(&self) -> Option<u64> {
        self.store.conversation_seed()
    }

    fn may_keep(&self) -> bool {
        self.store.may_keep()
    }

    fn keeps(&mut self, now: Time) -> bool {
        self.store.keeps(now)
    }

    fn next_dropped(&mut self) -> Option<Dropped> {
        self.store.next_dropped()
    }

    fn counts_kept(&self) -> bool {
        true
    }

    fn was_kept(&mut self, calls: u64) {
        self.store.was_kept(calls);
        let serial = self.calls.last_serial();
        let serial = serial.expect("a call that ended was answered so");
        let mut net = self.shared.net();
        let done = net.done.entry(self.host).or_default();
        done.was_kept.insert(serial);
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        let mut net = self.shared.net();
        let done = net.done.entry(self.host).or_default();
        done.undecided.insert(attempt);
        done.called.entry(attempt).or_insert_with(|| {
            let call = self.calls.take_last_staged();
            let call = call.expect("a transaction is that of a call that ended");
            (call, transaction.clone())
        });
        drop(net);
        self.store.commit(attempt, transaction, now);
    }

    fn read_alone(&mut self, transaction: &Transaction) {
        let serial = self.calls.last_serial();
        let serial = serial.expect("a call that ended read it");
        let mut net = self.shared.net();
        let done = net.done.entry(self.host).or_default();
        done.read_alone.insert(serial, transaction.clone());
    }

    fn forget(&mut self, attempt: Attempt) {
        let mut net = self.shared.net();
        let done = net.done.entry(self.host).or_default();
        done.undecided.remove(&attempt);
        drop(net);
        self.store.forget(attempt);
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        let event = self.store.next_event(now)?;
        if let StoreEvent::Decision { attempt, .. } = event {
            let mut net = self.shared.net();
            let done = net.done.entry(self.host).or_default();
            done.undecided.remove(&attempt);
        }
        Some(event)
    }

    fn send(&mut self, now: Time) {
        self.now = now;
        {
            let mut net = self.shared.net();
            let done = net.done.entry(self.host).or_default();
            (done.is_executing, done.is_ending) = (false, false);
        }
        self.store.send(now);
    }

    fn next_due(&self) -> Option<Time> {
        let due = self.store.next_due()?;
        if due <= self.now {
            return Some(due);
        }
        let looks = due.max(self.now + core::time::Duration::from_micros(LOOK_US));
        let comes = self.shared.net().next_for_us(self.host);
        let comes = comes.map(Time::from_micros).filter(|at| *at > self.now);
        Some(comes.map_or(looks, |comes| comes.min(looks)))
    }
}

/// The shipped client of a shard, or of a store without shards, whose tries are noted.
pub(super) struct ShardEnd {
    pub(super) host: Incarnation,
    pub(super) client: RemoteStore<Ledger, Links>,
    pub(super) shared: Shared,
}

impl Store for ShardEnd {
    fn set_tick(&mut self, tick: Tick) {
        self.client.set_tick(tick);
    }

    fn ask(&mut self, ticket: Ticket, query: Query<'_>, now: Time) {
        self.client.ask(ticket, query, now);
    }

    fn answer_at_once(&mut self, query: Query<'_>, now: Time, out: &mut Vec<u8>) -> bool {
        self.client.answer_at_once(query, now, out)
    }

    fn may_keep(&self) -> bool {
        self.client.may_keep()
    }

    fn keeps(&mut self, now: Time) -> bool {
        self.client.keeps(now)
    }

    fn next_dropped(&mut self) -> Option<Dropped> {
        self.client.next_dropped()
    }

    fn was_kept(&mut self, calls: u64) {
        self.client.was_kept(calls);
    }

    fn commit(&mut self, attempt: Attempt, transaction: &Transaction, now: Time) {
        self.client.commit(attempt, transaction, now);
    }

    fn forget(&mut self, attempt: Attempt) {
        self.client.forget(attempt);
    }

    fn next_event(&mut self, now: Time) -> Option<StoreEvent<'_>> {
        self.client.next_event(now)
    }

    fn send(&mut self, now: Time) {
        self.client.send(now);
        let mut net = self.shared.net();
        let (mut is_executing, mut is_ending) = (false, false);
        for tried in self.client.client().tries() {
            is_executing |= !tried.transactions.is_empty();
            is_ending |= tried.transactions.is_empty();
            net.note_try(self.host, &tried);
        }
        let done = net.done.entry(self.host).or_default();
        done.is_executing |= is_executing;
        done.is_ending |= is_ending;
    }

    fn next_due(&self) -> Option<Time> {
        self.client.next_due()
    }
}

impl ShardStore for ShardEnd {
    fn take_event(&mut self, now: Time) -> bool {
        ShardStore::take_event(&mut self.client, now)
    }

    fn event(&self) -> Option<StoreEvent<'_>> {
        ShardStore::event(&self.client)
    }
}
