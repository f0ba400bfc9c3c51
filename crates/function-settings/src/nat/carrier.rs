//! The settings of a carrier: pools, quotas, blocks of ports, quarantines and the log (RFC 6888).

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;

use asterism_functions::ipfix::Export;
use asterism_functions::nat::{
    self, AddressPool, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, NatConfig,
    OUTSIDE_ADDRESSES_MAX, PortBlocks, PortControl, PortQuarantine, SUBSCRIBERS_MAX,
    SubscriberLimits,
};
use asterism_state::BLOCK_ITEMS;

use super::fields::SETTINGS;
use super::made::seconds as ticks;
use super::networks_of;
use crate::described::{check_whole_seconds, count, seconds};
use crate::export::{export, export_protocol};
use asterism_notation::network::{Ports, Prefix};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::Kind;
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// What a carrier sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarrierSettings {
    /// Outside addresses for some of the inside.
    pub pools: Vec<PoolSettings>,
    /// What each subscriber may have.
    pub subscribers: SubscriberLimits,
    /// Ports are given out in blocks.
    pub blocks: Option<PortBlocks>,
    /// How long ports rest before they are granted again.
    pub port_quarantine: PortQuarantine,
    /// Where the log goes.
    pub log: LogSettings,
    /// How long mappings live that inside hosts ask for, if they may.
    pub port_control: Option<Duration>,
}

impl CarrierSettings {
    /// The first setting for which every instance counts every session.
    #[must_use]
    pub fn counts_sessions(&self) -> Option<&'static str> {
        let counts = [
            ("subscribers", self.subscribers.is_counted()),
            ("blocks", self.blocks.is_some()),
            ("log", self.log.is_on()),
            ("port_quarantine", self.port_quarantine.seconds != 0),
        ];
        counts.into_iter().find(|one| one.1).map(|one| one.0)
    }
}

/// Outside addresses for some of the inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Whose.
    pub inside: Vec<Prefix>,
    /// Which.
    pub outside: Vec<Prefix>,
}

/// Where blocks, or else bindings, are logged to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogSettings {
    /// The file of JSON lines, as written.
    pub file: Option<PathBuf>,
    /// The collector, over UDP.
    pub collector: Option<SocketAddr>,
    /// By which protocol.
    pub protocol: Export,
}

impl LogSettings {
    /// Whether anything is logged.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.collector.is_some()
    }
}

impl PoolSettings {
    /// Its addresses: every one of its networks, the first and the last included.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        let bits = |prefix: &Prefix| {
            let mask = u32::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
            let first = prefix.address.to_bits() & !mask;
            (first, first | mask)
        };
        let ranges = self.outside.iter().map(bits);
        // One more than may be is enough to be refused.
        ranges
            .flat_map(|(first, last)| (first..=last).take(OUTSIDE_ADDRESSES_MAX + 1))
            .map(Ipv4Addr::from_bits)
    }
}

section! {
    pub(super) static PORT_CONTROL: PortControlKeys = {
        path: "function.nat.port_control",
        meaning: "Mappings that inside hosts request by the Port Control Protocol. `state.mappings` bounds their number.",
        fields: {
            lifetime: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_secs(PortControl::LIFETIMES.0 as u64),
                    most: Duration::from_secs(PortControl::LIFETIMES.1 as u64),
                },
                default: Default::Is("\"2h\""),
                meaning: "The lifetime of a mapping that its host does not renew, whatever lifetime it requested, in whole seconds (RFC 6887, section 15).",
            },
        },
    };
}

section! {
    pub(super) static POOL: PoolKeys = {
        path: "function.nat.pools",
        meaning: "Outside addresses for some of the inside networks. Of several pools the one with the longest network counts.",
        fields: {
            inside: List<Prefix> = Setting {
                kind: Kind::List {
                    of: &Kind::Prefix,
                    most: 64,
                },
                default: Default::Required("[\"10.1.0.0/16\"]"),
                meaning: "The inside networks that use this pool; within `inside` of the NAT.",
            },
            outside: List<Prefix> = Setting {
                kind: Kind::List {
                    of: &Kind::Prefix,
                    most: OUTSIDE_ADDRESSES_MAX,
                },
                default: Default::Required("[\"203.0.113.16/28\"]"),
                meaning: "Addresses, and networks of which every address is used. With `outside` 255 addresses at most.",
            },
        },
    };
}

