//! A run: packets come to hosts, hosts ask the store, hosts die and begin, the store goes away and comes back; then what was begun comes to
//! its end. What is special to a function its [`World`] says.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Attempt, Instance, InstanceParts};
use asterism_function::testkit::{
    FromStore, HostileStore, Recorded, RecordedCalls, SEED, START_TICK,
};
use asterism_function::{NetworkFunction, PortNumber, Tick, objects_of};
use asterism_io::frame::FramePool;
use asterism_placement::Time;
use asterism_state::{ObjectSettings, Query, hash};

use super::network::{HostEnd, Incarnation, Name, Outside, Request, Shared};
use super::oracle::Oracle;
use super::plan::{Death, StorePlan};
use crate::report::{Failure, Report};
use crate::scenario::Draws;
use crate::trace::Trace;

/// Buffers for frames of a host.
const FRAMES: usize = 2_048;
/// Ports that packets leave by.
const PORTS: u16 = 2;
/// A death waits for a transaction that is on its way to the store: so often, and so long each time.
const AWAITS: u32 = 400;
const AWAITS_FOR: Duration = Duration::from_micros(25);
/// What was begun must come to its end within so long once nothing goes wrong any more.
const ENDING: Duration = Duration::from_millis(1_500);

/// Those around the hosts.
pub(super) trait World {
    /// What the hosts run.
    type Function: NetworkFunction + Clone;
    /// The function, configured.
    fn function(&self) -> Self::Function;
    /// The next packet, and the port that it comes in by.
    fn packet(&mut self) -> (PortNumber, Vec<u8>);
}

/// What happens besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of the host of this number in the plan, which was put off so often.
    Death(usize, u32),
    Noticed(usize),
    Replaced(usize),
    StoreGoes,
    StoreReturns,
}

struct Host<F: NetworkFunction> {
    incarnation: Incarnation,
    instance: Option<Instance<Recorded<F>>>,
    /// Routers send it packets.
    is_routed: bool,
    calls: RecordedCalls,
    outside: Outside,
}

struct Run<'a, W: World> {
    plan: &'a StorePlan,
    world: &'a mut W,
    trace: &'a mut Trace,
    draws: Draws,
    now: Time,
    shared: Shared,
    store: HostileStore<W::Function, Name>,
    /// How many outages are under way.
    away: u32,
    hosts: Vec<Host<W::Function>>,
    incarnations: Incarnation,
    events: Vec<(Time, Event)>,
    oracle: Oracle<W::Function>,
    report: Report,
}

/// Runs a plan.
///
/// # Errors
/// The first check that did not hold.
pub(super) fn run<W: World>(
    plan: &StorePlan,
    world: &mut W,
    trace: &mut Trace,
) -> Result<Report, Failure> {
    let mut run = Run::new(plan, world, trace);
    for _ in 0..plan.hosts {
        let host = run.begin();
        run.hosts.push(host);
    }
    run.load()?;
    run.end()?;
    run.judge()
}

impl<'a, W: World> Run<'a, W> {
    fn new(plan: &'a StorePlan, world: &'a mut W, trace: &'a mut Trace) -> Self {
        let function = world.function();
        let names = objects_of(&function);
        let homes = plan.homes;
        let place = |name: &str| names.iter().position(|object| *object == name);
        let lives_there = |name: &str| place(name).is_some_and(|place| homes.has(place));
        let mut store = HostileStore::new(&function, lives_there).with_seed(plan.seed);
        store.set_now(0, START_TICK);
        let is_common = (0..names.len() as u8).map(|object| store.has(object));
        let oracle = Oracle::new(
            {
                let function = function.clone();
                move || function.clone()
            },
            is_common.collect(),
        );
        let mut events = Vec::new();
        for (number, death) in plan.deaths.iter().enumerate() {
            events.push((Time::ZERO + death.at, Event::Death(number, 0)));
        }
        for (at, length) in &plan.outages {
            events.push((Time::ZERO + *at, Event::StoreGoes));
            events.push((Time::ZERO + *at + *length, Event::StoreReturns));
        }
        Self {
            plan,
            world,
            trace,
            draws: Draws::new(plan.seed, 63),
            now: Time::ZERO,
            shared: Shared::new(plan.link.clone(), plan.seed),
            store,
            away: 0,
            hosts: Vec::new(),
            incarnations: 0,
            events,
            oracle,
            report: Report::default(),
        }
    }

