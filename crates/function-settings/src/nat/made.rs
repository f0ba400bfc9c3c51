//! From a NAT's settings to the NAT.

use core::net::SocketAddrV4;
use core::time::Duration;

use asterism_function::{Endpoint, MacAddress, PortNumber, Protocol, Tick};
use asterism_functions::nat::{
    self, Filtering, Forward, IdleTimes, Interface, Nat, NatConfig, OneToOne, Route, Side,
};
use asterism_state::BLOCK_ITEMS;

use super::direction::NatDirection;
use super::fields::{LINK, OBJECT, SETTINGS};
use super::{ExemptionSettings, Link, NatSettings};
use crate::described::ObjectKind;
use crate::direction::Direction;
use crate::error::FunctionError;
use crate::objects::{ObjectChoice, Placement, Sharing, capacity};
use crate::settings::FunctionSettings;
use crate::wiring::{INSIDE, OUTSIDE};
use asterism_notation::value::show_count;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;

impl FunctionSettings for NatSettings {
    type Function = Nat;

    fn function(&self, objects: &[ObjectChoice]) -> Result<Nat, FunctionError> {
        let mut config = NatConfig {
            sessions_max: capacity(objects, OBJECT.sessions),
            fragments_max: capacity(objects, OBJECT.fragments),
            neighbours_max: capacity(objects, OBJECT.neighbours),
            ..nat_config(self)
        };
        if let Some(control) = &mut config.port_control {
            control.mappings_max = capacity(objects, OBJECT.mappings);
        }
        Nat::new(config).map_err(FunctionError::Nat)
    }

    fn words(&self) -> String {
        let inside: Vec<String> = self.inside.iter().map(ToString::to_string).collect();
        let outside: Vec<String> = self
            .outside
            .iter()
            .take(3)
            .map(ToString::to_string)
            .collect();
        let more = match self.outside.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let forwards = match self.forwards.len() {
            0 => String::new(),
            1 => ", 1 forward".to_owned(),
            count => format!(", {count} forwards"),
        };
        let one_to_one = match self.one_to_one.len() {
            0 => String::new(),
            1 => ", 1 address of one host".to_owned(),
            count => format!(", {count} addresses of one host each"),
        };
        let exempt = match self.exempt.len() {
            0 => String::new(),
            1 => ", 1 destination exempt".to_owned(),
            count => format!(", {count} destinations exempt"),
        };
        format!(
            "{} appear as {}{more}, ports {} ({} a protocol){forwards}{one_to_one}{exempt}{}",
            inside.join(", "),
            outside.join(", "),
            self.ports,
            show_count(u64::from(self.ports.count()) * self.addresses() as u64),
            self.carrier.words(),
        )
    }

    fn direction(&self) -> Box<dyn Direction<Nat>> {
        Box::new(NatDirection::new(self))
    }

    fn tells_sides(&self) -> bool {
        true
    }

    fn why_not_passed_by(&self) -> Option<&'static str> {
        Some("packets would leave with inside addresses")
    }

    /// Stations are learnt, and frames to others are theirs.
    fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
        self.inside_link
            .on_real(SETTINGS.inside_link.name(), is_written);
        self.outside_link
            .on_real(SETTINGS.outside_link.name(), is_written);
    }

    /// Says so when a pool is too small to lease a block to every instance.
    fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    ) {
        let instances = sharing.members * sharing.instances;
        let replicated = objects
            .iter()
            .any(|one| one.kind == ObjectKind::Pool && one.placement == Placement::Replicated);
        let blocks = self.ports.count().div_ceil(BLOCK_ITEMS) as usize * self.addresses();
        if replicated {
            let addresses = self.addresses();
            self.carrier
                .check(self.ports, addresses, instances, values, report);
        }
        if replicated && blocks < instances {
            let needed = instances.div_ceil(self.addresses()) * BLOCK_ITEMS as usize;
            report.add(
                Diagnostic::error(
                    "there are too few outside ports to lease a block to every instance",
                    values.span_of(SETTINGS.ports),
                )
                .label(format!(
                    "{blocks} blocks of {BLOCK_ITEMS} ports for {instances} instances"
                ))
                .help(format!(
                    "give out at least {needed} ports of each address, or add outside addresses"
                )),
            );
        }
    }
}

