//! The input of steering: the targets, and the share of each.

use std::collections::BTreeMap;
use std::fmt;

/// Targets of a desired state at most: as many as a cluster has members.
pub const TARGETS_MAX: usize = 64;
/// The greatest weight.
pub const WEIGHT_MAX: u16 = 256;
/// Bytes of a target's name at most.
pub const NAME_BYTES_MAX: usize = 64;

/// The number of a desired state. Anyone who decides counts it up with each change, over its own restarts too; a driver refuses
/// to go back, so that who decided before and does not know that it was replaced does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// What a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// New flows and those that it has.
    Takes,
    /// Those that it has, and no new ones, where the driver can tell them apart ([`super::Abilities::keeps_flows`]); else
    /// nothing.
    Drains,
    /// Nothing: it is dead, or not yet ready. Flows that it had go to the others at once.
    Out,
}

/// One that packets may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// How much of the new flows it is to get, beside the others' weights: 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// What it takes.
    pub standing: Standing,
}

impl Target {
    /// A target that takes packets, with the weight 1.
    pub const TAKES: Target = Target {
        weight: 1,
        standing: Standing::Takes,
    };
    /// A target that gets none.
    pub const OUT: Target = Target {
        weight: 1,
        standing: Standing::Out,
    };
}

/// A whole desired state. A target that it does not name gets nothing, as one that is [`Standing::Out`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    generation: Generation,
    targets: BTreeMap<String, Target>,
}

impl Desired {
    /// A desired state.
    ///
    /// # Errors
    /// What it says cannot be meant.
    pub fn new(
        generation: Generation,
        targets: impl IntoIterator<Item = (String, Target)>,
    ) -> Result<Desired, DesiredError> {
        let mut all = BTreeMap::new();
        for (name, target) in targets {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(DesiredError::Name(name));
            }
            if !(1..=WEIGHT_MAX).contains(&target.weight) {
                return Err(DesiredError::Weight(name, target.weight));
            }
            if all.insert(name.clone(), target).is_some() {
                return Err(DesiredError::Twice(name));
            }
            if all.len() > TARGETS_MAX {
                return Err(DesiredError::TooMany);
            }
        }
        let takes = |target: &Target| target.standing == Standing::Takes;
        if !all.values().any(takes) {
            return Err(DesiredError::NobodyTakes);
        }
        Ok(Desired {
            generation,
            targets: all,
        })
    }

    /// Its number.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// All that it names, by name.
    pub fn targets(&self) -> impl Iterator<Item = (&str, Target)> {
        self.targets
            .iter()
            .map(|(name, target)| (name.as_str(), *target))
    }

    /// Those that take new flows, with their weights.
    pub fn takers(&self) -> impl Iterator<Item = (&str, u16)> {
        self.targets()
            .filter(|(_, target)| target.standing == Standing::Takes)
            .map(|(name, target)| (name, target.weight))
    }
}

/// Why something is no desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredError {
    /// A name is empty or too long.
    Name(String),
    /// A weight is 0 or too great.
    Weight(String, u16),
    /// A name comes twice.
    Twice(String),
    /// There are more than [`TARGETS_MAX`].
    TooMany,
    /// No target takes packets. Sending the packets of a whole cluster nowhere is never meant: what was in force stays.
    NobodyTakes,
}

impl fmt::Display for DesiredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DesiredError::Name(name) => write!(
                f,
                "{name:?} is no name of a target: one has 1 to {NAME_BYTES_MAX} bytes"
            ),
            DesiredError::Weight(name, weight) => write!(
                f,
                "{name} has the weight {weight}: weights are 1 to {WEIGHT_MAX}; who is to get nothing is out"
            ),
            DesiredError::Twice(name) => write!(f, "{name} is named twice"),
            DesiredError::TooMany => write!(f, "there are at most {TARGETS_MAX} targets"),
            DesiredError::NobodyTakes => {
                f.write_str("no target takes packets: what is in force stays")
            }
        }
    }
}

impl std::error::Error for DesiredError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(targets: &[(&str, Target)]) -> Result<Desired, DesiredError> {
        Desired::new(
            Generation(1),
            targets
                .iter()
                .map(|(name, target)| ((*name).to_owned(), *target)),
        )
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let weight = |weight| Target {
            weight,
            ..Target::TAKES
        };
        let drains = Target {
            standing: Standing::Drains,
            ..Target::TAKES
        };
        let long = "x".repeat(65);
        assert_eq!(desired(&[]), Err(DesiredError::NobodyTakes));
        assert_eq!(
            desired(&[("a", Target::OUT), ("b", drains)]),
            Err(DesiredError::NobodyTakes)
        );
        assert_eq!(
            desired(&[("", Target::TAKES)]),
            Err(DesiredError::Name(String::new()))
        );
        assert_eq!(
            desired(&[(&long, Target::TAKES)]),
            Err(DesiredError::Name(long.clone()))
        );
        for wrong in [0, 257] {
            let refused = desired(&[("a", weight(wrong))]);
            assert_eq!(refused, Err(DesiredError::Weight("a".to_owned(), wrong)));
        }
        assert_eq!(
            desired(&[("a", Target::TAKES), ("a", Target::OUT)]),
            Err(DesiredError::Twice("a".to_owned()))
        );
        let many = (0..65).map(|number| (number.to_string(), Target::TAKES));
        assert_eq!(
            Desired::new(Generation(1), many),
            Err(DesiredError::TooMany)
        );
    }

    #[test]
    fn the_order_of_targets_means_nothing() {
        let weight = |weight| Target {
            weight,
            ..Target::TAKES
        };
        let one = desired(&[("b", weight(2)), ("a", Target::TAKES), ("c", Target::OUT)]).unwrap();
        let other = desired(&[("c", Target::OUT), ("a", Target::TAKES), ("b", weight(2))]).unwrap();
        assert_eq!(one, other);
        assert_eq!(one.takers().collect::<Vec<_>>(), [("a", 1), ("b", 2)]);
        assert_eq!(one.targets().count(), 3);
    }
}
