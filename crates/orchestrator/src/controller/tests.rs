//! Single decisions, step by step. What holds over all schedules the simulator checks (`testing/sim/src/orchestrator`).

use std::collections::BTreeSet;
use std::time::Duration;

use asterism_placement::Time;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A controller that leads, and the time.
struct Leader {
    controller: Controller,
    now: Time,
    version: u64,
}

fn process(folder: u64, start: u64) -> Process {
    Process { folder, start }
}

impl Leader {
    /// Of hosts `a` and `b`, in a term without end.
    fn new() -> Leader {
        Leader::with(Record::default(), 0)
    }

    /// The same, whose store has this record.
    fn with(record: Record, version: u64) -> Leader {
        let places = ["a", "b"].map(String::from).into();
        let mut leader = Leader {
            controller: Controller::new(places, Times::default()).unwrap(),
            now: Time::from_micros(1),
            version,
        };
        leader.hear(Input::Leads {
            term: 1,
            until: Time::MAX,
        });
        leader.hear(Input::Record { record, version });
        leader
    }

    fn hear(&mut self, input: Input) {
        self.controller.handle(self.now, input);
    }

    fn beat(&mut self, host: &str, process: Process, stage: Stage) {
        self.beat_of(host, process, stage, None);
    }

    /// A heartbeat that says so of the leader.
    fn beat_of(&mut self, host: &str, process: Process, stage: Stage, leader: Option<LeaderHeard>) {
        let epoch = self.controller.record().map_or(0, Record::epoch_number);
        let heartbeat = Heartbeat {
            host: host.to_owned(),
            address: None,
            process,
            stage,
            epoch: if stage == Stage::Awaiting { 0 } else { epoch },
            silent: BTreeSet::new(),
            digests_agree: true,
            leader,
        };
        self.hear(Input::Heartbeat(heartbeat));
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.controller.handle_timeout(self.now);
    }

    fn commands(&mut self) -> Vec<Command> {
        std::iter::from_fn(|| self.controller.poll_command()).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.controller.poll_event()).collect()
    }

    /// The record that the store is asked to take.
    fn asked(&mut self) -> Option<Record> {
        self.commands()
            .into_iter()
            .find_map(|command| match command {
                Command::Store { record, .. } => Some(record),
                _ => None,
            })
    }

    fn stored(&mut self) {
        self.version += 1;
        let version = self.version;
        self.hear(Input::Stored { version });
    }

    /// Both hosts wait and are named.
    fn named() -> Leader {
        let mut leader = Leader::new();
        leader.beat("a", process(1, 1), Stage::Awaiting);
        leader.beat("b", process(2, 1), Stage::Awaiting);
        leader.wait(10 * MS);
        assert!(leader.asked().is_some());
        leader.stored();
        leader
    }

    /// Both serve.
    fn formed() -> Leader {
        let mut leader = Leader::named();
        leader.serve();
        leader.commands();
        leader.events();
        leader
    }

    fn serve(&mut self) {
        self.beat("a", process(1, 1), Stage::Serving(1));
        self.beat("b", process(2, 1), Stage::Serving(1));
        self.wait(10 * MS);
    }
}

#[test]
fn an_order_that_was_not_stored_is_stored_later() {
    let mut leader = Leader::formed();
    leader.hear(Input::Order(Order::Drain("a".to_owned())));
    assert!(leader.asked().unwrap().drained.contains("a"));
    leader.hear(Input::NotStored);
    let known = leader.controller.record().unwrap().clone();
    let version = leader.version;
    assert_eq!(leader.commands(), [Command::Read]);
    leader.hear(Input::Record {
        record: known,
        version,
    });
    assert!(leader.asked().unwrap().drained.contains("a"));
    leader.stored();
    leader.wait(100 * MS);
    assert_eq!(leader.asked(), None);
    leader.hear(Input::Follows { led_in: None });
    leader.hear(Input::Order(Order::Restore("a".to_owned())));
    leader.hear(Input::Leads {
        term: 2,
        until: Time::MAX,
    });
    let record = leader.controller.record().unwrap().clone();
    leader.hear(Input::Record {
        record,
        version: leader.version,
    });
    assert_eq!(leader.asked(), None, "it was for another leader");
}

#[test]
fn what_is_not_stored_is_not_reported() {
    let mut leader = Leader::new();
    leader.beat("a", process(1, 1), Stage::Awaiting);
    leader.beat("b", process(2, 1), Stage::Awaiting);
    leader.wait(10 * MS);
    assert!(leader.asked().is_some());
    assert!(
        leader
            .events()
            .iter()
            .all(|event| matches!(event, Event::Leads { .. }))
    );
    leader.stored();
    let admitted = |event: &&Event| matches!(event, Event::Admitted { incarnation: 1, .. });
    assert_eq!(leader.events().iter().filter(admitted).count(), 2);
}

