//! The buckets of the director's driver: their packets, and moves.
//!
//! Moved buckets are part of the table: a move is another table, which every director takes in one step.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_director::table::Slot;

use super::{DirectorSteering, SteeredFlow, Suspended};
use crate::{BucketCount, Buckets, Desired, Standing, SteeringError};

impl DirectorSteering {
    /// The buckets that were moved, each with its target.
    pub fn moves(&self) -> impl Iterator<Item = (u32, &str)> {
        self.moved.iter().filter_map(|(bucket, slot)| {
            let (name, _) = self.hosts.get(slot.number())?.as_ref()?;
            Some((*bucket, name.as_str()))
        })
    }

    /// Gives these buckets to these targets, and all others back to the target that the weights say: how many changed. Waits
    /// for the directors.
    ///
    /// # Errors
    /// [`SteeringError`]. Unless it is a refusal, the desired state is not in force any more: apply it again, with these moves.
    pub fn set_moves<'n>(
        &mut self,
        moves: impl IntoIterator<Item = (u32, &'n str)>,
    ) -> Result<u32, SteeringError> {
        let desired = self.in_force()?.clone();
        let mut moved = BTreeMap::new();
        for (bucket, to) in moves {
            if bucket >= self.space.buckets() {
                return Err(no_bucket(bucket, self.space.buckets()));
            }
            moved.insert(bucket, self.slot_of(to)?);
        }
        self.bring_moves_about(&desired, moved)
    }

    fn bring_moves_about(
        &mut self,
        desired: &Desired,
        moved: BTreeMap<u32, Slot>,
    ) -> Result<u32, SteeringError> {
        self.moved = moved;
        let table = self.table_of(desired)?;
        self.is_applied = false;
        let changed = self.bring_about(&table)?;
        self.table = table;
        self.is_applied = true;
        Ok(changed)
    }

    /// The desired state that the directors have.
    fn in_force(&self) -> Result<&Desired, SteeringError> {
        let begun = self.begun.as_ref().filter(|_| self.is_applied);
        begun.ok_or_else(nothing_in_force)
    }
}

/// The standing of a target; one that is not named is out.
fn standing_of(desired: &Desired, name: &str) -> Standing {
    let mut targets = desired.targets();
    let found = targets.find(|(known, _)| *known == name);
    found.map_or(Standing::Out, |(_, target)| target.standing)
}

/// Moves only to targets that take packets: to others they would have no effect.
pub(super) fn check_taker(desired: &Desired, to: &str) -> Result<(), SteeringError> {
    match standing_of(desired, to) {
        Standing::Takes => Ok(()),
        Standing::Drains | Standing::Out => Err(SteeringError::Refused {
            what: format!("a move to {to}"),
            said: "it takes no packets".to_owned(),
        }),
    }
}

pub(super) fn nothing_in_force() -> SteeringError {
    SteeringError::Refused {
        what: "a move".to_owned(),
        said: "no desired state is in force: ask the orchestrator that leads".to_owned(),
    }
}

pub(super) fn no_bucket(bucket: u32, buckets: u32) -> SteeringError {
    SteeringError::Refused {
        what: format!("a move of the bucket {bucket}"),
        said: format!("there are {buckets}, from 0 on"),
    }
}

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

    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), SteeringError> {
        let slot = self.slot_of(to)?;
        let desired = self.in_force()?.clone();
        check_taker(&desired, to)?;
        let count = self.space.buckets();
        if let Some(bucket) = buckets.iter().find(|bucket| **bucket >= count) {
            return Err(no_bucket(*bucket, count));
        }
        let mut moved = self.moved.clone();
        moved.extend(buckets.iter().map(|bucket| (*bucket, slot)));
        self.bring_moves_about(&desired, moved)?;
        Ok(())
    }

    fn move_flow(
        &mut self,
        flow: &SteeredFlow,
        to: &str,
        idle: Duration,
    ) -> Result<(), SteeringError> {
        check_taker(self.in_force()?, to)?;
        Ok(self.pin(flow, to, idle)?)
    }

    fn suspend(&mut self, what: &Suspended) -> Result<(), SteeringError> {
        self.in_force()?;
        Ok(DirectorSteering::suspend(self, what)?)
    }

    fn resume(&mut self, what: &Suspended, to: Option<&str>) -> Result<(), SteeringError> {
        let desired = self.in_force()?;
        if let Some(to) = to {
            check_taker(desired, to)?;
        }
        Ok(DirectorSteering::resume(self, what, to)?)
    }
}
