//! The auditor at the end of a seed: it finds all replicas equal, and when one of them is made to differ it says so, where
//! it is true and nowhere else. That it says nothing before, whatever happens, is checked after every step.

use std::time::Duration;

use asterism_engine::Cluster;
use asterism_placement::replicated::audit::CYCLE;
use asterism_state::{OriginName, State, Wire, Writer};

use crate::checks;
use crate::exercise::{Exercise, Exercised};
use crate::moved::Moved;
use crate::report::Failure;
use crate::world::World;

/// One seed in so many makes a replica differ.
const EVERY: u64 = 8;
/// Turns of the auditor within which it must have compared everything once all is at rest. A round may be lost with its
/// datagrams, and is then for the next turn.
const CYCLES: u32 = 8;

/// No replica differs, so no auditor may say so: those of the members in which something moved.
pub(crate) fn no_false_alarm(cluster: &Cluster<Exercise>, moved: Moved) -> Result<(), Failure> {
    for (place, member) in moved.members(cluster) {
        if let Some((at, lane, leaves)) = member.channel.auditor().differing().next() {
            return Err(Failure::new(
                "no false alarm",
                format!(
                    "m{place}.{lane} says that {} differs in {at:?}, leaves {leaves:x}",
                    Exercised::OBJECTS[usize::from(at.object)]
                ),
            ));
        }
    }
    Ok(())
}

/// The digests that objects keep are those that a look at all their entries gives.
pub(crate) fn kept_are_true(cluster: &Cluster<Exercise>) -> Result<(), Failure> {
    for (place, member) in cluster.members().iter().enumerate() {
        for instance in &member.instances {
            let seen = instance.digests();
            for (object, &digest) in seen.iter().enumerate() {
                if checks::kept(instance, object as u8).is_some_and(|sum| sum != digest) {
                    return Err(Failure::new(
                        "kept digests are true",
                        format!("m{place}: {}", Exercised::OBJECTS[object]),
                    ));
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn is_due(world: &World<'_>) -> bool {
    world.scenario.seed % EVERY == 1
}

/// All is at rest: the auditor finds that all are equal, then which one is not.
pub(crate) fn finds_the_odd_one(world: &mut World<'_>) -> Result<(), Failure> {
    let begin = world.cluster.now();
    let objects = Exercised::OBJECTS.len() as u8;
    let all_equal = |cluster: &Cluster<Exercise>| {
        cluster.members().iter().all(|member| {
            let auditor = member.channel.auditor();
            let mut since = (0..objects).filter_map(|object| auditor.equal_since(object));
            since.all(|since| since > begin)
        })
    };
    wait(world, "replicas are found equal", all_equal)?;
    let place = world.draws.within(0, world.scenario.members() as u64 - 1) as usize;
    let lane = world
        .draws
        .within(0, u64::from(world.scenario.lanes[place]) - 1) as usize;
    let token = u32::MAX - world.draws.within(0, 1 << 20) as u32;
    let object = Exercised::OBJECTS
        .iter()
        .position(|&name| name == "tokens")
        .unwrap_or(0) as u8;
    let group = an_entry(object, token);
    let other = (place + 1) % world.scenario.members();
    let other = world.cluster.members()[other].channel.replicator().config();
    let origin = OriginName {
        member: other.member.0,
        incarnation: other.incarnation.0,
    };
    let instance = &mut world.cluster.members_mut()[place].instances[lane];
    // Under a number that nobody will have applied.
    if !instance.apply_alone(origin, 1 << 40, &group) {
        return Err(Failure::new(
            "a replica can be made to differ",
            "it refused",
        ));
    }
    world
        .trace
        .line(|| format!("m{place}.{lane} has token {token} and nobody else"));
    let reference = world.cluster.members()[0].channel.auditor().reference();
    wait(world, "a replica that differs is found", |cluster| {
        cluster.members().iter().enumerate().all(|(at, member)| {
            let leads = reference == Some(member.name);
            let odd_reference = reference == Some(cluster.members()[place].name) && lane == 0;
            let expected = (0..member.instances.len()).filter(|&own| {
                let compared = !(leads && own == 0);
                compared && (odd_reference || (at, own) == (place, lane))
            });
            let mut said: Vec<usize> = Vec::new();
            for (found, own, leaves) in member.channel.auditor().differing() {
                if leaves.count_ones() == 1 && found.object == object {
                    said.push(own);
                }
            }
            said.sort_unstable();
            said == expected.collect::<Vec<_>>()
        })
    })
}

fn wait(
    world: &mut World<'_>,
    what: &'static str,
    is_so: impl Fn(&Cluster<Exercise>) -> bool,
) -> Result<(), Failure> {
    let bound = CYCLES * (CYCLE + 4 * world.scenario.longest_way().0 + Duration::from_millis(250));
    let until = world.cluster.now() + bound;
    while !is_so(&world.cluster) {
        if world.cluster.now() > until {
            let tallies: Vec<_> = world
                .cluster
                .members()
                .iter()
                .map(|member| {
                    let auditor = member.channel.auditor();
                    let differing: Vec<_> = auditor.differing().collect();
                    (auditor.reference(), auditor.tally(), differing)
                })
                .collect();
            return Err(Failure::new(
                what,
                format!("not within {bound:?}: {tallies:?}"),
            ));
        }
        let next = world.cluster.now() + Duration::from_millis(20);
        world.cluster.run_until(next);
    }
    Ok(())
}

/// A group that puts one token into the set of them.
fn an_entry(object: u8, token: u32) -> Vec<u8> {
    let mut group = Vec::new();
    let mut out = Writer::new(&mut group, &[]);
    out.u8(object << 3);
    token.encode(&mut out);
    out.varint(1);
    out.u24(1);
    group
}
