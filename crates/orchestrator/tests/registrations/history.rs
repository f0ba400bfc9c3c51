//! Random histories: more hosts than places, which flap, move, are cut off and forgotten.

use super::*;

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
struct Machine {
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
    let mut hosts: Vec<Machine> = (0..HOSTS)
        .map(|number| Machine {
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
        // Members that are cut off or dead are not heard by the others either.
        let is_gone = |name: &str| {
            let host = hosts.iter().find(|host| host.name == name);
            host.is_some_and(|host| host.is_cut || !host.is_alive)
        };
        let entries = record.epoch.iter().flat_map(|epoch| &epoch.hosts);
        let gone = entries.filter(|(name, _)| is_gone(name));
        let silent: BTreeSet<String> = gone.map(|(_, entry)| entry.place.clone()).collect();
        for host in hosts.iter().filter(|host| host.is_alive && !host.is_cut) {
            let heartbeat = Heartbeat {
                silent: silent.clone(),
                ..beat(host, host.stage)
            };
            for controller in &mut controllers {
                if is_calm || draws.below(20) > 0 {
                    controller.handle(now, Input::Heartbeat(heartbeat.clone()));
                }
            }
        }
        // Who leads.
        if !is_calm && draws.below(400) == 0 {
            controllers[leader].handle(now, Input::Follows { led_in: None });
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
        for (number, controller) in controllers.iter_mut().enumerate() {
            controller.handle_timeout(now);
            while let Some(command) = controller.poll_command() {
                match command {
                    Command::Read => {
                        let record = record.clone();
                        controller.handle(now, Input::Record { record, version });
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
                        controller.handle(
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
                    Command::Steer(_) | Command::Depose { .. } => {}
                }
            }
            while let Some(event) = controller.poll_event() {
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
                let last = last.filter(|last| host.stage.incarnation() == Some(*last));
                if let Some(last) = last.filter(|_| draws.below(3) == 0) {
                    (host.is_alive, host.is_cut) = (false, false);
                    let fence = Order::Fence(host.name.clone(), last);
                    controllers[leader].handle(now, Input::Order(fence));
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

fn beat(host: &Machine, stage: Stage) -> Heartbeat {
    Heartbeat {
        host: host.name.clone(),
        address: (stage == Stage::Awaiting).then_some(address(host.at)),
        process: host.process,
        stage,
        epoch: host.epoch,
        silent: BTreeSet::new(),
        digests_agree: true,
        leader: None,
    }
}

/// What must hold of a record that the store takes.
fn judge(seed: u64, hosts: &[Machine], before: &Record, after: &Record) {
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
        // A host that loses its place has ended.
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

fn host_was_at(host: &Machine, place: &str, record: &Record) -> bool {
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
