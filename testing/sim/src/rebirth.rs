//! A member dies in the middle of its work and returns in a new incarnation, with epochs that reach each member at another moment.
//!
//! Until now nobody came or went, and every commit had to reach everybody. From here on what only the dead had is lost;
//! what any survivor has must reach all members of the last epoch, the new incarnation included, and all must be equal.

use std::collections::BTreeSet;
use std::time::Duration;

use asterism_engine::HostConfig;
use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};

use crate::audits;
use crate::checks;
use crate::healing::LOOK_OUT_OF_STEP;
use crate::report::Failure;
use crate::scenario::Draws;
use crate::world::{World, build_host};

/// One seed in so many has a rebirth.
const ONE_IN: u64 = 5;
/// Rounds of load between two changes.
pub(crate) const ROUNDS: u32 = 6;
/// An epoch reaches the last member at most so long after the first.
const SPREAD_US: u64 = 30_000;
/// The new incarnation's name is so much greater.
pub(crate) const INCARNATIONS_APART: u64 = 1_000;
/// How long it may take until all are equal, besides what healing takes. The slowest that is known took 9.8 s for both: logs of eleven
/// groups, sites 41 ms apart (seed 419183).
const JOINING: Duration = Duration::from_secs(16);

/// What is to happen at a moment.
#[derive(Debug)]
struct Handing {
    at: Time,
    place: usize,
    roster: Roster,
}

/// Whether this scenario has one.
pub(crate) fn is_due(world: &World<'_>) -> bool {
    world.scenario.seed % ONE_IN == 2 && world.scenario.members() > 1
}

/// A death, a return, and what must hold after it.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn live_through(world: &mut World<'_>) -> Result<(), Failure> {
    let mut draws = Draws::new(world.scenario.seed, 9);
    let members = world.scenario.members();
    let mut victim = draws.within(0, members as u64 - 1) as usize;
    if let Some(sites) = &world.scenario.sites
        && draws.percent(60)
    {
        // The relay of the site: another one takes over, and gives the office back.
        victim = sites.relay(sites.of[victim]).unwrap_or(victim);
    }
    let at_once = draws.percent(40);
    world.calm_all_links();
    world.cluster.network_mut().change_all(|all| {
        (all.loss, all.duplication) = (0.15, 0.1);
    });
    for _ in 0..ROUNDS {
        spend(world, 0..members)?;
    }
    let (survivors, all): (Vec<_>, Vec<_>) = (
        (0..members).filter(|&place| place != victim).collect(),
        (0..members).collect(),
    );
    let incarnation = Incarnation(victim as u64 + INCARNATIONS_APART);
    let (name, channel, instances) = build_host(
        &world.scenario,
        victim,
        incarnation.0,
        9,
        |config: &mut HostConfig| config.joins = true,
    );
    let now = world.cluster.now();
    world.trace.line(|| format!("{now} m{victim} dies"));
    world.cluster.replace(victim, (name, channel, instances));
    world.begins(victim);
    world.cluster.set_paused(victim, true);
    *world.faults.entry("death").or_default() += 1;

    let old_incarnation = |place: usize| {
        (
            MemberId(place as u16),
            Some(Incarnation(place as u64 + 100)),
        )
    };
    let without: Vec<_> = survivors
        .iter()
        .map(|&place| old_incarnation(place))
        .collect();
    let mut with = without.clone();
    with.push((name, Some(incarnation)));
    spend(world, survivors.iter().copied())?;
    let mut epoch = Epoch(1);
    if !at_once {
        epoch = Epoch(2);
        let roster = Roster {
            epoch,
            members: without,
            assignment: Vec::new(),
        };
        hand_out(world, &mut draws, &survivors, &roster)?;
    }
    world.cluster.set_paused(victim, false);
    let roster = Roster {
        epoch: Epoch(epoch.0 + 1),
        members: with,
        assignment: Vec::new(),
    };
    hand_out(world, &mut draws, &all, &roster)?;
    // Numbers of one incarnation's stream say nothing of the next.
    world.oracle.used.clear();
    for through in world.oracle.closed.values_mut() {
        // A closing from before may still be on its way, of the dead one's incarnation by a snapshot.
        *through = u64::MAX;
    }
    let known = known_to(world, &survivors);
    for _ in 0..ROUNDS {
        spend(world, 0..members)?;
    }
    world.calm_all_links();
    become_equal(world)?;
    for place in 0..members {
        let held = known_to(world, &[place]);
        if let Some(token) = known.difference(&held).next() {
            return Err(Failure::new(
                "what a survivor knows reaches all",
                format!("token {token} was known after m{victim} died, and m{place} lacks it"),
            ));
        }
    }
    forgotten(world)
}

