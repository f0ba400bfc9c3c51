//! Who had which outside ports goes to a file of JSON lines and to a collector, and into `status`: what the NAT's instances noted
//! since the last look.
//!
//! Off the packet path: each instance hands over what it noted between two bursts, the main thread sends it and makes lines of it,
//! and a thread of its own writes these; what finds no room there waits at the instance. What is noted by which instance is said by `asterism_functions::nat`: each thing by one of the cluster's.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use asterism_config::Settings;
use asterism_config::files;
use asterism_config::functions::NatSettings;
use asterism_function::Tick;
use asterism_function::chain::Chain;
use asterism_functions::nat::export::EventExporter;
use asterism_functions::nat::{
    EVENTS_MAX, NEWS_QUESTION, NatEvent, NatEventKind, NatReportPart, NatUse,
};
use asterism_output::Schema;
use asterism_placement::Time;
use serde::Serialize;

use super::job::{HostContext, HostLog, Job, TELL_LAST};
use crate::run::collector::Collector;
use crate::run::error::StartError;
use asterism_event_log::Event;
use asterism_host_view::find_function;
use asterism_host_view::phase::Phase;
use asterism_host_view::ports::PortCounts;
use asterism_host_view::requests::Request;
use asterism_lines::{LinesError, Sink, Writer};

/// How often the instances are asked.
const LOOK: Duration = Duration::from_millis(200);
/// Parts on their way between an instance and the main thread at most.
const PARTS_MAX: usize = 16;
/// Parts of each instance that are taken each time that the main thread looks, every 10 ms.
const PARTS_PER_LOOK: usize = 16;
/// Events of a part at most.
const EVENTS_PER_PART: usize = 128;
/// How often losses are reported.
const TELL: Duration = Duration::from_secs(10);

/// The schema of a line of the log.
const LINE: Schema = Schema {
    name: "asterism.nat-log",
    version: 1,
};

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Line<'a> {
    schema: Schema,
    /// Seconds since 1970.
    at: Tick,
    event: &'static str,
    /// The host that says it.
    host: &'a str,
    inside: Ipv4Addr,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    outside: Ipv4Addr,
    first_port: u16,
    last_port: u16,
    /// Of a block that is freed: since when the subscriber had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Tick>,
}

/// Takes up what the instances know: of what all hosts have alike the most that one of them knows.
fn show(counts: &PortCounts, instances: &[Asked]) {
    let known = instances.iter().map(|one| &one.known);
    let most = |of: fn(&NatUse) -> u32| known.clone().map(of).max().unwrap_or(0).into();
    let sum = |of: fn(&NatUse) -> u64| known.clone().map(of).sum();
    for (place, value) in [
        (&counts.subscribers, most(|one| one.subscribers)),
        (&counts.blocks_used, most(|one| one.blocks_used)),
        (
            &counts.blocks_quarantined,
            most(|one| one.blocks_quarantined),
        ),
        (
            &counts.ports_quarantined,
            sum(|one| one.ports_quarantined.into()),
        ),
        (
            &counts.quarantines_cut_short,
            sum(|one| one.quarantines_cut_short),
        ),
        (&counts.events_lost, sum(|one| one.events_lost)),
        (&counts.exempt, sum(|one| one.exempt)),
    ] {
        place.store(value, Ordering::Relaxed);
    }
}

/// What a host logs of its NAT's ports, and where to.
#[derive(Debug)]
pub(super) struct PortLog {
    /// What the instances are asked: of a chain's stage, if the function is one.
    question: u32,
    file: Option<Writer>,
    collector: Option<Collector>,
    exporter: EventExporter,
    looked: Time,
    /// When losses were reported last.
    reported: Time,
    /// How many lines were lost by then, and how many events at the instances.
    reported_lost: (u64, u64),
    /// The file takes nothing any more: what is noted goes to the collector alone.
    gives_up: bool,
    /// Events that it did not take for that reason.
    given_up: u64,
    instances: Vec<Asked>,
}

/// An instance that is asked what it noted.
#[derive(Debug, Default)]
struct Asked {
    /// What comes of it.
    coming: Option<Receiver<Vec<u8>>>,
    /// What it said last that it knows.
    known: NatUse,
    /// How many times it has to answer before the host may end.
    due: u32,
}

