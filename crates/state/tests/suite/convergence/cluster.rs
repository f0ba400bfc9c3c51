//! Replicas whose operations travel manually: late, interleaved, reordered and repeated, with honest
//! acknowledgements and stability, and snapshots at any moment.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use asterism_state::{Context, Identity, Late, OriginName, Sequencer, State};

use crate::convergence::accumulated::Accumulated;
use crate::convergence::shared::{Chance, Score, Seen, Session, Shared};
use crate::convergence::windowed::Windowed;

/// What one member acknowledged when its own stream was `head` long.
#[derive(Clone, Debug)]
struct Acknowledged {
    head: usize,
    applied: Vec<usize>,
}

pub struct Replica {
    pub context: Rc<Context>,
    pub state: Shared,
    name: OriginName,
    /// Groups written, by sequence number from 1.
    pub log: Vec<Vec<u8>>,
    /// Of each member's stream: everything up to here, and what was applied beyond it.
    prefix: Vec<usize>,
    extras: Vec<BTreeSet<usize>>,
    /// Heard from each member, in order; counted for stability once its head is reached.
    heard: Vec<Vec<Acknowledged>>,
    counted: Vec<Vec<usize>>,
    skew: u32,
    serial: u64,
}

pub struct Cluster {
    pub replicas: Vec<Replica>,
    pub chance: Chance,
    pub clock: u32,
    pub added: u64,
    pub added_keyed: u64,
    pub accumulated: Accumulated,
    pub windowed: Windowed,
    ordered: bool,
}

const CLOCK_START: u32 = 20;
const SKEW_TICKS_MAX: usize = 3;

impl Cluster {
    pub fn new(seed: u64, members: usize, ordered: bool) -> Self {
        let mut chance = Chance(seed);
        let hashes = chance.bits();
        let names: Vec<u16> = (0..members as u16).map(|place| 10 + 7 * place).collect();
        let replicas = (0..members)
            .map(|place| {
                let name = OriginName {
                    member: names[place],
                    incarnation: 1 + chance.bits() % 5,
                };
                let identity = Identity {
                    own: name,
                    members: names.clone(),
                    lane: (0, 1),
                };
                let sequencer = Sequencer::Own(Cell::new(0));
                let context = Rc::new(Context::new(identity, sequencer, hashes, vec![]));
                let skew = chance.below(SKEW_TICKS_MAX + 1) as u32;
                context.set_now(u64::from(CLOCK_START) * 1_000_000, CLOCK_START + skew);
                Replica {
                    state: Shared::new(&context),
                    context,
                    name,
                    log: Vec::new(),
                    prefix: vec![0; members],
                    extras: vec![BTreeSet::new(); members],
                    heard: vec![Vec::new(); members],
                    counted: vec![vec![0; members]; members],
                    skew,
                    serial: 0,
                }
            })
            .collect();
        Self {
            replicas,
            chance,
            clock: CLOCK_START,
            added: 0,
            added_keyed: 0,
            accumulated: Accumulated::default(),
            windowed: Windowed::default(),
            ordered,
        }
    }

    /// One step of chance.
    pub fn step(&mut self) {
        let at = self.chance.below(self.replicas.len());
        match self.chance.below(20) {
            0..=8 => self.packet(at),
            9..=12 => self.deliver(at),
            13 => self.sweep(at),
            14 => {
                self.flush(at);
            }
            15..=16 => self.acknowledge(at),
            17 => self.snapshot(at),
            _ => self.tick(),
        }
    }

    fn tick(&mut self) {
        self.clock += 1;
        for replica in &self.replicas {
            let now_us = u64::from(self.clock) * 1_000_000;
            replica.context.set_now(now_us, self.clock + replica.skew);
        }
    }

