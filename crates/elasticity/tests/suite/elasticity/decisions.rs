//! Single decisions: what the papers' evaluations show, and bad input.

use asterism_elasticity::{
    Action, BucketLoad, Choice, Decision, Elasticity, HostSample, Obstacle, Policies, Reason,
    SAMPLES_MAX, Standing, State, UnixMs, Wanted,
};

use super::world::BEGIN;

fn elasticity(text: &str) -> Elasticity {
    let policies = Policies::read(text).unwrap_or_else(|error| panic!("{error}"));
    let (_, rules) = policies.clusters().next().unwrap();
    Elasticity::new(rules.clone())
}

fn at(second: u64) -> UnixMs {
    UnixMs(BEGIN.0 + 1_000 * second)
}

fn serving(name: &str, flows: u64) -> HostSample {
    HostSample {
        age_ms: Some(0),
        flows: Some(flows),
        packets_per_second: Some(flows.saturating_mul(100)),
        ..HostSample::unknown(name, Standing::Serving, BEGIN)
    }
}

/// The only decision of a call.
fn only(decisions: Vec<Decision>) -> Decision {
    let [decision] = decisions.try_into().expect("one decision");
    decision
}

fn obstacle(decision: &Decision) -> &Obstacle {
    match &decision.reason {
        Reason::Held { obstacle, .. } => obstacle,
        other => panic!("{other:?}"),
    }
}

/// The figures of Split/Merge §5.1, Figure 8: more than 60 flows of a replica add one, fewer than 40 of each remove one.
#[test]
fn a_burst_of_flows_adds_a_host_and_its_end_removes_it() {
    let mut elasticity = elasticity(
        "[policy.bro]\nhosts = { min = 1, max = 2 }\nflows = { out = 60, in = 40 }\nout_for = \"1s\"\nin_for = \"5s\"\ncool_down = \"10s\"",
    );
    let mut changes = Vec::new();
    let mut hosts = 1;
    for second in 0..120_u64 {
        let flows = if (45..90).contains(&second) { 70 } else { 30 };
        let names = ["one", "two"];
        let samples: Vec<_> = (0..hosts)
            .map(|host| serving(names[host], flows / hosts as u64))
            .collect();
        for decision in elasticity.decide(at(second), &samples) {
            match decision.action {
                Action::ScaleOut { count: 1 } => hosts = 2,
                Action::ScaleIn { .. } => hosts = 1,
                Action::Hold => continue,
                other => panic!("{other:?}"),
            }
            changes.push((second, hosts));
        }
    }
    assert_eq!(changes, [(46, 2), (95, 1)]);
}

/// Split/Merge §5.2, Figures 9 and 10: 101 flows, 100 of them on the first of two replicas.
#[test]
fn a_hundred_flows_on_one_of_two_hosts_are_spread_evenly() {
    let mut elasticity = elasticity(
        "[policy.a]\nhosts = { min = 2, max = 2 }\nhot_spot = { factor_permille = 1_200, for = \"3s\" }",
    );
    let loaded = |name: &str, buckets: std::ops::Range<u32>| HostSample {
        packets_per_second: Some(1_000 * u64::from(buckets.end - buckets.start)),
        buckets: Some(
            buckets
                .map(|bucket| BucketLoad {
                    bucket,
                    packets_per_second: 1_000,
                })
                .collect(),
        ),
        ..serving(name, 1)
    };
    let samples = [loaded("a", 0..100), loaded("b", 100..101)];
    let waits = only(elasticity.decide(at(0), &samples));
    assert_eq!(waits.reason, Reason::Steady);
    let moves = only(elasticity.decide(at(3), &samples));
    let Action::MoveBuckets { from, to, buckets } = &moves.action else {
        panic!("{moves:?}");
    };
    assert_eq!((from.as_str(), to.as_str()), ("a", "b"));
    // Within 1.1 of the mean of 50.5, so that nothing moves again at once.
    assert_eq!(buckets.len(), 45);
    let Reason::HotSpot {
        load_permille,
        after_permille,
        ..
    } = &moves.reason
    else {
        panic!("{moves:?}");
    };
    assert_eq!((*load_permille, *after_permille), (1_980, 1_089));
}

