//! A reassembled stream and a segment of it, between the reads of a packet and its writes. Read `runs.rs` first.

use asterism_function::objects::TableAct;
use asterism_function::{At, Entry, Reason, Single, Verdict};

use super::runs::{Reading, Run, Runs, Taken};

/// The entry of a stream, if there is one.
pub(super) type Known = Option<At<Single<Reading>, Runs>>;

/// A segment of a reassembled stream, or a SYN without data.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) reading: Reading,
    pub(super) run: Option<Run>,
    /// Of a SYN: the sequence number of the connection's first byte.
    pub(super) begins: Option<u32>,
}

/// A stream with a segment added.
pub(super) struct Progress {
    pub(super) reading: Reading,
    pub(super) known: Known,
    pub(super) taken: Taken,
    /// A run contains the segment's first byte or ends right before it.
    pub(super) is_preceded: bool,
    /// A signature that began before the segment may go on in it.
    pub(super) continues: bool,
    /// The segment leaves a gap before it.
    pub(super) is_out_of_order: bool,
}

/// A write of a stream's runs, if it is needed, with its vacancy.
pub(super) struct StreamWrite(Option<Entry<Reading, Runs>>, Runs);

/// The verdict on a segment for which a bound is reached, with `strict`.
pub(super) const NOT_REASSEMBLED: Verdict = Verdict::Drop(Reason::NotReassembled);

impl StreamWrite {
    pub(super) const NONE: Self = Self(None, Runs::NONE);

    pub(super) const fn new(room: Entry<Reading, Runs>, runs: Runs) -> Self {
        Self(Some(room), runs)
    }

    pub(super) const fn is_none(&self) -> bool {
        self.0.is_none()
    }
    /// Whether a write is needed and the table is full.
    pub(super) const fn is_full(&self) -> bool {
        matches!(self.0, Some(Entry::Full))
    }
    /// Writes; false if the table is full.
    pub(super) fn write(self, streams: &mut TableAct<'_, Single<Reading>, Runs>) -> bool {
        self.0.is_none_or(|room| streams.put(room, self.1))
    }
}
