//! Calls whose additions are recorded, since a store may refuse them (`requests.rs` of `asterism-call-context`).
//!
//! While such a call writes, memory that every addition looks at is put aside. So its additions find no place and come where no other
//! addition comes, and there they are recorded; [`Operations::commit`](crate::Operations::commit) makes them. All other additions look at
//! nothing more than they do anyway: whether there is such a place.

use core::ops::{Deref, DerefMut};

use asterism_memory::region::{Region, Zeroed};

use crate::context::{Context, Tick};
use crate::mutant::{self, Mutant};

/// A recorded addition that needs nothing new.
pub(crate) const ADDS: u8 = 0;
/// A recorded addition by which a key begins to have a place, so that it needs room.
pub(crate) const BEGINS: u8 = 1;

/// Keys that undecided transactions begin, with one more (`begins`), or one less.
pub(crate) fn note_room(undecided: u32, begins: bool) -> u32 {
    match begins {
        true => undecided + u32::from(!mutant::active(Mutant::PromisedRoomGiven)),
        false => undecided.saturating_sub(1),
    }
}

/// The time of an addition that is committed: its packet's arrival.
pub(crate) fn committed_at(context: &Context, arrived: Tick) -> Tick {
    match mutant::active(Mutant::AddedWhenCommitted) {
        true => context.tick(),
        false => arrived,
    }
}

/// Memory that is put aside while a call is recorded.
#[derive(Debug)]
pub(crate) struct Recordable<T: Zeroed> {
    at_hand: Region<T>,
    /// None of it, while it is at hand.
    aside: Region<T>,
    is_recording: bool,
}

impl<T: Zeroed> Recordable<T> {
    pub(crate) fn new(length: usize) -> Self {
        Self {
            at_hand: Region::new(length),
            aside: Region::new(0),
            is_recording: false,
        }
    }

    /// The call under way begins to write, or goes on.
    pub(crate) fn begin_recording(&mut self) {
        if !self.is_recording && !mutant::active(Mutant::RefusedCallCounted) {
            core::mem::swap(&mut self.at_hand, &mut self.aside);
            self.is_recording = true;
        }
    }

    /// It wrote all that it writes.
    pub(crate) fn end_recording(&mut self) {
        if core::mem::take(&mut self.is_recording) {
            core::mem::swap(&mut self.at_hand, &mut self.aside);
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// How much there is, at hand or aside.
    pub(crate) fn length(&self) -> usize {
        self.at_hand.len().max(self.aside.len())
    }
}

impl<T: Zeroed> Deref for Recordable<T> {
    type Target = Region<T>;
    #[inline(always)]
    fn deref(&self) -> &Region<T> {
        &self.at_hand
    }
}

impl<T: Zeroed> DerefMut for Recordable<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Region<T> {
        &mut self.at_hand
    }
}
