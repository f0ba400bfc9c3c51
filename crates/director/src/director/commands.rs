//! Commands: each is done whole between two bursts, and answered.

use asterism_placement::Time;
use core::time::Duration;

use super::Director;
use super::uncommon::FLOW_IDLE;
use crate::control::{Answer, Command, CommandError, Done};
use crate::exceptions::Place;
use crate::suspended::Suspend;
use crate::table::{Slot, Table};

use asterism_packet::FlowKey;

impl Director {
    /// Takes one command, if there is one.
    #[inline]
    pub(super) fn take_command(&mut self, now: Time) {
        if let Some((number, command)) = self.commands.next() {
            self.obey(number, command, now);
        }
    }

    #[cold]
    fn obey(&mut self, number: u64, command: Command, now: Time) {
        self.tally.commands += 1;
        let result = match command {
            Command::Publish => Ok(Done::Unchanged),
            Command::Table(table) => self.swap(table),
            Command::SetHost { slot, host } => {
                self.hosts.set(slot, &host, now);
                Ok(Done::Changed)
            }
            Command::RemoveHost(slot) if self.hosts.has(slot) => {
                self.hosts.remove(slot);
                Ok(Done::Changed)
            }
            Command::RemoveHost(_) => Ok(Done::Unchanged),
            Command::MoveBucket { bucket, to } => self.move_bucket(bucket, to),
            Command::Pin { flow, to, idle } => self.pin(flow, to, idle, now),
            Command::Unpin(flow) => self.unpin(&flow, now),
            Command::TakeCounts(counts) => self.exchange_counts(counts),
            Command::Suspend(what) => self.suspend(what, now),
            Command::Resume { what, to } => self.resume(&what, to),
        };
        // What is due may be sooner now, and what is shown is other.
        self.publish(now);
        self.due = now;
        self.commands.answer(Answer { number, result });
    }

    fn swap(&mut self, mut table: Box<Table>) -> Result<Done, CommandError> {
        if table.space() != self.table.space() {
            return Err(CommandError::OtherSpace);
        }
        for bucket in self.suspended.buckets() {
            table.set_suspended(bucket, true);
        }
        self.tally.tables += 1;
        Ok(Done::Replaced(core::mem::replace(&mut self.table, table)))
    }

    fn exchange_counts(&mut self, counts: Box<[u32]>) -> Result<Done, CommandError> {
        if counts.len() != self.counts.len() {
            return Err(CommandError::OtherCount);
        }
        Ok(Done::Counts(core::mem::replace(&mut self.counts, counts)))
    }

    fn move_bucket(&mut self, bucket: u32, to: Slot) -> Result<Done, CommandError> {
        if !self.hosts.has(to) {
            return Err(CommandError::NoHost);
        }
        match self.table.target(bucket) {
            Some(target) if target == to && !self.table.drains(bucket) => Ok(Done::Unchanged),
            _ if self.table.move_bucket(bucket, to) => Ok(Done::Changed),
            _ => Err(CommandError::NoBucket),
        }
    }

    fn pin(
        &mut self,
        flow: FlowKey,
        to: Slot,
        idle: Duration,
        now: Time,
    ) -> Result<Done, CommandError> {
        if !self.hosts.has(to) {
            return Err(CommandError::NoHost);
        }
        if let Some(Place::Suspended(_)) = self.exceptions.find(&flow, now) {
            return Err(CommandError::IsSuspended);
        }
        self.exceptions
            .set(flow, Place::Target(to), idle, now)
            .map(|()| Done::Changed)
            .map_err(|_| CommandError::ExceptionsFull)
    }

    fn unpin(&mut self, flow: &FlowKey, now: Time) -> Result<Done, CommandError> {
        match self.exceptions.find(flow, now) {
            None => Ok(Done::Unchanged),
            Some(Place::Suspended(_)) => Err(CommandError::IsSuspended),
            Some(Place::Target(_)) => {
                self.exceptions.remove(flow);
                Ok(Done::Changed)
            }
        }
    }

    fn suspend(&mut self, what: Suspend, now: Time) -> Result<Done, CommandError> {
        if let Suspend::Bucket(bucket) = what
            && self.table.target(bucket).is_none()
        {
            return Err(CommandError::NoBucket);
        }
        let was = self.suspended.find(&what).is_some();
        let queue = self.suspended.begin(what, now);
        let queue = queue.ok_or(CommandError::SuspensionsFull)?;
        match what {
            Suspend::Bucket(bucket) => {
                self.table.set_suspended(bucket, true);
            }
            Suspend::Flow(flow) => {
                let place = Place::Suspended(queue);
                if self.exceptions.set(flow, place, FLOW_IDLE, now).is_err() {
                    self.suspended.cancel(queue);
                    return Err(CommandError::ExceptionsFull);
                }
            }
        }
        Ok(if was { Done::Unchanged } else { Done::Changed })
    }

    fn resume(&mut self, what: &Suspend, to: Option<Slot>) -> Result<Done, CommandError> {
        let queue = self.suspended.find(what);
        let queue = queue.ok_or(CommandError::NotSuspended)?;
        if to.is_some_and(|to| !self.hosts.has(to)) {
            return Err(CommandError::NoHost);
        }
        let to = match (what, to) {
            (Suspend::Bucket(bucket), Some(to)) => {
                self.table.move_bucket(*bucket, to);
                to
            }
            (Suspend::Bucket(bucket), None) => {
                let target = self.table.target(*bucket);
                target.ok_or(CommandError::NoBucket)?
            }
            (Suspend::Flow(_), Some(to)) => to,
            (Suspend::Flow(_), None) => return Err(CommandError::TargetNeeded),
        };
        self.suspended.resume(queue, to);
        Ok(Done::Changed)
    }
}
