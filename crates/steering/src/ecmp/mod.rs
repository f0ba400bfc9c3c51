//! Routes of a Linux router with several next hops (ECMP), by the program `ip`.
//!
//! One driver writes the routes of one router, or of one network namespace: the same next hops for each of its destinations.
//! A cluster has two, inside and outside. The kernel chooses a next hop by a hash of each packet's addresses and ports
//! (`net.ipv4.fib_multipath_hash_policy` must be 1, which the router's owner sets), so it knows no flows: a target that
//! drains gets nothing. A route is replaced in one step; no packet is without a route in between.
//!
//! `config.rs` has the settings and their bounds; `plan.rs` computes without I/O; `table.rs` reads and writes the kernel's
//! routes. IPv4 only.

mod config;
mod plan;
mod table;

use std::fmt;

pub use self::config::{
    EcmpConfig, EcmpConfigError, EcmpHop, EcmpRoute, IP_TIME_MAX, MAIN_TABLE, ROUTE_PROTOCOL,
    ROUTES_MAX, SLOTS_MAX, SLOTS_SANE, Spread,
};

use self::table::{Ip, Present, Table};
use super::slots::{self, Stretch};
use super::{
    Abilities, Applied, Counts, Desired, InForce, Observed, ObservedTarget, Steering, SteeringError,
};
use crate::clock;

/// The driver.
pub struct EcmpSteering {
    routes: Vec<EcmpRoute>,
    hops: Vec<EcmpHop>,
    spread: Spread,
    table: Box<dyn Table>,
    applied: Applied,
    counts: Counts,
}

impl fmt::Debug for EcmpSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EcmpSteering")
            .field("routes", &self.routes)
            .field("hops", &self.hops)
            .field("spread", &self.spread)
            .field("applied", &self.applied)
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
        config.check()?;
        let table = Box::new(Ip::new(config.network.clone()));
        Ok(EcmpSteering::with_table(config, table))
    }

    fn with_table(config: EcmpConfig, table: Box<dyn Table>) -> EcmpSteering {
        EcmpSteering {
            routes: config.routes,
            hops: config.hops,
            spread: config.spread,
            table,
            applied: Applied::default(),
            counts: Counts::default(),
        }
    }

    /// Refuses what cannot or must not be applied; else each taker's hop with its weight, in the order of the hops.
    fn takers(&self, desired: &Desired) -> Result<Vec<(usize, u16)>, SteeringError> {
        self.applied.check(desired)?;
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
    fn ways_of(&self, present: &Present) -> Vec<Stretch> {
        let ways = present.hops.iter().map(|one| Stretch {
            target: self
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
            moved = moved.max(slots::moved_permille(before.as_deref(), &after));
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
        let was_applied = self.applied.begin(desired);
        let (changed, moved) = self
            .bring_about(&takers)
            .inspect_err(|_| self.counts.failed += 1)?;
        self.applied.finish();
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
        let takers = self.applied.begun().and_then(|begun| {
            self.takers(begun)
                .ok()
                .map(|takers| (begun.generation(), takers))
        });
        let mut observed = Observed {
            generation: None,
            as_applied: self.applied.is_finished(),
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
        if self.applied.is_finished() {
            observed.generation = takers.as_ref().map(|(generation, _)| *generation);
        }
        for (route, present) in self.routes.iter().zip(&present) {
            let ways = present.as_ref().map(|present| self.ways_of(present));
            let ways = ways.unwrap_or_default();
            for (place, target) in observed.targets.iter_mut().enumerate() {
                let share = slots::share_permille(&ways, Some(place));
                target.share_permille = target.share_permille.min(share);
                target.link_down |= present.as_ref().is_some_and(|present| {
                    let hop = &self.hops[place];
                    let is_it = |one: &&table::PresentHop| {
                        one.gateway == hop.gateway && one.interface == hop.interface
                    };
                    present.hops.iter().filter(is_it).any(|one| one.is_down)
                });
            }
            let elsewhere = slots::share_permille(&ways, None);
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

#[cfg(test)]
mod tests;
