//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// A late copy of an older generation revives a removed entry (Akka ORMap: removed entries return).
    RemovalForgetsGeneration,
    /// A received use counts from the receiver's clock (haproxy 8f06c8fda: the expiry restarted at every resync).
    ExpiryRestartsOnReceipt,
    /// Concurrent values of one entry overwrite each other instead of joining (HAProxy `conn_cur` over peers).
    ValuesOverwritten,
    /// A write to an entry learnt from another member is not logged (haproxy#3161: instances "can no longer see table entries
    /// other than themselves").
    RemoteEntryNotLogged,
    /// A field of an ended entry is not read from a snapshot, and the following fields are read askew (haproxy#1497).
    SnapshotFieldSkipped,
    /// Blocks are assigned by range alone, so that all members own the same blocks (Jool's `pool4` shared by two instances;
    /// dpservice's port ranges).
    BlocksAssignedByRange,
    /// An item returns to its pool when its user's end is applied here, not when it is stable (a NAT port reused while a peer
    /// still translates to it).
    ReturnedBeforeStability,
    /// A use prolongs the entry here and is not announced (OVS and conntrackd: long flows idle out on the peer).
    TouchNotAnnounced,
    /// A received total is added to the last total instead of replacing it (haproxy#1497: counters "significantly increase").
    TotalAdded,
    /// The greater of two totals of a cell counts as newer, even where totals fall (a server's load that only rises on the peer,
    /// until no client is sent there).
    FallIgnored,
    /// A two-way map decides each side separately (RULES 19: e1 sends from e2's port).
    SidesSeparate,
    /// A tombstone is forgotten without stability (Cassandra's zombies after `gc_grace_seconds`).
    TombstoneForgottenEarly,
    /// Every member may fill the whole table (RULES 2: both insert into the last slot).
    CapacityNotLeased,
    /// After an entry was forgotten, its row begins again at the first generation (a new binding loses to a tombstone that a
    /// slower member still holds).
    FloorForgotten,
    /// Shares are computed as if all members ran as many instances as this one, so that members with different numbers of
    /// instances own the same blocks (dpservice's port ranges).
    LeasesCountInstances,
    /// Each retry of a packet draws a new item (a NAT port leaked for every late read).
    GrantPerRetry,
    /// Entries of a store that are kept between calls are found though they have ended (a session that lives for ever in a cache).
    KeptOutlivesItsEnd,
    /// An entry found by the prefetch pass is used without a check that it is the right entry (a stale cache answers for another
    /// flow).
    HintTrusted,
    /// An entry whose last user's host is gone for good never ends (conntrackd: entries of a dead node stay committed).
    OrphansLiveOn,
    /// A snapshot omits the last user of an ended entry, so that its writer counts as the user if it is restored, and it never
    /// ends if the real user is gone for good (conntrackd: entries of a dead node stay committed).
    LastUserOfTheEndedUnnamed,
    /// Changes of a cell during a coalescing window are forgotten at its end (a counter's last additions are never reported).
    HeldChangesForgotten,
    /// An applied cell is missing in the digest of its part (an auditor that alarms, or is silent, without cause).
    CellNotAudited,
    /// A repair removes entries that its source host lacks, including later writes (a resynchronisation that flushes the table it
    /// is to fill).
    RepairRemovesNews,
    /// A snapshot contains a value of an edge's weight that was not reported yet (an auditor that alarms without cause).
    UnreportedInSnapshots,
    /// A flush reports a total that lacks one (a delta lost in folding: counters that peers add up differently, haproxy#1497).
    TotalReportedShort,
    /// A dead member's holdings are granted without proof that its process has ended (a NAT port given to two flows, by a host
    /// that was only cut off).
    ReassignedUnfenced,
    /// A dead member's holdings are granted at once (a NAT port given to a second flow while the first still talks).
    ReassignedBeforeIdle,
    /// A living member's partition is granted from before the member is known to have stopped (two hosts own the same ports while
    /// only one has the last epoch).
    ReassignedUnreleased,
    /// A new process grants from all blocks of its place until it first determines which are its own (a port given to two flows,
    /// by the returned host and by the holder in between).
    GrantsUnjudged,
    /// A host without answers from others keeps granting (a NAT port given to two flows, by a host that was only cut off).
    LeaseWithoutEnd,
    /// Spending from buckets that are far from empty is never reported (replicas of a limit differ).
    CalmNeverReported,
    /// Spending from buckets that run empty is reported as late as spending from full buckets (a cluster lets a multiple of the
    /// rate through).
    ShortWaits,
    /// Tokens that others spent from a bucket are counted, but not deducted (mailgun/gubernator#208: hosts that did not own a
    /// limit always answered that it was not reached).
    OthersNotOwed,
    /// Keys with a rate of their own get the common rate (a customer of the lowest rate sends as much as one of the highest).
    OneRateForAll,
    /// Only the current bucket of a window is summed (mailgun/gubernator#225: each peer began the window again; recent counts are
    /// forgotten, and twice the limit passes).
    WindowRestarts,
    /// A restarted member begins its totals again, under the name that the others know (a counter that falls with each failover).
    TotalsBeginAgain,
    /// A late total of an ended incarnation replaces the total of the next incarnation (totals that fall back after a restart).
    EarlierIncarnationWins,
    /// A total without further additions bears the name of its last reporting incarnation for ever, until there are more names
    /// than an instance distinguishes (a cluster that no member can join after a thousand restarts).
    NamesPileUp,
    /// Totals of an ended incarnation that arrive after the next incarnation's first totals are not reported again (replicas of a
    /// counter differ, and no later addition corrects it).
    LateTotalUnreported,
    /// Only the first entry that a late packet read wakes it (a lost wake-up: the packet waits its whole time, or is dropped).
    WakesByFirstReadAlone,
    /// A write to a shared table wakes no waiting packet (RULES 21: a reply that overtakes its binding waits its whole time).
    OthersWriteWakesNobody,
    /// A packet's group ends where the longest entry would not fit, whatever is written (half of a packet's writes are applied
    /// when its host dies).
    WriteSetSplit,
    /// A removal takes a key out of a filter as often as it is in it (an object in two caches is found in neither after one of
    /// them drops it).
    RemovedForAll,
    /// A former holder of a partition counts as having released it once one of its instances has (two cores of a host, of which
    /// one still grants ports that another host has by now).
    ReleasedByOneInstance,
    /// Members outside the epoch count as too few to hold a lease although they are half of all (a NAT port given to two flows,
    /// by the two halves of a cut cluster).
    HalfIsFew,
    /// A lease counts from the last answer of any member, not from the answer that completes a majority (two hosts that are cut
    /// off together, and answer each other, keep granting).
    LeaseByLastAnswer,
    /// The time since which the members outside are too few for a lease is never counted again, although there were more
    /// meanwhile (a NAT port given to two flows, by a host that another one answered until then).
    FewForEver,
    /// A host whose lease ended still handles packets of known flows (a NAT port used by two flows, by a host that was only cut
    /// off).
    ServesWithoutLease,
    /// An assigned partition is granted from at once, without quarantine (a NAT port given to a second flow while the first still
    /// talks).
    QuarantineSkipped,
    /// Of two uses in the same second the other member's counts as later, at both members (an entry that each leaves to the other
    /// to end stays for ever).
    EqualUseTakesOver,
    /// Entries that a repair removes stay in the digest of their part (an auditor that alarms without cause, for ever).
    RemovedStaysInDigest,
    /// A repair writes entries again in their generation, so that others keep their own versions (a repair that repairs nothing).
    RewriteKeepsGeneration,
    /// The slot of an ended incarnation is reused while entries refer to it (process or inode ids that are reused too early: an
    /// entry is another's from then on).
    SlotReusedWhileNamed,
    /// An incarnation that is looked up while references are marked is not marked (a collector without its write barrier: an
    /// object stored behind it is freed in use).
    LookupsUnmarked,
    /// A packet that reads an entry whose last change is not confirmed leaves at once (a connection that the host forwarded is
    /// unknown to all others when the host dies).
    UnconfirmedReadLeaves,
    /// The first confirmation confirms all changes (a packet leaves whose state no other host has).
    FirstChangeConfirmsAll,
    /// A packet reads at once what a transaction writes here of which the store has not decided (two packets count one up, and it has
    /// counted once).
    UndecidedWriteUnseen,
    /// What a transaction adds here takes no room until it is committed (a table with an entry too many, or a flow without its entry).
    PromisedRoomGiven,
    /// An answer is taken by the packet that has the place of the one that asked (an answer given to another request).
    AnswerOfAnother,
    /// A store commits what was decided by answers that are outdated (a lost update: two packets take the same last place).
    ReadsUnchecked,
    /// What a refused call added to a counter or sketch stays (a packet that is called again counts twice).
    RefusedCallCounted,
    /// What a call adds to a window counts at the store's decision, not at the packet's arrival (a store that is slow moves counts into another
    /// window: what came in two of them counts in one).
    AddedWhenCommitted,
    /// Tokens that undecided calls were given are given to others too (a limit that lets through a multiple of its rate while its store is slow).
    PromisedTokensGiven,
    /// Spending that a store has decided of counts as undecided for ever (a host that never learns what others spent: each lets through more
    /// than its part).
    DecidedStaysUndecided,
    /// What an instance spent itself is taken for others' spending, once a store reports the sum (a limit that lets through half of its rate).
    OwnTakenForOthers,
    /// A grant that a refused call spent stays spent (a port that nobody uses and nobody gets).
    RefusedGrantSpent,
    /// What a host held before an object was shared is not written for the others (a new peer of a table that knows only what came
    /// later: conntrackd without its initial bulk update).
    HeldNotAnnounced,
    /// An entry that ended while the table was not shared is forgotten at once when it is, though another host may still hold it (an
    /// entry that one host has and another has not, for ever).
    LocalEndForgotten,
    /// What is written again has the stamp of that operation alone, though what is here has a later one of a member that is gone (entries that
    /// differ for ever in who wrote them).
    AnnouncedUnderOwnStamp,
    /// A table that is shared no longer leaves entries that others used last to them (entries that nobody ends).
    OthersEntriesStay,
    /// What was counted before a counter was shared is added once more (haproxy#1497: counters "significantly increase").
    LocalTotalCountedTwice,
    /// What a packet depends on is forgotten where a stage of a chain ends (the state of an earlier stage is lost with its host).
    StageForgetsDependency,
}
