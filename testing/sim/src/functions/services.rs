//! NAT, firewall and balancer, as those who talk through them see them.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, MacAddress, PortNumber, Protocol, TcpFlags};
use asterism_functions::balancer::{
    Backend, Balancer, BalancerConfig, BalancerState, Choice, Service as Asked,
};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};
use asterism_functions::nat::{
    Filtering, Interface, Nat, NatConfig, PortControl, Prefix, Route, Side,
};

use super::hosts::PORTS;
use super::plan::Plan;
use super::talks::{BLIND, NOBODY, Service, Talk, frame};
use crate::scenario::Draws;

/// The address of a NAT on the side of its clients.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const ROUTER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 112, 2);

/// Somebody inside, of so many addresses.
pub(crate) fn client(draws: &mut Draws, addresses: u64) -> (Ipv4Addr, u16, Protocol) {
    let address = Ipv4Addr::new(10, 0, 0, draws.within(1, addresses) as u8);
    let protocol = match draws.percent(60) {
        true => Protocol::TCP,
        false => Protocol::UDP,
    };
    (address, draws.within(2_000, 2_002) as u16, protocol)
}

/// The peer of a conversation.
pub(crate) fn server(number: u16, protocol: Protocol) -> Endpoint {
    let address = Ipv4Addr::new(198, 51, 100, number as u8 + 1);
    Endpoint::new(address, 80, protocol)
}

fn interface(port: PortNumber, address: Ipv4Addr) -> Interface {
    Interface {
        promiscuous: true,
        ..Interface::new(port, address, 24, MAC)
    }
}

fn route(prefix: Prefix, side: Side, next_hop: Ipv4Addr) -> Route {
    Route {
        prefix,
        side,
        next_hop: Some(next_hop),
    }
}

/// A NAT between two routers, behind these addresses.
pub(crate) fn nat_of(outside_addresses: Vec<Ipv4Addr>) -> NatConfig {
    let inside = interface(PORTS[0], GATEWAY);
    let outside = interface(PORTS[1], Ipv4Addr::new(203, 0, 112, 1));
    let clients = Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8);
    NatConfig {
        routes: vec![
            route(clients, Side::Inside, NEAR),
            route(Prefix::ALL, Side::Outside, FAR),
        ],
        neighbours: vec![(NEAR, ROUTER_MAC), (FAR, ROUTER_MAC)],
        sessions_max: 1 << 9,
        fragments_max: 1 << 6,
        neighbours_max: 1 << 6,
        ..NatConfig::new(inside, outside, outside_addresses)
    }
}

/// A NAT: a client's endpoint has one outside endpoint, which nobody else has (RFC 4787 REQ-1).
pub(crate) struct Translated {
    filtering: Filtering,
    addresses: u8,
}

impl Translated {
    pub(crate) fn new(plan: &Plan) -> Self {
        let draws = &mut Draws::new(plan.seed, 43);
        Self {
            filtering: draws.one_of(&[
                Filtering::EndpointIndependent,
                Filtering::AddressDependent,
                Filtering::AddressAndPortDependent,
            ]),
            addresses: draws.within(1, 2) as u8,
        }
    }
}

impl Translated {
    /// Addresses by which clients are seen.
    pub(crate) fn outside(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (1..=self.addresses).map(|last| Ipv4Addr::new(203, 0, 113, last))
    }

    fn config(&self) -> NatConfig {
        NatConfig {
            filtering: self.filtering,
            outside_ports: (1_024, 5_119),
            ..nat_of(self.outside().collect())
        }
    }

    /// The same NAT, which hosts may ask for ports.
    pub(crate) fn that_is_asked(&self) -> Nat {
        let port_control = Some(PortControl {
            mappings_max: 1 << 9,
            ..PortControl::DEFAULT
        });
        Nat::new(NatConfig {
            port_control,
            ..self.config()
        })
        .expect("a sound configuration")
    }
}

impl Service for Translated {
    type Function = Nat;
    const CLIENTS: PortNumber = PORTS[0];
    const SERVERS: PortNumber = PORTS[1];
    const MAY_LOSE: bool = false;
    const EXCLUSIVE: bool = true;

    fn function(&mut self) -> Nat {
        Nat::new(self.config()).expect("a sound configuration")
    }

