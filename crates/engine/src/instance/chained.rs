//! Packets between the stages of a chain: those that a chain hands back because others of their flow may wait at the next
//! stage, or because they were turned round, and those that a stage emitted to another. Functions alone never come here.

use std::collections::VecDeque;

use asterism_function::chain::{Place, STAGES_MAX};
use asterism_function::{Layout, NetworkFunction, PortNumber, Reason, waits_at};

use super::Instance;
use crate::mutant::{self, Mutant};
use crate::parking::PARKED_MAX;
use crate::tally::Tally;
use asterism_io::frame::{Frame, FramePool};

/// Calls of stages for one packet at most, those apart that a chain makes by itself.
const HANDED_ON_MAX: u8 = 2 * STAGES_MAX as u8;
/// Packets parked at which copies are not handled any more: at a bound four times as large ports would not be read.
const COPIES_PARKED_MAX: usize = PARKED_MAX / 4;
/// Packets that stages emitted to others and that wait, at most.
pub(super) const WITHIN_MAX: usize = 128;

impl<F: NetworkFunction> Instance<F> {
    /// Where a packet that is late waits, and for how long it may be late there.
    pub(super) fn waits_at(&self, port: PortNumber) -> (PortNumber, u64) {
        let (at, late_us_max) = waits_at(self.function(), &self.state, port);
        if mutant::active(Mutant::ChainCalledAgainWhole) {
            return (port, late_us_max);
        }
        (at, late_us_max)
    }

    /// What leaves by a port that the instance does not have: it is at a place in a chain, or lost.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&mut self, port: PortNumber, frame: Frame) {
        match Place::of(port) {
            Some(_) => self.hand_on(port, frame),
            None => self.discard(frame, Reason::PortDown),
        }
    }

    /// Calls the stage that a packet has come to, unless others of its flow wait there.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on(&mut self, at: PortNumber, mut frame: Frame) {
        if self.handed_on == HANDED_ON_MAX {
            return self.discard(frame, Reason::ChainLoop);
        }
        let layout = match Layout::parse(self.pool.bytes(&frame)) {
            Ok(layout) => layout,
            Err(malformed) => return self.discard(frame, malformed.into()),
        };
        frame.set_port(at.0);
        if Place::of(at).is_some_and(Place::is_copy) && self.parking.len() >= COPIES_PARKED_MAX {
            return self.discard(frame, Reason::ParkedOverflow);
        }
        // A burst is read with room for as many calls as a chain has stages; what is turned round comes on top.
        self.commit();
        let has_room = self.has_log_room();
        if !has_room || !self.parking.is_empty() && self.follows(&mut frame, layout) {
            return self.park_behind(frame, layout);
        }
        if self.context.notes_reads() {
            // What the stage before has read does not matter any more.
            self.context.note_reads(true);
        }
        if self.stored.is_some() {
            self.called_with_answers();
        }
        self.handed_on += 1;
        self.call(&mut frame, layout, at);
        self.handed_on -= 1;
    }

    /// Handles what stages emitted to others, as packets that came just now.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_on_emitted(&mut self) {
        // What is emitted because of them is handled too, but not for ever: the rest in the next turn.
        for _ in 0..STAGES_MAX {
            for _ in 0..self.within.len() {
                if !self.has_log_room() {
                    break;
                }
                let Some((frame, version)) = self.within.pop_front() else {
                    break;
                };
                self.context.arrive(self.now_us);
                self.context.begin(self.serial);
                self.context.begin_next();
                self.serial += 1;
                self.context.depend_on(version);
                self.hand_on(PortNumber(frame.port()), frame);
                self.context.depend_on_nothing();
                self.commit();
            }
            self.publish();
            if self.emissions.is_empty() {
                break;
            }
            self.send_emissions();
        }
    }
}

/// Takes up a packet that a stage emitted to another, and that depends on a version.
#[cold]
pub(super) fn take_within(
    within: &mut VecDeque<(Frame, u64)>,
    pool: &mut FramePool,
    tally: &mut Tally,
    (port, bytes): (PortNumber, &[u8]),
    version: u64,
) {
    if within.len() >= WITHIN_MAX {
        return tally.drop(Reason::EmissionOverflow);
    }
    match pool.allocate_copy(bytes) {
        Some(mut frame) => {
            frame.set_port(port.0);
            tally.emitted += 1;
            within.push_back((frame, version));
        }
        None => tally.drop(Reason::NoBuffer),
    }
}
