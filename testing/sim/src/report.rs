//! What a run of one seed tells.

use std::collections::BTreeMap;
use std::time::Duration;

/// A check that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which check.
    pub check: &'static str,
    /// What was seen.
    pub detail: String,
}

impl Failure {
    /// A check that did not hold, and what was seen.
    pub fn new(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            detail: detail.into(),
        }
    }
}

/// A seed that passed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Faults that hit something, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Commands that acted, over all members.
    pub operations: u64,
    /// Operations times the instances other than their writer's that hold them: each acting command is one at least.
    pub delivered: u64,
    /// The fewest commands given to a member.
    pub operations_least: u64,
    /// Times that each branch was taken.
    pub branches: BTreeMap<&'static str, u64>,
    /// From the end of the last fault until every instance had all, as far as was seen every [`LOOK`](crate::LOOK).
    pub equal: Duration,
    /// Three windows and round trips from when the last datagram of the faults arrived, and one for each receive window of groups
    /// that a member was behind: what that takes where no timer need run out.
    pub windows: Duration,
    /// From the end of the last fault until all was quiet and equal.
    pub healed: Duration,
    /// What that may take at most.
    pub bound: Duration,
    /// Steps taken.
    pub steps: u64,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Claims of protocol cores that were judged.
    pub judged: u64,
}
