//! Who is blocked at the hosts of a cluster: the answer to `asterism blocked`.

use std::collections::BTreeSet;
use std::time::Duration;

use asterism_function::Tick;
use asterism_function::notice::End;
use asterism_functions::blocked::BlockedRecord;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::reported::{self, Reported, Wanted};
use asterism_event_log::date;
use asterism_host_view::dates::Dates;
use asterism_host_view::{AskError, View};

/// How long a store is searched at most: less than those who ask wait.
pub(super) const SEARCH_MAX: Duration = Duration::from_secs(5);

/// Who is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedDocument {
    /// Each of them, by function, those that are blocked longest first.
    pub blocked: Vec<BlockDocument>,
    /// What of the store of remote objects was not searched, a sentence for each part: more may be blocked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<String>,
}

/// Something that is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDocument {
    /// By which function; in a chain the name of the stage.
    pub function: String,
    /// Whose packets are dropped, of a connection with its port; absent: everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The recipient: of a connection its other end, or a port; absent: to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Until when; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Seconds until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// What for.
    pub by: String,
}

/// Why there is no answer about blocks. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockedError {
    /// No function of the host blocks anybody.
    #[error(
        "this host's function blocks nobody: it needs [function.firewall], [function.port-scan] or [function.signature], alone or in a chain"
    )]
    NobodyBlocks,
    /// The instance was not asked, or did not answer: nothing of an answer is shown.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// The sources that the functions of a host block.
///
/// # Errors
/// None of them blocks, or the instance does not tell; in words.
pub fn query(view: &View) -> Result<BlockedDocument, BlockedError> {
    if view.blocking.is_empty() {
        return Err(BlockedError::NobodyBlocks);
    }
    let (now, dates) = (view.tick(), view.dates());
    let (mut blocked, mut unsearched) = (Vec::new(), Vec::new());
    for (function, asked) in &view.blocking {
        let from = blocked.len();
        let reported = Reported::of(view, (function, *asked), reported::BLOCKED);
        // An instance may keep some of what the store has, and a search may find an entry twice.
        let mut seen = BTreeSet::new();
        let more = reported.records(
            |_| Wanted::All,
            SEARCH_MAX,
            |record: BlockedRecord| {
                if now < record.until && seen.insert((record.source, record.destination)) {
                    let of = block(function, &record, (now, dates));
                    blocked.push((record.until, record.source, of));
                }
            },
        )?;
        unsearched.extend(more);
        blocked[from..].sort_by_key(|(until, source, _)| (core::cmp::Reverse(*until), *source));
    }
    let blocked = blocked.into_iter().map(|(_, _, block)| block).collect();
    unsearched.dedup();
    Ok(BlockedDocument {
        blocked,
        unsearched,
    })
}

/// A block of a function, at `now` of the cluster's time.
pub(super) fn block(
    function: &str,
    record: &BlockedRecord,
    (now, dates): (Tick, Dates),
) -> BlockDocument {
    let ends = record.until != Tick::MAX;
    BlockDocument {
        function: function.to_owned(),
        source: end(record.source),
        destination: end(record.destination),
        until: ends.then(|| date(dates.date_s(record.until))),
        seconds: ends.then(|| record.until - now),
        by: record.by.clone(),
    }
}

fn end(end: End) -> Option<String> {
    match (end.host, end.port) {
        (Some(host), Some(port)) => {
            Some(core::net::SocketAddr::new(host.address(), port).to_string())
        }
        (Some(host), None) => Some(host.to_string()),
        (None, Some(port)) => Some(format!("port {port}")),
        (None, None) => None,
    }
}
