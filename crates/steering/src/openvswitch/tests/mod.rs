//! Tests of the driver on a switch in memory (`fake.rs`). Those on a real one are in the crate's folder `tests`.
#![allow(
    clippy::disallowed_types,
    reason = "the switch in memory is in two hands; nothing here is on a packet's path"
)]

mod fake;

use super::openflow::*;
use super::*;
use crate::{Generation, Standing, Target, laws};
use fake::{Fake, Fault};

const NAMES: [&str; 3] = ["nat-1", "nat-2", "nat-3"];
const PORTS: [&str; 8] = ["up", "out", "in1", "in2", "in3", "out1", "out2", "out3"];
const BOTH: [Version; 2] = [Version::V13, Version::V15];

fn network(address: [u8; 4], prefix_bits: u8) -> Network {
    Network {
        address: address.into(),
        prefix_bits,
    }
}

fn direction(ingress: &str, hash: Selection, side: &str, networks: &[Network]) -> OvsDirection {
    let hop = |number: u8| OvsHop {
        target: format!("nat-{number}"),
        port: format!("{side}{number}"),
        address: [2, 0, 0, 0, 0, number],
    };
    OvsDirection {
        ingress: vec![ingress.to_owned()],
        destinations: networks.to_vec(),
        hash,
        hops: (1..=3).map(hop).collect(),
    }
}

/// Inside and outside.
fn config(slots: u16) -> OvsConfig {
    let outside = [
        network([203, 0, 113, 0], 29),
        network([198, 51, 100, 7], 32),
    ];
    let directions = vec![
        direction("up", Selection::Source, "in", &[Network::ALL_IPV4]),
        direction("out", Selection::Destination, "out", &outside),
    ];
    let address = OvsAddress::Unix("/nowhere".into());
    OvsConfig {
        slots,
        ..OvsConfig::new(address, directions)
    }
}

fn world(versions: &[Version]) -> (OvsSteering, Fake) {
    let fake = Fake::new(versions, &PORTS);
    (
        OvsSteering::with_dial(config(24), Box::new(fake.clone())),
        fake,
    )
}

fn without(generation: u64, out: &[&str]) -> Desired {
    let left = NAMES.into_iter().filter(|name| !out.contains(name));
    Desired::new(
        Generation(generation),
        left.map(|name| (name.to_owned(), Target::TAKES)),
    )
    .unwrap()
}

/// The port of each slot of the group to which the first flow of a direction's ingress leads.
fn slots(fake: &Fake, ingress: u32) -> Vec<u32> {
    let state = fake.state();
    let mut flows = state.flows.iter();
    let flow = flows
        .find(|flow| flow.matching.in_port == Some(ingress))
        .unwrap();
    let [Instruction::Apply(actions)] = &flow.instructions[..] else {
        panic!("{flow:?}");
    };
    let [Action::Group(id)] = actions[..] else {
        panic!("{flow:?}");
    };
    let group = state.groups.iter().find(|group| group.id == id).unwrap();
    let port = |bucket: &Bucket| match bucket.actions[..] {
        [Action::SetDestination(_), Action::Output(port)] => port,
        _ => panic!("{bucket:?}"),
    };
    group.buckets.iter().map(port).collect()
}

#[test]
fn the_driver_keeps_the_laws() {
    for versions in [&BOTH[..], &BOTH[..1]] {
        for slots in [3, 24, 64] {
            let fake = Fake::new(versions, &PORTS);
            let driver = || OvsSteering::with_dial(config(slots), Box::new(fake.clone()));
            let report = laws::check(&NAMES, &mut || Ok(Box::new(driver())));
            assert_eq!(report.share(), 1.0, "{versions:?}, {slots} slots: {report}");
            let mut driver = driver();
            driver.observe().unwrap();
            assert_eq!(driver.version(), versions.last().copied());
            assert!(fake.state().always_led);
        }
    }
}

