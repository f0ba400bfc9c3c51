//! Which hosts talk to which others: N sessions of N distinct inside endpoints.

use super::random::Random;

/// An IPv4 address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address, as in `u32::from(Ipv4Addr)`.
    pub address: u32,
    /// The port.
    pub port: u16,
}

/// The two transports that flows are drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Transmission control protocol.
    Tcp,
    /// User datagram protocol.
    Udp,
}

impl Protocol {
    /// The number in the IPv4 header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// One conversation of an inside endpoint with a remote one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The transport.
    pub protocol: Protocol,
    /// Who began it; no other session of the set has this endpoint.
    pub inside: Endpoint,
    /// The peer.
    pub remote: Endpoint,
}

/// N sessions, drawn from a seed; the same seed and N give the same.
#[derive(Debug, Clone)]
pub struct Flows {
    sessions: Vec<Session>,
}

/// Inside addresses lie in 10.0.0.0/8, and ports are not the well-known ones.
const INSIDE: u32 = 0x0a00_0000;
const INSIDE_PORT_MIN: u16 = 1_024;
/// Remote addresses lie in 198.18.0.0/15 (RFC 2544).
const REMOTE: u32 = 0xc612_0000;
/// Outside addresses begin at 203.0.113.0 and take as many as are needed.
const OUTSIDE: u32 = 0xcb00_7100;
const OUTSIDE_PORT_MIN: u16 = 1_024;
const OUTSIDE_PORTS: u32 = 64_000;

impl Flows {
    /// `count` sessions, TCP and UDP at even odds.
    pub fn of_both(count: u32, seed: u64) -> Self {
        Self::draw(count, seed, |random| {
            if random.bits() & 1 == 0 {
                Protocol::Tcp
            } else {
                Protocol::Udp
            }
        })
    }

    /// `count` sessions of one transport.
    pub fn of(protocol: Protocol, count: u32, seed: u64) -> Self {
        Self::draw(count, seed, |_| protocol)
    }

    fn draw(count: u32, seed: u64, mut protocol: impl FnMut(&mut Random) -> Protocol) -> Self {
        let mut random = Random::new(seed);
        let key = random.bits();
        let mut place = 0;
        let sessions = (0..count)
            .map(|_| {
                let protocol = protocol(&mut random);
                let remote_port = match protocol {
                    Protocol::Tcp => 443,
                    Protocol::Udp => 1 + random.below(65_535) as u16,
                };
                Session {
                    protocol,
                    inside: next_inside(&mut place, key),
                    remote: Endpoint {
                        address: REMOTE | random.below(1 << 17) as u32,
                        port: remote_port,
                    },
                }
            })
            .collect();
        Self { sessions }
    }

    /// The same, of so many inside hosts, the first addresses of the network, each with an equal part of the sessions.
    pub fn from_hosts(mut self, hosts: u32) -> Self {
        for (place, session) in (0..).zip(&mut self.sessions) {
            session.inside = Endpoint {
                address: INSIDE + 1 + place % hosts,
                port: INSIDE_PORT_MIN + (place / hosts) as u16,
            };
        }
        self
    }

    /// The sessions, in the order drawn, which is random.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.sessions.len() as u32
    }

    /// An outside endpoint for session `index`, unique among the sessions: what a NAT that hands out ports in turn gives.
    pub fn outside(&self, index: u32) -> Endpoint {
        Endpoint {
            address: OUTSIDE + index / OUTSIDE_PORTS,
            port: OUTSIDE_PORT_MIN + (index % OUTSIDE_PORTS) as u16,
        }
    }
}

/// The next endpoint of a permutation of all inside endpoints: distinct without remembering any.
fn next_inside(place: &mut u64, key: u64) -> Endpoint {
    loop {
        let mixed = permute_40_bits(*place, key);
        *place += 1;
        let port = mixed as u16;
        if port >= INSIDE_PORT_MIN {
            return Endpoint {
                address: INSIDE | (mixed >> 16) as u32,
                port,
            };
        }
    }
}

/// A permutation of 0..2⁴⁰: every step (xor, odd multiplication, xor with a right shift) can be undone.
fn permute_40_bits(place: u64, key: u64) -> u64 {
    const MASK: u64 = (1 << 40) - 1;
    let mut mixed = (place ^ key) & MASK;
    for _ in 0..3 {
        mixed = mixed.wrapping_mul(0x9e_3779_b97f_4a7d) & MASK;
        mixed ^= mixed >> 21;
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn inside_endpoints_are_distinct_and_private() {
        let flows = Flows::of_both(100_000, 3);
        let inside: BTreeSet<_> = flows
            .sessions()
            .iter()
            .map(|session| session.inside)
            .collect();
        assert_eq!(inside.len(), 100_000);
        assert!(
            inside
                .iter()
                .all(|endpoint| endpoint.address >> 24 == 10 && endpoint.port >= 1_024)
        );
        let hosts: BTreeSet<_> = inside.iter().map(|endpoint| endpoint.address).collect();
        assert!(
            hosts.len() > 90_000,
            "drawn at random, not from a few hosts: {}",
            hosts.len()
        );
    }

    #[test]
    fn few_hosts_have_distinct_endpoints_too() {
        let flows = Flows::of_both(10_000, 3).from_hosts(300);
        let sessions = flows.sessions().iter();
        let inside: BTreeSet<_> = sessions.map(|session| session.inside).collect();
        let hosts: BTreeSet<_> = inside.iter().map(|endpoint| endpoint.address).collect();
        assert_eq!((inside.len(), hosts.len()), (10_000, 300));
    }

    #[test]
    fn outside_endpoints_are_distinct() {
        let flows = Flows::of(Protocol::Udp, 200_000, 3);
        let outside: BTreeSet<_> = (0..flows.count())
            .map(|index| flows.outside(index))
            .collect();
        assert_eq!(outside.len(), 200_000);
    }

    #[test]
    fn the_seed_decides_and_both_transports_come() {
        assert_eq!(
            Flows::of_both(1_000, 5).sessions(),
            Flows::of_both(1_000, 5).sessions()
        );
        assert_ne!(
            Flows::of_both(1_000, 5).sessions(),
            Flows::of_both(1_000, 6).sessions()
        );
        let tcp = Flows::of_both(10_000, 5)
            .sessions()
            .iter()
            .filter(|session| session.protocol == Protocol::Tcp)
            .count();
        assert!((4_700..5_300).contains(&tcp), "{tcp}");
    }
}
