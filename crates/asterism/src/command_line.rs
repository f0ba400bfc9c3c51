//! The command line: one definition for parsing, help and completions, and what each command's end is.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::functions::Functions;
use crate::control::client::Which;
use crate::control::{
    Ask, audit, backends, blocked, commands, digests, flows, manual, rules, traffic,
};
use crate::output::Output;
use crate::{
    check, decrypt, demo, epochs, key_file, keys, lab, replay, run as host, scaffold, scenario,
};

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done; what was to be shown holds
  1  it ran, and what was to be shown does not hold (demo, test), packets were lost on the way (replay), nothing was opened
     (decrypt), the host could not start or go on (run), there is no such entry (state get), a host did not take the epoch
     (epoch --hand), somebody was not blocked, nobody was, or still is (block, unblock), or no
     flow was ended, or one is known still, or again (flows end)
  2  the command line is wrong
  3  the configuration is refused; every mistake is listed
  4  a file could not be read or written, or no host answers
  5  the system refused something, such as a right or a program that is absent (lab)
  `lab up --exec` ends with the exit code of what it ran.
";

/// The program's name.
const NAME: &str = "asterism";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done; what was to be shown holds.
    Done,
    /// It ran, and what was to be shown does not hold.
    DoesNotHold,
    /// The command line is wrong.
    CommandLine,
    /// The configuration is refused.
    Configuration,
    /// A file could not be read or written.
    File,
    /// The system refused something.
    System,
    /// A program that was run ended with this exit code.
    Program(u8),
}

