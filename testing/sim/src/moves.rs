//! Objects are changed between local and replicated while packets flow, host after host and back again, over links that lose, double
//! and reorder, and with a host that dies in the middle and comes back.
//!
//! A cluster of its own, whose function has one object of each kind that may be changed. As long as any host wants it, they are
//! shared by all: once all is at rest, all instances are equal, have every entry that a living host kept, whenever that was, and
//! have counted every command once. Once no host wants it, nobody writes anything for others, and each keeps what there was until
//! it idles out. No auditor may find a difference at any moment.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{ChannelEvent, Cluster, Instance, Placed, StateChannel, host};
use asterism_function::{
    Ask, Builder, Counter, Counters, Late, Map, NetworkFunction, PortNumber, Reason, Register, Set,
    Verdict, state,
};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId, Time};
use asterism_state::{BlockAssignment, ObjectSettings, State};

use crate::exercise::{Command, Verb, Winner};
use crate::report::Failure;
use crate::scenario::{Draws, Scenario};
use crate::world::{TURN, host_config};

/// One seed in so many.
const ONE_IN: u64 = 8;
/// Time between two rounds of load.
const STEP: Duration = Duration::from_millis(10);
/// Seconds after which an entry that nobody uses ends.
const IDLE: u32 = 3;
/// In that time all are equal, and all has idled out that idles.
const BOUND: Duration = Duration::from_secs(40);
/// Keys of the table whose entries end: few, so that hosts write the same.
const KEYS: u64 = 24;
/// All objects: each can be changed.
const OBJECTS: u64 = (1 << 6) - 1;

/// One object of each kind that may be changed.
#[state]
pub(crate) struct Objects {
    entries: Map<u16, Winner>,
    kept: Set<u32>,
    commands: Counter,
    tallies: Counters<u16>,
    elected: Register<Winner>,
    raised: Register<Winner>,
}

/// Does what packets say, and notes which it did.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    done: RefCell<Vec<Command>>,
}

impl NetworkFunction for Ledger {
    type State = Objects;

    fn state(&self, builder: &Builder) -> Objects {
        Objects {
            entries: builder.table("entries", 512, &[IDLE, IDLE + 1]),
            kept: builder.table("kept", 200_000, &[]),
            commands: builder.counter("commands"),
            tallies: builder.counters("tallies", 1_024),
            elected: builder.register("elected", Winner(0)),
            raised: builder.register("raised", Winner(0)),
        }
    }

