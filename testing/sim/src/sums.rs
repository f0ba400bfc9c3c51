//! What adds up, by place or key, for ever or for a while: sums, sketches, filters and token buckets are held against what was added,
//! taken away and spent.

use asterism_engine::{Cluster, Instance};
use asterism_placement::Time;

use crate::checks::{Checked, instances, name};
use crate::exercise::{Done, Exercise, Exercised, PLACES, Verb, cost_of};
use crate::oracle::Oracle;
use crate::report::Failure;

/// A vector says what was added and taken away in each place, a sketch no less than was added, filters know every key.
pub(crate) fn sums(oracle: &Oracle, state: &Exercised) -> Result<(), String> {
    for place in 0..PLACES {
        let (load, said) = (
            oracle.loads.get(&place).copied().unwrap_or(0),
            state.loads.get(place),
        );
        if said != Ok(load) {
            return Err(format!("a load of {said:?} in place {place}, added {load}"));
        }
    }
    for (key, &volume) in &oracle.volumes {
        let said = state.volumes.get(key);
        if !said.is_ok_and(|said| said >= volume) {
            return Err(format!("a volume of {said:?} for {key}, added {volume}"));
        }
        if state.counted.contains(key) != Ok(true) {
            return Err(format!("{key} was counted and is not found"));
        }
    }
    for (key, &times) in &oracle.admitted {
        if times > 0 && state.admitted.contains(key) != Ok(true) {
            return Err(format!(
                "{key} is in the filter {times} times and is not found"
            ));
        }
    }
    Ok(())
}

/// A sketch of the last while says no less than was added in it, and what anybody spent is missing in every bucket.
pub(crate) fn of_the_last_while(
    cluster: &Cluster<Exercise>,
    oracle: &Oracle,
    at: (usize, usize),
    instance: &Instance<Exercise>,
) -> Checked {
    let (now, state) = (cluster.now(), instance.state());
    let tick = instance.tick();
    for &key in oracle.surges.keys() {
        let (said, added) = (state.surges.get(&key), oracle.surge(key, tick));
        if !said.is_ok_and(|said| said >= added) {
            return Err(Failure::new(
                "a window forgets nothing too early",
                format!("{}: {said:?} for {key}, added {added}", name(at)),
            ));
        }
    }
    for key in oracle.spent.keys() {
        let (said, left) = (state.limits.available(&key), oracle.spent.left(key, now));
        if !said.is_ok_and(|said| said <= left) {
            return Err(Failure::new(
                "what anybody spent is missing everywhere",
                format!("{}: {said:?} tokens of {key}, {left} are left", name(at)),
            ));
        }
    }
    Ok(())
}

/// Notes what a call did about tokens of a bucket, and judges it.
pub(crate) fn a_spending(
    oracle: &mut Oracle,
    at: (usize, usize),
    now: Time,
    done: &Done,
) -> Checked {
    if done.command.verb != Verb::Spend {
        return Ok(());
    }
    let (key, tokens) = (done.command.key, cost_of(&done.command));
    let judged = match done.found {
        true => oracle.spent.spend(at.0 * 2 + at.1, now, (key, tokens)),
        false => oracle.spent.refuse(key, tokens),
    };
    judged.map_err(|what| {
        Failure::new(
            "no instance spends more than it knows to be left, or less",
            format!("{}: {what}", name(at)),
        )
    })
}

/// All is at rest: what was spent is known everywhere.
pub(crate) fn note_rest(cluster: &Cluster<Exercise>, oracle: &mut Oracle) {
    let known = instances(cluster).map(|(at, _)| at.0 * 2 + at.1);
    let known: Vec<_> = known.collect();
    oracle.spent.known(cluster.now(), known.into_iter());
}