#[test]
fn a_change_is_one_bundle_or_two_steps_and_never_leaves_a_flow_without_a_group() {
    for versions in [&BOTH[..], &BOTH[..1]] {
        let (mut driver, fake) = world(versions);
        let done = driver.apply(&without(1, &[])).unwrap();
        // Two groups, three flows.
        assert_eq!((done.changed, done.moved_permille), (5, Some(1_000)));
        assert_eq!(slots(&fake, 1)[..6], [3, 4, 5, 3, 4, 5]);
        assert_eq!(slots(&fake, 2)[..6], [6, 7, 8, 6, 7, 8]);
        let before = slots(&fake, 1);
        let done = driver.apply(&without(2, &["nat-2"])).unwrap();
        assert_eq!(done.moved_permille, Some(334));
        for (old, new) in before.iter().zip(slots(&fake, 1)) {
            assert!(*old == 4 || *old == new, "{before:?}");
            assert_ne!(new, 4);
        }
        let is_15 = driver.version() == Some(Version::V15);
        // A bundle changes two groups in their places; else two are added, and three flows led to them.
        assert_eq!(done.changed, if is_15 { 2 } else { 5 });
        assert_eq!(fake.received("commit"), if is_15 { 2 } else { 0 });
        for generation in 3..53 {
            let out = NAMES[generation as usize % 3];
            driver.apply(&without(generation, &[out])).unwrap();
        }
        assert!(fake.state().always_led);
        assert_eq!(fake.state().groups.len(), if is_15 { 2 } else { 4 });
        assert_eq!(fake.state().flows.len(), 3);
        assert!(driver.observe().unwrap().as_applied);
    }
}

#[test]
fn weights_become_slots_and_too_many_targets_are_refused() {
    let weighted = |weights: [u16; 3]| {
        let target = |weight| Target {
            weight,
            standing: Standing::Takes,
        };
        let all = NAMES.into_iter().zip(weights);
        let all = all.map(|(name, weight)| (name.to_owned(), target(weight)));
        Desired::new(Generation(1), all).unwrap()
    };
    let (mut driver, _) = world(&BOTH);
    driver.apply(&weighted([2, 1, 1])).unwrap();
    let seen = driver.observe().unwrap();
    let shares: Vec<_> = seen.targets.iter().map(|one| one.share_permille).collect();
    assert_eq!(shares, [500, 250, 250]);
    let fake = Fake::new(&BOTH, &PORTS);
    let mut few = OvsSteering::with_dial(config(2), Box::new(fake));
    assert_eq!(
        few.apply(&weighted([1, 1, 1])),
        Err(SteeringError::TooManyTargets { takers: 3, most: 2 })
    );
}

/// Each failure is an error of its kind; what it says of what is in force is so; applying again cures it.
#[test]
fn failures_are_reported_and_cured_by_applying_again() {
    use Fault::*;
    let cases: &[(&[Version], &str, Fault, &str, bool)] = &[
        // Nothing was asked to change yet, or the bundle was not committed.
        (&BOTH, "groups", Refuses, "unreachable", false),
        (&BOTH, "ports", IsSilent, "unreachable", false),
        (&BOTH, "ports", SendsNonsense, "unreadable", false),
        (&BOTH, "ports", SendsTooMuch, "unreadable", false),
        (&BOTH, "open", ClosesBefore, "unreachable", false),
        (&BOTH, "open", Refuses, "refused", false),
        (&BOTH, "add", Refuses, "refused", false),
        (&BOTH, "add", ClosesBefore, "unreachable", false),
        (&BOTH, "barrier", IsSilent, "unreachable", false),
        (&BOTH, "commit", Refuses, "refused", false),
        (&BOTH, "commit", ClosesBefore, "lost", false),
        (&BOTH, "commit", ClosesAfter, "lost", true),
        (&BOTH, "commit", IsSilent, "timed out", true),
        // Without bundles, a step may be in force.
        (&BOTH[..1], "group", Refuses, "refused", false),
        (&BOTH[..1], "group", ClosesAfter, "lost", false),
        (&BOTH[..1], "flow", Refuses, "refused", false),
        (&BOTH[..1], "barrier", ClosesBefore, "lost", false),
        (&BOTH[..1], "barrier", IsSilent, "timed out", false),
    ];
    for (versions, at, fault, says, in_force) in cases {
        let case = format!("{versions:?} {at} {fault:?}");
        let (mut driver, fake) = world(versions);
        driver.apply(&without(1, &[])).unwrap();
        let before = slots(&fake, 1);
        fake.state().faults.push((at, *fault));
        let error = driver.apply(&without(2, &["nat-1"])).unwrap_err();
        let said = match &error {
            SteeringError::Unreachable { .. } => "unreachable",
            SteeringError::Unreadable { .. } => "unreadable",
            SteeringError::Refused { .. } => "refused",
            SteeringError::Lost { .. } => "lost",
            SteeringError::TimedOut { .. } => "timed out",
            other => panic!("{case}: {other}"),
        };
        assert_eq!(said, *says, "{case}: {error}");
        assert!(!error.is_refusal());
        // Some flows may lead to the other group where there are no bundles; each leads to one.
        if versions.len() == 2 {
            assert_eq!(slots(&fake, 1) != before, *in_force, "{case}");
        }
        assert!(fake.state().always_led, "{case}");
        let seen = driver.observe().unwrap();
        assert!(!seen.as_applied && seen.generation.is_none(), "{case}");
        let stale = driver.apply(&without(1, &[])).unwrap_err();
        assert!(stale.is_refusal(), "{case}");
        driver.apply(&without(2, &["nat-1"])).unwrap();
        assert!(driver.observe().unwrap().as_applied, "{case}");
        assert!(!slots(&fake, 1).contains(&3), "{case}");
        assert!(fake.state().groups.len() <= 4, "{case}");
        let counts = driver.counts();
        assert_eq!(
            (counts.applied, counts.failed, counts.refused),
            (2, 1, 1),
            "{case}"
        );
    }
}

