//! Planted bugs, for measuring the tests. Only a build with `--cfg asterism_mutants` has them; in every other build
//! [`active`] is the constant `false` and the branches vanish.
//!
//! Each is named after what somebody suffered in the field. The selection is per thread, as with the other layers'.

/// One planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// What finds the ring to the instances full is dropped (Jool joold: the queue's cap drops sessions).
    RecordDroppedWhenFull,
    /// Records that wait in memory are overtaken by the word that they came (conntrackd: acknowledged, never committed).
    ProgressOvertakes,
    /// A group is not handed to the sibling instances (HAProxy: entries of other processes never seen).
    SiblingSkipped,
    /// Instances are told that all is stable which was received (Akka ORMap: removed entries return).
    StableWhenReceived,
    /// A part of an image for which there is no room is dropped (opnsense#3932: long flows never resync).
    ImagePartDropped,
    /// What a late packet had reserved returns while it is parked, and is still its own (a NAT port given twice).
    GrantReturnedAtPark,
    /// The frame of a packet that was given up is never released (buffers leak until the port starves).
    GivenUpFrameKept,
    /// What one instance wrote counts as applied by its siblings at once (a NAT port reused while another core of the same
    /// host still translates to it).
    SiblingsNotAwaited,
    /// Messages do not name groups that are committed but wait for room in the log (a reply overtakes its binding).
    HeldGroupsNotNamed,
    /// When the budget of a turn is used up the next group is skipped (HAProxy: "at most 100 per task", the rest late or never).
    BudgetSkipsGroup,
    /// Packets that wait behind others of their flow are not counted (RULES 7: one flow fills the room of all, and no port is read).
    FlowFillsParking,
    /// A packet that is late at one stage of a chain is called again from the first (effects of the earlier ones twice).
    ChainCalledAgainWhole,
}

impl Mutant {
    /// All planted bugs.
    pub const ALL: [Mutant; 12] = [
        Mutant::RecordDroppedWhenFull,
        Mutant::ProgressOvertakes,
        Mutant::SiblingSkipped,
        Mutant::StableWhenReceived,
        Mutant::ImagePartDropped,
        Mutant::GrantReturnedAtPark,
        Mutant::GivenUpFrameKept,
        Mutant::SiblingsNotAwaited,
        Mutant::HeldGroupsNotNamed,
        Mutant::BudgetSkipsGroup,
        Mutant::FlowFillsParking,
        Mutant::ChainCalledAgainWhole,
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
