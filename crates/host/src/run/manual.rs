//! Sources that an operator manual blocks at a host, and so at all, and blocks that he lifts: the answers to `asterism block` and
//! `asterism unblock`. The function gets its order by a frame that takes the packets' path into the state; the outcome is read there.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use asterism_function::notice::End;
use asterism_function::{Host, Tick, Wire, Writer};
use asterism_functions::blocked::{BlockedRecord, SECONDS_MAX};
use asterism_functions::manual::{BY_HAND, Order};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::blocked::{BlockDocument, BlockedError, SEARCH_MAX, block as document_of};
use super::choice::{ChoiceError, chosen};
use super::reported::{self, Reported, Wanted};
use asterism_event_log::Event;
use asterism_host_view::{AskError, Asked, View};

/// How often, and how many times, the state is read for the outcome of an order: at once, unless the function waits for an answer.
const LOOKED_EVERY: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 50;
/// The same where the state is in a store: for longer than an order waits for the store at most.
const STORE_LOOKED_EVERY: Duration = Duration::from_millis(50);
/// Connections with a source that one command lifts at most.
pub const CONNECTIONS_MAX: usize = 256;

/// Why an order was not followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManualError {
    /// A block of no time, or of too much. No function got the order.
    #[error("seconds is {0}: it must be 1 to {SECONDS_MAX}")]
    Seconds(Tick),
    /// An IPv4 address in the form of an IPv6 one, which no packet has. No function got the order.
    #[error("source is {written}, which no packet has: write {canonical}")]
    Mapped {
        /// As it was written.
        written: IpAddr,
        /// The address that packets have.
        canonical: IpAddr,
    },
    /// No function of the host blocks anybody.
    #[error(transparent)]
    NobodyBlocks(BlockedError),
    /// No function of this name blocks.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The function took the order, and its table had no room for the block.
    #[error(
        "it has no room for another block: `asterism unblock` frees a place, and so does time; `capacity` of the table in the configuration gives more"
    )]
    NoRoom,
    /// The function has the order, and the store does not say what came of it.
    #[error(
        "{0}; the order was given, and is carried out if the store answers within 2 s: ask again once it does"
    )]
    Unsearched(String),
    /// The host itself does not reach the store, by which the order is carried out.
    #[error(
        "the host's packet loops have no connection to the store, so the order may be lost: see `asterism status`, and give it again"
    )]
    StoreAway,
    /// The function did not get the order, or what came of the order is not known.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Who was blocked manually.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockingDocument {
    /// The source.
    pub source: String,
    /// Its block at each function, as it is now: what it was blocked for before, if that ends later.
    pub blocked: Vec<BlockDocument>,
    /// Functions that do not block it.
    pub refused: Vec<RefusedDocument>,
}

/// Whose block was lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnblockingDocument {
    /// The source.
    pub source: String,
    /// The blocks that were, as they were. None: nobody blocked it.
    pub lifted: Vec<BlockDocument>,
    /// Blocks of it that are still, or are again.
    pub left: Vec<BlockDocument>,
    /// Functions of which it is not known.
    pub refused: Vec<RefusedDocument>,
}

/// A function that did not follow an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDocument {
    /// The function; in a chain the name of the stage.
    pub function: String,
    /// Why, in words.
    pub why: String,
}

