//! Objects that hold what a store answered for some transactions, and nothing else: what becomes of it is computed here.

use core::cell::Cell;
use std::rc::Rc;

use asterism_function::{Builder, NetworkFunction, report_of};
use asterism_state::{
    Addition, BadBytes, Context, Fetch, FetchedEntry, Identity, Object, ObjectSettings, Query,
    Sequencer, Shown, State, SumsShown, Tick, Transaction, entry_hash,
};

use crate::keys::{Keys, Timed};

use crate::mutant::{self, Mutant};
use crate::shards::Shard;
use crate::sums::Additions;

/// Records of a table on which a function reports in one part.
const RECORDS_EACH: u32 = 4_096;

/// The answer to a read by a key that finds nothing.
pub(crate) const NOTHING: [u8; 2] = [0; 2];

/// A read that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) object: u8,
    pub(crate) lane: u8,
    hash: u64,
    key: Vec<u8>,
}

impl Read {
    pub(crate) fn new(query: &Query<'_>) -> Self {
        Self {
            object: query.object,
            lane: query.lane,
            hash: query.hash,
            key: query.key.to_vec(),
        }
    }

    /// Any read by a key of a lane.
    pub(crate) fn of_lane(object: u8, lane: u8) -> Self {
        Self {
            object,
            lane,
            hash: 0,
            key: Vec::new(),
        }
    }

    pub(crate) fn query(&self) -> Query<'_> {
        Query {
            object: self.object,
            lane: self.lane,
            hash: self.hash,
            key: &self.key,
            conversation: 0,
        }
    }
}

/// Whether a shard has room for its part alone.
fn has_a_part() -> bool {
    !mutant::active(Mutant::WholeRoomInEachShard)
}

/// Whether nobody looks at whose keys a shard is asked for.
fn is_unchecked() -> bool {
    mutant::active(Mutant::ShardUnchecked)
}

/// A function's objects.
pub(crate) struct Workbench<F: NetworkFunction> {
    state: F::State,
    context: Rc<Context>,
    /// Those that are in the store, a bit for each.
    objects: u64,
    /// Of whose entries it has one shard's.
    shard: Option<Shard>,
    answer: Vec<u8>,
}

impl<F: NetworkFunction> core::fmt::Debug for Workbench<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Workbench({:?})", self.state.objects())
    }
}

impl<F: NetworkFunction> Workbench<F> {
    /// Of the function whose instances hash keys with this seed, and that has these objects in the store.
    pub(crate) fn new(function: &F, seed: u64, objects: u64) -> Self {
        let addresses = function.addresses();
        let context = Rc::new(Context::new(
            Identity::alone(),
            Sequencer::Own(Cell::new(0)),
            seed,
            addresses.iter().map(|address| address.to_bits()).collect(),
        ));
        let builder = Builder::new(context.clone(), |_| ObjectSettings::LOCAL);
        let state = builder.built(function.state(&builder));
        Self {
            state,
            context,
            objects,
            shard: None,
            answer: Vec::new(),
        }
    }

    /// The same of one shard.
    pub(crate) fn of_shard(self, shard: Option<Shard>) -> Self {
        Self { shard, ..self }
    }

    /// Whether a read is of this shard: by a key that it has, or by none.
    pub(crate) fn is_here(&self, query: &Query<'_>) -> bool {
        let Some(shard) = self.shard.as_ref().filter(|_| !is_unchecked()) else {
            return true;
        };
        let (object, seed) = (self.object(query.object), shard.all.conversation_seed());
        let conversation = object.map(|object| object.conversation_of(query, seed));
        query.is_without_key() || matches!(conversation, Ok(Some(one)) if shard.has(one))
    }

    /// Whether all that a transaction reads and writes is.
    pub(crate) fn is_whole_here(&self, transaction: &Transaction) -> bool {
        if self.shard.is_none() {
            return true;
        }
        let mut is_here = transaction.reads().all(|(query, _)| self.is_here(&query));
        let written = self.each_written(transaction, |_, _, entry| {
            is_here &= entry.reads.iter().all(|read| self.is_here(read));
        });
        is_here && written.is_ok()
    }

    pub(crate) fn set_tick(&self, tick: Tick) {
        self.context.set_now(0, tick);
    }

    /// The objects in the store, a bit for each.
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    fn object(&self, object: u8) -> Result<&dyn Object, BadBytes> {
        self.state.object(object).ok_or(BadBytes)
    }

    /// Entries that an object may have here: of several shards each has room for an equal part.
    pub(crate) fn capacity(&self, object: u8) -> u64 {
        let whole = self.object(object).map_or(0, |object| object.capacity());
        let shard = self.shard.as_ref().filter(|_| has_a_part());
        let shards = shard.map_or(1, |shard| shard.all.count());
        u64::from(whole).div_ceil(shards as u64)
    }

