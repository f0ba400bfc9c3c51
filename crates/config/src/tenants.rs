//! Tenants: whose an address is, and which hosts serve one tenant alone. What they may send is the limiter's business, which takes
//! their networks from here.

use core::ops::Range;
use std::borrow::Cow;

use asterism_function::IpPrefix;
use asterism_placement::membership::MEMBERS_MAX;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::cluster::Cluster;
use asterism_notation::suggestion;
use asterism_notation::value;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::section::{Default, List, Section, Setting, section};
use asterism_toml_schema::table;

/// Tenants of a cluster at most: their usage, of all members, fits one value of the truth store.
pub const TENANTS_MAX: usize = 64;
/// Networks of a tenant at most.
const NETWORKS_MAX: usize = 256;
/// What operators look for in a tenant's table, and which table has it.
const LIMITS: [&str; 6] = ["rate", "burst", "limit", "limits", "unit", "flows"];

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its addresses inside. No other tenant has one of them.
    pub networks: Vec<IpPrefix>,
    /// The members that serve it alone. No other tenant has one of them.
    pub hosts: Vec<String>,
}

section! {
    /// A table `[tenants.NAME]`.
    pub(crate) static TENANT: TenantKeys = {
        path: "tenants.NAME",
        meaning: "A tenant: whose packets are metered, and who sees its own usage and hosts by the HTTP API.",
        fields: {
            networks: List<IpPrefix> = Setting {
                kind: Kind::List {
                    of: &Kind::IpPrefix,
                    most: NETWORKS_MAX,
                },
                default: Default::Required("[\"10.1.0.0/16\"]"),
                meaning: "The tenant's addresses, as packets at the ports `inside` have them. They count for it: those from these addresses and those to them. A limiter's tenant of the same name has these networks too.",
            },
            hosts: List<String> = Setting {
                kind: Kind::List {
                    of: &Kind::Name,
                    most: MEMBERS_MAX,
                },
                default: Default::Is("[]"),
                meaning: "Members that serve this tenant alone: the steering in front of the cluster must lead only its packets there. The tenant sees them, and may drain and restore them.",
            },
        },
    };
}

/// All tables, as one table has them.
static ALL: Section = Section {
    path: "tenants",
    meaning: "The tenants of the cluster.",
    fields: &[asterism_toml_schema::section::Field {
        name: "tenants",
        kind: Kind::Named {
            section: TENANT.section(),
            most: TENANTS_MAX,
        },
        default: Default::Is("{}"),
        meaning: "A table for each tenant.",
    }],
};

/// Reads the tenants. `None` if anything is wrong with them.
pub(super) fn read(
    document: &DeTable<'_>,
    cluster: Option<&Cluster>,
    report: &mut Report,
) -> Option<Vec<Tenant>> {
    let Some((key, value)) = table::get(document, "tenants") else {
        return Some(Vec::new());
    };
    let before = report.errors();
    let mut alone = DeTable::new();
    alone.insert(key.clone(), without_limits(value, report));
    let all = asterism_toml_schema::section::Key::<Vec<NamedValues>>::new("tenants");
    let tables = ALL.read("tenants", &alone, value.span(), report).get(all)?;
    let tenants: Vec<Option<Tenant>> = tables.iter().map(tenant).collect();
    check_names(&tables, report);
    check_networks(&tables, report);
    check_hosts(&tables, cluster, report);
    if cluster.is_some_and(|cluster| cluster.orchestrators.is_empty()) && !tables.is_empty() {
        report.add(
            Diagnostic::warning("nobody sums up what tenants use", key.span()).help(
                "add orchestrators = [\"192.0.2.9:7500\"] to [cluster], and run `asterism orchestrate` there",
            ),
        );
    }
    let tenants: Option<Vec<Tenant>> = tenants.into_iter().collect();
    tenants.filter(|_| report.errors() == before)
}

fn tenant(table: &NamedValues) -> Option<Tenant> {
    let networks = table.values.get(TENANT.networks)?;
    let hosts = table.values.get(TENANT.hosts)?;
    Some(Tenant {
        name: table.name.clone(),
        networks: networks.into_iter().map(|(network, _)| network).collect(),
        hosts: hosts.into_iter().map(|(host, _)| host).collect(),
    })
}

/// The tables without limits, which no function but the limiter enforces.
fn without_limits<'i>(value: &Spanned<DeValue<'i>>, report: &mut Report) -> Spanned<DeValue<'i>> {
    let mut value = value.clone();
    let DeValue::Table(tables) = value.get_mut() else {
        return value;
    };
    let names: Vec<String> = tables.keys().map(|key| key.get_ref().to_string()).collect();
    for name in names {
        let Some(DeValue::Table(table)) = tables.get_mut(name.as_str()).map(Spanned::get_mut)
        else {
            continue;
        };
        let limits: Vec<(String, Range<usize>)> = table
            .keys()
            .filter(|key| LIMITS.contains(&key.get_ref().as_ref()))
            .map(|key| (key.get_ref().to_string(), key.span()))
            .collect();
        for (field, span) in limits {
            table.remove(field.as_str());
            let help = match field.as_str() {
                "flows" => "no function limits the flows of a tenant: limit its packets, by [function.limiter.tenants.NAME]".replace("NAME", &name),
                _ => format!(
                    "write rate and burst in [function.limiter.tenants.{name}], which has the networks of [tenants.{name}] unless it has its own"
                ),
            };
            report
                .add(Diagnostic::error(format!("`{field}` limits nothing here"), span).help(help));
        }
    }
    value
}

