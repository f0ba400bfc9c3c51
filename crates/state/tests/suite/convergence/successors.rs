//! Hosts that die and are restarted go on with the totals of the incarnation before: nothing that a participant knew is lost or counted
//! twice, replicas do not collect writers, and they are equal even where the new incarnation began too soon.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, CountMin, Counter, Counters, CountingBloom, Identity, ObjectSettings,
    OriginName, Sequencer, State, TopK, Vector, state,
};

use crate::convergence::audited;
use crate::convergence::shared::Chance;

#[state]
pub struct Sums {
    commands: Counter,
    tallies: Counters<u32>,
    loads: Vector,
    places: Vector,
    volumes: CountMin<u32>,
    present: CountingBloom<u32>,
    heavy: TopK<u32>,
}

const MEMBERS: usize = 3;

/// A group on its way: the recipient and the sender, each with its incarnation.
#[derive(Clone)]
struct Message {
    to: OriginName,
    from: OriginName,
    group: Group,
}

#[derive(Clone)]
struct Group {
    sequence: u64,
    bytes: Vec<u8>,
    /// Commands that its writer had added, if it tells them.
    commands: u64,
}

/// One incarnation of one host.
struct Host {
    context: Rc<Context>,
    state: Sums,
    name: OriginName,
    serial: u64,
    /// Commands that it added.
    added: u64,
    /// Commands of each member's present incarnation that were reported and are here.
    has: [u64; MEMBERS],
}

impl Host {
    fn new(member: u16, incarnation: u64) -> Self {
        let name = OriginName {
            member,
            incarnation,
        };
        let identity = Identity {
            own: name,
            members: (0..MEMBERS as u16).collect(),
            lane: (0, 1),
        };
        let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
        let context = Rc::new(context);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let state = builder.built(Sums {
            commands: builder.counter("commands"),
            tallies: builder.counters("tallies", 3_000),
            loads: builder.vector("loads", 3),
            places: builder.vector("places", 1_500),
            volumes: builder.count_min("volumes", 0.5, 0.5),
            present: builder.counting_bloom("present", 8, 0.1),
            heavy: builder.top_k("heavy", 4),
        });
        Self {
            context,
            state,
            name,
            serial: 0,
            added: 0,
            has: [0; MEMBERS],
        }
    }

    fn add(&mut self, chance: &mut Chance) {
        self.serial += 1;
        self.context.begin(self.serial);
        let key = chance.below(9) as u32;
        let amount = 1 + chance.below(50) as u64;
        let tally = self.state.tallies.find(&key).expect("never late");
        let mut act = self.state.act();
        act.commands.add(1);
        self.added += 1;
        // Not every place of every incarnation.
        if chance.one_in(2) {
            act.loads.add(key % 3, amount as i64 - 25);
            act.heavy.add(&key, amount);
        }
        if chance.one_in(3) {
            act.volumes.add(&key, amount);
            act.present.add(&key);
            if let Some(tally) = tally {
                act.tallies.add(&tally, amount);
            }
        }
        self.context.end(|_, _| {});
    }

    /// What it tells now.
    fn tell(&mut self) -> Vec<Group> {
        let mut bytes = usize::MAX;
        self.state
            .for_each_object(|object| _ = object.flush(&mut bytes));
        self.context.end(|_, _| {});
        let reported = &mut self.has[usize::from(self.name.member)];
        let more = core::mem::replace(reported, self.added) < self.added;
        let mut groups: Vec<Group> = Vec::new();
        self.context.take_groups(|sequence, bytes| {
            groups.push(Group {
                sequence,
                bytes: bytes.to_vec(),
                // They are the first object.
                commands: if more && groups.is_empty() {
                    self.added
                } else {
                    0
                },
            });
        });
        groups
    }

    fn hear(&mut self, Message { from, group, .. }: &Message) {
        let applied = self
            .state
            .apply(&self.context, *from, group.sequence, &group.bytes);
        applied.expect("what a host wrote decodes");
        let has = &mut self.has[usize::from(from.member)];
        *has = (*has).max(group.commands);
    }

