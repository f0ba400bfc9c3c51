//! A wrapping port that writes what passes into a capture.

use super::{CaptureWriter, LinkState, Port, PortError, PortStatistics};
use crate::frame::{Burst, Frame, FramePool};
use asterism_placement::Time;
use std::os::fd::BorrowedFd;

/// Which packets a [`CapturingPort`] writes. A pcap record does not say its direction: for both apart, wrap twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those received.
    Received,
    /// Those sent.
    Sent,
    /// All.
    Both,
}

/// Another port, with what passes written to a capture at the time reported by [`Port::advance`].
///
/// A capture that cannot be written (a full disk) does not hold the port up: `flush` reports it, the writer counts it.
#[derive(Debug)]
pub struct CapturingPort<P> {
    inner: P,
    writer: CaptureWriter,
    direction: Direction,
    now: Time,
    reported: bool,
}

impl<P: Port> CapturingPort<P> {
    /// Wraps `inner`. Times are written as microseconds since 1970: [`Time::ZERO`] is 1970.
    pub fn new(inner: P, writer: CaptureWriter, direction: Direction) -> CapturingPort<P> {
        CapturingPort {
            inner,
            writer,
            direction,
            now: Time::ZERO,
            reported: false,
        }
    }

    /// The port within.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// The capture's writer, to ask it what it wrote and lost.
    pub fn writer(&self) -> &CaptureWriter {
        &self.writer
    }

    fn write(&mut self, pool: &FramePool, frames: &[Frame]) {
        let timestamp_ns = self.now.as_micros().saturating_mul(1000);
        for frame in frames {
            // What is lost is counted by the writer and reported by `flush`.
            let _ = self
                .writer
                .write(timestamp_ns, frame.len(), pool.bytes(frame));
        }
    }
}

impl<P: Port> Port for CapturingPort<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let added = self.inner.receive(pool, burst);
        if self.direction != Direction::Sent {
            self.write(pool, burst.as_slice().get(before..).unwrap_or(&[]));
        }
        added
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        if self.direction != Direction::Received {
            self.write(pool, burst.as_slice());
        }
        self.inner.send(pool, burst)
    }

    fn statistics(&self) -> PortStatistics {
        self.inner.statistics()
    }

    fn advance(&mut self, now: Time) {
        self.now = now;
        self.inner.advance(now);
    }

    fn next_due(&self) -> Option<Time> {
        self.inner.next_due()
    }

    fn exhausted(&self) -> bool {
        self.inner.exhausted()
    }

    fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        let inner = self.inner.flush(pool);
        if let Err(error) = self.writer.flush()
            && !self.reported
            && inner.is_ok()
        {
            self.reported = true;
            return Err(PortError::new(self.inner.name(), error));
        }
        inner
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_descriptor()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }
}
