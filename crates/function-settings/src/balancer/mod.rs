//! The settings of the balancer, and contradictions among them. `fields.rs` has the fields, `made.rs` the balancer made of
//! them, `direction.rs` the side from which a packet of a capture comes.

mod direction;
mod fields;
mod made;

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use core::time::Duration;

use super::Link;
use super::nat::{is_host, read_link};
use crate::described::check_whole_seconds;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::NamedValues;
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Key, Values};
pub(super) use fields::BALANCER;
pub use fields::BalancerIdle;
use fields::{BACKEND, CHECKS, SERVICE, SETTINGS};

/// The settings of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancerSettings {
    /// The services, by name.
    pub services: Vec<Service>,
    /// How backends are checked.
    pub checks: Checks,
    /// How long a client keeps its backend.
    pub persistence: Duration,
    /// How long a packet waits for word of its flow.
    pub known_wait: Duration,
    /// When flows end.
    pub idle: BalancerIdle,
    /// Whether echo requests to services are answered.
    pub answers_echo: bool,
    /// ICMP errors per second at most, on each side.
    pub icmp_errors_per_second: u16,
    /// The link to the clients.
    pub clients_link: Link,
    /// The link to the backends.
    pub backends_link: Link,
}

/// A service and its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name in the configuration.
    pub name: String,
    /// The first endpoint that clients know.
    pub address: SocketAddrV4,
    /// The last port.
    pub last_port: u16,
    /// TCP; otherwise UDP.
    pub tcp: bool,
    /// How packets reach the backends.
    pub mode: BalancerMode,
    /// Whether the backend with the fewest flows gets the next; otherwise the hash decides.
    pub least_connections: bool,
    /// Whether a client keeps its backend.
    pub persistent: bool,
    /// How backends are checked.
    pub check: Check,
    /// Which TCP port is checked; `None`: the backend's.
    pub check_port: Option<u16>,
    /// Flows that a backend refuses or does not answer, after which it counts as dead; 0: they say nothing.
    pub passive: u8,
    /// The pool.
    pub backends: Vec<Backend>,
}

choices! {
    /// How packets reach a backend.
    pub enum BalancerMode {
        Nat = "nat", "The destination is rewritten, and the source of answers: backends reach clients through these hosts.";
        Direct = "direct", "Only the frame's address changes: backends are on the link, have the service's address themselves (without answering ARP for it), and answer clients directly.";
        Tunnel = "tunnel", "Packets are encapsulated (IP in IP, RFC 2003): backends have the service's address themselves, and answer clients directly.";
    }
}

/// How a backend is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Not at all.
    None,
    /// By a TCP connection.
    Tcp,
    /// By asking for this page.
    Http(String),
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port; `None`: that which the client asks for.
    pub port: Option<u16>,
    /// Its share of new flows.
    pub weight: u32,
    /// Whether it gets no new ones.
    pub drain: bool,
}

/// How often backends are checked, and what it takes to change the mind about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are documented in the reference")]
pub struct Checks {
    pub interval: Duration,
    pub timeout: Duration,
    pub fall: u32,
    pub rise: u32,
}

impl BalancerSettings {
    /// Whether backends of any service are checked.
    #[must_use]
    pub fn checks_backends(&self) -> bool {
        let mut services = self.services.iter();
        services.any(|service| service.check != Check::None)
    }
}

fn build(values: &Values, report: &mut Report) -> Option<BalancerSettings> {
    let tables = values.get(SETTINGS.services)?;
    if tables.is_empty() {
        report.add(
            Diagnostic::error("`services` is empty", values.span_of(SETTINGS.services)).help(
                "write a service, such as [function.balancer.services.web] with address = \"203.0.113.10:80\"",
            ),
        );
    }
    let links =
        [SETTINGS.clients_link, SETTINGS.backends_link].map(|name| read_link(values, name, report));
    let read: Vec<Option<(Service, Range<usize>)>> = tables
        .iter()
        .map(|table| {
            let service = service(table)?;
            let place = table.values.span_of(SERVICE.address);
            check_service(&service, table, report);
            Some((service, place))
        })
        .collect();
    check_apart(&read, report);
    check_seconds(values, report);
    let checks = values.get(SETTINGS.checks)?;
    if let (Some(timeout), Some(interval)) =
        (checks.get(CHECKS.timeout), checks.get(CHECKS.interval))
        && timeout > interval
    {
        report.add(
            Diagnostic::error(
                "a check would still be under way when the next is due",
                checks.span_of(CHECKS.timeout),
            )
            .help("write a timeout that is no longer than the interval"),
        );
    }
    let [clients_link, backends_link] = links;
    let (clients_link, backends_link) = (clients_link?, backends_link?);
    for (service, place) in read.iter().flatten() {
        let own = [clients_link.address.address, backends_link.address.address];
        if own.contains(service.address.ip()) {
            report.add(
                Diagnostic::error(
                    format!("{} is the balancer's own address", service.address.ip()),
                    place.clone(),
                )
                .help("write an address that is routed to these hosts and that nobody else has"),
            );
        }
    }
    check_backends_elsewhere(&tables, [&clients_link, &backends_link], report);
    let idle = values.get(SETTINGS.idle)?;
    Some(BalancerSettings {
        services: read
            .into_iter()
            .map(|one| one.map(|(service, _)| service))
            .collect::<Option<_>>()?,
        checks: Checks {
            interval: checks.get(CHECKS.interval)?,
            timeout: checks.get(CHECKS.timeout)?,
            fall: u32::try_from(checks.get(CHECKS.fall)?).ok()?,
            rise: u32::try_from(checks.get(CHECKS.rise)?).ok()?,
        },
        persistence: values.get(SETTINGS.persistence)?,
        known_wait: values.get(SETTINGS.known_wait)?,
        idle: BalancerIdle::read(&idle)?,
        answers_echo: values.get(SETTINGS.answers_echo)?,
        icmp_errors_per_second: u16::try_from(values.get(SETTINGS.icmp_errors)?).ok()?,
        clients_link,
        backends_link,
    })
}

