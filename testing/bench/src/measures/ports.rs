//! `ports.conformance`: the share of port tests passed, over all kinds of port. The tests are the engine's own suite.

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

#[path = "../../../../crates/io/tests/suite/ports/suite/mod.rs"]
mod suite;

use suite::{Case, Kind};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "ports.conformance",
    make: conformance,
}];

fn conformance(context: &Context) -> Result<Outcome, Failure> {
    if !asterism_lab::permitted() {
        return Err(Failure::Absent(
            "ports of the kernel are tested in network namespaces of their own, which needs root"
                .into(),
        ));
    }
    let (mut passed_in_all, mut tried_in_all) = (0, 0);
    let mut shares = Vec::new();
    for kind in Kind::ALL {
        let cases = Case::ALL.into_iter().filter(|case| case.applies(kind));
        let (mut passed, mut tried) = (0, 0);
        for case in cases {
            tried += 1;
            match suite::run(kind, case) {
                Ok(()) => passed += 1,
                Err(why) => context.say(&why),
            }
        }
        context.say(&format!("{}: {passed} of {tried}", kind.label()));
        shares.push((kind.label(), f64::from(passed) / f64::from(tried)));
        passed_in_all += passed;
        tried_in_all += tried;
    }
    let share = f64::from(passed_in_all) / f64::from(tried_in_all);
    let outcome = Outcome::new(share, 1).variant("tests", f64::from(tried_in_all));
    Ok(shares.into_iter().fold(outcome, |outcome, (kind, share)| {
        outcome.variant(kind, share)
    }))
}
