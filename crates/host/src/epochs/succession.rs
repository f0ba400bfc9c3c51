//! Which epoch may follow the known epoch when one is handed to a host. A file needs no such check, since a process that can write
//! it can write anything; an API's caller may have lost its state, and two callers may not know of each other.

use super::{EpochFile, HeldPorts, StepError};

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

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_config::{Cluster, Config};
    use asterism_orchestrator::epochs::Refusal;

    fn cluster() -> Cluster {
        let text = "[cluster]\nmembers = [\"a\", \"b\", \"c\", \"d\"]\n[function.pass-through]";
        let (config, report) = Config::read("test.toml", text);
        config
            .unwrap_or_else(|| panic!("{}", report.render(false)))
            .cluster
    }

    fn names(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    fn refused(before: &EpochFile, next: &EpochFile) -> Refusal {
        before.step_to(next).unwrap_err().refusal()
    }

    /// A number below `most`, of a simple generator.
    fn draw(state: &mut u64, most: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) % most
    }

    /// Epochs that the command writes over any deaths and returns: each may follow every earlier one, and none goes back.
    #[test]
    fn whatever_the_command_writes_may_follow_whatever_it_wrote_before() {
        let cluster = cluster();
        let (mut founded, mut ports) = (0, 0);
        for seed in 0..200 {
            let mut state = seed;
            let mut epochs = vec![EpochFile::first(&cluster)];
            for _ in 0..12 {
                let now = epochs.last().unwrap();
                let pick = |odds: u64, state: &mut u64| -> Vec<String> {
                    let all = cluster.members.iter();
                    all.filter(|_| draw(state, odds) == 0).cloned().collect()
                };
                let mut without = pick(3, &mut state);
                without.retain(|name| now.members.contains_key(name));
                let again = pick(4, &mut state);
                let next = match draw(&mut state, 8) {
                    0 => now.next(&cluster, &[], &[], true),
                    1 => now.next_fenced(&cluster, &without),
                    _ => now.next(&cluster, &without, &again, false),
                };
                // The command refuses some draws.
                if let Ok(next) = next
                    && next.check().is_ok()
                {
                    founded += u32::from(next.founding);
                    ports += next.ports.len();
                    epochs.push(next);
                }
            }
            for (place, before) in epochs.iter().enumerate() {
                assert_eq!(before.step_to(before), Ok(Step::Same));
                for next in &epochs[place + 1..] {
                    assert_eq!(before.step_to(next), Ok(Step::Later), "{before:?} {next:?}");
                    assert_eq!(refused(next, before), Refusal::Older);
                }
            }
        }
        assert!(founded > 50 && ports > 500, "{founded} {ports}");
    }

    #[test]
    fn another_epoch_of_the_same_number_contradicts() {
        let cluster = cluster();
        let first = EpochFile::first(&cluster);
        let left = |name: &str| first.next(&cluster, &names(name), &[], false).unwrap();
        let (b, c) = (left("b"), left("c"));
        assert_eq!(refused(&b, &c), Refusal::Contradicts);
        let said = |other: &EpochFile| b.step_to(other).unwrap_err().to_string();
        assert!(said(&c).contains("members or incarnations"));
        let mut other = b.clone();
        other.fence(&names("b")).unwrap();
        assert!(
            said(&other).contains("ended incarnations"),
            "{}",
            said(&other)
        );
        let mut other = b.clone();
        other.ports.clear();
        assert!(said(&other).contains("holders"), "{}", said(&other));
    }

    #[test]
    fn incarnations_and_ports_that_are_forgotten_are_missed() {
        let cluster = cluster();
        let first = EpochFile::first(&cluster);
        let now = first.next(&cluster, &names("b"), &[], false).unwrap();
        let later = |change: &dyn Fn(&mut EpochFile)| {
            let mut next = now.next(&cluster, &[], &names("c"), false).unwrap();
            assert_eq!(now.step_to(&next), Ok(Step::Later));
            change(&mut next);
            now.step_to(&next).unwrap_err()
        };
        for (change, said) in [
            (
                &(|next: &mut EpochFile| _ = next.left.remove("b")) as &dyn Fn(&mut EpochFile),
                "incarnation 1 of b",
            ),
            (&|next| _ = next.members.remove("d"), "incarnation 1 of d"),
            (
                &|next| _ = next.members.insert("a".into(), 0),
                "incarnation 1 of a",
            ),
            (
                &|next| {
                    next.left.clear();
                    next.members.insert("b".into(), 1);
                },
                "incarnation 1 of b",
            ),
            (&|next| next.ports.clear(), "ports of b"),
            (
                &|next| next.ports.get_mut("b").unwrap().past.clear(),
                "ports of b",
            ),
            (
                &|next| next.ports.get_mut("b").unwrap().partitions.reverse(),
                "ports of b",
            ),
            (
                &|next| next.ports.get_mut("b").unwrap().since = 1,
                "ports of b",
            ),
        ] {
            let error = later(change);
            let (reason, why) = (error.refusal(), error.to_string());
            assert_eq!(reason, Refusal::Forgets);
            assert!(why.contains(said), "{said}: {why}");
        }
    }
}
