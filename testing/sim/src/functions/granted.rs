//! What a carrier's NAT gave to subscribers (ports, sessions, blocks), as seen from outside, who knows of it, and what its log has to
//! say of it. Read first: `carrier.rs`.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};

use asterism_function::{Endpoint, NetworkFunction};
use asterism_placement::Time;

use super::hosts::{Hosts, Place};
use crate::report::Failure;

/// Each grant: the item, the instance and the time; and what instances showed that they know of it.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) subscriber: usize,
    pub(super) by: Place,
    pub(super) since: Time,
    pub(super) shown: Vec<Place>,
}

impl Given {
    pub(super) fn is_known<F: NetworkFunction>(&self, at: Place, hosts: &Hosts<F>) -> bool {
        self.shown.contains(&at) || hosts.knows(at, self.by, self.since)
    }

    pub(super) fn shows(&mut self, at: Place) {
        if !self.shown.contains(&at) {
            self.shown.push(at);
        }
    }

    /// A host died: whether perhaps nobody knows of this.
    fn is_doubtful_after(&mut self, (victim, reported): (usize, Time)) -> bool {
        self.shown.retain(|at| at.host != victim);
        self.by.host == victim && self.since >= reported && self.shown.is_empty()
    }
}

/// A block: the place of its address among all, and its number there.
pub(super) type Block = (Ipv4Addr, u16);

/// What was given since all was free last.
#[derive(Debug, Default)]
pub(super) struct Era {
    pub(super) bound: BTreeMap<u16, Given>,
    /// Outside ports that were seen, and whose: an endpoint has two where two instances gave it one each within the lag.
    pub(super) ports: BTreeMap<Endpoint, usize>,
    pub(super) sessions: BTreeMap<(u16, Endpoint), Given>,
    pub(super) blocks: BTreeMap<Block, Given>,
    /// What perhaps only the dead host knew: of these things nothing is demanded.
    pub(super) doubtful_flows: BTreeSet<u16>,
    pub(super) doubtful_sessions: BTreeSet<(u16, Endpoint)>,
    pub(super) doubtful_blocks: BTreeSet<Block>,
    /// Blocks of which the log says that they began, or ended, with the host that says so.
    pub(super) begun: BTreeMap<Block, Vec<(Ipv4Addr, usize)>>,
    pub(super) ended: BTreeMap<Block, Vec<usize>>,
}

impl Era {
    /// A host died to which packets came of flows, and of sessions, of which nothing was seen yet: perhaps it had begun them, and reported.
    pub(super) fn perhaps_of(
        &mut self,
        victim: usize,
        (flows, sessions): (
            impl Iterator<Item = (u16, Place)>,
            impl Iterator<Item = (u16, Endpoint, Place)>,
        ),
    ) {
        let flows = flows.filter(|(flow, at)| at.host == victim && !self.bound.contains_key(flow));
        self.doubtful_flows.extend(flows.map(|(flow, _)| flow));
        let sessions = sessions.filter(|&(flow, to, at)| {
            at.host == victim && !self.sessions.contains_key(&(flow, to))
        });
        self.doubtful_sessions
            .extend(sessions.map(|(flow, to, _)| (flow, to)));
    }

    pub(super) fn died(&mut self, died: (usize, Time)) {
        let flows = self
            .bound
            .extract_if(.., |_, given| given.is_doubtful_after(died));
        self.doubtful_flows.extend(flows.map(|(flow, _)| flow));
        let sessions = self
            .sessions
            .extract_if(.., |_, given| given.is_doubtful_after(died));
        self.doubtful_sessions
            .extend(sessions.map(|(session, _)| session));
        let blocks = self
            .blocks
            .extract_if(.., |_, given| given.is_doubtful_after(died));
        self.doubtful_blocks.extend(blocks.map(|(block, _)| block));
    }

    /// The log has each block that was given: its begin once, and its end once if all of them are free. How many blocks there were.
    pub(super) fn judge_log<F: NetworkFunction>(
        &self,
        all_ended: bool,
        hosts: &Hosts<F>,
        address: impl Fn(usize) -> Ipv4Addr,
    ) -> Result<u64, Failure> {
        for (block, given) in &self.blocks {
            if self.doubtful_blocks.contains(block) {
                continue;
            }
            let begun = self.begun.get(block).map_or(&[][..], Vec::as_slice);
            let ended = self.ended.get(block).map_or(&[][..], Vec::as_slice);
            let is_right = |begun: &(Ipv4Addr, usize)| begun.0 == address(given.subscriber);
            let [teller] = begun else {
                return Err(Failure::new(
                    "the log has each begin once",
                    format!("of {block:?}, {given:?}: {begun:?}"),
                ));
            };
            if !is_right(teller) {
                return Err(Failure::new(
                    "the log says whose a block is",
                    format!("of {block:?}, {given:?}: {begun:?}"),
                ));
            }
            // Who gives a block out tells its end, too, and if that host is gone nobody does.
            let incarnations = hosts.living().any(|host| host == teller.1);
            let expected = usize::from(all_ended && incarnations);
            if ended.len() != expected {
                return Err(Failure::new(
                    "the log has each end once",
                    format!("of {block:?}, {given:?}, begun by {begun:?}: {ended:?}"),
                ));
            }
        }
        let unseen = self.begun.iter().find(|(block, _)| {
            !self.blocks.contains_key(block) && !self.doubtful_blocks.contains(block)
        });
        if let Some((block, begun)) = unseen {
            return Err(Failure::new(
                "the log has nothing that was not",
                format!("of {block:?}: {begun:?}"),
            ));
        }
        Ok(self.blocks.len() as u64)
    }
}
