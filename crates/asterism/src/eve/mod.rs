//! Alerts as lines of JSON in the form of Suricata's `eve.json`, which log shippers and search systems read.
//!
//! `line.rs` makes a line of what a function found, `ledger.rs` knows what was written already, `crate::lines` writes lines from
//! a thread of its own, so that a disk or a reader that is slow holds up nobody else. `run/eve.rs` has it done for a running host,
//! `replay/eve.rs` for a capture. Read first: `line.rs`.

pub mod ledger;
pub mod line;

use asterism_function::chain::Chain;
use asterism_function::notice::QUESTION;

/// The questions that a function's stages are asked for what they found: one of a function alone.
#[must_use]
pub fn questions(stages: usize) -> Vec<u32> {
    match stages {
        0 => vec![QUESTION],
        stages => (0..stages)
            .filter_map(|stage| Chain::question(stage, QUESTION))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_of_the_longest_chain_can_be_asked() {
        assert_eq!(questions(0), [QUESTION]);
        let all = questions(asterism_function::chain::STAGES_MAX);
        assert_eq!(all.len(), asterism_function::chain::STAGES_MAX);
    }
}
