//! What a state channel does where members have sites: as a relay it hands on what came for its site and carries its site's
//! acknowledgements away; as an origin it copies what is for all to the relays of other sites.

use asterism_placement::membership::MemberSet;
use asterism_placement::replicated::{
    Destination as ReplicaDestination, FRAME_BYTES, Frame, FrameKind, Relay, RelayTally,
    Replicator, SiteState,
};
use asterism_placement::{MemberId, Time, mutant as placed};
use asterism_secure_channel::{
    Destination as SealDestination, Header, OVERHEAD_BYTES, RELAYED_SOURCES_FROM, Refusal,
};

use super::{Destination, StateChannel};

/// Numbers of sources from here on are members': what came through a relay is answered at its origin's own address.
const FRAMED_FROM: u64 = RELAYED_SOURCES_FROM;

/// Where a handshake goes.
pub(super) fn addressed(destination: SealDestination) -> Destination {
    match destination {
        SealDestination::Member(member) => Destination::Member(member),
        SealDestination::Source(from) if from >= FRAMED_FROM => {
            Destination::Member(MemberId(from as u16))
        }
        SealDestination::Source(from) => Destination::Source(from),
    }
}

/// What a member needs where there are sites.
#[derive(Debug)]
pub(super) struct Sites {
    pub(super) relay: Relay,
    has_near: bool,
    /// Copies of the last datagram that are still to go: in a frame, or as it is.
    relays: MemberSet,
    direct: MemberSet,
    framed: Vec<u8>,
    sealed: Vec<u8>,
}

impl Sites {
    /// `None` without sites.
    pub(super) fn new(replicator: &Replicator) -> Option<Sites> {
        let config = replicator.config();
        let sites = config.sites.as_ref()?;
        let own = config.member;
        let bytes = config.payload_bytes_max + OVERHEAD_BYTES + FRAME_BYTES;
        let mut others = config.members.iter().filter(|&&member| member != own);
        Some(Sites {
            relay: Relay::new(own, config.cluster, bytes, sites),
            has_near: others.any(|&member| replicator.is_near(member)),
            relays: MemberSet::EMPTY,
            direct: MemberSet::EMPTY,
            framed: Vec::with_capacity(bytes),
            sealed: Vec::with_capacity(bytes),
        })
    }
}

