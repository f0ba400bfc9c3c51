//! What a context knows for chains of functions, each of which has its own calls for a packet.

use core::cell::Cell;

use super::Context;

/// What only chains look at.
#[derive(Debug, Default)]
pub(crate) struct Chained {
    /// The stage that is called.
    stage: Cell<u8>,
    /// A chain calls one stage and says where the packet goes on.
    singly: Cell<bool>,
    /// The clock of a trace, in nanoseconds.
    pub(crate) clock_ns: Cell<Option<fn() -> u64>>,
}

impl Chained {
    /// What tells the random bits of stages apart; zero for a function alone.
    #[inline(always)]
    pub(crate) fn salt(&self) -> u64 {
        u64::from(self.stage.get()) << 56
    }
}

impl Context {
    /// The stage of a chain that is called next; functions alone are stage 0.
    #[inline(always)]
    pub fn set_stage(&self, stage: u8) {
        self.chained.stage.set(stage);
    }
    /// From here on a chain calls one stage and then says where the packet goes on, or no longer: while packets are parked
    /// those of a flow must wait behind them at each stage.
    pub fn set_singly(&self, singly: bool) {
        self.chained.singly.set(singly);
    }
    /// Whether a chain calls one stage only.
    #[inline(always)]
    pub fn is_singly(&self) -> bool {
        self.chained.singly.get()
    }
    /// Since when the packet was late, in microseconds of this instance's clock; `None` if it was not. Begins again where
    /// [`Context::end`] ended an earlier stage.
    pub fn late_since_us(&self) -> Option<u64> {
        let since = self.call.borrow().late_since_us;
        (since != 0).then_some(since)
    }
}
