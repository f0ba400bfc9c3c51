//! The auditor at the end of a seed: it finds all replicas equal, and when one of them is made to differ it says so, where
//! it is true and nowhere else. That it says nothing before, whatever happens, is checked after every step.

use std::time::Duration;

use asterism_engine::Cluster;
use asterism_placement::replicated::audit::CYCLE;
use asterism_state::{OriginName, State, Wire, Writer};

use crate::checks;
use crate::exercise::{Exercise, Exercised, PLACES};
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
        let mut streams = member.channel.auditor().streams();
        if let Some(fault) = streams.find_map(|stream| stream.last_fault) {
            return Err(Failure::new(
                "streams are delivered as sent",
                format!("m{place}: {fault:?}"),
            ));
        }
    }
    Ok(())
}

/// The digests that objects keep are those that a look at all their entries gives.
pub(crate) fn kept_are_true(cluster: &Cluster<Exercise>) -> Result<(), Failure> {
    for (place, member) in cluster.members().iter().enumerate() {
        for instance in &member.instances {
            for object in 0..Exercised::OBJECTS.len() {
                let seen = instance
                    .state()
                    .object(object as u8)
                    .map(|object| object.announced());
                let kept = checks::kept(instance, object as u8);
                if kept.is_some() && kept != seen {
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

/// All is at rest, and the auditor finds that all are equal.
pub(crate) fn all_is_found_equal(world: &mut World<'_>) -> Result<(), Failure> {
    let begin = world.cluster.now();
    let objects = Exercised::OBJECTS.len() as u8;
    let all_equal = |cluster: &Cluster<Exercise>| {
        cluster.members().iter().all(|member| {
            let auditor = member.channel.auditor();
            let mut since = (0..objects).filter_map(|object| auditor.equal_since(object));
            since.all(|since| since > begin)
        })
    };
    wait(world, "replicas are found equal", all_equal)
}

/// All is at rest: the auditor finds that all are equal, then which one is not.
pub(crate) fn finds_the_odd_one(world: &mut World<'_>) -> Result<(), Failure> {
    all_is_found_equal(world)?;
    let to_the_end = |cluster: &Cluster<Exercise>| {
        cluster.members().iter().all(|member| {
            let mut streams = member.channel.auditor().streams();
            streams.all(|stream| {
                let mut members = cluster.members().iter();
                let origin = members.find(|other| other.name == stream.origin);
                origin.is_none_or(|origin| {
                    origin.channel.replicator().sent_through() == stream.through
                })
            })
        })
    };
    wait(world, "streams are compared to their ends", to_the_end)?;
    let place = world.draws.within(0, world.scenario.members() as u64 - 1) as usize;
    let lane = world
        .draws
        .within(0, u64::from(world.scenario.lanes[place]) - 1) as usize;
    let number = u32::MAX - world.draws.within(0, 1 << 20) as u32;
    let odd = world.draws.within(0, ODD.len() as u64 - 1) as usize;
    let object = Exercised::OBJECTS
        .iter()
        .position(|&name| name == ODD[odd])
        .unwrap_or(0) as u8;
    let other = (place + 1) % world.scenario.members();
    let other = world.cluster.members()[other].channel.config();
    let origin = OriginName {
        member: other.member.0,
        incarnation: other.incarnation.0,
    };
    // Its own cells an instance knows better: alone, it hears of a sibling that is not there.
    let writer = if world.scenario.members() > 1 { 0 } else { 9 };
    let instance = &mut world.cluster.members_mut()[place].instances[lane];
    let filter = Exercised::OBJECTS.iter().zip(instance.entries());
    let bits = filter
        .filter(|(name, _)| **name == "counted")
        .map(|(_, entries)| entries.1)
        .sum();
    let group = an_odd_group(object, ODD[odd], (writer, number), bits);
    // Under a number that nobody will have applied.
    if !instance.apply_alone(origin, 1 << 40, &group) {
        return Err(Failure::new(
            "a replica can be made to differ",
            "it refused",
        ));
    }
    world.trace.line(|| {
        format!(
            "m{place}.{lane} has {number} in {} and nobody else",
            ODD[odd]
        )
    });
    let reference = world.cluster.members()[0].channel.auditor().reference();
    let snapshots = snapshots_joined(&world.cluster);
    wait(world, "a replica that differs is found", |cluster| {
        // Anyone who falls off a short log now is scanned through a replica, perhaps the odd one, and has what it has: seed 21913. Then
        // those differ that have not, unless all have it.
        if snapshots_joined(cluster) > snapshots {
            let mut members = cluster.members().iter();
            let differs = members.any(|member| {
                let mut differing = member.channel.auditor().differing();
                differing.any(|(found, ..)| found.object == object)
            });
            return differs || checks::is_equal(cluster);
        }
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

pub(crate) fn snapshots_joined(cluster: &Cluster<Exercise>) -> u64 {
    let members = cluster.members().iter();
    members
        .map(|member| member.channel.counters().snapshots_joined)
        .sum()
}

pub(crate) fn wait(
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

/// Objects of which one gets something that no other instance has: a table, and one of each kind that accumulates.
const ODD: [&str; 8] = [
    "tokens", "tokens", "commands", "tallies", "loads", "counted", "recent", "heavy",
];

/// A group that puts a token into the set of them, or says what another member's instance added to a cell, or sets bits of the
/// filter, which has so many.
fn an_odd_group(object: u8, name: &str, (lane, number): (u64, u32), bits: usize) -> Vec<u8> {
    let mut group = Vec::new();
    let mut out = Writer::new(&mut group, &[]);
    out.tag(object, 0);
    let total = u64::from(number);
    match name {
        "tokens" => {
            number.encode(&mut out);
            out.varint(1);
            out.u24(1);
        }
        "commands" => {
            out.varint(lane);
            out.varint(total);
        }
        "tallies" => {
            out.varint(lane);
            (number as u16).encode(&mut out);
            out.varint(total);
        }
        "loads" => {
            out.varint(lane);
            out.varint(u64::from(number % PLACES));
            out.varint(total);
        }
        "counted" => {
            // All of the last word, of which a filter never uses all.
            out.varint((bits as u64).saturating_sub(1) / 64);
            out.u64(u64::MAX);
        }
        "recent" => {
            out.varint(lane);
            (number as u16).encode(&mut out);
            out.varint(1);
            out.varint(total);
        }
        _ => {
            out.varint(lane);
            out.varint(0);
            (number as u16).encode(&mut out);
            out.varint(0);
            out.varint(total);
        }
    }
    group
}
