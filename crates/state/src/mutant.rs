//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after what somebody suffered in the field.

asterism_mutant::planted! {
    /// A late copy of an older generation revives a removed entry (Akka ORMap: removed entries return).
    RemovalForgetsGeneration,
    /// A received use counts from the receiver's clock (haproxy 8f06c8fda: the expiry restarted at every resync).
    ExpiryRestartsOnReceipt,
    /// Concurrent values of one entry overwrite each other instead of joining (HAProxy `conn_cur` over peers).
    ValuesOverwritten,
    /// A write to an entry that was learnt from another member is not logged (haproxy#3161: instances "can no longer
    /// see table entries other than themselves").
    RemoteEntryNotLogged,
    /// A field of an ended entry is not read from a snapshot, and what follows is read askew (haproxy#1497).
    SnapshotFieldSkipped,
    /// Blocks are dealt by range alone, so that all members own the same ones (Jool's `pool4` shared by two
    /// instances; dpservice's port ranges).
    BlocksAssignedByRange,
    /// An item returns to its pool when its user ended here, not when everybody knows (a NAT port reused while a
    /// peer still translates to it).
    ReturnedBeforeStability,
    /// A use prolongs the entry here and tells nobody (OVS and conntrackd: long flows idle out on the peer).
    TouchNotAnnounced,
    /// A received total is added to the last one instead of replacing it (haproxy#1497: counters "significantly
    /// increase").
    TotalAdded,
    /// Of two totals of a cell the greater is taken for the newer one, also where totals fall (a server's load that only rises
    /// on the peer, until nobody is sent there).
    FallIgnored,
    /// A two-way map decides each side for itself (RULES 19: e1 sends from e2's port).
    SidesSeparate,
    /// A tombstone is forgotten without stability (Cassandra's zombies after `gc_grace_seconds`).
    TombstoneForgottenEarly,
    /// Every member may fill the whole table (RULES 2: both insert into the last slot).
    CapacityNotLeased,
    /// After an entry was forgotten, its row starts again at the first generation (a new binding loses to a tombstone
    /// that a slower member still holds).
    FloorForgotten,
    /// Shares are counted as if all members ran as many instances as this one, so that members with different
    /// numbers of them own the same blocks (dpservice's port ranges).
    LeasesCountInstances,
    /// Each retry of a packet draws a fresh item (a NAT port leaked for every late read).
    GrantPerRetry,
    /// What the prefetch pass foresaw is taken without looking whether it is the entry (a stale cache answers for another
    /// flow).
    HintTrusted,
    /// An entry whose last user's host is gone for good is never ended (conntrackd: entries of a dead node stay committed).
    OrphansLiveOn,
    /// A snapshot does not say who used an ended entry last, so that it is taken for who wrote it when it lives on, and nobody ends it
    /// if the user is gone for good (conntrackd: entries of a dead node stay committed).
    LastUserOfTheEndedUnnamed,
    /// What changed in a cell while changes are held back is forgotten when they may go (a counter's last additions are
    /// never reported).
    HeldChangesForgotten,
    /// A cell that is applied is not in the digest of its part (an auditor that alarms, or is silent, for nothing).
    CellNotAudited,
    /// A repair removes what the host it is made from does not have, also what was written since (a resynchronisation
    /// that flushes the table it is to fill).
    RepairRemovesNews,
    /// A snapshot says of an edge's weight a value that was not reported yet (an auditor that alarms for nothing).
    UntoldInSnapshots,
    /// A flush tells a total that lacks one (a delta lost in folding: counters that peers add up differently, haproxy#1497).
    TotalReportedShort,
    /// What a dead member held is given out without knowing that its process has ended (a NAT port given to two flows, by a
    /// host that was only cut off).
    ReassignedUnfenced,
    /// What a dead member held is given out at once (a NAT port given to a second flow while the first still talks).
    ReassignedBeforeIdle,
    /// What a living member held is granted from before that is known to grant from it no more (two hosts own the same ports
    /// while one has the last epoch and the other has not).
    ReassignedUnreleased,
    /// A process that has just begun grants from all blocks of its place until it first judges which are its own (a port given to
    /// two flows, by who returns and by who held it meanwhile).
    GrantsUnjudged,
    /// A host that nobody answers grants on (a NAT port given to two flows, by a host that was only cut off).
    LeaseWithoutEnd,
    /// What was spent from buckets that are far from empty waits for ever (replicas of a limit differ).
    CalmNeverReported,
    /// What was spent from buckets that run empty waits as long as what was spent from full ones (a cluster lets a multiple of
    /// the rate through).
    ShortWaits,
    /// What others spent from a bucket is counted, and not missing in it (mailgun/gubernator#208: who did not own a limit always
    /// answered that it was not reached).
    OthersNotOwed,
    /// Keys that have a rate of their own get that of all others (who pays for little sends as much as who pays for most).
    OneRateForAll,
    /// Of a window the bucket that is being filled is summed alone (mailgun/gubernator#225: each peer began the window again; what
    /// was counted just before is forgotten, and twice the limit passes).
    WindowRestarts,
    /// Who is restarted begins its totals again, under the name that the others know them by (a counter that falls with each
    /// failover).
    TotalsBeginAgain,
    /// A late copy of what an ended incarnation reported replaces what the next one tells (totals that fall back after a restart).
    EarlierIncarnationWins,
    /// What nobody adds to any more bears the name of the incarnation that reported it last for ever, until there are more than an instance tells
    /// apart (a cluster that nobody can join after a thousand restarts).
    NamesPileUp,
    /// What comes of an ended incarnation once the next one has reported totals of its own is not reported again (replicas of a counter differ, and
    /// nobody adds to it any more).
    LateTotalUnreported,
    /// Of what a late packet read, the first entry alone wakes it (a lost wake-up: it waits its whole time, or is dropped).
    WakesByFirstReadAlone,
    /// What is written to a shared table wakes no packet that waits for it (RULES 21: a reply that overtakes its binding waits its whole
    /// time).
    OthersWriteWakesNobody,
    /// A packet's group ends where the longest entry would not fit, whatever is written (half of what a packet wrote is applied when
    /// its host dies).
    WriteSetSplit,
    /// A removal takes a key out of a filter as often as it is in it (an object that two caches hold is found in none after one
    /// of them dropped it).
    RemovedForAll,
    /// A former holder of a partition counts as having released it once one of its instances has (two cores of one host, of which one
    /// still grants the ports that another host has by now).
    ReleasedByOneInstance,
    /// Members outside the epoch that are half of all count as too few to hold a lease (a NAT port given to two flows, by the two
    /// halves of a cluster that was cut in two).
    HalfIsFew,
    /// A lease counts from the last answer of any member, not from that of the member that completes a majority (two hosts that are
    /// cut off together and answer each other grant on).
    LeaseByLastAnswer,
    /// Since when the members outside are too few for a lease is never counted again, though there were more of them meanwhile (a
    /// NAT port given to two flows, by a host that another one answered until then).
    FewForEver,
    /// A host whose lease ran out goes on to handle packets of flows that it knows (a NAT port used by two flows, by a host that was
    /// only cut off).
    ServesWithoutLease,
    /// Of the holders of a partition before its present one only the first is on record (what was dealt on twice is granted while the
    /// second holder still grants it).
    HeirNotNoted,
    /// A partition that returns to its place keeps the date at which it was dealt away (who returns grants from it while another host
    /// still does).
    ReturnNotDated,
    /// What was dealt to a host is granted from at once, without quarantine (a NAT port given to a second flow while the first still
    /// talks).
    QuarantineSkipped,
    /// Of two uses in the same second the other member's counts as the later one, at both (an entry that each leaves to the other to
    /// end stays for ever).
    EqualUseTakesOver,
    /// What a repair removes stays in the digest of its part (an auditor that alarms for nothing, for ever).
    RemovedStaysInDigest,
    /// A repair writes entries again in the generation that they have, so that others keep what they have instead (a repair that
    /// repairs nothing).
    RewriteKeepsGeneration,
    /// The slot of an incarnation that has ended is given out again while entries refer to it (ids of processes and of inodes that are
    /// used again too early: an entry is another's from then on).
    SlotReusedWhileNamed,
    /// What is looked up while references are marked is not marked (a collector without its write barrier: what was stored behind it is
    /// freed in use).
    LookupsUnmarked,
}
