//! What a relay holds: frames to hand on in its site, what it handed on of late for members of its site that lack it, and the latest
//! acknowledgements of its site's members that are to cross.

use core::time::Duration;
use std::collections::VecDeque;

use super::super::wire::Asked;
use super::SitesConfig;
use super::cache::Cache;
use super::frame::{Frame, FrameKind};
use crate::membership::{MEMBERS_MAX, MemberIndex, Place};
use crate::mutant::{self, Mutant};
use crate::{ClusterId, MemberId, Time};
use asterism_secure_channel::Header;

/// Frames that wait to be handed on at most. What comes beyond them is counted and goes no further: it is repaired.
pub const HANDING_FRAMES_MAX: usize = 256;
/// Datagrams that wait to be sent again to who asked for them, at most. What was asked for beyond them counts as not kept.
pub const ANSWERS_MAX: usize = 1_024;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a member counted of sites and relays since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RelayTally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl RelayTally {
            /// Each counter as a label and its value.
            pub fn each(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name);)*
            }
        }
    };
}

tally! {
    /// Frames received: from other sites to be relayed, and relayed by the own site's relay.
    frames_received,
    /// Bytes that were no frame, or a frame of another cluster or of this member.
    frames_refused,
    /// Datagrams of other sites that opened here and were relayed within the own site.
    handed_on,
    /// Datagrams not relayed because the epoch names another relay.
    not_relay,
    /// Datagrams not relayed because they did not open (replays among them), came from the own site, or were
    /// handshakes.
    not_handed_on,
    /// Datagrams not relayed because too many waited.
    handing_full,
    /// Acknowledgements of the own site's members that were held for the other sites.
    acknowledgements_kept,
    /// Held acknowledgements that a later one of the same member replaced before they were sent.
    acknowledgements_superseded,
    /// Acknowledgements that were not held because a newer one of the same member was.
    acknowledgements_outdated,
    /// Datagrams made of held acknowledgements, each for all other sites.
    bundles,
    /// Relayed datagrams that were kept for members of the own site that lack them.
    cached,
    /// Kept datagrams that were evicted for want of room before they were too old.
    cache_evicted,
    /// Runs of groups that members of the own site requested.
    asked,
    /// Requested runs that were not here, or not in full; the requester was informed.
    asked_lacking,
    /// Datagrams sent again, each to a requesting member of the own site.
    answered,
    /// Datagrams that were found but not sent because too many waited.
    answers_full,
    /// Copies sent to relays of other sites; for bundles also copies sent directly because a relay was silent.
    relay_copies,
    /// Copies sent directly to members of other sites because a relay, or the member behind it, was silent.
    direct_copies,
}

/// The latest acknowledgements of a member.
#[derive(Debug, Default)]
struct Slot {
    datagram: Vec<u8>,
    waits: bool,
}

/// A relay's buffers. Sans I/O. Memory: [`HANDING_FRAMES_MAX`] datagrams, one for each member, and what
/// [`SitesConfig::cache_bytes_max`] says, taken when the first datagram is kept.
#[derive(Debug)]
pub struct Relay {
    frame: Frame,
    datagram_bytes_max: usize,
    bundle_delay: Duration,
    handing: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// A copy of what is being opened, and whether there is one.
    candidate: Vec<u8>,
    /// The frame that what opened is added to.
    building: Vec<u8>,
    slots: Box<[Slot]>,
    bundle_at: Option<Time>,
    cache: Cache,
    /// Numbers of datagrams that are kept, to who asked for them.
    answers: VecDeque<(MemberId, u64)>,
    tally: RelayTally,
}

