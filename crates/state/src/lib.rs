//! State objects: the data that network functions share, under any placement.
//!
//! Layer 1. Knows packets' keys at most, no sockets, clocks or transports of operations: every change is applied here
//! immediately and logged as an operation; operations of other instances come in through [`State::apply`], whole states
//! through [`State::apply_snapshot`].
//!
//! Read first: `object/mod.rs` (the traits of an object), `state.rs` (all objects of a function), `builder.rs` (builds a state's objects), then `table/mod.rs` (the table
//! behind maps and sets), `graph/mod.rs` (which hosts talk to which others), `accumulator/mod.rs` (sums and sketches),
//! `pool/mod.rs` (items that can run out). What one instance's objects share is `asterism-call-context`.

// What `#[state]` generates names this crate from outside.
extern crate self as asterism_state;

mod accumulator;
mod builder;
mod forgetting;
#[doc(hidden)]
mod graph;
pub mod laws;
pub mod layout;
mod map;
mod object;
mod pool;
mod recording;
mod register;
mod shape;
mod shown;
mod state;
mod table;

// The encoding: files of this crate import it as `crate::wire`. Stamps, leaves and the context of calls likewise.
use asterism_call_context as context;
use asterism_stamps::stamp;
use asterism_wire as wire;

pub use accumulator::{
    Bloom, BloomAct, CountMin, CountMinAct, Counter, CounterAct, Counters, CountersAct,
    CountingBloom, CountingBloomAct, Heavy, HeavyKeys, HeavyPlace, Later, Rates, SKEW_SECONDS_MAX,
    Spending, Tally, TokenBucket, TokenBucketAct, TokenRate, TokenRates, TokenTally, Tokens, TopK,
    TopKAct, Vector, VectorAct, Window, WindowTally, WindowedCountMin, WindowedCountMinAct,
    WindowedCounters, WindowedCountersAct,
};
pub use asterism_block_assignment::{BlockAssignment, PARTITIONS, PlaceAssignment};
pub use asterism_call_context::{
    ADDITIONS_PER_CALL, ANSWER_BYTES_MAX, AWAITED_READS_MAX, Answered, Call, Context, Depends,
    FORGETS_FROM, GRANTS_PER_PACKET_MAX, GROUP_BYTES_MAX, Identity, LANE_ANY, LANE_CELLS,
    LANE_ROOM, LANE_SUM, LANE_SUMS, Late, MISSES_PER_PACKET_MAX, Nearby, OPERATION_BYTES_MAX,
    Query, REQUESTS_PER_PACKET_MAX, STEPS_MAX, Sequencer, StageEnd, Step, Tick, Ticket,
    Transaction, UNCONFIRMED_MAX, WRITES_PER_PACKET, Wait, WriteSetTooLong, Written, entry_hash,
    stable_hash,
};
pub use asterism_memory::prefetch_hints::{BURST_MAX, PrefetchHints};
pub use asterism_memory::{hash, region as memory};
pub use asterism_object_counts::{ObjectCount, ObjectCounts};
pub use asterism_stamps::audit;
pub use asterism_state_macro::{
    KeyBelow as Key, ValueBelow as Value, WireBelow as Wire, state_below as state,
};
pub use asterism_state_mutants::{branch, mutant};
pub use asterism_windows::Ring;
pub use asterism_wire::{Flow4Key, flow_digest};
pub use builder::Builder;
pub use forgetting::forget_incarnations;
pub use graph::{Graph, GraphAct, Link};
pub use map::{BiMap, Entry, Grouped, Map, Pair, Paired, Set, Single, TableAct};
pub use object::{
    Absence, Addition, Audit, Fetch, FetchedEntry, Home, IDLE_CLASSES, Inspect, OBJECTS_MAX,
    Object, ObjectSettings, Operations, Part, PerPacket, Replicate, Since, Snapshot, SumsShown,
    Sweep, Writable,
};
pub use pool::{BLOCK_ITEMS, Grant, Pool, PoolAct, PoolUse, Returns, Space};
pub use register::{Register, RegisterAct};
pub use shown::{Provenance, Shown};
pub use stamp::{NamedOrigins, ORIGINS_MAX, Origin, OriginName, Origins, Stamp};
pub use state::{ObjectQuery, ObjectVisitor, State};
pub use table::{
    At, EntryAge, FoundNearby, LANES_MAX, Row, Table, TableTally, Vacancy, VacancyFor,
};
pub use wire::{
    BadBytes, PlaceField, Reader, SumsAsked, SumsRead, Writer, append_sum, each_sum,
    write_bucket_field, write_sums,
};
// Traits have the names of their derives, which are macros: other names of another kind.
pub use traits::*;

mod traits {
    pub use crate::map::Key;
    pub use crate::table::Value;
    pub use crate::wire::Wire;
}
