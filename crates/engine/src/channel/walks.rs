//! Images for lagging_replicas on their way from the instance that walks its tables to the placement.

use std::collections::VecDeque;

use asterism_placement::replicated::{ImageError, ImageKind};
use asterism_placement::{MemberId, Time};

use super::StateChannel;
use crate::exchange::{Down, WALK_PARTS};
use crate::mutant::{self, Mutant};

/// A walk for a lagging: parts of its image on their way from the instance to the placement.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) member: MemberId,
    pub(super) walk: u32,
    /// Parts that the placement had no room for: at most half more than [`WALK_PARTS`].
    pub(super) parts: VecDeque<Vec<u8>>,
    /// Parts that the instance may still hand over.
    pub(super) room: u32,
    pub(super) done: bool,
}

impl StateChannel {
    /// Hands parts of images on as the placement has room for them, and has instances walk on.
    pub(super) fn serve_walks(&mut self, now: Time) {
        let mut place = 0;
        while let Some(known) = self.walks.get_mut(place) {
            let (member, walk) = (known.member, known.walk);
            let mut over = false;
            while let Some(part) = known.parts.front() {
                match self.replicator.submit_image(now, member, walk, part) {
                    Ok(()) => {
                        known.parts.pop_front();
                    }
                    Err(ImageError::Busy) if mutant::active(Mutant::ImagePartDropped) => {
                        known.parts.pop_front();
                    }
                    Err(ImageError::Busy) => break,
                    // Whom it was for is silent, or its incarnation ended: nobody takes more of it.
                    Err(_) => {
                        self.outlet.push(&Down::StopWalk { member, walk });
                        over = true;
                        break;
                    }
                }
            }
            if known.parts.is_empty() && known.done {
                // An error says that the walk is over.
                let _ = self
                    .replicator
                    .finish_image(now, member, walk, ImageKind::Full);
                over = true;
            }
            if over {
                self.walks.remove(place);
                continue;
            }
            if known.parts.len() <= WALK_PARTS as usize / 2 && known.room == 0 && !known.done {
                known.room = WALK_PARTS;
                self.outlet.push(&Down::WalkOn { member, walk });
            }
            place += 1;
        }
    }
}

pub(super) fn find_walk(walks: &mut [Walk], member: MemberId, walk: u32) -> Option<&mut Walk> {
    walks
        .iter_mut()
        .find(|known| (known.member, known.walk) == (member, walk))
}
