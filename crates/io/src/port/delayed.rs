//! A wrapping port that holds packets for a time.

use super::{LinkState, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{BURST, Burst, Frame, FramePool};
use asterism_placement::Time;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Another port, each packet held for a fixed time on its way, in order. Time is what [`Port::advance`] tells.
///
/// Held frames keep their buffers, at most `frames_max` each way: then what is to be received waits in the port within, and what
/// is to be sent is dropped and counted. Frames held for sending leave at the next call of `receive`, `send` or `flush`.
#[derive(Debug)]
pub struct DelayedPort<P> {
    inner: P,
    receive_delay: Duration,
    send_delay: Duration,
    send_spacing: Duration,
    /// When the next frame may leave.
    send_next: Time,
    frames_max: usize,
    now: Time,
    arriving: VecDeque<(Time, Frame)>,
    leaving: VecDeque<(Time, Frame)>,
    burst: Burst,
    held_bytes: u64,
    dropped: u64,
}

impl<P: Port> DelayedPort<P> {
    /// Wraps `inner` with a delay each way. `frames_max` is at least a burst. Room for `frames_max` held frames each way is made here.
    pub fn new(
        inner: P,
        receive_delay: Duration,
        send_delay: Duration,
        frames_max: usize,
    ) -> DelayedPort<P> {
        let frames_max = frames_max.max(BURST);
        DelayedPort {
            inner,
            receive_delay,
            send_delay,
            send_spacing: Duration::ZERO,
            send_next: Time::ZERO,
            frames_max,
            now: Time::ZERO,
            arriving: VecDeque::with_capacity(frames_max),
            leaving: VecDeque::with_capacity(frames_max),
            burst: Burst::new(),
            held_bytes: 0,
            dropped: 0,
        }
    }

    /// Lets a packet leave no sooner than this after the one before it, as over a slow link: a whole number of microseconds.
    #[must_use]
    pub fn with_send_spacing(mut self, spacing: Duration) -> DelayedPort<P> {
        self.send_spacing = spacing;
        self
    }

    /// The port within.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn send_due(&mut self, pool: &mut FramePool) -> usize {
        let mut sent = 0;
        while self
            .leaving
            .front()
            .is_some_and(|&(due, _)| due <= self.now)
        {
            while self.burst.room() > 0
                && let Some((due, frame)) = self.leaving.pop_front()
            {
                if due > self.now {
                    self.leaving.push_front((due, frame));
                    break;
                }
                let _ = self.burst.push(frame);
            }
            sent += self.inner.send(pool, &mut self.burst);
        }
        sent
    }

    fn take_in(&mut self, pool: &mut FramePool) {
        // A whole burst must fit, because the port within may hand one out.
        while self.arriving.len() + BURST <= self.frames_max
            && self.inner.receive(pool, &mut self.burst) > 0
        {
            let due = self.now + self.receive_delay;
            for frame in self.burst.drain() {
                self.held_bytes += frame.len() as u64;
                self.arriving.push_back((due, frame));
            }
        }
    }
}

impl<P: Port> Port for DelayedPort<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        self.send_due(pool);
        self.take_in(pool);
        let before = burst.len();
        while burst.room() > 0
            && self
                .arriving
                .front()
                .is_some_and(|&(due, _)| due <= self.now)
            && let Some((_, frame)) = self.arriving.pop_front()
        {
            self.held_bytes -= frame.len() as u64;
            let _ = burst.push(frame);
        }
        burst.len() - before
    }

    /// Returns how many frames left now: those whose time has come, not those of `burst`.
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        for frame in burst.drain() {
            if self.leaving.len() < self.frames_max {
                let due = (self.now + self.send_delay).max(self.send_next);
                self.send_next = due + self.send_spacing;
                self.leaving.push_back((due, frame));
            } else {
                self.dropped += 1;
                pool.release(frame);
            }
        }
        self.send_due(pool)
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.inner.statistics();
        statistics.received_packets -= self.arriving.len() as u64;
        statistics.received_bytes -= self.held_bytes;
        statistics.dropped[PortDrop::QueueFull as usize] += self.dropped;
        statistics
    }

    fn advance(&mut self, now: Time) {
        self.now = now;
        self.inner.advance(now);
    }

    fn next_due(&self) -> Option<Time> {
        let held = [self.arriving.front(), self.leaving.front()];
        held.into_iter()
            .flatten()
            .map(|&(due, _)| due)
            .chain(self.inner.next_due())
            .min()
    }

    fn exhausted(&self) -> bool {
        self.arriving.is_empty() && self.inner.exhausted()
    }

    fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
        self.send_due(pool);
        self.inner.flush(pool)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_descriptor()
    }

    fn link(&self) -> LinkState {
        self.inner.link()
    }
}
