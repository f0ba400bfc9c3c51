//! Settings of a function that do not go with the ports or the state channel: each combination is reported with an alternative.

use core::ops::Range;
use core::time::Duration;

use super::fields;
use super::port::{PORT, PORTS, Port, PortMode};
use asterism_function_settings::{BalancerMode, ObjectChoice, Settings};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::Absent;
use asterism_toml_schema::section::Values;

/// Refuses a port for copies that nothing makes, and copies that have no port.
pub(super) fn check_span(settings: &Settings, values: &Values, report: &mut Report) {
    let makes_copies = match settings {
        Settings::Chain(chain) => {
            let stages = &mut chain.stages.iter();
            stages.any(|stage| matches!(stage.settings, Settings::Span(_)))
        }
        settings => matches!(settings, Settings::Span(_)),
    };
    match (makes_copies, values.place(PORTS.span)) {
        (false, Some(place)) => report.add(
            Diagnostic::error("no copies are made for the port `span`", place.key.clone())
                .help("add the stage \"span\" to `chain` where packets are to be copied, or leave [port.span] out"),
        ),
        (true, None) => report.add(
            Diagnostic::error("the port `span` is missing", values.span.clone())
                .label("copies of packets need a port")
                .help("add [port.span] with the interface that copies go to"),
        ),
        _ => {}
    }
}

/// Bytes of the longest packets that come by a port of the mode `bulk`: an IP packet has no more.
const LONGEST: u16 = u16::MAX;

/// Says so when a function would refuse, as too long for the next link, what ports of the mode `bulk` bring and cut where it leaves.
pub(super) fn check_bulk(
    (name, settings): (&str, &Settings),
    ports: Option<&[Port]>,
    values: &Values,
    report: &mut Report,
) {
    let links = match settings {
        Settings::Nat(nat) => [
            ("inside_link", nat.inside_link),
            ("outside_link", nat.outside_link),
        ],
        Settings::Balancer(balancer) => [
            ("clients_link", balancer.clients_link),
            ("backends_link", balancer.backends_link),
        ],
        Settings::Chain(chain) => {
            for stage in &chain.stages {
                check_bulk((stage.name, &stage.settings), ports, values, report);
            }
            return;
        }
        _ => return,
    };
    let Some((link, short)) = links.iter().find(|(_, link)| link.mtu < LONGEST) else {
        return;
    };
    let is_bulk = |port: &&Port| port.mode == PortMode::Bulk;
    for port in ports.unwrap_or_default().iter().filter(is_bulk) {
        let place = values
            .get(PORTS.of(port.name))
            .map_or(0..0, |table| table.span_of(PORT.mode));
        report.add(
            Diagnostic::error(
                format!(
                    "packets of up to {LONGEST} bytes come by a port of the mode \"bulk\", and `{name}` refuses those longer than {} bytes",
                    short.mtu
                ),
                place,
            )
            .help(format!(
                "write mtu = \"{LONGEST}B\" in [function.{name}.{link}] and for its other link: they are cut where they leave; or choose mode = \"ring\""
            )),
        );
    }
}

/// Says so when packets would go into tunnels before their checksums are complete.
pub(super) fn check_tunnels(
    settings: &Settings,
    ports: Option<&[Port]>,
    values: &Values,
    report: &mut Report,
) {
    let balancer = match settings {
        Settings::Balancer(balancer) => balancer,
        Settings::Chain(chain) => {
            for stage in &chain.stages {
                check_tunnels(&stage.settings, ports, values, report);
            }
            return;
        }
        _ => return,
    };
    let services = balancer.services.iter();
    let Some(tunnel) = services
        .into_iter()
        .find(|service| service.mode == BalancerMode::Tunnel)
    else {
        return;
    };
    let outside = ports.unwrap_or_default().iter();
    for port in outside.filter(|port| port.name == "outside" && port.mode == PortMode::Bulk) {
        let place = values
            .get(PORTS.of(port.name))
            .map_or(0..0, |table| table.span_of(PORT.mode));
        report.add(
            Diagnostic::error(
                format!(
                    "the service `{}` puts packets into tunnels, which cannot be with a port of the mode \"bulk\"",
                    tunnel.name
                ),
                place,
            )
            .help("choose mode = \"ring\", or mode = \"direct\" or \"nat\" for the service"),
        );
    }
}

/// A wait that is shorter than state messages are ever late does nothing.
pub(super) fn check_waits(
    choices: &[ObjectChoice],
    keep_alive: Option<Duration>,
    at: Range<usize>,
    report: &mut Report,
) {
    let Some(keep_alive) = keep_alive else { return };
    let shortest = choices.iter().filter_map(|one| match one.absent {
        Absent::Wait(longest) if longest < keep_alive => Some((one.name, longest)),
        _ => None,
    });
    if let Some((name, longest)) = shortest.min_by_key(|(_, longest)| *longest) {
        report.add(
            Diagnostic::warning(
                format!("packets wait at most {} for an absent entry of `{name}`, less than one keep-alive", fields::shown(longest)),
                at,
            )
            .help(format!("hosts of an idle cluster exchange messages every {}: wait longer, or shorten `keep_alive`", fields::shown(keep_alive))),
        );
    }
}
