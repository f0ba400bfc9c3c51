//! What a heartbeat says of a running host, from what its threads publish.

use std::time::Duration;

use asterism_engine::transport::ChannelSnapshot;
use asterism_heartbeat::{Heartbeat, Load, Stage};
use asterism_placement::replicated::Standing;
use asterism_placement::{Incarnation, MemberId, Time};

use crate::run::jobs::HostContext;
use crate::run::metering::UsageMeter;
use asterism_host_view::phase::Phase;
use asterism_host_view::statistics::InstanceSnapshot;

/// How often the load is read again.
const LOAD_INTERVAL: Duration = Duration::from_millis(250);
/// A host that serves for so long and was not found equal in all parts, nor different in any, counts as equal: under a load that
/// changes all parts all the time, comparisons come to no end.
const COMPARED_WITHIN: Duration = Duration::from_secs(3);

/// The stage of a host in this phase.
pub(super) fn stage(phase: Phase, incarnation: Incarnation) -> Stage {
    match phase {
        Phase::Listening => Stage::Joining(incarnation.0),
        Phase::Running => Stage::Serving(incarnation.0),
        Phase::Draining | Phase::Telling | Phase::Ended => Stage::Leaving(incarnation.0),
    }
}

/// Fills in what is true of a host that has begun its incarnation.
pub(super) fn of_running(
    heartbeat: Heartbeat,
    now: Time,
    host: &HostContext,
    meter: &mut LoadMeter,
    comparison: &mut Comparison,
    usage: &mut UsageMeter,
) -> Heartbeat {
    let channel = host.channel.snapshot();
    let serves = matches!(heartbeat.stage, Stage::Serving(_));
    let metering = host.metering.as_deref();
    Heartbeat {
        epoch: channel.epoch.0,
        silent: silent(
            &channel,
            host.member,
            host.took_part,
            host.config.cluster.channel.silent_after,
        ),
        digests_agree: comparison.agrees(now, serves, &channel),
        load: meter.read(now, host, &channel),
        usage: usage.read(now, metering, serves),
        ..heartbeat
    }
}

/// The members of the epoch from which nothing came for too long: a bit for each place.
fn silent(channel: &ChannelSnapshot, own: MemberId, since: Time, silent_after: Duration) -> u64 {
    let members = channel.members.iter().filter(|member| {
        let progress = &member.progress;
        let heard = progress.heard.unwrap_or(since).max(since);
        progress.member != own
            && progress.standing != Standing::Out
            && channel.at.since(heard) > silent_after
    });
    members
        .filter_map(|member| 1u64.checked_shl(u32::from(member.progress.member.0).wrapping_sub(1)))
        .fold(0, |silent, bit| silent | bit)
}

/// Whether the host's state was compared with that of the others since it serves.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    serves_since: Option<Time>,
    was_equal: bool,
}

impl Comparison {
    fn agrees(&mut self, now: Time, serves: bool, channel: &ChannelSnapshot) -> bool {
        if !serves {
            *self = Comparison::default();
            return false;
        }
        let since = *self.serves_since.get_or_insert(now);
        let audit = &channel.audit;
        let differs =
            !audit.differing.is_empty() || audit.streams.iter().any(|stream| stream.faults > 0);
        // The reference has nobody to compare itself with.
        let is_compared = audit
            .reference
            .is_some_and(|reference| reference != channel.member);
        let all_equal = audit
            .objects
            .iter()
            .all(|(_, equal_at)| equal_at.is_some_and(|at| at >= since));
        let waited = now.since(since) >= COMPARED_WITHIN;
        self.was_equal |= (is_compared && all_equal)
            || audit.reference == Some(channel.member)
            || audit.objects.is_empty()
            || waited;
        !differs && self.was_equal
    }
}

/// Reads the load now and then.
#[derive(Debug, Default)]
pub(super) struct LoadMeter {
    last: Option<(Time, Duration)>,
    load: Load,
}

impl LoadMeter {
    fn read(&mut self, now: Time, host: &HostContext, channel: &ChannelSnapshot) -> Load {
        if let Some((at, _)) = self.last
            && now.since(at) < LOAD_INTERVAL
        {
            return self.load;
        }
        let processor = processor_time();
        let busy_permille = match self.last {
            Some((at, before)) => permille(
                processor.saturating_sub(before),
                now.since(at) * host.view.instances().max(1) as u32,
            ),
            None => 0,
        };
        self.last = Some((now, processor));
        let snapshots: Vec<InstanceSnapshot> =
            host.view.snapshots().into_iter().flatten().collect();
        let sum = |of: &dyn Fn(&InstanceSnapshot) -> u64| snapshots.iter().map(of).sum::<u64>();
        let lag = channel.members.iter().map(|member| member.lag.age).max();
        self.load = Load {
            packets: sum(&|one| one.count("packets_received")),
            bytes: sum(&|one| {
                let ports = one.ports.iter();
                ports.map(|port| port.statistics.received_bytes).sum()
            }),
            dropped: sum(&InstanceSnapshot::dropped_total),
            // Every instance has the same shared tables: one of them is asked.
            flows: snapshots.first().map_or(0, |one| {
                one.objects
                    .iter()
                    .map(|object| object.live as u64)
                    .max()
                    .unwrap_or(0)
            }),
            lag_us: lag
                .unwrap_or_default()
                .as_micros()
                .try_into()
                .unwrap_or(u32::MAX),
            parked: sum(&|one| one.parked).try_into().unwrap_or(u32::MAX),
            busy_permille,
        };
        self.load
    }
}

/// Processor time that the process has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec.unsigned_abs();
    Duration::new(seconds, time.tv_nsec.unsigned_abs() as u32)
}

fn permille(part: Duration, whole: Duration) -> u16 {
    let permille = part.as_micros() * 1_000 / whole.as_micros().max(1);
    permille.min(1_000) as u16
}
