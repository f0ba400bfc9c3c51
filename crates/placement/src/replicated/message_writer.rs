//! How messages are written: their length and version, and the buffers that their frames are made in.

use super::PAYLOAD_BYTES_MIN;
use super::wire::RUNS_MAX;
use crate::envelope::{WIRE_VERSION, write_frame, write_padding};

/// A message is padded when it lacks at most one part in so many.
const PADDED_PART: usize = 6;

/// The form of messages, and the frame being written.
#[derive(Debug)]
pub(super) struct MessageWriter {
    /// The longest new message, by configuration and path.
    payload_bytes: usize,
    /// The longest by configuration.
    payload_bytes_max: usize,
    /// One that all members understand.
    wire_version: u8,
    /// The body of the frame being written.
    body: Vec<u8>,
    /// Runs of groups above a gap, of the acknowledgement being written.
    runs: Vec<(u64, u64)>,
}

impl MessageWriter {
    pub(super) fn new(payload_bytes_max: usize) -> MessageWriter {
        MessageWriter {
            payload_bytes: payload_bytes_max,
            payload_bytes_max,
            wire_version: WIRE_VERSION,
            body: Vec::with_capacity(payload_bytes_max),
            runs: Vec::with_capacity(RUNS_MAX),
        }
    }

    /// The longest new message.
    #[inline]
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// New messages are at most so long, within the bounds.
    pub(super) fn set_payload_bytes(&mut self, bytes: usize) {
        self.payload_bytes = bytes.clamp(PAYLOAD_BYTES_MIN, self.payload_bytes_max);
    }

    /// The wire version of messages.
    pub(super) fn wire_version(&self) -> u8 {
        self.wire_version
    }

    pub(super) fn set_wire_version(&mut self, version: u8) {
        self.wire_version = version;
    }

    /// Fills a message that is nearly full, so that full messages have one length. Others it leaves alone.
    pub(super) fn pad(&self, buffer: &mut Vec<u8>) {
        if buffer.len() >= self.payload_bytes - self.payload_bytes / PADDED_PART {
            write_padding(buffer, self.payload_bytes);
        }
    }

    /// Begins a frame: its body is written to what is returned.
    #[inline]
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.body.clear();
        &mut self.body
    }

    /// Begins the frame of an acknowledgement: its body, and a buffer for the runs of one of its entries.
    #[inline]
    pub(super) fn begin_acknowledgement(&mut self) -> (&mut Vec<u8>, &mut Vec<(u64, u64)>) {
        self.body.clear();
        (&mut self.body, &mut self.runs)
    }

    /// Ends the frame: appends it to the message.
    #[inline]
    pub(super) fn end(&mut self, kind: u8, buffer: &mut Vec<u8>) {
        write_frame(buffer, kind, &self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_messages_stay_within_the_bounds() {
        let mut writer = MessageWriter::new(1_400);
        for (wanted, bytes) in [(1_200, 1_200), (1, PAYLOAD_BYTES_MIN), (usize::MAX, 1_400)] {
            writer.set_payload_bytes(wanted);
            assert_eq!(writer.payload_bytes(), bytes);
        }
    }

    #[test]
    fn only_a_message_that_is_nearly_full_is_padded() {
        let writer = MessageWriter::new(1_200);
        for (bytes, padded) in [(999, 999), (1_000, 1_200), (1_200, 1_200)] {
            let mut buffer = vec![1; bytes];
            writer.pad(&mut buffer);
            assert_eq!(buffer.len(), padded);
        }
    }

    #[test]
    fn a_frame_holds_the_body_and_nothing_of_the_one_before() {
        let mut writer = MessageWriter::new(1_400);
        let mut buffer = Vec::new();
        writer.begin().extend([1, 2, 3]);
        writer.end(7, &mut buffer);
        writer.begin().push(4);
        writer.end(8, &mut buffer);
        assert_eq!(buffer, [7, 3, 1, 2, 3, 8, 1, 4]);
    }
}
