//! Sites: members that are near each other, and the traffic between sites over the wide-area network.
//!
//! Inside a site, datagrams for all members go by multicast. One member of each other site is the *relay*: the first by name
//! that the epoch names, so that all members with the epoch agree without a message. An origin sends a site's relay one copy,
//! in a [`Frame`] that asks to hand it on; the relay opens the datagram, and hands it on unchanged inside its site. Datagrams
//! stay sealed by their origin: only the origin can change one, and an acknowledgement is only ever the end member's own
//! (rule 26).
//!
//! A member that has only acknowledgements to send marks them as *light*; its own relay carries the latest of each member of
//! its site to the other sites in one datagram.
//!
//! A relay keeps the last datagrams that it handed on (`cache`), and a member of its site that lacks one asks it first
//! (`asks`). Datagrams for one member go straight there. So relays can only lose, and their losses are repaired between the
//! two ends. A relay that does not prove its reception, by echoing timestamps, is bypassed (`routes`).
//!
//! Read first: `routes` (the recipients of a datagram), then `frame` (its envelope), `relay` (the state of a relay), `asks`.

mod asks;
mod cache;
mod frame;
mod relay;
mod routes;

use core::fmt;
use core::time::Duration;

use super::config::{ConfigError, DURATION_LIMIT, duration_error, size_error};
use crate::MemberId;

pub(super) use asks::Gap;
pub use cache::CACHE_DATAGRAMS_MAX;
pub use frame::{FRAME_BYTES, Frame, FrameKind, fuzz_frame};
pub use relay::{ANSWERS_MAX, HANDING_FRAMES_MAX, Relay, RelayTally};
pub(super) use routes::Routes;
pub use routes::{Plan, SiteState};

/// The most bytes that a relay keeps.
pub const CACHE_BYTES_LIMIT: usize = 1 << 30;
/// The most sites of a cluster.
pub const SITES_MAX: usize = 16;

/// A site: a number below [`SITES_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u8);

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// Several sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteSet(u16);

impl SiteSet {
    /// All that there can be.
    pub const ALL: SiteSet = SiteSet(u16::MAX);

    /// The set with one more.
    #[must_use]
    pub fn with(self, site: SiteId) -> SiteSet {
        SiteSet(self.0 | 1 << (site.0 % SITES_MAX as u8))
    }

    /// Whether the site is one of them.
    #[must_use]
    pub fn has(self, site: SiteId) -> bool {
        self.0 >> (site.0 % SITES_MAX as u8) & 1 != 0
    }
}

/// Which member is where. The same at all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitesConfig {
    /// The site of each member. Bound: every member once, sites below [`SITES_MAX`].
    pub of: Vec<(MemberId, SiteId)>,
    /// How old, beyond two round trips, the latest echo of a relay or of a member behind one may be before what is for it goes
    /// straight to it. Sane: 300 ms. Less than four keep-alives counts as four keep-alives. Bound: 1 us to [`DURATION_LIMIT`].
    pub silent_after: Duration,
    /// How long a relay keeps acknowledgements of its site for company before they cross. Acknowledgements that cross are
    /// later by so much. Sane: 2 ms. Bound: to [`DURATION_LIMIT`].
    pub bundle_delay: Duration,
    /// Bytes of what it handed on that a relay keeps for members of its site that lack it; zero: none, and this member asks its
    /// relay for nothing. Sane: 4 MiB. Bound: to [`CACHE_BYTES_LIMIT`].
    pub cache_bytes_max: usize,
    /// How long it keeps them at most. Sane: 500 ms, a few keep-alives and some tries. Bound: 1 us to [`DURATION_LIMIT`].
    pub cache_age_max: Duration,
}

impl SitesConfig {
    /// Sane values for the rest.
    #[must_use]
    pub fn new(of: Vec<(MemberId, SiteId)>) -> SitesConfig {
        SitesConfig {
            of,
            silent_after: Duration::from_millis(300),
            bundle_delay: Duration::from_millis(2),
            cache_bytes_max: 4 << 20,
            cache_age_max: Duration::from_millis(500),
        }
    }

    /// The site of a member.
    #[must_use]
    pub fn site(&self, member: MemberId) -> Option<SiteId> {
        let found = self.of.iter().find(|(name, _)| *name == member);
        found.map(|&(_, site)| site)
    }

    /// Every reason why it is refused.
    pub(super) fn errors(&self, members: &[MemberId]) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for &member in members {
            let times = self.of.iter().filter(|(name, _)| *name == member).count();
            if times != 1 {
                errors.push(ConfigError::Sites { member, times });
            }
        }
        for &(member, site) in &self.of {
            if usize::from(site.0) >= SITES_MAX {
                errors.push(ConfigError::Site { member, site });
            }
        }
        let micro = Duration::from_micros(1);
        let bounds = micro..=DURATION_LIMIT;
        #[rustfmt::skip]
        let durations = [
            ("sites.silent_after", self.silent_after, bounds.clone()),
            ("sites.bundle_delay", self.bundle_delay, Duration::ZERO..=DURATION_LIMIT),
            ("sites.cache_age_max", self.cache_age_max, bounds),
        ];
        let durations = durations.into_iter();
        errors.extend(
            durations.filter_map(|(field, value, bounds)| duration_error(field, value, bounds)),
        );
        let bytes = self.cache_bytes_max;
        errors.extend(size_error(
            "sites.cache_bytes_max",
            bytes,
            0..=CACHE_BYTES_LIMIT,
        ));
        errors
    }
}
