//! The buckets of the director's driver: their packets, and moves.

use std::time::Duration;

use super::{DirectorSteering, SteeredFlow};
use crate::{BucketCount, Buckets, SteeringError};

impl Buckets for DirectorSteering {
    fn count(&self) -> u32 {
        self.space.buckets()
    }

    fn take_counts(&mut self) -> Result<Vec<BucketCount>, SteeringError> {
        let mut packets = vec![0_u64; self.space.buckets() as usize];
        for director in 0..self.directors.len() {
            for (sum, count) in packets.iter_mut().zip(self.take_loads(director)?.iter()) {
                *sum += u64::from(*count);
            }
        }
        let name = |bucket: u32| {
            let target = self.table.target(bucket)?;
            let (name, _) = self.hosts.get(target.number())?.as_ref()?;
            Some(name.clone())
        };
        let counts = (0..).zip(packets).filter_map(|(bucket, packets)| {
            Some(BucketCount {
                bucket,
                target: name(bucket)?,
                packets,
            })
        });
        Ok(counts.collect())
    }

    fn move_bucket(&mut self, bucket: u32, to: &str) -> Result<(), SteeringError> {
        Ok(DirectorSteering::move_bucket(self, bucket, to)?)
    }

    fn move_flow(
        &mut self,
        flow: &SteeredFlow,
        to: &str,
        idle: Duration,
    ) -> Result<(), SteeringError> {
        Ok(self.pin(flow, to, idle)?)
    }
}
