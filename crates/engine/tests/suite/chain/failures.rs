//! Stages that fail, and stages that get copies.

use asterism_function::Reason;
use asterism_function::chain::OnFailure;

use crate::chain::letters::{Bench, late, packet, sized, stage};

#[test]
fn a_full_stage_is_bypassed_if_that_was_asked_for() {
    for on_failure in [OnFailure::Drop, OnFailure::Bypass] {
        let second = sized(b'b', 0, 64).on_failure(on_failure);
        let mut bench = Bench::new(vec![stage(b'a'), second, stage(b'c')], late(&[], 0));
        for number in 0..200 {
            bench.feed(0, packet(number, number, b"--", false));
        }
        let all = bench.finish();
        let tally = bench.tally(1);
        let whole = all.iter().filter(|one| one.letters == "abc").count() as u64;
        let without = all.iter().filter(|one| one.letters == "ac").count() as u64;
        let full = tally.dropped(Reason::TableFull);
        assert!(
            full > 50 && whole > 50,
            "{full} were too many, {whole} fitted"
        );
        assert_eq!(whole + full, 200);
        let bypassed = if on_failure == OnFailure::Bypass {
            full
        } else {
            0
        };
        assert_eq!((tally.bypassed, without), (bypassed, bypassed));
        let dropped = bench.instance.tally().dropped(Reason::TableFull);
        assert_eq!(dropped, full - bypassed);
    }
}

#[test]
fn what_a_stage_judges_is_no_failure() {
    let second = stage(b'b').on_failure(OnFailure::Bypass);
    let mut bench = Bench::new(vec![stage(b'a'), second], late(&[], 0));
    bench.feed(0, packet(1, 1, b"Db", false));
    assert_eq!(bench.finish(), []);
    assert_eq!(bench.tally(1).bypassed, 0);
    assert_eq!(bench.instance.tally().dropped(Reason::Filtered), 1);
}

#[test]
fn a_stage_that_gets_copies_neither_delays_nor_drops_nor_changes() {
    let stages = vec![stage(b'a'), stage(b'b').mirrors(), stage(b'c')];
    let mut bench = Bench::new(stages, late(&["b.seen"], 5_000));
    let mut all = Vec::new();
    for number in 0..20 {
        // Some of one flow, which must not wait behind a copy. At the second stage these would be dropped, turned round, or answered.
        let order = [b"Db", b"Tb", b"Eb", b"--"][usize::from(number % 4)];
        bench.feed(0, packet(number % 8, number, order, false));
        if number == 9 {
            all = bench.turn(1);
            assert_eq!(all.len(), 10, "packets leave at once");
        }
    }
    all.extend(bench.turn(1));
    assert_eq!(
        all.len(),
        20,
        "packets leave at once, also while copies wait"
    );
    assert!(all.iter().all(|one| one.port == 1 && one.letters == "ac"));
    assert_eq!(bench.handled(1), 0, "copies are late");
    assert_eq!(bench.finish(), [], "copies leave nothing");
    let tally = bench.tally(1);
    assert_eq!(
        (tally.mirrored, tally.acted, tally.mirror_lost),
        (20, 20, 0)
    );
    assert_eq!(bench.handled(1), 20);
    assert_eq!(tally.dropped(Reason::Filtered), 5, "copies are judged");
    assert_eq!(bench.instance.tally().dropped_total(), 0);
    assert_eq!([0, 2].map(|stage| bench.handled(stage)), [20, 20]);
}

#[test]
fn copies_that_wait_never_keep_ports_from_being_read() {
    let stages = vec![stage(b'a').mirrors(), stage(b'b')];
    let mut bench = Bench::new(stages, late(&["a.seen"], 500_000));
    let mut left = 0;
    for round in 0..100 {
        for number in 0..16 {
            bench.feed(0, packet(round * 16 + number, number, b"--", false));
        }
        left += bench.turn(1).len();
    }
    assert_eq!(left, 1_600);
    let tally = bench.instance.tally();
    assert_eq!(tally.held_by_parking, 0);
    assert!(
        tally.dropped(Reason::ParkedOverflow) > 1_000,
        "copies without room to wait are dropped"
    );
}

#[test]
fn copies_without_room_are_counted_and_their_packets_go_on() {
    let stages = vec![stage(b'a').mirrors(), stage(b'b').mirrors()];
    let mut bench = Bench::new(stages, late(&[], 0));
    let mut large = packet(1, 1, b"--", false);
    large.resize(1_700, 0);
    bench.feed(0, large);
    assert_eq!(bench.turn(1).len(), 1);
    assert_eq!(
        (bench.tally(0).mirrored, bench.tally(0).mirror_lost),
        (0, 1)
    );
    for number in 0..64 {
        for port in 0..2 {
            bench.feed(port, packet(number, number, b"--", port == 1));
        }
    }
    let all = bench.finish();
    assert_eq!(all.len(), 128);
    let count = |stage: usize| bench.tally(stage).mirrored + bench.tally(stage).mirror_lost;
    assert_eq!((count(0), count(1)), (129, 129));
}
