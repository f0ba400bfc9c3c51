//! The encoding: how keys, values and operations are written as bytes.
//!
//! Layer 0, below the state objects, which write and read their keys, values and operations with it. Nothing here knows an object, a
//! stamp or a member.
//!
//! Read first: `wire.rs` (the trait of an encoded value, the writer and the reader), then `layout.rs` (numbers by which hosts that
//! would misread each other refuse each other) and `key.rs` (keys). `endpoint.rs` encodes the addresses and endpoints of packets,
//! `packet_keys.rs` hashes them; `sums.rs` has what a store answers of sums that it keeps, `answered.rs` requests for several of
//! them, and those that were answered.

#![forbid(unsafe_code)]

mod answered;
mod endpoint;
mod key;
pub mod layout;
mod packet_keys;
mod sums;
mod wire;

pub use answered::{
    BUCKETS_READ_MAX, KeySums, PlaceSums, SumsAsked, SumsRead, read_bucket_field,
    write_bucket_field,
};
pub use key::Key;
pub use packet_keys::{Flow4Key, flow_digest};
pub use sums::{PlaceField, amount_in_store, append_sum, each_sum, write_sums};
pub use wire::{BadBytes, Reader, Wire, Writer};