    /// The objects in the store of which something is so.
    fn those(&self, is_so: impl Fn(&dyn Object) -> bool) -> Vec<u8> {
        let all = (0..u64::BITS as u8).filter(|number| self.objects >> number & 1 != 0);
        all.filter(|number| self.object(*number).is_ok_and(&is_so))
            .collect()
    }

    /// Those with entries that end by themselves.
    pub(crate) fn that_end(&self) -> Vec<u8> {
        self.those(|object| object.ends())
    }

    /// The objects with sums in the store, those that follow entries there included.
    pub(crate) fn with_sums(&self) -> Vec<u8> {
        let counted = self.those(|object| object.is_counted());
        let all = 0..self.state.objects().len() as u8;
        // Of entries that are elsewhere the store has none.
        all.filter(|number| {
            let follows = self.object(*number).is_ok_and(Fetch::counts_entries);
            !counted.is_empty() && follows || self.has_sums(*number)
        })
        .collect()
    }

    /// What people see of the sums of an object.
    pub(crate) fn shows_sums(&self, object: u8) -> SumsShown {
        let object = self.object(object);
        object.map_or(SumsShown::None, Fetch::shows_sums)
    }

    /// The objects with sums by buckets of time.
    pub(crate) fn timed(&self) -> Vec<Timed> {
        let all = (0..u64::BITS as u8).filter(|object| self.has_sums(*object));
        let timed = all.filter_map(|number| {
            let object = self.object(number).ok()?;
            Some(Timed {
                object: number,
                ring: object.buckets()?,
                lists_keys: object.has_room_for_keys(),
            })
        });
        timed.collect()
    }

    /// Whether an object is in the store as sums.
    pub(crate) fn has_sums(&self, object: u8) -> bool {
        self.objects >> object & 1 != 0 && self.object(object).is_ok_and(Fetch::has_sums)
    }

    /// The objects that are in the store as sums, a bit for each.
    pub(crate) fn sums(&self) -> u64 {
        let all = 0..u64::BITS as u8;
        all.fold(0, |bits, object| {
            bits | u64::from(self.has_sums(object)) << object
        })
    }

