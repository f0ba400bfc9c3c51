//! Incarnations that have ended are forgotten once nothing refers to them, however often a member is restarted.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::audit::{Leaf, LeafSet};
use asterism_state::{
    Builder, Context, Counter, Counters, FORGETS_FROM, Identity, Map, ObjectSettings, OriginName,
    Register, Sequencer, State, TopK, Vector, Window, WindowedCounters, forget_incarnations, state,
};

use super::Word;
use crate::manual::{groups, snapshot};

const IDLE: u32 = 4;
const MEMBERS: [u16; 3] = [0, 1, 2];
const WINDOW: Window = Window {
    bucket_seconds: 2,
    buckets: 2,
};

#[state]
struct All {
    words: Map<u32, Word>,
    kept: Map<u32, Word>,
    sum: Counter,
    sums: Counters<u32>,
    loads: Vector,
    heavy: TopK<u32>,
    recent: WindowedCounters<u32>,
    last: Register<Word>,
}

type Groups = Vec<(u64, Vec<u8>)>;

struct Host {
    context: Rc<Context>,
    state: All,
}

fn name(member: u16, incarnation: u64) -> OriginName {
    OriginName {
        member,
        incarnation,
    }
}

impl Host {
    fn new(member: u16) -> Self {
        let identity = Identity {
            own: name(member, 1),
            members: MEMBERS.to_vec(),
            lane: (0, 1),
        };
        let sequencer = Sequencer::Own(Cell::new(0));
        let context = Rc::new(Context::new(identity, sequencer, 1, vec![]));
        context.set_now(0, 100);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let state = builder.built(All {
            words: builder.table("words", 3_000, &[IDLE]),
            kept: builder.table("kept", 3_000, &[0]),
            sum: builder.counter("sum"),
            sums: builder.counters("sums", 60),
            loads: builder.vector("loads", 3),
            heavy: builder.top_k("heavy", 4),
            recent: builder.windowed_counters("recent", 60, WINDOW),
            last: builder.register("last", Word(0)),
        });
        Self { context, state }
    }

    fn own(&self) -> OriginName {
        self.context.identity().own
    }

    fn put(&mut self, key: u32, stays: bool) {
        self.context.begin(u64::from(key));
        let map = match stays {
            true => &self.state.kept,
            false => &self.state.words,
        };
        if map.get(&key).expect("at once").is_none() {
            let vacancy = map.vacancy().expect("at once").expect("a vacancy");
            let mut act = self.state.act();
            match stays {
                true => act.kept.insert(vacancy, key, Word(key)),
                false => act.words.insert(vacancy, key, Word(key)),
            }
        }
        self.context.end(|_, _| {});
    }

    fn add(&mut self, key: u32) {
        self.context.begin(u64::from(key));
        let key = key % 20;
        let tally = self.state.sums.find(&key).expect("at once");
        let recent = self.state.recent.find(&key).expect("at once");
        let mut act = self.state.act();
        act.sum.add(1);
        act.loads.add(key % 3, 5);
        act.heavy.add(&key, 1);
        if let Some(tally) = tally {
            act.sums.add(&tally, 1);
        }
        if let Some(recent) = recent {
            act.recent.add(&recent, 1);
        }
        act.last.set(Word(key));
        self.context.end(|_, _| {});
    }

    /// Removes an entry, or uses it.
    fn does(&mut self, key: u32, removes: bool) {
        self.context.begin(u64::from(key));
        if let Some(found) = self.state.words.get(&key).expect("at once") {
            let mut words = self.state.act().words;
            match removes {
                true => words.remove(&found),
                false => words.touch(&found),
            }
        }
        self.context.end(|_, _| {});
    }

    fn hear(&mut self, from: OriginName, groups: &Groups) {
        for (sequence, bytes) in groups {
            let applied = self.state.apply(&self.context, from, *sequence, bytes);
            applied.expect("good bytes");
            let origin = self.context.origin(from).expect("a slot");
            self.context.set_applied(origin, *sequence);
        }
    }

    /// All that was written by it up to here is with all others.
    fn stable(&self, from: OriginName, groups: &Groups) {
        if let Some((last, _)) = groups.last() {
            let origin = self.context.origin(from).expect("a slot");
            self.context.set_stable(origin, *last);
        }
    }

