//! Digests of accumulators follow from the groups that an instance has, whatever their order, copies and snapshots: two instances
//! that have the same are equal, or say that they are not sure.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use asterism_state::audit::{LEAVES, Leaf, LeafSet, UNSURE};
use asterism_state::{
    Bloom, Builder, Context, CountMin, Counter, Counters, CountingBloom, Graph, Identity,
    ObjectSettings, OriginName, Sequencer, Spending, State, TokenBucket, TokenRate, TopK, Vector,
    Window, WindowedCountMin, WindowedCounters, hash, state,
};

use crate::manual::{groups, snapshot};

#[state]
struct Sums {
    commands: Counter,
    tallies: Counters<u32>,
    loads: Vector,
    volumes: CountMin<u32>,
    present: CountingBloom<u32>,
    seen: Bloom<u32>,
    heavy: TopK<u32>,
    recent: WindowedCounters<u32>,
    recent_volumes: WindowedCountMin<u32>,
    policed: TokenBucket<u32>,
    talk: Graph<u32>,
}

const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 4,
};
const RATE: TokenRate = TokenRate {
    tokens_per_second: 1_000,
    burst_tokens: 8_000,
};

struct Member {
    context: Rc<Context>,
    state: Sums,
    name: OriginName,
    /// Whose groups it has.
    has: BTreeSet<(u16, u64)>,
    serial: u64,
    /// What it wrote at once and has not sent: edges that begin or are used. Sums wait for a flush.
    unsent: Vec<(u64, Vec<u8>)>,
}

fn member(place: u16) -> Member {
    let name = OriginName {
        member: place,
        incarnation: 1,
    };
    let identity = Identity {
        own: name,
        members: vec![0, 1, 2],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let state = Sums {
        commands: builder.counter("commands"),
        tallies: builder.counters("tallies", 256),
        loads: builder.vector("loads", 9),
        volumes: builder.count_min("volumes", 0.1, 0.1),
        present: builder.counting_bloom("present", 32, 0.1),
        seen: builder.bloom("seen", 200, 0.1),
        heavy: builder.top_k("heavy", 4),
        recent: builder.windowed_counters("recent", 256, WINDOW),
        recent_volumes: builder.windowed_count_min("recent_volumes", (0.2, 0.2), WINDOW),
        policed: builder.token_bucket("policed", 256, RATE, Spending::Approximate),
        talk: builder.graph("talk", 2_048, 8),
    };
    Member {
        context,
        state,
        name,
        has: BTreeSet::new(),
        serial: 0,
        unsent: Vec::new(),
    }
}

impl Member {
    fn at(&mut self, tick: u32) {
        self.context.set_now(u64::from(tick) * 1_000_000, tick);
        self.context.arrive(u64::from(tick) * 1_000_000);
    }

    /// Adds something to each object.
    fn add(&mut self, key: u32, amount: u64) {
        self.serial += 1;
        self.context.begin(self.serial);
        let tally = self.state.tallies.find(&key).expect("never late");
        let recent = self.state.recent.find(&key).expect("never late");
        let tokens = self.state.policed.tokens(&key, amount % 50);
        let tokens = tokens.expect("never late");
        let link = self.state.talk.link(&key, &(key + amount as u32 % 3));
        let link = link.expect("never late");
        let mut act = self.state.act();
        act.commands.add(1);
        act.loads.add(key % 9, amount as i64 - 40);
        act.volumes.add(&key, amount);
        act.present.add(&key);
        act.seen.add(&key);
        act.heavy.add(&key, amount);
        act.recent_volumes.add(&key, amount);
        if let Some(tally) = tally {
            act.tallies.add(&tally, amount);
        }
        if let Some(recent) = recent {
            act.recent.add(&recent, amount);
        }
        if let Some(tokens) = tokens {
            act.policed.spend(tokens);
        }
        // Most instances would seldom have the same, if each call wrote a group.
        if let Some(link) = link.filter(|_| amount.is_multiple_of(5)) {
            act.talk.add(link, amount);
        }
        self.context.end(|_, _| {});
        self.note_groups();
    }

    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
        self.context.end(|_, _| {});
        self.note_groups();
    }

    fn note_groups(&mut self) {
        let (unsent, has) = (&mut self.unsent, &mut self.has);
        let own = self.name.member;
        self.context.take_groups(|sequence, group| {
            has.insert((own, sequence));
            unsent.push((sequence, group.to_vec()));
        });
    }

    /// What it wrote, flushed.
    fn written(&mut self) -> Vec<(u64, Vec<u8>)> {
        let flushed = groups(&mut self.state, &self.context);
        let own = self.name.member;
        self.has.extend(flushed.iter().map(|group| (own, group.0)));
        self.unsent.extend(flushed);
        core::mem::take(&mut self.unsent)
    }

    fn apply(&mut self, of: OriginName, sequence: u64, group: &[u8]) {
        let applied = self.state.apply(&self.context, of, sequence, group);
        applied.expect("what a member wrote decodes");
        self.has.insert((of.member, sequence));
    }

    fn leaves(&self, object: usize) -> [Leaf; LEAVES] {
        let mut leaves = [Leaf::default(); LEAVES];
        let object = self.state.object(object as u8).expect("an object");
        assert!(object.leaves(0, &mut leaves));
        leaves
    }
}

