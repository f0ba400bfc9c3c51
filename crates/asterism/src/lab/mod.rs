//! `asterism lab`: laboratories in network namespaces, for trying hosts with real programs. Needs root.
//!
//! `up.rs` builds and keeps a laboratory, `demo.rs` downloads through one and reports, `plan.rs` reads the user's own
//! laboratory from a file. The crate `asterism-lab` has the parts.

mod demo;
mod error;
mod plan;
mod up;

use std::path::PathBuf;
use std::time::Duration;

use asterism_config::key_file;
use asterism_config::value;
use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig};
use asterism_lab::{Offloads, Program};
use asterism_output::End;
use asterism_output::Output;
use clap::{Args, Subcommand};

use error::{LaboratoryError, ShareError};

pub use demo::{DemoDocument, LAB_DEMO};
pub use error::{PlanError, PlanFault, PlanTextError};
pub use plan::Plan;
pub use up::{LAB_UP, NodeRow, UpDocument};

/// The arguments of `asterism lab`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// What to do with a laboratory
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with a laboratory.
#[derive(Subcommand, Clone, Debug)]
pub enum Action {
    /// Build a laboratory and keep it until Ctrl-C
    ///
    /// Without a file: a client, NAT hosts with a state channel of the given delay, and a server that gives out documents
    /// (http://198.51.100.2/BYTES). With one: what the file says. Nothing of it has a name outside this process, and
    /// nothing stays behind, however the process ends.
    Up(UpArguments),
    /// Download through NAT hosts, requests through one and replies through others, and say what came of it
    ///
    /// Once with every setting for replies that overtake their session. The exit code is 0 only if all documents came whole
    /// and the packets went the two ways.
    Demo(DemoArguments),
}

/// The arguments of `asterism lab up`.
#[derive(Args, Clone, Debug)]
pub struct UpArguments {
    /// A laboratory of your own, in a file (TOML)
    #[arg(value_name = "LABORATORY", conflicts_with_all = ["hosts", "delay", "loss", "asymmetric", "absent", "offloads"])]
    pub file: Option<PathBuf>,
    /// The laboratory of a NAT cluster
    #[command(flatten)]
    pub nat: NatArguments,
    /// Run this command in the client (or the first node of the file), and end with its exit code
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,
}

/// The arguments of `asterism lab demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// The laboratory
    #[command(flatten)]
    pub nat: NatArguments,
    /// Downloads of 1 MiB with each setting
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub downloads: u32,
}

/// The laboratory of a NAT cluster.
#[derive(Args, Clone, Debug)]
pub struct NatArguments {
    /// NAT hosts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub hosts: u16,
    /// The delay of the state channel, one way
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = value::duration)]
    pub delay: Duration,
    /// The share of the state channel's datagrams that is lost, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub loss: f64,
    /// Send requests through the first host and replies through the others; else each flow takes any host each way
    #[arg(long)]
    pub asymmetric: bool,
    /// What becomes of a reply that overtakes its session: `drop`, or `wait` and a duration
    #[arg(long, value_name = "SETTING", default_value = "wait 150ms")]
    pub absent: String,
    /// Leave offloads on: frames of up to 64 KiB, for bulk traffic
    #[arg(long)]
    pub offloads: bool,
}

fn share(text: &str) -> Result<f64, ShareError> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(ShareError),
    }
}

/// `asterism lab`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let result = match &arguments.action {
        Action::Up(arguments) => up::command(arguments, output),
        Action::Demo(arguments) => demo::command(arguments, output),
    };
    match result {
        Ok(end) => output.end(end),
        Err(error) => output.fail(error.end(), &error),
    }
}

/// The laboratory of a NAT cluster with its hosts, which are this very program.
struct Running {
    lab: NatLab,
    configuration: PathBuf,
    /// The hosts, while they run.
    hosts: Vec<Program>,
}

impl NatArguments {
    /// Builds the laboratory and starts its hosts.
    fn build(&self) -> Result<Running, LaboratoryError> {
        let offloads = if self.offloads {
            Offloads::On
        } else {
            Offloads::Off
        };
        let config = NatLabConfig::new(self.hosts.into(), self.delay)
            .loss(self.loss)
            .offloads(offloads);
        let lab = NatLab::new(&config)?;
        if self.asymmetric {
            lab.requests_through(&[0])?;
            lab.replies_through(&self.answering())?;
        }
        key_file::write_new(&lab.key_file(), 1)?;
        let configuration = lab.write_configuration(&self.host_options(&self.absent))?;
        let hosts = lab.start_hosts(&this_program()?, &configuration)?;
        Ok(Running {
            lab,
            configuration,
            hosts,
        })
    }

    /// What the hosts are like, with this fate of replies that overtake their session.
    fn host_options(&self, absent: &str) -> HostOptions {
        HostOptions {
            bulk: self.offloads,
            ..HostOptions::default().absent(absent)
        }
    }

    /// The hosts through which replies go, when those of requests are apart.
    fn answering(&self) -> Vec<usize> {
        match self.hosts {
            1 => vec![0],
            hosts => (1..usize::from(hosts)).collect(),
        }
    }
}

fn this_program() -> Result<PathBuf, LaboratoryError> {
    std::env::current_exe().map_err(LaboratoryError::NoProgram)
}
