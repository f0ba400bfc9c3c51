//! The control socket: a Unix socket of mode 0600 on which a running host is asked and reported.
//!
//! A request is one line of JSON, and so is its answer. All are short but the one that hands an epoch, which the orchestrator's crate
//! describes (`epochs.rs`) and sends by itself. `place.rs` is the socket's place in the file system, which one process
//! holds at a time; `server.rs` listens and `request_handler.rs` answers; `client.rs` is how the commands ask, and `commands.rs` those commands. Lines, times
//! and connections are bounded: what comes over the socket is believed no more than what comes over a network.

pub mod audit;
pub mod backends;
pub mod blocked;
pub mod client;
pub mod commands;
pub mod digests;
pub mod flows;
pub mod manual;
pub mod place;
pub mod request_handler;
pub mod rules;
pub mod server;
pub mod show;
pub mod sites;
pub mod traffic;

use std::net::IpAddr;

use asterism_orchestrator::epochs::{EPOCH_BYTES_MAX, Refusal};
use serde::{Deserialize, Serialize};

use crate::run::flows::FlowFilter;
use crate::run::traffic::Wanted;

/// Bytes of a request at most, its end included.
pub const REQUEST_BYTES_MAX: usize = 4_096;
/// The same of one that hands an epoch: in JSON each of its characters may take two.
pub const EPOCH_REQUEST_BYTES_MAX: usize = 2 * EPOCH_BYTES_MAX + 512;
/// Bytes of an answer at most.
pub const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What a host can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How it is.
    Status {
        /// With a digest of every object, which costs a look at every entry.
        #[serde(default)]
        digests: bool,
    },
    /// The next packets, one by one.
    Trace {
        /// How many.
        packets: usize,
        /// Of which packet loop.
        #[serde(default)]
        instance: usize,
        /// How long to wait for them.
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
        /// Of which packet loop.
        #[serde(default)]
        instance: usize,
    },
    /// What is known of web caches.
    Digests {
        /// And which hold the object of this URL.
        #[serde(default)]
        url: Option<String>,
    },
    /// A balancer's backends, who of them lives and how many flows each has.
    Backends,
    /// Whom functions block.
    Blocked,
    /// To block a source manually.
    Block {
        /// The source.
        source: IpAddr,
        /// For how long.
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
        /// Which.
        filter: FlowFilter,
        /// At this function or stage only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
    },
    /// A firewall's rules, and how often each decided.
    Rules,
    /// What the hosts see of traffic.
    Traffic(Wanted),
    /// To write what it has of an object again, for all others.
    Repair {
        /// The object.
        object: String,
        /// These of its parts only.
        #[serde(default)]
        parts: Option<Vec<u8>>,
        /// And to have all others remove what they have of these and this host has not.
        #[serde(default)]
        remove: bool,
    },
    /// To go over to an epoch: [`asterism_orchestrator::epochs::Request`].
    Epoch {
        /// The cluster that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// The epoch, as its file has it.
        text: String,
    },
    /// To read no more packets.
    Drain,
    /// To read its configuration again.
    Reload,
    /// To stop as for SIGTERM.
    Stop,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The same in a word, where a program may go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Refusal>,
}
