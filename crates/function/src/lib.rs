//! Everything that the author of a network function imports.
//!
//! A function is called once for each packet. It first *asks*: it reads its state and reserves items, either of which may be
//! late; then it *acts*: it edits the packet and writes its state, which cannot wait and cannot fail. The engine batches,
//! prefetches, parks late packets and carries the writes to other instances; the configuration places each piece of state.
//!
//! Layer 3a, without I/O. Read first: `function.rs`, then `ask.rs`, then `testkit.rs` for tests of a function; `observable.rs`
//! is for the control plane, and `chain/mod.rs` puts several functions in a row.

mod ask;
pub mod chain;
#[cfg(doctest)]
mod does_not_compile;
mod emissions;
mod endpoint_space;
mod function;
mod host;
pub mod notice;
mod observable;
mod own;
mod prefix;
mod reason;
pub mod records;
mod stages;
mod stop;
pub mod testkit;

pub use ask::{Act, AllAnswers, Ask};
pub use asterism_packet::{
    Arp, ArpOperation, Changes4, Cut, Embedded, End, Endpoint, Flow4, FlowKey, Forwarding4,
    Fragment, IcmpKind, Layout, MacAddress, Malformed, Network, Packet, Plain4, Protocol, TcpFlags,
    Transport, Vlan, build, checksum,
};
pub use asterism_state as objects;
pub use asterism_state::{
    Absence, At, BadBytes, BiMap, Bloom, Builder, CountMin, Counter, Counters, CountingBloom,
    Entry, Flow4Key, Grant, Graph, Grouped, Heavy, HeavyKeys, HeavyPlace, Late, Link, Map, Nearby,
    Pair, Paired, Pool, Rates, Reader, Register, Row, Set, Single, Space, Spending, State, Table,
    Tally, Tick, TokenBucket, TokenRate, TokenRates, Tokens, TopK, Vacancy, VacancyFor, Vector,
    Window, WindowedCountMin, WindowedCounters, Writer, laws, layout,
};
pub use asterism_state_macro::{Key, Value, Wire, state};
pub use emissions::{EMITTED_FRAMES_MANY, Emissions};
pub use endpoint_space::EndpointSpace;
pub use function::{
    CONTROL, Call, NetworkFunction, PortNumber, Verdict, call, prefetch, refuse_late_after_act,
};
pub use host::Host;
pub use observable::{Observable, events_of, metrics_of, reasons_of, report_of, values_of};
pub use own::{
    CHAIN_METRICS_MAX, MetricKind, OWN_METRICS_MAX, OWN_REASONS_MAX, OwnError, OwnEvent, OwnMetric,
    OwnReason, check_own,
};
pub use prefix::{IpPrefix, IpPrefixError, IpPrefixSet};
pub use reason::Reason;
pub use stages::{Stages, decided, objects_of, stage_names, stage_tallies, waits_at};
pub use stop::Stop;
// Traits have the names of their derives, which here are those that name this crate.
pub use traits::*;

mod traits {
    pub use asterism_state::{Key, Value, Wire};
}
