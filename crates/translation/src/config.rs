//! The settings of a NAT, and their mistakes, listed all at once.
//!
//! Plain values: the binary reads them from a file.

use core::net::Ipv4Addr;

use asterism_forwarding::{
    ConfigFault, Faults, IdleTimes, Interface, ROUTES_MAX, Route, Side, is_host,
};
use asterism_function::{Endpoint, MacAddress, Protocol, Tick};

use crate::exempt::{NatExemption, check_exempt};
use crate::limits::{AddressPool, PortBlocks, PortQuarantine, SubscriberLimits};
use crate::pcp::PortControl;

/// Outside addresses at most: so many have a one-byte name on the wire.
pub const OUTSIDE_ADDRESSES_MAX: usize = 255;
/// The smallest link that IPv4 allows (RFC 791 §3.2).
const MTU_MIN: u16 = 68;

/// Which remote endpoints may send to an inside host that has a binding (RFC 4787 §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filtering {
    /// All.
    EndpointIndependent,
    /// Addresses that the inside endpoint has a session with, from any port. Of an endpoint with more than 64
    /// sessions, those that were opened last are looked at.
    AddressDependent,
    /// Endpoints that the inside endpoint has a session with.
    AddressAndPortDependent,
}

/// An outside endpoint that always belongs to one inside endpoint; every remote endpoint may send to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The outside endpoint, of TCP or UDP.
    pub outside: Endpoint,
    /// The inside endpoint, of the same protocol.
    pub inside: Endpoint,
}

/// An outside address that belongs to one inside host, with all its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneToOne {
    /// The outside address, which is none of those that hosts share.
    pub outside: Ipv4Addr,
    /// The inside host's.
    pub inside: Ipv4Addr,
}

/// Pairs of addresses at most.
pub const ONE_TO_ONE_MAX: usize = 1_024;

/// The set-up of a NAT.
#[derive(Clone, PartialEq, Debug)]
pub struct NatConfig {
    /// The side whose addresses are translated.
    pub inside: Interface,
    /// The other side.
    pub outside: Interface,
    /// The addresses that inside hosts appear with. Each is answered for by ARP on the outside link.
    pub outside_addresses: Vec<Ipv4Addr>,
    /// First and last port (and ICMP identifier) that is given out.
    pub outside_ports: (u16, u16),
    /// Routes beside the two links' own prefixes.
    pub routes: Vec<Route>,
    /// Ethernet addresses that need not be asked for by ARP. Next hops should be among them: a packet to a next
    /// hop that is not costs a table probe.
    pub neighbours: Vec<(Ipv4Addr, MacAddress)>,
    /// Which remote endpoints may send to a binding.
    pub filtering: Filtering,
    /// Whether inside hosts reach each other by their outside endpoints (RFC 4787 REQ-9).
    pub hairpinning: bool,
    /// Whether the NAT answers ICMP echo requests to its own addresses (RFC 1812 §4.3.3.6).
    pub answers_echo: bool,
    /// Outside endpoints that belong to inside endpoints for ever.
    pub forwards: Vec<Forward>,
    /// Outside addresses that belong to inside hosts for ever; every remote endpoint may send to them.
    pub one_to_one: Vec<OneToOne>,
    /// Destinations outside whose packets are routed as they are, both ways (RFC 6888 REQ-6).
    pub exempt: Vec<NatExemption>,
    /// When sessions end.
    pub idle: IdleTimes,
    /// Idle times below what the RFCs allow are accepted: for tests and demonstrations.
    pub short_idle: bool,
    /// Sessions at most, over the whole cluster.
    pub sessions_max: u32,
    /// Fragmented datagrams under way at most, over the whole cluster.
    pub fragments_max: u32,
    /// Neighbours learnt at most, over the whole cluster.
    pub neighbours_max: u32,
    /// ICMP errors that are sent per second at most, each side on its own (RFC 1812 §4.3.2.8).
    pub icmp_errors_per_second: u16,
    /// Inside hosts may ask for mappings (RFC 6887).
    pub port_control: Option<PortControl>,
    /// Outside addresses for some of the inside.
    pub pools: Vec<AddressPool>,
    /// What each subscriber may have.
    pub subscribers: SubscriberLimits,
    /// Ports are given to subscribers in blocks.
    pub blocks: Option<PortBlocks>,
    /// How long ports rest before they are granted again.
    pub port_quarantine: PortQuarantine,
    /// What blocks, or else bindings, begin and end is kept for the control plane.
    pub log: bool,
}

