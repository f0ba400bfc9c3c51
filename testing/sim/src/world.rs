//! One seed's run: a cluster of the shipped parts, the load, the faults, and when what is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, Instance, host};
use asterism_function::Tick;
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings, State};

use crate::audits;
use crate::branches;
use crate::checks;
use crate::congestion::{self, Overdue};
use crate::entries::Entries;
use crate::exercise::{Exercise, Exercised, Verb};
use crate::faults::Before;
use crate::foreign;
use crate::groups::Groups;
use crate::healing::Healing;
use crate::inheritance;
use crate::load::TORRENT;
use crate::moved::Looked;
use crate::moves;
use crate::oracle::Oracle;
use crate::rebirth;
use crate::repairs;
use crate::report::{Failure, Report};
use crate::scenario::{Draws, Fault, Planned, Scenario};
use crate::spent::Spent;
use crate::stranger;
use crate::sums;
use crate::tail;
use crate::trace::Trace;
use crate::upgrade;
use crate::witness::Witness;

/// Effective faults that a seed needs, and kinds of them.
pub const FAULTS_LEAST: u64 = 50;
/// Kinds of effective faults that a seed needs.
pub const KINDS_LEAST: usize = 4;
/// Commands that each member is given at least.
pub const OPERATIONS_LEAST: u64 = 500;
/// Rounds by which the safety phase is prolonged, at most, until enough faults hit.
const ROUNDS_MORE_MAX: u32 = 40;
/// Turns of a member's loop take this long, so that virtual time passes in fewer steps.
pub(crate) const TURN: Duration = Duration::from_micros(50);

/// What the clock of who is not ahead says at the beginning, in seconds.
pub(crate) const TICK_AT_ZERO: Tick = 1_000;

/// Frames of a kind that nobody here knows, to be skipped: kind, length, body.
const LATER_FRAMES: [u8; 10] = [0xF0, 4, 1, 2, 1, 0xF0, 0xF1, 2, 9, 9];

/// A run under way.
#[derive(Debug)]
pub struct World<'t> {
    pub(crate) scenario: Scenario,
    pub(crate) cluster: Cluster<Exercise>,
    pub(crate) oracle: Oracle,
    pub(crate) witness: Witness,
    pub(crate) draws: Draws,
    pub(crate) trace: &'t mut Trace,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) next_token: u32,
    /// Ports lately granted, for replies.
    pub(crate) recent_ports: Vec<u16>,
    /// Keys that were put into the filter and that nobody was asked to take out, as often as that.
    pub(crate) admitted: Vec<u16>,
    overdue: Overdue,
    groups: Groups,
    entries: Entries,
    /// What the oracle was informed of, and what was judged.
    reported: Looked,
    pub(crate) judged: Looked,
    steps: u64,
}

/// How a host of the scenario takes part in its cluster.
pub(crate) fn host_config(
    scenario: &Scenario,
    place: usize,
    incarnation: u64,
    salt: u8,
) -> (HostConfig, Draws) {
    let names: Vec<_> = (0..scenario.members() as u16).map(MemberId).collect();
    let key = ClusterKey::from_random(1, [7; 32]);
    let mut draws = Draws::new(scenario.seed, 100 + place as u64 + u64::from(salt) * 1_000);
    let mut secrets = [0; 48];
    for chunk in secrets.chunks_mut(8) {
        chunk.copy_from_slice(&draws.word().to_le_bytes());
    }
    let mut config = HostConfig::new(
        ClusterId(9),
        names[place],
        Incarnation(incarnation),
        names,
        key,
        secrets,
    );
    let bounds = &scenario.bounds;
    config.instances = scenario.lanes[place];
    config.datagram_bytes_max = bounds.datagram_bytes;
    config.tick_at_zero = TICK_AT_ZERO;
    config.shares_time = scenario.shares_time;
    config.flush_us = bounds.flush.as_micros() as u64;
    config.audited_objects = Exercised::OBJECTS.len();
    config.up_ring_bytes = 128 << 10;
    config.down_ring_bytes = 128 << 10;
    let replica = &mut config.replica;
    replica.log_groups_max = bounds.log_groups;
    replica.log_bytes_max = bounds.log_bytes;
    replica.reorder_groups_max = bounds.reorder_groups;
    replica.unapplied_groups_max = bounds.unapplied_groups;
    replica.gap_runs_max = bounds.gap_runs;
    replica.keep_alive = bounds.keep_alive;
    replica.retransmit_min = bounds.retransmit_min;
    replica.retransmit_max = bounds.retransmit_max;
    replica.acknowledge_delay = bounds.acknowledge_delay;
    replica.lookahead = bounds.lookahead;
    replica.coalescing_max = bounds.coalescing_max;
    replica.congested_above = bounds.congested_above;
    replica.silent_after = bounds.silent_after;
    replica.delivery = scenario.delivery[place];
    replica.sites = scenario.sites.as_ref().map(|sites| sites.config());
    (config, draws)
}

