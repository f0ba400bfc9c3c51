//! ARP (RFC 826): answers for our addresses, and learns the Ethernet addresses of next hops that are not configured.
//!
//! An address is learnt from an answer to our request, or when its host asks for ours; nothing else adds an entry. A packet
//! to an unknown next hop causes a request and is dropped; `ahead.rs` asks before there is a packet. An entry in use is
//! refreshed before it ends.

use core::net::Ipv4Addr;

use asterism_function::{
    ArpOperation, Ask, At, Late, MacAddress, Map, Reason, Single, Tick, Value, Verdict, Wire, build,
};

use crate::interface::Side;
use crate::link::{Link, RouteDecision};
use crate::router::Router;
use crate::state::Forwards;

/// Ethernet addresses learnt by ARP.
pub type Neighbours = Map<Ipv4Addr, Neighbour>;

/// Seconds after which a neighbour that said nothing is forgotten, and after which a request that nobody answered is.
pub(crate) const IDLE: [Tick; 2] = [1_200, 10];
/// Seconds after which a neighbour in use is asked for again.
const CONFIRMED_SECONDS: Tick = 300;
/// Seconds between two requests for one address.
const ASK_SECONDS: Tick = 1;

/// What is known of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
#[value(order(confirmed, asked, mac), idle_class = Self::class)]
pub struct Neighbour {
    /// Its Ethernet address; zero while nobody answered.
    pub mac: MacAddress,
    /// When it said so last.
    pub confirmed: Tick,
    /// When it was asked last.
    pub asked: Tick,
}

impl Neighbour {
    /// Just learnt.
    #[must_use]
    pub const fn learnt(mac: MacAddress, now: Tick) -> Self {
        Self {
            mac,
            confirmed: now,
            asked: 0,
        }
    }
    /// Just asked for, and never heard.
    #[must_use]
    pub const fn sought(now: Tick) -> Self {
        Self {
            mac: MacAddress([0; 6]),
            confirmed: 0,
            asked: now,
        }
    }
    fn has_answered(&self) -> bool {
        self.mac != MacAddress::default()
    }
    /// Whether it is to be found at its station: it said so, and has not been silent for too long since, however often it was asked
    /// (RFC 1122 §2.3.2.1: also what is in use ends).
    fn is_known(&self, now: Tick) -> bool {
        self.has_answered() && now <= self.confirmed.saturating_add(IDLE[0])
    }
    fn class(&self) -> u8 {
        u8::from(!self.has_answered())
    }
    /// The same, asked for now.
    pub(crate) fn asked_at(self, now: Tick) -> Self {
        Self { asked: now, ..self }
    }
    /// Whether it said nothing for so long that it is asked whether it is still there.
    fn is_to_be_asked(&self, now: Tick) -> bool {
        now > self.confirmed.saturating_add(CONFIRMED_SECONDS) && self.may_be_asked(now)
    }
    /// Whether the last request for it is long enough ago.
    #[must_use]
    pub fn may_be_asked(&self, now: Tick) -> bool {
        now >= self.asked.saturating_add(ASK_SECONDS)
    }
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug)]
pub enum NextHop {
    /// To this station.
    Station(MacAddress),
    /// To this station, which is to be asked whether it is still there.
    Ageing(At<Single<Ipv4Addr>, Neighbour>),
    /// To the station of this address, which is not known.
    Unresolved(Ipv4Addr),
    /// There is no route.
    Unreachable,
}

/// The next hop to a destination on a link. A probe of `neighbours`, which may be late, unless the station is configured.
pub fn next_hop(
    neighbours: &Neighbours,
    now: Tick,
    link: &Link,
    destination: Ipv4Addr,
) -> Result<NextHop, Late> {
    let address = match link.way(destination) {
        None => return Ok(NextHop::Unreachable),
        Some(RouteDecision::To(station)) => return Ok(NextHop::Station(station)),
        Some(RouteDecision::Via(router)) => router,
        Some(RouteDecision::OnLink) => destination,
    };
    if !link.may_have(address) {
        return Ok(NextHop::Unreachable);
    }
    if let Some(station) = link.configured(address) {
        return Ok(NextHop::Station(station));
    }
    Ok(match neighbours.get(&address)? {
        Some(known) if known.value.is_known(now) => {
            if known.value.is_to_be_asked(now) {
                NextHop::Ageing(known)
            } else {
                NextHop::Station(known.value.mac)
            }
        }
        _ => NextHop::Unresolved(address),
    })
}

