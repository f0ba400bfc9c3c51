//! Every planted bug is found by the seeds. Only in a build with `--cfg asterism_mutants`.

use std::panic::catch_unwind;

use asterism_state::mutant::{self, Mutant};

/// The planted bugs that the simulator's seeds find, those of `crates/state/tests/suite/incarnations.rs`, `.../token_rates.rs`, `.../recorded.rs` and
/// `.../buckets_in_store.rs`, and those that tests of the packet loop find.
const ELSEWHERE: [Mutant; 40] = [
    Mutant::HeldNotAnnounced,
    Mutant::LocalEndForgotten,
    Mutant::AnnouncedUnderOwnStamp,
    Mutant::OthersEntriesStay,
    Mutant::LocalTotalCountedTwice,
    Mutant::AnswerOfAnother,
    Mutant::ReadsUnchecked,
    Mutant::RefusedCallCounted,
    Mutant::AddedWhenCommitted,
    Mutant::PromisedTokensGiven,
    Mutant::DecidedStaysUndecided,
    Mutant::OwnTakenForOthers,
    Mutant::RefusedGrantSpent,
    Mutant::UndecidedWriteUnseen,
    Mutant::PromisedRoomGiven,
    Mutant::HintTrusted,
    Mutant::OrphansLiveOn,
    Mutant::HeldChangesForgotten,
    Mutant::ShortWaits,
    Mutant::LastUserOfTheEndedUnnamed,
    Mutant::OthersNotOwed,
    Mutant::OneRateForAll,
    Mutant::ReleasedByOneInstance,
    Mutant::HalfIsFew,
    Mutant::LeaseByLastAnswer,
    Mutant::FewForEver,
    Mutant::ServesWithoutLease,
    Mutant::QuarantineSkipped,
    Mutant::EqualUseTakesOver,
    Mutant::RemovedStaysInDigest,
    Mutant::RewriteKeepsGeneration,
    Mutant::SlotReusedWhileNamed,
    Mutant::LookupsUnmarked,
    Mutant::WakesByFirstReadAlone,
    Mutant::OthersWriteWakesNobody,
    Mutant::WriteSetSplit,
    Mutant::UnconfirmedReadLeaves,
    Mutant::FirstChangeConfirmsAll,
    Mutant::StageForgetsDependency,
    Mutant::KeptOutlivesItsEnd,
];

#[test]
fn every_planted_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut alive = Vec::new();
    let here = |planted: &Mutant| !ELSEWHERE.contains(planted);
    for planted in Mutant::ALL.into_iter().filter(here) {
        mutant::select(Some(planted));
        let killed = (0..600).find_map(|seed| {
            let fault = catch_unwind(|| match planted {
                Mutant::CapacityNotLeased => crate::convergence::leases::partitioned_members_fill_their_shares(),
                Mutant::LeasesCountInstances => {
                    crate::convergence::leases::members_with_different_numbers_of_instances_share_no_item();
                }
                Mutant::ReassignedBeforeIdle => {
                    crate::convergence::inheritance::the_fenced_are_inherited_from_after_an_idle_time();
                }
                Mutant::ReassignedUnfenced | Mutant::LeaseWithoutEnd => {
                    crate::convergence::inheritance::leases_run_out_before_others_inherit();
                }
                Mutant::RepairRemovesNews => {
                    crate::convergence::repairs::a_repair_removes_what_only_others_have_and_nothing_that_came_since();
                }
                Mutant::GrantsUnjudged => {
                    crate::convergence::inheritance::who_returns_grants_nothing_before_it_judged();
                }
                Mutant::ReassignedUnreleased => {
                    crate::convergence::inheritance::who_returns_waits_until_the_others_released();
                }
                Mutant::TotalsBeginAgain | Mutant::EarlierIncarnationWins | Mutant::LateTotalUnreported => {
                    crate::convergence::successors::run(seed);
                }
                Mutant::NamesPileUp => crate::convergence::successors::restarts_without_end(),
                _ => crate::convergence::run(seed),
            })
            .err()?;
            let said = fault
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| fault.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            Some((seed, said.unwrap_or_default()))
        });
        mutant::select(None);
        match killed {
            Some((seed, said)) => {
                println!(
                    "{planted:?}: seed {seed}: {}",
                    said.lines().next().unwrap_or("")
                );
            }
            None => alive.push(planted),
        }
    }
    let _ = std::panic::take_hook();
    assert!(alive.is_empty(), "not found by any seed: {alive:?}");
}
