//! Drivers whose flow space has buckets, which can be moved one by one.

use std::time::Duration;

use super::SteeringError;
use super::director::SteeredFlow;

/// The packets of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketCount {
    /// Its number.
    pub bucket: u32,
    /// The target of its new flows.
    pub target: String,
    /// Packets since the counts were read last.
    pub packets: u64,
}

/// What a driver with buckets can do beyond [`super::Steering`]. Each call waits for the world outside.
pub trait Buckets {
    /// The number of buckets.
    fn count(&self) -> u32;

    /// All buckets that have a target, with the packets since the last call.
    ///
    /// # Errors
    /// The counts could not be read: they go on.
    fn take_counts(&mut self) -> Result<Vec<BucketCount>, SteeringError>;

    /// Gives one bucket to another target, now and in later desired states.
    ///
    /// # Errors
    /// [`SteeringError`]; do it again.
    fn move_bucket(&mut self, bucket: u32, to: &str) -> Result<(), SteeringError>;

    /// Sends both directions of a flow to a target until it idles for so long.
    ///
    /// # Errors
    /// [`SteeringError`]; do it again.
    fn move_flow(
        &mut self,
        flow: &SteeredFlow,
        to: &str,
        idle: Duration,
    ) -> Result<(), SteeringError>;
}
