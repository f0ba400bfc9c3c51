//! Orchestrators that meter one cluster: leaders die, pause and follow each other, the store fails and answers late, hosts restart,
//! leave and are killed. What is shown only grows, is never above what hosts counted, and reaches what they reported.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_elasticity::usage::Usage;
use asterism_heartbeat::{Heartbeat, Load, Stage, TenantUsage, USAGE_AT_ONCE};
use asterism_placement::Time;

use super::{STORE_INTERVAL, UsageAnswer, UsageCommand, UsageKeeper, stored};
use crate::controller::Process;

/// Seeds of the test.
const SEEDS: u64 = 24;
/// Steps of a run, of 50 ms each.
const STEPS: u64 = 4_000;
const STEP_MS: u64 = 50;
const START_MS: u64 = 1_800_000_000_000;
/// More tenants than a heartbeat carries.
const TENANTS: usize = USAGE_AT_ONCE + 3;
const ORCHESTRATORS: usize = 3;
/// What a store that answers has of a last report, at the latest.
const SETTLED_WITHIN: Duration = Duration::from_millis(1_500);

type Totals = BTreeMap<String, Usage>;

/// A generator of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

fn heartbeat(host: &str, stage: Stage, usage: Vec<TenantUsage>) -> Heartbeat {
    Heartbeat {
        host: host.to_owned(),
        address: None,
        process: Process {
            folder: 1,
            start: 1,
        },
        stage,
        epoch: 1,
        silent: 0,
        digests_agree: true,
        launch: 0,
        load: Load::default(),
        usage: usage.into(),
    }
}

struct Host {
    incarnation: u64,
    counts: Vec<TenantUsage>,
    /// The tenant that the next heartbeat begins with.
    next: usize,
}

impl Host {
    fn new(incarnation: u64) -> Host {
        let tenant = |number: usize| TenantUsage {
            tenant: format!("t{number}"),
            ..TenantUsage::default()
        };
        Host {
            incarnation,
            counts: (0..TENANTS).map(tenant).collect(),
            next: 0,
        }
    }

    fn part(&mut self) -> Vec<TenantUsage> {
        let first = self.next;
        self.next = (first + USAGE_AT_ONCE) % TENANTS;
        let all = self.counts.iter().cycle().skip(first);
        all.take(USAGE_AT_ONCE).cloned().collect()
    }
}

/// A command of which nobody knows yet what became.
struct UnderWay {
    until: u64,
    command: UsageCommand,
    /// What a read finds: it is old once it is answered.
    found: Option<Vec<u8>>,
}

/// An orchestrator with its view of the epochs, and a command that its store has not answered yet.
#[derive(Default)]
struct Orchestrator {
    keeper: UsageKeeper,
    epoch: u32,
    /// Until when it neither hears nor does anything.
    paused_until: u64,
    under_way: Option<UnderWay>,
    exported: Totals,
}

struct World {
    seed: u64,
    numbers: Numbers,
    at_ms: u64,
    hosts: BTreeMap<String, Host>,
    next_incarnation: u64,
    epochs: Vec<BTreeMap<String, u64>>,
    orchestrators: Vec<Orchestrator>,
    leader: Option<usize>,
    term: u64,
    stored: Option<Vec<u8>>,
    /// What a leader finds there.
    kept: Totals,
    truth: Totals,
    /// What hosts that were killed had not reported.
    lost: Totals,
    /// What is wrong in the store.
    wrong: Option<String>,
}

fn totals_of(bytes: &[u8]) -> Totals {
    let state = stored::decode(Some(bytes)).expect("what was encoded");
    asterism_elasticity::usage::Meter::resume(state).totals()
}

