//! Packets of an instance that are held back until other members have what they depend on (`holding.rs`).

use asterism_function::chain::Place;
use asterism_function::{NetworkFunction, PortNumber, Reason};
use asterism_state::State;

use super::Instance;
use super::chained::take_within;
use crate::holding::{At, Holding};
use crate::mutant::{self, Mutant};
use crate::tally::Tally;
use asterism_io::frame::{Burst, Frame, FramePool};

impl<F: NetworkFunction> Instance<F> {
    /// Forwards a packet that depends on a version which was not confirmed when the packet ended.
    #[cold]
    #[inline(never)]
    pub(super) fn forward_dependent(&mut self, port: PortNumber, slot: &mut Frame, version: u64) {
        if Place::of(port).is_some() {
            // To the next stage, after which it depends on this and on what that one reads and writes.
            self.context.depend_on(version);
            self.forward(port, slot);
            return self.context.depend_on_nothing();
        }
        let number = usize::from(port.0);
        let Some(holding) = &mut self.holding else {
            return self.forward(port, slot);
        };
        let Some(outgoing) = self.outgoing.get_mut(number) else {
            return self.discard(slot.alias(), Reason::PortDown);
        };
        if holding.is_exempt(self.pool.bytes_mut(slot)) {
            return self.forward(port, slot);
        }
        let mut at = At {
            pool: &mut self.pool,
            tally: &mut self.tally,
            now_us: self.now_us,
        };
        holding.hold(slot.alias(), port.0, version, outgoing, &mut at);
    }

    /// Holds what functions emitted in this burst: some of it is because of a packet that depends on a version, and none of it leaves
    /// before that is confirmed.
    #[cold]
    #[inline(never)]
    pub(super) fn hold_emissions(&mut self, version: u64) {
        if mutant::active(Mutant::EmissionLeavesEarly) {
            return;
        }
        self.count_emissions();
        let Self {
            emissions,
            pool,
            outgoing,
            tally,
            within,
            holding,
            now_us,
            ..
        } = self;
        let Some(holding) = holding else {
            return;
        };
        emissions.take(|port, bytes| {
            if Place::of(port).is_some() {
                return take_within(within, pool, tally, (port, bytes), version);
            }
            let Some(outgoing) = outgoing.get_mut(usize::from(port.0)) else {
                return tally.drop(Reason::PortDown);
            };
            let Some(mut frame) = pool.allocate_copy(bytes) else {
                return tally.drop(Reason::NoBuffer);
            };
            tally.emitted += 1;
            if outgoing.room() > 0 && holding.is_exempt(pool.bytes_mut(&mut frame)) {
                outgoing.push_from(&frame);
                return;
            }
            let now_us = *now_us;
            let mut at = At {
                pool,
                tally,
                now_us,
            };
            holding.hold(frame, port.0, version, outgoing, &mut at);
        });
    }

    /// Counts copies and what found no room since the last time.
    pub(super) fn count_emissions(&mut self) {
        let (copies, copies_lost) = self.emissions.take_copies();
        self.tally.copies += copies;
        self.tally.copies_lost += copies_lost;
        for _ in 0..self.emissions.take_refused() {
            self.tally.drop(Reason::EmissionOverflow);
        }
    }

    /// Sends a port's burst, but for packets that follow held ones of their flow.
    pub(super) fn send_burst(&mut self, number: usize) {
        let (Some(outgoing), Some(port)) =
            (self.outgoing.get_mut(number), self.ports.get_mut(number))
        else {
            return;
        };
        let at = (&mut self.pool, &mut self.tally, self.now_us);
        take_followers(&mut self.holding, number, outgoing, at);
        if !outgoing.is_empty() {
            self.tally.forwarded += outgoing.len() as u64;
            port.send(&mut self.pool, outgoing);
        }
        burst_sent(&mut self.holding, number);
    }

    /// Sends ports' bursts while packets are held: those that follow held ones are held too, and those leave that wait for nothing more.
    #[cold]
    #[inline(never)]
    pub(super) fn send_around_held(&mut self) {
        for (number, outgoing) in self.outgoing.iter_mut().enumerate() {
            let at = (&mut self.pool, &mut self.tally, self.now_us);
            take_followers(&mut self.holding, number, outgoing, at);
        }
        let confirmed = self.context.confirmed_version();
        if (self.holding.as_mut()).is_some_and(|holding| holding.note_confirmed(confirmed)) {
            // Before those that waited leave: a later packet of their flows is read after.
            self.state.for_each_object(|object| object.confirmed());
        }
        while let Some(holding) = &mut self.holding {
            let mut at = At {
                pool: &mut self.pool,
                tally: &mut self.tally,
                now_us: self.now_us,
            };
            let Some((port, frame)) = holding.next(confirmed, &mut at) else {
                break;
            };
            self.release_held(usize::from(port), frame);
        }
        for number in 0..self.ports.len() {
            self.send_burst(number);
        }
    }

    /// Puts a packet that is held no more into its port's burst.
    fn release_held(&mut self, number: usize, frame: Frame) {
        if self
            .outgoing
            .get(number)
            .is_some_and(|burst| burst.room() == 0)
        {
            self.send_burst(number);
        }
        let pushed = match self.outgoing.get_mut(number) {
            Some(outgoing) => outgoing.push(frame),
            None => Err(frame),
        };
        match (pushed, &mut self.holding, self.outgoing.get(number)) {
            (Ok(()), Some(holding), Some(outgoing)) => holding.left(number as u16, outgoing),
            (Err(frame), ..) => self.discard(frame, Reason::PortDown),
            _ => {}
        }
    }
}

/// Holds the packets of a port's burst that follow held ones of their flow.
#[inline]
pub(super) fn take_followers(
    holding: &mut Option<Box<Holding>>,
    number: usize,
    outgoing: &mut Burst,
    (pool, tally, now_us): (&mut FramePool, &mut Tally, u64),
) {
    if let Some(holding) = holding {
        let mut at = At {
            pool,
            tally,
            now_us,
        };
        holding.take_followers(number as u16, outgoing, &mut at);
    }
}

/// A port's burst was sent.
#[inline]
pub(super) fn burst_sent(holding: &mut Option<Box<Holding>>, number: usize) {
    if let Some(holding) = holding {
        holding.sent(number);
    }
}