fn port(values: &Values, field: Key<u64>) -> Option<u16> {
    values.get(field).and_then(|port| u16::try_from(port).ok())
}

fn service(table: &NamedValues) -> Option<Service> {
    let values = &table.values;
    let address = values.get(SERVICE.address)?;
    let backends = values.get(SERVICE.backends)?.into_iter();
    Some(Service {
        name: table.name.clone(),
        address,
        last_port: port(values, SERVICE.last_port).unwrap_or(address.port()),
        tcp: values.get(SERVICE.protocol)? == "tcp",
        mode: values.get(SERVICE.mode)?,
        least_connections: values.get(SERVICE.choice)? == "least-connections",
        persistent: values.get(SERVICE.persistent)?,
        check: match values.get(SERVICE.check)? {
            "tcp" => Check::Tcp,
            "http" => Check::Http(values.get(SERVICE.check_path)?),
            _ => Check::None,
        },
        check_port: port(values, SERVICE.check_port),
        passive: values
            .get(SERVICE.passive)
            .map_or(Some(0), |count| u8::try_from(count).ok())?,
        backends: backends
            .map(|(backend, _)| {
                Some(Backend {
                    address: backend.get(BACKEND.address)?,
                    port: port(&backend, BACKEND.port),
                    weight: u32::try_from(backend.get(BACKEND.weight)?).ok()?,
                    drain: backend.get(BACKEND.drain)?,
                })
            })
            .collect::<Option<_>>()?,
    })
}

/// Adds an error at a place, with what to write instead.
fn refuse(report: &mut Report, title: impl Into<String>, place: Range<usize>, help: &str) {
    report.add(Diagnostic::error(title, place).help(help));
}

/// What contradicts within one service.
fn check_service(service: &Service, table: &NamedValues, report: &mut Report) {
    check_endpoint(service, &table.values, report);
    check_checks(service, &table.values, report);
    check_pool(service, &table.values, report);
    let places = table.values.get(SERVICE.backends).unwrap_or_default();
    for (number, (_, place)) in places.into_iter().enumerate() {
        check_backend(service, number, place, report);
    }
}

fn check_endpoint(service: &Service, values: &Values, report: &mut Report) {
    let address = *service.address.ip();
    if !is_host(address) {
        refuse(
            report,
            format!("{address} cannot be a service's address"),
            values.span_of(SERVICE.address),
            "write a unicast address that is routed to these hosts, such as \"203.0.113.10:80\"",
        );
    }
    let port = service.address.port();
    if port == 0 {
        refuse(
            report,
            "a service has no port 0",
            values.span_of(SERVICE.address),
            "write the port that clients ask for, such as \"203.0.113.10:80\"",
        );
    }
    if service.last_port < port {
        refuse(
            report,
            format!("`last_port` is below the first port, {port}"),
            values.span_of(SERVICE.last_port),
            "leave `last_port` out for one port, or write one that is not below the first",
        );
    }
}

/// How its backends are watched.
fn check_checks(service: &Service, values: &Values, report: &mut Report) {
    let fields = [
        SERVICE.check_port.field_name(),
        SERVICE.check_path.field_name(),
    ];
    for field in fields.into_iter().filter(|_| service.check == Check::None) {
        if let Some(place) = values.place(field) {
            refuse(
                report,
                format!("`{field}` has no meaning without checks"),
                place.key.clone(),
                "leave it out, or choose check = \"tcp\" or \"http\"",
            );
        }
    }
    if let Check::Http(path) = &service.check
        && (!path.starts_with('/') || path.bytes().any(|byte| !byte.is_ascii_graphic()))
    {
        refuse(
            report,
            "this is not the path of a page",
            values.span_of(SERVICE.check_path),
            "write one that begins with a slash and has no blanks, such as \"/health\"",
        );
    }
    if !service.tcp && service.check != Check::None && service.check_port.is_none() {
        refuse(
            report,
            "a UDP service cannot be checked at its own port",
            values.span_of(SERVICE.check),
            "write check_port = 8080, or another TCP port of the backends that reports their health",
        );
    }
    if service.passive > 0 && (!service.tcp || service.mode != BalancerMode::Nat) {
        refuse(
            report,
            "backends whose answers are not seen cannot be watched",
            values.span_of(SERVICE.passive),
            "leave `passive` out, or set it for a TCP service with mode = \"nat\"; others are checked with `check`",
        );
    }
}