    fn snapshot(&self) -> Vec<Vec<u8>> {
        let (mut parts, mut cursor) = (vec![Vec::new()], (0, 0));
        while let Some(next) = self
            .state
            .snapshot(cursor, 300, parts.last_mut().expect("one part"))
        {
            cursor = next;
            parts.push(Vec::new());
        }
        parts
    }

    /// Joins a snapshot, in any order, as far as somebody who dies has sent it.
    fn join(&mut self, mut parts: Vec<Vec<u8>>, chance: &mut Chance, whole: bool) {
        let sent = if whole {
            parts.len()
        } else {
            chance.below(parts.len() + 1)
        };
        for _ in 0..sent {
            let part = parts.swap_remove(chance.below(parts.len()));
            let applied = self.state.apply_snapshot(&self.context, &part);
            applied.expect("a snapshot decodes");
        }
    }

    fn joined(&mut self) {
        self.state.for_each_object(|object| object.joined());
    }
}

struct World {
    hosts: Vec<Host>,
    under_way: Vec<Message>,
    chance: Chance,
    /// Commands of ended incarnations that some participant knew of.
    survived: u64,
    /// Participants may still hold something when the next incarnation begins, which no placement lets happen.
    too_soon: bool,
    /// Who holds what the others lack of an ended incarnation, and has not reported them yet.
    owes: Option<usize>,
}

impl World {
    fn send(&mut self, from: usize) {
        for group in self.hosts[from].tell() {
            for to in (0..MEMBERS).filter(|&to| to != from) {
                self.under_way.push(Message {
                    to: self.hosts[to].name,
                    from: self.hosts[from].name,
                    group: group.clone(),
                });
            }
        }
    }

    /// A message arrives, unless one of both incarnations has ended.
    fn arrive(&mut self, at: usize) {
        let message = if self.chance.one_in(6) {
            self.under_way[at].clone()
        } else {
            self.under_way.swap_remove(at)
        };
        let is_current = |name: OriginName| self.hosts[usize::from(name.member)].name == name;
        if is_current(message.from) && is_current(message.to) {
            self.hosts[usize::from(message.to.member)].hear(&message);
        }
    }

    fn serve(&mut self, from: usize, to: usize) {
        let parts = self.hosts[from].snapshot();
        self.hosts[to].join(parts, &mut self.chance, true);
        let has = self.hosts[from].has;
        for place in (0..MEMBERS).filter(|&place| place != to) {
            let known = &mut self.hosts[to].has[place];
            *known = (*known).max(has[place]);
        }
    }

    /// What one participant alone had of an ended incarnation comes to the others.
    fn settle_debt(&mut self) {
        if let Some(from) = self.owes.take() {
            for to in (0..MEMBERS).filter(|&to| to != from) {
                self.serve(from, to);
            }
        }
    }

    /// A host dies and is restarted once its participants have the same of it, or too soon.
    fn restart(&mut self, who: usize) {
        self.settle_debt();
        let (one, other) = ((who + 1) % MEMBERS, (who + 2) % MEMBERS);
        self.survived += self.hosts[one].has[who].max(self.hosts[other].has[who]);
        let OriginName {
            member,
            incarnation,
        } = self.hosts[who].name;
        let next = incarnation + 1 + self.chance.below(3) as u64;
        self.hosts[who] = Host::new(member, next);
        for participant in [one, other] {
            self.hosts[participant].has[who] = 0;
        }
        let (sponsor, late) = if self.chance.one_in(2) {
            (one, other)
        } else {
            (other, one)
        };
        self.serve(sponsor, late);
        if self.too_soon && self.chance.one_in(2) {
            self.owes = Some(late);
        } else {
            self.serve(late, sponsor);
        }
        // It has all that the others wrote before they send to the new incarnation as well.
        for at in (0..self.under_way.len()).rev() {
            if self.under_way[at].to == self.hosts[sponsor].name {
                self.arrive(at);
            }
        }
        // A sponsor that dies leaves half a snapshot behind; here the other participant's, which has what it has.
        if self.chance.one_in(3) {
            let parts = self.hosts[late].snapshot();
            self.hosts[who].join(parts, &mut self.chance, false);
        }
        self.serve(sponsor, who);
        self.hosts[who].joined();
    }

