//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after what somebody suffered in the field.

asterism_mutant::planted! {
    /// Retransmission stops after three tries (VPP NAT HA: 3 tries, then the session is dropped and `missed-count` grows).
    RetryGivesUp,
    /// A member that receives the end of a snapshot whose chunks are missing calls itself up to date (HAProxy peers: each
    /// timeout that runs out makes the process "consider itself as fully updated").
    FalseFullyUpdated,
    /// Acknowledges what was received, not what was applied (conntrackd: external cache acknowledged, never committed).
    AcknowledgesUnapplied,
    /// Prunes at the greatest acknowledgement instead of the smallest (Aeron's default multicast flow control: the slow lose).
    PrunesAtGreatest,
    /// An acknowledgement counts for stability whatever the stamp says (Akka ORMap: removed entries return).
    StampIgnored,
    /// A group joins one that was already sent: the record changes on retransmission (RULES 12).
    SentRecordChanges,
    /// What arrives twice is applied twice (haproxy#1497's counters that "significantly increase").
    DuplicatesDelivered,
    /// What does not fit the reorder window is dropped but counts as received (Jool joold: queue cap drops sessions).
    ReorderDropsSilently,
    /// The first group of each gap but the first is left out of the gap list (retransmission off by one).
    GapOffByOne,
    /// Keep-alives carry no acknowledgements (an idle pair never learns that the tail was lost).
    KeepAliveWithoutVector,
    /// After a skipped frame the decoder reads on one byte early (haproxy#1497: a skipped variable-length field).
    SkippedFrameDesynchronizes,
    /// Any incarnation is accepted (Jool #385: sessions of several instances taken for one's own).
    AnyIncarnation,
    /// The snapshot's end carries the vector of when the scan ended, not of when it began (DPVS, opnsense#3932: long flows
    /// never resync).
    SnapshotVectorAtEnd,
    /// A lagging's part of the log is not kept during its scan (opnsense#3932).
    LogNotKeptDuringScan,
    /// A full log drops its oldest groups instead of serving the lagging from the tables (HAProxy, VPP, joold: drop).
    FullLogDropsOldest,
    /// A message of another epoch is accepted (chitchat#161: the dead gossiped forever).
    AnyEpoch,
    /// `covered_until` moves when a head is heard, not when it is applied (opnsense#3932; replies overtake bindings).
    CoveredWhenHeard,
    /// The tail is never retransmitted on a timeout: only gaps are repaired.
    TailForgotten,
    /// Who had no room when it was heard last is sent nothing until it says otherwise (a window that stays shut when the word that
    /// opens it is lost: TCP without a persist timer).
    ShutWindowNotProbed,
    /// What filled its message goes again whole or not at all, though headers have grown by a byte since (the black hole of RFC 2923:
    /// what is too long for a path that was good is sent, lost and sent again for ever).
    RepairsWholeRuns,
    /// Whatever is heard of a member puts off the repair of what was lost after it (TCP before RFC 7765).
    TimerRestarts,
    /// A host that stood still for a while counts as a path that reorders by as long: for as long again what is lost on the way to it
    /// is not sent again (the reordering window that RFC 8985 section 6.2 bounds by the round trip).
    HiccupDelaysRepair,
    /// What was under way while a host stood still tells how long the path is: it counts as congested afterwards, and what is lost on
    /// it goes again after the longest timeout, a little at a time.
    StandstillCounts,
    /// For the engine: `applied` is reported when the first instance of the host has applied, not the last.
    AppliedByFirstInstance,
    /// For the engine: a snapshot scan begins at the bucket where the last one stopped.
    ScanNotRestarted,
    /// A participant takes an ended incarnation as it has it, without asking the others (what one of two had of the dead is lost to
    /// the other for good).
    ClosesAlone,
    /// Who is restarted is let in while somebody joins who heard the incarnation before, and may have of it what nobody else has (a counter
    /// that lacks for good what one host saw of the dead).
    JoinsOutOfOrder,
    /// A newcomer's snapshot is cut before all members keep what follows for it.
    CutBeforeConfirmed,
    /// A later epoch in a peer's header is ignored (a restored snapshot serves in the epoch that it was saved in).
    LaterEpochIgnored,
    /// Hosts whose lists of members differ admit each other (each deals ports by its own list: one port for two flows).
    TermsNotCompared,
    /// A newcomer has joined once it has its snapshot, of which some groups are a part (a session without its port: a copy that
    /// is of no one moment, as without the copy on write of a forked process).
    ReadyInMidGroup,
    /// A newcomer acknowledges as applied what came after streams began for it, before it has what was before.
    NewcomerAcknowledges,
    /// What was said of a member's stream before its restart counts for the stream after it.
    MarksOutliveIncarnations,
    /// What a member got of a snapshot whose server died before the end is kept, and nobody is reported.
    HalfSnapshotForgotten,
    /// Who was silent and is served from the log again is sent no more of the snapshot that it is owed of an incarnation that ended (opnsense#3932:
    /// a resync that is broken off and never done).
    OwedSnapshotForgotten,
    /// Whose holdings a snapshot contains counts in a later epoch too, in which the same members hold more: two replicas call
    /// each other equal, and are not.
    OldHoldingsCount,
    /// What a whole snapshot brought of a member that dies, beyond its stream, is passed on by nobody once its server has died too.
    JoinedSnapshotForgotten,
    /// Once an epoch leaves a member out it does not count for stability any more, though others may still bring what it
    /// wrote (RULES 14: the removed returns).
    StableWithoutTheDead,
    /// An auditor reads before it has what it compares with (an alarm that means nothing is one that nobody heeds).
    ReadsTooEarly,
    /// An auditor compares although it had something that the reference did not have yet.
    SecondReadingTooEarly,
    /// A part that is as it was counts as unchanged, though something came and went.
    ChangesIgnored,
    /// An auditor reads although a snapshot brought it more than its streams say.
    ReadsHalfAnSnapshot,
    /// An acknowledgement does not close the window in which changes are kept back: each lasts as long as it may.
    WindowIgnoresAcknowledgement,
    /// The window has no end of its own: anyone who does not acknowledge makes all others late (one slow member stops the
    /// replication of all).
    WindowWithoutEnd,
    /// While changes are kept back no group is sent, those that packets wait for neither (a reply overtakes its binding).
    WindowHoldsGroups,
    /// On a congested path repairs wait for echoes that do not come, and for nothing else.
    RepairsStayPaused,
    /// A host speaks the newest wire version that it understands, no matter who else has to (a rolling upgrade that splits the
    /// cluster: who is not upgraded yet hears nothing of who is).
    SpeaksTooEarly,
    /// Handshakes from anywhere spend the budget of the member that they name (a flood of forged ones from one address keeps that
    /// member out for a minute).
    OneBudgetForAll,
    /// Where the budget is spent no source is asked to prove its address (who forges a member's address keeps it out).
    CookieUnasked,
    /// What a relay acknowledges counts for every member of its site (RULES 26: an acknowledgement is the end member's).
    RelayVouches,
    /// The relay of a site stays who it was when it dies, and nobody passes it by.
    RelayOfTheDead,
    /// A relay hands on what was handed on already.
    RelayRepeats,
    /// What a member asks its relay for it acknowledges as received: if the relay has not got it either, nobody sends it again.
    AskedCountsAsReceived,
    /// A relay that says that it has not got what it is asked for is waited for all the same.
    RelaysWordIgnored,
    /// What a relay keeps does not grow too old.
    KeptForever,
    /// Of the acknowledgements of a member that wait at a relay the last to arrive crosses, not the newest.
    OlderAcknowledgementCrosses,
    /// A relay carries its site's acknowledgements to those relays alone that it hears itself (a member that the others hear, and
    /// the relay does not, is sent the same for ever).
    BundlesToServing,
    /// Of the groups that waited for their turn the last is delivered twice.
    LastWaitingTwice,
    /// A group that comes before its turn is not in what a host takes as delivered of a stream (an alarm that means nothing).
    EarlyGroupNotSummed,
    /// A newcomer keeps its own date as the cluster's time (a host six hours ahead ends the sessions of the dead).
    TimeNotTakenOver,
    /// Members whose cluster times are hours apart accept each other.
    TimesApartAccepted,
    /// A host whose machine stood still, or whose clock is slow, stays behind the others' time (it keeps sessions of the dead for as long).
    TimeNeverForward,
    /// A member that was started again counts as the one before, whatever the epoch names (Jool #385: sessions of several instances
    /// taken for one's own).
    RestartTakenForOld,
    /// An epoch that is in force is put in force again when it is handed in again (an operator's file that is written twice).
    SameEpochAgain,
    /// What a participant has of a dead member's stream above a gap it passes on to nobody (entries that one of the participants alone
    /// has).
    LooseNotServed,
}
