//! Directors that the orchestrators command: `[orchestrator.director.NAME]`.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use asterism_function::IpPrefix;
use asterism_placement::membership::MEMBERS_MAX;

use super::{check_hops, duration};
use crate::cluster::Cluster;
use crate::port::PortKind;
use asterism_notation::suggestion;
use asterism_notation::value::show_duration;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Default, List, Setting, section};

/// Pairs of directors at most.
pub(super) const DIRECTORS_MAX: usize = 2;
/// Arms of a director at most.
const ARMS_MAX: usize = 4;
/// Directors of a pair.
const MACHINES_MAX: usize = 2;
/// Shared addresses of an arm at most.
const SHARED_MAX: usize = 256;

/// A director, or a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Director {
    /// Its name in the configuration.
    pub name: String,
    /// Buckets of the flow space, a power of two.
    pub buckets: u32,
    /// Which flows share a bucket follows from it.
    pub seed: u64,
    /// Whether later fragments follow the first one.
    pub fragments: DirectorFragments,
    /// Time between two heartbeats of the pair.
    pub heartbeat: Duration,
    /// Silence after which a standby takes over.
    pub takeover_after: Duration,
    /// The arms.
    pub arms: Vec<DirectorArm>,
    /// One director, or the two of the pair.
    pub machines: Vec<DirectorMachine>,
}

impl Director {
    /// The hosts that it leads to, in the order in which it and the orchestrator number them: the members, or, where hosts register,
    /// those with a path.
    #[must_use]
    pub fn targets(&self, cluster: &Cluster) -> Vec<String> {
        if !cluster.is_open {
            return cluster.members.clone();
        }
        let hops = self.arms.iter().flat_map(|arm| &arm.hops);
        let names: BTreeSet<&String> = hops.map(|(name, ..)| name).collect();
        names.into_iter().cloned().collect()
    }
}

/// An arm of all directors of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorArm {
    /// Its name.
    pub name: String,
    /// On which side of the cluster it is.
    pub side: DirectorSide,
    /// Which packets go together.
    pub by: DirectorBy,
    /// The cluster's addresses here.
    pub shared: Vec<IpAddr>,
    /// The number of the arm by which packets that arrive here go on to hosts.
    pub sends_to: usize,
    /// How hosts are reached here: the name, the Ethernet address, and the IPv4 address by which it is learnt otherwise.
    pub hops: Vec<(String, Option<[u8; 6]>, Option<Ipv4Addr>)>,
}

/// A machine with a director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorMachine {
    /// Its name.
    pub name: String,
    /// Where the director takes commands, by UDP.
    pub control: SocketAddr,
    /// Its port for each arm, in the arms' order.
    pub plugs: Vec<DirectorPort>,
}

/// A port of a director.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorPort {
    /// The interface.
    pub interface: String,
    /// What it is opened as: AF_PACKET or AF_XDP.
    pub kind: PortKind,
    /// Frames of its ring in each direction.
    pub ring_frames: usize,
    /// Whether the kernel's own network stack sees nothing of it (AF_PACKET).
    pub exclusive: bool,
    /// The address with which the director asks for hosts.
    pub address: Option<Ipv4Addr>,
}

choices! {
    /// Where fragments go.
    pub enum DirectorFragments {
        Together = "together", "All fragments of a datagram go to one host, which need not be that of its flow.";
        WithFirst = "with-first", "They go to the host of their flow; a later fragment that overtakes the first is dropped.";
    }
}

choices! {
    /// A side of the cluster.
    pub enum DirectorSide {
        Inside = "inside", "Where the clients of a NAT are.";
        Outside = "outside", "Where the rest of the world is.";
    }
}

choices! {
    /// Which packets go to one host.
    pub enum DirectorBy {
        FiveTuple = "five-tuple", "Those of one direction of a flow.";
        BothWays = "both-ways", "Those of both directions of a flow.";
        Conversation = "conversation", "Those of two addresses, in both directions, with fragments and ICMP errors: a store of several shards has their state together.";
        Source = "source", "Those of one source address.";
        Destination = "destination", "Those of one destination address.";
        OutsideEndpoint = "outside-endpoint", "Those of one address and port outside, in both directions, also through a NAT.";
    }
}

