//! Every planted bug of budgets and cookies is found. Only in a build with `--cfg asterism_mutants`:
//! `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-secure-channel planted`.

use asterism_secure_channel::mutant::{self, Mutant};

use super::{ALL_FORGED, admitted_after_us, assert_admitted};

#[test]
fn every_planted_bug_is_found() {
    for planted in [Mutant::OneBudgetForAll, Mutant::CookieUnasked] {
        mutant::select(Some(planted));
        let killed = std::panic::catch_unwind(|| {
            for forged in ALL_FORGED {
                assert_admitted(1_000, forged, true, 1);
            }
        });
        mutant::select(None);
        assert!(killed.is_err(), "{planted:?} is alive");
    }
    assert!(admitted_after_us(1_000, ALL_FORGED[0], true, 1).is_some());
}