section! {
    pub(super) static SUBSCRIBERS: SubscribersKeys = {
        path: "function.nat.subscribers",
        meaning: "What a subscriber is, and the limits of each over all hosts together.",
        fields: {
            prefix: u64 = count(
                (8, 32),
                Default::Is("32"),
                "Leading bits of an inside address that distinguish subscribers.",
            ),
            ports: u64 = count(
                (1, 1 << 18),
                Default::Unset("as many as there are"),
                "The most outside ports in use, for each protocol separately. Hosts may exceed it together by the grants that each has not yet received from the others.",
            ),
            new_sessions: u64 = Setting {
                kind: Kind::Rate {
                    least: 1,
                    most: 1_000_000,
                },
                default: Default::Unset("any number"),
                meaning: "The most new sessions, with `burst` at once.",
            },
            burst: u64 = count(
                (1, 60_000_000),
                Default::Is("100"),
                "The most new sessions at once, where `new_sessions` limits them: those of a minute at most.",
            ),
            most: u64 = count(
                (64, SUBSCRIBERS_MAX as u64),
                Default::Is("65_536"),
                "The most subscribers that are counted; further ones are refused. Each instance uses 80 bytes for each, for a power of two, where there is a quota or blocks.",
            ),
        },
    };
}

section! {
    pub(super) static BLOCKS: BlocksKeys = {
        path: "function.nat.blocks",
        meaning: "Blocks of ports. All blocks of a subscriber belong to one outside address.",
        fields: {
            ports: u64 = count(
                (BLOCK_ITEMS as u64, BLOCK_PORTS_MAX as u64),
                Default::Is("512"),
                "Ports in a block: a multiple of 64, at least 64 for each instance of the cluster.",
            ),
            most: u64 = count(
                (1, BLOCKS_PER_SUBSCRIBER_MAX as u64),
                Default::Is("4"),
                "The most blocks of a subscriber.",
            ),
        },
    };
}

section! {
    pub(super) static PORT_REST: PortRestKeys = {
        path: "function.nat.port_quarantine",
        meaning: "The quarantine of ports of UDP and ICMP, and of blocks, before they are granted again.",
        fields: {
            time: Duration = seconds(0, "\"2m\"", "The quarantine, in whole seconds; \"0s\": none."),
            ports: u64 = count(
                (1, 1 << 24),
                Default::Is("65_536"),
                "The most ports in quarantine, at each instance. Beyond it the first ones are granted early, counted.",
            ),
        },
    };
}

section! {
    pub(super) static LOG: LogKeys = {
        path: "function.nat.log",
        meaning: "Where `asterism run` logs the subscriber of each port block, or else of each port.",
        fields: {
            file: String = Setting {
                kind: Kind::File,
                default: Default::Unset("no file is written"),
                meaning: "A file to which lines of JSON are appended. It is opened for each write and may be renamed at any time.",
            },
            collector: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("nothing is exported"),
                meaning: "The UDP address to which NAT events are sent (RFC 8158).",
            },
            protocol: ChosenWord = export_protocol(),
        },
    };
}

/// The pools as they are written; those that were not read are left out.
pub(super) fn pools(values: &Values) -> Vec<(PoolSettings, Values)> {
    let list = values.get(SETTINGS.pools).unwrap_or_default().into_iter();
    list.filter_map(|(table, _)| {
        let pool = PoolSettings {
            inside: networks_of(&table, POOL.inside)?,
            outside: networks_of(&table, POOL.outside)?,
        };
        Some((pool, table))
    })
    .collect()
}

