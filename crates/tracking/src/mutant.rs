//! The planted bugs of this library; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Firewall: the first answer's update of its flow is not written (the client's next packets match no connection).
    AnswerNotWritten,
}
