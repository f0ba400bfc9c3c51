//! Elasticity policies: the tables `[policy.NAME]`, whose fields `asterism-elasticity` defines. Here they are found in the document, so
//! that messages point at the line.

use core::ops::Range;
use std::collections::BTreeMap;

use asterism_elasticity::{Policies, Policy, PolicyError, Rules};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::cluster::Cluster;
use super::store::Store;
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::table;

/// Reads the policies of the cluster. The outer `None` if anything in them is wrong, the inner one if there are none.
pub(super) fn read(
    document: &DeTable<'_>,
    cluster: Option<&Cluster>,
    store: Option<&Option<Store>>,
    report: &mut Report,
) -> Option<Option<Rules>> {
    let Some((key, value)) = table::get(document, "policy") else {
        return Some(None);
    };
    let DeValue::Table(tables) = value.get_ref() else {
        report.add(
            Diagnostic::error("`policy` is a table of tables", key.span())
                .help("write [policy.edge], with the cluster's name or a name of its own and cluster = \"...\""),
        );
        return None;
    };
    let mut policies = BTreeMap::new();
    let mut is_right = true;
    for (name, value) in tables {
        match one(name.get_ref(), value, report) {
            Some(policy) => _ = policies.insert(name.get_ref().to_string(), policy),
            None => is_right = false,
        }
    }
    let cluster = cluster?;
    for (name, policy) in &policies {
        let of = policy.cluster.as_ref().unwrap_or(name);
        if *of != cluster.name {
            let span = place(tables, name, Some("cluster")).unwrap_or_else(|| key.span());
            report.add(
                Diagnostic::error(
                    format!("policy \"{name}\" is of another cluster, \"{of}\""),
                    span,
                )
                .help(format!(
                    "write cluster = \"{}\" in it, or name the table [policy.{}]",
                    cluster.name, cluster.name
                )),
            );
            is_right = false;
        }
    }
    if !is_right {
        return None;
    }
    let rules = match Policies::new(&policies) {
        Ok(policies) => policies.rules(&cluster.name).cloned()?,
        Err(refused) => {
            for error in refused.0 {
                report.add(shown(tables, &error, key.span()));
            }
            return None;
        }
    };
    if cluster.orchestrators.is_empty() {
        report.add(
            Diagnostic::error(
                "nobody would follow the policy: this cluster has no orchestrators",
                key.span(),
            )
            .help("add orchestrators = [\"192.0.2.9:7500\"] to [cluster], or leave the policy out"),
        );
        return None;
    }
    let members = u32::try_from(cluster.members.len()).unwrap_or(u32::MAX);
    let embedded = store.and_then(|store| store.as_ref()?.embedded.as_ref());
    if let (Some(embedded), true) = (embedded, rules.min < members) {
        let name = policies.keys().next().map_or("", String::as_str);
        let names = suggestion::quoted(embedded.members.iter().map(String::as_str));
        report.add(
            Diagnostic::error(
                format!("this policy may stop {names}, with the embedded store"),
                place(tables, name, Some("hosts")).unwrap_or_else(|| key.span()),
            )
            .help(format!(
                "write address = \"10.0.0.5:6379\" in [store], of a store that is no host: `asterism store` is one; or min = {members}"
            )),
        );
        return None;
    }
    if rules.max > members {
        let name = policies.keys().next().map_or("", String::as_str);
        report.add(
            Diagnostic::error(
                format!(
                    "hosts.max = {} is more than the {members} members that there are places for",
                    rules.max
                ),
                place(tables, name, Some("hosts")).unwrap_or_else(|| key.span()),
            )
            .help(format!(
                "write a maximum of {members} or less, or add members to [cluster]"
            )),
        );
        return None;
    }
    Some(Some(rules))
}

/// Reads the fields of one policy.
fn one(name: &str, value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Policy> {
    match Policy::deserialize(ValueDeserializer::from(value.clone())) {
        Ok(policy) => Some(policy),
        Err(error) => {
            let span = error.span().unwrap_or_else(|| value.span());
            report.add(
                Diagnostic::error(format!("policy \"{name}\": {}", error.message()), span)
                    .help("the fields of a policy are on the page Elasticity of the documentation, such as hosts = { min = 2, max = 8 }"),
            );
            None
        }
    }
}

/// A mistake where it was written. Its sentence begins with the policy and the field, and ends with what to write instead.
fn shown(tables: &DeTable<'_>, error: &PolicyError, otherwise: Range<usize>) -> Diagnostic {
    let text = error.to_string();
    let mut parts = text
        .strip_prefix("policy \"")
        .into_iter()
        .flat_map(|rest| rest.splitn(2, "\": "));
    let (name, said) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let end = said.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    let field = end.map(|end| &said[..end]);
    let span = place(tables, name, field).unwrap_or(otherwise);
    match text.split_once(": write ") {
        Some((title, help)) => Diagnostic::error(title, span).help(format!("write {help}")),
        None => Diagnostic::error(text, span),
    }
}

/// Where a policy has a field, or where its name is.
fn place(tables: &DeTable<'_>, name: &str, field: Option<&str>) -> Option<Range<usize>> {
    let (key, value) = table::get(tables, name)?;
    let DeValue::Table(table) = value.get_ref() else {
        return Some(key.span());
    };
    let of_field = field.and_then(|field| table::get(table, field));
    Some(of_field.map_or_else(|| key.span(), |(_, value)| value.span()))
}