fn add(totals: &mut Totals, usage: &TenantUsage) {
    let sum = totals.entry(usage.tenant.clone()).or_default();
    sum.packets += u128::from(usage.packets);
    sum.bytes += u128::from(usage.bytes);
    sum.flows += u128::from(usage.flows);
    sum.instance_ms += u128::from(usage.instance_ms);
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            numbers: Numbers(seed),
            at_ms: 1_000,
            hosts: BTreeMap::new(),
            next_incarnation: 0,
            epochs: Vec::new(),
            orchestrators: (0..ORCHESTRATORS)
                .map(|_| Orchestrator::default())
                .collect(),
            leader: None,
            term: 0,
            stored: None,
            kept: Totals::new(),
            truth: Totals::new(),
            lost: Totals::new(),
            wrong: None,
        };
        for host in ["a", "b", "c"] {
            world.begin(host);
        }
        world.name_epoch();
        world
    }

    fn now(&self) -> Time {
        Time::ZERO + Duration::from_millis(self.at_ms)
    }

    fn begin(&mut self, host: &str) {
        self.next_incarnation += 1;
        let host = (host.to_owned(), Host::new(self.next_incarnation));
        self.hosts.insert(host.0, host.1);
    }

    fn name_epoch(&mut self) {
        let members = self.hosts.iter();
        let members = members.map(|(name, host)| (name.clone(), host.incarnation));
        self.epochs.push(members.collect());
    }

    /// Hosts count.
    fn count(&mut self) {
        for host in self.hosts.values_mut() {
            let usage = &mut host.counts[self.numbers.below(TENANTS as u64) as usize];
            let more = TenantUsage {
                tenant: usage.tenant.clone(),
                packets: self.numbers.below(100),
                bytes: self.numbers.below(10_000),
                flows: self.numbers.below(3),
                instance_ms: STEP_MS,
            };
            usage.packets += more.packets;
            usage.bytes += more.bytes;
            usage.flows += more.flows;
            usage.instance_ms += more.instance_ms;
            add(&mut self.truth, &more);
        }
    }

    /// A heartbeat goes to all orchestrators, and is lost to some.
    fn send(&mut self, heartbeat: &Heartbeat, may_be_lost: bool) {
        let now_ms = START_MS + self.at_ms;
        for orchestrator in &mut self.orchestrators {
            let is_paused = orchestrator.paused_until > self.at_ms && may_be_lost;
            if is_paused || may_be_lost && self.numbers.one_in(10) {
                continue;
            }
            orchestrator
                .keeper
                .heartbeat(now_ms, &heartbeat.host, heartbeat);
        }
    }

    fn beat(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            let Some(host) = self.hosts.get_mut(&name) else {
                continue;
            };
            let (stage, part) = (Stage::Serving(host.incarnation), host.part());
            self.send(&heartbeat(&name, stage, part), true);
        }
    }

    /// A host ends, and reports all before; none of the reports are lost, and a leader takes them. What it did since its last heartbeat
    /// nobody else reports.
    fn end(&mut self, name: &str) {
        if let Some(mut host) = self.hosts.remove(name) {
            for usage in &mut host.counts {
                usage.packets += 10;
                let last = TenantUsage {
                    tenant: usage.tenant.clone(),
                    packets: 10,
                    ..TenantUsage::default()
                };
                add(&mut self.truth, &last);
            }
            let stage = Stage::Ended(host.incarnation);
            for part in host.counts.chunks(USAGE_AT_ONCE) {
                self.send(&heartbeat(name, stage, part.to_vec()), false);
            }
            self.settle_store(SETTLED_WITHIN);
            self.check_stored(name, &host);
        }
    }

    /// What a host reported last is in the store before anybody else can be asked for it.
    fn check_stored(&mut self, name: &str, host: &Host) {
        let Ok(state) = stored::decode(self.stored.as_deref()) else {
            return;
        };
        let account = state
            .accounts
            .get(name)
            .and_then(|of| of.get(&host.incarnation));
        for usage in &host.counts {
            let stored = account.and_then(|account| account.tenants.get(&usage.tenant));
            let packets = stored.map_or(0, |counts| counts.packets);
            if packets != usage.packets {
                let (tenant, own) = (&usage.tenant, usage.packets);
                self.wrong = Some(format!(
                    "{name} ended with {own} packets of {tenant}, {packets} are stored"
                ));
            }
        }
    }

    fn has_metering_leader(&self) -> bool {
        let leader = self.leader.map(|leader| &self.orchestrators[leader]);
        leader.is_some_and(|leader| {
            let meter = leader.keeper.meter.as_ref();
            // Its list of members is that of the last epoch.
            leader.paused_until <= self.at_ms
                && meter.is_some_and(|meter| meter.state().epoch == self.epochs.len() as u64)
        })
    }

    /// The store carries out what is under way at an orchestrator, or fails.
    fn answer(&mut self, number: usize) {
        let now = self.now();
        let orchestrator = &mut self.orchestrators[number];
        let is_due = |one: &mut UnderWay| one.until <= self.at_ms;
        let Some(under_way) = orchestrator.under_way.take_if(is_due) else {
            return;
        };
        let fails = self.numbers.below(12);
        let answer = match under_way.command {
            _ if fails == 0 => UsageAnswer::Failed,
            UsageCommand::Read => UsageAnswer::Read(under_way.found),
            UsageCommand::Store { bytes, term } => {
                let leads = term == self.term && self.leader == Some(number);
                if leads {
                    self.write(bytes);
                }
                // It may be written, and nobody knows.
                match leads && fails != 1 {
                    true => UsageAnswer::Stored,
                    false => UsageAnswer::Failed,
                }
            }
        };
        self.orchestrators[number].keeper.answer(now, answer);
    }

    /// What is stored only grows.
    fn write(&mut self, bytes: Vec<u8>) {
        let totals = totals_of(&bytes);
        for (tenant, before) in &self.kept {
            let after = totals.get(tenant).copied().unwrap_or_default();
            if after.packets < before.packets || after.instance_ms < before.instance_ms {
                self.wrong = Some(format!("{tenant} is stored as {after:?} after {before:?}"));
            }
        }
        self.kept = totals;
        self.stored = Some(bytes);
    }

    fn turn(&mut self, number: usize) {
        let now = self.now();
        let leads = (self.leader == Some(number)).then_some(self.term);
        let epoch = self.epochs.len() as u32;
        let orchestrator = &mut self.orchestrators[number];
        if orchestrator.paused_until > self.at_ms {
            return;
        }
        orchestrator.keeper.leads(now, leads);
        // The controller of a leader reads the record when it begins to lead; before, it may have an old one.
        if leads.is_some() && self.numbers.one_in(3) {
            orchestrator.epoch = epoch;
        }
        if let Some(members) = self
            .epochs
            .get((orchestrator.epoch as usize).wrapping_sub(1))
        {
            let now_ms = START_MS + self.at_ms;
            orchestrator
                .keeper
                .members(now_ms, orchestrator.epoch, members);
        }
        if orchestrator.under_way.is_none()
            && let Some(command) = orchestrator.keeper.poll_command(now)
        {
            let is_slow = match command {
                UsageCommand::Read => self.numbers.one_in(4),
                UsageCommand::Store { .. } => self.numbers.one_in(20),
            };
            let takes = match is_slow {
                true => self.numbers.below(3_000),
                false => self.numbers.below(60),
            };
            orchestrator.under_way = Some(UnderWay {
                until: self.at_ms + takes,
                command,
                found: self.stored.clone(),
            });
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.at_ms += STEP_MS;
        self.count();
        self.beat();
        for number in 0..ORCHESTRATORS {
            self.answer(number);
            self.turn(number);
        }
        let host = ["a", "b", "c", "d"][self.numbers.below(4) as usize];
        match self.numbers.below(400) {
            // A leader dies: it begins again without memory, and another leads a moment later.
            0..4 => {
                self.kill_leader();
            }
            // A leader pauses for longer than its term, and wakes up.
            4 => {
                if let Some(leader) = self.leader.take() {
                    self.orchestrators[leader].paused_until =
                        self.at_ms + self.numbers.below(9_000);
                }
            }
            5 if self.has_metering_leader() && self.hosts.len() > 1 => {
                self.end(host);
                if self.numbers.one_in(3) {
                    self.replace_leader();
                }
                self.name_epoch();
            }
            6 if self.has_metering_leader() => {
                self.end(host);
                self.begin(host);
                self.name_epoch();
            }
            // A host is killed. What it did not report, or no leader stored, is lost.
            7 if self.hosts.len() > 1 => {
                if let Some(host) = self.hosts.remove(host) {
                    host.counts
                        .iter()
                        .for_each(|usage| add(&mut self.lost, usage));
                    self.name_epoch();
                }
            }
            _ if self.leader.is_none() && self.numbers.one_in(20) => {
                self.term += 1;
                self.leader = Some(self.numbers.below(ORCHESTRATORS as u64) as usize);
            }
            _ => {}
        }
        self.check()
    }

    fn kill_leader(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.orchestrators[leader] = Orchestrator::default();
        }
    }

    /// The leader dies, and one follows at once that is just reading, if there is one.
    fn replace_leader(&mut self) {
        self.kill_leader();
        let at = self.at_ms;
        let reads = |one: &Orchestrator| one.under_way.as_ref().is_some_and(|read| read.until > at);
        self.leader = self.orchestrators.iter().position(reads);
        self.term += u64::from(self.leader.is_some());
    }

    /// The store of the leader answers at once for a while: what it stores immediately is stored.
    fn settle_store(&mut self, time: Duration) {
        for _ in 0..time.as_millis() as u64 / STEP_MS {
            self.at_ms += STEP_MS;
            let Some(leader) = self.leader else {
                return;
            };
            let now = self.now();
            let term = self.term;
            let orchestrator = &mut self.orchestrators[leader];
            let asked = orchestrator.under_way.take().map(|one| one.command);
            let command = asked.or_else(|| orchestrator.keeper.poll_command(now));
            match command {
                Some(UsageCommand::Read) => orchestrator
                    .keeper
                    .answer(now, UsageAnswer::Read(self.stored.clone())),
                Some(UsageCommand::Store { bytes, term: of }) => {
                    if of == term {
                        orchestrator.keeper.answer(now, UsageAnswer::Stored);
                        self.write(bytes);
                    } else {
                        orchestrator.keeper.answer(now, UsageAnswer::Failed);
                    }
                }
                None => {}
            }
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let mut fault = self.wrong.take();
        for orchestrator in &mut self.orchestrators {
            let totals = &orchestrator.keeper.view().totals;
            for (tenant, before) in &orchestrator.exported {
                let after = totals.get(tenant).copied().unwrap_or_default();
                if after.packets < before.packets || after.instance_ms < before.instance_ms {
                    fault = Some(format!("{tenant} falls from {before:?} to {after:?}"));
                }
            }
            orchestrator.exported.clone_from(totals);
            for (tenant, usage) in totals {
                let truth = self.truth.get(tenant).copied().unwrap_or_default();
                if usage.packets > truth.packets || usage.instance_ms > truth.instance_ms {
                    fault = Some(format!("{tenant} is billed {usage:?} of {truth:?}"));
                }
            }
        }
        if let Some(fault) = fault {
            return Err(self.fault(&fault));
        }
        // What one shows, every later leader has.
        for orchestrator in &self.orchestrators {
            for (tenant, shown) in &orchestrator.keeper.view().totals {
                let kept = self.kept.get(tenant).copied().unwrap_or_default();
                if shown.packets > kept.packets || shown.bytes > kept.bytes {
                    return Err(self.fault(&format!("{tenant}: {shown:?} shown, {kept:?} stored")));
                }
            }
        }
        Ok(())
    }

    fn fault(&self, what: &str) -> String {
        format!(
            "seed {}, {} ms, term {}: {what}",
            self.seed, self.at_ms, self.term
        )
    }

    fn run(mut self) -> Result<(u128, u128), String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        // Quiet: one leads, the store answers, all hosts report.
        if self.leader.is_none() {
            self.term += 1;
            self.leader = Some(0);
        }
        let leader = self.leader.unwrap_or_default();
        self.orchestrators[leader].paused_until = 0;
        self.orchestrators[leader].epoch = self.epochs.len() as u32;
        for _ in 0..(4 * STORE_INTERVAL.as_millis() as u64 + 30_000) / STEP_MS {
            self.at_ms += STEP_MS;
            self.beat();
            self.turn(leader);
            self.settle_store(Duration::from_millis(STEP_MS));
            self.check()?;
        }
        let totals = self.orchestrators[leader].keeper.view().totals.clone();
        let mut lost = 0;
        let mut all = 0;
        for (tenant, truth) in &self.truth {
            let metered = totals.get(tenant).copied().unwrap_or_default();
            let most = self.lost.get(tenant).copied().unwrap_or_default();
            let missing = |truth: u128, metered: u128, most: u128| {
                let missing = truth.checked_sub(metered);
                missing.filter(|missing| *missing <= most)
            };
            let missing = missing(truth.packets, metered.packets, most.packets)
                .filter(|_| missing(truth.flows, metered.flows, most.flows).is_some())
                .filter(|_| {
                    missing(truth.instance_ms, metered.instance_ms, most.instance_ms).is_some()
                });
            match missing {
                Some(missing) => lost += missing,
                None => {
                    let what = format!(
                        "{tenant} is billed {metered:?} of {truth:?}, {most:?} were of killed hosts"
                    );
                    return Err(self.fault(&what));
                }
            }
            all += truth.packets;
        }
        Ok((all, lost))
    }
}

