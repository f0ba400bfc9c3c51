//! The planted bugs of the truth store; see [`asterism_mutant`]. Each is named after a failure in the field. Those of the embedded
//! store are found by seeds of crashes (`embedded/crashes.rs`), those of the client of etcd by a gateway in memory (`tests/suite/gateway.rs`).

asterism_mutant::planted! {
    /// A change is answered before it is synced (a store of keys with the default of its sync lost acknowledged writes at power cuts).
    SyncLeftOut,
    /// A failed sync is tried again and believed (a database took the second success of fsync for the first's data).
    SyncRetried,
    /// A failed write is left half in the file (a log went on behind a torn record, and all behind it was lost at the next start).
    TornWriteKept,
    /// A torn tail stays in the file when the store is opened (the next record is written behind it).
    TornTailKept,
    /// The last record is taken though the system never wrote its end (a length arrived, its bytes did not).
    TornTailBelieved,
    /// A damaged record ends the log (recovery stops at a flipped bit, and drops all acknowledged records behind it).
    DamageIsTornTail,
    /// A change is in memory before it is durable (readers saw writes that a full disk refused).
    AppliedBeforeDurable,
    /// Only the first guard is compared (a transaction over two keys checked one).
    LaterGuardsUnchecked,
    /// An absent key fits any guard (a removed key was written over by an old compare-and-set).
    AbsentFitsAnyGuard,
    /// A transaction's token is not compared (a paused leader's writes were taken since somebody led).
    TokenUnchecked,
    /// A leader whose term has ended may write until it is replaced (a lease outlived its term).
    TermNeverEnds,
    /// A term counts from the answer (a slow disk stretches every leadership by its delay).
    TermFromAnswer,
    /// A deposed leader's renewal is the new leader's (a renewal by name instead of by lease).
    RenewsAnyLeader,
    /// A deposed leader's resignation ends the new leader's term (a delete of the leader's key without a compare).
    ResignsAnyLeader,
    /// Changes that were forgotten are reported as none (a watch over a compaction went on silently with a gap).
    GapIsNoChange,
    /// A transaction is forgotten by half (a history that is cut by entries tears a transaction).
    HalfForgotten,
    /// An election leaves no record (a restart gave a fencing token twice).
    ElectionNotLogged,
    /// A snapshot has the highest version for its revision (removals and elections since are forgotten, and versions are given again).
    SnapshotForgetsRevision,
    /// A compacted file keeps its old length (the next failed write is undone at the wrong place).
    LengthOfOldFile,
    /// A replacement that may not be durable is taken for durable (a rename without a sync of its folder).
    ReplacementUnsynced,
    /// A removed value's bytes are not given back (a store that is used long enough is full).
    BytesLeak,

    /// The end of a watch is taken for "no change" (a proxy that closed idle streams froze a controller for hours).
    StreamEndIsNoChange,
    /// A compacted watch goes on as if nothing had happened (a client that ignored the cancellation missed a day).
    CompactionIsNoChange,
    /// A renewal without a time to live counts (etcd answers the keepalive of a dead lease with success).
    KeepaliveWithoutTime,
    /// A lease that lives is a leadership that lasts (a key that an operator removed still led).
    LeaseIsLeadership,
    /// A transaction with a lost answer is taken for made (a client that maps every 5xx to success after the write).
    UnknownIsDone,
    /// A transaction with a lost answer is taken for not made (a client that retries by itself made increments twice).
    UnknownIsNotDone,
    /// An answer of an older revision is taken (reads from a member that was cut off, or from a restored copy).
    RevisionGoesBack,
    /// Another cluster's answer is taken (an address that was given to another etcd).
    AnyCluster,
    /// A range that goes on is taken for whole (a list that was cut at its limit).
    RangeCutOff,
    /// A campaign that somebody else won is led by both (a put without a compare).
    BidUnguarded,
    /// The one that leads is deposed, whatever the token (evidence against a leader that was acted on late took the next one down).
    DeposesAnyLeader,
}

impl Mutant {
    /// Whether the bug is of the client of etcd; the others are of the embedded store.
    #[must_use]
    pub const fn is_of_etcd(self) -> bool {
        self as usize >= Mutant::StreamEndIsNoChange as usize
    }
}
