//! A whole state: the objects that one network function has, by number.
//!
//! A state hands its objects out in two ways. [`State::object`] gives any of them as `dyn Object`, for what the engine does now and then.
//! [`State::with`] and [`State::query`] give it with its type, so that a visitor is compiled for each: for each packet and each operation.
//! The visitors at the end of this file are all that there are.

use core::ops::Range;

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::context::{Context, Depends, Query, Transaction, stable_hash};
use crate::mutant::{self, Mutant};
use crate::object::{OBJECTS_MAX, Object, Part, Since};
use crate::stamp::{OriginName, Stamp};
use crate::wire::{BadBytes, Reader};

/// A whole state: the struct that `#[state]` was put on.
pub trait State: Sized + 'static {
    /// Names of the objects, in order.
    const OBJECTS: &'static [&'static str];
    /// The writes of all objects, by field name.
    type Act<'a>;
    /// Hands out the writes.
    fn act(&mut self) -> Self::Act<'_>;

    /// The objects' names, in order: [`State::OBJECTS`], but of a state that is put together when the program runs.
    #[inline(always)]
    fn objects(&self) -> &'static [&'static str] {
        Self::OBJECTS
    }
    /// Object number `object`, called by address; `None` if there is none.
    fn object(&self, object: u8) -> Option<&dyn Object>;
    /// As [`State::object`], to be changed.
    fn object_mut(&mut self, object: u8) -> Option<&mut dyn Object>;
    /// Calls `each` for all objects, in order.
    fn for_each_object(&mut self, mut each: impl FnMut(&mut dyn Object)) {
        for object in 0..self.objects().len() as u8 {
            if let Some(object) = self.object_mut(object) {
                each(object);
            }
        }
    }

    /// Calls `visit` for object number `object`, compiled for its type. Other numbers do nothing and give `None`.
    fn with<T>(&mut self, object: u8, visit: impl ObjectVisitor<T>) -> Option<T>;
    /// As [`State::with`], for shared access.
    fn query<T>(&self, object: u8, query: impl ObjectQuery<T>) -> Option<T>;

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

    /// Prefetches the records at which probes of an object are likely to end, see
    /// [`PerPacket::prefetch_records`](crate::PerPacket::prefetch_records); the packet where it stopped, `None` if there is no such
    /// object.
    #[inline(always)]
    fn prefetch_records(
        &self,
        object: u8,
        hints: &PrefetchHints,
        packets: Range<usize>,
    ) -> Option<usize> {
        self.query(object, PrefetchRecords { hints, packets })
    }

    /// Takes back a grant of an object that the packet did not spend.
    #[inline(always)]
    fn give_back(&self, object: u8, number: u32) {
        self.query(object, GiveBack(number));
    }

    /// Has all objects forget the reservations of the packet that ended.
    #[inline(always)]
    fn settle(&self) {
        for object in 0..self.objects().len() as u8 {
            self.query(object, Settle);
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
            match self.object(object)?.snapshot(place, part) {
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
            let object = self.object_mut(object).ok_or(BadBytes)?;
            taken += u32::from(object.restore(flags, &mut input, since)?);
        }
        Ok(taken)
    }

    /// Appends what is answered to a read of an object that lives here, for an instance that asks: see
    /// [`Fetch::extract`](crate::Fetch::extract). Nothing if there is no such object.
    fn extract(&self, query: &Query<'_>, answer: &mut Vec<u8>) {
        if let Some(object) = self.object(query.object) {
            object.extract(query, answer);
        }
    }
    /// Has what stores answered for the call that the context has resumed in the objects.
    ///
    /// # Errors
    /// Some of it is no answer: the packet is to be dropped, after [`State::withdraw`].
    fn install(&mut self, context: &Context) -> Result<(), BadBytes> {
        let mut result = Ok(());
        context.each_answer(|query, answer| {
            let object = self.object_mut(query.object).ok_or(BadBytes);
            result = result.and(object.and_then(|object| object.install(query.lane, answer)));
        });
        result
    }
    /// Has nothing in the objects any more that stores answered. After every call of [`State::install`].
    fn withdraw(&mut self) {
        self.for_each_object(|object| object.withdraw());
    }
    /// Hands out the writes of a transaction: for each its object, kind, and what the object recorded, a row and a value.
    ///
    /// # Errors
    /// Some of them are no writes: those before were handed out.
    fn each_write(&self, writes: &[u8], mut each: impl FnMut(u8, u8, &[u8])) -> Result<(), BadBytes>
    where
        Self: Sized,
    {
        each_write(writes, |(object, kind), write| {
            each(object, kind, write);
            Ok(())
        })
    }
    /// Whether what a transaction read is as it was answered, and there is room for what it adds.
    fn still_holds(&self, transaction: &Transaction) -> bool {
        let is_read_so = transaction.reads().all(|(query, depends)| {
            self.is_so(&query, depends) || mutant::active(Mutant::ReadsUnchecked)
        });
        is_read_so && self.is_room_for(transaction.writes()).unwrap_or(false)
    }
    /// Whether what a call depended on is so.
    fn is_so(&self, query: &Query<'_>, depends: Depends) -> bool {
        match depends {
            Depends::OnAnswer(hash) => {
                let mut answer = Vec::new();
                self.extract(query, &mut answer);
                stable_hash(&answer) == hash
            }
            Depends::OnEntry(hash) => {
                let object = self.object(query.object);
                object.is_some_and(|object| object.has_entry(query, hash))
            }
        }
    }
    /// Whether all objects have room for what these writes add.
    fn is_room_for(&self, writes: &[u8]) -> Result<bool, BadBytes> {
        let mut added = [0; OBJECTS_MAX];
        each_write(writes, |(number, kind), _| {
            let object = self.object(number).ok_or(BadBytes)?;
            added[usize::from(number) % OBJECTS_MAX] += u32::from(object.adds(kind));
            Ok(())
        })?;
        let mut objects = (0..self.objects().len() as u8).zip(added);
        Ok(objects.all(|(number, count)| {
            let object = self.object(number);
            count == 0 || object.is_some_and(|object| object.is_room_for(count))
        }))
    }
    /// The writes of a transaction to objects that are `here`, by number, wait for a store's decision from now on (`begins`), or have it.
    /// Reads that it may answer otherwise are late meanwhile.
    ///
    /// # Errors
    /// Some of them are no writes.
    fn note_undecided(
        &mut self,
        context: &Context,
        writes: &[u8],
        here: impl Fn(u8) -> bool,
        begins: bool,
    ) -> Result<(), BadBytes> {
        each_write(writes, |(number, kind), write| {
            let object = self.object_mut(number).ok_or(BadBytes)?;
            if !here(number) && !object.follows_decisions() {
                return Ok(());
            }
            let input = &mut Reader::new(write, context.addresses());
            object.note_undecided(kind, input, begins)
        })
    }
    /// Makes the writes of a transaction to objects that are `here`, by number; the store has those of others.
    ///
    /// # Errors
    /// Some of them are no writes: those before are made.
    fn commit(
        &mut self,
        context: &Context,
        writes: &[u8],
        here: impl Fn(u8) -> bool,
    ) -> Result<(), BadBytes> {
        each_write(writes, |(number, kind), write| {
            let object = self.object_mut(number).ok_or(BadBytes)?;
            if !here(number) && !object.follows_decisions() {
                return Ok(());
            }
            object.commit(kind, &mut Reader::new(write, context.addresses()))
        })
    }

    /// One digest for each object.
    fn digests(&self) -> Vec<u64> {
        (0..self.objects().len() as u8)
            .filter_map(|object| self.digest(object))
            .collect()
    }
    /// One object's digest: a look at all that it holds. `None` if there is no such object.
    fn digest(&self, object: u8) -> Option<u64> {
        self.object(object).map(|object| object.digest())
    }
}

/// Reads recorded writes: for each its object and kind, and what the object recorded.
fn each_write(
    writes: &[u8],
    mut each: impl FnMut((u8, u8), &[u8]) -> Result<(), BadBytes>,
) -> Result<(), BadBytes> {
    let mut input = Reader::new(writes, &[]);
    while !input.is_empty() {
        let tag = input.tag()?;
        let length = input.u16()?;
        each(tag, input.raw(length.into())?)?;
    }
    Ok(())
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
struct PrefetchRecords<'a> {
    hints: &'a PrefetchHints,
    packets: Range<usize>,
}
impl ObjectQuery<usize> for PrefetchRecords<'_> {
    #[inline(always)]
    fn query<O: Object + ?Sized>(self, object: &O) -> usize {
        object.prefetch_records(self.hints, self.packets)
    }
}
struct GiveBack(u32);
impl ObjectQuery<()> for GiveBack {
    fn query<O: Object + ?Sized>(self, object: &O) {
        object.give_back(self.0);
    }
}
struct Settle;
impl ObjectQuery<()> for Settle {
    fn query<O: Object + ?Sized>(self, object: &O) {
        object.settle();
    }
}
