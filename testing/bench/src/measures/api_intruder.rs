//! `api.intruder`: accesses to the HTTP API that succeeded and must not.
//!
//! The intruder is in the API's own crate (`crates/api/src/testing/intruder.rs`), which its tests run too.

use asterism_api::testing::intruder;

use super::host_process::Folder;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "api.intruder",
    make: accesses,
}];

fn accesses(context: &Context) -> Result<Outcome, Failure> {
    let folder = Folder::new()?;
    let report =
        intruder(&folder.path(".")).map_err(|error| Failure::Unsound(error.to_string()))?;
    for case in &report.succeeded {
        context.say(case);
    }
    Ok(Outcome::new(report.succeeded.len() as f64, 1)
        .variant("routes", report.routes as f64)
        .variant("cases", report.cases as f64)
        .variant("cases-of-a-route-min", report.cases_of_a_route_min as f64))
}