    /// The reads that find a row of an object.
    pub(crate) fn reads_of(
        &self,
        object: u8,
        row: &[u8],
        each: &mut dyn FnMut(&[Query<'_>]),
    ) -> Result<(), BadBytes> {
        self.object(object)?.reads_of(row, each)
    }

    /// Where a row of an object is; `None`: in another shard, or it is no row of the object.
    pub(crate) fn key_of(&self, keys: &Keys, object: u8, row: &[u8]) -> Option<Vec<u8>> {
        let mut key = None;
        let read = self.reads_of(object, row, &mut |reads| {
            let first = reads.first().filter(|read| self.is_here(read));
            key = first.map(|read| keys.of_read(read));
        });
        read.ok().and(key)
    }

    /// When the entry of a row that is here ends; `None` if there is none.
    pub(crate) fn end_of(&mut self, object: u8, row: &[u8]) -> Option<Option<Tick>> {
        let mut first = None;
        let read = self.reads_of(object, row, &mut |reads| {
            first = reads.first().map(Read::new);
        });
        read.ok()?;
        let answer = self.extract(&first?.query()).to_vec();
        let mut end = None;
        let _ = self.each_entry(object, &answer, &mut |entry| {
            if entry.row == row {
                end = Some(entry.ends);
            }
        });
        end
    }

    /// Ends those of these entries of an object that are here and whose time is over.
    pub(crate) fn end_over(&mut self, object: u8, rows: &[Vec<u8>]) {
        let tick = self.context.tick();
        if mutant::active(Mutant::UsedSinceEnded) {
            self.set_tick(Tick::MAX);
        }
        if let Some(object) = self.state.object_mut(object) {
            for row in rows {
                // What is no row is taken out of the set: see [`Claim::note`](crate::ends::Claim::note).
                let _ = object.end_over(row);
            }
        }
        self.set_tick(tick);
        self.context.end(|_, _| {});
    }

    /// Takes what has come to sums since all was forgotten: of each its object and its place.
    pub(crate) fn take_sums(&mut self, mut each: impl FnMut(u8, u32, i64)) {
        for number in 0..self.state.objects().len() as u8 {
            if let Some(object) = self.state.object_mut(number) {
                object.take_sums(&mut |place, amount| each(number, place, amount));
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.state.for_each_object(|object| object.clear());
    }

    /// Has an answer here.
    pub(crate) fn install(&mut self, read: &Read, answer: &[u8]) -> Result<(), BadBytes> {
        let object = self.state.object_mut(read.object).ok_or(BadBytes)?;
        object.install(read.lane, answer)
    }

    /// Has the sums of an object here, to be shown.
    pub(crate) fn note_sums(&mut self, object: u8, answer: &[u8]) {
        if let Some(object) = self.state.object_mut(object) {
            object.note_sums(answer);
        }
    }

    /// Shows the entries of an object, as people see them, until `each` says that it is enough. Whether it did not.
    pub(crate) fn show(&self, object: u8, each: &mut dyn FnMut(&Shown<'_>) -> bool) -> bool {
        let mut goes_on = true;
        if let Ok(object) = self.object(object) {
            object.show(0, u32::MAX, &mut |entry| {
                // Who wrote an entry a store does not say.
                let entry = Shown {
                    provenance: None,
                    ..*entry
                };
                goes_on = goes_on && each(&entry);
            });
        }
        goes_on
    }

    /// Gives the function's answer to a question about all that is here, in parts.
    pub(crate) fn report(&self, function: &F, question: u32, each: &mut dyn FnMut(&[u8])) {
        let (mut cursor, mut part) = (Some(0), Vec::new());
        while let Some(from) = cursor {
            part.clear();
            cursor = report_of(
                function,
                &self.state,
                question,
                (from, RECORDS_EACH),
                &mut part,
            );
            if !part.is_empty() {
                each(&part);
            }
        }
        self.context.end(|_, _| {});
    }

    /// What a read finds here.
    pub(crate) fn extract(&mut self, query: &Query<'_>) -> &[u8] {
        self.answer.clear();
        self.state.extract(query, &mut self.answer);
        &self.answer
    }

    /// The entries of an answer.
    pub(crate) fn each_entry(
        &self,
        object: u8,
        answer: &[u8],
        each: &mut dyn FnMut(&FetchedEntry<'_>),
    ) -> Result<(), BadBytes> {
        self.object(object)?.each_entry(answer, each)
    }

    /// Whether an entry of this hash is in an answer.
    pub(crate) fn is_in(&self, object: u8, answer: &[u8], hash: u64) -> bool {
        let mut is_in = false;
        let read = self.each_entry(object, answer, &mut |entry| {
            is_in |= entry_hash(entry.bytes) == hash;
        });
        is_in && read.is_ok()
    }

    /// Whether a read finds an entry of this hash here.
    pub(crate) fn has_entry(&self, query: &Query<'_>, hash: u64) -> bool {
        let object = self.object(query.object);
        object.is_ok_and(|object| object.has_entry(query, hash))
    }

    /// What a transaction adds to sums in the store.
    pub(crate) fn additions(&self, transaction: &Transaction) -> Result<Additions, BadBytes> {
        let (mut additions, mut result) = (Additions::default(), Ok(()));
        self.state
            .each_write(transaction.writes(), |number, _, write| {
                if self.has_sums(number) {
                    let object = self.object(number);
                    let ring = object.ok().and_then(Fetch::buckets);
                    let is_over = |bucket| {
                        let over = ring.map(|ring| ring.is_over(bucket, self.context.tick()));
                        over.unwrap_or(false) && !mutant::active(Mutant::LateAdditionMade)
                    };
                    let add = &mut |addition: &Addition<'_>| {
                        additions.add(number, addition, is_over(addition.bucket));
                    };
                    result = result.and(object.and_then(|object| object.each_addition(write, add)));
                }
            })?;
        result.map(|()| additions)
    }

    /// The entries that a transaction writes: of each its object, whether it adds an entry, and that entry.
    pub(crate) fn each_written(
        &self,
        transaction: &Transaction,
        mut each: impl FnMut(u8, bool, &FetchedEntry<'_>),
    ) -> Result<(), BadBytes> {
        let mut result = Ok(());
        let mut answer = Vec::new();
        self.state
            .each_write(transaction.writes(), |number, kind, write| {
                if self.objects >> number & 1 == 0 || self.has_sums(number) {
                    return;
                }
                let Ok(object) = self.object(number) else {
                    return result = Err(BadBytes);
                };
                answer.clear();
                // An entry as an answer has it: row and value, not shadowed; and when its next use is announced.
                answer.extend((write.len() as u16 + 1).to_le_bytes());
                answer.extend(write);
                answer.extend([0; 5]);
                let adds = object.adds(kind);
                let entry = object.each_entry(&answer, &mut |entry| each(number, adds, entry));
                result = result.and(entry);
            })?;
        result
    }

    /// Whether a transaction writes nothing here but that entries are in use.
    pub(crate) fn uses_alone(&self, transaction: &Transaction) -> bool {
        let mut uses_alone = true;
        let written = (self.state).each_write(transaction.writes(), |number, kind, _| {
            let is_here = self.objects >> number & 1 != 0;
            let is_use = self.object(number).is_ok_and(|object| object.is_use(kind));
            uses_alone &= !is_here || is_use;
        });
        written.is_ok() && uses_alone
    }

    /// Makes the writes of a transaction, but for what it adds to sums.
    pub(crate) fn commit(&mut self, transaction: &Transaction) -> Result<(), BadBytes> {
        let objects = self.objects & !self.sums();
        let is_there = |object: u8| objects >> object & 1 != 0;
        let made = self
            .state
            .commit(&self.context, transaction.writes(), is_there);
        self.context.end(|_, _| {});
        made
    }
}
