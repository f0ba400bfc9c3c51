//! Members that fell off the log, and being one (rule 15): who is dropped, when its walk begins and ends, and the image's way
//! in and out.

use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

use super::image::OutboundImage;
use super::progress::Standing;
use super::replicator::Replicator;
use super::wire::{CLOCK_BYTES, FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use super::{Deliver, Event, ImageError, ImageKind};

impl Replicator {
    /// The longest image chunk in bytes.
    #[must_use]
    pub fn image_chunk_bytes_max(&self) -> usize {
        self.config.payload_bytes_max - HEADER_BYTES_MAX - CLOCK_BYTES - FRAME_BYTES_MAX - 5 - 5
    }

    /// How many chunks [`submit_image`](Replicator::submit_image) takes now for that member.
    #[must_use]
    pub fn image_room(&self, member: MemberId) -> usize {
        let outbound = self
            .peer_index(member)
            .and_then(|peer_index| self.peers[peer_index].outbound.as_ref());
        outbound
            .filter(|outbound| outbound.finished.is_none())
            .map_or(0, OutboundImage::room)
    }

    /// A chunk of the image for a lagging, self-contained: chunks arrive once each, in no order.
    ///
    /// # Errors
    /// See [`ImageError`]; nothing changed.
    pub fn submit_image(
        &mut self,
        now: Time,
        member: MemberId,
        walk: u32,
        chunk: &[u8],
    ) -> Result<(), ImageError> {
        let _ = now;
        let longest = self.image_chunk_bytes_max();
        let outbound = self.walking(member, walk)?;
        if chunk.is_empty() || chunk.len() > longest {
            return Err(ImageError::BadLength);
        }
        if !outbound.push(chunk) {
            return Err(ImageError::Busy);
        }
        self.counters.image_chunks_submitted += 1;
        Ok(())
    }

    /// The walk for that member is complete.
    ///
    /// # Errors
    /// See [`ImageError`]; nothing changed.
    pub fn finish_image(
        &mut self,
        now: Time,
        member: MemberId,
        walk: u32,
        kind: ImageKind,
    ) -> Result<(), ImageError> {
        let _ = now;
        let late = mutant::active(Mutant::ImageVectorAtEnd).then(|| self.vector());
        let outbound = self.walking(member, walk)?;
        outbound.finished = Some(kind);
        if let Some(late) = late {
            outbound.vector = late;
            self.named_through = self.named_through.max(self.log.head());
        }
        Ok(())
    }

    /// Every chunk of the image was applied here: its vector is joined into what this member has applied, and what had
    /// waited above it is delivered. With [`Delivery::Unordered`](super::Delivery::Unordered), report with `applied`
    /// afterwards how far each prefix now held over what had been applied above it.
    pub fn image_applied(
        &mut self,
        now: Time,
        from: MemberId,
        walk: u32,
        deliver: &mut impl Deliver,
    ) {
        let Some(server) = self.peer_index(from) else {
            return;
        };
        let image = &mut self.peers[server].inbound_image;
        if image.walk != walk || !image.complete {
            return;
        }
        (image.complete, image.unjoined, image.joined) = (false, false, true);
        image.acknowledge_at = Some(now);
        let vector = core::mem::take(&mut image.vector);
        for &(origin, sequence) in &vector {
            let Some(peer_index) = self.peer_index(origin) else {
                continue;
            };
            let peer = &mut self.peers[peer_index];
            let incarnation = peer.incarnation.unwrap_or_default();
            peer.inbound
                .cover(incarnation, sequence, &mut self.counters, deliver);
            self.applied_more(peer_index);
        }
        self.joined_image(server, &vector);
        self.counters.images_joined += 1;
        self.want_acknowledge(now, true);
        self.judge_members(now);
    }

    fn walking(&mut self, member: MemberId, walk: u32) -> Result<&mut OutboundImage, ImageError> {
        let peer_index = self.peer_index(member).ok_or(ImageError::NotWalking)?;
        let outbound = self.peers[peer_index]
            .outbound
            .as_mut()
            .filter(|outbound| outbound.walk == walk);
        outbound
            .filter(|outbound| outbound.finished.is_none())
            .ok_or(ImageError::NotWalking)
    }

    /// The log is filling: who pins more than half of it is dropped from it (rule 15).
    pub(super) fn make_room(&mut self, now: Time) {
        if mutant::active(Mutant::FullLogDropsOldest) {
            self.prune_through(
                self.sent_through
                    .min(self.log.pruned() + self.log.groups() as u64 / 2),
            );
            return;
        }
        for peer_index in 0..self.peers.len() {
            let peer = &mut self.peers[peer_index];
            let high = |pin| self.log.is_half(pin, self.sent_through) || self.sent.is_half(pin);
            if !peer.pin().is_some_and(high) {
                continue;
            }
            self.counters.lagging_replicas += u64::from(peer.standing == Standing::Current);
            let heard = peer.is_heard(now, &self.config);
            match peer.standing {
                // Its walk goes on. What the log loses meanwhile a second walk brings, from where this one began: a
                // smaller one, where beginning again might never end.
                Standing::Imaging if heard => peer.lose_log(),
                _ if heard => self.begin_walk(peer_index),
                _ => self.give_up_on(peer_index),
            }
        }
        self.prune();
    }

    /// A silent member is served by nothing until it is heard again.
    pub(super) fn give_up_on(&mut self, peer_index: usize) {
        let (index, head) = (self.index(peer_index), self.log.head());
        let peer = &mut self.peers[peer_index];
        peer.drop_from_log(Standing::Absent, head);
        peer.outbound = None;
        self.forget_walk(peer_index);
        let progress = &mut self.progress.members[index];
        progress.standing = Standing::Absent;
        progress.lags_since.get_or_insert(self.clock);
    }

    /// A member that fell off the log is served from the tables from now on.
    pub(super) fn begin_walk(&mut self, peer_index: usize) {
        let (index, head) = (self.index(peer_index), self.log.head());
        self.peers[peer_index].drop_from_log(Standing::Imaging, head);
        let progress = &mut self.progress.members[index];
        progress.standing = Standing::Imaging;
        progress.lags_since.get_or_insert(self.clock);
        // Who joins must not take another image for its sponsor's, which alone has all of the incarnations that ended.
        if !self.peers[peer_index].joining {
            self.begin_image(peer_index);
        }
    }

    /// An image for a member begins, wherever the log serves it from.
    pub(super) fn begin_image(&mut self, peer_index: usize) {
        let (index, count, head) = (self.index(peer_index), self.members.len(), self.log.head());
        let (vector, held) = (self.vector(), self.held_now(index));
        self.walks += 1;
        let peer = &mut self.peers[peer_index];
        peer.walk = self.walks;
        let (member, walk) = (peer.member, peer.walk);
        peer.outbound = Some(OutboundImage::new(walk, vector, held));
        self.named_through = self.named_through.max(head);
        self.counters.walks_begun += 1;
        let said = &self.said[index * count..(index + 1) * count];
        let mut beyond: Vec<(MemberId, u64)> = self
            .members
            .iter()
            .copied()
            .zip(said.iter().copied())
            .collect();
        // It has all of its own.
        beyond[index].1 = self.progress.members[index].head;
        self.push_event(
            member,
            Event::LaggingReplica {
                member,
                walk,
                beyond,
            },
        );
    }

    /// What a lagging applied has passed where its walk began: it is served from the log again, or, where the log has lost
    /// what followed, by a walk from there.
    pub(super) fn end_walk(&mut self, peer_index: usize) {
        let index = self.index(peer_index);
        let owed = self.walk_is_owed(peer_index);
        let peer = &mut self.peers[peer_index];
        if peer.standing == Standing::Current && peer.outbound.is_some() && !owed {
            peer.outbound = None;
            let (member, walk) = (peer.member, peer.walk);
            return self.push_event(member, Event::CaughtUp { member, walk });
        }
        if peer.standing != Standing::Imaging || peer.acknowledged < peer.floor() || owed {
            return;
        }
        let kept =
            peer.acknowledged >= self.log.pruned() || mutant::active(Mutant::LogNotKeptDuringWalk);
        if !kept {
            self.begin_walk(peer_index);
        } else {
            peer.outbound = None;
            peer.return_to_log();
            let (member, walk) = (peer.member, peer.walk);
            let progress = &mut self.progress.members[index];
            (progress.standing, progress.lags_since) = (Standing::Current, None);
            self.push_event(member, Event::CaughtUp { member, walk });
        }
    }

    /// What is applied here of each origin.
    fn vector(&self) -> Vec<(MemberId, u64)> {
        self.progress
            .members
            .iter()
            .map(|progress| (progress.member, progress.applied))
            .collect()
    }
}
