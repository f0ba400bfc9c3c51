//! The `replicated` placement: every member holds a replica, operations travel asynchronously (Constellation section 4.2).
//!
//! A [`Replicator`] is one host's end of it, sans I/O, single-threaded and deterministic: five verbs (`handle`,
//! `poll_transmit`, `poll_timeout`, `handle_timeout`, `poll_event`) and `submit` for the host's own operation groups, which
//! are opaque bytes here.
//!
//! One turn of a driver's loop, in this order, so that `covered_until` is honest:
//!
//! 1. read the clock: `now`;
//! 2. `handle` arrived datagrams; apply delivered groups; report them with `applied`;
//! 3. `submit` every group that the host's instances have committed;
//! 4. `handle_timeout(now)`, then `poll_transmit(now, ..)` until `None`; `poll_event` until `None`;
//! 5. sleep until `poll_timeout` or the next arrival.
//!
//! Read first: [`Replicator`], then `wire` (the messages), `transmit` and `handle`. Below them: `log` and `sent` (the own
//! stream), `inbound` (the others' streams), `peer`, `pending_acknowledgements` (rule 14), `lagging` and `snapshot` (rule 15).
//! `roster` has the participants, `sites` the path of datagrams for all members across a wide-area network, `membership` the
//! change to a new roster (rules 23 and 25), `stream_closing` the end of an incarnation, `coalescing` the delay of
//! accumulators on a congested path.

pub mod audit;
mod cluster_time;
mod coalescing;
mod config;
mod counters;
mod handle;
mod inbound;
mod lagging;
mod log;
mod membership;
mod oldest_unacknowledged;
mod participants;
mod peer;
mod pending_acknowledgements;
mod progress;
mod reachability;
mod refused;
mod repairs;
mod replicator;
mod roster;
mod round_trip;
mod sent;
mod sites;
mod snapshot;
mod stream_closing;
mod transmit;
mod wire;

use crate::{Incarnation, MemberId, Time};

pub use cluster_time::{CLOCK_INTERVAL, CLUSTER_TIME_APART_MAX, MemberClock};
pub use coalescing::Window;
pub use config::{
    COALESCING_LIMIT, Config, ConfigError, DURATION_LIMIT, Delivery, GROUP_BYTES_MAX, GROUPS_LIMIT,
    LOG_BYTES_LIMIT, MEMBERS_MAX, PAYLOAD_BYTES_LIMIT, PAYLOAD_BYTES_MIN,
};
pub use counters::Counters;
pub use handle::fuzz_handle;
pub use participants::Ended;
pub use progress::{Lag, MemberProgress, Progress, RoundTrip, Standing};
pub use reachability::Lacking;
pub use refused::Refused;
pub use replicator::Replicator;
pub use roster::{InstallError, Roster};
pub use sites::{
    ANSWERS_MAX, CACHE_BYTES_LIMIT, CACHE_DATAGRAMS_MAX, FRAME_BYTES, Frame, FrameKind,
    HANDING_FRAMES_MAX, Plan, Relay, RelayTally, SITES_MAX, SiteId, SiteSet, SiteState,
    SitesConfig, fuzz_frame,
};
pub use transmit::KEYS_INTERVAL;
pub use wire::{AcceptedKey, AcceptedKeys, Asked, WIRE_VERSION, WIRE_VERSION_TRIAL};

/// Where a replicator puts what arrived. Calls are made in the middle of [`Replicator::handle`]: they should move bytes
/// to where they will be applied, and no more. They cannot fail; what is waiting to be applied is bounded by
/// [`Config::unapplied_groups_max`], because a group counts as waiting until [`Replicator::applied`] covers it.
pub trait Deliver {
    /// A group of `origin`, whole, exactly once per sequence (or never, when a snapshot covers it).
    fn group(&mut self, origin: MemberId, incarnation: Incarnation, sequence: u64, group: &[u8]);

    /// A chunk of the snapshot that `from` sends because this member had fallen off its log. Once each, in no order.
    fn snapshot(&mut self, from: MemberId, scan: u32, chunk: &[u8]) {
        let _ = (from, scan, chunk);
    }

    /// All chunks of this scan were delivered. When they are applied, call [`Replicator::snapshot_applied`].
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        let _ = end;
    }

    /// A reading for this member's [`audit::Auditor`].
    fn audit(&mut self, now: Time, from: MemberId, body: &[u8]) {
        let _ = (now, from, body);
    }

    /// The cluster's time is another one from now on, before what is delivered next: microseconds since 1970 at zero of the clock.
    fn cluster_time(&mut self, at_zero_us: i64) {
        let _ = at_zero_us;
    }

    /// How far a member's stream was sent, for this member's [`audit::Auditor`].
    fn stream(
        &mut self,
        from: MemberId,
        incarnation: Incarnation,
        position: audit::StreamPosition,
    ) {
        let _ = (from, incarnation, position);
    }
}

