//! Answers of the store that instances keep, and what of them serves packets while the store is away.

use core::time::Duration;

use asterism_engine::PARKED_US_MAX;
use toml::de::{DeTable, DeValue};

use super::fields::{CACHE, SERVE_KNOWN, STORE};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;

/// How long a packet waits for a store at most.
const WAITS_MAX: Duration = Duration::from_micros(PARKED_US_MAX);

/// Answers that each instance keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCache {
    /// How many at most.
    pub entries: usize,
    /// One that is given out was so within this time.
    pub staleness: Duration,
    /// The same while the store is away; zero: none is given out.
    pub known_for: Duration,
    /// Which keys may be in the store is known too.
    pub filter: bool,
}

/// What `[store]` says of it.
pub(super) fn read(
    document: &DeTable<'_>,
    values: &Values,
    report: &mut Report,
) -> Option<Option<StoreCache>> {
    let table = table::get(document, "store").and_then(|(_, table)| match table.get_ref() {
        DeValue::Table(table) => table::get(table, "cache"),
        _ => None,
    });
    let serves_known = values.get(STORE.when_down)? == SERVE_KNOWN.word;
    let known_for = values.get(STORE.known_for)?;
    let cache = values.get(STORE.cache)?;
    if table.is_none() {
        if serves_known {
            report.add(
                Diagnostic::error(
                    "no flow is known without a cache",
                    values.span_of(STORE.when_down),
                )
                .help("add cache = { entries = 65536 } to [store], or write when_down = \"drop\""),
            );
            return None;
        }
        return Some(None);
    }
    if serves_known && values.get(STORE.timeout)? >= WAITS_MAX {
        report.add(
            Diagnostic::error(
                "packets of known flows would be dropped before the store counts as away",
                values.span_of(STORE.timeout),
            )
            .label("a packet waits for two seconds at most")
            .help("write a shorter time, such as timeout = \"1s\"; or when_down = \"drop\""),
        );
        return None;
    }
    Some(Some(StoreCache {
        entries: usize::try_from(cache.get(CACHE.entries)?).ok()?,
        staleness: cache.get(CACHE.staleness)?,
        filter: cache.get(CACHE.filter)?,
        known_for: match serves_known {
            true => known_for,
            false => Duration::ZERO,
        },
    }))
}
