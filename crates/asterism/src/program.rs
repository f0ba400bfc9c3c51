//! The program around one network function: what `asterism new` writes calls [`main`].

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use asterism_function::NetworkFunction;
use asterism_state::ObjectSettings;
use clap::{Parser, ValueEnum};

use crate::command_line::{self, End, Format};
use crate::config::Config;
use crate::output::Output;
use crate::replay::{self, FirstSpeaker, Plan};

/// Runs captures through a network function
#[derive(Parser, Debug)]
#[command(after_help = command_line::EXIT_CODES)]
struct Arguments {
    /// The capture to replay (pcap or pcapng, Ethernet)
    #[arg(long = "in", value_name = "CAPTURE")]
    input: PathBuf,
    /// Where to write the packets that leave (pcap)
    #[arg(long = "out", value_name = "CAPTURE")]
    output: Option<PathBuf>,
    /// Run so many hosts; packets of one flow go through all of them in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    hosts: u16,
    /// Where the function's state lives
    #[arg(long, value_enum, default_value_t = Placement::Replicated)]
    placement: Placement,
    /// The delay between hosts, one way, in microseconds
    #[arg(long, default_value_t = 100)]
    delay_us: u32,
    /// What standard output is written as
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Where all of the function's state lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    /// Each host has its own
    Local,
    /// Every host has a replica
    Replicated,
    /// As local, with each read late by a millisecond: for tests
    Late,
}

/// The `main` of a program around one function.
pub fn main<F: NetworkFunction>(function: F) -> ExitCode {
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    run(function, std::env::args_os(), &mut stdout, &mut stderr).into()
}

/// Runs a command line of such a program.
pub fn run<F: NetworkFunction>(
    function: F,
    arguments: impl IntoIterator<Item = OsString>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> End {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return command_line::refuse(&error, stdout, stderr, false),
    };
    let mut output = Output::new(arguments.format, stdout, stderr, false);
    let (Some(mut config), _) = Config::read("defaults", "[function.pass-through]") else {
        return output.fail(End::Configuration, "the defaults are refused");
    };
    config.cluster.members = (1..=arguments.hosts)
        .map(|number| format!("host-{number}"))
        .collect();
    let plan = Plan {
        input: arguments.input,
        input_outside: None,
        output: arguments.output,
        eve: None,
        cluster: config.cluster,
        instances: 1,
        spread_packets: true,
        delay: Duration::from_micros(arguments.delay_us.into()),
        gap_max: Duration::from_secs(10),
        seed: 1,
    };
    let settings = match arguments.placement {
        Placement::Local => ObjectSettings::LOCAL,
        Placement::Replicated => ObjectSettings::REPLICATED,
        Placement::Late => ObjectSettings {
            late_us: 1_000,
            ..ObjectSettings::LOCAL
        },
    };
    let result = replay::run(
        &Arc::new(function),
        move |_: &str| settings,
        &plan,
        &mut FirstSpeaker::default(),
        &mut |packets| output.say(&format!("{packets} packets\n")),
    );
    replay::finish(result, &mut output)
}
