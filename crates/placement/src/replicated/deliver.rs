//! What a replicator hands to its host: groups, snapshots, and the cluster's time.

use crate::{Incarnation, MemberId};

/// Where a replicator puts what arrived. Calls are made in the middle of [`Replicator::handle`](super::Replicator::handle): they should move bytes
/// to where they will be applied, and no more. They cannot fail; what is waiting to be applied is bounded by
/// [`Config::unapplied_groups_max`](super::Config::unapplied_groups_max), because a group counts as waiting until [`Replicator::applied`](super::Replicator::applied) covers it.
pub trait Deliver {
    /// A group of `origin`, whole, exactly once per sequence (or never, when a snapshot covers it).
    fn group(&mut self, origin: MemberId, incarnation: Incarnation, sequence: u64, group: &[u8]);

    /// A chunk of the snapshot that `from` sends because this member had fallen off its log. Once each, in no order.
    fn snapshot(&mut self, from: MemberId, scan: u32, chunk: &[u8]) {
        let _ = (from, scan, chunk);
    }

    /// All chunks of this scan were delivered. When they are applied, call [`Replicator::snapshot_applied`](super::Replicator::snapshot_applied).
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        let _ = end;
    }

    /// The cluster's time is another one from now on, before what is delivered next: microseconds since 1970 at zero of the clock.
    fn cluster_time(&mut self, at_zero_us: i64) {
        let _ = at_zero_us;
    }
}

impl<D: Deliver + ?Sized> Deliver for &mut D {
    fn group(&mut self, origin: MemberId, incarnation: Incarnation, sequence: u64, group: &[u8]) {
        (**self).group(origin, incarnation, sequence, group);
    }
    fn snapshot(&mut self, from: MemberId, scan: u32, chunk: &[u8]) {
        (**self).snapshot(from, scan, chunk);
    }
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        (**self).snapshot_end(end);
    }
    fn cluster_time(&mut self, at_zero_us: i64) {
        (**self).cluster_time(at_zero_us);
    }
}

/// The end of a snapshot, as the member that it serves sees it.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotEnd<'a> {
    /// Who sent it.
    pub from: MemberId,
    /// Which of its scans.
    pub scan: u32,
    /// What it contains.
    pub kind: SnapshotKind,
    /// For each origin the sequence up to which the snapshot covers it.
    pub vector: &'a [(MemberId, u64)],
}

/// What a snapshot contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    /// Every entry and tombstone whose stamp is beyond the lagging member's vector.
    Changes,
    /// Everything: what the lagging member holds, covered by the snapshot's vector but absent from the snapshot, is removed.
    Full,
}
