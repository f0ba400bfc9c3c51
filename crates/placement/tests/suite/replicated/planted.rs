//! Every planted bug of the protocol core is found by the seeds. Only in a build with `--cfg asterism_mutants`:
//! `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-placement --test suite planted`.

use asterism_placement::mutant::{self, Mutant};

use crate::replicated::scenarios::{
    a_full_message_goes_again_under_a_longer_header, a_hiccup_delays_no_repair,
    a_shut_window_is_probed, a_standstill_is_no_path, tail_is_repaired,
};
use crate::replicated::world::World;
use crate::replicated::{clocks, coalescing};

/// The planted bugs that live above the protocol core, or that only a change of membership, sites or the simulator's seeds show: for
/// the tests of anyone who has them.
const ELSEWHERE: [Mutant; 32] = [
    Mutant::JoinsOutOfOrder,
    Mutant::OldHoldingsCount,
    Mutant::JoinedSnapshotForgotten,
    Mutant::OwedSnapshotForgotten,
    Mutant::AppliedByFirstInstance,
    Mutant::ScanNotRestarted,
    Mutant::ClosesAlone,
    Mutant::CutBeforeConfirmed,
    Mutant::ReadyInMidGroup,
    Mutant::NewcomerAcknowledges,
    Mutant::MarksOutliveIncarnations,
    Mutant::HalfSnapshotForgotten,
    Mutant::StableWithoutTheDead,
    Mutant::ReadsTooEarly,
    Mutant::SecondReadingTooEarly,
    Mutant::ChangesIgnored,
    Mutant::ReadsHalfASnapshot,
    Mutant::EarlyGroupNotSummed,
    Mutant::TimerRestarts,
    Mutant::RelayVouches,
    Mutant::RelayOfTheDead,
    Mutant::RelayRepeats,
    Mutant::AskedCountsAsReceived,
    Mutant::RelaysWordIgnored,
    Mutant::KeptForever,
    Mutant::OlderAcknowledgementCrosses,
    Mutant::BundlesToServing,
    Mutant::RestartTakenForOld,
    Mutant::SameEpochAgain,
    Mutant::LooseNotServed,
    Mutant::ConfirmedWhenSent,
    Mutant::ConfirmedByOneOfMany,
];

#[test]
fn every_planted_bug_is_found() {
    let mut alive = Vec::new();
    for planted in Mutant::ALL
        .into_iter()
        .filter(|planted| !ELSEWHERE.contains(planted))
    {
        mutant::select(Some(planted));
        let killed = (0..400).find_map(|seed| {
            let run = std::panic::catch_unwind(|| match planted {
                Mutant::TailForgotten => tail_is_repaired(),
                Mutant::ShutWindowNotProbed => a_shut_window_is_probed(),
                Mutant::HiccupDelaysRepair => a_hiccup_delays_no_repair(),
                Mutant::StandstillCounts => a_standstill_is_no_path(),
                Mutant::RepairsWholeRuns => a_full_message_goes_again_under_a_longer_header(),
                Mutant::WindowIgnoresAcknowledgement | Mutant::WindowHoldsGroups => {
                    coalescing::an_acknowledgement_closes_the_window_and_groups_leave_meanwhile();
                    Ok(())
                }
                Mutant::WindowWithoutEnd => {
                    coalescing::alone_with_a_member_that_acknowledges_nothing_windows_still_end();
                    Ok(())
                }
                Mutant::RepairsStayPaused => {
                    coalescing::what_a_congested_path_lost_goes_again_part_by_part();
                    Ok(())
                }
                Mutant::TimeNotTakenOver => {
                    clocks::newcomers_take_over_the_time();
                    Ok(())
                }
                Mutant::TimesApartAccepted => {
                    clocks::times_apart_are_refused();
                    Ok(())
                }
                Mutant::TimeNeverForward => {
                    clocks::who_is_behind_goes_forward();
                    Ok(())
                }
                _ => World::new(seed).run().map(|_| ()),
            });
            let fault = match run {
                Ok(Ok(())) => return None,
                Ok(Err(fault)) => fault,
                Err(_) => "an assertion in the core".into(),
            };
            Some((seed, fault.lines().next().unwrap_or_default().to_owned()))
        });
        mutant::select(None);
        match killed {
            Some((seed, fault)) => println!(
                "{planted:?}: seed {seed}: {}",
                &fault[..fault.len().min(100)]
            ),
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "not found by any seed: {alive:?}");
}
