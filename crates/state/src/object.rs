//! What every state object can do, and what a whole state is.

use core::ops::Range;

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, OPERATION_BYTES_MAX, Tick};
use crate::counts::ObjectCounts;
use crate::erased::AnyObject;
use crate::shown::Shown;
use crate::stamp::{NamedOrigins, Origin, OriginName, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Most objects of one state.
pub const OBJECTS_MAX: usize = 64;
/// Idle classes of one object.
pub const IDLE_CLASSES: usize = 8;

/// What an absent entry means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absence {
    /// It is absent.
    #[default]
    Answer,
    /// It may be on its way: the packet waits at most this long (microseconds).
    Wait {
        /// The longest wait.
        us: u32,
    },
}

/// What the operator chose for one object. Where the object lives is said by the two flags: `logged`
/// objects' operations are handed to a placement that shares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Operations are logged for other instances.
    pub logged: bool,
    /// Reads are late by this much (microseconds); 0: never. The test placement.
    pub late_us: u32,
    /// What an absent entry means.
    pub absence: Absence,
    /// Entries at most, over the whole cluster; 0: what the function asks for.
    pub capacity: u32,
    /// Digests of its parts are kept, if it is shared, for hosts to compare.
    pub audited: bool,
}

impl ObjectSettings {
    /// This instance only.
    pub const LOCAL: Self = Self {
        logged: false,
        late_us: 0,
        absence: Absence::Answer,
        capacity: 0,
        audited: false,
    };
    /// A replica in every instance.
    pub const REPLICATED: Self = Self {
        logged: true,
        late_us: 0,
        absence: Absence::Answer,
        capacity: 0,
        audited: true,
    };

    /// What the operator says of the capacity, or else what the function asks for.
    pub(crate) fn capacity_or(&self, asked: u32) -> u32 {
        if self.capacity > 0 {
            self.capacity
        } else {
            asked
        }
    }
}

/// A part of a snapshot being written: bounded in bytes, and in places looked at, of which many may hold nothing.
#[derive(Debug)]
pub struct Part<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
    places_max: u32,
    looked: u32,
}

impl<'a> Part<'a> {
    /// A part of at most `bytes_max` bytes with what `out` holds already, for which at most `places_max` places of tables are
    /// looked at.
    pub fn new(out: &'a mut Vec<u8>, bytes_max: usize, places_max: u32) -> Self {
        Self {
            out,
            bytes_max,
            places_max,
            looked: 0,
        }
    }

    /// Places looked at so far.
    pub fn looked(&self) -> u32 {
        self.looked
    }

