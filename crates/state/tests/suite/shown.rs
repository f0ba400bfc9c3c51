//! What people are shown of sums by key and of token buckets, and what the control plane reads between packets.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Counter, Counters, Identity, Map, ObjectSettings, OriginName, Sequencer,
    Single, Spending, State, TokenBucket, TokenRate, Window, WindowedCounters, state,
};

use crate::manual::groups;

#[state]
struct Sums {
    hits: Counters<u32>,
    recent: WindowedCounters<(u32, u8)>,
    limits: TokenBucket<u32>,
    shares: TokenBucket<u32>,
    all: Counter,
    words: Map<u32, ()>,
}

const SECOND: u64 = 1_000_000;
const WINDOW: Window = Window {
    buckets: 4,
    bucket_seconds: 15,
};
const RATE: TokenRate = TokenRate {
    tokens_per_second: 10,
    burst_tokens: 200,
};
const KEYS: u32 = 100;
/// When tests begin.
const BEGIN: u64 = 6_000;

struct Member {
    context: Rc<Context>,
    state: Sums,
}

fn member(place: u16, settings: ObjectSettings) -> Member {
    let own = OriginName {
        member: place,
        incarnation: 1,
    };
    let identity = Identity {
        own,
        members: vec![0, 1],
        lane: (0, 1),
    };
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(identity, sequencer, 5, vec![]));
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Sums {
        hits: builder.counters("hits", 2 * KEYS),
        recent: builder.windowed_counters("recent", 2 * KEYS, WINDOW),
        limits: builder.token_bucket("limits", 2 * KEYS, RATE, Spending::Approximate),
        shares: builder.token_bucket("shares", 2 * KEYS, RATE, Spending::Escrow),
        all: builder.counter("all"),
        words: builder.table("words", 2 * KEYS, &[10]),
    };
    let mut member = Member { context, state };
    member.at(BEGIN);
    member
}

impl Member {
    fn at(&mut self, second: u64) {
        self.context.set_now(second * SECOND, second as u32);
        self.context.arrive(second * SECOND);
    }

    /// Adds and spends under a key.
    fn add(&mut self, key: u32, amount: u64) {
        let state = &self.state;
        let hits = state.hits.find(&key).expect("local").expect("room");
        let recent = state.recent.find(&(key, 1)).expect("local").expect("room");
        let limits = state.limits.tokens(&key, amount).expect("local");
        let shares = state.shares.tokens(&key, amount / 2).expect("local");
        let mut act = self.state.act();
        act.hits.add(&hits, amount);
        act.recent.add(&recent, amount);
        act.limits.spend(limits.expect("it has so many"));
        if let Some(shares) = shares {
            act.shares.spend(shares);
        }
        act.all.add(amount);
        self.context.end(|_, _| {});
        self.state.settle();
    }

    /// What is shown of an object, in parts of so many records.
    fn shown(&self, object: u8, records: u32) -> BTreeMap<String, String> {
        let (mut all, mut cursor) = (BTreeMap::new(), Some(0));
        while let Some(from) = cursor {
            let mut part = 0;
            let mut each = |entry: &asterism_state::Shown<'_>| {
                assert_eq!(entry.provenance, None, "nobody wrote a sum");
                part += 1;
                let known = all.insert(format!("{:?}", entry.key), format!("{:?}", entry.value));
                assert_eq!(known, None, "each once");
            };
            let object = self.state.object(object).expect("there is one");
            let next = object.show(from, records, &mut each);
            assert!(part <= records);
            assert!(next.is_none_or(|next| next > from && next - from <= records));
            cursor = next;
        }
        all
    }

    fn value(&self, object: u8, key: &str) -> String {
        self.shown(object, 64).remove(key).unwrap_or_default()
    }
}

#[test]
fn sums_and_buckets_are_shown_by_key_in_bounded_parts() {
    let mut one = member(0, ObjectSettings::LOCAL);
    for key in 0..KEYS {
        one.add(key, u64::from(key) + 1);
    }
    for object in 0..3 {
        let whole = one.shown(object, u32::MAX);
        assert_eq!(whole.len(), KEYS as usize, "object {object}");
        for records in [1, 7, 99, 100, 101] {
            assert_eq!(one.shown(object, records), whole);
        }
    }
    assert_eq!(one.value(0, "42"), "43");
    assert_eq!(one.value(1, "(42, 1)"), "43 in 60 s");
    assert_eq!(one.value(2, "42"), "157 of 200 tokens");
    one.add(42, 70);
    assert_eq!(one.value(0, "42"), "113");
    assert_eq!(one.value(1, "(42, 1)"), "113 in 60 s");
    assert_eq!(one.value(2, "42"), "87 of 200 tokens, short");
    assert_eq!(one.value(0, "100"), "", "there is none");
    // A cursor of one who asks for what was never there.
    let mut each = |_: &asterism_state::Shown<'_>| panic!("there is nothing");
    let object = one.state.object(2).expect("an object");
    assert_eq!(object.show(u32::MAX, 9, &mut each), None);
}

