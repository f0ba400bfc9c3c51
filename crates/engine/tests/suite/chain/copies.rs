//! Stages that send copies of packets by a port of their own.

use asterism_function::Reason;
use asterism_function::chain::Stage;

use crate::chain::letters::{Bench, Left, copier, late, packet, stage};

fn bench(stages: Vec<Stage>, late_us: u32, is_full: bool) -> Bench {
    Bench::with_ports(stages, late(&["b.seen"], late_us), &[false, false, is_full])
}

/// Packets that left by a port.
fn by(port: u16, all: &[Left]) -> Vec<(u16, &str)> {
    let by = all.iter().filter(|one| one.port == port);
    by.map(|one| (one.number, one.letters.as_str())).collect()
}

#[test]
fn a_copy_is_of_the_packet_at_that_place() {
    let mut bench = bench(vec![stage(b'a'), copier("copy"), stage(b'b')], 0, false);
    bench.feed(0, packet(1, 1, b"--", false));
    bench.feed(1, packet(1, 2, b"--", true));
    // Dropped before it comes there, and behind it.
    bench.feed(0, packet(1, 3, b"Da", false));
    bench.feed(0, packet(1, 4, b"Db", false));
    let all = bench.turn(1);
    assert_eq!(by(1, &all), [(1, "ab")]);
    assert_eq!(by(0, &all), [(2, "ba")]);
    assert_eq!(by(2, &all), [(1, "a"), (4, "a"), (2, "b")]);
    assert_eq!(
        (bench.tally(1).mirrored, bench.tally(1).mirror_lost),
        (3, 0)
    );
    let tally = bench.instance.tally();
    assert_eq!((tally.copies, tally.copies_lost, tally.emitted), (3, 0, 3));
}

/// More than the port's burst holds, and more than copies are made in a turn: packets leave in their turn, and first.
#[test]
fn packets_leave_at_once_and_before_their_copies() {
    for is_full in [false, true] {
        let stages = vec![copier("first"), stage(b'b'), copier("second")];
        let mut bench = bench(stages, 0, is_full);
        for round in 0..50 {
            for number in 0..32 {
                bench.feed(0, packet(number, number, b"--", false));
                bench.feed(1, packet(number, number, b"--", true));
            }
            let all = bench.turn(1);
            let places = |is_copy: bool| {
                let places = all.iter().enumerate();
                places.filter(move |(_, one)| (one.port == 2) == is_copy)
            };
            assert_eq!(places(false).count(), 64, "round {round}");
            assert_eq!(places(true).count(), if is_full { 0 } else { 96 });
            let last = places(false).next_back().unwrap().0;
            assert!(
                last < 64,
                "round {round}: a packet left behind {} others",
                last
            );
        }
        let [first, second] = [0, 2].map(|stage| bench.tally(stage));
        assert_eq!(first.mirrored + second.mirrored, 50 * 96);
        assert_eq!(first.mirrored + first.mirror_lost, 50 * 64);
        assert_eq!(second.mirrored + second.mirror_lost, 50 * 64);
        let tally = bench.instance.tally();
        assert_eq!((tally.copies, tally.copies_lost), (50 * 96, 50 * 32));
        assert_eq!(tally.dropped_total(), 0);
        assert_eq!(bench.instance.frames_in_use(), 0);
    }
}

#[test]
fn a_packet_too_long_to_be_copied_is_counted_at_once_and_goes_on() {
    let mut bench = bench(vec![copier("copy")], 0, false);
    let mut long = packet(1, 1, b"--", false);
    long.resize(1_601, 0);
    bench.feed(0, long);
    let all = bench.turn(1);
    assert_eq!((by(1, &all).len(), by(2, &all).len()), (1, 0));
    assert_eq!(
        (bench.tally(0).mirrored, bench.tally(0).mirror_lost),
        (0, 1)
    );
    let tally = bench.instance.tally();
    assert_eq!((tally.copies, tally.copies_lost), (0, 1));
}

/// Whether the stage in front of a late one or behind it copies: once a packet, however often the late one is called.
#[test]
fn a_packet_that_is_late_is_copied_once() {
    let stages = vec![copier("front"), stage(b'b'), copier("behind")];
    let mut bench = bench(stages, 700, false);
    for number in 0..40 {
        bench.feed(0, packet(number % 4, number, b"--", false));
        bench.feed(1, packet(number % 4, number, b"--", true));
    }
    let all = bench.finish();
    assert_eq!((by(0, &all).len(), by(1, &all).len()), (40, 40));
    assert_eq!(by(2, &all).len(), 160);
    assert!(bench.tally(1).late > 0);
    assert_eq!([0, 2].map(|stage| bench.handled(stage)), [80, 80]);
}

#[test]
fn copies_for_a_port_that_is_not_there_are_dropped_and_counted() {
    let mut bench = Bench::new(vec![copier("copy")], late(&[], 0));
    bench.feed(0, packet(1, 1, b"--", false));
    assert_eq!(bench.finish().len(), 1);
    assert_eq!(bench.instance.tally().dropped(Reason::PortDown), 1);
}
