//! Traffic: clients inside and servers outside, as stations of the segments, without a network stack of the kernel.
//!
//! Each flow has a number, from which both ends compute each byte that they expect. UDP flows are requests, each answered; TCP
//! flows upload some bytes, download some, and close (`tcp/`). The servers know a flow by its number, and so see if its outside
//! endpoint changes or is another flow's too. Traffic begins once a first request was answered: until then a probe goes every 10 ms,
//! which counts nowhere else.
//!
//! Read first: [`TrafficConfig`], then `statistics.rs` (what is counted). `client/` and `server/` are the stations; `endpoints.rs`,
//! `payload.rs`, `received.rs`, `router.rs`, `wheel.rs` and `histogram.rs` are their parts. On a packet's path nothing allocates, locks, formats
//! or logs.

mod client;
mod endpoints;
mod histogram;
mod payload;
mod received;
mod router;
mod server;
mod statistics;
mod tcp;
mod wheel;

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use asterism_io::port::Port;
use asterism_io::seqlock::Seqlock;

pub use endpoints::ENDPOINTS;
pub use histogram::RoundTrips;
pub use statistics::{ClientCounts, PUBLISH_INTERVAL, ServerCounts, TrafficSnapshot};
pub use tcp::{RETRANSMIT_MAX, RETRANSMIT_MIN, SEGMENT_BYTES, TIMEOUTS_MAX, WINDOW_MAX};

use crate::addresses::OUTSIDE_ADDRESSES_MAX;

/// Flows of a protocol that may be under way at most: half of the endpoints, so that one is free for the next.
pub const FLOWS_MAX: u32 = ENDPOINTS / 2;
/// Flows of a protocol that may begin in a second at most.
pub const RATE_MAX: u32 = 2_000;
/// The shortest time between two requests of a flow: a flow remembers 64 requests, and waits a second for each answer.
pub const REQUEST_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Bytes of a datagram's payload: its header at least, and what fits a frame of 1,514 bytes at most.
pub const PAYLOAD_BYTES: core::ops::RangeInclusive<u16> = 24..=1_400;
/// Bytes of an upload or a download at most.
pub const STREAM_BYTES_MAX: u32 = 1 << 30;
/// How long an answer may take before its request counts as lost.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// What the clients do. Two networks with one configuration make the same flows with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficConfig {
    /// What flows' bytes and sequence numbers follow from.
    pub seed: u64,
    /// UDP flows that begin in a second. Sane: 50. Bound: [`RATE_MAX`].
    pub udp_flows_per_second: u32,
    /// Requests of a UDP flow. Sane: 40. At least 1.
    pub udp_requests: u32,
    /// Time between two requests of a UDP flow. Sane: 50 ms. At least [`REQUEST_INTERVAL_MIN`].
    pub udp_interval: Duration,
    /// Bytes of a request and of an answer, without headers. Sane: 120. Bounds: [`PAYLOAD_BYTES`].
    pub udp_bytes: u16,
    /// TCP connections that begin in a second. Sane: 10. Bound: [`RATE_MAX`].
    pub tcp_connections_per_second: u32,
    /// Bytes that a client uploads. Sane: 4,000. From 24 to [`STREAM_BYTES_MAX`].
    pub tcp_up_bytes: u32,
    /// Bytes that a client downloads. Sane: 120,000. From 1 to [`STREAM_BYTES_MAX`].
    pub tcp_down_bytes: u32,
    /// Time between two segments with data. Sane: 20 ms, so that a download takes two seconds.
    pub tcp_pace: Duration,
    /// Flows of each protocol that may be under way. Sane: 1,024. Bound: [`FLOWS_MAX`].
    pub flows_max: u32,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        TrafficConfig {
            seed: 1,
            udp_flows_per_second: 50,
            udp_requests: 40,
            udp_interval: Duration::from_millis(50),
            udp_bytes: 120,
            tcp_connections_per_second: 10,
            tcp_up_bytes: 4_000,
            tcp_down_bytes: 120_000,
            tcp_pace: Duration::from_millis(20),
            flows_max: 1_024,
        }
    }
}

