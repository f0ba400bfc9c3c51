//! Settings of one host: tables below `[on.NAME]` override the rest of the file, so that all hosts of a cluster can have the same
//! file. Places in the file stay unchanged, so that messages point at the written text.

use toml::de::{DeTable, DeValue};

use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::table;

/// Tables that may differ between hosts.
const TABLES: [&str; 3] = ["host", "port", "function"];

/// The names of the hosts that something is written for alone, in the order of the file.
pub(super) fn hosts(document: &DeTable<'_>) -> Vec<String> {
    match table::get(document, "on").map(|(_, value)| value.get_ref()) {
        Some(DeValue::Table(hosts)) => hosts
            .keys()
            .map(|name| name.get_ref().to_string())
            .collect(),
        _ => Vec::new(),
    }
}

/// Says what is wrong with `[on]` itself; what is in its tables is read as part of the whole.
pub(super) fn check(document: &DeTable<'_>, members: &[String], report: &mut Report) {
    let Some((key, value)) = table::get(document, "on") else {
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
                && let Some((field, _)) = inner.and_then(|inner| table::get(inner, "name"))
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
    let Some((_, on)) = table::get(document, "on") else {
        return whole;
    };
    if let DeValue::Table(hosts) = on.get_ref()
        && let Some((_, over)) = table::get(hosts, host)
        && let DeValue::Table(over) = over.get_ref()
    {
        for name in TABLES {
            if let Some((key, value)) = table::get(over, name) {
                table::lay_over(&mut whole, key, value);
            }
        }
    }
    whole
}