impl Relay {
    /// The buffers of this member, for datagrams of at most so many bytes of UDP payload, frames included.
    #[must_use]
    pub fn new(
        member: MemberId,
        cluster: ClusterId,
        datagram_bytes_max: usize,
        sites: &SitesConfig,
    ) -> Relay {
        Relay {
            frame: Frame {
                kind: FrameKind::HandedOn,
                member,
                cluster,
            },
            datagram_bytes_max,
            bundle_delay: sites.bundle_delay,
            cache: Cache::new(sites.cache_bytes_max, sites.cache_age_max),
            answers: VecDeque::new(),
            handing: VecDeque::with_capacity(HANDING_FRAMES_MAX),
            spare: Vec::new(),
            candidate: Vec::with_capacity(datagram_bytes_max),
            building: Vec::with_capacity(datagram_bytes_max),
            slots: (0..MEMBERS_MAX).map(|_| Slot::default()).collect(),
            bundle_at: None,
            tally: RelayTally::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> &RelayTally {
        &self.tally
    }

    /// Datagrams are at most so long from now on.
    pub fn set_datagram_bytes(&mut self, bytes: usize) {
        self.datagram_bytes_max = bytes;
    }

    /// What was counted, to count more.
    pub fn tally_mut(&mut self) -> &mut RelayTally {
        &mut self.tally
    }

    /// Keeps a copy of a datagram that is about to be opened in place.
    pub fn copy(&mut self, datagram: &[u8]) {
        self.candidate.clear();
        self.candidate.extend_from_slice(datagram);
    }

    /// What was copied opened: it goes on inside the site.
    pub fn hand_on(&mut self) {
        if Frame::is_empty(&self.building) {
            self.frame.begin(&mut self.building);
        } else if !Frame::fits(
            &self.building,
            self.candidate.len(),
            self.datagram_bytes_max,
        ) {
            self.end_frame();
            self.frame.begin(&mut self.building);
        }
        Frame::push(&mut self.building, &self.candidate);
        self.tally.handed_on += 1;
    }

    /// What was opened since the last call waits to be sent.
    pub fn end_frame(&mut self) {
        if Frame::is_empty(&self.building) {
            return;
        }
        if self.handing.len() == HANDING_FRAMES_MAX {
            self.tally.handing_full += 1;
        } else {
            let spare = self.spare.pop().unwrap_or_default();
            self.handing
                .push_back(core::mem::replace(&mut self.building, spare));
        }
        self.building.clear();
    }

    /// The next frame for the own site, in `out`.
    pub fn poll_handing(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(mut frame) = self.handing.pop_front() else {
            return false;
        };
        core::mem::swap(out, &mut frame);
        self.spare.push(frame);
        true
    }

    /// What was copied opened, and holds nothing but acknowledgements of the member at that index: the newest of each member crosses, with
    /// those of others.
    pub fn keep(&mut self, now: Time, index: MemberIndex) {
        let Some(slot) = self.slots.get_mut(index.number()) else {
            return;
        };
        let newest = slot.datagram.as_slice();
        if slot.waits
            && is_older(&self.candidate, newest)
            && !mutant::active(Mutant::OlderAcknowledgementCrosses)
        {
            self.tally.acknowledgements_outdated += 1;
            return;
        }
        self.tally.acknowledgements_kept += 1;
        self.tally.acknowledgements_superseded += u64::from(slot.waits);
        core::mem::swap(&mut slot.datagram, &mut self.candidate);
        slot.waits = true;
        self.bundle_at.get_or_insert(now + self.bundle_delay);
    }

    /// Forgets what was kept: another member is the relay now.
    pub fn leave_office(&mut self) {
        self.forget_kept();
        self.slots.iter_mut().for_each(|slot| slot.waits = false);
        self.bundle_at = None;
    }

    /// When [`Relay::poll_bundle`] has something.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.handing.is_empty() && self.answers.is_empty() {
            self.bundle_at
        } else {
            Some(Time::ZERO)
        }
    }

    /// What was copied was handed on: it is kept for members that lack these groups of its origin.
    pub fn cache(&mut self, now: Time, origin: MemberId, runs: &[(u64, u64)]) {
        let (kept, evicted) = self.cache.keep(now, origin, runs, &self.candidate);
        self.tally.cached += u64::from(kept);
        self.tally.cache_evicted += evicted;
    }

