//! Recipients of a message to all: which member is the relay of a site, and whether the relay serves.
//!
//! A relay serves while it proves that it hears: it echoes what was sent to it (Constellation section 4.2 has every message
//! echo timestamps), and the latest echo is no older than the bound. The same is asked of each member behind it. What does
//! not prove it is passed by: its datagrams go straight to it, for a while that doubles with each time, so that a path that comes
//! and goes does not have everybody change over all the time. Who stays silent even so is sent only what keeps alive, until it is
//! heard: a dead member's site costs little until an epoch leaves it out.

use core::time::Duration;

use super::super::Destination;
use super::super::config::Config;
use super::super::replicator::Replicator;
use super::asks::Asking;
use super::{SITES_MAX, SiteId, SiteSet};
use crate::membership::{ByMember, ByPeer, MemberIndex, MemberSet, PeerIndex, PeerSet, Place};
use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

/// A silence is at least so many keep-alives.
const KEEP_ALIVES: u32 = 4;
/// What is for all goes straight to a silent member for so many bounds; later only what keeps alive.
const GRACE_BOUNDS: u32 = 4;
/// The first return to a relay waits for one bound, each later one twice as long as the one before, up to two to this power.
const FALLS_MAX: u32 = 6;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To all others of the own site.
    pub near: bool,
    /// To these relays of other sites, to be handed on.
    pub relays: MemberSet,
    /// Straight to these members of other sites.
    pub direct: MemberSet,
    /// This member is its site's relay, and the datagram crosses with others of the site.
    pub bundled: bool,
}

/// A site as this member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteState {
    /// Which.
    pub site: SiteId,
    /// Members of the epoch in it.
    pub members: usize,
    /// Its relay; `None` while the epoch names nobody in it.
    pub relay: Option<MemberId>,
    /// Whether what is for all goes there by the relay. Of the own site: whether its relay carries this member's
    /// acknowledgements, or is this member.
    pub relayed: bool,
    /// Members of it that are sent straight what is for all; 0 of the own site.
    pub direct: usize,
}

/// The way to another member.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// It proves that it hears what goes by the relay, or as one.
    relayed: bool,
    /// When it stopped to, or when it began to take part.
    fell_at: Time,
    /// When it may be relied on again at the earliest.
    until: Time,
    falls: u32,
}

/// Where members are and how what is for all gets there.
#[derive(Debug)]
pub(in super::super) struct Routes {
    site_of: ByMember<SiteId>,
    pub(super) own: SiteId,
    silent_after: Duration,
    ways: ByPeer<Route>,
    /// The relay of each site.
    relays: [Option<MemberIndex>; SITES_MAX],
    /// The message just written holds acknowledgements only.
    pub(in super::super) light: bool,
    /// The message just taken is to be carried to the other sites.
    pub(in super::super) carry: bool,
    /// What is asked of the own relay, and of this one.
    pub(in super::super) asking: Asking,
}

impl Routes {
    /// `None` without sites.
    pub(in super::super) fn new(config: &Config, names: &ByMember<MemberId>) -> Option<Routes> {
        let sites = config.sites.as_ref()?;
        let site = |&member: &MemberId| sites.site(member).unwrap_or_default();
        Some(Routes {
            site_of: names.iter().map(site).collect(),
            own: site(&config.member),
            silent_after: sites.silent_after.max(config.keep_alive * KEEP_ALIVES),
            ways: ByPeer::filled(Route::default(), names.len().saturating_sub(1)),
            relays: [None; SITES_MAX],
            light: false,
            carry: false,
            asking: Asking::new(sites.cache_bytes_max > 0, names.len().saturating_sub(1)),
        })
    }

    /// When something is to be asked, said or given up.
    pub(in super::super) fn poll_timeout(&self) -> Option<Time> {
        self.asking.poll_timeout()
    }

    pub(super) fn relay(&self, site: SiteId) -> Option<MemberIndex> {
        *self.relays.get(usize::from(site.0))?
    }

    /// Whether what is for all goes to a member by the relay, or as one.
    pub(super) fn serves(&self, peer_index: PeerIndex) -> bool {
        self.ways[peer_index].relayed
    }
}

impl Replicator {
    /// The site of another member; `None` without sites.
    pub(super) fn site_of(&self, peer_index: PeerIndex) -> Option<SiteId> {
        let routes = self.routes.as_ref()?;
        Some(routes.site_of[self.membership.index(peer_index)])
    }

    /// This member's.
    pub(super) fn own_site(&self) -> Option<SiteId> {
        self.routes.as_ref().map(|routes| routes.own)
    }

    /// Whether members have sites.
    #[must_use]
    pub fn has_sites(&self) -> bool {
        self.routes.is_some()
    }

    /// Whether a member is in this member's site. Without sites all are; who is no member is not.
    #[must_use]
    pub fn is_near(&self, member: MemberId) -> bool {
        let Some(index) = self.membership.index_of(member) else {
            return false;
        };
        let routes = self.routes.as_ref();
        routes.is_none_or(|routes| routes.site_of[index] == routes.own)
    }

