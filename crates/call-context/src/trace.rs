//! What a call of a function did with the state, step by step, for an operator who looks at single packets. Noted only while
//! [`Context::trace_on`] holds.

mod step;

use crate::context::{Context, TRACED};

pub use step::{StageEnd, Step, Written};

/// Steps of one packet that are noted at most; later ones are not.
pub const STEPS_MAX: usize = 64;

impl Context {
    /// From here on every read, grant and write is noted, until [`Context::trace_off`]. While this is off, reads cost what
    /// they did: they look at the same byte.
    pub fn trace_on(&self, clock_ns: fn() -> u64) {
        self.chained.clock_ns.set(Some(clock_ns));
        self.asking.set(self.asking.get() | TRACED);
    }
    /// Nothing more is noted.
    pub fn trace_off(&self) {
        self.asking.set(self.asking.get() & !TRACED);
    }
    /// Notes nothing until [`Context::resume_trace`] of what this returns: of a call that is made once more.
    #[must_use]
    pub fn pause_trace(&self) -> bool {
        let traced = self.is_traced();
        self.trace_off();
        traced
    }
    /// Goes on with a trace, if there was one.
    pub fn resume_trace(&self, traced: bool) {
        if traced {
            self.asking.set(self.asking.get() | TRACED);
        }
    }
    /// What was noted since the last call, at most [`STEPS_MAX`] steps.
    pub fn take_steps(&self) -> Vec<Step> {
        core::mem::take(&mut *self.steps.borrow_mut())
    }
    /// Notes a step, if steps are noted.
    #[inline]
    pub fn trace(&self, step: Step) {
        if self.asking.get() & TRACED != 0 {
            self.note_step(step);
        }
    }
    /// Whether steps are noted.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        self.asking.get() & TRACED != 0
    }
    /// Notes a step, and tells the time of the trace's clock in nanoseconds.
    #[cold]
    pub fn note(&self, step: Step) -> u64 {
        self.trace(step);
        self.chained.clock_ns.get().map_or(0, |clock| clock())
    }
    /// Notes the end of a stage that was called at `from_ns` of the trace's clock.
    #[cold]
    pub fn note_stage_end(&self, number: u8, end: StageEnd, from_ns: u64) {
        let now_ns = self.chained.clock_ns.get().map_or(0, |clock| clock());
        self.trace(Step::StageEnd {
            number,
            end,
            cost_ns: now_ns.saturating_sub(from_ns),
        });
    }
    #[cold]
    fn note_step(&self, step: Step) {
        let mut steps = self.steps.borrow_mut();
        if steps.len() < STEPS_MAX {
            steps.push(step);
        }
    }
    /// The last read found nothing.
    #[inline]
    pub fn trace_absent(&self) {
        if self.asking.get() & TRACED != 0
            && let Some(Step::Ask { found, .. }) = self.steps.borrow_mut().last_mut()
        {
            *found = false;
        }
    }

    /// Bytes of operations that wait to be taken.
    #[inline]
    pub fn bytes_waiting(&self) -> usize {
        self.groups.borrow().bytes.len()
    }
}
