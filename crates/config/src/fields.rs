//! Every table and field of the configuration: the one definition behind reading, messages and the reference.

use core::net::SocketAddr;
use core::time::Duration;

use asterism_placement::membership::MEMBERS_MAX;
use asterism_placement::replicated;

use super::cluster;
pub(crate) use super::host::HOST;
pub(crate) use super::orchestrator::ORCHESTRATOR;
pub(crate) use super::port::PORTS;
use super::release::HOLD;
use super::store::fields::STORE;
use super::tenants::TENANT;
use asterism_function_settings::{ACKED, AT_ONCE, Described, Functions, STAGE};
use asterism_notation::value;
use asterism_toml_schema::Schema;
use asterism_toml_schema::kind::{Kind, NamedValues, Word};
use asterism_toml_schema::reference::{self, SectionDocument};
use asterism_toml_schema::section::{ChosenWord, Default, List, Section, Setting, Values, section};

const fn duration(least: Duration, most: Duration) -> Kind {
    Kind::Duration { least, most }
}
/// Orchestrators of a cluster at most.
pub const ORCHESTRATORS_MAX: usize = 8;
const MICROSECOND: Duration = Duration::from_micros(1);

section! {
    /// The cluster: what all its hosts have in common.
    pub(crate) static CLUSTER: ClusterKeys = {
        path: "cluster",
        meaning: "The settings that all hosts of the cluster share, identical on every host.",
        fields: {
            name: String = Setting {
                kind: Kind::Name,
                default: Default::Is("\"asterism\""),
                meaning: "The cluster's name. Messages of a cluster of another name are refused.",
            },
            key: String = Setting {
                kind: Kind::File,
                default: Default::Unset(
                    "hosts in one process draw a key for that run; hosts in several processes cannot communicate",
                ),
                meaning: "The file with the key that all hosts share (`asterism keygen` writes it), or with several keys during a change (`asterism key`). Its mode must be 0600.",
            },
            epochs: String = Setting {
                kind: Kind::File,
                default: Default::Unset(
                    "all members take part, each in the first incarnation received; no member can restart while others run",
                ),
                meaning: "The epoch file: the participating members and their incarnations. With it members can join, leave and restart. `asterism epoch` writes it.",
            },
            orchestrators: List<SocketAddr> = Setting {
                kind: Kind::List {
                    of: &Kind::Socket,
                    most: ORCHESTRATORS_MAX,
                },
                default: Default::Is("[]"),
                meaning: "The UDP addresses of the orchestrators, which hosts send heartbeats to and are handed epochs by. A host then begins only an incarnation that was handed to its process, and keeps the epoch in the file `epochs`. Without any, the operator hands epochs.",
            },
            heartbeat: Duration = Setting {
                kind: duration(Duration::from_millis(10), Duration::from_secs(1)),
                default: Default::Is("\"50ms\""),
                meaning: "Time between two heartbeats of a host to an orchestrator. The same on all hosts and orchestrators.",
            },
            port_lease: Duration = Setting {
                kind: duration(Duration::from_secs(1), Duration::from_secs(7 * 86_400)),
                default: Default::Unset(
                    "a host grants ports as long as it runs; ports of a member left out by an epoch are reassigned only if the epoch says that the member is certainly dead",
                ),
                meaning: "How long a host keeps granting ports while more than half of all members do not answer. Afterwards it grants none; one idle time later it handles no packets. After one more idle time, members of an epoch without the host may have its ports, although its death is not known. The same on all hosts.",
            },
            places: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: MEMBERS_MAX as u64,
                },
                default: Default::Unset("`members` lists all hosts"),
                meaning: "How many hosts the cluster can have, instead of `members`. A host then registers with the orchestrators, by its name and its address in [host], and gets one of so many places. The same on every host.",
            },
            members: List<String> = Setting {
                kind: Kind::List {
                    of: &Kind::Name,
                    most: MEMBERS_MAX,
                },
                default: Default::Is("[\"a\"]"),
                meaning: "The names of all hosts, in the same order on every host: leased blocks are assigned by position in this list.",
            },
            member: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: MEMBER.section(),
                    most: MEMBERS_MAX,
                },
                default: Default::Is("{}"),
                meaning: "A table for each member. Needed when hosts are separate processes.",
            },
            release: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[AT_ONCE, ACKED],
                    refused: &[],
                },
                default: Default::Is("\"at-once\""),
                meaning: "When packets leave that depend on the newest state. Objects may say otherwise.",
            },
            hold: Values = Setting {
                kind: Kind::Table(HOLD.section()),
                default: Default::Is("{}"),
                meaning: "How packets are held back with `release = \"acked\"`.",
            },
            channel: Values = Setting {
                kind: Kind::Table(CHANNEL.section()),
                default: Default::Is("{}"),
                meaning: "How hosts exchange updates.",
            },
        },
    };
}