impl StateChannel {
    /// What a datagram adds to a message.
    pub(super) fn around_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.sites.as_ref().map_or(0, |_| FRAME_BYTES)
    }

    /// Whether a member is in this host's site; without sites all are.
    pub fn is_near(&self, member: MemberId) -> bool {
        self.protocols.replicator.is_near(member)
    }

    /// Every site as this host sees it; nothing without sites.
    pub fn sites(&self) -> impl Iterator<Item = SiteState> + '_ {
        self.protocols.replicator.sites()
    }

    /// What was counted of sites and relays; all zero without sites.
    pub fn relay_tally(&self) -> RelayTally {
        let sites = self.sites.as_ref();
        sites.map_or_else(RelayTally::default, |sites| *sites.relay.tally())
    }

    pub(super) fn handle_among_sites(
        &mut self,
        now: Time,
        from: u64,
        datagram: &mut [u8],
    ) -> Result<(), Refusal> {
        if Frame::is_frame(datagram) {
            return self.handle_frame(now, datagram);
        }
        if self.has_no_room() {
            return Ok(());
        }
        let is_relay = self.protocols.replicator.is_relay();
        if let Some(sites) = self.sites.as_mut().filter(|_| is_relay) {
            sites.relay.copy(datagram);
        }
        let opened = self.open(now, from, datagram, true)?;
        // Only what came straight from this site: what was carried once is not carried again.
        let carries = self.protocols.replicator.take_carry() && is_relay;
        if let Some(member) =
            opened.filter(|&member| carries && self.protocols.replicator.is_near(member))
            && let Some(index) = self.protocols.replicator.index_of(member)
            && let Some(sites) = &mut self.sites
        {
            sites.relay.keep(now, index);
        }
        if let Some(member) = opened {
            self.answer(now, member);
        }
        Ok(())
    }

    /// Takes what a frame holds. What is to be handed on is, once it opened: only who has a session can have this host send anything,
    /// once for each datagram, since the same one opens but once.
    fn handle_frame(&mut self, now: Time, datagram: &mut [u8]) -> Result<(), Refusal> {
        let Some(sites) = &mut self.sites else {
            return Ok(());
        };
        let config = self.protocols.replicator.config();
        let own = |frame: &Frame| frame.cluster == config.cluster && frame.member != config.member;
        let Some((frame, mut items)) = Frame::read(datagram).filter(|(frame, _)| own(frame)) else {
            sites.relay.tally_mut().frames_refused += 1;
            return Ok(());
        };
        let asked = frame.kind == FrameKind::HandOn || placed::active(placed::Mutant::RelayRepeats);
        sites.relay.tally_mut().frames_received += 1;
        let hands_on = asked && sites.has_near && self.protocols.replicator.is_relay();
        let mut first_refusal = Ok(());
        while let Some((item, rest)) = Frame::next(items) {
            items = rest;
            let Some(header) = Header::decode(item) else {
                continue;
            };
            let is_full = self.has_no_room();
            if let Some(sites) = self.sites.as_mut().filter(|_| hands_on) {
                sites.relay.copy(item);
            } else if is_full {
                continue;
            }
            let from = FRAMED_FROM | u64::from(header.member.0);
            let opened = self.open(now, from, item, !is_full);
            self.protocols.replicator.take_carry();
            let is_near = self.protocols.replicator.is_near(header.member);
            let Some(sites) = &mut self.sites else {
                continue;
            };
            match opened {
                Ok(Some(member)) if hands_on && !is_near => {
                    sites.relay.hand_on();
                    let runs = self.protocols.replicator.brought();
                    sites
                        .relay
                        .cache(now, member, if is_full { &[] } else { runs });
                }
                Ok(_) if hands_on => sites.relay.tally_mut().not_handed_on += 1,
                Ok(Some(_)) if asked && sites.has_near => sites.relay.tally_mut().not_relay += 1,
                Ok(_) => {}
                Err(refusal) => {
                    sites.relay.tally_mut().not_handed_on += u64::from(hands_on);
                    first_refusal = first_refusal.and(Err(refusal));
                }
            }
        }
        if let Some(sites) = &mut self.sites {
            sites.relay.end_frame();
        }
        first_refusal
    }

    /// Sends again what a member of this site just asked for, of what was handed on.
    fn answer(&mut self, now: Time, member: MemberId) {
        while let Some(asked) = self.protocols.replicator.next_asked() {
            let (Some(sites), replicator) = (&mut self.sites, &mut self.protocols.replicator)
            else {
                return;
            };
            let lacks = |rest| replicator.lacks(member, rest);
            sites.relay.answer(now, member, &asked, lacks);
        }
    }

    /// An epoch is in force: what was sealed in another is of no use.
    pub(super) fn forget_kept(&mut self) {
        if let Some(sites) = &mut self.sites {
            sites.relay.forget_kept();
        }
    }

    /// How many datagrams this host keeps, as the relay of its site, for members that lack them, and their bytes.
    pub fn relay_keeps(&self) -> (usize, usize) {
        let sites = self.sites.as_ref();
        sites.map_or((0, 0), |sites| sites.relay.keeps())
    }

    /// Has a datagram that was sealed for all members, or for all of some sites, go where it must; the first way. `None`: it has
    /// nowhere to go now.
    pub(super) fn spread(
        &mut self,
        now: Time,
        destination: ReplicaDestination,
        out: &mut Vec<u8>,
    ) -> Option<Destination> {
        let plan = self.protocols.replicator.plan(now, destination);
        let sites = self.sites.as_mut()?;
        if plan.bundled {
            let own = self
                .protocols
                .replicator
                .index_of(self.protocols.replicator.config().member)?;
            sites.relay.copy(out);
            sites.relay.keep(now, own);
        }
        (sites.relays, sites.direct) = (plan.relays, plan.direct);
        let tally = sites.relay.tally_mut();
        tally.relay_copies += u64::from(plan.relays.len());
        tally.direct_copies += u64::from(plan.direct.len());
        if !plan.relays.is_empty() {
            sites.relay.wrap(out, &mut sites.framed);
        }
        if !plan.direct.is_empty() {
            sites.sealed.clear();
            sites.sealed.extend_from_slice(out);
        }
        if plan.near {
            return Some(Destination::Near);
        }
        self.next_copy(out)
    }

    /// The next datagram that is not a new message: a copy for another site, what is handed on, or kept acknowledgements.
    pub(super) fn next_across(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        self.sites.as_ref()?;
        if let Some(destination) = self.next_copy(out) {
            return Some(destination);
        }
        let sites = self.sites.as_mut()?;
        if sites.relay.poll_handing(out) {
            return Some(Destination::Near);
        }
        if let Some(member) = sites.relay.poll_answer(out) {
            return Some(Destination::Member(member));
        }
        let is_relay = self.protocols.replicator.is_relay();
        if !is_relay {
            sites.relay.leave_office();
        }
        while sites.relay.poll_bundle(now, &mut sites.framed) {
            sites.relays = self.protocols.replicator.bundle_receivers();
            if !sites.relays.is_empty() {
                let copies = u64::from(sites.relays.len());
                sites.relay.tally_mut().relay_copies += copies;
                return self.next_copy(out);
            }
        }
        None
    }

    fn next_copy(&mut self, out: &mut Vec<u8>) -> Option<Destination> {
        let sites = self.sites.as_mut()?;
        let (left, from) = match sites.relays.is_empty() {
            true => (&mut sites.direct, &sites.sealed),
            false => (&mut sites.relays, &sites.framed),
        };
        let index = left.pop()?;
        out.clear();
        out.extend_from_slice(from);
        self.protocols
            .replicator
            .member_at(index)
            .map(Destination::Member)
    }
}