    /// A member's index: its place among all members in the order of their names.
    #[must_use]
    pub fn index_of(&self, member: MemberId) -> Option<MemberIndex> {
        self.membership.index_of(member)
    }

    /// The member at an index.
    #[must_use]
    pub fn member_at(&self, index: MemberIndex) -> Option<MemberId> {
        self.membership
            .names()
            .as_slice()
            .get(index.number())
            .copied()
    }

    /// Whether the epoch makes this member the relay of its site.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        let routes = self.routes.as_ref();
        routes.is_some_and(|routes| {
            self.membership.am_present() && routes.relay(routes.own) == Some(self.membership.me())
        })
    }

    /// Every site that has a member, in order. Nothing without sites. For status and metrics: costs a scan over all members for
    /// each.
    pub fn sites(&self) -> impl Iterator<Item = SiteState> + '_ {
        self.routes.iter().flat_map(move |routes| {
            let all = (0..SITES_MAX as u8).map(SiteId);
            all.filter(|site| routes.site_of.as_slice().contains(site))
                .map(move |site| self.site_state(routes, site))
        })
    }

    fn site_state(&self, routes: &Routes, site: SiteId) -> SiteState {
        let members = || {
            self.membership
                .places()
                .filter(move |&index| routes.site_of[index] == site)
        };
        let present = || members().filter(|&index| self.membership.is_present(index));
        let relay = routes.relay(site);
        let relayed = if site == routes.own {
            relay.is_some_and(|relay| relay == self.membership.me() || self.serves(routes, relay))
        } else {
            relay.is_some_and(|relay| self.serves(routes, relay))
        };
        let straight = |&index: &MemberIndex| {
            index != self.membership.me() && (!relayed || !self.serves(routes, index))
        };
        SiteState {
            site,
            members: present().count(),
            relay: relay.and_then(|relay| self.member_at(relay)),
            relayed,
            direct: match site == routes.own {
                true => 0,
                false => present().filter(straight).count(),
            },
        }
    }

    fn serves(&self, routes: &Routes, index: MemberIndex) -> bool {
        self.membership
            .peer(index)
            .is_some_and(|peer_index| routes.serves(peer_index))
    }

    /// The recipients of the message that was just written for those of `destination`.
    #[must_use]
    pub fn plan(&self, now: Time, destination: Destination) -> Plan {
        let mut plan = Plan::default();
        let (Some(routes), Destination::All | Destination::Sites(_)) = (&self.routes, destination)
        else {
            return plan;
        };
        let meant = match destination {
            Destination::Sites(sites) => sites,
            _ => SiteSet::ALL,
        };
        let is_relay = self.is_relay();
        let held = routes.light && (is_relay || self.is_carried());
        for (index, &site) in routes.site_of.each() {
            if index == self.membership.me() || !meant.has(site) {
                continue;
            }
            if site == routes.own {
                plan.near = true;
                continue;
            }
            if !self.membership.is_present(index) {
                continue;
            }
            let relay = routes
                .relay(site)
                .filter(|&relay| self.serves(routes, relay));
            match relay {
                Some(relay) if relay == index => {
                    if !held {
                        plan.relays = plan.relays.with(index);
                    }
                    plan.bundled |= held && is_relay;
                }
                Some(_) if self.serves(routes, index) => {}
                _ if routes.light || self.is_worth_it(routes, now, index) => {
                    plan.direct = plan.direct.with(index);
                }
                _ => {}
            }
        }
        plan
    }

    /// The recipients of a bundle of acknowledgements: the relays of other sites and, where one does not serve, or does not serve
    /// somebody behind it, those straight. A member that left its acknowledgements to this relay has a judgement of its own of who serves: it
    /// sends nothing to members that it believes to be reached, so nobody may be left out here.
    #[must_use]
    pub fn bundle_receivers(&self) -> MemberSet {
        let Some(routes) = &self.routes else {
            return MemberSet::EMPTY;
        };
        if mutant::active(Mutant::BundlesToServing) {
            return self.serving_relays();
        }
        let sites = routes.site_of.each();
        let others =
            sites.filter(|&(index, &site)| site != routes.own && self.membership.is_present(index));
        others
            .filter(|&(index, &site)| {
                let relay = routes.relay(site);
                let relay = relay.filter(|&relay| self.serves(routes, relay));
                relay == Some(index) || relay.is_none() || !self.serves(routes, index)
            })
            .map(|(index, _)| index)
            .collect()
    }

    /// The relays of other sites that serve.
    fn serving_relays(&self) -> MemberSet {
        let Some(routes) = &self.routes else {
            return MemberSet::EMPTY;
        };
        let relays = routes.relays.iter().flatten();
        let others = relays.filter(|&&relay| routes.site_of[relay] != routes.own);
        others
            .filter(|&&relay| self.serves(routes, relay))
            .copied()
            .collect()
    }

    /// The sites of these members, if others have members too: who has all that those lack need not hear it again.
    pub(in super::super) fn sites_of(&self, peers: PeerSet) -> Option<SiteSet> {
        let routes = self.routes.as_ref()?;
        let sites = peers.iter().fold(SiteSet::default(), |sites, peer_index| {
            sites.with(routes.site_of[self.membership.index(peer_index)])
        });
        let is_left_out = |index: MemberIndex| {
            self.membership.is_present(index) && !sites.has(routes.site_of[index])
        };
        self.membership
            .places()
            .any(|index| index != self.membership.me() && is_left_out(index))
            .then_some(sites)
    }

    /// The other members of these sites.
    pub(in super::super) fn peers_in(&self, sites: SiteSet) -> PeerSet {
        let Some(routes) = &self.routes else {
            return PeerSet::ALL;
        };
        self.peers
            .places()
            .filter(|&peer_index| sites.has(routes.site_of[self.membership.index(peer_index)]))
            .collect()
    }

    /// Whether the relay of the own site carries this member's acknowledgements to the others.
    pub(in super::super) fn is_carried(&self) -> bool {
        let Some(routes) = &self.routes else {
            return false;
        };
        let relay = routes.relay(routes.own);
        !self.serving_relays().is_empty() && relay.is_some_and(|relay| self.serves(routes, relay))
    }

    /// Whether the message just taken is one that its sender leaves to this member to carry; once.
    pub fn take_carry(&mut self) -> bool {
        let carry = |routes: &mut Routes| core::mem::take(&mut routes.carry);
        self.routes.as_mut().is_some_and(carry)
    }

    /// The planted bug: what a relay has applied, all of its site have.
    pub(in super::super) fn vouched_for(&self, peer_index: PeerIndex) -> PeerSet {
        let Some(routes) = &self.routes else {
            return PeerSet::EMPTY;
        };
        let site = routes.site_of[self.membership.index(peer_index)];
        if site == routes.own || routes.relay(site) != Some(self.membership.index(peer_index)) {
            return PeerSet::EMPTY;
        }
        self.peers_in(SiteSet::default().with(site))
            .without(peer_index)
    }

    /// How old the latest echo of a member may be.
    fn silence_bound(&self, routes: &Routes, peer_index: PeerIndex) -> Duration {
        let round_trip = &self.peers[peer_index].round_trip;
        routes.silent_after + (round_trip.average + round_trip.deviation * 4) * 2
    }

    fn hears(&self, routes: &Routes, now: Time, peer_index: PeerIndex) -> bool {
        let peer = &self.peers[peer_index];
        peer.echoed > Time::ZERO && now.since(peer.echoed) <= self.silence_bound(routes, peer_index)
    }

    /// Whether a member that is passed by its relay is sent all that is for all.
    fn is_worth_it(&self, routes: &Routes, now: Time, index: MemberIndex) -> bool {
        let Some(peer_index) = self.membership.peer(index) else {
            return false;
        };
        let grace = self.silence_bound(routes, peer_index) * GRACE_BOUNDS;
        self.hears(routes, now, peer_index) || now <= routes.ways[peer_index].fell_at + grace
    }

    /// A roster is in force: relays are who it names first, and have to prove themselves.
    pub(in super::super) fn elect_relays(&mut self, now: Time) {
        let Some(mut routes) = self.routes.take() else {
            return;
        };
        routes.asking.begin_epoch();
        let before = core::mem::take(&mut routes.relays);
        for (index, site) in routes.site_of.each() {
            let relay = &mut routes.relays[usize::from(site.0)];
            if relay.is_none()
                && (self.membership.is_present(index) || mutant::active(Mutant::RelayOfTheDead))
            {
                *relay = Some(index);
            }
        }
        for peer_index in self.peers.places() {
            let site = usize::from(routes.site_of[self.membership.index(peer_index)].0);
            let is_new = self.peers[peer_index].echoed == Time::ZERO;
            if is_new || before[site] != routes.relays[site] {
                routes.ways[peer_index] = Route {
                    fell_at: now,
                    ..Route::default()
                };
            }
        }
        self.routes = Some(routes);
    }

    /// Judges who proves to hear.
    pub(in super::super) fn judge_ways(&mut self, now: Time) {
        let Some(mut routes) = self.routes.take() else {
            return;
        };
        for peer_index in self.peers.places() {
            let hears = self.hears(&routes, now, peer_index);
            let bound = self.silence_bound(&routes, peer_index);
            let index = self.membership.index(peer_index);
            let way = &mut routes.ways[peer_index];
            if way.relayed && !hears && !mutant::active(Mutant::RelayOfTheDead) {
                // Good for long: what was before does not count any more.
                if now.since(way.until) > bound * (1 << FALLS_MAX) {
                    way.falls = 0;
                }
                *way = Route {
                    relayed: false,
                    fell_at: now,
                    until: now + bound * (1 << way.falls),
                    falls: (way.falls + 1).min(FALLS_MAX),
                };
                self.counters.relay_fallbacks += u64::from(self.membership.is_present(index));
            } else if !way.relayed && hears && now >= way.until {
                way.relayed = true;
                way.until = now;
            }
        }
        self.routes = Some(routes);
    }
}
