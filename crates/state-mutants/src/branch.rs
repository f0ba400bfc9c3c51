//! Branches of leases, of how entries end, and of repairs, whose runs are counted; see [`asterism_mutant::branches`]. The simulator
//! fails when its seeds take one of them too seldom.

asterism_mutant::branches! {
    /// Leases: an epoch ended an incarnation.
    IncarnationEnded,
    /// Leases: an epoch named the next incarnation of one that ended, which proves the end of its process.
    EndProvedByName,
    /// Leases: an epoch said that the process of an ended incarnation has ended.
    EndProvedByFence,
    /// Leases: members outside the epoch are too few to hold a lease.
    OthersAreFew,
    /// Leases: members outside the epoch are enough to hold a lease.
    OthersAreMany,
    /// Leases: an ended incarnation was closed.
    EndedClosed,
    /// Leases: an incarnation was closed that this instance never saw end.
    StrangerClosed,
    /// Leases: a member that ended unseen is judged by when this instance joined.
    EndedUnseen,
    /// Leases: waits are counted from a proof of the end.
    CountedFromProof,
    /// Leases: waits are counted from the end of a lease.
    CountedFromLease,
    /// Leases: nothing proves the end of a process, and others may hold its lease.
    EndUnproved,
    /// Leases: the idle time since the proof has not passed.
    StillTalking,
    /// Leases: a former holder that lives has not released a partition.
    Unreleased,
    /// Leases: of a former holder that lives nothing is on record.
    NothingOnRecord,
    /// Leases: not all instances of a former holder have the epoch in force.
    SomeOnRecord,
    /// Leases: all instances of a former holder have the epoch in force.
    AllOnRecord,
    /// Leases: a record came that is no later than the known one.
    RecordRepeated,
    /// Leases: a record replaced an earlier one.
    RecordReplaced,
    /// Leases: a record of an instance came first.
    RecordFirst,
    /// Leases: a host holds its lease without end, since none is configured.
    LeaseWithoutBound,
    /// Leases: a host of two members holds its lease alone.
    LeaseAlone,
    /// Leases: a lease counts from the answer of the member that completes a majority.
    LeaseCounted,
    /// Leases: too few members ever answered.
    LeaseUnanswered,
    /// Leases: nothing is granted, since the lease has run out.
    GrantWithoutLease,
    /// Leases: a block is still kept from being granted.
    BlockQuarantined,
    /// Leases: a block of another place is granted from.
    BlockReclaimed,
    /// Leases: a block of the own place is granted from again.
    BlockReturned,
    /// Leases: a block that is granted from goes on to be, since nobody else had it meanwhile.
    BlockKept,
    /// Expiry: the last user of an entry ends it.
    IdleEnded,
    /// Expiry: this instance ends an entry whose user has gone for good.
    OrphanEnded,
    /// Expiry: another instance ends an entry whose user has gone for good, or its user incarnations.
    OrphanLeft,
    /// Expiry: an ended entry waits until all members know of its end.
    EndUnstable,
    /// Expiry: an entry is forgotten, and what it held returns.
    ForgottenLast,
    /// Expiry: an entry is forgotten whose key another entry still has.
    ForgottenBeside,
    /// Expiry: an entry is forgotten that was never held here.
    ForgottenUnheld,
    /// Expiry: a use is announced.
    UseAnnounced,
    /// Expiry: a copy of an older generation came.
    CopyOutdated,
    /// Expiry: a copy of a newer generation came.
    CopyNewer,
    /// Expiry: an entry was written while another member removed it.
    WriteBesideRemoval,
    /// Expiry: a removal came for an entry that was written meanwhile.
    RemovalBesideWrite,
    /// Expiry: a later use came.
    UseLater,
    /// Expiry: a use came that is no later than the known one.
    UseEarlier,
    /// Expiry: the end of an entry came that was used later than its end says.
    EndOutlived,
    /// Expiry: an ended entry lives on.
    Resurrected,
    /// Expiry: a write came of an entry that was forgotten because all members had it.
    CopyForgotten,
    /// Expiry: an entry of a snapshot was known, and was forgotten since.
    SnapshotCopyForgotten,
    /// Repair: an instance begins to look for entries to remove.
    RemovalBegun,
    /// Repair: an entry is removed.
    RemovedByRepair,
    /// Repair: an entry is looked at and kept.
    KeptByRepair,
    /// Repair: a removal names a stream that nothing is here of.
    StreamUnknown,
    /// Repair: a second removal of the same parts joins one under way.
    RemovalJoined,
    /// Repair: an entry is written again.
    WrittenAgain,
    /// Repair: an ended entry is not written again.
    EndedNotWritten,
}
