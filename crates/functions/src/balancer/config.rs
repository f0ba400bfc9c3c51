//! How a balancer is set up, and what is wrong with a set-up, all of it at once. Imports `asterism_function`, and the words
//! for links of `nat/config.rs`.
//!
//! Plain values: reading them from a file is the binary's work.

use core::fmt;
use core::net::Ipv4Addr;

use asterism_forwarding::{IdleTimes, Interface, Route, is_host};
use asterism_function::{Endpoint, MacAddress, Protocol, Tick};

use asterism_forwarding::ConfigFault;

/// Services at most: each has a table of 128 KiB.
pub const SERVICES_MAX: usize = 256;
/// Backends of one service at most.
pub const SERVICE_BACKENDS_MAX: usize = 512;
/// Different backends of all services at most.
pub const BACKENDS_MAX: usize = 1_024;
/// The greatest weight of a backend.
pub const WEIGHT_MAX: u32 = 1_000;

/// The most that [`Service::passive`] may be.
pub const PASSIVE_MAX: u8 = 5;

/// How packets reach a backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// The destination is rewritten, and the source of what comes back: the backend's way to its clients leads through the
    /// balancer.
    Nat,
    /// The frame is handed to the backend's station, the packet stays as it is: the backend has the service's address
    /// itself, on the same link, and answers the client directly.
    Direct,
    /// The packet goes to the backend inside another (RFC 2003), across routers: the backend has the service's address
    /// itself, and answers the client directly.
    Tunnel,
}

impl Mode {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Nat => 0,
            Self::Direct => 1,
            Self::Tunnel => 2,
        }
    }
    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Nat),
            1 => Some(Self::Direct),
            2 => Some(Self::Tunnel),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nat => "nat",
            Self::Direct => "direct",
            Self::Tunnel => "tunnel",
        })
    }
}

/// Which backend gets a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Choice {
    /// The one that a hash of the flow finds in the Maglev table: instances that know nothing of one another choose alike.
    Hash,
    /// The one with the fewest flows for its weight, as far as this instance knows.
    LeastConnections,
}

/// A server of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Its address.
    pub address: Ipv4Addr,
    /// The port that it answers at; 0: that which the client asks for.
    pub port: u16,
    /// Its share of new flows, up to [`WEIGHT_MAX`]; 0: as if it drained.
    pub weight: u32,
    /// No new flows; those that it has go on.
    pub drains: bool,
}

/// What clients ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The address that clients know.
    pub address: Ipv4Addr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The first and the last of its ports.
    pub ports: (u16, u16),
    /// How packets reach its backends.
    pub mode: Mode,
    /// Who gets a new flow.
    pub choice: Choice,
    /// Whether a client keeps its backend from flow to flow: see [`BalancerConfig::persistence_s`].
    pub persistent: bool,
    /// Whether hosts check its backends: if not, all count as alive.
    pub checked: bool,
    /// Flows that a backend refuses, or does not answer at all, after which it counts as dead, up to [`PASSIVE_MAX`]; 0: what
    /// becomes of flows says nothing. Of TCP alone, and translated: otherwise answers are not seen.
    pub passive: u8,
    /// Its pool.
    pub backends: Vec<Backend>,
}

impl Service {
    /// A service of one port that chooses by hash, translates, and checks nobody.
    #[must_use]
    pub fn new(endpoint: Endpoint, backends: Vec<Backend>) -> Self {
        Self {
            address: endpoint.address,
            protocol: endpoint.protocol,
            ports: (endpoint.port, endpoint.port),
            mode: Mode::Nat,
            choice: Choice::Hash,
            persistent: false,
            checked: false,
            passive: 0,
            backends,
        }
    }

    /// Whether some endpoint belongs to both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        (self.address, self.protocol) == (other.address, other.protocol)
            && self.ports.0 <= other.ports.1
            && other.ports.0 <= self.ports.1
    }

    /// What a backend is checked at, and known by in the state.
    #[must_use]
    pub fn checked_at(&self, backend: &Backend) -> Endpoint {
        let port = match backend.port {
            0 => self.ports.0,
            port => port,
        };
        Endpoint::new(backend.address, port, self.protocol)
    }
}

