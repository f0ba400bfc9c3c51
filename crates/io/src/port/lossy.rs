//! A wrapping port that loses packets on purpose.

use super::{LinkState, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{Burst, FramePool};
use crate::link::SeededRandom;
use asterism_placement::Time;
use std::os::fd::BorrowedFd;

/// Another port, with each packet lost with a given probability. The same seed and the same packets lose the same ones.
#[derive(Debug)]
pub struct LossyPort<P> {
    inner: P,
    receive_loss: f64,
    send_loss: f64,
    random: SeededRandom,
    lost_received: u64,
    lost_received_bytes: u64,
    lost_sent: u64,
}

impl<P: Port> LossyPort<P> {
    /// Wraps `inner`; the probabilities (0 to 1) are for packets received and for packets sent.
    pub fn new(inner: P, receive_loss: f64, send_loss: f64, random: SeededRandom) -> LossyPort<P> {
        LossyPort {
            inner,
            receive_loss,
            send_loss,
            random,
            lost_received: 0,
            lost_received_bytes: 0,
            lost_sent: 0,
        }
    }

    /// The port within.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl<P: Port> Port for LossyPort<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let before = burst.len();
        self.inner.receive(pool, burst);
        let (random, loss) = (&mut self.random, self.receive_loss);
        let (lost, lost_bytes) = (&mut self.lost_received, &mut self.lost_received_bytes);
        let mut index = 0;
        burst.extract(
            |_| {
                index += 1;
                index > before && random.chance(loss)
            },
            |frame| {
                *lost += 1;
                *lost_bytes += frame.len() as u64;
                pool.release(frame);
            },
        );
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let (random, loss, lost) = (&mut self.random, self.send_loss, &mut self.lost_sent);
        burst.extract(
            |_| random.chance(loss),
            |frame| {
                *lost += 1;
                pool.release(frame);
            },
        );
        self.inner.send(pool, burst)
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.inner.statistics();
        statistics.received_packets -= self.lost_received;
        statistics.received_bytes -= self.lost_received_bytes;
        statistics.dropped[PortDrop::Lossy as usize] += self.lost_received + self.lost_sent;
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
