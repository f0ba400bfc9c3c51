//! Routes of a Linux router with several next hops (ECMP), by the program `ip`.
//!
//! One driver writes the routes of one router, or of one network namespace: the same next hops for each of its destinations.
//! A cluster has two, inside and outside. The kernel chooses a next hop by a hash of each packet's addresses and ports
//! (`net.ipv4.fib_multipath_hash_policy` must be 1, which the router's owner sets), so it knows no flows: a target that
//! drains gets nothing. A route is replaced in one step; no packet is without a route in between.
//!
//! `plan.rs` computes without I/O; `table.rs` reads and writes the kernel's routes. IPv4 only.

mod plan;
mod table;

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use self::plan::NextHop;
use self::table::{Ip, Present, Table};
use super::{
    Abilities, Counts, Desired, InForce, Observed, ObservedTarget, Steering, SteeringError,
    TARGETS_MAX,
};
use crate::clock;

/// Routes of one driver at most.
pub const ROUTES_MAX: usize = 16;
/// Slots of a route at most: `ip` reads lines of at most 512 words, a slot is 6 of them.
pub const SLOTS_MAX: u16 = 64;
/// How many slots are sane: shares are equal among 2, 3, 4, 6, 8 or 12 targets.
pub const SLOTS_SANE: u16 = 24;
/// How long one run of `ip` may take. A call makes two.
pub const IP_TIME_MAX: Duration = Duration::from_secs(5);
/// The protocol number of the driver's routes (`ip route show proto 77`), so that people see who wrote them.
pub const ROUTE_PROTOCOL: u8 = 77;
/// The kernel's main table.
pub const MAIN_TABLE: u32 = 254;

/// The routes of one router.
#[derive(Clone, Debug)]
pub struct EcmpConfig {
    /// The network namespace that they are in, as a file (`/run/netns/NAME`, `/proc/PID/ns/net`); none: where this process is.
    pub network: Option<PathBuf>,
    /// Destinations that are reached through the targets: 1 to [`ROUTES_MAX`].
    pub routes: Vec<EcmpRoute>,
    /// The way to each target: 1 to [`TARGETS_MAX`].
    pub hops: Vec<EcmpHop>,
    /// How the flow space is shared out.
    pub spread: Spread,
}

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcmpRoute {
    /// Its network address.
    pub address: Ipv4Addr,
    /// Bits of its prefix; 0 with the address 0.0.0.0 is the default route.
    pub prefix_bits: u8,
    /// The source address of what the router sends there itself; none: the kernel chooses.
    pub source: Option<Ipv4Addr>,
    /// The routing table.
    pub table: u32,
    /// The metric. Routes of other metrics to the same destination are left alone.
    pub metric: u32,
}

impl EcmpRoute {
    /// A route in the main table, with the metric 0.
    #[must_use]
    pub fn new(address: Ipv4Addr, prefix_bits: u8) -> EcmpRoute {
        EcmpRoute {
            address,
            prefix_bits,
            source: None,
            table: MAIN_TABLE,
            metric: 0,
        }
    }

    /// The same, from this address.
    #[must_use]
    pub fn from(mut self, source: Ipv4Addr) -> EcmpRoute {
        self.source = Some(source);
        self
    }
}

impl fmt::Display for EcmpRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// The way to a target: an address on an interface. All hosts of a cluster may have one address, behind interfaces of
/// their own; it need not be in a network of the interface (`onlink`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcmpHop {
    /// The target's name.
    pub target: String,
    /// The next hop.
    pub gateway: Ipv4Addr,
    /// The router's interface.
    pub interface: String,
}

/// How the flow space is shared out among those that take packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// In so many equal slots, each of which leads to one target; a change moves as few slots as it can, so that flows of
    /// targets that stay do not move. At least as many slots as targets, at most [`SLOTS_MAX`]; the kernel goes through them
    /// for each packet. Weights are rounded to whole slots, at least one.
    Slots(u16),
    /// One next hop for each target, with its weight. Exact, and the fewest next hops; but the kernel gives each a stretch of
    /// the flow space by its place in the list, so a change moves flows of targets that stay, too: when the first or the last
    /// of three leaves, a sixth of all flows.
    Weights,
}

/// The driver.
pub struct EcmpSteering {
    routes: Vec<EcmpRoute>,
    hops: Vec<EcmpHop>,
    spread: Spread,
    table: Box<dyn Table>,
    /// What was begun last, whether or not it came to its end.
    begun: Option<Desired>,
    /// Whether it did.
    is_applied: bool,
    counts: Counts,
}

