//! The settings of the orchestrators: where they listen, where they keep the truth, by which times they decide, and the routes that
//! they write. `orchestrator/` has the tables of other steering, and how etcd is reached.

mod director;
mod etcd;
mod openvswitch;

use core::net::{Ipv4Addr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeSet;
use std::path::PathBuf;

use asterism_placement::membership::MEMBERS_MAX;
use toml::de::{DeTable, DeValue};

use super::cluster::Cluster;
use super::fields::CLUSTER;
use super::launch::{self, LAUNCH, Launch};
use asterism_notation::network::Prefix;
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::section::{Default, List, Setting, Values, section};
use asterism_toml_schema::table;
use director::{DIRECTOR, DIRECTORS_MAX};
pub use director::{
    Director, DirectorArm, DirectorBy, DirectorFragments, DirectorMachine, DirectorPort,
    DirectorSide,
};
pub use etcd::{Etcd, EtcdFiles};
use openvswitch::{BRIDGES_MAX, OPENVSWITCH};
pub use openvswitch::{OpenVSwitch, SwitchAddress, SwitchDirection, SwitchHash};

/// Sets of routes at most: those inside and those outside.
const ROUTES_MAX: usize = 2;
/// Members of an etcd cluster that are named, at most: as many as the truth store asks.
const ETCD_MAX: usize = 8;

/// The orchestrators of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Orchestrator {
    /// How etcd is reached, unless the store is the embedded one.
    pub etcd: Etcd,
    /// The folder of an orchestrator's own files, as written.
    pub folder: PathBuf,
    /// How long a leader leads unless it renews its term.
    pub term: Duration,
    /// The times of the controller.
    pub times: OrchestratorTimes,
    /// Where the HTTP API is; `None`: there is none.
    pub api: Option<Api>,
    /// What is steered by routes.
    pub routes: Vec<Routes>,
    /// What is steered by bridges of Open vSwitch.
    pub openvswitch: Vec<OpenVSwitch>,
    /// What is steered by directors.
    pub director: Vec<Director>,
    /// How hosts are launched; `None`: not by the orchestrator.
    pub launch: Option<Launch>,
}

impl Orchestrator {
    /// The hosts that every steering can lead packets to; `None`: nothing is steered. Where members are listed, these are all of them.
    #[must_use]
    pub fn steered(&self) -> Option<BTreeSet<String>> {
        let routes = self.routes.iter().map(|routes| names(&routes.hops));
        let directions = self
            .openvswitch
            .iter()
            .flat_map(|bridge| &bridge.directions);
        let bridges = directions.map(|direction| names(&direction.hops));
        let arms = self.director.iter().flat_map(|director| &director.arms);
        let directors = arms.map(|arm| names(&arm.hops));
        let all = routes.chain(bridges).chain(directors);
        all.reduce(|one, other| &one & &other)
    }
}

fn names<A, B>(hops: &[(String, A, B)]) -> BTreeSet<String> {
    hops.iter().map(|(name, ..)| name.clone()).collect()
}

/// The HTTP API of an orchestrator, files as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The address.
    pub listen: SocketAddr,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether tokens may cross the network in the clear.
    pub plain: bool,
}

/// The times by which the controller decides, which the reference explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are documented in the reference")]
pub struct OrchestratorTimes {
    pub suspect_after: Duration,
    pub suspect_after_max: Duration,
    pub return_after: Duration,
    pub evict_after: Duration,
    pub found_after: Duration,
}

/// Routes with several next hops in one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Its name.
    pub name: String,
    /// The file of the network namespace, as written; `None`: the orchestrator's own.
    pub namespace: Option<PathBuf>,
    /// The networks that the routes lead to.
    pub destinations: Vec<Prefix>,
    /// The source address of packets that the machine itself sends there.
    pub source: Option<Ipv4Addr>,
    /// The routing table's number.
    pub table: u32,
    /// Equal places in the list of next hops.
    pub slots: u16,
    /// The next hop to each member: its name, the gateway, and the interface.
    pub hops: Vec<(String, Ipv4Addr, String)>,
}

const fn duration(least_ms: u64, most_ms: u64) -> Kind {
    Kind::Duration {
        least: Duration::from_millis(least_ms),
        most: Duration::from_millis(most_ms),
    }
}

