//! Membership: who takes part in a cluster, in which incarnation, and since which epoch. Every protocol asks this module; none of it
//! knows of streams, logs or objects.
//!
//! An epoch's [`Roster`] is handed in and never guessed. `Membership` holds the epoch in force and judges the next one; for each
//! other member it says what changes (`Change`), and the protocols do what follows for their own state: the replicator ends and
//! begins streams (`replicated::epochs`). It also judges whether a message comes from a participant, and knows who joins or leaves.
//!
//! Two subjects are membership and replication at once, and stand with the streams that they need. A newcomer has joined once it has
//! a snapshot and all streams from where they begin for it (`replicated::newcomers`; here is only who joins). An ended incarnation
//! is closed once all participants hold the same of its stream (`replicated::stream_closing`, `closings` and `participants`).
//!
//! Read first: `epoch`, then `roster`. `index` and `order` have the two orders of members, `leaving` the own leave, `frames` the
//! frames of joining, leaving and closing.

mod epoch;
mod frames;
mod index;
mod leaving;
mod order;
mod roster;

pub(crate) use epoch::{Change, Membership};
pub(crate) use frames::{Held, MembershipFrame};
pub(crate) use index::{ByMember, ByPeer, PeerIndex, PeerSet, Place};
pub use index::{MEMBERS_MAX, MemberIndex, MemberSet};
pub use roster::{InstallError, Roster};
