//! The planted bugs of this library; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Balancer: a retransmitted SYN counts against its backend at once (a client that sends SYNs twice removes living backends).
    SilenceCountsAtOnce,
    /// Balancer: a backend's answer after failed flows is not written (a recovered backend stays out of use).
    RecoveryNotWritten,
    /// Balancer: a reset ends its connection whatever its sequence number (a stranger that knows the ports ends connections of
    /// others).
    BlindResetBelieved,
}
