//! The example of `docs/src/elasticity.md`: its policy is read from the page, its tables are made here.
//! `ASTERISM_BLESS=1 cargo test -p asterism-orchestrator --test suite` writes them; without it the test compares.

use std::fmt::Write;

use asterism_elasticity::{Action, Elasticity, Policies, Rules, Standing, UnixMs};

use super::world::{BEGIN, World};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/elasticity.md");
/// Packets/s that a host of the example carries.
const CAPACITY: u64 = 1_000_000;
const MINUTE: u64 = 60;

/// The first block of the page, which is the example's policy.
fn rules(page: &str) -> Rules {
    let (_, rest) = page.split_once("```text\n").expect("a block");
    let (text, _) = rest.split_once("```").expect("its end");
    let policies = Policies::read(text).unwrap_or_else(|error| panic!("{error}"));
    policies.rules("edge").expect("the cluster").clone()
}

/// Packets/s of a morning: a slow rise, a burst at 09:00 and its end at 09:20.
fn load(second: u64) -> u64 {
    let minute = second / MINUTE;
    match minute {
        0..10 => 900_000,
        10..60 => 900_000 + 30_000 * (minute - 10),
        60..80 => 4_200_000,
        _ => 1_200_000,
    }
}

fn time(second: u64) -> String {
    let minute = second / MINUTE;
    format!(
        "{:02}:{:02}:{:02}",
        8 + minute / 60,
        minute % 60,
        second % 60
    )
}

/// What happens on the morning.
fn morning(rules: &Rules) -> String {
    let mut world = World::new(1, 2, CAPACITY, Vec::new());
    let mut elasticity = Elasticity::new(rules.clone());
    let mut out =
        String::from("| time | load | hosts | decision | reason |\n|---|---|---|---|---|\n");
    for second in 1..=150 * MINUTE {
        world.now = UnixMs(BEGIN.0 + 1_000 * (second - 1));
        world.pass(&mut elasticity);
        let samples = world.samples(load(second));
        let decisions = elasticity.decide(world.now, &samples);
        for decision in decisions.iter().filter(|one| one.action != Action::Hold) {
            let (time, load) = (time(second), load(second));
            let (action, reason) = (&decision.action, &decision.reason);
            let serving = world.count(Standing::Serving);
            writeln!(out, "| {time} | {load} | {serving} | {action} | {reason} |").unwrap();
        }
        world.act(&decisions);
    }
    out
}

/// The dry run, a minute into the burst.
fn dry_run(rules: &Rules) -> String {
    let mut world = World::new(1, 2, CAPACITY, Vec::new());
    let mut elasticity = Elasticity::new(rules.clone());
    for second in 1..=61 * MINUTE {
        world.now = UnixMs(BEGIN.0 + 1_000 * (second - 1));
        world.pass(&mut elasticity);
        let samples = world.samples(load(second));
        if second == 60 * MINUTE + 12 {
            return format!("```text\n{}```\n", elasticity.explain(world.now, &samples));
        }
        let decisions = elasticity.decide(world.now, &samples);
        world.act(&decisions);
    }
    panic!("no dry run");
}

/// Shares of the mean before and after buckets moved, for three hosts and the shapes of load.
fn hot_spots(rules: &Rules) -> String {
    let mut out = String::from(
        "| 120 buckets on three hosts, a fourth joins | worst host before | after | buckets moved |\n|---|---|---|---|\n",
    );
    for (name, weights) in [
        ("alike", vec![100; 120]),
        ("1 to 120 times the least", (1..=120).collect::<Vec<u64>>()),
        ("one has 10 % of all packets", with_elephant(10)),
        ("one has 40 % of all packets", with_elephant(40)),
    ] {
        let load = 2_000_000;
        let mut world = World::new(1, 3, CAPACITY, weights);
        world.join();
        let mut elasticity = Elasticity::new(rules.clone());
        let worst = |world: &World| {
            let loads = world.host_loads(load);
            let mean = load / loads.len() as u64;
            loads.into_iter().max().unwrap_or(0) as f64 / mean as f64
        };
        let before = worst(&world);
        let mut moved = 0;
        for second in 1..=300 {
            world.now = UnixMs(BEGIN.0 + 1_000 * (second - 1));
            world.pass(&mut elasticity);
            let samples = world.samples(load);
            let decisions = elasticity.decide(world.now, &samples);
            let moves = decisions.iter().map(|one| match &one.action {
                Action::MoveBuckets { buckets, .. } => buckets.len(),
                _ => 0,
            });
            moved += moves.sum::<usize>();
            world.act(&decisions);
        }
        let after = worst(&world);
        writeln!(out, "| {name} | {before:.2} | {after:.2} | {moved} |").unwrap();
    }
    out
}

/// 120 buckets, the first of which has a share of the load.
fn with_elephant(percent: u64) -> Vec<u64> {
    let mut weights = vec![100; 120];
    weights[0] = 11_900 * percent / (100 - percent);
    weights
}

#[test]
fn the_example_of_the_page_is_what_the_model_does() {
    let mut page = std::fs::read_to_string(PAGE).expect("the page");
    let rules = rules(&page);
    for (name, part) in [
        ("a morning", morning(&rules)),
        ("a dry run", dry_run(&rules)),
        ("hot spots", hot_spots(&rules)),
    ] {
        let mark = format!("<!-- made by a test: {name} -->\n");
        let (before, rest) = page.split_once(&mark).expect("a place for it");
        let (_, after) = rest.split_once("<!-- end -->").expect("its end");
        let wanted = format!("{before}{mark}{part}<!-- end -->{after}");
        if std::env::var_os("ASTERISM_BLESS").is_some() {
            std::fs::write(PAGE, &wanted).expect("the page");
        } else {
            assert!(
                page == wanted,
                "{name} has changed, write it with ASTERISM_BLESS=1:\n{part}"
            );
        }
        page = wanted;
    }
}
