//! `asterism replay`: a capture through a function, on virtual time; the packets that leave go to another capture.
//!
//! `clock.rs` finds the time at which a packet arrives, the configuration the side of the function; `report.rs`
//! counts the results. A program made by `asterism new` calls [`run`] with its own function.

mod clock;
mod error;
mod eve;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_config::direction::{Direction, Side};
use asterism_config::functions::{FunctionSettings, Outside, OutsideFunction, WithFunction};
use asterism_config::wiring;
use asterism_config::{self as config, files};
use asterism_config::{Cluster, Config, Purpose};
use asterism_function::{FlowKey, NetworkFunction, Packet, stage_names};
use asterism_host::eve::line::Author;
use asterism_io::link::LinkConditions;
use asterism_io::port::{CaptureError, CaptureReader, CaptureWriter, CapturedPacket};
use asterism_output::End;
use asterism_output::Output;
use asterism_placement::Time;
use asterism_state::ObjectSettings;

use crate::fleet::{Fleet, FleetConfig};

use clock::CaptureClock;
use eve::Lines;

pub use error::{ReplayError, StartError};
pub use report::{HostReport, REPLAY, ReplayReport};

/// Flows that are distinguished at most; more are counted as one.
const FLOWS_MAX: usize = 1 << 20;
/// A packet that a host cannot take is offered again so often, a millisecond apart.
const OFFERS_MAX: u32 = 100;
/// How long after the last packet parked ones may still leave, and hosts may still learn.
const SETTLE: Duration = Duration::from_secs(3);
const QUIET_LIMIT: Duration = Duration::from_secs(60);
/// Packets between two lines of progress.
const PROGRESS_PACKETS: u64 = 100_000;

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The capture; its packets come from either side, as [`Direction`] says.
    pub input: PathBuf,
    /// A second capture, all of whose packets come from outside; merged by time.
    pub input_outside: Option<PathBuf>,
    /// Where what leaves goes.
    pub output: Option<PathBuf>,
    /// Where alerts go, as lines of JSON.
    pub eve: Option<PathBuf>,
    /// The cluster; its members are the hosts.
    pub cluster: Cluster,
    /// Packet loops of each host.
    pub instances: usize,
    /// Whether packets of one flow go through different hosts in turn; otherwise a flow stays with a host.
    pub spread_packets: bool,
    /// The delay between hosts, one way.
    pub delay: Duration,
    /// Longer gaps between packets are shortened to this.
    pub gap_max: Duration,
    /// Makes the run what it is.
    pub seed: u64,
}

/// The arguments of `asterism replay` beside the configuration.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// The capture to replay (pcap or pcapng, Ethernet)
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// A second capture with packets that come from outside
    #[arg(long = "in-outside", value_name = "CAPTURE")]
    pub input_outside: Option<PathBuf>,
    /// Where to write the packets that leave (pcap)
    #[arg(long = "out", value_name = "CAPTURE")]
    pub output: Option<PathBuf>,
    /// Where to write the alerts, as lines of JSON in the form of Suricata's eve.json
    #[arg(long = "eve", value_name = "FILE")]
    pub eve: Option<PathBuf>,
    /// Run so many hosts instead of the configuration's members, all in one site
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub hosts: Option<u16>,
    /// How packets reach the hosts
    #[arg(long, value_enum, default_value_t = Spread::Packets)]
    pub spread: Spread,
    /// The delay between hosts, one way
    #[arg(long, value_name = "DURATION", default_value = "100us", value_parser = config::value::duration)]
    pub delay: Duration,
    /// Shorten longer gaps in the capture to this
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = config::value::duration)]
    pub gap_max: Duration,
    /// Repeat the run of this number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// How packets reach the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// Packets of one flow go through all hosts in turn
    Packets,
    /// All packets of a flow go through one host
    Flows,
}

/// `asterism replay`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let (file, functions) = (&arguments.config, output.functions());
    let (config, mut report) = match files::load(file, Purpose::Replay, None, functions) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    let config = files::made(config, &mut report);
    output.report(&report);
    let Some(mut config) = config else {
        return output.fail(End::Configuration, "nothing was replayed");
    };
    if let Some(hosts) = arguments.hosts {
        // Others, at no addresses, and all in one site.
        let cluster = &mut config.cluster;
        cluster.members = (1..=hosts).map(|number| format!("host-{number}")).collect();
        cluster.addresses = vec![None; usize::from(hosts)];
        cluster.sites.clear();
    }
    let plan = Plan {
        input: arguments.input.clone(),
        input_outside: arguments.input_outside.clone(),
        output: arguments.output.clone(),
        eve: arguments.eve.clone(),
        cluster: config.cluster.clone(),
        instances: config.host.instances,
        spread_packets: arguments.spread == Spread::Packets,
        delay: arguments.delay,
        gap_max: arguments.gap_max,
        seed: arguments.seed,
    };
    let result = configured(&config, &plan, &mut |packets| {
        output.say(&format!("{} packets\n", config::value::show_count(packets)));
    });
    finish(result, output)
}

