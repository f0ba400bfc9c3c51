//! The tables that functions declare: maps, sets and two-way maps.

use core::cmp::Ordering;
use core::fmt::Debug;
use core::net::IpAddr;
use core::ops::Range;

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::context::Late;
use crate::layout;
use crate::object::{Inspect, Part, PerPacket, Replicate, Since, Snapshot, Writable};
use crate::shown::Shown;
use crate::stamp::Stamp;
use crate::table::{At, FoundNearby, Row, Table, Vacancy, VacancyFor, Value};
use crate::wire::{BadBytes, Reader, Wire, Writer};
use asterism_object_counts::ObjectCounts;

// What entries are found by; the derive of the same name is `asterism_state::Key`.
pub use asterism_wire::Key;

/// A row with one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Single<K>(pub K);

impl<K> From<K> for Single<K> {
    fn from(key: K) -> Self {
        Self(key)
    }
}

impl<K: Wire> Wire for Single<K> {
    const LAYOUT: u64 = layout::of_parts(&[K::LAYOUT]);
    const BYTES_MAX: usize = K::BYTES_MAX;
    fn encode(&self, out: &mut Writer<'_>) {
        self.0.encode(out);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        K::decode(input).map(Self)
    }
}

impl<K: Key> Row for Single<K> {
    const UNIQUE: usize = 1;
    const LANES: usize = 1;
    #[inline(always)]
    fn lane_hash(&self, _: usize, seed: u64) -> u64 {
        self.0.hash(seed)
    }
    fn lane_key(&self, _: usize, out: &mut Writer<'_>) {
        self.0.encode(out);
    }
    #[inline(always)]
    fn lane_equal(&self, _: usize, other: &Self) -> bool {
        self.0 == other.0
    }
    const IS_OF_CONVERSATION: bool = K::IS_OF_CONVERSATION;
    fn between(_: usize, key: &mut Reader<'_>) -> Result<Option<(IpAddr, IpAddr)>, BadBytes> {
        K::decode(key).map(|key| key.between())
    }
    fn order(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// A row with two unique keys and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<L, R>(pub L, pub R);

impl<L, R> From<(L, R)> for Pair<L, R> {
    fn from((left, right): (L, R)) -> Self {
        Self(left, right)
    }
}

impl<L: Wire, R: Wire> Wire for Pair<L, R> {
    const LAYOUT: u64 = layout::of_parts(&[layout::manual("Pair", 0), L::LAYOUT, R::LAYOUT]);
    const BYTES_MAX: usize = L::BYTES_MAX + R::BYTES_MAX;
    fn encode(&self, out: &mut Writer<'_>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self(L::decode(input)?, R::decode(input)?))
    }
}

impl<L: Key, R: Key> Row for Pair<L, R> {
    const UNIQUE: usize = 2;
    const LANES: usize = 2;
    #[inline(always)]
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        if lane == 0 {
            self.0.hash(seed)
        } else {
            self.1.hash(seed)
        }
    }
    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        if lane == 0 {
            self.0.encode(out);
        } else {
            self.1.encode(out);
        }
    }
    #[inline(always)]
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        if lane == 0 {
            self.0 == other.0
        } else {
            self.1 == other.1
        }
    }
    /// If both keys are, which must be of one conversation in each pair: a store of several shards refuses others.
    const IS_OF_CONVERSATION: bool = L::IS_OF_CONVERSATION && R::IS_OF_CONVERSATION;
    fn between(lane: usize, key: &mut Reader<'_>) -> Result<Option<(IpAddr, IpAddr)>, BadBytes> {
        match lane {
            0 => L::decode(key).map(|key| key.between()),
            _ => R::decode(key).map(|key| key.between()),
        }
    }
    fn order(&self, other: &Self) -> Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A row that is found by two unique keys which it computes from its fields (a NAT session, by its
/// packets in either direction), and perhaps by two groups.
pub trait Paired: Row {
    /// The first key.
    type Left: Key;
    /// The second key.
    type Right: Key;
    /// The first key.
    fn left(&self) -> Self::Left;
    /// The second key.
    fn right(&self) -> Self::Right;
}

impl<L: Key, R: Key> Paired for Pair<L, R> {
    type Left = L;
    type Right = R;
    #[inline(always)]
    fn left(&self) -> L {
        self.0
    }
    #[inline(always)]
    fn right(&self) -> R {
        self.1
    }
}

/// A row that also belongs to groups which many rows may share (all sessions of one endpoint).
pub trait Grouped: Row {
    /// What the groups are named by. Group `g` is lane `Row::UNIQUE + g`.
    type Group: Key;
    /// The row's group.
    fn group(&self, group: usize) -> Self::Group;
}

/// From keys to values. Concurrent writes: see [`Value`].
pub type Map<K, V> = Table<Single<K>, V>;
/// A set of keys. Concurrent adding and removing of one key: adding wins.
pub type Set<K> = Table<Single<K>, ()>;
/// A one-to-one relation, unique both ways: of two pairs that share a side, the larger one is found by
/// its left side, and the other one only by its right side until it idles out.
pub type BiMap<L, R, V = ()> = Table<Pair<L, R>, V>;

impl<K: Key, V: Value> Table<Single<K>, V> {
    /// The entry of `key`. Costs a cache line for the index and one for the entry.
    ///
    /// Late where the object's placement is not local, or where absence may be.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<Option<At<Single<K>, V>>, Late> {
        let key = *key;
        let hash = || key.hash(self.seed());
        let name = |out: &mut Writer<'_>| key.encode(out);
        self.find(0, (hash, name), move |row| row.0 == key)
    }

    /// Whether there is an entry of `key`.
    #[inline(always)]
    pub fn contains(&self, key: &K) -> Result<bool, Late> {
        Ok(self.get(key)?.is_some())
    }

    /// What it takes to write a value under `key`, whether or not there is one: [`Table::get`], then a [`Vacancy`] where there is none.
    #[inline]
    pub fn entry(&self, key: K) -> Result<Entry<K, V>, Late> {
        self.entry_at(self.get(&key)?, key)
    }

    /// [`Table::entry`] where the entry of `key` was read already. Never late.
    #[inline]
    pub fn entry_at(&self, known: Option<At<Single<K>, V>>, key: K) -> Result<Entry<K, V>, Late> {
        Ok(match known {
            Some(at) => Entry::Occupied(at),
            None => self
                .vacancy()?
                .map_or(Entry::Full, |vacancy| Entry::Vacant(vacancy, key)),
        })
    }
}

