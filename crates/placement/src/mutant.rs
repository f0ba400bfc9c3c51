//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// Retransmission stops after three tries (VPP NAT HA: 3 tries, then the session is dropped and `missed-count` grows).
    RetryGivesUp,
    /// A member that receives the end of a snapshot with missing chunks declares itself up to date (HAProxy peers: each expired
    /// timeout makes the process "consider itself as fully updated").
    FalseFullyUpdated,
    /// Received groups are acknowledged before they are applied (conntrackd: external cache acknowledged, never committed).
    AcknowledgesUnapplied,
    /// The log is pruned at the greatest acknowledgement instead of the smallest (Aeron's default multicast flow control: the
    /// slow lose).
    PrunesAtGreatest,
    /// An acknowledgement counts for stability whatever its stamp (Akka ORMap: removed entries return).
    StampIgnored,
    /// A group joins a group that was already sent: the record changes on retransmission (RULES 12).
    SentRecordChanges,
    /// Groups received twice are applied twice (haproxy#1497's counters that "significantly increase").
    DuplicatesDelivered,
    /// Groups beyond the reorder window are dropped but count as received (Jool joold: queue cap drops sessions).
    ReorderDropsSilently,
    /// The first group of each gap but the first is left out of the gap list (retransmission off by one).
    GapOffByOne,
    /// Keep-alives carry no acknowledgements (an idle pair never learns that the tail was lost).
    KeepAliveWithoutVector,
    /// After a skipped frame the decoder continues one byte early (haproxy#1497: a skipped variable-length field).
    SkippedFrameDesynchronizes,
    /// Any incarnation is accepted (Jool #385: an instance accepts sessions of other instances as its own).
    AnyIncarnation,
    /// The snapshot's end carries the vector of the end of the scan, not of its beginning (DPVS, opnsense#3932: long flows never
    /// resync).
    SnapshotVectorAtEnd,
    /// The log for a lagging replica is not kept during its snapshot scan (opnsense#3932).
    LogNotKeptDuringScan,
    /// A full log drops its oldest groups instead of serving the lagging replica from the tables (HAProxy, VPP, joold: drop).
    FullLogDropsOldest,
    /// A message of another epoch is accepted (chitchat#161: the dead gossiped forever).
    AnyEpoch,
    /// `covered_until` moves when a head is received, not when it is applied (opnsense#3932; replies overtake bindings).
    CoveredWhenHeard,
    /// The tail is never retransmitted on a timeout: only gaps are repaired.
    TailForgotten,
    /// A member that last reported no room is sent nothing until it reports room (a window that stays shut when its update is
    /// lost: TCP without a persist timer).
    ShutWindowNotProbed,
    /// A record that filled its message is retransmitted whole or not at all, although headers have grown by a byte since (the
    /// black hole of RFC 2923: a message too long for a formerly good path is sent and lost for ever).
    RepairsWholeRuns,
    /// Any message from a member postpones the repair of later losses (TCP before RFC 7765).
    TimerRestarts,
    /// A host's standstill counts as reordering of the path: for as long again, losses on the path to the host are not
    /// retransmitted (the reordering window that RFC 8985 section 6.2 bounds by the round trip).
    HiccupDelaysRepair,
    /// Messages in transit during a host's standstill count as samples of the path's round trip: the path counts as congested
    /// afterwards, and losses are retransmitted after the longest timeout, a little at a time.
    StandstillCounts,
    /// For the engine: `applied` is reported when the host's first instance has applied, not the last.
    AppliedByFirstInstance,
    /// For the engine: a snapshot scan begins at the bucket where the last scan stopped.
    ScanNotRestarted,
    /// A participant closes an ended incarnation with its own groups, without asking the others (groups that one of two
    /// participants had of the dead member are lost to the other for good).
    ClosesAlone,
    /// A restarted member is admitted while another member joins that received the earlier incarnation, and may alone have some
    /// of its groups (a counter that lacks for good a host's observations of the dead member).
    JoinsOutOfOrder,
    /// A joining member's snapshot is cut before all members keep the updates that follow.
    CutBeforeConfirmed,
    /// A joining member is ready once it has its snapshot, which contains parts of some groups (a session without its port: a
    /// copy of no single moment, as without the copy on write of a forked process).
    ReadyInMidGroup,
    /// A joining member acknowledges updates after the beginning of its streams as applied before it has the earlier state.
    NewcomerAcknowledges,
    /// Reports on a member's stream before its restart count for the stream after it.
    MarksOutliveIncarnations,
    /// Parts of a snapshot whose server died before the end are kept, and not reported.
    HalfSnapshotForgotten,
    /// A member that was silent and is served from the log again does not get the rest of its snapshot of an ended incarnation
    /// (opnsense#3932: a resync that is broken off and never done).
    OwedSnapshotForgotten,
    /// The record of whose holdings a snapshot contains counts in a later epoch too, in which the same members hold more: two
    /// replicas claim equality and differ.
    OldHoldingsCount,
    /// Entries of a dying member that a whole snapshot brought, beyond its stream, are passed on by no member once the snapshot's
    /// server has died too.
    JoinedSnapshotForgotten,
    /// A member left out by an epoch no longer counts for stability, although others may still deliver its writes (RULES 14: the
    /// removed returns).
    StableWithoutTheDead,
    /// An auditor reads before it has the state that it compares (an alarm that means nothing, and that operators ignore).
    ReadsTooEarly,
    /// An auditor compares although it had groups that the reference did not have yet.
    SecondReadingTooEarly,
    /// A part with its earlier value counts as unchanged, although an entry was added and removed meanwhile.
    ChangesIgnored,
    /// An auditor reads although a snapshot brought it more than its streams state.
    ReadsHalfASnapshot,
    /// An acknowledgement does not close the coalescing window: each window lasts the longest allowed time.
    WindowIgnoresAcknowledgement,
    /// The coalescing window has no end of its own: a member that does not acknowledge delays all others (one slow member stops
    /// the replication of all).
    WindowWithoutEnd,
    /// While changes are held back no group is sent, not even groups that packets wait for (a reply overtakes its binding).
    WindowHoldsGroups,
    /// On a congested path repairs wait only for echoes, which do not arrive.
    RepairsStayPaused,
    /// A relay's acknowledgement counts for every member of its site (RULES 26: an acknowledgement is the end member's).
    RelayVouches,
    /// A dead relay stays its site's relay, and no member bypasses it.
    RelayOfTheDead,
    /// A relay relays datagrams that were relayed already.
    RelayRepeats,
    /// A member acknowledges groups that it requests from its relay as received: if the relay lacks them too, no member sends
    /// them again.
    AskedCountsAsReceived,
    /// A member goes on waiting for a relay that reported that it lacks the requested groups.
    RelaysWordIgnored,
    /// Datagrams kept by a relay never grow too old.
    KeptForever,
    /// Of a member's acknowledgements held at a relay, the last to arrive is sent, not the newest.
    OlderAcknowledgementCrosses,
    /// A relay sends its site's acknowledgements only to relays that it receives itself (a member that the others receive, and
    /// the relay does not, is sent the same groups for ever).
    BundlesToServing,
    /// The last of the groups that waited for their turn is delivered twice.
    LastWaitingTwice,
    /// A group received before its turn is missing in a host's sum of delivered groups (an alarm that means nothing).
    EarlyGroupNotSummed,
    /// A joining member keeps its own date as the cluster's time (a host six hours ahead ends the sessions of the dead).
    TimeNotTakenOver,
    /// Members whose cluster times are hours apart accept each other.
    TimesApartAccepted,
    /// A host whose machine stood still, or whose clock is slow, stays behind the cluster's time (it keeps sessions of the dead
    /// for as long).
    TimeNeverForward,
    /// A restarted member counts as its earlier incarnation, whatever the epoch names (Jool #385: an instance accepts sessions of
    /// other instances as its own).
    RestartTakenForOld,
    /// The epoch in force is put in force again when it is submitted again (an operator's file that is written twice).
    SameEpochAgain,
    /// A participant does not pass on its groups of a dead member's stream above a gap (entries that only one participant has).
    LooseNotServed,
    /// A group counts as held by others once it was sent (a packet leaves whose state is lost with its host).
    ConfirmedWhenSent,
    /// A group counts as held by enough others once one of them has it (two hosts that die take a connection with them).
    ConfirmedByOneOfMany,
}
