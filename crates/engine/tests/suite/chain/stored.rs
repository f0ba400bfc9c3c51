//! Stages whose objects live in a hostile store: each stage's call is a transaction of its own, which the store may refuse.

use std::cell::RefCell;
use std::rc::Rc;

use asterism_function::Reason;
use asterism_function::chain::{Chain, ChainState, OnFailure, Stage};
use asterism_function::testkit::HostileStore;
use asterism_state::ObjectSettings;

use crate::chain::letters::{Bench, Left, LetterState, late, packet, shifting, sized, stage};
use crate::store_end::{Shared, end};

thread_local! {
    /// The store of the instance that was made last.
    static STORE: RefCell<Option<Shared<Chain>>> = const { RefCell::new(None) };
}

/// A chain of which these objects live in a store.
fn bench(stages: Vec<Stage>, objects: &'static [&'static str]) -> (Bench, Shared<Chain>) {
    let bench = Bench::started(stages, &[false, false], |parts, chain, pool, ports| {
        let of_store = chain.clone();
        let parts = parts.with_store(move || {
            let store = HostileStore::new(&*of_store, |name| objects.contains(&name));
            let store: Shared<Chain> = Rc::new(RefCell::new(store));
            STORE.set(Some(store.clone()));
            end(store, |_, _| {})
        });
        let settings = move |name: &str| match objects.contains(&name) {
            true => ObjectSettings::REMOTE,
            false => ObjectSettings::LOCAL,
        };
        parts.start(chain, settings, pool, ports)
    });
    (bench, STORE.take().expect("it was made"))
}

const PACKETS: u16 = 240;
const FLOWS: u16 = 12;
/// What packets ask of the stages: to be turned round, dropped, taken, answered.
const ORDERS: [&[u8; 2]; 6] = [b"--", b"Tb", b"Db", b"Cc", b"Eb", b"Ta"];

/// Turns until the store has answered and decided all.
fn finish(bench: &mut Bench) -> Vec<Left> {
    let mut all = Vec::new();
    for _ in 0..20_000 {
        all.extend(bench.turn(100));
        if bench.instance.tally().parked == 0 {
            break;
        }
    }
    all.extend(bench.finish());
    all
}

fn feed(bench: &mut Bench) -> Vec<Left> {
    let mut all = Vec::new();
    for number in 0..PACKETS {
        let order = ORDERS[usize::from(number / FLOWS) % ORDERS.len()];
        bench.feed(0, packet(number % FLOWS, number, order, false));
        if number % 10 == 9 {
            all.extend(bench.turn(300));
        }
    }
    all.extend(finish(bench));
    all.sort_by(|one, other| {
        (one.number, one.port, &one.letters).cmp(&(other.number, other.port, &other.letters))
    });
    all
}

fn three() -> Vec<Stage> {
    vec![stage(b'a'), shifting(b'b', 100), stage(b'c')]
}

/// What a stage has seen, sorted.
fn seen(chain: &ChainState, stage: usize) -> Vec<String> {
    let mut seen = Vec::new();
    let state = chain.stage::<LetterState>(stage).expect("such a stage");
    state.seen.for_each(|row, ()| seen.push(format!("{row:?}")));
    seen.sort();
    seen
}

#[test]
fn a_chain_does_the_same_wherever_its_objects_live() {
    let mut plain = Bench::new(three(), late(&[], 0));
    let expected = feed(&mut plain);
    for objects in [
        &["a.seen"][..],
        &["b.seen"],
        &["c.seen"],
        &["a.seen", "c.seen"],
        &["a.seen", "b.seen", "c.seen"],
    ] {
        let (mut bench, store) = bench(three(), objects);
        assert_eq!(feed(&mut bench), expected, "{objects:?}");
        let store = store.borrow();
        assert!(
            store.refusals() > 20,
            "{objects:?}: {} refusals show little",
            store.refusals()
        );
        let tally = bench.instance.tally();
        assert_eq!(tally.store_refusals, store.refusals());
        let expected = plain.instance.tally();
        assert_eq!(
            (tally.dropped_total(), tally.consumed),
            (expected.dropped_total(), expected.consumed)
        );
        for number in 0..3 {
            let (tally, expected) = (bench.tally(number), plain.tally(number));
            assert_eq!(tally.acted, expected.acted, "{objects:?}, stage {number}");
            assert_eq!(
                tally.dropped(Reason::Filtered),
                expected.dropped(Reason::Filtered)
            );
            assert_eq!(bench.handled(number), plain.handled(number));
        }
        for (number, name) in ["a.seen", "b.seen", "c.seen"].into_iter().enumerate() {
            let home = match objects.contains(&name) {
                true => store.state(),
                false => bench.instance.state(),
            };
            assert_eq!(
                seen(home, number),
                seen(plain.instance.state(), number),
                "{name}, with {objects:?} in the store"
            );
        }
    }
}

