//! NAT exemption: destinations whose packets are routed without translation (RFC 6888 REQ-6).
//!
//! The packet alone decides whether it is exempt: no session is read or written, so every instance decides alike, and none
//! waits for another. No session is with an exempt destination either, because the list is part of the schema. The list is
//! consulted before sessions are, but only for packets that the common path did not find.

use core::net::{IpAddr, Ipv4Addr};

use asterism_forwarding::{Egress, Faults, Prefix, Side, quoted};
use asterism_function::{Ask, IcmpKind, Late, Network, Packet, Protocol, Reason, Verdict};

use crate::config::NatConfig;
use crate::state::Translates;
use crate::translator::Translator;

/// Destinations that are not translated, at most: they are searched one after the other for each of their packets.
pub const EXEMPT_MAX: usize = 64;

/// A destination outside that is not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatExemption {
    /// Its addresses. Those that are inside, and the NAT's own, are left out of it.
    pub to: Prefix,
    /// Its protocol; `None`: of every one, those that the NAT does not translate among them.
    pub protocol: Option<Protocol>,
    /// Its first and last port, of TCP and UDP alone; `None`: packets of every port, and those without.
    pub ports: Option<(u16, u16)>,
}

impl NatExemption {
    /// All of a network.
    #[must_use]
    pub const fn all(to: Prefix) -> Self {
        Self {
            to,
            protocol: None,
            ports: None,
        }
    }

    /// Whether a remote end is one of them. `port` is `None` of packets without one: later fragments belong to a port that they do
    /// not say.
    #[must_use]
    pub fn covers(&self, address: Ipv4Addr, protocol: Protocol, port: Option<u16>) -> bool {
        self.to.contains(address)
            && self.protocol.is_none_or(|own| own == protocol)
            && self.ports.is_none_or(|(first, last)| {
                has_ports(protocol) && port.is_some_and(|port| (first..=last).contains(&port))
            })
    }
}

const fn has_ports(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::TCP | Protocol::UDP)
}

/// The ends of a packet, or of the packet that an ICMP error is about, by the sides of the NAT.
struct Sides {
    inside: Ipv4Addr,
    remote: Ipv4Addr,
    protocol: Protocol,
    remote_port: Option<u16>,
}

impl Sides {
    /// Of a packet that came from `side`; `None` of an ICMP message that no router passes on.
    fn of(packet: &Packet<'_>, side: Side) -> Option<Self> {
        let (ends, protocol, ports, sender) = match packet.icmp_kind() {
            Some(IcmpKind::Error) => {
                let about = quoted(packet).ok()?;
                let (IpAddr::V4(source), IpAddr::V4(destination)) =
                    (about.source(), about.destination())
                else {
                    return None;
                };
                // What an error is about went the other way.
                let sender = match side {
                    Side::Inside => Side::Outside,
                    Side::Outside => Side::Inside,
                };
                let ends = (source, destination);
                (ends, about.protocol(), about.ports(), sender)
            }
            Some(IcmpKind::Other) => return None,
            Some(IcmpKind::Query | IcmpKind::Reply) | None => {
                let ends = (packet.ipv4_source()?, packet.ipv4_destination()?);
                let protocol = Protocol(packet.layout().protocol());
                (ends, protocol, packet.ports(), side)
            }
        };
        let (source, destination) = ends;
        Some(match sender {
            Side::Inside => Self {
                inside: source,
                remote: destination,
                protocol,
                remote_port: ports.map(|(_, port)| port),
            },
            Side::Outside => Self {
                inside: destination,
                remote: source,
                protocol,
                remote_port: ports.map(|(port, _)| port),
            },
        })
    }
}

