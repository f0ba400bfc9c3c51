//! Whatever can run out is dealt so that nobody needs to ask and nothing runs out elsewhere.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Counters, Identity, Map, ObjectSettings, OriginName, Pool, Sequencer, Set,
    Since, Space, State, state,
};

use crate::convergence::shared::Score;

fn instances(hosts: u16, lanes: u16) -> Vec<Rc<Context>> {
    let members: Vec<u16> = (0..hosts).map(|host| 3 + 5 * host).collect();
    (0..hosts)
        .flat_map(|host| (0..lanes).map(move |lane| (host, lane)))
        .map(|(host, lane)| {
            let own = OriginName {
                member: members[usize::from(host)],
                incarnation: 1,
            };
            let identity = Identity {
                own,
                members: members.clone(),
                lane: (lane, lanes),
            };
            let sequencer = Sequencer::Own(Cell::new(0));
            let context = Context::new(identity, sequencer, 7, vec![]);
            context.set_now(0, 10);
            Rc::new(context)
        })
        .collect()
}

/// BlockAllocator and items of any number; an item is (range, place).
#[derive(Debug)]
pub struct BlockAllocator(pub u32, pub u32);

impl Space for BlockAllocator {
    type Item = (u32, u32);
    fn ranges(&self) -> u32 {
        self.0
    }
    fn items(&self) -> u32 {
        self.1
    }
    fn item(&self, range: u32, place: u32) -> (u32, u32) {
        assert!(range < self.0 && place < self.1, "no item of this pool");
        (range, place)
    }
    fn place(&self, item: &(u32, u32)) -> Option<(u32, u32)> {
        (item.0 < self.0 && item.1 < self.1).then_some(*item)
    }
}

#[state]
struct Leased {
    pool: Pool<BlockAllocator>,
}

fn pool(context: &Rc<Context>, ranges: u32, items: u32) -> Leased {
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    Leased {
        pool: builder.pool("pool", BlockAllocator(ranges, items)),
    }
}

#[test]
fn every_item_is_leased_to_exactly_one_instance_and_granted_once() {
    for (hosts, lanes) in (1..=5).flat_map(|hosts| (1..=3).map(move |lanes| (hosts, lanes))) {
        for (ranges, items) in [
            (1, 1),
            (1, 63),
            (2, 64),
            (3, 65),
            (4, 1000),
            (2, 0),
            (7, 130),
        ] {
            let contexts = instances(hosts, lanes);
            let mut leased: Vec<Leased> = contexts
                .iter()
                .map(|context| pool(context, ranges, items))
                .collect();
            let all: u32 = leased.iter().map(|leased| leased.pool.usage().leased).sum();
            assert_eq!(all, ranges * items, "the shares add up");
            for item in (0..ranges).flat_map(|range| (0..items).map(move |place| (range, place))) {
                let owners = leased.iter().filter(|leased| leased.pool.is_own(&item));
                assert_eq!(owners.count(), 1, "{item:?} of {hosts} × {lanes}");
            }
            let mut granted = std::collections::BTreeSet::new();
            for (leased, context) in leased.iter_mut().zip(&contexts) {
                for range in 0..ranges {
                    for wish in 0.. {
                        context.begin(wish);
                        // Wishes beyond the range too: they are wishes.
                        let wish = (wish * 37) as u32 % (items * 2 + 1);
                        let grant = leased.pool.grant(range, wish).expect("never late");
                        let Some(grant) = grant else { break };
                        assert!(leased.pool.is_own(&grant.item()));
                        assert!(granted.insert(leased.act().pool.take(grant)));
                        context.end(|_, _| panic!("a spent grant does not return"));
                    }
                }
                let usage = leased.pool.usage();
                assert_eq!(usage.in_use, usage.leased);
                assert!(leased.pool.grant(ranges, 0).expect("never late").is_none());
            }
            assert_eq!(granted.len() as u32, ranges * items, "none is lost");
            for leased in &leased {
                let returns = leased.pool.returns();
                granted.iter().for_each(|item| returns.item(item));
                // Once more, and items of no pool: no harm.
                granted.iter().for_each(|item| returns.item(item));
                returns.item(&(ranges, 0));
                assert_eq!(leased.pool.usage().in_use, 0);
            }
        }
    }
}

/// Members need not know how many instances the others run.
pub fn members_with_different_numbers_of_instances_share_no_item() {
    let leased: Vec<Leased> = [1, 3, 2]
        .into_iter()
        .enumerate()
        .flat_map(|(host, lanes)| {
            let own = instances(3, lanes).into_iter();
            own.skip(host * usize::from(lanes)).take(lanes.into())
        })
        .map(|context| pool(&context, 3, 1_500))
        .collect();
    for item in (0..3).flat_map(|range| (0..1_500).map(move |place| (range, place))) {
        let owners = leased.iter().filter(|leased| leased.pool.is_own(&item));
        assert_eq!(owners.count(), 1, "{item:?}");
    }
}

