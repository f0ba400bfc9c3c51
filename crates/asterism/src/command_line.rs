//! The command line: one definition for parsing, help and completions, and the exit code of each command.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use asterism_config::functions::Functions;
use asterism_host::control::Ask;
use asterism_host::run as host;
use asterism_output::{EXIT_CODES, End, Format, Output};
use asterism_rehearsal::{demo, replay, scenario};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::client::Which;
use crate::commands::{
    audit, backends, blocked, bugreport, cluster, digests, flows, manual, rules, scaling, state,
    top, traffic, usage,
};
use crate::{
    check, commands, decrypt, direct, epoch, keygen, keys, lab, orchestrate, scaffold, store, up,
};

/// The program's name.
const NAME: &str = "asterism";

/// Stateful network functions as a cluster that behaves like one box.
#[derive(Parser, Debug)]
#[command(name = NAME, version, about, after_help = EXIT_CODES, propagate_version = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct CommandLine {
    /// The format of standard output: text to read, or one JSON document. Progress goes to standard error.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show a cluster of NATs at work; needs nothing else, ends within half a minute
    ///
    /// Three NAT hosts share their state over an emulated WAN of 40 ms one way, with an IDPS in front of them. Packets of
    /// one flow go through different hosts. The command ends with a table; the exit code is 0 only if the table's checks hold.
    Demo(demo::Arguments),
    /// Run a whole cluster on this machine: that of a configuration, or one that is shown at work and needs nothing else, no root
    ///
    /// Without a configuration: NAT hosts, each a process, behind the built-in director, with an orchestrator, clients and servers; all
    /// packets go through shared memory. Kill a host's process and see what it costs. The configuration is in the folder, and may be
    /// changed and given. With a configuration of other ports: all its orchestrators, directors and hosts, as processes that are started
    /// again when they end; needs the ports, and the right to open them. Ctrl-C ends everything; the exit code is 0 only if every process
    /// ended in order, every flow kept its translation and every byte was right.
    Up(up::Arguments),
    /// End a cluster of `asterism up`, or the processes that a killed `asterism up` left behind
    Down(up::DownArguments),
    /// Build a laboratory of network namespaces to try hosts with real programs; needs root
    Lab(lab::Arguments),
    /// Check a configuration: list every mistake, or describe the host and the cluster that it configures
    Check {
        /// The configuration file
        #[arg(value_name = "CONFIG", required_unless_present = "fields")]
        config: Option<PathBuf>,
        /// List all tables and fields with their meanings, defaults and bounds instead
        #[arg(long, conflicts_with = "config")]
        fields: bool,
        /// Check the configuration as this member reads it, instead of as all members do
        #[arg(long, value_name = "NAME", conflicts_with = "fields")]
        member: Option<String>,
    },
    /// Run a host, a member of the cluster, between real interfaces until it is stopped
    ///
    /// Needs the configuration's ports, and the right to open them. SIGTERM and SIGINT stop the host gracefully, a second
    /// signal immediately; SIGHUP re-reads the configuration.
    Run(host::Arguments),
    /// Run an orchestrator: decide who takes part in the cluster and where packets go, until it is stopped
    ///
    /// Needs `orchestrators` in the configuration's table `cluster`, and the right to write the routes in its table `orchestrator`.
    /// SIGTERM and SIGINT stop it; hosts, routes and the cluster's record stay as they are.
    Orchestrate(orchestrate::Arguments),
    /// Run a director: spread packets over the hosts by Ethernet, as the orchestrators command, until it is stopped
    ///
    /// Needs a table `director` in the configuration's table `orchestrator`, and the right to open the machine's interfaces in it. Of
    /// two directors either may die. SIGTERM and SIGINT stop it.
    Direct(direct::Arguments),
    /// Run a store for objects with placement = "remote": a server of the Redis protocol that needs nothing else, no root
    ///
    /// It holds what instances of a cluster share, in memory, and in a file if one is named. Any program that speaks the Redis protocol
    /// can read it. SIGTERM and SIGINT end it when what it acknowledged is in its file.
    Store(store::Arguments),
    /// Show the hosts of a cluster, or give its orchestrator an order about one of them
    Hosts(cluster::HostsArguments),
    /// Order another number of hosts: the orchestrator starts or drains and stops them
    Scale(scaling::ScaleArguments),
    /// Move a bucket of the director, or a single flow, to a host
    Move(scaling::MoveArguments),
    /// Show what the elasticity policy would do now, what it waits for, and why
    Plan(scaling::PlanArguments),
    /// Show what an orchestrator decided, and why
    Events(cluster::EventsArguments),
    /// Show what is wrong with a cluster, and what to do; exit code 1 if anything is that is not the symptom of something else
    Doctor(cluster::DoctorArguments),
    /// Show what each tenant used since the cluster began: packets, bytes, flows, and time of instances
    Usage(usage::UsageArguments),
    /// Write a token for the HTTP API of orchestrators into its file, or take one away
    Token(cluster::TokenArguments),
    /// Collect what a report of a fault needs into one file: status of all hosts, events, health, metrics; no keys, tokens or entries
    Bugreport(bugreport::BugreportArguments),
    /// Show the status of a running host, or of a cluster by the API of its orchestrator
    Status(commands::StatusArguments),
    /// Show whether a running host's state equals that of the other hosts, which compare continuously; exit code 1 if not
    Audit(audit::AuditArguments),
    /// Show the rates of a running host continuously, or those of a cluster by the API of its orchestrator
    Top(top::TopArguments),
    /// Trace a running host's next packets: each read, write and verdict, and the cost
    Trace(commands::TraceArguments),
    /// Query the state of a running host, or of all hosts by the API of an orchestrator
    #[command(subcommand)]
    State(state::StateCommand),
    /// Show the digests of web caches that a running host knows, and which caches hold an object
    Digests(digests::DigestsArguments),
    /// Show a balancer's services and their backends: the health of each, the health votes, and the number of flows
    Backends(backends::BackendsArguments),
    /// Show the sources that a firewall, or a detector of scans or signatures, blocks on all hosts: until when and why
    Blocked(blocked::BlockedArguments),
    /// Block a source manually, at a running host's firewall or detector of scans or signatures, and so at all hosts
    Block(manual::BlockArguments),
    /// Lift the block of a source early at all hosts, whether an operator or a function began it
    Unblock(manual::UnblockArguments),
    /// Find flows on all hosts, or end flows that a running host's firewall knows
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// Show a firewall's rules and the number of new flows that each decided, over all hosts
    Rules(rules::RulesArguments),
    /// Show the cluster's traffic: the heaviest flows, which hosts talk to which others, and the volume of each protocol
    ///
    /// Needs the function `monitor`, alone or as a stage of a chain; of several, the first is queried. Any host answers for the
    /// whole cluster, because all hosts share the counts.
    Traffic(traffic::TrafficArguments),
    /// Make a running host read no more packets; the host stays a member until it is stopped
    Drain(Which),
    /// Make a running host re-read its configuration
    Reload(Which),
    /// Stop a running host gracefully
    Stop(Which),
    /// Run a capture through the configured function and write the packets that leave
    ///
    /// Virtual time follows the capture, so a run takes only as long as the work. With several hosts, packets of one flow go
    /// through different hosts unless configured otherwise. Answers in a capture of a NAT's inside are addressed to the
    /// outside endpoint that the NAT gave their session.
    Replay(replay::Arguments),
    /// Run scenarios: configurations, packets and expected results; the exit code says whether all hold
    ///
    /// Time is virtual, and a scenario needs nothing but its files. A scenario is a configuration, a line `---`, and one step a
    /// line: packets that arrive at hosts, packets that must leave or be dropped, state that must be known, deaths and returns of
    /// hosts. The first step that does not hold ends a scenario; the report shows the actual result beside that step.
    Test(scenario::Arguments),
    /// Open the sealed datagrams of a capture for Wireshark
    ///
    /// Writes every packet as it was, with the sealed text in the clear, for the dissector in tools/wireshark. Needs the cluster's
    /// key and, for each session, one handshake in this capture or in another. Hosts exchange handshakes when a host starts.
    Decrypt(decrypt::Arguments),
    /// Write a network function of your own, in a crate of its own, ready to build and test
    New {
        /// The function's name, such as `rate-monitor`; the folder gets it too
        name: String,
        /// Where to put the folder
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        into: PathBuf,
        /// Use the Asterism sources in this folder instead of those on the internet
        #[arg(long, value_name = "FOLDER")]
        asterism: Option<PathBuf>,
    },
    /// Write a new cluster key into a file that only you can read
    Keygen {
        /// The file; it must not exist
        #[arg(default_value = "cluster.key")]
        file: PathBuf,
        /// The key's number, which distinguishes keys during a change of keys
        #[arg(long, default_value_t = 1)]
        id: u8,
    },
    /// Change the cluster's key while its hosts run: show the keys, or take one of three steps
    ///
    /// Add a new key (--new), make all hosts send with the new key (--use), drop the old key (--drop). After each step copy the
    /// file to every host; hosts load the file by themselves. A step is refused while the host that runs here shows that the step
    /// is too early.
    Key(keys::Arguments),
    /// Set the cluster's members and their incarnations: show the epoch file, write the next epoch, or hand it to hosts
    ///
    /// A running host checks its file five times a second. --hand gives the epoch to the hosts on this machine immediately: each
    /// host checks the epoch, writes it into its own file before it is in force, and reports the epoch in force. Handing an epoch
    /// again is always safe. For hosts elsewhere: `ssh HOST asterism epoch CONFIG --hand --file - < epoch.toml`.
    Epoch(epoch::Arguments),
    /// Print completions for a shell, to be saved where the shell looks for them
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Runs a command line; all its output goes to `stdout` and `stderr`.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    coloured: bool,
) -> End {
    let program = (NAME, Functions::default());
    run_with(program, arguments, stdout, stderr, coloured)
}

