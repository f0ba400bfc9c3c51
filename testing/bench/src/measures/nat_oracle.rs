//! `nat.oracle`: the recordings of Linux's NAT through ours, field by field.

use asterism_oracle::{Recording, Report, Rule, compare};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "nat.oracle",
    make: oracle,
}];

fn oracle(context: &Context) -> Result<Outcome, Failure> {
    let mut recordings =
        Recording::load_all(&asterism_oracle::shipped()).map_err(Failure::Unsound)?;
    match asterism_oracle::development().map_err(Failure::Unsound)? {
        Some(recording) => recordings.push(recording),
        None => context.say("the development recording is not there: only what ships is compared"),
    }
    let mut all = Report::default();
    for recording in &recordings {
        let report = compare(recording).map_err(Failure::Unsound)?;
        for difference in &report.differences {
            context.say(&format!("{}: {}", recording.name, difference.sentence));
        }
        all.add(&report);
    }
    if all.compared == 0 {
        return Err(Failure::Unsound("no packet was compared".to_owned()));
    }
    let mut outcome = Outcome::new(all.differences.len() as f64, recordings.len() as u32)
        .variant("recordings", recordings.len() as f64)
        .variant("packets-arrived", all.arrived as f64)
        .variant("packets-linux-sent", all.linux_sent as f64)
        .variant("packets-compared", all.compared as f64)
        .variant("packets-swallowed-by-both", all.swallowed as f64)
        .variant("fields-compared", all.fields as f64)
        .variant("rules", Rule::ALL.len() as f64);
    for rule in Rule::ALL {
        let count = all.explained.get(&rule).copied().unwrap_or(0);
        outcome = outcome.variant(format!("rule-{}", rule.name()), count as f64);
    }
    Ok(outcome)
}
