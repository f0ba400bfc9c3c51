//! The planted bugs of this placement; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// What a transaction read may be otherwise by the time it is committed (a lost update).
    ReadsUnchecked,
    /// Keys may be written by another client between their read and the write (a check that is no lock).
    NothingWatched,
    /// The reply to `EXEC` was lost, and the batch is made again although it was (a retry that charges twice).
    MadeTryForgotten,
    /// A batch that another client crossed counts as made (a write that nobody made).
    CrossedCountsAsMade,
    /// A batch goes on by another connection as if it were another one (a retry under a new name).
    LostCountsAsNew,
    /// The last entry that fits is added by two clients at once (a limit that is checked and then used).
    RoomUnwatched,
    /// An entry that has another one's key is written, and that one stays under its other keys (an index that points to what is gone).
    OtherKeysNotLoaded,
    /// A packet took a member of a group, which may be gone by the time the packet is committed (a flow that joins a session that has ended).
    MemberUnchecked,
    /// Entries that were used since they were looked for end too (a session that ends while it is used).
    UsedSinceEnded,
    /// What transactions add goes before the transaction of the store, which may be crossed (a counter that counts each try).
    AddedBeforeExec,
    /// What a refused transaction adds is added all the same (a packet that is called again counts twice).
    RefusedAdditionShipped,
    /// Sums that were answered are given out however old they are (a limit that is never reached).
    SumsGivenOutForEver,
    /// Buckets of time stay in the store for ever (a window that fills the memory).
    BucketsStay,
    /// What is added after its bucket of time was dropped begins that bucket again.
    LateAdditionMade,
    /// Of the buckets of a window one alone is read (a rate limit of which the window restarts).
    OneBucketRead,
    /// What was asked by a connection that is lost is waited for (a request that nobody sent).
    LostReadsAwaited,
    /// An instance goes on to use entries of answers that the cache has let go (a second cache that nobody invalidates).
    GivenNotDropped,
    /// Changes that the store tells of are not heard of (a cache that nobody invalidates).
    ChangesUnheard,
    /// Answers are given out however long nothing was heard of the store (a cache that cannot know).
    StaleGivenOut,
    /// Entries are given out though they have ended (a session that lives for ever in a cache).
    EndedGivenOut,
    /// What a client wrote itself it reads as it was before (a cache behind its own writes).
    OwnWriteNotBarred,
    /// What one connection read is given out after the next one began, which hears of none of it (a cache that outlives its subscription).
    KeptOverConnections,
    /// Keys that the store tells of are not in the filter (a session that another host began, and that nobody finds).
    AnnouncedNotAdded,
    /// The filter answers before the scan has found all keys (a cache that is trusted while it is warmed).
    CompleteBeforeScanEnds,
    /// The filter of one connection answers on the next one, though keys came meanwhile (a subscription that was lost, and nobody noticed).
    CompleteOverConnections,
    /// A client's own keys are in the filter only when the store tells of them (a flow's second packet that does not find the first one's).
    OwnWriteNotAdded,
    /// Keys of several lanes are one (an answer to another question).
    LaneNotInKey,
    /// What the store says of its layout leaves the hash seed out (two clusters that count in one sketch, each in cells of its own).
    SeedUnmarked,
    /// A store that refuses all that is written counts as one that takes it (a full store that nobody notices).
    RefusalUnseen,
    /// A server that refuses all that is written is not left for one that was promoted (a primary that was cut off and keeps its clients).
    RefusingStays,
    /// A server that is full is left for another one that calls itself primary (two histories, of which each has a part).
    FullIsLeft,
    /// A replica serves as well as a primary (reads that are old).
    ReplicaTakenForPrimary,
    /// The keys are at another server, and one connection alone follows them (reads and commits of two histories).
    MovedAlone,
    /// A packet leaves although no replica has what it wrote (an acknowledged write that a failover forgets).
    ReplicaNotAwaited,
    /// A packet's reads and writes go to a shard that has others' entries (a map of the shards that is not everybody's).
    ShardOfAnother,
    /// Whether a shard has the keys that it is asked for nobody looks at (state of one key in two places).
    ShardUnchecked,
    /// What one shard answered is looked for at the next one (an answer that nobody gets).
    EventOfAnotherShard,
    /// Entries answer packets as long as the first shard is heard (a cache that cannot know of the others).
    FirstShardKeeps,
    /// Of the entries that are not so any more only the first shard's are dropped (a second cache that some invalidate).
    FirstShardDrops,
    /// Replies of a shard are taken once the one before has answered all that it was asked (a server that is away, and all wait).
    ShardHoldsUpAll,
    /// Each shard has room for all entries of a table (a limit that is counted by each of several servers).
    WholeRoomInEachShard,
    /// A new connection asks which replicas have what another one wrote (`WAIT` is about its own writes).
    WaitWithoutWrite,
}