impl NatConfig {
    /// A NAT between two links, with endpoint-independent filtering, hairpinning, the RFCs' idle times, and room
    /// for 65,536 sessions.
    pub fn new(inside: Interface, outside: Interface, outside_addresses: Vec<Ipv4Addr>) -> Self {
        Self {
            inside,
            outside,
            outside_addresses,
            outside_ports: (1_024, 65_535),
            routes: Vec::new(),
            neighbours: Vec::new(),
            filtering: Filtering::EndpointIndependent,
            hairpinning: true,
            answers_echo: true,
            forwards: Vec::new(),
            one_to_one: Vec::new(),
            exempt: Vec::new(),
            idle: IdleTimes::RFC,
            short_idle: false,
            sessions_max: 1 << 16,
            fragments_max: 1 << 16,
            neighbours_max: 1 << 12,
            icmp_errors_per_second: 100,
            port_control: None,
            pools: Vec::new(),
            subscribers: SubscriberLimits::NONE,
            blocks: None,
            port_quarantine: PortQuarantine::RFC,
            log: false,
        }
    }

    /// Everything that is wrong, in the order of the fields; nothing if a NAT can be made of it.
    pub fn validate(&self) -> Result<(), Vec<ConfigFault>> {
        let mut faults = Faults::default();
        self.check_interfaces(&mut faults);
        self.check_addresses(&mut faults);
        self.check_routes(&mut faults);
        self.check_forwards(&mut faults);
        self.check_one_to_one(&mut faults);
        check_exempt(&self.exempt, &mut faults);
        self.check_limits(&mut faults);
        self.check_port_control(&mut faults);
        self.check_pools(&mut faults);
        self.check_subscribers(&mut faults);
        faults.all()
    }

    /// The addresses that inside hosts appear with: those that they share, and those of one each.
    pub(crate) fn answered_addresses(&self) -> Vec<Ipv4Addr> {
        let own = self.one_to_one.iter().map(|pair| pair.outside);
        self.outside_addresses.iter().copied().chain(own).collect()
    }

    /// When sessions end, by idle class: mappings last.
    pub(crate) fn session_idle(&self) -> [Tick; 7] {
        let [a, b, c, d, e, f] = self.idle.classes();
        [a, b, c, d, e, f, self.mapping_idle()]
    }

    /// When a mapping ends that an inside host asked for. Where none can be asked for, no later than any session: a dead member's
    /// ports rest for the longest of these times.
    pub(crate) fn mapping_idle(&self) -> Tick {
        match self.port_control {
            Some(control) => control.idle(),
            None => self.idle.classes().into_iter().max().unwrap_or(0),
        }
    }

    fn check_port_control(&self, faults: &mut Faults) {
        let Some(control) = self.port_control else {
            return;
        };
        let (least, most) = PortControl::LIFETIMES;
        if !(least..=most).contains(&control.lifetime) {
            let sentence = format!("{} s are not {least} to {most} s", control.lifetime);
            faults.add("port_control", sentence);
        }
        if control.mappings_max == 0 {
            faults.add("port_control", "0 mappings are none".to_owned());
        }
    }

    fn check_interfaces(&self, faults: &mut Faults) {
        for (name, interface) in [("inside", &self.inside), ("outside", &self.outside)] {
            if !is_host(interface.address) {
                faults.add(
                    name,
                    format!("address {} is no host's address", interface.address),
                );
            }
            if interface.prefix_length > 32 {
                faults.add(
                    name,
                    format!("prefix length {} exceeds 32", interface.prefix_length),
                );
            }
            if interface.mac.is_multicast() || interface.mac == MacAddress::default() {
                faults.add(
                    name,
                    format!("mac {} is no station's address", interface.mac),
                );
            }
            if interface.mtu != 0 && interface.mtu < MTU_MIN {
                faults.add(
                    name,
                    format!("mtu {} is below {MTU_MIN} (RFC 791)", interface.mtu),
                );
            }
        }
        if self.inside.port == self.outside.port {
            faults.add("outside", "has the same port as inside".to_owned());
        }
        if self.inside.address == self.outside.address {
            faults.add("outside", "has the same address as inside".to_owned());
        }
    }

    fn check_addresses(&self, faults: &mut Faults) {
        const FIELD: &str = "outside_addresses";
        if self.outside_addresses.is_empty() {
            faults.add(FIELD, "name at least one address".to_owned());
        }
        if self.outside_addresses.len() > OUTSIDE_ADDRESSES_MAX {
            let count = self.outside_addresses.len();
            faults.add(FIELD, format!("{count} exceed {OUTSIDE_ADDRESSES_MAX}"));
        }
        for (place, address) in self.outside_addresses.iter().enumerate() {
            if !is_host(*address) {
                faults.add(FIELD, format!("{address} is no host's address"));
            }
            if self.outside_addresses[..place].contains(address) {
                faults.add(FIELD, format!("{address} is there twice"));
            }
            if self.inside.prefix().contains(*address) {
                faults.add(FIELD, format!("{address} lies on the inside link"));
            }
        }
        let (first, last) = self.outside_ports;
        if first == 0 || first > last {
            let sentence = format!("{first} to {last} is no range of ports from 1 to 65535");
            faults.add("outside_ports", sentence);
        }
    }

