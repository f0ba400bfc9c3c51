//! What a host exported to a collector.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// What a host exported to a collector; all zero where nothing is.
#[derive(Debug, Default)]
pub struct Exported {
    /// Whether there is a collector.
    pub is_on: AtomicBool,
    /// Intervals that this host exported.
    pub intervals: AtomicU64,
    /// Flow records that were sent.
    pub records: AtomicU64,
    /// Messages that were sent.
    pub messages: AtomicU64,
    /// Messages that could not be sent; their records are lost.
    pub lost: AtomicU64,
}

/// What a host exported, as `status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportsDocument {
    /// Intervals that this host exported: all, where it is the first living host of the member list.
    pub intervals: u64,
    /// Flow records that were sent.
    pub records: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Messages that could not be sent; their records are lost.
    pub messages_lost: u64,
}

impl Exported {
    /// The counts now; `None` where nothing is exported.
    #[must_use]
    pub fn document(&self) -> Option<ExportsDocument> {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        self.is_on.load(Ordering::Relaxed).then(|| ExportsDocument {
            intervals: count(&self.intervals),
            records: count(&self.records),
            messages: count(&self.messages),
            messages_lost: count(&self.lost),
        })
    }
}