/// Whether some backend takes new flows.
fn check_pool(service: &Service, values: &Values, report: &mut Report) {
    let backends = &service.backends;
    if backends.is_empty() {
        refuse(
            report,
            "`backends` is empty",
            values.span_of(SERVICE.backends),
            "name a backend; one that is to get no flows is written with drain = true",
        );
    }
    let is_idle = |one: &Backend| one.drain || one.weight == 0;
    if backends.iter().all(is_idle) && backends.iter().any(|one| !one.drain) {
        refuse(
            report,
            "no backend of this service takes new flows: their weights are 0",
            values.span_of(SERVICE.backends),
            "write a weight of 1 or more for one of them; those that are only to keep the flows that they have are written with drain = true",
        );
    }
}

/// A backend by itself, and beside those before it.
fn check_backend(service: &Service, number: usize, place: Range<usize>, report: &mut Report) {
    let (earlier, backend) = (&service.backends[..number], &service.backends[number]);
    if !is_host(backend.address) {
        refuse(
            report,
            format!("{} cannot be a backend's address", backend.address),
            place.clone(),
            "write the address of a host",
        );
    }
    let same = |other: &Backend| (other.address, other.port) == (backend.address, backend.port);
    if earlier.iter().any(same) {
        refuse(
            report,
            format!("backend {} is listed twice", backend.address),
            place.clone(),
            "leave one of the two out; a larger share is written as weight",
        );
    }
    let first = service.address.port();
    let is_other = |port: u16| service.last_port != first || port != first;
    if service.mode != BalancerMode::Nat && backend.port.is_some_and(is_other) {
        refuse(
            report,
            "without translation a backend answers at the requested port",
            place,
            "leave `port` out, or choose mode = \"nat\"",
        );
    }
}

/// Services that have an endpoint in common.
fn check_apart(read: &[Option<(Service, Range<usize>)>], report: &mut Report) {
    let services: Vec<_> = read.iter().flatten().collect();
    for (number, (service, place)) in services.iter().enumerate() {
        let overlaps = |other: &Service| {
            (other.tcp, other.address.ip()) == (service.tcp, service.address.ip())
                && other.address.port() <= service.last_port
                && service.address.port() <= other.last_port
        };
        let earlier = services[..number].iter();
        for (other, first) in earlier.filter(|(other, _)| overlaps(other)) {
            report.add(
                Diagnostic::error(
                    format!(
                        "the services `{}` and `{}` have ports of {} in common",
                        other.name,
                        service.name,
                        service.address.ip()
                    ),
                    place.clone(),
                )
                .also(first.clone(), format!("`{}` is here", other.name))
                .help("write another port or address for one of them, or a smaller `last_port`"),
            );
        }
    }
}

/// Backends that have an address at which packets come back to the balancer.
fn check_backends_elsewhere(tables: &[NamedValues], links: [&Link; 2], report: &mut Report) {
    let services: Vec<Service> = tables.iter().filter_map(service).collect();
    for table in tables {
        for (backend, place) in table.values.get(SERVICE.backends).unwrap_or_default() {
            let Some(address) = backend.get(BACKEND.address) else {
                continue;
            };
            let owner = services.iter().find(|one| *one.address.ip() == address);
            let (title, help) = match owner {
                Some(owner) if owner.name == table.name => (
                    format!("backend {address} has the service's own address"),
                    "write the address that the backend has beside it: packets to the service's come back here, in every mode",
                ),
                Some(owner) => (
                    format!("backend {address} is the service `{}`", owner.name),
                    "write the addresses of that service's backends: packets to a service come back here",
                ),
                None if links.iter().any(|link| link.address.address == address) => (
                    format!("backend {address} is the balancer itself"),
                    "write the address of another host",
                ),
                None => continue,
            };
            report.add(Diagnostic::error(title, place).help(help));
        }
    }
}

fn check_seconds(values: &Values, report: &mut Report) {
    check_whole_seconds(values, SETTINGS.persistence, report);
    if let Some(idle) = values.get(SETTINGS.idle) {
        for field in BalancerIdle::KEYS {
            check_whole_seconds(&idle, *field, report);
        }
    }
}
