//! What a host does with a state, done manually: taking what was written, and scanning over it.

use asterism_state::{Context, State};

/// What was written since the last time, flushed: groups with their numbers.
pub(crate) fn groups<S: State>(state: &mut S, context: &Context) -> Vec<(u64, Vec<u8>)> {
    let mut bytes = usize::MAX;
    state.for_each_object(|object| _ = object.flush(&mut bytes));
    context.end(|_, _| {});
    let mut groups = Vec::new();
    context.take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
    groups
}

/// The whole state, in parts of at most `bytes_max` bytes.
pub(crate) fn snapshot(state: &impl State, bytes_max: usize) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut cursor = (0, 0);
    while let Some(next) = state.snapshot(cursor, bytes_max, parts.last_mut().expect("one part")) {
        assert!(next > cursor, "a part gets further than the one before");
        cursor = next;
        parts.push(Vec::new());
    }
    assert!(parts.iter().all(|part| part.len() <= bytes_max));
    parts
}