    /// Whether another entry fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() + OPERATION_BYTES_MAX <= self.bytes_max
    }

    /// Whether another place may be looked at; it counts as looked at.
    #[inline]
    pub(crate) fn query(&mut self) -> bool {
        let may = self.looked < self.places_max;
        self.looked += u32::from(may);
        may
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

/// What every state object can do for the engine. Network functions do not see this.
pub trait Object {
    /// The object's writes, all that a function has of it after `act`.
    type Act<'a>
    where
        Self: 'a;
    /// Hands out the writes.
    fn act(&mut self) -> Self::Act<'_>;
    /// Applies one operation of another instance.
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes>;
    /// Asks for the cache lines that an operation needs, some operations before it is applied.
    fn prefetch(&self, _input: &mut Reader<'_>) {}
    /// This instance, which has just begun, has what the others have, and may write from now on.
    fn joined(&mut self) {}
    /// Logs what accumulated since the last flush. Stops, and says so with `false`, when `bytes` are used; the next call goes on.
    /// What changes meanwhile may be left for the flush after it.
    fn flush(&mut self, _bytes: &mut usize) -> bool {
        true
    }
    /// Looks at up to `records` entries for idle and forgotten ones; how many it ended or forgot.
    fn sweep(&mut self, _records: u32) -> u32 {
        0
    }
    /// Marks the slots of origins that what is held refers to: of up to `records` entries from `cursor` on, and at least of one;
    /// where to go on, `None` at the end. What is not marked may be given to another origin (`forgetting.rs`).
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32>;
    /// Entries that a whole sweep looks at.
    fn sweep_length(&self) -> u32 {
        0
    }
    /// Equal on two members exactly if the object is equal there.
    fn digest(&self) -> u64;
    /// Copies consecutive leaves (see [`audit`](crate::audit)) from `first` on. False: it keeps none, because
    /// it is not shared or is not audited.
    fn leaves(&self, _first: usize, _out: &mut [Leaf]) -> bool {
        false
    }
    /// The sum of the digests that [`leaves`](Object::leaves) copies, by a look at everything: for tests.
    fn announced(&self) -> u64 {
        self.digest()
    }
    /// Appends the object's whole state from `cursor` on, as far as the part goes; where to go on, `None` at the end.
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32>;
    /// Writes what is here of some leaves again, as this host's, so that all others take it over: looks at up to `records`
    /// entries from `cursor` on; where to go on, `None` at the end, and how many it wrote. An accumulator has the next flush
    /// tell again what this instance announced.
    fn write_again(
        &mut self,
        _leaves: &LeafSet,
        _cursor: u32,
        _records: u32,
    ) -> (Option<u32>, u32) {
        (None, 0)
    }
    /// Has all others remove what they have in some leaves of writes up to `through`, once this instance has written again what it
    /// has of them. False: nothing of this object can be removed so.
    fn remove_elsewhere(&mut self, _leaves: &LeafSet, _through: &[(OriginName, u64)]) -> bool {
        false
    }
    /// Whether [`write_again`](Object::write_again) writes what this instance alone can say, so that a host's others have to be
    /// asked as well. Else one of them writes all that there is.
    fn tells_own(&self) -> bool {
        false
    }
    /// Joins one entry of a snapshot.
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes>;
    /// Takes up one entry of a snapshot that was saved when the whole cluster stopped, as a write of this host. Tells whether
    /// there was anything to take up.
    fn restore(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        since: &Since,
    ) -> Result<bool, BadBytes>;
    /// Shows up to `records` entries from `cursor` on; where to go on, `None` at the end. For people, not packets.
    fn show(&self, _cursor: u32, _records: u32, _each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        None
    }
    /// Entries at most; 0 if there is no such bound.
    fn capacity(&self) -> u32 {
        0
    }
    /// What it counted of losers and all else that was not taken as it was meant; for `status`.
    fn counts(&self) -> ObjectCounts {
        ObjectCounts::default()
    }
    /// Of a pool, items that were another member's by place: those that may not be granted here yet, and those that may.
    fn inherited(&self) -> (u32, u32) {
        (0, 0)
    }
    /// Prefetches the records at which the probe of the first of these packets, and those of packets that follow and
    /// probe the same, are likely to end. Returns the packet where it stopped.
    fn prefetch_records(&self, _foresight: &PrefetchHints, packets: Range<usize>) -> usize {
        packets.start + 1
    }
    /// Whether probes are likely to miss a cache of this size.
    fn outgrew_cache(&self, _cache_bytes: usize) -> bool {
        false
    }
    /// Takes back a grant that the packet did not spend.
    fn give_back(&self, _number: u32) {}
    /// Forgets the reservations of the packet that ended.
    fn settle(&self) {}
    /// Entries that can be found now; for `status`.
    fn entries(&self) -> usize;
    /// Entries held, the ended ones included; for `status`.
    fn entries_held(&self) -> usize {
        self.entries()
    }
    /// Entries that ended and are kept until all members know. Of a graph these are sightings, as what is held is.
    fn entries_ended(&self) -> usize {
        0
    }
}

/// A whole state: the struct that `#[state]` was put on.
pub trait State: Sized + 'static {
    /// Names of the objects, in order.
    const OBJECTS: &'static [&'static str];
    /// The writes of all objects, by field name.
    type Act<'a>;
    /// Hands out the writes.
    fn act(&mut self) -> Self::Act<'_>;
    /// Calls `visit` for object number `object`. Other numbers do nothing and give `None`.
    fn with<T>(&mut self, object: u8, visit: impl ObjectVisitor<T>) -> Option<T>;
    /// As [`State::with`], for shared access.
    fn query<T>(&self, object: u8, query: impl ObjectQuery<T>) -> Option<T>;

    /// The objects' names, in order: [`State::OBJECTS`], but of a state that is put together when the program runs.
    #[inline(always)]
    fn objects(&self) -> &'static [&'static str] {
        Self::OBJECTS
    }
    /// Object number `object`, for states that are put together of others; `None` if there is none. What `#[state]` makes
    /// has all.
    fn object(&self, _object: u8) -> Option<&(dyn AnyObject + 'static)> {
        None
    }
    /// As [`State::object`], to be changed.
    fn object_mut(&mut self, _object: u8) -> Option<&mut (dyn AnyObject + 'static)> {
        None
    }

    /// Applies an operation group of another instance. On bad bytes the rest of the group is not applied.
    fn apply(
        &mut self,
        context: &Context,
        origin: OriginName,
        sequence: u64,
        group: &[u8],
    ) -> Result<(), BadBytes> {
        let origin = context.origin(origin).ok_or(BadBytes)?;
        let stamp = Stamp { origin, sequence };
        let mut input = Reader::new(group, context.addresses());
        while !input.is_empty() {
            let (object, flags) = input.tag()?;
            self.with(
                object,
                Apply {
                    flags,
                    input: &mut input,
                    stamp,
                },
            )
            .ok_or(BadBytes)??;
            context.changed_some(object);
        }
        Ok(())
    }

    /// Asks for the cache lines that the first operation of a group needs, some groups before [`State::apply`].
    fn prefetch(&self, context: &Context, group: &[u8]) {
        let mut input = Reader::new(group, context.addresses());
        if let Ok((object, _)) = input.tag() {
            self.query(object, Prefetch(&mut input));
        }
    }

    /// Appends up to `bytes_max` of the whole state from `cursor` on: (object, place in it). `None` at the
    /// end.
    fn snapshot(
        &self,
        cursor: (u8, u32),
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<(u8, u32)> {
        self.snapshot_part(cursor, &mut Part::new(out, bytes_max, u32::MAX))
    }

    /// The same, and looks at no more places than the part says, used ones or not: a part may come back empty that is not the
    /// last. Every one gets further than the one before.
    fn snapshot_part(&self, cursor: (u8, u32), part: &mut Part<'_>) -> Option<(u8, u32)> {
        let (mut object, mut place) = cursor;
        while usize::from(object) < self.objects().len() {
            let snapshot = StateSnapshot {
                cursor: place,
                part,
            };
            match self.query(object, snapshot)? {
                Some(next) => return Some((object, next)),
                None => (object, place) = (object + 1, 0),
            }
            if !part.has_room() {
                return (usize::from(object) < self.objects().len()).then_some((object, 0));
            }
        }
        None
    }

    /// Joins a part of another member's snapshot.
    fn apply_snapshot(&mut self, context: &Context, part: &[u8]) -> Result<(), BadBytes> {
        let mut input = Reader::new(part, context.addresses());
        while !input.is_empty() {
            let (object, flags) = input.tag()?;
            self.with(
                object,
                ApplySnapshot {
                    flags,
                    input: &mut input,
                },
            )
            .ok_or(BadBytes)??;
            context.changed_some(object);
        }
        Ok(())
    }

    /// Takes up a part of a saved snapshot as writes of this host; tells how many entries it took.
    fn restore(&mut self, context: &Context, part: &[u8], since: &Since) -> Result<u32, BadBytes> {
        let mut input = Reader::new(part, context.addresses());
        let mut taken = 0;
        while !input.is_empty() {
            let (object, flags) = input.tag()?;
            let restore = Restore {
                flags,
                input: &mut input,
                since,
            };
            taken += u32::from(self.with(object, restore).ok_or(BadBytes)??);
        }
        Ok(taken)
    }

    /// One digest for each object.
    fn digests(&self) -> Vec<u64> {
        (0..self.objects().len() as u8)
            .filter_map(|object| self.digest(object))
            .collect()
    }
    /// One object's digest: a look at all that it holds. `None` if there is no such object.
    fn digest(&self, object: u8) -> Option<u64> {
        self.query(object, Digest)
    }
}