impl NatSettings {
    /// How many outside addresses there are.
    fn addresses(&self) -> usize {
        let pools = self.carrier.pools.iter();
        self.outside.len() + pools.map(|pool| pool.addresses().count()).sum::<usize>()
    }
}

impl Link {
    /// As it is between real interfaces, where the file does not say otherwise: stations are learnt, and frames to others are
    /// theirs. `name` is that of its table.
    pub(in super::super) fn on_real(
        &mut self,
        name: &str,
        is_written: &dyn Fn(&str, &str) -> bool,
    ) {
        if !is_written(name, LINK.next_hop_mac.name()) {
            self.next_hop_mac = None;
        }
        if !is_written(name, LINK.promiscuous.name()) {
            self.promiscuous = false;
        }
    }

    pub(in super::super) fn interface(&self, port: PortNumber) -> Interface {
        Interface {
            mtu: self.mtu,
            promiscuous: self.promiscuous,
            ..Interface::new(
                port,
                self.address.address,
                self.address.length,
                MacAddress(self.mac),
            )
        }
    }
}

pub(in super::super) fn seconds(time: Duration) -> Tick {
    Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX)
}

pub(in super::super) fn protocol(tcp: bool) -> Protocol {
    if tcp { Protocol::TCP } else { Protocol::UDP }
}

/// A NAT's settings in its own words, with its own capacities.
fn nat_config(settings: &NatSettings) -> NatConfig {
    let (inside, outside) = (&settings.inside_link, &settings.outside_link);
    let links = settings
        .inside
        .iter()
        .filter(|network| !network.contains(inside.address.address));
    let mut routes: Vec<Route> = links
        .map(|network| Route {
            prefix: nat::Prefix::new(network.address, network.length),
            side: Side::Inside,
            next_hop: Some(inside.next_hop),
        })
        .collect();
    routes.push(Route {
        prefix: nat::Prefix::ALL,
        side: Side::Outside,
        next_hop: Some(outside.next_hop),
    });
    let mut config = NatConfig {
        outside_ports: (settings.ports.first, settings.ports.last),
        routes,
        neighbours: [inside, outside]
            .into_iter()
            .filter_map(|link| Some((link.next_hop, MacAddress(link.next_hop_mac?))))
            .collect(),
        filtering: match settings.filtering {
            super::Filtering::EndpointIndependent => Filtering::EndpointIndependent,
            super::Filtering::AddressDependent => Filtering::AddressDependent,
            super::Filtering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
        },
        hairpinning: settings.hairpinning,
        answers_echo: settings.answers_echo,
        forwards: settings
            .forwards
            .iter()
            .flat_map(|forward| {
                let protocol = protocol(forward.tcp);
                let end = move |end: SocketAddrV4, further: u16| {
                    Endpoint::new(*end.ip(), end.port().saturating_add(further), protocol)
                };
                (0..=forward.further).map(move |further| Forward {
                    outside: end(forward.outside, further),
                    inside: end(forward.inside, further),
                })
            })
            .collect(),
        one_to_one: settings
            .one_to_one
            .iter()
            .map(|&(outside, inside)| OneToOne { outside, inside })
            .collect(),
        exempt: settings
            .exempt
            .iter()
            .map(ExemptionSettings::made)
            .collect(),
        idle: IdleTimes {
            tcp_transitory: seconds(settings.idle.tcp_transitory),
            tcp_established: seconds(settings.idle.tcp_established),
            tcp_closing: seconds(settings.idle.tcp_closing),
            udp: seconds(settings.idle.udp),
            udp_dns: seconds(settings.idle.udp_dns),
            icmp_query: seconds(settings.idle.icmp_query),
        },
        short_idle: settings.short_idle,
        icmp_errors_per_second: settings.icmp_errors_per_second,
        ..NatConfig::new(
            inside.interface(INSIDE),
            outside.interface(OUTSIDE),
            settings.outside.clone(),
        )
    };
    settings.carrier.put(&mut config);
    config
}