    fn ends(&self, number: u16, draws: &mut Draws) -> (Endpoint, Endpoint) {
        // Few endpoints, so that several talk from the same one.
        let (address, port, protocol) = client(draws, 5);
        (
            Endpoint::new(address, port, protocol),
            server(number, protocol),
        )
    }

    fn given(&self, talk: &Talk, source: Endpoint, _: Endpoint) -> Option<(u64, u64)> {
        Some((self.flow(talk), source.to_bits()))
    }

    fn flow(&self, talk: &Talk) -> u64 {
        talk.client.to_bits()
    }

    fn attack(&mut self, draws: &mut Draws, _: &[Talk]) -> Option<(PortNumber, Vec<u8>)> {
        // To a port that nobody has: they are given from below.
        let protocol = draws.one_of(&[Protocol::TCP, Protocol::UDP]);
        let to = Endpoint::new(Ipv4Addr::new(203, 0, 113, 1), 9_000, protocol);
        Some((PORTS[1], stray(draws, to)))
    }
}

/// A packet of nobody's conversation.
pub(crate) fn stray(draws: &mut Draws, to: Endpoint) -> Vec<u8> {
    let address = Ipv4Addr::new(192, 0, 2, draws.within(1, 200) as u8);
    let from = Endpoint::new(address, draws.within(1_024, 60_000) as u16, to.protocol);
    let flags = draws.one_of(&[
        TcpFlags::SYN,
        TcpFlags::ACK,
        TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0),
        TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0),
        TcpFlags::RST,
    ]);
    forged((from, to), flags, NOBODY, draws.within(0, 0xffff) as u16)
}

fn forged((from, to): (Endpoint, Endpoint), flags: TcpFlags, number: u16, offset: u16) -> Vec<u8> {
    let segment = Segment {
        sequence: u32::from(number) << 16 | u32::from(offset),
        ..Segment::with_flags(flags)
    };
    let payload = if from.protocol == Protocol::UDP {
        &[0xff; 8][..]
    } else {
        &[]
    };
    frame((from, to), &segment, payload)
}

/// A firewall: what inside begins passes, and what belongs to it; nothing else does.
pub(crate) struct Walled;

impl Service for Walled {
    type Function = Firewall;
    const CLIENTS: PortNumber = PORTS[0];
    const SERVERS: PortNumber = PORTS[1];
    // A connection of which nobody knows that it was begun is none.
    const MAY_LOSE: bool = true;
    const EXCLUSIVE: bool = false;

    fn function(&mut self) -> Firewall {
        Firewall::new(FirewallConfig {
            rules: read_rules("allow any on inside\n").expect("good rules"),
            flows_max: 1 << 10,
            fragments_max: 1 << 6,
            blocked_max: 1 << 6,
            events_max: 1 << 6,
            sources_max: 1 << 6,
            destinations_max: 1 << 6,
            ..FirewallConfig::default()
        })
    }

    fn ends(&self, number: u16, draws: &mut Draws) -> (Endpoint, Endpoint) {
        let (address, port, protocol) = client(draws, 5);
        (
            Endpoint::new(address, port, protocol),
            server(number, protocol),
        )
    }

    fn given(&self, _: &Talk, _: Endpoint, _: Endpoint) -> Option<(u64, u64)> {
        None
    }

    fn flow(&self, talk: &Talk) -> u64 {
        talk.number.into()
    }

    fn attack(&mut self, draws: &mut Draws, talks: &[Talk]) -> Option<(PortNumber, Vec<u8>)> {
        let talk = &talks[draws.within(0, talks.len() as u64 - 1) as usize];
        if draws.percent(50) {
            return Some((PORTS[1], stray(draws, talk.client)));
        }
        // As if the server of a conversation began another one.
        let from = Endpoint {
            port: draws.within(81, 90) as u16,
            ..talk.server
        };
        let flags = draws.one_of(&[TcpFlags::SYN, TcpFlags::ACK]);
        Some((PORTS[1], forged((from, talk.client), flags, NOBODY, 7)))
    }
}