#[test]
fn a_cluster_begins_with_its_minimum_and_waits_for_it() {
    let mut elasticity = elasticity("[policy.a]\nhosts = { min = 3, max = 4, step = 2 }");
    let first = only(elasticity.decide(at(0), &[]));
    assert_eq!(first.action, Action::ScaleOut { count: 2 });
    // The two are ordered, though no sample shows them.
    let second = only(elasticity.decide(at(1), &[]));
    assert_eq!(second.action, Action::ScaleOut { count: 1 });
    assert_eq!(only(elasticity.decide(at(2), &[])).reason, Reason::Steady);
    // One of them failed: a pause, then one again.
    elasticity.launch_failed(at(3));
    let held = only(elasticity.decide(at(3), &[]));
    assert_eq!(
        *obstacle(&held),
        Obstacle::BackingOff {
            failures: 1,
            until: at(13)
        }
    );
    assert_eq!(
        only(elasticity.decide(at(13), &[])).action,
        Action::ScaleOut { count: 1 }
    );
    // None of them was ever seen: after a minute the orders count no longer.
    assert_eq!(only(elasticity.decide(at(42), &[])).reason, Reason::Steady);
    assert_eq!(only(elasticity.decide(at(72), &[])).reason, Reason::Steady);
    assert_eq!(
        only(elasticity.decide(at(73), &[])).action,
        Action::ScaleOut { count: 1 }
    );
    elasticity.launch_succeeded();
    assert_eq!(elasticity.state().failures, 0);
}

#[test]
fn hosts_that_found_no_place_are_not_awaited() {
    let mut elasticity = elasticity("[policy.a]\nhosts = { min = 3, max = 4, step = 3 }");
    let first = only(elasticity.decide(at(0), &[]));
    assert_eq!(first.action, Action::ScaleOut { count: 3 });
    elasticity.not_launched(2);
    // One is under way; the others are wanted at once, and without a pause.
    let second = only(elasticity.decide(at(1), &[]));
    assert_eq!(second.action, Action::ScaleOut { count: 2 });
    assert_eq!(only(elasticity.decide(at(2), &[])).reason, Reason::Steady);
    elasticity.not_launched(u32::MAX);
    let third = only(elasticity.decide(at(3), &[]));
    assert_eq!(third.action, Action::ScaleOut { count: 3 });
}

#[test]
fn bad_samples_change_nothing() {
    let text = "[policy.a]\nhosts = { min = 1, max = 9 }\nflows = { out = 100, in = 50 }\nout_for = \"0s\"\nin_for = \"0s\"";
    let hosts = |flows: u64| ["a", "b", "c", "d"].map(|name| serving(name, flows));
    let wants = |samples: &[HostSample]| only(elasticity(text).decide(at(0), samples));
    assert!(matches!(wants(&hosts(200)).action, Action::ScaleOut { .. }));
    assert!(matches!(wants(&hosts(10)).action, Action::ScaleIn { .. }));
    // All old, three old, all absurd.
    for flows in [10, 200] {
        let mut old = hosts(flows);
        old[1..]
            .iter_mut()
            .for_each(|sample| sample.age_ms = Some(10_000));
        let held = wants(&old);
        assert_eq!(
            *obstacle(&held),
            Obstacle::SamplesMissing { fresh: 1, hosts: 4 }
        );
        old[0].age_ms = None;
        assert_eq!(
            *obstacle(&wants(&old)),
            Obstacle::SamplesMissing { fresh: 0, hosts: 4 }
        );
        let mut absurd = hosts(flows);
        absurd
            .iter_mut()
            .for_each(|sample| sample.flows = Some(u64::MAX - 3));
        assert_eq!(wants(&absurd).reason, Reason::Steady);
        let twice = [serving("a", flows), serving("a", flows)];
        assert_eq!(
            *obstacle(&wants(&twice)),
            Obstacle::SampledTwice {
                host: "a".to_owned()
            }
        );
    }
    // A half of the figures is enough to add a host, and not to remove one.
    for (flows, acts) in [(200, true), (10, false)] {
        let mut half = hosts(flows);
        half[2..].iter_mut().for_each(|sample| sample.flows = None);
        assert_eq!(wants(&half).action != Action::Hold, acts);
    }
    let many: Vec<_> = (0..=SAMPLES_MAX)
        .map(|host| serving(&host.to_string(), 1))
        .collect();
    assert!(matches!(
        obstacle(&wants(&many)),
        Obstacle::TooManySamples { .. }
    ));
    // Most hosts are suspected at once: the fault is likely the orchestrator's own.
    let mut suspected = hosts(10);
    suspected[1..]
        .iter_mut()
        .for_each(|sample| sample.standing = Standing::Suspected);
    assert_eq!(
        *obstacle(&wants(&suspected)),
        Obstacle::SamplesMissing { fresh: 1, hosts: 4 }
    );
}