/// A configuration with which there can be no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EcmpConfigError(String);

impl fmt::Display for EcmpConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EcmpConfigError {}

impl fmt::Debug for EcmpSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EcmpSteering")
            .field("routes", &self.routes)
            .field("hops", &self.hops)
            .field("spread", &self.spread)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl EcmpSteering {
    /// A driver of these routes. Touches nothing yet: what is there stays until something is applied. Dropped, it leaves
    /// the routes as they are.
    ///
    /// # Errors
    /// The configuration says something that cannot be.
    pub fn new(config: EcmpConfig) -> Result<EcmpSteering, EcmpConfigError> {
        check(&config).map_err(EcmpConfigError)?;
        let table = Box::new(Ip::new(config.network.clone()));
        Ok(EcmpSteering::with_table(config, table))
    }

    fn with_table(config: EcmpConfig, table: Box<dyn Table>) -> EcmpSteering {
        EcmpSteering {
            routes: config.routes,
            hops: config.hops,
            spread: config.spread,
            table,
            begun: None,
            is_applied: false,
            counts: Counts::default(),
        }
    }

    /// Refuses what cannot or must not be applied; else each taker's hop with its weight, in the order of the hops.
    fn takers(&self, desired: &Desired) -> Result<Vec<(usize, u16)>, SteeringError> {
        if let Some(begun) = &self.begun {
            let (offered, known) = (desired.generation(), begun.generation());
            if offered < known {
                return Err(SteeringError::Stale { offered, known });
            }
            if offered == known && desired != begun {
                return Err(SteeringError::Contradicts(offered));
            }
        }
        let mut takers = Vec::new();
        for (name, weight) in desired.takers() {
            let hop = self.hops.iter().position(|hop| hop.target == name);
            let hop = hop.ok_or_else(|| SteeringError::UnknownTarget(name.to_owned()))?;
            takers.push((hop, weight));
        }
        takers.sort_unstable();
        if let Spread::Slots(slots) = self.spread
            && takers.len() > usize::from(slots)
        {
            return Err(SteeringError::TooManyTargets {
                takers: takers.len(),
                most: usize::from(slots),
            });
        }
        Ok(takers)
    }

    /// The next hops of a route as it is: those of targets by their place, others as none.
    fn ways_of(&self, present: &Present) -> Vec<NextHop> {
        let ways = present.hops.iter().map(|one| NextHop {
            hop: self
                .hops
                .iter()
                .position(|hop| hop.gateway == one.gateway && hop.interface == one.interface),
            weight: one.weight,
        });
        ways.collect()
    }

    /// Brings it about: how many routes were changed, and how much of the flow space moved.
    fn bring_about(&mut self, takers: &[(usize, u16)]) -> Result<(u32, u16), SteeringError> {
        let present = self.table.read(&self.routes)?;
        let mut lines = Vec::new();
        let mut moved = 0;
        for (route, present) in self.routes.iter().zip(&present) {
            let before = present.as_ref().map(|present| self.ways_of(present));
            let after = plan::ways(self.spread, takers, before.as_deref());
            let is_ours = present
                .as_ref()
                .is_some_and(|present| present.is_ours && present.source == route.source);
            if is_ours && before.as_deref().is_some_and(|it| plan::same(it, &after)) {
                continue;
            }
            moved = moved.max(plan::moved_permille(before.as_deref(), &after));
            lines.push(plan::line(route, &self.hops, &after));
        }
        if !lines.is_empty() {
            self.table.replace(&lines)?;
        }
        Ok((u32::try_from(lines.len()).unwrap_or(u32::MAX), moved))
    }
}

