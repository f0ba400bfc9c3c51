//! Bridges of Open vSwitch that the orchestrators steer by: `[orchestrator.openvswitch.NAME]`.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;

use asterism_function::IpPrefix;
use asterism_placement::membership::MEMBERS_MAX;

use super::{check_hops, duration};
use crate::cluster::Cluster;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Default, List, Setting, section};

/// Bridges at most.
pub(super) const BRIDGES_MAX: usize = 4;
/// Directions of a bridge at most.
const DIRECTIONS_MAX: usize = 4;
/// Ports by which packets of a direction arrive, and networks that they are for, at most.
const INGRESS_MAX: usize = 16;
/// Numbers of groups that a bridge takes: two for each direction.
const GROUPS: u32 = 2 * DIRECTIONS_MAX as u32;
/// The folder of Open vSwitch's sockets, as its packages have it.
const RUN_FOLDER: &str = "/run/openvswitch";

/// A bridge that spreads packets over the hosts, files as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenVSwitch {
    /// Its name in the configuration.
    pub name: String,
    /// The bridge.
    pub bridge: String,
    /// Where the bridge takes controllers.
    pub switch: SwitchAddress,
    /// The socket of the database, where the bridge's mode is checked; `None`: it is not.
    pub database: Option<PathBuf>,
    /// The table of the rules.
    pub table: u8,
    /// Their priority.
    pub priority: u16,
    /// Their cookie.
    pub cookie: u64,
    /// The number of the first group.
    pub first_group: u32,
    /// Slots of the flow space.
    pub slots: u16,
    /// How long a call may wait for the bridge.
    pub answer_wait: Duration,
    /// What is steered.
    pub directions: Vec<SwitchDirection>,
}

/// Where a bridge takes controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchAddress {
    /// A Unix socket, as written.
    Socket(PathBuf),
    /// An address of TCP.
    Address(SocketAddr),
}

/// Packets that are steered alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchDirection {
    /// Its name.
    pub name: String,
    /// The bridge's ports by which they arrive.
    pub ingress: Vec<String>,
    /// The networks that they are for: the address, and the length of its prefix.
    pub destinations: Vec<(IpAddr, u8)>,
    /// By what they are spread.
    pub hash: SwitchHash,
    /// The path to each member: its name, the bridge's port, and the Ethernet address behind it.
    pub hops: Vec<(String, String, [u8; 6])>,
}

choices! {
    /// By what a bridge spreads packets.
    pub enum SwitchHash {
        Datapath = "datapath", "Addresses and ports, as the datapath or its network card hashes them.";
        FiveTuple = "five-tuple", "Addresses and ports, by the switch.";
        Source = "source", "Address and port of the source.";
        Destination = "destination", "Address and port of the destination.";
        Unnamed = "unnamed", "Both addresses and, except of UDP, both ports; the same for both directions of a flow. OpenFlow 1.3 has no other.";
    }
}

impl SwitchHash {
    /// Whether slots are equal only if their number is a power of two.
    fn wants_power_of_two(self) -> bool {
        matches!(self, SwitchHash::Datapath | SwitchHash::Unnamed)
    }
}

