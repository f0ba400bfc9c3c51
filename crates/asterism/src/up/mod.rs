//! `asterism up`: a whole cluster on one machine.
//!
//! The configuration is given, or written (`written.rs`): a NAT over the local network, without root. `plan.rs` reads it for every
//! role. If its ports lead to the local network, the cluster runs between clients and servers of this process (`cluster.rs`, and
//! `local.rs` for what the file must have); otherwise all its roles are processes (`processes.rs`, and `needs.rs` for what the machine
//! must have). `launched.rs` has the launchers of both, `report.rs` what the command says in the end, `monitoring.rs` the configuration
//! of a Prometheus that watches, `arrivals.rs` how long added hosts take, and `down.rs` the command that ends a cluster from outside.

mod arrivals;
mod cluster;
mod down;
mod error;
mod launched;
mod local;
mod monitoring;
mod needs;
mod plan;
mod processes;
mod report;
mod written;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_host::run::signals;
use asterism_io::clock::MonotonicClock;
use asterism_output::{End, Output};
use asterism_placement::Time;
use clap::Args;

use cluster::Cluster;
pub use down::{DOWN, DownArguments, DownReport, command as down};
use error::UpError;
use local::Local;
use plan::{Ground, Plan};
use processes::Processes;
pub use report::{ProcessReport, TrafficReport, UP, UpReport};

/// How often anything is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often the state of the cluster is shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(2);

/// The arguments of `asterism up`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration of the cluster, all of which is run here; without it one is written, of NAT hosts with clients and servers
    #[arg(value_name = "CONFIG", conflicts_with_all = ["hosts", "scale_above", "rebalance"])]
    pub config: Option<PathBuf>,
    /// Hosts, named a, b, c ...: a number, or MIN..MAX to have them added and removed by load
    #[arg(long, value_name = "HOSTS", default_value = "3")]
    pub hosts: HostRange,
    /// With MIN..MAX: hosts are added while they have more packets a second each, and removed below half of that
    #[arg(long, value_name = "PACKETS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    pub scale_above: u64,
    /// Let flows begin for so many seconds, then none for as long, and so on, instead of at one rate
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub wave: Option<u32>,
    /// Move buckets of the director away from hosts that have more than a tenth above their share
    #[arg(long)]
    pub rebalance: bool,
    /// Buckets in which the director moves flows, a power of two; 16384 without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(256..=65_536))]
    pub buckets: Option<u32>,
    /// Packets a second that each link to a host carries at most, as a slow host would; 256 more wait
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub link_rate: Option<u32>,
    /// Where configuration, key, records and logs are kept; without it the folder of CONFIG, or a temporary one, which is removed in the
    /// end
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// End after so many seconds, instead of at Ctrl-C
    #[arg(long = "for", value_name = "SECONDS")]
    pub seconds: Option<u32>,
    /// UDP flows that begin each second, 50 without it; TCP connections are a fifth of that
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub flows: Option<u32>,
}

impl Arguments {
    /// An option that is of the local network alone, if there is one.
    fn local_option(&self) -> Option<&'static str> {
        let options = [
            (self.flows.is_some(), "--flows"),
            (self.wave.is_some(), "--wave"),
            (self.link_rate.is_some(), "--link-rate"),
            (self.buckets.is_some(), "--buckets"),
        ];
        let mut given = options.into_iter().filter(|(is_given, _)| *is_given);
        given.next().map(|(_, option)| option)
    }
}

/// Hosts of a cluster on one machine at most.
const HOSTS_MAX: u8 = 16;

/// How many hosts there are, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// At least.
    pub min: u8,
    /// At most.
    pub max: u8,
}

/// A text that says no number of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number of hosts from 1 to {HOSTS_MAX}, or two as in 1..3")]
pub struct HostRangeError;

impl FromStr for HostRange {
    type Err = HostRangeError;

    fn from_str(text: &str) -> Result<HostRange, HostRangeError> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse().map_err(|_| HostRangeError);
        let (min, max) = (number(min)?, number(max)?);
        match (1..=HOSTS_MAX).contains(&min) && (min..=HOSTS_MAX).contains(&max) {
            true => Ok(HostRange { min, max }),
            false => Err(HostRangeError),
        }
    }
}

/// A cluster that runs: over the local network, or all by processes.
trait Form {
    /// Waits a moment for news, and returns what is worth a line.
    fn turn(&mut self, wait: Duration) -> Result<Vec<String>, UpError>;
    /// What can be tried, once.
    fn introduction(&mut self) -> Option<String>;
    /// The cluster in one line.
    fn state(&mut self) -> String;
    /// Ends everything, after a failure or `in_order`.
    fn end(self: Box<Self>, in_order: bool) -> Result<UpReport, UpError>;
}

