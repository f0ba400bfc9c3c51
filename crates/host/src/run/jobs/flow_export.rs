//! Flows that the monitor counted go to a collector: by the first living host, once their interval is over.
//!
//! Off the packet path: the first instance reads a part of its table between two bursts, the main thread makes messages of the
//! parts and sends them over UDP, a bounded number each time that it looks. Which host exports is said by
//! `asterism_functions::monitor::ExporterElection`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use asterism_config::Settings;
use asterism_config::functions::MonitorSettings;
use asterism_function::Tick;
use asterism_function::chain::Chain;
use asterism_function::records::read_records;
use asterism_functions::monitor::{Before, Exporter, ExporterElection, FlowRecord, Span};
use asterism_placement::replicated::Standing;
use asterism_placement::{Incarnation, MemberId, Time};

use super::job::{HostContext, HostLog, Job};
use crate::run::collector::{Collector, CollectorError};
use asterism_event_log::Event;
use asterism_host_view::dates::Dates;
use asterism_host_view::exports::Exported;
use asterism_host_view::find_function;
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;

/// How often a host looks whether it has to export.
const LOOK: Duration = Duration::from_millis(200);
/// Parts on their way between the instance and the main thread at most.
const PARTS_MAX: usize = 16;
/// Parts of up to 128 records that are sent each time that the main thread looks, every 10 ms.
const PARTS_PER_LOOK: usize = 16;

/// What a host exports, and where to.
#[derive(Debug)]
pub(super) struct FlowExport {
    collector: Collector,
    interval_s: Tick,
    /// Which stage of a chain counts them, if the function is one.
    stage: Option<usize>,
    election: ExporterElection,
    exporter: Exporter,
    /// Hosts before this one, with the incarnation that is known.
    before: Vec<(MemberId, Incarnation, Before)>,
    looked: Time,
    /// An interval that is to be asked for.
    wanted: Option<u32>,
    /// The interval whose flows come.
    coming: Option<(u32, Receiver<Vec<u8>>)>,
}

impl Job for FlowExport {
    fn has_turns(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Running | Phase::Draining | Phase::Telling)
    }

    /// Exports what is due, a bounded part of it.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        self.look(now, host);
        self.ask(host);
        self.take_parts(host, log);
    }

    /// Whether exports that have begun are sent.
    fn is_reported(&self) -> bool {
        self.coming.is_none() && self.wanted.is_none()
    }
}

impl FlowExport {
    /// Opens what flows are exported by, if the function has flows and there is a collector.
    pub(super) fn open(host: &HostContext) -> Result<Option<FlowExport>, CollectorError> {
        let Some((stage, (settings, collector))) = monitor(&host.config.function.settings) else {
            return Ok(None);
        };
        let interval_s = Tick::try_from(settings.interval.as_secs()).unwrap_or(Tick::MAX);
        let now = host.tick(host.clock.now());
        let collector = Collector::open(collector)?;
        host.view.exports.is_on.store(true, Ordering::Relaxed);
        Ok(Some(FlowExport {
            collector,
            interval_s,
            stage,
            election: ExporterElection::new(interval_s, now),
            exporter: Exporter::new(u32::from(host.member.0) + 1).by(settings.protocol),
            before: Vec::new(),
            looked: Time::ZERO,
            wanted: None,
            coming: None,
        }))
    }

    /// The host reads packets from now on: intervals begin, and members that were received by now began before this host did.
    pub(super) fn begin_running(&mut self, host: &HostContext) {
        let now = host.tick(host.clock.now());
        self.election = ExporterElection::new(self.interval_s, now);
        self.before = before(host, &[], 0);
    }

    /// Looks now and then whether an interval is over that this host has to export.
    fn look(&mut self, now: Time, host: &HostContext) {
        if !self.is_reported() || now < self.looked + LOOK {
            return;
        }
        self.looked = now;
        let tick = host.tick(now);
        self.before = before(host, &self.before, tick);
        let before: Vec<Before> = self.before.iter().map(|(_, _, one)| *one).collect();
        self.wanted = self.election.due(tick, &before);
    }

