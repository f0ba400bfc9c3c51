//! The configuration: one TOML file, read with every mistake at once.
//!
//! `fields.rs`, `host.rs`, `port.rs`, `store/fields.rs` and `orchestrator.rs` declare the tables and fields of hosts, the cluster, stores
//! and orchestrators; those of network functions are in `asterism-function-settings`. `asterism-toml-schema` reads a table by its
//! declaration and shows mistakes; `cluster.rs`, `store.rs` and `combinations.rs` find contradictions. [`Config::read`] takes text and
//! opens no file: `files.rs` and `asterism-key-file` do. Read first: [`Config::read`].

mod ack;
mod cluster;
mod combinations;
pub mod differences;
mod eve;
pub mod fields;
pub mod files;
mod host;
mod launch;
mod orchestrator;
mod overlay;
mod places;
mod policy;
mod port;
mod purpose;
mod release;
mod store;
mod tenants;

pub use ack::StoreAck;
pub use asterism_function_settings as functions;
pub use asterism_function_settings::{
    FILE_BYTES_MAX, Function, ObjectChoice, Placement, STAYS_BY_KIND, Settings, Sharing, change_to,
    direction, wiring,
};
pub use asterism_key_file as key_file;
pub use asterism_notation::{network, suggestion, text, value};
pub use asterism_toml_schema::diagnostic;
pub use cluster::{Channel, Cluster, identity};
pub use eve::{Eve, EveAlerts};
pub use host::{Host, Idle};
pub use launch::{ContainerFrom, Launch, LaunchWith};
pub use orchestrator::{
    Api, Director, DirectorArm, DirectorBy, DirectorFragments, DirectorMachine, DirectorPort,
    DirectorSide, Etcd, EtcdFiles, OpenVSwitch, Orchestrator, OrchestratorTimes, Routes,
    SwitchAddress, SwitchDirection, SwitchHash,
};
pub use port::{NAMES as PORT_NAMES, Port, PortKind, PortMode, SPAN as SPAN_PORT};
pub use purpose::Purpose;
pub use store::Store;
pub use store::cache::StoreCache;
pub use store::embedded::{EmbeddedStore, StoreSync};
pub use store::shards::{StoreShard, StoreShards};
pub use tenants::{TENANTS_MAX, Tenant};

use core::ops::Range;

use asterism_elasticity::Rules;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use asterism_function_settings::Functions;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;

/// The most errors that are reported of one file; a file with more is not a configuration.
pub const DIAGNOSTICS_MAX: usize = 100;
/// Hosts that are no members and have tables of their own, as which a file is read at most: they are mistakes, and each reads all of it.
const OTHER_HOSTS_MAX: usize = 8;

/// A configuration without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What all hosts have in common.
    pub cluster: Cluster,
    /// This host.
    pub host: Host,
    /// Its ports, in the order of their numbers; none if the file has no `[port]`.
    pub ports: Vec<Port>,
    /// The network function.
    pub function: Function,
    /// The orchestrator, if the file has one.
    pub orchestrator: Option<Orchestrator>,
    /// How many hosts there are to be, if the file has a policy.
    pub policy: Option<Rules>,
    /// The tenants, in the order of the file.
    pub tenants: Vec<Tenant>,
    /// The store that objects live in, if any does.
    pub store: Option<Store>,
}

impl Config {
    /// Reads a configuration. The report has all that is wrong; the configuration is there exactly if it has no errors.
    #[must_use]
    pub fn read(file: &str, text: &str) -> (Option<Config>, Report) {
        Config::read_for(file, text, None, Functions::default())
    }

    /// As [`Config::read`], for the host that is `member`, and with these functions. Without one the file says which host it is, or it is the first;
    /// then the file is read as each of the members reads it, and what is wrong for any of them is reported.
    #[must_use]
    pub fn read_for(
        file: &str,
        text: &str,
        member: Option<&str>,
        functions: Functions,
    ) -> (Option<Config>, Report) {
        Config::read_as(file, text, Purpose::Host, member, functions)
    }

    /// As [`Config::read_for`], for this purpose.
    #[must_use]
    pub fn read_as(
        file: &str,
        text: &str,
        purpose: Purpose,
        member: Option<&str>,
        functions: Functions,
    ) -> (Option<Config>, Report) {
        let text = text::without_mark(text);
        let mut report = Report::new(file, text);
        report.schema = fields::schema(functions).into();
        if text.len() > FILE_BYTES_MAX {
            report.text = String::new();
            report.add(
                Diagnostic::error(
                    format!(
                        "the file has {} bytes, more than {FILE_BYTES_MAX}",
                        text.len()
                    ),
                    0..0,
                )
                .help("is this a configuration?"),
            );
            return (None, report);
        }
        let (document, mistakes) = DeTable::parse_recoverable(text);
        let config = read_hosts(document.get_ref(), purpose, member, functions, &mut report);
        report.add_syntax(&mistakes);
        report.shorten(DIAGNOSTICS_MAX);
        let config = config.filter(|_| report.errors() == 0);
        (config, report)
    }
}

