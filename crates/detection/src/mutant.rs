//! The planted bugs of this room; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Port scan: a probe is judged by itself, not with what all instances know of its source (a scan spread over hosts is none).
    ProbeJudgedAlone,
    /// Port scan: connections that were accepted clear nothing (who uses many services scans).
    AcceptedIgnored,
}