impl Translator {
    /// Routes a packet that is not translated; any other is handed back. Costs a comparison where there are no such destinations.
    #[inline]
    pub fn exempt<'a, S: Translates>(
        &self,
        ask: Ask<'a, S>,
    ) -> Result<Result<Verdict, Ask<'a, S>>, Late> {
        if self.config.exempt.is_empty() {
            return Ok(Err(ask));
        }
        self.route_untranslated(ask)
    }

    #[cold]
    #[inline(never)]
    fn route_untranslated<'a, S: Translates>(
        &self,
        ask: Ask<'a, S>,
    ) -> Result<Result<Verdict, Ask<'a, S>>, Late> {
        let Some(side) = self.router.side(ask.port()) else {
            return Ok(Err(ask));
        };
        match self.passes(ask.packet(), side) {
            None => Ok(Err(ask)),
            Some(Err(reason)) => Ok(Ok(Verdict::Drop(reason))),
            Some(Ok(egress)) => {
                let accounting = ask.translations().ports.space().accounting().cloned();
                let verdict = self.router.forward(ask, egress, |_| {
                    if let Some(accounting) = &accounting {
                        accounting.passed_untranslated();
                    }
                })?;
                Ok(Ok(verdict))
            }
        }
    }

    /// Where a packet goes that is not translated, or why nowhere; `None` of one that the rest of the NAT is to judge.
    fn passes(&self, packet: &Packet<'_>, side: Side) -> Option<Result<Egress, Reason>> {
        let network = packet.layout().network();
        if network != Network::Ipv4 || !self.router.link(side).takes(packet) {
            return None;
        }
        let ends = Sides::of(packet, side)?;
        let is_untranslated = self
            .config
            .exempt
            .iter()
            .any(|one| one.covers(ends.remote, ends.protocol, ends.remote_port));
        if !is_untranslated {
            return None;
        }
        let (source, destination) = (packet.ipv4_source()?, packet.ipv4_destination()?);
        match side {
            Side::Inside => {
                let goes_out = self.is_outside_host(ends.remote)
                    && self.router.side_of(ends.remote) == Some(Side::Outside);
                if !goes_out {
                    return None;
                }
                // Of an error: the host that it is about, or a router before it.
                if !self.is_inside_host(source) {
                    return Some(Err(Reason::SpoofedSource));
                }
                let is_inside = ends.inside == source || self.is_inside_host(ends.inside);
                is_inside.then_some(Ok(Egress::routed(Side::Outside, destination)))
            }
            Side::Outside if !self.is_outside_host(source) => None,
            Side::Outside if self.is_inside_host(ends.inside) => {
                Some(Ok(Egress::routed(Side::Inside, destination)))
            }
            Side::Outside => {
                // Its answer would leave untranslated, from another address than was written to.
                let own = [Some(IcmpKind::Query), Some(IcmpKind::Error)];
                let has_no_answer =
                    self.router.answers_for(destination) && !own.contains(&packet.icmp_kind());
                has_no_answer.then_some(Err(Reason::Filtered))
            }
        }
    }
}

impl NatConfig {
    /// What is wrong with the destinations that are not translated.
    pub(crate) fn check_exempt(&self, faults: &mut Faults) {
        const FIELD: &str = "exempt";
        let count = self.exempt.len();
        if count > EXEMPT_MAX {
            faults.add(FIELD, format!("{count} exceed {EXEMPT_MAX}"));
        }
        for NatExemption {
            to,
            protocol,
            ports,
        } in &self.exempt
        {
            if to.length > 32 {
                faults.add(FIELD, format!("{to}: the length exceeds 32"));
            }
            let Some((first, last)) = ports else {
                continue;
            };
            if *first == 0 || first > last {
                let sentence = format!("{to}: {first} to {last} is no range of ports");
                faults.add(FIELD, sentence);
            }
            if protocol.is_some_and(|protocol| !has_ports(protocol)) {
                faults.add(FIELD, format!("{to}: only tcp and udp have ports"));
            }
        }
    }

    /// What all members must have alike: what one host translates, another must.
    pub(crate) fn write_exempt(&self, bytes: &mut Vec<u8>) {
        for one in &self.exempt {
            let (first, last) = one.ports.unwrap_or((0, 0));
            bytes.extend((one.to.address.to_bits() & one.to.mask()).to_be_bytes());
            bytes.extend([one.to.length, one.protocol.map_or(0, |own| own.0)]);
            bytes.extend(first.to_be_bytes());
            bytes.extend(last.to_be_bytes());
        }
    }
}
