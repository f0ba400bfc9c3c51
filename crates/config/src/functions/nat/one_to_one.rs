//! Outside addresses that belong to one inside host each: their contradictions.

use core::net::Ipv4Addr;

use super::{addresses, forwards, is_host, networks, pooled};
use crate::diagnostic::{Diagnostic, Report};
use crate::kind::Value;
use crate::section::Values;

/// The pairs, outside address first.
pub(super) fn read(values: &Values) -> Vec<((Ipv4Addr, Ipv4Addr), Values)> {
    let list = values.list("one_to_one").unwrap_or_default().into_iter();
    list.filter_map(|(value, _)| {
        let Value::Table(table) = value else {
            return None;
        };
        let pair = (table.address("outside")?, table.address("inside")?);
        Some((pair, table))
    })
    .collect()
}

pub(super) fn check(values: &Values, report: &mut Report) {
    let shared: Vec<Ipv4Addr> = addresses(values)
        .unwrap_or_default()
        .into_iter()
        .map(|(address, _)| address)
        .chain(pooled(values))
        .collect();
    let inside = networks(values).unwrap_or_default();
    let forwards = forwards(values);
    let own: Vec<Ipv4Addr> = ["inside_link", "outside_link"]
        .into_iter()
        .filter_map(|name| Some(values.table(name)?.interface("address")?.address))
        .collect();
    let all = read(values);
    for (place, ((outer, inner), table)) in all.iter().enumerate() {
        let mut add = |title: String, field: &str, help: &str| {
            report.add(Diagnostic::error(title, table.span_of(field)).help(help));
        };
        if !is_host(*outer) {
            add(
                format!("{outer} cannot be a host's address"),
                "outside",
                "write a unicast address that is routed to these hosts, such as \"203.0.113.5\"",
            );
        }
        if shared.contains(outer) {
            add(
                format!("the outside address {outer} is shared, too"),
                "outside",
                "leave it out of `outside` and of `pools`: it belongs to this host alone",
            );
        }
        if own.contains(outer) {
            add(
                format!("{outer} is the NAT's own address"),
                "outside",
                "write another one that is routed to these hosts; the ports of a shared one are forwarded by `forwards`",
            );
        }
        if inside.iter().any(|network| network.contains(*outer)) {
            add(
                format!("the outside address {outer} lies inside"),
                "outside",
                "write an address that is not inside, or a smaller network `inside`",
            );
        }
        if !inside.iter().any(|network| network.contains(*inner)) {
            add(
                format!("the host {inner} is not inside"),
                "inside",
                "use an address in one of the networks `inside`, or add its network there",
            );
        }
        if forwards.iter().any(|(one, _)| one.inside.ip() == inner) {
            add(
                format!("the host {inner} has forwards, too"),
                "inside",
                "leave its `forwards` out: all its ports are reached at its own outside address",
            );
        }
        for (field, end) in [("outside", outer), ("inside", inner)] {
            let same = |pair: &(Ipv4Addr, Ipv4Addr)| match field {
                "outside" => pair.0 == *end,
                _ => pair.1 == *end,
            };
            if let Some((_, first)) = all[..place].iter().find(|(pair, _)| same(pair)) {
                report.add(
                    Diagnostic::error(
                        format!("{end} has another address already"),
                        table.span_of(field),
                    )
                    .also(first.span_of(field), "first here")
                    .help("leave one of the two out: one address stands for one other"),
                );
            }
        }
    }
}
