//! Room that the packet being handled has asked for and not used yet.

use core::cell::Cell;

use crate::context::Context;

/// Reservations of one call of the function. Those of an earlier call (another packet's, or this one's
/// before it was late) are void by themselves: nothing needs to be informed when a packet parks or ends.
#[derive(Debug, Default)]
pub struct Reservations {
    turn: Cell<u64>,
    count: Cell<u32>,
}

impl Reservations {
    /// How many this call holds.
    #[inline]
    pub fn held(&self, context: &Context) -> u32 {
        if self.turn.get() == context.turn() {
            self.count.get()
        } else {
            0
        }
    }

    /// One more, if with the ones held there is still room below each of `limits`, given as (used, most).
    #[inline]
    pub fn take(&self, context: &Context, limits: [(u32, u32); 2]) -> bool {
        let held = self.held(context);
        let room = limits
            .iter()
            .all(|&(used, most)| u64::from(used) + u64::from(held) < u64::from(most));
        // The prefetch pass reserves nothing: it cannot reach the write either.
        if room && !context.is_prefetching() {
            self.turn.set(context.turn());
            self.count.set(held + 1);
        }
        room
    }

    /// One was used.
    #[inline]
    pub fn spend(&self, context: &Context) {
        self.count.set(self.held(context).saturating_sub(1));
        self.turn.set(context.turn());
    }

    /// The packet ended.
    #[inline]
    pub fn clear(&self) {
        self.count.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_call_keeps_nothing_reserved() {
        let context = Context::alone();
        let reservations = Reservations::default();
        context.begin(1);
        assert!(reservations.take(&context, [(9, 10), (0, 10)]));
        assert!(!reservations.take(&context, [(9, 10), (0, 10)]));
        let (call, _) = context.park();
        context.resume(call);
        assert!(
            reservations.take(&context, [(9, 10), (0, 10)]),
            "the retry finds the room that the first call reserved"
        );
        reservations.spend(&context);
        assert_eq!(reservations.held(&context), 0);
        context.prefetch();
        assert!(reservations.take(&context, [(9, 10), (0, 10)]));
        assert_eq!(
            reservations.held(&context),
            0,
            "prefetching reserves nothing"
        );
    }
}
