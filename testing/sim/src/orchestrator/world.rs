//! A run: hosts, orchestrators, store, steering and what is under way between them, in steps of ten milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_epochs::EpochFile;
use asterism_heartbeat::HostLink;
use asterism_orchestrator::controller::{Input, Process, Record, Stage, TICK};
use asterism_orchestrator::steering::Desired;
use asterism_placement::Time;

use super::claims::Claims;
use super::hosts::{Proc, Taken};
use super::network;
use super::orchestrators::{Orchestrator, orchestrator};
use super::plan::{FAULTS_END, FaultKind, OrchestratorPlan};
use super::store::{Store, TERM};
use crate::report::{Failure, Report};
use crate::scenario::Draws;
use crate::trace::Trace;

/// From the last fault until all must be as it is to be.
const HEALED: Duration = Duration::from_secs(25);
/// So long nothing may change then.
const QUIET: Duration = Duration::from_secs(5);
/// How much earlier than the store a leader takes its term to end.
const TERM_MARGIN: Duration = Duration::from_millis(200);
/// How long a service waits before it starts a process again.
const RESTART: Duration = Duration::from_millis(400);
/// Incarnations of a host that ends at once, in the time that faults last, at most: pauses double.
const FLAPS_MAX: u64 = 12;

/// Something under way.
#[derive(Clone, Debug)]
pub(super) enum Message {
    ToOrchestrator(usize, u32, Input),
    /// A datagram of the process with this number.
    ToOrchestratorLink(usize, usize, Vec<u8>),
    /// A datagram for the process with this number, of this orchestrator.
    ToProcess(usize, usize, Vec<u8>),
    Campaign(usize, u32, Time),
    Depose(usize, u32, u64),
    Read(usize, u32),
    Write(usize, u32, Record, u64, u64),
    Steer(usize, u32, Desired),
    Start(usize, bool),
}

pub(super) struct World<'a> {
    pub(super) plan: &'a OrchestratorPlan,
    pub(super) names: Vec<String>,
    pub(super) now: Time,
    pub(super) draws: Draws,
    pub(super) processes: Vec<Proc>,
    /// The link of each process to the orchestrators.
    pub(super) links: Vec<HostLink>,
    /// For each folder its starts, and the last incarnation that was used in it.
    folders: BTreeMap<u64, (u64, u64)>,
    pub(super) orchestrators: Vec<Orchestrator>,
    pub(super) store: Store,
    pub(super) in_force: Option<Desired>,
    steered_at: Time,
    under_way: BTreeMap<(Time, u64), Message>,
    sent: u64,
    pub(super) claims: Claims,
    /// Incarnations that were named for each host while it ended at once.
    flapped: BTreeMap<String, u64>,
    faults: BTreeMap<&'static str, u64>,
}

pub(super) fn run(plan: &OrchestratorPlan, trace: &mut Trace) -> Result<Report, Failure> {
    let mut world = World::new(plan);
    let mut healed = None;
    let end = FAULTS_END + HEALED + QUIET;
    while world.now < end {
        world.step(trace)?;
        let is_well = world.now > FAULTS_END && world.is_as_it_should_be().is_ok();
        match (is_well, healed) {
            (true, None) => healed = Some(world.now),
            (false, Some(_)) => healed = None,
            _ => {}
        }
        if healed.is_some_and(|since| world.now.since(since) >= QUIET) {
            break;
        }
    }
    world
        .is_as_it_should_be()
        .map_err(|why| Failure::new("a stable end", why))?;
    let changed = world.store.written_at.max(world.steered_at);
    if world.now.since(changed) < QUIET - Duration::from_millis(500) {
        let detail = format!(
            "at {} something changed last, and it is {}",
            changed, world.now
        );
        return Err(Failure::new("a quiet end", detail));
    }
    let healed = healed.unwrap_or(world.now);
    Ok(Report {
        trace: trace.hash(),
        faults: world.faults,
        operations: world.store.version,
        judged: world.claims.judged,
        healed: healed.since(FAULTS_END),
        bound: HEALED,
        virtual_time: world.now.since(Time::ZERO),
        ..Report::default()
    })
}

