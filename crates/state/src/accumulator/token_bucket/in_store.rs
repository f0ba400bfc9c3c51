//! What a token bucket records of spending that a store may refuse, and what it makes of the spending that a store has.
//!
//! The store has what was spent of each key in each bucket of time, as sums. Levels are the instance's own, as where spending is replicated:
//! its own spending is taken out when the store has taken the packet, that of others when a read reports it (`asterism-token-buckets`,
//! `in_store.rs`).

use core::cell::Cell;
use std::collections::BTreeMap;

use asterism_token_buckets::{BoundsOf, Rates, SpendingInStore};
use asterism_windows::Ring;

use super::{Spending, TokenBucket};
use crate::context::{Context, LANE_CELLS, Late, Query, Tick};
use crate::map::Key;
use crate::mutant::{self, Mutant};
use crate::object::{Addition, Fetch, Operations, SumsShown};
use crate::recording::BEGINS;
use crate::wire::{
    BadBytes, Reader, SumsAsked, SumsRead, Writer, amount_in_store, append_sum, each_sum,
    read_bucket_field, write_bucket_field, write_sums,
};

/// As many instances may owe each other: no store says how many there are.
pub(super) const INSTANCES_MAX: u32 = 1_024;

/// A token bucket's side of a store.
#[derive(Debug)]
pub(super) struct InStore<K> {
    spending: Spending,
    /// The buckets of time of spending in a store.
    buckets: Ring,
    /// What an instance knows of spending, if the object is in a store.
    pub(super) known: Option<SpendingInStore>,
    /// The object is asked as a store is. So it counts what is spent, in `sums` by bucket of time and key.
    is_asked: Cell<bool>,
    sums: BTreeMap<(u32, K), u64>,
}

impl<K: Key> InStore<K> {
    pub(super) fn new(
        (context, object): (&Context, u8),
        (rates, spending): (&impl Rates<K>, Spending),
        in_store: Option<u32>,
    ) -> Self {
        let fills_s = rates.fills_seconds();
        if in_store.is_some() {
            context.expect_written_unread(object);
        }
        Self {
            spending,
            buckets: SpendingInStore::buckets(fills_s),
            known: in_store.map(|room| SpendingInStore::new(fills_s, room)),
            is_asked: Cell::new(false),
            sums: BTreeMap::new(),
        }
    }

    /// Forgets what no window reaches any more.
    pub(super) fn keep_up(&mut self, tick: Tick) {
        if let Some(known) = &mut self.known {
            known.keep_up(tick);
        }
        let buckets = &self.buckets;
        self.sums
            .retain(|&(bucket, _), _| !buckets.is_over(bucket, tick));
    }

    /// Whether a key that begins again has what one has that goes on with a full bucket.
    pub(super) fn may_forget(&self, number: u32, tick: Tick) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|known| known.may_forget(number, tick))
    }
}

impl<K: Key, R: Rates<K>> TokenBucket<K, R> {
    /// Whether the store said what was spent of a key.
    #[cold]
    pub(super) fn answered(&self, (key, hash): (&K, u64)) -> Result<(), Late> {
        let buckets = self.in_store.buckets.read_at(self.context.arrived_tick());
        self.context
            .answered((self.object, LANE_CELLS, hash), |out| {
                let mut field = Vec::new();
                key.encode(&mut Writer::new(&mut field, self.context.addresses()));
                SumsRead::write_of(out, buckets, SumsAsked::ByBucket, [field]);
            })
    }

    /// The store has so much of a key in a bucket of time; `begun` is the key that the same answer began. A key that is new here, and has
    /// room, begins.
    fn learn_from_store(&mut self, key: K, (bucket, total): (u32, u64), begun: &mut Option<K>) {
        let (tick, now_us) = (self.context.tick(), self.context.now_us());
        let Some(known) = &mut self.in_store.known else {
            return;
        };
        if total == 0 || !known.accepts(bucket, tick) {
            return;
        }
        let Some((number, is_new)) = self.keys.start_of_others(key) else {
            return;
        };
        if is_new {
            self.bounds.begin(number, &key);
            self.levels.begin(number, 0, 0);
            *begun = Some(key);
        }
        let raise = known.learn((number, self.keys.hash(&key)), (bucket, total));
        let owed = match mutant::active(Mutant::OthersNotOwed) {
            true => 0,
            false => raise,
        };
        // It was spent when the bucket of time ended, at the latest.
        let ago_us = u64::from(known.over_since(bucket, tick)) * 1_000_000;
        let at_us = now_us.saturating_sub(ago_us);
        let bounds = self.bounds.of(number);
        let (_, written_off) = self.levels.owe(number, bounds, (owed, at_us));
        self.written_off = self.written_off.saturating_add(written_off);
        if *begun == Some(key) {
            // An empty bucket at worst: what was overspent before is owed by those that spent it.
            self.levels.owe_no_more_than_all(number, bounds);
        }
    }