    /// A packet's transaction, perhaps with a few writes, perhaps late once on its way.
    fn packet(&mut self, at: usize) {
        let mut chance = Chance(self.chance.bits());
        let late = chance.one_in(3);
        let replica = &mut self.replicas[at];
        replica.serial += 1;
        replica.context.arrive(replica.context.now_us());
        replica.context.begin(replica.serial);
        if late {
            // A first call reserves and is late; another packet comes in between.
            let first = replica.state.ports.grant(0, 5).expect("not prefetching");
            let item = first.map(|grant| grant.item());
            let _ = replica.state.joins.vacancy().expect("not prefetching");
            let (call, _) = replica.context.park();
            replica.context.begin(replica.serial + 1_000_000);
            let other = replica.state.ports.grant(0, 5).expect("not prefetching");
            if let (Some(item), Some(other)) = (item, &other) {
                assert_ne!(item, other.item(), "one item to two packets");
            }
            end(replica);
            replica.context.resume(call);
            if let Some(item) = item {
                let again = replica.state.ports.grant(0, 5).expect("not prefetching");
                assert_eq!(
                    again.map(|grant| grant.item()),
                    Some(item),
                    "a retry gets the grant it had"
                );
            }
        }
        for _ in 0..1 + chance.below(3) {
            self.write(at, &mut chance).expect("nothing is late");
        }
        end(&mut self.replicas[at]);
        self.collect(at);
    }

    fn write(&mut self, at: usize, chance: &mut Chance) -> Result<(), Late> {
        let key = chance.below(9) as u32;
        let value = chance.below(16) as u8;
        let replica = &mut self.replicas[at];
        let what = chance.below(4);
        macro_rules! write {
            ($table:ident, $found:expr, $row:expr, $value:expr) => {{
                let found = $found;
                let vacancy = replica.state.$table.vacancy()?;
                let mut act = replica.state.act();
                match (found, vacancy, what) {
                    (Some(found), _, 0) => act.$table.touch(&found),
                    (Some(found), _, 1) => act.$table.update(&found, $value),
                    (Some(found), _, 2) => act.$table.remove(&found),
                    (_, Some(vacancy), _) => act.$table.insert(vacancy, $row, $value),
                    _ => {}
                }
            }};
        }
        match chance.below(16) {
            0 | 1 => write!(winners, replica.state.winners.get(&key)?, key, Score(value)),
            2 | 3 => write!(
                joins,
                replica.state.joins.get(&key)?,
                key,
                Seen(1 << (value & 7))
            ),
            4 => write!(members, replica.state.members.get(&key)?, key, ()),
            5 => {
                let row = (key as u8 % 4, value % 4);
                let found = match value & 8 {
                    0 => replica.state.pairs.by_left(&row.0)?,
                    _ => replica.state.pairs.by_right(&row.1)?,
                };
                write!(pairs, found, row, ())
            }
            6 | 7 => {
                let row = Session {
                    inside: key as u8 % 3,
                    outside: value % 3,
                    remote: value >> 3,
                };
                let found = match value & 4 {
                    0 => replica.state.sessions.by_left(&row.left_key())?,
                    _ => replica.state.sessions.by_right(&row.right_key())?,
                };
                write!(sessions, found, row, Seen(1 << (value & 7)))
            }
            8 => {
                let mut act = replica.state.act();
                act.latest.set(Score(value));
                act.flags.set(Seen(1 << (value & 7)));
            }
            9 => {
                let tally = replica.state.keyed.find(&key)?;
                let mut act = replica.state.act();
                act.total.add(u64::from(value));
                self.added += u64::from(value);
                if let Some(tally) = tally {
                    act.keyed.add(&tally, u64::from(value));
                    self.added_keyed += u64::from(value);
                }
            }
            10 => self.accumulated.write(&mut replica.state, chance),
            11 | 12 => self
                .windowed
                .write(&replica.context, &mut replica.state, chance)?,
            13 => {
                if let Some(tokens) = replica.state.limits.tokens(&key, value.into())? {
                    replica.state.act().limits.spend(tokens);
                }
            }
            14 => {
                let link = replica.state.talk.link(&(key as u8 % 4), &(value % 3))?;
                if let Some(link) = link {
                    replica.state.act().talk.add(link, u64::from(value));
                }
            }
            _ => self.take_port(at, chance)?,
        }
        Ok(())
    }

