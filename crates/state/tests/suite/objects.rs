//! Laws of each object, one by one: operations commute and repeat without harm, snapshots equal logs, and what
//! cannot run out does not.

use std::cell::Cell;
use std::rc::Rc;

use asterism_packet::{Endpoint, Protocol};
use asterism_state::{
    BiMap, Builder, Context, Counter, Counters, Flow4Key, Identity, Map, ObjectCount,
    ObjectSettings, OriginName, Pair, Reader, Register, Sequencer, Single, State, Value, Wire,
    Writer, laws, state,
};
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

use crate::manual::{groups, snapshot};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Bits(#[join(or)] u8);

/// The last writer wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
struct Word(u32);

#[state]
struct Objects {
    words: Map<u32, Word>,
    bits: Map<u32, Bits>,
    pairs: BiMap<u8, u8>,
    word: Register<Word>,
    flags: Register<Bits>,
    sum: Counter,
    sums: Counters<u32>,
}

struct Member {
    context: Rc<Context>,
    state: Objects,
}

const MEMBERS: u16 = 4;

fn member(place: u16, settings: ObjectSettings) -> Member {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation: 1,
        },
        members: (0..MEMBERS).collect(),
        lane: (0, 1),
    };
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(
        identity,
        sequencer,
        3 + u64::from(place),
        vec![],
    ));
    context.set_now(0, 100);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Objects {
        words: builder.table("words", 64, &[10]),
        bits: builder.table("bits", 64, &[10]),
        pairs: builder.table("pairs", 64, &[10]),
        word: builder.register("word", Word(0)),
        flags: builder.register("flags", Bits(0)),
        sum: builder.counter("sum"),
        sums: builder.counters("sums", 64),
    };
    Member { context, state }
}

impl Member {
    fn name(&self) -> OriginName {
        self.context.identity().own
    }

    /// One write, and the groups it made.
    fn write(&mut self, what: u8, key: u32, value: u8) -> Vec<(u64, Vec<u8>)> {
        self.context.begin(1);
        let state = &mut self.state;
        let words = state.words.get(&key).expect("local");
        let bits = state.bits.get(&key).expect("local");
        let room = (
            state.words.vacancy().expect("local"),
            state.bits.vacancy().expect("local"),
            // Half of them by rows that are known while asking.
            state.pairs.vacancy().expect("local"),
            state
                .pairs
                .vacancy_for(Pair(key as u8, value % 4))
                .expect("local"),
        );
        let tally = state.sums.find(&key).expect("local");
        let mut act = state.act();
        match (what % 8, room) {
            (0, (Some(vacancy), ..)) => act.words.insert(vacancy, key, Word(value.into())),
            (1, (_, Some(vacancy), ..)) => act.bits.insert(vacancy, key, Bits(value)),
            (2, (.., Some(vacancy), Some(known))) => {
                if value & 0x80 == 0 {
                    act.pairs.insert(vacancy, (key as u8, value % 4), ());
                } else {
                    assert_eq!(*known.row(), Pair(key as u8, value % 4));
                    act.pairs.fill(known, ());
                }
            }
            (3, _) => words
                .iter()
                .for_each(|at| act.words.update(at, Word(value.into()))),
            (4, _) => bits
                .iter()
                .for_each(|at| act.bits.update(at, Bits(1 << (value % 8)))),
            (5, _) => {
                words.iter().for_each(|at| act.words.remove(at));
                bits.iter().for_each(|at| act.bits.remove(at));
            }
            (6, _) => {
                act.word.set(Word(value.into()));
                act.flags.set(Bits(value));
            }
            _ => {
                act.sum.add(value.into());
                tally
                    .iter()
                    .for_each(|tally| act.sums.add(tally, value.into()));
            }
        }
        groups(&mut self.state, &self.context)
    }
}

type Written = Vec<(OriginName, u64, Vec<u8>)>;

fn written(writes: &[(u8, u8, u32, u8)]) -> Written {
    let mut members = [0, 1, 2].map(|place| member(place, ObjectSettings::REPLICATED));
    let mut all = Vec::new();
    for &(at, what, key, value) in writes {
        let member = &mut members[usize::from(at) % 3];
        let name = member.name();
        for (sequence, bytes) in member.write(what, key % 6, value) {
            all.push((name, sequence, bytes));
        }
    }
    all
}

fn applied(groups: &Written) -> Member {
    let mut reader = member(3, ObjectSettings::REPLICATED);
    for (name, sequence, bytes) in groups {
        reader
            .state
            .apply(&reader.context, *name, *sequence, bytes)
            .expect("good bytes");
    }
    reader
}