    /// Counts what was spent: this instance's own, when the store has taken it, and all of an object that is asked as a store is.
    fn count_in_store(&mut self, key: K, (count, arrived): (u64, Tick)) {
        let in_store = &mut self.in_store;
        let number = self.keys.find(&key, self.keys.hash(&key));
        if let Some((known, number)) = in_store.known.as_mut().zip(number) {
            known.spent(number, (count, arrived));
        }
        if in_store.is_asked.get() {
            let bucket = in_store.buckets.bucket(arrived);
            let sum = in_store.sums.entry((bucket, key)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

impl<K: Key, R: Rates<K> + 'static> Fetch for TokenBucket<K, R> {
    fn stays_because(&self) -> Option<&'static str> {
        let has_shares = self.in_store.spending == Spending::Escrow;
        has_shares
            .then_some("each instance has a share of its own, and no store says how many there are")
    }
    /// Of what was spent since the first read: each packet reads before it spends.
    fn extract(&self, query: &Query<'_>, out: &mut Vec<u8>) {
        let InStore { is_asked, sums, .. } = &*self.in_store;
        is_asked.set(true);
        write_sums([], out);
        let mut name = Vec::new();
        if let Ok(read) = SumsRead::read(query.key) {
            for (bucket, field) in read.each_sum() {
                let key = K::decode(&mut Reader::new(field, self.context.addresses()));
                if let Ok(key) = key
                    && let Some(sum) = sums.get(&(bucket, key))
                {
                    name.clear();
                    write_bucket_field(bucket, field, &mut name);
                    append_sum(&name, amount_in_store(*sum), out);
                }
            }
        }
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        if self.in_store.known.is_none() {
            return Err(BadBytes);
        }
        let context = self.context.clone();
        let (mut read, mut begun) = (Ok(()), None);
        each_sum(answer, |name, sum| {
            match read_spent::<K>(name, context.addresses()) {
                Ok((bucket, key)) if sum >= 0 => {
                    self.learn_from_store(key, (bucket, sum as u64), &mut begun);
                }
                _ => read = Err(BadBytes),
            }
        })?;
        read
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn buckets(&self) -> Option<Ring> {
        Some(self.in_store.buckets)
    }
    fn shows_sums(&self) -> SumsShown {
        SumsShown::None
    }
    fn follows_decisions(&self) -> bool {
        self.in_store.known.is_some()
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let mut input = Reader::new(write, self.context.addresses());
        K::decode(&mut input)?;
        let field = &write[..write.len() - input.left()];
        let (count, _, arrived) = read_spending(&mut input)?;
        each(&Addition {
            bucket: self.in_store.buckets.bucket(arrived),
            field,
            amount: amount_in_store(count),
        });
        Ok(())
    }
}

impl<K: Key, R: Rates<K> + 'static> Operations for TokenBucket<K, R> {
    fn begin_recording(&mut self) {
        self.keys.begin_recording();
    }
    fn end_recording(&mut self) {
        self.keys.end_recording();
    }
    /// The tokens are no other packet's meanwhile.
    fn note_undecided(
        &mut self,
        kind: u8,
        input: &mut Reader<'_>,
        begins: bool,
    ) -> Result<(), BadBytes> {
        let (key, (count, _, arrived)) = (K::decode(input)?, read_spending(input)?);
        let hash = self.keys.hash(&key);
        if let Some(known) = &mut self.in_store.known {
            known.note_undecided((hash, arrived), count, begins);
        }
        let tokens = self.undecided.entry(hash).or_default();
        *tokens = match begins {
            true => tokens.saturating_add(count),
            false => tokens.saturating_sub(count),
        };
        if *tokens == 0 {
            self.undecided.remove(&hash);
        }
        // No read waits for it, but all look at what is undecided.
        self.context.note_undecided((self.object, 0, hash), begins);
        if kind == BEGINS {
            self.keys.note_undecided(self.object, begins);
        }
        Ok(())
    }
    /// As of the packet's arrival, however long the store took.
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (key, (count, arrived_us, arrived)) = (K::decode(input)?, read_spending(input)?);
        self.take_for(key, (count, arrived_us));
        self.count_in_store(key, (count, arrived));
        Ok(())
    }
}

/// Of which bucket of time and key a sum is that was answered.
fn read_spent<K: Key>(name: &[u8], addresses: &[u32]) -> Result<(u32, K), BadBytes> {
    let (bucket, field) = read_bucket_field(name).ok_or(BadBytes)?;
    let mut input = Reader::new(field, addresses);
    let key = K::decode(&mut input)?;
    input.is_empty().then_some((bucket, key)).ok_or(BadBytes)
}

/// What a recorded write spends of its key: tokens, and the arrival of the packet in microseconds and in seconds of the cluster's time base.
fn read_spending(input: &mut Reader<'_>) -> Result<(u64, u64, Tick), BadBytes> {
    Ok((input.varint()?, input.varint()?, input.u32()?))
}
