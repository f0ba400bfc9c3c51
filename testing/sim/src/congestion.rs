//! A congested path: changes of accumulators are kept back in windows, which close in time, and nothing else waits.

use std::time::Duration;

use asterism_engine::{Cluster, Member};
use asterism_function::PortNumber;
use asterism_placement::Time;
use asterism_placement::replicated::Standing;

use crate::exercise::{Command, Exercise, Verb};
use crate::rebirth;
use crate::report::Failure;
use crate::scenario::Bounds;
use crate::world::{TURN, World};

/// Who writes over narrow links.
const WRITER: usize = 0;
/// Commands that it is given.
pub(crate) const COMMANDS: u32 = 300;
/// Time between two of them.
const SPACING: Duration = Duration::from_millis(1);
/// Bytes that wait before the narrow link.
const QUEUE_BYTES: usize = 16_384;
/// A member of which somebody is heard has a turn at least so often.
const TURN_MOST: Duration = Duration::from_millis(30);
/// Samples after which the average round trip has forgotten the longest queue.
const SAMPLES: u32 = 100;
/// How long a path must have been free at most before changes go at once again, and how long until that is looked at.
const CALM: Duration = Duration::from_millis(1_100);

/// Windows that should have closed: of each member the round, and since when that is known.
#[derive(Debug, Default)]
pub(crate) struct Overdue(Vec<Option<(u64, Time)>>);

impl Overdue {
    /// No window is open longer than the longest once what was drained was sent, and none that all members have
    /// acknowledged, until the member's next turn.
    pub(crate) fn judge(
        &mut self,
        cluster: &Cluster<Exercise>,
        bounds: &Bounds,
        at: Time,
    ) -> Result<(), Failure> {
        let turn = bounds.flush.max(bounds.keep_alive.min(TURN_MOST)) + TURN * 2;
        self.0.resize(cluster.members().len(), None);
        for (place, member) in cluster.members().iter().enumerate() {
            let window = member.channel.window();
            let reason = match window.round {
                0 => None,
                _ if cluster.is_paused(place) => None,
                _ => why_overdue(member, at),
            };
            let Some(reason) = reason else {
                self.0[place] = None;
                continue;
            };
            let since = match self.0[place] {
                Some((round, since)) if round == window.round => since,
                _ => at,
            };
            self.0[place] = Some((window.round, since));
            if at.since(since) > turn {
                return Err(Failure::new(
                    reason,
                    format!("m{place}: {window:?} should have closed at {since}"),
                ));
            }
        }
        Ok(())
    }
}

fn why_overdue(member: &Member<Exercise>, at: Time) -> Option<&'static str> {
    let replicator = member.channel.replicator();
    let window = replicator.window();
    let progress = replicator.progress().members().iter();
    let mut others =
        progress.filter(|other| other.member != member.name && other.standing == Standing::Current);
    if let Some(through) = window.drained
        && others.clone().next().is_some()
        && others.all(|other| other.acknowledged >= through)
    {
        return Some("an acknowledgement closes the window");
    }
    let is_sent = window
        .drained
        .is_none_or(|through| replicator.sent_through() >= through);
    let open = (at + member.skew).since(window.opened);
    (is_sent && open > replicator.config().coalescing_max).then_some("windows end")
}

/// Has one member add to counters over narrow links, from rest to rest; then no window may stay open.
pub(crate) fn squeeze(world: &mut World<'_>) -> Result<(), Failure> {
    let Some(rate) = world.scenario.squeeze else {
        return Ok(());
    };
    // Deaths and returns find what they find at that moment: it stays what it was.
    if rebirth::is_due(world) {
        return Ok(());
    }
    let others: Vec<u16> = (0..world.scenario.members() as u16)
        .filter(|&other| usize::from(other) != WRITER)
        .collect();
    for &other in &others {
        let link = world.cluster.network_mut().link_mut(WRITER as u16, other);
        link.bits_per_second = Some(rate);
        link.queue_bytes_max = QUEUE_BYTES;
    }
    for number in 0..COMMANDS {
        let verb = if number % 16 == 0 {
            Verb::Note
        } else {
            Verb::Tally
        };
        let command = Command {
            verb,
            key: world.draws.within(0, 39) as u16,
            token: world.next_token,
        };
        world.next_token += 1;
        let now = world.cluster.now();
        world
            .cluster
            .inject(WRITER, 0, PortNumber(0), &command.packet());
        world.take_done(now)?;
        world.run_for(SPACING)?;
    }
    world.calm_all_links();
    // What waits before the link still takes its time.
    world.run_for(Duration::from_millis(QUEUE_BYTES as u64 * 8_000 / rate))
}

/// After a squeeze that has healed: once round trips are short again, changes go at once.
pub(crate) fn end(world: &mut World<'_>) -> Result<(), Failure> {
    let bounds = &world.scenario.bounds;
    let link = &world.scenario.link;
    let (delay, more_jitter) = world.scenario.longest_way();
    let jitter = link.jitter + more_jitter;
    let round_trip = (delay + jitter) * 2;
    // Jitter alone may look like congestion. A clock that steps makes round trips look shorter than any that there can be.
    let unmarks_below = (bounds.congested_above + link.delay / 2) / 2;
    let is_plain = jitter + TURN * 4 < unmarks_below && !world.scenario.clocks_step;
    if world.scenario.squeeze.is_none() || !is_plain || rebirth::is_due(world) {
        return Ok(());
    }
    let within = (bounds.keep_alive + round_trip) * SAMPLES + CALM;
    let until = world.cluster.now() + within;
    while world.cluster.now() < until {
        let open = |place: usize| {
            let member = &world.cluster.members()[place];
            member.channel.window().round != 0
        };
        if !(0..world.scenario.members()).any(open) {
            return Ok(());
        }
        world.run_for(Duration::from_millis(10))?;
    }
    let windows: Vec<_> = world
        .cluster
        .members()
        .iter()
        .map(|member| {
            let replicator = member.channel.replicator();
            let members = replicator.progress().members().iter();
            let trips: Vec<_> = members.map(|other| other.round_trip).collect();
            (replicator.window(), trips)
        })
        .collect();
    Err(Failure::new(
        "a free path has no window",
        format!("{within:?} after the path was free: {windows:?}"),
    ))
}
