//! The cluster of an [inheritance](crate::inheritance): hosts with short leases, flows that talk, walls between hosts, and what must hold at
//! every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig};
use asterism_function::PortNumber;
use asterism_io::link::{LinkConditions, Network};
use asterism_placement::membership::{InstallError, Roster};
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_state::{BLOCK_ITEMS, BlockAssignment};

use crate::entries::Entries;
use crate::exercise::{Command, Exercise, Verb};
use crate::groups::Groups;
use crate::ports::SHELVES;
use crate::report::Failure;
use crate::scenario::{Draws, Scenario};
use crate::world::{TURN, build_host};

/// Time between two rounds of load.
const STEP: Duration = Duration::from_millis(25);
/// Longer than an idle time, so that a lease that is not waited for shows.
pub(crate) const LEASE: Duration = Duration::from_secs(7);
/// An epoch reaches the last member at most so long after the first.
const SPREAD_US: u64 = 700_000;
/// An instance that stood still is behind for so long.
const CATCHES_UP: Duration = Duration::from_millis(500);
/// Flows that a member's clients have at one time at most.
const FLOWS: usize = 24;

/// How a member goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is killed, and the next epoch says so.
    Killed,
    /// It is dead, and nobody knows.
    Silent,
    /// It is cut off, handles packets, and nobody knows.
    CutOff,
}

/// A flow, as its ends see it.
#[derive(Clone, Copy, Debug)]
struct Talk {
    client: u16,
    /// Whose process handled it last, in which incarnation.
    at: usize,
    incarnation: u64,
    used: Time,
    closed: bool,
}

pub(crate) struct Estate {
    cluster: Cluster<Exercise>,
    scenario: Scenario,
    pub(crate) draws: Draws,
    /// By port, the flow that it was given to last.
    talks: BTreeMap<u16, Talk>,
    /// By client, the port that it was given last, in this incarnation of its host.
    given: BTreeMap<u16, u16>,
    /// The ports of each member's clients.
    own: Vec<Vec<(u16, u16)>>,
    next: u32,
    /// Clients that there were.
    clients: BTreeSet<u16>,
    /// Ports of flows that a dead member had.
    lost: Vec<u16>,
    /// Members whose process runs.
    running: Vec<bool>,
    /// The incarnation of each.
    incarnations: Vec<u64>,
    /// Members that hear each other and none of the rest.
    walled: BTreeSet<usize>,
    epoch: u32,
    assignment: BlockAssignment,
    /// The roster handed out last.
    roster: Option<Roster>,
    /// The member of which an instance stood still last, and when it went on.
    went_on: Option<(usize, Time)>,
    groups: Groups,
    entries: Entries,
}

/// A host with a short lease, which nobody audits.
fn settle(config: &mut HostConfig) {
    (config.port_lease, config.audited_objects) = (LEASE, 0);
}

impl Estate {
    pub(crate) fn new(scenario: Scenario, draws: Draws) -> Estate {
        let members = scenario.members();
        let hosts = (0..members).map(|place| {
            let incarnation = place as u64 + 100;
            build_host(&scenario, place, incarnation, 3, settle)
        });
        let hosts = hosts.collect();
        let mut network = Network::new(scenario.seed);
        let link = LinkConditions {
            loss: 0.04,
            ..LinkConditions::with_delay(scenario.link.delay)
        };
        network.set_defaults(link);
        let mut cluster = Cluster::new(hosts, network);
        cluster.set_turn(TURN);
        for (member, &skew) in cluster.members_mut().iter_mut().zip(&scenario.skew) {
            member.skew = skew;
        }
        Estate {
            cluster,
            draws,
            talks: BTreeMap::new(),
            own: vec![Vec::new(); members],
            next: 1,
            clients: BTreeSet::new(),
            given: BTreeMap::new(),
            lost: Vec::new(),
            running: vec![true; members],
            incarnations: (0..members as u64).map(|place| place + 100).collect(),
            walled: BTreeSet::new(),
            epoch: 1,
            assignment: BlockAssignment::default(),
            roster: None,
            went_on: None,
            groups: Groups::default(),
            entries: Entries::default(),
            scenario,
        }
    }

    fn idle(&self) -> Duration {
        let idle = self.scenario.sizes.idle[0];
        Duration::from_secs(u64::from(idle + idle / 4 + 1))
    }

