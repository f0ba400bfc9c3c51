//! What is between the hosts and the routers, which are client and server.

use super::{CLIENT_MAC, NAT_INSIDE_MAC, NAT_OUTSIDE_MAC, NatLabConfig, SERVER_MAC};
use crate::error::LabError;
use crate::lab::{Cable, Lab};
use crate::node::Node;
use crate::wire::Wire;

/// What leads packets to the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Middle {
    /// A port of client and server each to each host: their routes decide which host gets a packet.
    #[default]
    Cables,
    /// One segment with the client and one with the server, each a bridge: Ethernet decides which host gets a packet.
    Segments,
    /// Segments, on which so many directors (one or two) have the NAT's addresses, and each host has its own.
    Directors(usize),
    /// One bridge of an Open vSwitch, which the laboratory's user starts ([`crate::openvswitch`]): its rules decide.
    Switch,
}

/// What was made.
#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) outside: Vec<Wire>,
    pub(super) segments: Option<Node>,
    pub(super) switch: Option<Node>,
    pub(super) directors: Vec<Node>,
}

/// Joins hosts and routers.
pub(super) fn join(
    lab: &Lab,
    client: &Node,
    server: &Node,
    hosts: &[Node],
    config: &NatLabConfig,
) -> Result<Joined, LabError> {
    let mut joined = Joined::default();
    match config.middle {
        Middle::Cables => {
            for (place, host) in hosts.iter().enumerate() {
                let wire = join_to_routers(lab, client, server, host, place, config)?;
                joined.outside.extend(wire);
            }
        }
        Middle::Segments => {
            let ends: Vec<&Node> = hosts.iter().collect();
            joined.segments = Some(segments(lab, client, server, &ends, &config.cable)?);
            for host in hosts {
                for (interface, mac) in [("in", NAT_INSIDE_MAC), ("out", NAT_OUTSIDE_MAC)] {
                    host.ip(&[format!("link set dev {interface} address {mac}")])?;
                }
            }
        }
        Middle::Directors(count) => {
            for number in 1..=count {
                joined
                    .directors
                    .push(lab.node(&format!("director-{number}"))?);
            }
            let ends: Vec<&Node> = hosts.iter().chain(&joined.directors).collect();
            joined.segments = Some(segments(lab, client, server, &ends, &config.cable)?);
            for (place, host) in hosts.iter().enumerate() {
                for (interface, side) in [("in", 1), ("out", 2)] {
                    let mac = host_mac(side, place);
                    host.ip(&[format!("link set dev {interface} address {mac}")])?;
                }
            }
        }
        Middle::Switch => {
            joined.switch = Some(switch(lab, client, server, hosts, &config.cable)?);
        }
    }
    Ok(joined)
}

/// The Ethernet address of a host behind directors, on the inside (1) or outside (2).
pub(super) fn host_mac(side: u8, place: usize) -> String {
    format!("02:00:00:00:{side:02x}:{:02x}", 16 + place)
}

/// The router's port to a host.
fn port(place: usize) -> String {
    format!("nat{}", place + 1)
}

/// Gives client and server a port each to a host.
fn join_to_routers(
    lab: &Lab,
    client: &Node,
    server: &Node,
    host: &Node,
    place: usize,
    config: &NatLabConfig,
) -> Result<Option<Wire>, LabError> {
    let port = port(place);
    let cable = config.cable.clone().macs(CLIENT_MAC, NAT_INSIDE_MAC);
    lab.cable((client, &port), (host, "in"), &cable)?;
    let Some(wire) = &config.outside else {
        let cable = config.cable.clone().macs(SERVER_MAC, NAT_OUTSIDE_MAC);
        lab.cable((server, &port), (host, "out"), &cable)?;
        return Ok(None);
    };
    let wire = lab.wire(&[(server, port.as_str()), (host, "out")], wire)?;
    server.ip(&[format!("link set dev {port} address {SERVER_MAC}")])?;
    host.ip(&[format!("link set dev out address {NAT_OUTSIDE_MAC}")])?;
    Ok(Some(wire))
}

/// Puts all on two bridges.
fn segments(
    lab: &Lab,
    client: &Node,
    server: &Node,
    others: &[&Node],
    cable: &Cable,
) -> Result<Node, LabError> {
    let switch = lab.node("segments")?;
    for (bridge, router, router_mac, interface) in [
        ("inside", client, CLIENT_MAC, "in"),
        ("outside", server, SERVER_MAC, "out"),
    ] {
        let ends: Vec<_> = [(router, "nat1")]
            .into_iter()
            .chain(others.iter().map(|other| (*other, interface)))
            .collect();
        lab.bridge(&switch, bridge, &ends, cable)?;
        router.ip(&[format!("link set dev nat1 address {router_mac}")])?;
    }
    Ok(switch)
}

/// Gives each an end at a node for a switch.
fn switch(
    lab: &Lab,
    client: &Node,
    server: &Node,
    hosts: &[Node],
    cable: &Cable,
) -> Result<Node, LabError> {
    let switch = lab.node("switch")?;
    let plug = |port: &str, (node, interface): (&Node, &str), mac: &str| {
        let mut cable = cable.clone();
        cable.macs = [None, Some(mac.to_owned())];
        lab.cable((&switch, port), (node, interface), &cable)
    };
    plug("up", (client, "nat1"), CLIENT_MAC)?;
    plug("down", (server, "nat1"), SERVER_MAC)?;
    for (place, host) in hosts.iter().enumerate() {
        plug(&format!("in{}", place + 1), (host, "in"), NAT_INSIDE_MAC)?;
        plug(&format!("out{}", place + 1), (host, "out"), NAT_OUTSIDE_MAC)?;
    }
    Ok(switch)
}