    fn packet(&self, ask: Ask<'_, Objects>) -> Result<Verdict, Late> {
        let flow = ask.packet().flow4();
        let command = flow.and_then(|flow| Command::read(ask.packet().payload(), &flow));
        let Some(command) = command else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let entry = ask.entries.get(&command.key)?;
        let (room, kept) = (ask.entries.vacancy()?, ask.kept.vacancy()?);
        let tally = ask.tallies.find(&command.key)?;
        let (Some(room), Some(kept), Some(tally)) = (room, kept, tally) else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.commands.add(1);
        act.tallies.add(&tally, 1);
        match (command.verb, &entry) {
            (Verb::Note, _) => act.kept.insert(kept, command.token, ()),
            (Verb::Write, Some(entry)) => act.entries.update(entry, Winner(command.token)),
            (Verb::Write, None) => act.entries.insert(room, command.key, Winner(command.token)),
            (Verb::Erase, Some(entry)) => act.entries.remove(entry),
            (Verb::Use, Some(entry)) => act.entries.touch(entry),
            (Verb::Elect, _) => act.elected.set(Winner(command.token)),
            (Verb::Raise, _) => act.raised.set(Winner(command.token)),
            _ => {}
        }
        self.done.borrow_mut().push(command);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

/// Whether this scenario has one.
pub(crate) fn is_due(scenario: &Scenario) -> bool {
    scenario.seed % ONE_IN == 3
}

/// The seeds that have one, in order.
#[cfg(asterism_mutants)]
pub(crate) fn nth_seed(number: u64) -> u64 {
    number * ONE_IN + 3
}

struct Moves {
    cluster: Cluster<Ledger>,
    scenario: Scenario,
    draws: Draws,
    /// Whether the configuration of each host has all objects replicated.
    wanted: Vec<bool>,
    running: Vec<bool>,
    incarnations: Vec<u64>,
    epoch: u32,
    next: u32,
    /// What each running incarnation kept, and how many commands it did.
    kept: Vec<BTreeSet<u32>>,
    done: Vec<u64>,
    /// Commands of those that have ended: the others may know of them.
    done_by_dead: u64,
}

type Host = (MemberId, StateChannel, Vec<Instance<Ledger>>);

/// Changes, and what must hold in them.
///
/// # Errors
/// The first check that did not hold.
pub(crate) fn live_through(scenario: &Scenario) -> Result<(), Failure> {
    let mut draws = Draws::new(scenario.seed, 12);
    let mut scenario = scenario.clone();
    let members = draws.within(2, 4) as usize;
    scenario.sites = None;
    scenario.lanes = (0..members)
        .map(|_| if draws.percent(40) { 2 } else { 1 })
        .collect();
    scenario.delivery = vec![scenario.delivery[0]; members];
    scenario.skew = vec![Duration::ZERO; members];
    scenario.shares_time = true;
    let begins_shared = draws.percent(50);
    let mut moves = Moves::new(scenario, draws, begins_shared);
    moves.pass(Duration::from_millis(500))?;
    let rounds = moves.draws.within(2, 4);
    let dies_in = moves.draws.within(0, rounds);
    let mut shared = begins_shared;
    for round in 0..rounds {
        shared = !shared;
        moves.change_all(shared, round == dies_in)?;
        moves.settle(shared)?;
        if round == dies_in {
            moves.come_back()?;
            moves.settle(shared)?;
        }
    }
    if shared {
        moves.change_all(false, false)?;
        moves.settle(false)?;
    }
    moves.all_idles_out()
}

impl Moves {
    fn new(scenario: Scenario, mut draws: Draws, shared: bool) -> Moves {
        let members = scenario.members();
        let link = LinkConditions {
            loss: draws.within(0, 10) as f64 / 100.0,
            duplication: 0.05,
            reordering: 0.1,
            reordering_delay: Duration::from_millis(4),
            ..LinkConditions::with_delay(draws.micros(100, 4_000))
        };
        let mut network = Network::new(scenario.seed);
        network.set_defaults(link);
        let hosts =
            (0..members).map(|place| build(&scenario, place, place as u64 + 100, shared, false));
        let mut cluster = Cluster::new(hosts.collect(), network);
        cluster.set_turn(TURN);
        Moves {
            cluster,
            draws,
            wanted: vec![shared; members],
            running: vec![true; members],
            incarnations: (0..members as u64).map(|place| place + 100).collect(),
            epoch: 1,
            next: 1,
            kept: vec![BTreeSet::new(); members],
            done: vec![0; members],
            done_by_dead: 0,
            scenario,
        }
    }

    fn running(&self) -> Vec<usize> {
        let places = 0..self.running.len();
        places.filter(|&place| self.running[place]).collect()
    }

    fn instances(&self) -> impl Iterator<Item = (usize, &Instance<Ledger>)> {
        let members = self.cluster.members().iter().enumerate();
        members
            .filter(|(place, _)| self.running[*place])
            .flat_map(|(place, member)| {
                member
                    .instances
                    .iter()
                    .map(move |instance| (place, instance))
            })
    }

    /// Time passes, under load.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.cluster.now() + time;
        while self.cluster.now() < until {
            for place in self.running() {
                for _ in 0..self.draws.within(0, 3) {
                    self.command(place);
                }
            }
            self.go_to((self.cluster.now() + STEP).min(until))?;
        }
        Ok(())
    }

    /// Time passes, and nothing is written.
    fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        self.go_to(self.cluster.now() + time)
    }