/// Reads what a carrier sets, and says what contradicts.
pub(super) fn read(values: &Values, report: &mut Report) -> Option<CarrierSettings> {
    check_pools(values, report);
    check_limits(values, report);
    let subscribers = values.get(SETTINGS.subscribers)?;
    let narrow = |table: &Values, field| u32::try_from(table.get(field)?).ok();
    let short = |table: &Values, field| u16::try_from(table.get(field)?).ok();
    let (rest, log) = (
        values.get(SETTINGS.port_quarantine)?,
        values.get(SETTINGS.log)?,
    );
    let new_sessions = subscribers.get(SUBSCRIBERS.new_sessions);
    Some(CarrierSettings {
        pools: pools(values).into_iter().map(|(pool, _)| pool).collect(),
        subscribers: SubscriberLimits {
            prefix_length: u8::try_from(subscribers.get(SUBSCRIBERS.prefix)?).ok()?,
            ports_max: narrow(&subscribers, SUBSCRIBERS.ports).unwrap_or(0),
            sessions_per_second: new_sessions.map_or(0, |rate| rate as u32),
            sessions_burst: narrow(&subscribers, SUBSCRIBERS.burst)?,
            count_max: narrow(&subscribers, SUBSCRIBERS.most)?,
        },
        blocks: match values.get(SETTINGS.blocks) {
            None => None,
            Some(blocks) => Some(PortBlocks {
                ports: short(&blocks, BLOCKS.ports)?,
                per_subscriber_max: short(&blocks, BLOCKS.most)?,
            }),
        },
        port_quarantine: PortQuarantine {
            seconds: ticks(rest.get(PORT_REST.time)?),
            ports_max: narrow(&rest, PORT_REST.ports)?,
        },
        log: LogSettings {
            file: log.get(LOG.file).map(PathBuf::from),
            collector: log.get(LOG.collector),
            protocol: export(log.get(LOG.protocol)?),
        },
        port_control: match values.get(SETTINGS.port_control) {
            None => None,
            Some(control) => Some(control.get(PORT_CONTROL.lifetime)?),
        },
    })
}

fn check_pools(values: &Values, report: &mut Report) {
    let inside = networks_of(values, SETTINGS.inside).unwrap_or_default();
    let all = pools(values);
    let outside = super::addresses(values).unwrap_or_default();
    let mut known: Vec<Ipv4Addr> = outside.into_iter().map(|(address, _)| address).collect();
    for (place, (pool, table)) in all.iter().enumerate() {
        for (field, networks) in [(POOL.inside, &pool.inside), (POOL.outside, &pool.outside)] {
            if networks.is_empty() {
                report.add(
                    Diagnostic::error(format!("`{field}` is empty"), table.span_of(field))
                        .help("name at least one network"),
                );
            }
        }
        for network in &pool.inside {
            let is_inside =
                |one: &Prefix| one.length <= network.length && one.contains(network.address);
            if !inside.is_empty() && !inside.iter().any(is_inside) {
                report.add(
                    Diagnostic::error(
                        format!("the pool's network {network} is not inside"),
                        table.span_of(POOL.inside),
                    )
                    .also(
                        values.span_of(SETTINGS.inside),
                        "the networks that are translated",
                    )
                    .help("use a part of one of them, or add it there"),
                );
            }
            let mut earlier = all[..place].iter();
            let first = earlier.find(|(other, _)| other.inside.contains(network));
            if let Some((_, first)) = first {
                report.add(
                    Diagnostic::error(
                        format!("two pools are for {network}"),
                        table.span_of(POOL.inside),
                    )
                    .also(first.span_of(POOL.inside), "first here")
                    .help("leave it out of one of the two"),
                );
            }
        }
        for address in pool.addresses() {
            if known.contains(&address) {
                report.add(
                    Diagnostic::error(
                        format!("outside address {address} is in `outside` or a pool already"),
                        table.span_of(POOL.outside),
                    )
                    .help("leave it out of one of the two"),
                );
                break;
            }
            if !super::is_host(address) || inside.iter().any(|one| one.contains(address)) {
                report.add(
                    Diagnostic::error(
                        format!("{address} cannot be an outside address"),
                        table.span_of(POOL.outside),
                    )
                    .help(
                        "write unicast addresses that are routed to these hosts and are not inside",
                    ),
                );
                break;
            }
            known.push(address);
            if known.len() > OUTSIDE_ADDRESSES_MAX {
                report.add(
                    Diagnostic::error(
                        format!("there are more than {OUTSIDE_ADDRESSES_MAX} outside addresses"),
                        table.span_of(POOL.outside),
                    )
                    .help("write longer prefixes, or give some of the inside networks to another cluster"),
                );
                return;
            }
        }
    }
}