#[test]
fn what_is_shown_is_of_now_and_not_of_the_last_packet() {
    let mut one = member(0, ObjectSettings::LOCAL);
    one.add(7, 150);
    assert_eq!(one.state.recent.total(&(7, 1)), 150);
    // Time goes on without packets.
    let later = |one: &Member, second: u64| {
        let now = BEGIN + second;
        one.context.set_now(now * SECOND, now as u32);
    };
    later(&one, 4);
    assert_eq!(one.value(2, "7"), "90 of 200 tokens, short");
    later(&one, 5);
    assert_eq!(one.value(2, "7"), "100 of 200 tokens");
    later(&one, 44);
    assert_eq!(one.value(2, "7"), "200 of 200 tokens");
    assert_eq!(one.value(1, "(7, 1)"), "150 in 60 s");
    later(&one, 60);
    assert_eq!(one.value(1, "(7, 1)"), "0 in 60 s");
    assert_eq!(one.state.recent.total(&(7, 1)), 0);
    assert_eq!(one.value(0, "7"), "150", "these are never forgotten");
    assert_eq!(one.state.limits.in_use(), 1);
    one.state.object_mut(2).expect("an object").sweep_share(1);
    assert_eq!(one.state.limits.in_use(), 0, "full ones are forgotten");
    assert_eq!(one.shown(2, 64), BTreeMap::new());
}

#[test]
fn sums_of_all_members_are_shown_and_shares_are_this_ones() {
    let [mut one, mut other] = [0, 1].map(|place| member(place, ObjectSettings::REPLICATED));
    for second in [BEGIN, BEGIN + 30] {
        one.at(second);
        other.at(second);
        // A share begins empty when its instance does, and fills.
        assert!(one.state.shares.available(&7).is_ok());
    }
    one.add(7, 50);
    other.add(7, 60);
    for (sequence, bytes) in groups(&mut other.state, &other.context) {
        let own = other.context.identity().own;
        let context = one.context.clone();
        let applied = one.state.apply(&context, own, sequence, &bytes);
        applied.expect("good bytes");
    }
    assert_eq!(one.value(0, "7"), "110");
    assert_eq!(one.value(1, "(7, 1)"), "110 in 60 s");
    assert_eq!(one.value(2, "7"), "90 of 200 tokens, short");
    assert_eq!(one.value(3, "7"), "75 of 100 tokens", "its own half");
    assert_eq!(one.state.all.total(), 110);
    assert_eq!(one.state.hits.total(&7), 110);
    assert_eq!(one.state.hits.total(&8), 0);
}

/// Between packets nothing is late, and nothing of it stays for the packet that comes then.
#[test]
fn the_control_plane_waits_for_nothing() {
    let settings = ObjectSettings {
        late_us: 1_000,
        ..ObjectSettings::LOCAL
    };
    let one = member(0, settings);
    let state = &one.state;
    assert_eq!(state.all.total(), 0);
    assert_eq!(state.hits.total(&7), 0);
    assert_eq!(state.recent.total(&(7, 1)), 0);
    assert_eq!(state.words.value_now(&Single(7)), None);
    assert_eq!(one.context.act(), Ok(()), "no read was late");
    assert!(state.all.get().is_err(), "that of a packet is");
}

#[test]
fn entries_that_began_are_counted_whatever_became_of_them() {
    let mut one = member(0, ObjectSettings::LOCAL);
    for (round, expected) in [(0, 5), (1, 10)] {
        one.at(BEGIN + 100 * round);
        for key in 0..5 {
            for _ in 0..2 {
                let room = one.state.words.vacancy().expect("local").expect("room");
                one.state.act().words.insert(room, Single(key), ());
                one.context.end(|_, _| {});
            }
        }
        assert_eq!(one.state.words.begun(), expected, "written twice is once");
        assert_eq!(one.state.words.value_now(&Single(3)), Some(()));
        assert_eq!(u64::from(one.state.words.now()), BEGIN + 100 * round);
        one.at(BEGIN + 100 * round + 50);
        for _ in 0..3 {
            one.state.object_mut(5).expect("an object").sweep_share(1);
        }
        assert_eq!(one.state.words.held(), 0, "all are forgotten");
        assert_eq!(one.state.words.begun(), expected);
        assert_eq!(one.state.words.value_now(&Single(3)), None);
    }
}
