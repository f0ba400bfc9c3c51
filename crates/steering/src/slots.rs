//! Slots: equal parts of the flow space, each of which leads to one target. Drivers that write slots share this plan, by which a
//! change moves as few of them as it can. No I/O.

/// A stretch of the flow space, as long as its weight among all: a slot, or a next hop with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The place of its target among the driver's; none if it is nobody's.
    pub(super) target: Option<usize>,
    /// Its weight; 1 of a slot.
    pub(super) weight: u16,
}

impl Stretch {
    /// A slot that leads to a target.
    pub(super) fn slot(target: usize) -> Stretch {
        Stretch {
            target: Some(target),
            weight: 1,
        }
    }
}

/// Assigns slots to these takers, each a target and a weight, given the stretches as they are. There are as many slots as takers
/// or more.
pub(super) fn assign(
    slots: usize,
    takers: &[(usize, u16)],
    before: Option<&[Stretch]>,
) -> Vec<Stretch> {
    let mut wanted = quotas(takers, slots);
    let mut assigned: Vec<Option<usize>> = vec![None; slots];
    for (slot, had) in assigned.iter_mut().zip(spread_out(before, slots)) {
        let Some(place) = takers.iter().position(|(target, _)| Some(*target) == had) else {
            continue;
        };
        if wanted[place] > 0 {
            wanted[place] -= 1;
            *slot = had;
        }
    }
    // What is free goes in turn to who lacks most of what it lacked at first, so that a target's slots lie apart and what
    // it leaves behind one day goes to all others.
    let lacking = wanted.clone();
    let lacks = |wanted: &[usize], place: usize| {
        // As a share of what it lacked, in whole numbers.
        (wanted[place] * slots)
            .checked_div(lacking[place])
            .unwrap_or(0)
    };
    let next = |wanted: &mut Vec<usize>| {
        let most = (0..takers.len())
            .filter(|place| wanted[*place] > 0)
            .max_by_key(|place| (lacks(wanted, *place), usize::MAX - place))?;
        wanted[most] -= 1;
        Some(takers[most].0)
    };
    assigned
        .into_iter()
        .filter_map(|slot| slot.or_else(|| next(&mut wanted)))
        .map(Stretch::slot)
        .collect()
}

/// The target of each slot as it is. A single stretch is all slots of its target; any other that was not made with so
/// many slots says nothing.
fn spread_out(before: Option<&[Stretch]>, slots: usize) -> Vec<Option<usize>> {
    match before {
        Some([one]) => vec![one.target; slots],
        Some(ways) if ways.len() == slots && ways.iter().all(|way| way.weight == 1) => {
            ways.iter().map(|way| way.target).collect()
        }
        _ => vec![None; slots],
    }
}

/// How many slots each taker gets: by weight, at least one, and all of them together. There are as many slots as takers or
/// more.
fn quotas(takers: &[(usize, u16)], slots: usize) -> Vec<usize> {
    let total: usize = takers.iter().map(|(_, weight)| usize::from(*weight)).sum();
    let mut quotas = vec![1; takers.len()];
    // Anyone who is furthest below its due gets the next one.
    for _ in takers.len()..slots {
        let most = (0..takers.len()).max_by_key(|place| {
            let due = usize::from(takers[*place].1) * slots;
            let has = quotas[*place] * total;
            (due as i64 - has as i64, usize::MAX - place)
        });
        if let Some(most) = most {
            quotas[most] += 1;
        }
    }
    quotas
}

/// How much of the flow space goes to this target, or to nobody's stretches; in thousandths, rounded down.
pub(super) fn share_permille(ways: &[Stretch], target: Option<usize>) -> u16 {
    let sum = |ways: &mut dyn Iterator<Item = &Stretch>| -> u64 {
        ways.map(|way| u64::from(way.weight)).sum()
    };
    let total = sum(&mut ways.iter());
    let own = sum(&mut ways.iter().filter(|way| way.target == target));
    let share = (own * 1_000).checked_div(total).unwrap_or(0);
    u16::try_from(share).unwrap_or(1_000)
}