    fn close(&self, incarnation: OriginName) {
        let origin = self.context.origin(incarnation).expect("a slot");
        self.context.set_stable(origin, u64::MAX);
        self.context.set_closed(incarnation);
    }

    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep(10_000));
    }

    /// Steps of a cycle; how many were forgotten.
    fn forget(&self, steps: usize) -> usize {
        let step = |_| forget_incarnations(&self.state, &self.context, 64);
        (0..steps).map(step).sum()
    }

    /// A whole cycle, if there is cause for one.
    fn forget_all(&self) -> usize {
        let mut steps = (0..10_000).map(|_| self.forget(1));
        steps.find(|&forgotten| forgotten > 0).unwrap_or(0)
    }

    fn leaves(&self) -> Vec<Leaf> {
        let objects = 0..All::OBJECTS.len() as u8;
        let of = |object| {
            let mut leaves = [Leaf::default(); 256];
            let object = self.state.object(object).expect("an object");
            object.leaves(0, &mut leaves);
            leaves
        };
        objects.flat_map(of).collect()
    }

    /// Who wrote which entry that stays.
    fn writers(&self) -> Vec<(String, OriginName)> {
        let mut writers = Vec::new();
        let each = &mut |shown: &asterism_state::Shown<'_>| {
            let incarnation = shown.provenance.expect("a table's");
            writers.push((format!("{:?}", shown.key), incarnation.origin));
        };
        let object = self.state.object(1).expect("an object");
        object.show(0, 10_000, each);
        writers.sort();
        writers
    }

    fn incarnation_begins_and_ends(&self, incarnation: OriginName) {
        let others = [name(0, 1), name(1, 1)];
        self.context
            .set_living(others.into_iter().chain([incarnation]));
        self.context.origin(incarnation).expect("a slot");
        self.context.set_living(others.into_iter());
        self.close(incarnation);
    }
}

/// The third member is restarted so often; in every incarnation it writes entries of which most idle out or are removed, by it or by others.
/// What it wrote in 1 of 5,000 incarnations stays. The other two have as many slots in use as they have entries that refer to incarnations, and
/// some more until the next cycle.
fn restarts(count: u64) {
    let [mut one, mut two, mut writer] = MEMBERS.map(Host::new);
    let mut most = 0;
    let mut expected = Vec::new();
    for round in 1..=count {
        let incarnation = name(2, round);
        let key = round as u32;
        for host in [&one, &two, &writer] {
            host.context.set_now(round * 1_000_000, 100 + key);
        }
        for host in [&one, &two] {
            host.context
                .set_living([one.own(), two.own(), incarnation].into_iter());
        }
        writer.put(key % 50, false);
        if round % 5_000 == 1 {
            writer.put(key, true);
            expected.push((format!("Single({key})"), incarnation));
        }
        writer.add(key);
        if round % 3 == 0 {
            writer.does((key + 1) % 50, true);
        }
        let written = groups(&mut writer.state, &writer.context);
        one.hear(incarnation, &written);
        two.hear(incarnation, &written);
        // The others use and remove what it wrote.
        match round % 4 {
            0 => one.does(key % 50, true),
            1 => two.does(key % 50, false),
            _ => {}
        }
        for host in [&one, &two] {
            host.context.set_living([one.own(), two.own()].into_iter());
            host.close(incarnation);
        }
        for host in [&mut one, &mut two, &mut writer] {
            host.sweep();
        }
        let by_one = groups(&mut one.state, &one.context);
        let by_two = groups(&mut two.state, &two.context);
        two.hear(name(0, 1), &by_one);
        one.hear(name(1, 1), &by_two);
        writer.hear(name(0, 1), &by_one);
        writer.hear(name(1, 1), &by_two);
        for host in [&one, &two, &writer] {
            host.stable(name(0, 1), &by_one);
            host.stable(name(1, 1), &by_two);
        }
        writer.stable(writer.own(), &written);
        for host in [&one, &two] {
            host.forget(1 + (round % 2) as usize);
            most = most.max(host.context.incarnations());
        }
    }
    // A windowed accumulator remembers its last 1,024 writers, so that a cycle begins at twice as many.
    assert!(
        most < 3 * FORGETS_FROM,
        "{most} incarnations were kept apart at a time"
    );
    assert_eq!(one.state.digests(), two.state.digests());
    assert_eq!(one.leaves(), two.leaves(), "names of writers are in these");
    assert_eq!(one.state.sum.total(), count);
    expected.sort();
    for host in [&one, &two] {
        assert_eq!(host.writers(), expected, "who wrote what stays");
        let sums: Vec<u64> = (0..20).map(|key| host.state.sums.total(&key)).collect();
        assert_eq!(sums.iter().sum::<u64>(), count);
    }
    let snapshot_of_one = snapshot(&one.state, 1_000);
    let mut newcomer = Host::new(2);
    newcomer
        .context
        .set_now(count * 1_000_000, 100 + count as u32);
    for part in &snapshot_of_one {
        let joined = newcomer.state.apply_snapshot(&newcomer.context, part);
        joined.expect("good bytes");
    }
    assert_eq!(newcomer.writers(), expected, "a snapshot names them too");
}

#[test]
fn a_member_is_restarted_without_end() {
    restarts(200_000);
}

/// So many that a cycle has cause to begin.
fn fill(host: &Host, incarnations: core::ops::Range<u64>) {
    for incarnation in incarnations {
        host.incarnation_begins_and_ends(name(2, incarnation));
    }
}