/// Asserts that no leaf says what is not so; how many of all leaves are sure.
fn assert_equal(left: &Member, right: &Member) -> (usize, usize) {
    let (mut sure, mut all) = (0, 0);
    for (object, name) in Sums::OBJECTS.iter().enumerate() {
        let pairs = left.leaves(object).into_iter().zip(right.leaves(object));
        for (leaf, (left, right)) in pairs.enumerate() {
            all += 1;
            if left.digest != UNSURE && right.digest != UNSURE {
                sure += 1;
                assert_eq!(left.digest, right.digest, "{name}, leaf {leaf}");
            }
        }
    }
    (sure, all)
}

/// What is kept is what a look at all cells gives.
fn assert_kept(member: &Member) {
    for (object, name) in Sums::OBJECTS.iter().enumerate() {
        let leaves = member.leaves(object);
        if leaves.iter().all(|leaf| leaf.digest != UNSURE) {
            let sum = leaves
                .iter()
                .fold(0u64, |sum, leaf| sum.wrapping_add(leaf.digest));
            let seen = member
                .state
                .object(object as u8)
                .map(|object| object.announced());
            assert_eq!(seen, Some(sum), "{name}");
        }
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = hash::word(self.0, 0x5EED);
        self.0 % most
    }
}

#[test]
fn equal_groups_give_equal_digests_whatever_their_order() {
    let (mut compared, mut sure, mut all) = (0, 0, 0);
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let mut members: Vec<Member> = (0..3).map(member).collect();
        // What is on its way: recipient, writer, number, bytes.
        let mut under_way: Vec<(usize, OriginName, u64, Vec<u8>)> = Vec::new();
        let mut tick = 1_000;
        for step in 0..400 {
            // The windows roll over several times; clocks differ by a second.
            tick += u32::from(chance.below(8) == 0);
            for (place, member) in members.iter_mut().enumerate() {
                member.at(tick + (place == 1) as u32);
            }
            let who = chance.below(3) as usize;
            match chance.below(10) {
                0..=4 => {
                    let key = tick / 8 * 4 + chance.below(6) as u32;
                    members[who].add(key, chance.below(100));
                }
                5 | 6 => {
                    // What a sweep tells has a number at once.
                    if chance.below(2) == 0 {
                        members[who].sweep();
                    }
                    let (name, written) = (members[who].name, members[who].written());
                    for (sequence, group) in written {
                        for to in (0..3).filter(|&to| to != who) {
                            under_way.push((to, name, sequence, group.clone()));
                        }
                    }
                }
                7 if step % 5 == 0 => {
                    let to = (who + 1) % 3;
                    let (parts, has) =
                        (snapshot(&members[who].state, 700), members[who].has.clone());
                    let lagging = &mut members[to];
                    for part in parts {
                        let applied = lagging.state.apply_snapshot(&lagging.context, &part);
                        applied.expect("a snapshot decodes");
                    }
                    lagging.has.extend(has);
                }
                _ => {}
            }
            for _ in 0..chance.below(4) {
                if under_way.is_empty() {
                    break;
                }
                let at = chance.below(under_way.len() as u64) as usize;
                let copy = chance.below(6) == 0;
                let (to, of, sequence, group) = if copy {
                    under_way[at].clone()
                } else {
                    under_way.swap_remove(at)
                };
                members[to].apply(of, sequence, &group);
            }
            for (left, right) in [(0, 1), (1, 2), (0, 2)] {
                if members[left].has == members[right].has {
                    compared += 1;
                    assert_equal(&members[left], &members[right]);
                }
            }
        }
        // All is reported and delivered, and nobody adds any more.
        for member in &mut members {
            member.at(tick);
            member.sweep();
        }
        for (from, member) in members.iter_mut().enumerate() {
            let (name, written) = (member.name, member.written());
            for (sequence, group) in written {
                for to in (0..3).filter(|&to| to != from) {
                    under_way.push((to, name, sequence, group.clone()));
                }
            }
        }
        for (to, of, sequence, group) in under_way {
            members[to].apply(of, sequence, &group);
        }
        for (left, right) in [(0, 1), (1, 2)] {
            assert_eq!(members[left].has, members[right].has);
            let (more, of) = assert_equal(&members[left], &members[right]);
            (sure, all) = (sure + more, all + of);
        }
        members.iter().for_each(assert_kept);
    }
    assert!(compared > 800, "{compared}");
    assert!(sure * 100 > all * 95, "{sure} of {all}");
}