#[test]
fn a_retry_that_asks_for_another_shelf_gets_one_of_that() {
    let context = instances(1, 1).remove(0);
    let leased = pool(&context, 2, 100);
    context.begin(1);
    let first = leased.pool.grant(0, 5).expect("never late");
    assert_eq!(first.map(|grant| grant.item()), Some((0, 5)));
    let (call, _) = context.park();
    context.resume(call);
    let second = leased.pool.grant(1, 5).expect("never late");
    assert_eq!(second.map(|grant| grant.item()), Some((1, 5)));
    let back = leased.pool.grant(0, 5).expect("never late");
    assert_eq!(back.map(|grant| grant.item()), Some((0, 5)));
    context.end(|object, number| {
        leased.give_back(object, number);
    });
    assert_eq!(leased.pool.usage().in_use, 0);
}

#[state]
struct Tables {
    keys: Set<u32>,
    values: Map<u32, Score>,
    counted: Counters<u32>,
}

fn tables(context: &Rc<Context>, capacity: u32) -> Tables {
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    Tables {
        keys: builder.table("keys", capacity, &[0]),
        values: builder.table("values", capacity, &[5]),
        counted: builder.counters("counted", capacity),
    }
}

/// Fills one instance's share with keys of its own; returns the groups.
fn fill(tables: &mut Tables, context: &Context, mut key: u32) -> Vec<(u64, Vec<u8>)> {
    loop {
        key += 1;
        context.begin(key.into());
        let tally = tables.counted.find(&key).expect("not late");
        let (Ok(keys), Ok(values)) = (tables.keys.vacancy(), tables.values.vacancy()) else {
            panic!("never late");
        };
        if keys.is_none() && values.is_none() && tally.is_none() {
            break;
        }
        let mut act = tables.act();
        if let Some(vacancy) = keys {
            act.keys.insert(vacancy, key, ());
        }
        if let Some(vacancy) = values {
            act.values.insert(vacancy, key, Score(1));
        }
        if let Some(tally) = tally {
            act.counted.add(&tally, 1);
        }
        context.end(|_, _| {});
    }
    let mut bytes = usize::MAX;
    tables.object_mut(2).expect("an object").flush(&mut bytes);
    context.end(|_, _| {});
    taken(context)
}

fn taken(context: &Context) -> Vec<(u64, Vec<u8>)> {
    let mut groups = Vec::new();
    context.take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
    groups
}

/// Members that cannot hear each other fill their shares; all of it fits everywhere afterwards.
pub fn partitioned_members_fill_their_shares() {
    for (hosts, lanes, capacity) in [(2, 1, 40), (3, 2, 40), (5, 1, 3), (4, 1, 64)] {
        let contexts = instances(hosts, lanes);
        let mut all: Vec<Tables> = contexts
            .iter()
            .map(|context| tables(context, capacity))
            .collect();
        let written: Vec<_> = (0..all.len())
            .map(|at| fill(&mut all[at], &contexts[at], 10_000 * at as u32))
            .collect();
        let mut entries = None;
        for (at, tables) in all.iter_mut().enumerate() {
            assert!(!tables.keys.is_empty_now(), "everybody has some room");
            for (from, groups) in written.iter().enumerate().filter(|&(from, _)| from != at) {
                // Lanes of one host write one stream; here each has numbers of its own.
                let name = OriginName {
                    member: 1_000 + from as u16,
                    incarnation: 1,
                };
                for (sequence, group) in groups {
                    tables
                        .apply(&contexts[at], name, *sequence, group)
                        .expect("good bytes");
                }
            }
            assert_eq!(tables.keys.tally().refused_full, 0, "{hosts} × {lanes}");
            assert_eq!(tables.values.tally().refused_full, 0);
            assert_eq!(tables.counted.refused_full(), 0);
            let held = (tables.keys.len_now(), tables.values.len_now());
            assert_eq!(*entries.get_or_insert(held), held);
        }
    }
}

#[test]
fn members_of_any_size_share_no_item() {
    members_with_different_numbers_of_instances_share_no_item();
}

#[test]
fn shares_fit_everywhere() {
    partitioned_members_fill_their_shares();
}

/// A member forgets and fills its share again while another cannot forget yet.
#[test]
fn a_share_used_again_fits_where_it_is_not_forgotten_yet() {
    let contexts = instances(2, 1);
    let (near, far) = (&contexts[0], &contexts[1]);
    let (mut here, mut there) = (tables(near, 64), tables(far, 64));
    let name = near.identity().own;
    let mut last = 0;
    for round in 0..3u32 {
        let mut groups = fill(&mut here, near, 100_000 * (round + 1));
        let mut rows = Vec::new();
        here.keys.for_each(|row, _| rows.push(row.0));
        assert_eq!(rows.len(), 32, "the whole share again");
        for key in rows {
            near.begin(0);
            let at = here.keys.get(&key).expect("not late").expect("it is there");
            here.act().keys.remove(&at);
            near.end(|_, _| {});
        }
        groups.extend(taken(near));
        for (sequence, group) in groups {
            there
                .apply(far, name, sequence, &group)
                .expect("good bytes");
            last = sequence;
        }
        assert_eq!(there.keys.tally().refused_full, 0, "round {round}");
        // Stable here at once, there a round later.
        near.set_stable(asterism_state::Origins::OWN, last);
        here.object_mut(0).expect("an object").sweep_share(1);
        assert_eq!(here.keys.held(), 0);
        if round > 0 {
            far.set_stable(far.origin(name).expect("known"), last);
            there.object_mut(0).expect("an object").sweep_share(1);
        }
    }
}