    /// Takes a port for a user; nobody may still have a user of it.
    fn take_port(&mut self, at: usize, chance: &mut Chance) -> Result<(), Late> {
        let state = &self.replicas[at].state;
        let Some(vacancy) = state.users.vacancy()? else {
            return Ok(());
        };
        let range = chance.below(2) as u32;
        let Some(grant) = state.ports.grant(range, chance.below(8) as u32)? else {
            return Ok(());
        };
        if chance.one_in(4) {
            return Ok(());
        }
        for (place, other) in self.replicas.iter().enumerate() {
            assert!(
                !other.state.users.contains(&grant.item())?,
                "port {} is granted at {at} while member {place} has a user of it",
                grant.item()
            );
        }
        let mut act = self.replicas[at].state.act();
        let port = act.ports.take(grant);
        act.users.insert(vacancy, port, Score(0));
        Ok(())
    }

    /// Takes what a member wrote into its log.
    fn collect(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let log = &mut replica.log;
        replica.context.take_groups(|sequence, bytes| {
            assert_eq!(sequence as usize, log.len() + 1);
            log.push(bytes.to_vec());
        });
        replica.prefix[at] = replica.log.len();
    }

    fn sweep(&mut self, at: usize) {
        let turns = 1 + self.chance.below(3) as u32;
        let replica = &mut self.replicas[at];
        replica
            .state
            .for_each_object(|object| _ = object.sweep_share(turns));
        end(replica);
        self.collect(at);
    }

    /// Tells some of what a member accumulated; whether that was all.
    fn flush(&mut self, at: usize) -> bool {
        let replica = &mut self.replicas[at];
        let (mut bytes, mut all) = (600, true);
        for object in 0..Shared::OBJECTS.len() as u8 {
            all &= replica
                .state
                .object_mut(object)
                .map(|object| object.flush(&mut bytes))
                == Some(true);
        }
        end(replica);
        self.collect(at);
        all
    }

    /// Some of what others wrote arrives at `at`.
    fn deliver(&mut self, at: usize) {
        let from = self.chance.below(self.replicas.len());
        if from == at {
            return;
        }
        let (prefix, length) = (
            self.replicas[at].prefix[from],
            self.replicas[from].log.len(),
        );
        let mut batch: Vec<usize> = (prefix + 1..=length).take(8).collect();
        if self.ordered {
            batch.truncate(1 + self.chance.below(4));
        } else {
            let chance = &mut self.chance;
            batch.retain(|_| chance.one_in(2));
            let extras = &self.replicas[at].extras[from];
            batch.retain(|sequence| !extras.contains(sequence));
            // Twice, in any order: a duplicate before anything else can happen.
            let again: Vec<usize> = batch.iter().copied().filter(|_| chance.one_in(3)).collect();
            batch.extend(again);
            for place in (1..batch.len()).rev() {
                batch.swap(place, chance.below(place + 1));
            }
        }
        for sequence in batch {
            self.apply(at, from, sequence);
        }
    }

    fn apply(&mut self, at: usize, from: usize, sequence: usize) {
        let group = self.replicas[from].log[sequence - 1].clone();
        let name = self.replicas[from].name;
        let replica = &mut self.replicas[at];
        replica
            .state
            .apply(&replica.context, name, sequence as u64, &group)
            .expect("what a member wrote can be read");
        assert!(!replica.context.wrote(), "applying writes nothing");
        replica.extras[from].insert(sequence);
        replica.absorb(from);
        self.count(at);
    }

    /// A member's acknowledgements reach another one.
    fn acknowledge(&mut self, from: usize) {
        let to = self.chance.below(self.replicas.len());
        let acknowledged = Acknowledged {
            head: self.replicas[from].log.len(),
            applied: self.replicas[from].prefix.clone(),
        };
        self.replicas[to].heard[from].push(acknowledged);
        self.count(to);
    }

