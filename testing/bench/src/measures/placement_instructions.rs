//! `placement.instructions`: instructions per packet where no packet is held, over those of the last commit that could hold none.
//!
//! Instructions are counted, so they compare between commits and machines, for one compiler and one set of workloads. Those of
//! that commit were counted once, by these workloads (`chain.four` was added to its measures for that), with the same profile and
//! compiler. Callgrind counts, since to single-step a chain's packets takes longer than a measure may; the long form steps too.

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::instructions;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "placement.instructions",
    make: over_recorded,
}];

/// A workload, and what a packet of it took at commit 186f2b59, built with `--profile dist` and Rust 1.95.0. With the commit after that
/// one held output begins.
struct Recorded {
    workload: &'static str,
    by_callgrind: f64,
    by_stepping: f64,
}

const RECORDED: [Recorded; 3] = [
    Recorded {
        workload: "nat.local",
        by_callgrind: 262.667,
        by_stepping: 262.692,
    },
    Recorded {
        workload: "pass-through.read-write",
        by_callgrind: 152.208,
        by_stepping: 152.208,
    },
    Recorded {
        workload: "chain.four",
        by_callgrind: 1_316.279,
        by_stepping: 1_321.874,
    },
];

fn over_recorded(context: &Context) -> Result<Outcome, Failure> {
    let mut worst: f64 = 0.0;
    let mut outcome = Outcome::default();
    for recorded in RECORDED {
        let workload = recorded.workload;
        context.say(workload);
        let counted = instructions::per_packet_by_callgrind(workload).ok_or_else(|| {
            Failure::Absent("valgrind, which counts the instructions, is not installed".into())
        })??;
        let ratio = counted / recorded.by_callgrind;
        worst = worst.max(ratio);
        outcome = outcome
            .variant(workload, ratio)
            .variant(format!("{workload}-instructions"), counted)
            .variant(format!("{workload}-recorded"), recorded.by_callgrind);
        if context.full {
            let stepped = instructions::per_packet(workload)?;
            outcome = outcome.variant(
                format!("{workload}-stepped"),
                stepped / recorded.by_stepping,
            );
        }
    }
    Ok(outcome.with_value(worst, 1))
}