/// A host of the scenario, with its function.
pub(crate) fn build_host(
    scenario: &Scenario,
    place: usize,
    incarnation: u64,
    salt: u8,
    change: impl FnOnce(&mut HostConfig),
) -> (
    MemberId,
    asterism_engine::StateChannel,
    Vec<Instance<Exercise>>,
) {
    let (mut config, mut draws) = host_config(scenario, place, incarnation, salt);
    change(&mut config);
    if config.shares_time && config.joins {
        // Whatever a newcomer's date is: six hours ahead, behind, a quarter of an hour or thirty years off.
        let dates = [TICK_AT_ZERO, TICK_AT_ZERO + 21_600, 0, 946_684_800];
        config.tick_at_zero = draws.one_of(&dates);
    }
    let name = config.member;
    let (channel, parts) = host(config, Time::ZERO).expect("a scenario's configuration is good");
    let (late_us, absent_us) = (scenario.late_us, scenario.absent_us);
    let instances = parts
        .into_iter()
        .map(|parts| {
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(MemoryPort::new("in")),
                Box::new(MemoryPort::sink("out")),
            ];
            let settings = move |name: &str| match name {
                "visited" => ObjectSettings {
                    late_us,
                    ..ObjectSettings::REPLICATED
                },
                "sessions" | "ports" if absent_us > 0 => ObjectSettings {
                    absence: if name == "ports" {
                        Absence::Wait { us: absent_us }
                    } else {
                        Absence::Answer
                    },
                    ..ObjectSettings::REPLICATED
                },
                _ => ObjectSettings::REPLICATED,
            };
            let frames = if scenario.torrent { 2 * TORRENT } else { 64 };
            let pool = FramePool::new(frames).expect("memory for frames");
            #[allow(
                clippy::arc_with_non_send_sync,
                reason = "instances take an `Arc`; a seed's world stays on one thread"
            )]
            let function = Arc::new(Exercise::new(scenario.sizes.clone()));
            let mut instance = parts.start(function, settings, pool, ports);
            if scenario.foresees {
                instance.prefetch_above(0);
            }
            instance
        })
        .collect();
    (name, channel, instances)
}

impl<'t> World<'t> {
    /// The scenario's cluster, at time zero.
    pub fn new(scenario: Scenario, trace: &'t mut Trace) -> Self {
        let members = (0..scenario.members())
            .map(|place| build_host(&scenario, place, place as u64 + 100, 0, |_| {}))
            .collect();
        let mut network = Network::new(scenario.seed);
        network.set_defaults(calm(&scenario.link));
        let mut cluster = Cluster::new(members, network);
        cluster.set_turn(TURN);
        if scenario.later_build {
            cluster.members_mut()[0]
                .channel
                .set_extra_frames(LATER_FRAMES.to_vec());
        }
        for (member, &skew) in cluster.members_mut().iter_mut().zip(&scenario.skew) {
            member.skew = skew;
        }
        let mut oracle = Oracle::new(scenario.members());
        oracle.idle_seconds = scenario.sizes.idle[0];
        oracle.skew_most = scenario.skew_most();
        let instances = scenario.lanes.iter().map(|&lanes| u64::from(lanes)).sum();
        let held_back = (scenario.bounds.flush, scenario.bounds.coalescing_max);
        oracle.spent = Spent::new(instances, scenario.steps(), held_back);
        let mut world = Self {
            witness: Witness::new(&cluster),
            oracle,
            draws: Draws::new(scenario.seed, 2),
            cluster,
            scenario,
            trace,
            faults: BTreeMap::new(),
            next_token: 1,
            recent_ports: Vec::new(),
            admitted: Vec::new(),
            overdue: Overdue::default(),
            groups: Groups::default(),
            entries: Entries::default(),
            reported: Looked::default(),
            judged: Looked::default(),
            steps: 0,
        };
        world.calm_all_links();
        world
    }