/// The end of a snapshot, as the member that it serves sees it.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotEnd<'a> {
    /// Who sent it.
    pub from: MemberId,
    /// Which of its scans.
    pub scan: u32,
    /// What it contains.
    pub kind: SnapshotKind,
    /// For each origin the sequence up to which the snapshot covers it.
    pub vector: &'a [(MemberId, u64)],
}

/// What a snapshot contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    /// Every entry and tombstone whose stamp is beyond the lagging's vector.
    Changes,
    /// Everything: what the lagging holds, covered by the snapshot's vector but absent from the snapshot, is removed.
    Full,
}

/// The recipient a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// Every other member.
    All,
    /// One member.
    One(MemberId),
    /// All other members of these sites. Only with [`Config::sites`]; [`Replicator::plan`] says which members it and `All` go to then.
    Sites(SiteSet),
}

/// What a replicator tells its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member was heard for the first time.
    Heard {
        /// Who.
        member: MemberId,
        /// In which incarnation; another one is refused from now on.
        incarnation: Incarnation,
    },
    /// A member fell off the log and must be served from the tables: scan them for entries and tombstones stamped beyond
    /// `beyond`, [`submit_snapshot`](Replicator::submit_snapshot) them, then [`finish_snapshot`](Replicator::finish_snapshot). A
    /// second such event for a member replaces the first: stop that scan, if it still goes on, and begin this one. The
    /// scan must see every own group submitted so far, and all that was reported as applied.
    LaggingReplica {
        /// Who.
        member: MemberId,
        /// The number of this scan.
        scan: u32,
        /// For each origin the sequence up to which that member has it.
        beyond: Vec<(MemberId, u64)>,
    },
    /// An epoch ended this incarnation of a member. What was delivered of it comes before this event: once all instances have
    /// applied that, call [`Replicator::ended_applied`].
    Ended {
        /// Who.
        member: MemberId,
        /// Which incarnation.
        incarnation: Incarnation,
    },
    /// All members of the epoch have the same of an ended incarnation, and all that they committed before that is applied here:
    /// everything of it is stable, and nothing more of it will come.
    Closed {
        /// Who.
        member: MemberId,
        /// Which incarnation.
        incarnation: Incarnation,
    },
    /// A member says that it commits nothing more and leaves; what it wrote is acknowledged as ever. Only an epoch ends it.
    Leaving {
        /// Who.
        member: MemberId,
    },
    /// This member has joined: it holds what the others hold, and may write.
    Ready,
    /// A member that was served by a scan is served from the log again; a scan still under way can stop.
    CaughtUp {
        /// Who.
        member: MemberId,
        /// The scan that ended.
        scan: u32,
    },
}

/// Why a group was not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitError {
    /// The log has no room; wait for acknowledgements ([`Replicator::log_room`]).
    LogFull,
    /// The sequence is not the one after the last: the caller's mistake.
    NotConsecutive {
        /// The sequence that was due.
        expected: u64,
    },
    /// The group is empty or longer than [`GROUP_BYTES_MAX`]: the caller's mistake.
    BadLength,
}

impl core::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SubmitError::LogFull => f.write_str("the log is full"),
            SubmitError::NotConsecutive { expected } => write!(f, "sequence {expected} was due"),
            SubmitError::BadLength => write!(f, "a group has 1 to {GROUP_BYTES_MAX} bytes"),
        }
    }
}

impl core::error::Error for SubmitError {}

/// Why a piece of a snapshot was not accepted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotError {
    /// The window is full; try again when [`Replicator::snapshot_room`] is not zero.
    Busy,
    /// That member is not being served by this scan (it caught up, or a new scan replaced this one): stop scanning.
    NotWalking,
    /// The chunk is empty or longer than [`Replicator::snapshot_chunk_bytes_max`]: the caller's mistake.
    BadLength,
}

impl core::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SnapshotError::Busy => "the snapshot window is full",
            SnapshotError::NotWalking => "no such scan is under way",
            SnapshotError::BadLength => "a chunk is empty or does not fit a message",
        })
    }
}

impl core::error::Error for SnapshotError {}

/// Room left in the log for own groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCapacity {
    /// How many groups fit.
    pub groups: usize,
    /// How many bytes fit; a group needs its length and one byte, or two from 128 bytes on.
    pub bytes: usize,
}
