//! The state objects that a function needs to track.

use asterism_function::{Builder, Map, Single, State, objects::TableAct};

use crate::flow::Flow;
use crate::fragments::{Datagram, Fragments};
use crate::half_open::{HalfOpen, HalfOpenAct};
use crate::idle::IdleTimes;
use crate::track::Track;

/// What was seen of each flow.
pub type Flows = Map<Flow, Track>;

/// Builds the table `flows`, of so many at most over the whole cluster.
#[must_use]
pub fn flows(builder: &Builder, flows_max: u32, idle: &IdleTimes) -> Flows {
    builder.table("flows", flows_max, &idle.classes())
}

/// State of a function that tracks: has a table of flows, one of fragments, and perhaps counters of half-open connections. Write it with
/// [`tracks!`](crate::tracks).
pub trait Tracks: State {
    /// The objects, to read.
    fn tracked(&self) -> Tracked<'_>;
    /// The objects, to write.
    fn tracked_act<'b, 'a>(act: &'b mut Self::Act<'a>) -> TrackedAct<'b, 'a>;
}

/// The objects of a function that tracks, to read.
#[derive(Clone, Copy, Debug)]
pub struct Tracked<'s> {
    /// What was seen of each flow.
    pub flows: &'s Flows,
    /// Fragmented datagrams whose first fragment passed.
    pub fragments: &'s Fragments,
    /// Half-open connections; `None`: nobody counts them, and there are no limits.
    pub half_open: Option<HalfOpen<'s>>,
}

/// The same, to write.
#[derive(Debug)]
pub struct TrackedAct<'b, 'a> {
    /// What was seen of each flow.
    pub flows: &'b mut TableAct<'a, Single<Flow>, Track>,
    /// Fragmented datagrams whose first fragment passed.
    pub fragments: &'b mut TableAct<'a, Single<Datagram>, ()>,
    /// Half-open connections.
    pub half_open: Option<HalfOpenAct<'b, 'a>>,
}

/// Says that a state has the fields `flows` and `fragments`: `tracks!(Wire);`. With counters of half-open connections, in the fields
/// `handshakes`, `destinations` and `links`: `tracks!(FirewallState, half_open);`.
#[macro_export]
macro_rules! tracks {
    ($state:ty) => {
        $crate::tracks!(@with $state, read, act, None, None);
    };
    ($state:ty, half_open) => {
        $crate::tracks!(
            @with $state, read, act,
            Some($crate::HalfOpen {
                handshakes: &read.handshakes,
                destinations: &read.destinations,
                links: &read.links,
            }),
            Some($crate::HalfOpenAct {
                handshakes: &mut act.handshakes,
                destinations: &mut act.destinations,
                links: &mut act.links,
            })
        );
    };
    (@with $state:ty, $read:ident, $act:ident, $to_read:expr, $to_write:expr) => {
        impl $crate::Tracks for $state {
            #[inline(always)]
            fn tracked(&self) -> $crate::Tracked<'_> {
                let $read = self;
                $crate::Tracked {
                    flows: &$read.flows,
                    fragments: &$read.fragments,
                    half_open: $to_read,
                }
            }
            #[inline(always)]
            fn tracked_act<'b, 'a>($act: &'b mut Self::Act<'a>) -> $crate::TrackedAct<'b, 'a> {
                $crate::TrackedAct {
                    flows: &mut $act.flows,
                    fragments: &mut $act.fragments,
                    half_open: $to_write,
                }
            }
        }
    };
}