section! {
    /// A director, or a pair.
    pub(crate) static DIRECTOR: DirectorKeys = {
        path: "orchestrator.director.NAME",
        meaning: "A director (`asterism direct`), or a pair of two of which either may die, that spreads packets over the hosts by Ethernet.",
        fields: {
            buckets: u64 = Setting {
                kind: Kind::Count { least: 256, most: 65_536 },
                default: Default::Is("16_384"),
                meaning: "Parts of the flow space, each of which leads to one host. A power of two.",
            },
            seed: u64 = Setting {
                kind: Kind::Count { least: 0, most: i64::MAX as u64 },
                default: Default::Is("0"),
                meaning: "Which flows share a bucket follows from it. Draw it, where senders might choose flows that meet in one.",
            },
            fragments: DirectorFragments = Setting {
                kind: Kind::Choice {
                    allowed: DirectorFragments::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"together\""),
                meaning: "Where fragments go.",
            },
            heartbeat: Duration = Setting {
                kind: duration(5, 10_000),
                default: Default::Is("\"100ms\""),
                meaning: "Time between two heartbeats of the pair, which go over the first arm.",
            },
            takeover_after: Duration = Setting {
                kind: duration(10, 160_000),
                default: Default::Is("\"350ms\""),
                meaning: "Silence of the active director after which the other one takes over: 2 to 16 heartbeats.",
            },
            arm: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: ARM.section(),
                    most: ARMS_MAX,
                },
                default: Default::Required("{ inside = { side = \"inside\", shared = [\"10.0.0.1\"] } }"),
                meaning: "The segments on which the directors are: mostly one inside and one outside.",
            },
            machine: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: MACHINE.section(),
                    most: MACHINES_MAX,
                },
                default: Default::Required("{ one = { control = \"192.0.2.21:7600\" } }"),
                meaning: "The machines on which a director runs: one, or the two of a pair. `asterism direct --machine` takes the table's name.",
            },
        },
    };
}

section! {
    /// An arm.
    pub(crate) static ARM: ArmKeys = {
        path: "orchestrator.director.NAME.arm.NAME",
        meaning: "A segment on which the directors are.",
        fields: {
            side: DirectorSide = Setting {
                kind: Kind::Choice {
                    allowed: DirectorSide::WORDS,
                    refused: &[],
                },
                default: Default::Required("\"inside\""),
                meaning: "On which side of the cluster it is.",
            },
            by: DirectorBy = Setting {
                kind: Kind::Choice {
                    allowed: DirectorBy::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"five-tuple\""),
                meaning: "Which packets that arrive here go to one host.",
            },
            shared: List<IpPrefix> = Setting {
                kind: Kind::List {
                    of: &Kind::IpPrefix,
                    most: SHARED_MAX,
                },
                default: Default::Is("[]"),
                meaning: "The cluster's addresses here, for which the active director answers ARP and neighbour solicitations: mostly the gateway of the segment. No host may answer for them.",
            },
            sends_to: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("this one"),
                meaning: "The arm by which packets that arrive here go on to the hosts.",
            },
            via: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: DIRECTOR_VIA.section(),
                    most: MEMBERS_MAX,
                },
                default: Default::Is("{}"),
                meaning: "Where each member is on this segment, if packets go on to hosts here. The table's name is the member's.",
            },
        },
    };
}

section! {
    /// A member on a segment.
    pub(crate) static DIRECTOR_VIA: DirectorViaKeys = {
        path: "orchestrator.director.NAME.arm.NAME.via.NAME",
        meaning: "A member on a segment: its Ethernet address, or the IPv4 address by which the directors ask for it.",
        fields: {
            address: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Unset("nobody is asked; `mac` is needed"),
                meaning: "The member's own address here, which it answers ARP for.",
            },
            mac: [u8; 6] = Setting {
                kind: Kind::Mac,
                default: Default::Unset("it is learnt by ARP"),
                meaning: "The member's Ethernet address here.",
            },
        },
    };
}

