//! Moved buckets and flows at two directors, over starts of directors and orchestrators; and the packets of buckets.

use asterism_director_control::{Flow, Moves, Suspended as Waiting};

use super::super::super::tests::driver_under_load;
use super::super::super::{SteeredFlow, Suspended};
use super::*;
use crate::{BucketCount, Buckets, Standing};

/// As [`all`], without a host.
fn without(generation: u64, name: &str) -> Desired {
    let targets = NAMES.map(|one| {
        let mut target = Target::TAKES;
        if one == name {
            target.standing = Standing::Out;
        }
        (one.to_owned(), target)
    });
    Desired::new(Generation(generation), targets).unwrap()
}

/// The digest of the moves of each director, as it reported last.
fn digests(driver: &RemoteDirectorSteering) -> Vec<u64> {
    let digests = driver.directors.iter().map(|one| one.status.moves);
    digests.collect()
}

fn digest_of(pairs: impl IntoIterator<Item = (u16, &'static str)>) -> u64 {
    let mut moves = Moves::default();
    for (bucket, name) in pairs {
        moves.insert(bucket, HostNumber::of(name));
    }
    moves.digest()
}

fn share(driver: &mut RemoteDirectorSteering, name: &str) -> u16 {
    let seen = driver.observe().unwrap();
    let target = seen.targets.iter().find(|one| one.name == name);
    target.unwrap().share_permille
}

#[test]
fn moved_buckets_are_in_both_directors_whenever_their_host_is_there() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    assert_eq!(driver.count(), 1_024);
    let early = driver.move_buckets(&[1], "a").unwrap_err();
    assert!(early.to_string().contains("no desired state"), "{early}");
    driver.apply(&all(1)).unwrap();
    assert_eq!(digests(&driver), [0, 0]);
    // Every other bucket: in several parts.
    let buckets: Vec<u32> = (0..1_024).step_by(2).collect();
    driver.move_buckets(&buckets, "b").unwrap();
    let expected = digest_of((0..1_024).step_by(2).map(|bucket| (bucket, "b")));
    assert_eq!(digests(&driver), [expected; 2]);
    // A half, and a third of the others.
    let has = share(&mut driver, "b");
    assert!((600..740).contains(&has), "{has}");
    assert!(driver.observe().unwrap().as_applied);
    assert_eq!(driver.apply(&all(1)).unwrap().changed, 0);
    driver.apply(&all(2)).unwrap();
    assert_eq!(digests(&driver), [expected; 2]);
    // Some go elsewhere, also back to where they came from.
    driver.move_buckets(&[0, 1], "c").unwrap();
    driver.move_buckets(&[0, 1], "c").unwrap();
    assert_eq!(share(&mut driver, "b"), has - 1);
    // They are without effect while the host is out, as one that is suspected for a moment.
    let moved = digests(&driver);
    driver.apply(&without(3, "b")).unwrap();
    assert_eq!(share(&mut driver, "b"), 0);
    assert_eq!(driver.observe().unwrap().elsewhere_permille, 0);
    assert_eq!(digests(&driver), moved);
    let gone = driver.move_buckets(&[1], "b").unwrap_err();
    assert!(gone.to_string().contains("takes no packets"), "{gone}");
    driver.apply(&all(4)).unwrap();
    assert_eq!(share(&mut driver, "b"), has - 1);

    let unknown = driver.move_buckets(&[1], "nobody").unwrap_err();
    assert!(
        matches!(unknown, SteeringError::UnknownTarget(_)),
        "{unknown}"
    );
    let beyond = driver.move_buckets(&[1, 1_024], "a").unwrap_err();
    assert!(beyond.to_string().contains("there are 1024"), "{beyond}");
    assert_eq!(digests(&driver), moved);
}

