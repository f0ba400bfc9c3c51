//! Counts as documents show them.

use std::collections::BTreeMap;

/// Counts by name, without those that are zero.
pub(crate) fn nonzero(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}
