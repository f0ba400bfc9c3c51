//! Chains of functions in the packet loop: order of stages, late stages, what is emitted, failures, copies.

mod copies;
mod failures;
mod late_stages;
pub(crate) mod letters;
#[cfg(asterism_mutants)]
mod planted;
mod stored;

use asterism_engine::TracedStep;
use asterism_function::chain::{Chain, ChainError};
use asterism_function::{Reason, State};
use asterism_placement::Time;
use asterism_state::ObjectSettings;
use letters::{Bench, Left, always, late, packet, stage};

fn abc() -> Bench {
    Bench::new(vec![stage(b'a'), stage(b'b'), stage(b'c')], late(&[], 0))
}

fn left(port: u16, number: u16, letters: &str) -> (u16, u16, String) {
    (port, number, letters.to_owned())
}

fn plainly(all: &[Left]) -> Vec<(u16, u16, String)> {
    all.iter()
        .map(|one| left(one.port, one.number, &one.letters))
        .collect()
}

#[test]
fn packets_pass_outward_in_order_and_inward_in_reverse() {
    let mut bench = abc();
    bench.feed(0, packet(1, 1, b"--", false));
    bench.feed(1, packet(1, 2, b"--", true));
    let all = plainly(&bench.turn(1));
    assert_eq!(all, [left(0, 2, "cba"), left(1, 1, "abc")]);
    for stage in 0..3 {
        assert_eq!((bench.handled(stage), bench.tally(stage).acted), (2, 2));
    }
}

#[test]
fn a_packet_that_a_stage_turns_round_goes_back_through_those_before_it() {
    let mut bench = abc();
    bench.feed(0, packet(1, 1, b"Tb", false));
    bench.feed(1, packet(1, 2, b"Ta", true));
    bench.feed(0, packet(1, 3, b"Tc", false));
    let all = plainly(&bench.finish());
    let expected = [left(0, 1, "aba"), left(0, 3, "abcba"), left(1, 2, "cbabc")];
    assert_eq!(all, expected);
}

#[test]
fn a_packet_that_stages_hand_to_and_fro_is_dropped_and_counted() {
    let mut ring = Bench::new(vec![always("out", 1), always("in", 0)], late(&[], 0));
    ring.feed(0, packet(1, 1, b"--", false));
    assert_eq!(ring.finish(), []);
    assert_eq!(ring.instance.tally().dropped(Reason::ChainLoop), 1);
}

#[test]
fn what_a_stage_drops_or_takes_ends_there() {
    let mut bench = abc();
    bench.feed(0, packet(1, 1, b"Db", false));
    bench.feed(0, packet(1, 2, b"Cb", false));
    bench.feed(0, packet(1, 3, b"--", false));
    assert_eq!(plainly(&bench.turn(1)), [left(1, 3, "abc")]);
    assert_eq!([0, 1, 2].map(|stage| bench.handled(stage)), [3, 3, 1]);
    assert_eq!(bench.tally(1).dropped(Reason::Filtered), 1);
    let tally = bench.instance.tally();
    assert_eq!((tally.dropped(Reason::Filtered), tally.consumed), (1, 1));
}

#[test]
fn what_a_stage_emits_passes_the_stages_on_its_way() {
    let mut bench = abc();
    bench.feed(0, packet(1, 1, b"Ec", false));
    bench.feed(1, packet(1, 2, b"Ea", true));
    let all = plainly(&bench.finish());
    for expected in [
        left(1, 1, "abc"),
        left(0, 1, "!ba"),
        left(0, 2, "cba"),
        left(1, 2, "!bc"),
    ] {
        assert!(all.contains(&expected), "{expected:?} is not among {all:?}");
    }
    assert_eq!(all.len(), 4);
    assert_eq!(bench.instance.tally().emitted, 2);
}

#[test]
fn what_is_emitted_is_parked_as_any_packet_is() {
    let stages = vec![stage(b'a'), stage(b'b'), stage(b'c')];
    let mut bench = Bench::new(stages, late(&["b.seen"], 500));
    bench.feed(0, packet(1, 1, b"Ec", false));
    let all = plainly(&bench.finish());
    assert!(all.contains(&left(0, 1, "!ba")) && all.contains(&left(1, 1, "abc")));
    assert_eq!([0, 1, 2].map(|stage| bench.handled(stage)), [2, 2, 1]);
}

#[test]
fn objects_have_their_stages_names_and_their_own_settings() {
    let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let asked_by = asked.clone();
    let bench = Bench::new(vec![stage(b'a'), stage(b'b')], move |name| {
        asked_by.borrow_mut().push(name.to_owned());
        ObjectSettings::LOCAL
    });
    let names = ["a.seen", "a.handled", "b.seen", "b.handled"];
    assert_eq!(bench.instance.state().objects(), names);
    assert_eq!(*asked.borrow(), names);
    assert_eq!(bench.instance.digests().len(), 4);
}

#[test]
fn chains_that_cannot_be_are_refused() {
    let refused = |stages| Chain::new(stages).map(drop).unwrap_err();
    assert_eq!(refused(Vec::new()), ChainError::Stages(0));
    let twice = refused(vec![stage(b'a'), stage(b'a')]);
    assert_eq!(twice, ChainError::NameTwice("a"));
    assert_eq!(twice.to_string(), "two stages are called `a`");
}

/// Hosts with other stages, or others in another order, would not understand each other's objects.
#[test]
fn the_schema_is_of_the_stages_in_their_order() {
    use asterism_function::NetworkFunction;
    let schema = |letters: &[u8]| {
        let stages = letters.iter().map(|&letter| stage(letter)).collect();
        Chain::new(stages).unwrap().schema()
    };
    let all = [schema(b"ab"), schema(b"ba"), schema(b"a"), schema(b"abc")];
    for (place, one) in all.iter().enumerate() {
        assert!(!all[..place].contains(one));
    }
    assert_eq!(schema(b"ab"), schema(b"ab"));
}

#[test]
fn prefetching_changes_nothing_but_time() {
    let run = |above: Option<usize>| {
        let mut bench = abc();
        if let Some(above) = above {
            bench.instance.prefetch_above(above);
        }
        bench.turn(10_000);
        for number in 0..600 {
            bench.feed(
                usize::from(number % 3 == 0),
                packet(number * 7 % 50, number, b"--", number % 3 == 0),
            );
        }
        let all = bench.finish();
        assert_eq!(all.len(), 600);
        (all, [0, 1, 2].map(|stage| bench.handled(stage)))
    };
    assert_eq!(run(Some(0)), run(None));
}

#[test]
fn a_trace_shows_each_stage() {
    let stages = vec![stage(b'a'), stage(b'b')];
    let mut bench = Bench::new(stages, late(&["b.seen"], 500));
    bench.feed(0, packet(1, 1, b"--", false));
    let mut traced = Vec::new();
    let now = Time::from_micros(1);
    bench.instance.turn_traced(now, 10, || 7, &mut traced);
    let steps: Vec<_> = traced[0]
        .steps
        .iter()
        .map(|step| format!("{step:?}"))
        .collect();
    let shown = steps.join("\n");
    assert_eq!(traced.len(), 1);
    for expected in [
        "Stage { stage: \"a\"",
        "object: \"a.seen\"",
        "Act",
        "Forwarded(PortNumber(1))",
        "Stage { stage: \"b\"",
        "end: Late",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    assert!(matches!(
        traced[0].steps[0],
        TracedStep::Stage { stage: "a", .. }
    ));
    let all = plainly(&bench.finish());
    assert_eq!(all, [left(1, 1, "ab")]);
}