/// Where a value is written under a key of a map: got by [`Map::entry`](Table::entry) or [`Map::entry_at`](Table::entry_at), spent by [`TableAct::put`].
#[derive(Debug)]
#[must_use = "room that is not spent returns when the packet ends"]
pub enum Entry<K, V> {
    /// At the entry that there is.
    Occupied(At<Single<K>, V>),
    /// In one that is added.
    Vacant(Vacancy, K),
    /// Nowhere: this instance's share of the capacity is used up.
    Full,
}

impl<K, V> Entry<K, V> {
    /// The value that there is.
    pub fn value(&self) -> Option<&V> {
        match self {
            Self::Occupied(at) => Some(&at.value),
            Self::Vacant(..) | Self::Full => None,
        }
    }

    /// Whether a value can be written.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full)
    }
}

impl<R: Paired, V: Value> Table<R, V> {
    /// The entry whose left key this is, unless its right key belongs to a better entry.
    #[inline(always)]
    pub fn by_left(&self, key: &R::Left) -> Result<Option<At<R, V>>, Late> {
        let key = *key;
        let hash = || key.hash(self.seed());
        let name = |out: &mut Writer<'_>| key.encode(out);
        self.find(0, (hash, name), move |row| row.left() == key)
    }

    /// [`Table::by_left`] without what is rare: `None` also where it would have to look further, so that nothing is
    /// known then. For the common path of a function that handles all else elsewhere: forty instructions less, with
    /// what [`Nearby`](crate::Nearby) is good for.
    #[inline(always)]
    pub fn nearby_by_left(&self, key: &R::Left) -> FoundNearby<R, V> {
        let key = *key;
        self.find_nearby(0, || key.hash(self.seed()), move |row| row.left() == key)
    }

    /// [`Table::by_right`] as [`Table::nearby_by_left`] is to `by_left`.
    #[inline(always)]
    pub fn nearby_by_right(&self, key: &R::Right) -> FoundNearby<R, V> {
        let key = *key;
        self.find_nearby(1, || key.hash(self.seed()), move |row| row.right() == key)
    }

    /// The entry whose right key this is, also as an alias (see [`At::is_alias`]).
    #[inline(always)]
    pub fn by_right(&self, key: &R::Right) -> Result<Option<At<R, V>>, Late> {
        let key = *key;
        let hash = || key.hash(self.seed());
        let name = |out: &mut Writer<'_>| key.encode(out);
        self.find(1, (hash, name), move |row| row.right() == key)
    }
}

impl<R: Grouped, V: Value> Table<R, V> {
    /// Some live entry of the group, if there is one.
    pub fn any_of(&self, group: usize, key: &R::Group) -> Result<Option<At<R, V>>, Late> {
        self.any_of_where(group, key, |_| true)
    }

