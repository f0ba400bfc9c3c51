//! Exceptions: single flows that have a place of their own, before their bucket's.
//!
//! An exception is set by command (pinned, suspended), or by the director itself for a connection that begins in a bucket whose
//! target drains. It holds for both directions of its flow and ends when the flow idles. While its target
//! is out, it is ignored.

use core::time::Duration;

use asterism_packet::FlowKey;
use asterism_placement::Time;

use crate::bounded::{FlowTable, Full};
use crate::suspended::Queue;
use crate::table::Slot;

/// Exceptions of a director at most.
pub const EXCEPTIONS_MAX: usize = 65_536;
/// The longest time after which an idle exception ends.
pub const IDLE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Where packets of a flow go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// To this target.
    Target(Slot),
    /// Into this queue, until the flow is resumed.
    Suspended(Queue),
}

/// The table of exceptions.
#[derive(Debug)]
pub(crate) struct Exceptions {
    table: FlowTable<Place>,
}

impl Exceptions {
    pub(crate) fn new(entries_max: usize, seed: u64) -> Exceptions {
        Exceptions {
            table: FlowTable::new(entries_max, seed),
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn find(&mut self, key: &FlowKey, now: Time) -> Option<Place> {
        self.table.find(key, now)
    }

    /// Sets an exception; it ends when it was not used for `idle`, at most [`IDLE_MAX`].
    pub(crate) fn set(
        &mut self,
        key: FlowKey,
        place: Place,
        idle: Duration,
        now: Time,
    ) -> Result<(), Full> {
        self.table
            .insert(key, place, idle.min(IDLE_MAX), now)
            .map(|_| ())
    }

    /// Changes the place of a flow that has one; it may idle as long as before.
    pub(crate) fn replace(&mut self, key: &FlowKey, place: Place) {
        self.table.replace(key, place);
    }

    pub(crate) fn remove(&mut self, key: &FlowKey) -> Option<Place> {
        self.table.remove(key)
    }

    /// Ends a few that have idled; a suspended flow's ends with its suspension.
    pub(crate) fn sweep(&mut self, now: Time) -> usize {
        self.table
            .sweep(now, |place| matches!(place, Place::Suspended(_)))
    }
}
