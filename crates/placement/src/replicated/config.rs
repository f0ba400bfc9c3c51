//! What a replicator is reported at its start: who it is, who the others are, and every bound of the protocol.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use super::sites::{SITES_MAX, SiteId, SitesConfig};
use super::wire::{CLOCK_BYTES, RUNS_MAX};
use crate::envelope::{
    FRAME_BYTES_MAX, HEADER_BYTES_MAX, SEQUENCE_MAX, WIRE_VERSION, WIRE_VERSION_TRIAL, varint_bytes,
};
use crate::membership::MEMBERS_MAX;
use crate::{ClusterId, Epoch, Incarnation, MemberId};

/// The longest operation group, in bytes: a group never spans two datagrams.
pub const GROUP_BYTES_MAX: usize = 1_100;
/// The least [`Config::payload_bytes_max`]: the longest group, alone, with every header at its longest. With what sealing, relays, UDP
/// and IPv6 put around it, it fits the least MTU that a link with IPv6 has (1,280 bytes, RFC 8200 section 5).
pub const PAYLOAD_BYTES_MIN: usize = 1_174;
const _: () = assert!(
    HEADER_BYTES_MAX
        + CLOCK_BYTES
        + FRAME_BYTES_MAX
        + SEQUENCE_BYTES_MAX
        + GROUP_LENGTH_BYTES
        + GROUP_BYTES_MAX
        <= PAYLOAD_BYTES_MIN
);
/// The most bytes of a sequence, and of a group's length.
const SEQUENCE_BYTES_MAX: usize = varint_bytes(SEQUENCE_MAX);
const GROUP_LENGTH_BYTES: usize = varint_bytes(GROUP_BYTES_MAX as u64);
/// The greatest [`Config::payload_bytes_max`].
pub const PAYLOAD_BYTES_LIMIT: usize = 60_000;
/// The greatest [`Config::log_groups_max`], [`Config::reorder_groups_max`] and [`Config::unapplied_groups_max`].
pub const GROUPS_LIMIT: usize = 1 << 24;
/// The greatest [`Config::log_bytes_max`].
pub const LOG_BYTES_LIMIT: usize = 1 << 32;
/// The longest duration in the configuration.
pub const DURATION_LIMIT: Duration = Duration::from_secs(3_600);

/// The greatest [`Config::coalescing_max`].
pub const COALESCING_LIMIT: Duration = Duration::from_millis(100);

/// In which order a receiver is given the groups of one origin. Groups of different origins are never ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Each origin's groups in sequence; what arrives early waits, within [`Config::reorder_groups_max`].
    Ordered,
    /// Each group as it arrives, once.
    Unordered,
}