section! {
    /// The table `[orchestrator]`.
    pub(crate) static ORCHESTRATOR: OrchestratorKeys = {
        path: "orchestrator",
        meaning: "The orchestrators of the cluster (`asterism orchestrate`), which decide who takes part and where packets go. Their addresses are in [cluster] orchestrators.",
        fields: {
            etcd: List<SocketAddr> = Setting {
                kind: Kind::List {
                    of: &Kind::Socket,
                    most: ETCD_MAX,
                },
                default: Default::Is("[]"),
                meaning: "The addresses of etcd's members, which hold epochs and leadership. Without any, one orchestrator keeps them in its folder.",
            },
            etcd_ca: String = Setting {
                kind: Kind::File,
                default: Default::Unset("etcd is reached without TLS"),
                meaning: "The certificates of the authorities that may have signed etcd's, PEM; those of the system are not used. With them etcd is reached by TLS, and its certificates must be for the addresses in `etcd`.",
            },
            etcd_certificate: String = Setting {
                kind: Kind::File,
                default: Default::Unset("none is shown"),
                meaning: "The orchestrator's own certificate and its chain, PEM, where etcd asks for one (`--client-cert-auth`).",
            },
            etcd_key: String = Setting {
                kind: Kind::File,
                default: Default::Unset("none is shown"),
                meaning: "That certificate's private key, PEM. Its mode must be 0600.",
            },
            etcd_user: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("no login"),
                meaning: "The user as which the orchestrator logs in, where etcd asks for one.",
            },
            etcd_password: String = Setting {
                kind: Kind::File,
                default: Default::Unset("no login"),
                meaning: "The file with that user's password, on one line. Its mode must be 0600.",
            },
            folder: String = Setting {
                kind: Kind::File,
                default: Default::Is("\"orchestrator\""),
                meaning: "The folder of an orchestrator's own files. It must be on a local disk that survives a restart.",
            },
            term: Duration = Setting {
                kind: duration(1_000, 60_000),
                default: Default::Is("\"3s\""),
                meaning: "How long a leader leads unless it renews its term: whole seconds. If a leader dies, another one leads after this time.",
            },
            suspect_after: Duration = Setting {
                kind: duration(20, 10_000),
                default: Default::Is("\"150ms\""),
                meaning: "Packets leave a host that was silent for this long. At least two heartbeats.",
            },
            suspect_after_max: Duration = Setting {
                kind: duration(20, 60_000),
                default: Default::Is("\"1s\""),
                meaning: "The same for a host with irregular heartbeats, which is given longer, at most this long.",
            },
            return_after: Duration = Setting {
                kind: duration(0, 60_000),
                default: Default::Is("\"500ms\""),
                meaning: "Packets return to a suspected host whose heartbeats have arrived without a gap for this long.",
            },
            evict_after: Duration = Setting {
                kind: duration(100, 3_600_000),
                default: Default::Is("\"5s\""),
                meaning: "An epoch leaves out a host that was silent for this long, for the orchestrator and for all hosts that are heard.",
            },
            found_after: Duration = Setting {
                kind: duration(0, 600_000),
                default: Default::Is("\"1s\""),
                meaning: "How long the first epoch waits for more hosts.",
            },
            api: Values = Setting {
                kind: Kind::Table(API.section()),
                default: Default::Is("{}"),
                meaning: "The HTTP API, by which operators, programs and Prometheus see the cluster and give orders.",
            },
            launch: Values = Setting {
                kind: Kind::Table(LAUNCH.section()),
                default: Default::Is("{}"),
                meaning: "How the orchestrator launches hosts.",
            },
            routes: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: ROUTES.section(),
                    most: ROUTES_MAX,
                },
                default: Default::Is("{}"),
                meaning: "Routes with several next hops that the orchestrator writes: one table for each side of the cluster. Without any, and without a bridge, something else leads packets to the hosts.",
            },
            openvswitch: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: OPENVSWITCH.section(),
                    most: BRIDGES_MAX,
                },
                default: Default::Is("{}"),
                meaning: "Bridges of Open vSwitch that the orchestrator writes the rules of.",
            },
            director: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: DIRECTOR.section(),
                    most: DIRECTORS_MAX,
                },
                default: Default::Is("{}"),
                meaning: "Directors that the orchestrator commands, one or a pair in each table.",
            },
        },
    };
}