    /// A host begins, with nothing of its own.
    fn begin(&mut self) -> Host<W::Function> {
        self.incarnations += 1;
        let (calls, outside) = (RecordedCalls::default(), Outside::default());
        let function = self.world.function();
        let names = objects_of(&function);
        let there = names.iter().zip(0..);
        let there: Vec<&str> = there
            .filter(|(_, object)| self.store.has(*object))
            .map(|(name, _)| *name)
            .collect();
        let end = HostEnd {
            host: self.incarnations,
            shared: self.shared.clone(),
            calls: calls.clone(),
            answer: Vec::new(),
        };
        let parts = InstanceParts::alone(SEED)
            .with_tick_at_zero(START_TICK)
            .with_store(move || Box::new(end));
        let pool = FramePool::new(FRAMES).expect("memory for frames");
        let ports = (0..PORTS).map(|port| outside.port(port)).collect();
        let settings = move |name: &str| match there.contains(&name) {
            true => ObjectSettings::REMOTE,
            false => ObjectSettings::LOCAL,
        };
        let recorded = Arc::new(Recorded::new(function, calls.clone()));
        let mut instance = parts.start(recorded, settings, pool, ports);
        instance.turn(self.now);
        self.oracle.begins(self.incarnations);
        Host {
            incarnation: self.incarnations,
            instance: Some(instance),
            is_routed: true,
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

    fn load(&mut self) -> Result<(), Failure> {
        let mut next = self.now;
        for _ in 0..self.plan.packets {
            next = next + self.draws.micros(0, self.plan.between_us);
            self.run_until(next)?;
            let (port, packet) = self.world.packet();
            self.arrives(port, &packet)?;
        }
        let last = self.events.iter().map(|(at, _)| *at).max();
        self.run_until(last.unwrap_or(Time::ZERO).max(self.now))?;
        while let Some((at, _)) = self.events.iter().max() {
            self.run_until(*at)?;
        }
        Ok(())
    }

    /// A packet comes to any host.
    fn arrives(&mut self, port: PortNumber, packet: &[u8]) -> Result<(), Failure> {
        let routed = self.hosts.iter().enumerate();
        let routed: Vec<usize> = routed
            .filter(|(_, host)| host.is_routed)
            .map(|(place, _)| place)
            .collect();
        if routed.is_empty() {
            return Ok(());
        }
        let place = self.draws.one_of(&routed);
        let now = self.now;
        let Some(instance) = &mut self.hosts[place].instance else {
            self.count("packets to hosts that had died");
            return Ok(());
        };
        let taken = instance.inject(now, port, packet);
        // What it asked for is asked at once.
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
                self.now = until.max(self.now);
                return Ok(());
            }
            self.now = next;
            self.step()?;
        }
    }

    fn next_due(&self) -> Time {
        let events = self.events.iter().map(|(at, _)| *at);
        let instances = self.hosts.iter().filter_map(|host| host.instance.as_ref());
        let requests = self.shared.network().next_request();
        let all = events
            .chain(instances.map(Instance::next_due))
            .chain(requests);
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
        loop {
            let request = self.shared.network().take_request(self.now);
            let Some((host, request)) = request else {
                break;
            };
            self.serve(host, request)?;
        }
        for place in 0..self.hosts.len() {
            let now = self.now;
            let host = &mut self.hosts[place];
            if let Some(instance) = host.instance.as_mut().filter(|one| one.next_due() <= now) {
                instance.turn(now);
                self.drain(place)?;
            }
        }
        self.report.steps += 1;
        Ok(())
    }

    /// The store gets a request.
    fn serve(&mut self, host: Incarnation, request: Request) -> Result<(), Failure> {
        if self.away > 0 {
            self.count("requests to a store that was away");
            return Ok(());
        }
        let (now, tick) = (self.now, tick_at(self.now));
        self.store.set_now(now.as_micros(), tick);
        let reply = match request {
            Request::Read {
                ticket,
                object,
                lane,
                hash,
                key,
            } => {
                let key = &key;
                let answer = self.store.answer(&Query {
                    object,
                    lane,
                    hash,
                    key,
                    conversation: 0,
                });
                FromStore::Answer(ticket, answer)
            }
            Request::Commit {
                attempt,
                transaction,
            } => {
                let name: Name = (host, attempt);
                let decided = self.store.decide(name, &transaction);
                let is_committed = decided.is_committed;
                self.trace
                    .note(&[now.as_micros(), host, is_committed.into()]);
                self.line(|| format!("{attempt:?} of {host}: {decided:?}"));
                match (decided.is_new, is_committed) {
                    (false, _) => self.count("transactions decided before"),
                    (true, false) => self.count("transactions refused"),
                    (true, true) => self.committed(name)?,
                }
                FromStore::Decision::<Attempt>(attempt, is_committed)
            }
        };
        self.shared.network().reply(host, &reply, now);
        Ok(())
    }

    fn committed(&mut self, name: Name) -> Result<(), Failure> {
        let called = self.shared.network().called.get(&name).cloned();
        let (call, transaction) = called.expect("the store is asked by a host's end");
        let now = (self.now, tick_at(self.now));
        let store = self.store.state();
        self.oracle
            .committed(name.0, (&call, &transaction), now, store)
    }