#[test]
fn a_cell_that_differs_is_in_the_digest_until_its_writer_tells_it_again() {
    let (mut a, mut b) = (member(0), member(1));
    a.at(1_000);
    b.at(1_000);
    for key in 0..20 {
        a.add(key, 10);
    }
    for (sequence, group) in a.written() {
        b.apply(a.name, sequence, &group);
    }
    let (sure, all) = assert_equal(&a, &b);
    assert_eq!(sure, all);
    // What was added and not reported is in nobody's digest.
    a.add(3, 10);
    assert_equal(&a, &b);
    let reported = a.written();

    // B took another total for that of A, under a number that A has not come to.
    let other = member(0);
    let mut other = Member {
        name: a.name,
        ..other
    };
    other.at(1_000);
    other.add(3, 25);
    for (_, group) in other.written() {
        let applied = b.state.apply(&b.context, a.name, 2, &group);
        applied.expect("it decodes");
    }
    let differing = |a: &Member, b: &Member| {
        let objects = 0..Sums::OBJECTS.len();
        let differs = |&object: &usize| {
            a.leaves(object)
                .iter()
                .zip(&b.leaves(object))
                .any(|(a, b)| a.digest != b.digest)
        };
        objects
            .filter(differs)
            .map(|object| Sums::OBJECTS[object])
            .collect::<Vec<_>>()
    };
    assert!(differing(&a, &b).len() >= 5, "{:?}", differing(&a, &b));

    for (sequence, group) in reported {
        b.apply(a.name, sequence, &group);
    }
    // A tells everything again: newer groups replace what sums hold, and raise what only grows.
    for (number, name) in (0u8..).zip(Sums::OBJECTS) {
        let object = a.state.object_mut(number).expect("an object");
        let (next, written) = object.write_again(&LeafSet::ALL, 0, u32::MAX);
        assert!(next.is_none() && written > 0, "{name}");
    }
    let mut bytes = usize::MAX;
    a.state
        .for_each_object(|object| _ = object.flush(&mut bytes));
    for (sequence, group) in a.written() {
        b.apply(a.name, sequence, &group);
    }
    assert_eq!(
        differing(&a, &b),
        ["recent", "policed"],
        "greater totals stay"
    );
}

/// A counter is one part: who asks for others, before it was reported again, takes nothing back.
#[test]
fn a_counter_that_is_to_be_reported_again_is_reported_whatever_else_is_asked_for() {
    let mut a = member(0);
    a.at(1_000);
    a.add(3, 1);
    assert!(!a.written().is_empty());
    let other: LeafSet = [7].into_iter().collect();
    let mut reported = Vec::new();
    for leaves in [LeafSet::ALL, other] {
        let object = a.state.object_mut(0).expect("an object");
        reported.push(object.write_again(&leaves, 0, 1));
    }
    assert_eq!(reported, [(None, 1), (None, 0)]);
    assert_eq!(a.written().len(), 1, "the total, again");
    assert!(a.written().is_empty(), "and once");
}
