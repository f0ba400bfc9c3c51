//! The seed that found each planted bug when all were searched for last. It is run first, so that a run of all takes a minute and not ten; a
//! seed that does not find its bug any more, after a change of scenarios, costs a search. `asterism-sim mutants --search` does not use this
//! table and prints the rows that have changed.

/// Planted bugs and their seeds.
pub const KNOWN_SEEDS: &[(&str, u64)] = &[];