    /// Asks for what [`Table::any_of`] reads first, where there are other things to do before: a cache line comes meanwhile.
    /// Answers nothing and is never late.
    #[inline]
    pub fn prefetch_group(&self, group: usize, key: &R::Group) {
        self.prefetch_lane(R::UNIQUE + group, key.hash(self.seed()));
    }

    /// Some live entry of the group whose row is `wanted`, among the 64 first of the group.
    #[inline(always)]
    pub fn any_of_where(
        &self,
        group: usize,
        key: &R::Group,
        wanted: impl Fn(&R) -> bool,
    ) -> Result<Option<At<R, V>>, Late> {
        let lane = R::UNIQUE + group;
        let hash = key.hash(self.seed());
        let name = |out: &mut Writer<'_>| key.encode(out);
        self.group_member(lane, (hash, name), |row| row.group(group) == *key, wanted)
    }
}

/// The writes of a table.
#[derive(Debug)]
pub struct TableAct<'a, R: Row, V: Value>(&'a mut Table<R, V>);

impl<R: Row, V: Value> TableAct<'_, R, V> {
    /// Adds an entry, or writes over the one that is there. Visible here at once, elsewhere after the lag.
    pub fn insert(&mut self, vacancy: Vacancy, row: impl Into<R>, value: V) {
        self.0.insert(vacancy, row.into(), value);
    }
    /// [`TableAct::insert`] of the row that a vacancy is for.
    pub fn fill(&mut self, vacancy: VacancyFor<R>, value: V) {
        self.0.fill(vacancy, value);
    }
    /// Marks the entry as used, so that it does not idle out.
    #[inline(always)]
    pub fn touch(&mut self, at: &At<R, V>) {
        self.0.touch(at);
    }
    /// Joins `value` into the entry's value (or, for values that do not join, writes over it) and marks
    /// the entry as used.
    #[inline(always)]
    pub fn update(&mut self, at: &At<R, V>, value: V) {
        self.0.update(at, value);
    }
    /// Removes the entry.
    pub fn remove(&mut self, at: &At<R, V>) {
        self.0.remove(at);
    }
}

impl<K: Key, V: Value> TableAct<'_, Single<K>, V> {
    /// Writes a value where there is room for it: [`TableAct::update`] of an entry that there is, else [`TableAct::insert`]. Whether
    /// there was any.
    #[inline]
    pub fn put(&mut self, room: Entry<K, V>, value: V) -> bool {
        match room {
            Entry::Occupied(at) => self.update(&at, value),
            Entry::Vacant(vacancy, key) => self.insert(vacancy, key, value),
            Entry::Full => return false,
        }
        true
    }
}

// `Sweep` is in `table/entry_end.rs`, `Audit` in `table/audited.rs`.

impl<R: Row, V: Value> Writable for Table<R, V> {
    type Act<'a> = TableAct<'a, R, V>;

    fn act(&mut self) -> TableAct<'_, R, V> {
        TableAct(self)
    }
}

impl<R: Row, V: Value> Replicate for Table<R, V> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        Table::apply(self, flags, input, stamp)
    }
    fn prefetch(&self, input: &mut Reader<'_>) {
        Table::prefetch_operation(self, input);
    }
    fn share(&mut self, shares: bool) -> bool {
        Table::share(self, shares)
    }
    fn announce(&mut self, cursor: u32, records: u32) -> Option<u32> {
        Table::announce_held(self, cursor, records)
    }
}

impl<R: Row, V: Value> Snapshot for Table<R, V> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        Table::snapshot(self, cursor, part)
    }
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        Table::apply_snapshot(self, flags, input)
    }
    fn restore(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        since: &Since,
    ) -> Result<bool, BadBytes> {
        Table::restore(self, flags, input, since)
    }
}

impl<R: Row, V: Value> Inspect for Table<R, V> {
    fn show(&self, cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        Table::show(self, cursor, records, each)
    }
    fn capacity(&self) -> u32 {
        Table::capacity(self)
    }
    fn counts(&self) -> ObjectCounts {
        self.tally().counts()
    }
    fn entries(&self) -> usize {
        self.len_now()
    }
    fn entries_held(&self) -> usize {
        self.held()
    }
    fn entries_ended(&self) -> usize {
        self.held() - self.len_now()
    }
}

impl<R: Row, V: Value> PerPacket for Table<R, V> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        Table::prefetch_records(self, prefetch_hints, packets)
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        Table::outgrew_cache(self, cache_bytes)
    }
    fn settle(&self) {
        Table::settle(self);
    }
}
