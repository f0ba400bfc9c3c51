//! Commands that ask an orchestrator by its HTTP API, from any machine: `hosts`, `events`, `doctor`; and `token`, which writes the
//! file of tokens.

use std::path::{Path, PathBuf};

use asterism_api::Scope;
use asterism_api::client::{Client, ClientConfig, ClientConfigError, ClientError, Position};
use asterism_api::data::{
    ClusterSummary, Drain, Event, Fence, Forget, Health, Host, OrderAccepted, Restore, Severity,
    Stage,
};
use asterism_api::tokens::{self, Hash, Secret, Token};
use asterism_host::run::event_log::date;
use asterism_output::{End, Output, Schema, Table};
use clap::{Args, Subcommand};
use serde::Serialize;

/// Where an orchestrator's API is, if nothing is said.
pub(super) const DEFAULT_ADDRESS: &str = "http://127.0.0.1:7580";
/// Bytes of a token's file.
const TOKEN_BYTES_MAX: u64 = 1_024;
/// Events of one answer.
const EVENTS_MAX: usize = 500;

/// The orchestrator to ask.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct Where {
    /// The address of the orchestrator's API
    #[arg(long, global = true, value_name = "URL", env = "ASTERISM_API", default_value = DEFAULT_ADDRESS)]
    pub api: String,
    /// The file with the token; on loopback an API may need none
    #[arg(long, global = true, value_name = "FILE", env = "ASTERISM_TOKEN_FILE")]
    pub token: Option<PathBuf>,
    /// The authorities that signed the API's certificate, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "ASTERISM_CA")]
    pub ca: Option<PathBuf>,
}

/// The arguments of `asterism hosts`.
#[derive(Args, Clone, Debug)]
pub struct HostsArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// What to order; nothing: show the hosts
    #[command(subcommand)]
    pub order: Option<HostOrder>,
}

/// An order about a host.
#[derive(Subcommand, Clone, Debug)]
pub enum HostOrder {
    /// The host gets no new flows, and no packets where the steering cannot tell flows apart
    Drain {
        /// The host
        host: String,
        /// Why, for the events
        #[arg(long)]
        reason: Option<String>,
    },
    /// The host gets packets again
    Restore {
        /// The host
        host: String,
        /// Why, for the events
        #[arg(long)]
        reason: Option<String>,
    },
    /// Declare that the process of an incarnation has ended, and those before it; a false declaration lets two processes use one place
    Fence {
        /// The host
        host: String,
        /// The incarnation
        incarnation: u64,
        /// Why, for the events
        #[arg(long)]
        reason: Option<String>,
    },
    /// The host is gone for good, and its place is free for another one: where hosts register, once its process has ended
    Forget {
        /// The host
        host: String,
        /// Why, for the events
        #[arg(long)]
        reason: Option<String>,
    },
}

/// The arguments of `asterism events`.
#[derive(Args, Clone, Debug)]
pub struct EventsArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The newest events that are shown
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub last: u32,
}

/// The arguments of `asterism doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
}

/// The arguments of `asterism token`.
#[derive(Args, Clone, Debug)]
pub struct TokenArguments {
    /// The file of tokens that the configuration names
    pub file: PathBuf,
    /// The name of the token to add; its secret is shown once
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "remove",
        conflicts_with = "remove"
    )]
    pub add: Option<String>,
    /// What the token's owner may do: operator, read-only, or tenant:NAME
    #[arg(long, default_value = "operator")]
    pub scope: String,
    /// The name of the token to take away
    #[arg(long, value_name = "NAME")]
    pub remove: Option<String>,
}