    /// Asks the first instance for the interval that is wanted, if it takes requests.
    fn ask(&mut self, host: &HostContext) {
        let Some(interval) = self.wanted else {
            return;
        };
        let (parts, coming) = sync_channel(PARTS_MAX);
        // Intervals are of ten seconds at least, so that numbers of those until 2106 leave room for the stage's.
        let question = match self.stage {
            Some(stage) => Chain::question(stage, interval).unwrap_or(interval),
            None => interval,
        };
        let request = Request::Report { question, parts };
        if host.requests[0].try_send(request).is_ok() {
            (self.wanted, self.coming) = (None, Some((interval, coming)));
        }
    }

    /// Sends parts that came.
    fn take_parts(&mut self, host: &HostContext, log: &mut HostLog<'_>) {
        let Some((interval, coming)) = self.coming.take() else {
            return;
        };
        let (now_s, dates) = (host.clock.wall(), host.view.dates());
        for _ in 0..PARTS_PER_LOOK {
            match coming.try_recv() {
                Ok(part) => self.send(interval, &part, (now_s, dates), &host.view.exports),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let lost = self.finish(now_s, &host.view.exports);
                    if lost > 0 {
                        log.write(&not_exported(self, lost));
                    }
                    return;
                }
            }
        }
        self.coming = Some((interval, coming));
    }

    /// Makes messages of a part's records and sends them.
    fn send(
        &mut self,
        interval: u32,
        part: &[u8],
        (now_s, dates): (u64, Dates),
        exported: &Exported,
    ) {
        let span = Span {
            start_s: dates.date_s(interval.saturating_mul(self.interval_s)),
            length_s: self.interval_s,
        };
        let (collector, exporter) = (&mut self.collector, &mut self.exporter);
        read_records(part, |record: FlowRecord| {
            exporter.add(&record, span, now_s, |message| {
                collector.send(message, &exported.messages, &exported.lost)
            });
            exported.records.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn finish(&mut self, now_s: u64, exported: &Exported) -> u64 {
        let collector = &mut self.collector;
        self.exporter.finish(now_s, |message| {
            collector.send(message, &exported.messages, &exported.lost)
        });
        exported.intervals.fetch_add(1, Ordering::Relaxed);
        self.collector.take_lost()
    }

    /// Ends what is exported, and says what was not.
    pub(super) fn end(mut self, host: &HostContext, log: &mut HostLog<'_>) {
        let exported = &host.view.exports;
        self.collector.settle(&exported.messages, &exported.lost);
        let lost = self.collector.take_lost();
        let is_cut = !self.is_reported();
        if lost > 0 || is_cut {
            let mut event = not_exported(&self, lost);
            if is_cut {
                event = event.with("why", "the host ended before all were sent");
            }
            log.write(&event);
        }
    }
}

/// The hosts before this one; an incarnation that is not `known` was first heard at `since`.
fn before(
    host: &HostContext,
    known: &[(MemberId, Incarnation, Before)],
    since: Tick,
) -> Vec<(MemberId, Incarnation, Before)> {
    let snapshot = host.channel.snapshot();
    let before = snapshot.members.iter().filter_map(|other| {
        let member = other.progress.member;
        let (incarnation, heard) = (other.admitted?, other.progress.heard?);
        if member.0 >= host.member.0 || other.progress.standing == Standing::Out {
            return None;
        }
        let known = known
            .iter()
            .find(|(of, lived, _)| (*of, *lived) == (member, incarnation));
        let since = known.map_or(since, |(_, _, before)| before.since);
        let heard = host.tick(heard);
        Some((member, incarnation, Before { since, heard }))
    });
    before.collect()
}

/// The monitor whose flows are exported, with its stage in a chain: the first one that has a collector.
fn monitor(settings: &Settings) -> Option<(Option<usize>, (&MonitorSettings, SocketAddr))> {
    find_function(settings, |settings| match settings {
        Settings::Monitor(monitor) => Some((monitor, monitor.collector?)),
        _ => None,
    })
}

/// That records did not reach the collector.
fn not_exported(exports: &FlowExport, messages_lost: u64) -> Event {
    Event::warning("flows-not-exported")
        .with("collector", exports.collector.address)
        .with("messages_lost", messages_lost)
        .effect("the records of these messages are lost")
        .cure("see that the collector runs and listens at this address")
}
