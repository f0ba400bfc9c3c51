//! What this member does as a survivor of lives that ended (rule 23); `closing` judges, this room speaks and walks.

use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId, Time};

use super::Event;
use super::closing::{CLOSINGS_MAX, Closing, Holding, Survivor};
use super::replicator::Replicator;
use super::wire::{Held, Membership};

/// Bytes of a holding in a frame without the members in it, at the most: member, incarnation, prefix, flags, count.
const HELD_BYTES_MAX: usize = 3 + 8 + 9 + 1 + 1;
/// Bytes of a member's name in a frame, at the most.
const NAME_BYTES_MAX: usize = 3;

/// A life that an epoch ended, for people to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose.
    pub member: MemberId,
    /// Which.
    pub incarnation: Incarnation,
    /// This member has all that anybody has of it.
    pub whole: bool,
    /// So have all members, and it is stable.
    pub closed: bool,
    /// Until it is closed, the first member by name that has not reported.
    pub waits_for: Option<MemberId>,
}

impl Replicator {
    /// The lives that epochs ended, oldest first, as many as are remembered.
    pub fn ended(&self) -> impl Iterator<Item = Ended> + '_ {
        self.closings.iter().map(|closing| Ended {
            member: closing.member,
            incarnation: closing.incarnation,
            whole: closing.whole,
            closed: closing.closed,
            waits_for: self.waits_for(closing),
        })
    }

    fn waits_for(&self, closing: &Closing) -> Option<MemberId> {
        let mut others = self.survivors().into_iter().filter(|_| !closing.closed);
        let silent = others.find(|other| closing.reported(other.index).is_none())?;
        self.members.get(silent.index).copied()
    }

    /// The other members of the epoch.
    fn survivors(&self) -> Vec<Survivor> {
        (0..self.peers.len())
            .filter(|&seat| self.present[self.index(seat)])
            .map(|seat| Survivor {
                index: self.index(seat),
                joining: self.peers[seat].joining,
                applied: self.peers[seat].inbound.applied(),
            })
            .collect()
    }

    /// Remembers an ended life, of which this much is or will be applied here.
    pub(super) fn remember_ended(
        &mut self,
        member: MemberId,
        incarnation: Incarnation,
        (prefix, loose): (u64, bool),
    ) {
        if self.closings.len() >= CLOSINGS_MAX {
            let oldest = self.closings.iter().position(|closing| closing.closed);
            self.closings.remove(oldest.unwrap_or(0));
        }
        let own = Holding {
            prefix,
            loose,
            of: 1 << self.me,
        };
        let closing = Closing::new(member, incarnation, own, self.members.len());
        self.closings.push(closing);
        self.frozen = !mutant::active(Mutant::StableWithoutTheDead);
    }

    /// All instances of this host have applied what was delivered of an ended life.
    pub fn ended_applied(&mut self, now: Time, member: MemberId, incarnation: Incarnation) {
        let closing = self
            .closings
            .iter_mut()
            .find(|closing| closing.is(member, incarnation));
        if let Some(closing) = closing {
            closing.applied = true;
            self.want_acknowledge(now, true);
            self.judge_members(now);
        }
    }

    /// The place of an ended life in the list; it is remembered now if it never was heard here. `None` if it lives.
    fn closing_of(&mut self, member: MemberId, incarnation: Incarnation) -> Option<usize> {
        let known = self
            .closings
            .iter()
            .position(|closing| closing.is(member, incarnation));
        if known.is_some() {
            return known;
        }
        let index = self.members.binary_search(&member).ok()?;
        let alive = self.progress.members[index].incarnation;
        if self.present[index] && alive.is_none_or(|alive| alive == incarnation) {
            return None;
        }
        self.remember_ended(member, incarnation, (0, false));
        let place = self.closings.len() - 1;
        // There is nothing of it to apply.
        self.closings[place].applied = true;
        Some(place)
    }

    /// What a member holds of an ended life.
    pub(super) fn take_held(&mut self, seat: usize, head: u64, held: &Held, asks: bool) {
        let index = self.index(seat);
        let of = self.names_bits(&held.of);
        let Some(place) = self.closing_of(held.member, held.incarnation) else {
            self.counters.frames_inert += 1;
            return;
        };
        let closing = &mut self.closings[place];
        closing.asked |= asks;
        let holding = Holding {
            prefix: held.prefix,
            loose: held.loose,
            of: of | 1 << index,
        };
        closing.report(index, holding, head);
        if held.settled && self.ready {
            closing.settle();
        }
    }

    /// An image contains these holdings.
    pub(super) fn join_held(&mut self, all: &[Held]) {
        for held in all {
            let of = self.names_bits(&held.of);
            if let Some(place) = self.closing_of(held.member, held.incarnation) {
                self.closings[place].join(of);
                if held.settled {
                    self.closings[place].settle();
                }
            }
        }
    }

    /// A bit for each of these members, by index.
    fn names_bits(&self, names: &[MemberId]) -> u64 {
        let places = names
            .iter()
            .flat_map(|name| self.members.binary_search(name));
        places.fold(0, |bits, index| bits | 1 << index)
    }

    fn held(&self, closing: &Closing) -> Held {
        let names = self.members.iter().enumerate();
        let contained = names.filter(|(index, _)| closing.own.of >> index & 1 != 0);
        Held {
            member: closing.member,
            incarnation: closing.incarnation,
            prefix: closing.own.prefix,
            loose: closing.own.loose,
            settled: closing.settled,
            of: contained.map(|(_, &name)| name).collect(),
        }
    }

    /// What this member holds of ended lives, all of which an image that begins now has.
    pub(super) fn held_now(&self) -> Vec<Held> {
        let applied = self.closings.iter().filter(|closing| closing.applied);
        applied.map(|closing| self.held(closing)).collect()
    }

    /// Judges every ended life, and begins the walks that others need of this member.
    pub(super) fn judge_closings(&mut self, now: Time) {
        if !self.ready {
            return;
        }
        let survivors = self.survivors();
        let mut served = 0u64;
        for place in 0..self.closings.len() {
            let closing = &mut self.closings[place];
            if closing.closed {
                continue;
            }
            let alone = mutant::active(Mutant::ClosesAlone) && closing.applied;
            if alone {
                (closing.whole, closing.closed) = (true, true);
            } else {
                for index in closing.serve(self.me, &survivors) {
                    served |= 1 << index;
                }
            }
            let mut changed = closing.becomes_whole(self.me, &survivors);
            if alone || closing.closes(self.me, &survivors) {
                changed = true;
                self.counters.lives_closed += 1;
                let (member, incarnation) = (closing.member, closing.incarnation);
                let event = Event::Closed {
                    member,
                    incarnation,
                };
                self.push_event(member, event);
                self.recount();
            }
            if changed {
                self.want_acknowledge(now, true);
            }
        }
        for seat in 0..self.peers.len() {
            if served >> self.index(seat) & 1 != 0 {
                self.begin_image(seat);
            }
        }
    }

    /// Appends what this member holds of ended lives, as far as it fits into so many bytes of a message.
    pub(super) fn write_closings(&mut self, bytes_max: usize, buffer: &mut Vec<u8>) {
        let count = self.closings.len();
        for step in 0..count {
            let place = (self.closing_rotation + step) % count;
            let asked = core::mem::take(&mut self.closings[place].asked);
            let closing = &self.closings[place];
            let asks = !closing.closed;
            if !closing.applied || !(asks || asked) {
                continue;
            }
            let held = self.held(closing);
            let frame = if asks {
                Membership::Close { held }
            } else {
                Membership::JoinVector { held: vec![held] }
            };
            if !self.write_member_frame(&frame, bytes_max, buffer) {
                self.closings[place].asked = asked;
                self.closing_rotation = place;
                break;
            }
        }
    }

    /// A walk for that member came to nothing.
    pub(super) fn forget_walk(&mut self, seat: usize) {
        let index = self.index(seat);
        for closing in &mut self.closings {
            closing.forget_walk(index);
        }
    }

    /// Whether that member is being walked for, and needs the walk whole.
    pub(super) fn walk_is_owed(&self, seat: usize) -> bool {
        let (index, peer) = (self.index(seat), &self.peers[seat]);
        let under_way = peer
            .outbound
            .as_ref()
            .is_some_and(|image| !image.is_joined());
        let mut closings = self.closings.iter();
        peer.joining || under_way && closings.any(|closing| closing.is_walked(index))
    }
}

/// What a walk contains, as the end of its image says it: as much as fits into so many bytes.
pub(super) fn image_held(all: &[Held], bytes_max: usize) -> Membership {
    let mut held = Vec::new();
    let mut bytes = 0;
    // The latest first: of those that ended long ago nobody asks.
    for one in all.iter().rev() {
        bytes += HELD_BYTES_MAX + NAME_BYTES_MAX * one.of.len();
        if bytes > bytes_max {
            break;
        }
        held.push(one.clone());
    }
    Membership::JoinVector { held }
}