section! {
    /// One member.
    pub(crate) static MEMBER: MemberKeys = {
        path: "cluster.member.NAME",
        meaning: "A member's address and site. The table's name is the member's name, as in `members`.",
        fields: {
            address: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Required("\"192.0.2.1:7400\""),
                meaning: "The UDP address at which the member's state channel listens for other members.",
            },
            site: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("all members are in one site"),
                meaning: "The member's site. A datagram for all members goes to each other site once; a relay there distributes it. Set for all members or none; at most 16 sites.",
            },
        },
    };
}

/// What holds for one host only.
pub static ON: Section = Section {
    path: "on.NAME",
    meaning: "Settings of one member, so that all hosts can share one file. Tables [on.NAME.host], [on.NAME.port] and [on.NAME.function] override those without `on.NAME`, field by field.",
    fields: &[],
};

section! {
    /// The state channel.
    pub(crate) static CHANNEL: ChannelKeys = {
        path: "cluster.channel",
        meaning: "The state channel, by which hosts exchange updates. The defaults suit a LAN and a WAN.",
        fields: {
            mtu: u64 = Setting {
                kind: Kind::Size {
                    least: cluster::MTU_MIN,
                    most: cluster::MTU_LIMIT,
                },
                default: Default::Is("\"1500B\""),
                meaning: "The smallest MTU between hosts. State messages are never fragmented.",
            },
            log_max: u64 = Setting {
                kind: Kind::Size {
                    least: (4 * replicated::GROUP_BYTES_MAX) as u64,
                    most: replicated::LOG_BYTES_LIMIT as u64,
                },
                default: Default::Is("\"8MiB\""),
                meaning: "The size of the log, which keeps updates until every host has acknowledged them. About a second of writes; reserved at the start.",
            },
            log_groups_max: u64 = Setting {
                kind: Kind::Count {
                    least: 4,
                    most: replicated::GROUPS_LIMIT as u64,
                },
                default: Default::Is("262_144"),
                meaning: "The most updates in the log. 8 bytes each.",
            },
            reorder_groups_max: u64 = Setting {
                kind: Kind::Count {
                    least: 64,
                    most: replicated::GROUPS_LIMIT as u64,
                },
                default: Default::Is("16_384"),
                meaning: "How far above a gap an update may be and still be kept. The same on every host.",
            },
            unapplied_groups_max: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: replicated::GROUPS_LIMIT as u64,
                },
                default: Default::Is("262_144"),
                meaning: "The most updates of one host that wait to be applied at another. The same on every host.",
            },
            keep_alive: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"20ms\""),
                meaning: "The longest silence: an idle host sends acknowledgements this often.",
            },
            retransmit_min: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"2ms\""),
                meaning: "The shortest time before an unacknowledged update is retransmitted.",
            },
            retransmit_max: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"1s\""),
                meaning: "The longest time before a retransmission; retransmission never gives up. At least `retransmit_min`.",
            },
            acknowledge_delay: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"500us\""),
                meaning: "The longest that an acknowledgement is delayed to share a message.",
            },
            lookahead: Duration = Setting {
                kind: duration(Duration::ZERO, replicated::DURATION_LIMIT),
                default: Default::Is("\"0s\""),
                meaning: "How long an update may wait for others to fill its message. Longer means fewer messages and more lag.",
            },
            coalescing_max: Duration = Setting {
                kind: duration(Duration::ZERO, replicated::COALESCING_LIMIT),
                default: Default::Is("\"50ms\""),
                meaning: "How long counters and sketches may hold back changes while the path is congested, so that repeated changes travel once. Zero: never.",
            },
            congested_above: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"2ms\""),
                meaning: "A path is congested when its average round trip exceeds the recent minimum by this time plus a quarter of the minimum.",
            },
            silent_after: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Is("\"1s\""),
                meaning: "A host that is silent for this long while the log is full no longer delays the others; later it is sent a whole snapshot.",
            },
            delivery: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "ordered",
                            meaning: "Updates of one host are applied in the order in which that host made them.",
                        },
                        Word {
                            word: "unordered",
                            meaning: "Updates are applied on arrival, each once; a lost message delays no other.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"ordered\""),
                meaning: "The order in which updates of one host are applied.",
            },
            multicast: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("each datagram for all members is sent to every member"),
                meaning: "A multicast group of the site, and a port: datagrams for all members are sent once. The network must carry multicast.",
            },
            interface: String = Setting {
                kind: Kind::Device,
                default: Default::Unset("needed with `multicast`, refused without"),
                meaning: "The interface for multicast, in both directions.",
            },
            relay_silent_after: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Unset("\"300ms\" where members have sites"),
                meaning: "A relay, or a member behind a relay, that proves no reception for this long plus two round trips gets its datagrams directly. Less than four keep-alives counts as four.",
            },
            relay_bundle: Duration = Setting {
                kind: duration(Duration::ZERO, replicated::DURATION_LIMIT),
                default: Default::Unset("\"2ms\" where members have sites"),
                meaning: "How long a relay holds acknowledgements of its site, to send them to the other sites together.",
            },
            relay_cache: u64 = Setting {
                kind: Kind::Size {
                    least: 0,
                    most: replicated::CACHE_BYTES_LIMIT as u64,
                },
                default: Default::Unset("\"4MiB\" where members have sites"),
                meaning: "How much relayed traffic a relay keeps for members of its site that lack some; the oldest goes first. \"0B\": none, and this host requests nothing from its relay.",
            },
            relay_cache_age: Duration = Setting {
                kind: duration(MICROSECOND, replicated::DURATION_LIMIT),
                default: Default::Unset("\"500ms\" where members have sites"),
                meaning: "The longest that a relay keeps relayed traffic.",
            },
            receive_buffer: u64 = Setting {
                kind: Kind::Size {
                    least: 1 << 16,
                    most: 1 << 30,
                },
                default: Default::Is("\"16MiB\""),
                meaning: "The kernel's buffer for received datagrams that are not yet read. Drops beyond it are counted.",
            },
            send_buffer: u64 = Setting {
                kind: Kind::Size {
                    least: 1 << 16,
                    most: 1 << 30,
                },
                default: Default::Is("\"4MiB\""),
                meaning: "The kernel's buffer for datagrams that are not yet sent.",
            },
            bandwidth_max: u64 = Setting {
                kind: Kind::Size {
                    least: 8 << 10,
                    most: 100 << 30,
                },
                default: Default::Unset("no cap"),
                meaning: "The most bytes a second that this host sends on the state channel. Beyond it updates wait, and lag grows.",
            },
            offload: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether datagrams are passed to the kernel in batches (UDP segmentation and receive offload). Stays off where the kernel has none.",
            },
        },
    };
}