    fn go_to(&mut self, until: Time) -> Result<(), Failure> {
        self.cluster.run_until(until);
        for place in 0..self.running.len() {
            let is_running = self.running[place];
            let member = &mut self.cluster.members_mut()[place];
            while let Some(event) = member.channel.poll_event() {
                if let ChannelEvent::Audit(found) = event
                    && !found.equal
                    && is_running
                {
                    return Err(Failure::new(
                        "no auditor finds a difference while objects are changed",
                        format!("m{place}: {found:?}"),
                    ));
                }
            }
            for instance in &member.instances {
                if instance.stopped().is_some() {
                    return Err(Failure::new("no instance stops", format!("m{place}")));
                }
                for command in instance.function().done.borrow_mut().drain(..) {
                    self.done[place] += 1;
                    if command.verb == Verb::Note {
                        self.kept[place].insert(command.token);
                    }
                }
            }
        }
        Ok(())
    }

    fn command(&mut self, place: usize) {
        let verb = self.draws.one_of(&[
            Verb::Note,
            Verb::Write,
            Verb::Write,
            Verb::Erase,
            Verb::Use,
            Verb::Elect,
            Verb::Raise,
        ]);
        let key = self.draws.within(0, KEYS - 1) as u16;
        let token = self.next;
        self.next += 1;
        let lanes = self.cluster.members()[place].instances.len() as u64;
        let lane = self.draws.within(0, lanes - 1) as usize;
        let packet = Command { verb, key, token }.packet();
        self.cluster.inject(place, lane, PortNumber(0), &packet);
    }

    /// All hosts are reloaded one after another; one of them may die meanwhile.
    fn change_all(&mut self, shared: bool, one_dies: bool) -> Result<(), Failure> {
        let mut left = self.running();
        let victim = (one_dies && left.len() > 1).then(|| self.draws.one_of(&left));
        let dies_at = self.draws.within(0, left.len() as u64 - 1) as usize;
        let count = left.len();
        for number in 0..count {
            let chosen = self.draws.within(0, left.len() as u64 - 1) as usize;
            let place = left.remove(chosen);
            if self.running[place] {
                self.want(place, shared);
            }
            let most = self.draws.one_of(&[3, 100, 1_500]);
            let pause = Duration::from_millis(self.draws.within(0, most));
            self.pass(pause)?;
            if self.draws.percent(15) && self.running[place] {
                // Somebody thinks better of it, and again.
                self.want(place, !shared);
                let pause = Duration::from_millis(self.draws.within(0, 200));
                self.pass(pause)?;
                self.want(place, shared);
            }
            if let Some(victim) = victim.filter(|_| number == dies_at) {
                self.die(victim)?;
            }
        }
        // The one who dies was perhaps the only one to share them.
        for place in self.running() {
            self.want(place, shared);
        }
        self.all_converge_meanwhile(shared)
    }

    fn want(&mut self, place: usize, shared: bool) {
        self.wanted[place] = shared;
        let objects = if shared { OBJECTS } else { 0 };
        self.cluster.members_mut()[place]
            .channel
            .set_replicated(objects);
    }

    /// While one host alone has objects replicated, all share them.
    fn all_converge_meanwhile(&mut self, shared: bool) -> Result<(), Failure> {
        let places = self.running();
        if places.len() < 2 || !self.draws.percent(40) {
            return Ok(());
        }
        let alone = self.draws.one_of(&places);
        for &place in &places {
            self.want(place, place == alone);
        }
        self.pass(Duration::from_millis(300))?;
        self.settle(true)?;
        for &place in &places {
            self.want(place, shared);
        }
        Ok(())
    }