impl<'a> World<'a> {
    fn new(plan: &'a OrchestratorPlan) -> World<'a> {
        let names: Vec<String> = (0..plan.hosts).map(|place| format!("h{place}")).collect();
        let mut draws = Draws::new(plan.seed, 72);
        let mut world = World {
            orchestrators: (0..plan.orchestrators)
                .map(|_| orchestrator(&names, plan, (0, Time::ZERO), &mut draws))
                .collect(),
            plan,
            names,
            now: Time::ZERO,
            draws,
            processes: Vec::new(),
            links: Vec::new(),
            folders: BTreeMap::new(),
            store: Store::default(),
            in_force: None,
            steered_at: Time::ZERO,
            under_way: BTreeMap::new(),
            sent: 0,
            claims: Claims::new(plan.loss_percent),
            flapped: BTreeMap::new(),
            faults: BTreeMap::new(),
        };
        for place in 0..plan.hosts {
            let delay = world.draws.micros(0, 600_000);
            world.send(delay, Message::Start(place, false));
        }
        world
    }

    pub(super) fn send(&mut self, delay: Duration, message: Message) {
        self.sent += 1;
        self.under_way
            .insert((self.now + delay, self.sent), message);
    }

    /// Whether this fault is on.
    pub(super) fn is_on(&self, kind: FaultKind) -> bool {
        let is = |fault: &&super::Fault| {
            fault.kind == kind && fault.from <= self.now && self.now < fault.until
        };
        self.plan.faults.iter().any(|fault| is(&fault))
    }

    fn step(&mut self, trace: &mut Trace) -> Result<(), Failure> {
        self.now = self.now + TICK;
        self.begin_faults();
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let message = entry.remove();
            self.deliver(message, trace)?;
        }
        self.hosts_go_on();
        self.operator();
        for number in 0..self.orchestrators.len() {
            self.orchestrator_goes_on(number, trace)?;
        }
        Ok(())
    }