#[test]
fn an_incarnation_that_never_was_cannot_be_fenced() {
    let mut leader = Leader::formed();
    // Longer than the pause between two epochs.
    leader.wait(120 * MS);
    leader.serve();
    leader.hear(Input::Order(Order::Fence("a".to_owned(), u64::MAX)));
    leader.hear(Input::Order(Order::Fence("nobody".to_owned(), 1)));
    leader.serve();
    assert_eq!(leader.asked(), None);
    let unknown = Event::UnknownHost {
        host: "nobody".to_owned(),
    };
    assert!(leader.events().contains(&unknown));
    leader.hear(Input::Order(Order::Fence("a".to_owned(), 1)));
    let epoch = leader.asked().unwrap().epoch.unwrap();
    assert_eq!((epoch.members.get("a"), epoch.fenced["a"]), (None, 1));
}

#[test]
fn another_folder_proves_nothing_and_a_later_start_all() {
    let mut leader = Leader::formed();
    leader.wait(200 * MS);
    leader.beat("b", process(2, 1), Stage::Serving(1));
    leader.beat("a", process(9, 5), Stage::Awaiting);
    leader.wait(2_000 * MS);
    leader.beat("b", process(2, 1), Stage::Serving(1));
    leader.beat("a", process(9, 5), Stage::Awaiting);
    leader.wait(10 * MS);
    let waits = Event::AwaitsEvidence {
        host: "a".to_owned(),
        incarnation: 1,
    };
    assert!(leader.events().contains(&waits));
    assert_eq!(leader.asked(), None);
    let ended = Input::Ended {
        host: "a".to_owned(),
        process: process(1, 1),
    };
    leader.hear(ended);
    let record = leader.asked().unwrap();
    assert_eq!(
        (record.member("a"), record.named["a"]),
        (Some(2), process(9, 5))
    );
}

#[test]
fn a_cluster_that_was_stopped_begins_again_together() {
    let record = Leader::formed().controller.record().unwrap().clone();
    let mut leader = Leader::with(record, 1);
    leader.commands();
    // Started again, one after the other: neither joins by the other's ended process.
    for _ in 0..4 {
        leader.beat("a", process(1, 2), Stage::Awaiting);
        leader.wait(50 * MS);
        assert_eq!(leader.asked(), None);
    }
    leader.beat("b", process(2, 2), Stage::Awaiting);
    leader.beat("a", process(1, 2), Stage::Awaiting);
    leader.wait(10 * MS);
    let epoch = leader.asked().unwrap().epoch.unwrap();
    assert!(epoch.founding);
    let both = [("a".to_owned(), 2), ("b".to_owned(), 2)];
    assert_eq!(epoch.members, both.into());

    // If the other does not come, the wait has an end; what has ended is left out, and the rest may go on.
    let record = Leader::formed().controller.record().unwrap().clone();
    let mut leader = Leader::with(record, 1);
    leader.commands();
    let mut asked = None;
    for _ in 0..30 {
        leader.beat("a", process(1, 2), Stage::Awaiting);
        leader.wait(50 * MS);
        asked = asked.or_else(|| leader.asked());
    }
    let epoch = asked.unwrap().epoch.unwrap();
    assert_eq!(
        (epoch.founding, epoch.members["a"], epoch.members["b"]),
        (false, 2, 1)
    );
}

#[test]
fn founders_that_have_just_begun_are_not_made_to_begin_again() {
    let mut leader = Leader::new();
    let founded = (0..40).any(|_| {
        leader.beat("a", process(1, 1), Stage::Awaiting);
        leader.wait(50 * MS);
        leader.asked().is_some()
    });
    assert!(founded);
    leader.stored();
    // The other comes when the first has begun and does not serve yet.
    for _ in 0..10 {
        leader.beat("a", process(1, 1), Stage::Joining(1));
        leader.beat("b", process(2, 1), Stage::Awaiting);
        leader.wait(50 * MS);
        assert_eq!(leader.asked(), None);
    }
    leader.beat("a", process(1, 1), Stage::Serving(1));
    leader.wait(50 * MS);
    let epoch = leader.asked().unwrap().epoch.unwrap();
    assert_eq!(
        (epoch.founding, epoch.members["a"], epoch.members["b"]),
        (false, 1, 1)
    );
}

