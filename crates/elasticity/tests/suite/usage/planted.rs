//! Every planted bug of metering is found by the seeds. Only in a build with `--cfg asterism_mutants`:
//! `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-orchestrator --test suite usage::planted`.

use asterism_elasticity::usage::mutant::{self, Mutant};

use super::properties::run;

/// Seeds tried for each bug at most.
const SEEDS: u64 = 400;

#[test]
fn every_planted_bug_is_found() {
    let mut alive = Vec::new();
    for planted in Mutant::ALL {
        mutant::select(Some(planted));
        let killed = (0..SEEDS).find_map(|seed| run(seed).err());
        mutant::select(None);
        match killed {
            Some(fault) => println!(
                "{planted:?}: {}",
                fault.chars().take(120).collect::<String>()
            ),
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "not found by any seed: {alive:?}");
}
