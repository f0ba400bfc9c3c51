//! The drivers of the steering that the configuration names.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use asterism_config::network::Prefix;
use asterism_config::{
    Cluster, Director, DirectorMachine, OpenVSwitch, Orchestrator, Routes, SwitchAddress,
    SwitchDirection, SwitchHash, files,
};
use asterism_orchestrator::steering::Steering;
use asterism_orchestrator::steering::director::remote::{
    ANSWER_TIME_SANE, RemoteDirectorConfig, RemoteDirectorSteering,
};
use asterism_orchestrator::steering::ecmp::{
    EcmpConfig, EcmpConfigError, EcmpHop, EcmpRoute, EcmpSteering, Spread,
};
use asterism_orchestrator::steering::openvswitch::{
    Network, OvsAddress, OvsConfig, OvsConfigError, OvsDatabase, OvsDirection, OvsHop, OvsSteering,
    Selection,
};
use asterism_secure_channel::KeyRing;

/// Why there is no driver. Nothing was touched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    #[error("[orchestrator.routes.{0}]: {1}")]
    Routes(String, EcmpConfigError),
    #[error("[orchestrator.openvswitch.{0}]: {1}")]
    OpenVSwitch(String, OvsConfigError),
    #[error("[orchestrator.director.{0}]: there is no socket for commands: {1}")]
    Director(String, std::io::Error),
    #[error("[orchestrator.director.{0}]: {1} buckets are no power of two from 256 to 65,536")]
    Buckets(String, u32),
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
}

/// All drivers of a configuration.
pub(super) struct Drivers {
    pub(super) steering: Vec<Box<dyn Steering>>,
    /// Where drivers take other keys of the cluster.
    keys: Vec<Sender<KeyRing>>,
}

impl Drivers {
    /// Makes them. They touch nothing yet.
    pub(super) fn new(
        file: &Path,
        cluster: &Cluster,
        orchestrator: &Orchestrator,
        keys: &KeyRing,
    ) -> Result<Drivers, DriverError> {
        let mut drivers = Drivers {
            steering: Vec::new(),
            keys: Vec::new(),
        };
        for routes in &orchestrator.routes {
            let driver = EcmpSteering::new(of_routes(file, routes))
                .map_err(|error| DriverError::Routes(routes.name.clone(), error))?;
            drivers.steering.push(Box::new(driver));
        }
        for bridge in &orchestrator.openvswitch {
            let driver = OvsSteering::new(of_bridge(file, bridge))
                .map_err(|error| DriverError::OpenVSwitch(bridge.name.clone(), error))?;
            drivers.steering.push(Box::new(driver));
        }
        for director in &orchestrator.director {
            let (sender, other_keys) = channel();
            drivers.keys.push(sender);
            let config = RemoteDirectorConfig {
                cluster: cluster.id(),
                keys: keys.clone(),
                other_keys,
                directors: machines(director)?,
                targets: director.targets(cluster),
                space: crate::direct::space(cluster, director)
                    .ok_or_else(|| DriverError::Buckets(director.name.clone(), director.buckets))?,
                answer_time_max: ANSWER_TIME_SANE,
            };
            let driver = RemoteDirectorSteering::new(config)
                .map_err(|error| DriverError::Director(director.name.clone(), error))?;
            drivers.steering.push(Box::new(driver));
        }
        Ok(drivers)
    }

    /// The way to hand them other keys, once they themselves were given away.
    pub(super) fn take_keys(&mut self) -> Vec<Sender<KeyRing>> {
        std::mem::take(&mut self.keys)
    }
}

/// The machines of a director, each with random bytes of this start.
fn machines(director: &Director) -> Result<Vec<(String, SocketAddr, [u8; 16])>, DriverError> {
    let machine = |machine: &DirectorMachine| {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt)?;
        Ok((machine.name.clone(), machine.control, salt))
    };
    director.machines.iter().map(machine).collect()
}

fn of_routes(file: &Path, routes: &Routes) -> EcmpConfig {
    let to_route = |prefix: &Prefix| EcmpRoute {
        source: routes.source,
        table: routes.table,
        ..EcmpRoute::new(prefix.address, prefix.length)
    };
    let hop = |(target, gateway, interface): &(String, _, String)| EcmpHop {
        target: target.clone(),
        gateway: *gateway,
        interface: interface.clone(),
    };
    EcmpConfig {
        network: routes
            .namespace
            .as_ref()
            .map(|path| files::key_path(file, path)),
        routes: routes.destinations.iter().map(to_route).collect(),
        hops: routes.hops.iter().map(hop).collect(),
        spread: Spread::Slots(routes.slots),
    }
}

fn of_bridge(file: &Path, bridge: &OpenVSwitch) -> OvsConfig {
    let socket = |path| OvsAddress::Unix(files::key_path(file, path));
    OvsConfig {
        switch: match &bridge.switch {
            SwitchAddress::Socket(path) => socket(path),
            SwitchAddress::Address(address) => OvsAddress::Tcp(*address),
        },
        database: bridge.database.as_ref().map(|path| OvsDatabase {
            address: socket(path),
            bridge: bridge.bridge.clone(),
        }),
        directions: bridge.directions.iter().map(of_direction).collect(),
        slots: bridge.slots,
        table: bridge.table,
        priority: bridge.priority,
        cookie: bridge.cookie,
        first_group: bridge.first_group,
        time_max: bridge.answer_wait,
    }
}

fn of_direction(direction: &SwitchDirection) -> OvsDirection {
    let network = |(address, prefix_bits): &(_, u8)| Network {
        address: *address,
        prefix_bits: *prefix_bits,
    };
    let hop = |(target, port, address): &(String, String, _)| OvsHop {
        target: target.clone(),
        port: port.clone(),
        address: *address,
    };
    OvsDirection {
        ingress: direction.ingress.clone(),
        destinations: direction.destinations.iter().map(network).collect(),
        hash: match direction.hash {
            SwitchHash::Datapath => Selection::Datapath,
            SwitchHash::FiveTuple => Selection::FiveTuple,
            SwitchHash::Source => Selection::Source,
            SwitchHash::Destination => Selection::Destination,
            SwitchHash::Unnamed => Selection::Unnamed,
        },
        hops: direction.hops.iter().map(hop).collect(),
    }
}