    fn begin_faults(&mut self) {
        let now = self.now;
        let begins = |fault: &&super::Fault| fault.from <= now && now.since(fault.from) < TICK;
        let begun: Vec<super::Fault> = self.plan.faults.iter().filter(begins).copied().collect();
        for fault in begun {
            let lasts = fault.until.since(now);
            match fault.kind {
                FaultKind::Kill(place) => {
                    self.count("kill");
                    self.kill(place);
                    self.send(lasts, Message::Start(place, false));
                }
                FaultKind::Flap(place) => {
                    self.count("flap");
                    self.kill(place);
                    self.send(Duration::from_millis(50), Message::Start(place, false));
                }
                FaultKind::Move(place) => {
                    self.count("move");
                    for process in self.processes.iter_mut().filter(|one| one.place == place) {
                        process.is_given_up = true;
                    }
                    self.send(Duration::from_millis(100), Message::Start(place, true));
                }
                FaultKind::RestartOrchestrator(number) => {
                    self.count("orchestrator restarts");
                    let boot = self.orchestrators[number].boot + 1;
                    self.orchestrators[number] =
                        orchestrator(&self.names, self.plan, (boot, now), &mut self.draws);
                }
                FaultKind::Pause(_) => self.count("pause"),
                FaultKind::CutFromHosts(_) => self.count("cut from hosts"),
                FaultKind::CutFromOrchestrators(_) => self.count("cut from orchestrators"),
                FaultKind::Differs(_) => self.count("differs"),
                FaultKind::LinkDown(_) => self.count("link down"),
                FaultKind::PauseOrchestrator(_) => self.count("orchestrator pauses"),
                FaultKind::DeafOrchestrator(_) => self.count("deaf orchestrator"),
                FaultKind::CutFromStore(_) => self.count("cut from store"),
                FaultKind::StoreAway => self.count("store away"),
                FaultKind::StoreStale => self.count("stale store"),
                FaultKind::StoreUnknown => self.count("unknown outcomes"),
                FaultKind::SteeringFails => self.count("steering fails"),
            }
        }
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// The process of a place ends; a launcher may see it.
    fn kill(&mut self, place: usize) {
        let ended: Vec<Process> = self
            .processes
            .iter_mut()
            .filter(|process| process.place == place && process.is_alive && !process.is_given_up)
            .map(|process| {
                process.is_alive = false;
                process.process
            })
            .collect();
        for process in ended {
            self.launcher_sees(place, process);
        }
    }

    fn launcher_sees(&mut self, place: usize, process: Process) {
        if !self.plan.has_launcher {
            return;
        }
        for number in 0..self.orchestrators.len() {
            let host = self.names[place].clone();
            let boot = self.orchestrators[number].boot;
            let delay = self.draws.micros(2_000, 60_000);
            self.send(
                delay,
                Message::ToOrchestrator(number, boot, Input::Ended { host, process }),
            );
        }
    }

    fn start(&mut self, place: usize, elsewhere: bool) {
        let lives =
            |process: &Proc| process.place == place && process.is_alive && !process.is_given_up;
        if self.processes.iter().any(lives) {
            return;
        }
        let last = self
            .processes
            .iter()
            .filter(|one| one.place == place && !one.is_given_up);
        let folder = match last.map(|one| one.process.folder).next_back() {
            Some(folder) if !elsewhere => folder,
            _ => self.draws.word(),
        };
        let (starts, _) = self.folders.entry(folder).or_default();
        *starts += 1;
        let process = Process {
            folder,
            start: *starts,
        };
        self.processes.push(Proc::new(place, process, self.now));
        self.links
            .push(network::host_link(self.plan, &mut self.draws));
    }

    fn deliver(&mut self, message: Message, trace: &mut Trace) -> Result<(), Failure> {
        match message {
            Message::ToOrchestrator(number, boot, input) => {
                if self.is_on(FaultKind::PauseOrchestrator(number)) {
                    // Read when it goes on.
                    self.send(TICK, Message::ToOrchestrator(number, boot, input));
                } else if self.orchestrators[number].boot == boot {
                    if let Input::Leads { term, until } = input {
                        self.orchestrators[number].until = until;
                        self.orchestrators[number].term = Some(term);
                    }
                    self.orchestrators[number]
                        .controller
                        .handle(self.now, input);
                }
                Ok(())
            }
            Message::ToOrchestratorLink(number, at, datagram) => {
                self.hear_host(number, at, datagram);
                Ok(())
            }
            Message::ToProcess(at, number, datagram) => {
                self.hear_orchestrator(at, number, datagram, trace)
            }
            Message::Campaign(number, boot, asked) => {
                if self.store_is_cut(number) {
                    return Ok(());
                }
                let input = match self.store.campaign(self.now, (number, boot)) {
                    Some(term) => Input::Leads {
                        term,
                        until: asked + (TERM - TERM_MARGIN),
                    },
                    None => Input::Follows {
                        led_in: self.store.led_in(self.now),
                    },
                };
                self.answer(number, boot, input);
                Ok(())
            }
            Message::Depose(number, boot, term) => {
                if self.store_is_cut(number) {
                    return Ok(());
                }
                if let Some(leader) = self.store.depose(self.now, term) {
                    trace.line(|| format!("{} {number} deposes {leader:?}", self.now));
                    self.count("deposed");
                    self.check_deposed(leader)?;
                }
                self.send(TICK, Message::Campaign(number, boot, self.now));
                Ok(())
            }
            Message::Read(number, boot) => {
                if !self.store_is_cut(number) {
                    let (record, version) =
                        match self.is_on(FaultKind::StoreStale) && self.draws.percent(60) {
                            true => self.store.before.clone(),
                            false => (self.store.record.clone(), self.store.version),
                        };
                    self.answer(number, boot, Input::Record { record, version });
                }
                Ok(())
            }
            Message::Write(number, boot, record, replaces, term) => {
                self.write(number, boot, &record, replaces, term, trace)
            }
            Message::Steer(number, boot, desired) => self.apply(number, boot, desired, trace),
            Message::Start(place, elsewhere) => {
                self.start(place, elsewhere);
                Ok(())
            }
        }
    }

    fn store_is_cut(&self, number: usize) -> bool {
        self.is_on(FaultKind::StoreAway) || self.is_on(FaultKind::CutFromStore(number))
    }

    pub(super) fn answer(&mut self, number: usize, boot: u32, input: Input) {
        let delay = self.draws.micros(500, 15_000);
        self.send(delay, Message::ToOrchestrator(number, boot, input));
    }

    fn write(
        &mut self,
        number: usize,
        boot: u32,
        record: &Record,
        replaces: u64,
        term: u64,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        if self.store_is_cut(number) {
            if self.draws.percent(50) {
                self.answer(number, boot, Input::NotStored);
            }
            return Ok(());
        }
        let is_leader = self.store.leader(self.now) == Some((number, boot));
        let before = self.store.record.clone();
        let written = match is_leader {
            true => self.store.write(self.now, record, replaces, term),
            false => None,
        };
        if let Some(version) = written {
            trace.note(&[
                1,
                self.now.as_micros(),
                version,
                u64::from(record.epoch_number()),
            ]);
            trace.line(|| {
                format!(
                    "{} {number} stores version {version}: {:?}",
                    self.now, record.epoch
                )
            });
            self.claims
                .stored(&self.names, &self.processes, &before, record, self.now)?;
            for (name, process) in &record.named {
                let place = self
                    .names
                    .iter()
                    .position(|one| one == name)
                    .unwrap_or_default();
                if before.named.get(name) != Some(process) && self.is_on(FaultKind::Flap(place)) {
                    let flaps = self.flapped.entry(name.clone()).or_default();
                    *flaps += 1;
                    if *flaps > FLAPS_MAX {
                        return Err(Failure::new("a crash loop is slowed down", name.clone()));
                    }
                }
            }
        }
        if self.is_on(FaultKind::StoreUnknown) && self.draws.percent(60) {
            if self.draws.percent(50) {
                self.answer(number, boot, Input::NotStored);
            }
            return Ok(());
        }
        let input = written.map_or(Input::NotStored, |version| Input::Stored { version });
        self.answer(number, boot, input);
        Ok(())
    }

    fn apply(
        &mut self,
        number: usize,
        boot: u32,
        desired: Desired,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        let generation = desired.generation().0;
        let fails = self.is_on(FaultKind::SteeringFails);
        let known = self
            .in_force
            .as_ref()
            .map_or(0, |known| known.generation().0);
        let contradicts = generation == known && self.in_force.as_ref() != Some(&desired);
        let does = generation >= known && !contradicts && !(fails && self.draws.percent(50));
        if does && generation > known {
            trace.note(&[2, self.now.as_micros(), generation]);
            trace.line(|| format!("{} {number} steers {desired:?}", self.now));
            // What the last two heartbeats do not show yet, nobody knows.
            let known = self.now - Duration::from_millis(150);
            let differs = |fault: &&super::Fault| fault.from <= known && self.now < fault.until;
            let differing: BTreeMap<usize, Time> = (self.plan.faults.iter().filter(differs))
                .filter_map(|fault| match fault.kind {
                    FaultKind::Differs(place) => Some((place, fault.from)),
                    _ => None,
                })
                .collect();
            let before = self.in_force.replace(desired.clone());
            let targets = |desired: &Desired| -> BTreeSet<String> {
                desired.targets().map(|(name, _)| name.to_owned()).collect()
            };
            if before.as_ref().map(targets) != Some(targets(&desired)) {
                self.steered_at = self.now;
            }
            self.claims.steered(
                &self.names,
                &self.processes,
                before.as_ref(),
                &desired,
                &differing,
                self.now,
            )?;
        }
        let input = match does && !fails {
            true => Input::Steered { generation },
            false => Input::NotSteered { generation },
        };
        if !(fails && self.draws.percent(30)) {
            self.answer(number, boot, input);
        }
        Ok(())
    }

    /// A process takes an epoch that it was handed.
    pub(super) fn hand(
        &mut self,
        at: usize,
        epoch: &EpochFile,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        self.claims.handed(epoch)?;
        let (place, process) = (self.processes[at].place, self.processes[at].process);
        let used = self
            .folders
            .get(&process.folder)
            .map_or(0, |(_, used)| *used);
        match self.processes[at].take(&self.names[place], epoch, used)? {
            Taken::Nothing => {}
            Taken::Ends => {
                trace.line(|| {
                    format!(
                        "{} {} ends by epoch {}",
                        self.now, self.names[place], epoch.epoch
                    )
                });
                self.kill(place);
                self.send(RESTART, Message::Start(place, false));
            }
            Taken::Begins(incarnation) => {
                trace.note(&[3, self.now.as_micros(), place as u64, incarnation]);
                trace.line(|| format!("{} {} begins {incarnation}", self.now, self.names[place]));
                self.claims.begins(&self.processes, place, incarnation)?;
                if let Some((_, used)) = self.folders.get_mut(&process.folder) {
                    *used = incarnation;
                }
                let joins = self.draws.micros(40_000, 300_000);
                let one = &mut self.processes[at];
                (one.stage, one.joined_at) = (Stage::Joining(incarnation), self.now + joins);
                one.unwell_at = self.now;
                if self.is_on(FaultKind::Flap(place)) {
                    self.kill(place);
                    self.send(Duration::from_millis(50), Message::Start(place, false));
                }
            }
        }
        Ok(())
    }

    pub(super) fn stands_still(&self, process: &Proc) -> bool {
        !process.is_alive || self.is_on(FaultKind::Pause(process.place))
    }

    /// Whether state channels of two processes reach each other.
    fn reach(&self, one: &Proc, other: &Proc) -> bool {
        let is_cut = |process: &Proc| {
            process.is_given_up
                || self.stands_still(process)
                || self.is_on(FaultKind::CutFromHosts(process.place))
        };
        !is_cut(one) && !is_cut(other)
    }

    fn hosts_go_on(&mut self) {
        let now = self.now;
        for at in 0..self.processes.len() {
            let one = self.processes[at].clone();
            if !one.is_alive {
                continue;
            }
            let others: Vec<usize> = self
                .processes
                .iter()
                .filter(|other| other.place != one.place && self.reach(&one, other))
                .filter(|other| {
                    let named = one
                        .epoch
                        .as_ref()
                        .and_then(|epoch| epoch.members.get(&self.names[other.place]));
                    named.is_some() && other.stage.incarnation() == named.copied()
                })
                .map(|other| other.place)
                .collect();
            let members = one.epoch.as_ref().map_or(0, |epoch| epoch.members.len());
            let sponsor = self.processes.iter().any(|other| {
                others.contains(&other.place)
                    && matches!(other.stage, Stage::Serving(_))
                    && other.is_alive
            });
            let is_alone = members <= 1 || one.epoch.as_ref().is_some_and(EpochFile::is_founding);
            let is_unwell = self.stands_still(&one)
                || one.is_given_up
                || [
                    FaultKind::CutFromHosts(one.place),
                    FaultKind::CutFromOrchestrators(one.place),
                    FaultKind::LinkDown(one.place),
                ]
                .into_iter()
                .any(|kind| self.is_on(kind));
            let process = &mut self.processes[at];
            for place in others {
                process.hear(place, now);
            }
            if is_unwell {
                process.unwell_at = now;
            }
            if let Stage::Joining(incarnation) = process.stage
                && now >= process.joined_at
                && (sponsor || is_alone)
            {
                process.stage = Stage::Serving(incarnation);
                process.serves_since = Some(now);
                process.unwell_at = now;
            }
            if !self.stands_still(&one) && !one.is_given_up {
                self.beat(at);
            }
        }
    }
}
