//! A host's end of its connections: where they come from, and what it reads and writes by them.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use asterism_remote_store::{AwayReason, Greeting, Network};

use super::network::{ConnectionId, Incarnation, Shared};

/// A host's end of a connection.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Shared,
    id: ConnectionId,
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.shared.net().read(self.id, room)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.net().write(self.id, bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.net().leave(self.id);
    }
}

/// Where a host's connections to a shard come from.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) shared: Shared,
    pub(super) host: Incarnation,
    /// To which shard.
    pub(super) shard: usize,
}

/// A connection that is being made.
#[derive(Debug)]
pub(super) struct Begun {
    due_us: u64,
    candidates: Vec<SocketAddr>,
    greeting: Arc<Greeting>,
}

impl Network for Links {
    type Stream = Stream;
    type Attempt = Begun;

    fn begin(&mut self, candidates: Vec<SocketAddr>, greeting: &Arc<Greeting>) -> Option<Begun> {
        Some(Begun {
            due_us: self.shared.net().arrives_us(self.host, self.shard),
            candidates,
            greeting: greeting.clone(),
        })
    }

    fn made(&mut self, attempt: &mut Begun) -> Option<Result<(Stream, SocketAddr), AwayReason>> {
        if attempt.due_us > self.shared.net().now_us {
            return None;
        }
        let candidates = core::mem::take(&mut attempt.candidates);
        let made = attempt.greeting.open(candidates, |address| {
            let id = self.shared.net().connect((self.host, self.shard), address);
            let shared = self.shared.clone();
            let stream = id.map(|id| Stream { shared, id });
            stream.ok_or(AwayReason::Unreachable)
        });
        if let Ok((stream, _)) = &made {
            self.shared.net().is_greeted(stream.id);
        }
        Some(made)
    }
}
