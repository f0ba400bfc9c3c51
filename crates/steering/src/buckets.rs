//! Drivers whose flow space has buckets, which can be moved one by one.

use std::time::Duration;

use super::SteeringError;
use super::director::{SteeredFlow, Suspended};

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

    /// Gives buckets to another target that takes packets, now and in all later desired states in which it takes or drains.
    ///
    /// # Errors
    /// [`SteeringError`]; do it again. Of a call that was refused nothing has changed.
    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), SteeringError>;

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

    /// Lets the packets of a bucket or a flow wait, within the director's bounds: no target gets one from the moment at which this
    /// returns, until it is resumed (Split/Merge §3.2).
    ///
    /// # Errors
    /// [`SteeringError`]; do it again, or resume it.
    fn suspend(&mut self, what: &Suspended) -> Result<(), SteeringError>;

    /// Lets them go on, in order and before newer ones: a bucket to `to`, to which it is moved, or to the target that it has; a flow
    /// to `to`.
    ///
    /// # Errors
    /// [`SteeringError`], also when the suspension ended by age.
    fn resume(&mut self, what: &Suspended, to: Option<&str>) -> Result<(), SteeringError>;
}
