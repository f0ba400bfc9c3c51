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
    /// What was asked by a connection that is lost is waited for (a request that nobody sent).
    LostReadsAwaited,
    /// Keys of several lanes are one (an answer to another question).
    LaneNotInKey,
}
