//! The planted bugs of this layer; see [`asterism_mutant`]. Each is named after a failure in the field.

asterism_mutant::planted! {
    /// A later epoch in a peer's header is ignored (a restored snapshot serves in the epoch in which it was saved).
    LaterEpochIgnored,
    /// A host uses the newest wire version that it understands, whatever other members understand (a rolling upgrade that splits
    /// the cluster: old hosts receive nothing from new ones).
    SpeaksTooEarly,
    /// With a used-up budget no source is asked to prove its address (an attacker that forges a member's address keeps the member
    /// out).
    CookieUnasked,
    /// Handshakes from any address use the budget of the member that they name (a flood of forged handshakes from one address
    /// keeps that member out for a minute).
    OneBudgetForAll,
    /// Hosts with different lists of members admit each other (each assigns ports by its own list: one port for two flows).
    TermsNotCompared,
}
