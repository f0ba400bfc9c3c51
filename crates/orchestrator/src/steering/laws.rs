//! Laws of every driver, as a function that a driver's tests call with a world in memory and with the real one.

use super::{Desired, DesiredError, Generation, Standing, Steering, SteeringError, Target};

/// Why a driver was not found to keep the laws.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LawError {
    /// Fewer than two targets were given.
    #[error("the laws need two targets")]
    FewTargets,
    /// The driver breaks this law.
    #[error("a driver must: {0}")]
    Broken(&'static str),
    /// The given names cannot be those of targets.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// The driver failed where no law wants it to.
    #[error(transparent)]
    Steering(#[from] SteeringError),
}

/// Holds a driver that has applied nothing yet to the laws of [`Steering`], with these targets, at least two, all of which it
/// knows. Leaves it with all of them taking packets.
///
/// # Errors
/// [`LawError`]: the law that it breaks, or its own error.
pub fn check(driver: &mut dyn Steering, names: &[&str]) -> Result<(), LawError> {
    let state = |generation, out: &[&str]| {
        let target = |name: &&str| {
            let is_out = out.contains(name);
            let target = if is_out { Target::OUT } else { Target::TAKES };
            ((*name).to_owned(), target)
        };
        Desired::new(Generation(generation), names.iter().map(target))
    };
    let demand = |law: &'static str, holds: bool| {
        if holds {
            Ok(())
        } else {
            Err(LawError::Broken(law))
        }
    };
    let [first, .., last] = names else {
        return Err(LawError::FewTargets);
    };
    let before = driver.observe()?;
    demand(
        "have nothing applied at first",
        before.generation.is_none() && !before.as_applied,
    )?;

    let all = state(2, &[])?;
    let done = driver.apply(&all)?;
    demand("say which state is in force", done.generation.0 == 2)?;
    let seen = driver.observe()?;
    demand("be seen to have done it", seen.as_applied)?;
    demand(
        "give every taker its share",
        seen.targets.iter().all(|target| target.share_permille > 0),
    )?;
    let again = driver.apply(&all)?;
    demand("change nothing that is so already", again.changed == 0)?;

    let without = state(3, &[last])?;
    let done = driver.apply(&without)?;
    demand("say that something changed", done.changed > 0)?;
    let seen = driver.observe()?;
    let share = |name: &str| {
        let target = seen.targets.iter().find(|target| target.name == name);
        target.map_or(0, |target| target.share_permille)
    };
    demand("send nothing to who is out", share(last) == 0)?;
    demand("send packets to who is left", share(first) > 0)?;
    let total: u32 = seen
        .targets
        .iter()
        .map(|target| u32::from(target.share_permille))
        .sum();
    demand(
        "leave no packet without a target",
        total + names.len() as u32 >= 1_000 && seen.elsewhere_permille == 0,
    )?;

    let refused = driver.apply(&all);
    demand(
        "refuse to go back",
        matches!(refused, Err(SteeringError::Stale { .. })),
    )?;
    let other = state(3, &[first])?;
    demand(
        "refuse another state of one number",
        matches!(driver.apply(&other), Err(SteeringError::Contradicts(_))),
    )?;
    let unknown = [
        ("nobody knows this".to_owned(), Target::TAKES),
        ((*first).to_owned(), Target::TAKES),
    ];
    let unknown = Desired::new(Generation(4), unknown)?;
    demand(
        "refuse targets that it does not know",
        matches!(driver.apply(&unknown), Err(SteeringError::UnknownTarget(_))),
    )?;
    let still = driver.observe()?;
    demand("touch nothing when it refuses", still == seen)?;
    demand("count what it refused", driver.counts().refused == 3)?;

    let drains = names.iter().map(|name| {
        let standing = if name == last {
            Standing::Drains
        } else {
            Standing::Takes
        };
        let target = Target {
            standing,
            ..Target::TAKES
        };
        ((*name).to_owned(), target)
    });
    let drains = Desired::new(Generation(4), drains)?;
    driver.apply(&drains)?;
    let seen = driver.observe()?;
    let drained = seen.targets.iter().find(|target| target.name == *last);
    demand(
        "send a draining target nothing, unless it keeps flows",
        driver.abilities().keeps_flows || drained.is_some_and(|target| target.share_permille == 0),
    )?;

    let all = state(5, &[])?;
    driver.apply(&all)?;
    let seen = driver.observe()?;
    demand(
        "take back who returns",
        seen.targets.iter().all(|target| target.share_permille > 0),
    )
}
