//! The planted bugs of the heartbeats; see [`asterism_mutant`]. The tests of this crate find each.

asterism_mutant::planted! {
    /// A heartbeat is believed whatever challenge it echoes (a recording keeps the dead alive).
    StaleBelieved,
    /// One challenge is given out for ever (a recording of this morning is believed in the evening).
    ChallengeForEver,
    /// A heartbeat that came before is believed again (a network that repeats datagrams keeps the dead alive).
    RepeatedBelieved,
    /// A process that is known to have ended is believed (a late datagram brings it back).
    EndedBelieved,
    /// An answer counts for any process (an earlier start's epoch begins a second incarnation).
    ReplyToAnyProcess,
    /// An answer counts however old it is (an epoch that was withheld for an hour is taken).
    ReplyForEver,
    /// An epoch is handed to any process of the name (two processes begin one incarnation).
    OfferByName,
    /// A text is taken whatever its digest (parts of two epochs make a third).
    DigestUnchecked,
    /// Heartbeats go on though nobody says that they are true (a host that hangs seems well).
    FactsForEver,
    /// An epoch is sent on after the host has it (each heartbeat is answered with a kilobyte for ever).
    OfferNeverForgotten,
    /// Lost parts are not asked for again (one lost datagram keeps a host out).
    PartNotRepeated,
    /// A later epoch waits until the one under way is whole (a host takes an epoch that is over).
    LaterEpochWaits,
}
