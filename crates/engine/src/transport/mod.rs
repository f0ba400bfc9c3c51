//! The state channel over UDP: sockets, batches, and the thread that drives a host's [`StateChannel`].
//!
//! Datagrams are sealed before they come here and opened after they leave: a transport trusts no received bytes, and keeps
//! nothing that grows with datagrams of outsiders.
//!
//! Read first: `run` ([`spawn`] and its use), then `udp` ([`UdpTransport`]), `outbound` (packing), `kernel` (system calls,
//! all the `unsafe`), `config` (settings) and `statistics` (counters).
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
