//! A run: packets come to hosts, whose clients read and commit by connections that fail; hosts die in every stage and others begin; the
//! primary changes. Then what was begun comes to its end.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Instance, InstanceParts};
use asterism_function::testkit::{Recorded, RecordedCall, RecordedCalls, SEED, START_TICK};
use asterism_function::{PortNumber, Reason, Tick};
use asterism_io::frame::FramePool;
use asterism_placement::Time;
use asterism_remote_store::{CacheConfig, ClientConfig, RemoteConfig, RemoteStore};
use asterism_state::{Transaction, hash};

use super::hosts::HostEnd;
use super::ledger::{self, IDLE_S, Ledger, OBJECTS};
use super::network::{Incarnation, Links, Shared, addresses};
use super::oracle::{FUNCTION, Oracle};
use super::plan::{Ack, Hiccup, HostDeath, Keeps, RemotePlan, Stage};
use super::servers::Executed;
use crate::report::{Failure, Report};
use crate::scenario::Draws;
use crate::stores::Outside;
use crate::trace::Trace;

/// Buffers for frames of a host.
const FRAMES: usize = 2_048;
/// Ports that packets leave by.
const PORTS: u16 = 2;
/// A death waits so long for its stage; for the end of entries as long as a run goes on, where nothing comes for seconds.
const AWAITS: Duration = Duration::from_millis(20);
/// What was begun must come to its end within so long once nothing goes wrong any more.
const ENDING: Duration = Duration::from_secs(4);
/// All guests have ended after that, once nobody comes.
const IDLES: Duration = Duration::from_secs(IDLE_S as u64 + 8);
/// Answers that a client keeps: fewer than there are keys, in some seeds.
const KEPT: [usize; 2] = [6, 256];

/// What happens besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of the host of this number in the plan, as soon as it is in its stage.
    Death(usize),
    /// The same in any stage.
    Overdue(usize),
    Noticed(usize),
    Replaced(usize),
    Hiccup(usize),
    /// Of the failover of this number.
    Fails(usize),
    Promoted(usize),
    Follows,
}

struct Host {
    incarnation: Incarnation,
    instance: Option<Instance<Recorded<Ledger>>>,
    /// Routers send it packets.
    is_routed: bool,
    paused: Time,
    calls: RecordedCalls,
    outside: Outside,
}

impl Host {
    fn next_due(&self) -> Option<Time> {
        let instance = self.instance.as_ref()?;
        Some(instance.next_due().max(self.paused))
    }

    fn given_up(&self) -> u64 {
        let instance = self.instance.as_ref();
        instance.map_or(0, |instance| {
            instance.tally().dropped(Reason::ParkedTooLong)
        })
    }
}

struct Run<'a> {
    plan: &'a RemotePlan,
    trace: &'a mut Trace,
    draws: Draws,
    now: Time,
    shared: Shared,
    /// Which server is the primary.
    primary: usize,
    hosts: Vec<Host>,
    incarnations: Incarnation,
    events: Vec<(Time, Event)>,
    /// Deaths that wait for their stages.
    awaited: Vec<usize>,
    oracle: Oracle,
    report: Report,
}

/// Runs a plan.
///
/// # Errors
/// The first check that did not hold.
pub(super) fn run(plan: &RemotePlan, trace: &mut Trace) -> Result<Report, Failure> {
    let mut run = Run::new(plan, trace);
    for _ in 0..plan.hosts {
        let host = run.begin();
        run.hosts.push(host);
    }
    run.load()?;
    run.end()?;
    run.judge()
}

