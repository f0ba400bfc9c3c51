//! The commands that ask a running host, or a cluster: `status`, `trace`, `drain`, `reload`, `stop`; those for one subject each have a
//! file. `client.rs` asks at a control socket, `cluster.rs` by the API of an orchestrator, and `remote.rs` lets a command do either.

pub mod audit;
pub mod backends;
pub mod blocked;
pub mod bugreport;
pub mod client;
pub mod cluster;
pub mod digests;
pub mod find;
pub mod flows;
pub mod manual;
pub mod remote;
pub mod rules;
pub mod scaling;
mod sites;
pub mod state;
mod status;
pub mod top;
pub mod traffic;
pub mod usage;

use std::time::Duration;

use asterism_host::control::Ask;
use asterism_host::control::place;
use asterism_host::control::show::TracedDocument;
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;
use serde::Serialize;

use client::{Which, ask};
use remote::{Remote, Source};
use status::status_text;

/// Time limit for a host's answer.
pub(crate) const WITHIN: Duration = Duration::from_secs(15);

/// The arguments of `asterism status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// By the API: with --host one host, without it the whole cluster.
    #[command(flatten)]
    pub remote: Remote,
    /// With a digest of every object, which is equal on hosts with equal state (reads every entry; at the control socket only)
    #[arg(long, conflicts_with_all = ["api", "host"])]
    pub digests: bool,
}

/// The arguments of `asterism trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// Number of packets
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub packets: u64,
    /// The packet loop to trace
    #[arg(long, default_value_t = 0)]
    pub instance: usize,
    /// Seconds to wait for the packets
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub within: u64,
}

/// The schema of `asterism status`.
pub const STATUS: Schema = Schema {
    name: "asterism.status",
    version: 1,
};
/// The schema of `asterism trace`.
pub const TRACE: Schema = Schema {
    name: "asterism.trace",
    version: 1,
};
/// The schema of `asterism drain`, `reload` and `stop`.
pub const DONE: Schema = Schema {
    name: "asterism.done",
    version: 1,
};

/// Traced packets.
#[derive(Clone, Debug, Serialize)]
pub struct TraceDocument {
    /// The packets.
    pub packets: Vec<TracedDocument>,
}

/// The result of a command.
#[derive(Clone, Debug, Serialize)]
pub struct DoneDocument {
    /// A sentence.
    pub done: String,
}

/// `asterism status`.
pub fn status(arguments: &StatusArguments, output: &mut Output<'_>) -> End {
    let (at, host) = (arguments.remote.at(), &arguments.remote.host);
    if let (Some(at), None) = (&at, host) {
        return cluster::show(at, output);
    }
    let api = at.as_ref().zip(host.as_deref());
    let source = Source::of(&arguments.which, api, output.functions());
    match source.and_then(|source| source.status(arguments.digests)) {
        Ok(status) if output.json() => output.document(STATUS, &status),
        Ok(status) => output.text(&status_text(&status)),
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

/// `asterism trace`.
pub fn trace(arguments: &TraceArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Trace {
        packets: arguments.packets as usize,
        instance: arguments.instance,
        within_ms: arguments.within * 1_000,
    };
    let within = WITHIN + Duration::from_secs(arguments.within);
    with_answer(
        &arguments.which,
        &request,
        within,
        output,
        |packets: Vec<TracedDocument>, output| {
            if output.json() {
                output.document(TRACE, &TraceDocument { packets });
            } else if packets.is_empty() {
                output.say("no packets arrived in that time\n");
            } else {
                packets
                    .iter()
                    .for_each(|packet| output.text(&traced_text(packet)));
            }
        },
    )
}

/// `asterism drain`, `reload` and `stop`.
pub fn tell(which: &Which, request: &Ask, output: &mut Output<'_>) -> End {
    let within = match request {
        Ask::Stop => Duration::from_secs(700),
        _ => WITHIN,
    };
    with_answer(which, request, within, output, |done: String, output| {
        if let (Ask::Stop, Ok(socket)) = (request, which.socket(output.functions())) {
            place::wait_until_free(&socket);
        }
        if output.json() {
            output.document(DONE, &DoneDocument { done });
        } else {
            output.text(&format!("{done}\n"));
        }
    })
}

/// Sends a request to a host and shows the answer.
pub(super) fn with_answer<T: serde::de::DeserializeOwned>(
    which: &Which,
    request: &Ask,
    within: Duration,
    output: &mut Output<'_>,
    show: impl FnOnce(T, &mut Output<'_>),
) -> End {
    match which
        .socket(output.functions())
        .and_then(|socket| ask(&socket, request, within))
    {
        Ok(answer) => {
            show(answer, output);
            output.end(End::Done)
        }
        Err(error) => output.fail(End::File, &error),
    }
}

// --- as text

fn traced_text(packet: &TracedDocument) -> String {
    let mut text = format!(
        "{} {} ({} bytes), {} ns\n",
        packet.port, packet.packet, packet.length, packet.cost_ns
    );
    for step in &packet.steps {
        text.push_str(&format!("    {step}\n"));
    }
    text.push_str(&format!("  {}", packet.end));
    if let Some(left_as) = packet
        .left_as
        .as_ref()
        .filter(|left_as| **left_as != packet.packet)
    {
        text.push_str(&format!(" as {left_as}"));
    }
    if packet.emitted > 0 {
        text.push_str(&format!(", {} emitted", packet.emitted));
    }
    if packet.logged_bytes > 0 {
        text.push_str(&format!(
            ", {} bytes logged for the other members",
            packet.logged_bytes
        ));
    }
    text + "\n"
}

fn span(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.1} s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min", us / 60_000_000),
        _ => format!("{} h {} min", us / 3_600_000_000, us / 60_000_000 % 60),
    }
}
