//! The settings of this host, a process that is one member: its name, packet loops and outputs.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use asterism_epochs::is_host_address;

use super::cluster::members;
use super::eve::{EVE, Eve, eve};
use super::fields::CLUSTER;
use super::places::is_open;
use asterism_function_settings::FLOWS_MAX;
use asterism_notation::suggestion;
use asterism_notation::value;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// The most packet loops of a host.
pub(super) const INSTANCES_MAX: u64 = 64;
// An index and the links between entries hold numbers below 2³¹: three times the most entries, and three more for each instance.
const _: () = assert!(
    3 * (FLOWS_MAX + asterism_placement::membership::MEMBERS_MAX as u64 * INSTANCES_MAX) < 1 << 31
);
/// Cores are numbered below this.
const CORES_MAX: u64 = 4_096;

/// This host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Which member it is; empty where hosts register and nothing says which this is.
    pub name: String,
    /// Where its state channel is, if it registers.
    pub address: Option<SocketAddr>,
    /// Its packet loops.
    pub instances: usize,
    /// The core of each packet loop; empty if they are not bound to cores.
    pub cores: Vec<usize>,
    /// What a packet loop does while there is nothing to do.
    pub idle: Idle,
    /// What the state channel's thread does meanwhile.
    pub channel_idle: Idle,
    /// The control socket, as written.
    pub control: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where the state is saved, as written.
    pub state: Option<PathBuf>,
    /// What alerts are written to.
    pub eve: Option<Eve>,
    /// How long the host listens for others before it reads packets.
    pub join_wait: Duration,
    /// How long a graceful stop may take.
    pub drain_max: Duration,
}

/// What a thread does while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It looks again at once: the least latency, a whole core.
    Spin,
    /// It sleeps until something comes or is due.
    Sleep,
}

impl Idle {
    fn of(word: &str) -> Self {
        match word {
            "spin" => Self::Spin,
            _ => Self::Sleep,
        }
    }
}

const SPIN: Word = Word {
    word: "spin",
    meaning: "Busy polling: the least latency, and a core that is always busy.",
};

section! {
    /// The table `[host]`.
    pub(crate) static HOST: HostKeys = {
        path: "host",
        meaning: "This host: a process that is one member of the cluster.",
        fields: {
            name: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("the first of `members`; `--member NAME` overrides it"),
                meaning: "This host's name among the cluster's members. With [cluster] places, the name by which it registers.",
            },
            address: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("needed with [cluster] places, unless `--address ADDRESS:PORT` says it; refused without"),
                meaning: "The UDP address at which the host's state channel listens for other hosts, where hosts register.",
            },
            instances: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: INSTANCES_MAX,
                },
                default: Default::Is("1"),
                meaning: "How many packet loops the host runs, each on its own core with its own state.",
            },
            cores: List<u64> = Setting {
                kind: Kind::List {
                    of: &Kind::Count {
                        least: 0,
                        most: CORES_MAX,
                    },
                    most: INSTANCES_MAX as usize,
                },
                default: Default::Unset("the operating system chooses cores, and may change them"),
                meaning: "The core of each packet loop, one for each of `instances`.",
            },
            idle: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "sleep",
                            meaning: "The loop sleeps until a packet arrives or a timer is due: a few microseconds more latency, hardly any load.",
                        },
                        SPIN,
                    ],
                    refused: &[],
                },
                default: Default::Is("\"sleep\""),
                meaning: "How an idle packet loop waits.",
            },
            channel_idle: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "sleep",
                            meaning: "The thread sleeps until a datagram arrives, a packet loop writes, or a timer is due.",
                        },
                        SPIN,
                    ],
                    refused: &[],
                },
                default: Default::Is("\"sleep\""),
                meaning: "How the idle thread of the state channel waits. To spin, it needs a core besides those of the packet loops.",
            },
            control: String = Setting {
                kind: Kind::File,
                default: Default::Unset("`/run/asterism/CLUSTER-MEMBER.sock`"),
                meaning: "The control socket, for `status`, `top`, `trace` and the like. Its mode is 0600. One process at a time can hold it.",
            },
            metrics: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("none are served"),
                meaning: "Where metrics are served to Prometheus (`/metrics`, HTTP). Anybody who reaches this address can read them.",
            },
            state: String = Setting {
                kind: Kind::File,
                default: Default::Unset("nothing is saved"),
                meaning: "The file for the shared state: saved at a graceful stop, restored when the whole cluster restarts.",
            },
            eve: Values = Setting {
                kind: Kind::Table(EVE.section()),
                default: Default::Unset("alerts stay in the state alone"),
                meaning: "The output of alerts.",
            },
            join_wait: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::from_secs(600),
                },
                default: Default::Is("\"1s\""),
                meaning: "How long a starting host listens for other members before it reads packets. If it receives any message, it first takes over their state, for at most ten times as long.",
            },
            drain_max: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(10),
                    most: Duration::from_secs(600),
                },
                default: Default::Is("\"10s\""),
                meaning: "How long a graceful stop may take: parked packets end, other hosts acknowledge, the state is saved.",
            },
        },
    };
}

