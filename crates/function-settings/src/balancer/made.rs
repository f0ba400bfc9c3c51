//! From a balancer's settings to the balancer.

use core::time::Duration;

use asterism_function::{Endpoint, MacAddress};
use asterism_functions::balancer::{self, Balancer, BalancerConfig};
use asterism_functions::nat::{self, IdleTimes, Route, Side};

use super::direction::BalancerDirection;
use super::fields::{OBJECT, SETTINGS};
use super::{BalancerMode, BalancerSettings, Check, Service};
use crate::direction::Direction;
use crate::error::FunctionError;
use crate::nat::made::{protocol, seconds};
use crate::objects::{ObjectChoice, Sharing, capacity};
use crate::settings::{FunctionSettings, changeable};
use crate::wiring::{INSIDE, OUTSIDE};

impl FunctionSettings for BalancerSettings {
    type Function = Balancer;
    // Its services and how they are checked.
    changeable!(SETTINGS: services = services, checks = checks);

    fn function(&self, objects: &[ObjectChoice]) -> Result<Balancer, FunctionError> {
        let config = BalancerConfig {
            flows_max: capacity(objects, OBJECT.flows),
            affinity_max: capacity(objects, OBJECT.affinity),
            fragments_max: capacity(objects, OBJECT.fragments),
            neighbours_max: capacity(objects, OBJECT.neighbours),
            ..config(self)
        };
        Balancer::new(config).map_err(FunctionError::Balancer)
    }

    fn shared_by(&mut self, sharing: Sharing) {
        if !sharing.is_shared() {
            self.known_wait = Duration::ZERO;
        }
    }

    fn words(&self) -> String {
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let backends = self.services.iter().map(|service| service.backends.len());
        format!(
            "{} with {}",
            count(self.services.len(), "service"),
            count(backends.sum(), "backend")
        )
    }

    fn direction(&self) -> Box<dyn Direction<Balancer>> {
        Box::new(BalancerDirection::new(self))
    }

    fn tells_sides(&self) -> bool {
        true
    }

    fn why_not_passed_by(&self) -> Option<&'static str> {
        Some("packets to services would reach no backend")
    }

    fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
        self.clients_link
            .on_real(SETTINGS.clients_link.name(), is_written);
        self.backends_link
            .on_real(SETTINGS.backends_link.name(), is_written);
    }
}

/// A balancer's settings in its own words, with its own capacities.
fn config(settings: &BalancerSettings) -> BalancerConfig {
    let (clients, backends) = (&settings.clients_link, &settings.backends_link);
    let idle = &settings.idle;
    BalancerConfig {
        routes: routes(settings),
        neighbours: [clients, backends]
            .into_iter()
            .filter_map(|link| Some((link.next_hop, MacAddress(link.next_hop_mac?))))
            .collect(),
        idle: IdleTimes {
            tcp_transitory: seconds(idle.tcp_transitory),
            tcp_established: seconds(idle.tcp_established),
            tcp_closing: seconds(idle.tcp_closing),
            udp: seconds(idle.udp),
            ..BalancerConfig::IDLE
        },
        half_closed_s: seconds(idle.tcp_half_closed),
        persistence_s: seconds(settings.persistence),
        known_wait_us: settings.known_wait.as_micros() as u64,
        answers_echo: settings.answers_echo,
        icmp_errors_per_second: settings.icmp_errors_per_second,
        ..BalancerConfig::new(
            clients.interface(OUTSIDE),
            backends.interface(INSIDE),
            settings.services.iter().map(made_service).collect(),
        )
    }
}

fn made_service(service: &Service) -> balancer::Service {
    let port = service.address.port();
    let endpoint = Endpoint::new(*service.address.ip(), port, protocol(service.tcp));
    let backends = service.backends.iter().map(|one| balancer::Backend {
        address: one.address,
        port: one.port.unwrap_or(0),
        weight: one.weight,
        drains: one.drain,
    });
    balancer::Service {
        ports: (port, service.last_port),
        mode: match service.mode {
            BalancerMode::Nat => balancer::Mode::Nat,
            BalancerMode::Direct => balancer::Mode::Direct,
            BalancerMode::Tunnel => balancer::Mode::Tunnel,
        },
        choice: if service.least_connections {
            balancer::Choice::LeastConnections
        } else {
            balancer::Choice::Hash
        },
        persistent: service.persistent,
        checked: service.check != Check::None,
        passive: service.passive,
        ..balancer::Service::new(endpoint, backends.collect())
    }
}

/// Backends beyond their link are behind its router; all others are clients.
fn routes(settings: &BalancerSettings) -> Vec<Route> {
    let (clients, backends) = (&settings.clients_link, &settings.backends_link);
    let all = settings.services.iter().flat_map(|one| &one.backends);
    let addresses = all.map(|one| one.address);
    let mut beyond: Vec<_> = addresses
        .filter(|address| !backends.address.contains(*address))
        .collect();
    beyond.sort_unstable();
    beyond.dedup();
    let to_backends = beyond.into_iter().map(|address| Route {
        prefix: nat::Prefix::new(address, 32),
        side: Side::Inside,
        next_hop: Some(backends.next_hop),
    });
    // A backend that a reload took out of its pool has no route of its own any more, and its flows go on: so what goes to the backends' link
    // goes to its router. Of two routes as long the clients' counts for who is where.
    let sides = [(Side::Inside, backends), (Side::Outside, clients)];
    let to_sides = sides.into_iter().map(|(side, link)| Route {
        prefix: nat::Prefix::ALL,
        side,
        next_hop: Some(link.next_hop),
    });
    to_backends.chain(to_sides).collect()
}
