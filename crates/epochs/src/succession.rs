//! Which epoch may follow the known epoch when one is handed to a host. A file needs no such check, since a process that can write
//! it can write anything; an API's caller may have lost its state, and two callers may not know of each other.

use crate::error::StepError;
use crate::file::{EpochFile, HeldPorts};

/// The relation of an accepted epoch to the known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The epoch that the host knows.
    Same,
    /// A later epoch.
    Later,
}

impl EpochFile {
    /// Whether a host that knows this epoch may change to another, handed epoch. The host may have missed epochs in between.
    ///
    /// # Errors
    /// The reason.
    pub fn step_to(&self, next: &EpochFile) -> Result<Step, StepError> {
        let (epoch, known) = (next.epoch, self.epoch);
        if epoch < known {
            return Err(StepError::Older { epoch, known });
        }
        if epoch == known {
            return match self.difference(next) {
                None => Ok(Step::Same),
                Some(difference) => Err(StepError::Contradicts { known, difference }),
            };
        }
        match self.forgotten_by(next) {
            None => Ok(Step::Later),
            Some(lacks) => Err(StepError::Forgets {
                epoch,
                lacks,
                known,
            }),
        }
    }

    /// The difference between two epochs of one number.
    fn difference(&self, other: &EpochFile) -> Option<&'static str> {
        if self.members != other.members {
            Some("members or incarnations")
        } else if self.ports != other.ports {
            Some("holders of ports")
        } else if self.hosts != other.hosts {
            Some("hosts or addresses")
        } else if self != other {
            Some("ended incarnations or another beginning")
        } else {
            None
        }
    }

    /// The last incarnation of a member that this epoch knows.
    fn last_incarnation(&self, name: &str) -> Option<u64> {
        let left = self.left.get(name);
        self.members.get(name).or(left).copied()
    }

    /// The facts that a later epoch lacks: no incarnation may begin twice, and no two members may grant one port.
    fn forgotten_by(&self, next: &EpochFile) -> Option<String> {
        let known = self.members.keys().chain(self.left.keys());
        for name in known {
            let incarnation = self.last_incarnation(name).unwrap_or(0);
            // A member that left comes back in another incarnation.
            let comes_back = !self.members.contains_key(name) && next.members.contains_key(name);
            let least = incarnation.saturating_add(u64::from(comes_back));
            if next.last_incarnation(name).is_none_or(|then| then < least) {
                return Some(format!("incarnation {incarnation} of {name}"));
            }
        }
        if let Some(host) = self.host_forgotten_by(next) {
            return Some(host);
        }
        let goes_on =
            |(name, incarnation): (&String, &u64)| next.members.get(name) == Some(incarnation);
        if !self.members.iter().any(goes_on) {
            // All members restarted: they may all have ended before, and each holds the blocks of its place.
            return None;
        }
        let kept = |name: &String, held: &HeldPorts| {
            let then = next.ports.get(name)?;
            let was_there = |holder: &String| then.past.contains(holder);
            let is_kept = then.since >= held.since
                && held.past.iter().all(was_there)
                && held
                    .partitions
                    .iter()
                    .zip(&then.partitions)
                    .all(|(before, after)| {
                        before == after || (was_there(before) && then.since > self.epoch)
                    });
            is_kept.then_some(())
        };
        self.ports
            .iter()
            .find(|(name, held)| kept(name, held).is_none())
            .map(|(name, _)| format!("the present and past holders of ports of {name}"))
    }
}
