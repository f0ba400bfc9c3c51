//! The yardsticks: hand-written loops without any framework.

use super::{Bar, Group::Floor, Row, measured, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Floor,
        "floor.one-way",
        "ratio",
        Bar::AtMost(1.15),
        "worst ratio over 10 k, 100 k and 1 M flows of our one-way UDP floor to the earlier one; ns per packet in `variants`",
    )
    .anchors(&[measured("the earlier hand-written floor", "22 / 28 / 64 ns per packet at 10 k / 100 k / 1 M flows")]),
    row(
        Floor,
        "floor.two-way",
        "ns per packet",
        Bar::Reported,
        "hand-written NAT loop that does the product's work (TCP and UDP, both directions) at 10 k flows; other sizes in `variants`",
    ),
    row(
        Floor,
        "floor.instructions",
        "instructions per packet",
        Bar::Reported,
        "instructions of the two-way floor per packet of an established flow, 1 k flows; one-way and callgrind in `variants`",
    ),
];