/// Finds a director that is handed the state and not the moves.
#[test]
fn a_director_that_was_started_again_gets_the_moves() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    driver.apply(&all(7)).unwrap();
    let buckets: Vec<u32> = (0..600).step_by(2).collect();
    driver.move_buckets(&buckets, "c").unwrap();
    let expected = digests(&driver)[0];
    let address = two.address;
    drop(two);
    let two = serve(address, 3);
    driver.directors[1].status = Status::default();
    let started = clock::now();
    while digests(&driver) != [expected; 2] {
        driver.links_changed();
        assert!(started.elapsed() < PATIENCE, "it lacks the moves");
        clock::pause(Duration::from_millis(5));
    }
    let tables: Vec<u64> = driver
        .directors
        .iter()
        .map(|one| one.status.table)
        .collect();
    assert_eq!(tables[0], tables[1]);
    assert!(driver.observe().unwrap().as_applied);
    drop(two);
}

#[test]
fn a_move_is_in_force_without_a_director_that_nobody_hears() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    driver.apply(&all(1)).unwrap();
    two.is_mute.store(true, Ordering::Relaxed);
    driver.answer_time_max = IMPATIENCE;
    driver.move_buckets(&[5], "a").unwrap();
    assert_eq!(digests(&driver)[1], 0);
    two.is_mute.store(false, Ordering::Relaxed);
    let expected = digest_of([(5, "a")]);
    tend(&mut driver, |driver| digests(driver) == [expected; 2]);
    // Without any director it is not, and both get it once they answer.
    driver.answer_time_max = Duration::from_millis(50);
    one.is_mute.store(true, Ordering::Relaxed);
    two.is_mute.store(true, Ordering::Relaxed);
    let error = driver.move_buckets(&[6], "b").unwrap_err();
    assert!(matches!(error, SteeringError::TimedOut { .. }), "{error}");
    one.is_mute.store(false, Ordering::Relaxed);
    two.is_mute.store(false, Ordering::Relaxed);
    let expected = digest_of([(5, "a"), (6, "b")]);
    tend(&mut driver, |driver| digests(driver) == [expected; 2]);
}

/// Finds an orchestrator that does not know what was moved before it led.
#[test]
fn an_orchestrator_that_begins_to_lead_keeps_the_moves() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let directors = [&one, &two];
    let (mut former, _) = steering(&directors, 10);
    let (mut leader, _) = steering(&directors, 20);
    former.apply(&all(1)).unwrap();
    let buckets: Vec<u32> = (0..600).step_by(2).collect();
    former.move_buckets(&buckets, "c").unwrap();
    let expected = digests(&former)[0];
    leader.apply(&all(5)).unwrap();
    assert_eq!(digests(&leader), [expected; 2], "they were forgotten");
    // The former one moves nothing any more, and hears why.
    let error = former.move_buckets(&[1], "a").unwrap_err();
    let stale = SteeringError::Stale {
        offered: Generation(1),
        known: Generation(5),
    };
    assert_eq!(error, stale);
    let flow = SteeredFlow {
        one: "10.0.0.1:4000".parse().unwrap(),
        other: "192.0.2.1:80".parse().unwrap(),
        protocol: 6,
    };
    let error = former.move_flow(&flow, "a", Duration::from_secs(9));
    assert_eq!(error, Err(stale));
    assert!(leader.observe().unwrap().as_applied);
    assert_eq!(digests(&leader), [expected; 2]);
}

/// Finds an orchestrator that leads for a second time by what it knew in the first.
#[test]
fn an_orchestrator_that_leads_again_keeps_the_moves_of_others() {
    let one = serve(anywhere(), 1);
    let (mut first, _) = steering(&[&one], 10);
    let (mut second, _) = steering(&[&one], 20);
    first.apply(&all(1)).unwrap();
    first.move_buckets(&[3], "a").unwrap();
    second.apply(&all(5)).unwrap();
    second.move_buckets(&[3, 4], "b").unwrap();
    let expected = digest_of([(3, "b"), (4, "b")]);
    tend(&mut first, |first| {
        first.directors[0].status.generation == Some(5)
    });
    first.apply(&all(9)).unwrap();
    assert_eq!(digests(&first), [expected]);
}

