//! Planted bugs, for measuring the tests. Only a build with `--cfg asterism_mutants` has them; in every other build
//! [`active`] is the constant `false` and the branches vanish.
//!
//! The selection is per thread, as with the other layers'.

/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// NAT: a port that was granted to a session is not taken (two flows have one outside endpoint, and answers go astray).
    PortNotTaken,
    /// NAT: a new session gets an outside endpoint of its own though its inside endpoint has one (RFC 4787 REQ-1: applications
    /// that tell others their address are not reached).
    BindingNotReused,
    /// Firewall: the end of a connection is not written (the next one between the same ends is out of the former one's window).
    CloseNotWritten,
    /// Firewall: what comes from outside is asked by the rules for inside (anybody gets in).
    SidesMistaken,
    /// Firewall: what the first answer adds to its flow is not written (what the client says then fits no connection).
    AnswerNotWritten,
    /// Balancer: a SYN that is sent again is dealt anew (two servers have halves of one connection).
    DealtAgain,
    /// Balancer: the backend of a new flow is not written (each host deals by itself, and answers are of no flow).
    FlowNotKept,
    /// Balancer: a SYN that is sent again counts against its backend at once (whoever sends SYNs twice takes living backends away).
    SilenceCountsAtOnce,
    /// Balancer: what a backend answers after flows failed is not written (one that came back stays away).
    RecoveryNotWritten,
    /// Limiter: of the buckets that a packet belongs to only the first is spent from (the others limit nothing).
    SecondBucketFree,
    /// Monitor: the first packet of a flow is counted twice at each instance (an exporter that counts when it makes a record and
    /// again when it updates it).
    FirstCountedTwice,
    /// Port scan: a probe is judged by itself, not with what all instances know of its source (a scan spread over hosts is none).
    ProbeJudgedAlone,
    /// Port scan: connections that were accepted clear nothing (who uses many services scans).
    AcceptedIgnored,
    /// Signature: the piece that begins a signature is not recorded (one that is split over two segments passes).
    BeginningForgotten,
    /// Pass-through: a packet that finds nothing counted yet is not counted (each host that joins loses one).
    FirstNotCounted,
}

impl Mutant {
    /// All planted bugs.
    pub const ALL: [Mutant; 15] = [
        Mutant::PortNotTaken,
        Mutant::BindingNotReused,
        Mutant::CloseNotWritten,
        Mutant::SidesMistaken,
        Mutant::AnswerNotWritten,
        Mutant::DealtAgain,
        Mutant::FlowNotKept,
        Mutant::SilenceCountsAtOnce,
        Mutant::RecoveryNotWritten,
        Mutant::SecondBucketFree,
        Mutant::FirstCountedTwice,
        Mutant::ProbeJudgedAlone,
        Mutant::AcceptedIgnored,
        Mutant::BeginningForgotten,
        Mutant::FirstNotCounted,
    ];
}

#[cfg(asterism_mutants)]
std::thread_local! {
    static SELECTED: core::cell::Cell<Option<Mutant>> = const { core::cell::Cell::new(None) };
}

/// Plants one bug in this thread, or none.
#[cfg(asterism_mutants)]
pub fn select(mutant: Option<Mutant>) {
    SELECTED.set(mutant);
}

/// Whether this bug is planted in this thread. In a build without `--cfg asterism_mutants`: never.
#[cfg(asterism_mutants)]
#[must_use]
pub fn active(mutant: Mutant) -> bool {
    SELECTED.get() == Some(mutant)
}

/// Whether this bug is planted in this thread. In a build without `--cfg asterism_mutants`: never.
#[cfg(not(asterism_mutants))]
#[inline(always)]
#[must_use]
pub const fn active(mutant: Mutant) -> bool {
    let _ = mutant;
    false
}
