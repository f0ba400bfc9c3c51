//! Hosts that register with a controller: who gets which place, who does not, and when a place is another's.

mod history;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use asterism_epochs::{EpochFile, place_names};
use asterism_heartbeat::RegistrationRefused;
use asterism_orchestrator::controller::{
    Command, Controller, Event, ForgetError, Heartbeat, Input, NEWCOMERS_MAX, Order, Process,
    Record, Stage, Times,
};
use asterism_placement::Time;

const MS: Duration = Duration::from_millis(1);

fn process(folder: u64, start: u64) -> Process {
    Process { folder, start }
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7400))
}

/// A controller that leads, over a store that does what it is asked at once.
struct Leader {
    controller: Controller,
    now: Time,
    version: u64,
    handed: Vec<(String, Process, EpochFile)>,
    refused: Vec<(String, Option<RegistrationRefused>)>,
    events: Vec<Event>,
}

impl Leader {
    fn new(places: u16) -> Leader {
        let controller = Controller::open(place_names(places), Times::default());
        let mut leader = Leader {
            controller: controller.unwrap(),
            now: Time::from_micros(1),
            version: 0,
            handed: Vec::new(),
            refused: Vec::new(),
            events: Vec::new(),
        };
        leader.hear(Input::Leads {
            term: 1,
            until: Time::MAX,
        });
        let (record, version) = (Record::default(), 0);
        leader.hear(Input::Record { record, version });
        leader
    }

    fn hear(&mut self, input: Input) {
        self.controller.handle(self.now, input);
        self.obey();
    }

    fn obey(&mut self) {
        while let Some(command) = self.controller.poll_command() {
            match command {
                Command::Store { record, .. } => {
                    let places = place_names(64);
                    let read = Record::from_bytes(&record.to_bytes(), &places);
                    assert_eq!(read.unwrap(), record, "as a store has it");
                    self.version += 1;
                    let version = self.version;
                    self.controller.handle(self.now, Input::Stored { version });
                }
                Command::Hand {
                    host,
                    process,
                    epoch,
                } => self.handed.push((host, process, epoch)),
                Command::Refuse { host, why, .. } => self.refused.push((host, why)),
                Command::Read | Command::Steer(_) | Command::Depose { .. } => {}
            }
        }
        self.events
            .extend(std::iter::from_fn(|| self.controller.poll_event()));
    }

    fn beat(&mut self, host: &str, process: Process, stage: Stage, at: u8) {
        let heartbeat = Heartbeat {
            host: host.to_owned(),
            address: Some(address(at)),
            process,
            stage,
            epoch: match stage {
                Stage::Awaiting => 0,
                _ => self.record().epoch_number(),
            },
            silent: BTreeSet::new(),
            digests_agree: true,
            leader: None,
        };
        self.hear(Input::Heartbeat(heartbeat));
    }

    /// So many milliseconds in which these are heard every ten.
    fn run(&mut self, ms: u32, beats: &[(&str, Process, Stage, u8)]) {
        for _ in 0..ms / 10 {
            for (host, process, stage, at) in beats {
                self.beat(host, *process, *stage, *at);
            }
            self.now = self.now + 10 * MS;
            self.controller.handle_timeout(self.now);
            self.obey();
        }
    }

    fn record(&self) -> &Record {
        self.controller.record().unwrap()
    }

    fn epoch(&self) -> &EpochFile {
        self.record().epoch.as_ref().unwrap()
    }

    fn place(&self, host: &str) -> Option<String> {
        self.controller.place_of(host)
    }

    /// `a` and `b` have registered, are members, and serve.
    fn formed(places: u16) -> Leader {
        let mut leader = Leader::new(places);
        let (a, b) = (process(1, 1), process(2, 1));
        let waiting = [("a", a, Stage::Awaiting, 1), ("b", b, Stage::Awaiting, 2)];
        leader.run(1_500, &waiting);
        leader.run(1_500, &SERVING);
        leader
    }
}

const SERVING: [(&str, Process, Stage, u8); 2] = [
    (
        "a",
        Process {
            folder: 1,
            start: 1,
        },
        Stage::Serving(1),
        1,
    ),
    (
        "b",
        Process {
            folder: 2,
            start: 1,
        },
        Stage::Serving(1),
        2,
    ),
];

fn with<'a>(more: &[(&'a str, Process, Stage, u8)]) -> Vec<(&'a str, Process, Stage, u8)> {
    SERVING.iter().chain(more).copied().collect()
}