section! {
    /// A machine with a director.
    pub(crate) static MACHINE: MachineKeys = {
        path: "orchestrator.director.NAME.machine.NAME",
        meaning: "A machine on which a director runs.",
        fields: {
            control: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Required("\"192.0.2.21:7600\""),
                meaning: "The UDP address where the director takes the orchestrators' commands, which are sealed under the cluster's key.",
            },
            arm: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: PLUG.section(),
                    most: ARMS_MAX,
                },
                default: Default::Required("{ inside = { interface = \"eth0\" } }"),
                meaning: "The interface on each segment. The table's name is the arm's.",
            },
        },
    };
}

section! {
    /// An interface of a machine on a segment.
    pub(crate) static PLUG: PlugKeys = {
        path: "orchestrator.director.NAME.machine.NAME.arm.NAME",
        meaning: "A machine's interface on a segment.",
        fields: {
            interface: String = Setting {
                kind: Kind::Device,
                default: Default::Required("\"eth0\""),
                meaning: "The interface. Its Ethernet address is the director's.",
            },
            kind: PortKind = Setting {
                kind: Kind::Choice {
                    allowed: PortKind::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"af_packet\""),
                meaning: "What it is opened as: `af_packet` or `af_xdp`.",
            },
            ring: u64 = Setting {
                kind: Kind::Count { least: 64, most: 1 << 16 },
                default: Default::Is("4_096"),
                meaning: "Frames in the ring, in each direction. A power of two.",
            },
            exclusive: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether the kernel's own network stack gets none of the arriving packets, with `af_packet`. Needed on a machine that routes, which would route them too.",
            },
            address: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Unset("it asks as a probe does (RFC 5227)"),
                meaning: "An address of this director alone, with which it asks for hosts.",
            },
        },
    };
}

/// Reads all directors. `None` if anything is wrong.
pub(super) fn read(
    tables: &[NamedValues],
    cluster: &Cluster,
    report: &mut Report,
) -> Option<Vec<Director>> {
    // All of them, so that every mistake is reported at once.
    let read: Vec<_> = tables
        .iter()
        .map(|table| director(table, cluster, report))
        .collect();
    let directors: Vec<Director> = read.into_iter().collect::<Option<_>>()?;
    let machines: Vec<&DirectorMachine> = directors.iter().flat_map(|one| &one.machines).collect();
    let mut is_right = true;
    for (place, machine) in machines.iter().enumerate() {
        let earlier = machines[..place].iter();
        let same =
            |one: &&&DirectorMachine| one.name == machine.name || one.control == machine.control;
        if let Some(other) = earlier.clone().find(same) {
            is_right = false;
            let table = tables.iter().find(|table| {
                let machines = table.values.get(DIRECTOR.machine).unwrap_or_default();
                machines.iter().any(|one| one.name == machine.name)
            });
            let span = table.map_or(0..0, |table| table.values.span_of(DIRECTOR.machine));
            report.add(
                Diagnostic::error(
                    format!(
                        "the machines {} and {} have one name or address",
                        other.name, machine.name
                    ),
                    span,
                )
                .help("give each machine its own name, and its own control = \"192.0.2.22:7600\""),
            );
        }
    }
    is_right.then_some(directors)
}

