//! Objects that begin to be shared while they are used, and are so no longer: all hosts have what each had, once each has written
//! again what it holds.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::audit::{LEAVES, Leaf};
use asterism_state::{
    Absence, Builder, Context, Counter, Counters, Identity, Late, Map, ObjectSettings, OriginName,
    Register, Sequencer, Set, State, Wire, state,
};

use crate::manual::groups;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

#[state]
struct Movable {
    words: Map<u32, Word>,
    known: Set<u32>,
    commands: Counter,
    tallies: Counters<u32>,
    leader: Register<Word>,
}

const OBJECTS: u8 = 5;
const CAPACITY: u32 = 120;
const IDLE: u32 = 8;

struct Host {
    name: OriginName,
    context: Rc<Context>,
    state: Movable,
}

const SETTINGS: ObjectSettings = ObjectSettings {
    movable: true,
    audited: true,
    absence: Absence::Wait { us: 1_000 },
    ..ObjectSettings::LOCAL
};

fn host(member: u16) -> Host {
    host_of(member, 1)
}

fn host_of(member: u16, incarnation: u64) -> Host {
    let name = OriginName {
        member,
        incarnation,
    };
    let identity = Identity {
        own: name,
        members: vec![0, 1, 2],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    let builder = Builder::new(context.clone(), |_| SETTINGS);
    let state = Movable {
        words: builder.table("words", CAPACITY, &[IDLE]),
        known: builder.table("known", CAPACITY, &[]),
        commands: builder.counter("commands"),
        tallies: builder.counters("tallies", CAPACITY),
        leader: builder.register("leader", Word(0)),
    };
    let state = builder.built(state);
    let mut host = Host {
        name,
        context,
        state,
    };
    host.at(1_000);
    host
}

fn hosts() -> [Host; 3] {
    [0, 1, 2].map(host)
}

impl Host {
    fn at(&mut self, tick: u32) {
        let now_us = u64::from(tick) * 1_000_000;
        self.context.set_now(now_us, tick);
        self.context.arrive(now_us);
        self.context.begin(u64::from(tick));
    }

    fn end(&mut self) {
        self.context.end(|_, _| {});
        self.state.settle();
    }

    fn insert(&mut self, key: u32, value: u32) {
        let room = self.state.words.vacancy().expect("at once").expect("room");
        self.state.act().words.insert(room, key, Word(value));
        self.end();
    }

    fn note(&mut self, key: u32) {
        let room = self.state.known.vacancy().expect("at once").expect("room");
        self.state.act().known.insert(room, key, ());
        self.end();
    }

    fn remove(&mut self, key: u32) {
        let at = self.state.words.get(&key).expect("at once").expect("one");
        self.state.act().words.remove(&at);
        self.end();
    }

    fn count(&mut self, key: u32, amount: u64) {
        let tally = self.state.tallies.find(&key).expect("at once");
        let tally = tally.expect("room");
        let mut act = self.state.act();
        act.commands.add(amount);
        act.tallies.add(&tally, amount);
        self.end();
    }

    fn lead(&mut self, value: u32) {
        self.state.act().leader.set(Word(value));
        self.end();
    }

    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
    }

    /// Begins to share all objects, or ceases to; which it shares then.
    fn share(&mut self, shares: bool) -> Vec<bool> {
        let mut shared = Vec::new();
        self.state
            .for_each_object(|object| shared.push(object.share(shares)));
        shared
    }

    /// Writes all that it holds again, in steps between which `meanwhile` runs.
    fn announce(&mut self, mut meanwhile: impl FnMut(&mut Host)) {
        for object in 0..OBJECTS {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let object = self.state.object_mut(object).expect("it is there");
                cursor = object.announce(from, 3);
                self.end();
                meanwhile(self);
            }
        }
    }

    fn value(&self, key: u32) -> Option<u32> {
        self.state.words.value_now(&key.into()).map(|word| word.0)
    }

    /// Whether the digests that are kept are those of what is here.
    fn has_true_digests(&self) -> bool {
        (0..OBJECTS).all(|object| {
            let object = self.state.object(object).expect("it is there");
            let mut leaves = [Leaf::default(); LEAVES];
            let sum = |leaves: &[Leaf]| {
                leaves
                    .iter()
                    .fold(0u64, |sum, leaf| sum.wrapping_add(leaf.digest))
            };
            object.leaves(0, &mut leaves) && sum(&leaves) == object.announced()
        })
    }
}

/// All take what each wrote since the last time, in another order at each, until nobody has anything to say.
fn exchange(hosts: &mut [Host]) -> usize {
    let mut all = Vec::new();
    for host in hosts.iter_mut() {
        let written = groups(&mut host.state, &host.context);
        all.extend(written.into_iter().map(|group| (host.name, group)));
    }
    for (place, host) in hosts.iter_mut().enumerate() {
        let from = (place * 3) % all.len().max(1);
        for (origin, (sequence, bytes)) in all[from..].iter().chain(&all[..from]) {
            if *origin != host.name {
                let applied = host.state.apply(&host.context, *origin, *sequence, bytes);
                applied.expect("it decodes");
            }
        }
    }
    all.len()
}