/// How much of the flow space has another target after than before, in thousandths, rounded up: each stretch is as long as its
/// weight, in their order.
pub(super) fn moved_permille(before: Option<&[Stretch]>, after: &[Stretch]) -> u16 {
    let total = |ways: &[Stretch]| -> u64 { ways.iter().map(|way| u64::from(way.weight)).sum() };
    let before = before.unwrap_or_default();
    let (all_before, all_after) = (total(before), total(after));
    if all_before == 0 || all_after == 0 {
        return 1_000;
    }
    // Both lists on one scale, whose length is the product of both totals.
    let (mut places, mut ends) = ([0, 0], [0, 0]);
    let (mut at, mut stays) = (0, 0);
    while let (Some(old), Some(new)) = (before.get(places[0]), after.get(places[1])) {
        let old_end = ends[0] + u64::from(old.weight) * all_after;
        let new_end = ends[1] + u64::from(new.weight) * all_before;
        let end = old_end.min(new_end);
        if old.target.is_some() && old.target == new.target {
            stays += end - at;
        }
        at = end;
        if old_end == end {
            places[0] += 1;
            ends[0] = old_end;
        }
        if new_end == end {
            places[1] += 1;
            ends[1] = new_end;
        }
    }
    let whole = all_before * all_after;
    let moved = ((whole - stays) * 1_000).div_ceil(whole);
    u16::try_from(moved).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EQUAL: [(usize, u16); 3] = [(0, 1), (1, 1), (2, 1)];

    fn targets_of(ways: &[Stretch]) -> Vec<usize> {
        ways.iter().map(|way| way.target.unwrap()).collect()
    }

    fn count(ways: &[Stretch], hop: usize) -> usize {
        ways.iter().filter(|way| way.target == Some(hop)).count()
    }

    #[test]
    fn slots_begin_in_turn_and_in_proportion() {
        let equal = assign(6, &EQUAL, None);
        assert_eq!(targets_of(&equal), [0, 1, 2, 0, 1, 2]);
        let heavy = assign(8, &[(0, 6), (4, 2)], None);
        assert_eq!((count(&heavy, 0), count(&heavy, 4)), (6, 2));
        // However light, nobody who takes packets gets none.
        let light = assign(4, &[(0, 256), (1, 1), (2, 1)], None);
        assert_eq!((count(&light, 1), count(&light, 2)), (1, 1));
        assert_eq!(light.len(), 4);
    }

    #[test]
    fn only_slots_of_who_leaves_move_and_they_go_to_all_others() {
        let before = assign(24, &EQUAL, None);
        let without = assign(24, &[(0, 1), (2, 1)], Some(&before));
        for (old, new) in before.iter().zip(&without) {
            assert!(
                old.target == Some(1) || old == new,
                "{before:?} {without:?}"
            );
        }
        assert_eq!((count(&without, 0), count(&without, 2)), (12, 12));
        assert_eq!(moved_permille(Some(&before), &without), 334);
        // Back again: as few slots as make its share, half from each.
        let back = assign(24, &EQUAL, Some(&without));
        assert_eq!(moved_permille(Some(&without), &back), 334);
        for hop in 0..3 {
            assert_eq!(count(&back, hop), 8);
        }
        // What stays as it is stays where it is.
        assert_eq!(assign(24, &EQUAL, Some(&back)), back);
    }

    /// Any change keeps what it may: a slot moves only if its target gets fewer than before.
    #[test]
    fn no_change_moves_more_than_it_must() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut before: Option<Vec<Stretch>> = None;
        for _ in 0..500 {
            let mut takers = Vec::new();
            for hop in 0..8 {
                if draw(3) > 0 {
                    takers.push((hop, draw(4) as u16 + 1));
                }
            }
            if takers.is_empty() {
                takers.push((draw(8) as usize, 1));
            }
            let after = assign(24, &takers, before.as_deref());
            assert_eq!(after.len(), 24);
            assert!(
                takers.iter().all(|(hop, _)| count(&after, *hop) > 0),
                "{takers:?} {after:?}"
            );
            if let Some(before) = &before {
                let moved = before
                    .iter()
                    .zip(&after)
                    .filter(|(old, new)| old != new)
                    .count();
                let lost: usize = (0..8)
                    .map(|hop| count(before, hop).saturating_sub(count(&after, hop)))
                    .sum();
                assert_eq!(moved, lost, "{before:?} {after:?}");
            }
            before = Some(after);
        }
    }

    #[test]
    fn stretches_of_somebody_else_are_made_again() {
        let foreign = Stretch {
            target: None,
            weight: 1,
        };
        let fresh = assign(6, &EQUAL, None);
        // Of another length, or with weights.
        let heavy = Stretch {
            target: Some(0),
            weight: 2,
        };
        for before in [vec![foreign; 2], vec![heavy; 6], Vec::new()] {
            assert_eq!(assign(6, &EQUAL, Some(&before)), fresh);
        }
        // A single next hop is a target that had everything, and keeps its share of it.
        let one = [Stretch::slot(2)];
        let after = assign(6, &EQUAL, Some(&one));
        assert_eq!(targets_of(&after), [2, 2, 0, 1, 0, 1]);
        assert_eq!(assign(6, &[(2, 1)], Some(&one)), [Stretch::slot(2); 6]);
    }
}
