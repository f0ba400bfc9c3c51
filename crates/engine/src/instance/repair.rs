//! Repairs: what this instance has of some parts of an object is written again, so that all others take it over, and if so wished
//! what others alone have is removed there. Done a little at a time, between bursts.
//!
//! The order matters. How far each stream is applied here is taken before the first entry is written again: only what was
//! written up to there, and was not here, may be removed elsewhere. Taken later, it would name what came while entries were
//! looked at, and others would lose what is new. And the word to remove follows the last entry, so anyone who takes both in their order
//! has by then what it is to keep.

use asterism_function::NetworkFunction;
use asterism_state::audit::LeafSet;
use asterism_state::{OPERATION_BYTES_MAX, OriginName, State};

use crate::branch::{Branch, taken};
use crate::mutant::{self, Mutant};

use super::Instance;
use super::sharing::BURST_LOG_BYTES;

/// Entries that are looked at in one step.
const ENTRIES_PER_STEP: u32 = (BURST_LOG_BYTES / OPERATION_BYTES_MAX / 2) as u32;
/// Streams that are named in one step.
const STREAMS_PER_STEP: usize = 64;

/// What became of the wish to remove what others alone have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Removal {
    /// It was not wished.
    NotAsked,
    /// An object of this kind has nothing that one instance alone could say is too much; or the host's first instance says it for all.
    NotOfThisObject,
    /// Nobody has written anything yet that others could have.
    NothingWritten,
    /// Others were informed what to remove.
    Reported,
}

/// What a repair did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repaired {
    /// Entries that were written again.
    pub entries: u64,
    /// What became of the wish to remove.
    pub removal: Removal,
}

/// A repair under way: made by [`Instance::begin_repair`], and carried on with [`Instance::go_on_with_repair`].
#[derive(Debug)]
pub struct Repair {
    object: u8,
    leaves: LeafSet,
    /// The next entry to look at.
    cursor: Option<u32>,
    /// Streams still to be named, and how far each was applied when the repair began.
    streams: Vec<(OriginName, u64)>,
    done: Repaired,
}

impl<F: NetworkFunction> Instance<F> {
    /// How far each stream is applied here, by name.
    #[must_use]
    pub fn applied_through(&self) -> Vec<(OriginName, u64)> {
        self.context.applied_through()
    }

    /// Begins to write again what is here of some parts of an object; with `removes`, others are then to remove what they alone have
    /// of them. Of an object that all instances hold in full the host's first one does it; of an accumulator each tells its own part again.
    #[must_use]
    pub fn begin_repair(&self, object: u8, leaves: LeafSet, removes: bool) -> Repair {
        let tells_own = self
            .state
            .object(object)
            .is_some_and(|object| object.tells_own());
        let is_first = self.context.identity().lane.0 == 0;
        let can_remove = is_first && !tells_own;
        let streams = match removes && can_remove {
            true => self.applied_through(),
            false => Vec::new(),
        };
        let removal = match (removes, can_remove) {
            (false, _) => Removal::NotAsked,
            (true, false) => Removal::NotOfThisObject,
            (true, true) => Removal::NothingWritten,
        };
        Repair {
            object,
            leaves,
            cursor: (is_first || tells_own).then_some(0),
            streams,
            done: Repaired {
                entries: 0,
                removal,
            },
        }
    }

    /// Does a little of a repair. `None`: there is more to do, or no room for it just now.
    pub fn go_on_with_repair(&mut self, repair: &mut Repair) -> Option<Repaired> {
        if repair.cursor.is_none() && repair.streams.is_empty() {
            return Some(repair.done);
        }
        if !self.serving || !self.has_log_room() {
            return None;
        }
        if let Some(cursor) = repair.cursor {
            let object = self.state.object_mut(repair.object);
            let (next, entries) = object.map_or((None, 0), |object| {
                object.write_again(&repair.leaves, cursor, ENTRIES_PER_STEP)
            });
            taken(Branch::RepairWrote);
            repair.cursor = next;
            repair.done.entries += u64::from(entries);
        } else {
            taken(Branch::RepairRemoved);
            if mutant::active(Mutant::RepairMarkedLate) {
                repair.streams = self.applied_through();
            }
            let left = repair.streams.len().saturating_sub(STREAMS_PER_STEP);
            let object = self.state.object_mut(repair.object);
            let reported = object.is_some_and(|object| {
                object.remove_elsewhere(&repair.leaves, &repair.streams[left..])
            });
            repair.streams.truncate(left);
            repair.done.removal = match reported {
                true => Removal::Reported,
                false => Removal::NotOfThisObject,
            };
        }
        if self.context.wrote() {
            self.settle();
            self.push_groups();
            self.publish();
        }
        let is_over = repair.cursor.is_none() && repair.streams.is_empty();
        if is_over {
            taken(match repair.done.removal {
                Removal::NotAsked | Removal::NotOfThisObject => Branch::RepairKept,
                Removal::NothingWritten | Removal::Reported => Branch::RepairOver,
            });
        }
        is_over.then_some(repair.done)
    }
}
