//! Outside addresses that belong to one inside host each: their contradictions.

use core::net::Ipv4Addr;

use super::fields::{LINK, ONE_TO_ONE, SETTINGS};
use super::{addresses, forwards, is_host, networks, pooled};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::{Key, Values};

/// The pairs, outside address first.
pub(super) fn read(values: &Values) -> Vec<((Ipv4Addr, Ipv4Addr), Values)> {
    let list = values
        .get(SETTINGS.one_to_one)
        .unwrap_or_default()
        .into_iter();
    list.filter_map(|(table, _)| {
        let pair = (
            table.get(ONE_TO_ONE.outside)?,
            table.get(ONE_TO_ONE.inside)?,
        );
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
    let own: Vec<Ipv4Addr> = [SETTINGS.inside_link, SETTINGS.outside_link]
        .into_iter()
        .filter_map(|name| Some(values.get(name)?.get(LINK.address)?.address))
        .collect();
    let all = read(values);
    for (place, ((outer, inner), table)) in all.iter().enumerate() {
        let mut add = |title: String, field: Key<Ipv4Addr>, help: &str| {
            report.add(Diagnostic::error(title, table.span_of(field)).help(help));
        };
        if !is_host(*outer) {
            add(
                format!("{outer} cannot be a host's address"),
                ONE_TO_ONE.outside,
                "write a unicast address that is routed to these hosts, such as \"203.0.113.5\"",
            );
        }
        if shared.contains(outer) {
            add(
                format!("the outside address {outer} is shared, too"),
                ONE_TO_ONE.outside,
                "leave it out of `outside` and of `pools`: it belongs to this host alone",
            );
        }
        if own.contains(outer) {
            add(
                format!("{outer} is the NAT's own address"),
                ONE_TO_ONE.outside,
                "write another one that is routed to these hosts; the ports of a shared one are forwarded by `forwards`",
            );
        }
        if inside.iter().any(|network| network.contains(*outer)) {
            add(
                format!("the outside address {outer} lies inside"),
                ONE_TO_ONE.outside,
                "write an address that is not inside, or a smaller network `inside`",
            );
        }
        if !inside.iter().any(|network| network.contains(*inner)) {
            add(
                format!("the host {inner} is not inside"),
                ONE_TO_ONE.inside,
                "use an address in one of the networks `inside`, or add its network there",
            );
        }
        if forwards.iter().any(|(one, _)| one.inside.ip() == inner) {
            add(
                format!("the host {inner} has forwards, too"),
                ONE_TO_ONE.inside,
                "leave its `forwards` out: all its ports are reached at its own outside address",
            );
        }
        type End = fn(&(Ipv4Addr, Ipv4Addr)) -> Ipv4Addr;
        let ends: [(_, _, End); 2] = [
            (ONE_TO_ONE.outside, outer, |pair| pair.0),
            (ONE_TO_ONE.inside, inner, |pair| pair.1),
        ];
        for (field, end, of) in ends {
            let mut earlier = all[..place].iter();
            if let Some((_, first)) = earlier.find(|(pair, _)| of(pair) == *end) {
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
