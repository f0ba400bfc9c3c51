//! Ports: where packets come from and go to.
//!
//! A [`Port`] moves bursts of frames between the outside and the instance's [`FramePool`]. Ports to read first:
//! [`MemoryPort`] (benches and tests) and [`CapturePort`] (capture files). [`CapturingPort`], [`LossyPort`] and
//! [`DelayedPort`] wrap another port. Ports read no clock and draw no randomness that was not handed in. May import
//! `frame`, `pages`, `ring`, `link` and the `Time` of `asterism-placement`.

mod capture;
mod capturing;
mod delayed;
mod lossy;
mod memory;

#[doc(hidden)]
pub use capture::fuzz_capture;
pub use capture::{
    CaptureError, CapturePort, CaptureProblem, CaptureReader, CaptureWriter, CapturedPacket,
    INTERFACES_MAX, PACKET_BYTES_MAX,
};
pub use capturing::{CapturingPort, Direction};
pub use delayed::DelayedPort;
pub use lossy::LossyPort;
pub use memory::MemoryPort;

use crate::frame::{Burst, FramePool};
use asterism_placement::Time;

/// A source and sink of packets, owned by one instance.
///
/// No call waits. `receive` and `send` allocate nothing once a port is warm, unless the port says otherwise.
pub trait Port: Send {
    /// What the port is called in configuration, logs and metrics.
    fn name(&self) -> &str;

    /// Adds what has arrived to `burst`, as far as it has room; returns how many frames were added.
    ///
    /// Frames come from `pool`. While it is empty, a source that can wait keeps its packets, and one that cannot counts
    /// [`PortDrop::NoBuffer`]; a packet longer than a frame is dropped and counted. The frames' port number is not set:
    /// who polls several ports does that.
    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize;

    /// Sends every frame of `burst`, which is empty afterwards; returns how many were sent. What the port cannot take is
    /// released to `pool` and counted with its reason.
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize;

    /// Counts since the port was made.
    fn statistics(&self) -> PortStatistics;

    /// Tells the port what time it is. Called once a burst, before `receive`; ports without timers ignore it.
    fn advance(&mut self, _now: Time) {}

    /// When `receive` or `flush` will have something to do, if that is known: an idle loop may sleep until then.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Whether `receive` will never add a frame again (a capture was read to its end).
    fn exhausted(&self) -> bool {
        false
    }

    /// Sends on what the port still holds and is due (frames delayed, output buffered), and reports the first failure
    /// since the last call, in words for the operator. Called when the loop is idle, and before it ends.
    fn flush(&mut self, _pool: &mut FramePool) -> Result<(), PortError> {
        Ok(())
    }
}

/// Why a port dropped a packet. Each has a counter in [`PortStatistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortDrop {
    /// Received while every buffer of the pool was in use.
    NoBuffer,
    /// Longer than a buffer of the pool, or than the port's medium takes.
    TooLong,
    /// A queue inside the port was full.
    QueueFull,
    /// The medium refused it: a full disk, a link that is down.
    WriteFailed,
    /// Lost on purpose by a [`LossyPort`].
    Lossy,
}

impl PortDrop {
    /// How many reasons there are.
    pub const COUNT: usize = 5;
    /// All reasons, in the order of their counters.
    pub const ALL: [PortDrop; PortDrop::COUNT] = [
        PortDrop::NoBuffer,
        PortDrop::TooLong,
        PortDrop::QueueFull,
        PortDrop::WriteFailed,
        PortDrop::Lossy,
    ];

    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            PortDrop::NoBuffer => "port-no-buffer",
            PortDrop::TooLong => "port-too-long",
            PortDrop::QueueFull => "port-queue-full",
            PortDrop::WriteFailed => "port-write-failed",
            PortDrop::Lossy => "port-lossy",
        }
    }
}

/// What a port counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets handed out by `receive`.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped, indexed by [`PortDrop`].
    pub dropped: [u64; PortDrop::COUNT],
}

impl PortStatistics {
    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: PortDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    #[inline]
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.received_packets += 1;
        self.received_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_dropped(&mut self, reason: PortDrop) {
        self.dropped[reason as usize] += 1;
    }
}

/// What went wrong at a port, worded for the operator: the effect, where, and a cure.
#[derive(Debug)]
pub struct PortError {
    /// The port's name.
    pub port: String,
    /// What happened and what to do.
    pub message: String,
}

impl std::fmt::Display for PortError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "port {}: {}", self.port, self.message)
    }
}

impl std::error::Error for PortError {}

/// Forwards every call, so that a port can be lent (`&mut port`) or boxed.
macro_rules! forward_port {
    ($($holder:ty),*) => {$(
        impl<P: Port + ?Sized> Port for $holder {
            fn name(&self) -> &str {
                (**self).name()
            }
            #[inline]
            fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
                (**self).receive(pool, burst)
            }
            #[inline]
            fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
                (**self).send(pool, burst)
            }
            fn statistics(&self) -> PortStatistics {
                (**self).statistics()
            }
            fn advance(&mut self, now: Time) {
                (**self).advance(now)
            }
            fn next_due(&self) -> Option<Time> {
                (**self).next_due()
            }
            fn exhausted(&self) -> bool {
                (**self).exhausted()
            }
            fn flush(&mut self, pool: &mut FramePool) -> Result<(), PortError> {
                (**self).flush(pool)
            }
        }
    )*};
}

forward_port!(&mut P, Box<P>);
