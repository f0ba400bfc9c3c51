//! Hosts are upgraded one after another, under load and loss, to a build that understands the wire version after this one's. In
//! some seeds one goes back to the old build, and forward again.
//!
//! Nobody may say anything that somebody else does not understand: no datagram and no message is refused for its version, but by a
//! host that went back what those say who were not yet handed the epoch that names it, which is of another epoch too. Once all who
//! take part understand the new version they all speak it, and once one does not, none does.

use std::time::Duration;

use asterism_engine::Member;
use asterism_placement::envelope::{Refused, WIRE_VERSION, WIRE_VERSION_TRIAL};
use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId};
use asterism_secure_channel::Refusal;

use crate::exercise::Exercise;
use crate::rebirth::{INCARNATIONS_APART, ROUNDS, become_equal, hand_out, known_to, pass, spend};
use crate::report::Failure;
use crate::scenario::Draws;
use crate::world::{World, build_host, calm};

/// One seed in so many has an upgrade.
const ONE_IN: u64 = 20;
/// Upgraded hosts that go back, in a hundred seeds with an upgrade.
const BACK_PERCENT: u64 = 40;
/// The last handshake that says what a host understands comes so soon after all are equal: a Hello's longest interval, as often as
/// is lost on the links of an upgrade.
const SAID_WITHIN_STEPS: u32 = 80;

/// Whether this scenario has one.
pub(crate) fn is_due(world: &World<'_>) -> bool {
    world.scenario.seed % ONE_IN == 3 && world.scenario.members() > 1
}

/// Upgrades every member, and what must hold meanwhile and after it.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn live_through(world: &mut World<'_>) -> Result<(), Failure> {
    let mut draws = Draws::new(world.scenario.seed, 11);
    let members = world.scenario.members();
    let first = draws.within(0, members as u64 - 1) as usize;
    let mut steps: Vec<_> = (0..members)
        .map(|step| ((first + step) % members, WIRE_VERSION_TRIAL))
        .collect();
    if draws.percent(BACK_PERCENT) {
        // After some have been upgraded, or all.
        let done = draws.within(1, members as u64) as usize;
        let place = steps[draws.within(0, done as u64 - 1) as usize].0;
        steps.insert(done, (place, WIRE_VERSION));
        steps.push((place, WIRE_VERSION_TRIAL));
    }
    let mut rough = calm(&world.scenario.link);
    (rough.loss, rough.duplication) = (0.1, 0.1);
    world.set_links(&rough, false);
    let mut incarnations: Vec<u64> = (0..members as u64).map(|place| place + 100).collect();
    let mut understand = vec![WIRE_VERSION; members];
    let mut excused = vec![0; members];
    for (step, &(place, newest)) in steps.iter().enumerate() {
        incarnations[place] = place as u64 + INCARNATIONS_APART * (step as u64 + 2);
        understand[place] = newest;
        excused[place] = 0;
        renew(
            world,
            &mut draws,
            (step, place, newest),
            &incarnations,
            &mut excused,
        )?;
        let all = understand.iter().copied().min().unwrap_or(WIRE_VERSION);
        speak(world, all, &excused)?;
    }
    world.calm_all_links();
    become_equal(world)?;
    understood(world, &excused)
}

/// One host stops and comes back as another build, in a new incarnation.
fn renew(
    world: &mut World<'_>,
    draws: &mut Draws,
    (step, place, newest): (usize, usize, u8),
    incarnations: &[u64],
    excused: &mut [u64],
) -> Result<(), Failure> {
    let members = world.scenario.members();
    let all: Vec<_> = (0..members).collect();
    let others: Vec<_> = (0..members).filter(|&other| other != place).collect();
    spend(world, 0..members)?;
    let host = build_host(
        &world.scenario,
        place,
        incarnations[place],
        20 + step as u8,
        |config| {
            config.joins = true;
            config.replica.wire_newest = newest;
        },
    );
    let now = world.cluster.now();
    world
        .trace
        .line(|| format!("{now} m{place} is another build, of version {newest}"));
    world.cluster.replace(place, host);
    world.begins(place);
    *world.faults.entry("upgrade").or_default() += 1;
    let known = known_to(world, &others);
    let member = |(place, &incarnation)| (MemberId(place as u16), Some(Incarnation(incarnation)));
    let roster = Roster {
        epoch: Epoch(step as u32 + 2),
        members: incarnations.iter().enumerate().map(member).collect(),
        assignment: Vec::new(),
    };
    hand_out(world, draws, &all, &roster)?;
    if newest == WIRE_VERSION {
        // What was sent before is still on its way.
        let (delay, jitter) = world.scenario.longest_way();
        pass(world, (delay + jitter + world.scenario.link.jitter) * 2)?;
        excused[place] = refused(&world.cluster.members()[place]);
    }
    understood(world, excused)?;
    // Numbers of one incarnation's stream say nothing of the next.
    world.oracle.used.clear();
    for through in world.oracle.closed.values_mut() {
        // A closing from before may still be on its way, of the old incarnation's by a snapshot.
        *through = u64::MAX;
    }
    for _ in 0..ROUNDS {
        spend(world, 0..members)?;
        understood(world, excused)?;
    }
    become_equal(world)?;
    for place in 0..members {
        let held = known_to(world, &[place]);
        if let Some(token) = known.difference(&held).next() {
            return Err(Failure::new(
                "what a survivor knows reaches all",
                format!("token {token} was known before the upgrade, and m{place} lacks it"),
            ));
        }
    }
    understood(world, excused)
}

/// All speak this version, soon.
fn speak(world: &mut World<'_>, version: u8, excused: &[u64]) -> Result<(), Failure> {
    for _ in 0..SAID_WITHIN_STEPS {
        let members = world.cluster.members();
        if members
            .iter()
            .all(|member| member.channel.secure().speaks() == version)
        {
            return Ok(());
        }
        pass(world, Duration::from_millis(50))?;
        understood(world, excused)?;
    }
    let members = world.cluster.members().iter();
    let spoken: Vec<_> = members
        .map(|member| member.channel.secure().speaks())
        .collect();
    Err(Failure::new(
        "all speak what all understand",
        format!("not {version} but {spoken:?}"),
    ))
}

/// What a member refused for its version.
fn refused(member: &Member<Exercise>) -> u64 {
    let sealed = member.channel.secure().refusals().iter();
    let versions = [Refusal::FutureVersion, Refusal::PastVersion];
    let sealed = sealed.filter(|(reason, _)| versions.contains(reason));
    let mut refused: u64 = sealed.map(|(_, count)| count).sum();
    let counters = member.channel.counters();
    counters.each(|_, reason, count| {
        if reason == Some(Refused::FutureVersion) {
            refused += count;
        }
    });
    refused
}

/// Nothing more was refused for its version.
fn understood(world: &World<'_>, excused: &[u64]) -> Result<(), Failure> {
    for (place, member) in world.cluster.members().iter().enumerate() {
        let more = refused(member) - excused[place];
        if more > 0 {
            return Err(Failure::new(
                "all understand what is said",
                format!("m{place} refused {more} for their version"),
            ));
        }
    }
    Ok(())
}
