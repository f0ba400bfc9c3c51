//! Events: decisions and changes, each with its reason and the figures behind it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One decision or change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number in the log. Numbers rise; a tenant's events have gaps between them.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its kind, such as `host-suspected`.
    pub kind: String,
    /// What it is about: the name of a host, or `cluster`.
    pub subject: String,
    /// The tenant that may see it; absent: operators and read-only callers alone.
    pub tenant: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// The figures behind it, with units in their names.
    pub figures: BTreeMap<String, i64>,
}

/// A part of the log, as the orchestrator hands it to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// A number of this log's own, which another start or another leader does not have.
    pub log: u64,
    /// The number of the oldest event still there; one more than the newest if there is none.
    pub oldest: u64,
    /// The number of the newest event ever logged; 0 if there is none.
    pub newest: u64,
    /// The events after the number asked for, oldest first, without gaps.
    pub events: Vec<Event>,
}

/// A part of the log, as callers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// The log's own number. Send it with `next`, so that another log is recognised.
    pub log: u64,
    /// Whether events between `after` and the first one here are lost: they were too old, or the log is another one.
    pub missed: bool,
    /// The `after` of the next request.
    pub next: u64,
    /// The number of the newest event.
    pub newest: u64,
    /// The events, oldest first.
    pub events: Vec<Event>,
}