/// Text at a path of the document.
fn text_at<'d>(document: &'d DeTable<'_>, table: &str, field: &str) -> Option<&'d str> {
    let (_, table) = table::get(document, table)?;
    let DeValue::Table(table) = table.get_ref() else {
        return None;
    };
    match table::get(table, field)?.1.get_ref() {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

/// Reads the document as the host does that it is for; without one as every member does, because what all of them have written
/// otherwise no host reads.
fn read_hosts(
    document: &DeTable<'_>,
    purpose: Purpose,
    member: Option<&str>,
    functions: Functions,
    report: &mut Report,
) -> Option<Config> {
    let members = members_of(document, report);
    overlay::check(document, &members, report);
    if let Some(written) = member.or_else(|| text_at(document, "host", "name")) {
        let laid = overlay::lay(document, written);
        return read_document(&laid, purpose, member, functions, report);
    }
    let own = overlay::hosts(document);
    let mut first = None;
    if members.is_empty() {
        first = read_document(
            &overlay::lay(document, ""),
            purpose,
            None,
            functions,
            report,
        );
    }
    let mut is_plain_read = false;
    for (place, name) in members.iter().enumerate() {
        let is_plain = !own.contains(name);
        // They all read the same.
        if place > 0 && is_plain && is_plain_read {
            continue;
        }
        is_plain_read |= is_plain;
        let config = read_other(document, purpose, (name, Some(name)), functions, report);
        if place == 0 {
            first = config;
        }
    }
    let others = own.iter().filter(|name| !members.contains(name));
    for name in others.take(OTHER_HOSTS_MAX) {
        read_other(document, purpose, (name, None), functions, report);
    }
    first
}

/// Reads the document with what is written for one host alone, and adds what was not said yet.
fn read_other(
    document: &DeTable<'_>,
    purpose: Purpose,
    (written, member): (&str, Option<&String>),
    functions: Functions,
    report: &mut Report,
) -> Option<Config> {
    let mut other = Report::new(&report.file, &report.text);
    other.schema.clone_from(&report.schema);
    let laid = overlay::lay(document, written);
    let config = read_document(
        &laid,
        purpose,
        member.map(String::as_str),
        functions,
        &mut other,
    );
    other
        .diagnostics
        .retain(|one| !report.diagnostics.contains(one));
    report.hidden += other.hidden;
    for one in other.diagnostics {
        report.add(one);
    }
    config
}

/// The members that the document lists; none if they cannot be read.
fn members_of(document: &DeTable<'_>, report: &Report) -> Vec<String> {
    // Their errors are reported where the whole file is read.
    let mut unread = Report::new(&report.file, &report.text);
    let values = fields::CLUSTER
        .section()
        .read_top("cluster", document, &mut unread);
    // Hosts that register may have any name.
    let values = values.filter(|values| !places::is_open(values));
    let members = values.map(|values| cluster::members(&values));
    let names = members.into_iter().flatten().map(|(name, _)| name);
    names.collect()
}

/// Reads the document as one host does, with what is written for it alone laid over the rest. `None` if anything is wrong.
fn read_document(
    document: &DeTable<'_>,
    purpose: Purpose,
    member: Option<&str>,
    functions: Functions,
    report: &mut Report,
) -> Option<Config> {
    check_tables(document, functions, report);
    let document = &*tenants::lay(document);
    let cluster_values = fields::CLUSTER
        .section()
        .read_top("cluster", document, report)?;
    let host_values = fields::HOST.section().read_top("host", document, report)?;
    let cluster = cluster::cluster(&cluster_values, purpose, report);
    let host = host::host(&host_values, &cluster_values, member, report);
    let sharing = sharing(&cluster_values, &host_values);
    let port_values = fields::PORTS.section().read_top("port", document, report);
    let written = table::get(document, "port").is_some();
    let ports = match &port_values {
        Some(values) => port::ports(values, written, sharing.instances as u64, report),
        None => None,
    };
    if written && purpose == Purpose::Host {
        cluster::check_apart(&cluster_values, report);
    }
    let mut function = functions::read(document, sharing, functions, report);
    if written && let Some(function) = &mut function {
        if let Some(values) = &port_values {
            combinations::check_span(&function.settings, values, report);
        }
        if purpose != Purpose::Replay {
            function.on_real_links(document);
        }
        if let Some(values) = &port_values {
            combinations::check_tunnels(&function.settings, ports.as_deref(), values, report);
            let of = (function.name, &function.settings);
            combinations::check_bulk(of, ports.as_deref(), values, report);
        }
    }
    if let Some(function) = &mut function {
        function.settings.shared_by(sharing);
        if sharing.members > 1 {
            let channel = cluster_values
                .get(fields::CLUSTER.channel)
                .map_or(0..0, |values| values.span_of(fields::CHANNEL.keep_alive));
            let keep_alive = cluster.as_ref().map(|cluster| cluster.channel.keep_alive);
            combinations::check_waits(&function.objects, keep_alive, channel, report);
        }
    }
    let store = store::read(
        document,
        (cluster.as_ref(), function.as_mut()),
        (purpose, sharing),
        report,
    );
    if written
        && purpose == Purpose::Host
        && let (Some(cluster), Some(Some(store))) = (&cluster, &store)
    {
        store::check_key(document, cluster, store, report);
    }
    if let (Some(Host { eve: Some(_), .. }), Some(function)) = (&host, &function) {
        store::check_alerts(document, function, report);
    }
    let orchestrator = orchestrator::read(document, cluster.as_ref(), report);
    let policy = policy::read(document, cluster.as_ref(), store.as_ref(), report);
    let tenants = tenants::read(document, cluster.as_ref(), report);
    Some(Config {
        cluster: cluster?,
        host: host?,
        ports: ports?,
        function: function?,
        orchestrator: orchestrator?,
        policy: policy?,
        tenants: tenants?,
        store: store?,
    })
}

/// Refuses tables, and fields, that the top of a file cannot have.
fn check_tables(document: &DeTable<'_>, functions: Functions, report: &mut Report) {
    const TABLES: [&str; 10] = [
        "chain",
        "cluster",
        "host",
        "port",
        "function",
        "stage",
        "store",
        "orchestrator",
        "policy",
        "tenants",
    ];
    for (key, value) in document {
        let name = key.get_ref().as_ref();
        if !TABLES.contains(&name) {
            let unknown = unknown_table(name, key.span(), value, functions, report);
            report.add(unknown);
        }
    }
}

/// How many share the state; at least one host and one instance, whatever is wrong with them.
fn sharing(cluster: &Values, host: &Values) -> Sharing {
    Sharing {
        members: cluster::members(cluster).len().max(1),
        instances: host
            .get(fields::HOST.instances)
            .map_or(1, |count| count as usize),
        is_acked: cluster::is_acked(cluster),
    }
}

/// Where a function's table is in a file, or that of a stage of a chain by its name; for one host alone if it is nowhere else. For
/// what is found wrong with a function that was read well.
pub(crate) fn place_of_function(text: &str, name: &str) -> Range<usize> {
    let (document, _) = DeTable::parse_recoverable(text);
    let document = document.get_ref();
    let below = |table: &DeTable<'_>| match table::get(table, "function") {
        Some((_, value)) => match value.get_ref() {
            DeValue::Table(table) => table::get(table, name).map(|(key, _)| key.span()),
            _ => None,
        },
        None => None,
    };
    let chain = || table::get(document, "chain").map(|(key, _)| key.span());
    let hosts = overlay::hosts(document).into_iter();
    let mut laid = hosts.map(|host| overlay::lay(document, &host));
    below(document)
        .or_else(|| laid.find_map(|table| below(&table)))
        .or_else(chain)
        .unwrap_or(text.len()..text.len())
}

fn unknown_table(
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    functions: Functions,
    report: &Report,
) -> Diagnostic {
    let tables = [
        "cluster",
        "host",
        "port",
        "function",
        "stage",
        "on",
        "store",
        "orchestrator",
        "tenants",
    ];
    let unknown = Diagnostic::error(
        format!("unknown field `{name}` at the top of the file"),
        span,
    )
    .label("not known here");
    if let Some(function) = functions.names().find(|function| *function == name) {
        return unknown.help(format!("functions are written [function.{function}]"));
    }
    if let Some(near) = suggestion::nearest(name, tables.into_iter()) {
        return unknown.help(format!("did you mean [{near}]?"));
    }
    if let Some(section) = report
        .schema
        .section_with(name, "")
        .filter(|_| !value.get_ref().is_table())
    {
        return unknown.help(format!("`{name}` belongs in [{}]", section.path));
    }
    unknown.help("the tables of a configuration are [cluster], [host], [port], [function.NAME] and [on.HOST]")
}
