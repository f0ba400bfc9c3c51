//! The planted bugs of keeping usage; see [`asterism_mutant`]. The tests of this module find each.

asterism_mutant::planted! {
    /// A leader goes on with what it metered in an earlier term (what others stored meanwhile is overwritten).
    MeterOutlivesTerm,
    /// A leader resumes from a state that it read before it led (what the leader before it stored last is lost).
    EarlierReadResumed,
    /// Totals are shown before they are stored (they fall when the leader dies).
    ShownUnstored,
    /// A last report of a host that left is stored with the next round (the leader dies, and it is lost).
    LateReportWaits,
}
