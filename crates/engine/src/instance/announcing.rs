//! Objects that begin to be shared while packets flow, or are so no longer, and what an instance then writes again of them: a little
//! between two bursts, with room in the log, as a sweep is.
//!
//! Why all is written again, and when, stands in `channel/sharing.rs`; how an object does it in `crates/state/src/table/shared.rs`.

use asterism_function::NetworkFunction;
use asterism_state::{OPERATION_BYTES_MAX, State};

use super::Instance;
use super::reports::Report;
use super::sharing::BURST_LOG_BYTES;
use crate::mutant::{self, Mutant};

/// Entries written again before their operations are handed on: they fit the room that a burst would need.
const PORTION: u32 = 64;
const _: () = assert!(PORTION as usize * OPERATION_BYTES_MAX * 2 <= BURST_LOG_BYTES);
/// Portions of one turn that read packets, and of one that did not.
const PORTIONS_BESIDE_PACKETS: u32 = 2;
const PORTIONS_PER_TURN: u32 = 16;

/// What is written again.
#[derive(Debug)]
struct Announcing {
    number: u32,
    /// Objects that are still to be looked at, a bit for each.
    objects: u64,
    /// Where it goes on in the first of them.
    cursor: u32,
}

/// Objects that may be changed between local and replicated, as an instance has them.
#[derive(Debug, Default)]
pub(super) struct Announcer {
    under_way: Option<Announcing>,
    /// Some of them are not shared now.
    has_local: bool,
}

impl<F: NetworkFunction> Instance<F> {
    /// Has objects log their operations, or not; returns which of them do.
    #[cold]
    pub(super) fn share(&mut self, number: u32, movable: u64, shared: u64) -> Report {
        let mut objects = 0;
        for object in (0..self.state.objects().len() as u8).filter(|bit| movable >> bit & 1 != 0) {
            let wanted = shared >> object & 1 != 0;
            let is_shared = self
                .state
                .object_mut(object)
                .is_some_and(|object| object.share(wanted));
            objects |= u64::from(is_shared) << object;
        }
        self.announcer.has_local = objects != movable;
        Report::Shared { number, objects }
    }

    /// Begins to write again what there is of some objects, from their beginnings on: what was written again before may have come too
    /// early for an instance that shares them by now.
    pub(super) fn begin_announcing(&mut self, number: u32, objects: u64) {
        self.announcer.under_way = Some(Announcing {
            number,
            objects,
            cursor: 0,
        });
    }

    /// Goes on with that, as long as packets are handled.
    #[inline]
    pub(super) fn announce(&mut self, read: usize) {
        if self.announcer.under_way.is_some() && self.serving {
            self.announce_some(match read {
                0 => PORTIONS_PER_TURN,
                _ => PORTIONS_BESIDE_PACKETS,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn announce_some(&mut self, portions: u32) {
        for _ in 0..portions {
            let Some(mut announcing) = self.announcer.under_way.take() else {
                return;
            };
            if announcing.objects == 0 {
                let number = announcing.number;
                if let Some(exchange) = &mut self.exchange {
                    exchange.say(Report::Announced { number });
                }
                return;
            }
            if !self.has_log_room() {
                self.announcer.under_way = Some(announcing);
                return;
            }
            let number = announcing.objects.trailing_zeros() as u8;
            let object = self.state.object_mut(number);
            match object.and_then(|object| object.announce(announcing.cursor, PORTION)) {
                Some(cursor) => announcing.cursor = cursor,
                None => {
                    announcing.cursor = 0;
                    announcing.objects &= announcing.objects - 1;
                }
            }
            if self.context.wrote() {
                self.settle();
                self.push_groups();
            }
            self.announcer.under_way = Some(announcing);
        }
    }

    /// Whether there is more to write again.
    pub fn announces(&self) -> bool {
        self.announcer.under_way.is_some()
    }

    /// A planted bug: what others write is thrown away while an object is local here.
    #[inline(always)]
    pub(super) fn drops_before_switch(&self) -> bool {
        mutant::active(Mutant::GroupsDroppedWhileLocal) && self.announcer.has_local
    }
}