impl<'a> Run<'a> {
    fn new(plan: &'a RemotePlan, trace: &'a mut Trace) -> Self {
        let mut events = Vec::new();
        let at = |at: Duration| Time::ZERO + at;
        for (number, death) in plan.deaths.iter().enumerate() {
            events.push((at(death.at), Event::Death(number)));
        }
        for (number, hiccup) in plan.hiccups.iter().enumerate() {
            events.push((at(hiccup.0), Event::Hiccup(number)));
        }
        for (number, failover) in plan.failovers.iter().enumerate() {
            events.push((at(failover.at), Event::Fails(number)));
        }
        Self {
            plan,
            trace,
            draws: Draws::new(plan.seed, 73),
            now: Time::ZERO,
            shared: Shared::new(plan),
            primary: 0,
            hosts: Vec::new(),
            incarnations: 0,
            events,
            awaited: Vec::new(),
            oracle: Oracle::new(plan),
            report: Report::default(),
        }
    }

    fn config(&self) -> RemoteConfig {
        let plan = self.plan;
        let cache = CacheConfig {
            entries: KEPT[(plan.seed / 3 % 2) as usize],
            staleness: plan.staleness,
            staleness_away: Duration::ZERO,
            has_filter: plan.keeps == Keeps::AnswersAndKeys,
        };
        let client = ClientConfig {
            function: FUNCTION.to_owned(),
            client: format!("0.{}", self.incarnations),
            seed: SEED,
            objects: OBJECTS,
            commit_pipes: plan.commit_pipes,
            cache: (plan.keeps != Keeps::Nothing).then_some(cache),
            shard: None,
        };
        let [first, ..] = addresses()[..] else {
            unreachable!("a store has servers");
        };
        RemoteConfig {
            addresses: addresses(),
            waits_for_replica: plan.ack == Ack::Replica,
            timeout: plan.timeout,
            ..RemoteConfig::new(first, client)
        }
    }

    /// A host begins, with nothing of its own.
    fn begin(&mut self) -> Host {
        self.incarnations += 1;
        let (calls, outside) = (RecordedCalls::default(), Outside::default());
        let (config, host, shared) = (self.config(), self.incarnations, self.shared.clone());
        let (of_host, now) = (calls.clone(), self.now);
        let ledger = Ledger::new(self.plan);
        let make = move || -> Box<dyn asterism_engine::Store> {
            let links = Links {
                shared: shared.clone(),
                host,
            };
            let store = RemoteStore::over(links, &ledger, &config, Arc::default());
            Box::new(HostEnd {
                host,
                store,
                shared,
                calls: of_host,
                now,
            })
        };
        let parts = InstanceParts::alone(SEED)
            .with_tick_at_zero(START_TICK)
            .with_store(make);
        let pool = FramePool::new(FRAMES).expect("memory for frames");
        let ports = (0..PORTS).map(|port| outside.port(port)).collect();
        let recorded = Arc::new(Recorded::new(ledger, calls.clone()));
        let mut instance = parts.start(recorded, ledger::settings, pool, ports);
        instance.turn(self.now);
        Host {
            incarnation: self.incarnations,
            instance: Some(instance),
            is_routed: true,
            paused: Time::ZERO,
            calls,
            outside,
        }
    }

    fn line(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        self.trace.line(|| format!("{now} {}", line()));
    }

    fn count(&mut self, what: &'static str) {
        *self.report.branches.entry(what).or_default() += 1;
    }

    fn fault(&mut self, what: &'static str) {
        *self.report.faults.entry(what).or_default() += 1;
    }

    fn clock(&self) -> (u64, Tick) {
        let seconds = self.now.as_micros() / 1_000_000;
        (self.now.as_micros(), START_TICK + seconds as Tick)
    }

    fn load(&mut self) -> Result<(), Failure> {
        for number in 0..self.plan.packets {
            let gaps = self.plan.gaps.iter().filter(|(after, _)| *after == number);
            let gap: Duration = gaps.map(|(_, length)| *length).sum();
            let next = self.now + gap + self.draws.micros(0, self.plan.between_us);
            self.run_until(next)?;
            let packet = ledger::next(number, self.plan.reads_mostly, &mut self.draws);
            self.arrives(&packet)?;
        }
        while let Some((at, _)) = self.events.iter().max() {
            let until = (*at).max(self.now);
            self.run_until(until)?;
        }
        Ok(())
    }