    /// Runs the seed to its end.
    ///
    /// # Errors
    /// The first check that did not hold.
    pub fn run(mut self) -> Result<Report, Failure> {
        self.admit()?;
        self.safety()?;
        if self.scenario.torrent {
            self.torrent()?;
        }
        if let Some(kind) = self.scenario.stranger {
            stranger::appear(&mut self, kind)?;
        }
        let Healing {
            equal,
            healed,
            bounds,
        } = self.heal()?;
        tail::lose(&mut self)?;
        self.heal()?;
        congestion::squeeze(&mut self)?;
        self.heal()?;
        congestion::end(&mut self)?;
        if rebirth::is_due(&self) {
            rebirth::live_through(&mut self)?;
        } else if upgrade::is_due(&self) {
            upgrade::live_through(&mut self)?;
        } else if self.scenario.afterlife {
            self.afterlife()?;
        }
        if inheritance::is_due(&self.scenario) {
            inheritance::live_through(&self.scenario)?;
            *self.faults.entry("inheritance").or_default() += 1;
        }
        if moves::is_due(&self.scenario) {
            moves::live_through(&self.scenario)?;
            *self.faults.entry("moves").or_default() += 1;
        }
        audits::kept_are_true(&self.cluster)?;
        if audits::is_due(&self) {
            audits::finds_the_odd_one(&mut self)?;
        } else if repairs::is_due(&self) {
            repairs::take_up_what_one_has(&mut self)?;
        }
        self.trace.digest(&self.cluster);
        if foreign::is_due(&self) {
            foreign::stops_who_reads_it(&mut self)?;
        }
        Ok(Report {
            trace: self.trace.hash(),
            operations: self.oracle.commands,
            delivered: self.delivered(),
            operations_least: self
                .oracle
                .commits
                .iter()
                .map(|commits| commits.len() as u64)
                .min()
                .unwrap_or(0),
            branches: branches::count(&self.cluster),
            faults: self.faults,
            equal,
            windows: bounds.windows,
            healed,
            bound: bounds.healed,
            steps: self.steps,
            virtual_time: Duration::from_micros(self.cluster.now().as_micros()),
            judged: self.witness.judged,
        })
    }

    /// Commits times the instances that were seen to hold them, but for their writers.
    fn delivered(&self) -> u64 {
        let members = self.cluster.members().iter().enumerate();
        let lanes: Vec<_> = members
            .flat_map(|(place, member)| (0..member.instances.len()).map(move |lane| (place, lane)))
            .collect();
        let origins = self.oracle.commits.iter().enumerate();
        origins
            .map(|(origin, commits)| {
                let held = lanes
                    .iter()
                    .map(|&(place, lane)| self.witness.held(place, lane, origin));
                held.sum::<usize>().saturating_sub(commits.len()) as u64
            })
            .sum()
    }

    // --- phases

    /// Members admit each other over calm links.
    fn admit(&mut self) -> Result<(), Failure> {
        if self.scenario.rough_start {
            return Ok(());
        }
        let rounds = if self.scenario.sites.is_some() {
            160
        } else {
            40
        };
        for _ in 0..rounds {
            self.run_for(Duration::from_millis(10))?;
            if self.all_admitted() {
                return Ok(());
            }
        }
        Err(Failure::new(
            "members admit each other",
            format!("{} ms over calm links were not enough", rounds * 10),
        ))
    }

    fn all_admitted(&self) -> bool {
        let names = self.cluster.members().iter().map(|member| member.name);
        self.cluster.members().iter().all(|member| {
            names
                .clone()
                .filter(|&name| name != member.name)
                .all(|name| {
                    member.channel.secure().welcomed_by(name)
                        && member.channel.secure().admitted(name).is_some()
                })
        })
    }