/// `asterism up`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    match run(arguments, output) {
        Ok(report) => {
            if output.json() {
                output.document(UP, &report);
            } else {
                output.text(&report.text());
            }
            output.end(match report.holds {
                true => End::Done,
                false => End::DoesNotHold,
            })
        }
        Err(UpError::Refused(report)) => {
            output.report(&report);
            End::Configuration
        }
        Err(error) => output.fail(error.end(), &error),
    }
}

fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<UpReport, UpError> {
    let clock = MonotonicClock::new();
    let (stop, _hang_up) = signals().map_err(UpError::Signals)?;
    let (plan, local, mut ground) = match &arguments.config {
        Some(file) => {
            let plan = Plan::load(file, output)?;
            // What is refused leaves no folder.
            let local = check(&plan, arguments)?;
            (plan, local, Ground::take(arguments)?)
        }
        None => {
            let ground = Ground::take(arguments)?;
            let file = written::write(&ground.folder, arguments)?;
            let plan = Plan::load(&file, output)?;
            let local = check(&plan, arguments)?;
            (plan, local, ground)
        }
    };
    let (name, hosts) = (&plan.config.cluster.name, plan.hosts.len());
    ground.mark.name(&plan.file)?;
    let (file, function) = (plan.file.display(), plan.config.function.name);
    let mut form: Box<dyn Form> = match local {
        Some(local) => {
            let cluster = Cluster::start(&plan, local, arguments, ground, clock)?;
            output.say(&format!(
                "{file}: up to {hosts} hosts ({function}), a director, an orchestrator, clients and servers.\n"
            ));
            Box::new(cluster)
        }
        None => {
            let processes = Processes::start(&plan, ground, clock)?;
            output.say(&format!("{file}: the cluster {name} ({function}).\n"));
            Box::new(processes)
        }
    };
    let lived = live(&mut *form, arguments, (&stop, clock), output);
    output.say("ending: flows that are under way end, hosts save their state\n");
    let report = form.end(lived.is_ok());
    lived?;
    report
}

/// Whether all that a plan needs is there; what the local network is to be, if the cluster runs over it.
fn check(plan: &Plan, arguments: &Arguments) -> Result<Option<Local>, UpError> {
    if plan.is_local() {
        return Local::of(plan).map(Some);
    }
    if let Some(option) = arguments.local_option() {
        let file = plan.file.clone();
        return Err(UpError::OnlyLocal { option, file });
    }
    needs::check(plan)?;
    Ok(None)
}

/// Runs the cluster until it is to end.
fn live(
    form: &mut dyn Form,
    arguments: &Arguments,
    (stop, clock): (&AtomicBool, MonotonicClock),
    output: &mut Output<'_>,
) -> Result<(), UpError> {
    let until = arguments
        .seconds
        .map(|seconds| Time::ZERO + Duration::from_secs(seconds.into()));
    let (mut shown, mut is_introduced) = (Time::ZERO, false);
    loop {
        let now = clock.now();
        if stop.load(Ordering::Acquire) || until.is_some_and(|until| now >= until) {
            return Ok(());
        }
        for line in form.turn(LOOK)? {
            output.say(&format!("{:>7}  {line}\n", at(now)));
        }
        if let Some(introduction) = form.introduction() {
            is_introduced = true;
            output.say(&introduction);
        }
        if is_introduced && now.since(shown) >= SHOW_INTERVAL {
            shown = now;
            output.say(&format!("{:>7}  {}\n", at(now), form.state()));
        }
        output.flush();
    }
}

fn at(now: Time) -> String {
    format!("{:.1} s", now.since(Time::ZERO).as_secs_f64())
}

/// This program, of which all processes are.
fn program() -> Result<PathBuf, UpError> {
    std::env::current_exe().map_err(|error| UpError::Folder {
        path: PathBuf::from("/proc/self/exe"),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_hosts_is_a_number_or_two() {
        let range = |text: &str| {
            text.parse::<HostRange>()
                .map(|range| (range.min, range.max))
        };
        assert_eq!(range("3"), Ok((3, 3)));
        assert_eq!(range("1..16"), Ok((1, 16)));
        for wrong in [
            "", "0", "17", "3..1", "1..17", "1..", "..3", "a", "1...3", "-1", "1..2..3",
        ] {
            assert_eq!(range(wrong), Err(HostRangeError), "{wrong}");
        }
    }
}