fn run(seed: u64) -> Result<(u128, u128), String> {
    World::new(seed).run()
}

#[test]
fn every_unit_is_metered_once_through_any_leaders() {
    let (mut all, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let (metered, missing) = run(seed).unwrap_or_else(|fault| panic!("{fault}"));
        all += metered;
        lost += missing;
    }
    println!("{SEEDS} seeds: {lost} of {all} packets were lost with killed hosts");
    // Leaders follow each other every few seconds here; a host that is killed meanwhile loses what no leader had stored.
    assert!(lost > 0 && lost * 20 < all, "{lost} of {all}");
}

/// Only in a build with `--cfg asterism_mutants`: `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-orchestrator --lib usage`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_is_found() {
    let mut alive = Vec::new();
    let mut seek = |name: String, select: &dyn Fn(bool)| {
        select(true);
        let killed = (0..SEEDS).find_map(|seed| {
            std::panic::catch_unwind(|| run(seed)).map_or(Some("a panic".to_owned()), Result::err)
        });
        select(false);
        match killed {
            Some(fault) => println!("{name}: {}", fault.chars().take(120).collect::<String>()),
            None => alive.push(name),
        }
    };
    for planted in super::mutant::Mutant::ALL {
        seek(format!("{planted:?}"), &|on| {
            super::mutant::select(on.then_some(planted))
        });
    }
    // Those of the meter, by the same road.
    use asterism_elasticity::usage::mutant;
    for planted in mutant::Mutant::ALL {
        // Needs a day in which an account is settled, or reports out of order, which the heartbeats' link refuses: the tests of
        // `asterism-elasticity` find these.
        let is_found_there = matches!(
            planted,
            mutant::Mutant::SettledCountsAgain
                | mutant::Mutant::OldMembersBelieved
                | mutant::Mutant::NewestCounts
        );
        if !is_found_there {
            seek(format!("{planted:?}"), &|on| {
                mutant::select(on.then_some(planted))
            });
        }
    }
    assert!(alive.is_empty(), "not found by any seed: {alive:?}");
}

