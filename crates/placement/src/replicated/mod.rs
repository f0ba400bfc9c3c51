//! The `replicated` placement: every member holds a replica, operations travel asynchronously (Constellation section 4.2).
//!
//! A [`Replicator`] is one host's end of it, sans I/O, single-threaded and deterministic: the five verbs of a
//! [`Protocol`](crate::Protocol), and `submit` for the host's own operation groups, which are opaque bytes here.
//!
//! One turn of a driver's loop, in this order, so that `covered_until` is honest:
//!
//! 1. read the clock: `now`;
//! 2. `handle` arrived datagrams; apply delivered groups; report them with `applied`;
//! 3. `submit` every group that the host's instances have committed;
//! 4. `handle_timeout(now)`, then `poll_transmit(now, ..)` until `None`; `poll_event` until `None`;
//! 5. sleep until `poll_timeout` or the next arrival.
//!
//! Read first: [`Replicator`], whose fields are a subject each, in a file of its name; then `wire` (the frames), `transmit`, `check`
//! and `handle`. Below them: `log`, `sent` and `own_stream` (the own stream), `inbound` (the others' streams), `peer`,
//! `applied_reports`, `pending_acknowledgements` and `stability` (rule 14), `lagging` and `snapshot` (rule 15). `epochs` has what a new
//! roster changes for streams (rule 23), `newcomers` how members join (rule 25), `stream_closing` and `participants` the end of an
//! incarnation; who takes part is `crate::membership`. `sites` has the path of datagrams for all members across a wide-area network,
//! `coalescing` the delay of accumulators on a congested path. `audit` is a protocol of its own, beside the replicator.

mod acknowledgement_schedule;
mod announcement;
mod applied_reports;
pub mod audit;
mod check;
mod closings;
mod cluster_time;
mod coalescing;
mod config;
mod confirmed;
mod confirms;
mod counters;
mod deliver;
mod epochs;
mod events;
mod fuzz;
mod handle;
mod inbound;
mod lagging;
mod log;
mod message_writer;
mod newcomers;
mod oldest_unacknowledged;
mod own_stream;
mod pairs;
mod participants;
mod peer;
mod pending_acknowledgements;
mod progress;
mod reachability;
mod repairs;
mod replicator;
mod round_trip;
mod sent;
mod sites;
mod snapshot;
mod snapshots_received;
mod stability;
mod stream_closing;
mod submit;
mod transmit;
mod verbs;
mod wire;

pub use announcement::KEYS_INTERVAL;
pub use cluster_time::{CLOCK_INTERVAL, CLUSTER_TIME_APART_MAX, MemberClock};
pub use coalescing::Window;
pub use config::{
    COALESCING_LIMIT, Config, ConfigError, DURATION_LIMIT, Delivery, GROUP_BYTES_MAX, GROUPS_LIMIT,
    LOG_BYTES_LIMIT, PAYLOAD_BYTES_LIMIT, PAYLOAD_BYTES_MIN,
};
pub use counters::Counters;
pub use deliver::{Deliver, SnapshotEnd, SnapshotKind};
pub use events::{Destination, Event};
pub use fuzz::fuzz_handle;
pub use participants::Ended;
pub use progress::{Lag, MemberProgress, Progress, RoundTrip, Standing};
pub use reachability::Lacking;
pub use replicator::Replicator;
pub use sites::{
    ANSWERS_MAX, CACHE_BYTES_LIMIT, CACHE_DATAGRAMS_MAX, FRAME_BYTES, Frame, FrameKind,
    HANDING_FRAMES_MAX, Plan, Relay, RelayTally, SITES_MAX, SiteId, SiteSet, SiteState,
    SitesConfig, fuzz_frame,
};
pub use submit::{LogCapacity, SnapshotError, SubmitError};
pub use wire::{AcceptedKey, AcceptedKeys, Asked, Placements};
