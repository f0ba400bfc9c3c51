//! What the thread of an instance and the rest of its host share: atomic words and a seqlock, which neither side waits for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use asterism_engine::StopReason;

use crate::phase::Phase;
use crate::statistics::InstanceStatistics;

/// What an instance and the rest of its host share.
#[derive(Debug)]
pub struct Shared {
    /// What it shows.
    pub statistics: InstanceStatistics,
    phase: AtomicU8,
    /// Why it ended by itself, if it did.
    pub stopped: OnceLock<StopReason>,
    /// Whether it looks again at once when there is nothing to do.
    pub spins: AtomicBool,
}

impl Shared {
    /// For an instance that listens first.
    #[must_use]
    pub fn new(spins: bool) -> Shared {
        Shared {
            statistics: InstanceStatistics::default(),
            phase: AtomicU8::new(Phase::Listening as u8),
            stopped: OnceLock::new(),
            spins: AtomicBool::new(spins),
        }
    }

    /// Has it do something else.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// What the instance is to do now.
    #[must_use]
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase::of(&self.phase)
    }
}
