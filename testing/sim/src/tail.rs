//! The last message of a stream is lost: nothing that comes after it tells, so a timer must.
//!
//! What is heard meanwhile of earlier messages must not put that timer off.

use std::time::Duration;

use asterism_function::PortNumber;
use asterism_placement::MemberId;
use asterism_placement::replicated::Standing;

use crate::exercise::{Command, Verb};
use crate::report::Failure;
use crate::world::World;

/// Who writes, and who does not get it.
const WRITER: usize = 0;
const READER: usize = 1;
/// Below it a turn of a host is as long as what is to be distinguished.
const DELAY_LEAST: Duration = Duration::from_millis(1);
/// Longer than any fault holds up a message, but for what a narrow link has queued.
const SPIKE_MOST: Duration = Duration::from_millis(120);
/// Turns of both hosts, and the steps in which it is looked.
const SLACK: Duration = Duration::from_micros(800);
/// Groups beyond the lost one with which it is no tail any more: a tail has at most three runs of groups.
const TAIL_GROUPS: u64 = 3;
/// The steps.
const STEP: Duration = Duration::from_micros(200);

/// Over calm links of a cluster at rest, loses one message after another one, and waits until it was repaired.
pub(crate) fn lose(world: &mut World<'_>) -> Result<(), Failure> {
    let link = crate::world::calm(&world.scenario.link);
    let calm = world
        .scenario
        .way(&link, (WRITER as u16, READER as u16), true);
    let delay = calm.delay;
    if delay < DELAY_LEAST || world.scenario.slow_core {
        return Ok(());
    }
    // What a fault held up is still on its way, and no message overtakes another.
    world.run_for(SPIKE_MOST)?;
    queues_empty(world)?;
    if !is_current(world) || write(world)?.is_none() {
        return Ok(());
    }
    world.run_for(delay / 4)?;
    let (from, to) = (WRITER as u16, READER as u16);
    world.cluster.network_mut().link_mut(from, to).loss = 1.0;
    let committed = world.cluster.now();
    let before = timeout(world, is_reader);
    let written = write(world)?;
    let lookahead = world.scenario.bounds.lookahead;
    world.run_for(lookahead + SLACK)?;
    world.calm_all_links();
    let Some(head) = written else {
        return Ok(());
    };
    // What is heard of the first message may change it.
    let mut longest = before;
    loop {
        longest = longest.max(timeout(world, is_reader));
        let writer = world.cluster.members()[WRITER].channel.replicator();
        // Where a path counts as congested, what goes again waits for a round trip of the slowest since something last did
        // (seed 926520).
        let paused = match writer.window().round {
            0 => Duration::ZERO,
            _ => timeout(world, |_| true),
        };
        let most = longest + paused + lookahead * 2 + delay + calm.jitter + SLACK * 2;
        let reader = &world.cluster.members()[READER];
        let progress = reader.channel.progress();
        if progress.applied(MemberId(from)) >= head {
            return Ok(());
        }
        // What was written since tells of the loss: it is not the last any more, and has no timer of its own.
        if writer.head() >= head + TAIL_GROUPS {
            return Ok(());
        }
        let waited = world.cluster.now() - committed;
        if waited > most {
            return Err(Failure::new(
                "the last message is repaired within a timeout",
                format!(
                    "m{to} lacks it after {waited:?}; the timeout is {longest:?}, the way {delay:?}; the pause {paused:?}"
                ),
            ));
        }
        if !is_current(world) {
            return Ok(());
        }
        world.run_for(STEP)?;
    }
}

/// Waits until what a narrow link between the two had queued has come: what is sent now comes after it (seed 153367).
fn queues_empty(world: &mut World<'_>) -> Result<(), Failure> {
    let (writer, reader) = (WRITER as u16, READER as u16);
    for (from, to) in [(writer, reader), (reader, writer)] {
        let last = world.cluster.network().last_delivery(from, to);
        let left = last.map(|last| last.since(world.cluster.now()));
        world.run_for(left.unwrap_or_default())?;
    }
    Ok(())
}

/// Whether the writer serves the reader from its log, not by a scan through its tables.
fn is_current(world: &World<'_>) -> bool {
    let writer = &world.cluster.members()[WRITER];
    let progress = writer.channel.progress();
    let mut reader = progress.members().iter();
    reader
        .any(|other| other.member == MemberId(READER as u16) && other.standing == Standing::Current)
}

/// A group of the writer: its number, if it could be written.
fn write(world: &mut World<'_>) -> Result<Option<u64>, Failure> {
    let before = world.oracle.heads[WRITER];
    let command = Command {
        verb: Verb::Note,
        key: 0,
        token: world.next_token,
    };
    world.next_token += 1;
    let now = world.cluster.now();
    world
        .cluster
        .inject(WRITER, 0, PortNumber(0), &command.packet());
    world.take_done(now)?;
    let head = world.oracle.heads[WRITER];
    Ok((head > before).then_some(head))
}

fn is_reader(member: MemberId) -> bool {
    member == MemberId(READER as u16)
}

/// The writer's longest retransmission timeout for some members, not backed off (RFC 6298 section 2).
fn timeout(world: &World<'_>, of: impl Fn(MemberId) -> bool) -> Duration {
    let bounds = &world.scenario.bounds;
    let progress = world.cluster.members()[WRITER].channel.progress();
    let others = progress.members().iter();
    let others = others.filter(|other| of(other.member));
    let measured = others.map(|other| {
        let round_trip = &other.round_trip;
        round_trip.average + round_trip.deviation * 4 + bounds.acknowledge_delay
    });
    measured
        .max()
        .unwrap_or_default()
        .max(bounds.retransmit_min)
}