#[test]
fn the_host_that_leaves_has_the_least_load_or_is_the_newest_of_them() {
    let text = "[policy.a]\nhosts = { min = 1, max = 9 }\nflows = { out = 1_000, in = 500 }\nin_for = \"0s\"\ndrain = \"7s\"";
    let leaves = |samples: &[HostSample]| {
        let decision = only(elasticity(text).decide(at(0), samples));
        match (decision.action, decision.reason) {
            (Action::ScaleIn { host, drain }, Reason::Below { choice, .. }) => {
                (host, drain.to_string(), choice)
            }
            other => panic!("{other:?}"),
        }
    };
    let (host, drain, choice) = leaves(&[serving("a", 30), serving("b", 20), serving("c", 40)]);
    assert_eq!((host.as_str(), drain.as_str()), ("b", "7s"));
    assert_eq!(
        choice,
        Choice::LeastLoaded {
            packets_per_second: 2_000
        }
    );
    let mut alike = [serving("a", 100), serving("b", 101), serving("c", 200)];
    alike[0].standing_since = at(1);
    let (host, _, choice) = leaves(&alike);
    assert_eq!(host, "a");
    assert_eq!(
        choice,
        Choice::Newest {
            packets_per_second: Some(10_000)
        }
    );
}

#[test]
fn latency_that_came_back_after_a_removal_is_remembered_for_a_day() {
    let text = "[policy.a]\nhosts = { min = 1, max = 3 }\nlatency_99_us = { out = 1_000, in = 300 }\nout_for = \"0s\"\nin_for = \"0s\"\ncool_down = \"1s\"";
    let mut elasticity = elasticity(text);
    let host = |name: &str, latency: u64, load: u64| HostSample {
        latency_99_us: Some(latency),
        packets_per_second: Some(load),
        ..serving(name, 1)
    };
    let one = [host("a", 5_000, 1_000)];
    let two = [host("a", 200, 500), host("b", 200, 500)];
    assert_eq!(
        only(elasticity.decide(at(0), &one)).action,
        Action::ScaleOut { count: 1 }
    );
    let held = only(elasticity.decide(at(10), &two));
    let day = at(24 * 3_600);
    let too_few = Obstacle::TooFewBefore {
        hosts: 1,
        packets_per_second: Some(1_000),
        until: day,
    };
    assert_eq!(*obstacle(&held), too_few);
    // Less load, or a day later.
    let lighter = [host("a", 200, 399), host("b", 200, 400)];
    assert!(matches!(
        only(elasticity.clone().decide(at(11), &lighter)).action,
        Action::ScaleIn { .. }
    ));
    assert!(matches!(
        only(elasticity.decide(day, &two)).action,
        Action::ScaleIn { .. }
    ));
}

#[test]
fn any_state_and_any_moment_are_survived() {
    let text = "[policy.a]\nhosts = { min = 1, max = 3 }\nflows = { out = 100, in = 50 }\nout_for = \"1d\"\nin_for = \"1d\"\nhot_spot = { factor_permille = 1_200, for = \"5s\" }\nschedule = [{ days = [\"mon\"], from = \"00:00\", to = \"00:00\", min = 2 }]\nutc_offset = \"-14:00\"";
    let rules = elasticity(text).rules().clone();
    for now in [0, 1, BEGIN.0, u64::MAX - 1, u64::MAX] {
        for moment in [0, BEGIN.0, u64::MAX] {
            let moment = Some(UnixMs(moment));
            let state = State {
                seen: moment,
                below: moment,
                spare: moment,
                changed: moment,
                moved: moment,
                retry_at: moment,
                failures: u32::MAX,
                ..State::new("a")
            };
            let mut elasticity = Elasticity::resume(rules.clone(), state);
            let mut samples = [serving("a", u64::MAX), serving("b", 0)];
            samples[0].standing_since = UnixMs(u64::MAX);
            samples[1].packets_per_second = Some(0);
            let explained = elasticity.explain(UnixMs(now), &samples).to_string();
            assert!(explained.contains("cluster a"), "{explained}");
            elasticity.decide(UnixMs(now), &samples);
            elasticity.launch_failed(UnixMs(now));
            elasticity.decide(UnixMs(now), &[]);
        }
    }
}

#[test]
fn a_decision_is_an_event_in_json() {
    let mut elasticity = elasticity(
        "[policy.a]\nhosts = { min = 1, max = 3 }\nflows = { out = 100, in = 50 }\nout_for = \"0s\"",
    );
    let decisions = elasticity.decide(at(0), &[serving("a", 200)]);
    assert_eq!(
        serde_json::to_string(&decisions).unwrap(),
        r#"[{"action":"scale-out","count":1,"reason":{"because":"above","metric":"flows","figure":200,"out":100,"lasted":"0s","hosts":1,"needed":3}}]"#
    );
    let held = elasticity.decide(at(1), &[serving("a", 200)]);
    assert_eq!(
        serde_json::to_string(&held).unwrap(),
        r#"[{"action":"hold","reason":{"because":"held","wanted":"scale-out","obstacle":{"obstacle":"cooling-down","until":1796025660000}}}]"#
    );
    assert!(Wanted::ScaleOut < Wanted::Change);
}
