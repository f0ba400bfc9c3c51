//! What a relay holds: frames to hand on in its site, and the latest acknowledgements of its site's members that are to cross.

use core::time::Duration;
use std::collections::VecDeque;

use super::super::config::MEMBERS_MAX;
use super::frame::{Frame, FrameKind};
use crate::{ClusterId, MemberId, Time};

/// Frames that wait to be handed on at most. What comes beyond them is counted and goes no further: it is repaired.
pub const HANDING_FRAMES_MAX: usize = 256;

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
    /// Frames received: from other sites to be handed on, and handed on by the own relay.
    frames_received,
    /// Bytes that were no frame, or a frame of another cluster or of this member.
    frames_refused,
    /// Datagrams of other sites that opened here and were handed on inside the own site.
    handed_on,
    /// Datagrams that this member was asked to hand on and did not, because the epoch names another relay.
    not_in_office,
    /// Datagrams that this member was asked to hand on and did not: they did not open (replays among them), came from its own site, or
    /// were handshakes.
    not_handed_on,
    /// Datagrams that were not handed on because too many waited.
    handing_full,
    /// Acknowledgements of the own site's members that were kept to cross.
    acknowledgements_kept,
    /// Of those, replaced by a later one of the same member before they crossed.
    acknowledgements_superseded,
    /// Datagrams made of them, each for all other sites.
    bundles,
    /// Copies sent to relays of other sites, to be handed on there.
    relay_copies,
    /// Copies sent straight to members of other sites because a relay, or the member behind it, was silent.
    direct_copies,
}

/// The latest acknowledgements of a member.
#[derive(Debug, Default)]
struct Slot {
    datagram: Vec<u8>,
    waits: bool,
}

/// A relay's buffers. Sans I/O. Memory: [`HANDING_FRAMES_MAX`] datagrams, and one for each member.
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
    tally: RelayTally,
}

impl Relay {
    /// The buffers of this member, for datagrams of at most so many bytes of UDP payload, frames included.
    #[must_use]
    pub fn new(
        member: MemberId,
        cluster: ClusterId,
        datagram_bytes_max: usize,
        bundle_delay: Duration,
    ) -> Relay {
        Relay {
            frame: Frame {
                kind: FrameKind::HandedOn,
                member,
                cluster,
            },
            datagram_bytes_max,
            bundle_delay,
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

    /// What was copied opened, and holds nothing but acknowledgements of the member at that index: it crosses with others, unless a
    /// later one comes first.
    pub fn keep(&mut self, now: Time, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        self.tally.acknowledgements_kept += 1;
        self.tally.acknowledgements_superseded += u64::from(slot.waits);
        core::mem::swap(&mut slot.datagram, &mut self.candidate);
        slot.waits = true;
        self.bundle_at.get_or_insert(now + self.bundle_delay);
    }

    /// Forgets what was kept: another member is the relay now.
    pub fn leave_office(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.waits = false);
        self.bundle_at = None;
    }

    /// When [`Relay::poll_bundle`] has something.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.handing.is_empty() {
            self.bundle_at
        } else {
            Some(Time::ZERO)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn relay() -> Relay {
        Relay::new(MemberId(1), ClusterId(9), 200, Duration::from_millis(2))
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
            relay.keep(at(micros), index);
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
            relay.keep(Time::ZERO, index);
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
        relay.keep(Time::ZERO, 0);
        relay.leave_office();
        assert!(!relay.poll_bundle(Time::MAX, &mut out), "another's office");
    }

    impl Relay {
        fn hand_on_a_copy(&mut self, datagram: &[u8]) {
            self.copy(datagram);
            self.hand_on();
        }
    }
}