impl Asked {
    fn end(&mut self) {
        self.coming = None;
        self.due = self.due.saturating_sub(1);
    }
}

impl Job for PortLog {
    fn has_turns(&self, phase: Phase) -> bool {
        matches!(phase, Phase::Running | Phase::Draining | Phase::Telling)
    }

    /// Asks the instances what they noted, and writes and sends it: a bounded part each time.
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        self.ask(now, &host.requests);
        self.take_parts(host);
        if let Some(why) = self.losses(now, &host.view.nat_ports) {
            log.write(&not_logged(why));
        }
    }

    /// Asks for all that is noted by now: one answer may be under way that does not tell it.
    fn hurry(&mut self) {
        self.instances.iter_mut().for_each(|one| one.due = 2);
    }

    /// Whether everything is written that must be before the end.
    fn is_reported(&self) -> bool {
        self.instances.iter().all(|one| one.due == 0)
    }
}

impl PortLog {
    /// Opens what ports are logged by, if the function is a NAT.
    pub(super) fn open(host: &HostContext) -> Result<Option<PortLog>, StartError> {
        let Some((stage, settings)) = nat(&host.config.function.settings) else {
            return Ok(None);
        };
        let log = &settings.carrier.log;
        let file = log.file.as_ref().map(|file| {
            let file = files::key_path(&host.config_file, file);
            open(&file, &host.view.nat_ports).map_err(StartError::PortLog)
        });
        let (file, collector) = (file.transpose()?, log.collector.map(Collector::open));
        let collector = collector.transpose()?;
        host.view.nat_ports.is_on.store(true, Ordering::Relaxed);
        Ok(Some(PortLog {
            question: stage
                .and_then(|stage| Chain::question(stage, NEWS_QUESTION))
                .unwrap_or(NEWS_QUESTION),
            file,
            collector,
            exporter: EventExporter::new(u32::from(host.member.0) + 1).by(log.protocol),
            looked: Time::ZERO,
            reported: Time::ZERO,
            reported_lost: (0, 0),
            gives_up: false,
            given_up: 0,
            instances: host.requests.iter().map(|_| Asked::default()).collect(),
        }))
    }

    /// Asks each instance that has answered, if that is due.
    fn ask(&mut self, now: Time, requests: &[SyncSender<Request>]) {
        let looks = now >= self.looked + LOOK;
        if looks {
            self.looked = now;
        }
        for (asked, requests) in self.instances.iter_mut().zip(requests) {
            if asked.coming.is_none() && (looks || asked.due > 0) {
                let (parts, coming) = sync_channel(PARTS_MAX);
                let question = self.question;
                match requests.try_send(Request::Report { question, parts }) {
                    Ok(()) => asked.coming = Some(coming),
                    Err(TrySendError::Full(_)) => {}
                    // It has ended, and tells nothing any more.
                    Err(TrySendError::Disconnected(_)) => asked.due = 0,
                }
            }
        }
    }

    /// Writes and sends parts that came, as long as there is room for them.
    fn take_parts(&mut self, host: &HostContext) {
        let (dates, counts) = (host.view.dates(), &host.view.nat_ports);
        let author = (host.config.host.name.as_str(), host.clock.wall());
        let (mut events, mut is_over) = (Vec::new(), false);
        for place in 0..self.instances.len() {
            for _ in 0..PARTS_PER_LOOK {
                let has_room = self.has_room();
                let asked = &mut self.instances[place];
                let Some(receiver) = asked.coming.as_ref().filter(|_| has_room) else {
                    break;
                };
                match receiver.try_recv() {
                    Ok(part) => {
                        NatReportPart::read_all(&part, |news| match news {
                            NatReportPart::Use(counted) => asked.known = counted,
                            NatReportPart::Event(event) => events.push(NatEvent {
                                at: dates.date_s32(event.at),
                                since: dates.date_s32(event.since),
                                ..event
                            }),
                        });
                        self.write(&events, author, counts);
                        events.clear();
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        asked.end();
                        is_over = true;
                    }
                }
            }
        }
        if is_over {
            show(counts, &self.instances);
        }
    }