fn check_names(tables: &[NamedValues], report: &mut Report) {
    for table in tables {
        if let Err(mistake) = value::name(&table.name) {
            report.add(
                Diagnostic::error(
                    format!("{:?} is no tenant's name", table.name),
                    table.place.clone(),
                )
                .label(mistake.wrong)
                .help(mistake.instead),
            );
        }
    }
}

/// Refuses addresses of two tenants, and networks that a tenant lists twice.
fn check_networks(tables: &[NamedValues], report: &mut Report) {
    let mut seen: Vec<(IpPrefix, Range<usize>, &str)> = Vec::new();
    for table in tables {
        if table.values.place(TENANT.networks).is_some()
            && table
                .values
                .get(TENANT.networks)
                .is_some_and(|all| all.is_empty())
        {
            report.add(
                Diagnostic::error(
                    format!("the tenant `{}` has no addresses", table.name),
                    table.values.span_of(TENANT.networks),
                )
                .help("write networks = [\"10.1.0.0/16\"]"),
            );
        }
        for (network, span) in table.values.get(TENANT.networks).into_iter().flatten() {
            let other = seen.iter().find(|(other, ..)| other.overlaps(&network));
            if let Some((other, at, whose)) = other {
                let (title, help) = match *whose == table.name {
                    true => (
                        format!("{network} and {other} are the same addresses"),
                        "leave the wider one",
                    ),
                    false => (
                        format!("{network} holds addresses of the tenant `{whose}`"),
                        "leave each address to one tenant",
                    ),
                };
                report.add(
                    Diagnostic::error(title, span.clone())
                        .also(at.clone(), "listed here")
                        .help(help),
                );
            }
            seen.push((network, span, &table.name));
        }
    }
}

/// Refuses hosts that are no members, where these are listed, and hosts of two tenants.
fn check_hosts(tables: &[NamedValues], cluster: Option<&Cluster>, report: &mut Report) {
    let mut seen: Vec<(String, Range<usize>)> = Vec::new();
    for table in tables {
        for (host, span) in table.values.get(TENANT.hosts).into_iter().flatten() {
            if let Some((_, at)) = seen.iter().find(|(other, _)| *other == host) {
                report.add(
                    Diagnostic::error(format!("{host} is listed twice"), span.clone())
                        .also(at.clone(), "listed here")
                        .help("a host serves one tenant alone, or all: leave it to one"),
                );
            }
            let names = || cluster.into_iter().flat_map(|cluster| &cluster.members);
            let is_listed = cluster.is_some_and(|cluster| !cluster.is_open);
            if is_listed && !names().any(|name| *name == host) {
                let names = || names().map(String::as_str);
                let mut unknown =
                    Diagnostic::error(format!("there is no member \"{host}\""), span.clone());
                if let Some(near) = suggestion::nearest(&host, names()) {
                    unknown = unknown.help(format!("did you mean \"{near}\"?"));
                }
                report.add(unknown.help(format!("choose {}", suggestion::quoted(names()))));
            }
            seen.push((host, span));
        }
    }
}

/// The document in which tenants of the limiter, alone or as a stage, have the networks of tenants of their names, unless they have
/// their own.
pub(super) fn lay<'d, 'i>(document: &'d DeTable<'i>) -> Cow<'d, DeTable<'i>> {
    let Some((_, tenants)) = table::get(document, "tenants") else {
        return Cow::Borrowed(document);
    };
    let DeValue::Table(tenants) = tenants.get_ref() else {
        return Cow::Borrowed(document);
    };
    let mut whole = document.clone();
    if let Some(DeValue::Table(functions)) = whole.get_mut("function").map(Spanned::get_mut) {
        for (_, function) in functions.iter_mut() {
            if let DeValue::Table(function) = function.get_mut()
                && let Some(DeValue::Table(limited)) =
                    function.get_mut("tenants").map(Spanned::get_mut)
            {
                lay_networks(tenants, limited);
            }
        }
    }
    Cow::Owned(whole)
}

fn lay_networks<'i>(tenants: &DeTable<'i>, limited: &mut DeTable<'i>) {
    for (name, tenant) in tenants {
        let DeValue::Table(tenant) = tenant.get_ref() else {
            continue;
        };
        let Some((key, networks)) = table::get(tenant, TENANT.networks.name()) else {
            continue;
        };
        if let Some(DeValue::Table(limited)) = limited
            .get_mut(name.get_ref().as_ref())
            .map(Spanned::get_mut)
            && table::get(limited, TENANT.networks.name()).is_none()
        {
            limited.insert(key.clone(), networks.clone());
        }
    }
}
