//! Computes slots from takers, lines for `ip` from slots, and the share of the flow space that moves. No I/O.

use std::fmt::Write;

use super::{EcmpHop, EcmpRoute, MAIN_TABLE, ROUTE_PROTOCOL, Spread};

/// One next hop of a route: a stretch of the flow space as long as its weight among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    /// The place of its target among the hops; none if it is nobody's.
    pub(super) hop: Option<usize>,
    /// Its weight.
    pub(super) weight: u16,
}

impl NextHop {
    fn slot(hop: usize) -> NextHop {
        NextHop {
            hop: Some(hop),
            weight: 1,
        }
    }
}

/// The next hops of a route for these takers, each a hop and a weight, given those that it has. The order matters: it says
/// which flows go where.
pub(super) fn ways(
    spread: Spread,
    takers: &[(usize, u16)],
    before: Option<&[NextHop]>,
) -> Vec<NextHop> {
    let slots = match spread {
        Spread::Slots(slots) => usize::from(slots),
        Spread::Weights => {
            let way = |&(hop, weight): &(usize, u16)| NextHop {
                hop: Some(hop),
                weight,
            };
            return takers.iter().map(way).collect();
        }
    };
    let mut wanted = quotas(takers, slots);
    let mut assigned: Vec<Option<usize>> = vec![None; slots];
    for (slot, had) in assigned.iter_mut().zip(spread_out(before, slots)) {
        let Some(place) = takers.iter().position(|(hop, _)| Some(*hop) == had) else {
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
        .map(NextHop::slot)
        .collect()
}

/// The target of each slot as it is. A route with one next hop is all slots of it; any other that was not made with so
/// many slots says nothing.
fn spread_out(before: Option<&[NextHop]>, slots: usize) -> Vec<Option<usize>> {
    match before {
        Some([one]) => vec![one.hop; slots],
        Some(ways) if ways.len() == slots && ways.iter().all(|way| way.weight == 1) => {
            ways.iter().map(|way| way.hop).collect()
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

/// Whether a route is as it is to be. One next hop is one, in however many slots.
pub(super) fn same(before: &[NextHop], after: &[NextHop]) -> bool {
    before == after || (before.len() == 1 && after.iter().all(|way| way.hop == before[0].hop))
}

/// The line that makes a route so.
pub(super) fn line(route: &EcmpRoute, hops: &[EcmpHop], ways: &[NextHop]) -> String {
    let mut line = format!("route replace {route} proto {ROUTE_PROTOCOL}");
    // Writing to a string cannot fail.
    if route.table != MAIN_TABLE {
        let _ = write!(line, " table {}", route.table);
    }
    if route.metric != 0 {
        let _ = write!(line, " metric {}", route.metric);
    }
    if let Some(source) = route.source {
        let _ = write!(line, " src {source}");
    }
    let way = |hop: &EcmpHop| format!("via {} dev {} onlink", hop.gateway, hop.interface);
    let named = |way: &NextHop| way.hop.and_then(|place| hops.get(place));
    let first = ways.first().and_then(named);
    match first {
        Some(first) if ways.iter().all(|one| one.hop == ways[0].hop) => {
            let _ = write!(line, " {}", way(first));
        }
        _ => {
            for one in ways {
                let Some(hop) = named(one) else { continue };
                let _ = write!(line, " nexthop {}", way(hop));
                if one.weight != 1 {
                    let _ = write!(line, " weight {}", one.weight);
                }
            }
        }
    }
    line
}

/// How much of the flow space goes to this target, or to nobody's next hops; in thousandths, rounded down.
pub(super) fn share_permille(ways: &[NextHop], hop: Option<usize>) -> u16 {
    let sum = |ways: &mut dyn Iterator<Item = &NextHop>| -> u64 {
        ways.map(|way| u64::from(way.weight)).sum()
    };
    let total = sum(&mut ways.iter());
    let own = sum(&mut ways.iter().filter(|way| way.hop == hop));
    let share = (own * 1_000).checked_div(total).unwrap_or(0);
    u16::try_from(share).unwrap_or(1_000)
}

/// How much of the flow space has another target after than before, in thousandths, rounded up: the kernel gives each next hop
/// a stretch of the hashes as long as its weight, in their order.
pub(super) fn moved_permille(before: Option<&[NextHop]>, after: &[NextHop]) -> u16 {
    let total = |ways: &[NextHop]| -> u64 { ways.iter().map(|way| u64::from(way.weight)).sum() };
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
        if old.hop.is_some() && old.hop == new.hop {
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

    fn hops_of(ways: &[NextHop]) -> Vec<usize> {
        ways.iter().map(|way| way.hop.unwrap()).collect()
    }

    fn count(ways: &[NextHop], hop: usize) -> usize {
        ways.iter().filter(|way| way.hop == Some(hop)).count()
    }

    #[test]
    fn slots_begin_in_turn_and_in_proportion() {
        let equal = ways(Spread::Slots(6), &EQUAL, None);
        assert_eq!(hops_of(&equal), [0, 1, 2, 0, 1, 2]);
        let heavy = ways(Spread::Slots(8), &[(0, 6), (4, 2)], None);
        assert_eq!((count(&heavy, 0), count(&heavy, 4)), (6, 2));
        // However light, nobody who takes packets gets none.
        let light = ways(Spread::Slots(4), &[(0, 256), (1, 1), (2, 1)], None);
        assert_eq!((count(&light, 1), count(&light, 2)), (1, 1));
        assert_eq!(light.len(), 4);
    }

    #[test]
    fn only_slots_of_who_leaves_move_and_they_go_to_all_others() {
        let before = ways(Spread::Slots(24), &EQUAL, None);
        let without = ways(Spread::Slots(24), &[(0, 1), (2, 1)], Some(&before));
        for (old, new) in before.iter().zip(&without) {
            assert!(old.hop == Some(1) || old == new, "{before:?} {without:?}");
        }
        assert_eq!((count(&without, 0), count(&without, 2)), (12, 12));
        assert_eq!(moved_permille(Some(&before), &without), 334);
        // Back again: as few slots as make its share, half from each.
        let back = ways(Spread::Slots(24), &EQUAL, Some(&without));
        assert_eq!(moved_permille(Some(&without), &back), 334);
        for hop in 0..3 {
            assert_eq!(count(&back, hop), 8);
        }
        // What stays as it is stays where it is.
        assert_eq!(ways(Spread::Slots(24), &EQUAL, Some(&back)), back);
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
        let mut before: Option<Vec<NextHop>> = None;
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
            let after = ways(Spread::Slots(24), &takers, before.as_deref());
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
    fn routes_of_somebody_else_are_made_again() {
        let foreign = NextHop {
            hop: None,
            weight: 1,
        };
        let fresh = ways(Spread::Slots(6), &EQUAL, None);
        // Of another length, or with weights.
        let heavy = NextHop {
            hop: Some(0),
            weight: 2,
        };
        for before in [vec![foreign; 2], vec![heavy; 6], Vec::new()] {
            assert_eq!(ways(Spread::Slots(6), &EQUAL, Some(&before)), fresh);
        }
        // A single next hop is a target that had everything, and keeps its share of it.
        let one = [NextHop::slot(2)];
        let after = ways(Spread::Slots(6), &EQUAL, Some(&one));
        assert_eq!(hops_of(&after), [2, 2, 0, 1, 0, 1]);
        assert!(same(&one, &ways(Spread::Slots(6), &[(2, 1)], Some(&one))));
    }

    #[test]
    fn stretches_of_weights_move_with_their_places() {
        let three = ways(Spread::Weights, &EQUAL, None);
        for (gone, moved) in [(0, 500), (1, 334), (2, 500)] {
            let left: Vec<_> = EQUAL.into_iter().filter(|(hop, _)| *hop != gone).collect();
            let two = ways(Spread::Weights, &left, Some(&three));
            assert_eq!(moved_permille(Some(&three), &two), moved, "{gone}");
        }
        assert_eq!(moved_permille(Some(&three), &three), 0);
        assert_eq!(moved_permille(None, &three), 1_000);
        assert_eq!(share_permille(&three, Some(0)), 333);
        assert_eq!(share_permille(&three, None), 0);
        assert_eq!(share_permille(&[], Some(0)), 0);
    }

    #[test]
    fn lines_are_what_ip_takes() {
        let hop = |number: u8| EcmpHop {
            target: format!("nat-{number}"),
            gateway: [10, 0, 0, number].into(),
            interface: format!("eth{number}"),
        };
        let hops = [hop(1), hop(2)];
        let default = EcmpRoute::new([0, 0, 0, 0].into(), 0);
        let spread = ways(Spread::Weights, &[(0, 3), (1, 1)], None);
        assert_eq!(
            line(&default, &hops, &spread),
            "route replace 0.0.0.0/0 proto 77 nexthop via 10.0.0.1 dev eth1 onlink weight 3 nexthop via 10.0.0.2 dev eth2 onlink"
        );
        let full = EcmpRoute {
            table: 100,
            metric: 5,
            ..EcmpRoute::new([203, 0, 113, 0].into(), 29).from([198, 51, 100, 2].into())
        };
        let one = ways(Spread::Slots(4), &[(1, 1)], None);
        assert_eq!(
            line(&full, &hops, &one),
            "route replace 203.0.113.0/29 proto 77 table 100 metric 5 src 198.51.100.2 via 10.0.0.2 dev eth2 onlink"
        );
    }
}