/// Load for some members, and time for it.
pub(crate) fn spend(
    world: &mut World<'_>,
    members: impl IntoIterator<Item = usize>,
) -> Result<(), Failure> {
    for member in members {
        world.load(member)?;
    }
    pass(world, world.scenario.spacing * 2)
}

/// Time passes; calls are looked at as they are made.
pub(crate) fn pass(world: &mut World<'_>, time: Duration) -> Result<(), Failure> {
    let until = world.cluster.now() + time;
    loop {
        let at = world.cluster.now();
        let more = world.cluster.advance(until);
        world.take_done(at)?;
        let moved = world.judged.query(&world.cluster);
        audits::no_false_alarm(&world.cluster, moved)?;
        if !more {
            return world.look_at_what_was_applied();
        }
    }
}

/// Members are handed a roster, each at another moment, while they are under load.
pub(crate) fn hand_out(
    world: &mut World<'_>,
    draws: &mut Draws,
    places: &[usize],
    roster: &Roster,
) -> Result<(), Failure> {
    let now = world.cluster.now();
    let mut handings: Vec<Handing> = places
        .iter()
        .map(|&place| Handing {
            at: now + Duration::from_micros(draws.within(0, SPREAD_US)),
            place,
            roster: roster.clone(),
        })
        .collect();
    handings.sort_by_key(|handing| handing.at);
    for Handing { at, place, roster } in handings {
        pass(world, at.since(world.cluster.now()))?;
        world
            .trace
            .line(|| format!("{at} m{place} is handed epoch {}", roster.epoch.0));
        let installed = world.cluster.install(place, &roster);
        installed
            .map_err(|why| Failure::new("rosters are installed", format!("m{place}: {why}")))?;
        spend(world, places.iter().copied())?;
    }
    Ok(())
}

/// The tokens that any instance of these members holds.
pub(crate) fn known_to(world: &World<'_>, places: &[usize]) -> BTreeSet<u32> {
    let mut known = BTreeSet::new();
    for &place in places {
        for instance in &world.cluster.members()[place].instances {
            instance.state().tokens.for_each(|token, ()| {
                known.insert(token.0);
            });
        }
    }
    known
}

pub(crate) fn become_equal(world: &mut World<'_>) -> Result<(), Failure> {
    let bound = world.heal_bounds().healed;
    let until = world.cluster.now() + bound + JOINING;
    while !(world.cluster.is_quiet() && checks::is_equal(&world.cluster)) {
        if world.cluster.now() > until {
            // What differs says more than how far each is.
            if world.cluster.is_quiet() {
                checks::digests_are_equal(&world.cluster)?;
            }
            let members = world.cluster.members().iter();
            let ended: Vec<_> = members
                .map(|member| {
                    let replicator = member.channel.replicator();
                    let ended: Vec<_> = replicator.ended().collect();
                    (replicator.epoch(), replicator.is_ready(), ended)
                })
                .collect();
            return Err(Failure::new(
                "equal after a death and a return",
                format!(
                    "not {:?} after the last fault: {} {ended:?}",
                    bound + JOINING,
                    checks::standing(&world.cluster)
                ),
            ));
        }
        pass(world, LOOK_OUT_OF_STEP)?;
    }
    checks::digests_are_equal(&world.cluster)
}

/// What idles out is forgotten, though who used it last may be dead.
fn forgotten(world: &mut World<'_>) -> Result<(), Failure> {
    if !world.scenario.afterlife {
        return Ok(());
    }
    let idle = world.scenario.sizes.idle;
    let longest = u64::from(idle[0].max(idle[1]));
    let skew = world
        .scenario
        .skew
        .iter()
        .max()
        .copied()
        .unwrap_or_default();
    world.suspend(Duration::from_secs(longest + longest / 4 + 2) + skew);
    for _ in 0..60 {
        pass(
            world,
            Duration::from_millis(250).max(world.scenario.bounds.keep_alive),
        )?;
        if checks::is_forgotten(&world.cluster) && world.cluster.is_quiet() {
            return Ok(());
        }
    }
    checks::after_incarnation(&world.cluster)
}
