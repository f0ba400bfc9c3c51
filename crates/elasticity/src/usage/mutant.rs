//! The planted bugs of metering; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// Reports are added up instead of replacing each other (an answer that was sent twice is billed twice).
    ReportsAdded,
    /// The newest report counts, not the greatest (a report that was overtaken takes usage back).
    NewestCounts,
    /// A new incarnation replaces the counts of the one before it (usage before a restart is never billed).
    RestartForgets,
    /// Counts of a host that left are dropped with it (the last hour of every removed host is never billed).
    LeavingForgets,
    /// An old list of members reopens what was settled (a paused leader bills a day again).
    OldMembersBelieved,
    /// A report of an incarnation that was settled is counted again (a host that was cut off for a day is billed twice).
    SettledCountsAgain,
}
