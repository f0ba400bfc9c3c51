//! How entries are laid out, as the store has it under one key, so that nobody uses those of another layout or of another hash seed.
//!
//! The seed follows from the cluster's key. Cells of sketches are found by it, and what a function chooses by flow
//! ([`Ask::choose`](asterism_function::Ask::choose)) may be in any entry. Clusters of two seeds under one name would each add to cells that the
//! other one never reads, and nobody would notice.

use asterism_engine::hash_seed_mark;

use crate::mutant::{self, Mutant};
use crate::statistics::AwayReason;

/// Digits of the number of a layout, and the dot between it and the mark of the seed.
const NUMBER_BYTES: usize = 16 + 1;

/// What the key has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout(Vec<u8>);

impl Layout {
    /// Of entries that are laid out so, in a cluster with this hash seed. Of the seed it has a mark: other programs may read it.
    pub(crate) fn new(layout: u64, seed: u64) -> Self {
        let mark = match mutant::active(Mutant::SeedUnmarked) {
            true => 0,
            false => hash_seed_mark(seed),
        };
        Self(format!("{layout:016x}.{mark:016x}").into_bytes())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether what was found is that.
    ///
    /// # Errors
    /// Why its keys are not used, however it differs.
    pub(crate) fn check(&self, found: &[u8]) -> Result<(), AwayReason> {
        let is_alike = found.len() == self.0.len() && found.starts_with(&self.0[..NUMBER_BYTES]);
        match is_alike {
            true if found == self.0 => Ok(()),
            true => Err(AwayReason::HashSeed),
            false => Err(AwayReason::Layout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let own = Layout::new(7, 1);
        assert_eq!(own.check(Layout::new(7, 1).bytes()), Ok(()));
        let other_seed = own.check(Layout::new(7, 2).bytes());
        assert_eq!(other_seed, Err(AwayReason::HashSeed));
        for (layout, seed) in [(8, 1), (8, 2)] {
            let other = own.check(Layout::new(layout, seed).bytes());
            assert_eq!(other, Err(AwayReason::Layout), "{layout} and {seed}");
        }
        // As it was before seeds had marks, and what nobody writes.
        for found in [&b"0000000000000007"[..], b"", b".", &[0xFF; 33]] {
            assert_eq!(own.check(found), Err(AwayReason::Layout), "{found:?}");
        }
    }
}
