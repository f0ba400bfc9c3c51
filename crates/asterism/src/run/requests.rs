//! What others ask of an instance, and what it answers.

use std::any::Any;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use asterism_engine::TracedPacket;
use asterism_state::Since;
use asterism_state::audit::LeafSet;

/// Entries that one search finds at most.
pub const FOUND_MAX: usize = 64;

/// What others ask of an instance. A reply that nobody waits for any more is dropped.
#[derive(Debug)]
pub enum Request {
    /// The next packets, looked at one by one.
    Trace {
        /// How many.
        packets: usize,
        /// After that time those that came are all.
        within: Duration,
        /// Where they go once they are there.
        reply: SyncSender<Vec<TracedPacket>>,
    },
    /// The entries with a key.
    Find {
        /// The key as text.
        key: String,
        /// In this object only.
        object: Option<u8>,
        /// Where the answer goes.
        reply: SyncSender<Found>,
    },
    /// To write what it has of some parts of an object anew.
    WriteAgain {
        /// The object.
        object: u8,
        /// Its parts.
        leaves: LeafSet,
        /// How many entries were written.
        reply: SyncSender<u64>,
    },
    /// What the function tells of its state, in parts; the channel closes behind the last.
    Report {
        /// In the function's own words.
        question: u32,
        /// Where the parts go.
        parts: SyncSender<Vec<u8>>,
    },
    /// To go on with another function of the same kind: an `Arc` of it. Packets that are parked are called again with it.
    Replace {
        /// The function.
        function: Box<dyn Any + Send>,
        /// Told once the instance goes on with it.
        taken: SyncSender<()>,
    },
    /// A digest of each object.
    Digests {
        /// Where they go.
        reply: SyncSender<Vec<u64>>,
    },
    /// The whole shared state, in parts; the channel closes behind the last.
    Save {
        /// Where the parts go.
        parts: SyncSender<Vec<u8>>,
    },
    /// Something that the control side tells the function, by a frame.
    Tell {
        /// The frame, as from the port [`CONTROL`](asterism_functions::balancer::CONTROL).
        frame: Box<[u8]>,
    },
    /// A saved state, in parts.
    Restore {
        /// The parts.
        parts: Receiver<Vec<u8>>,
        /// How long it was away.
        since: Since,
        /// How many entries were taken, or why not all.
        reply: SyncSender<Result<u64, String>>,
    },
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Found {
    /// The entries, at most [`FOUND_MAX`].
    pub entries: Vec<FoundEntry>,
    /// Whether there were more.
    pub more: bool,
}

/// An entry as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FoundEntry {
    /// Of which object.
    pub object: &'static str,
    /// What it is found by.
    pub key: String,
    /// What it holds.
    pub value: String,
    /// Which of the object's idle times holds for it.
    pub idle_class: u8,
    /// That time in seconds; 0 is for ever.
    pub idle_s: u32,
    /// Seconds since its last announced use.
    pub unused_s: u32,
    /// How often it was written anew.
    pub generation: u32,
    /// Which member wrote it last, by its number.
    pub member: u16,
    /// That life of it.
    pub incarnation: String,
    /// Under which number.
    pub sequence: u64,
    /// Another entry with the same key is preferred.
    pub alias: bool,
    /// This instance says when it idles out.
    pub ends_here: bool,
}