/// All tables, in the order of the reference.
pub fn sections(functions: Functions) -> impl Iterator<Item = &'static Section> {
    let mut all = Vec::new();
    for section in [
        CLUSTER.section(),
        HOST.section(),
        PORTS.section(),
        STORE.section(),
        ORCHESTRATOR.section(),
    ] {
        all.extend(section.with_inner());
    }
    all.push(&ON);
    all.push(STAGE.section());
    all.push(TENANT.section());
    for function in functions.all() {
        all.extend(of_function(function));
    }
    all.into_iter()
}

/// What a file may have, for suggestions. Tables of state objects are left out: a misplaced field is hardly meant for one of them.
pub(crate) fn schema(functions: Functions) -> Schema {
    Schema {
        sections: sections(functions)
            .filter(|section| !section.path.contains(".state."))
            .collect(),
        top_fields: &["chain"],
    }
}

/// The tables of a function.
pub fn of_function(function: &Described) -> Vec<&'static Section> {
    let mut all = function.settings.with_inner();
    all.extend(function.objects.iter().map(|object| object.section));
    all
}

/// The reference of all tables and fields.
#[must_use]
pub fn reference(functions: Functions) -> Vec<SectionDocument> {
    reference::reference(sections(functions))
}

/// The reference as text.
#[must_use]
pub fn reference_text(functions: Functions) -> String {
    reference::reference_text(sections(functions))
}

