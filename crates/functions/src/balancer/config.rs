//! How a balancer is set up, and what is wrong with a set-up, all of it at once.
//!
//! Plain values: reading them from a file is the binary's work.

use core::net::Ipv4Addr;

use asterism_balancing::{Backend, Mode, PASSIVE_MAX, Service, WEIGHT_MAX};
use asterism_forwarding::{ConfigFault, IdleTimes, Interface, Route, is_host};
use asterism_function::{MacAddress, Protocol, Tick};

/// Services at most: each has a table of 128 KiB.
pub const SERVICES_MAX: usize = 256;
/// Backends of one service at most.
pub const SERVICE_BACKENDS_MAX: usize = 512;
/// Different backends of all services at most.
pub const BACKENDS_MAX: usize = 1_024;

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
    /// When TCP ends whose client has finished, in the modes in which nobody sees its backend do so.
    pub half_closed_s: Tick,
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
    pub affinity_max: u32,
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
            half_closed_s: 120,
            persistence_s: 300,
            known_wait_us: 20_000,
            answers_echo: true,
            icmp_errors_per_second: 100,
            flows_max: 1 << 18,
            affinity_max: 1 << 16,
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
                let own = [self.clients.address, self.backends.address];
                if own.contains(&backend.address)
                    || self
                        .services
                        .iter()
                        .any(|one| one.address == backend.address)
                {
                    fault("a backend has an address of the balancer's or of a service");
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
            self.half_closed_s,
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