    /// A member of the own site asks for groups: what is kept of them is sent to it again, and `lacks` is informed what is not.
    pub fn answer(&mut self, now: Time, member: MemberId, asked: &Asked, lacks: impl FnMut(Asked)) {
        let (answers, tally) = (&mut self.answers, &mut self.tally);
        tally.asked += 1;
        let mut is_lacking = false;
        let mut lacks = lacks;
        let visit = |number| {
            if answers.contains(&(member, number)) {
                return true;
            }
            let has_room = answers.len() < ANSWERS_MAX;
            tally.answers_full += u64::from(!has_room);
            if has_room {
                answers.push_back((member, number));
            }
            has_room
        };
        self.cache.find(now, asked, visit, |rest| {
            is_lacking = true;
            lacks(rest);
        });
        self.tally.asked_lacking += u64::from(is_lacking);
    }

    /// The next frame for a member that asked, in `out`: as many of its datagrams as fit.
    pub fn poll_answer(&mut self, out: &mut Vec<u8>) -> Option<MemberId> {
        let &(member, _) = self.answers.front()?;
        self.frame.begin(out);
        while let Some(&(of, number)) = self.answers.front() {
            let Some(datagram) = self.cache.get(number) else {
                self.answers.pop_front();
                continue;
            };
            let fits = Frame::fits(out, datagram.len(), self.datagram_bytes_max);
            if of != member || !(fits || Frame::is_empty(out)) {
                break;
            }
            Frame::push(out, datagram);
            self.tally.answered += 1;
            self.answers.pop_front();
        }
        (!Frame::is_empty(out)).then_some(member)
    }

    /// How many datagrams are kept for members of the own site, and their bytes; of those that are too old some may still count.
    #[must_use]
    pub fn keeps(&self) -> (usize, usize) {
        self.cache.holds()
    }

    /// Forgets what was handed on: what is of another epoch nobody takes.
    pub fn forget_kept(&mut self) {
        self.cache.clear();
        self.answers.clear();
    }

    /// The next frame of kept acknowledgements, in `out`, for the relays of all other sites.
    pub fn poll_bundle(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if self.bundle_at.is_none_or(|at| at > now) {
            return false;
        }
        let frame = Frame {
            kind: FrameKind::HandOn,
            ..self.frame
        };
        frame.begin(out);
        for slot in self.slots.iter_mut().filter(|slot| slot.waits) {
            if Frame::is_empty(out)
                || Frame::fits(out, slot.datagram.len(), self.datagram_bytes_max)
            {
                Frame::push(out, &slot.datagram);
                slot.waits = false;
            }
        }
        if Frame::is_empty(out) {
            self.bundle_at = None;
            return false;
        }
        self.tally.bundles += 1;
        true
    }

    /// Wraps a datagram for relays of other sites.
    pub fn wrap(&self, datagram: &[u8], out: &mut Vec<u8>) {
        let frame = Frame {
            kind: FrameKind::HandOn,
            ..self.frame
        };
        frame.begin(out);
        Frame::push(out, datagram);
    }
}