/// Blocks a source for so many seconds at all functions that block, or at one of them, and says so in the log.
///
/// # Errors
/// The time is none, or there is no such function; in words.
pub fn block(
    (view, events): (&View, &SyncSender<Event>),
    source: IpAddr,
    seconds: Tick,
    function: Option<&str>,
) -> Result<BlockingDocument, ManualError> {
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(ManualError::Seconds(seconds));
    }
    let host = host_of(source)?;
    let mut done = BlockingDocument {
        source: host.to_string(),
        blocked: Vec::new(),
        refused: Vec::new(),
    };
    for (name, asked) in meant(view, function)? {
        let from = view.tick();
        let order = Order::Block {
            source: host,
            seconds,
        };
        // The instance may have begun its second earlier.
        let until = from.saturating_add(seconds).saturating_sub(1);
        let is_written =
            |record: &BlockedRecord| record.source == End::host(host) && record.until >= until;
        let reported = Reported::of(view, (name, *asked), reported::BLOCKED);
        let written = view
            .tell(*asked, order.frame())
            .map_err(ManualError::from)
            .and_then(|()| {
                let blocked = || about(&reported, host, from);
                looked_for(&reported, blocked, |records| records.iter().any(is_written))
            })
            .and_then(|records| {
                let latest = records
                    .into_iter()
                    .filter(is_written)
                    .max_by_key(|record| record.until);
                latest.ok_or_else(|| not_written(view, &reported))
            });
        match written {
            Ok(record) => {
                let block = document_of(name, &record, (from, view.dates()));
                let event = Event::info("blocked-by-operator")
                    .with("source", &done.source)
                    .with("function", name)
                    .with("seconds", seconds)
                    .with("until", block.until.as_deref().unwrap_or("for ever"))
                    .effect("all hosts drop what it sends until then");
                let _ = events.try_send(event);
                done.blocked.push(block);
            }
            Err(why) => done.refused.push(refused(name, why)),
        }
    }
    Ok(done)
}

/// The source that an operator names.
fn host_of(source: IpAddr) -> Result<Host, ManualError> {
    let canonical = source.to_canonical();
    match canonical == source {
        true => Ok(Host::from(source)),
        false => Err(ManualError::Mapped {
            written: source,
            canonical,
        }),
    }
}

/// Lifts what blocks a source, and connections with it, at all functions that block, or at one of them, and says so in the log.
///
/// # Errors
/// There is no such function; in words.
pub fn unblock(
    (view, events): (&View, &SyncSender<Event>),
    source: IpAddr,
    function: Option<&str>,
) -> Result<UnblockingDocument, ManualError> {
    let host = host_of(source)?;
    let mut done = UnblockingDocument {
        source: host.to_string(),
        lifted: Vec::new(),
        left: Vec::new(),
        refused: Vec::new(),
    };
    for (name, asked) in meant(view, function)? {
        let now = view.tick();
        let (before, after) = match lift(view, (name, *asked), host) {
            Ok(both) => both,
            Err(why) => {
                done.refused.push(refused(name, why));
                continue;
            }
        };
        let is_left = |record: &BlockedRecord| after.iter().any(|other| is_same(other, record));
        let lifted: Vec<_> = before.iter().filter(|record| !is_left(record)).collect();
        if let Some(first) = lifted.first() {
            let event = Event::info("unblocked-by-operator")
                .with("source", &done.source)
                .with("function", name)
                .with("blocks", lifted.len())
                .with("blocked", &first.by)
                .effect("all hosts let it through, until something blocks it again");
            let _ = events.try_send(event);
        }
        let dates = view.dates();
        let document =
            |record: &BlockedRecord| document_of(name, record, (now.min(record.until), dates));
        done.lifted.extend(lifted.into_iter().map(document));
        done.left.extend(after.iter().map(document));
    }
    Ok(done)
}

/// The functions that are meant.
fn meant<'v>(
    view: &'v View,
    function: Option<&str>,
) -> Result<Vec<&'v (String, Asked)>, ManualError> {
    if view.blocking.is_empty() {
        return Err(ManualError::NobodyBlocks(BlockedError::NobodyBlocks));
    }
    Ok(chosen(&view.blocking, function, "blocks nobody here")?)
}

/// Tells a function to lift what blocks a source; what did before, and what does now.
fn lift(
    view: &View,
    (name, asked): (&str, Asked),
    host: Host,
) -> Result<(Vec<BlockedRecord>, Vec<BlockedRecord>), ManualError> {
    let reported = Reported::of(view, (name, asked), reported::BLOCKED);
    let blocked = || about(&reported, host, view.tick());
    let before = match blocked() {
        // Whatever a store does not say now, the source's own block is lifted in it.
        Err(ManualError::Unsearched(why)) => {
            view.tell(asked, Order::Unblock(host).frame())?;
            return Err(ManualError::Unsearched(why));
        }
        before => before?,
    };
    let mut orders = orders(&before, (host, reported.source_of(host)));
    if reported.is_in_store() && !orders.contains(&Order::Unblock(host)) {
        orders.push(Order::Unblock(host));
    }
    if orders.is_empty() {
        return Ok((before, Vec::new()));
    }
    for order in orders {
        view.tell(asked, order.frame())?;
    }
    let connections = before.iter().filter(|record| record.source.port.is_some());
    let beyond = connections.count().saturating_sub(CONNECTIONS_MAX);
    let after = looked_for(&reported, blocked, |records| records.len() <= beyond)?;
    Ok((before, after))
}