/// Shows what came of a replay, and how it ended.
pub fn finish(result: Result<ReplayReport, ReplayError>, output: &mut Output<'_>) -> End {
    let (report, end) = match result {
        Ok(report) => {
            let end = if report.holds() {
                End::Done
            } else {
                End::DoesNotHold
            };
            (report, end)
        }
        Err(error) => {
            let shown = format!("error: {error}\n");
            let report = match error {
                ReplayError::Capture(_, report) | ReplayError::Alerts(_, report) => report,
                ReplayError::Start(error) => return output.fail(End::File, &error),
            };
            output.say(&shown);
            (*report, End::File)
        }
    };
    if output.json() {
        output.document(REPLAY, &report);
    } else {
        output.text(&report.text());
    }
    output.end(end)
}

fn configured(
    config: &Config,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayReport, ReplayError> {
    config.function.settings.with(Configured {
        config,
        plan,
        progress,
    })
}

/// Replays through the function that is configured.
pub(crate) struct Configured<'a> {
    config: &'a Config,
    plan: &'a Plan,
    progress: &'a mut dyn FnMut(u64),
}

impl WithFunction for Configured<'_> {
    type Output = Result<ReplayReport, ReplayError>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let chosen = self.config.function.clone();
        let function = settings.function(&chosen.objects);
        let function = Arc::new(function.map_err(StartError::Function)?);
        let objects = move |name: &str| chosen.object_settings(name);
        let mut direction = settings.direction();
        run(
            &function,
            objects,
            self.plan,
            &mut *direction,
            self.progress,
        )
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        (settings.job::<ReplayJob>().0)(settings, self)
    }
}

/// `asterism replay` for an outside function, compiled for its type.
pub struct ReplayJob(
    for<'a> fn(&Outside, Configured<'a>) -> <Configured<'a> as WithFunction>::Output,
);

impl ReplayJob {
    /// The job of the function with these settings.
    #[must_use]
    pub const fn new<S: OutsideFunction>() -> ReplayJob {
        ReplayJob(|settings, replay| replay.with(settings.settings::<S>()))
    }
}