    /// After so long what members held must be given out again.
    pub(crate) fn wait(&self, is_proved: bool) -> Duration {
        let lease = if is_proved {
            Duration::ZERO
        } else {
            let serves = LEASE + self.idle();
            serves + serves / 64 + Duration::from_secs(1)
        };
        self.idle() + lease
    }

    /// Whether nothing proves the end of somebody outside.
    pub(crate) fn is_any_unproved(&self) -> bool {
        let is_proved = |place: &usize| self.assignment.fenced.contains_key(&(*place as u16));
        !self.walled.iter().all(is_proved)
    }

    /// Members whose processes run.
    pub(crate) fn running(&self) -> Vec<usize> {
        let places = 0..self.running.len();
        places.filter(|&place| self.running[place]).collect()
    }

    /// Members go, all at once, and hear each other until they do: those that only go on too.
    pub(crate) fn go(&mut self, victims: &[(usize, End)]) -> Result<(), Failure> {
        let alone = victims.len() == 1 && self.walled.is_empty();
        let cut_off = victims.iter().any(|(_, end)| *end == End::CutOff);
        self.walled.extend(victims.iter().map(|(place, _)| *place));
        if cut_off || !alone {
            self.build_walls();
            self.pass(Duration::from_millis(200))?;
        }
        for &(place, end) in victims {
            if end != End::CutOff {
                self.die(place)?;
            }
        }
        Ok(())
    }

    /// A member's process ends. Its last flows are known to those at most who hear nobody else.
    pub(crate) fn die(&mut self, place: usize) -> Result<(), Failure> {
        self.walled.insert(place);
        let (inside, outside) = self.sides();
        let network = self.cluster.network_mut();
        network.set_partitioned(&inside, &outside, true);
        for _ in 0..16 {
            self.load(place);
        }
        self.pass(Duration::from_millis(1))?;
        let ports = self.own[place].iter().map(|&(_, port)| port);
        self.lost.extend(ports);
        self.end(place);
        self.cluster.set_paused(place, true);
        Ok(())
    }

    fn end(&mut self, place: usize) {
        self.running[place] = false;
        for (client, _) in self.own[place].drain(..) {
            self.given.remove(&client);
        }
    }

    fn sides(&self) -> (Vec<u16>, Vec<u16>) {
        let places = 0..self.running.len();
        let (inside, outside): (Vec<_>, Vec<_>) =
            places.partition(|place| self.walled.contains(place));
        let name = |places: Vec<usize>| places.into_iter().map(|place| place as u16).collect();
        (name(inside), name(outside))
    }

    fn build_walls(&mut self) {
        let (inside, outside) = self.sides();
        let network = self.cluster.network_mut();
        network.change_all(|link| link.partitioned = false);
        network.set_partitioned(&inside, &outside, true);
        network.set_partitioned(&outside, &inside, true);
    }

    /// The next epoch, of those that are not behind the wall: it deals what `gone` held, and says which of them have ended.
    pub(crate) fn leave(&mut self, gone: &[(usize, End)]) -> Result<(), Failure> {
        self.epoch += 1;
        let living: Vec<usize> = self.outside_the_wall();
        let names: Vec<u16> = living.iter().map(|&place| place as u16).collect();
        for &(place, end) in gone {
            self.assignment.leave(place as u16, &names, self.epoch);
            if end == End::Killed {
                self.assignment
                    .fence(place as u16, self.incarnations[place]);
            }
        }
        self.hand_out(&living)
    }

    /// The next epoch, of the same members: it says that one of those behind the wall has ended.
    pub(crate) fn fence(&mut self, place: usize) -> Result<(), Failure> {
        self.epoch += 1;
        self.assignment
            .fence(place as u16, self.incarnations[place]);
        self.hand_out(&self.outside_the_wall())
    }

    /// The next epoch, in which some come back. What only was cut off reads before that it has ended. One of the others
    /// learns of the epoch late, though its host's state channel has it; tells which instance.
    pub(crate) fn come_back(&mut self, places: &[usize]) -> Result<(usize, usize), Failure> {
        self.epoch += 1;
        let others = self.outside_the_wall();
        for &place in places {
            if self.running[place] {
                self.reads_its_end(place)?;
                self.end(place);
            }
            self.assignment.come_back(place as u16, self.epoch);
            self.walled.remove(&place);
            self.begin(place);
        }
        self.build_walls();
        // Of two instances of one host one stands still, and the other has the epoch in force.
        let instances = |place: &usize| self.cluster.members()[*place].instances.len();
        let slow = others.iter().copied().rev().max_by_key(instances);
        let slow = slow.unwrap_or(places[0]);
        let lane = self.draws.within(0, instances(&slow) as u64 - 1) as usize;
        if self.outside_the_wall().len() > 2 {
            self.cluster.set_stalled(slow, lane, true);
        }
        self.hand_out(&self.outside_the_wall())?;
        Ok((slow, lane))
    }

