//! Limits on half-open TCP connections: by source, by destination, and by link.
//!
//! Each link counts separately: outside sources can be forged in any number, and their connections must not use up the limit
//! of inside hosts. Sources, destinations and links are counted in separate tables: forged sources fill theirs, and the other
//! limits still hold.

use asterism_function::objects::WindowedCountersAct;
use asterism_function::{
    AllAnswers, Builder, Host, Key, Late, Stop, Tally, Window, WindowedCounters,
};

use crate::flow::{Direction, Flow, Link};
use crate::opening::NoRoom;
use crate::track::Track;

/// TCP connections by a host: those that began (0), and those that were completed or refused (1).
pub type ByHost = WindowedCounters<(Host, u8)>;
/// The same by the link on which they began: inside (0, 1) and outside (2, 3).
pub type ByLink = WindowedCounters<u32>;

/// The window of half-open connections: a minute, which is when they are forgotten.
const HANDSHAKES: Window = Window {
    buckets: 4,
    bucket_seconds: 15,
};
/// Counters of links: four, which each of up to 256 instances may come to need first and has to have room for.
const LINK_COUNTERS_MAX: u32 = 1 << 10;

/// What connections are counted under: those that began, and those that were completed or refused.
const BEGUN: u8 = 0;
const SETTLED: u8 = 1;

/// What a link's connections are counted under.
const fn of_link(link: Link, what: u8) -> u32 {
    (link as u32) << 1 | what as u32
}

/// Builds the counters `handshakes`, `destinations` and `links`, which lie in the state in this order. The counts are of hosts at most, over
/// the whole cluster.
#[must_use]
pub fn half_open(
    builder: &Builder,
    sources_max: u32,
    destinations_max: u32,
) -> (ByHost, ByHost, ByLink) {
    // Two counters a host.
    let by_host =
        |name, hosts: u32| builder.windowed_counters(name, hosts.saturating_mul(2), HANDSHAKES);
    (
        by_host("handshakes", sources_max),
        by_host("destinations", destinations_max),
        builder.windowed_counters("links", LINK_COUNTERS_MAX, HANDSHAKES),
    )
}

/// Half-open TCP connections that may have been begun within the last minute, over all instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// By one source.
    pub per_source: u32,
    /// To one destination, over all sources; as many as [`Limits::per_link`] or more: destinations have no limit of their own, and are
    /// not counted.
    pub per_destination: u32,
    /// On one link, over all sources.
    pub per_link: u32,
}

impl Default for Limits {
    /// A destination that is flooded leaves room for connections to others: it has a quarter of its link's. A server whose clients are
    /// 100 ms away gets there with 40,000 new connections a second.
    fn default() -> Self {
        Self {
            per_source: 256,
            per_destination: 4_096,
            per_link: 16_384,
        }
    }
}

impl Limits {
    /// Whether destinations have a limit that another one does not imply.
    const fn bounds_destinations(&self) -> bool {
        self.per_destination < self.per_link
    }
}

/// The counters of a function that bounds half-open connections, to read.
#[derive(Clone, Copy, Debug)]
pub struct HalfOpen<'s> {
    /// By source.
    pub handshakes: &'s ByHost,
    /// By destination; empty without a limit for each.
    pub destinations: &'s ByHost,
    /// By link.
    pub links: &'s ByLink,
}

/// The same, to write.
#[derive(Debug)]
pub struct HalfOpenAct<'b, 'a> {
    /// By source.
    pub handshakes: &'b mut WindowedCountersAct<'a, (Host, u8)>,
    /// By destination.
    pub destinations: &'b mut WindowedCountersAct<'a, (Host, u8)>,
    /// By link.
    pub links: &'b mut WindowedCountersAct<'a, u32>,
}

/// Counters of a connection that begins, or is half open no more: to be counted up.
#[derive(Debug)]
pub(crate) struct Tallies {
    source: Option<Tally<(Host, u8)>>,
    destination: Option<Tally<(Host, u8)>>,
    link: Option<Tally<u32>>,
}

