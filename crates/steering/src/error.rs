//! Errors of steering, each with the state that is in force afterwards.

use std::fmt;
use std::time::Duration;

use super::Generation;

/// Why a driver did not do what it was asked to. Each says what is in force afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SteeringError {
    /// An older state than one that was applied, or begun, before. Nothing was touched.
    Stale {
        /// What was handed over.
        offered: Generation,
        /// What it is older than.
        known: Generation,
    },
    /// Another state under a number that was applied before. Nothing was touched.
    Contradicts(Generation),
    /// A target takes packets to which this driver knows no way. Nothing was touched.
    UnknownTarget(String),
    /// More targets take packets than this driver can distinguish. Nothing was touched.
    TooManyTargets {
        /// How many do.
        takers: usize,
        /// How many can.
        most: usize,
    },
    /// What is to be steered could not be asked. If the call was to change it, nothing was touched.
    Unreachable {
        /// What was tried.
        what: String,
        /// What was said.
        said: String,
    },
    /// It answered, and the answer is not understood. Nothing was touched.
    Unreadable {
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        said: String,
    },
    /// It refused a change. Changes before it are in force; apply again once the cause is gone.
    Refused {
        /// What was to be changed.
        what: String,
        /// What was said.
        said: String,
    },
    /// The connection to it ended before it answered. Whether the change is in force is not known; apply again.
    Lost {
        /// What was to be changed.
        what: String,
        /// How it ended.
        said: String,
    },
    /// It did not answer in time. Whether the change is in force is not known; apply again.
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
}

impl SteeringError {
    /// Whether nothing was touched, by what is wrong with the call itself: the same call will never do.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            SteeringError::Stale { .. }
                | SteeringError::Contradicts(_)
                | SteeringError::UnknownTarget(_)
                | SteeringError::TooManyTargets { .. }
        )
    }
}

impl fmt::Display for SteeringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteeringError::Stale { offered, known } => write!(
                f,
                "generation {} of steering is older than {}: nothing was changed; its author was replaced",
                offered.0, known.0
            ),
            SteeringError::Contradicts(generation) => write!(
                f,
                "generation {} of steering was another one before: nothing was changed; give a changed state the next number",
                generation.0
            ),
            SteeringError::UnknownTarget(name) => write!(
                f,
                "there is no way to the target {name}: nothing was changed; tell the driver of it, or leave it out"
            ),
            SteeringError::TooManyTargets { takers, most } => write!(
                f,
                "{takers} targets take packets, this driver can tell {most} apart: nothing was changed"
            ),
            SteeringError::Unreachable { what, said } => {
                write!(f, "{what} could not be asked ({said}): nothing was changed")
            }
            SteeringError::Unreadable { what, said } => {
                write!(
                    f,
                    "the answer of {what} is not understood ({said}): nothing was changed"
                )
            }
            SteeringError::Refused { what, said } => write!(
                f,
                "{what} was refused ({said}): what came before it is in force; apply it again once the cause is gone"
            ),
            SteeringError::Lost { what, said } => write!(
                f,
                "{what}: the answer was lost ({said}); it may be in force or not; apply it again"
            ),
            SteeringError::TimedOut { what, waited } => write!(
                f,
                "{what} took longer than {waited:?}: it may be in force or not; apply it again"
            ),
        }
    }
}

impl std::error::Error for SteeringError {}
