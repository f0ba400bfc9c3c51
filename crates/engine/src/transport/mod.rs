//! The state channel over UDP: sockets, batches, and the thread that drives a host's [`StateChannel`].
//!
//! What travels is sealed before it comes here and opened after it leaves: a transport believes nothing that it
//! receives, and keeps nothing that grows with what strangers send.
//!
//! Imports `asterism-placement`, `libc`, `arc-swap` and this crate's state channel and clock. Read first: `run`
//! ([`spawn`] and how to use it), then `udp` ([`UdpTransport`]), `outbound` (packing), `kernel` (system calls,
//! all the `unsafe`); `config` says what can be set, `statistics` what is counted.
//!
//! [`StateChannel`]: crate::StateChannel

mod config;
mod kernel;
mod outbound;
mod pace;
mod run;
mod snapshot;
mod sources;
mod statistics;
mod udp;
mod watch;

pub use config::{
    BANDWIDTH_BITS_MAX, BANDWIDTH_BITS_MIN, BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, MulticastConfig,
    PathMtu, RunConfig, RunMode, TransportError, UdpConfig, UdpPeer,
};
pub use outbound::SEND_QUEUE_DATAGRAMS_MAX;
pub use pace::PACE_BURST;
pub use run::{EVENTS_MAX, Notice, StateChannelThread, Stopped, Waker, open, spawn};
pub use snapshot::{ChannelSnapshot, MemberSnapshot, Snapshots, ThreadTally};
pub use sources::STRANGERS_MAX;
pub use statistics::{PeerTraffic, TransportEvent, TransportState, TransportStatistics};
pub use udp::{DATAGRAM_BYTES_MIN, UdpTransport};
pub use watch::{DATES_APART, PEER_SILENT_AFTER, PeerFault};
