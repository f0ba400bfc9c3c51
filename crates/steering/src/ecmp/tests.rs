//! Tests of the driver on a table in memory, which understands the lines for `ip`.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::table::PresentHop;
use super::*;
use crate::{Generation, Standing, Target, laws};

/// A router in memory. What it is asked to install is sent to the test, which may also have it refuse.
struct Memory {
    routes: Vec<Option<Present>>,
    said: Sender<Vec<String>>,
    /// Lines that it takes before it refuses one.
    refuses_after: Receiver<usize>,
}

impl Table for Memory {
    fn read(&mut self, routes: &[EcmpRoute]) -> Result<Vec<Option<Present>>, SteeringError> {
        assert_eq!(routes.len(), self.routes.len());
        Ok(self.routes.clone())
    }

    fn replace(&mut self, lines: &[String]) -> Result<(), SteeringError> {
        // A test that has ended hears nothing.
        let _ = self.said.send(lines.to_vec());
        let most = self.refuses_after.try_recv().unwrap_or(usize::MAX);
        for (number, line) in lines.iter().enumerate() {
            if number >= most {
                return Err(SteeringError::Refused {
                    what: line.clone(),
                    said: "as reported".to_owned(),
                });
            }
            let place = ROUTES
                .iter()
                .position(|(route, _)| line.starts_with(&format!("route replace {route} ")));
            self.routes[place.unwrap()] = Some(understood(line));
        }
        Ok(())
    }
}

const ROUTES: [(&str, [u8; 4]); 2] = [
    ("203.0.113.0/29", [203, 0, 113, 0]),
    ("198.51.100.1/32", [198, 51, 100, 1]),
];

fn understood(line: &str) -> Present {
    let words: Vec<_> = line.split(' ').collect();
    let after = |place: usize| words[place + 1];
    let mut present = Present::default();
    for (place, word) in words.iter().enumerate() {
        match *word {
            "proto" => present.is_ours = after(place) == "77",
            "src" => present.source = Some(after(place).parse().unwrap()),
            "via" => present.hops.push(PresentHop {
                gateway: after(place).parse().unwrap(),
                interface: String::new(),
                weight: 1,
                is_down: false,
            }),
            "dev" => after(place).clone_into(&mut present.hops.last_mut().unwrap().interface),
            "weight" => present.hops.last_mut().unwrap().weight = after(place).parse().unwrap(),
            _ => {}
        }
    }
    present
}

fn config(spread: Spread) -> EcmpConfig {
    let bits = [29, 32];
    EcmpConfig {
        network: None,
        routes: ROUTES
            .iter()
            .zip(bits)
            .map(|((_, address), bits)| EcmpRoute::new((*address).into(), bits))
            .collect(),
        hops: (1..=3)
            .map(|number| EcmpHop {
                target: format!("nat-{number}"),
                gateway: [198, 51, 100, 9].into(),
                interface: format!("port{number}"),
            })
            .collect(),
        spread,
    }
}

struct World {
    driver: EcmpSteering,
    said: Receiver<Vec<String>>,
    refuse_after: Sender<usize>,
}

fn world(spread: Spread) -> World {
    let (say, said) = channel();
    let (refuse_after, refuses_after) = channel();
    let memory = Memory {
        routes: vec![None, None],
        said: say,
        refuses_after,
    };
    World {
        driver: EcmpSteering::with_table(config(spread), Box::new(memory)),
        said,
        refuse_after,
    }
}

fn all(generation: u64, without: &[&str]) -> Desired {
    let names = ["nat-1", "nat-2", "nat-3"].into_iter();
    let left = names.filter(|name| !without.contains(name));
    Desired::new(
        Generation(generation),
        left.map(|name| (name.to_owned(), Target::TAKES)),
    )
    .unwrap()
}

#[test]
fn the_driver_keeps_the_laws() {
    for spread in [Spread::Slots(24), Spread::Slots(3), Spread::Weights] {
        let names = ["nat-1", "nat-2", "nat-3"];
        let report = laws::check(&names, &mut || Ok(Box::new(world(spread).driver)));
        assert_eq!(report.share(), 1.0, "{spread:?}: {report}");
    }
}

#[test]
fn both_routes_change_in_one_batch_and_only_those_that_must() {
    let mut world = world(Spread::Weights);
    world.driver.apply(&all(1, &[])).unwrap();
    let lines = world.said.recv().unwrap();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("port2"));
    let done = world.driver.apply(&all(2, &["nat-2"])).unwrap();
    assert_eq!((done.changed, done.moved_permille), (2, Some(334)));
    let lines = world.said.recv().unwrap();
    assert!(lines.iter().all(|line| !line.contains("port2")));
    // The same under a new number changes nothing, and is in force.
    let done = world.driver.apply(&all(3, &["nat-2"])).unwrap();
    assert_eq!((done.generation, done.changed), (Generation(3), 0));
    assert!(world.said.try_recv().is_err());
    assert_eq!(world.driver.counts().changed, 4);
}