fn is_equal(hosts: &[Host]) -> bool {
    let first = hosts[0].state.digests();
    hosts.iter().all(|host| host.state.digests() == first)
}

#[test]
fn what_each_host_held_is_everywhere_once_all_have_written_it_again() {
    let mut hosts = hosts();
    for (place, host) in (0..).zip(&mut hosts) {
        host.insert(place, 10 + place);
        host.insert(7, 70 + place);
        host.note(100 + place);
        host.count(place, 5);
        host.count(9, 1);
    }
    hosts[1].lead(4);
    hosts[1].lead(5);
    hosts[2].lead(6);
    assert_eq!(exchange(&mut hosts), 0, "nobody gets what is local");
    for host in &mut hosts {
        assert_eq!(host.share(true), [true; 5]);
        host.announce(|_| {});
    }
    exchange(&mut hosts);
    assert!(is_equal(&hosts));
    for host in &hosts {
        assert_eq!(
            [0, 1, 2].map(|key| host.value(key)),
            [Some(10), Some(11), Some(12)]
        );
        assert!(host.value(7).is_some());
        assert_eq!(host.state.known.len_now(), 3);
        assert_eq!(host.state.commands.total(), 18);
        assert_eq!(host.state.tallies.total(&9), 3);
        assert_eq!(host.state.leader.get(), Ok(Word(5)), "written twice");
        assert!(host.has_true_digests());
        assert!(
            matches!(host.state.words.get(&99), Err(Late { .. })),
            "it may come"
        );
    }
}

#[test]
fn what_ended_here_and_lives_there_is_the_same_everywhere() {
    let mut hosts = hosts();
    for host in &mut hosts {
        host.share(true);
    }
    for key in 0..4 {
        hosts[0].insert(key, key);
    }
    exchange(&mut hosts);
    for host in &mut hosts {
        host.share(false);
    }
    // Removed and forgotten here, removed and not forgotten there, used on elsewhere.
    hosts[1].remove(0);
    hosts[1].sweep();
    hosts[1].remove(1);
    hosts[2].at(1_003);
    let used = hosts[2].state.words.get(&2).expect("at once").expect("one");
    hosts[2].state.act().words.touch(&used);
    hosts[2].end();
    // Ended by itself, and not forgotten.
    hosts[0].at(1_000 + IDLE + IDLE / 4 + 2);
    hosts[0].state.for_each_object(|object| _ = object.sweep(4));
    assert_eq!(
        hosts[0].value(2),
        None,
        "idle at the host that did not use it"
    );
    assert_eq!(exchange(&mut hosts), 0);
    let mut sharing = Vec::new();
    for place in [2, 1, 0] {
        assert!(hosts[place].share(true)[0]);
        sharing.push(place);
        // Who shares already writes all that it has again for the one that begins.
        for &place in &sharing {
            hosts[place].announce(Host::sweep);
        }
        exchange(&mut hosts);
    }
    assert!(is_equal(&hosts));
    assert_eq!(
        hosts[0].value(1),
        None,
        "what is removed and not forgotten is removed everywhere"
    );
    assert!(
        hosts[0].value(2).is_some(),
        "it was used later than it ended elsewhere"
    );
}

