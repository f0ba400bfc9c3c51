//! Alerts of a running host as lines of JSON: see `crate::eve`.
//!
//! Off the packet path: the instance tells a part of its tables of alerts between two bursts, the main thread makes lines of what
//! is new, and a thread of its own writes them. Every host knows all alerts of the cluster; by default the first living one
//! writes them.

use std::sync::mpsc::{Receiver, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::files::key_path;
use asterism_config::{Eve as Settings, EveAlerts, Placement};
use asterism_function::Tick;
use asterism_function::notice::{Notice, questions};
use asterism_placement::Time;
use asterism_placement::replicated::Standing;

use super::dates::Dates;
use super::event_log::Event;
use super::requests::Request;
use super::service::Service;
use crate::eve::ledger::Ledger;
use crate::eve::line::{Author, LineStats, PacketStats, Stats};
use crate::lines::{Sink, Writer};

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
pub struct Eve {
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

impl Service<'_, '_> {
    /// Opens what alerts are written to, if anything.
    pub(super) fn begin_eve(&mut self) -> Result<(), String> {
        let sink = self.open_eve(self.config.host.eve.as_ref());
        let sink = sink.map_err(|error| format!("the host was not started: {error}"))?;
        self.use_eve(sink)
    }

    /// Opens what settings name.
    pub(super) fn open_eve(&self, settings: Option<&Settings>) -> Result<Option<Sink>, String> {
        let Some(settings) = settings else {
            return Ok(None);
        };
        let path = match settings.file.as_os_str().as_encoded_bytes() {
            b"-" => settings.file.clone(),
            _ => key_path(&self.prepared.arguments.config, &settings.file),
        };
        let sink = Sink::open(&path, settings.size_max);
        sink.map(Some)
            .map_err(|error| format!("[host.eve] file: {error}"))
    }

    /// Goes on as the configuration says now, at what was opened for it.
    pub(super) fn use_eve(&mut self, sink: Option<Sink>) -> Result<(), String> {
        let (Some(sink), Some(settings)) = (sink, self.config.host.eve.clone()) else {
            if let Some(eve) = self.eve.take() {
                eve.writer.end();
            }
            return Ok(());
        };
        if let Some(eve) = &mut self.eve {
            eve.settings = settings;
            eve.pending = Some(sink);
            return Ok(());
        }
        let names = &self.view.names;
        // Instances with tables of their own are asked each.
        let is_local =
            |object: &asterism_config::ObjectChoice| object.placement == Placement::Local;
        let instances = match self.config.function.objects.iter().any(is_local) {
            true => self.requests.len(),
            false => 1,
        };
        let now = self.clock.now();
        let questions = questions(names.stages.len());
        self.eve = Some(Eve {
            settings,
            writer: Writer::start("eve", sink, self.view.eve.clone())?,
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
            is_mine: self.writes_alerts(now),
            started: self.tick(self.took_part).saturating_sub(BEFORE_START_S),
            looked: now,
            stats_due: now,
            reported: (
                Time::ZERO,
                self.view.eve.document().map_or(0, |eve| eve.lines_lost),
            ),
        });
        Ok(())
    }

    /// Whether no living member comes before this one.
    fn writes_alerts(&self, now: Time) -> bool {
        let all = self.config.host.eve.as_ref();
        if all.is_some_and(|settings| settings.alerts == EveAlerts::All) {
            return true;
        }
        let snapshot = self.channel.snapshot();
        !snapshot.members.iter().any(|other| {
            let progress = &other.progress;
            let heard = other.admitted.and(progress.heard);
            progress.member.0 < self.member.0
                && progress.standing != Standing::Out
                && heard.is_some_and(|heard| now < heard + SILENCE)
        })
    }

    /// Writes what is new, a bounded part of it.
    pub(super) fn watch_eve(&mut self) {
        let Some(mut eve) = self.eve.take() else {
            return;
        };
        let now = self.clock.now();
        if let Some(sink) = eve.pending.take() {
            eve.pending = eve.writer.go_on_at(sink).err().map(|sink| *sink);
        }
        for _ in 0..PARTS_PER_LOOK {
            let Some(&(instance, stage, question)) = eve.asks.get(eve.next) else {
                break;
            };
            let Some(coming) = &eve.coming else {
                let (parts, coming) = sync_channel(PARTS_MAX);
                let request = Request::Report { question, parts };
                match self.requests[instance].try_send(request) {
                    Ok(()) => eve.coming = Some(coming),
                    Err(TrySendError::Full(_)) => {}
                    // It has ended, and tells nothing any more.
                    Err(TrySendError::Disconnected(_)) => eve.end_part(),
                }
                break;
            };
            match coming.try_recv() {
                Ok(part) => eve.take(stage, &part, now, self.view.dates()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    eve.coming = None;
                    eve.end_part();
                }
            }
        }
        if eve.next >= eve.asks.len() && (now >= eve.looked + LOOK || eve.walks_due > 0) {
            (eve.next, eve.looked) = (0, now);
            eve.is_mine = self.writes_alerts(now);
        }
        if let Some(interval) = eve.settings.stats
            && now >= eve.stats_due
        {
            eve.stats_due = now + interval;
            let stats = self.eve_stats(&eve);
            if let Some(line) = eve.author.stats(stats, self.wall_us(now)) {
                eve.writer.line(line);
            }
        }
        let lost = eve.writer.counts().lines_lost;
        if lost > eve.reported.1 && now >= eve.reported.0 + TELL {
            let file = eve.settings.file.display();
            self.log(&not_written(
                file,
                lost - eve.reported.1,
                self.view.eve.why(),
            ));
            eve.reported = (now, lost);
        }
        self.eve = Some(eve);
    }

    /// Microseconds since 1970 at a time of this host's clock, as the date is now.
    fn wall_us(&self, at: Time) -> u64 {
        self.view.dates().date_us(at)
    }

    fn eve_stats(&self, eve: &Eve) -> Stats {
        let mut packets = PacketStats::default();
        for snapshot in self.view.snapshots().into_iter().flatten() {
            packets.received += snapshot.count("packets_received");
            packets.forwarded += snapshot.count("packets_forwarded");
            for (reason, &count) in asterism_function::Reason::ALL.iter().zip(&snapshot.dropped) {
                packets.dropped += count;
                if count > 0 {
                    *packets.reasons.entry(reason.label()).or_default() += count;
                }
            }
        }
        let counts = eve.writer.counts();
        Stats {
            uptime: self.view.uptime_us() / 1_000_000,
            packets,
            eve: LineStats {
                written: counts.lines,
                lost: counts.lines_lost,
            },
        }
    }

    /// Asks for what was found by now: one walk may be under way that does not find it.
    pub(super) fn hurry_eve(&mut self) {
        if let Some(eve) = &mut self.eve {
            eve.walks_due = 2;
        }
    }

    /// Whether all that was found when it was hurried is handed over.
    pub(super) fn is_eve_reported(&self) -> bool {
        self.eve.as_ref().is_none_or(|eve| eve.walks_due == 0)
    }

    /// Writes what is left, and says what was not written.
    pub(super) fn end_eve(&mut self) {
        let is_reported = self.is_eve_reported();
        let Some(eve) = self.eve.take() else {
            return;
        };
        let lost = eve.writer.end().lines_lost - eve.reported.1;
        let why = match is_reported {
            true => self.view.eve.why(),
            false => "the instances did not tell all of them in time".to_owned(),
        };
        if lost > 0 || !is_reported {
            self.log(&not_written(eve.settings.file.display(), lost, why));
        }
    }
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

impl Eve {
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
