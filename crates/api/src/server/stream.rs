//! The stream of events: server-sent events, from where a reader left off, until the reader, the token or the server ends it.
//!
//! One task looks for new events while there are streams ([`watch_log`]); each stream then reads them for its own scope. A reader that
//! reads nothing holds a few frames here and is cut off by `guarded.rs`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::config::EVENTS_MAX;
use super::events::{self, EventsQuery};
use super::extract::Asked;
use super::gate::{Gate, Who};
use super::problem::Failure;
use super::race::before;
use crate::data::{Event, Events};

/// Frames that wait for a reader.
const FRAMES_MAX: usize = 4;
/// How long a reader waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// Events as they happen
///
/// Server-sent events. The data of each is an event as `/v1/events` has it; its identifier is `LOG-SEQUENCE`, and the header
/// `Last-Event-ID` goes on after it. Without either the stream begins now. The event `missed` says that events were lost before the
/// next one; the event `end` that the token is no longer in force.
#[utoipa::path(get, path = "/v1/events/stream", tag = "events", params(EventsQuery,
    ("Last-Event-ID" = Option<String>, Header, description = "The identifier of the last event that was read: LOG-SEQUENCE")),
    responses((status = 200, description = "The stream", body = String, content_type = "text/event-stream")))]
pub(super) async fn stream(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    Asked(mut query): Asked<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if query
        .max
        .is_some_and(|max| !(1..=EVENTS_MAX).contains(&max))
    {
        let why = format!("the query: max is 1 to {EVENTS_MAX}");
        return Err(Failure::Malformed(why));
    }
    if let Some(last) = headers.get("last-event-id") {
        let Some((log, sequence)) = last.to_str().ok().and_then(position) else {
            let why = "the header Last-Event-ID is LOG-SEQUENCE, as an event's identifier is";
            return Err(Failure::Malformed(why.to_owned()));
        };
        (query.log, query.after) = (Some(log), Some(sequence));
    }
    let place = Place::take(&gate, &who.caller.name)?;
    if query.after.is_none() {
        let log = gate.calls.read(|api| api.events(u64::MAX, 0)).await?;
        (query.log, query.after) = (Some(log.log), Some(log.newest));
    }
    let (frames, body) = mpsc::channel(FRAMES_MAX);
    let mut stopping = gate.stopping.clone();
    tokio::spawn(async move {
        let stopped = async {
            // The sender is gone only when the server is.
            let _ = stopping.wait_for(|stops| *stops).await;
        };
        let reader_left = frames.clone();
        let run = before(run(&gate, &who, query, &frames), reader_left.closed());
        before(run, stopped).await;
        drop(place);
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::new(Frames(body))).into_response())
}

async fn run(gate: &Gate, who: &Who, mut query: EventsQuery, frames: &mpsc::Sender<Bytes>) {
    let mut newest = gate.newest.clone();
    let limits = gate.limits();
    let mut identified = None;
    let mut text = format!("retry: {RETRY_MS}\n\n");
    loop {
        if !gate.is_in_force(who.token.as_ref()) {
            text.push_str("event: end\ndata: the token is no longer in force\n\n");
            // A reader that is gone needs no farewell.
            let _ = frames.send(text.into()).await;
            return;
        }
        newest.mark_unchanged();
        // What could not be read now is read at the next turn.
        let page = events::page(gate, &who.caller.scope, query).await.ok();
        let is_behind = page.as_ref().is_some_and(|page| page.next < page.newest);
        if let Some(page) = &page {
            (query.log, query.after) = (Some(page.log), Some(page.next));
            if let Some(event) = page.events.last() {
                identified = Some((page.log, event.sequence));
            }
            write_page(&mut text, page);
        }
        if !text.is_empty() && frames.send(std::mem::take(&mut text).into()).await.is_err() {
            return;
        }
        if is_behind {
            continue;
        }
        let heartbeat = sleep_until(Instant::now() + limits.heartbeat);
        if before(newest.changed(), heartbeat).await.is_none() {
            // The identifier alone moves a reader on past what it may not see.
            text.push_str(": alive\n");
            let position = query.log.zip(query.after);
            if let Some((log, after)) = position.filter(|_| position != identified) {
                text.push_str(&format!("id: {log}-{after}\n"));
                identified = position;
            }
            text.push('\n');
        }
    }
}

fn write_page(text: &mut String, page: &Events) {
    if page.missed {
        text.push_str("event: missed\ndata: events before the next one are lost\n\n");
    }
    for event in &page.events {
        text.push_str(&frame(page.log, event));
    }
}

fn frame(log: u64, event: &Event) -> String {
    // JSON has no line ends of its own, and a value of strings and numbers is always JSON.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {log}-{}\ndata: {data}\n\n", event.sequence)
}

fn position(text: &str) -> Option<(u64, u64)> {
    let (log, sequence) = text.split_once('-')?;
    Some((log.parse().ok()?, sequence.parse().ok()?))
}

/// Looks for new events while there are streams.
pub(super) async fn watch_log(gate: Gate, newest: watch::Sender<(u64, u64)>) {
    loop {
        sleep(gate.limits().events).await;
        if gate.streams.available_permits() == gate.limits().streams {
            continue;
        }
        // A question that fails is asked again.
        let Ok(log) = gate.calls.read(|api| api.events(u64::MAX, 0)).await else {
            continue;
        };
        newest.send_if_modified(|known| {
            let now = (log.log, log.newest);
            std::mem::replace(known, now) != now
        });
    }
}

/// A stream's place, of all and of its caller's. Given back when it is dropped.
struct Place {
    gate: Gate,
    caller: String,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    fn take(gate: &Gate, caller: &str) -> Result<Place, Failure> {
        let permit = Arc::clone(&gate.streams).try_acquire_owned();
        let permit = permit.map_err(|_| Failure::Streams)?;
        let mut of_caller = gate.streams_of_caller.lock();
        let count = of_caller.entry(caller.to_owned()).or_default();
        if *count >= gate.limits().streams_of_caller {
            return Err(Failure::Streams);
        }
        *count += 1;
        drop(of_caller);
        Ok(Place {
            gate: Arc::clone(gate),
            caller: caller.to_owned(),
            _permit: permit,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_caller = self.gate.streams_of_caller.lock();
        if let Some(count) = of_caller.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                of_caller.remove(&self.caller);
            }
        }
    }
}

/// The body of the answer.
struct Frames(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}
