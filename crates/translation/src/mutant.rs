//! The planted bugs of this library; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// NAT: a port granted to a session is not taken (two flows have the same outside endpoint, and answers go astray).
    PortNotTaken,
    /// NAT: a new session gets a new outside endpoint although its inside endpoint has one (RFC 4787 REQ-1: applications that
    /// advertise their address are not reached).
    BindingNotReused,
    /// NAT: a request to end a mapping needs no knowledge of its nonce (a host on the link ends mappings of others).
    AnybodyEndsMappings,
    /// NAT: a requested port admits no endpoint that the filtering refuses (a host that requested inbound flows gets none).
    MappingFiltered,
    /// NAT: an instance counts only a subscriber's ports that it granted itself (a subscriber reached by all hosts has the quota
    /// of each).
    QuotaPerInstance,
    /// NAT: a granted port is not looked for in the store (two instances give one port to two flows, and answers go astray).
    GrantUnconfirmed,
}
