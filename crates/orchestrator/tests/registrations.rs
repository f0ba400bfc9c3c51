//! Hosts that register with a controller: who gets which place, who does not, and when a place is another's.

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
                Command::Read | Command::Steer(_) => {}
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
fn who_gets_no_place_is_told_why() {
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
    next.hear(Input::Follows);
    assert!(next.controller.may_forget("c").is_err());
}

/// A random number generator for histories: splitmix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % count
    }
}

/// A host of a random history: one process at a time, which may be cut off from the orchestrators while it lives.
#[derive(Clone)]
struct Life {
    name: String,
    process: Process,
    at: u8,
    stage: Stage,
    epoch: u32,
    is_alive: bool,
    is_cut: bool,
}

const WORLD_PLACES: u16 = 4;
const HOSTS: u64 = 7;
/// Fewer addresses than hosts: some are configured with the address of another.
const ADDRESSES: u64 = 6;

/// More hosts than places come, flap, return elsewhere and are forgotten, while two controllers lead in turn over a store whose answers
/// are lost now and then. Never are two hosts in one place or at one address, never two lives in one place, and at the end every place
/// has a host that serves.
fn history(seed: u64) -> (usize, usize) {
    let mut draws = Draws(seed);
    let places = place_names(WORLD_PLACES);
    let times = Times {
        admit_pause_max: Duration::from_secs(4),
        ..Times::default()
    };
    let mut controllers: Vec<Controller> = (0..2)
        .map(|_| Controller::open(places.clone(), times).unwrap())
        .collect();
    let (mut record, mut version, mut term, mut leader) = (Record::default(), 0_u64, 1, 0_usize);
    let mut hosts: Vec<Life> = (0..HOSTS)
        .map(|number| Life {
            name: format!("h{number}"),
            process: process(100 + number, 1),
            at: draws.below(ADDRESSES) as u8 + 1,
            stage: Stage::Awaiting,
            epoch: 0,
            is_alive: false,
            is_cut: false,
        })
        .collect();
    let (mut forgotten, mut refused) = (0, 0);
    let mut now = Time::from_micros(1);
    const STEPS: u64 = 9_000;
    for step in 0..STEPS {
        now = now + 10 * MS;
        let is_calm = step > STEPS * 2 / 3;
        // What happens to hosts.
        if !is_calm && draws.below(40) == 0 {
            let number = draws.below(HOSTS) as usize;
            let host = &mut hosts[number];
            match draws.below(4) {
                0 if host.is_alive => host.is_cut = !host.is_cut,
                1 | 2 if host.is_alive && !host.is_cut => {
                    host.is_alive = false;
                    if let (1, Some(incarnation)) = (draws.below(2), host.stage.incarnation()) {
                        let ended = (host.clone(), Stage::Ended(incarnation));
                        for controller in &mut controllers {
                            controller.handle(now, Input::Heartbeat(beat(&ended.0, ended.1)));
                        }
                    }
                }
                _ if !host.is_alive => {
                    host.process.start += 1;
                    (host.stage, host.epoch) = (Stage::Awaiting, 0);
                    host.is_alive = true;
                    if draws.below(3) == 0 {
                        host.at = draws.below(ADDRESSES) as u8 + 1;
                    }
                }
                _ => {}
            }
        }
        if is_calm {
            for (number, host) in hosts.iter_mut().enumerate() {
                host.is_cut = false;
                // Those that collide are given an address of their own.
                if !host.is_alive || (host.stage == Stage::Awaiting && host.at < 100) {
                    host.process.start += u64::from(!host.is_alive);
                    (host.stage, host.epoch) = (Stage::Awaiting, 0);
                    (host.is_alive, host.at) = (true, 100 + number as u8);
                }
            }
        }
        for host in hosts.iter().filter(|host| host.is_alive && !host.is_cut) {
            let heartbeat = beat(host, host.stage);
            for controller in &mut controllers {
                if is_calm || draws.below(20) > 0 {
                    controller.handle(now, Input::Heartbeat(heartbeat.clone()));
                }
            }
        }
        // Who leads.
        if !is_calm && draws.below(400) == 0 {
            controllers[leader].handle(now, Input::Follows);
            (leader, term) = (1 - leader, term + 1);
        }
        if step % 20 == 0 {
            let until = now + 500 * MS;
            controllers[leader].handle(now, Input::Leads { term, until });
        }
        // The operator forgets a host that is gone, if it may be.
        if !is_calm && draws.below(60) == 0 {
            let name = hosts[draws.below(HOSTS) as usize].name.clone();
            controllers[leader].handle(now, Input::Order(Order::Forget(name)));
        }
        for number in 0..2 {
            controllers[number].handle_timeout(now);
            while let Some(command) = controllers[number].poll_command() {
                match command {
                    Command::Read => {
                        let record = record.clone();
                        controllers[number].handle(now, Input::Record { record, version });
                    }
                    Command::Store {
                        record: next,
                        replaces,
                        term: of,
                    } => {
                        let is_written = replaces == version && of == term && number == leader;
                        if is_written {
                            forgotten += record
                                .hosts
                                .keys()
                                .filter(|name| !next.hosts.contains_key(*name))
                                .count();
                            judge(seed, &hosts, &record, &next);
                            (record, version) = (next, version + 1);
                        }
                        let is_lost = !is_calm && draws.below(10) == 0;
                        controllers[number].handle(
                            now,
                            match is_written && !is_lost {
                                true => Input::Stored { version },
                                false => Input::NotStored,
                            },
                        );
                    }
                    Command::Hand {
                        host,
                        process,
                        epoch,
                    } => {
                        let place = epoch.place_of(&host).map(str::to_owned);
                        let to = hosts
                            .iter_mut()
                            .find(|one| one.name == host && one.process == process);
                        if let Some(to) =
                            to.filter(|to| to.is_alive && !to.is_cut && to.epoch < epoch.epoch)
                        {
                            to.epoch = epoch.epoch;
                            let named = place.and_then(|place| epoch.members.get(&place).copied());
                            to.stage = match (to.stage.incarnation(), named) {
                                (None, Some(incarnation)) => Stage::Joining(incarnation),
                                (None, None) => Stage::Awaiting,
                                (Some(own), named) if named != Some(own) => {
                                    to.is_alive = false;
                                    to.stage
                                }
                                _ => to.stage,
                            };
                        }
                    }
                    Command::Refuse { why, .. } => refused += usize::from(why.is_some()),
                    Command::Steer(_) => {}
                }
            }
            while let Some(event) = controllers[number].poll_event() {
                assert!(
                    !matches!(event, Event::NoNextEpoch { .. }),
                    "seed {seed}: {event}"
                );
            }
        }
        for host in &mut hosts {
            if let Stage::Joining(incarnation) = host.stage
                && host.is_alive
                && !host.is_cut
            {
                host.stage = Stage::Serving(incarnation);
            }
        }
        // The machine of a host that was left out while it was cut off is switched off, and the operator says so.
        if step % 100 == 0
            && let Some(epoch) = &record.epoch
        {
            for host in hosts.iter_mut().filter(|host| host.is_cut) {
                let place = epoch.place_of(&host.name).unwrap_or_default();
                let last = epoch.left.get(place).copied();
                if let Some(last) = last.filter(|last| host.stage.incarnation() == Some(*last)) {
                    if draws.below(3) == 0 {
                        (host.is_alive, host.is_cut) = (false, false);
                        let fence = Order::Fence(host.name.clone(), last);
                        controllers[leader].handle(now, Input::Order(fence));
                    }
                }
            }
        }
    }
    let epoch = record.epoch.expect("an epoch");
    assert_eq!(
        epoch.members.len(),
        usize::from(WORLD_PLACES),
        "seed {seed}: {}",
        epoch.text()
    );
    for (place, incarnation) in &epoch.members {
        let name = epoch.host_at(place).expect("a host");
        let host = hosts
            .iter()
            .find(|host| host.name == name)
            .expect("a known host");
        assert_eq!(
            host.stage,
            Stage::Serving(*incarnation),
            "seed {seed}: {name}"
        );
    }
    (forgotten, refused)
}