/// Why a cluster was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The options make no client; nothing was sent.
    #[error(transparent)]
    Config(#[from] ClientConfigError),
    /// There is no answer, or a refusal.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no token; nothing was sent.
    #[error("the file with the token, {}: {error}", .path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// What `asterism hosts` reports.
#[derive(Clone, Debug, Serialize)]
pub struct HostsDocument {
    /// The cluster.
    pub cluster: ClusterSummary,
    /// Its hosts.
    pub hosts: Vec<Host>,
}

/// What `asterism events` reports.
#[derive(Clone, Debug, Serialize)]
pub struct EventsDocument {
    /// The events, oldest first.
    pub events: Vec<Event>,
}

/// The schema of [`HostsDocument`].
pub const HOSTS: Schema = Schema {
    name: "asterism.hosts",
    version: 1,
};
/// The schema of an order's answer.
pub const ORDER: Schema = Schema {
    name: "asterism.order",
    version: 1,
};
/// The schema of [`EventsDocument`].
pub const EVENTS: Schema = Schema {
    name: "asterism.events",
    version: 1,
};
/// The schema of what is wrong.
pub const DOCTOR: Schema = Schema {
    name: "asterism.doctor",
    version: 1,
};

pub(super) fn client(at: &Where) -> Result<Client, ClusterError> {
    let read = |path: &PathBuf| -> Result<String, ClusterError> {
        read_token(path).map_err(|error| {
            let path = path.clone();
            ClusterError::TokenFile { path, error }
        })
    };
    Ok(Client::new(&ClientConfig {
        token: at.token.as_ref().map(read).transpose()?,
        authorities: at.ca.clone(),
        ..ClientConfig::new(&at.api)
    })?)
}

pub(super) fn read_token(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(TOKEN_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// The cluster and its hosts, as `asterism hosts` shows them.
pub(super) fn show(at: &Where, output: &mut Output<'_>) -> End {
    let arguments = HostsArguments {
        at: at.clone(),
        order: None,
    };
    hosts(&arguments, output)
}

/// `asterism hosts`.
pub fn hosts(arguments: &HostsArguments, output: &mut Output<'_>) -> End {
    let answer = || -> Result<Answer, ClusterError> {
        let client = client(&arguments.at)?;
        Ok(match arguments.order.clone() {
            None => Answer::Hosts(HostsDocument {
                cluster: client.cluster()?,
                hosts: client.hosts()?.hosts,
            }),
            Some(HostOrder::Drain { host, reason }) => {
                Answer::Order(client.drain(&host, &Drain { reason })?)
            }
            Some(HostOrder::Restore { host, reason }) => {
                Answer::Order(client.restore(&host, &Restore { reason })?)
            }
            Some(HostOrder::Forget { host, reason }) => {
                Answer::Order(client.forget(&host, &Forget { reason })?)
            }
            Some(HostOrder::Fence {
                host,
                incarnation,
                reason,
            }) => Answer::Order(client.fence(
                &host,
                &Fence {
                    incarnation,
                    reason,
                },
            )?),
        })
    };
    match answer() {
        Ok(Answer::Hosts(document)) if output.json() => output.document(HOSTS, &document),
        Ok(Answer::Hosts(document)) => output.text(&hosts_text(&document)),
        Ok(Answer::Order(accepted)) if output.json() => output.document(ORDER, &accepted),
        Ok(Answer::Order(accepted)) => output.text(&order_text(&accepted)),
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

enum Answer {
    Hosts(HostsDocument),
    Order(OrderAccepted),
}

pub(super) fn order_text(accepted: &OrderAccepted) -> String {
    match accepted.changed {
        true => format!("{}\n", accepted.detail),
        false => format!("{} already\n", accepted.detail),
    }
}

fn hosts_text(document: &HostsDocument) -> String {
    let cluster = &document.cluster;
    let leader = cluster
        .leadership
        .as_ref()
        .and_then(|one| one.leader.clone());
    let mut text = format!(
        "{}: epoch {}, {} of {} hosts take packets, led by {}{}\n\n",
        cluster.name,
        cluster.epoch,
        cluster.hosts_taking,
        cluster.hosts,
        leader.as_deref().unwrap_or("nobody"),
        match cluster.is_store_reachable {
            true => "",
            false => "; the truth store does not answer",
        }
    );
    let mut table = Table::new(&[
        "host",
        "stage",
        "incarnation",
        "packets",
        "packets/s",
        "flows",
        "lag",
        "heartbeat",
    ]);
    for host in &document.hosts {
        let load = host.loads.clone().unwrap_or_default();
        table.row(&[
            host.name.clone(),
            stage(host.stage).to_owned(),
            host.incarnation.to_string(),
            packets(host).to_owned(),
            load.packets_per_second.to_string(),
            load.flows.to_string(),
            format!("{} us", load.lag_us),
            host.silent_for_ms
                .map_or_else(|| "none".to_owned(), |ms| format!("{ms} ms ago")),
        ]);
    }
    text += &table.text();
    text
}

pub(super) fn packets(host: &Host) -> &'static str {
    match host {
        Host {
            is_suspect: true, ..
        } => "no: silent",
        Host {
            is_isolated: true, ..
        } => "no: isolated",
        Host { drains: true, .. } => "drained",
        Host { takes: true, .. } => "yes",
        _ => "no",
    }
}

pub(super) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Unknown => "unknown",
        Stage::Awaiting => "awaiting",
        Stage::Joining => "joining",
        Stage::Serving => "serving",
        Stage::Leaving => "leaving",
        Stage::Ended => "ended",
    }
}

/// The newest events, so many at most.
pub(super) fn newest_events(client: &Client, wanted: usize) -> Result<Vec<Event>, ClusterError> {
    let newest = client.events(None, 1)?;
    let after = newest.newest.saturating_sub(wanted as u64);
    let (mut at, mut all) = (
        Position {
            log: newest.log,
            after,
        },
        Vec::new(),
    );
    while all.len() < wanted {
        let page = client.events(Some(at), EVENTS_MAX.min(wanted - all.len()))?;
        if page.events.is_empty() {
            break;
        }
        at = Position {
            log: page.log,
            after: page.next,
        };
        all.extend(page.events);
    }
    Ok(all)
}

/// `asterism events`.
pub fn events(arguments: &EventsArguments, output: &mut Output<'_>) -> End {
    let wanted = arguments.last as usize;
    let read = || newest_events(&client(&arguments.at)?, wanted);
    match read() {
        Ok(events) if output.json() => output.document(EVENTS, &EventsDocument { events }),
        Ok(events) => {
            let lines = events.iter().map(event_line);
            output.text(&lines.collect::<String>());
        }
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

fn event_line(event: &Event) -> String {
    format!(
        "{}  {:<20} {:<10} {}\n",
        date(event.at_ms / 1_000),
        event.kind,
        event.subject,
        event.reason
    )
}

/// `asterism doctor`.
pub fn doctor(arguments: &DoctorArguments, output: &mut Output<'_>) -> End {
    let read = || -> Result<Health, ClusterError> { Ok(client(&arguments.at)?.health()?) };
    let health = match read() {
        Ok(health) => health,
        Err(error) => return output.fail(End::File, &error),
    };
    if output.json() {
        output.document(DOCTOR, &health);
    } else {
        output.text(&health_text(&health));
    }
    let is_wrong = health.worst.is_some_and(|worst| worst > Severity::Notice);
    output.end(if is_wrong {
        End::DoesNotHold
    } else {
        End::Done
    })
}

fn health_text(health: &Health) -> String {
    if health.items.is_empty() {
        return "Nothing is wrong.\n".to_owned();
    }
    let mut text = String::new();
    for item in &health.items {
        let severity = match item.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Critical => "CRITICAL",
        };
        let cause = item
            .cause
            .as_ref()
            .map_or_else(String::new, |cause| format!(" (by {cause})"));
        text += &format!(
            "{severity}: {} {}{cause}: {}\n  {}\n",
            item.code, item.subject, item.detail, item.remedy
        );
    }
    text
}

/// `asterism token`.
pub fn token(arguments: &TokenArguments, output: &mut Output<'_>) -> End {
    if let Some(name) = &arguments.remove {
        return match tokens::remove(&arguments.file, name) {
            Ok(true) => {
                output.text(&format!(
                    "{name} is removed; orchestrators refuse it within two seconds\n"
                ));
                output.end(End::Done)
            }
            Ok(false) => output.fail(
                End::File,
                &format!("{} has no token {name}", arguments.file.display()),
            ),
            Err(error) => output.fail(End::File, &error),
        };
    }
    let scope = match arguments.scope.as_str() {
        "operator" => Scope::Operator,
        "read-only" => Scope::ReadOnly,
        other => match other
            .strip_prefix("tenant:")
            .filter(|name| !name.is_empty())
        {
            Some(tenant) => Scope::Tenant(tenant.to_owned()),
            None => {
                let error =
                    format!("{other:?} is no scope: write operator, read-only or tenant:NAME");
                return output.fail(End::CommandLine, &error);
            }
        },
    };
    let secret = match Secret::draw() {
        Ok(secret) => secret,
        Err(error) => return output.fail(End::File, &error),
    };
    let token = Token {
        name: arguments.add.clone().unwrap_or_default(),
        scope,
        expires: None,
        hash: Hash::of(secret.reveal()),
    };
    if let Err(error) = tokens::add(&arguments.file, &token) {
        return output.fail(End::File, &error);
    }
    // The secret alone goes to standard output, so that it can be written to a file.
    output.say("The token is shown this once. Keep it in a file of mode 0600, for --token.\n");
    output.text(&format!("{}\n", secret.reveal()));
    output.end(End::Done)
}