    fn die(&mut self, place: usize) -> Result<(), Failure> {
        let pause = Duration::from_millis(self.draws.within(0, 40));
        self.pass(pause)?;
        self.running[place] = false;
        self.cluster.set_paused(place, true);
        self.done_by_dead += core::mem::take(&mut self.done[place]);
        self.kept[place].clear();
        let silent = self.draws.within(10, 600);
        self.pass(Duration::from_millis(silent))?;
        self.hand_out()
    }

    /// The host that died begins again, with a configuration as the others have it, or as it was.
    fn come_back(&mut self) -> Result<(), Failure> {
        let gone = (0..self.running.len()).find(|&place| !self.running[place]);
        let Some(place) = gone else { return Ok(()) };
        self.incarnations[place] += 1_000;
        let now = self.wanted[self.running()[0]];
        let shared = if self.draws.percent(70) { now } else { !now };
        let host = build(
            &self.scenario,
            place,
            self.incarnations[place],
            shared,
            true,
        );
        self.cluster.replace(place, host);
        self.cluster.set_paused(place, false);
        self.wanted[place] = shared;
        self.running[place] = true;
        self.hand_out()?;
        self.pass(Duration::from_millis(400))?;
        self.want(place, now);
        let joined = |moves: &Moves| moves.cluster.members()[place].channel.is_ready();
        self.wait("a newcomer joins", joined)
    }

    /// The next epoch, of all who run, each at another moment.
    fn hand_out(&mut self) -> Result<(), Failure> {
        self.epoch += 1;
        let places = self.running();
        let named = places.iter().map(|&place| {
            let incarnation = Incarnation(self.incarnations[place]);
            (MemberId(place as u16), Some(incarnation))
        });
        let roster = Roster {
            epoch: Epoch(self.epoch),
            members: named.collect(),
            assignment: BlockAssignment::default().to_bytes(),
        };
        for place in places {
            let installed = self.cluster.install(place, &roster);
            installed
                .map_err(|why| Failure::new("rosters are installed", format!("m{place}: {why}")))?;
            let pause = Duration::from_millis(self.draws.within(0, 30));
            self.pass(pause)?;
        }
        Ok(())
    }

