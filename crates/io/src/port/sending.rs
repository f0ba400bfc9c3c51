//! A wrapping port that only sends: what comes in by it never reaches a function.

use super::{LinkState, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{Burst, FramePool};
use asterism_placement::Time;
use std::os::fd::BorrowedFd;

/// Another port, of which what is received is read, so that it does not pile up, and dropped under [`PortDrop::SendsOnly`]. For a
/// port that copies go to: anyone who is behind it may watch, and cannot speak. Not counted as received.
#[derive(Debug)]
pub struct SendingPort<P> {
    inner: P,
    read: Burst,
    dropped: u64,
    dropped_bytes: u64,
}

impl<P: Port> SendingPort<P> {
    /// Wraps `inner`.
    pub fn new(inner: P) -> SendingPort<P> {
        SendingPort {
            inner,
            read: Burst::default(),
            dropped: 0,
            dropped_bytes: 0,
        }
    }
}

impl<P: Port> Port for SendingPort<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn receive(&mut self, pool: &mut FramePool, _: &mut Burst) -> usize {
        if self.inner.receive(pool, &mut self.read) > 0 {
            self.dropped += self.read.len() as u64;
            let bytes = self.read.iter().map(|frame| frame.len() as u64);
            self.dropped_bytes += bytes.sum::<u64>();
            pool.release_all(&mut self.read);
        }
        0
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        self.inner.send(pool, burst)
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.inner.statistics();
        statistics.received_packets -= self.dropped;
        statistics.received_bytes -= self.dropped_bytes;
        statistics.dropped[PortDrop::SendsOnly as usize] += self.dropped;
        statistics
    }

    fn advance(&mut self, now: Time) {
        self.inner.advance(now);
    }

    fn next_due(&self) -> Option<Time> {
        self.inner.next_due()
    }

    fn exhausted(&self) -> bool {
        self.inner.exhausted()
    }

    fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        self.inner.flush(pool)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_descriptor()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }
}
