//! "Middleboxes": the library of functions.

use super::Bar::{AtLeast, AtMost, Exactly};
use super::Group::{Beside, Middleboxes};
use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Middleboxes,
        "functions.lines",
        "lines",
        AtMost(250.0),
        "largest packet path in non-blank, non-comment lines (NAT, balancer, firewall, monitor, scan detector; table in `variants`)",
    )
    .also(&[("flow-counter", AtMost(20.0))]),
    row(
        Middleboxes,
        "functions.cost",
        "ratio",
        AtLeast(0.95),
        "worst ratio over the functions, `replicated` with 3 members over `local`",
    ),
    row(Middleboxes, "functions.chain", "ratio", AtMost(1.1), "ns of a chain of four over the sum of its parts"),
    row(
        Middleboxes,
        "firewall.agreement",
        "verdicts",
        Exactly(0.0),
        "verdicts that differ from Linux conntrack's without a documented rule",
    ),
    row(
        Beside,
        "firewall.flood",
        "packets",
        Exactly(0.0),
        "packets of others that ten million half-open connections stop: of established connections, of new ones from inside, and of new ones to servers beside the flooded one",
    )
    .also(&[("memory-growth-mib", AtMost(1.0))]),
    row(
        Middleboxes,
        "balancer.disruption",
        "ratio",
        AtMost(1.0),
        "flows moved when one of ten backends leaves, over its own flows",
    ),
    row(Middleboxes, "idps.scans", "mistakes", Exactly(0.0), "labelled scans and floods laid over captures missed, plus false alarms on the traps"),
    row(
        Middleboxes,
        "monitor.error",
        "ratio",
        AtMost(1.0),
        "worst observed over stated error; memory ≤ 1 MiB, bound derived from width and depth",
    )
    .also(&[("memory-mib", AtMost(1.0))]),
    row(
        Middleboxes,
        "limiter.exact",
        "tokens",
        Exactly(0.0),
        "overshoot of the exact limiter in tokens; 8 instances, uneven load, 50 ms",
    ),
    row(
        Middleboxes,
        "limiter.approximate",
        "ratio",
        AtMost(1.0),
        "overshoot of the approximate limiter over members × delay × rate; 8 instances, uneven load, 50 ms",
    ),
    row(
        Middleboxes,
        "digests.squid",
        "sibling hits",
        AtLeast(990.0),
        "sibling hits through a real squid, of 1,000 stored objects; no false negative",
    ),
    row(
        Middleboxes,
        "chain.order",
        "packets",
        Exactly(0.0),
        "packets that differ from one sequential box, all captures, three instances, asymmetric paths, one death",
    )
    .also(&[("accounts", Exactly(0.0))]),
];
