//! Rings of bytes with a single writer: instances of a host pass operations to each other through them.
//!
//! One thread writes variable-length records; each reader has a cursor of its own and can run on another thread. No side
//! waits: a full ring refuses the record, an empty ring has none. There is no lock and no atomic read-modify-write; the
//! writer publishes in batches with one release store, a reader gives space back with one. [`ByteRing`] has one reader,
//! [`Broadcast`] several (the slowest bounds the writer). `record.rs` has the whole protocol between the threads.

mod record;

pub use record::{RECORD_BYTES_MAX, Refused, RingReader, RingWriter};

use std::io;

/// The most readers of a [`Broadcast`].
pub const READERS_MAX: usize = 256;
/// The smallest ring, in bytes.
pub const RING_BYTES_MIN: usize = 64;
/// The largest ring, in bytes.
pub const RING_BYTES_MAX: usize = 1 << 32;

/// A ring from one writer to one reader.
#[derive(Debug)]
pub struct ByteRing;

impl ByteRing {
    /// Makes a ring of `bytes` (rounded up to a power of two), all pages present.
    ///
    /// Fails outside [`RING_BYTES_MIN`]..=[`RING_BYTES_MAX`], or without memory. A record takes its length plus 4,
    /// rounded up to 8; the longest is [`RingWriter::record_bytes_max`].
    #[expect(clippy::new_ret_no_self, reason = "a ring is its two ends")]
    pub fn new(bytes: usize) -> io::Result<(RingWriter, RingReader)> {
        let (writer, mut readers) = Broadcast::new(bytes, 1)?;
        match readers.pop() {
            Some(reader) => Ok((writer, reader)),
            None => Err(io::Error::other("a ring without a reader")),
        }
    }
}

/// A ring from one writer to several readers, each of which gets every record.
#[derive(Debug)]
pub struct Broadcast;

impl Broadcast {
    /// Makes a ring of `bytes` (rounded up to a power of two) with `readers` readers, all pages present.
    ///
    /// Fails as [`ByteRing::new`], and for no reader or more than [`READERS_MAX`].
    #[expect(clippy::new_ret_no_self, reason = "a ring is its ends")]
    pub fn new(bytes: usize, readers: usize) -> io::Result<(RingWriter, Vec<RingReader>)> {
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes)
            || readers == 0
            || readers > READERS_MAX
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a ring of {bytes} bytes for {readers} readers: it must have from {RING_BYTES_MIN} to \
                     {RING_BYTES_MAX} bytes and from 1 to {READERS_MAX} readers"
                ),
            ));
        }
        record::ends(bytes.next_power_of_two(), readers)
    }
}