/// A director in this thread, and an orchestrator's end.
struct InThread {
    served: ServedDirector,
    commander: Commander,
    _running: Running,
}

impl InThread {
    fn new((steering, running): (DirectorSteering, Running)) -> InThread {
        InThread {
            served: served(steering, 2),
            commander: Commander::new(CLUSTER, ring(1), [1; 16]),
            _running: running,
        }
    }

    fn ask(&mut self, request: Request) -> Answer {
        self.commander.request(request);
        loop {
            let mut datagram = self.commander.waiting().unwrap().to_vec();
            let mut answer = self.served.handle(&mut datagram).unwrap();
            if let Handled::Answer(answer) = self.commander.handle(&mut answer) {
                return answer;
            }
        }
    }

    fn refused(&mut self, request: Request) -> RefusedCommand {
        match self.ask(request).outcome {
            Outcome::Refused(refused) => refused,
            outcome => panic!("it was not refused: {outcome:?}"),
        }
    }

    fn done(&mut self, request: Request) -> Status {
        let Answer { outcome, status } = self.ask(request);
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        status.unwrap()
    }
}

fn apply(generation: u64) -> Request {
    let target = |name: &str| DesiredTarget {
        host: HostNumber::of(name),
        weight: 1,
        drains: false,
    };
    Request::Apply {
        generation,
        targets: NAMES.map(target).to_vec(),
    }
}