impl Steering for EcmpSteering {
    fn abilities(&self) -> Abilities {
        Abilities {
            keeps_flows: false,
            moves_least: matches!(self.spread, Spread::Slots(_)),
            waits_max: 2 * IP_TIME_MAX,
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        let started = clock::now();
        let takers = self
            .takers(desired)
            .inspect_err(|_| self.counts.refused += 1)?;
        let was_applied = self.is_applied && self.begun.as_ref() == Some(desired);
        // From here on an older state is refused, even if this one fails half way.
        self.begun = Some(desired.clone());
        self.is_applied = false;
        let (changed, moved) = self
            .bring_about(&takers)
            .inspect_err(|_| self.counts.failed += 1)?;
        self.is_applied = true;
        self.counts.applied += 1;
        self.counts.changed += u64::from(changed);
        self.counts.repaired += u64::from(was_applied && changed > 0);
        Ok(InForce {
            generation: desired.generation(),
            changed,
            moved_permille: Some(moved),
            took: started.elapsed(),
        })
    }

    fn observe(&mut self) -> Result<Observed, SteeringError> {
        let present = self.table.read(&self.routes)?;
        let takers = self.begun.as_ref().and_then(|begun| {
            self.takers(begun)
                .ok()
                .map(|takers| (begun.generation(), takers))
        });
        let mut observed = Observed {
            generation: None,
            as_applied: self.is_applied,
            targets: self
                .hops
                .iter()
                .map(|hop| ObservedTarget {
                    name: hop.target.clone(),
                    share_permille: 1_000,
                    link_down: false,
                })
                .collect(),
            elsewhere_permille: 0,
        };
        if self.is_applied {
            observed.generation = takers.as_ref().map(|(generation, _)| *generation);
        }
        for (route, present) in self.routes.iter().zip(&present) {
            let ways = present.as_ref().map(|present| self.ways_of(present));
            let ways = ways.unwrap_or_default();
            for (place, target) in observed.targets.iter_mut().enumerate() {
                let share = plan::share_permille(&ways, Some(place));
                target.share_permille = target.share_permille.min(share);
                target.link_down |= present.as_ref().is_some_and(|present| {
                    let hop = &self.hops[place];
                    let is_it = |one: &&table::PresentHop| {
                        one.gateway == hop.gateway && one.interface == hop.interface
                    };
                    present.hops.iter().filter(is_it).any(|one| one.is_down)
                });
            }
            let elsewhere = plan::share_permille(&ways, None);
            observed.elsewhere_permille = observed.elsewhere_permille.max(elsewhere);
            let as_applied = takers.as_ref().is_some_and(|(_, takers)| {
                let planned = plan::ways(self.spread, takers, Some(&ways));
                plan::same(&ways, &planned)
            });
            let is_ours = present
                .as_ref()
                .is_some_and(|present| present.is_ours && present.source == route.source);
            observed.as_applied &= as_applied && is_ours;
        }
        Ok(observed)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// What is wrong with a configuration.
fn check(config: &EcmpConfig) -> Result<(), String> {
    let (routes, hops) = (config.routes.len(), config.hops.len());
    if !(1..=ROUTES_MAX).contains(&routes) {
        return Err(format!(
            "{routes} routes: a driver writes 1 to {ROUTES_MAX}"
        ));
    }
    if !(1..=TARGETS_MAX).contains(&hops) {
        return Err(format!("{hops} next hops: there are 1 to {TARGETS_MAX}"));
    }
    if let Spread::Slots(slots) = config.spread
        && !(1..=SLOTS_MAX).contains(&slots)
    {
        return Err(format!("{slots} slots: there are 1 to {SLOTS_MAX}"));
    }
    let mut seen = BTreeSet::new();
    for route in &config.routes {
        if route.prefix_bits > 32 {
            return Err(format!("{route}: a prefix has at most 32 bits"));
        }
        let host = u32::MAX
            .checked_shr(route.prefix_bits.into())
            .unwrap_or_default();
        if route.address.to_bits() & host != 0 {
            return Err(format!(
                "{route}: the address has bits behind its prefix, which would be another route"
            ));
        }
        if !seen.insert((route.address, route.prefix_bits, route.table, route.metric)) {
            return Err(format!("{route} is there twice"));
        }
    }
    let (mut names, mut ways) = (BTreeSet::new(), BTreeSet::new());
    for EcmpHop {
        target,
        gateway,
        interface,
    } in &config.hops
    {
        let is_name = (1..=15).contains(&interface.len())
            && !interface.contains(|letter: char| {
                letter.is_whitespace() || letter.is_control() || "/\"'\\#".contains(letter)
            });
        if !is_name {
            return Err(format!(
                "{interface:?} is no interface's name: one has 1 to 15 bytes, no space and no slash"
            ));
        }
        if !names.insert(target) {
            return Err(format!("the target {target} is there twice"));
        }
        if !ways.insert((gateway, interface)) {
            return Err(format!(
                "{gateway} on {interface} leads to two targets: nobody could tell them apart"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
