//! Sums, registers and groups that live in a store: what an instance asks, what the store answers, and what it makes of a call.

use core::net::{IpAddr, Ipv4Addr};
use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Addition, BiMap, Builder, Context, Counter, Counters, Fetch, Grouped, Identity, Key, LANE_SUM,
    Late, ObjectSettings, Query, Register, Row, Sequencer, State, Table, Value, Vector, Wire,
    Writer, hash, state, write_sums,
};

use crate::both::Both;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Word(u32);

#[state]
struct Sums {
    counter: Counter,
    counters: Counters<u32>,
    vector: Vector,
    register: Register<Word>,
    members: Table<Member, Word>,
}

/// A member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
struct Member {
    number: u32,
    group: u16,
}

impl Row for Member {
    const UNIQUE: usize = 1;
    const LANES: usize = 2;
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        match lane {
            0 => self.number.hash(seed),
            _ => self.group.hash(seed),
        }
    }
    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            0 => self.number.encode(out),
            _ => self.group.encode(out),
        }
    }
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        match lane {
            0 => self.number == other.number,
            _ => self.group == other.group,
        }
    }
    fn order(&self, other: &Self) -> core::cmp::Ordering {
        self.group.cmp(&other.group)
    }
}

impl Grouped for Member {
    type Group = u16;
    fn group(&self, _: usize) -> u16 {
        self.group
    }
}

/// Keys that may have a counter.
const KEYS: u32 = 2;

fn build(settings: fn(&str) -> ObjectSettings) -> (Rc<Context>, Sums) {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 5, vec![]));
    context.expect_requests(4);
    let builder = Builder::new(context.clone(), settings);
    let state = Sums {
        counter: builder.counter("counter"),
        counters: builder.counters("counters", KEYS),
        vector: builder.vector("vector", 12),
        register: builder.register("register", Word(9)),
        members: builder.table("members", 256, &[0]),
    };
    (context, builder.built(state))
}

fn both() -> Both<Sums> {
    Both::of(build)
}

#[test]
fn a_call_that_only_adds_is_called_again_at_once_and_leaves_nothing_here() {
    let mut both = both();
    for amount in 1..4 {
        let ((), transaction) = both.packet(
            |_| Ok(()),
            |act, ()| {
                act.counter.add(amount);
                act.counter.add(1);
                act.vector.add(7, -2);
                act.vector.add(99, 1);
            },
        );
        assert_eq!(transaction.reads().count(), 0);
        both.commit(&transaction);
    }
    let (sums, transaction) = both.packet(
        |sums| {
            let one = (sums.counter.get(), sums.vector.get(7), sums.vector.get(6));
            Ok((one.0?, one.1?, one.2?, sums.vector.get(99)?))
        },
        |_, _| {},
    );
    assert_eq!(sums, (9, -6, 0, 0));
    assert!(transaction.writes().is_empty());
    assert!(transaction.reads().all(|(query, _)| query.is_of_sums()));
    assert_eq!(
        (both.instance.counter.total(), both.instance.vector.known(7)),
        (0, 0)
    );
    // For people.
    let mut answer = Vec::new();
    write_sums([(&b"0"[..], 9)], &mut answer);
    both.instance.counter.note_sums(&answer);
    assert_eq!(both.instance.counter.total(), 9);
}

#[test]
fn keys_begin_where_there_is_room() {
    let mut both = both();
    for (key, has_room) in [(5, true), (300, true), (7, false), (5, true)] {
        let (tally, transaction) = both.packet(
            |sums| sums.counters.find(&key),
            |act, tally| {
                if let Some(tally) = tally {
                    act.counters.add(tally, 10);
                }
            },
        );
        assert_eq!(tally.is_some(), has_room, "{key}");
        both.commit(&transaction);
    }
    let (totals, _) = both.packet(
        |sums| {
            let all = [5, 300, 7].map(|key| sums.counters.get(&key));
            all.into_iter().collect::<Result<Vec<_>, Late>>()
        },
        |_, _| {},
    );
    assert_eq!(totals, [20, 10, 0]);
}

#[test]
fn the_lowest_place_is_found_by_one_read() {
    let mut both = both();
    let ((), transaction) = both.packet(
        |_| Ok(()),
        |act, ()| (0..11).for_each(|place| act.vector.add(place, 20 - i64::from(place))),
    );
    both.commit(&transaction);
    let (lowest, transaction) = both.packet(|sums| sums.vector.lowest([3, 10, 99, 2]), |_, _| {});
    assert_eq!(lowest, Some(10));
    assert_eq!(transaction.reads().count(), 1);
}

