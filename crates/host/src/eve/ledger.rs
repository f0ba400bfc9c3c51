//! What was written already. Functions tell all their alerts each time that they are asked; a host writes each once.

use std::collections::BTreeMap;

use asterism_function::Tick;
use asterism_function::notice::{Notice, Subject};

/// An alert that was found so many seconds later is another one: times of one alert differ by as much as hosts heard of it apart.
const ANOTHER_S: Tick = 5;
/// Who writes in the place of a host that fell silent writes what was found so many seconds before. Silence is noticed after 3.
const TAKEOVER_S: Tick = 5;
/// An alert that was missing in so many walks is forgotten; one walk may miss an entry that moved.
const WALKS_KEPT: u32 = 2;

/// Which alerts are known, and which of them were written. As many as the functions' tables hold.
#[derive(Debug, Default)]
pub struct Ledger {
    known: BTreeMap<(usize, Subject), Known>,
    walk: u32,
}

#[derive(Debug)]
struct Known {
    first: Tick,
    noticed: Tick,
    walk: u32,
    is_written: bool,
}

impl Ledger {
    /// Takes note of an alert of a stage; whether to write it now. `is_mine`: this host writes what is found now. `is_old`: it was
    /// there before this host looked first, and others wrote it.
    pub fn take(
        &mut self,
        stage: usize,
        notice: &Notice,
        now: Tick,
        is_mine: bool,
        is_old: bool,
    ) -> bool {
        let first = notice.first.unwrap_or(0);
        let fresh = Known {
            first,
            noticed: now,
            walk: self.walk,
            is_written: false,
        };
        let known = self
            .known
            .entry((stage, notice.subject()))
            .or_insert(Known {
                is_written: is_old,
                ..fresh
            });
        if first >= known.first.saturating_add(ANOTHER_S) {
            *known = Known {
                first,
                noticed: now,
                walk: self.walk,
                is_written: false,
            };
        }
        known.walk = self.walk;
        let writes =
            is_mine && !known.is_written && now.saturating_sub(known.noticed) <= TAKEOVER_S;
        known.is_written |= writes;
        writes
    }

    /// All alerts that there are have been taken note of: others have idled out.
    pub fn end_walk(&mut self) {
        let walk = self.walk;
        self.known
            .retain(|_, known| walk.wrapping_sub(known.walk) < WALKS_KEPT);
        self.walk = walk.wrapping_add(1);
    }

    /// How many alerts are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
