//! At the end of some seeds a member commits what nobody can read, as a host of another build might: sealed, numbered and sent as all
//! that it writes. Anyone who it comes to must stop, and none may ever say that it has it (`docs/src/architecture/replication.md`).

use std::time::Duration;

use asterism_engine::StopReason;

use crate::report::Failure;
use crate::scenario::Draws;
use crate::world::{World, calm};

/// One seed in so many ends with it.
const ONE_IN: u64 = 20;
/// No object has this number, so what begins a group is bad already; what follows is drawn. Two bytes: one that goes on in a drawn
/// byte is an object's tag if that is 0.
const TAG: [u8; 2] = [0xF8, 0x7F];
/// What may still come of it once all have stopped: some retransmissions and keep-alives.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Whether this scenario ends with it.
pub(crate) fn is_due(world: &World<'_>) -> bool {
    world.scenario.seed % ONE_IN == 7 && world.scenario.members() > 1
}

/// It is written, and all others stop.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn stops_who_reads_it(world: &mut World<'_>) -> Result<(), Failure> {
    let mut draws = Draws::new(world.scenario.seed, 13);
    let writer = draws.within(0, world.scenario.members() as u64 - 1) as usize;
    let mut rough = calm(&world.scenario.link);
    rough.loss = 0.1;
    world.set_links(&rough, false);
    let mut group = TAG.to_vec();
    for _ in 0..draws.within(0, 100) {
        group.push(draws.within(0, 255) as u8);
    }
    let member = &mut world.cluster.members_mut()[writer];
    let name = member.name;
    let Some(sequence) = member.instances[0].commit_foreign(&group) else {
        return Err(Failure::new(
            "a log at rest has room",
            format!("m{writer} could not commit"),
        ));
    };
    let now = world.cluster.now();
    world
        .trace
        .line(|| format!("{now} m{writer} commits what nobody can read as {sequence}"));
    *world.faults.entry("foreign").or_default() += 1;
    let others: Vec<usize> = (0..world.scenario.members())
        .filter(|&place| place != writer)
        .collect();
    let until = now + world.heal_bounds().healed;
    let snapshots: Vec<u64> = (0..world.scenario.members())
        .map(|place| snapshots_joined(world, place))
        .collect();
    // Anyone who falls off a short log is served by a snapshot instead, and never sees the group (seed 745547).
    let was_served =
        |world: &World<'_>, place: usize| snapshots_joined(world, place) > snapshots[place];
    let has_stopped = |world: &World<'_>, place: usize| {
        let mut instances = world.cluster.members()[place].instances.iter();
        instances.all(|instance| {
            matches!(instance.stopped(), Some(StopReason::GroupBad { origin, sequence: of })
                if (origin.member, of) == (name.0, sequence))
        })
    };
    while !others
        .iter()
        .all(|&place| has_stopped(world, place) || was_served(world, place))
    {
        if world.cluster.now() > until {
            return Err(Failure::new(
                "what cannot be read stops its reader",
                format!("not all of {others:?} have stopped"),
            ));
        }
        let step = world.cluster.now() + Duration::from_millis(5);
        world.cluster.run_until(step);
    }
    world.cluster.run_until(world.cluster.now() + AFTERWARDS);
    for (place, member) in world.cluster.members().iter().enumerate() {
        if was_served(world, place) {
            continue;
        }
        let progress = member.channel.progress();
        let believed = others.iter().find(|&&other| {
            if was_served(world, other) {
                return false;
            }
            let of = world.cluster.members()[other].name;
            place == writer
                && progress
                    .member(of)
                    .is_some_and(|of| of.acknowledged >= sequence)
        });
        let applied = place != writer && progress.applied(name) >= sequence;
        if applied || believed.is_some() {
            return Err(Failure::new(
                "what cannot be read is never acknowledged",
                format!("m{place}: applied {applied}, acknowledged by {believed:?}"),
            ));
        }
    }
    Ok(())
}

fn snapshots_joined(world: &World<'_>, place: usize) -> u64 {
    let member = &world.cluster.members()[place];
    member.channel.counters().snapshots_joined
}
