//! What only a function of several stages has. Callers use the functions below, which answer for every function.

use asterism_state::State;

use crate::function::{NetworkFunction, PortNumber};
use crate::reason::Reason;

/// The stages of a function with the state `S`, whose objects are known only when it is made: a [`Chain`](crate::chain::Chain).
pub trait Stages<S> {
    /// Names of the stages, in order.
    fn names(&self) -> &[&'static str];

    /// What the stage of this number counted. For the control plane.
    fn tally<'s>(&self, state: &'s S, stage: usize) -> Option<&'s StageTally>;

    /// Where a packet whose call was late just now is called again, which is at the stage that was late, and how long it may be
    /// late there, in microseconds.
    fn waits_at(&self, state: &S) -> (PortNumber, u64);

    /// Names of the state's objects, in order: known before a state is built.
    fn objects(&self) -> &'static [&'static str];

    /// A store has committed the call with these requests, or refused it; or nobody waits any more for what it decides.
    fn decided(&self, state: &mut S, requests: u16, is_committed: bool);
}

/// What a stage counted since its instance was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageTally {
    /// Calls that ended with a verdict: what was asked had been answered, and what was to be written was.
    pub acted: u64,
    /// Calls that were late.
    pub late: u64,
    /// Packets that went on although the stage had failed for them.
    pub bypassed: u64,
    /// Copies that the stage got, if it gets copies; of one that sends copies, those that it sent.
    pub mirrored: u64,
    /// Copies, of either kind, for which there was no room.
    pub mirror_lost: u64,
    pub(crate) dropped: [u64; Reason::ALL.len()],
}

impl Default for StageTally {
    fn default() -> Self {
        Self {
            acted: 0,
            late: 0,
            bypassed: 0,
            mirrored: 0,
            mirror_lost: 0,
            dropped: [0; Reason::ALL.len()],
        }
    }
}

impl StageTally {
    /// Calls of the stage: those that ended with a verdict and those that were late.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.acted + self.late
    }
    /// Packets that ended here, or went on because the stage is bypassed, for a reason.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }
}

/// Names of the function's stages; none of a function that is no chain.
pub fn stage_names<F: NetworkFunction>(function: &F) -> &[&'static str] {
    function.stages().map_or(&[], |stages| stages.names())
}

/// What the function's stages counted, in order; nothing of a function that is no chain.
pub fn stage_tallies<'s, F: NetworkFunction>(
    function: &'s F,
    state: &'s F::State,
) -> impl Iterator<Item = &'s StageTally> {
    let stages = function.stages();
    (0..).map_while(move |stage| stages?.tally(state, stage))
}

/// Where a packet that came by `port` is called again, whose call was late just now, and how long it may be late there, in
/// microseconds.
#[inline(always)]
pub fn waits_at<F: NetworkFunction>(
    function: &F,
    state: &F::State,
    port: PortNumber,
) -> (PortNumber, u64) {
    match function.stages() {
        Some(stages) => stages.waits_at(state),
        None => (port, u64::MAX),
    }
}

/// Tells the function's stages what a store decided on the call with these requests. Not committed is also what nobody waits for any more.
pub fn decided<F: NetworkFunction>(
    function: &F,
    state: &mut F::State,
    requests: u16,
    is_committed: bool,
) {
    if let Some(stages) = function.stages() {
        stages.decided(state, requests, is_committed);
    }
}

/// Names of the objects of the function's state, in order: known before a state is built.
#[inline(always)]
pub fn objects_of<F: NetworkFunction>(function: &F) -> &'static [&'static str] {
    function
        .stages()
        .map_or(F::State::OBJECTS, |stages| stages.objects())
}