#[test]
fn hosts_get_places_and_an_epoch_names_them() {
    let mut leader = Leader::formed(4);
    assert_eq!(leader.place("a").unwrap(), "place-1");
    assert_eq!(leader.place("b").unwrap(), "place-2");
    let epoch = leader.epoch();
    assert_eq!(epoch.members.len(), 2);
    assert_eq!(epoch.hosts["b"].address, address(2));
    assert_eq!(epoch.ports.len(), 2, "both free places are dealt");
    assert_eq!(leader.refused, []);
    assert!(
        leader
            .handed
            .iter()
            .any(|(host, to, _)| host == "b" && *to == process(2, 1))
    );
    let takes = |host: &str| Event::Takes {
        host: host.to_owned(),
    };
    assert!(leader.events.contains(&takes("a")) && leader.events.contains(&takes("b")));

    // A third host joins with nothing but its own name and address.
    let c = process(3, 1);
    leader.run(1_000, &with(&[("c", c, Stage::Awaiting, 3)]));
    let epoch = leader.epoch().clone();
    assert_eq!((epoch.epoch, epoch.members["place-3"]), (2, 1));
    assert_eq!(epoch.hosts["c"].address, address(3));
    let to = |host: &str| {
        leader
            .handed
            .iter()
            .filter(|(name, ..)| name == host)
            .count()
    };
    assert!(to("a") >= 2 && to("c") >= 1, "all are handed it");
    let held = |place: &str| {
        let partitions = epoch.ports.values().flat_map(|held| &held.partitions);
        partitions.filter(|holder| *holder == place).count()
    };
    assert_eq!(held("place-3"), 16, "a third of all");
}

#[test]
fn orders_name_hosts_and_hold_for_their_places() {
    let mut leader = Leader::formed(4);
    leader.hear(Input::Order(Order::Drain("b".to_owned())));
    leader.hear(Input::Order(Order::Withdraw("b".to_owned())));
    leader.run(100, &SERVING);
    let of_b = BTreeSet::from(["place-2".to_owned()]);
    assert_eq!(leader.record().drained, of_b);
    assert_eq!(leader.record().withdrawn, of_b);
    assert_eq!(leader.controller.takers().collect::<Vec<_>>(), ["place-1"]);

    leader.hear(Input::Order(Order::Restore("b".to_owned())));
    leader.run(100, &SERVING);
    assert!(leader.record().drained.is_empty() && leader.record().withdrawn.is_empty());
    let stored = leader.version;
    leader.run(1_000, &SERVING);
    assert_eq!(leader.controller.takers().count(), 2);
    assert_eq!(leader.version, stored, "no order is carried out twice");
}

#[test]
fn who_gets_no_place_learns_why() {
    let mut leader = Leader::formed(3);
    let waits = |host, folder, at| (host, process(folder, 1), Stage::Awaiting, at);
    leader.run(100, &with(&[waits("twin", 3, 2)]));
    assert_eq!(leader.place("twin"), None);
    let last = |leader: &Leader| leader.refused.last().cloned();
    let refused = |host: &str, why| Some((host.to_owned(), Some(why)));
    assert_eq!(
        last(&leader),
        refused("twin", RegistrationRefused::AddressInUse)
    );
    for name in ["Two", "place-3", "a_b"] {
        leader.run(100, &with(&[waits(name, 4, 9)]));
        assert_eq!(last(&leader), refused(name, RegistrationRefused::Invalid));
    }
    leader.run(500, &with(&[waits("c", 5, 5)]));
    assert_eq!(leader.place("c").unwrap(), "place-3");
    leader.run(
        100,
        &with(&[("c", process(5, 1), Stage::Serving(1), 5), waits("d", 6, 6)]),
    );
    assert_eq!(
        last(&leader),
        refused("d", RegistrationRefused::NoFreePlace)
    );
    // A process of a name that another one has, which may still run.
    leader.run(
        3_000,
        &with(&[("c", process(5, 1), Stage::Serving(1), 5), waits("c", 7, 7)]),
    );
    assert_eq!(last(&leader), refused("c", RegistrationRefused::NameInUse));
    assert_eq!(leader.epoch().members["place-3"], 1);
    let said = |event: &&Event| matches!(event, Event::NotRegistered { .. });
    assert_eq!(
        leader.events.iter().filter(said).count(),
        5,
        "once for each reason"
    );
}

