//! The packet loop and the state channel. Read first: `instance.rs` (the loop), then `channel.rs` (the state channel) and
//! `transport/mod.rs`. Frames and ports are in `asterism-io`.

pub mod branch;
mod channel;
mod cluster;
mod exchange;
mod flow_filter;
mod holding;
mod home;
mod host;
mod instance;
pub mod mutant;
mod parking;
mod store;
mod tally;
pub mod transport;

pub use asterism_secure_channel::hash_seed_mark;
pub use channel::{
    BACKLOG_BYTES_MAX, ChannelEvent, ChannelTally, Destination, SharedObjects, StateChannel,
};
pub use cluster::{Cluster, INBOX_DATAGRAMS_MAX, Member};
pub use holding::{FlowClass, HoldSettings, Overdue};
pub use home::{ChannelHome, HomeEvent};
pub use host::{HostConfig, HostError, Placed, hash_seed, host};
pub use instance::{
    APPLY_GROUPS_PER_TURN, Instance, InstanceParts, MisplacedError, ObjectUse, Removal, Repair,
    Repaired, SAVED_PART_BYTES_MAX, SNAPSHOT_PARTS_PER_TURN, SNAPSHOT_PLACES_PER_TURN, StopReason,
    TRACED_BYTES_MAX, TracedEnd, TracedPacket, TracedStageEnd, TracedStep, check_in_shards,
    check_placed, origin_of, shape_of,
};
pub use parking::{
    PARKED_ABSENT_MAX, PARKED_BEHIND_MAX, PARKED_FLOW_MAX, PARKED_MAX, PARKED_US_MAX,
};
pub use store::{Attempt, Dropped, Store, StoreEvent};
pub use tally::Tally;
