//! Vectors, sketches and filters: what they promise at their sizes, what they refuse, and what comes back after a stop. That
//! replicas of them agree is tested in `convergence/`.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Bloom, Builder, Context, CountMin, CountingBloom, Fetch, Identity, Map, ObjectSettings,
    OriginName, Sequencer, Since, Single, State, Vector, hash, state, write_sums,
};

use crate::manual::{groups, snapshot};

#[state]
struct Sums {
    loads: Vector,
    volumes: CountMin<u32>,
    seen: Bloom<u32>,
    present: CountingBloom<u32>,
}

const ERROR: f64 = 0.001;
const DOUBT: f64 = 0.01;
const KEYS: u32 = 10_000;
const MISTAKEN: f64 = 0.01;

struct Member {
    context: Rc<Context>,
    state: Sums,
}

fn member(place: u16, seed: u64, settings: ObjectSettings) -> Member {
    member_with(4, place, seed, settings)
}

/// A member whose vector has so many places.
fn member_with(places: u32, place: u16, seed: u64, settings: ObjectSettings) -> Member {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation: 1,
        },
        members: vec![0, 1],
        lane: (0, 1),
    };
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(identity, sequencer, seed, vec![]));
    context.set_now(0, 100);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Sums {
        loads: builder.vector("loads", places),
        volumes: builder.count_min("volumes", ERROR, DOUBT),
        seen: builder.bloom("seen", KEYS, MISTAKEN),
        present: builder.counting_bloom("present", KEYS, MISTAKEN),
    };
    Member { context, state }
}

impl Member {
    fn add_some(&mut self) {
        let mut act = self.state.act();
        act.loads.add(1, 5);
        act.loads.add(1, -9);
        act.volumes.add(&7, 1_000);
        act.seen.add(&7);
        act.present.add(&7);
    }
}

/// A key as in traffic: few have most of it.
fn skewed(draw: u64) -> u32 {
    let uniform = (hash::word(draw, 11) >> 40) as f64 / f64::from(1 << 24);
    (f64::from(KEYS).powf(uniform)) as u32
}

#[test]
fn sums_exceed_the_truth_as_seldom_as_stated() {
    let mut member = member(0, 5, ObjectSettings::LOCAL);
    let mut truth = vec![0u64; KEYS as usize + 1];
    for draw in 0..200_000 {
        let (key, amount) = (skewed(draw), draw % 1_500);
        truth[key as usize] += amount;
        member.state.act().volumes.add(&key, amount);
    }
    let total: u64 = truth.iter().sum();
    let excess = member.state.volumes.excess();
    assert!((excess - ERROR * total as f64).abs() < 1.0, "{excess}");
    let mut over = 0;
    for (key, &truth) in truth.iter().enumerate() {
        let said = member.state.volumes.get(&(key as u32)).expect("local");
        assert!(said >= truth, "{said} of {truth} for {key}");
        over += u32::from((said - truth) as f64 > excess);
    }
    assert!(
        f64::from(over) <= DOUBT * f64::from(KEYS),
        "{over} of {KEYS} keys exceed by more than the error"
    );
}

#[test]
fn filters_find_every_key_and_mistake_as_few_as_stated() {
    let mut member = member(0, 5, ObjectSettings::LOCAL);
    let mut act = member.state.act();
    for key in 0..2 * KEYS {
        act.present.add(&key);
        if key < KEYS {
            act.seen.add(&key);
        }
    }
    for key in KEYS..2 * KEYS {
        act.present.remove(&key);
    }
    let state = &member.state;
    for key in 0..KEYS {
        assert_eq!(state.seen.contains(&key), Ok(true));
        assert_eq!(state.present.contains(&key), Ok(true));
    }
    let others = 3 * KEYS..13 * KEYS;
    let count = f64::from(10 * KEYS);
    let found = |contains: &dyn Fn(&u32) -> bool| others.clone().filter(contains).count() as f64;
    let seen = found(&|key| state.seen.contains(key) == Ok(true)) / count;
    let present = found(&|key| state.present.contains(key) == Ok(true)) / count;
    for share in [seen, present] {
        assert!(
            share < MISTAKEN * 1.2 && share > MISTAKEN * 0.5,
            "a share of {share} is mistaken"
        );
    }
}

#[test]
fn a_vector_falls_below_zero_and_knows_its_ends() {
    let mut member = member(0, 5, ObjectSettings::LOCAL);
    let mut act = member.state.act();
    act.loads.add(0, 3);
    act.loads.add(2, -1);
    act.loads.add(4, -100);
    let loads = &member.state.loads;
    let held: Result<Vec<i64>, _> = (0..5).map(|place| loads.get(place)).collect();
    assert_eq!(held, Ok(vec![3, 0, -1, 0, 0]));
    assert_eq!(loads.lowest(0..9), Ok(Some(2)));
    assert_eq!(loads.lowest([3, 1]), Ok(Some(3)), "the first of equal ones");
    assert_eq!(loads.lowest([4, 5]), Ok(None));
}

