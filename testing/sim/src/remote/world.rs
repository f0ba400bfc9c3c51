//! A run: packets come to hosts, whose clients read and commit by connections that fail; hosts die in every stage and others begin; the
//! primary changes. Then what was begun comes to its end.

use std::collections::BTreeSet;
use std::time::Duration;

use asterism_function::testkit::{RecordedCall, START_TICK};
use asterism_function::{PortNumber, Tick};
use asterism_placement::Time;
use asterism_state::{Transaction, hash};

use super::division::Division;
use super::hosts::Host;
use super::ledger::{self, IDLE_S};
use super::network::{ConnectionId, Incarnation, Shared, other, servers};
use super::oracle::Oracle;
use super::plan::{Hiccup, HiccupPlan, HostDeath, RemotePlan, Stage};
use super::servers::{Executed, Refusal};
use super::waits::Waits;
use crate::report::{Failure, Report};
use crate::scenario::Draws;
use crate::trace::Trace;

/// A death waits so long for its stage; for the end of entries as long as a run goes on, where nothing comes for seconds.
const AWAITS: Duration = Duration::from_millis(20);
/// What was begun must come to its end within so long once nothing goes wrong any more.
const ENDING: Duration = Duration::from_secs(4);
/// All guests have ended after that, once nobody comes.
const IDLES: Duration = Duration::from_secs(IDLE_S as u64 + 8);
/// What is counted of packets of a shard that is there.
const WHILE_ANOTHER: &str = "packets that left while another shard was away";

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
    /// Of a shard, and its failover of this number.
    Fails(usize, usize),
    Promoted(usize, usize),
    Follows(usize),
    /// Of a shard.
    Away(usize),
    /// The primary of this shard begins to refuse what is written.
    Refuses(usize),
}

