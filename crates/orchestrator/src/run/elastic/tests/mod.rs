//! The runner in a cluster in memory (`fake.rs`), which checks at every call that what is done was written first, that no place has two
//! processes, and that no host is stopped while it gets packets.

mod fake;

use std::sync::Arc;

use asterism_elasticity::{BucketLoad, Policies, Span};
use fake::{FakeWorld, SERVES_AFTER, Store, process_of};

use super::record::Wanted;
use super::runner::{HostTemplate, Runner};
use super::{ScaleError, world::Buckets};
use crate::controller::Order;

/// A turn's length in milliseconds.
const TURN: u64 = 50;

/// A cluster with three places, and the orchestrator that leads it.
struct Bed {
    world: FakeWorld,
    runner: Runner,
    policy: Option<String>,
}

impl Bed {
    /// Without a policy there are as many hosts as places.
    fn new(policy: Option<&str>) -> Bed {
        let world = FakeWorld {
            name: "one",
            state: Arc::default(),
        };
        world.with(|state| {
            state.places = ["a", "b", "c"].map(String::from).into();
            (state.leader, state.term) = ("one", 1);
        });
        let policy = policy.map(str::to_owned);
        Bed {
            runner: runner("one", policy.as_deref()),
            world,
            policy,
        }
    }

    /// Hosts by load, one to three; a host carries a hundred packets a second.
    fn by_load() -> Bed {
        Bed::new(Some(
            "hosts = { min = 1, max = 3, step = 2 }\npackets_per_second = { out = 100, in = 40 }\n\
             out_for = \"1s\"\nin_for = \"3s\"\ncool_down = \"1s\"\ndrain = \"2s\"\n\
             back_off = { first = \"1s\", most = \"8s\" }",
        ))
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / TURN {
            self.world.with(|state| state.now += TURN);
            let _ = self.runner.turn(&mut self.world);
        }
    }

    /// Another orchestrator leads, on the same machine.
    fn change_leader(&mut self, name: &'static str) {
        self.world.with(|state| {
            (state.leader, state.fuse) = (name, None);
            state.term += 1;
        });
        self.world.name = name;
        self.runner = runner(name, self.policy.as_deref());
    }

    fn scale(&mut self, to: u32) -> Result<bool, ScaleError> {
        self.runner.scale(&mut self.world, to, Some("a test"))
    }

    fn running(&self) -> Vec<String> {
        self.world
            .with(|state| state.running().into_iter().map(str::to_owned).collect())
    }

    fn starts(&self, name: &str) -> u32 {
        self.world
            .with(|state| state.starts.get(name).copied().unwrap_or(0))
    }

    fn count(&self, kind: &str) -> usize {
        self.world.with(|state| state.kinds(kind).len())
    }
}

fn runner(name: &str, policy: Option<&str>) -> Runner {
    let text = policy.unwrap_or("hosts = { min = 3, max = 3, step = 3 }\ndrain = \"2s\"");
    let policies = Policies::read(&format!("[policy.test]\n{text}")).unwrap();
    Runner::new(
        name.to_owned(),
        ["a", "b", "c"].map(String::from).into(),
        policies.rules("test").unwrap().clone(),
        policy.is_some(),
        HostTemplate {
            configuration: "/etc/asterism/asterism.toml".into(),
            ..HostTemplate::default()
        },
        Span(100),
    )
}

#[test]
fn every_place_gets_one_process_and_one_that_dies_is_started_again() {
    let mut bed = Bed::new(None);
    bed.run(2_000);
    assert_eq!(bed.running(), ["a", "b", "c"]);
    assert_eq!((bed.starts("a"), bed.count("host-started")), (1, 3));
    bed.world.with(|state| state.kill("b"));
    bed.run(1_000);
    assert_eq!((bed.running().len(), bed.starts("b")), (3, 2));
    bed.world.with(|state| {
        assert_eq!(state.ended, [("b".to_owned(), process_of(1))]);
        let ended = "b has ended with exit code 3; its last line: the key file is not there";
        assert_eq!(state.kinds("host-ended"), [ended]);
    });
}

#[test]
fn hosts_come_and_go_by_load_with_reasons() {
    let mut bed = Bed::by_load();
    bed.run(2_000);
    assert_eq!(bed.running(), ["a"]);
    bed.world.with(|state| state.packets = 250);
    bed.run(4_000);
    assert_eq!(bed.running(), ["a", "b", "c"]);
    bed.world.with(|state| state.packets = 60);
    bed.run(20_000);
    assert_eq!(bed.running().len(), 1, "{:?}", bed.world);
    bed.world.with(|state| {
        let out = state.kinds("scale-out");
        assert!(
            out[1].starts_with("add 2 hosts: packets/s at 250 is above 100 for 1s"),
            "{out:?}"
        );
        let inward = state.kinds("scale-in");
        assert_eq!(inward.len(), 2, "{inward:?}");
        assert!(
            inward[0].starts_with("remove c, draining for 2s: "),
            "{inward:?}"
        );
        let stopped = state.kinds("host-stopped");
        assert!(
            stopped[0].contains("the fake vouches for it"),
            "{stopped:?}"
        );
        assert_eq!(state.takers(), ["a"]);
        // The next process in a place that was left is not drained.
        state.packets = 250;
    });
    bed.run(6_000);
    bed.world
        .with(|state| assert_eq!(state.takers(), ["a", "b", "c"]));
}