#[test]
fn the_largest_state_fits_a_value_and_longer_ones_settle_early() {
    let name = |number: usize| format!("{number:0>63}");
    let mut keeper = UsageKeeper::default();
    keeper.leads(Time::ZERO, Some(1));
    assert_eq!(keeper.poll_command(Time::ZERO), Some(UsageCommand::Read));
    keeper.answer(Time::ZERO, UsageAnswer::Read(None));
    let usage: Vec<TenantUsage> = (0..64)
        .map(|tenant| TenantUsage {
            tenant: name(tenant),
            packets: 1 << 42,
            bytes: 1 << 55,
            flows: 1 << 42,
            instance_ms: 1 << 40,
        })
        .collect();
    let mut now_ms = START_MS;
    let mut sizes = Vec::new();
    for epoch in 1..=4 {
        let members: BTreeMap<String, u64> = (0..64)
            .map(|host| (name(host), u64::MAX - 64 + u64::from(epoch)))
            .collect();
        keeper.members(now_ms, epoch, &members);
        now_ms += 100 * 365 * 86_400_000;
        for (host, incarnation) in &members {
            let stage = Stage::Serving(*incarnation);
            keeper.heartbeat(now_ms, host, &heartbeat(host, stage, usage.clone()));
        }
        let now = Time::ZERO + Duration::from_secs(60 * u64::from(epoch));
        let Some(UsageCommand::Store { bytes, term: 1 }) = keeper.poll_command(now) else {
            panic!("nothing to store");
        };
        sizes.push(bytes.len());
        let state = stored::decode(Some(&bytes)).unwrap();
        let totals = asterism_elasticity::usage::Meter::resume(state).totals();
        assert_eq!(totals[&name(5)].packets, (64 * u128::from(epoch)) << 42);
        keeper.answer(now, UsageAnswer::Stored);
        assert_eq!(keeper.view().totals, totals);
    }
    println!("{sizes:?}");
    assert!(sizes[0] < 420_000 && sizes.iter().all(|size| *size <= 512 * 1024));
}

#[test]
fn what_is_no_state_is_left_as_it_is() {
    for (bytes, part) in [
        (&b"{"[..], "left as it is"),
        (b"{\"version\":2,\"future\":true}", "has version 2"),
        (
            b"{\"version\":1,\"epoch\":1,\"refused\":0,\"tenants\":[],\"settled\":[[3,1,1,1,1]],\"accounts\":[]}",
            "counts of tenant 3",
        ),
    ] {
        let mut keeper = UsageKeeper::default();
        let mut now = Time::ZERO;
        keeper.leads(now, Some(1));
        for _ in 0..3 {
            assert_eq!(keeper.poll_command(now), Some(UsageCommand::Read));
            keeper.answer(now, UsageAnswer::Read(Some(bytes.to_vec())));
            let error = keeper.view().error.clone().unwrap_or_default();
            assert!(error.contains(part), "{error}");
            keeper.members(START_MS, 1, &[("a".to_owned(), 1)].into());
            now = now + STORE_INTERVAL;
        }
        // Once it can be read, it is metered.
        keeper.poll_command(now);
        keeper.answer(now, UsageAnswer::Read(None));
        assert_eq!(keeper.view().error, None);
    }
}