    /// Has the oracle judge what a host did.
    fn drain(&mut self, place: usize) -> Result<(), Failure> {
        let host = &self.hosts[place];
        let calls = host.calls.take();
        for call in &calls {
            let serial = call.pinned.serial;
            let read = self
                .shared
                .network()
                .take_read_alone(host.incarnation, serial);
            match read {
                Some(read) => self.oracle.read_alone(host.incarnation, call, &read)?,
                None if !call.is_staged => self.oracle.done(host.incarnation, call)?,
                None => {}
            }
        }
        for left in host.outside.take() {
            let bytes = hash::bytes(&left.1, left.0.into());
            self.trace.note(&[host.incarnation, bytes]);
            self.report.delivered += 1;
            self.oracle.leaves(host.incarnation, left)?;
        }
        match &host.instance {
            Some(instance) if instance.tally().parked == 0 => {
                self.oracle.rests(host.incarnation, instance)
            }
            _ => Ok(()),
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Death(number, awaited) => self.dies(number, awaited),
            Event::Noticed(place) => {
                let host = &mut self.hosts[place];
                host.is_routed = host.instance.is_some();
                Ok(())
            }
            Event::Replaced(place) => {
                self.hosts[place] = self.begin();
                *self.report.faults.entry("return").or_default() += 1;
                Ok(())
            }
            Event::StoreGoes => {
                self.away += 1;
                let lost = self.shared.network().lose_requests(None);
                self.line(|| format!("the store goes, with {lost} requests"));
                *self.report.faults.entry("outage").or_default() += 1;
                Ok(())
            }
            Event::StoreReturns => {
                self.away -= 1;
                Ok(())
            }
        }
    }

    /// A host dies, if it has a transaction on its way to the store; else a little later.
    fn dies(&mut self, number: usize, awaited: u32) -> Result<(), Failure> {
        let Death {
            victim,
            noticed,
            replaced,
            is_sent_lost,
            ..
        } = self.plan.deaths[number];
        let now = self.now;
        let host = &mut self.hosts[victim];
        if host.instance.is_none() {
            return Ok(());
        }
        let is_undecided = self.shared.network().has_commit_of(host.incarnation);
        if !is_undecided && awaited < AWAITS {
            let again = Event::Death(number, awaited + 1);
            self.events.push((now + AWAITS_FOR, again));
            return Ok(());
        }
        let incarnation = host.incarnation;
        host.instance = None;
        let mut network = self.shared.network();
        network.forget_host(incarnation);
        if is_sent_lost {
            network.lose_requests(Some(incarnation));
        }
        drop(network);
        self.oracle.dies(incarnation);
        if is_undecided {
            self.count("hosts that died with a transaction under way");
        }
        self.line(|| format!("{victim} dies, as {incarnation}"));
        *self.report.faults.entry("death").or_default() += 1;
        self.events.push((now + noticed, Event::Noticed(victim)));
        let again = now + noticed + replaced;
        self.events.push((again, Event::Replaced(victim)));
        Ok(())
    }

    /// Nothing goes wrong any more, and what was begun comes to its end.
    fn end(&mut self) -> Result<(), Failure> {
        self.shared.network().calm();
        let by = self.now + ENDING;
        loop {
            let parked = |host: &Host<W::Function>| {
                let instance = host.instance.as_ref();
                instance.map_or(0, |instance| instance.tally().parked)
            };
            let parked: usize = self.hosts.iter().map(parked).sum();
            if parked == 0 && self.shared.network().is_quiet() {
                return Ok(());
            }
            if self.now > by {
                return Err(Failure::new(
                    "what was begun comes to its end",
                    format!("{parked} packets are parked {ENDING:?} after the last fault"),
                ));
            }
            self.run_until(self.now + Duration::from_millis(1))?;
        }
    }

    fn judge(mut self) -> Result<Report, Failure> {
        let living = self.hosts.iter().filter_map(|host| {
            let instance = host.instance.as_ref()?;
            Some((host.incarnation, instance))
        });
        self.oracle.judge(living, self.store.state())?;
        let mut late = 0;
        for host in &self.hosts {
            if let Some(instance) = &host.instance {
                self.trace.note(&instance.digests());
                late += instance.tally().late;
            }
        }
        self.trace
            .note(&asterism_state::State::digests(self.store.state()));
        let total = self.shared.network().statistics();
        for (kind, count) in [("loss", total.lost), ("duplication", total.duplicated)] {
            if count > 0 {
                self.report.faults.insert(kind, count);
            }
        }
        for (name, count) in &self.oracle.counts {
            *self.report.branches.entry(name).or_default() += count;
        }
        *self.report.branches.entry("late").or_default() += late;
        self.count(self.plan.name());
        self.report.trace = self.trace.hash();
        self.report.virtual_time = Duration::from_micros(self.now.as_micros());
        Ok(self.report)
    }
}

/// Seconds of the cluster's time base.
fn tick_at(now: Time) -> Tick {
    START_TICK + (now.as_micros() / 1_000_000) as Tick
}