/// A duration as messages show it.
pub(super) fn shown(duration: Duration) -> String {
    value::show_duration(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_says_what_it_means_and_names_are_unique() {
        let mut paths: Vec<_> = sections(Functions::default())
            .map(|section| section.path)
            .collect();
        let count = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count);
        for section in sections(Functions::default()) {
            assert!(section.meaning.ends_with('.'), "{}", section.path);
            for field in section.fields {
                assert!(
                    field.meaning.ends_with('.'),
                    "{}.{}",
                    section.path,
                    field.name
                );
                let twice = section
                    .fields
                    .iter()
                    .filter(|other| other.name == field.name)
                    .count();
                assert_eq!(twice, 1, "{}.{}", section.path, field.name);
            }
        }
    }

    /// The tables of a function are below its own, by its name.
    #[test]
    fn tables_of_functions_are_named_after_them() {
        for function in Functions::default().all() {
            let own = format!("function.{}", function.name);
            for section in of_function(function) {
                let below = section.path.strip_prefix(&own);
                let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                assert!(is_below, "{} is not below {own}", section.path);
            }
        }
    }

    /// The bounds are the protocol's own: its limits are accepted by it, and what is beyond them is not.
    #[test]
    fn channel_bounds_are_the_protocols() {
        let protocol = |change: &dyn Fn(&mut replicated::Config)| {
            use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId};
            let mut config = replicated::Config::new(
                ClusterId(1),
                Epoch(1),
                MemberId(1),
                Incarnation(1),
                vec![MemberId(1)],
            );
            (config.retransmit_min, config.retransmit_max) =
                (MICROSECOND, replicated::DURATION_LIMIT);
            let sites = vec![(MemberId(1), replicated::SiteId(0))];
            config.sites = Some(replicated::SitesConfig::new(sites));
            change(&mut config);
            config.errors().is_empty()
        };
        let mut checked = 0;
        for field in CHANNEL.section().fields {
            if matches!(
                field.name,
                "receive_buffer" | "send_buffer" | "bandwidth_max"
            ) {
                continue; // the kernel's, not the protocol's
            }
            let (least, most) = match field.kind {
                Kind::Size { least, most } | Kind::Count { least, most } => (least, most),
                Kind::Duration { least, most } => (least.as_nanos() as u64, most.as_nanos() as u64),
                _ => continue,
            };
            let set = |value: u64| {
                protocol(&|config| match field.name {
                    "relay_silent_after" => {
                        let sites = config.sites.as_mut().unwrap();
                        sites.silent_after = Duration::from_nanos(value);
                    }
                    "relay_bundle" => {
                        let sites = config.sites.as_mut().unwrap();
                        sites.bundle_delay = Duration::from_nanos(value);
                    }
                    "relay_cache" => {
                        let sites = config.sites.as_mut().unwrap();
                        sites.cache_bytes_max = value as usize;
                    }
                    "relay_cache_age" => {
                        let sites = config.sites.as_mut().unwrap();
                        sites.cache_age_max = Duration::from_nanos(value);
                    }
                    "mtu" => {
                        let around = cluster::MTU_LIMIT - replicated::PAYLOAD_BYTES_LIMIT as u64;
                        config.payload_bytes_max = (value - around) as usize
                    }
                    "log_max" => config.log_bytes_max = value as usize,
                    "log_groups_max" => config.log_groups_max = value as usize,
                    "reorder_groups_max" => config.reorder_groups_max = value as usize,
                    "unapplied_groups_max" => config.unapplied_groups_max = value as usize,
                    "keep_alive" => config.keep_alive = Duration::from_nanos(value),
                    "retransmit_min" => config.retransmit_min = Duration::from_nanos(value),
                    "retransmit_max" => config.retransmit_max = Duration::from_nanos(value),
                    "acknowledge_delay" => config.acknowledge_delay = Duration::from_nanos(value),
                    "lookahead" => config.lookahead = Duration::from_nanos(value),
                    "coalescing_max" => config.coalescing_max = Duration::from_nanos(value),
                    "congested_above" => config.congested_above = Duration::from_nanos(value),
                    "silent_after" => config.silent_after = Duration::from_nanos(value),
                    other => panic!("{other} is not compared"),
                })
            };
            assert!(set(least) && set(most), "{} accepts its bounds", field.name);
            // The protocol could do with less than the least MTU of IPv6 links, which bounds `mtu`.
            let is_below_refused = least == 0 || field.name == "mtu" || !set(least - 1);
            assert!(
                is_below_refused && !set(most + 1),
                "{} refuses what is beyond",
                field.name
            );
            checked += 1;
        }
        assert_eq!(checked, 17);
    }
}
