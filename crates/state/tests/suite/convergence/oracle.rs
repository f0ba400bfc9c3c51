//! What the tables must hold once everything arrived, distinguished from the written operations alone, by the rules
//! and not by the code: the greatest generation decides, in it a writing beats a removal, and an entry lives
//! while it was seen later than it was declared over.

use std::collections::{BTreeMap, BTreeSet};

use asterism_state::{OriginName, Reader, Row, Value, Wire};

use crate::convergence::cluster::Cluster;
use crate::convergence::graph::{Sighting, Talk, Volume};
use crate::convergence::shared::{Score, Seen, Session};

#[derive(Clone, Copy, Debug)]
struct Operation<V> {
    generation: u64,
    value: V,
    seen: u32,
    expired: bool,
    removed: bool,
    stamp: (u64, OriginName),
}

fn read<R: Row + Ord, V: Value>(
    flags: u8,
    input: &mut Reader<'_>,
    stamp: (u64, OriginName),
    history: &mut BTreeMap<R, Vec<Operation<V>>>,
) {
    let row = R::decode(input).expect("a row");
    let generation = input.varint().expect("a generation");
    let value = V::decode(input).expect("a value");
    let seen = input.u24().expect("a time");
    history.entry(row).or_default().push(Operation {
        generation,
        value,
        seen,
        expired: flags & 1 != 0,
        removed: flags & 2 != 0,
        stamp,
    });
}

/// The live entries by the rules.
fn living<R: Row + Ord, V: Value>(history: &BTreeMap<R, Vec<Operation<V>>>) -> BTreeMap<R, V> {
    let mut living = BTreeMap::new();
    for (&row, operations) in history {
        let last = operations
            .iter()
            .map(|operation| operation.generation)
            .max();
        let current = || {
            operations
                .iter()
                .filter(|operation| Some(operation.generation) == last)
        };
        let seen = current().map(|operation| operation.seen).max();
        let expired = current()
            .filter(|operation| operation.expired)
            .map(|operation| operation.seen)
            .max();
        let mut writings = current().filter(|operation| !operation.removed);
        let Some(first) = writings.next() else {
            continue;
        };
        if seen <= expired {
            continue;
        }
        let best = writings.fold(*first, |mut best, next| {
            if V::JOINS {
                best.value.join(&next.value);
            } else if next
                .value
                .order(&best.value)
                .then(next.stamp.cmp(&best.stamp))
                .is_gt()
            {
                best = *next;
            }
            best
        });
        living.insert(row, best.value);
    }
    living
}

/// A row that can be put in order, for the maps of this file.
macro_rules! ordered {
    ($name:ident, $inner:ty, $key:expr) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        struct $name($inner);
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> core::cmp::Ordering {
                let key: fn(&$inner) -> _ = $key;
                key(&self.0).cmp(&key(&other.0))
            }
        }
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Wire for $name {
            fn encode(&self, out: &mut asterism_state::Writer<'_>) {
                self.0.encode(out);
            }
            fn decode(input: &mut Reader<'_>) -> Result<Self, asterism_state::BadBytes> {
                <$inner>::decode(input).map(Self)
            }
        }
        impl Row for $name {
            const UNIQUE: usize = <$inner as Row>::UNIQUE;
            const LANES: usize = <$inner as Row>::LANES;
            fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
                self.0.lane_hash(lane, seed)
            }
            fn lane_key(&self, lane: usize, out: &mut asterism_state::Writer<'_>) {
                self.0.lane_key(lane, out);
            }
            fn lane_equal(&self, lane: usize, other: &Self) -> bool {
                self.0.lane_equal(lane, &other.0)
            }
            fn order(&self, other: &Self) -> core::cmp::Ordering {
                self.0.order(&other.0)
            }
        }
    };
}
ordered!(One, asterism_state::Single<u32>, |row| row.0);
ordered!(Two, asterism_state::Pair<u8, u8>, |row| (row.0, row.1));
ordered!(Four, Session, |row| (row.inside, row.outside, row.remote));

/// Rows of which another living one shares a unique key and is better.
fn shadowed<R: Row + Ord, V>(living: &BTreeMap<R, V>) -> BTreeSet<R> {
    living
        .keys()
        .filter(|row| {
            living.keys().any(|other| {
                (0..R::UNIQUE).any(|lane| row.lane_equal(lane, other)) && other.order(row).is_gt()
            })
        })
        .copied()
        .collect()
}