#[test]
fn connections_that_ended_between_calls_are_made_again() {
    let (mut driver, fake) = world(&BOTH);
    driver.apply(&without(1, &[])).unwrap();
    fake.drop_connections();
    let done = driver.apply(&without(1, &[])).unwrap();
    assert_eq!(done.changed, 0);
    assert_eq!(fake.received("hello"), 2);
    // One that ends at the first question is made again too, once.
    fake.state().faults.push(("groups", Fault::ClosesBefore));
    assert!(driver.observe().unwrap().as_applied);
    fake.state()
        .faults
        .extend([("groups", Fault::ClosesBefore); 2]);
    assert!(matches!(
        driver.observe(),
        Err(SteeringError::Unreachable { .. })
    ));
    fake.drop_connections();
    fake.state().is_up = false;
    let error = driver.apply(&without(2, &["nat-1"])).unwrap_err();
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    fake.state().is_up = true;
    driver.apply(&without(2, &["nat-1"])).unwrap();
}

#[test]
fn a_switch_that_lost_its_rules_gets_the_same_slots_again() {
    let (mut driver, fake) = world(&BOTH);
    driver.apply(&without(1, &[])).unwrap();
    driver.apply(&without(2, &["nat-1"])).unwrap();
    driver.apply(&without(3, &[])).unwrap();
    let before = slots(&fake, 1);
    fake.restart();
    let seen = driver.observe().unwrap();
    assert!(!seen.as_applied && seen.targets.iter().all(|one| one.share_permille == 0));
    let done = driver.apply(&without(3, &[])).unwrap();
    assert_eq!((done.changed, done.moved_permille), (5, Some(0)));
    assert_eq!(slots(&fake, 1), before);
    assert_eq!(driver.counts().repaired, 1);
    // With ports of other numbers too.
    fake.restart();
    for port in &mut fake.state().ports {
        port.number += 20;
    }
    driver.apply(&without(3, &[])).unwrap();
    let moved: Vec<_> = before.iter().map(|port| port + 20).collect();
    assert_eq!(slots(&fake, 21), moved);
    // Rules that stayed while a port got another number are led to the new one, and no slot changes its target.
    for port in &mut fake.state().ports {
        port.number += if port.name == "in1" { 40 } else { 0 };
    }
    let done = driver.apply(&without(3, &[])).unwrap();
    assert_eq!((done.changed, done.moved_permille), (1, Some(0)));
    assert_eq!(
        slots(&fake, 21).iter().filter(|port| **port == 63).count(),
        8
    );
}

/// A driver that restarts finds slots on the switch, whichever version wrote them, and what another one left half done.
#[test]
fn a_new_driver_goes_on_from_the_rules_that_it_finds() {
    let (mut first, fake) = world(&BOTH[..1]);
    first.apply(&without(1, &[])).unwrap();
    first.apply(&without(2, &["nat-1"])).unwrap();
    let before = slots(&fake, 1);
    fake.state().faults.push(("barrier", Fault::ClosesBefore));
    first.apply(&without(3, &[])).unwrap_err();
    assert_eq!(fake.state().groups.len(), 4);
    drop(first);
    fake.state().versions = BOTH.to_vec();
    let mut second = OvsSteering::with_dial(config(24), Box::new(fake.clone()));
    assert!(!second.observe().unwrap().as_applied);
    let done = second.apply(&without(2, &["nat-1"])).unwrap();
    assert_eq!(done.moved_permille, Some(0));
    assert_eq!(slots(&fake, 1), before);
    let done = second.apply(&without(2, &["nat-1"])).unwrap();
    assert_eq!(done.changed, 0);
}