section! {
    /// The HTTP API.
    pub(crate) static API: ApiKeys = {
        path: "orchestrator.api",
        meaning: "The HTTP API of an orchestrator.",
        fields: {
            listen: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("there is no API"),
                meaning: "The address, such as \"127.0.0.1:7580\". Anything but loopback needs tokens, and a certificate or `plain`.",
            },
            tokens: String = Setting {
                kind: Kind::File,
                default: Default::Unset("everybody on this machine is an operator"),
                meaning: "The file of tokens, mode 0600; it is read again when it changes.",
            },
            certificate: String = Setting {
                kind: Kind::File,
                default: Default::Unset("HTTP without TLS"),
                meaning: "The certificate and its chain, PEM; read again when it changes.",
            },
            certificate_key: String = Setting {
                kind: Kind::File,
                default: Default::Unset("HTTP without TLS"),
                meaning: "The certificate's private key, PEM.",
            },
            plain: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether tokens may cross the network without TLS, as behind a proxy on the same segment.",
            },
        },
    };
}

section! {
    /// Routes to the hosts.
    pub(crate) static ROUTES: RoutesKeys = {
        path: "orchestrator.routes.NAME",
        meaning: "Routes on one side of the cluster, of this machine or of one of its network namespaces.",
        fields: {
            namespace: String = Setting {
                kind: Kind::File,
                default: Default::Unset("the orchestrator's own"),
                meaning: "The file of the network namespace whose routes are written, such as \"/run/netns/router\".",
            },
            to: List<Prefix> = Setting {
                kind: Kind::List {
                    of: &Kind::Prefix,
                    most: 16,
                },
                default: Default::Required("[\"203.0.113.0/24\"]"),
                meaning: "The networks whose packets go to the hosts.",
            },
            source: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Unset("the kernel chooses"),
                meaning: "The source address of packets that the router itself sends there.",
            },
            table: u64 = Setting {
                kind: Kind::Count { least: 1, most: u32::MAX as u64 },
                default: Default::Is("254"),
                meaning: "The routing table; 254 is the main one.",
            },
            slots: u64 = Setting {
                kind: Kind::Count { least: 1, most: 64 },
                default: Default::Is("24"),
                meaning: "Equal places in the list of next hops, each of which leads to one host: more make equal shares, and cost the kernel more for each packet.",
            },
            via: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: VIA.section(),
                    most: MEMBERS_MAX,
                },
                default: Default::Required("{ a = { gateway = \"192.0.2.1\", interface = \"eth0\" } }"),
                meaning: "The next hop to each member. The table's name is the member's.",
            },
        },
    };
}

section! {
    /// A next hop.
    pub(crate) static VIA: ViaKeys = {
        path: "orchestrator.routes.NAME.via.NAME",
        meaning: "The next hop to a member.",
        fields: {
            gateway: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Required("\"192.0.2.1\""),
                meaning: "The member's address on this side.",
            },
            interface: String = Setting {
                kind: Kind::Device,
                default: Default::Required("\"eth0\""),
                meaning: "The interface to it.",
            },
        },
    };
}

/// The addresses of the orchestrators, as `[cluster]` lists them.
pub(super) fn listed(values: &Values) -> Vec<SocketAddr> {
    let listed = values.get(CLUSTER.orchestrators).unwrap_or_default();
    listed.into_iter().map(|(address, _)| address).collect()
}

/// Orchestrators hand epochs, under the cluster's key.
pub(super) fn check_listed(values: &Values, report: &mut Report) {
    let listed = values.get(CLUSTER.orchestrators).unwrap_or_default();
    for (place, (address, span)) in listed.iter().enumerate() {
        if let Some((_, first)) = listed[..place].iter().find(|(other, _)| other == address) {
            report.add(
                Diagnostic::error(
                    format!("orchestrator {address} is listed twice"),
                    span.clone(),
                )
                .also(first.clone(), "first here")
                .help("leave one of the two out"),
            );
        }
        if address.port() == 0 || address.ip().is_unspecified() {
            report.add(
                Diagnostic::error(
                    format!("hosts cannot send to {address}"),
                    span.clone(),
                )
                .help("write the address and the port at which the orchestrator listens, such as \"192.0.2.9:7500\""),
            );
        }
    }
    if listed.is_empty() {
        return;
    }
    let lacks = |what: &str, why: &str, help: &str| {
        Diagnostic::error(
            format!("a cluster with orchestrators needs {what}"),
            values.span_of(CLUSTER.orchestrators),
        )
        .label(why)
        .help(help)
    };
    if values.place(CLUSTER.epochs).is_none() {
        report.add(lacks(
            "a file of epochs",
            "hosts keep the epoch that they are handed",
            "add epochs = \"epoch.toml\"; the file need not exist, and its folder must be on a local disk that survives a restart",
        ));
    }
    if values.place(CLUSTER.key).is_none() {
        report.add(lacks(
            "a key",
            "heartbeats are sealed with it",
            "write a key with `asterism keygen cluster.key`, copy it to every host and orchestrator, and add key = \"cluster.key\"",
        ));
    }
}