/// The orchestrator dies after a call that it makes from its start through a scale-out and a scale-in, every third of them in turn, and
/// another one goes on.
#[test]
fn another_leader_goes_on_wherever_the_first_one_died() {
    let (mut deaths, mut scaled) = (0, 0);
    for fuse in (0..).step_by(3) {
        let mut bed = Bed::by_load();
        bed.world.with(|state| state.fuse = Some(fuse));
        bed.run(2_000);
        bed.world.with(|state| state.packets = 250);
        bed.run(4_000);
        scaled += usize::from(bed.running().len() == 3);
        bed.world.with(|state| state.packets = 60);
        bed.run(20_000);
        let is_dead = bed.world.with(|state| state.fuse == Some(0));
        deaths += usize::from(is_dead);
        bed.change_leader("two");
        bed.run(20_000);
        assert_eq!(bed.running().len(), 1, "fuse {fuse}: {:?}", bed.world);
        bed.world.with(|state| {
            assert_eq!(state.takers().len(), 1, "fuse {fuse}");
            let wanted = state.record().places.into_values();
            let on = wanted.filter(|place| place.wanted == Wanted::Runs);
            assert_eq!(on.count(), 1, "fuse {fuse}");
            // Nobody was killed, so nobody was started a second time.
            assert!(
                state.starts.values().all(|starts| *starts == 1),
                "fuse {fuse}: {:?}",
                state.starts
            );
        });
        if !is_dead {
            break;
        }
    }
    assert!(deaths > 100 && scaled > 15, "{deaths} {scaled}");
}

/// The last heartbeat of the one that died is of a second ago when the next launch is due.
#[test]
fn a_host_that_dies_at_once_is_launched_again_after_the_pause() {
    let mut bed = Bed::new(Some(
        "hosts = { min = 3, max = 3, step = 3 }\ndrain = \"2s\"\nback_off = { first = \"1s\", most = \"8s\" }",
    ));
    bed.run(SERVES_AFTER / 2);
    bed.world.with(|state| state.kill("b"));
    bed.run(2_500);
    assert_eq!((bed.running().len(), bed.starts("b")), (3, 2));
    assert_eq!(bed.count("launch-failed"), 1);
}

#[test]
fn a_launch_that_fails_says_why_and_backs_off() {
    let mut bed = Bed::by_load();
    bed.run(1_000);
    bed.world.with(|state| {
        state.packets = 120;
        state.broken = ["b", "c"].map(String::from).into();
    });
    bed.run(20_000);
    let tries = bed.starts("b") + bed.starts("c");
    // After 1, 2, 4 and 8 seconds, and the time for which the figure must stay.
    assert!((3..=6).contains(&tries), "{tries}");
    bed.world.with(|state| {
        let failed = state.kinds("launch-failed");
        assert_eq!(failed.len(), tries as usize);
        assert!(
            failed[0].contains("exit code 3 before it served"),
            "{failed:?}"
        );
        assert!(
            failed[0].contains("the key file is not there"),
            "{failed:?}"
        );
        assert!(
            state
                .kinds("scale-held")
                .iter()
                .any(|text| text.contains("failed"))
        );
        state.broken.clear();
    });
    bed.run(12_000);
    assert!(bed.running().len() >= 2, "{:?}", bed.running());
}

#[test]
fn without_the_store_nothing_is_begun_and_everything_goes_on() {
    let mut bed = Bed::by_load();
    bed.run(2_000);
    bed.world.with(|state| {
        state.store = Store::Away;
        state.packets = 250;
    });
    bed.run(10_000);
    assert_eq!(
        (bed.running(), bed.count("scale-out")),
        (vec!["a".to_owned()], 1)
    );
    assert_eq!(bed.scale(2), Err(ScaleError::NotStored));
    // One that dies now is not started again either: nobody could admit it.
    bed.world.with(|state| state.kill("a"));
    bed.run(2_000);
    assert!(bed.running().is_empty());
    bed.world.with(|state| state.store = Store::Well);
    bed.run(8_000);
    assert_eq!(bed.running().len(), 3, "{:?}", bed.world);
}

#[test]
fn a_lost_answer_of_the_store_starts_nobody_twice() {
    let mut bed = Bed::by_load();
    bed.world.with(|state| state.store = Store::AnswersLost);
    bed.run(5_000);
    bed.world.with(|state| state.packets = 250);
    bed.run(10_000);
    bed.world.with(|state| state.store = Store::Well);
    bed.run(6_000);
    assert_eq!(bed.running(), ["a", "b", "c"]);
    assert!(["a", "b", "c"].iter().all(|name| bed.starts(name) == 1));
}

