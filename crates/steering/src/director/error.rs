//! Errors of the director's driver, each with its effect.

use std::time::Duration;

use asterism_director::CommandError;

use crate::SteeringError;

/// Why a command for the director was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectorError {
    /// The driver knows no host of this name. Nothing has changed.
    #[error("the director has no host called {0}: nothing was changed")]
    UnknownTarget(String),
    /// There are as many hosts as a director has places for. Nothing has changed.
    #[error("a director has places for {0} hosts: nothing was changed")]
    TooManyHosts(usize),
    /// A director refused. Nothing has changed in it; others may have done the command.
    #[error("director {director} refused: {error}")]
    Refused {
        /// Which, from 0.
        director: usize,
        /// Why.
        error: CommandError,
    },
    /// There are two directors already. Nothing has changed.
    #[error("there are two directors already: nothing was changed")]
    TooManyDirectors,
    /// A director has ended, and there is no other. Nothing is in force any more.
    #[error("director {director} has ended: start another")]
    Gone {
        /// Which, from 0.
        director: usize,
    },
    /// As many commands wait for a director as may. Nothing has changed in it; others have done the command.
    #[error("director {director} takes no commands: nothing was changed in it")]
    Full {
        /// Which, from 0.
        director: usize,
    },
    /// A director did not answer in time. It may do the command yet; do it again.
    #[error("director {director} did not answer within {waited:?}: it may do it yet")]
    TimedOut {
        /// Which, from 0.
        director: usize,
        /// How long was waited.
        waited: Duration,
    },
}

impl From<DirectorError> for SteeringError {
    fn from(error: DirectorError) -> SteeringError {
        let said = error.to_string();
        match error {
            DirectorError::UnknownTarget(name) => SteeringError::UnknownTarget(name),
            DirectorError::TooManyHosts(most) => SteeringError::TooManyTargets {
                takers: most + 1,
                most,
            },
            DirectorError::Refused { director, .. } => SteeringError::Refused {
                what: format!("a command for director {director}"),
                said,
            },
            DirectorError::TooManyDirectors => SteeringError::Refused {
                what: "another director".to_owned(),
                said,
            },
            DirectorError::Gone { director } | DirectorError::Full { director } => {
                SteeringError::Unreachable {
                    what: format!("director {director}"),
                    said,
                }
            }
            DirectorError::TimedOut { director, waited } => SteeringError::TimedOut {
                what: format!("a command for director {director}"),
                waited,
            },
        }
    }
}
