//! Why a step of a function has no result.

use asterism_state::Late;

use crate::{Reason, Verdict};

/// Why a step of a function has no result: an answer is late, and the packet comes again, or the step refuses the packet.
///
/// A step returns `Result<T, Stop<R>>`, so `?` passes on both. Who handles the refusal gets it by [`Stop::refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<R = Reason> {
    /// An answer is not here yet.
    Late(Late),
    /// The packet is refused, for this reason.
    Refused(R),
}

impl<R> Stop<R> {
    /// The refusal, for a caller that handles it.
    ///
    /// # Errors
    /// An answer is late.
    #[inline(always)]
    pub fn refused(self) -> Result<R, Late> {
        match self {
            Stop::Late(late) => Err(late),
            Stop::Refused(refused) => Ok(refused),
        }
    }

    /// The same with another refusal.
    #[inline(always)]
    pub fn map<Q>(self, map: impl FnOnce(R) -> Q) -> Stop<Q> {
        match self {
            Stop::Late(late) => Stop::Late(late),
            Stop::Refused(refused) => Stop::Refused(map(refused)),
        }
    }
}

impl Stop {
    /// Drops the packet for the reason.
    ///
    /// # Errors
    /// An answer is late.
    #[inline(always)]
    pub fn dropped(self) -> Result<Verdict, Late> {
        self.refused().map(Verdict::Drop)
    }
}

impl<R> From<Late> for Stop<R> {
    #[inline(always)]
    fn from(late: Late) -> Stop<R> {
        Stop::Late(late)
    }
}
