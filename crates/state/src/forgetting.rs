//! How a state forgets incarnations of members that have ended: its context runs the cycle, its objects mark what they refer to.

use crate::context::Context;
use crate::state::State;

/// Goes on with a cycle of forgetting, or begins one where there is cause: looks at up to `records` entries of one object. Call it often
/// with a small number, and only once this instance has what the others have. Tells how many incarnations were forgotten.
pub fn forget_incarnations<S: State>(state: &S, context: &Context, records: u32) -> usize {
    context.forget_incarnations(state.objects().len(), |object, place, named| {
        let object = state.object(object)?;
        object.origins_named(place, records, named)
    })
}