#[state]
struct Counted {
    counted: Counters<u32>,
}

fn counted(context: &Rc<Context>, capacity: u32) -> Counted {
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    Counted {
        counted: builder.counters("counted", capacity),
    }
}

/// Starts keys from this one on, at most so many, and tells how many it could.
fn start(counted: &mut Counted, context: &Context, first: u32, most: u32) -> u32 {
    let mut started = 0;
    for key in first..first + most {
        context.begin(key.into());
        if let Some(tally) = counted.counted.find(&key).expect("not late") {
            counted.act().counted.add(&tally, 1);
            started += 1;
        }
        context.end(|_, _| {});
    }
    started
}

/// What everybody wrote, applied by all others.
fn exchange(all: &mut [Counted], contexts: &[Rc<Context>]) {
    let written: Vec<_> = all
        .iter_mut()
        .zip(contexts)
        .map(|(counted, context)| {
            let mut bytes = usize::MAX;
            counted.object_mut(0).expect("an object").flush(&mut bytes);
            context.end(|_, _| {});
            taken(context)
        })
        .collect();
    for (at, counted) in all.iter_mut().enumerate() {
        for (from, groups) in written.iter().enumerate().filter(|&(from, _)| from != at) {
            let name = contexts[from].identity().own;
            for (sequence, group) in groups {
                counted
                    .apply(&contexts[at], name, *sequence, group)
                    .expect("good bytes");
            }
        }
    }
}

fn assert_all_fits(all: &[Counted], keys: usize) {
    for counted in all {
        assert_eq!(counted.counted.refused_full(), 0);
        assert_eq!(counted.digests(), all[0].digests());
        let mut count = 0;
        counted.counted.for_each(|_, _| count += 1);
        assert_eq!(count, keys);
    }
}

/// Keys of a saved state, and of earlier incarnations, count against nobody's share: what all start beside them fits everywhere.
#[test]
fn keys_that_count_against_nobody_leave_room_for_what_others_start() {
    const CAPACITY: u32 = 300;
    let since = Since { saved: 10, away: 0 };
    // Each starts one key within the lag, or its whole share in a partition.
    for (each, saved_keys) in [(1, CAPACITY - 1), (CAPACITY, CAPACITY - 1), (CAPACITY, 0)] {
        let mut saved = Vec::new();
        let alone = instances(1, 1);
        let mut all_keys = counted(&alone[0], CAPACITY);
        assert_eq!(start(&mut all_keys, &alone[0], 0, saved_keys), saved_keys);
        all_keys
            .object_mut(0)
            .expect("an object")
            .flush(&mut { usize::MAX });
        all_keys.snapshot((0, 0), usize::MAX, &mut saved);

        let contexts = instances(3, 1);
        let mut all: Vec<Counted> = contexts
            .iter()
            .map(|context| counted(context, CAPACITY))
            .collect();
        let restored = all[0].restore(&contexts[0], &saved, &since);
        assert_eq!(restored, Ok(saved_keys));
        exchange(&mut all, &contexts);
        assert_all_fits(&all, saved_keys as usize);
        let mut keys = saved_keys;
        for (at, context) in contexts.iter().enumerate() {
            let started = start(&mut all[at], context, 10_000 * (1 + at as u32), each);
            assert!(started > 0);
            keys += started;
        }
        exchange(&mut all, &contexts);
        assert_all_fits(&all, keys as usize);
        // Nobody starts one who knows that it is full.
        for (at, context) in contexts.iter().enumerate() {
            assert_eq!(start(&mut all[at], context, 90_000, 5), 0);
        }
    }
}

/// A saved state of a greater capacity takes none of the room that others' keys need.
#[test]
fn no_more_keys_are_restored_than_the_capacity() {
    let alone = instances(1, 1);
    let mut larger = counted(&alone[0], 100);
    assert_eq!(start(&mut larger, &alone[0], 0, 100), 100);
    larger
        .object_mut(0)
        .expect("an object")
        .flush(&mut { usize::MAX });
    let mut saved = Vec::new();
    larger.snapshot((0, 0), usize::MAX, &mut saved);

    let contexts = instances(2, 1);
    let mut all = [counted(&contexts[0], 40), counted(&contexts[1], 40)];
    let since = Since { saved: 10, away: 0 };
    assert_eq!(all[0].restore(&contexts[0], &saved, &since), Ok(40));
    assert_eq!(all[0].counted.refused_full(), 60, "left out, and counted");
    assert!(start(&mut all[1], &contexts[1], 10_000, 40) > 0);
    exchange(&mut all, &contexts);
    assert_eq!(all[1].counted.refused_full(), 0);
    assert_eq!(all[0].counted.refused_full(), 60);
    assert_eq!(all[0].digests(), all[1].digests());
}
