//! A router in a network namespace, with hosts that all have one address.

use std::net::Ipv4Addr;

use asterism_steering::ecmp::{EcmpConfig, EcmpHop, EcmpRoute, EcmpSteering, Spread};

use super::TARGETS;
use crate::error::LabError;
use crate::lab::{Cable, Lab};
use crate::node::Node;

/// See the module.
#[derive(Debug)]
pub struct RouterLab {
    _lab: Lab,
    /// The router, whose port to host `a` is `to-a`.
    pub router: Node,
    /// The hosts, in the order of [`TARGETS`]: each has the port `in`.
    pub hosts: Vec<Node>,
}

impl RouterLab {
    /// The router's address.
    pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    /// The address of every host, by which the router reaches it.
    pub const HOSTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    /// The address behind every host.
    pub const BEHIND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);

    /// Builds it, with a hash over ports. Needs root and `ip`. Some 100 ms.
    pub fn new() -> Result<RouterLab, LabError> {
        let lab = Lab::new()?;
        let router = lab.node("router")?;
        router.ip(&[format!("address add {}/32 dev lo", Self::ROUTER)])?;
        router.sysctl("net/ipv4/fib_multipath_hash_policy", "1")?;
        let host = |name: &&str| -> Result<Node, LabError> {
            let host = lab.node(name)?;
            let cable = Cable::default();
            lab.cable((&router, &format!("to-{name}")), (&host, "in"), &cable)?;
            host.ip(&[
                format!("address add {}/32 dev in", Self::HOSTS),
                format!("address add {}/32 dev lo", Self::BEHIND),
                format!("route add {}/32 dev in", Self::ROUTER),
            ])?;
            Ok(host)
        };
        let hosts = TARGETS.iter().map(host).collect::<Result<_, _>>()?;
        Ok(RouterLab {
            _lab: lab,
            router,
            hosts,
        })
    }

    /// A driver of two routes of the router, the default route among them. It has applied nothing yet.
    pub fn driver(&self, spread: Spread) -> Result<EcmpSteering, LabError> {
        let hop = |name: &str| EcmpHop {
            target: name.to_owned(),
            gateway: Self::HOSTS,
            interface: format!("to-{name}"),
        };
        EcmpSteering::new(EcmpConfig {
            network: Some(self.router.namespace_file().into()),
            routes: vec![
                EcmpRoute::new(Self::BEHIND, 29).from(Self::ROUTER),
                EcmpRoute::new(Ipv4Addr::UNSPECIFIED, 0),
            ],
            hops: TARGETS.map(hop).into(),
            spread,
        })
        .map_err(|error| LabError::Failed {
            what: "steering of the router".to_owned(),
            said: error.to_string(),
        })
    }
}