fn beat(host: &Life, stage: Stage) -> Heartbeat {
    Heartbeat {
        host: host.name.clone(),
        address: (stage == Stage::Awaiting).then_some(address(host.at)),
        process: host.process,
        stage,
        epoch: host.epoch,
        silent: BTreeSet::new(),
        digests_agree: true,
    }
}

/// What must hold of a record that the store takes.
fn judge(seed: u64, hosts: &[Life], before: &Record, after: &Record) {
    let places = place_names(WORLD_PLACES);
    let mut taken = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for (name, entry) in &after.hosts {
        assert!(
            taken.insert(&entry.place),
            "seed {seed}: {name} has {}, which another has",
            entry.place
        );
        assert!(
            addresses.insert(entry.address),
            "seed {seed}: {name} is at another's address"
        );
        let was = before.hosts.get(name);
        assert!(
            was.is_none_or(|was| was.place == entry.place),
            "seed {seed}: {name} moves"
        );
    }
    for (name, entry) in &after.hosts {
        if !before.hosts.contains_key(name) {
            let last = before.last_incarnation(&entry.place);
            let lives = hosts.iter().find(|host| {
                host.is_alive
                    && host.name != *name
                    && host.stage.incarnation().is_some()
                    && host.stage.incarnation() == last
                    && before
                        .named
                        .get(&entry.place)
                        .is_none_or(|named| *named == host.process)
                    && host_was_at(host, &entry.place, before)
            });
            assert!(
                lives.is_none(),
                "seed {seed}: {name} gets {}, where {} lives",
                entry.place,
                lives.unwrap().name
            );
        }
    }
    for (name, entry) in &before.hosts {
        // Whoever loses a place has ended.
        let lives = hosts
            .iter()
            .any(|host| host.name == *name && host.is_alive && host.stage.incarnation().is_some());
        let is_member = before.member(&entry.place).is_some();
        assert!(
            after.hosts.contains_key(name) || !(lives || is_member),
            "seed {seed}: {name} lives, and has no place"
        );
    }
    let (Some(epoch), was) = (&after.epoch, before.epoch.as_ref()) else {
        return;
    };
    if was.is_some_and(|was| was.epoch == epoch.epoch) {
        return;
    }
    EpochFile::parse(&epoch.text(), "the next epoch", &places)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    if let Some(was) = was {
        was.step_to(epoch)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    for (place, incarnation) in &epoch.members {
        if was.and_then(|was| was.members.get(place)) == Some(incarnation) {
            continue;
        }
        let named = after.named.get(place);
        let name = epoch.host_at(place);
        let lives = hosts.iter().any(|host| {
            Some(host.process) != named.copied()
                && Some(host.name.as_str()) == name
                && host.is_alive
                && host.stage.incarnation().is_some()
        });
        assert!(!lives, "seed {seed}: two lives in {place}");
    }
}

fn host_was_at(host: &Life, place: &str, record: &Record) -> bool {
    let epoch = record.epoch.as_ref();
    epoch.is_some_and(|epoch| epoch.host_at(place) == Some(host.name.as_str()))
}

#[test]
fn any_history_of_registrations_keeps_one_host_in_a_place() {
    let (mut forgotten, mut refused) = (0, 0);
    for seed in 0..15 {
        let (more_forgotten, more_refused) = history(seed);
        forgotten += more_forgotten;
        refused += more_refused;
    }
    assert!(
        forgotten > 3 && refused > 30,
        "{forgotten} forgotten, {refused} refused"
    );
}

/// Only in a build with `--cfg asterism_mutants`: `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-orchestrator --test registrations`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_of_registrations_is_found() {
    use asterism_orchestrator::controller::mutant::{Mutant, select};
    for planted in [
        Mutant::PlaceGivenTwice,
        Mutant::AddressOfAnother,
        Mutant::PlaceReusedUnfenced,
    ] {
        select(Some(planted));
        let found = (0..60).find(|seed| std::panic::catch_unwind(|| history(*seed)).is_err());
        select(None);
        println!("{planted:?}: seed {found:?}");
        assert!(found.is_some(), "{planted:?} lives");
    }
}