#[test]
fn a_register_is_checked_when_the_call_is_committed_and_sums_are_not() {
    let mut both = both();
    let count_up = |both: &mut Both<Sums>| {
        both.packet(
            |sums| {
                let read = (sums.register.get(), sums.counter.get());
                Ok((read.0?, read.1?))
            },
            |act, (word, _)| {
                act.register.set(Word(word.0 + 1));
                act.counter.add(1);
            },
        )
    };
    let ((first, _), transaction) = count_up(&mut both);
    let (_, meanwhile) = count_up(&mut both);
    assert_eq!(first, Word(9));
    both.commit(&transaction);
    assert!(!both.store.still_holds(&meanwhile), "another one wrote it");
    let ((second, sum), again) = count_up(&mut both);
    assert_eq!((second, sum), (Word(10), 1));
    // What is written without a read is checked by nobody.
    let ((), blind) = both.packet(|_| Ok(()), |act, ()| act.register.set(Word(50)));
    let ((), added) = both.packet(|_| Ok(()), |act, ()| act.counter.add(1));
    both.commit(&again);
    both.commit(&blind);
    both.commit(&added);
    let ((third, sum), _) = count_up(&mut both);
    assert_eq!((third, sum), (Word(50), 3));
}

#[test]
fn additions_are_reported_by_field() {
    let mut both = both();
    let (_, transaction) = both.packet(
        |sums| sums.counters.find(&0x0102_0304),
        |act, tally| {
            act.counter.add(u64::MAX);
            act.vector.add(11, -5);
            act.counters.add(&tally.expect("room"), 3);
        },
    );
    let mut found = Vec::new();
    let each = |object: u8, _: u8, write: &[u8]| {
        let at = both.store.object(object).expect("an object");
        assert!(at.has_sums());
        let add = &mut |one: &Addition<'_>| found.push((object, one.field.to_vec(), one.amount));
        at.each_addition(write, add).expect("a write");
        assert!(at.each_addition(&[0xff], &mut |_| {}).is_err());
    };
    both.store
        .each_write(transaction.writes(), each)
        .expect("writes");
    found.sort();
    let expected: [(u8, &[u8], i64); 3] =
        [(0, b"0", i64::MAX), (1, &[4, 3, 2, 1], 3), (2, b"11", -5)];
    assert_eq!(
        found,
        expected.map(|(object, field, sum)| (object, field.to_vec(), sum))
    );
}

#[test]
fn what_is_no_answer_is_refused() {
    let mut both = both();
    for object in 0..4 {
        let object = both.instance.object_mut(object).expect("an object");
        for answer in [
            &[][..],
            &[0],
            &[0, 0, 9],
            &[3, 0, 1, 2],
            &[0, 0, 1, b'0', 0xff],
        ] {
            let is_register = !object.has_sums();
            let installed = object.install(LANE_SUM, answer);
            // Of a register nothing behind the value is looked at.
            let is_empty = is_register && answer.first_chunk() == Some(&[0, 0]);
            assert_eq!(installed.is_ok(), is_empty, "{answer:?}");
        }
        object.withdraw();
    }
    let query = Query {
        object: 2,
        lane: LANE_SUM,
        hash: 0,
        key: b"99",
        conversation: 0,
    };
    let mut answer = Vec::new();
    both.store.extract(&query, &mut answer);
    assert_eq!(answer, [0, 0], "no place");
}

impl Both<Sums> {
    /// Has members of group 7 join.
    fn join(&mut self, numbers: core::ops::Range<u32>) {
        for number in numbers {
            let (_, joins) = self.packet(
                |sums| sums.members.vacancy(),
                |act, room| {
                    let room = room.take().expect("room");
                    act.members
                        .insert(room, Member { number, group: 7 }, Word(number));
                },
            );
            self.commit(&joins);
        }
    }

    /// Has a member leave.
    fn leave(&mut self, number: u32) {
        let (_, leaves) = self.packet(
            |sums| {
                let is_it = |member: &Member| member.number == number;
                sums.members.any_of_where(0, &7, is_it)
            },
            |act, there| act.members.remove(there.as_ref().expect("it joined")),
        );
        self.commit(&leaves);
    }
}

