//! Accumulators: sums that all instances add to, exact once the adding stops.
//!
//! An accumulator never logs an operation per packet. Each instance keeps its own totals (*cells*) and now and then logs the
//! changed ones; a newer total of a cell replaces an older one, so that duplicates and reordering do no harm. Traffic of
//! operations is bounded by changed cells, not by packets. Memory is instances × cells.
//!
//! `counter.rs` is a single sum. `cells.rs` is the base of objects with many cells: `counters.rs` (by key), `vector.rs` (by
//! place), and by places that keys share (`sketch.rs`, `grid.rs`) `count_min.rs` and `counting_bloom.rs`. `bloom.rs` needs no
//! totals: bits only grow. Objects that forget have a cell for each bucket of time (`timed.rs`, of the ring in `asterism-windows`):
//! `windowed_counters.rs`, whose keys come and go (`keyed.rs`), and `windowed_count_min.rs`. `token_bucket.rs` accounts for
//! spending that way; levels and rates are `asterism-token-buckets`'. `top_k.rs` shares the places of a
//! summary. `announced.rs` has the digests that hosts compare; those of objects that forget are `asterism-windows`'. What a call adds that a store may refuse is recorded: see `recording.rs` of the crate;
//! `in_store.rs` has what a store answered of sums by key, which `asterism-wire` reads.

mod announced;
mod bloom;
mod count_min;
mod counter;
mod counters;
mod counting_bloom;
mod in_store;
mod keyed;
mod sketch;
mod timed;
mod token_bucket;
mod top_k;
mod vector;
mod windowed_count_min;
mod windowed_counters;
mod writer_counters;

use crate::context::{Context, Late, late_answer, read_stamp, skip_stamp, write_stamp};
use crate::mutant::{self, Mutant};
use crate::stamp::{Origin, Origins, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

pub use asterism_sketches::{Heavy, HeavyKeys, HeavyPlace};
pub use asterism_token_buckets::{Rates, TokenRate, TokenRates};
pub use asterism_windows::{SKEW_SECONDS_MAX, Window, WindowTally};
pub use bloom::{Bloom, BloomAct};
pub use count_min::{CountMin, CountMinAct};
pub use counter::{Counter, CounterAct};
pub use counters::{Counters, CountersAct, Tally};
pub use counting_bloom::{CountingBloom, CountingBloomAct};
pub use token_bucket::{Spending, TokenBucket, TokenBucketAct, TokenTally, Tokens};
pub use top_k::{TopK, TopKAct};
pub use vector::{Later, Vector, VectorAct};
pub use windowed_count_min::{WindowedCountMin, WindowedCountMinAct};
pub use windowed_counters::{WindowedCounters, WindowedCountersAct};

/// Instances of one host at most.
const LANES_OF_HOST_MAX: u64 = 256;
/// Writers (hosts × instances) of one accumulator at most; of those that forget, hosts × instances × incarnations. What further ones
/// say is refused, so that bytes gone wrong cannot use up the memory.
const WRITERS_MAX: usize = 1024;
/// Incarnations of a host whose names its totals bear at most. What nobody adds to any more bears that of the incarnation that reported it last, and an
/// instance tells [`ORIGINS_MAX`](crate::stamp::ORIGINS_MAX) incarnations apart at a time.
const INCARNATIONS_NAMED: u64 = 8;
/// Cells of one shared accumulator at most: a place in a snapshot is a writer and a cell.
pub(crate) const CELLS_MAX: u32 = u32::MAX / (WRITERS_MAX as u32 + 1);

/// Whose cell it is: an instance (lane) of an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Writing {
    origin: u16,
    lane: u16,
}

/// Whose cells they are whatever the incarnation: an instance goes on with the totals of the one that had its place in the incarnation before, so
/// that hosts which are restarted leave no totals behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WriterPlace {
    member: u16,
    lane: u16,
}

impl WriterPlace {
    /// This instance's.
    fn own(context: &Context) -> Self {
        let identity = context.identity();
        Self {
            member: identity.own.member,
            lane: identity.lane.0,
        }
    }
}

