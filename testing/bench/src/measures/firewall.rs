//! `firewall.agreement`: captures through Linux's connection tracking and through our firewall, verdict by verdict.

use std::path::Path;

use asterism_oracle::firewall::{Judges, Policy, Rule, Tally, captures, script, steps};
use asterism_oracle::live::obstacle;

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "firewall.agreement",
    make: agreement,
}];

/// Scripts of connections that go wrong in every way.
const SCRIPTS: u64 = 40;

fn agreement(context: &Context) -> Result<Outcome, Failure> {
    if let Some(obstacle) = obstacle() {
        return Err(Failure::Absent(obstacle));
    }
    let mut judges = Judges::start().map_err(Failure::Absent)?;
    let mut all = Tally::default();
    let mut judge = |name: &str, policy: &Policy, steps: &[_]| -> Result<(), Failure> {
        let tally = judges.compare(policy, steps).map_err(Failure::Unsound)?;
        for difference in &tally.differences {
            let (policy, place) = (policy.name, difference.place);
            context.say(&format!("{name} {policy} {place}: {}", difference.sentence));
        }
        all.add(&tally);
        Ok(())
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let mut read = 0;
    if folder.is_dir() {
        for path in captures(&folder).map_err(Failure::Unsound)? {
            let Some(steps) = steps(&path) else { continue };
            read += 1;
            for policy in &Policy::ALL {
                judge(&path.display().to_string(), policy, &steps)?;
            }
        }
    } else {
        context.say("the captures are not there: only scripts are compared");
    }
    for seed in 0..SCRIPTS {
        for policy in &Policy::ALL {
            judge(&format!("script {seed}"), policy, &script(seed))?;
        }
    }
    if all.passed == 0 || all.dropped == 0 {
        return Err(Failure::Unsound("nothing was compared".to_owned()));
    }
    let mut outcome = Outcome::new(all.differences.len() as f64, read + SCRIPTS as u32)
        .variant("captures", f64::from(read))
        .variant("packets-judged", all.judged as f64)
        .variant("packets-passed-by-both", all.passed as f64)
        .variant("packets-dropped-by-both", all.dropped as f64)
        .variant("fragmented-datagrams", all.datagrams as f64)
        .variant("rules", Rule::ALL.len() as f64);
    for rule in Rule::ALL {
        let count = all.explained.get(&rule).copied().unwrap_or(0);
        outcome = outcome.variant(format!("rule-{}", rule.name()), count as f64);
    }
    Ok(outcome)
}
