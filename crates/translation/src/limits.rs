//! A carrier's settings for its subscribers: pools of outside addresses, quotas, blocks of ports, quarantine (RFC 6888).
//! Plain values, with the list of their mistakes.

use core::net::Ipv4Addr;

use asterism_forwarding::{Faults, Prefix};
use asterism_function::Tick;
use asterism_function::objects::BLOCK_ITEMS;

use crate::config::NatConfig;

/// Pools at most, and networks of all of them: these are searched one after the other for a new binding.
pub const POOLS_MAX: usize = 64;
/// Networks of all pools at most.
pub const POOL_NETWORKS_MAX: usize = 256;
/// Ports that a block may have at most.
pub const BLOCK_PORTS_MAX: u16 = 16_384;
/// Blocks that a subscriber may have at most.
pub const BLOCKS_PER_SUBSCRIBER_MAX: u16 = 32;
/// Subscribers that are counted at most.
pub const SUBSCRIBERS_MAX: u32 = 1 << 22;
/// Seconds that a block rests at least: longer than any packet waits for a late answer with a port of it in hand.
pub const BLOCK_REST_LEAST_S: Tick = 2;

/// Outside addresses for some of the inside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressPool {
    /// Whose: of several pools the one with the longest prefix that an inside address is in.
    pub inside: Vec<Prefix>,
    /// Which of [`NatConfig::outside_addresses`]. Those that no pool names are for everybody else.
    pub outside: Vec<Ipv4Addr>,
}

/// What each subscriber may have, over all instances together (RFC 6888 REQ-4, REQ-5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriberLimits {
    /// Leading bits of an inside address that say whose it is, 8 to 32.
    pub prefix_length: u8,
    /// Outside ports in use at most, of each protocol counted on its own; 0: as many as there are.
    pub ports_max: u32,
    /// New sessions a second; 0: any number.
    pub sessions_per_second: u32,
    /// New sessions at once, where they are limited.
    pub sessions_burst: u32,
    /// Subscribers that are counted at most: further ones are refused.
    pub count_max: u32,
}

impl SubscriberLimits {
    /// Every inside address is a subscriber, with no limits.
    pub const NONE: Self = Self {
        prefix_length: 32,
        ports_max: 0,
        sessions_per_second: 0,
        sessions_burst: 100,
        count_max: 1 << 16,
    };

    /// The bits of an address that tell subscribers apart.
    pub(crate) const fn mask(&self) -> u32 {
        Prefix::new(Ipv4Addr::UNSPECIFIED, self.prefix_length).mask()
    }

    /// Whether anything is counted for them.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.ports_max != 0 || self.sessions_per_second != 0
    }
}

/// Outside ports are given to subscribers in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortBlocks {
    /// Port numbers of a block, each of them for every protocol: a multiple of 64, at least 64 for each instance of the cluster.
    pub ports: u16,
    /// Blocks that a subscriber uses at most.
    pub per_subscriber_max: u16,
}

/// How long ports rest that are used no more, before they are granted again (RFC 6888 REQ-8). Ports of TCP need not, because its
/// connections are followed to their end (REQ-8 A); blocks rest whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortQuarantine {
    /// Seconds; 0: ports are granted again at once.
    pub seconds: Tick,
    /// Ports that rest at most, at each instance: when there are more, the first ones are granted again early, counted.
    pub ports_max: u32,
}

impl PortQuarantine {
    /// What RFC 6888 asks for.
    pub const RFC: Self = Self {
        seconds: 120,
        ports_max: 1 << 16,
    };
}

impl NatConfig {
    /// Whether there are accounts of subscribers.
    pub(crate) fn counts_subscribers(&self) -> bool {
        self.subscribers.is_counted() || self.blocks.is_some()
    }

    /// Whether every instance has to hear of every session: it counts the ports of subscribers and blocks, has ports rest, or writes the
    /// log. Then sessions cannot live in a store.
    #[must_use]
    pub fn counts_ports(&self) -> bool {
        self.counts_subscribers() || self.port_quarantine.seconds != 0 || self.log
    }

