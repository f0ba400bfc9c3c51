//! Our firewall against Linux's connection tracking, live: captures where there are some, and scripts.

use std::path::Path;

use asterism_oracle::firewall::{Judges, Policy, Tally, captures, lost_servers, script, steps};
use asterism_oracle::live::obstacle;

/// Both judges; `None`, said loudly, where the machine does not allow it.
fn judges(test: &str) -> Option<Judges> {
    if let Some(obstacle) = obstacle() {
        assert!(
            std::env::var("CI").is_err(),
            "in CI everything must run: {obstacle}"
        );
        println!("SKIPPED oracle/firewall/{test}: {obstacle}");
        return None;
    }
    Some(Judges::start().expect("the Linux firewall starts"))
}

fn expect_agreement(name: &str, policy: &Policy, tally: &Tally) {
    let lines: Vec<String> = tally
        .differences
        .iter()
        .take(20)
        .map(|difference| format!("packet {}: {}", difference.place, difference.sentence))
        .collect();
    assert!(
        lines.is_empty(),
        "{name}, {}:\n{}",
        policy.name,
        lines.join("\n")
    );
}

#[test]
fn captures_fare_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !folder.is_dir() {
        println!("SKIPPED (shared data absent): captures_fare_alike");
        return;
    }
    let Some(mut judges) = judges("captures") else {
        return;
    };
    let mut all = Tally::default();
    for path in captures(&folder).expect("the folder can be read") {
        let Some(steps) = steps(&path) else { continue };
        for policy in &Policy::ALL {
            let tally = judges.compare(policy, &steps).expect("both judge");
            expect_agreement(&path.display().to_string(), policy, &tally);
            all.add(&tally);
        }
    }
    assert!(all.passed > 100_000 && all.dropped > 1_000, "{all:?}");
}

#[test]
fn scripts_fare_alike() {
    let Some(mut judges) = judges("scripts") else {
        return;
    };
    let mut all = Tally::default();
    for seed in 0..60 {
        for policy in &Policy::ALL {
            let tally = judges.compare(policy, &script(seed)).expect("both judge");
            expect_agreement(&format!("script {seed}"), policy, &tally);
            all.add(&tally);
        }
    }
    assert!(all.passed > 10_000 && all.dropped > 1_000, "{all:?}");
    let explained: u64 = all.explained.values().sum();
    assert!(
        explained * 4 < all.judged,
        "rules explain too much: {all:?}"
    );
}

/// Ports that a client uses once more, at a server that lost the connection before: nothing of it is explained away.
#[test]
fn lost_servers_fare_alike() {
    let Some(mut judges) = judges("lost") else {
        return;
    };
    for policy in &Policy::ALL {
        let steps = lost_servers();
        let tally = judges.compare(policy, &steps).expect("both judge");
        expect_agreement("lost servers", policy, &tally);
        assert_eq!(tally.passed as usize, steps.len(), "{tally:?}");
    }
}

/// The comparison sees what differs: judged by other rules, packets fare otherwise.
#[test]
fn a_firewall_with_other_rules_is_reported_apart() {
    let Some(mut judges) = judges("differs") else {
        return;
    };
    let other = Policy {
        rules: "allow any on inside\nallow tcp on outside to any port 80\n",
        ..Policy::STRICT
    };
    let mut seen = 0;
    for seed in 0..10 {
        let tally = judges.compare(&other, &script(seed)).expect("both judge");
        seen += tally.differences.len();
    }
    assert!(seen > 20, "{seen} differences seen");
}