#[test]
fn rules_of_others_stay_and_are_not_written_over() {
    for versions in [&BOTH[..], &BOTH[..1]] {
        let (mut driver, fake) = world(versions);
        let foreign = Flow {
            table: 0,
            priority: 1,
            cookie: 99,
            matching: Match::default(),
            instructions: vec![Instruction::Apply(vec![Action::Output(3)])],
        };
        let group = Group {
            id: 7,
            selects: true,
            selection: Selection::Unnamed,
            buckets: Vec::new(),
        };
        fake.state().flows.push(foreign.clone());
        fake.state().groups.push(group.clone());
        driver.apply(&without(1, &[])).unwrap();
        driver.apply(&without(2, &["nat-3"])).unwrap();
        assert!(fake.state().flows.contains(&foreign));
        assert!(fake.state().groups.contains(&group));

        // A flow of ours is written over by another program: it is seen, and not taken back by force.
        let stolen = {
            let mut state = fake.state();
            let flow = state
                .flows
                .iter_mut()
                .find(|flow| flow.cookie == COOKIE)
                .unwrap();
            flow.cookie = 99;
            flow.clone()
        };
        let seen = driver.observe().unwrap();
        assert!(!seen.as_applied);
        assert_eq!(seen.targets[0].share_permille, 0);
        let error = driver.apply(&without(2, &["nat-3"])).unwrap_err();
        assert!(
            matches!(&error, SteeringError::Refused { said, .. } if said.contains("0x63")),
            "{error}"
        );
        fake.state().flows.retain(|flow| *flow != stolen);
        assert_eq!(driver.apply(&without(2, &["nat-3"])).unwrap().changed, 1);

        // So with a group that has one of our numbers and none of our forms.
        let is_led_to = |id: &u32| {
            let leads = [Instruction::Apply(vec![Action::Group(*id)])];
            let state = fake.state();
            state.flows.iter().any(|flow| flow.instructions == leads)
        };
        let free = (FIRST_GROUP..FIRST_GROUP + 4).find(|id| !is_led_to(id));
        let free = free.unwrap();
        fake.state().groups.retain(|group| group.id != free);
        let theirs = Group {
            id: free,
            buckets: vec![Bucket {
                number: 0,
                weight: 1,
                actions: vec![Action::Output(3)],
            }],
            ..group
        };
        fake.state().groups.push(theirs.clone());
        let error = driver.apply(&without(3, &[])).unwrap_err();
        assert!(matches!(&error, SteeringError::Refused { .. }), "{error}");
        assert!(fake.state().groups.contains(&theirs));
    }
}

/// Flows of an earlier configuration of the same driver are its own, and go.
#[test]
fn flows_that_no_direction_has_are_deleted() {
    let (mut driver, fake) = world(&BOTH);
    let mut earlier = config(24);
    earlier.directions.truncate(1);
    earlier.directions[0].destinations = vec![network([10, 0, 0, 0], 8)];
    earlier.priority = 5;
    let mut other = OvsSteering::with_dial(earlier, Box::new(fake.clone()));
    other.apply(&without(1, &["nat-2"])).unwrap();
    let done = driver.apply(&without(1, &[])).unwrap();
    assert_eq!(fake.state().flows.len(), 3);
    assert!(
        fake.state()
            .flows
            .iter()
            .all(|flow| flow.priority == PRIORITY)
    );
    assert!(done.changed > 0 && driver.observe().unwrap().as_applied);
}