/// The settings of one [`Replicator`](super::Replicator). [`Config::new`] fills in sane values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster; messages of another are refused.
    pub cluster: ClusterId,
    /// The epoch; messages of another are refused. In the first one all of `members` take part, each in the incarnation that is
    /// heard first, until a [`Roster`](crate::membership::Roster) is installed.
    pub epoch: Epoch,
    /// This member. Bound: one of `members`.
    pub member: MemberId,
    /// This incarnation of this member. Never from a clock.
    pub incarnation: Incarnation,
    /// Whether others may run already and hold what this member does not: then nobody takes part before a
    /// [`Roster`](crate::membership::Roster) is installed, and this member joins a snapshot before it counts
    /// ([`Event::Ready`](super::Event::Ready)). Without, it is one of those who start together with nothing.
    pub joins: bool,
    /// All who may ever take part, this one included, in any order. Bound: 1 to [`MEMBERS_MAX`], each once.
    pub members: Vec<MemberId>,
    /// The longest state message in bytes, before sealing. Sane: what the path's MTU leaves (1,400 at MTU 1500).
    /// Bound: [`PAYLOAD_BYTES_MIN`] to [`PAYLOAD_BYTES_LIMIT`].
    pub payload_bytes_max: usize,
    /// Bytes of own groups kept until all acknowledged them; each group costs its length and one byte, or two from 128
    /// bytes on. Sane: 8 MiB; a second of writes. Bound: 4 x [`GROUP_BYTES_MAX`] to [`LOG_BYTES_LIMIT`]. Reserved at the
    /// start, rounded up to a power of two.
    pub log_bytes_max: usize,
    /// Own groups kept until all acknowledged them. Sane: 262,144. Bound: 4 to [`GROUPS_LIMIT`]. Costs 16 bytes each, for
    /// so many rounded up to a power of two.
    pub log_groups_max: usize,
    /// How far above the received prefix of an origin a group may be and still be kept. What is further is dropped,
    /// counted, and repaired later. Sane: 16,384. Bound: 64 to [`GROUPS_LIMIT`]. The same at all members: a sender
    /// does not retransmit what lies beyond it. Costs, with [`Delivery::Ordered`], 24 bytes each for every origin, and
    /// the bytes of what waits.
    pub reorder_groups_max: usize,
    /// How many groups of an origin may have been delivered and not yet reported as applied. Beyond it groups are
    /// dropped, counted, and repaired later: this bounds the memory of anyone who applies (twice this many wait when a snapshot
    /// is joined meanwhile). Sane: 262,144. Bound: 1 to [`GROUPS_LIMIT`]. The same at all members.
    pub unapplied_groups_max: usize,
    /// The most runs above its gaps that an acknowledgement names of a member; what lies above them is repaired later. Sane:
    /// 64, some 300 bytes of a message while so much is missing. Bound: 1 to 64. The same at all members.
    pub gap_runs_max: usize,
    /// The longest silence: with nothing else to send, the latest acknowledgements go out this often. It also bounds how
    /// old `covered_until` grows in an idle cluster. Sane: 20 ms; while a member joins that is heard, `retransmit_min` if that is less. Bound: 1 us to
    /// [`DURATION_LIMIT`].
    pub keep_alive: Duration,
    /// The shortest retransmission timeout. Sane: 2 ms. Bound: 1 us to `retransmit_max`.
    pub retransmit_min: Duration,
    /// The longest retransmission timeout, backing off included; retransmission never gives up. Sane: 1 s.
    /// Bound: `retransmit_min` to [`DURATION_LIMIT`].
    pub retransmit_max: Duration,
    /// The longest that an acknowledgement waits for company, and the shortest time between two. Sane: 500 us.
    /// Bound: 1 us to [`DURATION_LIMIT`].
    pub acknowledge_delay: Duration,
    /// Acknowledgements wait for no company: they go at once if the last ones went [`Config::acknowledge_delay`] ago. Where packets wait
    /// for them.
    pub acknowledges_promptly: bool,
    /// How long a group may wait for others to fill its message. Sane: zero (sent when next polled).
    /// Bound: to [`DURATION_LIMIT`].
    pub lookahead: Duration,
    /// How long accumulators may keep changes back while the path is congested, so that what changes again meanwhile travels
    /// once; it bounds by how much this makes any member later. Zero: never. Sane: 50 ms. Bound: to [`COALESCING_LIMIT`].
    pub coalescing_max: Duration,
    /// A path is congested when its average round trip is longer than the shortest of late by this and a quarter of that
    /// (Constellation section 4.2). Sane: 2 ms, more than scheduling takes. Bound: 1 us to [`DURATION_LIMIT`].
    pub congested_above: Duration,
    /// A member that was not heard for so long and pins a full log is dropped from it at once, and its snapshot waits until
    /// it is heard again. Sane: 1 s. Bound: 1 us to [`DURATION_LIMIT`].
    pub silent_after: Duration,
    /// In which order groups are delivered here. Each member chooses for itself.
    pub delivery: Delivery,
    /// The newest wire version that this member understands; messages of a later one are refused. Sane:
    /// [`WIRE_VERSION`]. Bound: to [`WIRE_VERSION_TRIAL`], which only tests use.
    pub wire_newest: u8,
    /// Microseconds since 1970 of the cluster's time at zero of the clock here, as this member's date has it: what it takes part with in
    /// agreeing on one. `None`: it takes no part, and its driver has no use for a common time.
    pub cluster_time_at_zero_us: Option<u64>,
    /// Whether this host's own groups reach its other instances only after they were submitted: then the driver reports
    /// with [`applied`](super::Replicator::applied) how far all instances applied the host's *own* stream, acknowledgements
    /// say so, and nothing of it is stable before. Without, a submitted group counts as applied here.
    pub siblings: bool,
    /// Which member is in which site; `None`: all are near each other. The same at all members.
    pub sites: Option<SitesConfig>,
}

