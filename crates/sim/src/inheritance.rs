//! A member dies, or is only cut off, and what it held of a pool is dealt on; then it returns and gets it back.
//!
//! A cluster of its own, with times so short that all of it happens within a minute of its clock: flows open and talk everywhere,
//! also at a member that is cut off and knows of nothing; epochs reach each member at another moment. At every moment no block
//! may be granted from by two running processes, no port may be given to a flow while another has it and has talked within its
//! idle time, and in the end what the dead held must have been given out again, and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_engine::link::{LinkConditions, Network};
use asterism_engine::{Cluster, HostConfig};
use asterism_function::PortNumber;
use asterism_placement::replicated::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_state::{BLOCK_ITEMS, Dealing};

use crate::exercise::{Command, Exercise, Sizes, Verb};
use crate::ports::SHELVES;
use crate::report::Failure;
use crate::scenario::{Draws, Scenario};
use crate::world::{TURN, build_host};

/// One seed in so many has an inheritance.
const ONE_IN: u64 = 20;
/// Time between two rounds of load.
const STEP: Duration = Duration::from_millis(25);
/// Longer than an idle time, so that a lease that is not waited for shows.
const LEASE: Duration = Duration::from_secs(7);
/// How long flows go on after the last time that they must have been given out again.
const MARGIN: Duration = Duration::from_secs(3);
/// An epoch reaches the last member at most so long after the first.
const SPREAD_US: u64 = 700_000;
/// Flows that a member's clients have at one time at most.
const FLOWS: usize = 24;

/// How a member goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is killed, and whoever writes the epoch knows it.
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
    /// Whose process handled it last.
    at: usize,
    used: Time,
    closed: bool,
}

struct Estate {
    cluster: Cluster<Exercise>,
    scenario: Scenario,
    draws: Draws,
    /// By port, the flow that it was given to last.
    talks: BTreeMap<u16, Talk>,
    /// The ports of each member's clients.
    own: Vec<Vec<(u16, u16)>>,
    next: u32,
    /// Clients that there were.
    clients: BTreeSet<u16>,
    /// Ports of flows that a dead member had.
    lost: Vec<u16>,
    /// Members whose process runs.
    running: Vec<bool>,
}

/// Whether this scenario has one.
pub(crate) fn is_due(scenario: &Scenario) -> bool {
    scenario.seed % ONE_IN == 8
}

/// An inheritance, and what must hold in it.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn live_through(scenario: &Scenario) -> Result<(), Failure> {
    let mut draws = Draws::new(scenario.seed, 11);
    let mut scenario = scenario.clone();
    scenario.sizes = Sizes {
        tokens: 60_000,
        entries: 4_096,
        ports: draws.within(6, 14) as u32 * BLOCK_ITEMS + draws.within(0, 63) as u32,
        idle: [draws.within(1, 3) as u32, 1],
        ..scenario.sizes.clone()
    };
    (scenario.bounds.log_groups, scenario.bounds.log_bytes) = (8_192, 262_144);
    let members = scenario.members();
    let mut ways = vec![End::Killed];
    if members > 2 {
        ways.extend([End::Silent, End::CutOff, End::CutOff]);
    }
    let end = draws.one_of(&ways);
    let victim = draws.within(0, members as u64 - 1) as usize;
    let mut estate = Estate::new(scenario, draws);
    estate.pass(Duration::from_millis(400))?;
    let all: Vec<usize> = (0..members).collect();
    let survivors: Vec<usize> = all
        .iter()
        .copied()
        .filter(|&place| place != victim)
        .collect();
    estate.hand_out(
        &all,
        &estate.roster(2, &all, victim, 100, &Dealing::default()),
    )?;
    estate.pass(Duration::from_millis(600))?;
    estate.end(victim, end)?;

    let mut dealing = Dealing::default();
    let living: Vec<u16> = survivors.iter().map(|&place| place as u16).collect();
    dealing.leave(victim as u16, &living, 3);
    if end == End::Killed {
        dealing.fence(victim as u16, victim as u64 + 100);
    }
    let roster = estate.roster(3, &survivors, victim, 100, &dealing);
    estate.hand_out(&survivors, &roster)?;
    estate.pass(estate.wait(end) + MARGIN)?;
    estate.was_inherited(&survivors, true)?;

    // What was cut off reads that it has ended before anybody may name its next life.
    estate.running[victim] = false;
    dealing.come_back(victim as u16, 4);
    estate.reborn(victim);
    let slow = survivors.last().copied().filter(|_| survivors.len() > 1);
    if let Some(slow) = slow {
        // It learns of the epoch late, though its host's state channel has it.
        estate.cluster.set_stalled(slow, 0, true);
    }
    let roster = estate.roster(4, &all, victim, 1_000, &dealing);
    estate.hand_out(&all, &roster)?;
    estate.pass(Duration::from_millis(1_500))?;
    if let Some(slow) = slow {
        estate.cluster.set_stalled(slow, 0, false);
    }
    estate.pass(Duration::from_secs(2) + MARGIN)?;
    estate.was_inherited(&survivors, false)?;
    estate.came_back(victim)?;
    estate.all_return()
}