/// Something to do with an object, whatever its type.
pub trait ObjectVisitor<T> {
    /// Does it.
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> T;
}
/// Something to ask of an object, whatever its type.
pub trait ObjectQuery<T> {
    /// Asks it.
    fn query<O: Object + ?Sized>(self, object: &O) -> T;
}

struct Apply<'a, 'b> {
    flags: u8,
    input: &'a mut Reader<'b>,
    stamp: Stamp,
}
impl ObjectVisitor<Result<(), BadBytes>> for Apply<'_, '_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> Result<(), BadBytes> {
        object.apply(self.flags, self.input, self.stamp)
    }
}
struct Prefetch<'a, 'b>(&'a mut Reader<'b>);
impl ObjectQuery<()> for Prefetch<'_, '_> {
    fn query<O: Object + ?Sized>(self, object: &O) {
        object.prefetch(self.0);
    }
}
struct ApplySnapshot<'a, 'b> {
    flags: u8,
    input: &'a mut Reader<'b>,
}
impl ObjectVisitor<Result<(), BadBytes>> for ApplySnapshot<'_, '_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> Result<(), BadBytes> {
        object.apply_snapshot(self.flags, self.input)
    }
}
struct StateSnapshot<'a, 'b> {
    cursor: u32,
    part: &'a mut Part<'b>,
}
impl ObjectQuery<Option<u32>> for StateSnapshot<'_, '_> {
    fn query<O: Object + ?Sized>(self, object: &O) -> Option<u32> {
        object.snapshot(self.cursor, self.part)
    }
}
struct Restore<'a, 'b> {
    flags: u8,
    input: &'a mut Reader<'b>,
    since: &'a Since,
}
impl ObjectVisitor<Result<bool, BadBytes>> for Restore<'_, '_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> Result<bool, BadBytes> {
        object.restore(self.flags, self.input, self.since)
    }
}
/// [`Object::leaves`] as a look.
#[derive(Debug)]
pub struct ReadLeaves<'a> {
    /// The first leaf.
    pub first: usize,
    /// Where they go.
    pub out: &'a mut [Leaf],
}
impl ObjectQuery<bool> for ReadLeaves<'_> {
    fn query<O: Object + ?Sized>(self, object: &O) -> bool {
        object.leaves(self.first, self.out)
    }
}
/// [`Object::write_again`] as a visit.
#[derive(Debug)]
pub struct WriteAgain<'a> {
    /// Which leaves.
    pub leaves: &'a LeafSet,
    /// Where to go on.
    pub cursor: u32,
    /// How many entries to look at.
    pub records: u32,
}
impl ObjectVisitor<(Option<u32>, u32)> for WriteAgain<'_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> (Option<u32>, u32) {
        object.write_again(self.leaves, self.cursor, self.records)
    }
}
/// [`Object::remove_elsewhere`] as a visit.
#[derive(Debug)]
pub struct RemoveElsewhere<'a> {
    /// Which parts.
    pub leaves: &'a LeafSet,
    /// How far each stream was applied here when the first of them was written again: [`Context::applied_through`].
    pub through: &'a [(OriginName, u64)],
}
impl ObjectVisitor<bool> for RemoveElsewhere<'_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> bool {
        object.remove_elsewhere(self.leaves, self.through)
    }
}
/// [`Object::announced`] as a look.
#[derive(Debug)]
pub struct SumLeaves;
impl ObjectQuery<u64> for SumLeaves {
    fn query<O: Object + ?Sized>(self, object: &O) -> u64 {
        object.announced()
    }
}
/// [`Object::tells_own`] as a look.
#[derive(Debug)]
pub struct TellsOwn;
impl ObjectQuery<bool> for TellsOwn {
    fn query<O: Object + ?Sized>(self, object: &O) -> bool {
        object.tells_own()
    }
}
/// [`Object::joined`] as a visit.
#[derive(Debug)]
pub struct Joined;
impl ObjectVisitor<()> for Joined {
    fn visit<O: Object + ?Sized>(self, object: &mut O) {
        object.joined();
    }
}
struct Digest;
impl ObjectQuery<u64> for Digest {
    fn query<O: Object + ?Sized>(self, object: &O) -> u64 {
        object.digest()
    }
}
/// [`Object::flush`] as a visit: whether all was flushed.
#[derive(Debug)]
pub struct Flush<'a>(
    /// Bytes that may still be logged.
    pub &'a mut usize,
);
impl ObjectVisitor<bool> for Flush<'_> {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> bool {
        object.flush(self.0)
    }
}
/// [`Object::sweep`] as a visit: a share of the object's entries, so that a whole turn takes about
/// `turns` visits.
#[derive(Debug)]
pub struct Sweep {
    /// Visits for one turn over all entries.
    pub turns: u32,
}
impl ObjectVisitor<()> for Sweep {
    fn visit<O: Object + ?Sized>(self, object: &mut O) {
        let records = object.sweep_length().div_ceil(self.turns.max(1));
        object.sweep(records);
    }
}
/// [`Object::sweep`] as a visit that is bounded: so many entries, whose ends are at most so many operations.
#[derive(Debug)]
pub struct SweepSome(
    /// Entries to look at.
    pub u32,
);
impl ObjectVisitor<u32> for SweepSome {
    fn visit<O: Object + ?Sized>(self, object: &mut O) -> u32 {
        object.sweep(self.0)
    }
}
/// [`Object::sweep_length`] as a look.
#[derive(Debug)]
pub struct SweepLength;
impl ObjectQuery<u32> for SweepLength {
    fn query<O: Object + ?Sized>(self, object: &O) -> u32 {
        object.sweep_length()
    }
}
/// [`Object::prefetch_records`] as a look.
#[derive(Debug)]
pub struct PrefetchRecords<'a> {
    /// The burst.
    pub prefetch_hints: &'a PrefetchHints,
    /// The packets.
    pub packets: Range<usize>,
}
impl ObjectQuery<usize> for PrefetchRecords<'_> {
    #[inline(always)]
    fn query<O: Object + ?Sized>(self, object: &O) -> usize {
        object.prefetch_records(self.prefetch_hints, self.packets)
    }
}
/// [`Object::outgrew_cache`] as a look.
#[derive(Debug)]
pub struct OutgrewCache(
    /// The cache's size.
    pub usize,
);
impl ObjectQuery<bool> for OutgrewCache {
    fn query<O: Object + ?Sized>(self, object: &O) -> bool {
        object.outgrew_cache(self.0)
    }
}
/// [`Object::give_back`] as a look.
#[derive(Debug)]
pub struct GiveBack(
    /// The number that was granted.
    pub u32,
);
impl ObjectQuery<()> for GiveBack {
    fn query<O: Object + ?Sized>(self, object: &O) {
        object.give_back(self.0);
    }
}
/// [`Object::settle`] as a look.
#[derive(Debug)]
pub struct Settle;
impl ObjectQuery<()> for Settle {
    fn query<O: Object + ?Sized>(self, object: &O) {
        object.settle();
    }
}
/// [`Object::entries`] and [`Object::entries_held`] as a look.
#[derive(Debug)]
pub struct Entries;
impl ObjectQuery<(usize, usize)> for Entries {
    fn query<O: Object + ?Sized>(self, object: &O) -> (usize, usize) {
        (object.entries(), object.entries_held())
    }
}

