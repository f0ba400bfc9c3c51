//! Open vSwitch: flows that lead to groups, one group a direction, whose buckets are slots.
//!
//! The driver connects to a bridge's own listener for controllers (`ptcp:`, `punix:`), rather than being listened for: it then
//! needs no port of its own, several may be connected (the next orchestrator's too), and the switch takes its absence for no
//! failure of a controller, so rules stay. `fail_mode` must be `secure` all the same; it is checked where the database is
//! given.
//!
//! In OpenFlow 1.5 a change is one bundle, which is in force whole or not at all. In OpenFlow 1.3 a direction has two groups: the
//! one to which no flow leads is written, then the flows are led there, with a barrier after each step. The driver knows its
//! flows by their cookie and its groups by their numbers; each call reads both, changes what differs, and leaves those of
//! others alone.
//!
//! `config.rs` has the settings; `openflow/` the messages; `connection.rs` and `channel.rs` speak them; `plan.rs` computes;
//! `database.rs` checks the bridge's settings.

mod channel;
mod config;
mod connection;
mod database;
pub mod openflow;
mod plan;

use std::fmt;
use std::time::Duration;

pub use self::config::{
    CALL_TIME_SANE, CALL_TIMES, COOKIE, DIRECTIONS_MAX, FIRST_GROUP, INGRESS_PORTS_MAX,
    NETWORKS_MAX, OvsAddress, OvsConfig, OvsConfigError, OvsDatabase, OvsDirection, OvsHop,
    PRIORITY, SLOTS_MAX, SLOTS_SANE,
};
pub use self::openflow::{MacAddress, Network, Selection, Version};

use self::channel::{Deadline, Dial};
use self::connection::{Connection, LinkError};
use self::openflow::{FlowFilter, FlowMod, Match, Message, PORT_NUMBER_MAX};
use self::plan::{Changes, Direction, Present};
use super::slots::{self, Stretch};
use super::{
    Abilities, Applied, Counts, Desired, InForce, Observed, ObservedTarget, Steering, SteeringError,
};

/// Versions that the driver speaks.
const VERSIONS: [Version; 2] = [Version::V13, Version::V15];

/// The driver.
pub struct OvsSteering {
    config: OvsConfig,
    /// The targets' names, in the order of the first direction.
    targets: Vec<String>,
    dial: Box<dyn Dial>,
    connection: Option<Connection>,
    applied: Applied,
    /// Slots that were in force at the end of the last call that went well: a switch that has lost its groups gets them again.
    last: Option<Vec<Stretch>>,
    counts: Counts,
}

impl fmt::Debug for OvsSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OvsSteering")
            .field("config", &self.config)
            .field("version", &self.version())
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

impl OvsSteering {
    /// A driver of this bridge. Connects at its first call, and touches nothing before something is applied. Dropped, it leaves the
    /// rules as they are.
    ///
    /// # Errors
    /// The configuration says something that cannot be.
    pub fn new(config: OvsConfig) -> Result<OvsSteering, OvsConfigError> {
        config.check()?;
        let dial = Box::new(config.switch.clone());
        Ok(OvsSteering::with_dial(config, dial))
    }

    fn with_dial(config: OvsConfig, dial: Box<dyn Dial>) -> OvsSteering {
        let hops = config.directions.first().map(|first| first.hops.iter());
        let names = hops.into_iter().flatten().map(|hop| hop.target.clone());
        OvsSteering {
            targets: names.collect(),
            config,
            dial,
            connection: None,
            applied: Applied::default(),
            last: None,
            counts: Counts::default(),
        }
    }

