//! The function's state, with a record of each group that it was given to apply: what was delivered is seen, not reported.

use core::ops::Deref;

use asterism_function::State;
use asterism_state::{BadBytes, Context, Object, ObjectQuery, ObjectVisitor, OriginName};

use crate::exercise::Exercised;

/// The state of [`Exercise`](crate::exercise::Exercise), which applies groups as any other does, and records which.
#[allow(missing_debug_implementations, reason = "as of what `#[state]` makes")]
pub struct Recorded {
    state: Exercised,
    /// Groups of other instances since the last look, in order.
    applied: core::cell::RefCell<Vec<(OriginName, u64)>>,
}

impl Recorded {
    /// A state that nothing was applied to.
    pub(crate) fn new(state: Exercised) -> Self {
        Self {
            state,
            applied: core::cell::RefCell::default(),
        }
    }

    /// Hands out which groups of other instances were applied since the last time: whose, and under which number.
    pub fn take_applied(&self, mut each: impl FnMut(OriginName, u64)) {
        let mut applied = self.applied.borrow_mut();
        applied
            .drain(..)
            .for_each(|(origin, sequence)| each(origin, sequence));
    }
}

impl Deref for Recorded {
    type Target = Exercised;
    #[inline(always)]
    fn deref(&self) -> &Exercised {
        &self.state
    }
}

impl State for Recorded {
    const OBJECTS: &'static [&'static str] = Exercised::OBJECTS;
    type Act<'a> = <Exercised as State>::Act<'a>;

    #[inline(always)]
    fn act(&mut self) -> Self::Act<'_> {
        self.state.act()
    }
    #[inline(always)]
    fn with<T>(&mut self, object: u8, visit: impl ObjectVisitor<T>) -> Option<T> {
        self.state.with(object, visit)
    }
    #[inline(always)]
    fn query<T>(&self, object: u8, query: impl ObjectQuery<T>) -> Option<T> {
        self.state.query(object, query)
    }
    fn object(&self, object: u8) -> Option<&dyn Object> {
        self.state.object(object)
    }
    fn object_mut(&mut self, object: u8) -> Option<&mut dyn Object> {
        self.state.object_mut(object)
    }
    fn apply(
        &mut self,
        context: &Context,
        origin: OriginName,
        sequence: u64,
        group: &[u8],
    ) -> Result<(), BadBytes> {
        self.applied.get_mut().push((origin, sequence));
        self.state.apply(context, origin, sequence, group)
    }
}