/// [`Object::entries_ended`] as a look.
#[derive(Debug)]
pub struct EntriesEnded;
impl ObjectQuery<usize> for EntriesEnded {
    fn query<O: Object + ?Sized>(self, object: &O) -> usize {
        object.entries_ended()
    }
}

/// [`Object::capacity`] as a look.
#[derive(Debug)]
pub struct Capacity;
impl ObjectQuery<u32> for Capacity {
    fn query<O: Object + ?Sized>(self, object: &O) -> u32 {
        object.capacity()
    }
}
/// [`Object::inherited`] as a look.
#[derive(Debug)]
pub struct Inherited;
impl ObjectQuery<(u32, u32)> for Inherited {
    fn query<O: Object + ?Sized>(self, object: &O) -> (u32, u32) {
        object.inherited()
    }
}
/// [`Object::show`] as a look.
pub struct Show<'a> {
    /// Where to begin.
    pub cursor: u32,
    /// How many records to look at.
    pub records: u32,
    /// What is called for each entry.
    pub each: &'a mut dyn FnMut(&Shown<'_>),
}
impl core::fmt::Debug for Show<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Show({}, {})", self.cursor, self.records)
    }
}
impl ObjectQuery<Option<u32>> for Show<'_> {
    fn query<O: Object + ?Sized>(self, object: &O) -> Option<u32> {
        object.show(self.cursor, self.records, self.each)
    }
}