/// Replays a capture through any function. `progress` receives now and then how many packets were read.
///
/// # Errors
/// See [`ReplayError`].
pub fn run<F: NetworkFunction>(
    function: &Arc<F>,
    objects: impl Fn(&str) -> ObjectSettings + Clone + 'static,
    plan: &Plan,
    direction: &mut dyn Direction<F>,
    progress: &mut dyn FnMut(u64),
) -> Result<ReplayReport, ReplayError> {
    let mut inputs = Inputs::open(plan).map_err(StartError::Capture)?;
    for (path, results) in [(&plan.output, "what leaves"), (&plan.eve, "alerts")] {
        let mut inputs = [Some(&plan.input), plan.input_outside.as_ref()]
            .into_iter()
            .flatten();
        if let Some(path) = path
            && inputs.any(|input| is_same_file(path, input))
        {
            let path = path.clone();
            return Err(StartError::SameFile { path, results }.into());
        }
    }
    let author = Author {
        host: "replay".to_owned(),
        cluster: plan.cluster.name.clone(),
        members: asterism_epochs::MemberNames::listed(plan.cluster.members.clone()),
        stages: stage_names(&**function)
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
    };
    let lines = plan.eve.as_deref().map(|path| Lines::create(path, author));
    let lines = lines.transpose()?;
    let mut writer = match &plan.output {
        Some(path) => Some(CaptureWriter::create(path).map_err(StartError::Capture)?),
        None => None,
    };
    let fleet_config = FleetConfig {
        cluster: plan.cluster.clone(),
        instances: plan.instances,
        link: LinkConditions::with_delay(plan.delay),
        seed: plan.seed,
        jumbo: true,
        counted_incarnations: false,
    };
    let fleet = Fleet::start(&fleet_config, function, objects).map_err(StartError::Fleet)?;
    let mut replay = Replay {
        lines,
        first_ns: 0,
        last: (0, fleet.now()),
        started: fleet.now(),
        fleet,
        flows: BTreeMap::new(),
        shortened: Duration::ZERO,
        report: ReplayReport::default(),
    };
    let mut bytes = Vec::new();
    let failure = loop {
        match inputs.next(&mut bytes) {
            Ok(Some(next)) => {
                replay.packet(plan, direction, next, &mut bytes);
                replay.write(&mut writer);
                replay.query();
                if replay.report.packets_read.is_multiple_of(PROGRESS_PACKETS) {
                    progress(replay.report.packets_read);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    replay.fleet.run_until(replay.fleet.now() + SETTLE);
    replay.report.quiet = replay.fleet.run_until_quiet(QUIET_LIMIT);
    replay.write(&mut writer);
    let lost = replay.end_lines();
    let mut failure = failure;
    if let Some(writer) = &mut writer {
        if let Err(error) = writer.flush() {
            failure.get_or_insert(error);
        }
        replay.report.packets_written = writer.written_packets();
    }
    replay
        .report
        .complete(&replay.fleet, &plan.cluster.members, replay.started);
    replay.report.flows = replay.flows.len() as u64;
    (
        replay.report.clock_steps_back,
        replay.report.clock_step_seconds_most,
    ) = inputs.steps_back();
    match (failure, lost) {
        (None, None) => Ok(replay.report),
        (None, Some(error)) => Err(ReplayError::Alerts(error, Box::new(replay.report))),
        (Some(error), _) => Err(ReplayError::Capture(error, Box::new(replay.report))),
    }
}

struct Replay<F: NetworkFunction> {
    lines: Option<Lines>,
    fleet: Fleet<F>,
    /// The capture's time at the fleet's `started`.
    first_ns: u64,
    /// The capture's own time of the last packet, and the fleet's.
    last: (u64, Time),
    started: Time,
    /// What was cut out of gaps so far.
    shortened: Duration,
    /// Packets of each flow so far.
    flows: BTreeMap<FlowKey, u64>,
    report: ReplayReport,
}

impl<F: NetworkFunction> Replay<F> {
    fn packet(
        &mut self,
        plan: &Plan,
        direction: &mut dyn Direction<F>,
        next: Next,
        bytes: &mut [u8],
    ) {
        if self.report.packets_read == 0 {
            self.first_ns = next.time_ns;
        }
        self.report.packets_read += 1;
        self.wait_for(plan, next.time_ns);
        self.last = (next.stamp_ns, self.fleet.now());
        let (flow, number) = self.count_flow(bytes);
        let hosts = self.fleet.hosts() as u64;
        let lanes = plan.instances as u64;
        let turn = if plan.spread_packets {
            flow.wrapping_add(number)
        } else {
            flow
        };
        let host = (turn % hosts) as usize;
        let lane = (turn / hosts % lanes) as usize;
        let side = if next.is_outside {
            Side::From(wiring::OUTSIDE)
        } else {
            let states = self
                .fleet
                .cluster()
                .members()
                .iter()
                .flat_map(|member| &member.instances);
            direction.side(bytes, &mut states.map(|instance| instance.state()))
        };
        let port = match side {
            Side::From(port) => port,
            Side::Skip(reason) => {
                *self.report.skipped.entry(reason).or_default() += 1;
                return;
            }
        };
        for _ in 0..OFFERS_MAX {
            if self.fleet.inject(host, lane, port, bytes) {
                self.report.packets_taken += 1;
                return;
            }
            self.fleet
                .run_until(self.fleet.now() + Duration::from_millis(1));
        }
        self.report.packets_refused += 1;
    }

    /// Moves the clock to a packet's time. Long gaps are shortened.
    fn wait_for(&mut self, plan: &Plan, time_ns: u64) {
        let since_first = Duration::from_nanos(time_ns.saturating_sub(self.first_ns));
        let due = self.started + since_first.saturating_sub(self.shortened);
        let gap =
            Duration::from_micros(due.as_micros().saturating_sub(self.fleet.now().as_micros()));
        if gap > plan.gap_max {
            self.shortened += gap - plan.gap_max;
            self.report.gaps_shortened += 1;
        }
        self.fleet
            .run_until(self.fleet.now() + gap.min(plan.gap_max));
    }

    /// Writes the alerts that there are by now.
    fn query(&mut self) {
        if let Some(lines) = &mut self.lines {
            let (stamp_ns, then) = self.last;
            let since = self.fleet.now() - then;
            let at_us = stamp_ns / 1_000 + u64::try_from(since.as_micros()).unwrap_or(0);
            lines.query(&self.fleet, at_us);
        }
    }

    /// Writes those that are left; why any was lost.
    fn end_lines(&mut self) -> Option<io::Error> {
        if let Some(lines) = &mut self.lines {
            // Whatever was looked at last, this is another time.
            lines.forget_look();
        }
        self.query();
        let lines = self.lines.as_mut()?;
        lines.finish();
        self.report.alerts_written = lines.written;
        lines.failure.take()
    }

    /// A number that spreads flows, and the packet's number in its flow.
    fn count_flow(&mut self, bytes: &mut [u8]) -> (u64, u64) {
        let Ok(packet) = Packet::parse(bytes) else {
            return (self.report.packets_read, 0);
        };
        let key = FlowKey::of(&packet);
        let spread = key.hash(0);
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&key) {
            return (spread, 0);
        }
        let packets = self.flows.entry(key).or_default();
        *packets += 1;
        (spread, *packets - 1)
    }

    fn write(&mut self, writer: &mut Option<CaptureWriter>) {
        for left in self.fleet.take_left() {
            self.report.packets_left += 1;
            if let Some(writer) = writer {
                let since = left
                    .time
                    .as_micros()
                    .saturating_sub(self.started.as_micros())
                    * 1_000;
                // Losses are counted by the writer, and reported when it is flushed.
                writer.write(
                    self.first_ns.saturating_add(since),
                    left.bytes.len(),
                    &left.bytes,
                );
            }
        }
    }
}

/// One capture, or two merged by time.
struct Inputs {
    inside: Ahead,
    outside: Option<Ahead>,
    /// Why reading ahead failed: reported once the packets before it are handed out.
    failure: Option<CaptureError>,
}

/// A packet that is next.
#[derive(Clone, Copy)]
struct Next {
    /// Its time stamp in the capture.
    stamp_ns: u64,
    /// When it came: see [`CaptureClock`].
    time_ns: u64,
    /// Whether it is of the second capture.
    is_outside: bool,
}

/// A capture with its next packet.
struct Ahead {
    reader: CaptureReader,
    clock: CaptureClock,
    next: Option<Next>,
    bytes: Vec<u8>,
    is_outside: bool,
}

impl Ahead {
    fn open(path: &Path, plan: &Plan, is_outside: bool) -> Result<Ahead, CaptureError> {
        Ok(Ahead {
            reader: CaptureReader::open(path)?,
            clock: CaptureClock::new(plan.gap_max),
            next: None,
            bytes: Vec::new(),
            is_outside,
        })
    }

    fn read(&mut self, failure: &mut Option<CaptureError>) {
        let packet = self.reader.next(&mut self.bytes).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            None
        });
        self.next = packet.map(|CapturedPacket { timestamp_ns, .. }| Next {
            stamp_ns: timestamp_ns,
            time_ns: self.clock.time_of(timestamp_ns),
            is_outside: self.is_outside,
        });
    }

    fn time(&self) -> u64 {
        self.next.map_or(u64::MAX, |next| next.time_ns)
    }
}

impl Inputs {
    fn open(plan: &Plan) -> Result<Inputs, CaptureError> {
        let outside = plan.input_outside.as_deref();
        let outside = outside.map(|path| Ahead::open(path, plan, true));
        let mut inputs = Inputs {
            inside: Ahead::open(&plan.input, plan, false)?,
            outside: outside.transpose()?,
            failure: None,
        };
        inputs.inside.read(&mut inputs.failure);
        if let Some(outside) = &mut inputs.outside {
            outside.read(&mut inputs.failure);
        }
        Ok(inputs)
    }

    /// The next packet by time. An error comes after all packets.
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<Next>, CaptureError> {
        let outside = self
            .outside
            .as_mut()
            .filter(|outside| outside.next.is_some());
        let ahead = match outside {
            Some(outside) if self.inside.next.is_none() || outside.time() < self.inside.time() => {
                outside
            }
            _ => &mut self.inside,
        };
        let Some(next) = ahead.next.take() else {
            return self.failure.take().map_or(Ok(None), Err);
        };
        core::mem::swap(into, &mut ahead.bytes);
        ahead.read(&mut self.failure);
        Ok(Some(next))
    }

    /// How often the clocks of the captures stepped back, and the longest step in seconds.
    fn steps_back(&self) -> (u64, f64) {
        let clocks = [Some(&self.inside), self.outside.as_ref()];
        let clocks = clocks.into_iter().flatten().map(|ahead| &ahead.clock);
        clocks.fold((0, 0.0), |(count, most), clock| {
            let step = clock.step_most.as_secs_f64();
            (count + clock.steps_back, f64::max(most, step))
        })
    }
}

/// Whether both names are of one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
