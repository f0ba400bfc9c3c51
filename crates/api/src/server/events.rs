//! Pages of the event log for one scope, and what is done about a log that is another than the caller's.

use serde::Deserialize;
use utoipa::IntoParams;

use super::config::{EVENTS_MAX, PAGES_SEARCHED_MAX};
use super::gate::Gate;
use super::problem::Failure;
use super::visible;
use crate::cluster_api::Scope;
use crate::data::{Event, Events};

/// Events of an answer that asks for no number.
const EVENTS_USUAL: usize = 100;

/// Where a reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// The last number that was read: `next` of the answer before. Absent: the newest events.
    #[param(example = 0)]
    pub(super) after: Option<u64>,
    /// The log that `after` is of: `log` of the answer before.
    pub(super) log: Option<u64>,
    /// How many events at most: 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    pub(super) max: Option<usize>,
}

/// The events after a reader's position that a scope sees. An answer to a tenant may have none though there are more: then `next` has
/// gone on.
pub(super) async fn page(
    gate: &Gate,
    scope: &Scope,
    query: EventsQuery,
) -> Result<Events, Failure> {
    let max = query.max.unwrap_or(EVENTS_USUAL);
    if !(1..=EVENTS_MAX).contains(&max) {
        let why = format!("the query: max is 1 to {EVENTS_MAX}");
        return Err(Failure::Malformed(why));
    }
    let log = gate.calls.read(|api| api.events(u64::MAX, 0)).await?;
    let is_another = query.log.is_some_and(|known| known != log.log);
    let (mut after, mut missed) = match query.after {
        None => (log.newest.saturating_sub(max as u64), false),
        // A number beyond the newest is of a log that is no more.
        Some(after) if is_another || after > log.newest => (0, true),
        Some(after) => (after, false),
    };
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..PAGES_SEARCHED_MAX {
        let page = gate.calls.read(move |api| api.events(after, EVENTS_MAX));
        let page = page.await?;
        if page.log != log.log {
            // It changed between two calls: the next request starts at its beginning.
            missed = true;
            break;
        }
        missed |= query.after.is_some() && after.saturating_add(1) < page.oldest;
        if page.events.is_empty() {
            after = after.max(page.newest);
            break;
        }
        for event in page.events {
            if event.sequence <= after {
                continue;
            }
            if events.len() == max {
                break;
            }
            after = event.sequence;
            if visible::event(scope, &event) {
                events.push(event);
            }
        }
        if events.len() == max || after >= page.newest {
            break;
        }
    }
    Ok(Events {
        log: log.log,
        missed,
        next: after,
        newest: log.newest.max(after),
        events,
    })
}
