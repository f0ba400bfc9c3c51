//! Steering: sends packets to instances.
//!
//! A driver ([`Steering`]) realises a [`Desired`] state: the targets, the share of each, and which of them take part. The
//! decision (health, load, membership) is above and calls [`Steering::apply`]; its realisation (routes, OpenFlow rules) is
//! below, in the driver. No command adds or removes one target: each call carries the whole state, so that another call
//! repairs a lost answer, a restart or a foreign change.
//!
//! Read `desired.rs` (the input), `error.rs` (the errors), `laws/` (the laws of every driver), `applied.rs` and `slots.rs` (what
//! drivers have in common), then the drivers: `ecmp/` (routes of a Linux router with several next hops), `openvswitch/` (groups of a
//! switch) and `director/` (the built-in director).

mod applied;
mod buckets;
mod clock;
mod desired;
pub mod director;
pub mod ecmp;
mod error;
pub mod laws;
pub mod mutant;
pub mod openvswitch;
mod slots;

use std::time::Duration;

use applied::Applied;
pub use buckets::{BucketCount, Buckets};
pub use desired::{
    Desired, DesiredError, Generation, NAME_BYTES_MAX, Standing, TARGETS_MAX, Target, WEIGHT_MAX,
};
pub use error::SteeringError;

/// A driver. All of a driver's calls wait for the world outside, for a time that it states; none is made on a packet's path.
pub trait Steering: Send {
    /// What this driver can distinguish, which anyone who decides must know.
    fn abilities(&self) -> Abilities;

    /// Makes it so, and returns when it is in force: packets that arrive at the router from then on go where it says. The same
    /// state may be applied any number of times; what differs from it, no matter who changed it, is put right.
    ///
    /// Changes are made so that no packet is without a target in between.
    ///
    /// # Errors
    /// [`SteeringError`], each with what is in force afterwards. Applying again is always right.
    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError>;

    /// Looks at what is really there, and changes nothing.
    ///
    /// # Errors
    /// It could not be asked, or its answer could not be read.
    fn observe(&mut self) -> Result<Observed, SteeringError>;

    /// Whether the link to a target may have changed since this was asked last, as far as this driver is notified of it; then
    /// [`Steering::observe`] says which. Does not wait. A driver that is not notified returns false.
    fn links_changed(&mut self) -> bool {
        false
    }

    /// What this driver has noticed since this was asked last, for the log.
    fn notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    /// What this driver has done since it was made.
    fn counts(&self) -> Counts;

    /// The directors on other machines, as each answered last. Does not wait.
    fn directors(&self) -> Vec<DirectorReport> {
        Vec::new()
    }

    /// The parts of the flow space that can be moved one by one; `None` where the driver has none.
    fn buckets(&mut self) -> Option<&mut dyn Buckets> {
        None
    }
}

/// Something that a driver has noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The name of the event in the log.
    pub kind: &'static str,
    /// Whether somebody should look.
    pub is_warning: bool,
    /// The sentence.
    pub text: String,
}

/// A director on another machine, as it answered last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorReport {
    /// The name of the machine.
    pub name: String,
    /// Whether it answers. If not, all else is from before.
    pub answers: bool,
    /// Whether it has the shared addresses.
    pub is_active: bool,
    /// Whether it receives the heartbeats of the other director.
    pub hears_other: bool,
    /// The desired state that it has in force.
    pub generation: Option<u64>,
    /// How much of the flow space goes to no host, in thousandths.
    pub elsewhere_permille: u16,
    /// Packets handed to hosts since its start.
    pub forwarded: u64,
    /// Frames dropped since its start.
    pub dropped: u64,
    /// Commands that it refused to read since its start, by the reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The hosts that it knows.
    pub targets: Vec<ObservedTarget>,
}

/// What a driver can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether flows that a draining target has stay with it. If not, a draining target gets nothing at all from the moment
    /// at which that is in force; right where any host may get any packet (`replicated`, `remote`), and not where flows
    /// have a home (`partitioned`).
    pub keeps_flows: bool,
    /// Whether only flows of targets that leave, and the share of those that come, change their target.
    pub moves_least: bool,
    /// How long a call may wait.
    pub waits_max: Duration,
}

/// What [`Steering::apply`] has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Which desired state.
    pub generation: Generation,
    /// How many things (routes, rules) were not as they are to be, and were changed. 0: all was so already.
    pub changed: u32,
    /// How much of the flow space goes to another target than before, in thousandths; the most of any route. None where
    /// the driver cannot know.
    pub moved_permille: Option<u16>,
    /// How long it took from the call until it was in force.
    pub took: Duration,
}

/// What is really there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The desired state that this driver applied last, if that went well.
    pub generation: Option<Generation>,
    /// Whether what is there is what that says. False too before anything was applied.
    pub as_applied: bool,
    /// Each target that the driver knows, by name.
    pub targets: Vec<ObservedTarget>,
    /// How much of the flow space goes to none of them, in thousandths.
    pub elsewhere_permille: u16,
}

/// What is really there of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTarget {
    /// Its name.
    pub name: String,
    /// How much of the flow space goes to it, in thousandths; the least of any route.
    pub share_permille: u16,
    /// Whether the way to it is down, as far as the driver's side of it tells. Says nothing of the target behind.
    pub link_down: bool,
}

/// What a driver has done since it was made. For metrics; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Desired states that were in force at the end of a call.
    pub applied: u64,
    /// Things that were changed on the way.
    pub changed: u64,
    /// Calls at which all had been applied before and something was not so any more.
    pub repaired: u64,
    /// Calls that were refused before anything was touched.
    pub refused: u64,
    /// Calls that failed on the way.
    pub failed: u64,
}
