//! Computes slots from takers, lines for `ip` from slots, and the share of the flow space that moves. No I/O.

use std::fmt::Write;

use super::super::slots::{self, Stretch};
use super::{EcmpHop, EcmpRoute, MAIN_TABLE, ROUTE_PROTOCOL, Spread};

/// The next hops of a route for these takers, each a hop and a weight, given those that it has. The order matters: it says
/// which flows go where.
pub(super) fn ways(
    spread: Spread,
    takers: &[(usize, u16)],
    before: Option<&[Stretch]>,
) -> Vec<Stretch> {
    match spread {
        Spread::Slots(slots) => slots::assign(slots.into(), takers, before),
        Spread::Weights => {
            let way = |&(hop, weight): &(usize, u16)| Stretch {
                target: Some(hop),
                weight,
            };
            takers.iter().map(way).collect()
        }
    }
}

/// Whether a route is as it is to be. One next hop is one, in however many slots.
pub(super) fn same(before: &[Stretch], after: &[Stretch]) -> bool {
    before == after || (before.len() == 1 && after.iter().all(|way| way.target == before[0].target))
}

/// The line that makes a route so.
pub(super) fn line(route: &EcmpRoute, hops: &[EcmpHop], ways: &[Stretch]) -> String {
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
    let named = |way: &Stretch| way.target.and_then(|place| hops.get(place));
    let first = ways.first().and_then(named);
    match first {
        Some(first) if ways.iter().all(|one| one.target == ways[0].target) => {
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

#[cfg(test)]
mod tests {
    use super::super::super::slots::{moved_permille, share_permille};
    use super::*;

    const EQUAL: [(usize, u16); 3] = [(0, 1), (1, 1), (2, 1)];

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

    #[test]
    fn one_next_hop_is_the_same_in_however_many_slots() {
        let one = [Stretch::slot(2)];
        assert!(same(&one, &ways(Spread::Slots(6), &[(2, 1)], Some(&one))));
        assert!(!same(&one, &ways(Spread::Slots(6), &EQUAL, Some(&one))));
    }
}