    /// The version that is spoken; none while there is no connection.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.connection.as_ref().map(Connection::version)
    }

    /// Waits until a port of the bridge has changed, for that long at most; whether one may have since the last such call, as it may
    /// while there was no connection. Then [`Steering::observe`] says whose link is down. Also keeps the connection alive: the
    /// switch ends one on which its probes are not answered (`inactivity_probe`, 5 s), and each call makes another one then.
    ///
    /// # Errors
    /// [`SteeringError::Unreachable`] or [`SteeringError::Unreadable`]. Nothing was touched.
    pub fn wait_for_ports(&mut self, time_max: Duration) -> Result<bool, SteeringError> {
        if self.connect(Deadline::after(self.config.time_max))? {
            return Ok(true);
        }
        let deadline = Deadline::after(time_max);
        loop {
            let Some(connection) = &mut self.connection else {
                return Ok(false);
            };
            if connection.take_port_changed() {
                return Ok(true);
            }
            match connection.wait(deadline) {
                Ok(()) => {}
                Err(LinkError::TimedOut(_)) => return Ok(false),
                Err(error) => {
                    self.connection = None;
                    return Err(self.unread(error));
                }
            }
        }
    }

    /// Refuses what cannot or must not be applied; else each taker's place among the targets with its weight, in their order.
    fn takers(&self, desired: &Desired) -> Result<Vec<(usize, u16)>, SteeringError> {
        self.applied.check(desired)?;
        let mut takers = Vec::new();
        for (name, weight) in desired.takers() {
            let place = self.targets.iter().position(|target| target == name);
            let place = place.ok_or_else(|| SteeringError::UnknownTarget(name.to_owned()))?;
            takers.push((place, weight));
        }
        takers.sort_unstable();
        if takers.len() > usize::from(self.config.slots) {
            return Err(SteeringError::TooManyTargets {
                takers: takers.len(),
                most: self.config.slots.into(),
            });
        }
        Ok(takers)
    }

    /// A failure while nothing was changed yet.
    fn unread(&self, error: LinkError) -> SteeringError {
        let (what, said) = (self.config.switch.to_string(), error.to_string());
        match error {
            LinkError::Unreadable(_) | LinkError::TooMuch => {
                SteeringError::Unreadable { what, said }
            }
            _ => SteeringError::Unreachable { what, said },
        }
    }

    /// A failure after a change was sent.
    fn unsure(error: LinkError, what: String) -> SteeringError {
        let said = error.to_string();
        match error {
            LinkError::TimedOut(waited) => SteeringError::TimedOut { what, waited },
            LinkError::Refused(_) => SteeringError::Refused { what, said },
            _ => SteeringError::Lost { what, said },
        }
    }

    /// Makes sure of a connection; whether it was made now.
    fn connect(&mut self, deadline: Deadline) -> Result<bool, SteeringError> {
        if let Some(connection) = &mut self.connection {
            if connection.catch_up(deadline).is_ok() {
                return Ok(false);
            }
            self.connection = None;
        }
        if let Some(database) = &self.config.database {
            database::check_fail_mode(database, deadline)?;
        }
        let opened = self
            .dial
            .dial(deadline)
            .map_err(|error| LinkError::of(&error, deadline))
            .and_then(|channel| Connection::open(channel, &VERSIONS, deadline));
        let connection = opened.map_err(|error| self.unread(error))?;
        let tables = connection.features().tables;
        if self.config.table >= tables {
            return Err(SteeringError::Unreachable {
                what: format!("table {} of {}", self.config.table, self.config.switch),
                said: format!("the bridge has {tables} tables"),
            });
        }
        self.connection = Some(connection);
        Ok(true)
    }

    /// Asks the switch. A connection that has ended since the last call is made again.
    fn read(&mut self, deadline: Deadline) -> Result<Present, SteeringError> {
        let is_new = self.connect(deadline)?;
        let present = match self.read_once(deadline) {
            Err(LinkError::Ended(_)) if !is_new => {
                self.connection = None;
                self.connect(deadline)?;
                self.read_once(deadline)
            }
            read => read,
        };
        present.map_err(|error| {
            self.connection = None;
            self.unread(error)
        })
    }

    fn read_once(&mut self, deadline: Deadline) -> Result<Present, LinkError> {
        let Some(connection) = &mut self.connection else {
            return Err(LinkError::Ended("there is no connection".to_owned()));
        };
        let filter = FlowFilter {
            table: openflow::ALL_TABLES,
            cookie: self.config.cookie,
            cookie_mask: u64::MAX,
            matching: Match::default(),
        };
        let ids = (0..self.config.directions.len())
            .flat_map(|place| plan::group_ids(&self.config, place))
            .collect::<Vec<_>>();
        let mut groups = connection.groups(&ids, deadline)?;
        for group in &mut groups {
            group.buckets.sort_by_key(|bucket| bucket.number);
        }
        let ports = connection.ports(deadline)?.into_iter();
        Ok(Present {
            version: connection.version(),
            flows: connection.flows(filter, deadline)?,
            groups,
            ports: ports
                .filter(|port| port.number <= PORT_NUMBER_MAX)
                .map(|port| (port.name.clone(), port))
                .collect(),
        })
    }

    fn directions<'a>(&'a self, present: &'a Present) -> Vec<Direction<'a>> {
        let direction = |place| Direction {
            config: &self.config,
            place,
            targets: &self.targets,
            present,
        };
        (0..self.config.directions.len()).map(direction).collect()
    }

    /// The slots that these takers are to have, how much of the flow space they move, and the changes that bring them about.
    fn plan(
        &self,
        present: &Present,
        takers: &[(usize, u16)],
    ) -> Result<(Vec<Stretch>, u16, Changes), SteeringError> {
        let directions = self.directions(present);
        let befores: Vec<_> = directions
            .iter()
            .map(|direction| direction.before(self.last.as_deref()))
            .collect();
        // All directions have the slots of the first one that has any.
        let before = befores.iter().flatten().next();
        let after = slots::assign(self.config.slots.into(), takers, before.map(Vec::as_slice));
        let mut changes = Changes::default();
        let mut moved = 0;
        for (direction, before) in directions.iter().zip(&befores) {
            moved = moved.max(slots::moved_permille(before.as_deref(), &after));
            if direction.matches().is_empty() {
                return Err(self.not_there("a port by which packets come in"));
            }
            direction
                .plan(&after, &mut changes)
                .ok_or_else(|| self.not_there("the port of a target that takes packets"))?;
        }
        let deletions = plan::deletions(&directions, self.config.cookie);
        changes.flows.extend(deletions);
        Ok((after, moved, changes))
    }

    fn not_there(&self, what: &str) -> SteeringError {
        SteeringError::Refused {
            what: format!("steering at {}", self.config.switch),
            said: format!("the bridge does not have {what}"),
        }
    }

    /// Refuses changes that would take away what another program wrote.
    fn respect_others(
        &mut self,
        present: &Present,
        changes: &Changes,
        deadline: Deadline,
    ) -> Result<(), SteeringError> {
        let somebody_elses = |what: String, mark: String| SteeringError::Refused {
            said: format!("another program has it, {mark}"),
            what,
        };
        if let Some(group) = present.groups.iter().find(|it| !plan::has_our_form(it)) {
            let mark = "for it has another form; choose another `first_group`".to_owned();
            return Err(somebody_elses(format!("group {:#x}", group.id), mark));
        }
        let is_ours = |change: &FlowMod| {
            let mut flows = present.flows.iter();
            let place = (change.table, change.priority, change.matching);
            flows.any(|flow| (flow.table, flow.priority, flow.matching) == place)
        };
        for change in changes.flows.iter().filter(|change| !is_ours(change)) {
            let Some(connection) = &mut self.connection else {
                break;
            };
            let filter = FlowFilter {
                table: change.table,
                cookie: 0,
                cookie_mask: 0,
                matching: change.matching,
            };
            let flows = connection.flows(filter, deadline).map_err(|error| {
                self.connection = None;
                self.unread(error)
            })?;
            let same = |flow: &&openflow::Flow| {
                flow.priority == change.priority && flow.matching == change.matching
            };
            if let Some(flow) = flows.iter().find(same) {
                let mark = format!(
                    "with the cookie {:#x}; choose another priority",
                    flow.cookie
                );
                return Err(somebody_elses(describe(change), mark));
            }
        }
        Ok(())
    }

    /// Makes the changes. After a failure the connection is dropped, and with it a bundle that was not committed.
    fn make(&mut self, changes: Changes, deadline: Deadline) -> Result<(), SteeringError> {
        let what = format!(
            "changing {} groups and {} flows at {}",
            changes.groups.len(),
            changes.flows.len(),
            self.config.switch
        );
        let Some(mut connection) = self.connection.take() else {
            let said = "there is no connection".to_owned();
            return Err(SteeringError::Unreachable { what, said });
        };
        let groups = changes.groups.into_iter().map(Message::GroupMod);
        let flows = changes.flows.into_iter().map(Message::FlowMod);
        let steps: [Vec<_>; 2] = [groups.collect(), flows.collect()];
        match connection.version() {
            Version::V15 => {
                let prepared = connection.prepare(steps.concat(), deadline);
                let prepared = prepared.map_err(|error| match error {
                    LinkError::Refused(refused) => SteeringError::Refused {
                        what: what.clone(),
                        said: refused.to_string(),
                    },
                    error => self.unread(error),
                })?;
                connection
                    .commit(prepared, deadline)
                    .map_err(|error| OvsSteering::unsure(error, what))?;
            }
            Version::V13 => {
                for step in steps.iter().filter(|step| !step.is_empty()) {
                    connection
                        .change(step, deadline)
                        .map_err(|error| OvsSteering::unsure(error, what.clone()))?;
                }
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Brings it about: how many groups and flows were changed, and how much of the flow space moved.
    fn bring_about(
        &mut self,
        takers: &[(usize, u16)],
        deadline: Deadline,
    ) -> Result<(u32, u16), SteeringError> {
        let present = self.read(deadline)?;
        let (slots, moved, changes) = self.plan(&present, takers)?;
        let count = changes.count();
        if count > 0 {
            self.respect_others(&present, &changes, deadline)?;
            self.make(changes, deadline)?;
        }
        self.last = Some(slots);
        Ok((u32::try_from(count).unwrap_or(u32::MAX), moved))
    }
}

fn describe(change: &FlowMod) -> String {
    let matching = change.matching;
    let port = matching.in_port.unwrap_or_default();
    let network = matching.destination.map(|network| network.to_string());
    format!(
        "the flow of table {} with priority {} from port {port} to {}",
        change.table,
        change.priority,
        network.unwrap_or_default()
    )
}

impl Steering for OvsSteering {
    fn abilities(&self) -> Abilities {
        Abilities {
            keeps_flows: false,
            moves_least: true,
            waits_max: self.config.time_max,
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        let deadline = Deadline::after(self.config.time_max);
        let takers = self
            .takers(desired)
            .inspect_err(|_| self.counts.refused += 1)?;
        let was_applied = self.applied.begin(desired);
        let (changed, moved) = self
            .bring_about(&takers, deadline)
            .inspect_err(|_| self.counts.failed += 1)?;
        self.applied.finish();
        self.counts.applied += 1;
        self.counts.changed += u64::from(changed);
        self.counts.repaired += u64::from(was_applied && changed > 0);
        Ok(InForce {
            generation: desired.generation(),
            changed,
            moved_permille: Some(moved),
            took: deadline.elapsed(),
        })
    }

    fn observe(&mut self) -> Result<Observed, SteeringError> {
        let present = self.read(Deadline::after(self.config.time_max))?;
        let directions = self.directions(&present);
        let in_force: Vec<_> = directions.iter().flat_map(Direction::in_force).collect();
        let is_down = |name: &String| {
            let mut hops = self.config.directions.iter().flat_map(|one| &one.hops);
            hops.any(|hop| {
                let port = present.ports.get(&hop.port);
                hop.target == *name && port.is_none_or(openflow::Port::is_down)
            })
        };
        let target = |(place, name): (usize, &String)| ObservedTarget {
            name: name.clone(),
            share_permille: plan::shares(&in_force, Some(place)).min().unwrap_or(0),
            link_down: is_down(name),
        };
        let takers = self.applied.begun().and_then(|begun| {
            let takers = self.takers(begun).ok()?;
            Some((begun.generation(), takers))
        });
        let is_finished = self.applied.is_finished();
        let is_right = takers.as_ref().is_some_and(|(_, takers)| {
            let planned = self.plan(&present, takers);
            planned.is_ok_and(|(_, _, changes)| changes.count() == 0)
        });
        Ok(Observed {
            generation: takers
                .filter(|_| is_finished)
                .map(|(generation, _)| generation),
            as_applied: is_finished && is_right && !directions.iter().any(Direction::lacks_ports),
            targets: self.targets.iter().enumerate().map(target).collect(),
            elsewhere_permille: plan::shares(&in_force, None).max().unwrap_or(0),
        })
    }

    /// Without a connection nobody is notified: the next [`Steering::observe`] makes one.
    fn links_changed(&mut self) -> bool {
        self.connection.is_some() && self.wait_for_ports(Duration::ZERO).unwrap_or(true)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests;