fn moves(generation: u64, pairs: &[(u16, &'static str)]) -> Request {
    let mut moves = Moves::default();
    for (bucket, name) in pairs {
        moves.insert(*bucket, HostNumber::of(name));
    }
    Request::Move {
        generation,
        part: moves.parts().unwrap().remove(0),
    }
}

/// Finds a director that takes moves of an orchestrator that was replaced.
#[test]
fn moves_count_in_the_desired_state_in_force_alone() {
    let mut director = InThread::new(driver(1));
    let lacks = |known| RefusedCommand::LacksState { known };
    assert_eq!(director.refused(moves(5, &[(1, "a")])), lacks(None));
    director.done(apply(5));
    let first = director.done(moves(5, &[(1, "a"), (2, "b")]));
    assert_eq!(first.moves, digest_of([(1, "a"), (2, "b")]));
    // Again changes nothing.
    let again = director.ask(moves(5, &[(1, "a"), (2, "b")]));
    let nothing = Outcome::Done {
        changed: 0,
        moved_permille: 0,
    };
    assert_eq!(again.outcome, nothing);
    let stale = RefusedCommand::Stale { known: 5 };
    assert_eq!(director.refused(moves(4, &[(1, "c")])), stale);
    assert_eq!(director.refused(moves(6, &[(1, "c")])), lacks(Some(5)));
    let flow = Flow {
        one: "10.0.0.1:4000".parse().unwrap(),
        other: "192.0.2.1:80".parse().unwrap(),
        protocol: 6,
    };
    for generation in [4, 6] {
        let refusals = [
            Request::MoveFlow {
                generation,
                flow,
                to: HostNumber::of("a"),
                idle_ms: 1_000,
            },
            Request::Suspend {
                generation,
                what: Waiting::Bucket(1),
            },
            Request::Resume {
                generation,
                what: Waiting::Flow(flow),
                to: Some(HostNumber::of("a")),
            },
        ];
        for request in refusals {
            let expected = if generation == 4 {
                stale.clone()
            } else {
                lacks(Some(5))
            };
            assert_eq!(director.refused(request), expected);
        }
    }
    assert_eq!(director.done(Request::Query).moves, first.moves);
    // Other hosts, buckets and parts than there are.
    let nobody = RefusedCommand::UnknownTarget(HostNumber::of("nobody"));
    assert_eq!(director.refused(moves(5, &[(1, "nobody")])), nobody);
    let beyond = RefusedCommand::NoBucket { buckets: 1_024 };
    assert_eq!(director.refused(moves(5, &[(1_024, "a")])), beyond);
    let late = Request::Moved { part: 1 };
    assert_eq!(director.refused(late), RefusedCommand::OutOfOrder);
    assert_eq!(director.done(Request::Query).moves, first.moves);
    // All go home.
    let home = director.done(moves(5, &[]));
    assert_eq!(home.moves, 0);
    assert_ne!(home.table, first.table);
}

#[test]
fn flows_and_buckets_wait_and_go_on_within_the_directors_bounds() {
    let mut director = InThread::new(driver(1));
    director.done(apply(5));
    let flow = Flow {
        one: "10.0.0.1:4000".parse().unwrap(),
        other: "192.0.2.1:80".parse().unwrap(),
        protocol: 6,
    };
    let now = |director: &mut InThread| {
        let seen = director.served.look().unwrap();
        (seen.exceptions_now, seen.suspensions_now)
    };
    director.done(Request::MoveFlow {
        generation: 5,
        flow,
        to: HostNumber::of("b"),
        idle_ms: 60_000,
    });
    let bucket = Waiting::Bucket(7);
    let suspend = |what| Request::Suspend {
        generation: 5,
        what,
    };
    let resume = |what, to: Option<&str>| Request::Resume {
        generation: 5,
        what,
        to: to.map(HostNumber::of),
    };
    director.done(suspend(bucket));
    assert_eq!(now(&mut director), (1, 1));
    // Moved while it waits, it waits on.
    director.done(moves(5, &[(7, "c")]));
    assert_eq!(now(&mut director), (1, 1));
    director.refused(resume(bucket, Some("a")));
    director.done(resume(bucket, None));
    director.refused(resume(bucket, None));
    director.done(suspend(Waiting::Flow(flow)));
    director.refused(resume(Waiting::Flow(flow), None));
    director.done(resume(Waiting::Flow(flow), Some("c")));
    assert_eq!(now(&mut director), (1, 0));
    let most = asterism_director::SUSPENSIONS_MAX as u32;
    let is_done = |number: &u32| {
        let outcome = director.ask(suspend(Waiting::Bucket(*number))).outcome;
        matches!(outcome, Outcome::Done { .. })
    };
    assert_eq!((0..most + 20).filter(is_done).count(), most as usize);
}

#[test]
fn both_directors_suspend_and_resume() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    driver.apply(&all(1)).unwrap();
    let flow = SteeredFlow {
        one: "10.0.0.1:4000".parse().unwrap(),
        other: "192.0.2.1:80".parse().unwrap(),
        protocol: 17,
    };
    driver
        .move_flow(&flow, "a", Duration::from_secs(60))
        .unwrap();
    for (what, to) in [
        (Suspended::Bucket(9), Some("c")),
        (Suspended::Bucket(10), None),
        (Suspended::Flow(flow), Some("b")),
    ] {
        driver.suspend(&what).unwrap();
        driver.resume(&what, to).unwrap();
        let again = driver.resume(&what, to).unwrap_err();
        assert!(again.to_string().contains("not suspended"), "{again}");
    }
    assert_eq!(digests(&driver), [digest_of([(9, "c")]); 2]);
    let mixed = SteeredFlow {
        other: "[2001:db8::1]:80".parse().unwrap(),
        ..flow
    };
    let error = driver.move_flow(&mixed, "a", Duration::from_secs(60));
    assert!(matches!(error, Err(SteeringError::Refused { .. })));
}

/// Finds a director that counts from zero on when its answer was lost.
#[test]
fn counts_are_taken_once_for_each_number() {
    let mut director = InThread::new(driver_under_load(4));
    director.done(apply(1));
    let ask = |director: &mut InThread, number, from| match director
        .ask(Request::Counts { number, from })
        .outcome
    {
        Outcome::Counts(part) => Some(part),
        _ => None,
    };
    // Until packets have come.
    let (mut number, started) = (0, clock::now());
    let first = loop {
        clock::pause(Duration::from_millis(50));
        number += 1;
        let counts = ask(&mut director, number, 0).unwrap();
        if counts.counts.iter().any(|count| *count > 0) {
            break counts;
        }
        assert!(started.elapsed() < PATIENCE, "none comes");
    };
    assert_eq!((first.buckets, first.from, first.next()), (1_024, 0, 1_024));
    let busy = first.counts.iter().filter(|count| **count > 0).count();
    assert!((1..=4).contains(&busy), "{busy}");
    let again = ask(&mut director, number, 0).unwrap();
    assert_eq!(again, first, "the answer may have been lost");
    let part = ask(&mut director, number, 1_000).unwrap();
    assert_eq!(part.counts, first.counts[1_000..]);
    assert_eq!(ask(&mut director, number, 1_024), None);
    // A later part begins no taking.
    let next = number + 1;
    let late = director.refused(Request::Counts {
        number: next,
        from: 9,
    });
    assert_eq!(late, RefusedCommand::OutOfOrder);
    clock::pause(Duration::from_millis(20));
    assert_ne!(ask(&mut director, next, 0).unwrap().counts, first.counts);
}

#[test]
fn packets_of_buckets_are_those_of_the_directors_that_answer() {
    let loaded = serve_made(anywhere(), 1, || driver_under_load(4));
    let idle = serve(anywhere(), 2);
    let (mut driver, _keys) = steering(&[&loaded, &idle], 10);
    assert!(driver.take_counts().is_err(), "nothing is in force");
    driver.apply(&all(1)).unwrap();
    let sum = |counts: &[BucketCount]| counts.iter().map(|one| one.packets).sum::<u64>();
    let first = driver.take_counts().unwrap();
    assert_eq!(first.len(), 1_024, "each has a target");
    assert_eq!(sum(&first), 0, "of a time that nobody knows");
    let started = clock::now();
    let second = loop {
        clock::pause(Duration::from_millis(50));
        let second = driver.take_counts().unwrap();
        if sum(&second) > 0 {
            break second;
        }
        assert!(started.elapsed() < PATIENCE, "none comes");
    };
    let busy: Vec<&BucketCount> = second.iter().filter(|one| one.packets > 0).collect();
    assert!((1..=4).contains(&busy.len()), "{busy:?}");
    // A moved bucket's packets are its new target's.
    let bucket = busy[0].bucket;
    let to = NAMES
        .into_iter()
        .find(|name| *name != busy[0].target)
        .unwrap();
    driver.move_buckets(&[bucket], to).unwrap();
    let started = clock::now();
    loop {
        clock::pause(Duration::from_millis(20));
        let third = driver.take_counts().unwrap();
        let moved = third.iter().find(|one| one.bucket == bucket).unwrap();
        assert_eq!(moved.target, to, "{moved:?}");
        if moved.packets > 0 {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "none comes");
    }
    // Another configuration than the directors'.
    driver.targets.reverse();
    driver.table = None;
    let error = driver.take_counts().unwrap_err();
    assert!(error.to_string().contains("same configuration"), "{error}");
    // None answers.
    driver.targets.reverse();
    driver.table = None;
    for director in &mut driver.directors {
        director.status.generation = None;
    }
    assert!(driver.take_counts().is_err());
}

/// Only in a build with `--cfg asterism_mutants`: `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-steering planted`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_is_found() {
    for planted in Mutant::ALL {
        let test: fn() = match planted {
            Mutant::EarlierMoveTaken => moves_count_in_the_desired_state_in_force_alone,
            Mutant::RestartedLacksMoves => a_director_that_was_started_again_gets_the_moves,
            Mutant::NewLeaderForgetsMoves => an_orchestrator_that_begins_to_lead_keeps_the_moves,
            Mutant::OldMovesAgain => an_orchestrator_that_leads_again_keeps_the_moves_of_others,
            Mutant::CountsLost => counts_are_taken_once_for_each_number,
        };
        mutant::select(Some(planted));
        let found = std::panic::catch_unwind(test);
        mutant::select(None);
        assert!(found.is_err(), "{planted:?} is not found");
    }
}
