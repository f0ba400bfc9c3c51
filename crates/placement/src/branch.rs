//! Branches of membership whose runs are counted; see [`asterism_mutant::branches`]. The simulator fails when its seeds take one of
//! them too seldom.

asterism_mutant::branches! {
    /// A roster that is not newer was refused.
    RosterNotNewer,
    /// A roster ended this incarnation.
    RosterEvicts,
    /// A roster named another incarnation of this member.
    RosterOtherIncarnation,
    /// A member goes on in the next epoch.
    MemberStays,
    /// A member was left out.
    MemberLeft,
    /// A member begins.
    MemberBegins,
    /// A member begins in another incarnation at once.
    MemberReplaced,
    /// An ended stream has groups above a gap here.
    EndedAboveGap,
    /// An ended stream has nothing above its prefix here.
    EndedWhole,
    /// A stream ended before its beginning came.
    EndedWithoutBeginning,
    /// A member ended in the middle of its snapshot.
    EndedInSnapshot,
    /// A confirmation named an incarnation that is not known here.
    ConfirmOfStranger,
    /// A confirmation said where a stream begins for this newcomer.
    StreamBegins,
    /// A member that is not the first leaves a newcomer to its sponsor.
    NotSponsor,
    /// A sponsor waits for the streams of ended incarnations.
    SponsorWaits,
    /// A sponsor waits until all members keep what follows for a newcomer.
    NewcomerUnconfirmed,
    /// A newcomer waits for one that began to join earlier.
    NewcomerHeldUp,
    /// A sponsor begins a snapshot for a newcomer.
    NewcomerServed,
    /// A newcomer lacks a part of a stream or a group.
    NewcomerIncomplete,
    /// A newcomer has joined.
    NewcomerReady,
    /// A stream is served by who holds its longest prefix.
    LongestServes,
    /// A stream is served by who holds something above a gap.
    LooseServes,
    /// A participant has not reported what it holds of a stream.
    HoldingUnreported,
    /// A report repeated what was known.
    ReportRepeated,
    /// A report said more than was known.
    ReportGrew,
    /// A stream waits until all participants have all of it.
    StreamNotWhole,
    /// A stream was closed.
    StreamClosed,
    /// A stream was closed that had been closed in an earlier epoch.
    StreamSettled,
    /// A new epoch begins the reports of a stream again.
    ReportsBeginAgain,
    /// A stream became known because another member spoke of it.
    StreamReportedIndirectly,
    /// A snapshot was joined that names no holdings of a stream.
    SnapshotUnnamed,
    /// A snapshot brought the holdings of a stream.
    SnapshotNamed,
    /// A snapshot for a participant came to nothing.
    SurvivorSnapshotLost,
    /// Repairs on a congested path wait for echoes.
    RepairsWait,
    /// Repairs on a congested path go on.
    RepairsGoOn,
    /// Repairs on a congested path have used up the bytes of a round.
    RepairsUsedUp,
}