/// What is added from where no packet acts counts here at once, and for the others with the next flush, once.
#[test]
fn what_is_added_later_counts_at_once_and_is_reported_once() {
    let mut one = member(0, 5, ObjectSettings::REPLICATED);
    let mut other = member(1, 5, ObjectSettings::REPLICATED);
    one.state.act().loads.add(2, 7);
    let later = one.state.loads.later();
    later.add(2, -3);
    later.add(4, -100);
    assert_eq!(one.state.loads.get(2), Ok(4));
    let name = OriginName {
        member: 0,
        incarnation: 1,
    };
    for _ in 0..2 {
        for (sequence, bytes) in groups(&mut one.state, &one.context) {
            let applied = other.state.apply(&other.context, name, sequence, &bytes);
            assert!(applied.is_ok());
        }
        for member in [&one, &other] {
            assert_eq!(member.state.loads.get(2), Ok(4));
        }
        assert_eq!(one.state.digests(), other.state.digests());
    }
}

/// Rows that come and end by own and others' writes, counted in a vector that nobody is informed of.
#[test]
fn what_a_table_turns_is_counted_by_each_replica_for_itself() {
    #[state]
    struct Counted {
        rows: Map<u32, ()>,
        counts: Vector,
    }
    let host = |place: u16| {
        let identity = Identity {
            own: OriginName {
                member: place,
                incarnation: 1,
            },
            members: vec![0, 1],
            lane: (0, 1),
        };
        let sequencer = Sequencer::Own(Cell::new(0));
        let context = Rc::new(Context::new(identity, sequencer, 5, vec![]));
        context.set_now(0, 100);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let mut rows = builder.table("rows", 64, &[10]);
        let counts = builder.own_vector("counts", 2);
        let later = counts.later();
        rows.on_turn(move |row: &Single<u32>, is_live| {
            later.add(row.0 % 2, if is_live { 1 } else { -1 });
        });
        (context, Counted { rows, counts })
    };
    let (mut one, mut other) = (host(0), host(1));
    let tell = |from: &mut (Rc<Context>, Counted), to: &mut (Rc<Context>, Counted)| {
        let name = from.0.identity().own;
        for (sequence, bytes) in groups(&mut from.1, &from.0) {
            assert!(to.1.apply(&to.0, name, sequence, &bytes).is_ok());
        }
    };
    let counts = |host: &(Rc<Context>, Counted)| [0, 1].map(|place| host.1.counts.get(place));
    let insert = |host: &mut (Rc<Context>, Counted), key| {
        let vacancy = host.1.rows.vacancy().expect("not late").expect("room");
        host.1.act().rows.insert(vacancy, key, ());
    };
    for key in 0..5 {
        insert(&mut one, key);
        // The same and more, before they hear of one another.
        insert(&mut other, key);
        insert(&mut other, key + 10);
    }
    assert_eq!(counts(&one), [Ok(3), Ok(2)]);
    tell(&mut one, &mut other);
    tell(&mut other, &mut one);
    for host in [&one, &other] {
        assert_eq!(counts(host), [Ok(6), Ok(4)]);
    }
    assert_eq!(one.1.digests(), other.1.digests());
    assert!(!snapshot(&one.1, 1_000).is_empty());
    let mut third = host(1);
    for part in snapshot(&one.1, 1_000) {
        let context = third.0.clone();
        assert!(third.1.apply_snapshot(&context, &part).is_ok());
    }
    assert_eq!(counts(&third), [Ok(6), Ok(4)], "of a snapshot too");
    // Both remove one, and both end the rest.
    for host in [&mut one, &mut other] {
        let at = host.1.rows.get(&0).expect("not late").expect("it lives");
        host.1.act().rows.remove(&at);
        host.0.set_now(0, 200);
        host.1.object_mut(0).expect("an object").sweep_share(1);
    }
    tell(&mut one, &mut other);
    tell(&mut other, &mut one);
    for host in [&one, &other] {
        assert_eq!((counts(host), host.1.rows.len_now()), ([Ok(0), Ok(0)], 0));
    }
}

#[test]
fn reads_are_late_where_they_are_to_be() {
    let late = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let mut member = member(0, 5, late);
    member.add_some();
    member.context.begin(1);
    let Member { context, state } = &member;
    assert!(state.loads.get(1).is_err());
    assert!(state.volumes.get(&7).is_err());
    assert!(state.seen.contains(&7).is_err());
    assert!(state.present.contains(&7).is_err());
    assert_eq!(state.loads.get(9), Ok(0), "there is no such place");
    let (call, _) = context.park();
    context.set_now(20, 100);
    context.resume(call);
    assert_eq!(state.loads.get(1), Ok(-4));
    assert_eq!(state.volumes.get(&7), Ok(1_000));
    assert_eq!(state.seen.contains(&7), Ok(true));
    assert_eq!(state.present.contains(&7), Ok(true));
}

