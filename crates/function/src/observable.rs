//! What the control plane can observe of a function: reports of its state, reasons, metrics and events of its own. No packet
//! waits for any of it. Callers use the functions below, which answer for a function that cannot be observed too.

use crate::function::NetworkFunction;
use crate::own::{OwnEvent, OwnMetric, OwnReason};

/// What the control plane can observe of a function with the state `S`. Implement the methods that the function needs, and
/// return `Some(self)` from [`NetworkFunction::observable`].
pub trait Observable<S> {
    /// What the control plane asks of the state, in the function's own words: looks at up to `count` entries from `cursor` on,
    /// appends to `out`, and gives where to go on, `None` at the end. `question` is the function's too. Called between bursts on
    /// the instance's thread, a part at a time, never for a packet; may allocate. Functions that report nothing leave it out.
    fn report(
        &self,
        state: &S,
        question: u32,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let _ = (state, question, cursor, count, out);
        None
    }

    /// Reasons to drop packets that the [one list](crate::Reason) does not have, in the order of their numbers; at most
    /// [`OWN_REASONS_MAX`](crate::OWN_REASONS_MAX). Always the same list: numbers stand for names while the host runs.
    fn reasons(&self) -> &[OwnReason] {
        &[]
    }

    /// What it measures of its state, beside the entries that are counted of every object; at most
    /// [`OWN_METRICS_MAX`](crate::OWN_METRICS_MAX), and in a chain
    /// [`CHAIN_METRICS_MAX`](crate::CHAIN_METRICS_MAX) of all stages. Always the same list.
    fn metrics(&self) -> &[OwnMetric] {
        &[]
    }

    /// Appends a value for each of [`Observable::metrics`], in order. Called between bursts, some times a second, never for a
    /// packet: it may allocate, and must not walk a table, nor read what may be late: objects have a way to ask for the control plane.
    fn measure(&self, state: &S, values: &mut Vec<u64>) {
        let _ = (state, values);
    }

    /// Kinds of events that it reports: each [notice](crate::notice) in its report is of one of them. Of a chain those of all stages.
    fn events(&self) -> &[OwnEvent] {
        &[]
    }
}

/// A part of the function's report: see [`Observable::report`].
pub fn report_of<F: NetworkFunction>(
    function: &F,
    state: &F::State,
    question: u32,
    range: (u32, u32),
    out: &mut Vec<u8>,
) -> Option<u32> {
    function.observable()?.report(state, question, range, out)
}

/// The function's own reasons to drop packets.
pub fn reasons_of<F: NetworkFunction>(function: &F) -> &[OwnReason] {
    function
        .observable()
        .map_or(&[], |observable| observable.reasons())
}

/// The function's own metrics.
pub fn metrics_of<F: NetworkFunction>(function: &F) -> &[OwnMetric] {
    function
        .observable()
        .map_or(&[], |observable| observable.metrics())
}

/// The values of the function's own metrics, in order.
pub fn values_of<F: NetworkFunction>(function: &F, state: &F::State) -> Vec<u64> {
    let mut values = Vec::new();
    if let Some(observable) = function.observable() {
        observable.measure(state, &mut values);
    }
    values
}

/// The kinds of events that the function reports.
pub fn events_of<F: NetworkFunction>(function: &F) -> &[OwnEvent] {
    function
        .observable()
        .map_or(&[], |observable| observable.events())
}
