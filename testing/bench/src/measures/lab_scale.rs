//! `lab.scale` and `lab.launch`: hosts are added and removed under load, in a cluster of `asterism up`. Clients begin flows all the time,
//! and count each request that is not answered.

use asterism_lab::pause;

use super::lab::product;
use super::up::{REST, Up, number};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "lab.scale",
        make: scale,
    },
    Measure {
        name: "lab.launch",
        make: launch,
    },
];

/// UDP flows that begin in a second; each has 40 requests, and TCP connections are a fifth of them.
const FLOWS: &str = "40";
const ROUNDS: u32 = 1;
const ROUNDS_FULL: u32 = 10;
const LAUNCHES: u32 = 3;
const LAUNCHES_FULL: u32 = 20;

fn scale(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut up = Up::start(&product, &["--flows", FLOWS, "--hosts", "1..3"])?;
    pause(REST);
    for round in 1..=rounds {
        up.scale(3)?;
        up.scale(1)?;
        context.say(&format!("round {round} of {rounds}: 1 to 3 to 1 hosts"));
    }
    let report = up.end()?;
    let sum = |fields: &[&str]| -> f64 { fields.iter().map(|field| number(&report, field)).sum() };
    let lost = sum(&["requests_lost", "packets_dropped_at_links", "packets_wrong"]);
    let broken = sum(&["flows_failed", "flows_broken"]);
    context.say(&format!("{report}"));
    Ok(Outcome::new(lost + broken, rounds)
        .variant("requests", number(&report, "requests"))
        .variant("requests-lost", number(&report, "requests_lost"))
        .variant(
            "dropped-at-links",
            number(&report, "packets_dropped_at_links"),
        )
        .variant("flows", number(&report, "flows_begun"))
        .variant("flows-broken", broken)
        .variant(
            "segments-sent-again",
            number(&report, "segments_sent_again"),
        ))
}

fn launch(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let launches = if context.full {
        LAUNCHES_FULL
    } else {
        LAUNCHES
    };
    let mut up = Up::start(&product, &["--flows", FLOWS, "--hosts", "1..2"])?;
    pause(REST);
    for number in 1..=launches {
        up.scale(2)?;
        if number < launches {
            up.scale(1)?;
        }
    }
    let report = up.end()?;
    let slowest = report["added_host_first_packet_s"].as_f64();
    let slowest =
        slowest.ok_or_else(|| Failure::Unsound(format!("no host was added: {report}")))?;
    Ok(Outcome::new(slowest, launches).variant("requests-lost", number(&report, "requests_lost")))
}