#[test]
fn whether_a_table_is_empty_is_late_as_its_entries_are() {
    let late = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let here = member(0, late);
    here.context.begin(1);
    assert!(here.state.words.is_empty().is_err());
    assert!(here.state.words.is_empty_now());
    let (call, _) = here.context.park();
    here.context.set_now(20, 100);
    here.context.resume(call);
    assert_eq!(here.state.words.is_empty(), Ok(true));
    // What a packet is likely to read is found by the answer that is here.
    here.context.prefetch();
    assert_eq!(here.state.bits.is_empty(), Ok(true));
}

/// A packet that waits is called again when the table that it found empty has its first entry, and not for each one after that.
#[test]
fn the_first_entry_wakes_who_found_the_table_empty() {
    let mut here = member(0, ObjectSettings::LOCAL);
    here.context.await_for(4, 8);
    here.context.begin(1);
    here.context.note_reads(true);
    assert_eq!(here.state.words.is_empty(), Ok(true));
    here.context.await_noted(3);
    here.context.note_reads(false);
    here.write(0, 1, 1);
    assert_eq!(here.context.next_woken(), Some(3));

    here.context.note_reads(true);
    assert_eq!(here.state.words.is_empty(), Ok(false));
    here.context.await_noted(5);
    here.context.note_reads(false);
    here.write(0, 2, 1);
    assert_eq!(here.context.next_woken(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For every object: any order, any repetition, snapshot in place of log.
    #[test]
    fn operations_commute_repeat_and_equal_their_snapshot(
        writes in prop::collection::vec(any::<(u8, u8, u32, u8)>(), 1..40),
        order in any::<u64>(),
        bytes_max in 256usize..1_200,
    ) {
        let groups = written(&writes);
        let straight = applied(&groups);
        let mut shuffled = groups.clone();
        let mut bits = order | 1;
        for place in (1..shuffled.len()).rev() {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(place, (bits >> 33) as usize % (place + 1));
        }
        let mut again = shuffled.clone();
        again.extend(groups.iter().rev().cloned());
        let digests = straight.state.digests();
        prop_assert_eq!(&digests, &applied(&shuffled).state.digests(), "commutes");
        prop_assert_eq!(&digests, &applied(&again).state.digests(), "repeats without harm");
        // The snapshot alone, and the snapshot on top of a part of the log.
        for known in [0, groups.len() / 2] {
            let mut reader = applied(&shuffled[..known].to_vec());
            for part in snapshot(&straight.state, bytes_max) {
                prop_assert!(reader.state.apply_snapshot(&reader.context, &part).is_ok());
            }
            prop_assert_eq!(&digests, &reader.state.digests(), "a snapshot is the log's join");
        }
    }

    #[test]
    fn keys_values_and_rows_keep_their_laws(a: (u32, u16, u8), b: (u32, u16, u8), c: u8, seed: u64) {
        laws::value(Bits(a.2), Bits(b.2), Bits(c));
        laws::value(Word(a.0), Word(b.0), Word(a.0 ^ b.0));
        laws::value((), (), ());
        laws::row(Single(a.0), Single(b.0), seed);
        laws::row(Pair(a.1, a.2), Pair(b.1, a.2), seed);
        laws::row(Pair(a.1, a.2), Pair(a.1, b.2), seed);
        let endpoint = |(address, port, protocol)| {
            Endpoint::new(Ipv4Addr::from_bits(address), port, Protocol(protocol))
        };
        laws::row(Pair(endpoint(a), endpoint(b)), Pair(endpoint(b), endpoint(b)), seed);
        laws::row(Single(endpoint(a)), Single(endpoint(a)), seed);
    }

    #[test]
    fn keys_come_back_from_their_bytes(address: u32, port: u16, protocol: u8, wide: u128, listed: bool) {
        fn back<T: Wire + PartialEq + core::fmt::Debug>(value: T, addresses: &[u32]) {
            let mut bytes = Vec::new();
            value.encode(&mut Writer::new(&mut bytes, addresses));
            let mut input = Reader::new(&bytes, addresses);
            assert_eq!(T::decode(&mut input).as_ref(), Ok(&value));
            assert!(input.is_empty(), "all bytes are used");
            for cut in 0..bytes.len() {
                assert!(T::decode(&mut Reader::new(&bytes[..cut], addresses)).is_err());
            }
        }
        let addresses: &[u32] = if listed { &[1, address] } else { &[1] };
        let here = Ipv4Addr::from_bits(address);
        back(here, addresses);
        back(Ipv6Addr::from_bits(wide), addresses);
        back(Endpoint::new(here, port, Protocol(protocol)), addresses);
        back(Pair(here, port), addresses);
        back(Single(u64::from(address)), addresses);
        let flow = asterism_packet::Flow4 {
            source: here,
            destination: Ipv4Addr::from_bits(!address),
            source_port: port,
            destination_port: !port,
            protocol,
        };
        back(Flow4Key::from(flow), addresses);
        assert_eq!(asterism_packet::Flow4::from(Flow4Key::from(flow)), flow);
    }
}

#[test]
fn the_snapshot_of_many_writers_moves_on_in_small_parts() {
    let mut reader = member(3, ObjectSettings::REPLICATED);
    let mut writer = member(0, ObjectSettings::REPLICATED);
    let groups = writer.write(7, 1, 5);
    for member in 10..80 {
        for (sequence, bytes) in &groups {
            let name = OriginName {
                member,
                incarnation: 1,
            };
            reader
                .state
                .apply(&reader.context, name, *sequence, bytes)
                .expect("good bytes");
        }
    }
    assert_eq!(reader.state.sum.get(), Ok(350));
    let mut fresh = member(2, ObjectSettings::REPLICATED);
    for part in snapshot(&reader.state, 300) {
        fresh
            .state
            .apply_snapshot(&fresh.context, &part)
            .expect("good bytes");
    }
    assert_eq!(fresh.state.digests(), reader.state.digests());
}

#[test]
fn what_loses_is_reported_each_object_as_it_counts_it() {
    let mut here = member(0, ObjectSettings::REPLICATED);
    let mut there = member(1, ObjectSettings::REPLICATED);
    here.write(0, 1, 5);
    let name = there.name();
    for (sequence, bytes) in there.write(0, 1, 6) {
        let applied = here.state.apply(&here.context, name, sequence, &bytes);
        applied.expect("good bytes");
    }
    let reported = |object, count| {
        here.state
            .object(object)
            .map(|object| object.counts())
            .unwrap()
            .get(count)
    };
    assert_eq!(here.state.words.tally().lost_writes, 1);
    assert_eq!(reported(0, ObjectCount::LostWrites), Some(1));
    assert_eq!(reported(0, ObjectCount::Shadowed), Some(0));
    assert_eq!(
        reported(1, ObjectCount::LostWrites),
        Some(0),
        "another object"
    );
    assert_eq!(
        reported(3, ObjectCount::LostWrites),
        None,
        "a register counts none"
    );
    assert_eq!(reported(6, ObjectCount::RefusedFull), Some(0));
}

#[test]
fn own_totals_that_come_back_count_once() {
    let mut writer = member(0, ObjectSettings::REPLICATED);
    for (sequence, bytes) in writer.write(7, 1, 5) {
        let name = writer.name();
        writer
            .state
            .apply(&writer.context, name, sequence, &bytes)
            .expect("good bytes");
    }
    assert_eq!(writer.state.sum.get(), Ok(5));
    assert_eq!(writer.state.sums.get(&1), Ok(5));
}

#[test]
fn what_is_local_stays_out_of_snapshots_and_logs() {
    let mut here = member(0, ObjectSettings::LOCAL);
    for what in 0..8 {
        assert!(here.write(what, 1, 3).is_empty(), "nothing is logged");
    }
    assert!(snapshot(&here.state, 1_100).iter().all(Vec::is_empty));
}

#[test]
fn a_joined_register_that_learns_nothing_writes_nothing() {
    let mut here = member(0, ObjectSettings::REPLICATED);
    here.write(6, 0, 7);
    here.context.begin(2);
    here.state.act().flags.set(Bits(3));
    assert!(!here.context.wrote());
}

#[test]
fn a_write_after_the_removal_of_the_same_packet_revives_nothing() {
    let mut here = member(0, ObjectSettings::REPLICATED);
    here.write(1, 1, 1);
    here.context.begin(2);
    let at = here.state.bits.get(&1).expect("local").expect("inserted");
    let mut act = here.state.act();
    act.bits.remove(&at);
    act.bits.update(&at, Bits(2));
    act.bits.touch(&at);
    assert_eq!(here.state.bits.contains(&1), Ok(false));
}

#[test]
fn times_travel_in_24_bits_around_their_wrap() {
    for now in [(1u32 << 24) - 2, 1 << 24, (1 << 25) + 5, 100] {
        let mut writer = member(0, ObjectSettings::REPLICATED);
        let mut reader = member(1, ObjectSettings::REPLICATED);
        // The reader's clock is a little behind, beyond the wrap or before it.
        writer.context.set_now(0, now);
        reader.context.set_now(0, now - 5);
        for (sequence, bytes) in writer.write(0, 1, 1) {
            let name = writer.name();
            reader
                .state
                .apply(&reader.context, name, sequence, &bytes)
                .expect("good bytes");
        }
        assert_eq!(writer.state.digests(), reader.state.digests(), "at {now}");
    }
}

#[test]
fn an_entry_that_never_idles_out_may_be_removed_after_years() {
    let mut writer = member(0, ObjectSettings::REPLICATED);
    let mut reader = member(1, ObjectSettings::REPLICATED);
    let name = writer.name();
    let mut carry = |writer: &mut Member, what, now| {
        writer.context.set_now(0, now);
        reader.context.set_now(0, now);
        for (sequence, bytes) in writer.write(what, 1, 1) {
            let applied = reader.state.apply(&reader.context, name, sequence, &bytes);
            applied.expect("good bytes");
        }
        assert_eq!(writer.state.digests(), reader.state.digests(), "at {now}");
    };
    carry(&mut writer, 0, 100);
    // 150 days later: further than 24 bits reach.
    carry(&mut writer, 5, 100 + 150 * 86_400);
    carry(&mut writer, 0, 101 + 150 * 86_400);
}

#[test]
fn only_an_item_s_last_user_returns_it_and_only_once() {
    let mut owner = member(0, ObjectSettings::REPLICATED);
    let calls = Rc::new(Cell::new(0));
    let counted = calls.clone();
    owner.state.words.on_forget(0, move |_, last| {
        counted.set(counted.get() + u32::from(last))
    });
    let mut other = member(1, ObjectSettings::REPLICATED);
    let name = owner.name();
    let mut removal = Vec::new();
    for (what, keep) in [(0, false), (5, true)] {
        for (sequence, bytes) in owner.write(what, 1, 1) {
            let applied = other.state.apply(&other.context, name, sequence, &bytes);
            applied.expect("good bytes");
            if keep {
                removal.push((sequence, bytes));
            }
        }
    }
    let snapshot = snapshot(&other.state, 1_100);
    owner.context.set_stable(asterism_state::Origins::OWN, 2);
    owner.state.object_mut(0).expect("an object").sweep_share(1);
    assert_eq!((owner.state.words.held(), calls.get()), (0, 1));
    // A slow snapshot that still knows the ended entry.
    for part in snapshot {
        owner
            .state
            .apply_snapshot(&owner.context, &part)
            .expect("good bytes");
    }
    owner.state.object_mut(0).expect("an object").sweep_share(1);
    assert_eq!((owner.state.words.held(), calls.get()), (0, 1));
}

#[test]
fn a_large_group_finds_its_living_member_among_many_ended_ones() {
    use asterism_state::{Grouped, Row, Table};
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
    struct Member(u32);
    impl Row for Member {
        const UNIQUE: usize = 1;
        const LANES: usize = 2;
        fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
            asterism_state::hash::word(if lane == 0 { self.0.into() } else { 1 << 40 }, seed)
        }
        fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
            match lane {
                0 => self.encode(out),
                _ => self.group(0).encode(out),
            }
        }
        fn lane_equal(&self, lane: usize, other: &Self) -> bool {
            lane == 1 || self == other
        }
        fn order(&self, _: &Self) -> core::cmp::Ordering {
            core::cmp::Ordering::Equal
        }
    }
    impl Grouped for Member {
        type Group = u64;
        fn group(&self, _: usize) -> u64 {
            1 << 40
        }
    }
    #[state]
    struct Groups {
        members: Table<Member, ()>,
    }
    // Ended entries stay: nothing is ever stable.
    let context = member(0, ObjectSettings::REPLICATED).context;
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let mut groups = Groups {
        members: builder.table("members", 80_000, &[0]),
    };
    for number in 0..10_000 {
        context.begin(number.into());
        let vacancy = groups.members.vacancy().expect("local").expect("room");
        groups.act().members.insert(vacancy, Member(number), ());
        context.end(|_, _| {});
    }
    for left in (0..10_000).rev() {
        let some = groups.members.any_of(0, &(1 << 40)).expect("local");
        let some = some.expect("a living one is found, however many ended before it");
        groups.act().members.remove(&some);
        assert_eq!(groups.members.len_now(), left);
        context.take_groups(|_, _| {});
    }
    assert_eq!(groups.members.any_of(0, &(1 << 40)), Ok(None));
    assert_eq!(groups.members.held(), 10_000);
}

