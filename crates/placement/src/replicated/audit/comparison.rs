//! The comparison of an own reading with the reference's, as `mod.rs` describes it.

use crate::mutant::{self, Mutant};

use super::reading::{Place, SEGMENT_LEAVES, UNSURE};

/// An own reading, of one instance.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) most: Vec<u64>,
    pub(super) digests: [u64; SEGMENT_LEAVES],
}

/// A round of the reference, as who compares sees it.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) number: u32,
    pub(super) place: Place,
    pub(super) vector: Vec<u64>,
    pub(super) digests: Box<[u64; SEGMENT_LEAVES]>,
    /// The ticket of the own readings, once asked for.
    pub(super) asked: Option<u32>,
    /// By instance.
    pub(super) own: Vec<Option<Own>>,
}

/// Whether the second reading, of a replica that had all up to `vector`, contains all that an own reading can contain.
pub(super) fn is_within(own: &Own, vector: &[u64]) -> bool {
    let mut pairs = vector.iter().zip(&own.most);
    pairs.all(|(least, most)| least >= most) || mutant::active(Mutant::SecondReadingTooEarly)
}

/// The leaves of an own reading that are equal to the reference's, and those that differ. One that has changed meanwhile, or that one of
/// the two is not sure of, is neither.
pub(super) fn compare_leaves(round: &Compared, own: &Own, changed: u64) -> (u64, u64) {
    let (mut equal, mut different) = (0, 0);
    for leaf in 0..SEGMENT_LEAVES {
        let (theirs, ours) = (round.digests[leaf], own.digests[leaf]);
        if has_changed(changed, leaf) || [theirs, ours].contains(&UNSURE) {
            continue;
        }
        let side = if theirs == ours {
            &mut equal
        } else {
            &mut different
        };
        *side |= 1 << leaf;
    }
    (equal, different)
}

/// Whether a leaf has changed at the reference between its two readings.
fn has_changed(changed: u64, leaf: usize) -> bool {
    changed >> leaf & 1 != 0 && !mutant::active(Mutant::ChangesIgnored)
}
