//! The sides of a NAT, for packets of a capture.
//!
//! Of a NAT's inside link the answers are addressed to inside hosts, as no NAT would ever get them: here they are addressed to the outside
//! endpoint that the NAT gave their session, as the remote host would.

use std::net::Ipv4Addr;

use asterism_function::{Endpoint, Flow4, Fragment, IcmpKind, Packet, Paired, Protocol};
use asterism_functions::nat::{Nat, NatExemption, NatState, Session};

use super::{ExemptionSettings, NatSettings};
use crate::direction::{Direction, Side};
use crate::wiring::{INSIDE, OUTSIDE};
use asterism_notation::network::Prefix;

/// Addresses tell the sides of a NAT apart.
#[derive(Clone, Debug)]
pub(super) struct NatDirection {
    inside: Vec<Prefix>,
    outside: Vec<Ipv4Addr>,
    exempt: Vec<NatExemption>,
}

impl NatDirection {
    /// The sides of a NAT with these settings.
    pub(super) fn new(settings: &NatSettings) -> NatDirection {
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
