//! What the balancer says itself: ARP for its own addresses and those of services (RFC 826), ICMP errors as a router, echo
//! replies. Imports `asterism_function`, and the parts of `nat` for them.

use asterism_function::{
    ArpOperation, Ask, Endpoint, Fragment, Late, MacAddress, Protocol, Reason, Verdict, build,
};

use super::{Balancer, BalancerState};
use crate::nat::config::is_host;
use crate::nat::report::{ECHO_REQUEST, Report, make_echo_reply, own_identification};
use crate::nat::route::Link;
use crate::nat::{ErrorsSent, Neighbour, Side};
use core::net::Ipv4Addr;

impl Balancer {
    /// Drops the packet for `reason` and tells its sender so by ICMP, within the rate limit.
    #[cold]
    pub(super) fn report(
        &self,
        ask: Ask<'_, BalancerState>,
        report: Report,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        let Some(side) = self.side(ask.port()) else {
            return Ok(Verdict::Drop(reason));
        };
        let now = ask.now();
        let known = ask.errors.get(&(side as u8))?;
        let most = self.config.icmp_errors_per_second;
        let Some(count) = ErrorsSent::one_more(known.map(|known| known.value), now, most) else {
            return Ok(Verdict::Drop(Reason::IcmpLimited));
        };
        let vacancy = match known {
            None => ask.errors.vacancy()?,
            Some(_) => None,
        };
        let interface = self.link(side).interface;
        let identification = own_identification(&ask);
        let mut act = ask.act()?;
        match (known, vacancy) {
            (Some(known), _) => act.errors.update(&known, count),
            (None, Some(vacancy)) => act.errors.insert(vacancy, side as u8, count),
            (None, None) => return Ok(Verdict::Drop(Reason::IcmpLimited)),
        }
        act.emit(interface.port, |packet, out| {
            report.write(packet, interface.address, identification, out)
        });
        Ok(Verdict::Drop(reason))
    }

    /// An ICMP query: an echo request to a service or to the balancer itself is answered, the rest ends here.
    #[cold]
    pub(super) fn own(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let (port, packet) = (ask.port(), ask.packet());
        let is_addressed = packet
            .ipv4_destination()
            .is_some_and(|address| self.is_own(address) || self.is_service(address));
        let is_echo = packet.icmp_type() == Some(ECHO_REQUEST)
            && packet.layout().fragment() == Fragment::Whole;
        let ends = (
            packet.ipv4_source(),
            packet.ipv4_destination(),
            packet.icmp_identifier(),
        );
        let (true, true, true, (Some(source), Some(destination), Some(identifier))) =
            (self.config.answers_echo, is_addressed, is_echo, ends)
        else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        if !is_host(source) || self.is_own(source) || self.is_service(source) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let side = self.side(port).unwrap_or(Side::Outside);
        let (mac, station) = (self.link(side).interface.mac, packet.ethernet_source());
        let identification = own_identification(&ask);
        let mut act = ask.act()?;
        let end = |address| Endpoint::new(address, identifier, Protocol::ICMP);
        act.packet.set_ethernet(mac, station);
        act.packet.set_source(end(destination));
        act.packet.set_destination(end(source));
        make_echo_reply(&mut act.packet, identification);
        Ok(Verdict::Forward(port))
    }

    /// Asks for the station of an address, at most once a second, and drops the packet.
    #[cold]
    pub(super) fn resolve(
        &self,
        ask: Ask<'_, BalancerState>,
        link: &Link,
        address: Ipv4Addr,
    ) -> Result<Verdict, Late> {
        let now = ask.now();
        let known = ask.neighbours.get(&address)?;
        if known.is_some_and(|known| !known.value.may_be_asked(now)) {
            return Ok(Verdict::Drop(Reason::NoRoute));
        }
        let Some(vacancy) = ask.neighbours.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        match known {
            Some(known) => act.neighbours.update(&known, Neighbour::sought(now)),
            None => act
                .neighbours
                .insert(vacancy, address, Neighbour::sought(now)),
        }
        let interface = link.interface;
        act.emit(interface.port, |_, out| {
            build::arp_request(interface.mac, interface.address, address, out)
        });
        Ok(Verdict::Drop(Reason::NoRoute))
    }

    /// Handles an ARP packet. Services are answered for on the clients' link alone: on the other one, backends may have their
    /// addresses themselves.
    pub(super) fn arp(&self, ask: Ask<'_, BalancerState>, side: Side) -> Result<Verdict, Late> {
        let Some(arp) = ask.packet().arp() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let link = self.link(side);
        let interface = link.interface;
        let is_ours = |address| {
            address == interface.address || side == Side::Outside && self.is_service(address)
        };
        let asks_us = arp.operation == ArpOperation::Request && is_ours(arp.target);
        let teaches = interface.prefix().contains(arp.sender)
            && is_host(arp.sender)
            && !is_ours(arp.sender)
            && !arp.sender_mac.is_multicast()
            && arp.sender_mac != MacAddress::default()
            && link.configured(arp.sender).is_none();
        let known = if teaches {
            ask.neighbours.get(&arp.sender)?
        } else {
            None
        };
        let vacancy = match known {
            None if teaches && asks_us => ask.neighbours.vacancy()?,
            _ => None,
        };
        let learnt = Neighbour::learnt(arp.sender_mac, ask.now());
        let mut act = ask.act()?;
        match (known, vacancy) {
            (Some(known), _) => act.neighbours.update(&known, learnt),
            (None, Some(vacancy)) => act.neighbours.insert(vacancy, arp.sender, learnt),
            (None, None) => {}
        }
        if asks_us {
            act.emit(interface.port, |_, out| {
                build::arp_reply(&arp, interface.mac, out)
            });
        }
        Ok(Verdict::Consumed)
    }
}