/// Why traffic cannot be as its configuration says. Nothing was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrafficError {
    /// Too many flows in a second.
    #[error("{0} flows a second: at most {RATE_MAX} of each protocol")]
    Rate(u32),
    /// No requests.
    #[error("a UDP flow has at least one request")]
    Requests,
    /// Requests too close to each other.
    #[error("{0:?} between requests of a flow: at least {REQUEST_INTERVAL_MIN:?}")]
    Interval(Duration),
    /// A datagram too short or too long.
    #[error("{0} bytes in a datagram: from {first} to {last}", first = PAYLOAD_BYTES.start(), last = PAYLOAD_BYTES.end())]
    Payload(u16),
    /// A stream too short or too long.
    #[error(
        "{0} bytes in a stream: an upload has from 24, a download from 1, to {STREAM_BYTES_MAX}"
    )]
    Stream(u32),
    /// No flows, or too many.
    #[error("{0} flows at a time: from 1 to {FLOWS_MAX} of each protocol")]
    Flows(u32),
    /// No outside addresses, or too many.
    #[error("{0} outside addresses: from 1 to {OUTSIDE_ADDRESSES_MAX}")]
    OutsideAddresses(u8),
}

impl TrafficConfig {
    pub(crate) fn check(&self, outside_addresses: u8) -> Result<(), TrafficError> {
        let rates = [self.udp_flows_per_second, self.tcp_connections_per_second];
        if let Some(rate) = rates.into_iter().find(|rate| *rate > RATE_MAX) {
            return Err(TrafficError::Rate(rate));
        }
        if self.udp_requests == 0 {
            return Err(TrafficError::Requests);
        }
        if self.udp_interval < REQUEST_INTERVAL_MIN {
            return Err(TrafficError::Interval(self.udp_interval));
        }
        if !PAYLOAD_BYTES.contains(&self.udp_bytes) {
            return Err(TrafficError::Payload(self.udp_bytes));
        }
        if !(payload::Upload::BYTES as u32..=STREAM_BYTES_MAX).contains(&self.tcp_up_bytes) {
            return Err(TrafficError::Stream(self.tcp_up_bytes));
        }
        if !(1..=STREAM_BYTES_MAX).contains(&self.tcp_down_bytes) {
            return Err(TrafficError::Stream(self.tcp_down_bytes));
        }
        if !(1..=FLOWS_MAX).contains(&self.flows_max) {
            return Err(TrafficError::Flows(self.flows_max));
        }
        if !(1..=OUTSIDE_ADDRESSES_MAX).contains(&outside_addresses) {
            return Err(TrafficError::OutsideAddresses(outside_addresses));
        }
        Ok(())
    }
}

/// What the stations read of what other threads ask for.
#[derive(Debug)]
struct Asked {
    begins_flows: AtomicBool,
    marks: AtomicU64,
}

/// The traffic as other threads see and steer it. Copies are of the same traffic.
#[derive(Clone, Debug)]
pub struct Traffic {
    asked: Arc<Asked>,
    client: Arc<Seqlock>,
    server: Arc<Seqlock>,
}

impl Traffic {
    /// Lets flows begin, or lets those under way end and begins no more. Flows begin from the start.
    pub fn begin_flows(&self, begins: bool) {
        self.asked.begins_flows.store(begins, Ordering::Relaxed);
    }

    /// Clears the times of losses, the longest silence and the round trips, within [`PUBLISH_INTERVAL`]; the number of the mark,
    /// which [`ClientCounts::marks`] shows when it was made.
    pub fn mark(&self) -> u64 {
        self.asked.marks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What was published last; all zero before the first time.
    #[must_use]
    pub fn snapshot(&self) -> TrafficSnapshot {
        let words = self.client.read().unwrap_or_default();
        let (client, round_trips) = statistics::read_client(&words).unwrap_or_default();
        let words = self.server.read().unwrap_or_default();
        TrafficSnapshot {
            client,
            server: statistics::read_server(&words).unwrap_or_default(),
            round_trips,
        }
    }
}

/// The stations of a traffic, to be attached to the segments, and its handle.
pub(crate) struct Stations {
    pub(crate) client: Box<dyn Port>,
    pub(crate) server: Box<dyn Port>,
    pub(crate) traffic: Traffic,
}

/// Makes the stations. The servers expect packets from the first of so many outside addresses.
pub(crate) fn stations(
    config: &TrafficConfig,
    outside_addresses: u8,
) -> Result<Stations, TrafficError> {
    config.check(outside_addresses)?;
    let asked = Arc::new(Asked {
        begins_flows: AtomicBool::new(true),
        marks: AtomicU64::new(0),
    });
    let traffic = Traffic {
        asked: Arc::clone(&asked),
        client: Arc::default(),
        server: Arc::default(),
    };
    let client = client::Clients::new(*config, Arc::clone(&asked), Arc::clone(&traffic.client));
    let server = server::Servers::new(
        config,
        outside_addresses,
        asked,
        Arc::clone(&traffic.server),
    );
    Ok(Stations {
        client: Box::new(client),
        server: Box::new(server),
        traffic,
    })
}

#[cfg(test)]
mod tests;