/// Reads `[orchestrator]`. The outer `None` if anything in it is wrong, the inner one if the cluster has no orchestrators.
pub(super) fn read(
    document: &DeTable<'_>,
    cluster: Option<&Cluster>,
    report: &mut Report,
) -> Option<Option<Orchestrator>> {
    let values = ORCHESTRATOR
        .section()
        .read_top("orchestrator", document, report)?;
    let cluster = cluster?;
    if cluster.orchestrators.is_empty() {
        if let Some((key, _)) = table::get(document, "orchestrator") {
            report.add(
                Diagnostic::error("this cluster has no orchestrators", key.span())
                    .help("add orchestrators = [\"192.0.2.9:7500\"] to [cluster], or leave this table out"),
            );
            return None;
        }
        return Some(None);
    }
    let times = times(&values, cluster.heartbeat, report);
    let etcd = etcd::read(&values, report);
    let is_shared = etcd.as_ref().is_none_or(|etcd| !etcd.addresses.is_empty());
    if !is_shared && cluster.orchestrators.len() > 1 {
        report.add(
            Diagnostic::error(
                "several orchestrators need a store that they share",
                span_of_listed(document).unwrap_or(values.span.clone()),
            )
            .help("name etcd's members in [orchestrator], such as etcd = [\"192.0.2.7:2379\"], or leave one orchestrator"),
        );
        return None;
    }
    let term = values.get(ORCHESTRATOR.term);
    let is_whole = term.is_none_or(|term| term.subsec_nanos() == 0);
    if let Some(term) = term.filter(|_| !is_whole) {
        report.add(
            Diagnostic::error("terms are whole seconds", values.span_of(ORCHESTRATOR.term))
                .help(format!("write term = \"{}s\"", term.as_secs() + 1)),
        );
    }
    let tables = values.get(ORCHESTRATOR.routes)?;
    // All of them, so that every mistake is said at once.
    let read: Vec<Option<Routes>> = tables
        .iter()
        .map(|table| routes(table, cluster, report))
        .collect();
    let routes: Option<Vec<Routes>> = read.into_iter().collect();
    let bridges = values.get(ORCHESTRATOR.openvswitch)?;
    let openvswitch = openvswitch::read(&bridges, cluster, report);
    let directors = values.get(ORCHESTRATOR.director)?;
    let director = director::read(&directors, cluster, report);
    let api = api(&values.get(ORCHESTRATOR.api)?, report);
    let launch = launch::launch(&values.get(ORCHESTRATOR.launch)?, cluster, report);
    Some(Some(Orchestrator {
        api: api?,
        launch: launch?,
        etcd: etcd?,
        folder: PathBuf::from(values.get(ORCHESTRATOR.folder)?),
        term: term.filter(|_| is_whole)?,
        times: times?,
        routes: routes?,
        openvswitch: openvswitch?,
        director: director?,
    }))
}

/// Where the orchestrators are listed.
fn span_of_listed(document: &DeTable<'_>) -> Option<Range<usize>> {
    let (_, cluster) = table::get(document, "cluster")?;
    let DeValue::Table(cluster) = cluster.get_ref() else {
        return None;
    };
    let (_, listed) = table::get(cluster, CLUSTER.orchestrators.name())?;
    Some(listed.span())
}

/// Reads `[orchestrator.api]`. The outer `None` if anything in it is wrong.
fn api(values: &Values, report: &mut Report) -> Option<Option<Api>> {
    let path = |key| values.get(key).map(PathBuf::from);
    let (tokens, plain) = (path(API.tokens), values.get(API.plain)?);
    let certificate = (path(API.certificate), path(API.certificate_key));
    let Some(listen) = values.get(API.listen) else {
        return values.place(API.listen).is_none().then_some(None);
    };
    let mut is_right = true;
    let mut wrong = |title: &str, help: &str| {
        report.add(Diagnostic::error(title, values.span_of(API.listen)).help(help));
        is_right = false;
    };
    let is_loopback = listen.ip().to_canonical().is_loopback();
    if !is_loopback && tokens.is_none() {
        wrong(
            "everybody who reaches this address would be an operator",
            "name a file of tokens, or listen on 127.0.0.1",
        );
    }
    if !is_loopback && !plain && certificate.0.is_none() {
        wrong(
            "tokens would cross the network in the clear",
            "name certificate and certificate_key, listen on 127.0.0.1, or write plain = true",
        );
    }
    let certificate = match certificate {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            wrong(
                "a certificate and its key belong together",
                "name both certificate and certificate_key, or neither",
            );
            None
        }
    };
    is_right.then_some(Some(Api {
        listen,
        tokens,
        certificate,
        plain,
    }))
}