    /// Counts acknowledgements whose head is reached, and reports what is stable by them.
    fn count(&mut self, at: usize) {
        let names: Vec<OriginName> = self.replicas.iter().map(|replica| replica.name).collect();
        let replica = &mut self.replicas[at];
        for from in 0..names.len() {
            let applied = replica.prefix[from];
            while let Some(acknowledged) = replica.heard[from].first()
                && (from == at || acknowledged.head <= applied)
            {
                for (counted, &applied) in
                    replica.counted[from].iter_mut().zip(&acknowledged.applied)
                {
                    *counted = (*counted).max(applied);
                }
                replica.heard[from].remove(0);
            }
        }
        for (origin, &name) in names.iter().enumerate() {
            let others = (0..names.len())
                .filter(|&member| member != at)
                .map(|member| replica.counted[member][origin]);
            let stable = others.chain([replica.prefix[origin]]).min().unwrap_or(0);
            if let Some(slot) = replica.context.origin(name) {
                replica.context.set_stable(slot, stable as u64);
            }
        }
    }

    /// A member's whole state is joined into another's, which may then skip what it covers.
    fn snapshot(&mut self, from: usize) {
        let to = self.chance.below(self.replicas.len());
        if from == to {
            return;
        }
        let bytes_max = 256 + self.chance.below(1_000);
        let mut cursor = (0, 0);
        let mut part = Vec::new();
        for parts in 0.. {
            assert!(parts < 2_000, "a snapshot scan must end");
            part.clear();
            let next = self.replicas[from]
                .state
                .snapshot(cursor, bytes_max, &mut part);
            let replica = &mut self.replicas[to];
            replica
                .state
                .apply_snapshot(&replica.context, &part)
                .expect("a snapshot can be read");
            match next {
                Some(next) => {
                    assert!(next > cursor || !part.is_empty(), "the scan stands still");
                    cursor = next;
                }
                None => break,
            }
        }
        if self.ordered && self.chance.one_in(2) {
            let covered = self.replicas[from].prefix.clone();
            let replica = &mut self.replicas[to];
            for (origin, &covered) in covered.iter().enumerate() {
                replica.prefix[origin] = replica.prefix[origin].max(covered);
                replica.absorb(origin);
            }
            self.count(to);
        }
    }

    /// Everything written reaches everybody, and everybody knows that it did.
    pub fn settle(&mut self) {
        let members = self.replicas.len();
        for at in 0..members {
            // Again: the bytes of one flush may not do.
            // The first may have begun before the last change.
            while !self.flush(at) {}
            while !self.flush(at) {}
        }
        for at in 0..members {
            for from in (0..members).filter(|&from| from != at) {
                while self.replicas[at].prefix[from] < self.replicas[from].log.len() {
                    let next = self.replicas[at].prefix[from] + 1;
                    self.apply(at, from, next);
                }
            }
        }
        for from in 0..members {
            for to in 0..members {
                self.replicas[to].heard[from].clear();
                let acknowledged = Acknowledged {
                    head: self.replicas[from].log.len(),
                    applied: self.replicas[from].prefix.clone(),
                };
                self.replicas[to].heard[from].push(acknowledged);
                self.count(to);
            }
        }
    }

    /// Time passes until everything idled out and was forgotten.
    pub fn age(&mut self) {
        for _ in 0..60 {
            self.tick();
            for at in 0..self.replicas.len() {
                self.sweep(at);
                self.sweep(at);
                self.sweep(at);
            }
            self.settle();
        }
    }

    pub fn name(&self, at: usize) -> OriginName {
        self.replicas[at].name
    }
}

impl Session {
    fn left_key(&self) -> (u8, u8) {
        asterism_state::Paired::left(self)
    }
    fn right_key(&self) -> (u8, u8) {
        asterism_state::Paired::right(self)
    }
}

impl Replica {
    fn absorb(&mut self, from: usize) {
        while self.extras[from].remove(&(self.prefix[from] + 1)) {
            self.prefix[from] += 1;
        }
        let prefix = self.prefix[from];
        self.extras[from].retain(|&extra| extra > prefix);
    }
}

fn end(replica: &mut Replica) {
    let state = &replica.state;
    replica.context.end(|object, number| {
        state.give_back(object, number);
    });
    state.settle();
}
