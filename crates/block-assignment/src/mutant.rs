//! Planted bugs of this crate. See [`asterism_mutant`].

asterism_mutant::planted! {
    /// Only the first of a partition's former holders is recorded (a partition reassigned twice is granted while the second
    /// holder still grants it).
    HeirNotNoted,
    /// A partition that returns to its place keeps the date at which it was reassigned (the returned host grants from it while
    /// another host still does).
    ReturnNotDated,
}
