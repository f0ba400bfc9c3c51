//! The view of a running host from outside its packet loops: `status`, `top`, metrics and the answers of the control socket are made
//! of it.
//!
//! A packet loop publishes its counts (`statistics.rs`) and takes requests (`requests.rs`); the state channel publishes snapshots of
//! itself. Neither waits for a reader: only [`View::ask`] waits, for a packet loop, which answers between two bursts, within a bounded
//! time. The documents are plain data with the text of faults and their cures, for the host that writes them and the commands that
//! read them alike.
//!
//! Knows nothing of how a host is started, reloaded or ended, nor of how its answers travel. Read first: `view.rs`, then
//! `statistics.rs` and `view/status.rs`.

mod asked;
pub mod audit;
pub mod caches;
mod counts;
pub mod dates;
mod differing;
mod documents;
mod error;
pub mod exports;
pub mod flow_text;
pub mod health;
mod names;
mod own;
pub mod phase;
pub mod placements;
pub mod ports;
pub mod requests;
pub mod shared;
pub mod sites;
mod stages;
pub mod statistics;
pub mod store;
mod view;

pub use asked::{Asked, find_function};
pub use differing::differing;
pub use documents::{
    ChannelDocument, ClockDocument, DifferingSetting, EndedDocument, InstanceDocument,
    MissingKeyDocument, ObjectDocument, PeerDocument, PortDocument, StatusDocument, TimeDocument,
    VersionsDocument,
};
pub use error::AskError;
pub use health::HealthDocument;
pub use names::Names;
pub use own::Own;
pub use stages::StageDocument;
pub use view::View;
