//! The planted bugs of this library; see [`asterism_mutant`].

asterism_mutant::planted! {
    /// Port scan: a probe is judged alone, without the evidence of all instances on its source (a scan spread over hosts is not
    /// found).
    ProbeJudgedAlone,
    /// Port scan: accepted connections clear no evidence (a source that uses many services counts as a scanner).
    AcceptedIgnored,
}
