//! The planted bugs of this room; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Balancer: a SYN that is sent again counts against its backend at once (anyone who sends SYNs twice takes living backends away).
    SilenceCountsAtOnce,
    /// Balancer: what a backend answers after flows failed is not written (one that came back stays away).
    RecoveryNotWritten,
    /// Balancer: a reset ends its connection whatever its number (a stranger who knows the ports ends the connections of others).
    BlindResetBelieved,
}
