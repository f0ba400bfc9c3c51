//! From a configuration to the network function that it names.

use std::sync::Arc;

use asterism_function::{Endpoint, MacAddress, PortNumber, Protocol, Tick};
use asterism_function::{Spending, TokenRate};
use asterism_functions::limiter::{From, Limit, Limiter, LimiterConfig, Network, Tenants, Unit};
use asterism_functions::monitor::{Monitor, MonitorConfig};
use asterism_functions::nat::{
    self, Filtering, Forward, IdleTimes, Interface, Nat, NatConfig, Route, Side,
};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_functions::port_scan::{PortScan, PortScanConfig, Response, VolumePolicy};

use crate::config::Function;
use crate::config::functions::{
    self, LimitSettings, LimiterSettings, Link, MonitorSettings, NatSettings, PassThroughSettings,
    PortScanSettings, Settings,
};

/// The port of the inside, or of whoever speaks first.
pub const INSIDE: PortNumber = PortNumber(0);
/// The port of the outside, or of whoever answers.
pub const OUTSIDE: PortNumber = PortNumber(1);

/// A function that was configured.
#[derive(Clone, Debug)]
pub enum Configured {
    /// A NAT44.
    Nat(Arc<Nat>),
    /// A port-scan detector.
    PortScan(Arc<PortScan>),
    /// A network monitor.
    Monitor(Arc<Monitor>),
    /// A rate limiter.
    Limiter(Arc<Limiter>),
    /// A function that changes nothing.
    PassThrough(Arc<PassThrough>),
}

/// Makes the function that a configuration names.
///
/// # Errors
/// What the function itself finds wrong, which `check` should have found; nothing was made.
pub fn function(function: &Function) -> Result<Configured, String> {
    let capacity = |name: &str| {
        function
            .objects
            .iter()
            .find(|object| object.name == name)
            .map_or(0, |object| object.capacity)
    };
    match &function.settings {
        Settings::Nat(settings) => {
            let config = NatConfig {
                sessions_max: capacity("sessions"),
                fragments_max: capacity("fragments"),
                neighbours_max: capacity("neighbours"),
                ..nat_config(settings)
            };
            let nat = Nat::new(config).map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                format!("the NAT cannot be made: {}", faults.join("; "))
            })?;
            Ok(Configured::Nat(Arc::new(nat)))
        }
        Settings::PortScan(settings) => {
            let config = PortScanConfig {
                trails_max: capacity("trails"),
                alerts_max: capacity("alerts").max(capacity("blocked")),
                ..port_scan_config(settings)
            };
            Ok(Configured::PortScan(Arc::new(PortScan::new(config))))
        }
        Settings::Monitor(settings) => {
            let config = MonitorConfig {
                edges_max: capacity("links"),
                flows_max: capacity("flow_packets").max(capacity("flow_bytes")),
                alarms_max: capacity("alarms"),
                places: capacity("heavy_bytes").max(capacity("heavy_packets")),
                ..monitor_config(settings)
            };
            Ok(Configured::Monitor(Arc::new(Monitor::new(config))))
        }
        Settings::Limiter(settings) => {
            let keys_max = ["sources", "destinations", "services"].map(capacity);
            let config = LimiterConfig {
                keys_max: keys_max.into_iter().max().unwrap_or(0),
                ..limiter_config(settings)?
            };
            Ok(Configured::Limiter(Arc::new(Limiter::new(config))))
        }
        Settings::PassThrough(settings) => {
            Ok(Configured::PassThrough(Arc::new(pass_through(*settings))))
        }
    }
}

/// A NAT's settings in its own words, with its own capacities.
#[must_use]
pub fn nat_config(settings: &NatSettings) -> NatConfig {
    let seconds = |time: core::time::Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    let interface = |port, link: &Link| Interface {
        mtu: link.mtu,
        promiscuous: link.promiscuous,
        ..Interface::new(
            port,
            link.address.address,
            link.address.length,
            MacAddress(link.mac),
        )
    };
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
    NatConfig {
        outside_ports: (settings.ports.first, settings.ports.last),
        routes,
        neighbours: [inside, outside]
            .into_iter()
            .filter_map(|link| Some((link.next_hop, MacAddress(link.next_hop_mac?))))
            .collect(),
        filtering: match settings.filtering {
            functions::Filtering::EndpointIndependent => Filtering::EndpointIndependent,
            functions::Filtering::AddressDependent => Filtering::AddressDependent,
            functions::Filtering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
        },
        hairpinning: settings.hairpinning,
        answers_echo: settings.answers_echo,
        forwards: settings
            .forwards
            .iter()
            .map(|forward| {
                let protocol = if forward.tcp {
                    Protocol::TCP
                } else {
                    Protocol::UDP
                };
                Forward {
                    outside: Endpoint::new(*forward.outside.ip(), forward.outside.port(), protocol),
                    inside: Endpoint::new(*forward.inside.ip(), forward.inside.port(), protocol),
                }
            })
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
            interface(INSIDE, inside),
            interface(OUTSIDE, outside),
            settings.outside.clone(),
        )
    }
}

fn port_scan_config(settings: &PortScanSettings) -> PortScanConfig {
    let seconds = |time: core::time::Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    PortScanConfig {
        response: match settings.block {
            Some(block) => Response::Block {
                block_s: seconds(block),
            },
            None => Response::Detect,
        },
        window_s: seconds(settings.window),
        ports: settings.ports,
        hosts: settings.hosts,
        exempt: settings
            .exempt
            .iter()
            .map(|address| (*address).into())
            .collect(),
        volume: settings.volume.map(|volume| VolumePolicy {
            bits: volume.bits,
            window_s: seconds(volume.window),
            block_s: seconds(volume.block),
        }),
        ..PortScanConfig::default()
    }
}