/// The set-up of a balancer.
#[derive(Clone, PartialEq, Debug)]
pub struct BalancerConfig {
    /// The link that clients come by.
    pub clients: Interface,
    /// The link to the backends.
    pub backends: Interface,
    /// Routes beside the two links' own prefixes: [`Side::Outside`](asterism_forwarding::Side) is the clients' side.
    pub routes: Vec<Route>,
    /// Ethernet addresses that need not be asked for by ARP.
    pub neighbours: Vec<(Ipv4Addr, MacAddress)>,
    /// The services.
    pub services: Vec<Service>,
    /// When flows end. Of ICMP there are none.
    pub idle: IdleTimes,
    /// Seconds for which a client keeps its backend after its last new flow.
    pub persistence_s: Tick,
    /// Microseconds for which a packet of a flow that is not known waits for word of it from another instance: an answer of a
    /// backend, or a TCP segment that does not open a connection.
    pub known_wait_us: u64,
    /// Whether echo requests to services are answered.
    pub answers_echo: bool,
    /// ICMP errors that are sent per second at most, each side on its own (RFC 1812 §4.3.2.8).
    pub icmp_errors_per_second: u16,
    /// Flows at most, over the whole cluster.
    pub flows_max: u32,
    /// Clients whose backend is kept at most, over the whole cluster.
    pub kept_max: u32,
    /// Fragmented datagrams under way at most, over the whole cluster.
    pub fragments_max: u32,
    /// Neighbours learnt at most, over the whole cluster.
    pub neighbours_max: u32,
}

impl BalancerConfig {
    /// Idle times: those of the RFCs for NATs, but that a flow is soon forgotten once it ended, and when its handshake was
    /// never complete.
    pub const IDLE: IdleTimes = IdleTimes {
        tcp_transitory: 60,
        tcp_closing: 10,
        ..IdleTimes::RFC
    };

    /// A balancer between two links, with room for 262,144 flows.
    #[must_use]
    pub fn new(clients: Interface, backends: Interface, services: Vec<Service>) -> Self {
        Self {
            clients,
            backends,
            routes: Vec::new(),
            neighbours: Vec::new(),
            services,
            idle: Self::IDLE,
            persistence_s: 300,
            known_wait_us: 20_000,
            answers_echo: true,
            icmp_errors_per_second: 100,
            flows_max: 1 << 18,
            kept_max: 1 << 16,
            fragments_max: 1 << 16,
            neighbours_max: 1 << 12,
        }
    }

    /// Everything that is wrong; nothing if a balancer can be made of it.
    pub fn validate(&self) -> Result<(), Vec<ConfigFault>> {
        let mut faults = Vec::new();
        let mut add = |field, sentence| faults.push(ConfigFault { field, sentence });
        if self.clients.port == self.backends.port {
            add("backends", "has the same port as clients".to_owned());
        }
        for (field, interface) in [("clients", &self.clients), ("backends", &self.backends)] {
            if !is_host(interface.address) || interface.prefix_length > 32 {
                let sentence = format!("{} is no host's address", interface.prefix());
                add(field, sentence);
            }
        }
        if self.services.len() > SERVICES_MAX {
            let count = self.services.len();
            add("services", format!("{count} exceed {SERVICES_MAX}"));
        }
        for (place, service) in self.services.iter().enumerate() {
            let (first, last) = service.ports;
            let name = format!("{} {first}-{last}/{}", service.address, service.protocol);
            let mut fault = |sentence: &str| add("services", format!("{name}: {sentence}"));
            if ![Protocol::TCP, Protocol::UDP].contains(&service.protocol) {
                fault("only tcp and udp are balanced");
            }
            if first == 0 || first > last {
                fault("this is no range of ports from 1 to 65535");
            }
            if !is_host(service.address) {
                fault("this is no host's address");
            }
            if [self.clients.address, self.backends.address].contains(&service.address) {
                fault("this is the balancer's own address");
            }
            if self.services[..place]
                .iter()
                .any(|other| other.overlaps(service))
            {
                fault("another service has some of its ports");
            }
            if service.passive > PASSIVE_MAX {
                fault("too many flows are to fail before their backend counts as dead");
            }
            let sees_answers = service.mode == Mode::Nat && service.protocol == Protocol::TCP;
            if service.passive > 0 && !sees_answers {
                fault("answers of its backends are not seen, so they cannot be watched");
            }
            if service.backends.len() > SERVICE_BACKENDS_MAX {
                fault("it has too many backends");
            }
            for (number, backend) in service.backends.iter().enumerate() {
                let same = |other: &Backend| {
                    (other.address, other.port) == (backend.address, backend.port)
                };
                if service.backends[..number].iter().any(same) {
                    fault("a backend is there twice");
                }
                if !is_host(backend.address) {
                    fault("a backend has no host's address");
                }
                if backend.weight > WEIGHT_MAX {
                    fault("a backend has too much weight");
                }
                if service.mode != Mode::Nat && ![0, first].contains(&backend.port)
                    || service.mode != Mode::Nat && backend.port != 0 && first != last
                {
                    fault("without translation a backend answers at the port that was asked for");
                }
            }
        }
        let idle = self.idle;
        let times = [
            idle.tcp_transitory,
            idle.tcp_established,
            idle.tcp_closing,
            idle.udp,
        ];
        if times.contains(&0) || self.persistence_s == 0 {
            add("idle", "0 would keep flows for ever".to_owned());
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}
