//! A member's clocks: the cluster's time as it has it, and its date.

use crate::envelope::{KIND_CLOCK, Reader, write_varint};

const BODY_BYTES: usize = 1 + 8 + 8;
/// The most bytes of a frame of clocks.
pub(crate) const CLOCK_BYTES: usize = 2 + BODY_BYTES;

/// What a member says of its clocks, as they were when it wrote the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockFrame {
    /// It has written under its cluster time, or has it from a member that had: it takes over no other.
    pub(crate) is_settled: bool,
    /// Microseconds of the cluster's time since 1970.
    pub(crate) cluster_us: u64,
    /// Microseconds of its date since 1970; 0: it does not say.
    pub(crate) date_us: u64,
}

impl ClockFrame {
    pub(crate) fn read(body: &[u8]) -> Option<ClockFrame> {
        let mut reader = Reader::new(body);
        let flags = reader.byte()?;
        let frame = ClockFrame {
            is_settled: flags & 1 != 0,
            cluster_us: reader.fixed_u64()?,
            date_us: reader.fixed_u64()?,
        };
        // Differences of such times fit 64 bits with a sign.
        let sound = frame.cluster_us.max(frame.date_us) <= i64::MAX as u64 / 2;
        (reader.is_empty() && sound).then_some(frame)
    }

    /// Appends the frame.
    pub(crate) fn write_frame(&self, out: &mut Vec<u8>) {
        out.push(KIND_CLOCK);
        write_varint(out, BODY_BYTES as u64);
        out.push(u8::from(self.is_settled));
        out.extend_from_slice(&self.cluster_us.to_le_bytes());
        out.extend_from_slice(&self.date_us.to_le_bytes());
    }
}