#[test]
fn ports_that_are_down_or_gone_are_noticed() {
    let (mut driver, fake) = world(&BOTH);
    driver.apply(&without(1, &[])).unwrap();
    let down = |driver: &mut OvsSteering| {
        let seen = driver.observe().unwrap();
        seen.targets
            .iter()
            .map(|one| one.link_down)
            .collect::<Vec<_>>()
    };
    assert_eq!(down(&mut driver), [false; 3]);
    assert_eq!(driver.wait_for_ports(Duration::from_secs(1)), Ok(false));
    // On either side.
    for (place, bits) in [(3, [1, 0]), (7, [0, 1])] {
        let mut port = fake.state().ports[place].clone();
        [port.config, port.state] = bits;
        fake.state().ports[place] = port.clone();
        fake.state().unasked = vec![
            Message::EchoRequest(b"alive?".to_vec()),
            Message::PortStatus(PortReason::Modified, port),
        ];
        assert_eq!(driver.wait_for_ports(Duration::from_secs(1)), Ok(true));
    }
    assert_eq!(driver.wait_for_ports(Duration::from_secs(1)), Ok(false));
    assert_eq!(fake.received("echo"), 2);
    assert_eq!(down(&mut driver), [false, true, true]);
    // Nothing is reported while there is no connection: a port may have changed.
    fake.drop_connections();
    assert_eq!(driver.wait_for_ports(Duration::from_secs(1)), Ok(true));
    assert_eq!(driver.wait_for_ports(Duration::from_secs(1)), Ok(false));

    // A target whose port is gone cannot take packets; the others can.
    fake.state().ports.retain(|port| port.name != "in1");
    assert_eq!(down(&mut driver), [true; 3]);
    let error = driver.apply(&without(2, &[])).unwrap_err();
    assert!(matches!(&error, SteeringError::Refused { .. }), "{error}");
    driver.apply(&without(3, &["nat-1"])).unwrap();
    assert!(driver.observe().unwrap().as_applied);
    // So with one that packets come in by.
    fake.state().ports.retain(|port| port.name != "up");
    let error = driver.apply(&without(4, &["nat-1"])).unwrap_err();
    assert!(error.to_string().contains("come in"), "{error}");
}

#[test]
fn switches_of_other_versions_are_refused() {
    let (mut driver, _) = world(&[]);
    let error = driver.apply(&without(1, &[])).unwrap_err();
    assert!(error.to_string().contains("protocols"), "{error}");
    // A switch that does not know how to report ports is asked for them all the same.
    let (mut driver, fake) = world(&BOTH);
    fake.state().faults.push(("async", Fault::Refuses));
    driver.apply(&without(1, &[])).unwrap();
    for at in ["hello", "features"] {
        for fault in [Fault::IsSilent, Fault::SendsNonsense, Fault::ClosesAfter] {
            let (mut driver, fake) = world(&BOTH);
            fake.state().faults.push((at, fault));
            let error = driver.apply(&without(1, &[])).unwrap_err();
            assert!(error.to_string().contains("nothing was changed"), "{error}");
            driver.apply(&without(1, &[])).unwrap();
        }
    }
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut OvsConfig), says: &str| {
        let mut config = config(24);
        change(&mut config);
        let error = OvsSteering::new(config).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(&|it| it.directions.clear(), "0 directions");
    refused(&|it| it.slots = 65, "65 slots");
    refused(&|it| it.time_max = Duration::ZERO, "for a call");
    refused(&|it| it.cookie = 0, "other meanings");
    refused(&|it| it.first_group = u32::MAX - 4, "reserves");
    refused(&|it| it.directions[0].ingress.clear(), "0 ingress ports");
    refused(&|it| it.directions[0].destinations.clear(), "0 networks");
    refused(&|it| it.directions[0].hops.clear(), "0 targets");
    refused(
        &|it| it.directions[0].hash = Selection::Unnamed,
        "power of two",
    );
    refused(
        &|it| it.directions[0].destinations = vec![network([1, 2, 3, 4], 8)],
        "no network",
    );
    refused(
        &|it| it.directions[1].ingress.push("out".to_owned()),
        "twice",
    );
    refused(&|it| it.directions[1].hops.truncate(2), "same targets");
    refused(
        &|it| it.directions[0].hops[0].port = "up".to_owned(),
        "sent out there",
    );
    refused(
        &|it| it.directions[0].hops[0].port = "sixteen-letters!".to_owned(),
        "no port's name",
    );
    refused(&|it| it.directions[0].hops[0].address = [0; 6], "Ethernet");
    refused(
        &|it| it.directions[0].hops[0].target = "nat-2".to_owned(),
        "twice in a direction",
    );
    refused(
        &|it| {
            it.directions[0].hops[0] = OvsHop {
                target: "nat-1".to_owned(),
                ..it.directions[0].hops[1].clone()
            }
        },
        "tell them apart",
    );
    assert!(OvsSteering::new(config(24)).is_ok());
}
