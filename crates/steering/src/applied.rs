//! The rule of generations, which is every driver's: no way back, and one state a number.

use super::{Desired, SteeringError};

/// The desired state that a driver began last, and whether it came to its end. Kept for the driver's own incarnation only.
#[derive(Debug, Default)]
pub(super) struct Applied {
    begun: Option<Desired>,
    is_finished: bool,
}

impl Applied {
    /// Refuses an older state than the one that was begun last, and another one under its number.
    pub(super) fn check(&self, desired: &Desired) -> Result<(), SteeringError> {
        let Some(begun) = &self.begun else {
            return Ok(());
        };
        let (offered, known) = (desired.generation(), begun.generation());
        if offered < known {
            return Err(SteeringError::Stale { offered, known });
        }
        if offered == known && desired != begun {
            return Err(SteeringError::Contradicts(offered));
        }
        Ok(())
    }

    /// From here on an older state is refused, even if this one fails half way. Whether this one was in force already.
    pub(super) fn begin(&mut self, desired: &Desired) -> bool {
        let was_applied = self.is_finished && self.begun.as_ref() == Some(desired);
        self.begun = Some(desired.clone());
        self.is_finished = false;
        was_applied
    }

    /// What was begun last is in force.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// What was begun last.
    pub(super) fn begun(&self) -> Option<&Desired> {
        self.begun.as_ref()
    }

    /// Whether that came to its end.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }
}