    /// An instance that stood still goes on.
    pub(crate) fn go_on(&mut self, (place, lane): (usize, usize)) {
        self.went_on = Some((place, self.cluster.now()));
        self.cluster.set_stalled(place, lane, false);
    }

    fn outside_the_wall(&self) -> Vec<usize> {
        let places = 0..self.running.len();
        places
            .filter(|place| !self.walled.contains(place))
            .collect()
    }

    /// A member that an epoch left out, or that it names in another incarnation, is said so.
    fn reads_its_end(&mut self, place: usize) -> Result<(), Failure> {
        let Some(left_out) = self.roster.clone() else {
            return Ok(());
        };
        let mut renamed = left_out.clone();
        let name = MemberId(place as u16);
        let next = Incarnation(self.incarnations[place] + 1);
        renamed.members.push((name, Some(next)));
        for roster in [left_out, renamed] {
            match self.cluster.install(place, &roster) {
                Err(why) if why.is_end() => {}
                other => {
                    return Err(Failure::new(
                        "who is left out reads it",
                        format!("m{place}: {other:?}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, place: usize) {
        let change = |config: &mut HostConfig| {
            settle(config);
            config.joins = true;
        };
        self.incarnations[place] += 1_000;
        let host = build_host(&self.scenario, place, self.incarnations[place], 9, change);
        self.cluster.replace(place, host);
        self.cluster.set_paused(place, false);
        self.groups.begins(place);
        self.entries.begins(place);
        self.running[place] = true;
    }

    /// The first epoch that names all.
    pub(crate) fn found(&mut self) -> Result<(), Failure> {
        self.epoch += 1;
        self.hand_out(&self.outside_the_wall())
    }

    /// Members are handed the epoch, each at another moment, and once more, which changes nothing.
    fn hand_out(&mut self, places: &[usize]) -> Result<(), Failure> {
        let named = places.iter().map(|&place| {
            let incarnation = Incarnation(self.incarnations[place]);
            (MemberId(place as u16), Some(incarnation))
        });
        let roster = Roster {
            epoch: Epoch(self.epoch),
            members: named.collect(),
            assignment: self.assignment.to_bytes(),
        };
        let mut handings: Vec<(u64, usize)> = places
            .iter()
            .map(|&place| (self.draws.within(0, SPREAD_US), place))
            .collect();
        handings.sort_unstable();
        let start = self.cluster.now();
        for (after, place) in handings {
            let at = start + Duration::from_micros(after);
            self.pass(at.since(self.cluster.now()))?;
            self.cluster
                .install(place, &roster)
                .map_err(|why| Failure::new("rosters are installed", format!("m{place}: {why}")))?;
            let again = self.cluster.install(place, &roster);
            if !matches!(again, Err(InstallError::NotNewer { .. })) {
                return Err(Failure::new(
                    "an epoch is put in force once",
                    format!("m{place}: {again:?}"),
                ));
            }
        }
        self.roster = Some(roster);
        Ok(())
    }

    /// Time passes, under load.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.cluster.now() + time;
        while self.cluster.now() < until {
            for place in 0..self.running.len() {
                if self.running[place] {
                    self.load(place);
                }
            }
            let next = (self.cluster.now() + STEP).min(until);
            loop {
                let more = self.cluster.advance(next);
                self.query()?;
                if !more {
                    break;
                }
            }
            self.one_holder()?;
            self.groups.take(&self.cluster)?;
            self.entries.query(&self.cluster)?;
        }
        Ok(())
    }

    /// A member's clients open flows, use those they have, and close some.
    fn load(&mut self, place: usize) {
        let count = self.own[place].len();
        let some = |draws: &mut Draws| draws.within(0, count as u64 - 1) as usize;
        let (verb, key) = if count == 0 || count < FLOWS && self.draws.percent(60) {
            let Some(client) = self.client() else { return };
            (Verb::Open, client)
        } else if self.draws.percent(12) {
            let chosen = some(&mut self.draws);
            (Verb::Close, self.own[place].swap_remove(chosen).0)
        } else if self.draws.percent(15) {
            // This one is left to idle out.
            let chosen = some(&mut self.draws);
            self.own[place].swap_remove(chosen);
            return;
        } else {
            let chosen = some(&mut self.draws);
            (Verb::Open, self.own[place][chosen].0)
        };
        let token = self.next;
        self.next += 1;
        let lanes = self.cluster.members()[place].instances.len() as u64;
        let lane = self.draws.within(0, lanes - 1) as usize;
        let packet = Command { verb, key, token }.packet();
        // What is not taken is lost, as packets are.
        self.cluster.inject(place, lane, PortNumber(0), &packet);
    }

    /// A client of its own for each flow. Many wish for ports of flows that only the dead knew.
    fn client(&mut self) -> Option<u16> {
        let (items, any) = (self.scenario.sizes.ports, self.draws.word() as u16);
        let client = if !self.lost.is_empty() && self.draws.percent(60) {
            let port = u32::from(self.draws.one_of(&self.lost));
            let turn = u32::from(any) % (u32::from(u16::MAX) / items);
            (port % items + items * turn) as u16
        } else {
            any
        };
        self.clients.insert(client).then_some(client)
    }

    /// Looks at what calls did since the last time.
    fn query(&mut self) -> Result<(), Failure> {
        let now = self.cluster.now();
        let mut all = Vec::new();
        for (place, member) in self.cluster.members().iter().enumerate() {
            for instance in &member.instances {
                instance.function().take_granted(|_, _| {});
                instance
                    .function()
                    .take_done(|done| all.push((place, done)));
            }
        }
        let idle = Duration::from_secs(u64::from(self.scenario.sizes.idle[0]));
        for (place, done) in all {
            let (client, Some(port)) = (done.command.key, done.port) else {
                continue;
            };
            let talk = self.talks.get(&port).copied();
            if let Some(talk) = talk
                && talk.client != client
                // A host that begins again grants what only its last incarnation knew: its own ports wait for nobody.
                && (talk.at != place || talk.incarnation == self.incarnations[place])
                && (!done.granted || !talk.closed && now < talk.used + idle)
            {
                return Err(Failure::new(
                    "no port to two flows",
                    format!(
                        "{now} m{place} has port {port} for client {client} (granted: {}), which client {} used at m{} at {}; {:?} are outside",
                        done.granted, talk.client, talk.at, talk.used, self.walled
                    ),
                ));
            }
            // A use that had not heard of the closing yet does not undo it.
            let before = talk.is_some_and(|talk| talk.client == client && talk.closed);
            let closed = done.command.verb == Verb::Close || before && !done.granted;
            if done.granted {
                self.is_kept_while_used(place, client, now)?;
                self.given.insert(client, port);
                self.own[place].push((client, port));
            }
            let talk = Talk {
                client,
                at: place,
                incarnation: self.incarnations[place],
                used: now,
                closed,
            };
            self.talks.insert(port, talk);
        }
        Ok(())
    }

    /// A client's flow keeps its port while it talks, at the one host that it talks by.
    fn is_kept_while_used(&self, place: usize, client: u16, now: Time) -> Result<(), Failure> {
        let since = self.went_on.filter(|(slow, _)| *slow == place);
        if since.is_some_and(|(_, at)| now < at + CATCHES_UP) {
            // It reads packets while it is still behind its sibling.
            return Ok(());
        }
        let before = self.given.get(&client);
        let talk = before.and_then(|port| self.talks.get(port));
        let idle = Duration::from_secs(u64::from(self.scenario.sizes.idle[0]));
        match talk {
            Some(talk)
                if (talk.client, talk.at, talk.closed) == (client, place, false)
                    && now < talk.used + idle =>
            {
                Err(Failure::new(
                    "an entry lives while it is used",
                    format!(
                        "{now} m{place} found no session of client {client}, which used it at {}",
                        talk.used
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// No block is granted from by two running processes, or by two instances of one.
    fn one_holder(&self) -> Result<(), Failure> {
        let items = self.scenario.sizes.ports;
        let blocks = (0..SHELVES).flat_map(|range| {
            let places = (0..items).step_by(BLOCK_ITEMS as usize);
            places.map(move |place| (range * items + place) as u16)
        });
        for port in blocks {
            let mut holders = Vec::new();
            for (place, member) in self.cluster.members().iter().enumerate() {
                if !self.running[place] {
                    continue;
                }
                for (lane, instance) in member.instances.iter().enumerate() {
                    if instance.grants_from_pools() && instance.state().ports.is_own(&port) {
                        holders.push((place, lane));
                    }
                }
            }
            if holders.len() > 1 {
                return Err(Failure::new(
                    "one holder of a block",
                    format!(
                        "{}: the block of port {port} is granted from by {holders:?}",
                        self.cluster.now()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// What certain members have by place, in ports.
    fn ports_of(&self, places: &[usize]) -> u32 {
        let (items, members) = (self.scenario.sizes.ports, self.running.len() as u32);
        let ranges = 0..SHELVES;
        let blocks = ranges.flat_map(|range| {
            let numbers = 0..items.div_ceil(BLOCK_ITEMS);
            numbers.map(move |number| (range, number))
        });
        let theirs = blocks
            .filter(|(range, number)| places.contains(&(((range + number) % members) as usize)));
        theirs
            .map(|(_, number)| (items - number * BLOCK_ITEMS).min(BLOCK_ITEMS))
            .sum()
    }

    /// Ports that were others' by place and that certain members grant, and those that they may not grant yet.
    fn inherited(&self, places: &[usize]) -> (u32, u32) {
        let members = places.iter().map(|&place| &self.cluster.members()[place]);
        let pools = members.flat_map(|member| &member.instances);
        let usage = pools.map(|instance| instance.state().ports.usage());
        usage.fold((0, 0), |(reclaimed, quarantined), usage| {
            (reclaimed + usage.reclaimed, quarantined + usage.quarantined)
        })
    }

    /// Members that take part grant from all that those behind the wall held, or from nothing of it yet.
    pub(crate) fn was_inherited(&self, is_over: bool) -> Result<(), Failure> {
        let gone: Vec<usize> = self.walled.iter().copied().collect();
        let all = self.ports_of(&gone);
        let found = self.inherited(&self.outside_the_wall());
        let expected = if is_over { (all, 0) } else { (0, all) };
        if found != expected {
            return Err(Failure::new(
                "what the dead held is given out again, and comes back",
                format!(
                    "{}: {found:?} ports reclaimed and quarantined, not {expected:?}, in epoch {}",
                    self.cluster.now(),
                    self.epoch
                ),
            ));
        }
        Ok(())
    }

    /// Certain members grant, or do not.
    pub(crate) fn grants(&self, places: &[usize], expected: bool) -> Result<(), Failure> {
        for &place in places {
            let mut instances = self.cluster.members()[place].instances.iter();
            if instances.any(|instance| instance.grants_from_pools() != expected) {
                return Err(Failure::new(
                    "who holds a lease grants, and nobody else",
                    format!("{}: m{place} grants: {}", self.cluster.now(), !expected),
                ));
            }
        }
        Ok(())
    }

    /// Who returned grants from all that is its own by place.
    pub(crate) fn came_back(&self, places: &[usize]) -> Result<(), Failure> {
        for &place in places {
            let instances = self.cluster.members()[place].instances.iter();
            let usage = instances.map(|instance| instance.state().ports.usage());
            let (leased, quarantined) = usage.fold((0, 0), |(leased, quarantined), usage| {
                (leased + usage.leased, quarantined + usage.quarantined)
            });
            if leased < self.ports_of(&[place]) || quarantined > 0 {
                return Err(Failure::new(
                    "who returns gets its blocks back",
                    format!("m{place}: {leased} ports leased, {quarantined} quarantined"),
                ));
            }
        }
        Ok(())
    }

    /// Once nobody talks any more, no port is in use at anybody, no matter who granted it.
    pub(crate) fn all_return(&mut self) -> Result<(), Failure> {
        for _ in 0..40 {
            self.groups.take(&self.cluster)?;
            self.cluster
                .run_until(self.cluster.now() + Duration::from_millis(500));
            if self.used().is_none() {
                return Ok(());
            }
        }
        Err(Failure::new(
            "what is reserved returns",
            format!("{:?} is in use though nobody talks", self.used()),
        ))
    }

    /// A port that somebody holds in use, and who.
    fn used(&self) -> Option<(usize, usize, u16)> {
        let ports = (self.scenario.sizes.ports * SHELVES) as u16;
        for (place, member) in self.cluster.members().iter().enumerate() {
            for (lane, instance) in member.instances.iter().enumerate() {
                let pool = &instance.state().ports;
                if let Some(port) = (0..ports).find(|port| pool.is_used(port)) {
                    return Some((place, lane, port));
                }
            }
        }
        None
    }
}
