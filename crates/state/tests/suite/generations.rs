//! What generations, uses of one second and writers of earlier incarnations do at their edges: as the pages of tables and counters say.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Counter, Identity, Map, ObjectSettings, OriginName, Origins, Sequencer,
    Since, State, Wire, state,
};

use crate::manual::{groups, snapshot};

/// Bits that add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Bits {
    #[join(or)]
    bits: u32,
}

/// One wins, the greater of those that did not know of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, asterism_state::Value)]
#[value(order)]
struct Word(u32);

#[state]
struct Edges {
    bits: Map<u32, Bits>,
    words: Map<u32, Word>,
    sum: Counter,
}

struct Host {
    context: Rc<Context>,
    state: Edges,
    /// Rows that ended here.
    ended: Rc<Cell<u32>>,
}

const IDLE: u32 = 8;

fn name(member: u16, incarnation: u64) -> OriginName {
    OriginName {
        member,
        incarnation,
    }
}

fn host(own: OriginName, lane: (u16, u16)) -> Host {
    let identity = Identity {
        own,
        members: vec![0, 1],
        lane,
    };
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(identity, sequencer, 1, vec![]));
    context.set_now(0, 100);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let ended = Rc::new(Cell::new(0));
    let mut bits = builder.table("bits", 64, &[IDLE]);
    let count = ended.clone();
    bits.on_turn(move |_, is_live| count.set(count.get() + u32::from(!is_live)));
    let state = Edges {
        bits,
        words: builder.table("words", 64, &[0]),
        sum: builder.counter("sum"),
    };
    Host {
        context,
        state,
        ended,
    }
}

impl Host {
    /// Begins an entry with some bits, or adds them to it.
    fn set(&mut self, key: u32, bits: u32) {
        self.context.begin(key.into());
        let vacancy = self.state.bits.vacancy().expect("at once").expect("room");
        let known = self.state.bits.get(&key).expect("at once");
        let mut act = self.state.act().bits;
        match known {
            Some(at) => act.update(&at, Bits { bits }),
            None => act.insert(vacancy, key, Bits { bits }),
        }
        self.context.end(|_, _| {});
    }

    fn bits(&self, key: u32) -> Option<u32> {
        let found = self.state.bits.get(&key).expect("at once");
        found.map(|at| at.value.bits)
    }

    fn word(&self, key: u32) -> Option<u32> {
        let found = self.state.words.get(&key).expect("at once");
        found.map(|at| at.value.0)
    }

    fn written(&mut self) -> Vec<(u64, Vec<u8>)> {
        groups(&mut self.state, &self.context)
    }

    fn hear(&mut self, from: OriginName, written: &[(u64, Vec<u8>)]) {
        for (sequence, bytes) in written {
            self.state
                .apply(&self.context, from, *sequence, bytes)
                .expect("good bytes");
        }
    }

    fn sweep(&mut self, seconds: u32) {
        self.context.set_now(0, 100 + seconds);
        self.state.object_mut(0).expect("an object").sweep_share(1);
        self.context.end(|_, _| {});
    }
}

/// Values that join add up within a generation. Where one host has forgotten an entry and another has not, rows that both begin
/// within the lag begin in two, and of the lower one nothing is kept, but counted.
#[test]
fn values_add_up_within_a_generation() {
    let names = [name(0, 1), name(1, 1)];
    for one_forgot in [false, true] {
        let [mut one, mut other] = names.map(|own| host(own, (0, 1)));
        // An entry that comes and goes, of another key.
        one.set(1, 1);
        one.context.begin(0);
        let at = one.state.bits.get(&1).expect("at once").expect("there");
        one.state.act().bits.remove(&at);
        one.context.end(|_, _| {});
        let written = one.written();
        other.hear(names[0], &written);
        if one_forgot {
            one.context
                .set_stable(Origins::OWN, written.last().expect("two groups").0);
            one.sweep(0);
            assert_eq!(one.state.bits.held(), 0);
        } else {
            assert_eq!(one.state.bits.held(), 1);
        }
        one.set(7, 0b01);
        other.set(7, 0b10);
        let written = [one.written(), other.written()];
        one.hear(names[1], &written[1]);
        other.hear(names[0], &written[0]);
        let both = if one_forgot { 0b01 } else { 0b11 };
        assert_eq!([one.bits(7), other.bits(7)], [Some(both); 2]);
        let lost = [&one, &other].map(|host| host.state.bits.tally().lost_writes);
        assert_eq!(lost.iter().sum::<u64>() > 0, one_forgot, "{lost:?}");
        assert_eq!(one.state.digests(), other.state.digests());
    }
}

