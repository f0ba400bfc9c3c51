//! Computes, from what is on the switch and what is to be there, the changes of groups and flows. No I/O.

use std::collections::BTreeMap;

use super::super::slots::{self, Stretch};
use super::config::{OvsConfig, OvsDirection};
use super::openflow::{
    Action, Bucket, Flow, FlowCommand, FlowMod, Group, GroupCommand, GroupMod, Instruction, Match,
    Port, Selection, Version,
};

/// What is on the switch: of flows and groups only the driver's.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) version: Version,
    pub(super) flows: Vec<Flow>,
    pub(super) groups: Vec<Group>,
    /// By name.
    pub(super) ports: BTreeMap<String, Port>,
}

impl Present {
    fn group(&self, id: u32) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    pub(super) fn number(&self, port: &str) -> Option<u32> {
        self.ports.get(port).map(|port| port.number)
    }
}

/// The changes of all directions, in the order in which they are made: no packet is without a target between two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Groups that are new or different.
    pub(super) groups: Vec<GroupMod>,
    /// Flows that lead to them, and flows that are not to be there.
    pub(super) flows: Vec<FlowMod>,
}

impl Changes {
    pub(super) fn count(&self) -> usize {
        self.groups.len() + self.flows.len()
    }
}

/// Both numbers that a direction's group may have. Without bundles a change writes the one to which no flow leads, and leads the flows
/// there. The other one stays, as it was, for the next change: the switch's cache leads packets to it for some time yet, and
/// drops them if it is not there (15 of 10,080 datagrams over 50 changes).
pub(super) fn group_ids(config: &OvsConfig, direction: usize) -> [u32; 2] {
    let first = config.first_group.wrapping_add(2 * direction as u32);
    [first, first.wrapping_add(1)]
}

/// Whether a group has the form of those that the driver writes.
pub(super) fn has_our_form(group: &Group) -> bool {
    let is_ours = |bucket: &Bucket| {
        matches!(
            bucket.actions[..],
            [Action::SetDestination(_), Action::Output(_)]
        )
    };
    group.selects && group.buckets.iter().all(is_ours)
}

/// One direction, with its place among them.
#[derive(Clone, Copy)]
pub(super) struct Direction<'a> {
    pub(super) config: &'a OvsConfig,
    pub(super) place: usize,
    /// The targets' names, in the order in which takers and stretches count them.
    pub(super) targets: &'a [String],
    pub(super) present: &'a Present,
}