/// The station of an address, if it was learnt and is not to be asked for again now.
#[inline(always)]
pub(crate) fn learnt(
    neighbours: &Neighbours,
    now: Tick,
    address: Ipv4Addr,
) -> Result<Option<MacAddress>, Late> {
    let known = neighbours.get(&address)?.map(|known| known.value);
    let known = known.filter(|known| known.is_known(now) && !known.is_to_be_asked(now));
    Ok(known.map(|known| known.mac))
}

impl Router {
    /// Asks for the station of an address, at most once a second, and drops the packet.
    #[cold]
    pub(crate) fn resolve<S: Forwards>(
        &self,
        ask: Ask<'_, S>,
        link: &Link,
        address: Ipv4Addr,
    ) -> Result<Verdict, Late> {
        Ok(Verdict::Drop(
            match self.request_station(ask, link, address)? {
                true => Reason::NoRoute,
                false => Reason::TableFull,
            },
        ))
    }

    /// Asks for the station of an address, at most once a second. False if the table of neighbours is full: nobody was asked.
    #[cold]
    pub(crate) fn request_station<S: Forwards>(
        &self,
        ask: Ask<'_, S>,
        link: &Link,
        address: Ipv4Addr,
    ) -> Result<bool, Late> {
        let (now, neighbours) = (ask.now(), ask.tables().neighbours);
        let known = neighbours.get(&address)?;
        if known.is_some_and(|known| !known.value.may_be_asked(now)) {
            return Ok(true);
        }
        let vacancy = match known {
            Some(_) => None,
            None => neighbours.vacancy()?,
        };
        if known.is_none() && vacancy.is_none() {
            return Ok(false);
        }
        let mut act = ask.act()?;
        let neighbours = S::writes(&mut act).neighbours;
        if let Some(known) = known {
            neighbours.update(&known, known.value.asked_at(now));
        } else if let Some(vacancy) = vacancy {
            neighbours.insert(vacancy, address, Neighbour::sought(now));
        }
        let interface = link.interface;
        act.emit(interface.port, |_, out| {
            build::arp_request(interface.mac, interface.address, address, out)
        });
        Ok(true)
    }

    /// Handles an ARP packet: answers for the interface's own address, and on the outside link for those that the
    /// router answers for.
    pub(crate) fn arp<S: Forwards>(&self, ask: Ask<'_, S>, side: Side) -> Result<Verdict, Late> {
        let Some(arp) = ask.packet().arp() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let link = self.link(side);
        let interface = link.interface;
        let is_ours = |address| {
            address == interface.address || side == Side::Outside && self.answers_for(address)
        };
        let asks_us = arp.operation == ArpOperation::Request && is_ours(arp.target);
        // A probe (RFC 5227) has no sender; a sender with our address is another host of the cluster, or an intruder.
        let teaches = interface.prefix().contains(arp.sender)
            && link.may_have(arp.sender)
            && !is_ours(arp.sender)
            && !arp.sender_mac.is_multicast()
            && arp.sender_mac != MacAddress::default()
            && link.configured(arp.sender).is_none();
        let neighbours = ask.tables().neighbours;
        let known = if teaches {
            neighbours.get(&arp.sender)?
        } else {
            None
        };
        let vacancy = match known {
            None if teaches && asks_us => neighbours.vacancy()?,
            _ => None,
        };
        let learnt = Neighbour::learnt(arp.sender_mac, ask.now());
        let mut act = ask.act()?;
        let neighbours = S::writes(&mut act).neighbours;
        match (known, vacancy) {
            (Some(known), _) => neighbours.update(&known, learnt),
            (None, Some(vacancy)) => neighbours.insert(vacancy, arp.sender, learnt),
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
