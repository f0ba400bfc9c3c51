//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// Calls are answered by what is kept of a store however long nothing was heard of it (a cache that cannot know).
    KeptHoweverOld,
    /// A packet that is called again, since it wrote what is in a store, is as the first call edited it (a packet translated twice).
    RetractedAsEdited,
    /// A record that finds the ring to the instances full is dropped (Jool joold: the queue's cap drops sessions).
    RecordDroppedWhenFull,
    /// The progress report of records overtakes records that wait in memory (conntrackd: acknowledged, never committed).
    ProgressOvertakes,
    /// A group is not handed to the sibling instances (HAProxy: entries of other processes never seen).
    SiblingSkipped,
    /// Received groups are handed to instances as stable (Akka ORMap: removed entries return).
    StableWhenReceived,
    /// A snapshot part without room is dropped (opnsense#3932: long flows never resync).
    SnapshotPartDropped,
    /// The grants of a late packet return to the pool while it is parked, and stay its own (a NAT port given twice).
    GrantReturnedAtPark,
    /// The frame of a packet that was given up is never released (buffers leak until the port starves).
    GivenUpFrameKept,
    /// Writes of an instance count as applied by its siblings at once (a NAT port reused while another core of the same host
    /// still translates to it).
    SiblingsNotAwaited,
    /// Messages do not name groups that are committed but wait for room in the log (a reply overtakes its binding).
    HeldGroupsNotNamed,
    /// When the budget of a turn is used up, the next group is skipped (HAProxy: "at most 100 per task", the rest late or never).
    BudgetSkipsGroup,
    /// Packets that wait behind others of their flow are not counted (RULES 7: a single flow fills the parking room, and no port
    /// is read).
    FlowFillsParking,
    /// A packet that is called again and is late again waits behind the others of its flow (packets of a flow are reordered).
    LateAgainIsLast,
    /// When a parked packet leaves, the next packet of its flow is not called (a lost wake-up: the packet waits until it is
    /// dropped).
    NextOfFlowForgotten,
    /// A burst ignores the packets that it parks itself (packets of a flow in the same burst are reordered).
    ParkedInBurstUnseen,
    /// A packet that is late at one stage of a chain is called again from the first stage (effects of the earlier stages twice).
    ChainCalledAgainWhole,
    /// Lazily reported counts are never reported (each host has its own counts, which operators add up manually).
    LazyNeverReported,
    /// A group that does not decode is skipped and counts as applied (conntrackd: "3 malformed", and nothing follows).
    BadGroupAcknowledged,
    /// The applied position of streams is taken at the end of a repair, not before its first entry (a resynchronisation that
    /// discards concurrent updates).
    RepairMarkedLate,
    /// A packet overtakes held packets of its flow (a client's second segment arrives before its first).
    HeldFlowOvertaken,
    /// What a call emitted that the store refused leaves (an answer to what did not happen).
    RefusedEmissionLeaves,
    /// A refused packet keeps what its call edited (a packet that is translated twice).
    HeaderNotRestored,
    /// An answer for one instance goes to the first one of the host (a completion on another core's queue).
    AnswerToFirstInstance,
    /// What several reads answered is taken for what was so at one moment (half of a transfer is seen).
    ReadsTakenForOne,
    /// A transaction whose decision is late is to be committed again under another name (a retry that charges twice).
    RetriedUnderNewName,
    /// A decision is taken for that on the transaction that the packet waits for now (a late refusal of an earlier call, after which what
    /// the store has committed is called again).
    DecisionOfAnother,
    /// What a function emits because of a held packet leaves at once (an answer that promises what no other host has).
    EmissionLeavesEarly,
    /// A packet that nobody confirmed leaves at its age limit, although the operator has such packets dropped (a connection that the
    /// host forwarded is unknown to all others when the host dies).
    OverdueLeavesAnyway,
    /// Each later packet of a flow begins the age of the held packets again (packets of a flow that keeps sending are held for ever,
    /// and fill the host).
    FollowersProlongHolding,
    /// What others write is thrown away while an object is local here (an update for a peer that has not been switched over yet is
    /// lost: a rolling change that loses sessions).
    GroupsDroppedWhileLocal,
    /// An object is local as soon as the own configuration says so, while other hosts still share it (the first host of a rolling
    /// change keeps its new sessions for itself).
    LocalByOwnWordAlone,
    /// A member that begins to share an object does not get again what others hold of it (a peer that is connected again without a
    /// full update: haproxy#3161).
    BeginningUnanswered,
    /// What a newcomer begins to share before it has joined is not digested (an auditor that alarms at each host that returns with the
    /// configuration of before).
    NewcomerBeginsTooEarly,
    /// Digests are compared while members still write again what they held (an auditor that alarms without cause).
    ComparedBeforeAnswered,
    /// A later packet of a flow waits for all packets that are held (a flow that keeps sending is late for ever while others are opened,
    /// and fills the host).
    FollowersWaitForAll,
}
