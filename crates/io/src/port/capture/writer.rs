//! Writes packets as pcap with nanosecond timestamps.

use super::{CaptureError, CaptureProblem, LINK_TYPE_ETHERNET, PACKET_BYTES_MAX};
use std::fs::File;
use std::io::Write;
use std::path::Path;

const HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// Room for the longest packet, so that the buffer never grows.
const BUFFER_BYTES: usize = RECORD_HEADER_BYTES + PACKET_BYTES_MAX;

/// A capture being written. Packets are buffered (256 KiB): [`CaptureWriter::flush`] and drop write them out.
///
/// The first write that the system refuses (a full disk) ends the file: that packet, those in the buffer and all later ones are
/// counted as lost, and every call says so.
pub struct CaptureWriter {
    out: Box<dyn Write + Send>,
    file: String,
    buffer: Vec<u8>,
    /// Bytes that the system took.
    offset: u64,
    buffered_packets: u64,
    buffered_bytes: u64,
    written_packets: u64,
    lost_packets: u64,
    lost_bytes: u64,
    failure: Option<CaptureError>,
}

impl CaptureWriter {
    /// Creates (or empties) a file and writes the header to its buffer.
    pub fn create(path: impl AsRef<Path>) -> Result<CaptureWriter, CaptureError> {
        let file = path.as_ref().display().to_string();
        match File::create(path) {
            Ok(out) => Ok(CaptureWriter::new(file, out)),
            Err(error) => Err(CaptureError {
                file,
                offset: 0,
                problem: CaptureProblem::Unwritable(error.to_string()),
            }),
        }
    }

    /// Writes to `out`, which errors call `file`.
    pub fn new(file: impl Into<String>, out: impl Write + Send + 'static) -> CaptureWriter {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        buffer.extend_from_slice(&0xA1B2_3C4Du32.to_le_bytes());
        buffer.extend_from_slice(&2u16.to_le_bytes());
        buffer.extend_from_slice(&4u16.to_le_bytes());
        buffer.extend_from_slice(&[0; 8]);
        buffer.extend_from_slice(&(PACKET_BYTES_MAX as u32).to_le_bytes());
        buffer.extend_from_slice(&u32::from(LINK_TYPE_ETHERNET).to_le_bytes());
        debug_assert_eq!(buffer.len(), HEADER_BYTES);
        CaptureWriter {
            out: Box::new(out),
            file: file.into(),
            buffer,
            offset: 0,
            buffered_packets: 0,
            buffered_bytes: 0,
            written_packets: 0,
            lost_packets: 0,
            lost_bytes: 0,
            failure: None,
        }
    }

    /// Appends a packet captured `timestamp_ns` nanoseconds after 1970 that had `original_length` bytes on the wire.
    ///
    /// Returns whether the file still takes packets. No allocation; a write when the buffer is full. A packet over
    /// [`PACKET_BYTES_MAX`] is cut to it. Seconds beyond 32 bits (the year 2106) are written as the last that fits.
    pub fn write(&mut self, timestamp_ns: u64, original_length: usize, bytes: &[u8]) -> bool {
        let bytes = bytes.get(..PACKET_BYTES_MAX).unwrap_or(bytes);
        let record_bytes = RECORD_HEADER_BYTES + bytes.len();
        if self.buffer.len() + record_bytes > BUFFER_BYTES {
            self.write_out();
        }
        if self.failure.is_some() {
            self.lost_packets += 1;
            self.lost_bytes += bytes.len() as u64;
            return false;
        }
        let seconds = u32::try_from(timestamp_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let original = u32::try_from(original_length.max(bytes.len())).unwrap_or(u32::MAX);
        let nanoseconds = (timestamp_ns % 1_000_000_000) as u32;
        let mut header = [0; RECORD_HEADER_BYTES];
        for (place, word) in
            header
                .chunks_exact_mut(4)
                .zip([seconds, nanoseconds, bytes.len() as u32, original])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(bytes);
        self.buffered_packets += 1;
        self.buffered_bytes += bytes.len() as u64;
        true
    }

    /// Writes the buffer out. Returns the first failure, each time it is called.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.write_out();
        if self.failure.is_none()
            && let Err(error) = self.out.flush()
        {
            self.fail(&error);
        }
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Packets that the system took.
    pub fn written_packets(&self) -> u64 {
        self.written_packets
    }

    /// Packets that are not in the file because it could not be written.
    pub fn lost_packets(&self) -> u64 {
        self.lost_packets
    }

    /// Bytes of the lost packets.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&CaptureError> {
        self.failure.as_ref()
    }

    fn write_out(&mut self) {
        if self.failure.is_none() && !self.buffer.is_empty() {
            match self.out.write_all(&self.buffer) {
                Ok(()) => {
                    self.offset += self.buffer.len() as u64;
                    self.written_packets += self.buffered_packets;
                }
                Err(error) => {
                    // Some of the buffer may be in the file, cut inside a record: all of it counts as lost.
                    self.lost_packets += self.buffered_packets;
                    self.lost_bytes += self.buffered_bytes;
                    self.fail(&error);
                }
            }
        }
        self.buffer.clear();
        (self.buffered_packets, self.buffered_bytes) = (0, 0);
    }

    #[cold]
    fn fail(&mut self, error: &std::io::Error) {
        self.failure = Some(CaptureError {
            file: self.file.clone(),
            offset: self.offset,
            problem: CaptureProblem::Unwritable(error.to_string()),
        });
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // Anyone who wants to know of a failure calls `flush` before.
        self.write_out();
    }
}

impl std::fmt::Debug for CaptureWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CaptureWriter")
            .field("file", &self.file)
            .field("written_packets", &self.written_packets)
            .field("lost_packets", &self.lost_packets)
            .finish_non_exhaustive()
    }
}
