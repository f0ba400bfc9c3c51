//! Every planted bug of TCP reassembly is found by a test. Only in a build with `--cfg asterism_mutants`:
//! `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-functions --test suite signature::planted`.

use std::panic::catch_unwind;

use asterism_functions::signature::mutant::{self, Mutant};

use crate::signature::reassembly::{
    a_syn_begins_a_stream_again_and_an_ignored_one_hides_nothing,
    bytes_one_by_one_are_found_and_others_are_not, every_split_in_every_order_is_reported_exactly,
    gaps_beyond_the_bound_are_given_up_and_counted_or_refused, segments_that_overlap_count_once,
    what_was_dropped_is_not_known,
};

#[test]
fn every_planted_bug_is_found() {
    let tests: [(&str, fn()); 6] = [
        ("splits", every_split_in_every_order_is_reported_exactly),
        ("bytes", bytes_one_by_one_are_found_and_others_are_not),
        ("overlaps", segments_that_overlap_count_once),
        ("drops", what_was_dropped_is_not_known),
        (
            "SYNs",
            a_syn_begins_a_stream_again_and_an_ignored_one_hides_nothing,
        ),
        (
            "gaps",
            gaps_beyond_the_bound_are_given_up_and_counted_or_refused,
        ),
    ];
    let mut alive = Vec::new();
    for planted in Mutant::ALL {
        mutant::select(Some(planted));
        let found = tests.iter().find(|(_, test)| catch_unwind(test).is_err());
        mutant::select(None);
        match found {
            Some((name, _)) => println!("{planted:?}: {name}"),
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "not found by any test: {alive:?}");
}