impl Estate {
    fn new(scenario: Scenario, draws: Draws) -> Estate {
        let members = scenario.members();
        let hosts = (0..members).map(|place| {
            let life = place as u64 + 100;
            build_host(&scenario, place, life, 3, |config| {
                config.port_lease = LEASE
            })
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
            lost: Vec::new(),
            running: vec![true; members],
            scenario,
        }
    }

    /// Which members take part, the victim in the life that `lives` says.
    fn roster(
        &self,
        epoch: u32,
        places: &[usize],
        victim: usize,
        lives: u64,
        dealing: &Dealing,
    ) -> Roster {
        let members = places.iter().map(|&place| {
            let life = place as u64 + if place == victim { lives } else { 100 };
            (MemberId(place as u16), Some(Incarnation(life)))
        });
        Roster {
            epoch: Epoch(epoch),
            members: members.collect(),
            dealing: dealing.to_bytes(),
        }
    }

    fn idle(&self) -> Duration {
        let idle = self.scenario.sizes.idle[0];
        Duration::from_secs(u64::from(idle + idle / 4 + 1))
    }

    /// After so long what a member held must be given out again.
    fn wait(&self, end: End) -> Duration {
        let lease = match end {
            End::Killed => Duration::ZERO,
            End::Silent | End::CutOff => {
                let serves = LEASE + self.idle();
                serves + serves / 64 + Duration::from_secs(1)
            }
        };
        self.idle() + lease
    }

    fn end(&mut self, victim: usize, end: End) -> Result<(), Failure> {
        let others: Vec<u16> = (0..self.own.len() as u16)
            .filter(|&place| usize::from(place) != victim)
            .collect();
        if end == End::CutOff {
            let network = self.cluster.network_mut();
            network.set_partitioned(&[victim as u16], &others, true);
            network.set_partitioned(&others, &[victim as u16], true);
            return self.pass(Duration::from_millis(200));
        }
        // Its last flows are known to nobody else.
        let network = self.cluster.network_mut();
        network.set_partitioned(&[victim as u16], &others, true);
        for _ in 0..16 {
            self.load(victim);
        }
        self.pass(Duration::from_millis(1))?;
        self.running[victim] = false;
        self.cluster.set_paused(victim, true);
        self.lost = self.own[victim].drain(..).map(|(_, port)| port).collect();
        Ok(())
    }

    fn reborn(&mut self, victim: usize) {
        let life = victim as u64 + 1_000;
        let host = build_host(
            &self.scenario,
            victim,
            life,
            9,
            |config: &mut HostConfig| {
                (config.joins, config.port_lease) = (true, LEASE);
            },
        );
        self.cluster.replace(victim, host);
        self.cluster.set_paused(victim, false);
        self.cluster
            .network_mut()
            .change_all(|link| link.partitioned = false);
        self.running[victim] = true;
        self.own[victim].clear();
    }

    fn hand_out(&mut self, places: &[usize], roster: &Roster) -> Result<(), Failure> {
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
                .install(place, roster)
                .map_err(|why| Failure::new("rosters are installed", format!("m{place}: {why}")))?;
        }
        Ok(())
    }

    /// Time passes, under load.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
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
                self.look()?;
                if !more {
                    break;
                }
            }
            self.one_holder()?;
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
    fn look(&mut self) -> Result<(), Failure> {
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
                && (!done.granted || !talk.closed && now < talk.used + idle)
            {
                return Err(Failure::new(
                    "no port to two flows",
                    format!(
                        "{now} m{place} has port {port} for client {client}, which client {} used at m{} at {}",
                        talk.client, talk.at, talk.used
                    ),
                ));
            }
            // A use that had not heard of the closing yet does not undo it.
            let before = talk.is_some_and(|talk| talk.client == client && talk.closed);
            let closed = done.command.verb == Verb::Close || before && !done.granted;
            if done.granted {
                self.own[place].push((client, port));
            }
            let talk = Talk {
                client,
                at: place,
                used: now,
                closed,
            };
            self.talks.insert(port, talk);
        }
        Ok(())
    }

    /// No block is granted from by two running processes, or by two instances of one.
    fn one_holder(&self) -> Result<(), Failure> {
        let items = self.scenario.sizes.ports;
        let blocks = (0..SHELVES).flat_map(|shelf| {
            let places = (0..items).step_by(BLOCK_ITEMS as usize);
            places.map(move |place| (shelf * items + place) as u16)
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

    /// The survivors grant from what the dead held, or do not any more.
    fn was_inherited(&self, survivors: &[usize], inherited: bool) -> Result<(), Failure> {
        let mut reclaimed = 0;
        let mut quarantined = 0;
        for &place in survivors {
            for instance in &self.cluster.members()[place].instances {
                let usage = instance.state().ports.usage();
                reclaimed += usage.reclaimed;
                quarantined += usage.quarantined;
            }
        }
        let blocks = self.scenario.sizes.ports * SHELVES / BLOCK_ITEMS;
        let least = BLOCK_ITEMS * (blocks / self.own.len() as u32 / 2);
        if (reclaimed >= least) != inherited || quarantined > 0 {
            return Err(Failure::new(
                "what the dead held is given out again, and comes back",
                format!(
                    "{}: {reclaimed} ports reclaimed, {quarantined} quarantined, epoch {:?}",
                    self.cluster.now(),
                    self.cluster.members()[survivors[0]]
                        .channel
                        .replicator()
                        .epoch(),
                ),
            ));
        }
        Ok(())
    }

    /// Whoever returned grants from what is its own by place.
    fn came_back(&self, victim: usize) -> Result<(), Failure> {
        let instances = self.cluster.members()[victim].instances.iter();
        let (mut leased, mut quarantined) = (0, 0);
        for instance in instances {
            let usage = instance.state().ports.usage();
            leased += usage.leased;
            quarantined += usage.quarantined;
        }
        if leased == 0 || quarantined > 0 {
            return Err(Failure::new(
                "who returns gets its blocks back",
                format!("m{victim}: {leased} ports leased, {quarantined} quarantined"),
            ));
        }
        Ok(())
    }

    /// Once nobody talks any more, no port is in use at anybody, whoever granted it.
    fn all_return(&mut self) -> Result<(), Failure> {
        for _ in 0..40 {
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