/// Who wrote a cell, to this instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Party {
    /// This instance.
    Own,
    /// The instance that had its place in an earlier incarnation of this host.
    Before,
    /// Another one.
    Other(WriterPlace),
}

impl Party {
    fn of(context: &Context, writing: Writing) -> Self {
        if is_own(context, writing) {
            return Self::Own;
        }
        let Writing { origin, lane } = writing;
        let member = context.origin_name(Origin(origin)).member;
        let seat = WriterPlace { member, lane };
        if seat == WriterPlace::own(context) {
            if mutant::active(Mutant::TotalsBeginAgain) {
                return Self::Own;
            }
            Self::Before
        } else {
            Self::Other(seat)
        }
    }
}

/// Of two incarnations of one host, whether the first came after the other. What it announced holds what the other did.
#[cold]
fn is_of_later_incarnation(context: &Context, origin: Origin, than: Origin) -> bool {
    context.origin_name(origin).incarnation > context.origin_name(than).incarnation
        || mutant::active(Mutant::EarlierIncarnationWins)
}

/// Whether what an earlier incarnation of this host reported bears a name so old that this one had better tell it again.
fn bears_old_name(context: &Context, origin: Origin) -> bool {
    let reported = context.origin_name(origin).incarnation;
    let own = context.identity().own.incarnation;
    reported.saturating_add(INCARNATIONS_NAMED) < own && !mutant::active(Mutant::NamesPileUp)
}

/// Whether a cell's (total, group) replaces another. A group may hold a total twice, and a snapshot what was
/// not flushed yet; totals grow, so of one group the greater is the newer.
fn newer((total, sequence): (u64, u64), (known, said): (u64, u64)) -> bool {
    sequence > said || sequence == said && total > known
}

/// What a sum changes by when a cell's total replaces the known one.
fn change(total: u64, known: u64) -> u64 {
    if mutant::active(Mutant::TotalAdded) {
        total
    } else {
        total.wrapping_sub(known)
    }
}

const NEVER: Stamp = Stamp {
    origin: Origins::OWN,
    sequence: 0,
};

fn own_writing(context: &Context) -> Writing {
    Writing {
        origin: Origins::OWN.0,
        lane: context.identity().lane.0,
    }
}

fn is_own(context: &Context, writing: Writing) -> bool {
    writing == own_writing(context)
}

fn write_cell(context: &Context, writing: Writing, total: u64, stamp: Stamp, out: &mut Writer<'_>) {
    out.varint(writing.lane.into());
    out.varint(total);
    write_stamp(context, stamp, out);
}

/// Whose cell an operation of a group speaks of.
fn read_writing(input: &mut Reader<'_>, stamp: Stamp) -> Result<Writing, BadBytes> {
    Ok(Writing {
        origin: stamp.origin.0,
        lane: read_lane(input)?,
    })
}

fn read_lane(input: &mut Reader<'_>) -> Result<u16, BadBytes> {
    match input.varint()? {
        lane if lane < LANES_OF_HOST_MAX => Ok(lane as u16),
        _ => Err(BadBytes),
    }
}

fn read_cell(context: &Context, input: &mut Reader<'_>) -> Result<(Writing, u64, Stamp), BadBytes> {
    let lane = read_lane(input)?;
    let total = input.varint()?;
    let stamp = read_stamp(context, input)?;
    Ok((
        Writing {
            origin: stamp.origin.0,
            lane,
        },
        total,
        stamp,
    ))
}

/// The total of a saved cell, no matter who wrote it and whenever.
fn read_saved(input: &mut Reader<'_>) -> Result<u64, BadBytes> {
    read_lane(input)?;
    let total = input.varint()?;
    skip_stamp(input)?;
    Ok(total)
}

#[cold]
fn late(context: &Context, object: u8, hash: u64, late_us: u32) -> Result<(), Late> {
    if !context.is_prefetching() {
        context.note_read_of(object);
    }
    if late_us == 0 || context.is_prefetching() || context.fetched(object, hash, late_us.into()) {
        Ok(())
    } else {
        Err(late_answer())
    }
}