    fn check_routes(&self, faults: &mut Faults) {
        if self.routes.len() > ROUTES_MAX {
            let count = self.routes.len();
            faults.add("routes", format!("{count} exceed {ROUTES_MAX}"));
        }
        for (place, route) in self.routes.iter().enumerate() {
            let prefix = route.prefix;
            if prefix.length > 32 {
                faults.add("routes", format!("{prefix}: the length exceeds 32"));
            }
            if self.routes[..place].iter().any(|other| {
                other.prefix.length == prefix.length && other.prefix.contains(prefix.address)
            }) {
                faults.add("routes", format!("{prefix} is there twice"));
            }
            let link = match route.side {
                Side::Inside => self.inside,
                Side::Outside => self.outside,
            };
            if let Some(next_hop) = route.next_hop {
                let known = self
                    .neighbours
                    .iter()
                    .any(|(address, _)| *address == next_hop);
                if !link.prefix().contains(next_hop) && !known {
                    let sentence = format!(
                        "{prefix}: next hop {next_hop} is neither on the link {} nor among the neighbours",
                        link.prefix()
                    );
                    faults.add("routes", sentence);
                }
                if next_hop == link.address {
                    faults.add(
                        "routes",
                        format!("{prefix}: next hop {next_hop} is the NAT itself"),
                    );
                }
            }
        }
        for (place, (address, mac)) in self.neighbours.iter().enumerate() {
            if mac.is_multicast() {
                faults.add(
                    "neighbours",
                    format!("{address}: mac {mac} is no station's address"),
                );
            }
            if self.neighbours[..place]
                .iter()
                .any(|(other, _)| other == address)
            {
                faults.add("neighbours", format!("{address} is there twice"));
            }
        }
    }

    fn check_forwards(&self, faults: &mut Faults) {
        for (place, Forward { outside, inside }) in self.forwards.iter().enumerate() {
            let mut add = |sentence: String| {
                faults.add("forwards", format!("{outside} to {inside}: {sentence}"));
            };
            if ![Protocol::TCP, Protocol::UDP].contains(&outside.protocol) {
                add("only tcp and udp are forwarded".to_owned());
            }
            if outside.protocol != inside.protocol {
                add("the protocols differ".to_owned());
            }
            if !self.outside_addresses.contains(&outside.address) {
                add(format!("{} is no outside address", outside.address));
            }
            if outside.port == 0 || inside.port == 0 {
                add("port 0 cannot be forwarded".to_owned());
            }
            if self.outside_addresses.contains(&inside.address)
                || inside.address == self.inside.address
            {
                add(format!("{} is the NAT's own address", inside.address));
            }
            let earlier = &self.forwards[..place];
            if earlier.iter().any(|other| other.outside == *outside) {
                add("the outside endpoint is forwarded twice".to_owned());
            }
            // A second outside endpoint would make the source of the inside host's own packets ambiguous.
            if earlier.iter().any(|other| other.inside == *inside) {
                add("the inside endpoint has another outside endpoint already".to_owned());
            }
        }
    }

    fn check_one_to_one(&self, faults: &mut Faults) {
        if self.one_to_one.len() > ONE_TO_ONE_MAX {
            let count = self.one_to_one.len();
            faults.add("one_to_one", format!("{count} exceed {ONE_TO_ONE_MAX}"));
        }
        for (place, OneToOne { outside, inside }) in self.one_to_one.iter().enumerate() {
            let mut add = |sentence: &str| {
                faults.add("one_to_one", format!("{outside} to {inside}: {sentence}"));
            };
            if !is_host(*outside) || !is_host(*inside) {
                add("these are not two hosts' addresses");
            }
            if self.outside_addresses.contains(outside) {
                add("the outside address is shared, too");
            }
            let own = [self.inside.address, self.outside.address];
            if own.contains(outside) || own.contains(inside) {
                add("this is the NAT's own address");
            }
            if self.inside.prefix().contains(*outside) {
                add("the outside address lies on the inside link");
            }
            let mut earlier = self.one_to_one[..place].iter();
            if earlier.any(|other| other.outside == *outside || other.inside == *inside) {
                add("one of the addresses has another one already");
            }
        }
    }

    fn check_limits(&self, faults: &mut Faults) {
        for (name, seconds, least, clause) in self.idle.minima() {
            if seconds < least && !self.short_idle {
                let sentence = format!("{name} = {seconds} s is below {least} s ({clause})");
                faults.add(
                    "idle",
                    format!("{sentence}; set short_idle to have it all the same"),
                );
            }
            if seconds == 0 {
                faults.add("idle", format!("{name} = 0 would keep sessions for ever"));
            }
        }
        if self.idle.udp_dns == 0 {
            faults.add(
                "idle",
                "udp_dns = 0 would keep sessions for ever".to_owned(),
            );
        }
        for (name, count) in [
            ("sessions_max", self.sessions_max),
            ("fragments_max", self.fragments_max),
            ("neighbours_max", self.neighbours_max),
        ] {
            if count == 0 {
                faults.add(name, "must be at least 1".to_owned());
            }
        }
    }
}