fn monitor_config(settings: &MonitorSettings) -> MonitorConfig {
    let seconds = |time: core::time::Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    MonitorConfig {
        interval_s: seconds(settings.interval),
        out_degree: settings.out_degree,
        in_degree: settings.in_degree,
        edge_idle_s: seconds(settings.edge_idle),
        cells: settings.cells,
        alarm_keep_s: seconds(settings.alarm_keep),
        ..MonitorConfig::default()
    }
}

fn limiter_config(settings: &LimiterSettings) -> Result<LimiterConfig, String> {
    let limit = |limit: &Option<LimitSettings>| {
        limit.as_ref().map(|limit| Limit {
            unit: if limit.packets {
                Unit::Packets
            } else {
                Unit::Bytes
            },
            rate: TokenRate {
                tokens_per_second: limit.rate,
                burst_tokens: limit.burst,
            },
        })
    };
    let network = |prefix: &crate::config::network::Prefix| Network {
        address: prefix.address.into(),
        length: prefix.length,
    };
    let tenants = settings.tenants.iter();
    let tenants: Vec<Vec<Network>> = tenants
        .map(|networks| networks.iter().map(network).collect())
        .collect();
    Ok(LimiterConfig {
        from: match settings.from {
            "inside" => From::Inside,
            "outside" => From::Outside,
            _ => From::Both,
        },
        spending: if settings.exact {
            Spending::Escrow
        } else {
            Spending::Approximate
        },
        sources: limit(&settings.sources),
        destinations: limit(&settings.destinations),
        services: limit(&settings.services),
        tenant: limit(&settings.tenant),
        tenants: Tenants::new(tenants.iter().map(Vec::as_slice))
            .map_err(|_| "the limiter cannot be made: it has too many tenants".to_owned())?,
        ..LimiterConfig::default()
    })
}

fn pass_through(settings: PassThroughSettings) -> PassThrough {
    PassThrough {
        access: match settings.access {
            functions::Access::None => Access::None,
            functions::Access::Read => Access::Read,
            functions::Access::Write => Access::Write,
            functions::Access::ReadWrite => Access::ReadWrite,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use asterism_functions::limiter::LimiterState;
    use asterism_functions::monitor::MonitorState;
    use asterism_functions::nat::NatState;
    use asterism_functions::pass_through::PassThroughState;
    use asterism_functions::port_scan::PortScanState;
    use asterism_state::State;

    fn read(text: &str) -> Config {
        let (config, report) = Config::read("test.toml", text);
        config.unwrap_or_else(|| panic!("{}", report.render(false)))
    }

    #[test]
    fn every_function_is_made_of_its_defaults() {
        for text in [
            "[function.nat]\noutside = [\"203.0.113.1\"]",
            "[function.port-scan]",
            "[function.port-scan]\nvolume = { megabits = 10, window = \"10s\", block = \"1m\" }",
            "[function.monitor]",
            "[function.monitor]\ncollector = \"192.0.2.9:4739\"",
            "[function.limiter]\nsources = { rate = 1000, burst = 3000 }",
            "[function.limiter]\naccuracy = \"exact\"\ntenant = { unit = \"packets\", rate = 10, burst = 5 }\n[function.limiter.tenants.gold]\nnetworks = [\"10.0.0.0/8\"]",
            "[function.pass-through]",
        ] {
            function(&read(text).function).unwrap();
        }
    }

    /// A default of the configuration that says what the function's own default says cannot drift from it.
    #[test]
    fn defaults_are_the_functions_own() {
        let config = read("[function.nat]\noutside = [\"203.0.113.1\"]");
        let Ok(Configured::Nat(made)) = function(&config.function) else {
            panic!()
        };
        let made = made.config();
        let own = NatConfig::new(made.inside, made.outside, made.outside_addresses.clone());
        let kept = NatConfig {
            routes: made.routes.clone(),
            neighbours: made.neighbours.clone(),
            ..own
        };
        assert_eq!(*made, kept);
        let Ok(Configured::PortScan(made)) = function(&read("[function.port-scan]").function)
        else {
            panic!()
        };
        assert_eq!(*made.config(), PortScanConfig::default());
        let Ok(Configured::Monitor(made)) = function(&read("[function.monitor]").function) else {
            panic!()
        };
        assert_eq!(*made.config(), MonitorConfig::default());
        let config = read("[function.limiter]\nsources = { rate = 1000, burst = 3000 }");
        let Ok(Configured::Limiter(made)) = function(&config.function) else {
            panic!()
        };
        let own = LimiterConfig {
            sources: made.config().sources,
            ..LimiterConfig::default()
        };
        assert_eq!(*made.config(), own);
    }

    /// The objects that can be placed are those that the function has.
    #[test]
    fn objects_are_the_functions_own() {
        for described in functions::ALL {
            let objects: Vec<_> = described.objects.iter().map(|object| object.name).collect();
            let own = match described.name {
                "nat" => NatState::OBJECTS,
                "port-scan" => PortScanState::OBJECTS,
                "monitor" => MonitorState::OBJECTS,
                "limiter" => LimiterState::OBJECTS,
                "pass-through" => PassThroughState::OBJECTS,
                other => panic!("{other} has no state to compare"),
            };
            assert_eq!(objects, own, "{}", described.name);
        }
    }
}
