//! Another host with a member's name and key: a cloned snapshot, or one that comes back from another time.
//!
//! It appears while the member itself stands still, after a silence so long that sealing lets it in. The
//! placement must refuse all that it says; then it is gone, and the member must be let in again.

use std::time::Duration;

use asterism_engine::{Destination, HostConfig};
use asterism_function::PortNumber;
use asterism_placement::Epoch;

use crate::exercise::{Command, Verb};
use crate::report::Failure;
use crate::scenario::Stranger;
use crate::world::{World, build_host};

/// Longer than a session must be silent before another takes its place.
const SILENCE: Duration = Duration::from_millis(3_500);
/// Tokens of strangers begin here.
const TOKENS: u32 = 1 << 30;
/// The member whose name it has.
const NAME: usize = 0;

/// How long it waits until all have heard the member itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether all others have heard the member itself. What it wrote they may have by snapshots of others, which do not name its incarnation.
fn is_known(world: &World<'_>) -> bool {
    let mut members = world.cluster.members().iter().enumerate();
    members.all(|(place, member)| {
        let progress = member.channel.progress();
        let of = progress.member(world.cluster.members()[NAME].name);
        place == NAME || of.is_some_and(|of| of.incarnation.is_some())
    })
}

/// It appears, speaks to all, and is gone.
pub(crate) fn appear(world: &mut World<'_>, kind: Stranger) -> Result<(), Failure> {
    world.calm_all_links();
    world.run_for(Duration::from_millis(100))?;
    // Who never heard the member itself takes the stranger for it: seeds 50930, 501967 and 122558.
    let patience = world.cluster.now() + PATIENCE;
    while !is_known(world) {
        if world.cluster.now() > patience {
            return Ok(());
        }
        world.run_for(Duration::from_millis(10))?;
    }
    world.oracle.stranger_about = true;
    world.oracle.strange_messages = u64::MAX;
    world.cluster.set_paused(NAME, true);
    // Nobody is heard for long: the first who speaks under the name is believed, if it proves itself.
    world.suspend(SILENCE);
    let place = world.scenario.members() as u16;
    let born = world.cluster.now();
    let incarnation = match kind {
        Stranger::OtherIncarnation => 999,
        Stranger::OtherEpoch => NAME as u64 + 100,
    };
    let (_, mut channel, mut instances) = build_host(
        &world.scenario,
        NAME,
        incarnation,
        1,
        |config: &mut HostConfig| {
            config.instances = 1;
            config.replica.log_groups_max = 65_536;
            config.replica.log_bytes_max = 1 << 20;
            if kind == Stranger::OtherEpoch {
                config.epoch = Epoch(2);
            }
        },
    );
    let instance = &mut instances[0];
    let mut bytes = Vec::new();
    let groups = world.oracle.heads[NAME] as u32 + 40;
    let mut reported = 0;
    for _ in 0..160 {
        let now = world.cluster.now();
        let local = asterism_placement::Time::from_micros(now.as_micros() - born.as_micros());
        while let Some((from, _, mut datagram)) = world.cluster.take_stray() {
            let _ = channel.handle(local, u64::from(from), &mut datagram);
        }
        for _ in 0..20 {
            if reported < groups {
                reported += 1;
                let command = Command {
                    verb: Verb::Note,
                    key: 1,
                    token: TOKENS + reported,
                };
                instance.inject(local, PortNumber(0), &command.packet());
            }
        }
        channel.turn(local);
        instance.turn(local);
        channel.turn(local);
        while let Some(destination) = channel.poll_transmit(local, &mut bytes) {
            for to in 0..place {
                let meant = match destination {
                    Destination::All | Destination::Near => true,
                    Destination::Member(name) => name.0 == to,
                    Destination::Source(from) => from == u64::from(to),
                };
                if meant && usize::from(to) != NAME {
                    world.cluster.network_mut().send(now, place, to, &bytes);
                }
            }
        }
        world.run_for(Duration::from_millis(1))?;
    }
    // What it sent last is still on its way; handled after the silence, it would count as a sign of life.
    world.run_for(Duration::from_millis(100))?;
    let heard = world
        .cluster
        .members()
        .iter()
        .any(|member| member.channel.tally().refused_opened > 0);
    world
        .trace
        .line(|| format!("the stranger is gone; heard: {heard}"));
    world.cluster.set_paused(NAME, false);
    world.suspend(SILENCE);
    // The member proves itself again.
    world.run_for(Duration::from_millis(1_500))
}