/// A link to hosts may forget an epoch that it was handed: for more processes of one name than it keeps.
#[test]
fn an_epoch_is_handed_again_until_the_process_has_it() {
    let mut leader = Leader::named();
    let handed = |leader: &mut Leader| {
        let hands =
            |command: &Command| matches!(command, Command::Hand { host, .. } if host == "a");
        leader
            .commands()
            .iter()
            .filter(|command| hands(command))
            .count()
    };
    let mut counts = [0; 2];
    for count in &mut counts {
        for _ in 0..40 {
            leader.beat("a", process(1, 1), Stage::Awaiting);
            leader.wait(50 * MS);
            *count += handed(&mut leader);
        }
    }
    assert!(counts[0] > 1 && counts[1] > 0, "{counts:?}");
    for _ in 0..40 {
        leader.beat("a", process(1, 1), Stage::Joining(1));
        leader.wait(50 * MS);
        assert_eq!(handed(&mut leader), 0);
    }
}

/// Only in a build with `--cfg asterism_mutants`.
#[test]
#[cfg(asterism_mutants)]
fn an_epoch_that_is_handed_once_is_found() {
    mutant::select(Some(Mutant::HandedOnce));
    let found = std::panic::catch_unwind(an_epoch_is_handed_again_until_the_process_has_it);
    mutant::select(None);
    assert!(found.is_err());
}

/// Another orchestrator leads in this term, as far as the store knows.
const LED_IN: u64 = 7;

impl Leader {
    /// Leads no more; both hosts serve, and were heard for a second.
    fn following() -> Leader {
        let mut follower = Leader::formed();
        follower.hear(Input::Follows {
            led_in: Some(LED_IN),
        });
        for _ in 0..20 {
            follower.say(Some(0), Some(0));
        }
        follower.deposed();
        follower
    }

    /// What the hosts say 50 ms later: for how many milliseconds each has missed the leader; `None`: it is not heard itself.
    fn say(&mut self, a: Option<u64>, b: Option<u64>) {
        self.say_of(LED_IN, [a, b]);
    }

    fn say_of(&mut self, term: u64, missed: [Option<u64>; 2]) {
        for (folder, (host, missed)) in (1..).zip(["a", "b"].into_iter().zip(missed)) {
            let heard = missed.map(|missed| LeaderHeard {
                term,
                silence: Duration::from_millis(missed),
            });
            if heard.is_some() {
                self.beat_of(host, process(folder, 1), Stage::Serving(1), heard);
            }
        }
        self.wait(50 * MS);
    }

    /// The terms that the store was asked to end.
    fn deposed(&mut self) -> Vec<u64> {
        self.commands()
            .into_iter()
            .filter_map(|command| match command {
                Command::Depose { term } => Some(term),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_leader_that_no_host_hears_is_deposed() {
    let mut follower = Leader::following();
    for missed in [50, 100, 150] {
        follower.say(Some(missed), Some(missed));
    }
    assert!(follower.deposed().is_empty());
    follower.say(Some(200), Some(200));
    assert_eq!(follower.deposed(), [LED_IN]);
    // Asked again only after a while, in case the store did not hear.
    follower.say(Some(250), Some(250));
    assert!(follower.deposed().is_empty());
    for missed in 6..10 {
        follower.say(Some(50 * missed), Some(50 * missed));
    }
    assert_eq!(follower.deposed(), [LED_IN]);
    let events = follower.events();
    let deposes = events
        .iter()
        .filter(|event| matches!(event, Event::Deposes { .. }));
    assert_eq!(deposes.count(), 1, "{events:?}");
    follower.hear(Input::Leads {
        term: LED_IN + 1,
        until: Time::MAX,
    });
    follower.say(Some(900), Some(900));
    assert!(follower.deposed().is_empty());
}

#[test]
fn a_host_that_dies_with_the_leader_does_not_speak_for_it() {
    let mut follower = Leader::following();
    for missed in [50, 100, 150, 200, 250] {
        follower.say(None, Some(missed));
    }
    assert_eq!(follower.deposed(), [LED_IN]);
}

#[test]
fn a_leader_is_not_deposed_by_those_who_cannot_know() {
    // One host hears it.
    let mut follower = Leader::following();
    for missed in 1..40 {
        follower.say(Some(50 * missed), Some(0));
    }
    assert!(follower.deposed().is_empty(), "one host hears it");
    // A host that nobody reached comes back first, and missed the leader meanwhile.
    let mut follower = Leader::following();
    for _ in 0..10 {
        follower.say(None, None);
    }
    follower.say(Some(500), None);
    follower.say(Some(0), None);
    assert!(follower.deposed().is_empty(), "one that comes back");
    // What was missed is an earlier leader.
    let mut follower = Leader::following();
    for missed in 1..40 {
        follower.say_of(LED_IN - 1, [Some(50 * missed); 2]);
    }
    assert!(follower.deposed().is_empty(), "an earlier leader");
    // Nobody is heard.
    let mut follower = Leader::following();
    for _ in 0..40 {
        follower.say(None, None);
    }
    assert!(follower.deposed().is_empty(), "nobody is heard");
}
