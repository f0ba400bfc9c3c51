//! Flows beside a client's ordinary flow: a rival, which waits to replace another flow, or the flow of a client on the
//! backends' own link, which the balancer masquerades.
//!
//! **Rivals.** A SYN with another sequence number, on the ports of an established connection whose backend takes no new
//! flows, opens a connection to another backend. Anyone who knows addresses and ports can forge that SYN. So the connection
//! stays, with the new one as its rival, until the client acknowledges with the number of its SYN; then the rival replaces it
//! (RFC 5961 §4 has ends do the same among themselves). A rival without an acknowledgement idles out as any half-open
//! connection.
//!
//! **Masquerading.** A backend answers a client on its own link directly, past the balancer. So the backend gets such a
//! client's packets from the balancer's own address on the link, and from a port computed from the flow's ends: all instances
//! compute the same port. Of two flows to one backend with the same port, the later takes the next of
//! [`MASQUERADES`](Role::MASQUERADES).

use core::fmt;
use core::net::Ipv4Addr;

use asterism_forwarding::{Ends, Progress, Side};
use asterism_function::objects::hash;
use asterism_function::{At, Endpoint, Late, Paired};

use crate::choose::Chosen;
use crate::flow::{Flow, Flows};
use crate::service::Mode;

/// What a flow is beside a client that asks a backend: mostly nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Role(u8);

const RIVAL: u8 = 1 << 5;

/// The ports that a masqueraded flow may come from: the first, and how many.
const PORTS: (u16, u64) = (1_024, 64_512);

impl Role {
    /// Ports that are tried for a masqueraded flow.
    pub const MASQUERADES: u8 = 8;

    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code & !RIVAL <= Self::MASQUERADES).then_some(Self(code))
    }

    /// Whether it waits to take the place of another.
    #[inline(always)]
    #[must_use]
    pub const fn is_rival(self) -> bool {
        self.0 & RIVAL != 0
    }

    /// Whether its client is on the backends' link.
    #[inline(always)]
    #[must_use]
    pub const fn is_masqueraded(self) -> bool {
        self.0 & !RIVAL != 0
    }

    /// Whether it is neither.
    #[inline(always)]
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match (self.is_masqueraded(), self.is_rival()) {
            (true, _) => " masqueraded",
            (false, true) => " rival",
            (false, false) => "",
        };
        formatter.write_str(words)
    }
}

/// What stands for the balancer's own address in the keys of masqueraded flows.
const OWN: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// The flow of a packet, and which of its ends sent the packet.
type Sent = (At<Flow, Progress>, Side);

impl Flow {
    /// The flow of a packet between two ends that came by the link of a side, and who sent the packet: its client
    /// ([`Side::Outside`]) or its backend. `own` is the balancer's address on the backends' link.
    pub fn between(
        flows: &Flows,
        side: Side,
        (source, destination): (Endpoint, Endpoint),
        own: Ipv4Addr,
    ) -> Result<Option<Sent>, Late> {
        let ends = Ends::between(source, destination);
        let from = |side: Side| move |at: At<Self, Progress>| (at, side);
        if side == Side::Outside {
            let known = flows.by_left(&ends)?;
            let known = known.filter(|at| !at.row.role.is_masqueraded());
            return Ok(known.map(from(Side::Outside)));
        }
        let answer = match destination.address == own {
            true => Ends::between(source, with_address(destination, OWN)),
            false => ends,
        };
        if let Some(known) = flows.by_right(&answer)? {
            return Ok(Some((known, Side::Inside)));
        }
        let known = flows.by_left(&ends)?;
        let known = known.filter(|at| at.row.role.is_masqueraded());
        Ok(known.map(from(Side::Outside)))
    }

    /// The rival of the flow between its ends, if there is one.
    pub fn rival(&self, flows: &Flows) -> Result<Option<At<Self, Progress>>, Late> {
        flows.by_left(&Ends::between(self.client, self.service).unseen())
    }

    /// The same as a rival.
    #[must_use]
    pub fn as_rival(mut self) -> Self {
        self.role.0 |= RIVAL;
        self
    }

    /// The same as a rival that has won.
    #[must_use]
    pub fn promoted(mut self) -> Self {
        self.role.0 &= !RIVAL;
        self
    }

    /// Who asks, as its backend sees it: of a masqueraded flow a port of the balancer, whose address is left out.
    #[inline(always)]
    pub(crate) fn seen_client(&self) -> Endpoint {
        match self.role.is_masqueraded() {
            true => self.masquerade(),
            false => self.client,
        }
    }

    #[cold]
    fn masquerade(&self) -> Endpoint {
        let attempt = u64::from(self.role.0 & !RIVAL);
        let place = hash::words(self.client.to_bits(), self.service.to_bits(), attempt) % PORTS.1;
        Endpoint::new(OWN, PORTS.0 + place as u16, self.client.protocol)
    }
}

impl Chosen {
    /// Makes it the flow of a client on the backends' link. Whether there was a port for it.
    pub fn masquerade(&mut self, flows: &Flows) -> Result<bool, Late> {
        for attempt in 1..=Role::MASQUERADES {
            self.flow.role.0 = self.flow.role.0 & RIVAL | attempt;
            let other = flows.by_right(&self.flow.right())?;
            if other.is_none_or(|other| self.flow.has_same_ends(&other.row)) {
                return Ok(self.flow.mode == Mode::Nat);
            }
        }
        Ok(false)
    }
}

/// An endpoint at another address.
const fn with_address(end: Endpoint, address: Ipv4Addr) -> Endpoint {
    Endpoint::new(address, end.port, end.protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::Protocol;
    use std::collections::HashSet;

    #[test]
    fn roles_come_back_from_their_codes() {
        let known = (0..64).filter_map(Role::from_code);
        assert_eq!(
            known.clone().count(),
            2 * (1 + usize::from(Role::MASQUERADES))
        );
        for role in known {
            assert_eq!(Role::from_code(role.code()), Some(role));
            assert_eq!(
                role.is_ordinary(),
                !role.is_rival() && !role.is_masqueraded()
            );
        }
    }

    #[test]
    fn ports_of_masqueraded_flows_differ_and_are_no_well_known_ones() {
        let end = |last, port| Endpoint::new([10, 0, 0, last].into(), port, Protocol::TCP);
        let mut ports = HashSet::new();
        for port in 0..1_000 {
            for attempt in 1..=Role::MASQUERADES {
                let flow = Flow {
                    client: end(9, 40_000 + port),
                    service: end(1, 80),
                    backend: end(9, 80),
                    mode: Mode::Nat,
                    place: 0,
                    role: Role(attempt),
                };
                let seen = flow.seen_client();
                assert!(seen.port >= PORTS.0 && seen.address == OWN);
                ports.insert(seen.port);
            }
        }
        assert!(ports.len() > 7_000, "{}", ports.len());
    }
}
