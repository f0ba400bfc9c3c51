//! How far a cycle of forgetting has got.

use std::cell::{Cell, RefCell};

use crate::stamp::NamedOrigins;

/// From so many incarnations on an instance looks for those that it can forget: 64 members that were restarted 16 times each. Below it
/// nothing is looked for.
pub const FORGETS_FROM: usize = 1_024;

/// What a context knows of a cycle.
#[derive(Debug)]
pub(crate) struct Forgetting {
    /// A cycle runs: what is looked up is marked.
    pub(super) runs: Cell<bool>,
    /// The slots that something refers to, as far as the cycle got.
    pub(super) named: RefCell<NamedOrigins>,
    /// The slots that may be freed at the end.
    pub(super) over: RefCell<NamedOrigins>,
    /// Where the cycle goes on: (object, place in it).
    pub(super) cursor: Cell<(u8, u32)>,
    /// The next cycle begins at so many incarnations: twice what the last one left, so that what it costs is in proportion to what it
    /// frees.
    pub(super) begins_at: Cell<usize>,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self {
            runs: Cell::new(false),
            named: RefCell::default(),
            over: RefCell::default(),
            cursor: Cell::new((0, 0)),
            begins_at: Cell::new(FORGETS_FROM),
        }
    }
}
