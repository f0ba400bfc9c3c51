//! Members that leave of their own accord: what they wrote is everybody's before they go, and everybody was reported.

use std::time::Duration;

use asterism_placement::Incarnation;

use super::{Happening, World, name};
use crate::membership::host::Origin;

impl World {
    /// A host that leaves ends once it may.
    pub(super) fn goes(&mut self, place: usize) -> Result<(), String> {
        let Some(host) = self.hosts[place].as_ref().filter(|host| host.has_left()) else {
            return Ok(());
        };
        for witness in self.living(host) {
            // Members of another epoch say nothing to each other. Who joins is brought it by its snapshot.
            let agrees = witness.replicator.epoch() == host.replicator.epoch();
            if agrees && !witness.leaves && !witness.reported_of.contains(&host.incarnation) {
                return Err(format!(
                    "{:?} left, and {:?} was not reported",
                    host.incarnation, witness.incarnation
                ));
            }
            if witness.replicator.is_ready() && witness.prefix(host.incarnation) < host.head {
                return Err(format!(
                    "{:?} left, and {:?} lacks what it wrote",
                    host.incarnation, witness.incarnation
                ));
            }
        }
        let incarnation = host.incarnation;
        self.left.push((incarnation, host.head));
        self.report.left += 1;
        self.bury(place);
        let soon = self.now + Duration::from_micros(self.random.below(100_000));
        self.happens(soon, Happening::LeaveOut(incarnation));
        Ok(())
    }

    /// Anyone who runs the cluster names who left no more, or in its next incarnation.
    pub(super) fn leave_out(&mut self, (member, incarnation): Origin) {
        if self.roster.named(member) != Some(Some(incarnation)) {
            return;
        }
        let place = (0..self.hosts.len()).find(|&place| name(place) == member);
        let mut members = self.roster.members.clone();
        members.retain(|(named, _)| *named != member);
        if let Some(place) = place.filter(|_| self.is_storm() && self.random.chance(50)) {
            members.push((member, Some(Incarnation(self.incarnations[place] + 1))));
            self.happens(self.now, Happening::Start(place));
        }
        self.publish(members);
    }
}
