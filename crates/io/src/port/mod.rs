//! Ports: sources and sinks of packets.
//!
//! A [`Port`] moves bursts of frames between the outside and the instance's [`FramePool`]. Ports read no clock and draw no
//! randomness of their own. Read first: [`MemoryPort`] (benches and tests) and [`CapturePort`] (capture files).
//! [`CapturingPort`], [`LossyPort`], [`DelayedPort`], [`SendingPort`] and [`MeteringPort`] wrap another port. On real interfaces:
//! [`AfPacketPort`]; ports of the kernel share `interface.rs` (the interface under a port), `offload` (outstanding checksums
//! and segmentation) and `system` (system calls).

mod af_packet;
mod af_xdp;
mod capture;
mod capturing;
mod delayed;
mod error;
mod interface;
mod lossy;
mod memory;
mod metering;
mod offload;
mod sending;
mod setting;
mod shared_memory;
mod statistics;
mod system;
mod tap;

pub use af_packet::{AfPacketConfig, AfPacketMode, AfPacketPort, Fanout};
pub use af_xdp::{AfXdpConfig, AfXdpPort, XdpMode};
#[doc(hidden)]
pub use capture::fuzz_capture;
pub use capture::{
    CaptureError, CapturePort, CaptureProblem, CaptureReader, CaptureWriter, CapturedPacket,
    INTERFACES_MAX, PACKET_BYTES_MAX,
};
pub use capturing::{CapturingPort, Direction};
pub use delayed::DelayedPort;
pub use error::{PacketTooLongError, PortError, PortErrorKind};
pub use interface::{
    InterfaceError, LinkState, Offloads, REOPEN_BACKOFF_US_MAX, REOPEN_BACKOFF_US_MIN,
    WATCH_INTERVAL_DOWN_US, WATCH_INTERVAL_US, ethernet_address,
};
pub use lossy::LossyPort;
pub use memory::MemoryPort;
pub use metering::{
    FLOW_IDLE_SECONDS, FLOWS_KNOWN, MeteringPort, TenantCounters, TenantCounts, TenantMap,
};
#[doc(hidden)]
pub use offload::fuzz_offload;
pub use offload::{Offload, Segmentation};
pub use sending::SendingPort;
pub use setting::{RING_SLOTS_MAX, SLOT_BYTES_MAX, SettingError, TAP_MTU_MAX, XDP_CHUNKS_MAX};
#[doc(hidden)]
pub use shared_memory::fuzz_shared_memory;
pub use shared_memory::{
    GreetingError, LinkEnd, SLOT_BYTES_RANGE, SLOTS_RANGE, SharedMemoryConfig, SharedMemoryError,
    SharedMemoryPort, SharedMemoryRole,
};
pub use statistics::{PortDrop, PortStatistics};
pub use tap::{TapConfig, TapPort};

use crate::frame::{Burst, FramePool};
use asterism_placement::Time;
use std::os::fd::BorrowedFd;

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
    ///
    /// A loop that is about to sleep on [`Port::wait_descriptor`] calls this first: here a port takes note of what would wake
    /// the loop again and again (an error pending at a socket, a peer that hung up).
    fn flush(&mut self, _pool: &mut FramePool) -> Result<(), PortError> {
        Ok(())
    }

    /// What an idle loop may sleep on: readable (`POLLIN`) once `receive` has something. `None`: nothing will announce it, so
    /// the loop asks again, or sleeps until [`Port::next_due`]. May change with every call of `advance` and `flush`.
    ///
    /// The order that misses no packet: `receive` gave nothing, then `flush`, then sleep. Sleep no longer than `next_due`.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether packets can pass now. Ports without a link are up. Known since the last `advance` or `flush`.
    fn link(&self) -> LinkState {
        LinkState::Up
    }
}

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
            fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
                (**self).wait_descriptor()
            }
            fn link(&self) -> LinkState {
                (**self).link()
            }
        }
    )*};
}

forward_port!(&mut P, Box<P>);
