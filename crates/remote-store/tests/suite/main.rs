//! Objects in a store that speaks the protocol of Redis: the protocol over wires that fail, in virtual time, and real stores.
#![expect(
    clippy::disallowed_methods,
    reason = "real stores are waited for by the clock of the machine"
)]

mod addresses;
mod ends;
mod failover;
mod filter;
mod format;
mod kept;
mod limits;
mod looks;
mod lying;
mod meters;
mod over_wires;
mod real_stores;
mod refusing;
mod scripted;
mod seeds;
mod shards;
mod sketches;
mod stores;
mod streams;
mod tills;
mod used;
mod windows;
mod wires;
mod world;