    /// A packet comes to any host.
    fn arrives(&mut self, packet: &[u8]) -> Result<(), Failure> {
        let routed = self.hosts.iter().enumerate();
        let routed = routed.filter(|(_, host)| host.is_routed && host.paused <= self.now);
        let routed: Vec<usize> = routed.map(|(place, _)| place).collect();
        if routed.is_empty() {
            return Ok(());
        }
        let place = self.draws.one_of(&routed);
        let now = self.now;
        let Some(instance) = &mut self.hosts[place].instance else {
            self.count("packets to hosts that had died");
            return Ok(());
        };
        let taken = instance.inject(now, PortNumber(0), packet);
        instance.turn(now);
        self.report.operations += 1;
        self.line(|| format!("to {place}: {:x}, {taken}", hash::bytes(packet, 0)));
        if !taken {
            return Err(Failure::new("hosts take packets", format!("host {place}")));
        }
        self.drain(place)
    }

    /// Lets time pass, with all that happens meanwhile.
    fn run_until(&mut self, until: Time) -> Result<(), Failure> {
        loop {
            let next = self.next_due().max(self.now + Duration::from_micros(1));
            if next > until {
                self.at(until.max(self.now));
                return Ok(());
            }
            self.at(next);
            self.step()?;
        }
    }

    fn at(&mut self, now: Time) {
        self.now = now;
        self.shared.net().now_us = now.as_micros();
    }

    fn next_due(&self) -> Time {
        let events = self.events.iter().map(|(at, _)| *at);
        let hosts = self.hosts.iter().filter_map(Host::next_due);
        let network = self.shared.net().next_due_us().map(Time::from_micros);
        let all = events.chain(hosts).chain(network);
        all.min().unwrap_or(self.now + ENDING)
    }

    fn step(&mut self) -> Result<(), Failure> {
        self.events.sort_unstable();
        while let Some((at, event)) = self.events.first().copied()
            && at <= self.now
        {
            self.events.remove(0);
            self.happens(event)?;
            self.events.sort_unstable();
        }
        self.shared.net().step();
        self.judge_executed()?;
        for place in 0..self.hosts.len() {
            let now = self.now;
            let host = &mut self.hosts[place];
            if host.next_due().is_some_and(|due| due <= now)
                && let Some(instance) = &mut host.instance
            {
                instance.turn(now);
                self.drain(place)?;
            }
        }
        for number in self.awaited.clone() {
            if self.is_in_stage(number) {
                self.dies(number, true);
            }
        }
        self.report.steps += 1;
        Ok(())
    }

    /// Has the oracle judge what a primary has made.
    fn judge_executed(&mut self) -> Result<(), Failure> {
        let all = core::mem::take(&mut self.shared.net().executed);
        for executed in &all {
            let committed = self.committed(executed)?;
            let clock = self.clock();
            self.trace.note(&[clock.0, committed.len() as u64]);
            self.line(|| {
                let names = committed
                    .iter()
                    .map(|(host, call, _)| (*host, call.pinned.serial));
                format!("made: {:?}", names.collect::<Vec<_>>())
            });
            let mut net = self.shared.net();
            let server = &mut net.servers[self.primary];
            self.oracle.executed(executed, &committed, clock, server)?;
        }
        Ok(())
    }

    /// The calls whose transactions a primary has made, in order.
    fn committed(
        &self,
        executed: &Executed,
    ) -> Result<Vec<(Incarnation, RecordedCall, Transaction)>, Failure> {
        if executed.is_claim() {
            return Ok(Vec::new());
        }
        let net = self.shared.net();
        let mut commands = executed.commands.iter();
        let decided = commands.find_map(|words| match &words[..] {
            [set, key, number, ..] if set == b"SET" => net.decided(key, number),
            _ => None,
        });
        let Some(decided) = decided else {
            return Err(Failure::new(
                "what is made was decided",
                format!("{:?}", executed.commands),
            ));
        };
        let Some(done) = net.done.get(&decided.host) else {
            return Ok(Vec::new());
        };
        let names = decided.transactions.iter();
        let names = names.filter(|(_, is_committed)| *is_committed);
        let calls = names.filter_map(|(name, _)| done.called.get(name));
        let calls =
            calls.map(|(call, transaction)| (decided.host, call.clone(), transaction.clone()));
        Ok(calls.collect())
    }

