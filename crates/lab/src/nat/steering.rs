//! The routers of the laboratory under the orchestrator's steering.

use std::net::Ipv4Addr;
use std::time::Duration;

use asterism_steering::ecmp::{EcmpConfig, EcmpHop, EcmpRoute, EcmpSteering, Spread};
use asterism_steering::{Desired, Generation, Standing, Steering, Target};

use super::{CLIENT, INSIDE, NatLab, OUTSIDE, SERVER, TRANSLATED_PREFIX};
use crate::error::LabError;
use crate::node::Node;

/// Drivers of the client's and the server's routes: each flow takes any host each way.
#[derive(Debug)]
pub struct NatSteering {
    /// Where the client sends.
    pub inside: EcmpSteering,
    /// Where the server answers.
    pub outside: EcmpSteering,
    names: Vec<String>,
    generation: u64,
}

impl NatLab {
    /// Hands the routes of client and server to the orchestrator's driver. They stay as they are until something is applied.
    pub fn steering(&self, spread: Spread) -> Result<NatSteering, LabError> {
        let prefix = TRANSLATED_PREFIX.split_once('/');
        let prefix = prefix.and_then(|(address, bits)| {
            Some(EcmpRoute::new(address.parse().ok()?, bits.parse().ok()?))
        });
        let prefix = prefix.ok_or_else(|| LabError::BadName {
            name: TRANSLATED_PREFIX.to_owned(),
            fault: "it is no prefix",
        })?;
        let driver = |router: &Node, gateway: Ipv4Addr, routes: Vec<EcmpRoute>| {
            let hop = |(place, host): (usize, &Node)| EcmpHop {
                target: host.name().to_owned(),
                gateway,
                interface: format!("nat{}", place + 1),
            };
            EcmpSteering::new(EcmpConfig {
                network: Some(router.namespace_file().into()),
                routes,
                hops: self.hosts.iter().enumerate().map(hop).collect(),
                spread,
            })
            .map_err(|error| LabError::Failed {
                what: format!("steering of {}", router.name()),
                said: error.to_string(),
            })
        };
        let default = EcmpRoute::new(Ipv4Addr::UNSPECIFIED, 0).from(CLIENT);
        let errors = EcmpRoute::new(OUTSIDE, 32).from(SERVER);
        Ok(NatSteering {
            inside: driver(&self.client, INSIDE, vec![default])?,
            outside: driver(&self.server, OUTSIDE, vec![prefix.from(SERVER), errors])?,
            names: self
                .hosts
                .iter()
                .map(|host| host.name().to_owned())
                .collect(),
            generation: 0,
        })
    }
}

impl NatSteering {
    /// Steers both ways to all hosts but those at these places, under the next number. How much of the flow space moved, in
    /// thousandths, and how long it took until it was in force; the worse and the sum of both sides.
    pub fn without(&mut self, places: &[usize]) -> Result<(u16, Duration), LabError> {
        self.generation += 1;
        let targets = self.names.iter().enumerate().map(|(place, name)| {
            let standing = if places.contains(&place) {
                Standing::Out
            } else {
                Standing::Takes
            };
            let target = Target {
                standing,
                ..Target::TAKES
            };
            (name.clone(), target)
        });
        let failed = |said: String| LabError::Failed {
            what: "steering".to_owned(),
            said,
        };
        let desired = Desired::new(Generation(self.generation), targets)
            .map_err(|error| failed(error.to_string()))?;
        let (mut moved, mut took) = (0, Duration::ZERO);
        for driver in [&mut self.inside, &mut self.outside] {
            let done = driver
                .apply(&desired)
                .map_err(|error| failed(error.to_string()))?;
            moved = moved.max(done.moved_permille.unwrap_or(1_000));
            took += done.took;
        }
        Ok((moved, took))
    }
}