/// Whether a sealed datagram left its sender before another of the same session.
fn is_older(datagram: &[u8], than: &[u8]) -> bool {
    let (Some(one), Some(other)) = (Header::decode(datagram), Header::decode(than)) else {
        return false;
    };
    let same = (one.member, one.incarnation, one.session)
        == (other.member, other.incarnation, other.session);
    same && one.counter < other.counter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay() -> Relay {
        let sites = SitesConfig::new(Vec::new());
        Relay::new(MemberId(1), ClusterId(9), 200, &sites)
    }

    fn items(frame: &[u8]) -> Vec<Vec<u8>> {
        let mut bytes = frame.to_vec();
        let (_, mut rest) = Frame::read(&mut bytes).unwrap();
        let mut items = Vec::new();
        while let Some((item, more)) = Frame::next(rest) {
            items.push(item.to_vec());
            rest = more;
        }
        items
    }

    #[test]
    fn only_the_latest_acknowledgements_of_a_member_cross_and_only_when_due() {
        let mut relay = relay();
        let mut out = Vec::new();
        let at = |micros| Time::from_micros(micros);
        for (micros, index, fill) in [(0, 3, 1), (500, 4, 2), (900, 3, 3)] {
            relay.copy(&[fill; 60]);
            relay.keep(at(micros), MemberIndex::at(index));
        }
        assert!(!relay.poll_bundle(at(1_999), &mut out));
        assert_eq!(relay.poll_timeout(), Some(at(2_000)));
        assert!(relay.poll_bundle(at(2_000), &mut out));
        assert_eq!(items(&out), [vec![3; 60], vec![2; 60]]);
        assert!(!relay.poll_bundle(at(2_000), &mut out));
        assert_eq!(relay.poll_timeout(), None);
        assert_eq!(relay.tally().acknowledgements_superseded, 1);
        assert_eq!(relay.tally().bundles, 1);
    }

    #[test]
    fn bundles_and_frames_keep_to_a_datagrams_length() {
        let mut relay = relay();
        let mut out = Vec::new();
        for index in 0..5 {
            relay.copy(&[index as u8; 80]);
            relay.keep(Time::ZERO, MemberIndex::at(index));
            relay.hand_on_a_copy(&[index as u8; 80]);
        }
        relay.end_frame();
        let now = Time::from_micros(2_000);
        let mut bundles = Vec::new();
        while relay.poll_bundle(now, &mut out) {
            assert!(out.len() <= 200);
            bundles.extend(items(&out));
        }
        assert_eq!((bundles.len(), relay.tally().bundles), (5, 3));
        let mut handed = 0;
        while relay.poll_handing(&mut out) {
            assert!(out.len() <= 200);
            handed += items(&out).len();
        }
        assert_eq!(handed, 5);
    }

    #[test]
    fn what_waits_is_bounded_and_counted() {
        let mut relay = relay();
        for _ in 0..HANDING_FRAMES_MAX + 7 {
            relay.hand_on_a_copy(&[1; 60]);
            relay.end_frame();
        }
        assert_eq!(relay.tally().handing_full, 7);
        let mut out = Vec::new();
        let mut count = 0;
        while relay.poll_handing(&mut out) {
            count += 1;
        }
        assert_eq!(count, HANDING_FRAMES_MAX);
        relay.copy(&[1; 60]);
        relay.keep(Time::ZERO, MemberIndex::at(0));
        relay.leave_office();
        assert!(!relay.poll_bundle(Time::MAX, &mut out), "another's office");
    }

    #[test]
    fn answers_go_to_who_asked_each_once_and_are_bounded() {
        let mut relay = relay();
        let now = Time::ZERO;
        for number in 1..=ANSWERS_MAX as u64 + 5 {
            relay.copy(&[number as u8; 60]);
            relay.cache(now, MemberId(2), &[(number, number)]);
        }
        let ask = |relay: &mut Relay, member, first, last| {
            let asked = Asked {
                origin: MemberId(2),
                first,
                last,
            };
            let mut lacking = Vec::new();
            relay.answer(now, member, &asked, |rest| {
                lacking.push((rest.first, rest.last))
            });
            lacking
        };
        assert!(ask(&mut relay, MemberId(5), 1, 3).is_empty());
        assert!(
            ask(&mut relay, MemberId(5), 2, 3).is_empty(),
            "they wait already"
        );
        assert_eq!(relay.poll_timeout(), Some(Time::ZERO));
        let mut out = Vec::new();
        let mut answers = Vec::new();
        while let Some(member) = relay.poll_answer(&mut out) {
            assert!(member == MemberId(5) && out.len() <= 200 && out[1] == 2);
            answers.extend(items(&out));
        }
        assert_eq!(answers, [vec![3; 60], vec![2; 60], vec![1; 60]]);
        assert_eq!(relay.poll_timeout(), None);
        let all = ANSWERS_MAX as u64 + 5;
        assert_eq!(ask(&mut relay, MemberId(6), 1, all), [(1, 5)]);
        assert_eq!(
            (relay.tally().answers_full, relay.tally().asked_lacking),
            (5, 1)
        );
        relay.forget_kept();
        assert!(relay.poll_answer(&mut out).is_none() && relay.keeps() == (0, 0));
    }

    impl Relay {
        fn hand_on_a_copy(&mut self, datagram: &[u8]) {
            self.copy(datagram);
            self.hand_on();
        }
    }
}