#[test]
fn what_fails_half_way_is_cured_by_saying_it_again() {
    let mut world = world(Spread::Slots(6));
    world.driver.apply(&all(1, &[])).unwrap();
    world.refuse_after.send(1).unwrap();
    let error = world.driver.apply(&all(2, &["nat-1"])).unwrap_err();
    assert!(matches!(error, SteeringError::Refused { .. }), "{error}");
    assert!(!error.is_refusal());
    let seen = world.driver.observe().unwrap();
    assert!(!seen.as_applied && seen.generation.is_none());
    // The older state is no way back: anyone who decides has decided.
    let stale = world.driver.apply(&all(1, &[])).unwrap_err();
    assert!(matches!(stale, SteeringError::Stale { .. }) && stale.is_refusal());
    let done = world.driver.apply(&all(2, &["nat-1"])).unwrap();
    assert_eq!(done.changed, 1);
    assert!(world.driver.observe().unwrap().as_applied);
    let counts = world.driver.counts();
    assert_eq!((counts.applied, counts.failed, counts.refused), (2, 1, 1));
}

#[test]
fn what_somebody_else_changed_is_seen_and_put_right() {
    let mut world = world(Spread::Slots(6));
    world.driver.apply(&all(1, &[])).unwrap();
    let foreign = "route replace 203.0.113.0/29 via 192.0.2.1 dev other";
    world.driver.table.replace(&[foreign.to_owned()]).unwrap();
    let seen = world.driver.observe().unwrap();
    assert!(!seen.as_applied);
    assert_eq!(
        (seen.elsewhere_permille, seen.targets[0].share_permille),
        (1_000, 0)
    );
    let done = world.driver.apply(&all(1, &[])).unwrap();
    assert_eq!(done.changed, 1);
    assert_eq!(world.driver.counts().repaired, 1);
    assert!(world.driver.observe().unwrap().as_applied);
}

#[test]
fn weights_become_shares_and_too_many_targets_are_refused() {
    let weighted = |weights: [u16; 3]| {
        let names = ["nat-1", "nat-2", "nat-3"].into_iter();
        let target = |weight| Target {
            weight,
            standing: Standing::Takes,
        };
        let all = names.zip(weights);
        let all = all.map(|(name, weight)| (name.to_owned(), target(weight)));
        Desired::new(Generation(1), all).unwrap()
    };
    let mut world = world(Spread::Weights);
    world.driver.apply(&weighted([2, 1, 1])).unwrap();
    let shares = |driver: &mut EcmpSteering| {
        let seen = driver.observe().unwrap();
        let shares: Vec<_> = seen.targets.iter().map(|one| one.share_permille).collect();
        shares
    };
    assert_eq!(shares(&mut world.driver), [500, 250, 250]);
    let mut few = EcmpSteering::with_table(
        config(Spread::Slots(2)),
        Box::new(Memory {
            routes: vec![None, None],
            said: channel().0,
            refuses_after: channel().1,
        }),
    );
    assert_eq!(
        few.apply(&weighted([1, 1, 1])),
        Err(SteeringError::TooManyTargets { takers: 3, most: 2 })
    );
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut EcmpConfig), says: &str| {
        let mut config = config(Spread::Slots(24));
        change(&mut config);
        let error = EcmpSteering::new(config).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(&|config| config.routes.clear(), "0 routes");
    refused(&|config| config.hops.clear(), "0 next hops");
    refused(&|config| config.spread = Spread::Slots(65), "65 slots");
    refused(&|config| config.routes[0].prefix_bits = 33, "32 bits");
    refused(
        &|config| config.routes[0].prefix_bits = 8,
        "behind its prefix",
    );
    refused(
        &|config| config.routes.push(config.routes[0].clone()),
        "there twice",
    );
    for name in [
        "",
        "sixteen-letters!",
        "a b",
        "a/b",
        "a\nroute flush table main",
    ] {
        refused(
            &|config| name.clone_into(&mut config.hops[0].interface),
            "no interface's name",
        );
    }
    refused(
        &|config| config.hops[0].target = "nat-2".to_owned(),
        "there twice",
    );
    refused(
        &|config| config.hops[0].interface = "port2".to_owned(),
        "two targets",
    );
    assert!(EcmpSteering::new(config(Spread::Slots(24))).is_ok());
}