/// A balancer between a router of clients and backends of the link, for services of theirs.
pub(crate) fn balancer(
    backends: u8,
    flows_max: u32,
    services: impl FnOnce(Vec<Backend>) -> Vec<Asked>,
) -> Balancer {
    let backend = |number| Backend {
        address: backend_address(number),
        port: 8_080,
        weight: 1,
        drains: false,
    };
    let services = services((0..backends).map(backend).collect());
    let stations = (0..backends).map(|number| (backend_address(number), ROUTER_MAC));
    let outside = interface(PORTS[1], Ipv4Addr::new(203, 0, 112, 1));
    let inside = interface(PORTS[0], Ipv4Addr::new(192, 168, 0, 1));
    Balancer::new(BalancerConfig {
        routes: vec![route(Prefix::ALL, Side::Outside, FAR)],
        neighbours: stations.chain([(FAR, ROUTER_MAC)]).collect(),
        flows_max,
        affinity_max: 1 << 6,
        fragments_max: 1 << 6,
        neighbours_max: 1 << 6,
        ..BalancerConfig::new(outside, inside, services)
    })
    .expect("a sound configuration")
}

/// The address of a backend, and whose it is.
pub(crate) fn backend_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 0, 10 + number)
}

/// See [`backend_address`].
pub(crate) fn backend_of(address: Ipv4Addr) -> u8 {
    address.octets()[3].wrapping_sub(10)
}

/// What clients of balancers ask.
pub(crate) fn virtual_service(protocol: Protocol) -> Endpoint {
    Endpoint::new(VIRTUAL, 80, protocol)
}

/// A balancer: a flow has one backend.
pub(crate) struct Balanced {
    choice: Choice,
    backends: u8,
}

const VIRTUAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

impl Balanced {
    pub(crate) fn new(plan: &Plan) -> Self {
        let draws = &mut Draws::new(plan.seed, 43);
        Self {
            choice: draws.one_of(&[Choice::LeastConnections, Choice::Hash]),
            backends: draws.within(3, 6) as u8,
        }
    }
}

impl Service for Balanced {
    type Function = Balancer;
    const CLIENTS: PortNumber = PORTS[1];
    const SERVERS: PortNumber = PORTS[0];
    const MAY_LOSE: bool = false;
    const EXCLUSIVE: bool = false;

    fn function(&mut self) -> Balancer {
        balancer(self.backends, 1 << 9, |backends| {
            let services = [Protocol::TCP, Protocol::UDP].map(|protocol| Asked {
                choice: self.choice,
                ..Asked::new(virtual_service(protocol), backends.clone())
            });
            services.to_vec()
        })
    }

    fn ends(&self, number: u16, draws: &mut Draws) -> (Endpoint, Endpoint) {
        let (address, port, protocol) = client(draws, 200);
        let port = port + number * 4;
        (
            Endpoint::new(address, port, protocol),
            virtual_service(protocol),
        )
    }

    fn given(&self, talk: &Talk, _: Endpoint, destination: Endpoint) -> Option<(u64, u64)> {
        Some((self.flow(talk), destination.to_bits()))
    }

    fn flow(&self, talk: &Talk) -> u64 {
        u64::from(talk.before) << 16 | u64::from(talk.number)
    }

    /// A reset in the name of a client whose connection goes on, by one who does not know its numbers.
    fn attack(&mut self, draws: &mut Draws, talks: &[Talk]) -> Option<(PortNumber, Vec<u8>)> {
        let talk = &talks[draws.within(0, talks.len() as u64 - 1) as usize];
        let (ends, offset) = ((talk.client, talk.server), draws.within(0, 0xffff) as u16);
        let is_tcp = talk.client.protocol == Protocol::TCP;
        is_tcp.then(|| (PORTS[1], forged(ends, TcpFlags::RST, BLIND, offset)))
    }

    /// Each backend's count is that of the flows that are held, however they began, ended and came back; and no connection was reset by
    /// one of its ends.
    fn mistaken(&self, state: &BalancerState) -> Option<String> {
        let mut held = BTreeMap::<u32, i64>::new();
        let mut reset = None;
        state.flows.for_each(|flow, progress| {
            if progress.is_reset() {
                reset = Some(format!("{flow:?} counts as reset"));
            }
            *held.entry(flow.place.into()).or_default() += 1;
        });
        if reset.is_some() {
            return reset;
        }
        let counted = |place| state.usage.get(place);
        let differs = |place: &u32| counted(*place) != Ok(held.get(place).copied().unwrap_or(0));
        let place = (0..state.usage.len()).find(differs)?;
        Some(format!(
            "{:?} flows counted in place {place}, and {held:?} are held",
            counted(place)
        ))
    }
}
