//! The control socket: a Unix socket of mode 0600 for requests to a running host.
//!
//! A request is one line of JSON, and so is its answer. All are short except the request that hands an epoch, which the
//! crate of epochs defines (`handing.rs`) and the orchestrator sends. Lines, times and connections are bounded: bytes from the
//! socket are trusted no more than bytes from a network.
//!
//! Read first: `place.rs` (the socket's place in the file system, which one process holds at a time), then `server.rs`
//! (listens) and `request_handler.rs` (answers). Who asks are the commands of the program; `carried.rs` says what orchestrators may ask.

pub mod carried;
pub mod place;
pub mod request_handler;
pub mod server;
pub mod show;

use std::net::IpAddr;

use asterism_epochs::{EPOCH_BYTES_MAX, Refusal};
use serde::{Deserialize, Serialize};

use crate::run::entries::EntriesWanted;
use crate::run::flows::FlowFilter;
use crate::run::traffic::Wanted;

/// Maximum bytes of a request, its end included.
pub const REQUEST_BYTES_MAX: usize = 4_096;
/// Maximum bytes of a request that hands an epoch: in JSON each of its characters may take two.
pub const EPOCH_REQUEST_BYTES_MAX: usize = 2 * EPOCH_BYTES_MAX + 512;
/// Maximum bytes of an answer.
pub const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The requests to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// The host's status.
    Status {
        /// With a digest of every object, which reads every entry.
        #[serde(default)]
        digests: bool,
    },
    /// A trace of the next packets.
    Trace {
        /// Number of packets.
        packets: usize,
        /// The packet loop.
        #[serde(default)]
        instance: usize,
        /// Time limit for the packets.
        within_ms: u64,
    },
    /// The entries with a key, or a value.
    StateGet {
        /// A word of the key as text.
        #[serde(default)]
        key: Option<String>,
        /// A word of the value as text.
        #[serde(default)]
        value: Option<String>,
        /// In this object only.
        #[serde(default)]
        object: Option<String>,
        /// The packet loop.
        #[serde(default)]
        instance: usize,
    },
    /// The entries with a key or a value, or flows, in all packet loops.
    Entries(EntriesWanted),
    /// The digests of web caches.
    Digests {
        /// With the caches that hold the object of this URL.
        #[serde(default)]
        url: Option<String>,
    },
    /// A balancer's backends, with the health and number of flows of each.
    Backends,
    /// The sources that functions block.
    Blocked,
    /// To block a source manually.
    Block {
        /// The source.
        source: IpAddr,
        /// The block's duration.
        seconds: u32,
        /// At this function or stage only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
    /// To lift the block of a source.
    Unblock {
        /// The source.
        source: IpAddr,
        /// At this function or stage only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
    /// To end flows that a firewall knows.
    EndFlows {
        /// The flows.
        filter: FlowFilter,
        /// At this function or stage only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
    /// A firewall's rules, with the number of decisions of each.
    Rules,
    /// The cluster's traffic.
    Traffic(Wanted),
    /// To write the host's copy of an object again, for all others.
    Repair {
        /// The object.
        object: String,
        /// These of its parts only.
        #[serde(default)]
        parts: Option<Vec<u8>>,
        /// With removal, by all others, of the entries that this host lacks.
        #[serde(default)]
        remove: bool,
    },
    /// To change to an epoch: [`asterism_epochs::Request`].
    Epoch {
        /// The epoch's cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// The epoch, in the form of its file.
        text: String,
    },
    /// To read no more packets.
    Drain,
    /// To re-read the configuration.
    Reload,
    /// To stop as for SIGTERM.
    Stop,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// The error, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The error as a word, where programs depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Refusal>,
}
