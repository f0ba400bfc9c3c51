//! A client and a server, and between them an Open vSwitch with three hosts: each has a port inside and one outside.

use std::net::Ipv4Addr;
use std::time::Duration;

use asterism_steering::openvswitch::{
    Network, OvsAddress, OvsConfig, OvsDatabase, OvsDirection, OvsHop, Selection,
};

use super::TARGETS;
use crate::error::LabError;
use crate::lab::{Cable, Lab};
use crate::node::Node;
use crate::openvswitch::OpenVSwitch;

/// The bridge that steers.
pub const BRIDGE: &str = "br0";
/// Addresses of the client: without ports in its hash, a switch spreads by addresses.
pub const CLIENT_COUNT: u16 = 40;
/// How long a call of the driver may take on a busy machine.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// See the module. The hosts receive both ends' packets, and forward none.
#[derive(Debug)]
pub struct SwitchLab {
    lab: Lab,
    /// Has the addresses [`SwitchLab::client_address`]; its port of the switch is `up`.
    pub client: Node,
    /// Has the address [`SwitchLab::SERVER`]; its port of the switch is `down`.
    pub server: Node,
    /// Where the switch runs.
    pub switch: Node,
    /// The hosts, in the order of [`TARGETS`]; the switch's ports to host `a` are `in-a` and `out-a`.
    pub hosts: Vec<Node>,
}

impl SwitchLab {
    /// The server's address.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    /// The clients' network.
    const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

    /// Builds it, without the switch's programs. Needs root and `ip`. Some 200 ms.
    pub fn new() -> Result<SwitchLab, LabError> {
        let lab = Lab::new()?;
        let (client, server) = (lab.node("client")?, lab.node("server")?);
        let switch = lab.node("switch")?;
        let clients: Vec<_> = (0..CLIENT_COUNT).map(Self::client_address).collect();
        let end = |end: &Node, port: &str, own: &[Ipv4Addr], others: &[Ipv4Addr]| {
            let cable = Cable::default();
            lab.cable((&switch, port), (end, "eth0"), &cable)?;
            let own = own
                .iter()
                .map(|own| format!("address add {own}/32 dev eth0"));
            // Whatever address is asked for is behind the switch, which writes the Ethernet address.
            let others = others.iter().flat_map(|other| {
                [
                    format!("route add {other}/32 dev eth0"),
                    format!("neigh add {other} lladdr 02:00:00:00:99:99 dev eth0"),
                ]
            });
            end.ip(&own.chain(others).collect::<Vec<_>>()).map(|_| ())
        };
        end(&client, "up", &clients, &[Self::SERVER])?;
        end(&server, "down", &[Self::SERVER], &clients)?;
        let host = |(place, name): (usize, &&str)| -> Result<Node, LabError> {
            let host = lab.node(name)?;
            for (side, interface) in [(1, "in"), (2, "out")] {
                let address = text(mac(side, place));
                let cable = Cable::default().macs("", &address);
                let cable = Cable {
                    macs: [None, cable.macs[1].clone()],
                    ..cable
                };
                let port = format!("{interface}-{name}");
                lab.cable((&switch, &port), (&host, interface), &cable)?;
            }
            // Both ends' packets are received here, and counted instead of forwarded.
            host.sysctl("net/ipv4/conf/all/accept_local", "1")?;
            let addresses = clients.iter().chain([&Self::SERVER]);
            let addresses = addresses.map(|one| format!("address add {one}/32 dev lo"));
            host.ip(&addresses.collect::<Vec<_>>())?;
            Ok(host)
        };
        let hosts = TARGETS.iter().enumerate().map(host);
        let hosts = hosts.collect::<Result<_, _>>()?;
        Ok(SwitchLab {
            lab,
            client,
            server,
            switch,
            hosts,
        })
    }

    /// One of the client's addresses, by its number below [`CLIENT_COUNT`].
    #[must_use]
    pub fn client_address(number: u16) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Self::CLIENTS) + 1 + u32::from(number))
    }

    /// Starts the switch, with its bridge. Needs Open vSwitch. Some 500 ms.
    pub fn start(&self) -> Result<OpenVSwitch<'_>, LabError> {
        let switch = OpenVSwitch::start(&self.lab, &self.switch)?;
        let mut ports = vec!["up".to_owned(), "down".to_owned()];
        for name in TARGETS {
            ports.extend([format!("in-{name}"), format!("out-{name}")]);
        }
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        switch.bridge(BRIDGE, &ports)?;
        Ok(switch)
    }

    /// What a driver of the switch needs to know: packets to the server, and those to the clients where both directions of a flow
    /// can have one host.
    #[must_use]
    pub fn config(switch: &OpenVSwitch<'_>, hash: Selection) -> OvsConfig {
        let address = OvsAddress::Unix(switch.management(BRIDGE));
        let inside = direction("up", 1, (Self::SERVER, 32), hash);
        let outside = |hash| direction("down", 2, (Self::CLIENTS, 26), hash);
        let both = match hash {
            Selection::Source => vec![inside, outside(Selection::Destination)],
            Selection::Unnamed => vec![inside, outside(Selection::Unnamed)],
            _ => vec![inside],
        };
        OvsConfig {
            database: Some(OvsDatabase {
                address: OvsAddress::Unix(switch.database()),
                bridge: BRIDGE.to_owned(),
            }),
            time_max: CALL_TIME_MAX,
            ..OvsConfig::new(address, both)
        }
    }

    /// Has the switch speak OpenFlow 1.3 only, as an old or a restricted one does.
    pub fn only_openflow_13(switch: &OpenVSwitch<'_>) -> Result<(), LabError> {
        let protocols = ["set", "bridge", BRIDGE, "protocols=OpenFlow13"];
        switch.vsctl("--", &protocols).map(|_| ())
    }
}

fn mac(side: u8, place: usize) -> [u8; 6] {
    [2, 0, 0, 0, side, place as u8 + 1]
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn direction(ingress: &str, side: u8, to: (Ipv4Addr, u8), hash: Selection) -> OvsDirection {
    let prefix = if side == 1 { "in" } else { "out" };
    let hop = |(place, name): (usize, &&str)| OvsHop {
        target: (*name).to_owned(),
        port: format!("{prefix}-{name}"),
        address: mac(side, place),
    };
    OvsDirection {
        ingress: vec![ingress.to_owned()],
        destinations: vec![Network {
            address: to.0.into(),
            prefix_bits: to.1,
        }],
        hash,
        hops: TARGETS.iter().enumerate().map(hop).collect(),
    }
}