#[test]
fn a_host_that_dies_while_it_drains_is_not_missed() {
    let mut bed = Bed::new(None);
    bed.run(2_000);
    assert_eq!(bed.scale(2), Ok(true));
    bed.run(300);
    let leaves = |bed: &Bed| {
        let places = bed.world.with(|state| state.record().places);
        let leaves = |wanted| matches!(wanted, Wanted::Leaves { .. });
        let found = places.into_iter().find(|(_, place)| leaves(place.wanted));
        found.map(|(name, _)| name)
    };
    let leaving = leaves(&bed).unwrap();
    bed.world.with(|state| state.kill(&leaving));
    bed.run(5_000);
    assert_eq!((bed.running().len(), leaves(&bed)), (2, None));
    assert_eq!(bed.starts(&leaving), 1);
    bed.world.with(|state| {
        assert_eq!(state.ended, [(leaving.clone(), process_of(1))]);
        assert!(
            state.kinds("host-stopped")[0]
                .starts_with("c ended by itself while it left: incarnation 1 of c has ended")
        );
    });
}

#[test]
fn the_last_of_orders_that_contradict_each_other_holds() {
    let mut bed = Bed::new(None);
    bed.run(2_000);
    for to in [1, 3, 2, 1, 3, 1, 2] {
        assert_eq!(bed.scale(to), Ok(true));
        bed.run(200);
    }
    assert_eq!(bed.scale(2), Ok(false));
    bed.run(20_000);
    assert_eq!(bed.running().len(), 2, "{:?}", bed.world);
    for (to, most) in [(0, 3), (4, 3), (u32::MAX, 3)] {
        let refused = ScaleError::Bounds { to, least: 1, most };
        assert_eq!(bed.scale(to), Err(refused));
    }
    // An operator restores the host that leaves: it stays, and the decisions choose again.
    assert_eq!(bed.scale(1), Ok(true));
    bed.run(600);
    let restored = bed.world.with(|state| {
        let leaves = |(_, place): &(String, super::record::Place)| {
            place.wanted != Wanted::Runs && place.is_on()
        };
        let (name, _) = state.record().places.into_iter().find(leaves).unwrap();
        state.order(Order::Restore(name.clone()));
        name
    });
    bed.run(200);
    assert_eq!(
        bed.count("leave-cancelled"),
        1,
        "{restored} {:?}",
        bed.world
    );
    bed.run(10_000);
    assert_eq!(bed.running().len(), 1);
}

#[test]
fn an_order_within_the_policy_is_reached_and_the_policy_goes_on() {
    let mut bed = Bed::by_load();
    bed.world.with(|state| state.packets = 100);
    bed.run(500 + SERVES_AFTER);
    assert_eq!(bed.scale(3), Ok(true));
    bed.run(3_000);
    assert_eq!((bed.running().len(), bed.count("scale-reached")), (3, 1));
    assert_eq!(bed.world.with(|state| state.record().ordered), None);
    bed.run(20_000);
    // 100 packets/s are few for three hosts, and not for two.
    assert_eq!(bed.running().len(), 2, "{:?}", bed.world);
}

#[test]
fn what_runs_already_is_taken_over() {
    let mut bed = Bed::new(None);
    bed.run(2_000);
    // The store lost what it had: a new cluster, to look at it.
    bed.world.with(|state| state.stored = None);
    bed.change_leader("two");
    bed.run(2_000);
    assert_eq!(bed.count("host-found"), 3);
    assert!(["a", "b", "c"].iter().all(|name| bed.starts(name) == 1));
    assert_eq!(bed.world.with(|state| state.record().places.len()), 3);
}

#[test]
fn buckets_of_a_hot_host_move() {
    let mut bed = Bed::new(Some(
        "hosts = { min = 2, max = 2, step = 2 }\n\
         hot_spot = { factor_permille = 1_200, for = \"1s\", least_packets_per_second = 10 }",
    ));
    let loads = |first: u32, count: u32, packets_per_second| -> Vec<BucketLoad> {
        let buckets = first..first + count;
        let load = |bucket| BucketLoad {
            bucket,
            packets_per_second,
        };
        buckets.map(load).collect()
    };
    let buckets: Buckets = [
        ("a".to_owned(), loads(0, 10, 90)),
        ("b".to_owned(), loads(10, 10, 10)),
    ]
    .into();
    bed.world.with(|state| {
        state.packets = 1_000;
        state.buckets = Some(buckets);
    });
    bed.run(8_000);
    bed.world.with(|state| {
        let (moved, to) = &state.moves[0];
        assert_eq!(to, "b");
        assert!(
            moved.len() >= 3 && moved.iter().all(|bucket| *bucket < 10),
            "{moved:?}"
        );
        let said = state.kinds("buckets-move");
        assert!(
            said[0].contains("a has 1.80 times of the mean load")
                || said[0].contains("of the mean load"),
            "{said:?}"
        );
    });
}
