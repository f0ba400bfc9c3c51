//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after what somebody suffered in the field.

asterism_mutant::planted! {
    /// What finds the ring to the instances full is dropped (Jool joold: the queue's cap drops sessions).
    RecordDroppedWhenFull,
    /// Records that wait in memory are overtaken by the word that they came (conntrackd: acknowledged, never committed).
    ProgressOvertakes,
    /// A group is not handed to the sibling instances (HAProxy: entries of other processes never seen).
    SiblingSkipped,
    /// Instances are informed that all is stable which was received (Akka ORMap: removed entries return).
    StableWhenReceived,
    /// A part of a snapshot for which there is no room is dropped (opnsense#3932: long flows never resync).
    SnapshotPartDropped,
    /// What a late packet had reserved returns while it is parked, and is still its own (a NAT port given twice).
    GrantReturnedAtPark,
    /// The frame of a packet that was given up is never released (buffers leak until the port starves).
    GivenUpFrameKept,
    /// What one instance wrote counts as applied by its siblings at once (a NAT port reused while another core of the same
    /// host still translates to it).
    SiblingsNotAwaited,
    /// Messages do not name groups that are committed but wait for room in the log (a reply overtakes its binding).
    HeldGroupsNotNamed,
    /// When the budget of a turn is used up the next group is skipped (HAProxy: "at most 100 per task", the rest late or never).
    BudgetSkipsGroup,
    /// Packets that wait behind others of their flow are not counted (RULES 7: one flow fills the room of all, and no port is read).
    FlowFillsParking,
    /// A packet that was called again and is late again waits behind the others of its flow (packets of a flow change places).
    LateAgainIsLast,
    /// When a parked packet leaves, the next one of its flow is not called (a lost wake-up: it waits until it is dropped).
    NextOfFlowForgotten,
    /// A burst knows nothing of what it parks itself (packets of a flow that came together change places).
    ParkedInBurstUnseen,
    /// A packet that is late at one stage of a chain is called again from the first (effects of the earlier ones twice).
    ChainCalledAgainWhole,
    /// What is reported lazily is not reported at all (counts that each host has for itself: what operators add up manually).
    LazyNeverReported,
    /// A group that does not decode is skipped, and counts as applied (conntrackd: "3 malformed", and nothing follows).
    BadGroupAcknowledged,
    /// How far streams are applied is taken at the end of a repair, not before its first entry (a resynchronisation that flushes what
    /// came meanwhile).
    RepairMarkedLate,
}