/// How long a saved state was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The cluster's common time when it was saved.
    pub saved: Tick,
    /// Seconds that have passed since.
    pub away: Tick,
}

pub(crate) fn write_stamp(context: &Context, stamp: Stamp, out: &mut Writer<'_>) {
    write_origin(context, stamp.origin, out);
    out.varint(stamp.sequence);
}

pub(crate) fn write_origin(context: &Context, origin: Origin, out: &mut Writer<'_>) {
    let name = context.origin_name(origin);
    out.u16(name.member);
    out.u64(name.incarnation);
}

/// Passes over a stamp whose writer does not matter any more.
pub(crate) fn skip_stamp(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    skip_origin(input)?;
    input.varint()?;
    Ok(())
}

/// Passes over the name of a writer.
pub(crate) fn skip_origin(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    input.u16()?;
    input.u64()?;
    Ok(())
}

pub(crate) fn read_stamp(context: &Context, input: &mut Reader<'_>) -> Result<Stamp, BadBytes> {
    Ok(Stamp {
        origin: read_origin(context, input)?,
        sequence: input.varint()?,
    })
}

pub(crate) fn read_origin(context: &Context, input: &mut Reader<'_>) -> Result<Origin, BadBytes> {
    let name = OriginName {
        member: input.u16()?,
        incarnation: input.u64()?,
    };
    context.origin(name).ok_or(BadBytes)
}
