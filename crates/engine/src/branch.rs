//! Branches of repairs and leases whose runs are counted; see [`asterism_mutant::branches`]. The simulator fails when its seeds take
//! one of them too seldom.

asterism_mutant::branches! {
    /// A host handles no packets, since its lease ran out.
    TurnWithoutLease,
    /// A repair wrote entries again.
    RepairWrote,
    /// A repair said which entries to remove.
    RepairRemoved,
    /// A repair that removes nothing ended.
    RepairKept,
    /// A repair was over.
    RepairOver,
    /// An instance was handed what an epoch says of pools.
    BlockAssignmentTaken,
    /// An instance was handed the end of an incarnation.
    EndTaken,
    /// An instance was handed that an ended incarnation is closed.
    ClosingTaken,
}