/// Stateful network functions as a cluster that behaves like one box.
#[derive(Parser, Debug)]
#[command(name = NAME, version, about, after_help = EXIT_CODES, propagate_version = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct CommandLine {
    /// What standard output is written as: text to read, or one JSON document. Progress goes to standard error.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What standard output is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text to read.
    Text,
    /// One JSON document; its `schema` says which kind and version.
    Json,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show a cluster of NATs at work: needs nothing, ends within half a minute
    ///
    /// Three NAT hosts share their state over an emulated WAN of 40 ms one way, with an IDPS in front of them. Packets of
    /// one flow go through different hosts. Ends with a table; the exit code is 0 only if what it shows holds.
    Demo(demo::Arguments),
    /// Build a laboratory of network namespaces, to try hosts with real programs: needs root
    Lab(lab::Arguments),
    /// Check a configuration: list every mistake, or say what it means
    Check {
        /// The configuration file
        #[arg(value_name = "CONFIG", required_unless_present = "fields")]
        config: Option<PathBuf>,
        /// List all tables and fields with their meanings, defaults and bounds, instead
        #[arg(long, conflicts_with = "config")]
        fields: bool,
        /// Check it as this member would read it, instead of as all would
        #[arg(long, value_name = "NAME", conflicts_with = "fields")]
        member: Option<String>,
    },
    /// Run a host: a member of the cluster, between real interfaces, until it is asked to stop
    ///
    /// Needs the configuration's ports, and the right to open them. SIGTERM and SIGINT stop it gracefully, a second one at
    /// once; SIGHUP reads the configuration again.
    Run(host::Arguments),
    /// Show how a running host is
    Status(commands::StatusArguments),
    /// Show whether a running host's state is that of the others, which they compare all the time; the exit code says so too
    Audit(audit::AuditArguments),
    /// Show a running host's rates, again and again
    Top(commands::TopArguments),
    /// Show what a running host does with its next packets: each read, write and verdict, and the cost
    Trace(commands::TraceArguments),
    /// Look at a running host's state
    #[command(subcommand)]
    State(commands::StateCommand),
    /// Show what a running host knows of web caches, and which of them hold an object
    Digests(digests::DigestsArguments),
    /// Show a balancer's services and their backends: who of them lives, who says so, and how many flows each has
    Backends(backends::BackendsArguments),
    /// Show the sources that a firewall, or a detector of scans or signatures, blocks: until when and what for, over all hosts
    Blocked(blocked::BlockedArguments),
    /// Block a source manually, at a running host's firewall or detector of scans or signatures, and so at all hosts
    Block(manual::BlockArguments),
    /// Lift the block of a source before its time, no matter who began it, at all hosts
    Unblock(manual::UnblockArguments),
    /// End flows that a running host's firewall knows, on all hosts
    #[command(subcommand)]
    Flows(flows::FlowsCommand),
    /// Show a firewall's rules, and on how many new flows each decided, over all hosts
    Rules(rules::RulesArguments),
    /// Show what the hosts of a cluster see of traffic: the heaviest flows, which hosts talk to which others, what each protocol carries
    ///
    /// Needs the function `monitor`, alone or as a stage of a chain, of which the first one is asked. Any host answers for all: what
    /// one counted, all know.
    Traffic(traffic::TrafficArguments),
    /// Have a running host read no more packets; it stays a member until it is stopped
    Drain(Which),
    /// Have a running host read its configuration again
    Reload(Which),
    /// Stop a running host gracefully
    Stop(Which),
    /// Run a capture through the configured function and write what leaves
    ///
    /// Time is virtual: it follows the capture, so a run takes as long as the work does. With several hosts, packets of
    /// one flow go through different hosts unless configured otherwise. Answers in a capture of a NAT's inside are addressed
    /// to what the NAT gave their session.
    Replay(replay::Arguments),
    /// Run scenarios: configurations, packets, and what must come of them; the exit code says whether it did
    ///
    /// Time is virtual, and nothing but the files is needed. A scenario is a configuration, a line `---`, and steps, one a line:
    /// packets that arrive at hosts, what must leave, be dropped or be known, deaths and returns of hosts. The first step that does
    /// not hold ends a scenario, and is reported with what came instead.
    Test(scenario::Arguments),
    /// Open the sealed datagrams of a capture, to look at them with Wireshark
    ///
    /// Writes every packet as it was, with what was sealed in the clear: for the dissector in tools/wireshark. Needs the cluster's
    /// key, and for each session one handshake, in this capture or in another: hosts exchange them when one of them starts.
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
        /// The key's number, which tells keys apart while they are changed
        #[arg(long, default_value_t = 1)]
        id: u8,
    },
    /// Change the cluster's key while its hosts run: show its keys, or take one of three steps
    ///
    /// Add a new key (--new), have all hosts send with it (--use), drop the old one (--drop); after each step the file is copied to
    /// every host, which takes it up by itself. A step that the host running here shows to be too early is refused.
    Key(keys::Arguments),
    /// Say who takes part in the cluster and in which incarnation: show the file of epochs, or write the next one, or hand it to hosts
    ///
    /// A running host looks at its file five times a second. --hand gives the epoch to the hosts that run on this machine at once:
    /// each checks it, has it in its own file before it is in force, and says what it has in force then. To hand it again is always
    /// right. To hosts elsewhere: `ssh HOST asterism epoch CONFIG --hand --file - < epoch.toml`.
    Epoch(epochs::command::Arguments),
    /// Print completions for a shell, to be saved where the shell looks for them
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Runs a command line. What it says goes to `stdout` and `stderr`; nothing else does.
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
        Command::Status(arguments) => commands::status(&arguments, &mut output),
        Command::Audit(arguments) => audit::audit(&arguments, &mut output),
        Command::Top(arguments) => commands::top(&arguments, &mut output),
        Command::Trace(arguments) => commands::trace(&arguments, &mut output),
        Command::State(command) => commands::state(&command, &mut output),
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
        Command::Keygen { file, id } => key_file::run(&file, id, &mut output),
        Command::Key(arguments) => keys::run(&arguments, &mut output),
        Command::Epoch(arguments) => epochs::command::run(&arguments, &mut output),
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

/// Shows what the parser has to say: help and version that were asked for, or a mistake.
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
    // Nobody is left to tell when writing fails.
    if error.use_stderr() {
        let _ = write!(stderr, "{text}");
        End::CommandLine
    } else {
        let _ = write!(stdout, "{text}");
        End::Done
    }
}

impl From<End> for ExitCode {
    fn from(end: End) -> ExitCode {
        ExitCode::from(match end {
            End::Done => 0,
            End::DoesNotHold => 1,
            End::CommandLine => 2,
            End::Configuration => 3,
            End::File => 4,
            End::System => 5,
            End::Program(code) => code,
        })
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
