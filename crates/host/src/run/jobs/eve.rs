//! Alerts of a running host as lines of JSON: see `crate::eve`.
//!
//! Off the packet path: the instance tells a part of its tables of alerts between two bursts, the main thread makes lines of what
//! is new, and a thread of its own writes them. Every host knows all alerts of the cluster; by default the first living one
//! writes them.

use std::sync::mpsc::{Receiver, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::files::key_path;
use asterism_config::{Config, Eve as Settings, EveAlerts, ObjectChoice, Placement};
use asterism_function::notice::{Notice, questions};
use asterism_function::{Reason, Tick};
use asterism_placement::Time;
use asterism_placement::replicated::Standing;

use super::job::{HostContext, HostLog, Job};
use crate::eve::ledger::Ledger;
use crate::eve::line::{Author, LineStats, PacketStats, Stats};
use crate::run::error::AlertsFileError;
use asterism_event_log::Event;
use asterism_host_view::dates::Dates;
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;
use asterism_lines::{LinesError, Sink, Writer};

/// How often alerts are asked for.
const LOOK: Duration = Duration::from_millis(200);
/// A host that was not heard for so long writes no alerts.
const SILENCE: Duration = Duration::from_secs(3);
/// Alerts that others found up to so many seconds before this host could be heard may not have been written: they leave them to this host once
/// they hear it, which may be before it takes part, and their clocks may be ahead.
const BEFORE_START_S: Tick = 5;
/// Parts on their way between an instance and the main thread at most.
const PARTS_MAX: usize = 4;
/// Parts of up to 128 alerts that are looked at each time that the main thread looks, every 10 ms.
const PARTS_PER_LOOK: usize = 8;
/// How often losses are reported.
const TELL: Duration = Duration::from_secs(10);

/// What writes alerts.
#[derive(Debug)]
pub(super) struct Eve {
    settings: Settings,
    writer: Writer,
    /// Opened again, and not handed over yet.
    pending: Option<Sink>,
    author: Author,
    ledger: Ledger,
    /// The next question: the instance, the stage and its question.
    asks: Vec<(usize, usize, u32)>,
    /// The next of them, while they are asked; behind the last: all were.
    next: usize,
    /// Walks that have to end before the host may.
    walks_due: u32,
    coming: Option<Receiver<Vec<u8>>>,
    /// Whether what is reported now is found for the first time by this host.
    is_first_walk: bool,
    is_mine: bool,
    started: Tick,
    looked: Time,
    stats_due: Time,
    reported: (Time, u64),
}

impl Job for Eve {
    fn has_turns(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Running | Phase::Draining | Phase::Telling)
    }

    /// Writes what is new, a bounded part of it.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some(sink) = self.pending.take() {
            self.pending = self.writer.go_on_at(sink).err().map(|sink| *sink);
        }
        for _ in 0..PARTS_PER_LOOK {
            if !self.take_part(now, host) {
                break;
            }
        }
        if self.next >= self.asks.len() && (now >= self.looked + LOOK || self.walks_due > 0) {
            (self.next, self.looked) = (0, now);
            self.is_mine = writes_alerts(now, host);
        }
        self.write_stats(now, host);
        self.report_losses(now, host, log);
    }

    /// Asks for what was found by now: one walk may be under way that does not find it.
    fn hurry(&mut self) {
        self.walks_due = 2;
    }

    fn is_reported(&self) -> bool {
        self.walks_due == 0
    }
}

impl Eve {
    /// Opens what the configuration has alerts written to, if anything.
    pub(super) fn sink(
        config: &Config,
        host: &HostContext,
    ) -> Result<Option<Sink>, AlertsFileError> {
        let Some(settings) = &config.host.eve else {
            return Ok(None);
        };
        let path = match settings.file.as_os_str().as_encoded_bytes() {
            b"-" => settings.file.clone(),
            _ => key_path(&host.config_file, &settings.file),
        };
        let sink = Sink::open(&path, settings.size_max);
        sink.map(Some).map_err(AlertsFileError)
    }

    /// Begins, goes on or ends as the configuration says now, at what was opened for it.
    pub(super) fn go_on(
        eve: &mut Option<Eve>,
        sink: Option<Sink>,
        host: &HostContext,
    ) -> Result<(), LinesError> {
        let (Some(sink), Some(settings)) = (sink, host.config.host.eve.clone()) else {
            if let Some(eve) = eve.take() {
                eve.writer.end();
            }
            return Ok(());
        };
        match eve {
            Some(eve) => {
                eve.settings = settings;
                eve.pending = Some(sink);
            }
            None => *eve = Some(Eve::start(settings, sink, host)?),
        }
        Ok(())
    }

    fn start(settings: Settings, sink: Sink, host: &HostContext) -> Result<Eve, LinesError> {
        let names = &host.view.names;
        // Instances with tables of their own are asked each.
        let is_local = |object: &ObjectChoice| object.placement == Placement::Local;
        let instances = match host.config.function.objects.iter().any(is_local) {
            true => host.requests.len(),
            false => 1,
        };
        let now = host.clock.now();
        let questions = questions(names.stages.len());
        let counts = &host.view.eve;
        Ok(Eve {
            settings,
            writer: Writer::start("eve", sink, counts.clone())?,
            pending: None,
            author: Author {
                host: names.host.clone(),
                cluster: names.cluster.clone(),
                members: names.members.clone(),
                stages: names.stages.iter().map(|&name| name.to_owned()).collect(),
            },
            ledger: Ledger::default(),
            asks: (0..instances)
                .flat_map(|instance| {
                    let each = questions.iter().enumerate();
                    each.map(move |(stage, &question)| (instance, stage, question))
                })
                .collect(),
            next: 0,
            walks_due: 0,
            coming: None,
            is_first_walk: true,
            is_mine: writes_alerts(now, host),
            started: host.tick(host.took_part).saturating_sub(BEFORE_START_S),
            looked: now,
            stats_due: now,
            reported: (
                Time::ZERO,
                counts.document().map_or(0, |eve| eve.lines_lost),
            ),
        })
    }

