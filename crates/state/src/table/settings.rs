//! How a table is set up.

use crate::context::Tick;
use crate::object::{Absence, IDLE_CLASSES};

/// What a table is built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSettings {
    pub(crate) logged: bool,
    pub(crate) audited: bool,
    pub(crate) holds_output: bool,
    pub(crate) late_us: u32,
    pub(crate) absence: Absence,
    pub(crate) capacity: u32,
    /// Entries whose memory is touched at start.
    pub(crate) expected: u32,
    pub(crate) idle: [Tick; IDLE_CLASSES],
}
