//! On which side of a function a packet of a capture belongs.
//!
//! A capture taken on one link holds both directions as they are on that link. Of a NAT's inside link the answers are
//! addressed to inside hosts, as no NAT would ever get them: here they are addressed to the outside endpoint that the NAT
//! gave their session, as the remote host would.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use asterism_function::{
    Endpoint, Flow4, FlowKey, Fragment, IcmpKind, NetworkFunction, Packet, Paired, PortNumber,
    Protocol,
};
use asterism_functions::balancer::{Balancer, BalancerState};
use asterism_functions::nat::{Nat, NatExemption, NatState, Session};

use crate::config::functions::{BalancerSettings, ExemptionSettings, NatSettings};
use crate::config::network::Prefix;
use crate::wiring::{INSIDE, OUTSIDE};

/// On which side a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It comes in by this port.
    From(PortNumber),
    /// It cannot be replayed; why.
    Skip(&'static str),
}

/// Says where packets of a capture come in, and may edit them to what they would be there.
pub trait Direction<F: NetworkFunction> {
    /// The side of one packet. `states` are those of all instances.
    fn side(&mut self, bytes: &mut [u8], states: &mut dyn Iterator<Item = &F::State>) -> Side;
}

/// Anyone who speaks first in a flow is inside; answers come from outside.
#[derive(Clone, Debug, Default)]
pub struct FirstSpeaker {
    /// The source of each flow's first packet.
    first: BTreeMap<FlowKey, (IpAddr, u16)>,
}

/// Flows whose first speaker is remembered at most; packets of more come from inside.
const FLOWS_MAX: usize = 1 << 20;

impl<F: NetworkFunction> Direction<F> for FirstSpeaker {
    fn side(&mut self, bytes: &mut [u8], _: &mut dyn Iterator<Item = &F::State>) -> Side {
        let Ok(packet) = Packet::parse(bytes) else {
            return Side::From(INSIDE);
        };
        let source = match packet.flow4() {
            Some(flow) => (flow.source.into(), flow.source_port),
            None => {
                let ipv4 = packet.ipv4_source().map(IpAddr::from);
                match ipv4.or_else(|| packet.ipv6_source().map(IpAddr::from)) {
                    Some(address) => (address, 0),
                    None => return Side::From(INSIDE),
                }
            }
        };
        let key = FlowKey::of(&packet);
        if self.first.len() >= FLOWS_MAX && !self.first.contains_key(&key) {
            return Side::From(INSIDE);
        }
        let first = *self.first.entry(key).or_insert(source);
        Side::From(if first == source { INSIDE } else { OUTSIDE })
    }
}

/// What comes from a backend comes from their link, all else from the clients'.
#[derive(Clone, Debug)]
pub struct BalancerDirection {
    /// In order.
    backends: Vec<Ipv4Addr>,
}

impl BalancerDirection {
    /// The sides of a balancer.
    #[must_use]
    pub fn new(settings: &BalancerSettings) -> BalancerDirection {
        let services = settings.services.iter();
        let backends = services.flat_map(|service| service.backends.iter().map(|one| one.address));
        let mut backends: Vec<_> = backends.collect();
        backends.sort_unstable();
        BalancerDirection { backends }
    }
}

impl Direction<Balancer> for BalancerDirection {
    fn side(&mut self, bytes: &mut [u8], _: &mut dyn Iterator<Item = &BalancerState>) -> Side {
        let source = Packet::parse(bytes)
            .ok()
            .and_then(|packet| packet.ipv4_source());
        let answers = source.is_some_and(|source| self.backends.binary_search(&source).is_ok());
        Side::From(if answers { INSIDE } else { OUTSIDE })
    }
}

/// Addresses tell the sides of a NAT apart.
#[derive(Clone, Debug)]
pub struct NatDirection {
    inside: Vec<Prefix>,
    outside: Vec<Ipv4Addr>,
    exempt: Vec<NatExemption>,
}

impl NatDirection {
    /// The sides of a NAT with these settings.
    #[must_use]
    pub fn new(settings: &NatSettings) -> NatDirection {
        NatDirection {
            inside: settings.inside.clone(),
            outside: settings.outside.clone(),
            exempt: settings
                .exempt
                .iter()
                .map(ExemptionSettings::made)
                .collect(),
        }
    }

    fn is_inside(&self, address: Ipv4Addr) -> bool {
        self.inside.iter().any(|network| network.contains(address))
    }
}

impl Direction<Nat> for NatDirection {
    fn side(&mut self, bytes: &mut [u8], states: &mut dyn Iterator<Item = &NatState>) -> Side {
        let Ok(mut packet) = Packet::parse(bytes) else {
            // The function counts what is wrong with it.
            return Side::From(INSIDE);
        };
        let (Some(source), Some(destination)) = (packet.ipv4_source(), packet.ipv4_destination())
        else {
            return Side::From(INSIDE);
        };
        if self.is_inside(source) {
            return Side::From(INSIDE);
        }
        if !self.is_inside(destination) || self.outside.contains(&destination) {
            return Side::From(OUTSIDE);
        }
        let protocol = Protocol(packet.layout().protocol());
        let port = packet.ports().map(|(port, _)| port);
        let exempt = |one: &NatExemption| one.covers(source, protocol, port);
        if self.exempt.iter().any(exempt) {
            return Side::From(OUTSIDE);
        }
        // An answer as it is inside.
        if packet.layout().fragment() != Fragment::Whole {
            return Side::Skip("fragment of an answer");
        }
        if packet.icmp_kind() == Some(IcmpKind::Error) {
            return Side::Skip("ICMP error from outside");
        }
        let Some(flow) = packet.flow4() else {
            return Side::Skip("answer without a session");
        };
        let mut asked = flow.reversed();
        if packet.icmp_kind().is_some() {
            asked.destination_port = 0;
        }
        let mut outside = None;
        for state in states {
            outside = outside.or_else(|| outside_of(state, asked));
        }
        match outside {
            Some(outside) => {
                packet.set_destination(outside);
                Side::From(OUTSIDE)
            }
            None => Side::Skip("answer without a session"),
        }
    }
}

/// The outside endpoint of the session that a packet from inside belongs to, as far as an instance knows.
#[must_use]
pub fn outside_of(state: &NatState, from_inside: Flow4) -> Option<Endpoint> {
    let (inside, remote) = (from_inside.source(), from_inside.destination());
    // Sessions are found by their packets from inside, whatever the outside endpoint.
    let key = Session::new(inside, remote, inside, false).left();
    let found = state.sessions.by_left(&key).ok().flatten()?;
    Some(found.row.outside())
}
