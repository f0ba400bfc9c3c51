//! The planted bugs of the controller; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// A leader whose term has ended goes on (a paused leader that wakes).
    TermNeverEnds,
    /// The number of a desired state begins again with each leader (an old leader's state wins).
    GenerationsBeginAgain,
    /// Silence of most hosts at once is believed (a monitor that is cut off takes the service down).
    MajoritySilenceBelieved,
    /// A host is left out as soon as it is suspected (a garbage collection that costs a member).
    SuspectsAreEvicted,
    /// A host that was left out for its silence counts as ended (two lives in one place).
    SilenceIsFencing,
    /// Most members are left out by what a few report of them (a minority that declares the majority dead).
    MajorityIsEvicted,
    /// Any process of a name proves that the one before has ended (a rescheduled pod while the node lives).
    AnyProcessIsFencing,
    /// An epoch is handed out before the store has it (two epochs of one number).
    HandedBeforeStored,
    /// A host gets packets before it has the others' state (a joiner that answers with resets).
    JoinersTakePackets,
    /// A host gets packets while its replica differs (silent divergence that is served).
    DifferingTakesPackets,
    /// A host that was suspected stays out although it is well again (failover once, for ever).
    NeverReturns,
    /// An answer that did not come is waited for (a lost reply stops the orchestrator).
    NoAnswerAwaited,
    /// An epoch that was handed once is not handed again (a host that missed it stays behind).
    HandedOnce,
    /// A host that dies again and again is admitted at once (a crash loop that stops all others).
    AdmittedAtOnce,
    /// An epoch that names an incarnation is handed to any process of that name (an incarnation that begins twice).
    HandedToAnyProcess,
    /// Evidence that was had stays with the incarnation after (a new process that counts as dead).
    EvidenceOfAnyIncarnation,
    /// A leader is deposed by the word of one host (one switch port that fails changes the leader).
    DeposedByOneHost,
    /// That hosts miss a former leader counts against the next one (a failover that deposes its own result).
    AnyLeaderMissed,
    /// A newcomer gets a place that another host has (two machines with one address of a DHCP server without memory).
    PlaceGivenTwice,
    /// A newcomer is taken with the address of another host (a copied configuration that takes another's traffic).
    AddressOfAnother,
    /// A place is given on although its last process may still run (a lease given out again before it ended).
    PlaceReusedUnfenced,
}