impl Tallies {
    #[inline]
    pub(crate) fn write(&self, act: HalfOpenAct<'_, '_>) {
        if let Some(tally) = &self.source {
            act.handshakes.add(tally, 1);
        }
        if let Some(tally) = &self.link {
            act.links.add(tally, 1);
        }
        if let Some(tally) = &self.destination {
            act.destinations.add(tally, 1);
        }
    }
}

/// What began under a key: the counter, to be counted up, and how many of them are half open. A key for which there is no counter left has
/// none.
struct Begun<K> {
    tally: Option<Tally<K>>,
    half_open: u64,
}

impl<K: Key> Begun<K> {
    #[inline]
    fn of(counters: &WindowedCounters<K>, key: impl Fn(u8) -> K) -> Result<Self, Late> {
        let (tally, settled) = (counters.find(&key(BEGUN)), counters.get(&key(SETTLED))).all()?;
        let begun = tally.as_ref().map_or(0, |tally| tally.total);
        Ok(Self {
            tally,
            half_open: begun.saturating_sub(settled),
        })
    }

    #[inline]
    fn reaches(&self, limit: u32) -> bool {
        self.half_open >= limit.into()
    }
}

impl HalfOpen<'_> {
    /// Half-open connections of both links now, as the limits count them. For the control plane: never late.
    #[must_use]
    pub fn total(&self) -> u64 {
        let each = [Link::Inside, Link::Outside].map(|link| {
            let [begun, settled] =
                [BEGUN, SETTLED].map(|what| self.links.total(&of_link(link, what)));
            begun.saturating_sub(settled)
        });
        each.iter().sum()
    }

    /// The counters of a connection that begins. `Err`: whose limit it would pass. A host for which there is no counter left is bound
    /// by the limit of its link alone.
    #[inline]
    pub(crate) fn begins(
        &self,
        limits: &Limits,
        link: Link,
        (source, destination): (Host, Host),
    ) -> Result<Tallies, Stop<NoRoom>> {
        let to_destination = || Begun::of(self.destinations, |what| (destination, what));
        let (source, link, destination) = (
            Begun::of(self.handshakes, |what| (source, what)),
            Begun::of(self.links, |what| of_link(link, what)),
            limits
                .bounds_destinations()
                .then(to_destination)
                .transpose(),
        )
            .all()?;
        let is_flooded = |to: &Begun<_>| to.reaches(limits.per_destination);
        if source.reaches(limits.per_source) {
            Err(Stop::Refused(NoRoom::Source))
        } else if destination.as_ref().is_some_and(is_flooded) {
            Err(Stop::Refused(NoRoom::Destination))
        } else if link.reaches(limits.per_link) {
            Err(Stop::Refused(NoRoom::Link))
        } else {
            Ok(Tallies {
                source: source.tally,
                destination: destination.and_then(|to| to.tally),
                link: link.tally,
            })
        }
    }

    /// The counters of a connection that is half open no more.
    #[inline]
    pub(crate) fn settles(
        &self,
        limits: &Limits,
        flow: &Flow,
        track: &Track,
    ) -> Result<Tallies, Late> {
        let opener = track.opener();
        let [(source, _), (destination, _)] =
            [opener, opener.reversed()].map(|end: Direction| flow.end(end));
        let find = |destinations: &ByHost| destinations.find(&(destination, SETTLED));
        let (source, link, destination) = (
            self.handshakes.find(&(source, SETTLED)),
            // By where it was begun, not by where this packet comes in: anyone who forges the other end's must not settle for its link.
            self.links.find(&of_link(track.opened_on(), SETTLED)),
            match limits.bounds_destinations() {
                true => find(self.destinations),
                false => Ok(None),
            },
        )
            .all()?;
        Ok(Tallies {
            source,
            destination,
            link,
        })
    }
}
