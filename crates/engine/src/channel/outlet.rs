//! The way down to the instances: the ring, and memory of its own while the ring is full. Order is kept.

use std::collections::VecDeque;

use asterism_placement::replicated::audit::Auditor;
use asterism_placement::replicated::{Deliver, SnapshotEnd};
use asterism_placement::{Incarnation, MemberId};

use crate::exchange::{Down, REMOTE, origin};
use crate::mutant::{self, Mutant};
use asterism_io::ring::RingWriter;

/// Emptied record buffers kept for use again.
const SPARE_RECORDS_MAX: usize = 1_024;

/// The ring to the instances and what waits for room in it.
#[derive(Debug)]
pub(super) struct Outlet {
    ring: RingWriter,
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Outlet {
    pub(super) fn new(ring: RingWriter) -> Self {
        Self {
            ring,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            spare: Vec::new(),
        }
    }

    /// Whether nothing waits for room.
    pub(super) fn is_clear(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Bytes that wait for room.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes
    }

    /// Appends a record to the ring, or to the backlog if there is one or the ring is full.
    #[inline]
    pub(super) fn push(&mut self, down: &Down<'_>) {
        if self.backlog.is_empty() && down.push(&mut self.ring).is_ok() {
            return;
        }
        if mutant::active(Mutant::RecordDroppedWhenFull) {
            return;
        }
        self.keep(down);
    }

    /// Appends a record to the ring, past the backlog; tells whether there was room.
    pub(super) fn push_directly(&mut self, down: &Down<'_>) -> bool {
        down.push(&mut self.ring).is_ok()
    }

    #[cold]
    fn keep(&mut self, down: &Down<'_>) {
        let mut record = self.spare.pop().unwrap_or_default();
        // Memory of its own refuses nothing.
        let _ = down.push(&mut record);
        self.backlog_bytes += record.len();
        self.backlog.push_back(record);
    }

    /// Moves what waits into the ring, as far as there is room; tells how many records.
    pub(super) fn move_backlog(&mut self) -> u64 {
        let mut moved = 0;
        while let Some(record) = self.backlog.front() {
            if self.ring.try_push(record).is_err() {
                break;
            }
            moved += 1;
            self.backlog_bytes -= record.len();
            if let Some(mut record) = self.backlog.pop_front()
                && self.spare.len() < SPARE_RECORDS_MAX
            {
                record.clear();
                self.spare.push(record);
            }
        }
        moved
    }

    /// Shows the instances what was appended.
    pub(super) fn publish(&mut self) {
        self.ring.publish();
    }
}

/// Moves what the placement delivers towards the instances.
pub(super) struct Delivering<'a> {
    pub(super) outlet: &'a mut Outlet,
    pub(super) snapshots: &'a mut Vec<(MemberId, u32)>,
    pub(super) auditor: &'a mut Auditor,
}

impl Deliver for Delivering<'_> {
    #[inline]
    fn group(&mut self, member: MemberId, incarnation: Incarnation, sequence: u64, bytes: &[u8]) {
        self.auditor.delivered(member, incarnation, sequence, bytes);
        self.outlet.push(&Down::Group {
            lane: REMOTE,
            origin: origin(member, incarnation),
            sequence,
            bytes,
        });
    }
    fn snapshot(&mut self, from: MemberId, _: u32, chunk: &[u8]) {
        self.outlet.push(&Down::SnapshotPart { from, bytes: chunk });
    }
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        self.snapshots.push((end.from, end.scan));
        self.outlet.push(&Down::SnapshotEnd {
            from: end.from,
            scan: end.scan,
        });
    }
    fn cluster_time(&mut self, at_zero_us: i64) {
        self.outlet.push(&Down::ClusterTime { at_zero_us });
    }
}
