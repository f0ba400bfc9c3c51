//! The planted bugs of elasticity; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// Old samples count like new ones (an autoscaler whose metrics source stalls acts on the last figure for hours).
    StaleSampleCounts,
    /// A missing figure counts as zero (an autoscaler removes hosts because their metrics are missing).
    MissingIsZero,
    /// The figures of a few hosts decide for all (an orchestrator that lost its own link acts on the last host that it reaches).
    FewDecideForAll,
    /// A removal begins no cool-down (hosts are removed one after the other while the load of the first still moves).
    RemovalWithoutCoolDown,
    /// A host is removed without a check that the others can carry its load (hosts come and go at a constant load).
    RemovalUnchecked,
    /// Hosts on their way do not count (each evaluation during a launch launches more hosts).
    StartingNotCounted,
    /// Suspects count as hosts that can carry load (the last healthy host is removed beside a dead one).
    SuspectIsPeer,
    /// Failed launches are repeated at once (a launcher in trouble is flooded with launches).
    BackOffForgotten,
    /// A figure that falls below its threshold does not end the wait (two spikes an hour apart count as one long excess).
    DipForgotten,
    /// Removals ignore the windows of the schedule (hosts of the morning are removed again before the load comes).
    WindowIgnored,
    /// Hosts that leave do not count towards the maximum (more hosts run than there are licences or addresses).
    LeavingNotCounted,
    /// A bucket moves although its new host becomes as hot as its old one (an elephant goes to and fro).
    ElephantMoves,
    /// A state of the future is believed (after a clock went back, nothing is changed for as long as it was ahead).
    FutureBelieved,
}
