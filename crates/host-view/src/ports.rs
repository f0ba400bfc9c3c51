//! What a host knows of its NAT's ports, and what it logged of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use asterism_lines::Counts;

/// What a host knows of its NAT's ports, and what it logged of them; all zero where nothing is counted.
#[derive(Debug, Default)]
pub struct PortCounts {
    /// Whether ports are counted.
    pub is_on: AtomicBool,
    /// Subscribers with ports or blocks, of all hosts; 0 where none are counted.
    pub subscribers: AtomicU64,
    /// Blocks with ports in use, of all hosts.
    pub blocks_used: AtomicU64,
    /// Blocks that nobody uses and nobody else may have yet, of all hosts.
    pub blocks_quarantined: AtomicU64,
    /// Ports that rest at this host's instances before they are granted again.
    pub ports_quarantined: AtomicU64,
    /// Ports that were granted again too early, because too many rested.
    pub quarantines_cut_short: AtomicU64,
    /// Events that this host logged.
    pub events: AtomicU64,
    /// Events that were noted faster than they were taken, and are lost.
    pub events_lost: AtomicU64,
    /// Packets of this host's instances that were routed untranslated.
    pub exempt: AtomicU64,
    /// Lines of the log's file.
    pub lines: Arc<Counts>,
    /// IPFIX messages of the log that were sent.
    pub messages: AtomicU64,
    /// IPFIX messages of the log that could not be sent; their events are lost.
    pub messages_lost: AtomicU64,
}

/// What `status` tells of a NAT's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsDocument {
    /// Subscribers with ports or blocks, of all hosts; 0 where none are counted.
    pub subscribers: u64,
    /// Blocks with ports in use, of all hosts.
    pub blocks_used: u64,
    /// Blocks that nobody uses and nobody else may have yet, of all hosts.
    pub blocks_quarantined: u64,
    /// Ports that rest at this host's instances before they are granted again.
    pub ports_quarantined: u64,
    /// Ports that were granted again too early, because too many rested.
    pub quarantines_cut_short: u64,
    /// Events that this host logged.
    pub events: u64,
    /// Events that were noted faster than they were taken, and are lost.
    pub events_lost: u64,
    /// Lines that could not be written to the file.
    pub lines_lost: u64,
    /// IPFIX messages that were sent.
    pub messages: u64,
    /// IPFIX messages that could not be sent; their events are lost.
    pub messages_lost: u64,
    /// Packets of this host's instances that were routed untranslated.
    pub exempt: u64,
}

impl PortCounts {
    /// The counts now; `None` where nothing is counted.
    #[must_use]
    pub fn document(&self) -> Option<PortsDocument> {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        self.is_on.load(Ordering::Relaxed).then(|| PortsDocument {
            subscribers: count(&self.subscribers),
            blocks_used: count(&self.blocks_used),
            blocks_quarantined: count(&self.blocks_quarantined),
            ports_quarantined: count(&self.ports_quarantined),
            quarantines_cut_short: count(&self.quarantines_cut_short),
            events: count(&self.events),
            events_lost: count(&self.events_lost),
            lines_lost: self.lines.document().map_or(0, |lines| lines.lines_lost),
            messages: count(&self.messages),
            messages_lost: count(&self.messages_lost),
            exempt: count(&self.exempt),
        })
    }
}