#[test]
fn a_stage_that_fails_counts_it_once_however_often_the_store_refuses_it() {
    for on_failure in [OnFailure::Drop, OnFailure::Bypass] {
        let second = sized(b'b', 0, 64).on_failure(on_failure);
        let stages = vec![stage(b'a'), second, stage(b'c')];
        let (mut bench, store) = bench(stages, &["b.seen"]);
        for number in 0..200 {
            bench.feed(0, packet(number, number, b"--", false));
        }
        let all = finish(&mut bench);
        let tally = bench.tally(1);
        let with = |letters: &str| all.iter().filter(|one| one.letters == letters).count() as u64;
        let full = tally.dropped(Reason::TableFull);
        assert!(store.borrow().refusals() > 50);
        assert!(full > 50 && with("abc") > 50, "{full} were too many");
        assert_eq!(with("abc") + full, 200);
        assert_eq!(tally.acted, 200);
        let bypassed = match on_failure {
            OnFailure::Bypass => full,
            OnFailure::Drop => 0,
        };
        assert_eq!((tally.bypassed, with("ac")), (bypassed, bypassed));
        assert_eq!(bench.handled(1), with("abc"));
    }
}

#[test]
fn a_stage_whose_store_is_late_for_too_long_is_bypassed() {
    let second = stage(b'b').on_failure(OnFailure::Bypass).waits_at_most(900);
    let (mut bench, _store) = bench(vec![stage(b'a'), second, stage(b'c')], &["b.seen"]);
    for number in 0..200 {
        bench.feed(0, packet(number, number, b"--", false));
    }
    let all = finish(&mut bench);
    let tally = bench.tally(1);
    let with = |letters: &str| all.iter().filter(|one| one.letters == letters).count() as u64;
    assert_eq!(with("abc") + with("ac"), 200, "{all:?}");
    assert!(with("abc") > 10 && with("ac") > 10, "{}", with("ac"));
    assert_eq!(tally.dropped(Reason::StageLate), with("ac"));
    assert_eq!((tally.acted, tally.bypassed), (with("abc"), with("ac")));
    assert_eq!(bench.handled(1), with("abc"));
}

#[test]
fn packets_that_wait_for_a_store_leave_while_a_host_drains() {
    let (mut bench, _store) = bench(three(), &["a.seen", "c.seen"]);
    for number in 0..100 {
        bench.feed(0, packet(number % FLOWS, number, b"--", false));
    }
    let mut all = bench.turn(1);
    while bench.instance.tally().received < 100 {
        all.extend(bench.turn(1));
    }
    assert!(bench.instance.tally().parked > 0);
    for _ in 0..20_000 {
        all.extend(bench.drain(100));
    }
    assert_eq!(all.len(), 100, "all leave");
    assert_eq!(bench.instance.frames_in_use(), 0);
}

#[test]
fn copies_are_handled_once_by_a_stage_that_lives_in_a_store() {
    let stages = vec![stage(b'a'), stage(b'b').mirrors(), stage(b'c')];
    let (mut bench, store) = bench(stages, &["b.seen"]);
    let mut all = Vec::new();
    for number in 0..100 {
        bench.feed(0, packet(number % 8, number, b"--", false));
        if number % 10 == 9 {
            all.extend(bench.turn(1_000));
        }
    }
    all.extend(finish(&mut bench));
    assert_eq!(all.len(), 100);
    assert!(all.iter().all(|one| one.letters == "ac"));
    assert!(store.borrow().refusals() > 10);
    let tally = bench.tally(1);
    assert_eq!(
        (tally.acted, tally.mirrored, bench.handled(1)),
        (100, 100, 100)
    );
}