    /// Hands events over to be written, and sends them.
    fn write(&mut self, events: &[NatEvent], (host, now_s): (&str, u64), counts: &PortCounts) {
        counts
            .events
            .fetch_add(events.len() as u64, Ordering::Relaxed);
        if self.gives_up && self.file.is_some() {
            self.given_up += events.len() as u64;
        } else if let Some(file) = &self.file {
            for event in events {
                // Plain values only, which are always written.
                let mut text = serde_json::to_string(&line(event, host)).unwrap_or_default();
                text.push('\n');
                file.line(text);
            }
        }
        if let Some(collector) = &mut self.collector {
            let mut send =
                |message: &[u8]| collector.send(message, &counts.messages, &counts.messages_lost);
            for event in events {
                self.exporter.add(event, now_s, &mut send);
            }
            self.exporter.finish(now_s, &mut send);
        }
    }

    /// Whether another part of events can be handed over now.
    fn has_room(&self) -> bool {
        let file = self.file.as_ref();
        self.gives_up || file.is_none_or(|file| file.room() >= EVENTS_PER_PART)
    }

    /// What was lost since it was reported last, at most once in [`TELL`].
    fn losses(&mut self, now: Time, counts: &PortCounts) -> Option<String> {
        if now < self.reported + TELL {
            return None;
        }
        let file = self.file.as_ref();
        let lines = file.map_or(0, |file| file.counts().lines_lost);
        let why = self.losses_of(lines, counts);
        if why.is_some() {
            self.reported = now;
        }
        why
    }

    /// What was lost since it was reported last, if so many lines were in all.
    fn losses_of(&mut self, lines: u64, counts: &PortCounts) -> Option<String> {
        let mut why = Vec::new();
        let events = self.instances.iter().map(|one| one.known.events_lost).sum();
        let (lines_before, events_before) = self.reported_lost;
        self.reported_lost = (lines, events);
        if events > events_before {
            let lost = events - events_before;
            why.push(format!(
                "instances: {lost} events lost: they note {EVENTS_MAX} at most between two looks"
            ));
        }
        if lines > lines_before {
            let lost = lines - lines_before;
            why.push(format!("file: {lost} lines lost: {}", counts.lines.why()));
        }
        if let Some(collector) = &mut self.collector {
            let messages = collector.take_lost();
            if messages > 0 {
                let address = collector.address;
                why.push(format!("collector {address}: {messages} messages lost"));
            }
        }
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// Waits no longer for the file: what it does not take is counted.
    pub(super) fn give_up_file(&mut self) {
        self.gives_up = true;
    }

    /// Writes what is left, and says what was lost.
    pub(super) fn end(self, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some(why) = self.close(&host.view.nat_ports) {
            log.write(&not_logged(why));
        }
    }

    /// Writes what is left; what was lost and not reported yet.
    fn close(mut self, counts: &PortCounts) -> Option<String> {
        let mut why = Vec::new();
        if let Some(collector) = &mut self.collector {
            collector.settle(&counts.messages, &counts.messages_lost);
        }
        if self.given_up > 0 {
            let (lost, waited) = (self.given_up, TELL_LAST.as_secs());
            why.push(format!(
                "file: {lost} lines lost: it took no more within {waited} s of the end"
            ));
        }
        if !self.is_reported() {
            why.push("instances: not all of them reported in time what they noted last".to_owned());
        }
        let lines = self.file.take().map_or(0, |file| file.end().lines_lost);
        why.extend(self.losses_of(lines, counts));
        (!why.is_empty()).then(|| why.join("; "))
    }
}

/// That something is not in the log.
fn not_logged(why: String) -> Event {
    Event::error("port-log-lost")
        .with("why", why)
        .effect("who had these ports is not in this log")
        .cure("see that the disk has room, that a pipe is read, and that the collector listens")
}

fn line<'a>(event: &NatEvent, host: &'a str) -> Line<'a> {
    let is_of_block = event.kind.is_of_block();
    Line {
        schema: LINE,
        at: event.at,
        event: match event.kind {
            NatEventKind::BlockAllocated => "block-allocated",
            NatEventKind::BlockFreed => "block-freed",
            NatEventKind::BindingMade => "binding-made",
            NatEventKind::BindingEnded => "binding-ended",
        },
        host,
        inside: event.inside.address,
        inside_port: (!is_of_block).then_some(event.inside.port),
        protocol: (!is_of_block).then(|| event.inside.protocol.to_string()),
        outside: event.outside,
        first_port: event.ports.0,
        last_port: event.ports.1,
        since: (event.kind == NatEventKind::BlockFreed).then_some(event.since),
    }
}