/// The orders by which a function ends these blocks: one order for the source and for that which it is one of, one for each connection, of which
/// the first [`CONNECTIONS_MAX`] are taken.
fn orders(blocks: &[BlockedRecord], (host, source): (Host, Host)) -> Vec<Order> {
    let is_of_source = |end: End| end == End::host(host) || end == End::host(source);
    let of_source = blocks
        .iter()
        .find(|record| is_of_source(record.source))
        .map(|_| Order::Unblock(host));
    let endpoint = |end: End| Some((end.host?, end.port?));
    let connections = blocks.iter().filter_map(|record| {
        let ends = [endpoint(record.source)?, endpoint(record.destination)?];
        Some(Order::UnblockConnection(ends))
    });
    of_source
        .into_iter()
        .chain(connections.take(CONNECTIONS_MAX))
        .collect()
}

/// What a function blocks of a source at a time that is not long ago: itself, the prefix that it is one address of, and connections with it, no
/// matter who began them.
fn about(
    reported: &Reported<'_>,
    host: Host,
    now: Tick,
) -> Result<Vec<BlockedRecord>, ManualError> {
    let source = reported.source_of(host);
    let row = |host: Host| {
        let mut row = Vec::new();
        host.encode(&mut Writer::new(&mut row, &[]));
        row
    };
    let mut rows = vec![row(host)];
    if source != host {
        rows.push(row(source));
    }
    // What has blocks of its own for operators blocks connections, too: only a search of the store finds those of a source.
    let has_connections = reported.has("manual");
    let wanted = |object: &str| match object {
        "watched" => Wanted::Nothing,
        "blocked" if has_connections => Wanted::All,
        _ => Wanted::Rows(rows.clone()),
    };
    let mut records: Vec<BlockedRecord> = Vec::new();
    let unsearched = reported.records(wanted, SEARCH_MAX, |record: BlockedRecord| {
        let ends = [record.source, record.destination];
        // An operator blocks each address for itself, also the first one of a prefix.
        let is_of_prefix = record.source == End::host(source) && record.by != BY_HAND;
        let is_about = is_of_prefix || ends.iter().any(|end| end.host == Some(host));
        let is_new = || !records.iter().any(|known| is_same(known, &record));
        if is_about && now < record.until && is_new() {
            records.push(record);
        }
    })?;
    if !unsearched.is_empty() {
        return Err(ManualError::Unsearched(unsearched.join("; ")));
    }
    records.sort_by_key(|record| (record.source, record.destination, record.until));
    Ok(records)
}

/// What a function blocks of a source, once that is as it should be, or for long enough is not.
fn looked_for(
    reported: &Reported<'_>,
    blocked: impl Fn() -> Result<Vec<BlockedRecord>, ManualError>,
    is_done: impl Fn(&[BlockedRecord]) -> bool,
) -> Result<Vec<BlockedRecord>, ManualError> {
    let mut looks = 0;
    loop {
        let records = blocked()?;
        looks += 1;
        if is_done(&records) || looks >= LOOKS_MAX {
            return Ok(records);
        }
        std::thread::park_timeout(match reported.is_in_store() && looks > 2 {
            true => STORE_LOOKED_EVERY,
            false => LOOKED_EVERY,
        });
    }
}

/// Why a block is not there after all this time.
fn not_written(view: &View, reported: &Reported<'_>) -> ManualError {
    let store = view.store.document(view.uptime_us());
    match store.is_some_and(|store| !store.connected) && reported.is_in_store() {
        true => ManualError::StoreAway,
        false => ManualError::NoRoom,
    }
}

/// Whether two records are of the same block, whatever it is by now.
fn is_same(one: &BlockedRecord, other: &BlockedRecord) -> bool {
    (one.source, one.destination) == (other.source, other.destination)
}

fn refused(function: &str, why: impl ToString) -> RefusedDocument {
    let (function, why) = (function.to_owned(), why.to_string());
    RefusedDocument { function, why }
}
