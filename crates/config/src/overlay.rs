//! Settings of one host: tables below `[on.NAME]` override the rest of the file, so that all hosts of a cluster can have the same
//! file. Places in the file stay unchanged, so that messages point at the written text.

use core::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Report};
use asterism_notation::suggestion;

/// Tables that may differ between hosts.
const TABLES: [&str; 3] = ["host", "port", "function"];

/// The value of a name in a table.
pub(super) fn get<'t, 'i>(
    table: &'t DeTable<'i>,
    name: &str,
) -> Option<(
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
)> {
    table.iter().find(|(key, _)| key.get_ref().as_ref() == name)
}

/// Where something is written under these keys.
pub(super) fn place(document: &DeTable<'_>, keys: &[&str]) -> Option<Range<usize>> {
    let (key, rest) = keys.split_first()?;
    let (_, value) = get(document, key)?;
    match value.get_ref() {
        DeValue::Table(table) if !rest.is_empty() => place(table, rest),
        _ => rest.is_empty().then(|| value.span()),
    }
}

/// The names of the hosts that something is written for alone, in the order of the file.
pub(super) fn hosts(document: &DeTable<'_>) -> Vec<String> {
    match get(document, "on").map(|(_, value)| value.get_ref()) {
        Some(DeValue::Table(hosts)) => hosts
            .keys()
            .map(|name| name.get_ref().to_string())
            .collect(),
        _ => Vec::new(),
    }
}

/// Says what is wrong with `[on]` itself; what is in its tables is read as part of the whole.
pub(super) fn check(document: &DeTable<'_>, members: &[String], report: &mut Report) {
    let Some((key, value)) = get(document, "on") else {
        return;
    };
    let DeValue::Table(hosts) = value.get_ref() else {
        report.add(
            Diagnostic::error("`on` is a table", key.span())
                .help("write [on.NAME.host], [on.NAME.port.inside] or [on.NAME.function.nat]"),
        );
        return;
    };
    for (name, value) in hosts {
        if report.is_full() {
            return;
        }
        let names = || members.iter().map(String::as_str);
        if !members.is_empty() && !names().any(|member| member == name.get_ref().as_ref()) {
            let mut unknown = Diagnostic::error(
                format!("there is no member \"{}\"", name.get_ref()),
                name.span(),
            );
            if let Some(near) = suggestion::nearest(name.get_ref(), names()) {
                unknown = unknown.help(format!("did you mean [on.{near}]?"));
            }
            report.add(unknown.help(format!("choose {}", suggestion::quoted(names()))));
        }
        let DeValue::Table(tables) = value.get_ref() else {
            report.add(
                Diagnostic::error(format!("`on.{}` is a table", name.get_ref()), name.span()).help(
                    format!("write [on.{}.host] on a line of its own", name.get_ref()),
                ),
            );
            continue;
        };
        for (table, value) in tables {
            let table_name = table.get_ref().as_ref();
            let inner = match value.get_ref() {
                DeValue::Table(inner) => Some(inner),
                _ => None,
            };
            // What is no table at all is said where the whole is read.
            if !TABLES.contains(&table_name) {
                let mut wrong = Diagnostic::error(
                    format!("`{table_name}` cannot differ between hosts"),
                    table.span(),
                );
                if table_name == "cluster" {
                    wrong = wrong.help("what hosts have in common is written alike for all");
                }
                report.add(wrong.help(format!(
                    "tables that can are [on.{0}.host], [on.{0}.port] and [on.{0}.function]",
                    name.get_ref()
                )));
            }
            if table_name == "host"
                && let Some((field, _)) = inner.and_then(|inner| get(inner, "name"))
            {
                report.add(
                    Diagnostic::error("this name is the table's already", field.span())
                        .help("leave `name` out here"),
                );
            }
        }
    }
}

/// The file as one host reads it.
pub(super) fn lay<'i>(document: &DeTable<'i>, host: &str) -> DeTable<'i> {
    let mut whole = document.clone();
    whole.remove("on");
    let Some((_, on)) = get(document, "on") else {
        return whole;
    };
    if let DeValue::Table(hosts) = on.get_ref()
        && let Some((_, over)) = get(hosts, host)
        && let DeValue::Table(over) = over.get_ref()
    {
        for name in TABLES {
            if let Some((key, value)) = get(over, name) {
                lay_value(&mut whole, key, value);
            }
        }
    }
    whole
}

fn lay_value<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<std::borrow::Cow<'i, str>>,
    value: &Spanned<DeValue<'i>>,
) {
    let name = key.get_ref().as_ref();
    if let DeValue::Table(over) = value.get_ref()
        && let Some(below) = table.get_mut(name)
        && let DeValue::Table(inner) = below.get_mut()
    {
        for (key, value) in over {
            lay_value(inner, key, value);
        }
        return;
    }
    table.remove(name);
    table.insert(key.clone(), value.clone());
}