    fn step(&mut self) {
        let who = self.chance.below(MEMBERS);
        match self.chance.below(24) {
            0..=10 => {
                let mut chance = Chance(self.chance.bits());
                self.hosts[who].add(&mut chance);
            }
            11..=14 => self.send(who),
            15 => self.serve(who, (who + 1) % MEMBERS),
            16 => self.restart(who),
            17 => self.settle_debt(),
            _ if self.under_way.is_empty() => {}
            _ => {
                let at = self.chance.below(self.under_way.len());
                self.arrive(at);
            }
        }
    }

    /// All is reported and delivered.
    fn settle(&mut self) {
        self.settle_debt();
        for who in 0..MEMBERS {
            self.send(who);
        }
        while !self.under_way.is_empty() {
            let at = self.chance.below(self.under_way.len());
            self.arrive(at);
        }
    }

    fn check(&self) {
        let added = self.hosts.iter().map(|host| host.added).sum::<u64>();
        let first = &self.hosts[0].state;
        for host in &self.hosts {
            let state = &host.state;
            if !self.too_soon {
                assert_eq!(state.commands.total(), self.survived + added, "commands");
            }
            assert_eq!(state.heavy.total(), first.heavy.total(), "heavy");
            for (object, name) in Sums::OBJECTS.iter().enumerate() {
                let object = object as u8;
                assert_eq!(state.digest(object), first.digest(object), "{name}");
                audited(name, (state, first), object);
            }
            // A place of a table of three hosts' totals has three at most.
            let writers = host.snapshot().concat().len();
            assert!(writers < 6_000, "a snapshot of {writers} bytes");
        }
    }
}

/// Runs hosts that are restarted from a seed; panics where they differ.
pub fn run(seed: u64) {
    let mut chance = Chance(seed ^ 0x5CC0_FF1E);
    let steps = 60 + chance.below(400);
    let too_soon = chance.one_in(3);
    let mut world = World {
        hosts: (0..MEMBERS as u16)
            .map(|member| Host::new(member, 1))
            .collect(),
        under_way: Vec::new(),
        chance,
        survived: 0,
        too_soon,
        owes: None,
    };
    for host in &mut world.hosts {
        host.joined();
    }
    for _ in 0..3 {
        for _ in 0..steps {
            world.step();
        }
        world.settle();
        world.check();
    }
}

#[test]
fn who_is_started_again_goes_on_with_its_totals() {
    for seed in 0..300 {
        run(seed);
    }
}

/// Two hosts, restarted in turn without end; each incarnation adds where none did before, and the names of those before are forgotten.
pub fn restarts_without_end() {
    const RESTARTS: u64 = 300;
    let mut chance = Chance(7);
    let mut hosts = [Host::new(0, 1), Host::new(1, 1)];
    hosts.iter_mut().for_each(Host::joined);
    for restart in 0..RESTARTS {
        let who = restart as usize % 2;
        let (member, incarnation) = (who as u16, restart / 2 + 2);
        let parts = hosts[1 - who].snapshot();
        hosts[who] = Host::new(member, incarnation);
        hosts[who].join(parts, &mut chance, true);
        hosts[who].joined();
        let key = restart as u32;
        let tally = hosts[who].state.tallies.find(&key).expect("never late");
        let tally = tally.expect("there is room");
        let mut act = hosts[who].state.act();
        act.tallies.add(&tally, 1);
        act.places.add(key, 1);
        let (from, to) = (hosts[who].name, hosts[1 - who].name);
        for group in hosts[who].tell() {
            hosts[1 - who].hear(&Message { to, from, group });
        }
    }
    for host in &hosts {
        assert!(
            host.context.incarnations() < 32,
            "{}",
            host.context.incarnations()
        );
        for key in [0, 1, 2, 150, RESTARTS as u32 - 1] {
            assert_eq!(host.state.tallies.total(&key), 1);
            assert_eq!(host.state.places.get(key).expect("never late"), 1);
        }
    }
    for (object, name) in Sums::OBJECTS.iter().enumerate() {
        let [one, other] = [&hosts[0].state, &hosts[1].state];
        assert_eq!(
            one.digest(object as u8),
            other.digest(object as u8),
            "{name}"
        );
        audited(name, (one, other), object as u8);
    }
}

#[test]
fn hosts_are_started_again_without_end() {
    restarts_without_end();
}
