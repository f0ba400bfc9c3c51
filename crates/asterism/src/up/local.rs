//! What a configuration must have so that its hosts can be run over the local network, whose clients, servers and director are given.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use asterism_config::functions::{Link, NatSettings};
use asterism_config::network::Prefix;
use asterism_config::{Config, Orchestrator, Port, Settings, files};
use asterism_local_network::addresses::{LinkSide, OUTSIDE_ADDRESSES_MAX, outside_address};
use asterism_local_network::{link_line, link_socket};

use super::error::UpError;
use super::plan::Plan;

/// The networks that have all clients, as the fields `inside` say it.
const CLIENTS: &str = "10.78.0.0/16";
/// The clients are 10.78.0.1 to 10.78.0.250.
const CLIENTS_MAX: u8 = 250;

/// What the local network is to be for a configuration.
pub(super) struct Local {
    /// The folder of the links' sockets.
    pub(super) links: PathBuf,
    /// Packets that a link holds each way.
    pub(super) slots: u32,
    /// Outside addresses that its servers know.
    pub(super) outside_addresses: u8,
}

impl Local {
    /// What the hosts of this plan need, or everything that the plan has otherwise than they can have it.
    pub(super) fn of(plan: &Plan) -> Result<Local, UpError> {
        let mut faults = Vec::new();
        check_orchestrator(&plan.config, &mut faults);
        let first = plan.hosts.first().and_then(|host| host.ports.first());
        let path = first.map_or_else(PathBuf::new, |port| files::key_path(&plan.file, &port.path));
        let links = path.parent().unwrap_or(Path::new("/")).to_owned();
        let slots = first.map_or(0, |port| port.ring_frames);
        let mut outside_addresses = 0;
        for (number, host) in (0..).zip(&plan.hosts) {
            for port in &host.ports {
                check_port(plan, (&links, slots), host, port, &mut faults);
            }
            match nat_of(&host.function.settings) {
                Some(nat) => {
                    let count = check_nat(host, number, nat, &mut faults);
                    outside_addresses = outside_addresses.max(count);
                }
                None if number == 0 => faults.push(
                    "its clients' packets leave by a NAT: add [function.nat], alone or in a `chain`"
                        .to_owned(),
                ),
                None => {}
            }
        }
        match faults.is_empty() {
            true => Ok(Local {
                links,
                slots: u32::try_from(slots).unwrap_or(u32::MAX),
                outside_addresses,
            }),
            false => Err(UpError::NotLocal {
                file: plan.file.clone(),
                faults,
            }),
        }
    }
}

/// The orchestrator is a thread of this command, steers the local network's director, and launches the hosts.
fn check_orchestrator(config: &Config, faults: &mut Vec<String>) {
    let Some(orchestrator) = &config.orchestrator else {
        faults.push(
            "it has no orchestrator: add orchestrators = [\"127.0.0.1:7500\"] to [cluster]"
                .to_owned(),
        );
        return;
    };
    if config.cluster.orchestrators.len() > 1 {
        faults
            .push("it has several orchestrators: leave one in [cluster] orchestrators".to_owned());
    }
    if config.cluster.is_open {
        faults
            .push("hosts register: list them in [cluster] members instead of `places`".to_owned());
    }
    let Orchestrator {
        routes,
        openvswitch,
        director,
        launch,
        ..
    } = orchestrator;
    for (table, is_there) in [
        ("routes", !routes.is_empty()),
        ("openvswitch", !openvswitch.is_empty()),
        ("director", !director.is_empty()),
        ("launch", launch.is_some()),
    ] {
        if is_there {
            faults.push(format!(
                "the local network has a director and launches the hosts itself: leave out [orchestrator.{table}]"
            ));
        }
    }
}

fn check_port(
    plan: &Plan,
    (links, slots): (&Path, usize),
    host: &Config,
    port: &Port,
    faults: &mut Vec<String>,
) {
    let name = &host.host.name;
    let Some(side) = LinkSide::BOTH
        .into_iter()
        .find(|side| side.word() == port.name)
    else {
        faults.push(format!(
            "nobody is at the port {} of {name}: leave out [port.{}]",
            port.name, port.name
        ));
        return;
    };
    match link_socket(links, name, side) {
        Ok(path) if files::key_path(&plan.file, &port.path) != path => faults.push(format!(
            "[on.{name}.port.{}]: the link of {name} is at path = {path:?}",
            port.name
        )),
        Ok(_) => {}
        Err(error) => faults.push(error.to_string()),
    }
    if port.ring_frames != slots {
        faults.push(format!(
            "[on.{name}.port.{}]: all links hold as many packets: write ring = {slots}",
            port.name
        ));
    }
}

/// Checks the NAT of a host; how many outside addresses servers must know for it.
fn check_nat(host: &Config, number: u8, nat: &NatSettings, faults: &mut Vec<String>) -> u8 {
    let name = &host.host.name;
    for (side, link) in [
        (LinkSide::Inside, &nat.inside_link),
        (LinkSide::Outside, &nat.outside_link),
    ] {
        if !is_link(side, number, link) {
            faults.push(format!(
                "{name} has another link on the {}: write {} into [on.{name}.function.nat]",
                side.word(),
                link_line(side, number)
            ));
        }
    }
    if number > 0 {
        // All hosts have the same addresses, or they are refused.
        return 0;
    }
    let is_inside = |client: u8| {
        let client = Ipv4Addr::new(10, 78, 0, client);
        let pools = nat.carrier.pools.iter().flat_map(|pool| &pool.inside);
        nat.inside
            .iter()
            .chain(pools)
            .any(|network| network.contains(client))
    };
    if !(1..=CLIENTS_MAX).all(is_inside) {
        faults.push(format!(
            "the clients are in {CLIENTS}, which the NAT does not translate: write inside = [\"{CLIENTS}\"]"
        ));
    }
    let mut count = 0;
    let one_to_one = nat.one_to_one.iter().map(|(outside, _)| *outside);
    let pools = nat.carrier.pools.iter().flat_map(|pool| &pool.outside);
    for address in nat
        .outside
        .iter()
        .copied()
        .chain(one_to_one)
        .chain(pools.flat_map(all_of))
    {
        match (0..OUTSIDE_ADDRESSES_MAX).find(|number| outside_address(*number) == address) {
            Some(number) => count = count.max(number + 1),
            None => {
                faults.push(format!(
                    "the servers do not know the outside address {address}: write addresses from {} to {}",
                    outside_address(0),
                    outside_address(OUTSIDE_ADDRESSES_MAX - 1)
                ));
                break;
            }
        }
    }
    count
}

/// The addresses of a network, up to one more than the servers know.
fn all_of(network: &Prefix) -> impl Iterator<Item = Ipv4Addr> {
    let first = network.address.to_bits();
    let last = first | u32::MAX.checked_shr(network.length.into()).unwrap_or(0);
    (first..=last)
        .map(Ipv4Addr::from_bits)
        .take(usize::from(OUTSIDE_ADDRESSES_MAX) + 1)
}

fn is_link(side: LinkSide, number: u8, link: &Link) -> bool {
    link.address.address == side.host(number)
        && link.mac == side.host_mac(number).0
        && link.next_hop == side.router()
        && link.next_hop_mac == Some(side.router_mac().0)
}

/// The NAT of a function: itself, or the first stage that is one.
fn nat_of(settings: &Settings) -> Option<&NatSettings> {
    match settings {
        Settings::Nat(nat) => Some(nat),
        Settings::Chain(chain) => chain
            .stages
            .iter()
            .find_map(|stage| nat_of(&stage.settings)),
        _ => None,
    }
}
