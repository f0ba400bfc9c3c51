//! A stage whose reads are late: it alone is called again, and flows keep their order.

use asterism_function::Reason;

use crate::chain::letters::{Bench, late, packet, shifting, stage};

/// Sends packets of some flows through three stages of which some are late; every stage must handle each once and in order.
pub(crate) fn each_stage_handles_each_packet_once(objects: &'static [&'static str]) -> [u64; 3] {
    const PACKETS: u16 = 90;
    let stages = vec![stage(b'a'), shifting(b'b', 100), stage(b'c')];
    let mut bench = Bench::new(stages, late(objects, 500));
    let mut all = Vec::new();
    for number in 0..PACKETS {
        bench.feed(0, packet(number % 5, number, b"--", false));
        if number % 10 == 9 {
            all.extend(bench.turn(130));
        }
    }
    all.extend(bench.finish());
    assert_eq!(all.len(), usize::from(PACKETS));
    for flow in 0..5 {
        let of_flow = all.iter().filter(|one| one.source_port == 1_100 + flow);
        let numbers: Vec<_> = of_flow.map(|one| one.number).collect();
        assert_eq!(numbers.len(), 18);
        assert!(
            numbers.is_sorted(),
            "flow {flow} was reordered: {numbers:?}"
        );
    }
    for object in objects {
        let number = usize::from(object.as_bytes()[0] - b'a');
        assert!(bench.tally(number).late > 0, "{object} was never late");
    }
    for one in &all {
        assert!(
            one.port == 1 && one.letters == "abc" || one.letters.len() > 3,
            "{one:?}"
        );
    }
    assert_eq!(bench.instance.tally().dropped_total(), 0);
    [0, 1, 2].map(|stage| bench.handled(stage))
}

#[test]
fn a_late_stage_is_called_again_alone() {
    for objects in [
        &["a.seen"][..],
        &["b.seen"],
        &["c.seen"],
        &["a.seen", "c.seen"],
        &["a.seen", "b.seen", "c.seen"],
    ] {
        let handled = each_stage_handles_each_packet_once(objects);
        assert_eq!(handled, [90; 3], "{objects:?} late");
    }
}

#[test]
fn other_flows_overtake() {
    let mut bench = Bench::new(vec![stage(b'a'), stage(b'b')], late(&["b.seen"], 500));
    bench.feed(0, packet(1, 1, b"Da", false));
    bench.feed(0, packet(1, 2, b"--", false));
    bench.feed(0, packet(2, 3, b"Ta", false));
    let all = bench.turn(1);
    assert_eq!(
        all.len(),
        1,
        "what does not come to the late stage does not wait"
    );
    assert_eq!((all[0].port, all[0].number), (0, 3));
    assert_eq!(bench.finish().len(), 1);
}

#[test]
fn a_stage_that_is_late_for_too_long_drops_or_is_bypassed() {
    use asterism_function::chain::OnFailure;
    for (on_failure, bound_us) in [
        (OnFailure::Drop, 2_000),
        (OnFailure::Bypass, 2_000),
        (OnFailure::Drop, 50_000),
    ] {
        let second = stage(b'b').on_failure(on_failure).waits_at_most(bound_us);
        let stages = vec![stage(b'a'), second, stage(b'c')];
        let mut bench = Bench::new(stages, late(&["a.seen", "b.seen"], 10_000));
        for number in 0..4 {
            bench.feed(0, packet(number, number, b"--", false));
        }
        let mut all = Vec::new();
        let mut last_us = 0;
        for turn in 0..300 {
            let sent = bench.turn(100);
            last_us = if sent.is_empty() { last_us } else { turn * 100 };
            all.extend(sent);
        }
        let tally = bench.tally(1);
        let letters: Vec<_> = all.iter().map(|one| &*one.letters).collect();
        match (on_failure, bound_us) {
            (_, 50_000) => assert_eq!(letters, ["abc"; 4]),
            (OnFailure::Drop, _) => assert_eq!(letters, [""; 0]),
            (OnFailure::Bypass, _) => {
                assert_eq!(letters, ["ac"; 4]);
                // Ten milliseconds at the first stage, which has no bound, and two at the second.
                assert!((12_000..13_000).contains(&last_us), "{last_us} us");
            }
        }
        let failed = if bound_us == 50_000 { 0 } else { 4 };
        assert_eq!(tally.dropped(Reason::StageLate), failed);
        let bypassed = on_failure == OnFailure::Bypass;
        assert_eq!(tally.bypassed, if bypassed { failed } else { 0 });
        assert_eq!((tally.acted, tally.late), (4 - failed, 4));
        assert_eq!(
            bench.handled(1),
            4 - failed,
            "nothing is written for a failed call"
        );
        assert_eq!(bench.instance.frames_in_use(), 0);
    }
}