section! {
    /// A bridge.
    pub(crate) static OPENVSWITCH: OpenVSwitchKeys = {
        path: "orchestrator.openvswitch.NAME",
        meaning: "A bridge of Open vSwitch that spreads packets over the hosts, by rules that the orchestrator writes.",
        fields: {
            bridge: String = Setting {
                kind: Kind::Device,
                default: Default::Required("\"br0\""),
                meaning: "The bridge. Its `fail_mode` must be `secure` (`ovs-vsctl set-fail-mode br0 secure`): in another mode it forgets its rules when a controller fails.",
            },
            socket: String = Setting {
                kind: Kind::File,
                default: Default::Unset("/run/openvswitch/BRIDGE.mgmt, unless `address` is given"),
                meaning: "The Unix socket where the bridge takes controllers.",
            },
            address: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("the Unix socket"),
                meaning: "The TCP address where the bridge takes controllers (`ovs-vsctl set-controller br0 ptcp:6653:127.0.0.1`). Nothing protects what is sent there: use loopback or a management network.",
            },
            database: String = Setting {
                kind: Kind::File,
                default: Default::Unset("/run/openvswitch/db.sock; with `address`, the mode is not checked"),
                meaning: "The Unix socket of the switch's database, where the orchestrator checks the bridge's `fail_mode` at each connection.",
            },
            table: u64 = Setting {
                kind: Kind::Count { least: 0, most: 254 },
                default: Default::Is("0"),
                meaning: "The table of the rules. Packets begin in table 0.",
            },
            priority: u64 = Setting {
                kind: Kind::Count { least: 1, most: u16::MAX as u64 },
                default: Default::Is("20_000"),
                meaning: "The priority of the rules. Rules of others with a greater one come first.",
            },
            cookie: u64 = Setting {
                kind: Kind::Count { least: 1, most: i64::MAX as u64 },
                default: Default::Is("0x4153_5445_5249_534d"),
                meaning: "The cookie of the rules, by which the orchestrator knows its own. No other program may use it on this bridge.",
            },
            first_group: u64 = Setting {
                kind: Kind::Count { least: 1, most: (u32::MAX - 0xff - GROUPS) as u64 },
                default: Default::Is("0x4153_0000"),
                meaning: "The number of the first group. Each direction takes two; no other program may use them on this bridge.",
            },
            slots: u64 = Setting {
                kind: Kind::Count { least: 1, most: 64 },
                default: Default::Is("64"),
                meaning: "Equal parts of the flow space, each of which leads to one host. A power of two with the hashes `datapath` and `unnamed`.",
            },
            answer_wait: Duration = Setting {
                kind: duration(10, 60_000),
                default: Default::Is("\"5s\""),
                meaning: "How long a call to the bridge may take.",
            },
            direction: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: DIRECTION.section(),
                    most: DIRECTIONS_MAX,
                },
                default: Default::Required("{ inside = { ingress = [\"eth0\"], to = [\"203.0.113.0/24\"], via = {} } }"),
                meaning: "Packets that are steered, by direction: mostly one inside and one outside. All directions change together.",
            },
        },
    };
}

section! {
    /// Packets that are steered alike.
    pub(crate) static DIRECTION: DirectionKeys = {
        path: "orchestrator.openvswitch.NAME.direction.NAME",
        meaning: "Packets that a bridge spreads over the hosts.",
        fields: {
            ingress: List<String> = Setting {
                kind: Kind::List {
                    of: &Kind::Device,
                    most: INGRESS_MAX,
                },
                default: Default::Required("[\"eth0\"]"),
                meaning: "The bridge's ports by which the packets arrive.",
            },
            to: List<IpPrefix> = Setting {
                kind: Kind::List {
                    of: &Kind::IpPrefix,
                    most: INGRESS_MAX,
                },
                default: Default::Required("[\"203.0.113.0/24\"]"),
                meaning: "The networks that the packets are for.",
            },
            hash: SwitchHash = Setting {
                kind: Kind::Choice {
                    allowed: SwitchHash::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"datapath\""),
                meaning: "By what packets are spread.",
            },
            via: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: SWITCH_VIA.section(),
                    most: MEMBERS_MAX,
                },
                default: Default::Required("{ a = { port = \"eth1\", mac = \"02:00:00:00:00:01\" } }"),
                meaning: "The path to each member. The table's name is the member's.",
            },
        },
    };
}

section! {
    /// The path to a member.
    pub(crate) static SWITCH_VIA: SwitchViaKeys = {
        path: "orchestrator.openvswitch.NAME.direction.NAME.via.NAME",
        meaning: "The path to a member.",
        fields: {
            port: String = Setting {
                kind: Kind::Device,
                default: Default::Required("\"eth1\""),
                meaning: "The bridge's port to the member.",
            },
            mac: [u8; 6] = Setting {
                kind: Kind::Mac,
                default: Default::Required("\"02:00:00:00:00:01\""),
                meaning: "The Ethernet destination that packets get: the member's.",
            },
        },
    };
}