impl Config {
    /// A configuration with sane values for everything but names.
    #[must_use]
    pub fn new(
        cluster: ClusterId,
        epoch: Epoch,
        member: MemberId,
        incarnation: Incarnation,
        members: Vec<MemberId>,
    ) -> Config {
        Config {
            cluster,
            epoch,
            member,
            incarnation,
            joins: false,
            members,
            payload_bytes_max: 1_400,
            log_bytes_max: 8 << 20,
            log_groups_max: 262_144,
            reorder_groups_max: 16_384,
            unapplied_groups_max: 262_144,
            gap_runs_max: RUNS_MAX,
            keep_alive: Duration::from_millis(20),
            retransmit_min: Duration::from_millis(2),
            retransmit_max: Duration::from_secs(1),
            acknowledge_delay: Duration::from_micros(500),
            acknowledges_promptly: false,
            lookahead: Duration::ZERO,
            coalescing_max: Duration::from_millis(50),
            congested_above: Duration::from_millis(2),
            silent_after: Duration::from_secs(1),
            delivery: Delivery::Ordered,
            wire_newest: WIRE_VERSION,
            cluster_time_at_zero_us: None,
            siblings: false,
            sites: None,
        }
    }

    /// Every reason why this configuration is refused; empty when it is good.
    #[must_use]
    pub fn errors(&self) -> Vec<ConfigError> {
        let mut errors = self.member_errors();
        let sizes = self.sizes().into_iter();
        errors.extend(sizes.filter_map(|(field, value, bounds)| size_error(field, value, bounds)));
        let durations = self.durations().into_iter();
        errors.extend(
            durations.filter_map(|(field, value, bounds)| duration_error(field, value, bounds)),
        );
        if let Some(sites) = &self.sites {
            errors.extend(sites.errors(&self.members));
        }
        errors
    }

