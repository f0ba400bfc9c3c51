//! `asterism up`: a whole cluster on one machine, without root.
//!
//! Hosts are processes, which the orchestrator starts, and again when they end (`hosts.rs`). Orchestrator, director, clients and servers
//! are threads of this process (`cluster.rs` joins them); packets go through shared memory. `report.rs` is what the command says in
//! the end, `monitoring.rs` writes the configuration of a Prometheus that watches it, `arrivals.rs` measures how long added hosts take, and
//! `down.rs` is the command that ends a cluster from outside.

mod arrivals;
mod cluster;
mod down;
mod hosts;
mod monitoring;
mod report;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_config::value::show_duration;
use asterism_host::run::signals;
use asterism_local_network::traffic::RoundTrips;
use asterism_orchestrator::run::ClusterView;
use asterism_output::{End, Output};
use asterism_placement::Time;
use clap::Args;

use cluster::{Cluster, UpError};
pub use down::{DOWN, DownArguments, DownReport, command as down};
pub use report::{UP, UpReport};

/// How often anything is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often the state of the cluster is shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(2);
/// How long flows that are under way may take to end.
const LAST_FLOWS: Duration = Duration::from_secs(10);

/// The arguments of `asterism up`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
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
    /// Buckets in which the director moves flows, a power of two
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(256..=65_536))]
    pub buckets: u32,
    /// Packets a second that each link to a host carries at most, as a slow host would; 256 more wait
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub link_rate: Option<u32>,
    /// Where configuration, key, records and logs are kept; without it a temporary folder, which is removed in the end
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// End after so many seconds, instead of at Ctrl-C
    #[arg(long = "for", value_name = "SECONDS")]
    pub seconds: Option<u32>,
    /// UDP flows that begin each second; TCP connections are a fifth of that
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub flows: u32,
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

impl std::fmt::Display for HostRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.max),
            false => write!(f, "{} to {}", self.min, self.max),
        }
    }
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
        Err(error) => output.fail(End::File, &error),
    }
}

fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<UpReport, UpError> {
    let (stop, _hang_up) = signals().map_err(UpError::Signals)?;
    let mut cluster = Cluster::start(arguments)?;
    output.say(&format!(
        "{} NAT hosts, a director, an orchestrator, clients and servers, in {}.\n",
        arguments.hosts,
        cluster.folder().display()
    ));
    let lived = live(&mut cluster, arguments, &stop, output);
    output.say("ending: flows that are under way end, hosts save their state\n");
    let report = lived.and_then(|()| {
        cluster.end_flows(LAST_FLOWS);
        cluster.check()?;
        Ok(cluster.report())
    });
    let ended = cluster.end();
    let report = report?;
    ended?;
    Ok(report)
}

/// Runs the cluster until it is to end.
fn live(
    cluster: &mut Cluster,
    arguments: &Arguments,
    stop: &AtomicBool,
    output: &mut Output<'_>,
) -> Result<(), UpError> {
    let until = arguments
        .seconds
        .map(|seconds| Time::ZERO + Duration::from_secs(seconds.into()));
    let (mut shown, mut is_introduced) = (Time::ZERO, false);
    let mut trips = RoundTrips::default();
    loop {
        let now = cluster.now();
        if stop.load(Ordering::Acquire) || until.is_some_and(|until| now >= until) {
            return Ok(());
        }
        cluster.check()?;
        cluster.wave(now, arguments.wave);
        for line in cluster.turn(LOOK) {
            output.say(&format!("{:>7}  {line}\n", at(now)));
        }
        if !is_introduced && cluster.first_translated().is_some() {
            is_introduced = true;
            output.say(&introduction(cluster));
        }
        if is_introduced && now.since(shown) >= SHOW_INTERVAL {
            shown = now;
            let view = cluster.view();
            let all = cluster.traffic().round_trips;
            let recent = all.since(&trips);
            trips = all;
            let state = state(cluster, &view, &recent);
            output.say(&format!("{:>7}  {state}\n", at(now)));
        }
        output.flush();
    }
}

fn at(now: Time) -> String {
    format!("{:.1} s", now.since(Time::ZERO).as_secs_f64())
}

/// What can be tried, once packets flow.
fn introduction(cluster: &Cluster) -> String {
    let first = cluster.first_translated().unwrap_or_default();
    let mut text = format!(
        "\nPackets are translated after {}. In another terminal:\n",
        show_duration(Duration::from_millis(first.as_millis() as u64),)
    );
    if let Some((name, pid)) = cluster.processes().into_iter().next() {
        text += &format!(
            "  kill -9 {pid}      # host {name}: it is steered around, left out, started again\n"
        );
    }
    if let Some((name, socket)) = cluster.sockets().into_iter().next() {
        text += &format!(
            "  asterism status --socket {}      # host {name}\n",
            socket.display()
        );
    }
    text += &format!(
        "  asterism hosts --api {}      # the cluster, as its orchestrator sees it\n",
        cluster.api()
    );
    text += &format!(
        "  prometheus --config.file {}      # its metrics and alerts\n",
        cluster.prometheus().display()
    );
    text + "Ctrl-C ends everything.\n\n"
}

/// The cluster in one line, with the round trips since the line before.
fn state(cluster: &Cluster, view: &ClusterView, recent: &RoundTrips) -> String {
    let takers = view.hosts.iter().filter(|host| host.takes).count();
    let rate: u64 = view.hosts.iter().map(|host| host.packets_per_s).sum();
    let traffic = cluster.traffic();
    format!(
        "{takers} of {} hosts take packets, {rate} packets/s; flows: {} under way, {} done, {} failed, {} broken; requests lost: {}; 99 % of round trips: {} us",
        view.hosts.len(),
        traffic.under_way(),
        traffic.ended(),
        traffic.failed(),
        traffic.broken(),
        traffic.client.lost,
        recent.permille(990).unwrap_or_default(),
    )
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