/// Reads all bridges. `None` if anything is wrong.
pub(super) fn read(
    tables: &[NamedValues],
    cluster: &Cluster,
    report: &mut Report,
) -> Option<Vec<OpenVSwitch>> {
    // All of them, so that every mistake is reported at once.
    let read: Vec<_> = tables
        .iter()
        .map(|table| bridge(table, cluster, report))
        .collect();
    let bridges: Vec<OpenVSwitch> = read.into_iter().collect::<Option<_>>()?;
    let mut is_right = true;
    for (place, (later, table)) in bridges.iter().zip(tables).enumerate() {
        for (earlier, first) in bridges.iter().zip(tables).take(place) {
            let same_groups = later.first_group.abs_diff(earlier.first_group) < GROUPS;
            let same_rules = later.cookie == earlier.cookie || same_groups;
            if (&later.bridge, &later.switch) == (&earlier.bridge, &earlier.switch) && same_rules {
                is_right = false;
                report.add(
                    Diagnostic::error(
                        format!("[{}] and [{}] would write each other's rules", first.name, table.name),
                        table.place.clone(),
                    )
                    .also(first.place.clone(), "the same bridge")
                    .help("put their directions into one table, or give this one another cookie and first_group"),
                );
            }
        }
    }
    is_right.then_some(bridges)
}

fn bridge(table: &NamedValues, cluster: &Cluster, report: &mut Report) -> Option<OpenVSwitch> {
    let values = &table.values;
    let mistakes = report.errors();
    let bridge = values.get(OPENVSWITCH.bridge);
    let (socket, address) = (
        values.get(OPENVSWITCH.socket),
        values.get(OPENVSWITCH.address),
    );
    if let (Some(_), Some(address)) = (&socket, address) {
        report.add(
            Diagnostic::error(
                "a bridge is reached by its socket or by an address",
                values.span_of(OPENVSWITCH.address),
            )
            .help(format!("leave out socket, or address = \"{address}\"")),
        );
    }
    let slots = values.get(OPENVSWITCH.slots);
    let slots = slots.and_then(|slots| u16::try_from(slots).ok());
    let tables = values.get(OPENVSWITCH.direction)?;
    if tables.is_empty() {
        report.add(
            Diagnostic::error(
                "a bridge steers packets of one direction at least",
                values.span_of(OPENVSWITCH.direction),
            )
            .help(format!(
                "add [orchestrator.openvswitch.{}.direction.inside] with ingress, to and via",
                table.name
            )),
        );
    }
    let read: Vec<_> = tables
        .iter()
        .map(|one| direction(one, &table.name, slots.unwrap_or(1), cluster, report))
        .collect();
    let directions: Vec<SwitchDirection> = read.into_iter().collect::<Option<_>>()?;
    check_apart(&directions, &tables, report);
    let bridge = bridge?;
    let in_folder = |file: String| PathBuf::from(RUN_FOLDER).join(file);
    let (switch, usual) = match (address, socket) {
        (Some(address), _) => (SwitchAddress::Address(address), None),
        (None, socket) => (
            SwitchAddress::Socket(
                socket.map_or_else(|| in_folder(format!("{bridge}.mgmt")), PathBuf::from),
            ),
            Some(in_folder("db.sock".to_owned())),
        ),
    };
    let database = values.get(OPENVSWITCH.database).map(PathBuf::from);
    let bridge = OpenVSwitch {
        name: table.name.clone(),
        switch,
        database: database.or(usual),
        table: u8::try_from(values.get(OPENVSWITCH.table)?).ok()?,
        priority: u16::try_from(values.get(OPENVSWITCH.priority)?).ok()?,
        cookie: values.get(OPENVSWITCH.cookie)?,
        first_group: u32::try_from(values.get(OPENVSWITCH.first_group)?).ok()?,
        slots: slots?,
        answer_wait: values.get(OPENVSWITCH.answer_wait)?,
        directions,
        bridge,
    };
    (report.errors() == mistakes).then_some(bridge)
}

