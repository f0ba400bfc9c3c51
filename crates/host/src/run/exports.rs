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
use asterism_functions::ipfix::Export;
use asterism_functions::monitor::{Before, Exporter, ExporterElection, FlowRecord, Span};
use asterism_placement::replicated::Standing;
use asterism_placement::{Incarnation, MemberId, Time};

use super::collector::{self, Collector};
use super::dates::Dates;
use super::event_log::Event;
use super::port_log::PortLog;
use super::requests::Request;
use super::service::Service;
use crate::view::exports::Exported;

/// How often a host looks whether it has to export.
const LOOK: Duration = Duration::from_millis(200);
/// Parts on their way between the instance and the main thread at most.
const PARTS_MAX: usize = 16;
/// Parts of up to 128 records that are sent each time that the main thread looks, every 10 ms.
const PARTS_PER_LOOK: usize = 16;

/// What goes out of a host besides packets: flows of a monitor, ports of a NAT.
#[derive(Debug, Default)]
pub struct Exporting {
    pub(super) flows: Option<Exports>,
    pub(super) ports: Option<PortLog>,
}

/// What a host exports, and where to.
#[derive(Debug)]
pub struct Exports {
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

impl Exports {
    fn new(
        (collector, protocol): (SocketAddr, Export),
        interval_s: Tick,
        member: MemberId,
        now: Tick,
    ) -> Result<Self, String> {
        Ok(Self {
            collector: Collector::open(collector)?,
            interval_s,
            stage: None,
            election: ExporterElection::new(interval_s, now),
            exporter: Exporter::new(u32::from(member.0) + 1).by(protocol),
            before: Vec::new(),
            looked: Time::ZERO,
            wanted: None,
            coming: None,
        })
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
}

/// The monitor whose flows are exported, with its stage in a chain: the first one that has a collector.
fn monitor(settings: &Settings) -> Option<(Option<usize>, (&MonitorSettings, SocketAddr))> {
    collector::find(settings, |settings| match settings {
        Settings::Monitor(monitor) => Some((monitor, monitor.collector?)),
        _ => None,
    })
}

impl Service<'_, '_> {
    /// Opens what flows are exported by, if the function has flows and there is a collector; and what ports are logged by.
    pub(super) fn begin_exports(&mut self) -> Result<(), String> {
        self.begin_port_log()?;
        let Some((stage, (settings, collector))) = monitor(&self.config.function.settings) else {
            return Ok(());
        };
        let interval_s = Tick::try_from(settings.interval.as_secs()).unwrap_or(Tick::MAX);
        let now = self.tick(self.clock.now());
        let to = (collector, settings.protocol);
        let mut exports = Exports::new(to, interval_s, self.member, now)?;
        exports.stage = stage;
        self.view.exports.is_on.store(true, Ordering::Relaxed);
        self.exports.flows = Some(exports);
        Ok(())
    }

    /// The host reads packets from now on: intervals begin, and members that were received by now began before this host did.
    pub(super) fn date_exports(&mut self) {
        let (now, before) = (self.tick(self.clock.now()), self.before(&[], 0));
        if let Some(exports) = &mut self.exports.flows {
            exports.election = ExporterElection::new(exports.interval_s, now);
            exports.before = before;
        }
    }

    /// The cluster's common seconds at a time of this host's clock.
    pub(super) fn tick(&self, at: Time) -> Tick {
        self.view.dates().tick(at)
    }

    /// The hosts before this one; an incarnation that is not `known` was first heard at `since`.
    fn before(
        &self,
        known: &[(MemberId, Incarnation, Before)],
        since: Tick,
    ) -> Vec<(MemberId, Incarnation, Before)> {
        let snapshot = self.channel.snapshot();
        let before = snapshot.members.iter().filter_map(|other| {
            let member = other.progress.member;
            let (incarnation, heard) = (other.admitted?, other.progress.heard?);
            if member.0 >= self.member.0 || other.progress.standing == Standing::Out {
                return None;
            }
            let known = known
                .iter()
                .find(|(of, lived, _)| (*of, *lived) == (member, incarnation));
            let since = known.map_or(since, |(_, _, before)| before.since);
            let heard = self.tick(heard);
            Some((member, incarnation, Before { since, heard }))
        });
        before.collect()
    }

    /// Exports what is due, a bounded part of it.
    pub(super) fn watch_exports(&mut self) {
        self.watch_port_log();
        let Some(mut exports) = self.exports.flows.take() else {
            return;
        };
        let (now, now_s) = (self.clock.now(), self.clock.wall());
        let dates = self.view.dates();
        if exports.coming.is_none() && exports.wanted.is_none() && now >= exports.looked + LOOK {
            exports.looked = now;
            let tick = self.tick(now);
            exports.before = self.before(&exports.before, tick);
            let before: Vec<Before> = exports.before.iter().map(|(_, _, one)| *one).collect();
            exports.wanted = exports.election.due(tick, &before);
        }
        if let Some(interval) = exports.wanted {
            let (parts, coming) = sync_channel(PARTS_MAX);
            // Intervals are of ten seconds at least, so that numbers of those until 2106 leave room for the stage's.
            let question = match exports.stage {
                Some(stage) => Chain::question(stage, interval).unwrap_or(interval),
                None => interval,
            };
            let request = Request::Report { question, parts };
            if self.requests[0].try_send(request).is_ok() {
                (exports.wanted, exports.coming) = (None, Some((interval, coming)));
            }
        }
        if let Some((interval, coming)) = exports.coming.take() {
            let mut is_over = false;
            for _ in 0..PARTS_PER_LOOK {
                match coming.try_recv() {
                    Ok(part) => exports.send(interval, &part, (now_s, dates), &self.view.exports),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        is_over = true;
                        break;
                    }
                }
            }
            if is_over {
                let lost = exports.finish(now_s, &self.view.exports);
                if lost > 0 {
                    self.log(&not_exported(&exports, lost));
                }
            } else {
                exports.coming = Some((interval, coming));
            }
        }
        self.exports.flows = Some(exports);
    }

    /// Whether all is sent that was to be when the host was asked to end: exports that have begun, and what a NAT noted.
    pub(super) fn are_exports_reported(&self) -> bool {
        let flows = self.exports.flows.as_ref();
        self.is_port_log_reported()
            && flows.is_none_or(|flows| flows.coming.is_none() && flows.wanted.is_none())
    }

    /// Ends what is exported, and says what was not.
    pub(super) fn end_exports(&mut self) {
        self.end_port_log();
        if let Some(mut exports) = self.exports.flows.take() {
            let exported = &self.view.exports;
            exports.collector.settle(&exported.messages, &exported.lost);
            let lost = exports.collector.take_lost();
            let is_cut = exports.coming.is_some() || exports.wanted.is_some();
            if lost > 0 || is_cut {
                let mut event = not_exported(&exports, lost);
                if is_cut {
                    event = event.with("why", "the host ended before all were sent");
                }
                self.log(&event);
            }
        }
    }
}

/// That records did not reach the collector.
fn not_exported(exports: &Exports, messages_lost: u64) -> Event {
    Event::warning("flows-not-exported")
        .with("collector", exports.collector.address)
        .with("messages_lost", messages_lost)
        .effect("the records of these messages are lost")
        .cure("see that the collector runs and listens at this address")
}
