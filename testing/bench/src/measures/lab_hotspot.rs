//! `lab.hotspot`: two hosts behind slow links share the flows evenly, then one gets most of them, and the policy moves buckets back
//! (Split/Merge §5.2, Figures 9 and 10). Compared is how long round trips take, in one cluster of `asterism up`.

use super::lab::product;
use super::up::{Up, number};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "lab.hotspot",
    make,
}];

/// 200 UDP flows and 40 TCP connections are under way: 6,000 packets/s each way through both hosts.
const FLOWS: &str = "100";
/// Each link carries less than twice what an even spread needs, and hardly what a host with four fifths of the flows does.
const LINK_RATE: &str = "5000";
const BUCKETS: &str = "256";
/// Buckets of both hosts that one host gets: with the others of its own it has four fifths.
const MOVED: &str = "0..153";
/// Lines of two seconds each: until the start is over, and without a move after which the spread is at rest.
const SETTLING: usize = 2;
const AT_REST: usize = 3;
/// Lines of which the median counts.
const LINES: usize = 3;
const LINES_FULL: usize = 15;
/// Lines until the spread is at rest, at most.
const REBALANCING_MAX: usize = 30;

fn make(context: &Context) -> Result<Outcome, Failure> {
    let product = product()?;
    let mut up = Up::start(
        &product,
        &[
            "--flows",
            FLOWS,
            "--hosts",
            "2",
            "--buckets",
            BUCKETS,
            "--link-rate",
            LINK_RATE,
            "--rebalance",
        ],
    )?;
    up.wait_for("2 of 2 hosts take packets")?;
    trips(&mut up, SETTLING)?;
    let lines = if context.full { LINES_FULL } else { LINES };
    let even = median(trips(&mut up, lines)?);
    context.say(&format!("even spread: 99 % within {even} us"));
    up.order(&["move", "--bucket", MOVED, "--to", "a"])?;
    let (mut hot, mut at_rest, mut looks, mut moves) = (0, 0, 0, 0);
    while at_rest < AT_REST {
        let seen = up.said().len();
        hot = hot.max(trips(&mut up, 1)?[0]);
        let moved = up.said()[seen..]
            .iter()
            .filter(|line| line.contains("move "))
            .count();
        moves += moved;
        at_rest = match (moved, moves) {
            (0, 1..) => at_rest + 1,
            _ => 0,
        };
        looks += 1;
        if looks > REBALANCING_MAX {
            let said = up.said().join("\n");
            return Err(Failure::Unsound(format!(
                "no rest after a hot spot: {said}"
            )));
        }
    }
    let after = median(trips(&mut up, lines)?);
    context.say(&format!(
        "hot: {hot} us; after {moves} decisions: {after} us"
    ));
    let report = up.end()?;
    Ok(Outcome::new(after as f64 / even as f64, 1)
        .variant("even-us", even as f64)
        .variant("hot-us", hot as f64)
        .variant("after-us", after as f64)
        .variant("decisions", moves as f64)
        .variant("seconds-to-rest", 2.0 * (looks - AT_REST) as f64)
        .variant("requests-lost", number(&report, "requests_lost")))
}

/// What 99 % of round trips did not exceed, in microseconds, in each of the next lines.
fn trips(up: &mut Up<'_>, lines: usize) -> Result<Vec<u64>, Failure> {
    let read = |line: String| -> Option<u64> {
        let (_, figure) = line.split_once("99 % of round trips: ")?;
        figure.split(' ').next()?.parse().ok()
    };
    (0..lines)
        .map(|_| {
            let line = up.wait_for("99 % of round trips: ")?;
            read(line.clone()).ok_or_else(|| Failure::Unsound(format!("no figure in {line:?}")))
        })
        .collect()
}

fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}