fn director(table: &NamedValues, cluster: &Cluster, report: &mut Report) -> Option<Director> {
    let values = &table.values;
    let mistakes = report.errors();
    let buckets = values.get(DIRECTOR.buckets);
    let buckets = buckets.and_then(|buckets| u32::try_from(buckets).ok());
    if let Some(wrong) = buckets.filter(|buckets| !buckets.is_power_of_two()) {
        report.add(
            Diagnostic::error("this is no power of two", values.span_of(DIRECTOR.buckets)).help(
                format!("write buckets = {}", wrong.next_power_of_two().min(65_536)),
            ),
        );
    }
    let times = (
        values.get(DIRECTOR.heartbeat),
        values.get(DIRECTOR.takeover_after),
    );
    if let (Some(heartbeat), Some(takeover_after)) = times
        && !(2 * heartbeat..=16 * heartbeat).contains(&takeover_after)
    {
        report.add(
            Diagnostic::error(
                "a takeover comes after 2 to 16 heartbeats",
                values.span_of(DIRECTOR.takeover_after),
            )
            .help(format!(
                "write takeover_after = \"{}\"",
                show_duration(heartbeat * 7 / 2)
            )),
        );
    }
    let tables = values.get(DIRECTOR.arm)?;
    let names: Vec<&str> = tables.iter().map(|arm| &arm.name[..]).collect();
    if names.is_empty() {
        report.add(
            Diagnostic::error("a director has an arm", values.span_of(DIRECTOR.arm)).help(format!(
                "add [orchestrator.director.{}.arm.inside] with side and shared",
                table.name
            )),
        );
    }
    let targets: Vec<Option<usize>> = tables
        .iter()
        .enumerate()
        .map(|(place, arm)| sends_to(place, arm, &names, report))
        .collect();
    let read: Vec<_> = tables
        .iter()
        .enumerate()
        .map(|(place, arm)| {
            let has_hosts = targets.contains(&Some(place));
            let to = targets[place];
            self::arm(arm, &table.name, has_hosts, to, cluster, report)
        })
        .collect();
    let arms: Option<Vec<DirectorArm>> = read.into_iter().collect();
    let machines = values.get(DIRECTOR.machine)?;
    if machines.is_empty() {
        report.add(
            Diagnostic::error(
                "a director runs on a machine",
                values.span_of(DIRECTOR.machine),
            )
            .help(format!(
                "add [orchestrator.director.{}.machine.one] with control and the interface of each arm",
                table.name
            )),
        );
    }
    let read: Vec<_> = machines
        .iter()
        .map(|one| machine(one, &table.name, &names, report))
        .collect();
    let machines: Option<Vec<DirectorMachine>> = read.into_iter().collect();
    let director = Director {
        name: table.name.clone(),
        buckets: buckets?,
        seed: values.get(DIRECTOR.seed)?,
        fragments: values.get(DIRECTOR.fragments)?,
        heartbeat: times.0?,
        takeover_after: times.1?,
        arms: arms?,
        machines: machines?,
    };
    (report.errors() == mistakes).then_some(director)
}

/// The number of the arm to which an arm's packets go. `None` if that is wrong.
fn sends_to(place: usize, arm: &NamedValues, names: &[&str], report: &mut Report) -> Option<usize> {
    let Some(to) = arm.values.get(ARM.sends_to) else {
        return arm.values.place(ARM.sends_to).is_none().then_some(place);
    };
    let found = names.iter().position(|name| *name == to);
    if found.is_none() {
        report.add(
            Diagnostic::error(
                format!("there is no arm \"{to}\""),
                arm.values.span_of(ARM.sends_to),
            )
            .help(format!(
                "choose {}",
                suggestion::quoted(names.iter().copied())
            )),
        );
    }
    found
}

fn arm(
    table: &NamedValues,
    director: &str,
    has_hosts: bool,
    sends_to: Option<usize>,
    cluster: &Cluster,
    report: &mut Report,
) -> Option<DirectorArm> {
    let values = &table.values;
    let mistakes = report.errors();
    let mut shared = Vec::new();
    for (prefix, span) in values.get(ARM.shared).unwrap_or_default() {
        let address = prefix.address();
        let is_one = prefix.length() == if prefix.is_ipv4() { 32 } else { 128 };
        if !is_one || address.is_multicast() || address.is_unspecified() {
            report.add(
                Diagnostic::error("a shared address is one of a single station", span)
                    .help("write an address, such as \"10.0.0.1\""),
            );
        }
        shared.push(address);
    }
    let via = values.get(ARM.via).unwrap_or_default();
    if has_hosts {
        let place = format!("orchestrator.director.{director}.arm.{}", table.name);
        let example = "{ address = \"10.0.0.11\" }";
        check_hops(
            &via,
            values.span_of(ARM.via),
            (&place, example),
            cluster,
            report,
        );
    } else if let Some(first) = via.first() {
        report.add(
            Diagnostic::error("no packets go on to hosts here", first.place.clone())
                .label("not used")
                .help("write these where `sends_to` leads, or leave them out"),
        );
    }
    let mut hops = Vec::new();
    for hop in &via {
        let (mac, address) = (
            hop.values.get(DIRECTOR_VIA.mac),
            hop.values.get(DIRECTOR_VIA.address),
        );
        let is_written = hop.values.place(DIRECTOR_VIA.mac).is_some()
            || hop.values.place(DIRECTOR_VIA.address).is_some();
        if !is_written {
            report.add(
                Diagnostic::error(
                    format!("nothing says where {} is", hop.name),
                    hop.place.clone(),
                )
                .help("write its address, which it answers ARP for, or its mac"),
            );
        }
        hops.push((hop.name.clone(), mac, address));
    }
    let arm = DirectorArm {
        name: table.name.clone(),
        side: values.get(ARM.side)?,
        by: values.get(ARM.by)?,
        shared,
        sends_to: sends_to?,
        hops,
    };
    (report.errors() == mistakes).then_some(arm)
}