#[test]
fn what_fills_a_vacancy_is_found_by_both_keys_and_reported_as_what_is_inserted() {
    let [mut filled, mut inserted] = [(); 2].map(|()| member(0, ObjectSettings::REPLICATED));
    // A quarter of the table's 64 places.
    for (left, right) in (0..16).map(|number| (number, 200 - number)) {
        for member in [&filled, &inserted] {
            member.context.begin(left.into());
        }
        let vacancy = filled.state.pairs.vacancy_for(Pair(left, right));
        let vacancy = vacancy.expect("local");
        filled.state.act().pairs.fill(vacancy.expect("room"), ());
        let vacancy = inserted.state.pairs.vacancy().expect("local");
        inserted
            .state
            .act()
            .pairs
            .insert(vacancy.expect("room"), (left, right), ());
        for member in [&filled, &inserted] {
            member.context.end(|_, _| {});
            let pairs = &member.state.pairs;
            let found = [pairs.by_left(&left), pairs.by_right(&right)];
            let rows = found.map(|found| found.expect("local").map(|at| at.row));
            assert_eq!(rows, [Some(Pair(left, right)); 2]);
        }
        let reported = [&mut filled, &mut inserted].map(|member| {
            let Member { context, state } = member;
            groups(state, context)
        });
        assert_eq!(reported[0], reported[1]);
    }
    assert_eq!(filled.state.pairs.len_now(), 16);
}

