//! Answers of the store that instances keep, and what of them serves packets while the store is away.

use core::time::Duration;

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Report};
use super::fields::STORE;
use super::kind::{Kind, Word};
use super::overlay;
use super::section::{Default, Setting, Values, section};

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

/// Packets that need the store are parked, and dropped in the end.
pub(super) const DROP: Word = Word {
    word: "drop",
    meaning: "Packets that need the store are parked for two seconds at most, and then dropped.",
};
/// Packets of known flows go on.
pub(super) const SERVE_KNOWN: Word = Word {
    word: "serve-known",
    meaning: "The same, but packets whose flows are in the cache go on by what it has, for `known_for`.",
};
/// Packets pass the function.
pub(super) const BYPASS: Word = Word {
    word: "bypass",
    meaning: "no packet passes a function unseen; choose \"serve-known\", by which known flows go on",
};

section! {
    /// The cache of an instance.
    pub(crate) static CACHE: CacheKeys = {
        path: "store.cache",
        meaning: "Answers of the store that each instance keeps: packets of known flows that write nothing need no round trip. The store says what has changed (`CLIENT TRACKING`, Redis 6 or later).",
        fields: {
            entries: u64 = Setting {
                kind: Kind::Count {
                    least: 64,
                    most: 1 << 24,
                },
                default: Default::Is("65536"),
                meaning: "Answers that each instance keeps at most, some 300 bytes each. Beyond that those go that were not used for longest, roughly.",
            },
            staleness: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(1),
                    most: Duration::from_secs(60),
                },
                default: Default::Is("\"100ms\""),
                meaning: "A packet that reads one entry and writes nothing may act on what was there so long before it came. Several round trips to the store, or the cache is of no use.",
            },
            filter: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether each instance knows which keys are not in the store, so that a new flow reads nothing there. Eight bytes for each entry that the objects may have; every change of a key is announced to every instance.",
            },
        },
    };
}

/// What `[store]` says of it.
pub(super) fn read(
    document: &DeTable<'_>,
    values: &Values,
    report: &mut Report,
) -> Option<Option<StoreCache>> {
    let table = overlay::get(document, "store").and_then(|(_, table)| match table.get_ref() {
        DeValue::Table(table) => overlay::get(table, "cache"),
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