    /// Has the oracle judge what a host did.
    fn drain(&mut self, place: usize) -> Result<(), Failure> {
        // What it wrote may have been answered within the turn, while it greeted a server.
        self.judge_executed()?;
        let host = &self.hosts[place];
        let now_us = self.now.as_micros();
        for call in &host.calls.take() {
            let serial = call.pinned.serial;
            let (read, was_kept) = {
                let mut net = self.shared.net();
                let done = net.done.entry(host.incarnation).or_default();
                (
                    done.read_alone.remove(&serial),
                    done.was_kept.remove(&serial),
                )
            };
            if was_kept {
                self.oracle.was_kept(host.incarnation, call, now_us);
            }
            if let Some(read) = read {
                self.oracle
                    .read_alone(host.incarnation, call, &read, now_us)?;
            }
        }
        for left in host.outside.take() {
            let bytes = hash::bytes(&left.1, left.0.into());
            self.trace.note(&[host.incarnation, bytes]);
            self.report.delivered += 1;
            self.oracle.leaves(host.incarnation, left)?;
        }
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Death(number) => {
                self.awaited.push(number);
                let is_long = !self.plan.gaps.is_empty() || self.plan.idles;
                if !is_long || self.plan.deaths[number].stage != Stage::Ending {
                    self.events
                        .push((self.now + AWAITS, Event::Overdue(number)));
                }
            }
            Event::Overdue(number) if self.awaited.contains(&number) => self.dies(number, false),
            Event::Overdue(_) => {}
            Event::Noticed(place) => {
                let host = &mut self.hosts[place];
                host.is_routed = host.instance.is_some();
            }
            Event::Replaced(place) => {
                self.hosts[place] = self.begin();
                self.fault("return");
            }
            Event::Hiccup(number) => self.hiccups(number),
            Event::Fails(number) => {
                let failover = &self.plan.failovers[number];
                let (promoted, primary) = (failover.promoted, self.primary);
                if failover.dies {
                    self.shared.net().dies(primary);
                    self.fault("death of a primary");
                } else {
                    self.fault("demotion");
                }
                self.line(|| format!("server {primary} fails"));
                self.events
                    .push((self.now + promoted, Event::Promoted(number)));
            }
            Event::Promoted(number) => {
                self.primary = 1 - self.primary;
                // What had come by now it has.
                let offset = {
                    let mut net = self.shared.net();
                    net.step();
                    net.promote(self.primary)
                };
                self.judge_executed()?;
                let (clock, primary) = (self.clock(), self.primary);
                self.line(|| format!("server {primary} is the primary, with {offset}"));
                self.oracle.goes_back(offset, clock)?;
                let follows = self.plan.failovers[number].follows;
                self.events.push((self.now + follows, Event::Follows));
            }
            Event::Follows => self.shared.net().follows(1 - self.primary),
        }
        Ok(())
    }

    fn hiccups(&mut self, number: usize) {
        let (_, place, hiccup, length) = self.plan.hiccups[number];
        let until = self.now + length;
        let incarnation = self.hosts[place].incarnation;
        match hiccup {
            Hiccup::Pause => {
                self.hosts[place].paused = until;
                self.fault("pause");
            }
            Hiccup::Stall => {
                self.shared.net().stall(incarnation, until.as_micros());
                self.fault("stall");
            }
            Hiccup::Cut => {
                self.shared.net().cut_all(Some(incarnation), None);
                self.fault("cut of a host");
            }
        }
    }

    /// Whether a host that is to die is in the stage for that.
    fn is_in_stage(&self, number: usize) -> bool {
        let HostDeath { victim, stage, .. } = self.plan.deaths[number];
        let host = &self.hosts[victim];
        let Some(instance) = &host.instance else {
            return false;
        };
        let net = self.shared.net();
        let Some(done) = net.done.get(&host.incarnation) else {
            return false;
        };
        match stage {
            Stage::Reading => instance.tally().parked > 0 && done.undecided.is_empty(),
            Stage::Loading => !done.undecided.is_empty() && !done.is_executing,
            Stage::Executing => done.is_executing && !net.is_replicating(host.incarnation),
            Stage::Replicating => net.is_replicating(host.incarnation),
            Stage::Ending => done.is_ending,
        }
    }

    /// A host dies.
    fn dies(&mut self, number: usize, is_in_stage: bool) {
        self.awaited.retain(|awaited| *awaited != number);
        let HostDeath {
            victim,
            stage,
            noticed,
            replaced,
            ..
        } = self.plan.deaths[number];
        let host = &mut self.hosts[victim];
        if host.instance.is_none() {
            return;
        }
        let incarnation = host.incarnation;
        // Its connections end with it; what is under way may come all the same.
        host.instance = None;
        self.oracle.dead.insert(incarnation);
        self.line(|| format!("{victim} dies, as {incarnation}: {stage:?}, {is_in_stage}"));
        self.fault("death");
        if is_in_stage {
            self.count(match stage {
                Stage::Reading => "hosts that died while they read",
                Stage::Loading => "hosts that died while they loaded",
                Stage::Executing => "hosts that died with a try under way",
                Stage::Replicating => "hosts that died while they waited for a replica",
                Stage::Ending => "hosts that died while they ended entries",
            });
        }
        let noticed = self.now + noticed;
        self.events.push((noticed, Event::Noticed(victim)));
        self.events
            .push((noticed + replaced, Event::Replaced(victim)));
    }

    /// Nothing goes wrong any more, and what was begun comes to its end.
    fn end(&mut self) -> Result<(), Failure> {
        self.shared.net().cut_of = 0;
        let by = self.now + ENDING;
        loop {
            let parked = |host: &Host| {
                let instance = host.instance.as_ref();
                instance.map_or(0, |instance| instance.tally().parked)
            };
            let parked: usize = self.hosts.iter().map(parked).sum();
            if parked == 0 && self.shared.net().is_quiet() {
                break;
            }
            if self.now > by {
                return Err(Failure::new(
                    "what was begun comes to its end",
                    format!("{parked} packets are parked {ENDING:?} after the last fault"),
                ));
            }
            self.run_until(self.now + Duration::from_millis(1))?;
        }
        if self.plan.idles {
            self.run_until(self.now + IDLES)?;
            if self.oracle.guests() > 0 {
                return Err(Failure::new(
                    "entries whose time is over end",
                    format!("{} are left after {IDLES:?}", self.oracle.guests()),
                ));
            }
            self.count("runs at whose end all entries ended");
        }
        Ok(())
    }

    fn judge(mut self) -> Result<Report, Failure> {
        let given_up: u64 = self.hosts.iter().map(Host::given_up).sum();
        if given_up > 0 {
            return Err(Failure::new(
                "no packet waits for ever",
                format!("{given_up} were given up"),
            ));
        }
        for host in &self.hosts {
            let Some(instance) = &host.instance else {
                continue;
            };
            if instance.frames_in_use() > 0 {
                return Err(Failure::new(
                    "no frame is lost",
                    format!("{} at host {}", instance.frames_in_use(), host.incarnation),
                ));
            }
        }
        {
            let mut net = self.shared.net();
            let server = &mut net.servers[self.primary];
            self.oracle.judge(server)?;
        }
        for (name, count) in &self.oracle.counts {
            *self.report.branches.entry(name).or_default() += count;
        }
        let cuts = self.shared.net().cuts;
        if cuts > 0 {
            self.report.faults.insert("cut", cuts);
        }
        self.count(self.plan.name());
        self.report.trace = self.trace.hash();
        self.report.virtual_time = Duration::from_micros(self.now.as_micros());
        Ok(self.report)
    }
}