/// A part of a snapshot may be on its way for so long that its receiver has applied a removal of what is in it, and forgotten
/// that when it was stable, though the write that it removed is not: anyone who removed it had it by a snapshot.
#[test]
fn a_late_part_of_a_snapshot_brings_nothing_back() {
    let mut writer = member(0, ObjectSettings::REPLICATED);
    let mut remover = member(3, ObjectSettings::REPLICATED);
    let mut reader = member(1, ObjectSettings::REPLICATED);
    let written = writer.write(0, 7, 5);
    let late = snapshot(&writer.state, 300);
    for part in &late {
        let applied = remover.state.apply_snapshot(&remover.context, part);
        applied.expect("good bytes");
    }
    let removed = remover.write(5, 7, 0);
    for (name, groups) in [(writer.name(), written), (remover.name(), removed)] {
        let origin = reader.context.origin(name).expect("room");
        for (sequence, bytes) in &groups {
            let context = &reader.context;
            let applied = reader.state.apply(context, name, *sequence, bytes);
            applied.expect("good bytes");
            reader.context.set_applied(origin, *sequence);
        }
        if name == remover.name() {
            reader.context.set_stable(origin, u64::MAX);
        }
    }
    reader
        .state
        .object_mut(0)
        .expect("an object")
        .sweep_share(1);
    assert_eq!(reader.state.words.get(&7).map(|at| at.is_some()), Ok(false));
    for part in &late {
        let applied = reader.state.apply_snapshot(&reader.context, part);
        applied.expect("good bytes");
    }
    assert_eq!(reader.state.words.get(&7).map(|at| at.is_some()), Ok(false));

    // Who joins is informed where streams begin for it before it has what came earlier: nothing is applied then.
    let mut fresh = member(2, ObjectSettings::REPLICATED);
    for part in &late {
        let applied = fresh.state.apply_snapshot(&fresh.context, part);
        applied.expect("good bytes");
    }
    assert_eq!(fresh.state.words.get(&7).map(|at| at.is_some()), Ok(true));
}

/// Where there is an entry it is written, where there is none one is added, and who has used up its share is informed.
#[test]
fn room_is_at_the_entry_or_in_a_new_one_or_nowhere() {
    let mut one = member(0, ObjectSettings::REPLICATED);
    let put = |one: &mut Member, key: u32, value: u32| {
        one.context.begin(u64::from(value));
        let room = one.state.words.entry(key).expect("at once");
        let before = room.value().map(|word| word.0);
        let is_full = room.is_full();
        let is_written = one.state.act().words.put(room, Word(value));
        one.context.end(|_, _| {});
        assert_eq!(is_written, !is_full);
        (before, is_written)
    };
    let mut written = 0;
    while put(&mut one, written, written) == (None, true) {
        written += 1;
    }
    assert_eq!(written, 64 / u32::from(MEMBERS), "its share of the table");
    assert_eq!(one.state.words.len_now() as u32, written);
    assert_eq!(put(&mut one, 3, 99), (Some(3), true), "it is there");
    assert_eq!(put(&mut one, 3, 100), (Some(99), true));
    assert_eq!(put(&mut one, written, 5), (None, false));
}
