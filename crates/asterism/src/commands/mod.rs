//! The commands that ask a running host: `status`, `top`, `trace`, `state get`, `drain`, `reload`, `stop`; those for one subject each have a
//! file. `client.rs` sends the request and reads the answer.

pub mod audit;
pub mod backends;
pub mod blocked;
pub mod client;
pub mod cluster;
pub mod digests;
pub mod flows;
pub mod manual;
pub mod rules;
mod sites;
mod status;
pub mod traffic;

use std::time::Duration;

use asterism_host::control::Ask;
use asterism_host::control::place;
use asterism_host::control::show::TracedDocument;
use asterism_host::run::requests::{EntryDocument, StateDocument};
use asterism_host::view::{InstanceDocument, PortDocument, StatusDocument};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::{Args, Subcommand};
use serde::Serialize;

use client::{Which, ask};
use status::status_text;

/// Time limit for a host's answer.
pub(crate) const WITHIN: Duration = Duration::from_secs(15);

/// The arguments of `asterism status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// With a digest of every object, which is equal on hosts with equal state (reads every entry)
    #[arg(long)]
    pub digests: bool,
}

/// The arguments of `asterism top`.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// Show the rates of one interval, and end
    #[arg(long)]
    pub once: bool,
    /// Seconds between two queries
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
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

/// Queries of the state.
#[derive(Subcommand, Clone, Debug)]
pub enum StateCommand {
    /// Show the entries with a key, such as an endpoint: `10.0.0.1:4000` or `10.0.0.1:4000/udp`
    Get {
        /// The key, as `asterism trace` and this command show it, or a word of the key
        #[arg(required_unless_present = "value")]
        key: Option<String>,
        /// A word of the value: `short` finds token buckets that are more than half empty
        #[arg(long)]
        value: Option<String>,
        /// In this object only
        #[arg(long)]
        object: Option<String>,
        /// The packet loop whose state is queried
        #[arg(long, default_value_t = 0)]
        instance: usize,
        /// Which host.
        #[command(flatten)]
        which: Which,
    },
}

/// The schema of `asterism status`.
pub const STATUS: Schema = Schema {
    name: "asterism.status",
    version: 1,
};
/// The schema of `asterism top`.
pub const TOP: Schema = Schema {
    name: "asterism.top",
    version: 1,
};
/// The schema of `asterism trace`.
pub const TRACE: Schema = Schema {
    name: "asterism.trace",
    version: 1,
};
/// The schema of `asterism state get`.
pub const STATE: Schema = Schema {
    name: "asterism.state",
    version: 2,
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

/// Rates over an interval.
#[derive(Clone, Debug, Serialize)]
pub struct TopDocument {
    /// The host.
    pub host: String,
    /// Microseconds between the two queries.
    pub interval_us: u64,
    /// Rates of each port, over all packet loops.
    pub ports: Vec<RateDocument>,
    /// Packets dropped a second, for any reason.
    pub dropped_per_s: f64,
    /// Operation groups written a second.
    pub groups_written_per_s: f64,
    /// Operation groups of others applied a second.
    pub groups_applied_per_s: f64,
    /// Packets parked now.
    pub parked: u64,
    /// Operation groups of all other members that are not applied here.
    pub behind_groups: u64,
}

/// Rates of one port.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RateDocument {
    pub name: String,
    pub received_packets_per_s: f64,
    pub received_bits_per_s: f64,
    pub sent_packets_per_s: f64,
    pub sent_bits_per_s: f64,
    pub dropped_per_s: f64,
}

/// `asterism status`.
pub fn status(arguments: &StatusArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Status {
        digests: arguments.digests,
    };
    with_answer(
        &arguments.which,
        &request,
        WITHIN,
        output,
        |status: StatusDocument, output| {
            if output.json() {
                output.document(STATUS, &status);
            } else {
                output.text(&status_text(&status));
            }
        },
    )
}

