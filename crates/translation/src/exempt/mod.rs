//! NAT exemption: destinations whose packets are routed without translation (RFC 6888 REQ-6).
//!
//! The packet alone decides whether it is exempt: no session is read or written, so every instance decides alike, and none
//! waits for another. No session is with an exempt destination either, because the list is part of the schema. The list is
//! consulted before sessions are, but only for packets that the common path did not find. `destination.rs` has the settings.

mod destination;

use core::net::{IpAddr, Ipv4Addr};
use core::ops::ControlFlow;

use asterism_forwarding::{Egress, Side, quoted};
use asterism_function::{Ask, IcmpKind, Late, Network, Packet, Protocol, Reason, Verdict};

use crate::state::Translates;
use crate::translator::Translator;

pub use destination::{EXEMPT_MAX, NatExemption};
pub(crate) use destination::{check_exempt, write};

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
    ) -> Result<ControlFlow<Verdict, Ask<'a, S>>, Late> {
        if self.config.exempt.is_empty() {
            return Ok(ControlFlow::Continue(ask));
        }
        self.route_untranslated(ask)
    }

    #[cold]
    #[inline(never)]
    fn route_untranslated<'a, S: Translates>(
        &self,
        ask: Ask<'a, S>,
    ) -> Result<ControlFlow<Verdict, Ask<'a, S>>, Late> {
        let Some(side) = self.router.side(ask.port()) else {
            return Ok(ControlFlow::Continue(ask));
        };
        match self.passes(ask.packet(), side) {
            None => Ok(ControlFlow::Continue(ask)),
            Some(Err(reason)) => Ok(ControlFlow::Break(Verdict::Drop(reason))),
            Some(Ok(egress)) => {
                let accounting = ask.translations().ports.space().accounting().cloned();
                let verdict = self.router.forward(ask, egress, |_| {
                    if let Some(accounting) = &accounting {
                        accounting.passed_untranslated();
                    }
                })?;
                Ok(ControlFlow::Break(verdict))
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