#[test]
fn a_call_depends_on_the_member_of_a_group_that_it_took_not_on_the_others() {
    let mut both = both();
    both.join(0..3);
    let ((any, _), takes) = both.packet(
        |sums| {
            let any = sums.members.any_of(0, &7)?;
            // It takes the same one however often it asks.
            Ok((any, sums.members.any_of(0, &7)?))
        },
        |_, _| {},
    );
    let any = any.expect("three joined").row.number;
    both.leave((any + 1) % 3);
    assert!(both.store.still_holds(&takes));
    // More than an answer has.
    both.join(3..120);
    assert!(both.store.still_holds(&takes));
    both.leave(any);
    assert!(!both.store.still_holds(&takes), "it left");
}

#[test]
fn a_call_that_found_no_member_or_took_several_depends_on_the_group() {
    let mut both = both();
    let (none, finds_none) = both.packet(|sums| sums.members.any_of(0, &7), |_, _| {});
    assert_eq!(none, None);
    assert!(both.store.still_holds(&finds_none));
    both.join(0..2);
    assert!(!both.store.still_holds(&finds_none));
    let (_, takes_both) = both.packet(
        |sums| {
            let of = |number| {
                sums.members
                    .any_of_where(0, &7, move |member| member.number == number)
            };
            Ok((of(0)?, of(1)?))
        },
        |_, _| {},
    );
    assert!(both.store.still_holds(&takes_both));
    both.join(2..3);
    assert!(!both.store.still_holds(&takes_both));
}

#[test]
fn an_entry_is_kept_under_the_key_that_was_asked_for_until_it_is_dropped() {
    let mut both = both();
    both.join(0..2);
    let (seed, mut key, mut answer) = (both.store_context.seed(), Vec::new(), Vec::new());
    1_u32.encode(&mut Writer::new(&mut key, &[]));
    let query = Query {
        object: 4,
        lane: 0,
        hash: 1_u32.hash(seed),
        key: &key,
        conversation: 0,
    };
    both.store.extract(&query, &mut answer);
    let one = Member {
        number: 1,
        group: 7,
    };
    let is_kept = |both: &mut Both<Sums>| {
        both.instance.members.show_kept(true);
        let found = both.instance.members.value_now(&one);
        both.instance.members.show_kept(false);
        found == Some(Word(1))
    };
    both.instance.members.expect_kept();
    // A store that answers with another entry than that of the key.
    Fetch::keep(&mut both.instance.members, 0, 0_u32.hash(seed), &answer);
    assert!(!is_kept(&mut both));
    for bytes in [&answer[..], &answer[..answer.len() - 1], &[9]] {
        Fetch::keep(&mut both.instance.members, 0, query.hash, bytes);
        assert!(is_kept(&mut both), "what is no answer changes nothing");
        assert_eq!(
            both.instance.members.value_now(&one),
            None,
            "it is not shown"
        );
    }
    // Of a group nothing is kept.
    Fetch::keep(&mut both.instance.members, 1, 7_u16.hash(seed), &answer);
    both.instance.members.drop_kept(0, query.hash);
    assert!(!is_kept(&mut both));
}

/// What is one host's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
#[key(between = Self::hosts)]
struct OfHost(u8);

impl OfHost {
    fn hosts(&self) -> (IpAddr, IpAddr) {
        let host = Ipv4Addr::new(10, 0, 0, self.0);
        (host.into(), Ipv4Addr::LOCALHOST.into())
    }
}

#[state]
struct InShards {
    names: BiMap<OfHost, (OfHost, OfHost)>,
    hosts: BiMap<OfHost, OfHost>,
}

#[test]
fn a_two_way_map_is_by_conversation_if_both_keys_are() {
    const SEED: u64 = 5;
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, SEED, vec![]));
    let builder = Builder::new(context, |_| ObjectSettings::REMOTE);
    let state = InShards {
        names: builder.table("names", 16, &[600]),
        hosts: builder.table("hosts", 16, &[600]),
    };
    let objects = [0, 1].map(|number| state.object(number).expect("an object"));
    assert_eq!(
        objects.map(|object| object.is_by_conversation()),
        [false, true],
        "a pair of keys is no key that says it"
    );
    for (lane, key) in [(0, [7]), (1, [9])] {
        let query = |key| Query {
            object: 1,
            lane,
            hash: 0,
            key,
            conversation: 0,
        };
        let (one, other) = OfHost(key[0]).hosts();
        let expected = hash::conversation(one, other, SEED);
        let of = |key| objects[1].conversation_of(&query(key), SEED);
        assert_eq!(of(&key), Some(expected));
        assert_eq!((of(&[]), of(&[1, 2])), (None, None), "no key");
    }
}