/// The NAT whose ports are counted or logged, with its stage in a chain: the first one.
fn nat(settings: &Settings) -> Option<(Option<usize>, &NatSettings)> {
    find_function(settings, |settings| match settings {
        Settings::Nat(nat) => Some(nat),
        _ => None,
    })
}

/// What writes a file of events.
fn open(file: &Path, counts: &PortCounts) -> Result<Writer, LinesError> {
    Sink::open(file, u64::MAX)
        .and_then(|sink| Writer::start("port-log", sink, counts.lines.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Endpoint, Protocol};

    #[test]
    fn lines_say_what_each_event_has() {
        let event = NatEvent {
            kind: NatEventKind::BlockFreed,
            at: 20,
            since: 10,
            inside: Endpoint::new(Ipv4Addr::new(10, 0, 0, 5), 0, Protocol(0)),
            outside: Ipv4Addr::new(203, 0, 113, 1),
            ports: (1_024, 1_535),
        };
        let text = serde_json::to_string(&line(&event, "a")).unwrap();
        assert_eq!(
            text,
            "{\"schema\":{\"name\":\"asterism.nat-log\",\"version\":1},\"at\":20,\"event\":\"block-freed\",\"host\":\"a\",\
             \"inside\":\"10.0.0.5\",\"outside\":\"203.0.113.1\",\"first_port\":1024,\"last_port\":1535,\"since\":10}"
        );
        let event = NatEvent {
            kind: NatEventKind::BindingMade,
            inside: Endpoint::new(Ipv4Addr::new(10, 0, 0, 5), 7, Protocol::UDP),
            ..event
        };
        let text = serde_json::to_string(&line(&event, "a")).unwrap();
        assert!(text.contains("\"inside_port\":7,\"protocol\":\"udp\"") && !text.contains("since"));
    }

    #[test]
    fn what_is_not_written_is_counted_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let counts = PortCounts::default();
        let path = folder.path().join("nat.log");
        assert!(open(folder.path(), &counts).is_err());
        let mut log = PortLog {
            question: NEWS_QUESTION,
            file: Some(open(&path, &counts).unwrap()),
            collector: None,
            exporter: EventExporter::new(1),
            looked: Time::ZERO,
            reported: Time::ZERO,
            reported_lost: (0, 0),
            gives_up: false,
            given_up: 0,
            instances: Vec::new(),
        };
        let event = NatEvent {
            kind: NatEventKind::BlockAllocated,
            at: 1,
            since: 1,
            inside: Endpoint::new(Ipv4Addr::new(10, 0, 0, 5), 0, Protocol(0)),
            outside: Ipv4Addr::new(203, 0, 113, 1),
            ports: (1_024, 1_535),
        };
        counts.is_on.store(true, Ordering::Relaxed);
        log.write(&[event, event], ("a", 1), &counts);
        log.file.take().unwrap().end();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        // A disk that is full holds nobody up, and the host stays as it is.
        log.file = Some(open(Path::new("/dev/full"), &counts).unwrap());
        log.write(&[event], ("a", 1), &counts);
        while counts.document().unwrap().lines_lost == 0 {
            std::thread::yield_now();
        }
        assert_eq!(counts.document().unwrap().events, 3);
        assert!(log.has_room());
        let late = Time::ZERO + TELL;
        let reported = log.losses(late, &counts).unwrap();
        assert!(
            reported.contains("1 lines lost") && reported.contains("space"),
            "{reported}"
        );
        assert_eq!(log.losses(late + TELL, &counts), None);
        // What it takes no more at the end is counted.
        log.gives_up = true;
        log.write(&[event, event], ("a", 1), &counts);
        let reported = log.close(&counts).unwrap();
        assert!(
            reported.starts_with("file: 2 lines lost: it took no more"),
            "{reported}"
        );
    }
}
