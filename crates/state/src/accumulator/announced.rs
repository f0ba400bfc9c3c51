//! Digests of what writers announced of their cells, for hosts to compare (rule 27).
//!
//! What an instance holds of a cell runs ahead of what it reported the others, so digests are of totals as they were flushed and
//! applied. A cell's last announced total is the newest or greatest of those in the groups that an instance has, whatever their
//! order: equal groups, equal digests. They change when a total is flushed or applied, never when a packet adds.

use asterism_memory::hash;
use asterism_memory::region::{Region, Zeroed};

use super::Writing;
use crate::audit::Leaves;
use crate::context::Context;
use crate::mutant::{self, Mutant};
use crate::object::ObjectSettings;
use crate::stamp::Origin;

/// Digests of an accumulator's cells, and what this instance announced of each: totals of its own run ahead of that.
#[derive(Debug)]
pub(super) struct Announced<T: Zeroed> {
    pub(super) leaves: Leaves,
    pub(super) own: Region<T>,
}

impl<T: Zeroed> Announced<T> {
    /// Of so many cells; `None` if they are not shared, or not audited.
    pub(super) fn new(settings: &ObjectSettings, room: u32) -> Option<Self> {
        let leaves = Leaves::new(settings.may_be_replicated() && settings.audited)?;
        let own = Region::new(room as usize);
        Some(Self { leaves, own })
    }

    /// What a writer is known to have announced of the cell with this name changed. Digests of [`digest`], or zero.
    pub(super) fn applied(&mut self, name: u64, before: u64, after: u64) {
        if !mutant::active(Mutant::CellNotAudited) {
            self.leaves.replace(Leaves::of(name), before, after);
        }
    }
}

/// Whose a cell is, as a number that is the same everywhere.
pub(super) fn writer(context: &Context, writing: Writing) -> u64 {
    let origin = context.origin_name(Origin(writing.origin));
    let place = u64::from(origin.member) << 16 | u64::from(writing.lane);
    hash::words(place, origin.incarnation, 0)
}

/// A number that is equal for two cells exactly if (but for chance, 2⁻⁶⁴) their writers, names, totals and the groups that
/// announced these are. Three hashes of two words.
pub(super) fn digest(name: u64, writer: u64, (total, sequence): (u64, u64)) -> u64 {
    hash::words(
        hash::words(name, writer, 1),
        hash::words(total, sequence, 2),
        0,
    )
}

/// As [`digest`], of a cell that was perhaps never reported: then nothing.
pub(super) fn digest_if(is_reported: bool, name: u64, writer: u64, of: (u64, u64)) -> u64 {
    if is_reported {
        digest(name, writer, of)
    } else {
        0
    }
}