#[test]
fn an_end_that_others_do_not_know_is_kept_until_it_is_written_for_them() {
    let mut hosts = hosts();
    for host in &mut hosts {
        host.share(true);
    }
    hosts[0].insert(1, 1);
    exchange(&mut hosts);
    for host in &mut hosts {
        host.share(false);
    }
    hosts[1].remove(1);
    for host in &mut hosts {
        host.share(true);
        host.sweep();
        host.sweep();
    }
    for host in &mut hosts {
        host.announce(|_| {});
    }
    exchange(&mut hosts);
    assert!(is_equal(&hosts));
    assert_eq!([0, 1, 2].map(|place| hosts[place].value(1)), [None; 3]);
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn the_planted_bug_is_found() {
    use asterism_state::mutant::{self, Mutant};

    mutant::select(Some(Mutant::LocalEndForgotten));
    let test = an_end_that_others_do_not_know_is_kept_until_it_is_written_for_them;
    let found = std::panic::catch_unwind(test);
    mutant::select(None);
    assert!(found.is_err());
}

/// Its numbers are higher than those under which the others write it again.
#[test]
fn what_a_host_wrote_that_is_gone_is_the_same_everywhere() {
    let mut hosts = hosts();
    for host in &mut hosts {
        host.share(true);
    }
    for key in 0..30 {
        hosts[0].note(key);
    }
    hosts[0].insert(1, 1);
    hosts[0].insert(2, 2);
    hosts[0].remove(2);
    hosts[0].lead(3);
    exchange(&mut hosts);
    let gone = hosts[0].name;
    hosts[0] = host_of(0, 2);
    for host in &mut hosts {
        host.share(false);
    }
    // Known to all as of the members of now, the one that has begun again included.
    for host in &hosts {
        let gone = host.context.origin(gone).expect("room");
        host.context.set_stable(gone, u64::MAX);
    }
    for host in &mut hosts {
        assert_eq!(host.share(true), [true; 5]);
        host.announce(|_| {});
    }
    exchange(&mut hosts);
    assert!(is_equal(&hosts));
    assert_eq!(hosts[0].state.known.len_now(), 30);
    assert_eq!((hosts[0].value(1), hosts[0].value(2)), (Some(1), None));
    assert_eq!(hosts[0].state.leader.get(), Ok(Word(3)));
    assert!(hosts.iter().all(Host::has_true_digests));
}

#[test]
fn digests_are_true_whatever_changes_while_all_is_written_again() {
    let mut hosts = hosts();
    for key in 0..30 {
        hosts[0].insert(key, key);
        hosts[0].note(key);
    }
    for key in 0..5 {
        hosts[0].remove(key * 6);
    }
    hosts[0].sweep();
    assert!(!hosts[0].has_true_digests(), "none is kept yet");
    assert!(hosts[0].share(true)[0]);
    let mut next = 0;
    hosts[0].announce(|host| {
        next += 1;
        host.insert(100 + next % 9, next);
        if host.value(next).is_some() {
            host.remove(next);
        }
        host.sweep();
    });
    exchange(&mut hosts);
    assert!(hosts[0].has_true_digests());
    for host in &mut hosts[1..] {
        host.share(true);
        host.announce(|_| {});
    }
    exchange(&mut hosts);
    assert!(is_equal(&hosts));
    assert!(hosts.iter().all(Host::has_true_digests));
}

/// What was being written again goes on in the middle, and only what comes next begins at the first entry.
#[test]
fn digests_are_true_of_a_table_that_was_local_for_a_moment_meanwhile() {
    let mut host = host(0);
    for key in 0..30 {
        host.insert(key, key);
    }
    host.share(true);
    let table = host.state.object_mut(0).expect("the words");
    let mut cursor = table.announce(0, 10);
    for shares in [false, true] {
        host.share(shares);
    }
    while let Some(from) = cursor {
        let table = host.state.object_mut(0).expect("the words");
        cursor = table.announce(from, 10);
        host.end();
    }
    host.insert(50, 1);
    host.remove(3);
    assert!(
        !host.has_true_digests(),
        "the first entries are not in them"
    );
    host.announce(|_| {});
    assert!(host.has_true_digests());
}

#[test]
fn a_table_with_more_than_its_share_is_not_shared_before_it_has_shrunk() {
    let mut hosts = hosts();
    let share = CAPACITY / 3;
    for key in 0..=share {
        hosts[0].insert(key, 1);
    }
    for key in 0..share {
        hosts[0].count(key, 1);
    }
    assert_eq!(hosts[0].share(true), [false, true, true, true, true]);
    assert_eq!(hosts[0].state.words.tally().refused_full, 0);
    hosts[0].insert(1_000, 1);
    hosts[0].remove(0);
    hosts[0].remove(1_000);
    assert!(
        !hosts[0].share(true)[0],
        "ended ones count until they are forgotten"
    );
    hosts[0].sweep();
    assert!(hosts[0].share(true)[0]);
    assert!(
        hosts[0].state.words.vacancy().expect("at once").is_none(),
        "it has its share"
    );
    hosts[0].end();
    assert!(!hosts[0].share(false)[0]);
    hosts[0].insert(1_001, 1);
}

#[test]
fn entries_that_others_used_last_end_here_when_they_are_local_again() {
    let mut hosts = hosts();
    for host in &mut hosts {
        host.share(true);
    }
    hosts[0].insert(1, 1);
    exchange(&mut hosts);
    hosts[1].at(1_030);
    hosts[1].sweep();
    assert_eq!(
        hosts[1].value(1),
        Some(1),
        "its last user says when it ends"
    );
    hosts[1].share(false);
    hosts[1].sweep();
    hosts[1].sweep();
    assert_eq!((hosts[1].value(1), hosts[1].state.words.held()), (None, 0));
    assert_eq!(exchange(&mut hosts), 0, "and nobody gets that");
    assert_eq!(hosts[0].value(1), Some(1));
}

#[test]
fn what_is_counted_while_it_is_local_counts_once() {
    let mut hosts = hosts();
    for host in &mut hosts {
        host.share(true);
        host.count(3, 7);
    }
    exchange(&mut hosts);
    for host in &mut hosts {
        host.share(false);
        host.count(3, 2);
    }
    assert_eq!(exchange(&mut hosts), 0);
    assert_eq!(hosts[0].state.commands.total(), 23, "its own");
    hosts[0].share(true);
    exchange(&mut hosts);
    assert_eq!(hosts[1].state.commands.total(), 25, "who shares is heard");
    for host in &mut hosts {
        host.share(true);
    }
    exchange(&mut hosts);
    for host in &hosts {
        assert_eq!(host.state.commands.total(), 27);
        assert_eq!(host.state.tallies.total(&3), 27);
        assert!(host.has_true_digests());
    }
    assert!(is_equal(&hosts));
}
