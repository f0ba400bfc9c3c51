//! Answers that are not here yet, what a packet then waits for, and the proof that they were.
//!
//! `context.rs` makes them, the engine acts on them.

/// An answer that is not here yet. The engine parks the packet and calls the function again.
///
/// Only state objects make one, by [`late_answer`]; a function passes it on with `?`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late(());

/// An answer that is late, for state objects. They do not pass this function on to authors of functions.
#[inline(always)]
pub const fn late_answer() -> Late {
    Late(())
}

/// The proof that a read of this call answered at once, and so that none of it was late and it does not merely
/// prefetch: acting needs to ask for nothing more. Of use to the call that got it only.
#[derive(Debug)]
pub struct Nearby(());

/// The proof that a read answered at once, for the state object that answered it. Authors of functions do not get this function.
#[inline(always)]
pub const fn nearby_answer() -> Nearby {
    Nearby(())
}

/// What a late packet waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it was not late.
    #[default]
    Nothing,
    /// Reads that were not local: ready when `delay_us` has passed.
    Fetch {
        /// Microseconds from the call.
        delay_us: u64,
    },
    /// Reads that a store is asked for: until all their answers have come.
    Answers,
    /// Nothing: it asks a store for more than a packet may, or its answers are longer than they may be. It is to be dropped.
    TooMuch,
    /// An entry that another member may have written already: until that member's stream covers the
    /// packet's arrival (all other members' if `None`), or an entry that the call read is written, but no longer than `until_us`.
    Absent {
        /// Place of the member in the epoch's list.
        member: Option<u16>,
        /// Deadline, in microseconds.
        until_us: u64,
    },
    /// Another packet, of this instance or another one: until an entry that the call read is written, but no longer than
    /// `until_us`.
    Written {
        /// Deadline, in microseconds.
        until_us: u64,
    },
}
