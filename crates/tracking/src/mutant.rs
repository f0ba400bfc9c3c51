//! The planted bugs of this room; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Firewall: what the first answer adds to its flow is not written (what the client says then fits no connection).
    AnswerNotWritten,
}
