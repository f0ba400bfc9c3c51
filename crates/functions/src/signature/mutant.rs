//! The planted bugs of reassembled streams; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// The border of two runs that meet is not searched (a signature in parts smaller than pieces passes).
    MeetingUnsearched,
    /// A run's tail is that of its last segment alone (a signature over three segments passes).
    TailOfLastAlone,
    /// A run's head is that of its first segment alone (the same with segments out of order).
    HeadOfFirstAlone,
    /// Bytes that two segments have in common count twice (a signature passes if a segment is retransmitted with another cut).
    OverlapTakenTwice,
    /// A SYN removes the tail of earlier data (a SYN that the receiver ignores hides a signature).
    SynBelieved,
    /// A SYN changes nothing (bytes of a connection count as those of an earlier one between the same ports).
    SynIgnored,
    /// A segment that was dropped for a signature counts as seen (retransmitted after the block has ended, it passes).
    DroppedRemembered,
    /// With `strict`, segments pass that leave more gaps than are kept (segments that fill the gaps complete a signature).
    GapsIgnored,
}