/// Two hosts that use an entry within the same second and the lag have both used it last.
#[test]
fn uses_of_one_second_may_both_say_that_it_idled_out() {
    let names = [name(0, 1), name(1, 1)];
    let [mut one, mut other] = names.map(|own| host(own, (0, 1)));
    one.set(7, 0b01);
    other.set(7, 0b10);
    let written = [one.written(), other.written()];
    one.hear(names[1], &written[1]);
    other.hear(names[0], &written[0]);
    for host in [&mut one, &mut other] {
        host.sweep(IDLE + IDLE / 4 + 2);
        assert_eq!((host.state.bits.len_now(), host.ended.get()), (0, 1));
    }
    // It is one end of one entry all the same, and ends once at each.
    let written = [one.written(), other.written()];
    one.hear(names[1], &written[1]);
    other.hear(names[0], &written[0]);
    assert_eq!(one.state.digests(), other.state.digests());
    assert_eq!([&one, &other].map(|host| host.ended.get()), [1, 1]);
    let counts = [&one, &other].map(|host| host.state.bits.tally().resurrected);
    assert_eq!(counts, [0, 0]);
}

/// A group that others count so far in: object, key, generation, value, seen.
fn of_generation(key: u32, generation: u64) -> Vec<u8> {
    let mut group = vec![1 << 3];
    group.extend(key.to_le_bytes());
    let mut left = generation;
    while left >= 0x80 {
        group.push(left as u8 | 0x80);
        left >>= 7;
    }
    group.push(left as u8);
    group.extend(5u32.to_le_bytes());
    group.extend([100, 0, 0]);
    group
}

impl Host {
    fn writes_word(&mut self, key: u32, word: u32) {
        self.context.begin(key.into());
        let vacancy = self.state.words.vacancy().expect("at once").expect("room");
        let known = self.state.words.get(&key).expect("at once");
        let mut words = self.state.act().words;
        match known {
            Some(at) => words.update(&at, Word(word)),
            None => words.insert(vacancy, key, Word(word)),
        }
        self.context.end(|_, _| {});
    }

    fn removes_word(&mut self, key: u32) {
        self.context.begin(key.into());
        let at = self.state.words.get(&key).expect("at once").expect("there");
        self.state.act().words.remove(&at);
        self.context.end(|_, _| {});
    }

    fn generations(&self) -> Vec<(u32, u64)> {
        let mut generations = Vec::new();
        self.state
            .words
            .for_each_age(|row, age| generations.push((row.0, age.generation)));
        generations.sort_unstable();
        generations
    }
}

