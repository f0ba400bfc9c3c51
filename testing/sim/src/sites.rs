//! A share of the seeds has sites, with a wide-area network between them that is slow and loses more; relays stand still, and whole
//! sites are cut off.

use std::time::Duration;

use asterism_io::link::LinkConditions;
use asterism_placement::MemberId;
use asterism_placement::replicated::{SiteId, SitesConfig};

use crate::scenario::{Draws, Fault, Planned, Scenario};
use crate::world::{World, calm};

/// Seeds in a hundred that have sites.
const PERCENT: u64 = 25;

/// Where members are, and what is between the sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Sites {
    /// The site of each member.
    pub of: Vec<u8>,
    /// How much longer the way to another site is than inside one.
    pub delay: Duration,
    /// Probability of loss between sites, if it is more than that inside.
    pub loss: f64,
    /// When a relay that does not prove to hear is passed by.
    pub silent_after: Duration,
    /// How long acknowledgements wait for company at a relay.
    pub bundle_delay: Duration,
    /// Bytes that a relay keeps.
    pub cache_bytes: usize,
    /// How long it keeps them.
    pub cache_age: Duration,
}

impl Sites {
    /// The sites of a seed, if it has any.
    pub fn from_seed(seed: u64) -> Option<Self> {
        let draws = &mut Draws::new(seed, 5);
        if !draws.percent(PERCENT) {
            return None;
        }
        let members = draws.one_of(&[3u64, 4, 4, 5, 5, 6]);
        let sites = draws.within(2, 3);
        // Every site has a member; the others are anywhere.
        let of = (0..members).map(|member| match member < sites {
            true => member as u8,
            false => draws.within(0, sites - 1) as u8,
        });
        Some(Self {
            of: of.collect(),
            delay: draws.micros(5_000, 50_000),
            loss: draws.one_of(&[0.0, 0.02, 0.1]),
            silent_after: draws.micros(40_000, 400_000),
            bundle_delay: draws.micros(0, 5_000),
            cache_bytes: draws.one_of(&[0, 4 << 10, 64 << 10, 64 << 10]),
            cache_age: draws.micros(5_000, 500_000),
        })
    }

    /// What a member is reported.
    pub fn config(&self) -> SitesConfig {
        let names = (0..).map(MemberId);
        let of = names.zip(self.of.iter().map(|&site| SiteId(site)));
        SitesConfig {
            silent_after: self.silent_after,
            bundle_delay: self.bundle_delay,
            cache_bytes_max: self.cache_bytes,
            cache_age_max: self.cache_age,
            ..SitesConfig::new(of.collect())
        }
    }

    fn is_across(&self, from: u16, to: u16) -> bool {
        self.of.get(usize::from(from)) != self.of.get(usize::from(to))
    }

    /// The first member of a site.
    pub fn relay(&self, site: u8) -> Option<usize> {
        self.of.iter().position(|&of| of == site)
    }

    /// How many sites there are.
    pub fn count(&self) -> u8 {
        self.of.iter().max().map_or(0, |most| most + 1)
    }
}

impl Scenario {
    /// Bounds that fit the longer way, and faults of relays and whole sites.
    pub(crate) fn spread_out(&mut self, length: Duration) {
        let Some(sites) = self.sites.clone() else {
            return;
        };
        let bounds = &mut self.bounds;
        bounds.retransmit_max = bounds.retransmit_max.max(sites.delay * 6);
        bounds.silent_after = bounds.silent_after.max(sites.delay * 6);
        let draws = &mut Draws::new(self.seed, 6);
        let length_us = length.as_micros() as u64;
        for _ in 0..draws.within(1, 3) {
            let from = draws.within(0, length_us * 9 / 10);
            // Long enough to be passed by, mostly.
            let until = from + draws.within(20_000, 1_500_000);
            let site = draws.within(0, u64::from(sites.count()) - 1) as u8;
            let mut add = |fault| {
                self.faults.push(Planned {
                    from: Duration::from_micros(from),
                    until: Duration::from_micros(until),
                    fault,
                });
            };
            if draws.percent(50) {
                let member = sites.relay(site).unwrap_or(0) as u16;
                add(Fault::Pause { member });
                continue;
            }
            let members = sites.of.len() as u16;
            let is_in = |member: u16| sites.of[usize::from(member)] == site;
            for from in 0..members {
                for to in (0..members).filter(|&to| is_in(from) != is_in(to)) {
                    add(Fault::Cut { from, to });
                }
            }
        }
        self.faults.sort_by_key(|planned| planned.from);
    }

    /// What the way from one member to another is with this link inside a site; between sites it loses more too unless all is `calm`.
    pub(crate) fn way(
        &self,
        link: &LinkConditions,
        (from, to): (u16, u16),
        is_calm: bool,
    ) -> LinkConditions {
        match &self.sites {
            Some(sites) if sites.is_across(from, to) => LinkConditions {
                delay: link.delay + sites.delay,
                loss: if is_calm {
                    link.loss
                } else {
                    link.loss.max(sites.loss)
                },
                ..link.clone()
            },
            _ => link.clone(),
        }
    }

    /// The longest delay of a way, and how much jitter is added to its link's.
    pub(crate) fn longest_way(&self) -> (Duration, Duration) {
        match &self.sites {
            // The way to the relay is one inside the site, and so is the way from one.
            Some(sites) => (
                self.link.delay * 3 + sites.delay,
                self.link.jitter * 2 + sites.bundle_delay + self.link.delay * 2,
            ),
            None => (self.link.delay, Duration::ZERO),
        }
    }
}

impl World<'_> {
    /// Has all ways be as with this link inside sites.
    pub(crate) fn set_links(&mut self, link: &LinkConditions, is_calm: bool) {
        let network = self.cluster.network_mut();
        network.change_all(|all| *all = link.clone());
        if self.scenario.sites.is_none() {
            return;
        }
        let members = self.scenario.members() as u16;
        for from in 0..members {
            for to in (0..members).filter(|&to| to != from) {
                *network.link_mut(from, to) = self.scenario.way(link, (from, to), is_calm);
            }
        }
    }

    /// Takes all faults of links away: delay and jitter stay.
    pub(crate) fn calm_all_links(&mut self) {
        let link = calm(&self.scenario.link);
        self.set_links(&link, true);
    }
}
