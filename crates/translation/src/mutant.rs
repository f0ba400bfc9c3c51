//! The planted bugs of this room; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// NAT: a port that was granted to a session is not taken (two flows have one outside endpoint, and answers go astray).
    PortNotTaken,
    /// NAT: a new session gets an outside endpoint of its own though its inside endpoint has one (RFC 4787 REQ-1: applications
    /// that tell others their address are not reached).
    BindingNotReused,
    /// NAT: who asks to end a mapping need not know its number (a host on the link ends those of others).
    AnybodyEndsMappings,
    /// NAT: a port that a host asked for lets in nobody that the filtering keeps out (who asked for visitors gets none).
    MappingFiltered,
    /// NAT: an instance counts the ports of a subscriber that it granted itself (who comes by all hosts has the quota of each).
    QuotaPerInstance,
}