#[test]
fn a_host_that_returns_has_its_place_and_may_be_elsewhere() {
    let mut leader = Leader::formed(4);
    let a = SERVING[0];
    leader.run(50, &[a, ("b", process(2, 1), Stage::Ended(1), 2)]);
    leader.run(8_000, &[a]);
    assert_eq!(leader.epoch().fenced["place-2"], 1);
    assert_eq!(
        leader.epoch().hosts["b"].address,
        address(2),
        "its place stays its own"
    );
    leader.run(2_000, &[a, ("b", process(2, 2), Stage::Awaiting, 22)]);
    let epoch = leader.epoch();
    assert_eq!(
        (epoch.members["place-2"], epoch.hosts["b"].address),
        (2, address(22))
    );
    // With the address of another host it is not admitted.
    leader.run(50, &[a, ("b", process(2, 2), Stage::Ended(2), 22)]);
    leader.run(1_000, &[a]);
    leader.run(20_000, &[a, ("b", process(2, 3), Stage::Awaiting, 1)]);
    assert!(!leader.epoch().members.contains_key("place-2"));
    let why = Some(RegistrationRefused::AddressInUse);
    assert_eq!(leader.refused.last(), Some(&("b".to_owned(), why)));
    leader.run(2_000, &[a, ("b", process(2, 3), Stage::Awaiting, 3)]);
    assert_eq!(leader.epoch().members["place-2"], 3);
    assert_eq!(leader.refused.last(), Some(&("b".to_owned(), None)));
}

#[test]
fn a_place_is_free_once_its_host_has_ended_and_is_forgotten() {
    let mut leader = Leader::formed(2);
    let a = SERVING[0];
    let c = ("c", process(3, 1), Stage::Awaiting, 3);
    let may = |leader: &Leader, host: &str| leader.controller.may_forget(host);
    assert_eq!(may(&leader, "b"), Err(ForgetError::Member));
    assert_eq!(may(&leader, "x"), Err(ForgetError::Unknown));
    // It is silent, and is left out without evidence.
    leader.run(12_000, &[a, ("b", process(2, 9), Stage::Awaiting, 2)][..1]);
    assert!(
        leader.epoch().members.contains_key("place-2"),
        "half of two is no evidence"
    );
    leader.run(50, &[a, ("b", process(2, 1), Stage::Ended(1), 2)]);
    leader.run(100, &[a, c]);
    assert_eq!(may(&leader, "b"), Ok(()));
    assert_eq!(leader.place("c"), None, "the place is still b's");
    leader.hear(Input::Order(Order::Forget("b".to_owned())));
    leader.run(3_000, &[a, c]);
    assert_eq!(leader.place("b"), None);
    assert_eq!(leader.place("c").unwrap(), "place-2");
    let epoch = leader.epoch();
    assert_eq!(
        epoch.members["place-2"], 2,
        "incarnations of a place only grow"
    );
    assert_eq!(epoch.host_at("place-2"), Some("c"));
    let is = |event: &Event| {
        *event
            == Event::Forgotten {
                host: "b".to_owned(),
            }
    };
    assert!(leader.events.iter().any(is));
    // b comes back as a newcomer, and finds no place.
    leader.run(200, &[a, ("b", process(2, 2), Stage::Awaiting, 2)]);
    let why = Some(RegistrationRefused::NoFreePlace);
    assert_eq!(leader.refused.last(), Some(&("b".to_owned(), why)));
}

#[test]
fn newcomers_are_bounded_and_those_that_were_never_admitted_lose_their_place() {
    let mut leader = Leader::formed(4);
    // It registers and is gone before an epoch names it.
    leader.beat("typo", process(7, 1), Stage::Awaiting, 7);
    leader.run(10, &SERVING);
    assert_eq!(leader.place("typo").unwrap(), "place-3");
    leader.run(20_000, &SERVING);
    assert_eq!(leader.place("typo").unwrap(), "place-3");
    leader.run(15_000, &SERVING);
    assert_eq!(leader.place("typo"), None);
    let version = leader.version;
    for number in 0..3 * NEWCOMERS_MAX {
        let name = format!("n{number}");
        leader.beat(&name, process(100 + number as u64, 1), Stage::Awaiting, 9);
    }
    let known = leader.controller.registered().unwrap();
    assert!(known.len() <= 2 + NEWCOMERS_MAX, "{}", known.len());
    leader.run(3_000, &SERVING);
    assert!(
        leader.version <= version + 4,
        "one of them got a place, for their address is one"
    );
    assert_eq!(leader.record().hosts.len(), 3);
}

#[test]
fn a_leader_that_was_another_takes_no_address_twice() {
    let leader = Leader::formed(4);
    // The next leader has only what the store has.
    let mut next = Leader::new(4);
    next.version = leader.version;
    let (record, version) = (leader.record().clone(), leader.version);
    next.hear(Input::Record { record, version });
    next.run(3_000, &with(&[("c", process(3, 1), Stage::Awaiting, 1)]));
    assert_eq!(next.place("c"), None);
    next.run(3_000, &with(&[("c", process(3, 1), Stage::Awaiting, 3)]));
    assert_eq!(next.place("c").unwrap(), "place-3");
    assert_eq!(next.epoch().members.len(), 3);
    next.hear(Input::Follows { led_in: None });
    assert!(next.controller.may_forget("c").is_err());
}
