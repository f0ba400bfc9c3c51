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
    /// A question of a former start of the orchestrator, or to another process of the host, is answered.
    QuestionOfAnyStart,
    /// A question is answered however old it is (a recording makes a host send for ever).
    QuestionForEver,
    /// An earlier question takes the place of a later one (a datagram that was overtaken ends an answer under way).
    EarlierQuestionTaken,
    /// A question that comes twice is worked on twice.
    QuestionWorkedOnTwice,
    /// An answer goes to the question that is under way when it is ready (that of an orchestrator that was started again meanwhile).
    FormerAnswerSent,
    /// The host keeps an answer that nobody asks for any more.
    AnswerNeverForgotten,
    /// A part counts for the question that is under way, whichever it answers.
    AnswerToAnyQuestion,
    /// A part counts whichever process of the name sent it (an answer from before a restart).
    AnswerOfAnyProcess,
    /// Parts of two answers make a third, whatever the digest.
    AnswersMixed,
    /// A question that is lost is not asked again, nor is a lost part.
    QuestionNotRepeated,
    /// A question that nobody answers stays under way.
    QuestionNeverLate,
    /// An answer may have any length.
    AnswerUnbounded,
    /// Any number of questions wait for one host.
    QuestionsUnbounded,
    /// A host that restarts is waited for until the question is late.
    RestartUnnoticed,
    /// Each heartbeat has the usage of the first tenants (all further ones are never billed).
    FirstTenantsAlone,
    /// A leader of an earlier term is heard as the leader (one that does not know it was replaced hides that the next one is dead).
    FormerLeaderHeard,
}
