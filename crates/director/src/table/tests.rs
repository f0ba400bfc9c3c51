//! Properties of the table: shares, fewest moves, the same everywhere.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "host-6", "host-7", "host-8"];

fn space(buckets: u32, seed: u64) -> BucketSpace {
    BucketSpace::new(buckets, seed).unwrap()
}

fn share(number: usize, weight: u16) -> Share<'static> {
    Share {
        slot: Slot::new(number).unwrap(),
        name: NAMES[number],
        weight,
    }
}

fn table(space: BucketSpace, takers: &[Share<'_>]) -> Table {
    Table::new(space, takers, &[], &BTreeMap::new())
}

#[test]
fn sizes_are_powers_of_two_within_bounds() {
    for wrong in [0, 1, 128, 1_000, 65_535, 131_072] {
        assert_eq!(BucketSpace::new(wrong, 1), None, "{wrong}");
    }
    assert_eq!(space(256, 1).buckets(), 256);
    assert_eq!(space(65_536, 1).bucket(u64::MAX), 65_535);
    assert_eq!((Slot::new(63).is_some(), Slot::new(64)), (true, None));
}

/// Written down once, so that a change of the arithmetic, which would make two versions spread differently, is noticed.
#[test]
fn the_spread_is_the_same_on_every_machine() {
    let table = table(space(256, 7), &[share(0, 1), share(1, 2), share(2, 1)]);
    let counts = [0, 1, 2].map(|number| table.buckets_of(Slot::new(number).unwrap()));
    assert_eq!(counts.iter().sum::<u32>(), 256);
    let first: Vec<_> = (0..16)
        .map(|bucket| table.target(bucket).unwrap().number())
        .collect();
    assert_eq!(counts, [65, 123, 68]);
    assert_eq!(first, [1, 1, 2, 1, 0, 1, 2, 1, 0, 1, 1, 2, 2, 2, 1, 1]);
}

#[test]
fn every_share_is_within_the_stated_bound() {
    let mut outside = 0;
    for seed in 0..40 {
        let takers = [share(0, 1), share(1, 2), share(2, 5), share(3, 8)];
        let table = table(space(4_096, seed), &takers);
        for taker in takers {
            let part = f64::from(taker.weight) / 16.0;
            let found = f64::from(table.buckets_of(taker.slot)) / 4_096.0;
            let bound = 4.0 * (part * (1.0 - part) / 4_096.0).sqrt();
            outside += u32::from((found - part).abs() > bound);
        }
    }
    assert_eq!(outside, 0, "of 160 shares");
}

#[test]
fn a_drain_keeps_what_the_target_had_and_nothing_else() {
    let takers = [share(0, 1), share(1, 1)];
    let before = table(space(256, 3), &[share(0, 1), share(1, 1), share(2, 1)]);
    let drained = Table::new(space(256, 3), &takers, &[share(2, 1)], &BTreeMap::new());
    let leaver = Slot::new(2).unwrap();
    for bucket in 0..256 {
        let had = before.target(bucket).unwrap();
        match drained.bucket(bucket) {
            Bucket::Draining { to, from } => {
                assert_eq!((had, from), (leaver, leaver));
                assert_ne!(to, leaver);
            }
            Bucket::Target(to) => assert_eq!(to, had),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(drained.buckets_of(leaver), 0);
}

#[test]
fn single_buckets_move_and_stay_suspended() {
    let mut table = table(space(256, 3), &[share(0, 1), share(1, 1)]);
    let to = Slot::new(1).unwrap();
    let moved = (0..256).find(|bucket| table.target(*bucket) != Some(to));
    let moved = moved.unwrap();
    let before = table.clone();
    assert!(table.set_suspended(moved, true));
    assert_eq!(table.bucket(moved), Bucket::Suspended);
    assert!(table.move_bucket(moved, to));
    assert_eq!(table.bucket(moved), Bucket::Suspended);
    assert_eq!(table.differences(&before), 1);
    assert!(table.set_suspended(moved, false));
    assert_eq!(table.bucket(moved), Bucket::Target(to));
    assert!(!table.move_bucket(256, to) && !table.set_suspended(256, true));
    let mut empty = Table::empty(space(256, 3));
    assert!(!empty.set_suspended(0, true) && empty.target(0).is_none());
    assert!(empty.move_bucket(0, to));
    assert_eq!(empty.bucket(0), Bucket::Target(to));

    // What was moved is moved in the next table too, unless its target is gone.
    let overrides = BTreeMap::from([(moved, to)]);
    let again = Table::new(space(256, 3), &[share(0, 1), share(1, 1)], &[], &overrides);
    assert_eq!(again, table);
    assert_eq!(again.digest(), table.digest());
    assert_ne!(again.digest(), before.digest());
    assert_eq!(again.buckets_of(to), before.buckets_of(to) + 1);
    let alone = Table::new(space(256, 3), &[share(0, 1)], &[], &overrides);
    assert_eq!(alone.target(moved), Slot::new(0));
    let drains = Table::new(space(256, 3), &[share(0, 1)], &[share(1, 1)], &overrides);
    assert_eq!(
        drains.bucket(moved),
        Bucket::Draining {
            to: Slot::new(0).unwrap(),
            from: to
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Who leaves gives up its own buckets alone, and who comes takes only what it then has.
    #[test]
    fn a_change_moves_the_fewest_buckets(
        seed: u64,
        weights in prop::collection::vec(1u16..=256, 2..8),
        changed in 0usize..8,
        weight in 1u16..=256,
    ) {
        let changed = changed % weights.len();
        let all: Vec<_> = weights.iter().enumerate().map(|(number, weight)| share(number, *weight)).collect();
        let mut without = all.clone();
        let left = without.remove(changed).slot;
        let (with, without) = (table(space(512, seed), &all), table(space(512, seed), &without));
        for bucket in 0..512 {
            let before = with.target(bucket);
            prop_assert!(before == Some(left) || before == without.target(bucket));
        }
        prop_assert_eq!(with.differences(&without), with.buckets_of(left));

        // Another weight of one target moves buckets to it or from it, one way only.
        let mut heavier = all.clone();
        heavier[changed].weight = weight;
        let heavier = table(space(512, seed), &heavier);
        for bucket in 0..512 {
            let (before, after) = (with.target(bucket), heavier.target(bucket));
            let expected = if weight >= all[changed].weight { after } else { before };
            prop_assert!(before == after || expected == Some(left));
        }
    }

    /// Neither the order of targets nor their slots decide.
    #[test]
    fn only_names_weights_and_seed_decide(seed: u64, weights in prop::collection::vec(1u16..=256, 1..8), turn in 0usize..8) {
        let all: Vec<_> = weights.iter().enumerate().map(|(number, weight)| share(number, *weight)).collect();
        let mut turned: Vec<_> = all.iter().map(|one| Share {
            slot: Slot::new(63 - one.slot.number()).unwrap(),
            ..*one
        }).collect();
        turned.rotate_left(turn % weights.len());
        let (one, other) = (table(space(256, seed), &all), table(space(256, seed), &turned));
        for bucket in 0..256 {
            let mirrored = other.target(bucket).map(|slot| 63 - slot.number());
            prop_assert_eq!(one.target(bucket).map(Slot::number), mirrored);
        }
    }
}
