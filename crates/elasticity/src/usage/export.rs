//! Usage as others read it: lines of JSON for billing, and counters for Prometheus.
//!
//! Both have totals since the cluster began, never differences. So a line that is lost, or read twice, changes no bill: a reader
//! takes the difference of two lines of one tenant.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::meter::Usage;

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    cluster: &'a str,
    tenant: &'a str,
    at_ms: u64,
    packets: u128,
    bytes: u128,
    flows: u128,
    instance_seconds: f64,
}

/// The value of one metric for a tenant.
pub type Value = fn(&Usage) -> u128;

/// The counters of a tenant for Prometheus: name, help, and value. `instance_ms` is exposed in seconds.
pub const COUNTERS: [(&str, &str, Value); 4] = [
    (
        "asterism_tenant_packets_total",
        "Packets handled for the tenant.",
        |usage| usage.packets,
    ),
    (
        "asterism_tenant_bytes_total",
        "Bytes of the packets handled for the tenant.",
        |usage| usage.bytes,
    ),
    (
        "asterism_tenant_flows_total",
        "Flows of the tenant that began.",
        |usage| usage.flows,
    ),
    (
        "asterism_tenant_instance_seconds_total",
        "Time in which instances ran for the tenant, summed over instances.",
        |usage| usage.instance_ms,
    ),
];

/// One line of JSON for each tenant, by name, with the totals at a moment (milliseconds of UTC).
///
/// Counts are whole numbers, which may be beyond 2⁵³; instance-seconds have three decimal places.
#[must_use]
pub fn json_lines(totals: &BTreeMap<String, Usage>, cluster: &str, at_ms: u64) -> String {
    let mut out = String::new();
    for (tenant, usage) in totals {
        let line = Line {
            cluster,
            tenant,
            at_ms,
            packets: usage.packets,
            bytes: usage.bytes,
            flows: usage.flows,
            instance_seconds: usage.instance_ms as f64 / 1_000.0,
        };
        // Names and numbers have a form in JSON.
        if let Ok(line) = serde_json::to_string(&line) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

/// The counters of all tenants in Prometheus' text format.
#[must_use]
pub fn prometheus(totals: &BTreeMap<String, Usage>, cluster: &str) -> String {
    let mut out = String::new();
    for (name, help, value) in COUNTERS {
        // Writing to a string never fails.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for (tenant, usage) in totals {
            let (cluster, tenant, value) = (escaped(cluster), escaped(tenant), value(usage));
            let _ = write!(out, "{name}{{cluster=\"{cluster}\",tenant=\"{tenant}\"}} ");
            let _ = match name.contains("_seconds_") {
                true => writeln!(out, "{}.{:03}", value / 1_000, value % 1_000),
                false => writeln!(out, "{value}"),
            };
        }
    }
    out
}

/// A label's value as the text format has it.
fn escaped(label: &str) -> String {
    let mut out = String::with_capacity(label.len());
    for sign in label.chars() {
        match sign {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(sign),
        }
    }
    out
}
