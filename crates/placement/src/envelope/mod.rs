//! The envelope of a state message: a header, then length-delimited frames, each read by one protocol. Integers are LEB128 (7 bits
//! per byte, least first, at most ten bytes) unless a width is given; fixed widths are little endian.
//!
//! ```text
//! message := header frame*
//! header  := version:u8 cluster epoch timestamp:u64 head count:u8 echo*count      of the trial version timestamp:u48
//! echo    := member timestamp:u64 held            times in microseconds; the member's own timestamp, returned
//! frame   := kind:u8 length body[length]
//! padding := zero*                                kind 0x80; without a meaning
//! ```
//!
//! The header names the sender's stream up to its head, so that a frame of any protocol has a place in that stream. The table in
//! `kinds` names each frame kind and the protocol that reads it; a new protocol adds its rows. A decoder trusts the length before
//! every body to find the next frame, so an unknown body cannot shift the frames behind it. A build may skip an unknown kind with
//! bit 7 set; any other unknown kind makes it refuse the whole message.
//!
//! Read first: `header`, then `frames` and `kinds`. `numbers` has the encoding of integers, `refused` the reasons for which a
//! message is refused. Bodies are their protocols' business: `replicated::wire`, `replicated::audit`, `membership::frames`.

mod frames;
#[cfg(test)]
mod golden;
mod header;
mod kinds;
mod message;
mod numbers;
mod refused;

pub(crate) use frames::{FRAME_BYTES_MAX, RawFrame, RawFrames, write_frame, write_padding};
pub(crate) use header::{ECHO_BYTES_MAX, Echo, HEADER_BYTES_MAX, Header};
pub use header::{WIRE_VERSION, WIRE_VERSION_TRIAL};
pub(crate) use kinds::{
    KIND_ACKNOWLEDGE, KIND_ASK, KIND_AUDIT, KIND_CLOCK, KIND_CLOSE, KIND_JOIN, KIND_JOIN_CONFIRM,
    KIND_JOIN_VECTOR, KIND_KEEP_ALIVE, KIND_KEYS, KIND_LACKS, KIND_LEAVE, KIND_LEAVE_CONFIRM,
    KIND_PLACEMENTS, KIND_RECORDS, KIND_SNAPSHOT, KIND_SNAPSHOT_ACKNOWLEDGE, KIND_SNAPSHOT_END,
    KIND_STREAM, Reads,
};
pub use message::Message;
pub(crate) use numbers::{Reader, SEQUENCE_MAX, varint_bytes, write_varint};
pub use refused::Refused;