    fn safety(&mut self) -> Result<(), Failure> {
        let link = self.scenario.link.clone();
        self.set_links(&link, false);
        let mut start = self.cluster.now();
        let planned = core::mem::take(&mut self.scenario.faults);
        let mut begun = 0;
        let mut running: Vec<(Time, usize, Before)> = Vec::new();
        let mut more = 0;
        loop {
            let now = self.cluster.now();
            let mut at = 0;
            while at < running.len() {
                if running[at].0 <= now {
                    let (_, number, before) = running.remove(at);
                    self.end_fault(&planned[number].fault, &before);
                } else {
                    at += 1;
                }
            }
            while begun < planned.len() && start + planned[begun].from <= self.cluster.now() {
                let Planned { from, until, fault } = &planned[begun];
                let length = until.saturating_sub(*from);
                begun += 1;
                if *fault == Fault::Suspend {
                    self.trace
                        .line(|| format!("{now} suspended for {length:?}"));
                    self.suspend(length);
                    *self.faults.entry("suspension").or_default() += 1;
                    // Time stood still for the plan and the load.
                    start = start + length;
                    running
                        .iter_mut()
                        .for_each(|fault| fault.0 = fault.0 + length);
                    break;
                }
                let before = self.begin_fault(fault);
                running.push((now + length, begun - 1, before));
            }
            let loaded = (0..self.scenario.members()).all(|member| self.is_loaded(member));
            if loaded && begun == planned.len() && running.is_empty() {
                if self.enough_faults() {
                    break;
                }
                more += 1;
                if more > ROUNDS_MORE_MAX {
                    return Err(Failure::new(
                        "enough faults hit",
                        format!("{:?}", self.all_faults()),
                    ));
                }
                self.cluster.network_mut().change_all(|all| {
                    (all.loss, all.duplication) = (0.2, 0.2);
                    (all.reordering, all.reordering_delay) =
                        (0.2, all.delay * 5 + Duration::from_micros(500));
                });
                for member in 0..self.scenario.members() {
                    self.load(member)?;
                }
                self.run_for(self.scenario.spacing * 4)?;
                continue;
            }
            if !loaded {
                for member in 0..self.scenario.members() {
                    if !self.is_loaded(member) {
                        self.load(member)?;
                    }
                }
            }
            self.run_for(self.scenario.spacing)?;
            if self.cluster.now() > start + Duration::from_secs(60) {
                return Err(Failure::new(
                    "the load gets through",
                    "a minute was not enough",
                ));
            }
        }
        self.faults = self.all_faults();
        Ok(())
    }

    /// Parked packets end by themselves; then no frame is in use.
    pub(crate) fn drain_parked(&mut self) -> Result<(), Failure> {
        for _ in 0..1_500 {
            let parked = self
                .cluster
                .members()
                .iter()
                .flat_map(|member| &member.instances)
                .any(|instance| instance.frames_in_use() > 0);
            if !parked
                && self.cluster.is_quiet()
                && checks::holds_all(&self.cluster, &self.oracle, &self.witness)
                && checks::is_equal(&self.cluster)
            {
                return Ok(());
            }
            self.run_for(Duration::from_millis(2))?;
        }
        Err(Failure::new(
            "frames come back",
            "packets are still parked three seconds after the cluster was whole, or it is whole no more",
        ))
    }

    /// Time passes without load until everything that idles out is forgotten, and what it held returned.
    fn afterlife(&mut self) -> Result<(), Failure> {
        let idle = self.scenario.sizes.idle;
        let longest = u64::from(idle[0].max(idle[1]));
        let skew = self.scenario.skew.iter().max().copied().unwrap_or_default();
        // Idle time, its quarter, a second of grace; then rounds of sweeping and of hearing of it.
        let wait = Duration::from_secs(longest + longest / 4 + 2) + skew;
        self.suspend(wait);
        for _ in 0..40 {
            self.run_for(Duration::from_millis(250).max(self.scenario.bounds.keep_alive))?;
            if checks::is_forgotten(&self.cluster) && self.cluster.is_quiet() {
                break;
            }
        }
        checks::after_incarnation(&self.cluster)?;
        self.drain_parked()?;
        self.rest()
    }