/// A snapshot names the last user of an entry, who is looked up while a cycle that has passed the table runs.
fn a_lookup_during_a_cycle() {
    let [mut one, mut two, mut user] = MEMBERS.map(Host::new);
    let gone = name(2, 7);
    // The writing has the greater number, and stays the last one.
    (5..10).for_each(|key| one.put(key, false));
    let written = groups(&mut one.state, &one.context);
    user.hear(one.own(), &written);
    user.context.set_now(0, 103);
    user.does(9, false);
    let used = groups(&mut user.state, &user.context);
    assert!(!used.is_empty(), "the use is announced");
    one.hear(gone, &used);
    fill(&one, 1..8);
    fill(&two, 1..FORGETS_FROM as u64 + 1);
    // It has passed both tables, and is not at its end.
    two.forget(4);
    for part in snapshot(&one.state, 1_000) {
        let joined = two.state.apply_snapshot(&two.context, &part);
        joined.expect("good bytes");
    }
    assert!(two.forget_all() > 0, "the cycle ends");
    // More than were forgotten: every slot is in use again.
    fill(&two, 5_000..5_000 + 2 * FORGETS_FROM as u64);
    assert_eq!(snapshot(&one.state, 1_000), snapshot(&two.state, 1_000));
}

#[test]
fn what_is_looked_up_during_a_cycle_keeps_its_slot() {
    a_lookup_during_a_cycle();
}

/// What an incarnation wrote that was forgotten does not come back with a snapshot that was long on its way.
#[test]
fn an_old_snapshot_brings_nothing_back_of_who_was_forgotten() {
    let [mut one, mut two, mut writer] = MEMBERS.map(Host::new);
    let gone = name(2, 7);
    writer.put(9, false);
    writer.put(10, true);
    let written = groups(&mut writer.state, &writer.context);
    one.hear(gone, &written);
    two.hear(gone, &written);
    let late = snapshot(&two.state, 1_000);
    one.does(9, true);
    let removed = groups(&mut one.state, &one.context);
    one.stable(one.own(), &removed);
    fill(&one, 1..FORGETS_FROM as u64 + 1);
    one.sweep();
    assert_eq!(one.state.words.held(), 0);
    assert_eq!(
        one.forget_all(),
        FORGETS_FROM - 1,
        "all but who wrote what stays"
    );
    for part in &late {
        let joined = one.state.apply_snapshot(&one.context, part);
        joined.expect("good bytes");
    }
    assert_eq!((one.state.words.held(), one.state.kept.len_now()), (0, 1));
}

/// A repair removes what only another host has, also if the host that it is made from has forgotten who wrote it.
#[test]
fn a_repair_removes_what_the_forgotten_wrote() {
    let [mut one, mut two, mut writer] = MEMBERS.map(Host::new);
    writer.put(9, true);
    let written = groups(&mut writer.state, &writer.context);
    two.hear(name(2, 7), &written);
    for host in [&one, &two] {
        fill(host, 1..FORGETS_FROM as u64 + 1);
        assert!(host.forget_all() > 0);
    }
    assert_eq!(
        (one.context.incarnations(), two.context.incarnations()),
        (1, 2)
    );
    let through = one.context.applied_through();
    assert!(through.len() < 4, "a stream for each member: {through:?}");
    let leaves: LeafSet = (0..=255).collect();
    let object = one.state.object_mut(1).expect("an object");
    object.remove_elsewhere(&leaves, &through);
    let repair = groups(&mut one.state, &one.context);
    two.hear(one.own(), &repair);
    two.sweep();
    assert_eq!(two.state.kept.len_now(), 0);
}

/// One that the epoch names, one whose end is not closed, and those that came after it, keep their slots.
#[test]
fn only_who_is_over_is_forgotten() {
    let [one, ..] = MEMBERS.map(Host::new);
    let count = FORGETS_FROM as u64;
    fill(&one, 10..count);
    let (open, living) = (name(1, 5), name(2, count + 1));
    for (incarnation, incarnations) in [(open, true), (open, false), (living, true)] {
        let named = [Some(one.own()), incarnations.then_some(incarnation)];
        one.context.set_living(named.into_iter().flatten());
        let origin = one.context.origin(incarnation).expect("a slot");
        one.context.set_applied(origin, 3);
    }
    strangers_come(&one, living);
    assert_eq!(one.forget_all() as u64, count - 10);
    let known = one.context.applied_through();
    for incarnation in [open, living] {
        assert!(
            known.contains(&(incarnation, 3)),
            "{incarnation:?} in {known:?}"
        );
    }
}

/// Some that came after one whose end is not closed, which only snapshots name.
fn strangers_come(host: &Host, living: OriginName) {
    for incarnation in 0..10 {
        let stranger = host.context.origin(name(1, 6 + incarnation));
        stranger.expect("a slot");
    }
    host.context.set_living([host.own(), living].into_iter());
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_forgetting_are_found() {
    use asterism_state::mutant::{self, Mutant};

    let planted: [(Mutant, fn()); 2] = [
        (Mutant::SlotReusedWhileNamed, || restarts(6_000)),
        (Mutant::LookupsUnmarked, a_lookup_during_a_cycle),
    ];
    for (planted, test) in planted {
        test();
        mutant::select(Some(planted));
        let found = std::panic::catch_unwind(test);
        mutant::select(None);
        assert!(found.is_err(), "{planted:?} is not found");
    }
}
