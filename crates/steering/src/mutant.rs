//! The planted bugs of the director's commands from elsewhere; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// A director takes moves in a desired state before its own (a leader that was paused moves buckets after it was replaced).
    EarlierMoveTaken,
    /// A director that was started again is handed the desired state and not the moves (buckets go home when the other director dies).
    RestartedLacksMoves,
    /// An orchestrator that begins to lead forgets the moves that are in force (each change of leaders undoes all rebalancing).
    NewLeaderForgetsMoves,
    /// An orchestrator that leads again goes on with the moves of its former time (what others moved meanwhile goes back).
    OldMovesAgain,
    /// A lost answer takes counts with it (a bucket looks idle while packets are lost on the way).
    CountsLost,
}
