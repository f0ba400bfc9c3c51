//! The sides of a balancer, for packets of a capture.

use std::net::Ipv4Addr;

use asterism_function::Packet;
use asterism_functions::balancer::{Balancer, BalancerState};

use super::BalancerSettings;
use crate::direction::{Direction, Side};
use crate::wiring::{INSIDE, OUTSIDE};

/// What comes from a backend comes from their link, all else from the clients'.
#[derive(Clone, Debug)]
pub(super) struct BalancerDirection {
    /// In order.
    backends: Vec<Ipv4Addr>,
}

impl BalancerDirection {
    /// The sides of a balancer.
    pub(super) fn new(settings: &BalancerSettings) -> BalancerDirection {
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
