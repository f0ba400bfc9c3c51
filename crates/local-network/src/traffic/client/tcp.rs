//! A TCP connection as its client sees it: an upload with a header, a download whose bytes are checked, and the end.

use core::time::Duration;

use asterism_placement::Time;

use crate::traffic::TrafficConfig;
use crate::traffic::payload::{self, Direction, Upload};
use crate::traffic::tcp::{Arrived, Connection, Taken};

/// What a segment brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// So many right bytes, or none.
    Right {
        /// How many.
        bytes: u32,
    },
    /// Bytes that are not the download's.
    Wrong,
    /// The connection was reset.
    Reset,
}

/// The connection and its script.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpFlow {
    pub(super) connection: Connection,
    flow: u64,
    up: u32,
    down: u32,
    /// Whether it counts as complete or failed already.
    pub(super) is_ended: bool,
    /// Since when it has waited for a packet.
    pub(super) waits_since: Option<Time>,
}

impl TcpFlow {
    pub(super) fn new(flow: u64, initial: u32, config: &TrafficConfig, now: Time) -> TcpFlow {
        let pace_us = config.tcp_pace.as_micros() as u64;
        let mut connection = Connection::open(initial, pace_us, now);
        connection.offer(config.tcp_up_bytes);
        TcpFlow {
            connection,
            flow,
            up: config.tcp_up_bytes,
            down: config.tcp_down_bytes,
            is_ended: false,
            waits_since: None,
        }
    }

    /// Writes a part of the upload.
    pub(super) fn write(&self, seed: u64, offset: u32, out: &mut [u8]) {
        let key = payload::key(seed, self.flow, Direction::Up);
        payload::fill(out, key, u64::from(offset));
        if offset == 0
            && let Some(header) = out.first_chunk_mut()
        {
            let upload = Upload {
                flow: self.flow,
                up: self.up,
                down: self.down,
            };
            upload.write(header);
        }
    }

    /// Takes a segment and checks its bytes. When the download is complete, the client closes.
    pub(super) fn take(
        &mut self,
        segment: &Arrived,
        seed: u64,
        payload: &[u8],
        now: Time,
    ) -> Outcome {
        let outcome = match self.connection.take(segment, now) {
            Taken::Reset => return Outcome::Reset,
            Taken::Data { offset } => {
                let key = payload::key(seed, self.flow, Direction::Down);
                if !payload::is_right(payload, key, u64::from(offset)) {
                    return Outcome::Wrong;
                }
                Outcome::Right {
                    bytes: segment.bytes,
                }
            }
            Taken::Nothing | Taken::Duplicate | Taken::BeyondGap => Outcome::Right { bytes: 0 },
        };
        if self.connection.received_bytes() == self.down {
            self.connection.close();
        }
        outcome
    }

    /// Whether the download is complete, and both streams are closed.
    pub(super) fn is_complete(&self) -> bool {
        self.connection.is_over() && self.connection.received_bytes() == self.down
    }

    /// How long it has waited for a packet.
    pub(super) fn silence(&self, now: Time) -> Duration {
        self.waits_since
            .map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How long it had waited for the packet that arrives now.
    pub(super) fn end_silence(&mut self, now: Time) -> Duration {
        if self.is_ended {
            return Duration::ZERO;
        }
        let silence = self.silence(now);
        self.waits_since = Some(now);
        silence
    }
}