impl Direction<'_> {
    fn direction(&self) -> Option<&OvsDirection> {
        self.config.directions.get(self.place)
    }

    fn ids(&self) -> [u32; 2] {
        group_ids(self.config, self.place)
    }

    /// What each bucket does to lead to a target; none if its port is not there.
    fn actions(&self, target: usize) -> Option<Vec<Action>> {
        let name = self.targets.get(target)?;
        let mut hops = self.direction()?.hops.iter();
        let hop = hops.find(|hop| hop.target == *name)?;
        let port = self.present.number(&hop.port)?;
        Some(vec![
            Action::SetDestination(hop.address),
            Action::Output(port),
        ])
    }

    /// The match of each flow that is to be there. A port that is not there has none.
    pub(super) fn matches(&self) -> Vec<Match> {
        let Some(direction) = self.direction() else {
            return Vec::new();
        };
        let ports = direction.ingress.iter();
        let numbers = ports.filter_map(|port| self.present.number(port));
        let of_port = |port| {
            direction.destinations.iter().map(move |network| Match {
                in_port: Some(port),
                destination: Some(*network),
                has_more: false,
            })
        };
        numbers.flat_map(of_port).collect()
    }

    /// Whether a port by which packets come in is not there.
    pub(super) fn lacks_ports(&self) -> bool {
        let is_absent = |port: &String| self.present.number(port).is_none();
        let mut directions = self.direction().into_iter();
        directions.any(|direction| direction.ingress.iter().any(is_absent))
    }

    /// The driver's flow with this match.
    pub(super) fn flow(&self, matching: &Match) -> Option<&Flow> {
        let is_it = |flow: &&Flow| {
            flow.matching == *matching && (flow.table, flow.priority) == self.place_of_flows()
        };
        self.present.flows.iter().find(is_it)
    }

    fn place_of_flows(&self) -> (u8, u16) {
        (self.config.table, self.config.priority)
    }

    /// The group to which a flow leads, if it is one of the direction's.
    fn led_to(&self, flow: &Flow) -> Option<u32> {
        let mut ids = self.ids().into_iter();
        ids.find(|id| flow.instructions == leads_to(*id))
    }

    /// The group to which the direction's flows lead, the first of them if they differ; without flows, one that was left.
    fn current(&self) -> Option<&Group> {
        let matches = self.matches();
        let mut ids = matches.iter().filter_map(|one| {
            let id = self.led_to(self.flow(one)?)?;
            self.present.group(id)
        });
        let left = || self.ids().into_iter().find_map(|id| self.present.group(id));
        ids.next().or_else(left)
    }

    /// A group's slots as they are. Buckets that are no slots count as nobody's.
    fn stretches(&self, group: &Group) -> Vec<Stretch> {
        let of_target: Vec<_> = (0..self.targets.len())
            .map(|target| self.actions(target))
            .collect();
        let stretch = |bucket: &Bucket| Stretch {
            target: of_target
                .iter()
                .position(|actions| actions.as_ref() == Some(&bucket.actions)),
            weight: bucket.weight,
        };
        let mut buckets: Vec<_> = group.buckets.iter().collect();
        buckets.sort_by_key(|bucket| bucket.number);
        buckets.into_iter().map(stretch).collect()
    }

    /// The slots to which packets go now, of each different group to which flows lead: an empty one for a flow that is not
    /// there or leads elsewhere.
    pub(super) fn in_force(&self) -> Vec<Vec<Stretch>> {
        let mut ids: Vec<Option<u32>> = Vec::new();
        for one in self.matches() {
            let id = self.flow(&one).and_then(|flow| self.led_to(flow));
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let slots_of = |id: Option<u32>| {
            let group = id.and_then(|id| self.present.group(id));
            group.map(|group| self.stretches(group)).unwrap_or_default()
        };
        ids.into_iter().map(slots_of).collect()
    }

    /// Whether a group has the slots that were written for it.
    fn is_whole(&self, group: &Group) -> bool {
        let is_slot = |(place, bucket): (usize, &Bucket)| {
            bucket.number as usize == place && bucket.weight == 1
        };
        group.buckets.len() == usize::from(self.config.slots)
            && group.buckets.iter().enumerate().all(is_slot)
    }

    /// The slots from which a change starts: those that are in force, and where these say nothing, those that were last.
    pub(super) fn before(&self, last: Option<&[Stretch]>) -> Option<Vec<Stretch>> {
        let current = self.current().filter(|group| self.is_whole(group));
        let Some(mut slots) = current.map(|group| self.stretches(group)) else {
            return last.map(<[Stretch]>::to_vec);
        };
        for (slot, last) in slots.iter_mut().zip(last.unwrap_or_default()) {
            slot.target = slot.target.or(last.target);
        }
        Some(slots)
    }

    /// Adds what must change to have these slots in force. None: a target's port is not there.
    pub(super) fn plan(&self, slots: &[Stretch], changes: &mut Changes) -> Option<()> {
        let selection = match self.present.version {
            Version::V13 => Selection::Unnamed,
            Version::V15 => self.direction()?.hash,
        };
        let bucket = |(number, slot): (usize, &Stretch)| {
            Some(Bucket {
                number: number as u32,
                weight: 1,
                actions: self.actions(slot.target?)?,
            })
        };
        let buckets: Option<Vec<_>> = slots.iter().enumerate().map(bucket).collect();
        let buckets = buckets?;
        let group = |id| Group {
            id,
            selects: true,
            selection,
            buckets: buckets.clone(),
        };
        let [first, second] = self.ids();
        let current = self.current();
        let is_right = current.is_some_and(|current| *current == group(current.id));
        let id = match (current, self.present.version) {
            (Some(current), _) if is_right => current.id,
            // A bundle changes it in its place.
            (Some(current), Version::V15) => current.id,
            (Some(current), Version::V13) if current.id == first => second,
            _ => first,
        };
        let wanted = group(id);
        match self.present.group(id) {
            Some(group) if *group == wanted => {}
            there => changes.groups.push(GroupMod {
                command: if there.is_some() {
                    GroupCommand::Modify
                } else {
                    GroupCommand::Add
                },
                group: wanted,
            }),
        }
        for matching in self.matches() {
            let leads = leads_to(id);
            if self
                .flow(&matching)
                .is_none_or(|flow| flow.instructions != leads)
            {
                changes
                    .flows
                    .push(self.flow_mod(FlowCommand::Add, matching, leads));
            }
        }
        Some(())
    }

    fn flow_mod(
        &self,
        command: FlowCommand,
        matching: Match,
        instructions: Vec<Instruction>,
    ) -> FlowMod {
        let (table, priority) = self.place_of_flows();
        FlowMod {
            command,
            cookie: self.config.cookie,
            table,
            priority,
            matching,
            instructions,
        }
    }
}

fn leads_to(group: u32) -> Vec<Instruction> {
    vec![Instruction::Apply(vec![Action::Group(group)])]
}

/// Deletions of the driver's flows that no direction has: of an earlier configuration, or of a port that has another number now.
pub(super) fn deletions(directions: &[Direction<'_>], cookie: u64) -> Vec<FlowMod> {
    let Some(first) = directions.first() else {
        return Vec::new();
    };
    let wanted: Vec<Match> = directions.iter().flat_map(Direction::matches).collect();
    let is_wanted = |flow: &Flow| {
        (flow.table, flow.priority) == first.place_of_flows() && wanted.contains(&flow.matching)
    };
    let deletion = |flow: &Flow| FlowMod {
        command: FlowCommand::DeleteStrict,
        cookie,
        table: flow.table,
        priority: flow.priority,
        matching: flow.matching,
        instructions: Vec::new(),
    };
    // A match that this driver cannot write is none of its own, in spite of the cookie.
    let flows = first.present.flows.iter();
    flows
        .filter(|flow| !flow.matching.has_more && !is_wanted(flow))
        .map(deletion)
        .collect()
}

/// How much of the flow space goes to this target, or to none, over all stretches that are in force: the least, or the most.
pub(super) fn shares(
    in_force: &[Vec<Stretch>],
    target: Option<usize>,
) -> impl Iterator<Item = u16> {
    in_force
        .iter()
        .map(move |slots| slots::share_permille(slots, target))
}