#[test]
fn what_names_no_place_is_refused() {
    let mut writer = member(0, 5, ObjectSettings::REPLICATED);
    let mut reader = member(1, 5, ObjectSettings::REPLICATED);
    writer.add_some();
    let from = writer.context.identity().own;
    for (sequence, group) in groups(&mut writer.state, &writer.context) {
        reader
            .state
            .apply(&reader.context, from, sequence, &group)
            .expect("well formed");
    }
    assert_eq!(reader.state.digests(), writer.state.digests());
    let before = reader.state.digests();
    // Object, lane, place, total; of the filter: object, word, bits.
    let beyond: [&[u8]; 4] = [
        &[0, 0, 4, 1],
        &[1 << 3, 0, 0xff, 0xff, 0xff, 0x7f, 1],
        &[2 << 3, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0],
        &[3 << 3, 0, 0xff, 0xff, 0xff, 0x7f, 1],
    ];
    for group in beyond {
        assert!(reader.state.apply(&reader.context, from, 9, group).is_err());
    }
    assert_eq!(reader.state.digests(), before);
}

#[test]
fn a_snapshot_of_other_sizes_or_of_another_cluster_is_refused() {
    let mut writer = member(0, 5, ObjectSettings::REPLICATED);
    writer.add_some();
    groups(&mut writer.state, &writer.context);
    let parts = snapshot(&writer.state, 1_100);
    for (seed, joins) in [(5, true), (6, false)] {
        let mut reader = member(1, seed, ObjectSettings::REPLICATED);
        // Others are known by their first group.
        reader
            .state
            .apply(&reader.context, writer.context.identity().own, 1, &[])
            .expect("an empty group");
        let read = parts
            .iter()
            .try_for_each(|part| reader.state.apply_snapshot(&reader.context, part));
        assert_eq!(read.is_ok(), joins, "seed {seed}");
        assert_eq!(reader.state.digests() == writer.state.digests(), joins);
    }
}

#[test]
fn what_was_saved_goes_on_unless_its_places_mean_nothing_now() {
    let mut writer = member(0, 5, ObjectSettings::REPLICATED);
    writer.add_some();
    groups(&mut writer.state, &writer.context);
    let parts = snapshot(&writer.state, 1_100);
    let since = Since {
        saved: 100,
        away: 1,
    };
    for (seed, volume, found, places, load) in [
        (5, 1_000, true, 4, -4),
        (6, 0, false, 4, -4),
        (5, 1_000, true, 2, -4),
        // The place is gone; all else comes back.
        (5, 1_000, true, 1, 0),
    ] {
        let mut restored = member_with(places, 0, seed, ObjectSettings::REPLICATED);
        let mut taken = 0;
        for part in &parts {
            taken += restored
                .state
                .restore(&restored.context, part, &since)
                .expect("what was saved can be read");
        }
        assert_eq!(restored.state.loads.get(1), Ok(load), "{places} places");
        assert_eq!(restored.state.volumes.get(&7), Ok(volume));
        assert_eq!(restored.state.seen.contains(&7), Ok(found));
        assert_eq!(restored.state.present.contains(&7), Ok(found));
        // As writes of its own, which reach others.
        let written = groups(&mut restored.state, &restored.context);
        assert_eq!(written.is_empty(), taken == 0);
        assert_eq!(taken > 0, found || load != 0);
    }
}

/// Sums that a store says are those of places that there are, whatever else it says.
#[test]
fn sums_of_a_store_are_of_places_that_there_are() {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 5, vec![]));
    let builder = Builder::new(context, |name| match name {
        "rows" => ObjectSettings::REMOTE,
        _ => ObjectSettings::LOCAL,
    });
    let mut rows: Map<u32, ()> = builder.table("rows", 64, &[10]);
    let mut counts = builder.own_vector("counts", 3);
    rows.counted_in(&mut counts, |row: &Single<u32>| row.0 % 3);
    let known = |counts: &Vector| [0, 1, 2, 9].map(|place| counts.known(place));
    assert_eq!(known(&counts), [0; 4]);
    let said: [(&[u8], i64); 4] = [(b"9", 7), (b"2", -4), (b"x", 1), (b"1", 5)];
    let mut answer = Vec::new();
    write_sums(said, &mut answer);
    counts.note_sums(&answer);
    assert_eq!(known(&counts), [0, 5, -4, 0]);
    // It says the same place again and again.
    let again = (0..1_000).map(|_| (&b"1"[..], 5));
    answer.clear();
    write_sums(again, &mut answer);
    counts.note_sums(&answer);
    assert_eq!(known(&counts), [0, 5, 0, 0]);
    counts.note_sums(&[0, 0, 1]);
    assert_eq!(known(&counts), [0; 4], "that is no answer");
}
