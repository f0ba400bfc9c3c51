//! What a new epoch changes between a state channel and its instances: which incarnations there are, and which have ended.

use asterism_placement::membership::{InstallError, Roster};
use asterism_placement::{Incarnation, MemberId, Time};

use super::outlet::Delivering;
use super::{ChannelEvent, StateChannel};
use crate::exchange::{Down, origin, write_incarnations};

impl StateChannel {
    /// Puts a roster in force: it is what anyone who runs the cluster decided, and is never guessed. Incarnations that it does not name
    /// are refused from here on; instances hear of it, and end what was left of them.
    ///
    /// # Errors
    /// See [`InstallError`]; nothing changed. When [`InstallError::is_end`], this host must stop at once.
    pub fn install(&mut self, now: Time, roster: &Roster) -> Result<(), InstallError> {
        let mut deliver = Delivering {
            outlet: &mut self.outlet,
            snapshots: &mut self.snapshots,
            auditor: &mut self.protocols.auditor,
        };
        self.protocols
            .replicator
            .install(now, roster, &mut deliver)?;
        self.secure.set_epoch(roster.epoch);
        self.forget_kept();
        self.protocols.auditor.begin_again(now);
        let own = self.protocols.replicator.config().member;
        let places = self
            .protocols
            .replicator
            .config()
            .members
            .iter()
            .enumerate();
        for (place, &member) in places.filter(|(_, member)| **member != own) {
            let named = roster.named(member);
            self.secure.set_takes_part(member, named.is_some());
            match named {
                None => self.secure.revoke(member),
                Some(Some(incarnation)) => {
                    self.secure.admit_by_epoch(now, member, incarnation, None);
                }
                Some(None) => {}
            }
            let alive = self.protocols.replicator.progress().member(member);
            let alive = alive
                .and_then(|progress| progress.incarnation)
                .map(|incarnation| origin(member, incarnation));
            if self.reported_of[place] != alive {
                self.reported_of[place] = alive;
                self.reported[place] = (0, 0, 0, 0);
                for lane in &mut self.lanes {
                    lane.applied[place] = 0;
                    lane.snapshots_applied.retain(|&(from, _)| from != member);
                }
                self.snapshots.retain(|&(from, _)| from != member);
                let outlet = &mut self.outlet;
                self.scans.retain(|known| {
                    let goes_on = known.member != member;
                    if !goes_on {
                        let scan = known.scan;
                        outlet.push(&Down::StopScan { member, scan });
                    }
                    goes_on
                });
            }
        }
        let named = roster
            .members
            .iter()
            .filter_map(|&(member, incarnation)| Some(origin(member, incarnation?)));
        let incarnations = write_incarnations(named);
        self.outlet.push(&Down::BlockAssignment {
            epoch: roster.epoch.0,
            bytes: &roster.assignment,
        });
        self.outlet.push(&Down::Epoch {
            incarnations: &incarnations,
        });
        self.note(ChannelEvent::Epoch(roster.epoch));
        Ok(())
    }

    /// Tells instances and the host whether a member has a later epoch in force than this host.
    pub(super) fn tell_later_epoch(&mut self) {
        let later = self.secure.later_epoch();
        let epoch = later.map(|(_, epoch)| epoch);
        if epoch == self.later_epoch {
            return;
        }
        if epoch.is_some() != self.later_epoch.is_some() {
            let is_outdated = epoch.is_some();
            self.outlet.push(&Down::Outdated { is_outdated });
        }
        self.later_epoch = epoch;
        if let Some((member, epoch)) = later {
            self.note(ChannelEvent::LaterEpoch(member, epoch));
        }
    }

    /// Says to all that this host commits nothing more: its instances have stopped.
    pub fn leave(&mut self, now: Time) {
        self.protocols.replicator.leave(now);
    }

    /// Tells the placement of which ended incarnations every instance has applied what was delivered.
    pub(super) fn report_ended(&mut self, now: Time) {
        let mut number = 0;
        while let Some(&incarnation) = self.ended.get(number) {
            if !self
                .lanes
                .iter()
                .all(|lane| lane.ended_applied.contains(&incarnation))
            {
                number += 1;
                continue;
            }
            self.ended.remove(number);
            for lane in &mut self.lanes {
                lane.ended_applied.retain(|&applied| applied != incarnation);
            }
            let (member, incarnation) = (
                MemberId(incarnation.member),
                Incarnation(incarnation.incarnation),
            );
            self.protocols
                .replicator
                .ended_applied(now, member, incarnation);
        }
    }
}
