//! A TCP connection as its server sees it: an upload, whose header says which download follows.

use asterism_placement::Time;

use crate::traffic::endpoints::End;
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
    /// Bytes that are not the upload's.
    Wrong,
    /// The connection was reset.
    Reset,
}

/// The connection and its script.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerConnection {
    pub(super) connection: Connection,
    pub(super) outside: End,
    upload: Option<Upload>,
    /// Whether it counts as complete or failed already.
    pub(super) is_over: bool,
    pub(super) has_moved: bool,
    pub(super) seen: Time,
}

impl ServerConnection {
    /// What a SYN from this outside endpoint opens.
    pub(super) fn new(
        outside: End,
        initial: u32,
        peer_initial: u32,
        pace_us: u64,
        now: Time,
    ) -> ServerConnection {
        ServerConnection {
            connection: Connection::accept(initial, peer_initial, pace_us, now),
            outside,
            upload: None,
            is_over: false,
            has_moved: false,
            seen: now,
        }
    }

    /// Takes a segment and checks its bytes. When the upload is complete, the download follows; when the client closes, so does the
    /// server.
    pub(super) fn take(
        &mut self,
        segment: &Arrived,
        seed: u64,
        bytes: &[u8],
        now: Time,
    ) -> Outcome {
        let outcome = match self.connection.take(segment, now) {
            Taken::Reset => return Outcome::Reset,
            Taken::Data { offset } if self.is_right(seed, offset, bytes) => Outcome::Right {
                bytes: segment.bytes,
            },
            Taken::Data { .. } => Outcome::Wrong,
            Taken::Nothing | Taken::Duplicate | Taken::BeyondGap => Outcome::Right { bytes: 0 },
        };
        if let Some(upload) = self.upload
            && self.connection.received_bytes() == upload.up
        {
            self.connection.offer(upload.down);
            if self.connection.has_fin() {
                self.connection.close();
            }
        }
        outcome
    }

    fn is_right(&mut self, seed: u64, offset: u32, bytes: &[u8]) -> bool {
        let mut pattern = bytes;
        let mut from = u64::from(offset);
        if offset == 0 {
            self.upload = Upload::read(bytes);
            pattern = bytes.get(Upload::BYTES..).unwrap_or(&[]);
            from = Upload::BYTES as u64;
        }
        self.upload.is_some_and(|upload| {
            let key = payload::key(seed, upload.flow, Direction::Up);
            payload::is_right(pattern, key, from)
        })
    }

    /// Writes a part of the download.
    pub(super) fn write(&self, seed: u64, offset: u32, out: &mut [u8]) {
        if let Some(upload) = self.upload {
            let key = payload::key(seed, upload.flow, Direction::Down);
            payload::fill(out, key, u64::from(offset));
        }
    }
}
