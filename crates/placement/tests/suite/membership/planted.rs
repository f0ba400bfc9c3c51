//! Every planted bug of joining and closing is found by the seeds. Only in a build with `--cfg asterism_mutants`:
//! `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-placement --test suite membership:: planted`.

use asterism_placement::mutant::{self, Mutant};

use crate::membership::owed;
use crate::membership::world::World;

/// The planted bugs that only a change of membership shows.
const OF_MEMBERSHIP: [Mutant; 11] = [
    Mutant::JoinsOutOfOrder,
    Mutant::OldHoldingsCount,
    Mutant::JoinedSnapshotForgotten,
    Mutant::OwedSnapshotForgotten,
    Mutant::ClosesAlone,
    Mutant::CutBeforeConfirmed,
    Mutant::ReadyInMidGroup,
    Mutant::NewcomerAcknowledges,
    Mutant::MarksOutliveIncarnations,
    Mutant::HalfSnapshotForgotten,
    Mutant::StableWithoutTheDead,
];

#[test]
fn every_planted_bug_is_found() {
    let mut alive = Vec::new();
    for planted in OF_MEMBERSHIP {
        mutant::select(Some(planted));
        let killed = (0..400).find_map(|seed| {
            let run = std::panic::catch_unwind(|| match planted {
                Mutant::HalfSnapshotForgotten => {
                    owed::a_part_of_an_owed_snapshot_is_passed_on();
                    Ok(())
                }
                Mutant::OwedSnapshotForgotten => {
                    owed::an_owed_snapshot_goes_on_when_its_member_is_heard_again();
                    Ok(())
                }
                Mutant::OldHoldingsCount => {
                    owed::what_a_snapshot_contains_is_of_the_epoch_in_which_it_began();
                    Ok(())
                }
                Mutant::JoinedSnapshotForgotten => {
                    owed::what_a_snapshot_brought_of_the_dead_is_passed_on();
                    Ok(())
                }
                _ => World::new(seed).run().map(|_| ()),
            });
            match run {
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some((seed, fault)),
                Err(_) => Some((seed, "an assertion in the core".into())),
            }
        });
        mutant::select(None);
        match killed {
            Some((seed, fault)) => {
                println!(
                    "{planted:?}: seed {seed}: {}",
                    fault.lines().next().unwrap_or_default()
                );
            }
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "not found by any seed: {alive:?}");
}