/// A generation goes on beyond 32 bits: the entry is removed and begins again, others begin above it, replicas and who joins by a snapshot
/// have the same, and an entry of an older one loses.
#[test]
fn generations_go_on_beyond_32_bits() {
    let names = [name(0, 1), name(1, 1)];
    let [mut one, mut other] = names.map(|own| host(own, (0, 1)));
    let last = u64::from(u32::MAX);
    let group = of_generation(7, last);
    one.hear(names[1], &[(1, group.clone())]);
    other.hear(names[1], &[(1, group)]);
    one.removes_word(7);
    assert_eq!(one.word(7), None);
    one.writes_word(7, 1);
    one.writes_word(7, 0);
    one.writes_word(8, 3);
    let written = one.written();
    other.hear(names[0], &written);
    // The removal, the beginning, and one that changed it.
    let expected = [(7, last + 3), (8, last + 3)];
    for host in [&one, &other] {
        assert_eq!((host.word(7), host.word(8)), (Some(0), Some(3)));
        assert_eq!(host.generations(), expected);
    }
    // One whose lower half alone is greater is of an older generation.
    one.hear(names[1], &[(2, of_generation(7, last))]);
    assert_eq!(one.word(7), Some(0));
    let mut joined = host(name(0, 2), (0, 1));
    for part in snapshot(&one.state, 1_000) {
        let applied = joined.state.apply_snapshot(&joined.context, &part);
        applied.expect("good bytes");
    }
    assert_eq!(joined.generations(), expected);
    assert_eq!(joined.state.digests(), one.state.digests());
    // Who has forgotten all begins above it.
    one.removes_word(7);
    one.removes_word(8);
    let removed = one.written().last().expect("a group").0;
    one.context.set_stable(Origins::OWN, removed);
    one.context.set_now(0, 101);
    one.state.object_mut(1).expect("an object").sweep_share(1);
    assert_eq!(one.state.words.held(), 0);
    one.writes_word(9, 4);
    assert_eq!(one.generations(), [(9, last + 5)]);
}

/// The highest generation, which nobody gets to, is the last one: what is written there stays, though it is removed.
#[test]
fn in_the_last_generation_nothing_is_removed() {
    let names = [name(0, 1), name(1, 1)];
    let [mut one, mut other] = names.map(|own| host(own, (0, 1)));
    one.hear(names[1], &[(1, of_generation(7, u64::MAX))]);
    assert_eq!(one.word(7), Some(5));
    one.removes_word(7);
    assert_eq!(one.word(7), Some(5), "it is removed in no later one");
    // Nor written over by what its order does not prefer.
    for (word, then) in [(9, 9), (3, 9)] {
        one.writes_word(7, word);
        assert_eq!(one.word(7), Some(then));
    }
    assert!(one.state.words.tally().lost_writes > 0, "it is counted");
    other.hear(names[0], &one.written());
    assert_eq!(other.word(7), Some(9));
}

/// Who is restarted goes on with the total of the incarnation before, so that one writer stays of a thousand incarnations.
#[test]
fn incarnations_of_one_host_are_one_writer() {
    const INCARNATIONS: u64 = 1_000;
    let mut keeper = host(name(0, 1), (0, 1));
    let length = |host: &Host| snapshot(&host.state, 1_000).concat().len();
    let mut lengths = Vec::new();
    for incarnation in 1..=INCARNATIONS {
        let mut returned = host(name(1, incarnation), (0, 1));
        for part in snapshot(&keeper.state, 1_000) {
            let joined = returned.state.apply_snapshot(&returned.context, &part);
            joined.expect("good bytes");
        }
        assert_eq!(returned.state.sum.total(), 5 * (incarnation - 1));
        assert!(returned.written().is_empty(), "the others have all of it");
        returned.state.act().sum.add(5);
        let written = returned.written();
        keeper.hear(name(1, incarnation), &written);
        lengths.push(length(&keeper));
    }
    assert_eq!(keeper.state.sum.total(), 5 * INCARNATIONS);
    assert!(lengths[999] < lengths[0] + 8, "{lengths:?}");
    // Restored, it is one writer's too.
    let mut restored = host(name(0, 2), (0, 1));
    let since = Since {
        saved: 100,
        away: 0,
    };
    let parts = snapshot(&keeper.state, 1_000);
    for part in &parts {
        let taken = restored.state.restore(&restored.context, part, &since);
        assert_eq!(taken, Ok(1));
    }
    assert_eq!(restored.state.sum.total(), 5 * INCARNATIONS);
    assert!(!restored.written().is_empty());
}