fn check_limits(values: &Values, report: &mut Report) {
    if let Some(control) = values.get(SETTINGS.port_control) {
        check_whole_seconds(&control, PORT_CONTROL.lifetime, report);
    }
    if let Some(subscribers) = values.get(SETTINGS.subscribers)
        && let (Some(rate), Some(burst)) = (
            subscribers.get(SUBSCRIBERS.new_sessions),
            subscribers.get(SUBSCRIBERS.burst),
        )
        && burst > rate * 60
    {
        let place = if subscribers.place(SUBSCRIBERS.burst).is_some() {
            SUBSCRIBERS.burst
        } else {
            SUBSCRIBERS.new_sessions
        };
        report.add(
            Diagnostic::error(
                format!("{burst} sessions at once are more than {rate} a second make in a minute"),
                subscribers.span_of(place),
            )
            .help(format!("write a `burst` of {} at most", rate * 60)),
        );
    }
    let Some(rest) = values.get(SETTINGS.port_quarantine) else {
        return;
    };
    check_whole_seconds(&rest, PORT_REST.time, report);
    let Some(blocks) = values.get(SETTINGS.blocks) else {
        return;
    };
    if let Some(ports) = blocks.get(BLOCKS.ports)
        && !ports.is_multiple_of(BLOCK_ITEMS.into())
    {
        let next = ports.next_multiple_of(BLOCK_ITEMS.into());
        report.add(
            Diagnostic::error(
                format!("{ports} is no multiple of {BLOCK_ITEMS}"),
                blocks.span_of(BLOCKS.ports),
            )
            .help(format!("write {}", next.min(BLOCK_PORTS_MAX.into()))),
        );
    }
    let least = Duration::from_secs(BLOCK_REST_LEAST_S.into());
    if rest.get(PORT_REST.time).is_some_and(|time| time < least) {
        report.add(
            Diagnostic::error("blocks need a quarantine", rest.span_of(PORT_REST.time))
                .label("a packet may still wait with a granted port of the block")
                .help(format!("write \"{BLOCK_REST_LEAST_S}s\" or more")),
        );
    }
}

impl CarrierSettings {
    /// Says so when blocks are too small, or too few, for so many instances.
    pub(super) fn check(
        &self,
        ports: Ports,
        addresses: usize,
        instances: usize,
        values: &Values,
        report: &mut Report,
    ) {
        let (Some(blocks), Some(table)) = (self.blocks, values.get(SETTINGS.blocks)) else {
            return;
        };
        let size = u32::from(blocks.ports);
        if (size as usize) < instances * BLOCK_ITEMS as usize {
            report.add(
                Diagnostic::error(
                    "a block has too few ports for every instance to have some of it",
                    table.span_of(BLOCKS.ports),
                )
                .label(format!("{size} ports for {instances} instances"))
                .help(format!(
                    "write {} or more",
                    instances * BLOCK_ITEMS as usize
                )),
            );
        }
        let count = (ports.count() / size.max(1)) as usize * addresses;
        if count < instances {
            report.add(
                Diagnostic::error(
                    "there are too few blocks for every instance to give one out",
                    table.span_of(BLOCKS.ports),
                )
                .label(format!("{count} blocks for {instances} instances"))
                .help("write smaller blocks, or add outside addresses"),
            );
        }
    }

    /// Puts it into the NAT's own words.
    pub(super) fn put(&self, config: &mut NatConfig) {
        for pool in &self.pools {
            config.outside_addresses.extend(pool.addresses());
        }
        let prefix = |one: &Prefix| nat::Prefix::new(one.address, one.length);
        let pools = self.pools.iter().map(|pool| AddressPool {
            inside: pool.inside.iter().map(prefix).collect(),
            outside: pool.addresses().collect(),
        });
        config.pools = pools.collect();
        config.subscribers = self.subscribers;
        config.blocks = self.blocks;
        config.port_quarantine = self.port_quarantine;
        config.log = self.log.is_on();
        config.port_control = self.port_control.map(|lifetime| PortControl {
            lifetime: ticks(lifetime),
            ..PortControl::DEFAULT
        });
    }

    /// In words, behind those of the NAT.
    pub(super) fn words(&self) -> String {
        let mut text = String::new();
        match self.pools.len() {
            0 => {}
            1 => text.push_str(", 1 pool"),
            count => text.push_str(&format!(", {count} pools")),
        }
        if let Some(blocks) = self.blocks {
            text.push_str(&format!(
                ", {} blocks of {} ports a subscriber at most",
                blocks.per_subscriber_max, blocks.ports
            ));
        }
        if self.subscribers.ports_max != 0 {
            let most = self.subscribers.ports_max;
            text.push_str(&format!(", {most} ports a subscriber at most"));
        }
        if self.port_control.is_some() {
            text.push_str(", hosts may ask for ports");
        }
        text
    }
}
