//! What every state object can do.
//!
//! The engine knows an object as [`Object`], whatever its type. That is eight traits, one for each subject; all can be called through
//! `dyn Object`, which is how the engine flushes, sweeps, compares, saves and shows. For each packet and each operation it calls them
//! with the type known ([`State`](crate::State)). Only [`Writable`] needs the type: a network function's writes differ from object to
//! object.
//!
//! `settings.rs` has the operator's choices for an object, `fetch.rs` objects that live in a store, `part.rs` the bounds of snapshots.

mod fetch;
mod part;
mod settings;

use core::ops::Range;

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::audit::{Leaf, LeafSet};
use crate::shown::Shown;
use crate::stamp::{NamedOrigins, OriginName, Stamp};
use crate::wire::{BadBytes, Reader};
use asterism_object_counts::ObjectCounts;

pub use fetch::{Addition, Fetch, FetchedEntry, Operations, SumsShown};
pub use part::{Part, Since};
pub use settings::{Absence, Home, IDLE_CLASSES, OBJECTS_MAX, ObjectSettings};

/// A state object, whatever its type: what the engine does with it. Network functions do not see this.
pub trait Object:
    Replicate + Fetch + Operations + Sweep + Audit + Snapshot + Inspect + PerPacket
{
}

impl<O: Replicate + Fetch + Operations + Sweep + Audit + Snapshot + Inspect + PerPacket> Object
    for O
{
}

/// An object that network functions write to.
pub trait Writable: Object {
    /// The object's writes, all that a function has of it after `act`.
    type Act<'a>
    where
        Self: 'a;
    /// Hands out the writes.
    fn act(&mut self) -> Self::Act<'_>;
}

/// Operations of other instances, and for them.
pub trait Replicate {
    /// Applies one operation of another instance.
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes>;
    /// Asks for the cache lines that an operation needs, some operations before it is applied.
    fn prefetch(&self, _input: &mut Reader<'_>) {}
    /// This instance, which has just begun, has what the others have, and may write from now on.
    fn joined(&mut self) {}
    /// Logs its operations for other instances from now on, or does so no longer; whether it does. It does not begin while it holds more
    /// than a share of what all instances may hold together. What others write is applied either way.
    fn share(&mut self, _shares: bool) -> bool {
        false
    }
    /// Writes what up to `records` records from `cursor` on hold again, as this instance's: others may lack it since the object was
    /// not shared here, or there. Where to go on, `None` at the end. Sums need none of it: their next flush reports what was added.
    fn announce(&mut self, _cursor: u32, _records: u32) -> Option<u32> {
        None
    }
    /// Logs what accumulated since the last flush. Stops, and says so with `false`, when `bytes` are used; the next call goes on.
    /// What changes meanwhile may be left for the flush after it.
    fn flush(&mut self, _bytes: &mut usize) -> bool {
        true
    }
}

/// Scans of an object's entries, a few at a time: the idle ones end, ended ones are forgotten, and writers are noted.
pub trait Sweep {
    /// Looks at up to `records` entries for idle and forgotten ones; how many it ended or forgot.
    fn sweep(&mut self, _records: u32) -> u32 {
        0
    }
    /// Entries that a whole sweep looks at.
    fn sweep_length(&self) -> u32 {
        0
    }
    /// Sweeps one of `steps` equal shares, so that as many calls look at all entries about once.
    fn sweep_share(&mut self, steps: u32) -> u32 {
        self.sweep(self.sweep_length().div_ceil(steps.max(1)))
    }
    /// Changes are confirmed that packets were held back for: entries whose last change is are found plainly again.
    fn confirmed(&mut self) {}
    /// Marks the slots of origins that what is held refers to: of up to `records` entries from `cursor` on, and at least of one;
    /// where to go on, `None` at the end. What is not marked may be given to another origin (`Context::forget_incarnations`).
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32>;
}

/// Comparison with the same object of other hosts, part by part, and repair of the parts that differ (see [`audit`](crate::audit)).
pub trait Audit {
    /// Equal on two members exactly if the object is equal there.
    fn digest(&self) -> u64;
    /// Copies consecutive leaves from `first` on. False: it keeps none, because it is not shared or is not audited.
    fn leaves(&self, _first: usize, _out: &mut [Leaf]) -> bool {
        false
    }
    /// The sum of the digests that [`leaves`](Audit::leaves) copies, by a look at everything: for tests.
    fn announced(&self) -> u64 {
        self.digest()
    }
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
    /// has of them. `through` is how far each stream was applied here when the first of them was written again:
    /// [`Context::applied_through`](crate::Context::applied_through). False: nothing of this object can be removed so.
    fn remove_elsewhere(&mut self, _leaves: &LeafSet, _through: &[(OriginName, u64)]) -> bool {
        false
    }
    /// Whether [`write_again`](Audit::write_again) writes what this instance alone can say, so that a host's others have to be
    /// asked as well. Else one of them writes all that there is.
    fn tells_own(&self) -> bool {
        false
    }
}

/// The whole object as entries: for a member that joins, and for a file.
pub trait Snapshot {
    /// Appends the object's whole state from `cursor` on, as far as the part goes; where to go on, `None` at the end.
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32>;
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
}

/// Sizes, counts and entries, for people: `status`, metrics and `state get`.
pub trait Inspect {
    /// Shows up to `records` entries from `cursor` on; where to go on, `None` at the end.
    fn show(&self, _cursor: u32, _records: u32, _each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        None
    }
    /// Entries at most; 0 if there is no such bound.
    fn capacity(&self) -> u32 {
        0
    }
    /// What it counted of losers and all else that was not taken as it was meant.
    fn counts(&self) -> ObjectCounts {
        ObjectCounts::default()
    }
    /// Of a pool, items that were another member's by place: those that may not be granted here yet, and those that may.
    fn inherited(&self) -> (u32, u32) {
        (0, 0)
    }
    /// Entries that can be found now.
    fn entries(&self) -> usize;
    /// Entries held, the ended ones included.
    fn entries_held(&self) -> usize {
        self.entries()
    }
    /// Entries that ended and are kept until all members know. Of a graph these are sightings, as what is held is.
    fn entries_ended(&self) -> usize {
        0
    }
}

/// What happens before and after each packet: prefetches, and the end of its reservations.
pub trait PerPacket {
    /// Prefetches the records at which the probe of the first of these packets, and those of packets that follow and
    /// probe the same, are likely to end. Returns the packet where it stopped.
    fn prefetch_records(&self, _hints: &PrefetchHints, packets: Range<usize>) -> usize {
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
}
