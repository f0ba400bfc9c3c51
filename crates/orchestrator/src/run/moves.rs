//! Moves of buckets and flows: who asks the steering's thread for them, and how it answers.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::steer::SteeringCommand;
use crate::steering::director::SteeredFlow;
use crate::steering::{BucketCount, Steering, SteeringError};

/// How long an answer may take: a driver may wait for its two directors, after a desired state that it applies.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a moved flow may idle until its bucket decides again.
pub const MOVED_FLOW_IDLE: Duration = Duration::from_secs(600);

/// What is done with buckets.
#[derive(Debug)]
pub(super) enum BucketRequest {
    Move {
        buckets: Vec<u32>,
        to: String,
        answer: SyncSender<Result<(), MoveError>>,
    },
    MoveFlow {
        flow: SteeredFlow,
        to: String,
        answer: SyncSender<Result<(), MoveError>>,
    },
    Count(SyncSender<Result<Vec<BucketCount>, MoveError>>),
}

/// Why buckets or a flow were not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// Nothing was moved.
    #[error("this steering knows no flows and no buckets: routes send whole shares of the traffic")]
    NoBuckets,
    /// Nothing was moved.
    #[error("there is no bucket {bucket}: they are 0 to {last}")]
    NoBucket {
        /// The number that was asked for.
        bucket: u32,
        /// The last bucket.
        last: u32,
    },
    /// Nothing was moved by the driver that refused.
    #[error("{0}")]
    Refused(String),
    /// As the sentence says; of several directors, those before the one that failed have moved them.
    #[error("{0}")]
    Steering(String),
    /// Nothing was moved.
    #[error("too many requests wait: ask again")]
    Busy,
    /// It may be moved yet.
    #[error("the steering did not answer in time: whether it moved anything is not known")]
    Late,
    /// Nothing was moved.
    #[error("the orchestrator has ended")]
    Ended,
}

impl From<SteeringError> for MoveError {
    fn from(error: SteeringError) -> MoveError {
        let is_refused = error.is_refusal() || matches!(error, SteeringError::Refused { .. });
        match is_refused {
            true => MoveError::Refused(error.to_string()),
            false => MoveError::Steering(error.to_string()),
        }
    }
}

/// The way to move buckets and flows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Moving {
    commands: SyncSender<SteeringCommand>,
}

impl Moving {
    pub(super) fn new(commands: SyncSender<SteeringCommand>) -> Moving {
        Moving { commands }
    }

    /// Gives buckets to another target that takes packets, now and in all later desired states in which it takes or drains.
    ///
    /// # Errors
    /// [`MoveError`]; do it again.
    pub fn move_buckets(&self, buckets: &[u32], to: &str) -> Result<(), MoveError> {
        let (buckets, to) = (buckets.to_vec(), to.to_owned());
        self.ask(|answer| BucketRequest::Move {
            buckets,
            to,
            answer,
        })
    }

    /// Sends a flow to a target until it idles for [`MOVED_FLOW_IDLE`].
    ///
    /// # Errors
    /// [`MoveError`]; do it again.
    pub fn move_flow(&self, flow: SteeredFlow, to: &str) -> Result<(), MoveError> {
        let to = to.to_owned();
        self.ask(|answer| BucketRequest::MoveFlow { flow, to, answer })
    }

    /// The packets of each bucket since this was asked last.
    ///
    /// # Errors
    /// [`MoveError`]
    pub(super) fn counts(&self) -> Result<Vec<BucketCount>, MoveError> {
        self.ask(BucketRequest::Count)
    }

    pub(super) fn stop(&self) {
        // It has ended already.
        let _ = self.commands.send(SteeringCommand::Stop);
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(SyncSender<Result<T, MoveError>>) -> BucketRequest,
    ) -> Result<T, MoveError> {
        let (answer, answered) = sync_channel(1);
        let command = SteeringCommand::Buckets(request(answer));
        self.commands
            .try_send(command)
            .map_err(|error| match error {
                TrySendError::Full(_) => MoveError::Busy,
                TrySendError::Disconnected(_) => MoveError::Ended,
            })?;
        answered
            .recv_timeout(ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => MoveError::Late,
                RecvTimeoutError::Disconnected => MoveError::Ended,
            })?
    }
}

/// Does it, by the drivers that have buckets.
pub(super) fn answer(drivers: &mut [Box<dyn Steering>], request: BucketRequest) {
    // Who asked may have gone.
    match request {
        BucketRequest::Move {
            buckets,
            to,
            answer,
        } => {
            let _ = answer.try_send(move_buckets(drivers, &buckets, &to));
        }
        BucketRequest::MoveFlow { flow, to, answer } => {
            let _ = answer.try_send(move_flow(drivers, &flow, &to));
        }
        BucketRequest::Count(answer) => {
            let _ = answer.try_send(counts(drivers));
        }
    }
}

fn move_buckets(
    drivers: &mut [Box<dyn Steering>],
    buckets: &[u32],
    to: &str,
) -> Result<(), MoveError> {
    let mut moved = false;
    for driver in drivers {
        let Some(driver) = driver.buckets() else {
            continue;
        };
        let beyond = buckets.iter().find(|bucket| **bucket >= driver.count());
        if let Some(bucket) = beyond {
            return Err(MoveError::NoBucket {
                bucket: *bucket,
                last: driver.count().saturating_sub(1),
            });
        }
        driver.move_buckets(buckets, to)?;
        moved = true;
    }
    moved.then_some(()).ok_or(MoveError::NoBuckets)
}

fn move_flow(
    drivers: &mut [Box<dyn Steering>],
    flow: &SteeredFlow,
    to: &str,
) -> Result<(), MoveError> {
    let mut moved = false;
    for driver in drivers {
        if let Some(driver) = driver.buckets() {
            driver.move_flow(flow, to, MOVED_FLOW_IDLE)?;
            moved = true;
        }
    }
    moved.then_some(()).ok_or(MoveError::NoBuckets)
}

/// The counts of the first driver with buckets: others steer the other side of the same flows.
fn counts(drivers: &mut [Box<dyn Steering>]) -> Result<Vec<BucketCount>, MoveError> {
    let driver = drivers.iter_mut().find_map(|driver| driver.buckets());
    Ok(driver.ok_or(MoveError::NoBuckets)?.take_counts()?)
}
