//! What a call of a function did with the state, step by step, for an operator who looks at single packets. Noted only while
//! [`Context::trace_on`] holds. Imports `context.rs`.

use crate::context::{Context, TRACED};

/// Steps of one packet that are noted at most; later ones are not.
pub const STEPS_MAX: usize = 64;

/// One step. Objects are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A read.
    Ask {
        /// Of which object.
        object: u8,
        /// By which of its keys.
        lane: u8,
        /// Whether there was an entry.
        found: bool,
    },
    /// Something of a pool was asked for.
    Grant {
        /// Which pool.
        object: u8,
        /// What was granted; `None` if nothing is left.
        number: Option<u32>,
    },
    /// The asking ended.
    Act,
    /// A write. An update that changes nothing is none.
    Write {
        /// To which object.
        object: u8,
        /// What it did.
        what: Written,
    },
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// An entry is new.
    Added,
    /// An entry has another value, or was announced as used.
    Changed,
    /// An entry was removed.
    Removed,
    /// An entry idled out.
    Expired,
}

impl Written {
    /// As a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "add",
            Self::Changed => "change",
            Self::Removed => "remove",
            Self::Expired => "expire",
        }
    }
}

impl Context {
    /// From here on every read, grant and write is noted, until [`Context::trace_off`]. While this is off, reads cost what
    /// they did: they look at the same byte.
    pub fn trace_on(&self) {
        self.asking.set(self.asking.get() | TRACED);
    }
    /// Nothing more is noted.
    pub fn trace_off(&self) {
        self.asking.set(self.asking.get() & !TRACED);
    }
    /// What was noted since the last call, at most [`STEPS_MAX`] steps.
    pub fn take_steps(&self) -> Vec<Step> {
        core::mem::take(&mut *self.steps.borrow_mut())
    }
    #[inline]
    pub(crate) fn trace(&self, step: Step) {
        if self.asking.get() & TRACED != 0 {
            self.note_step(step);
        }
    }
    #[cold]
    fn note_step(&self, step: Step) {
        let mut steps = self.steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
    }
    /// The last read found nothing.
    pub(crate) fn trace_absent(&self) {
        if self.asking.get() & TRACED != 0
            && let Some(Step::Ask { found, .. }) = self.steps.borrow_mut().last_mut()
        {
            *found = false;
        }
    }

    /// Bytes of operations that wait to be taken.
    pub fn bytes_waiting(&self) -> usize {
        self.groups.borrow().bytes.len()
    }
}