struct Run<'a> {
    plan: &'a RemotePlan,
    trace: &'a mut Trace,
    draws: Draws,
    now: Time,
    division: Division,
    shared: Shared,
    /// Which server of each shard is the primary.
    primaries: Vec<usize>,
    hosts: Vec<Host>,
    incarnations: Incarnation,
    events: Vec<(Time, Event)>,
    /// Deaths that wait for their stages.
    awaited: Vec<usize>,
    /// Of each shard.
    oracles: Vec<Oracle>,
    waits: Waits,
    /// Which host the packet came to that reads or writes what another shard has.
    strayed: Option<Incarnation>,
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
            events.push((at(hiccup.at), Event::Hiccup(number)));
        }
        for (place, shard) in plan.shards.iter().enumerate() {
            for (number, failover) in shard.failovers.iter().enumerate() {
                events.push((at(failover.at), Event::Fails(place, number)));
            }
            if let Some((begins, _)) = shard.away {
                events.push((at(begins), Event::Away(place)));
            }
            if let Some((begins, ..)) = shard.refuses {
                events.push((at(begins), Event::Refuses(place)));
            }
        }
        let division = Division::new(plan.seed, plan.shards.len());
        let shards = 0..division.count();
        Self {
            plan,
            trace,
            draws: Draws::new(plan.seed, 73),
            now: Time::ZERO,
            shared: Shared::new(plan),
            primaries: shards.clone().map(|place| servers(place).start).collect(),
            hosts: Vec::new(),
            incarnations: 0,
            events,
            awaited: Vec::new(),
            oracles: shards
                .map(|place| Oracle::new(plan, &division, place))
                .collect(),
            waits: Waits::default(),
            strayed: None,
            division,
            report: Report::default(),
        }
    }

    /// A host begins, with nothing of its own.
    fn begin(&mut self) -> Host {
        self.incarnations += 1;
        let (plan, division) = (self.plan, &self.division);
        Host::begin((plan, division), self.incarnations, &self.shared, self.now)
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
            let packet = ledger::next(number, self.plan, &mut self.draws);
            self.arrives(&packet)?;
            if let Some((_, is_blind)) = self.plan.stray.filter(|(after, _)| *after == number) {
                self.strays(is_blind)?;
            }
        }
        while let Some((at, _)) = self.events.iter().max() {
            let until = (*at).max(self.now);
            self.run_until(until)?;
        }
        Ok(())
    }

    /// A packet comes whose key is another shard's: it never takes effect.
    fn strays(&mut self, is_blind: bool) -> Result<(), Failure> {
        let client = self.plan.clients[0];
        let Some(other) = self.division.another(client, &self.plan.clients) else {
            return Ok(());
        };
        let packet = ledger::stray(self.plan.packets, [client, other], is_blind);
        self.strayed = self.comes(&packet)?;
        Ok(())
    }

    /// A packet comes to any host.
    fn arrives(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.comes(packet).map(|_| ())
    }

    /// The same: to which one.
    fn comes(&mut self, packet: &[u8]) -> Result<Option<Incarnation>, Failure> {
        let routed = self.hosts.iter().enumerate();
        let routed = routed.filter(|(_, host)| host.is_routed && host.paused <= self.now);
        let routed: Vec<usize> = routed.map(|(place, _)| place).collect();
        if routed.is_empty() {
            return Ok(None);
        }
        let is_steered = self.plan.is_steered && ledger::only_looks(packet);
        let place = match is_steered && self.draws.percent(90) {
            true => routed[usize::from(ledger::client_of(packet)) % routed.len()],
            false => self.draws.one_of(&routed),
        };
        let (now, incarnation) = (self.now, self.hosts[place].incarnation);
        let Some(instance) = &mut self.hosts[place].instance else {
            self.count("packets to hosts that had died");
            return Ok(None);
        };
        let shard = self.division.of_packet(packet);
        if self.division.count() > 1 {
            let number = ledger::number_of(packet);
            let now_us = now.as_micros();
            self.waits.arrives(number, (incarnation, shard), now_us);
        }
        let taken = instance.inject(now, PortNumber(0), packet);
        instance.turn(now);
        self.report.operations += 1;
        self.line(|| format!("to {place}: {:x}, {taken}", hash::bytes(packet, 0)));
        if !taken {
            return Err(Failure::new("hosts take packets", format!("host {place}")));
        }
        self.drain(place)?;
        Ok(Some(incarnation))
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
        for (shard, executed) in &all {
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
            let server = &mut net.servers[self.primaries[*shard]];
            self.oracles[*shard].executed(executed, &committed, clock, server)?;
        }
        for (oracle, primary) in self.oracles.iter_mut().zip(&self.primaries) {
            oracle.sums_are_so(&mut self.shared.net().servers[*primary])?;
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
            let oracle = &mut self.oracles[self.division.of_packet(&call.packet)];
            if was_kept {
                oracle.was_kept(host.incarnation, call, now_us);
            }
            if let Some(read) = read {
                oracle.read_alone(host.incarnation, call, &read, now_us)?;
            }
        }
        for left in host.outside.take() {
            let bytes = hash::bytes(&left.1, left.0.into());
            self.trace.note(&[host.incarnation, bytes]);
            self.report.delivered += 1;
            let shard = self.division.of_packet(&left.1);
            let number = ledger::number_of(&left.1);
            if self.waits.leaves(number, now_us)? {
                *self.report.branches.entry(WHILE_ANOTHER).or_default() += 1;
            }
            self.oracles[shard].leaves(host.incarnation, left)?;
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
            Event::Fails(shard, number) => {
                let failover = &self.plan.shards[shard].failovers[number];
                let (promoted, primary) = (failover.promoted, self.primaries[shard]);
                let until = self.now + promoted + failover.follows;
                self.is_away((None, Some(shard)), until);
                if failover.dies {
                    self.shared.net().dies(primary);
                    self.fault("death of a primary");
                } else {
                    self.fault("demotion");
                }
                self.line(|| format!("server {primary} fails"));
                self.events
                    .push((self.now + promoted, Event::Promoted(shard, number)));
            }
            Event::Promoted(shard, number) => {
                let primary = other(self.primaries[shard]);
                self.primaries[shard] = primary;
                // What had come by now it has.
                let offset = {
                    let mut net = self.shared.net();
                    net.step();
                    net.promote(primary)
                };
                self.judge_executed()?;
                let clock = self.clock();
                self.line(|| format!("server {primary} is the primary, with {offset}"));
                self.oracles[shard].goes_back(offset, clock)?;
                let follows = self.plan.shards[shard].failovers[number].follows;
                self.events
                    .push((self.now + follows, Event::Follows(shard)));
            }
            Event::Follows(shard) => self.shared.net().follows(other(self.primaries[shard])),
            Event::Away(shard) => {
                let length = self.plan.shards[shard].away.map(|(_, length)| length);
                let until = self.now + length.unwrap_or_default();
                self.is_away((None, Some(shard)), until);
                self.shared.net().stall(None, shard, until.as_micros());
                self.fault("shard that is away");
            }
            Event::Refuses(shard) => {
                let Some((_, length, refusal)) = self.plan.shards[shard].refuses else {
                    return Ok(());
                };
                let (until, primary) = (self.now + length, self.primaries[shard]);
                self.is_away((None, Some(shard)), until);
                let until_us = until.as_micros();
                self.shared.net().refuses(primary, until_us, refusal);
                self.fault(match refusal {
                    Refusal::Full => "full primary",
                    Refusal::NoReplicas => "primary with too few replicas",
                });
            }
        }
        Ok(())
    }

    /// A shard, a host, or what is between both, is away from now on until then.
    fn is_away(&mut self, what: (Option<Incarnation>, Option<usize>), until: Time) {
        let until_us = until.as_micros();
        self.waits.is_away(what, (self.now.as_micros(), until_us));
    }

    fn hiccups(&mut self, number: usize) {
        let HiccupPlan {
            place,
            shard,
            hiccup,
            length,
            ..
        } = self.plan.hiccups[number];
        let until = self.now + length;
        let incarnation = self.hosts[place].incarnation;
        match hiccup {
            Hiccup::Pause => {
                self.is_away((Some(incarnation), None), until);
                self.hosts[place].paused = until;
                self.fault("pause");
            }
            Hiccup::Stall => {
                self.is_away((Some(incarnation), Some(shard)), until);
                let until_us = until.as_micros();
                self.shared.net().stall(Some(incarnation), shard, until_us);
                self.fault("stall");
            }
            Hiccup::Cut => {
                self.shared.net().cut_all(incarnation, shard);
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
        for oracle in &mut self.oracles {
            oracle.dead.insert(incarnation);
        }
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
        let mut awaited = None::<BTreeSet<ConnectionId>>;
        loop {
            let parked = |host: &Host| {
                let instance = host.instance.as_ref();
                instance.map_or(0, |instance| instance.tally().parked)
            };
            let parked: usize = self.hosts.iter().map(parked).sum();
            if parked == 0 {
                let busy = self.shared.net().busy();
                if busy.is_empty() {
                    break;
                }
                // Of the clients of several shards one always asks whether what it keeps is so: all that was under way has come by now.
                if let Some(awaited) = &mut awaited {
                    awaited.retain(|id| busy.contains(id));
                    if awaited.is_empty() && self.division.count() > 1 {
                        break;
                    }
                }
                awaited.get_or_insert(busy);
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
            let guests: usize = self.oracles.iter().map(Oracle::guests).sum();
            if guests > 0 {
                return Err(Failure::new(
                    "entries whose time is over end",
                    format!("{guests} are left after {IDLES:?}"),
                ));
            }
            self.count("runs at whose end all entries ended");
        }
        Ok(())
    }

    fn judge(mut self) -> Result<Report, Failure> {
        let given_up: u64 = self.hosts.iter().map(Host::given_up).sum();
        let mut hosts = self.hosts.iter().filter(|host| host.instance.is_some());
        let strayed = hosts.any(|host| self.strayed == Some(host.incarnation));
        if given_up != u64::from(strayed) {
            return Err(Failure::new(
                "no packet waits for ever, but for those of another shard's keys",
                format!(
                    "{given_up} were given up, and {} strayed",
                    u64::from(strayed)
                ),
            ));
        }
        let hosts = self.hosts.iter().filter(|host| host.instance.is_some());
        let misplaced: u64 = hosts.map(Host::misplaced).sum();
        if (misplaced > 0) != strayed {
            return Err(Failure::new(
                "keys of another shard are counted",
                format!("{misplaced} were, and {} strayed", u64::from(strayed)),
            ));
        }
        if strayed {
            self.count("packets given up whose keys were another shard's");
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
        for (oracle, primary) in self.oracles.iter_mut().zip(&self.primaries) {
            oracle.judge(&mut self.shared.net().servers[*primary])?;
            for (name, count) in &oracle.counts {
                *self.report.branches.entry(name).or_default() += count;
            }
        }
        let cuts = self.shared.net().cuts;
        if cuts > 0 {
            self.report.faults.insert("cut", cuts);
        }
        self.count(self.plan.name());
        match self.division.count() {
            1 => {}
            2 => self.count("runs with two shards"),
            _ => self.count("runs with three shards"),
        }
        self.report.trace = self.trace.hash();
        self.report.virtual_time = Duration::from_micros(self.now.as_micros());
        Ok(self.report)
    }
}
