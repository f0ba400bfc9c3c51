//! Services and their backends: the settings of this library.
//!
//! Plain values; the reader of the configuration checks them.

use core::fmt;
use core::net::Ipv4Addr;

use asterism_function::{Endpoint, Protocol};

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
    /// As records have it.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Nat => 0,
            Self::Direct => 1,
            Self::Tunnel => 2,
        }
    }

    /// The mode of a code; `None`: it is of none.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
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

impl Backend {
    /// A backend with a share of one.
    #[must_use]
    pub const fn new(address: Ipv4Addr, port: u16) -> Self {
        Self {
            address,
            port,
            weight: 1,
            drains: false,
        }
    }

    /// Whether it gets new flows, as far as it is for the settings to say.
    #[inline]
    #[must_use]
    pub const fn takes_new(&self) -> bool {
        !self.drains && self.weight > 0
    }

    /// Where it answers what was asked for at an endpoint.
    #[inline]
    #[must_use]
    pub fn answers_at(&self, asked: Endpoint) -> Endpoint {
        let port = match self.port {
            0 => asked.port,
            port => port,
        };
        Endpoint::new(self.address, port, asked.protocol)
    }
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
    /// Whether a client keeps its backend from flow to flow, for as long as [`Clients`](crate::Clients) are remembered.
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

    /// Its first endpoint, which is its name.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Endpoint {
        Endpoint::new(self.address, self.ports.0, self.protocol)
    }

    /// Whether an endpoint belongs to it.
    #[inline]
    #[must_use]
    pub fn has(&self, asked: Endpoint) -> bool {
        (self.address, self.protocol) == (asked.address, asked.protocol)
            && (self.ports.0..=self.ports.1).contains(&asked.port)
    }

    /// What a backend is checked at, and known by in the state.
    #[inline]
    #[must_use]
    pub fn checked_at(&self, backend: &Backend) -> Endpoint {
        backend.answers_at(self.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ports: (u16, u16)) -> Service {
        let first = Endpoint::new([10, 0, 0, 1].into(), ports.0, Protocol::TCP);
        Service {
            ports,
            ..Service::new(first, Vec::new())
        }
    }

    #[test]
    fn services_overlap_that_have_an_endpoint_in_common() {
        let some = of((80, 90));
        for (ports, expected) in [
            ((80, 80), true),
            ((90, 99), true),
            ((1, 100), true),
            ((1, 79), false),
            ((91, 91), false),
        ] {
            assert_eq!(some.overlaps(&of(ports)), expected, "{ports:?}");
            assert_eq!(of(ports).overlaps(&some), expected, "{ports:?}");
            assert_eq!(some.has(of(ports).first()), (80..=90).contains(&ports.0));
        }
        let udp = Service {
            protocol: Protocol::UDP,
            ..some.clone()
        };
        assert!(!some.overlaps(&udp) && !some.has(udp.first()));
    }

    #[test]
    fn a_backend_answers_at_its_port_or_at_the_one_that_was_asked_for() {
        let (address, asked) = ([10, 0, 0, 9].into(), of((85, 85)).first());
        assert_eq!(Backend::new(address, 0).answers_at(asked).port, 85);
        assert_eq!(Backend::new(address, 8_080).answers_at(asked).port, 8_080);
        assert_eq!(of((80, 90)).checked_at(&Backend::new(address, 0)).port, 80);
    }

    #[test]
    fn modes_come_back_from_their_codes() {
        for code in 0..=u8::MAX {
            assert_eq!(
                Mode::from_code(code).map(Mode::code),
                (code < 3).then_some(code)
            );
        }
    }
}