    fn member_errors(&self) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            errors.push(ConfigError::MembersCount(self.members.len()));
        }
        let mut sorted = self.members.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).filter(|pair| pair[0] == pair[1]);
        errors.extend(twice.map(|pair| ConfigError::MemberTwice(pair[0])));
        if !self.members.contains(&self.member) {
            errors.push(ConfigError::NotAMember(self.member));
        }
        errors
    }

    /// The sizes and their bounds.
    #[rustfmt::skip]
    fn sizes(&self) -> [(&'static str, usize, RangeInclusive<usize>); 7] {
        let versions = WIRE_VERSION.into()..=WIRE_VERSION_TRIAL.into();
        [
            ("payload_bytes_max", self.payload_bytes_max, PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_LIMIT),
            ("log_bytes_max", self.log_bytes_max, 4 * GROUP_BYTES_MAX..=LOG_BYTES_LIMIT),
            ("log_groups_max", self.log_groups_max, 4..=GROUPS_LIMIT),
            ("reorder_groups_max", self.reorder_groups_max, 64..=GROUPS_LIMIT),
            ("unapplied_groups_max", self.unapplied_groups_max, 1..=GROUPS_LIMIT),
            ("gap_runs_max", self.gap_runs_max, 1..=RUNS_MAX),
            ("wire_newest", self.wire_newest.into(), versions),
        ]
    }

    /// The durations and their bounds.
    #[rustfmt::skip]
    fn durations(&self) -> [(&'static str, Duration, RangeInclusive<Duration>); 8] {
        let micro = Duration::from_micros(1);
        [
            ("keep_alive", self.keep_alive, micro..=DURATION_LIMIT),
            ("retransmit_min", self.retransmit_min, micro..=DURATION_LIMIT),
            ("retransmit_max", self.retransmit_max, self.retransmit_min..=DURATION_LIMIT),
            ("acknowledge_delay", self.acknowledge_delay, micro..=DURATION_LIMIT),
            ("lookahead", self.lookahead, Duration::ZERO..=DURATION_LIMIT),
            ("coalescing_max", self.coalescing_max, Duration::ZERO..=COALESCING_LIMIT),
            ("congested_above", self.congested_above, micro..=DURATION_LIMIT),
            ("silent_after", self.silent_after, micro..=DURATION_LIMIT),
        ]
    }

    /// Whether this configuration is good.
    ///
    /// # Errors
    /// The first of [`Config::errors`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.errors().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A size out of its bounds.
pub(super) fn size_error(
    field: &'static str,
    value: usize,
    bounds: RangeInclusive<usize>,
) -> Option<ConfigError> {
    let (&least, &most) = (bounds.start(), bounds.end());
    (!bounds.contains(&value)).then_some(ConfigError::Size {
        field,
        value,
        least,
        most,
    })
}

/// A duration out of its bounds.
pub(super) fn duration_error(
    field: &'static str,
    value: Duration,
    bounds: RangeInclusive<Duration>,
) -> Option<ConfigError> {
    let (&least, &most) = (bounds.start(), bounds.end());
    (!bounds.contains(&value)).then_some(ConfigError::Duration {
        field,
        value,
        least,
        most,
    })
}

/// Why a configuration is refused. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No member at all, or more than [`MEMBERS_MAX`].
    MembersCount(usize),
    /// A member is listed twice.
    MemberTwice(MemberId),
    /// This member is not in the list.
    NotAMember(MemberId),
    /// There are sites, and a member is not in exactly one.
    Sites {
        /// Which member.
        member: MemberId,
        /// In how many sites it is listed.
        times: usize,
    },
    /// A site's number is out of its bounds.
    Site {
        /// Whose.
        member: MemberId,
        /// The number.
        site: SiteId,
    },
    /// A size is out of its bounds.
    Size {
        /// The field's name.
        field: &'static str,
        /// What it was set to.
        value: usize,
        /// The least that is accepted.
        least: usize,
        /// The most that is accepted.
        most: usize,
    },
    /// A duration is out of its bounds.
    Duration {
        /// The field's name.
        field: &'static str,
        /// What it was set to.
        value: Duration,
        /// The least that is accepted.
        least: Duration,
        /// The most that is accepted.
        most: Duration,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::MembersCount(count) => {
                write!(f, "{count} members: a cluster has 1 to {MEMBERS_MAX}")
            }
            ConfigError::MemberTwice(member) => write!(f, "member {member} is listed twice"),
            ConfigError::NotAMember(member) => {
                write!(f, "this member, {member}, is not in the member list")
            }
            ConfigError::Sites { member, times } => {
                write!(f, "member {member} is in {times} sites: each is in one")
            }
            ConfigError::Site { member, site } => write!(
                f,
                "member {member} is in site {site}: there are {SITES_MAX}, from s0 on"
            ),
            ConfigError::Size {
                field,
                value,
                least,
                most,
            } => {
                write!(f, "{field} = {value} is outside {least} to {most}")
            }
            ConfigError::Duration {
                field,
                value,
                least,
                most,
            } => {
                write!(f, "{field} = {value:?} is outside {least:?} to {most:?}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::super::sites::CACHE_BYTES_LIMIT;
    use super::*;

    fn good() -> Config {
        Config::new(
            ClusterId(1),
            Epoch(1),
            MemberId(1),
            Incarnation(1),
            vec![MemberId(2), MemberId(1)],
        )
    }

    #[test]
    fn the_sane_values_are_good() {
        assert_eq!(good().errors(), vec![]);
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let mut config = good();
        config.members = vec![MemberId(2), MemberId(2)];
        config.payload_bytes_max = 100;
        config.log_groups_max = usize::MAX;
        config.retransmit_max = Duration::from_micros(1);
        config.keep_alive = Duration::ZERO;
        config.wire_newest = WIRE_VERSION_TRIAL + 1;
        config.coalescing_max = COALESCING_LIMIT + Duration::from_nanos(1);
        let mut sites = SitesConfig::new(vec![(MemberId(1), SiteId(16)), (MemberId(1), SiteId(0))]);
        sites.bundle_delay = DURATION_LIMIT * 2;
        sites.cache_bytes_max = CACHE_BYTES_LIMIT + 1;
        sites.cache_age_max = Duration::ZERO;
        config.sites = Some(sites);
        let errors = config.errors();
        assert_eq!(errors.len(), 14, "{errors:?}");
        assert!(errors.iter().all(|error| !error.to_string().is_empty()));
    }
}
