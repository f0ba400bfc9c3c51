//! From sealed datagrams to what a person reads: `asterism decrypt` opens a capture, and Wireshark's dissector shows it.
//!
//! Both are tested with the public vectors of `docs/src/vectors`. What needs tshark says `SKIPPED` without.

mod decrypt;
mod dissector;
mod frames;
mod hostile;
mod relays;
// What another crate has for its tests cannot be imported: the file is.
#[allow(dead_code, reason = "the placement's tests use the rest")]
#[path = "../../../../placement/src/vectors.rs"]
mod vectors;
