//! What a function gave to each flow (an outside endpoint, a backend), as seen from outside, and when it may give something else.
//!
//! One box gives each flow one thing. A cluster may give another one only where the instance that did so could not know of the
//! first: its packet came before the word of it did, or only a host that died knew.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_function::NetworkFunction;
use asterism_placement::Time;

use super::hosts::{HELD_WITHIN, Hosts, Place};
use super::plan::Plan;

/// A packet is handled at most so long after it came: what it waits for, and a step.
const HANDLED_WITHIN: Duration = Duration::from_millis(60);

#[derive(Clone, Debug)]
struct Given {
    value: u64,
    by: Place,
    since: Time,
    /// Instances that sent packets by it.
    shown: Vec<Place>,
}

/// What flows were given.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// Packets leave once another host has what they depend on, or within so long after they were handled.
    held: Option<Duration>,
    of: BTreeMap<u64, Vec<Given>>,
    /// What perhaps only a dead host knew: its last words may have been on their way.
    doubtful: BTreeMap<u64, Vec<Given>>,
    /// When a packet of a flow came last to an instance that knew nothing of it.
    unknowing: BTreeMap<(u64, Place), Time>,
    /// Times that something else was given, as it may be.
    pub(crate) again: u64,
    /// Things that nobody but a dead host knew of.
    pub(crate) lost: u64,
    /// Times that an instance sent by what it was known to know.
    pub(crate) kept: u64,
}

impl Bindings {
    /// Of a plan that may hold packets back.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            held: plan.copies.map(|_| HELD_WITHIN),
            ..Self::default()
        }
    }

    /// Whether packets are held back until another host has what they depend on.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// A packet of a flow comes to an instance.
    pub(crate) fn arrives<F: NetworkFunction>(&mut self, flow: u64, at: Place, hosts: &Hosts<F>) {
        let given = self.of.get(&flow).map_or(&[][..], Vec::as_slice);
        let known = given
            .iter()
            .any(|one| one.shown.contains(&at) || hosts.knows(at, one.by, one.since));
        if known {
            self.kept += 1;
        } else {
            self.unknowing.insert((flow, at), hosts.now());
        }
    }

    /// Whether all packets of a flow that an instance may still have in hand came when it knew of the flow.
    pub(crate) fn knew(&self, flow: u64, at: Place, now: Time) -> bool {
        let came = self.unknowing.get(&(flow, at));
        let within = HANDLED_WITHIN + self.held.unwrap_or_default();
        came.is_none_or(|came| now > *came + within)
    }

    /// A packet of a flow left an instance by this.
    ///
    /// # Errors
    /// What is wrong with that, in words.
    pub(crate) fn leaves(
        &mut self,
        flow: u64,
        value: u64,
        at: Place,
        now: Time,
    ) -> Result<(), String> {
        let given = self.of.entry(flow).or_default();
        if let Some(one) = given.iter_mut().find(|one| one.value == value) {
            if !one.shown.contains(&at) {
                one.shown.push(at);
            }
            return Ok(());
        }
        if let Some(doubtful) = self.doubtful.get_mut(&flow)
            && let Some(number) = doubtful.iter().position(|one| one.value == value)
        {
            let mut one = doubtful.remove(number);
            one.shown.push(at);
            given.push(one);
            return Ok(());
        }
        if self.knew(flow, at, now) {
            let came = self.unknowing.get(&(flow, at));
            let given = self.of.get(&flow);
            return Err(format!(
                "{at:?} gave {value:x} to flow {flow:x}, which has {given:x?}; when a packet came that it knew nothing of: {came:?}"
            ));
        }
        let given = self.of.entry(flow).or_default();
        self.again += u64::from(!given.is_empty());
        given.push(Given {
            value,
            by: at,
            since: now,
            shown: vec![at],
        });
        Ok(())
    }

    /// A flow was given something else for a reason of its own.
    pub(crate) fn moved(&mut self, flow: u64, value: u64, at: Place, now: Time) {
        self.of.entry(flow).or_default().push(Given {
            value,
            by: at,
            since: now,
            shown: vec![at],
        });
    }

    /// A host died; all that it wrote by `reported` somebody knows. Where packets are held back, of all that left somebody knows.
    pub(crate) fn died(&mut self, victim: usize, reported: Time) {
        let reported = match self.held {
            Some(_) => Time::MAX,
            None => reported,
        };
        for (flow, given) in &mut self.of {
            for one in given.iter_mut() {
                one.shown.retain(|at| at.host != victim);
            }
            let doubtful = given.extract_if(.., |one| {
                one.by.host == victim && one.since >= reported && one.shown.is_empty()
            });
            let doubtful: Vec<_> = doubtful.collect();
            self.lost += doubtful.len() as u64;
            self.doubtful.entry(*flow).or_default().extend(doubtful);
        }
    }

    /// Flows other than this one that have this.
    pub(crate) fn others(&self, flow: u64, value: u64) -> Option<u64> {
        let mut others = self.of.iter().filter(|(other, _)| **other != flow);
        let has = |given: &Vec<Given>| given.iter().any(|one| one.value == value);
        others
            .find(|(_, given)| has(given))
            .map(|(other, _)| *other)
    }
}