    /// Asks the next question, or takes a part of its answer. Whether another part may be there.
    fn take_part(&mut self, now: Time, host: &HostContext) -> bool {
        let Some(&(instance, stage, question)) = self.asks.get(self.next) else {
            return false;
        };
        let Some(coming) = &self.coming else {
            let (parts, coming) = sync_channel(PARTS_MAX);
            let request = Request::Report { question, parts };
            match host.requests[instance].try_send(request) {
                Ok(()) => self.coming = Some(coming),
                Err(TrySendError::Full(_)) => {}
                // It has ended, and tells nothing any more.
                Err(TrySendError::Disconnected(_)) => self.end_part(),
            }
            return false;
        };
        match coming.try_recv() {
            Ok(part) => self.take(stage, &part, now, host.view.dates()),
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => {
                self.coming = None;
                self.end_part();
            }
        }
        true
    }

    /// Writes a line of statistics, if that is configured and due.
    fn write_stats(&mut self, now: Time, host: &HostContext) {
        if let Some(interval) = self.settings.stats
            && now >= self.stats_due
        {
            self.stats_due = now + interval;
            let wall_us = host.view.dates().date_us(now);
            if let Some(line) = self.author.stats(self.stats(host), wall_us) {
                self.writer.line(line);
            }
        }
    }

    fn stats(&self, host: &HostContext) -> Stats {
        let mut packets = PacketStats::default();
        for snapshot in host.view.snapshots().into_iter().flatten() {
            packets.received += snapshot.count("packets_received");
            packets.forwarded += snapshot.count("packets_forwarded");
            for (reason, &count) in Reason::ALL.iter().zip(&snapshot.dropped) {
                packets.dropped += count;
                if count > 0 {
                    *packets.reasons.entry(reason.label()).or_default() += count;
                }
            }
        }
        let counts = self.writer.counts();
        Stats {
            uptime: host.view.uptime_us() / 1_000_000,
            packets,
            eve: LineStats {
                written: counts.lines,
                lost: counts.lines_lost,
            },
        }
    }

    fn report_losses(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        let lost = self.writer.counts().lines_lost;
        if lost > self.reported.1 && now >= self.reported.0 + TELL {
            let file = self.settings.file.display();
            let why = host.view.eve.why();
            log.write(&not_written(file, lost - self.reported.1, why));
            self.reported = (now, lost);
        }
    }

    /// Writes what is left, and says what was not written.
    pub(super) fn end(self, host: &HostContext, log: &mut HostLog<'_>) {
        let is_reported = self.is_reported();
        let lost = self.writer.end().lines_lost - self.reported.1;
        let why = match is_reported {
            true => host.view.eve.why(),
            false => "the instances did not tell all of them in time".to_owned(),
        };
        if lost > 0 || !is_reported {
            log.write(&not_written(self.settings.file.display(), lost, why));
        }
    }

    /// All that one instance had to tell of one stage is reported.
    fn end_part(&mut self) {
        self.next += 1;
        if self.next == self.asks.len() {
            self.ledger.end_walk();
            self.walks_due = self.walks_due.saturating_sub(1);
            self.is_first_walk = false;
        }
    }

    /// Takes note of a part of what a stage tells, and writes what is new.
    fn take(&mut self, stage: usize, part: &[u8], at: Time, dates: Dates) {
        let (now, now_us) = (dates.tick(at), dates.date_us(at));
        let Eve {
            ledger,
            author,
            writer,
            ..
        } = self;
        let (is_mine, is_first_walk, started) = (self.is_mine, self.is_first_walk, self.started);
        // A function that is not ours may answer in words of its own.
        let _ = Notice::read_all(part, |notice| {
            let is_old = is_first_walk && notice.first.is_none_or(|first| first < started);
            if !ledger.take(stage, &notice, now, is_mine, is_old) {
                return;
            }
            let at_us = notice
                .first
                .map_or(now_us, |first| dates.date_s(first) * 1_000_000);
            if let Some(line) = author.alert(&notice, stage, at_us) {
                writer.line(line);
            }
        });
    }
}

/// Whether this host writes alerts: no living member comes before it, or all hosts do.
fn writes_alerts(now: Time, host: &HostContext) -> bool {
    let all = host.config.host.eve.as_ref();
    if all.is_some_and(|settings| settings.alerts == EveAlerts::All) {
        return true;
    }
    let snapshot = host.channel.snapshot();
    !snapshot.members.iter().any(|other| {
        let progress = &other.progress;
        let heard = other.admitted.and(progress.heard);
        progress.member.0 < host.member.0
            && progress.standing != Standing::Out
            && heard.is_some_and(|heard| now < heard + SILENCE)
    })
}

/// That alerts were found and are not in the file.
fn not_written(file: impl ToString, lines_lost: u64, why: String) -> Event {
    Event::warning("alerts-not-written")
        .with("file", file)
        .with("lines_lost", lines_lost)
        .with("why", why)
        .effect("these lines are lost; the alerts are in the state (`asterism state get`) until they idle out")
        .cure("make room or see that the reader reads, then `asterism reload` opens it again")
}