fn machine(
    table: &NamedValues,
    director: &str,
    arms: &[&str],
    report: &mut Report,
) -> Option<DirectorMachine> {
    let values = &table.values;
    let mistakes = report.errors();
    let control = values.get(MACHINE.control);
    if let Some(control) = control.filter(|one| one.port() == 0 || one.ip().is_unspecified()) {
        report.add(
            Diagnostic::error(
                format!("orchestrators cannot send to {control}"),
                values.span_of(MACHINE.control),
            )
            .help("write the machine's address and a port, such as \"192.0.2.21:7600\""),
        );
    }
    let plugs = values.get(MACHINE.arm).unwrap_or_default();
    for plug in plugs.iter().filter(|plug| !arms.contains(&&plug.name[..])) {
        report.add(
            Diagnostic::error(
                format!("there is no arm \"{}\"", plug.name),
                plug.place.clone(),
            )
            .help(format!(
                "choose {}",
                suggestion::quoted(arms.iter().copied())
            )),
        );
    }
    let mut opened = Vec::new();
    for arm in arms {
        match plugs.iter().find(|plug| plug.name == *arm) {
            Some(plug) => opened.push(port(plug, report)),
            None => report.add(
                Diagnostic::error(
                    format!("{} has no interface for the arm {arm}", table.name),
                    values.span_of(MACHINE.arm),
                )
                .help(format!(
                    "add arm.{arm} = {{ interface = \"eth0\" }} to [orchestrator.director.{director}.machine.{}]",
                    table.name
                )),
            ),
        }
    }
    let plugs: Vec<DirectorPort> = opened.into_iter().collect::<Option<_>>()?;
    for (place, plug) in plugs.iter().enumerate() {
        let earlier = &plugs[..place];
        if earlier.iter().any(|one| one.interface == plug.interface) {
            report.add(
                Diagnostic::error(
                    format!("two arms are the interface {}", plug.interface),
                    table.place.clone(),
                )
                .help("give each arm an interface of its own, or leave one arm out"),
            );
        }
    }
    let machine = DirectorMachine {
        name: table.name.clone(),
        control: control?,
        plugs,
    };
    (report.errors() == mistakes).then_some(machine)
}

fn port(table: &NamedValues, report: &mut Report) -> Option<DirectorPort> {
    let values = &table.values;
    let mistakes = report.errors();
    let (kind, exclusive) = (values.get(PLUG.kind)?, values.get(PLUG.exclusive)?);
    if !matches!(kind, PortKind::AfPacket | PortKind::AfXdp) {
        report.add(
            Diagnostic::error(
                format!("a director has no port of the kind `{}`", kind.word()),
                values.span_of(PLUG.kind),
            )
            .help("write kind = \"af_packet\" or \"af_xdp\""),
        );
    }
    if exclusive && kind == PortKind::AfXdp {
        report.add(
            Diagnostic::error(
                "the kernel sees nothing of an `af_xdp` port anyway",
                values.span_of(PLUG.exclusive),
            )
            .help("leave exclusive out"),
        );
    }
    let ring = values.get(PLUG.ring);
    if let Some(wrong) = ring.filter(|ring| !ring.is_power_of_two()) {
        report.add(
            Diagnostic::error("this is no power of two", values.span_of(PLUG.ring))
                .help(format!("write ring = {}", wrong.next_power_of_two())),
        );
    }
    let port = DirectorPort {
        interface: values.get(PLUG.interface)?,
        kind,
        ring_frames: usize::try_from(ring?).ok()?,
        exclusive,
        address: values.get(PLUG.address),
    };
    (report.errors() == mistakes).then_some(port)
}
