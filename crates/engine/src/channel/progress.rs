//! What instances have applied, asked to the replicator, and what it tells them of rounds and of stability.

use asterism_placement::Time;
use asterism_placement::mutant as placed;
use asterism_placement::replicated::MemberProgress;

use super::StateChannel;
use super::outlet::Delivering;
use crate::exchange::{Down, origin};
use crate::mutant::{self, Mutant};

impl StateChannel {
    /// Tells the placement what every instance has applied.
    pub(super) fn report_applied(&mut self, now: Time) {
        for place in 0..self.reported.len() {
            let applied = self.lanes.iter().map(|lane| lane.applied[place]);
            let applied = if placed::active(placed::Mutant::AppliedByFirstInstance) {
                applied.max()
            } else {
                applied.min()
            }
            .unwrap_or(0);
            let member = self.protocols.replicator.config().members[place];
            // Of the own stream it knows by itself what is new.
            if member.0 == self.own.member
                || applied > self.protocols.replicator.progress().applied(member)
            {
                self.protocols.replicator.applied(now, member, applied);
            }
        }
        self.report_ended(now);
        let mut number = 0;
        while let Some(&(from, scan)) = self.snapshots.get(number) {
            if !self
                .lanes
                .iter()
                .all(|lane| lane.snapshots_applied.contains(&(from, scan)))
            {
                number += 1;
                continue;
            }
            self.snapshots.remove(number);
            for lane in &mut self.lanes {
                lane.snapshots_applied
                    .retain(|&snapshot| snapshot != (from, scan));
            }
            let mut deliver = Delivering {
                outlet: &mut self.outlet,
                snapshots: &mut self.snapshots,
                auditor: &mut self.protocols.auditor,
            };
            self.protocols
                .replicator
                .snapshot_applied(now, from, scan, &mut deliver);
        }
    }

    /// Tells instances in which round they are, and their share of its bytes.
    pub(super) fn tell_round(&mut self) {
        let window = self.protocols.replicator.window();
        self.round
            .set(window.round, window.bytes / self.lanes.len().max(1) as u64);
    }

    /// Tells instances how far members are, where that changed.
    pub(super) fn tell_progress(&mut self) {
        if !self.may_tell_progress() {
            return;
        }
        for place in 0..self.reported.len() {
            let member = self.protocols.replicator.config().members[place];
            let Some(progress) = self.protocols.replicator.progress().member(member) else {
                continue;
            };
            let now = (
                progress.received,
                stable(progress),
                progress.covered_until.as_micros(),
                self.copies.map_or(0, |copies| {
                    self.protocols.replicator.confirmed(member, copies)
                }),
            );
            let Some(incarnation) = progress.incarnation else {
                continue;
            };
            if now == self.reported[place] {
                continue;
            }
            let down = Down::Progress {
                origin: origin(member, incarnation),
                received: now.0,
                stable: now.1,
                covered_us: now.2,
                confirmed: now.3,
            };
            if !self.outlet.push_directly(&down) {
                return;
            }
            self.reported[place] = now;
            self.reported_of[place] = Some(origin(member, incarnation));
        }
    }

    /// Whether progress may go to instances: once all groups that it is about are on their way to them.
    fn may_tell_progress(&self) -> bool {
        self.outlet.is_clear() || mutant::active(Mutant::ProgressOvertakes)
    }
}

/// Up to which group all members have a member's stream.
fn stable(progress: &MemberProgress) -> u64 {
    match mutant::active(Mutant::StableWhenReceived) {
        true => progress.received,
        false => progress.stable,
    }
}
