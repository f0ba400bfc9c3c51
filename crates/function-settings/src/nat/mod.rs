//! The settings of the NAT, and contradictions among them. `fields.rs` has the fields, `made.rs` the NAT made of them,
//! `carrier.rs` the settings of carriers, `direction.rs` the side from which a packet of a capture comes.

mod carrier;
mod direction;
mod exempt;
pub(super) mod fields;
pub(super) mod made;
mod one_to_one;

use core::net::{Ipv4Addr, SocketAddrV4};
use core::time::Duration;

use asterism_notation::network::{Ports, Prefix};
use asterism_notation::value::{show_count, show_duration};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{FieldName, Key, List, Values};
pub use carrier::{CarrierSettings, LogSettings, PoolSettings};
pub use direction::outside_of;
pub use exempt::ExemptionSettings;
pub use fields::IdleTimes;
pub(super) use fields::NAT;
use fields::{FORWARD, IDLE, LINK, SETTINGS};

/// The settings of a NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatSettings {
    /// The addresses that inside hosts share.
    pub outside: Vec<Ipv4Addr>,
    /// The networks whose addresses are translated.
    pub inside: Vec<Prefix>,
    /// The ports of each outside address that are given out.
    pub ports: Ports,
    /// Who may reply to an outside port.
    pub filtering: Filtering,
    /// Whether inside hosts reach one another by their outside ports.
    pub hairpinning: bool,
    /// Whether the NAT answers echo requests to its own addresses.
    pub answers_echo: bool,
    /// Outside endpoints that always lead to an inside server.
    pub forwards: Vec<Forward>,
    /// Outside addresses, each with the inside one to which it belongs.
    pub one_to_one: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Destinations that are not translated.
    pub exempt: Vec<ExemptionSettings>,
    /// When sessions end.
    pub idle: IdleTimes,
    /// Whether idle times below the RFCs' are accepted.
    pub short_idle: bool,
    /// ICMP errors per second at most, on each side.
    pub icmp_errors_per_second: u16,
    /// What a carrier sets.
    pub carrier: CarrierSettings,
    /// The link to the inside.
    pub inside_link: Link,
    /// The link to the outside.
    pub outside_link: Link,
}

choices! {
    /// Who may reply to an outside port (RFC 4787, section 5).
    pub enum Filtering {
        EndpointIndependent = "endpoint-independent", "Any outside host may send to an open port (most applications work).";
        AddressDependent = "address-dependent", "Only addresses to which the inside host sent may send.";
        AddressAndPortDependent = "address-and-port-dependent", "Only endpoints to which the inside host sent may send (strictest).";
    }
}

/// An outside endpoint that always leads to an inside server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// TCP; otherwise UDP.
    pub tcp: bool,
    /// The outside endpoint.
    pub outside: SocketAddrV4,
    /// The inside endpoint.
    pub inside: SocketAddrV4,
    /// How many ports follow upon both, which are forwarded alike.
    pub further: u16,
}

/// Ports of all forwards together at most: what is not forwarded is less by so much on each outside address.
const FORWARDED_PORTS_MAX: u64 = 4_096;

/// One side of the NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The NAT's address on the link, and the link's prefix length.
    pub address: Prefix,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// The router on the link.
    pub next_hop: Ipv4Addr,
    /// The router's Ethernet address; `None`: asked for by ARP.
    pub next_hop_mac: Option<[u8; 6]>,
    /// Whether frames to other Ethernet addresses are taken too.
    pub promiscuous: bool,
}