/// `asterism top`.
pub fn top(arguments: &TopArguments, output: &mut Output<'_>) -> End {
    let interval = Duration::from_secs(arguments.interval);
    let functions = output.functions();
    let look = || {
        let socket = arguments.which.socket(functions)?;
        ask::<StatusDocument>(&socket, &Ask::Status { digests: false }, WITHIN)
    };
    let mut before = match look() {
        Ok(status) => status,
        Err(error) => return output.fail(End::File, &error),
    };
    loop {
        std::thread::park_timeout(interval);
        let now = match look() {
            Ok(status) => status,
            Err(error) => return output.fail(End::File, &error),
        };
        let rates = rates(&before, &now);
        if output.json() {
            output.document(TOP, &rates);
        } else {
            // On a terminal each query replaces the output of the query before.
            let clear = if arguments.once { "" } else { "\x1b[H\x1b[2J" };
            output.text(&format!("{clear}{}", top_text(&rates, &now)));
        }
        before = now;
        let end = output.end(End::Done);
        if arguments.once || end != End::Done {
            return end;
        }
    }
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

/// `asterism state`.
pub fn state(command: &StateCommand, output: &mut Output<'_>) -> End {
    let StateCommand::Get {
        key,
        value,
        object,
        instance,
        which,
    } = command;
    let request = Ask::StateGet {
        key: key.clone(),
        value: value.clone(),
        object: object.clone(),
        instance: *instance,
    };
    let mut found_any = false;
    let end = with_answer(
        which,
        &request,
        WITHIN,
        output,
        |found: StateDocument, output| {
            found_any = !found.entries.is_empty();
            if output.json() {
                output.document(STATE, &found);
            } else if found.entries.is_empty() {
                let said = [("key", key), ("value", value)];
                let said = said.map(|(what, word)| {
                    let word = word.as_ref()?;
                    Some(format!("the {what} {word}"))
                });
                let said: Vec<_> = said.into_iter().flatten().collect();
                output.say(&format!("there is no entry with {}\n", said.join(" and ")));
            } else {
                found
                    .entries
                    .iter()
                    .for_each(|entry| output.text(&entry_text(entry)));
                if found.more {
                    output.say("more entries match than are shown\n");
                }
            }
        },
    );
    if end == End::Done && !found_any {
        return End::DoesNotHold;
    }
    end
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

fn entry_text(entry: &EntryDocument) -> String {
    let text = format!("{} {}\n  value {}\n", entry.object, entry.key, entry.value);
    let Some(provenance) = &entry.provenance else {
        return text;
    };
    let idle = match provenance.idle_s {
        0 => "never idles out".to_owned(),
        idle => format!("idles out after {idle} s (class {})", provenance.idle_class),
    };
    let alias = if provenance.alias {
        "; an alias, another entry is preferred"
    } else {
        ""
    };
    format!(
        "{text}  unused for {} s at most, {idle}{alias}\n  generation {}, written by member {} ({}) as number {}\n",
        provenance.unused_s,
        provenance.generation,
        provenance.member,
        provenance.incarnation,
        provenance.sequence
    )
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

/// The rates, per second, between two queries.
fn rates(before: &StatusDocument, now: &StatusDocument) -> TopDocument {
    // A host that was restarted between the queries has counted since its start.
    let same = before.incarnation == now.incarnation;
    let interval_us = if same {
        now.uptime_us - before.uptime_us.min(now.uptime_us)
    } else {
        now.uptime_us
    };
    let seconds = (interval_us.max(1)) as f64 / 1e6;
    let sum = |status: &StatusDocument, of: &dyn Fn(&InstanceDocument) -> u64| -> u64 {
        status.instances.iter().map(of).sum()
    };
    let rate = |of: &dyn Fn(&InstanceDocument) -> u64| {
        let past = if same { sum(before, of) } else { 0 };
        sum(now, of).saturating_sub(past) as f64 / seconds
    };
    let count =
        |name: &'static str| rate(&move |instance| instance.counts.get(name).copied().unwrap_or(0));
    let names = now
        .instances
        .first()
        .map_or(&[][..], |instance| &instance.ports);
    let ports = names.iter().map(|port| {
        let of = |read: fn(&PortDocument) -> u64| {
            rate(&|instance: &InstanceDocument| {
                instance
                    .ports
                    .iter()
                    .filter(|other| other.name == port.name)
                    .map(read)
                    .sum()
            })
        };
        RateDocument {
            name: port.name.clone(),
            received_packets_per_s: of(|port| port.received_packets),
            received_bits_per_s: of(|port| port.received_bytes) * 8.0,
            sent_packets_per_s: of(|port| port.sent_packets),
            sent_bits_per_s: of(|port| port.sent_bytes) * 8.0,
            dropped_per_s: of(|port| port.dropped.values().sum()),
        }
    });
    TopDocument {
        host: now.host.clone(),
        interval_us,
        ports: ports.collect(),
        dropped_per_s: rate(&|instance| instance.dropped.values().sum()),
        groups_written_per_s: count("groups_written"),
        groups_applied_per_s: count("groups_applied"),
        parked: sum(now, &|instance| instance.parked),
        behind_groups: now.peers.iter().map(|peer| peer.behind_groups).sum(),
    }
}

fn top_text(top: &TopDocument, status: &StatusDocument) -> String {
    let mut text = format!(
        "{} ({}), up {}, over {}\n\n{:12} {:>12} {:>12} {:>12} {:>12} {:>10}\n",
        top.host,
        status.phase,
        span(status.uptime_us),
        span(top.interval_us),
        "port",
        "in pps",
        "in bit/s",
        "out pps",
        "out bit/s",
        "drops/s"
    );
    for port in &top.ports {
        text.push_str(&format!(
            "{:12} {:>12.0} {:>12} {:>12.0} {:>12} {:>10.0}\n",
            port.name,
            port.received_packets_per_s,
            scaled(port.received_bits_per_s),
            port.sent_packets_per_s,
            scaled(port.sent_bits_per_s),
            port.dropped_per_s
        ));
    }
    text.push_str(&format!(
        "\ndropped {:.0}/s, parked {}, written {:.0} and applied {:.0} groups/s, behind {} groups\n",
        top.dropped_per_s, top.parked, top.groups_written_per_s, top.groups_applied_per_s, top.behind_groups
    ));
    for peer in &status.peers {
        text.push_str(&format!(
            "{:12} round trip {}, behind {}{}\n",
            peer.name,
            peer.round_trip_us
                .map_or_else(|| "unknown".to_owned(), span),
            span(peer.behind_us),
            peer.heard_with
                .map_or_else(String::new, |id| format!(", received with key {id}"))
        ));
    }
    text
}

pub(super) fn scaled(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} G", value / 1e9),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}