/// Compares every member with what the written operations say.
pub fn check(cluster: &Cluster) {
    let mut winners = BTreeMap::<One, Vec<Operation<Score>>>::new();
    let mut joins = BTreeMap::<One, Vec<Operation<Seen>>>::new();
    let mut members = BTreeMap::<One, Vec<Operation<()>>>::new();
    let mut pairs = BTreeMap::<Two, Vec<Operation<()>>>::new();
    let mut sessions = BTreeMap::<Four, Vec<Operation<Seen>>>::new();
    let mut users = BTreeMap::<One, Vec<Operation<Score>>>::new();
    let mut talk = BTreeMap::<Sighting, Vec<Operation<Volume>>>::new();
    for (place, replica) in cluster.replicas.iter().enumerate() {
        for (number, group) in replica.log.iter().enumerate() {
            let stamp = (number as u64 + 1, cluster.name(place));
            let mut input = Reader::new(group, &[]);
            while !input.is_empty() {
                let (object, flags) = input.tag().expect("a tag");
                let input = &mut input;
                match object {
                    0 => read(flags, input, stamp, &mut winners),
                    1 => read(flags, input, stamp, &mut joins),
                    2 => read(flags, input, stamp, &mut members),
                    3 => read(flags, input, stamp, &mut pairs),
                    4 => read(flags, input, stamp, &mut sessions),
                    5 | 6 => {
                        input.varint().expect("a generation");
                        input.u8().expect("a value");
                    }
                    7 => {
                        input.varint().expect("a lane");
                        input.varint().expect("a total");
                    }
                    8 => {
                        input.varint().expect("a lane");
                        input.u32().expect("a key");
                        input.varint().expect("a total");
                    }
                    9 => read(flags, input, stamp, &mut users),
                    11..=13 => {
                        input.varint().expect("a lane");
                        input.varint().expect("a place");
                        input.varint().expect("a total");
                    }
                    14 => {
                        input.varint().expect("a word's number");
                        input.u64().expect("its bits");
                    }
                    15 => read(flags, input, stamp, &mut talk),
                    19 => {
                        input.varint().expect("a lane");
                        input.varint().expect("a place");
                        input.u32().expect("a key");
                        input.varint().expect("an error");
                        input.varint().expect("a count");
                    }
                    16..=18 if flags != 0 => {
                        input.varint().expect("a bucket");
                    }
                    16..=18 => {
                        input.varint().expect("a lane");
                        match object {
                            17 => input.varint(),
                            _ => input.u32().map(u64::from),
                        }
                        .expect("a key or a place");
                        input.varint().expect("a bucket");
                        input.varint().expect("a total");
                    }
                    other => panic!("operations of object {other}"),
                }
            }
        }
    }
    let (winners, joins, members) = (living(&winners), living(&joins), living(&members));
    let (pairs, sessions, users) = (living(&pairs), living(&sessions), living(&users));
    let talk = Talk::of(&living(&talk));
    let (pairs_hidden, sessions_hidden) = (shadowed(&pairs), shadowed(&sessions));
    for replica in &cluster.replicas {
        let state = &replica.state;
        macro_rules! held {
            ($table:ident, $row:ident) => {{
                let mut held = BTreeMap::new();
                state
                    .$table
                    .for_each(|row, value| assert!(held.insert($row(*row), *value).is_none()));
                assert_eq!(held.len(), state.$table.len_now());
                held
            }};
        }
        assert_eq!(held!(winners, One), winners, "winners");
        assert_eq!(held!(joins, One), joins, "joins");
        assert_eq!(held!(members, One), members, "members");
        assert_eq!(held!(pairs, Two), pairs, "pairs");
        assert_eq!(held!(sessions, Four), sessions, "sessions");
        assert_eq!(held!(users, One), users, "users");
        for row in pairs.keys() {
            assert_eq!(state.pairs.is_shadowed(&row.0), pairs_hidden.contains(row));
        }
        for row in sessions.keys() {
            assert_eq!(
                state.sessions.is_shadowed(&row.0),
                sessions_hidden.contains(row)
            );
        }
        talk.check(&state.talk).expect("nothing is late");
        lookups(state, &winners, &pairs, &pairs_hidden, &sessions);
    }
}

/// Every lookup tells what the living entries say.
fn lookups(
    state: &crate::convergence::shared::Shared,
    winners: &BTreeMap<One, Score>,
    pairs: &BTreeMap<Two, ()>,
    pairs_hidden: &BTreeSet<Two>,
    sessions: &BTreeMap<Four, Seen>,
) {
    for key in 0..12u32 {
        let found = state.winners.get(&key).expect("not late");
        let expected = winners.get(&One(key.into()));
        assert_eq!(found.map(|at| at.value).as_ref(), expected);
    }
    for key in 0..6u8 {
        let best = |lane: usize| {
            pairs
                .keys()
                .filter(|row| if lane == 0 { row.0.0 } else { row.0.1 } == key)
                .max()
                .copied()
        };
        let left = best(0).filter(|row| !pairs_hidden.contains(row));
        let found = state.pairs.by_left(&key).expect("not late");
        assert_eq!(found.map(|at| Two(at.row)), left, "by left {key}");
        let found = state.pairs.by_right(&key).expect("not late");
        assert_eq!(found.map(|at| Two(at.row)), best(1), "by right {key}");
        if let Some(found) = found {
            assert_eq!(found.is_alias(), pairs_hidden.contains(&Two(found.row)));
        }
        for group in 0..2 {
            let has = sessions.keys().any(|row| {
                if group == 0 {
                    row.0.inside == key
                } else {
                    row.0.outside == key
                }
            });
            let found = state.sessions.any_of(group, &key).expect("not late");
            assert_eq!(found.is_some(), has, "group {group} of {key}");
        }
    }
}
