//! Bounds and age of snapshots: a part as it is written, and how long a saved state was away.

use crate::context::{OPERATION_BYTES_MAX, Tick};

/// A part of a snapshot being written: bounded in bytes, and in places looked at, of which many may hold nothing.
#[derive(Debug)]
pub struct Part<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
    places_max: u32,
    looked: u32,
}

impl<'a> Part<'a> {
    /// A part of at most `bytes_max` bytes with what `out` holds already, for which at most `places_max` places of tables are
    /// looked at.
    pub fn new(out: &'a mut Vec<u8>, bytes_max: usize, places_max: u32) -> Self {
        Self {
            out,
            bytes_max,
            places_max,
            looked: 0,
        }
    }

    /// Places looked at so far.
    pub fn looked(&self) -> u32 {
        self.looked
    }

    /// Whether another entry fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() + OPERATION_BYTES_MAX <= self.bytes_max
    }

    /// Whether another place may be looked at; it counts as looked at.
    #[inline]
    pub(crate) fn query(&mut self) -> bool {
        let may = self.looked < self.places_max;
        self.looked += u32::from(may);
        may
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

/// How long a saved state was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The cluster's common time when it was saved.
    pub saved: Tick,
    /// Seconds that have passed since.
    pub away: Tick,
}

impl Since {
    /// Both.
    pub(crate) fn times(&self) -> (Tick, Tick) {
        (self.saved, self.away)
    }
}