fn direction(
    table: &NamedValues,
    bridge: &str,
    slots: u16,
    cluster: &Cluster,
    report: &mut Report,
) -> Option<SwitchDirection> {
    let values = &table.values;
    let mistakes = report.errors();
    let (ingress, to) = (values.get(DIRECTION.ingress), values.get(DIRECTION.to));
    if ingress.as_ref().is_some_and(Vec::is_empty) {
        report.add(
            Diagnostic::error(
                "packets arrive by a port",
                values.span_of(DIRECTION.ingress),
            )
            .help("write the bridge's port to the network, such as ingress = [\"eth0\"]"),
        );
    }
    if to.as_ref().is_some_and(Vec::is_empty) {
        report.add(
            Diagnostic::error("packets are for a network", values.span_of(DIRECTION.to))
                .help("write to = [\"203.0.113.0/24\"]"),
        );
    }
    let hash = values.get(DIRECTION.hash);
    if let Some(hash) = hash.filter(|hash| hash.wants_power_of_two() && !slots.is_power_of_two()) {
        report.add(
            Diagnostic::error(
                format!(
                    "with the hash `{}` {slots} slots would not be equal",
                    hash.word()
                ),
                values.span_of(DIRECTION.hash),
            )
            .help("write slots = 64, or hash = \"five-tuple\""),
        );
    }
    let via = values.get(DIRECTION.via).unwrap_or_default();
    let example = "{ port = \"eth1\", mac = \"02:00:00:00:00:01\" }";
    let place = format!("orchestrator.openvswitch.{bridge}.direction.{}", table.name);
    check_hops(
        &via,
        values.span_of(DIRECTION.via),
        (&place, example),
        cluster,
        report,
    );
    let ingress: Vec<String> = names(ingress.unwrap_or_default());
    let mut hops: Vec<(String, String, [u8; 6])> = Vec::new();
    for hop in &via {
        let (Some(port), Some(mac)) = (
            hop.values.get(SWITCH_VIA.port),
            hop.values.get(SWITCH_VIA.mac),
        ) else {
            continue;
        };
        check_hop(hop, (&port, mac), &ingress, &hops, report);
        hops.push((hop.name.clone(), port, mac));
    }
    let to = to?.into_iter();
    let direction = SwitchDirection {
        name: table.name.clone(),
        ingress,
        destinations: to
            .map(|(prefix, _)| (prefix.address(), prefix.length()))
            .collect(),
        hash: hash?,
        hops,
    };
    (report.errors() == mistakes).then_some(direction)
}

fn names(list: List<String>) -> Vec<String> {
    list.into_iter().map(|(name, _)| name).collect()
}

/// Refuses a path that leads back, or to another member too.
fn check_hop(
    hop: &NamedValues,
    (port, mac): (&String, [u8; 6]),
    ingress: &[String],
    earlier: &[(String, String, [u8; 6])],
    report: &mut Report,
) {
    if ingress.contains(port) {
        report.add(
            Diagnostic::error(
                format!("packets that arrive by {port} cannot be sent out there"),
                hop.values.span_of(SWITCH_VIA.port),
            )
            .help(format!("write the bridge's port to {}", hop.name)),
        );
    }
    let same = |other: &&(String, String, [u8; 6])| (&other.1, other.2) == (port, mac);
    if let Some((other, ..)) = earlier.iter().find(same) {
        report.add(
            Diagnostic::error(
                format!("{other} and {} have one port and address", hop.name),
                hop.place.clone(),
            )
            .help(
                "write another port, or another Ethernet address, so that packets reach one of them alone",
            ),
        );
    }
}

/// Refuses two directions of the same packets.
fn check_apart(directions: &[SwitchDirection], tables: &[NamedValues], report: &mut Report) {
    for (place, (later, table)) in directions.iter().zip(tables).enumerate() {
        for (earlier, first) in directions.iter().zip(tables).take(place) {
            let both = |one: &&String| earlier.ingress.contains(one);
            let port = later.ingress.iter().find(both);
            let same = |one: &&(IpAddr, u8)| earlier.destinations.contains(one);
            let network = later.destinations.iter().find(same);
            if let (Some(port), Some((address, length))) = (port, network) {
                report.add(
                    Diagnostic::error(
                        format!("packets from {port} for {address}/{length} are steered twice"),
                        table.values.span_of(DIRECTION.to),
                    )
                    .also(first.place.clone(), "first here")
                    .help("leave the port or the network out of one of the two"),
                );
            }
        }
    }
}
