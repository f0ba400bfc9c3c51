//! How a table is set up.

use crate::context::Tick;
use crate::object::{Absence, IDLE_CLASSES, ObjectSettings};

/// What a table is built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSettings {
    pub(crate) logged: bool,
    /// What the operator chose, of which the rest says what is so now.
    pub(crate) chosen: ObjectSettings,
    /// Its entries are in a store; here are those alone that were answered for the call under way.
    pub(crate) is_remote: bool,
    /// A call with answers of stores records what it writes; not of a table that is a part of another object.
    pub(crate) records: bool,
    pub(crate) audited: bool,
    pub(crate) holds_output: bool,
    pub(crate) late_us: u32,
    pub(crate) absence: Absence,
    pub(crate) capacity: u32,
    /// Entries whose memory is touched at start.
    pub(crate) expected: u32,
    pub(crate) idle: [Tick; IDLE_CLASSES],
}

impl TableSettings {
    /// Whether what is not found here is nowhere, as far as reads are to know.
    pub(super) fn is_absence_certain(&self) -> bool {
        self.absence == Absence::Answer && !self.is_remote
    }
}
