//! The planted bugs of chains are found.

use asterism_engine::mutant::{Mutant, select};

use crate::chain::late_stages::each_stage_handles_each_packet_once;

#[test]
fn a_chain_that_is_called_again_whole_is_found() {
    let found = std::thread::spawn(|| {
        select(Some(Mutant::ChainCalledAgainWhole));
        assert_eq!(each_stage_handles_each_packet_once(&["c.seen"]), [90; 3]);
    });
    assert!(found.join().is_err(), "the mutant is not found");
}