    fn wait(&mut self, what: &'static str, is_so: impl Fn(&Moves) -> bool) -> Result<(), Failure> {
        let until = self.cluster.now() + BOUND;
        while !is_so(self) {
            if self.cluster.now() >= until {
                return Err(Failure::new(what, self.standing()));
            }
            self.rest(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// All has an end, and is as it has to be.
    fn settle(&mut self, shared: bool) -> Result<(), Failure> {
        self.pass(Duration::from_millis(200))?;
        let is_over = move |moves: &Moves| {
            moves.running().iter().all(|&place| {
                let channel = &moves.cluster.members()[place].channel;
                channel.shared_objects().is_some_and(|objects| {
                    let wanted = if shared { OBJECTS } else { 0 };
                    objects.shared == wanted && objects.waiting == 0 && objects.is_settled
                })
            })
        };
        self.wait("a change of placements has an end", is_over)?;
        if shared {
            self.wait("all that share objects are equal", |moves| {
                moves.is_quiet() && moves.is_equal()
            })?;
            self.holds_all()
        } else {
            self.wait("all comes to rest", Moves::is_quiet)?;
            self.tells_nobody()
        }
    }

    fn is_quiet(&self) -> bool {
        let places = self.running();
        places
            .iter()
            .all(|&place| self.cluster.members()[place].channel.is_quiet())
    }

    fn is_equal(&self) -> bool {
        let mut all = self
            .instances()
            .map(|(_, instance)| instance.state().digests());
        let first = all.next();
        all.all(|digests| Some(digests) == first)
    }

    /// Nothing that a living host kept is missing anywhere, and everything was counted once.
    fn holds_all(&self) -> Result<(), Failure> {
        let least: u64 = self.done.iter().sum();
        let most = least + self.done_by_dead;
        for (place, instance) in self.instances() {
            let state = instance.state();
            let missing = |token: &&u32| state.kept.value_now(&(**token).into()).is_none();
            if let Some(token) = self.kept.iter().flatten().find(missing) {
                return Err(Failure::new(
                    "what a host kept is everywhere",
                    format!("m{place} lacks {token}"),
                ));
            }
            let counted = state.commands.total();
            let mut tallied = 0;
            state.tallies.for_each(|_, total| tallied += total);
            if counted < least || counted > most || tallied < least || tallied > most {
                return Err(Failure::new(
                    "each command counts once",
                    format!("m{place}: {counted} and {tallied}, not {least} to {most}"),
                ));
            }
        }
        Ok(())
    }

    /// Nobody writes anything for others, whatever packets come.
    fn tells_nobody(&mut self) -> Result<(), Failure> {
        let heads = |moves: &Moves| -> Vec<u64> {
            let members = moves.cluster.members().iter();
            members.map(|member| member.channel.head()).collect()
        };
        let before = heads(self);
        self.pass(Duration::from_millis(300))?;
        let after = heads(self);
        if before != after {
            return Err(Failure::new(
                "what is local is written for nobody",
                format!("{before:?} to {after:?}"),
            ));
        }
        let places = self.running();
        for (place, instance) in self.instances() {
            let own = &self.kept[place];
            let lacks = |token: &&u32| instance.state().kept.value_now(&(**token).into()).is_none();
            let lanes = self.cluster.members()[place].instances.len();
            // Of two instances of a host each has its own.
            if let Some(token) = own.iter().find(lacks).filter(|_| lanes == 1) {
                return Err(Failure::new(
                    "what a host kept stays",
                    format!("m{place} of {places:?} lacks {token}"),
                ));
            }
        }
        Ok(())
    }

    /// All is local: what nobody uses any more ends everywhere, also what others used last.
    fn all_idles_out(&mut self) -> Result<(), Failure> {
        self.wait("what is local idles out at each host", |moves| {
            moves
                .instances()
                .all(|(_, instance)| instance.state().entries.held() == 0)
        })
    }

    fn standing(&self) -> String {
        let places = self.running();
        let each = places.iter().map(|&place| {
            let member = &self.cluster.members()[place];
            let held = member.instances.iter().map(|instance| {
                let state = instance.state();
                let (entries, kept) = (state.entries.len_now(), state.kept.len_now());
                (entries, state.entries.held(), kept, state.digests())
            });
            let held: Vec<_> = held.collect();
            format!("m{place} {:?} {held:?}", member.channel.shared_objects())
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

fn build(scenario: &Scenario, place: usize, incarnation: u64, shared: bool, joins: bool) -> Host {
    let (mut config, _) = host_config(scenario, place, incarnation, 5);
    config.joins = joins;
    config.audited_objects = Objects::OBJECTS.len();
    config.placements = Placed {
        movable: OBJECTS,
        replicated: if shared { OBJECTS } else { 0 },
    };
    let name = config.member;
    let (channel, parts) = host(config, Time::ZERO).expect("a scenario's configuration is good");
    let settings = ObjectSettings {
        movable: true,
        audited: true,
        ..match shared {
            true => ObjectSettings::REPLICATED,
            false => ObjectSettings::LOCAL,
        }
    };
    let instances = parts.into_iter().map(|parts| {
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::new("in")),
            Box::new(MemoryPort::sink("out")),
        ];
        let pool = FramePool::new(64).expect("memory for frames");
        #[allow(
            clippy::arc_with_non_send_sync,
            reason = "instances take an `Arc`; a seed's world stays on one thread"
        )]
        let function = Arc::new(Ledger::default());
        parts.start(function, move |_| settings, pool, ports)
    });
    (name, channel, instances.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_change_and_nothing_is_lost() {
        for number in 0..6 {
            let scenario = Scenario::from_seed(number * ONE_IN + 3);
            let result = live_through(&scenario);
            assert_eq!(result, Ok(()), "seed {}", scenario.seed);
        }
    }
}