    pub(crate) fn check_pools(&self, faults: &mut Faults) {
        const FIELD: &str = "pools";
        if self.pools.len() > POOLS_MAX {
            faults.add(FIELD, format!("{} exceed {POOLS_MAX}", self.pools.len()));
        }
        let networks = self
            .pools
            .iter()
            .map(|pool| pool.inside.len())
            .sum::<usize>();
        if networks > POOL_NETWORKS_MAX {
            let sentence = format!("{networks} networks exceed {POOL_NETWORKS_MAX}");
            faults.add(FIELD, sentence);
        }
        for (place, pool) in self.pools.iter().enumerate() {
            if pool.inside.is_empty() || pool.outside.is_empty() {
                let sentence = format!("pool {place} lacks a network inside or an address outside");
                faults.add(FIELD, sentence);
            }
            let earlier = || self.pools[..place].iter();
            for prefix in &pool.inside {
                let is_twice = earlier()
                    .flat_map(|pool| &pool.inside)
                    .any(|other| other.length == prefix.length && other.contains(prefix.address));
                if prefix.length > 32 || is_twice {
                    let sentence = format!("{prefix} is no prefix, or is there twice");
                    faults.add(FIELD, sentence);
                }
            }
            for address in &pool.outside {
                if !self.outside_addresses.contains(address) {
                    faults.add(FIELD, format!("{address} is no outside address"));
                }
                if earlier().any(|pool| pool.outside.contains(address)) {
                    faults.add(FIELD, format!("{address} is in two pools"));
                }
            }
        }
    }

    pub(crate) fn check_subscribers(&self, faults: &mut Faults) {
        let limits = &self.subscribers;
        let mut add = |sentence: String| faults.add("subscribers", sentence);
        if !(8..=32).contains(&limits.prefix_length) {
            add(format!(
                "prefix length {} is not 8 to 32",
                limits.prefix_length
            ));
        }
        if !(1..=SUBSCRIBERS_MAX).contains(&limits.count_max) {
            add(format!(
                "{} are not 1 to {SUBSCRIBERS_MAX}",
                limits.count_max
            ));
        }
        if limits.sessions_per_second != 0 {
            // Else what was spent would be forgotten with the last port before time has made up for it.
            let most = u64::from(limits.sessions_per_second) * 60;
            if limits.sessions_burst == 0 || u64::from(limits.sessions_burst) > most {
                add(format!(
                    "{} sessions at once are not 1 to {most}, those of a minute",
                    limits.sessions_burst
                ));
            }
        }
        let Some(blocks) = self.blocks else {
            return;
        };
        let mut add = |sentence: String| faults.add("blocks", sentence);
        let (first, last) = self.outside_ports;
        let range = u32::from(last.saturating_sub(first)) + 1;
        let ports = u32::from(blocks.ports);
        if ports == 0
            || !ports.is_multiple_of(BLOCK_ITEMS)
            || blocks.ports > BLOCK_PORTS_MAX
            || ports > range
        {
            add(format!(
                "{ports} ports are no multiple of {BLOCK_ITEMS} up to {BLOCK_PORTS_MAX} and the {range} of an address"
            ));
        }
        if !(1..=BLOCKS_PER_SUBSCRIBER_MAX).contains(&blocks.per_subscriber_max) {
            add(format!(
                "{} blocks of a subscriber are not 1 to {BLOCKS_PER_SUBSCRIBER_MAX}",
                blocks.per_subscriber_max
            ));
        }
        if self.port_quarantine.seconds < BLOCK_REST_LEAST_S {
            let sentence = format!("with blocks, ports rest {BLOCK_REST_LEAST_S} s at least");
            faults.add("port_quarantine", sentence);
        }
    }
}

/// What of it all members must have alike.
pub(crate) fn write(config: &NatConfig, bytes: &mut Vec<u8>) {
    let limits = &config.subscribers;
    bytes.push(limits.prefix_length);
    for number in [
        limits.ports_max,
        limits.sessions_per_second,
        limits.sessions_burst,
        limits.count_max,
        config.port_quarantine.seconds,
        config.port_quarantine.ports_max,
    ] {
        bytes.extend(number.to_be_bytes());
    }
    if let Some(blocks) = config.blocks {
        bytes.extend(blocks.ports.to_be_bytes());
        bytes.extend(blocks.per_subscriber_max.to_be_bytes());
    }
}