/// The least that the RFCs allow.
fn idle_least() -> [(Key<Duration>, Duration, &'static str); 5] {
    let seconds = Duration::from_secs;
    [
        (IDLE.tcp_transitory, seconds(240), "RFC 5382, REQ-5"),
        (IDLE.tcp_established, seconds(7_440), "RFC 5382, REQ-5"),
        (IDLE.tcp_closing, seconds(240), "RFC 7857, section 2.2"),
        (IDLE.udp, seconds(120), "RFC 4787, REQ-5"),
        (IDLE.icmp_query, seconds(60), "RFC 5508, REQ-2"),
    ]
}

fn build(values: &Values, report: &mut Report) -> Option<NatSettings> {
    check_addresses(values, report);
    check_forwards(values, report);
    one_to_one::check(values, report);
    check_idle(values, report);
    let links =
        [SETTINGS.inside_link, SETTINGS.outside_link].map(|name| read_link(values, name, report));
    let [inside_link, outside_link] = links;
    let carrier = carrier::read(values, report);
    let outside = addresses(values).unwrap_or_default().into_iter();
    let mut own: Vec<Ipv4Addr> = outside.map(|(address, _)| address).collect();
    own.extend(pooled(values));
    let one_to_one = one_to_one::read(values);
    own.extend(one_to_one.iter().map(|(pair, _)| pair.0));
    let exempt = exempt::read(values, &own, report);
    let idle = values.get(SETTINGS.idle)?;
    Some(NatSettings {
        outside: addresses(values)?
            .into_iter()
            .map(|(address, _)| address)
            .collect(),
        inside: networks(values)?,
        ports: values.get(SETTINGS.ports)?,
        filtering: values.get(SETTINGS.filtering)?,
        hairpinning: values.get(SETTINGS.hairpinning)?,
        answers_echo: values.get(SETTINGS.answers_echo)?,
        forwards: forwards(values)
            .into_iter()
            .map(|(forward, _)| forward)
            .collect(),
        one_to_one: one_to_one.into_iter().map(|(pair, _)| pair).collect(),
        exempt,
        idle: IdleTimes::read(&idle)?,
        short_idle: values.get(SETTINGS.short_idle)?,
        icmp_errors_per_second: u16::try_from(values.get(SETTINGS.icmp_errors)?).ok()?,
        carrier: carrier?,
        inside_link: inside_link?,
        outside_link: outside_link?,
    })
}

fn addresses(values: &Values) -> Option<List<Ipv4Addr>> {
    values.get(SETTINGS.outside)
}

fn networks(values: &Values) -> Option<Vec<Prefix>> {
    networks_of(values, SETTINGS.inside)
}

fn networks_of(values: &Values, field: Key<List<Prefix>>) -> Option<Vec<Prefix>> {
    let list = values.get(field)?.into_iter();
    Some(list.map(|(prefix, _)| prefix).collect())
}

fn check_addresses(values: &Values, report: &mut Report) {
    let outside = addresses(values).unwrap_or_default();
    let inside = networks(values).unwrap_or_default();
    let addresses_count = values.get(SETTINGS.outside).map(|list| list.len());
    let networks_count = values.get(SETTINGS.inside).map(|list| list.len());
    for (field, count, help) in [
        (
            SETTINGS.outside.field_name(),
            addresses_count,
            "name at least one address",
        ),
        (
            SETTINGS.inside.field_name(),
            networks_count,
            "name at least one network",
        ),
    ] {
        if count == Some(0) {
            let empty = Diagnostic::error(format!("`{field}` is empty"), values.span_of(field));
            report.add(empty.help(help));
        }
    }
    for (place, (address, span)) in outside.iter().enumerate() {
        if let Some((_, first)) = outside[..place].iter().find(|(other, _)| other == address) {
            report.add(
                Diagnostic::error(
                    format!("outside address {address} is listed twice"),
                    span.clone(),
                )
                .also(first.clone(), "first here")
                .help("leave one of the two out"),
            );
        }
        if !is_host(*address) {
            report.add(
                Diagnostic::error(format!("{address} cannot be a host's address"), span.clone())
                    .help("write a unicast address that is routed to these hosts, such as \"203.0.113.1\""),
            );
        }
        if let Some(network) = inside.iter().find(|network| network.contains(*address)) {
            report.add(
                Diagnostic::error(
                    format!("outside address {address} lies in the inside network {network}"),
                    span.clone(),
                )
                .help("write an address that is not inside, or a smaller network `inside`"),
            );
        }
    }
    for (place, network) in inside.iter().enumerate() {
        if let Some(other) = inside[..place].iter().find(|other| other.overlaps(network)) {
            report.add(
                Diagnostic::error(
                    format!("the inside networks {other} and {network} overlap"),
                    values.span_of(SETTINGS.inside),
                )
                .help("leave the smaller one out"),
            );
        }
    }
}

fn forwards(values: &Values) -> Vec<(Forward, Values)> {
    let list = values
        .get(SETTINGS.forwards)
        .unwrap_or_default()
        .into_iter();
    list.filter_map(|(table, _)| {
        let forward = Forward {
            tcp: table.get(FORWARD.protocol)? == "tcp",
            outside: table.get(FORWARD.outside)?,
            inside: table.get(FORWARD.inside)?,
            further: further_ports(&table)?,
        };
        Some((forward, table))
    })
    .collect()
}

/// How many ports a forward has beside the first; of a range that is none, none.
fn further_ports(table: &Values) -> Option<u16> {
    let first = u64::from(table.get(FORWARD.outside)?.port());
    let last = table.get(FORWARD.last_port).unwrap_or(first);
    u16::try_from(last.saturating_sub(first)).ok()
}

/// Whether two ranges of ports of one address have one in common.
fn have_common(one: SocketAddrV4, other: SocketAddrV4, further: (u16, u16)) -> bool {
    let last = |end: SocketAddrV4, further| u32::from(end.port()) + u32::from(further);
    one.ip() == other.ip()
        && u32::from(one.port()) <= last(other, further.1)
        && u32::from(other.port()) <= last(one, further.0)
}

/// The outside addresses of the pools.
fn pooled(values: &Values) -> Vec<Ipv4Addr> {
    let pools = carrier::pools(values).into_iter();
    pools
        .flat_map(|(pool, _)| pool.addresses().collect::<Vec<_>>())
        .collect()
}

fn check_forwards(values: &Values, report: &mut Report) {
    let good = |field: FieldName| !report.has_error_within(&values.span_of(field));
    let outside = addresses(values)
        .filter(|_| good(SETTINGS.outside.field_name()) && good(SETTINGS.pools.field_name()));
    let inside = networks(values).filter(|_| good(SETTINGS.inside.field_name()));
    let pooled = pooled(values);
    let all = forwards(values);
    for (place, (forward, table)) in all.iter().enumerate() {
        if let Some(outside) = &outside {
            let mut known = outside.iter().map(|(address, _)| address).chain(&pooled);
            if !known.any(|address| address == forward.outside.ip()) {
                report.add(not_outside(forward, table, values));
            }
        }
        if let Some(inside) = &inside {
            check_server(forward, table, inside, report);
        }
        check_ports(forward, table, report);
        check_twice(&all[..place], forward, table, report);
        check_range(forward, table, report);
    }
    check_forwarded_ports(&all, values, report);
}

fn not_outside(forward: &Forward, table: &Values, values: &Values) -> Diagnostic {
    Diagnostic::error(
        format!(
            "the forward's outside address {} is not among `outside`",
            forward.outside.ip()
        ),
        table.span_of(FORWARD.outside),
    )
    .also(values.span_of(SETTINGS.outside), "the outside addresses")
    .help("use one of them, or add it there")
}

fn check_server(forward: &Forward, table: &Values, inside: &[Prefix], report: &mut Report) {
    let server = *forward.inside.ip();
    if !inside.iter().any(|network| network.contains(server)) {
        report.add(
            Diagnostic::error(
                format!("the forward's server {server} is not inside"),
                table.span_of(FORWARD.inside),
            )
            .help("use an address in one of the networks `inside`, or add its network there"),
        );
    }
}

fn check_ports(forward: &Forward, table: &Values, report: &mut Report) {
    let ends = [
        (FORWARD.outside, forward.outside),
        (FORWARD.inside, forward.inside),
    ];
    for (field, end) in ends {
        if end.port() == 0 {
            report.add(
                Diagnostic::error("port 0 cannot be forwarded", table.span_of(field))
                    .help("write a port from 1 to 65535"),
            );
        }
    }
}

/// Refuses an endpoint that an earlier forward has too.
fn check_twice(
    earlier: &[(Forward, Values)],
    forward: &Forward,
    table: &Values,
    report: &mut Report,
) {
    type End = fn(&Forward) -> SocketAddrV4;
    let ends: [(_, End, _); 2] = [
        (
            FORWARD.outside,
            |forward| forward.outside,
            "leave one of the two out: replies could not be distinguished",
        ),
        (
            FORWARD.inside,
            |forward| forward.inside,
            "an inside endpoint has one outside endpoint, by which its own packets leave: let the server listen at a further port for the second one",
        ),
    ];
    for (field, end, help) in ends {
        let same = |(other, _): &&(Forward, Values)| {
            let further = (forward.further, other.further);
            other.tcp == forward.tcp && have_common(end(forward), end(other), further)
        };
        if let Some((_, first)) = earlier.iter().find(same) {
            report.add(
                Diagnostic::error(
                    format!("this {field} endpoint is forwarded twice"),
                    table.span_of(field),
                )
                .also(first.span_of(field), "first here")
                .help(help),
            );
        }
    }
}

fn check_forwarded_ports(all: &[(Forward, Values)], values: &Values, report: &mut Report) {
    let ports = all
        .iter()
        .map(|(forward, _)| u64::from(forward.further) + 1);
    let count: u64 = ports.sum();
    if count > FORWARDED_PORTS_MAX {
        report.add(
            Diagnostic::error(
                format!(
                    "all forwards together have {} ports, more than {}",
                    show_count(count),
                    show_count(FORWARDED_PORTS_MAX)
                ),
                values.span_of(SETTINGS.forwards),
            )
            .help("write smaller ranges, or give the server an address of its own by `one_to_one`"),
        );
    }
}

fn check_range(forward: &Forward, table: &Values, report: &mut Report) {
    let Some(last) = table.get(FORWARD.last_port) else {
        return;
    };
    if last < u64::from(forward.outside.port()) {
        report.add(
            Diagnostic::error(
                format!(
                    "`last_port` is below the first port, {}",
                    forward.outside.port()
                ),
                table.span_of(FORWARD.last_port),
            )
            .help("leave `last_port` out for one port, or write one that is not below the first"),
        );
    }
    if forward.inside.port().checked_add(forward.further).is_none() {
        report.add(
            Diagnostic::error(
                "the inside ports of this range end beyond 65535",
                table.span_of(FORWARD.inside),
            )
            .help("write a lower first port for `inside`, or a smaller range"),
        );
    }
}

fn check_idle(values: &Values, report: &mut Report) {
    let (Some(idle), Some(short)) = (values.get(SETTINGS.idle), values.get(SETTINGS.short_idle))
    else {
        return;
    };
    for field in IdleTimes::KEYS {
        if let Some(time) = idle.get(*field).filter(|time| time.subsec_nanos() != 0) {
            report.add(
                Diagnostic::error(
                    format!("idle time `{field}` is not in whole seconds"),
                    idle.span_of(*field),
                )
                .help(format!("write \"{}s\"", time.as_secs() + 1)),
            );
        }
    }
    for (name, least, clause) in idle_least() {
        if !short && idle.get(name).is_some_and(|time| time < least) {
            let least = show_duration(least);
            report.add(
                Diagnostic::error(
                    format!("idle time `{name}` would end working connections"),
                    idle.span_of(name),
                )
                .label(format!("{clause} allows {least} at least"))
                .help(format!(
                    "write \"{least}\" or more; in a test, set short_idle = true in [function.nat]"
                )),
            );
        }
    }
}

pub(super) fn read_link(values: &Values, name: Key<Values>, report: &mut Report) -> Option<Link> {
    let table = values.get(name)?;
    let link = Link {
        address: table.get(LINK.address)?,
        mac: table.get(LINK.mac)?,
        mtu: u16::try_from(table.get(LINK.mtu)?).ok()?,
        next_hop: table.get(LINK.next_hop)?,
        next_hop_mac: table.get(LINK.next_hop_mac),
        promiscuous: table.get(LINK.promiscuous)?,
    };
    if !link.address.contains(link.next_hop) || link.next_hop == link.address.address {
        report.add(
            Diagnostic::error(
                format!(
                    "the next hop {} is no neighbour on the link {}",
                    link.next_hop, link.address
                ),
                table.span_of(LINK.next_hop),
            )
            .help("write the address of a router on the link, or correct the link's `address`"),
        );
    }
    Some(link)
}

pub(super) fn is_host(address: Ipv4Addr) -> bool {
    !(address.octets()[0] == 0
        || address.is_loopback()
        || address.is_multicast()
        || address.octets()[0] >= 240)
}