/// As [`run`], in a program of this name and with these functions.
pub(crate) fn run_with(
    (name, functions): (&'static str, Functions),
    arguments: impl IntoIterator<Item = OsString>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    coloured: bool,
) -> End {
    let parsed = definition(name).try_get_matches_from(arguments);
    let command_line = match parsed.and_then(|found| CommandLine::from_arg_matches(&found)) {
        Ok(command_line) => command_line,
        Err(error) => return refuse(&error, stdout, stderr, coloured),
    };
    let output = Output::new(command_line.format, stdout, stderr, coloured);
    let mut output = output.for_functions(functions);
    match command_line.command {
        Command::Check { fields: true, .. } => check::fields(&mut output),
        Command::Check { config, member, .. } => {
            check::run(&config.unwrap_or_default(), member.as_deref(), &mut output)
        }
        Command::Run(arguments) => host::command(&arguments, &mut output),
        Command::Orchestrate(arguments) => orchestrate::command(&arguments, &mut output),
        Command::Direct(arguments) => direct::command(&arguments, &mut output),
        Command::Store(arguments) => store::command(&arguments, &mut output),
        Command::Hosts(arguments) => cluster::hosts(&arguments, &mut output),
        Command::Scale(arguments) => scaling::scale(&arguments, &mut output),
        Command::Move(arguments) => scaling::move_to(&arguments, &mut output),
        Command::Plan(arguments) => scaling::plan(&arguments, &mut output),
        Command::Events(arguments) => cluster::events(&arguments, &mut output),
        Command::Doctor(arguments) => cluster::doctor(&arguments, &mut output),
        Command::Usage(arguments) => usage::command(&arguments, &mut output),
        Command::Token(arguments) => cluster::token(&arguments, &mut output),
        Command::Bugreport(arguments) => bugreport::bugreport(&arguments, &mut output),
        Command::Status(arguments) => commands::status(&arguments, &mut output),
        Command::Audit(arguments) => audit::audit(&arguments, &mut output),
        Command::Top(arguments) => top::top(&arguments, &mut output),
        Command::Trace(arguments) => commands::trace(&arguments, &mut output),
        Command::State(command) => state::state(&command, &mut output),
        Command::Digests(arguments) => digests::digests(&arguments, &mut output),
        Command::Backends(arguments) => backends::backends(&arguments, &mut output),
        Command::Blocked(arguments) => blocked::blocked(&arguments, &mut output),
        Command::Block(arguments) => manual::block(&arguments, &mut output),
        Command::Unblock(arguments) => manual::unblock(&arguments, &mut output),
        Command::Flows(command) => flows::flows(&command, &mut output),
        Command::Rules(arguments) => rules::rules(&arguments, &mut output),
        Command::Traffic(arguments) => traffic::traffic(&arguments, &mut output),
        Command::Drain(which) => commands::tell(&which, &Ask::Drain, &mut output),
        Command::Reload(which) => commands::tell(&which, &Ask::Reload, &mut output),
        Command::Stop(which) => commands::tell(&which, &Ask::Stop, &mut output),
        Command::Up(arguments) => up::command(&arguments, &mut output),
        Command::Down(arguments) => up::down(&arguments, &mut output),
        Command::Demo(arguments) => demo::command(&arguments, &mut output),
        Command::Lab(arguments) => lab::command(&arguments, &mut output),
        Command::Replay(arguments) => replay::command(&arguments, &mut output),
        Command::Test(arguments) => scenario::command(&arguments, &mut output),
        Command::Decrypt(arguments) => decrypt::command(&arguments, &mut output),
        Command::New {
            name,
            into,
            asterism,
        } => scaffold::run(&name, &into, asterism.as_deref(), &mut output),
        Command::Keygen { file, id } => keygen::run(&file, id, &mut output),
        Command::Key(arguments) => keys::run(&arguments, &mut output),
        Command::Epoch(arguments) => epoch::run(&arguments, &mut output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut definition(name), name, &mut script);
            output.text(&String::from_utf8_lossy(&script));
            output.end(End::Done)
        }
    }
}

/// The command line of a program of this name.
fn definition(name: &'static str) -> clap::Command {
    CommandLine::command().name(name)
}

/// Shows the parser's output: requested help or version, or a mistake.
fn refuse(
    error: &clap::Error,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    coloured: bool,
) -> End {
    let rendered = error.render();
    let text = if coloured {
        rendered.ansi().to_string()
    } else {
        rendered.to_string()
    };
    // A failed write cannot be reported anywhere.
    if error.use_stderr() {
        let _ = write!(stderr, "{text}");
        End::CommandLine
    } else {
        let _ = write!(stdout, "{text}");
        End::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
