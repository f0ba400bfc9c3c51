//! Answers of the store that instances keep, and what of them serves packets while the store is away.

use core::time::Duration;

use toml::de::{DeTable, DeValue};

use super::fields::{CACHE, SERVE_KNOWN, STORE};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;

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
