//! Faults as they begin and end, and how many hit something.

use std::collections::BTreeMap;

use crate::scenario::Fault;
use crate::world::{FAULTS_LEAST, KINDS_LEAST, World};

/// What is remembered of the world before a fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    sent: u64,
}

impl World<'_> {
    pub(crate) fn begin_fault(&mut self, fault: &Fault) -> Before {
        let now = self.cluster.now();
        self.trace.line(|| format!("{now} begins {fault:?}"));
        let mut before = Before::default();
        match fault {
            Fault::Cut { from, to } => {
                self.cluster.network_mut().link_mut(*from, *to).partitioned = true;
            }
            Fault::Pause { member } => self.cluster.set_paused(usize::from(*member), true),
            Fault::Stall { member, lane } => {
                self.cluster
                    .set_stalled(usize::from(*member), usize::from(*lane), true);
            }
            Fault::SmallMtu { from, to, bytes } => {
                self.cluster.network_mut().link_mut(*from, *to).mtu_bytes = *bytes;
            }
            Fault::Narrow { from, to, rate } => {
                let link = self.cluster.network_mut().link_mut(*from, *to);
                link.bits_per_second = Some(*rate);
                link.queue_bytes_max = 6_000;
            }
            Fault::Spike { from, to, delay } => {
                let link = self.cluster.network_mut().link_mut(*from, *to);
                link.delay = link.delay.max(*delay);
                before.sent = self.cluster.network().statistics(*from, *to).delivered;
            }
            Fault::Storm { loss } => {
                self.cluster
                    .network_mut()
                    .change_all(|all| all.loss = all.loss.max(*loss));
            }
            Fault::Suspend => {}
            Fault::Step { member, by } => {
                self.cluster.members_mut()[usize::from(*member)].skew += *by;
                *self.faults.entry("clock").or_default() += 1;
            }
        }
        before
    }

    pub(crate) fn end_fault(&mut self, fault: &Fault, before: &Before) {
        let now = self.cluster.now();
        self.trace.line(|| format!("{now} ends {fault:?}"));
        let link = self.scenario.link.clone();
        let base = match fault {
            Fault::Spike { from, to, .. } => self.scenario.way(&link, (*from, *to), false),
            _ => link.clone(),
        };
        match fault {
            Fault::Cut { from, to } => {
                self.cluster.network_mut().link_mut(*from, *to).partitioned = false;
            }
            Fault::Pause { member } => {
                let hit = self.cluster.members()[usize::from(*member)].inbox() as u64;
                if hit > 0 {
                    *self.faults.entry("pause").or_default() += 1;
                }
                self.cluster.set_paused(usize::from(*member), false);
            }
            Fault::Stall { member, lane } => {
                let (member, lane) = (usize::from(*member), usize::from(*lane));
                if self.cluster.members()[member].instances[lane].is_behind() {
                    *self.faults.entry("slow receiver").or_default() += 1;
                }
                self.cluster.set_stalled(member, lane, false);
            }
            Fault::SmallMtu { from, to, .. } => {
                self.cluster.network_mut().link_mut(*from, *to).mtu_bytes = base.mtu_bytes;
            }
            Fault::Narrow { from, to, .. } => {
                let link = self.cluster.network_mut().link_mut(*from, *to);
                link.bits_per_second = None;
                link.queue_bytes_max = base.queue_bytes_max;
            }
            Fault::Spike { from, to, .. } => {
                let hit = self.cluster.network().statistics(*from, *to).delivered - before.sent;
                if hit > 0 {
                    *self.faults.entry("delay").or_default() += 1;
                }
                self.cluster.network_mut().link_mut(*from, *to).delay = base.delay;
            }
            Fault::Storm { .. } => {
                self.cluster
                    .network_mut()
                    .change_all(|all| all.loss = base.loss);
                let members = self.scenario.members() as u16;
                for from in 0..members {
                    for to in (0..members).filter(|&to| to != from) {
                        let way = self.scenario.way(&link, (from, to), false);
                        self.cluster.network_mut().link_mut(from, to).loss = way.loss;
                    }
                }
            }
            Fault::Suspend | Fault::Step { .. } => {}
        }
    }

    pub(crate) fn all_faults(&self) -> BTreeMap<&'static str, u64> {
        let total = self.cluster.network().statistics_total();
        let mut faults = self.faults.clone();
        let skewed = self
            .scenario
            .skew
            .iter()
            .filter(|skew| !skew.is_zero())
            .count() as u64;
        let overflows = self
            .cluster
            .members()
            .iter()
            .map(|member| member.inbox_overflows())
            .sum();
        for (kind, count) in [
            ("loss", total.lost),
            ("duplication", total.duplicated),
            ("reordering", total.reordered),
            ("partition", total.partitioned),
            ("mtu", total.over_mtu),
            ("rate", total.queue_full),
            ("clock", skewed),
            ("socket overflow", overflows),
        ] {
            if count > 0 {
                *faults.entry(kind).or_default() += count;
            }
        }
        faults
    }

    pub(crate) fn enough_faults(&self) -> bool {
        let faults = self.all_faults();
        faults.len() >= KINDS_LEAST && faults.values().sum::<u64>() >= FAULTS_LEAST
    }
}
