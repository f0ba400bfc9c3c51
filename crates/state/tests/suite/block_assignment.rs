//! Who holds the parts of the ports that members had who left: how they are dealt out and come back, and their bytes.

use std::collections::BTreeMap;

use asterism_state::{BlockAssignment, PARTITIONS};

/// More bytes than the assignment of any cluster has.
const LONGER_THAN_ANY: usize = 1 << 16;

fn counts(assignment: &BlockAssignment, members: &[u16]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for &home in members {
        for partition in 0..PARTITIONS {
            *counts
                .entry(assignment.holder(home, partition))
                .or_default() += 1;
        }
    }
    counts
}

#[test]
fn what_the_dead_held_is_dealt_evenly_and_comes_back() {
    let all = [1, 2, 3, 4];
    let mut assignment = BlockAssignment::default();
    assignment.leave(2, &[1, 3, 4], 5);
    assert_eq!(
        counts(&assignment, &all),
        [(1, 16), (3, 16), (4, 16)].into(),
        "a place's partitions among three"
    );
    assignment.leave(3, &[1, 4], 6);
    assert_eq!(counts(&assignment, &all), [(1, 24), (4, 24)].into());
    assert_eq!(assignment.dealt[&2].past, [2, 3]);
    assert_eq!(
        (assignment.dealt[&2].since, assignment.dealt[&3].since),
        (6, 6)
    );
    assignment.fence(2, 7);
    let read = BlockAssignment::from_bytes(&assignment.to_bytes());
    assert_eq!(read.as_ref(), Some(&assignment));
    assignment.come_back(2, 7);
    assert!((0..PARTITIONS).all(|partition| assignment.holder(2, partition) == 2));
    assert_eq!(assignment.dealt[&2].past, [1, 2, 3, 4]);
    assert!(assignment.fenced.is_empty());
    assignment.come_back(2, 8);
    assert_eq!(assignment.dealt[&2].since, 7, "nothing changed hands");
    assignment.leave(1, &[], 9);
    assert_eq!(assignment.dealt.len(), 2, "there is nobody to deal to");
}

#[test]
fn places_that_nobody_has_are_dealt_and_a_newcomer_gets_its_part() {
    let all: Vec<u16> = (1..=16).collect();
    let mut assignment = BlockAssignment::default();
    for free in 4..=16 {
        assignment.deal_unclaimed(free, &[1, 2, 3], 1);
    }
    assert_eq!(
        counts(&assignment, &all),
        [(1, 64), (2, 64), (3, 64)].into()
    );
    assert!(assignment.dealt.values().all(|dealt| dealt.past.is_empty()));
    let before = assignment.clone();
    assignment.deal_unclaimed(9, &[1], 2);
    assert_eq!(assignment, before, "it was dealt before");

    assignment.come_back(4, 2);
    assignment.spread(&[4], &[1, 2, 3, 4], 2);
    assert_eq!(
        counts(&assignment, &all),
        [(1, 48), (2, 48), (3, 48), (4, 48)].into()
    );
    for (home, dealt) in &assignment.dealt {
        let was = &before.dealt[home];
        for (then, now) in was.partitions.iter().zip(&dealt.partitions) {
            let is_kept = then == now;
            assert!(
                is_kept || (*now == 4 && dealt.past.contains(then)),
                "{home}"
            );
            assert!(is_kept || dealt.since == 2, "{home}");
        }
    }

    // What the dead held is nobody's to give until its flows have gone quiet.
    assignment.leave(2, &[1, 3, 4], 3);
    let dead: Vec<u16> = (5..=16)
        .filter(|home| assignment.dealt[home].past.contains(&2))
        .collect();
    assert!(!dead.is_empty());
    let before = assignment.clone();
    assignment.come_back(5, 4);
    assignment.spread(&[5], &[1, 3, 4, 5], 4);
    for home in dead.iter().filter(|home| **home != 5) {
        assert_eq!(assignment.dealt[home], before.dealt[home], "{home}");
    }
    let held = counts(&assignment, &all);
    assert_eq!(held.values().sum::<usize>(), 16 * PARTITIONS);
    assert!(held.keys().all(|holder| [1, 3, 4, 5].contains(holder)));
    assignment.spread(&[], &[1, 3, 4, 5], 5);
    assignment.spread(&[9], &[1, 3, 4, 5], 5);
    assert!(assignment.dealt.values().all(|dealt| dealt.since < 5));
}

#[test]
fn bytes_that_are_none_are_refused() {
    let mut assignment = BlockAssignment::default();
    assignment.leave(1, &[0, 2], 3);
    assignment.fence(1, 1);
    let bytes = assignment.to_bytes();
    for length in 1..bytes.len() {
        // Where it ends behind an entry it is a shorter one.
        if let Some(shorter) = BlockAssignment::from_bytes(&bytes[..length]) {
            assert!(shorter.fenced.is_empty() && shorter.dealt == assignment.dealt);
        }
    }
    assert_eq!(
        BlockAssignment::from_bytes(&[]),
        Some(BlockAssignment::default())
    );
    assert_eq!(BlockAssignment::from_bytes(&vec![0; LONGER_THAN_ANY]), None);
}