fn times(values: &Values, heartbeat: Duration, report: &mut Report) -> Option<OrchestratorTimes> {
    let times = OrchestratorTimes {
        suspect_after: values.get(ORCHESTRATOR.suspect_after)?,
        suspect_after_max: values.get(ORCHESTRATOR.suspect_after_max)?,
        return_after: values.get(ORCHESTRATOR.return_after)?,
        evict_after: values.get(ORCHESTRATOR.evict_after)?,
        found_after: values.get(ORCHESTRATOR.found_after)?,
    };
    let mut is_right = true;
    let mut wrong = |title: &str, span, help: String| {
        report.add(Diagnostic::error(title, span).help(help));
        is_right = false;
    };
    let show = asterism_notation::value::show_duration;
    if times.suspect_after < 2 * heartbeat {
        wrong(
            "one lost datagram would be a suspicion",
            values.span_of(ORCHESTRATOR.suspect_after),
            format!(
                "write suspect_after = \"{}\" or more: twice heartbeat in [cluster]",
                show(2 * heartbeat)
            ),
        );
    }
    if times.suspect_after_max < times.suspect_after {
        wrong(
            "suspect_after_max is shorter than suspect_after",
            values.span_of(ORCHESTRATOR.suspect_after_max),
            format!("write \"{}\" or more", show(times.suspect_after)),
        );
    }
    if times.evict_after < times.suspect_after_max {
        wrong(
            "hosts would be left out before packets leave them",
            values.span_of(ORCHESTRATOR.evict_after),
            format!(
                "write \"{}\" or more: suspect_after_max",
                show(times.suspect_after_max)
            ),
        );
    }
    is_right.then_some(times)
}

fn routes(table: &NamedValues, cluster: &Cluster, report: &mut Report) -> Option<Routes> {
    let values = &table.values;
    let mistakes = report.errors();
    let via = values.get(ROUTES.via)?;
    check_hops(
        &via,
        values.span_of(ROUTES.via),
        (
            &format!("orchestrator.routes.{}", table.name),
            "{ gateway = \"192.0.2.1\", interface = \"eth0\" }",
        ),
        cluster,
        report,
    );
    let to = values.get(ROUTES.to)?;
    if to.is_empty() {
        report.add(
            Diagnostic::error("routes lead somewhere", values.span_of(ROUTES.to))
                .help("write to = [\"203.0.113.0/24\"]"),
        );
    }
    if report.errors() > mistakes {
        return None;
    }
    let hops: Option<Vec<_>> = via
        .iter()
        .map(|hop| {
            let (gateway, interface) =
                (hop.values.get(VIA.gateway)?, hop.values.get(VIA.interface)?);
            Some((hop.name.clone(), gateway, interface))
        })
        .collect();
    Some(Routes {
        name: table.name.clone(),
        namespace: values.get(ROUTES.namespace).map(PathBuf::from),
        destinations: to.into_iter().map(|(prefix, _)| prefix).collect(),
        source: values.get(ROUTES.source),
        table: u32::try_from(values.get(ROUTES.table)?).ok()?,
        slots: u16::try_from(values.get(ROUTES.slots)?).ok()?,
        hops: hops?,
    })
}

/// Checks that a table of steering has a next hop to each member, and to nobody else; `example` is one.
fn check_hops(
    via: &[NamedValues],
    span: Range<usize>,
    (table, example): (&str, &str),
    cluster: &Cluster,
    report: &mut Report,
) {
    let names = || cluster.members.iter().map(String::as_str);
    for hop in via
        .iter()
        .filter(|hop| !cluster.is_open && !cluster.members.contains(&hop.name))
    {
        let mut unknown = Diagnostic::error(
            format!("there is no member \"{}\"", hop.name),
            hop.place.clone(),
        );
        if let Some(near) = suggestion::nearest(&hop.name, names()) {
            unknown = unknown.help(format!("did you mean via.{near}?"));
        }
        report.add(unknown.help(format!("choose {}", suggestion::quoted(names()))));
    }
    let lacking = |name: &&str| !cluster.is_open && !via.iter().any(|hop| hop.name == *name);
    if let Some(name) = names().find(lacking) {
        report.add(
            Diagnostic::error(format!("there is no next hop to {name}"), span)
                .help(format!("add via.{name} = {example} to [{table}]")),
        );
    }
}