    /// All is at rest and judged.
    pub(crate) fn rest(&mut self) -> Result<(), Failure> {
        checks::at_rest(&self.cluster, &self.oracle, &self.witness)?;
        self.groups.take(&self.cluster)?;
        self.groups.are_complete(&self.cluster, &self.oracle)?;
        sums::note_rest(&self.cluster, &mut self.oracle);
        Ok(())
    }

    /// All members stand still while their clocks go on. Who was paused stays so.
    pub(crate) fn suspend(&mut self, time: Duration) {
        let members = 0..self.scenario.members();
        let paused: Vec<bool> = members
            .clone()
            .map(|member| self.cluster.is_paused(member))
            .collect();
        members
            .clone()
            .for_each(|member| self.cluster.set_paused(member, true));
        self.cluster.run_until(self.cluster.now() + time);
        members.for_each(|member| self.cluster.set_paused(member, paused[member]));
    }

    // --- one moment

    pub(crate) fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.cluster.now() + time;
        loop {
            self.witness.before_step(&self.oracle);
            let at = self.cluster.now();
            let more = self.cluster.advance(until);
            self.steps += 1;
            self.take_done(at)?;
            let moved = self.judged.query(&self.cluster);
            self.trace.step(&self.cluster, moved);
            let judges_time = !self.scenario.clocks_step;
            self.witness
                .after_step(&self.cluster, &self.oracle, (moved, judges_time))?;
            checks::each_step(&self.cluster, &self.oracle, moved)?;
            audits::no_false_alarm(&self.cluster, moved)?;
            self.overdue
                .judge(&self.cluster, &self.scenario.bounds, at)?;
            if !more {
                self.look_at_what_was_applied()?;
                return checks::now_and_then(&self.cluster, &self.oracle);
            }
        }
    }

    /// Each group was applied once, and no entry went back.
    pub(crate) fn look_at_what_was_applied(&mut self) -> Result<(), Failure> {
        self.groups.take(&self.cluster)?;
        self.entries.query(&self.cluster)
    }

    /// The instances of a member are those of another incarnation.
    pub(crate) fn begins(&mut self, member: usize) {
        self.oracle.begins(member);
        self.groups.begins(member);
        self.entries.begins(member);
    }

    /// Tells the oracle what calls did since the last time.
    pub(crate) fn take_done(&mut self, at: Time) -> Result<(), Failure> {
        let moved = self.reported.query(&self.cluster);
        for (place, member) in moved.members(&self.cluster) {
            let written = member
                .instances
                .iter()
                .map(|instance| instance.tally().groups_written);
            let head: u64 = written.sum();
            let before = core::mem::replace(&mut self.oracle.heads[place], head);
            for (lane, instance) in member.instances.iter().enumerate() {
                let mut failure = None;
                instance.function().take_granted(|token, port| {
                    let first = *self.oracle.granted.entry(token).or_insert(port);
                    if first != port {
                        failure = Some(Failure::new(
                            "a retried packet gets the same grant",
                            format!("token {token} was granted port {first}, then {port}"),
                        ));
                    }
                });
                instance.function().take_done(|done| {
                    self.trace
                        .note(&[place as u64, lane as u64, u64::from(done.command.token)]);
                    if failure.is_none() {
                        failure =
                            checks::a_call(&self.cluster, &self.oracle, (place, lane), at, &done)
                                .err();
                    }
                    self.oracle.note(place, head, at, &done);
                    if let Err(found) = sums::a_spending(&mut self.oracle, (place, lane), at, &done)
                    {
                        failure.get_or_insert(found);
                    }
                    if done.command.verb == Verb::Admit {
                        self.admitted.push(done.command.key);
                    }
                    checks::note_use(
                        &self.cluster,
                        &mut self.oracle,
                        (place, lane),
                        at,
                        before,
                        &done,
                    );
                    if done.granted
                        && let Some(port) = done.port
                    {
                        if self.recent_ports.len() == 16 {
                            self.recent_ports.remove(0);
                        }
                        self.recent_ports.push(port);
                    }
                });
                if let Some(failure) = failure {
                    return Err(failure);
                }
            }
        }
        Ok(())
    }
}

/// The link without its faults: delay and jitter stay.
pub(crate) fn calm(link: &LinkConditions) -> LinkConditions {
    LinkConditions {
        delay: link.delay,
        jitter: link.jitter,
        ..LinkConditions::default()
    }
}