/// Builds this host's settings; `member` is what the command line says it is. `None` if anything is wrong.
pub(super) fn host(
    values: &Values,
    cluster: &Values,
    member: Option<&str>,
    report: &mut Report,
) -> Option<Host> {
    let known = members(cluster);
    let name = match (member, values.get(HOST.name), values.place(HOST.name)) {
        (Some(name), ..) => {
            check_name(name, None, values, cluster, report);
            name.to_owned()
        }
        (None, Some(name), place) => {
            check_name(
                &name,
                place.map(|place| &place.value),
                values,
                cluster,
                report,
            );
            name
        }
        (None, None, None) if is_open(cluster) => String::new(),
        (None, None, None) => known.first()?.0.clone(),
        (None, None, Some(_)) => return None,
    };
    let instances = usize::try_from(values.get(HOST.instances)?).ok()?;
    Some(Host {
        name,
        address: address(values, cluster, report)?,
        instances,
        cores: cores(values, instances, report)?,
        idle: Idle::of(values.get(HOST.idle)?),
        channel_idle: Idle::of(values.get(HOST.channel_idle)?),
        control: values.get(HOST.control).map(PathBuf::from),
        metrics: values.get(HOST.metrics),
        state: values.get(HOST.state).map(PathBuf::from),
        eve: match values.get(HOST.eve) {
            None => values.place(HOST.eve).is_none().then_some(None)?,
            Some(table) => Some(eve(&table)?),
        },
        join_wait: values.get(HOST.join_wait)?,
        drain_max: values.get(HOST.drain_max)?,
    })
}

fn check_name(
    name: &str,
    written: Option<&core::ops::Range<usize>>,
    values: &Values,
    cluster: &Values,
    report: &mut Report,
) {
    let known = members(cluster);
    if is_open(cluster) {
        return check_registered(name, written, values, &known, report);
    }
    if known.is_empty() || known.iter().any(|(member, _)| member == name) {
        return;
    }
    let names = || known.iter().map(|(member, _)| member.as_str());
    let span = written
        .cloned()
        .unwrap_or(if cluster.place(CLUSTER.members).is_some() {
            cluster.span_of(CLUSTER.members)
        } else {
            values.span.clone()
        });
    let mut unknown = Diagnostic::error(
        format!("this host, \"{name}\", is no member of the cluster"),
        span,
    );
    if written.is_none() {
        unknown = unknown.label("the members; --member names another");
    } else if cluster.place(CLUSTER.members).is_some() {
        unknown = unknown.also(cluster.span_of(CLUSTER.members), "the members");
    }
    if let Some(near) = suggestion::nearest(name, names()) {
        unknown = unknown.help(format!("did you mean \"{near}\"?"));
    }
    report.add(unknown.help(format!(
        "choose {}, or add \"{name}\" to `members` in [cluster]",
        suggestion::quoted(names())
    )));
}

/// Whether a host that registers may have this name.
fn check_registered(
    name: &str,
    written: Option<&core::ops::Range<usize>>,
    values: &Values,
    places: &[(String, core::ops::Range<usize>)],
    report: &mut Report,
) {
    let is_place = places.iter().any(|(place, _)| place == name);
    if value::name(name).is_ok() && !is_place {
        return;
    }
    let span = written.cloned().unwrap_or(values.span.clone());
    report.add(
        Diagnostic::error(format!("no host can have the name \"{name}\""), span)
            .label(match is_place {
                true => "a place of the cluster has it",
                false => "1 to 63 of a-z, 0-9 and hyphens",
            })
            .help("write another name, such as \"host-a\""),
    );
}

/// Where the state channel of a host that registers is. The outer `None` if it is wrong.
fn address(values: &Values, cluster: &Values, report: &mut Report) -> Option<Option<SocketAddr>> {
    let Some(address) = values.get(HOST.address) else {
        return values.place(HOST.address).is_none().then_some(None);
    };
    let span = values.span_of(HOST.address);
    if !is_open(cluster) {
        report.add(
            Diagnostic::error("the addresses of listed members are with the list", span)
                .help("write it into [cluster.member.NAME], or write places = 16 into [cluster] instead of `members`"),
        );
        return None;
    }
    if !is_host_address(address) {
        report.add(
            Diagnostic::error(format!("other hosts cannot send to {address}"), span)
                .help("write the address and the port at which they reach this host"),
        );
        return None;
    }
    Some(Some(address))
}

fn cores(values: &Values, instances: usize, report: &mut Report) -> Option<Vec<usize>> {
    let Some(list) = values.get(HOST.cores) else {
        return values.place(HOST.cores).is_none().then(Vec::new);
    };
    let mut cores: Vec<usize> = Vec::new();
    for (core, span) in list {
        let core = usize::try_from(core).ok()?;
        if cores.contains(&core) {
            report.add(
                Diagnostic::error(format!("core {core} is listed twice"), span)
                    .help("give each packet loop a core of its own"),
            );
        }
        cores.push(core);
    }
    if cores.len() != instances && !cores.is_empty() {
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let mut wrong = Diagnostic::error(
            format!(
                "{} for {}",
                count(cores.len(), "core"),
                count(instances, "packet loop")
            ),
            values.span_of(HOST.cores),
        );
        if values.place(HOST.instances).is_some() {
            wrong = wrong.also(values.span_of(HOST.instances), "the packet loops");
        }
        report.add(wrong.help("list one core for each of `instances`, or leave `cores` out"));
    }
    Some(cores)
}
