//! An instance: one packet loop with its own state, on one core.
//!
//! A turn applies what came from others (in a budget), calls again the packets whose answers may be here,
//! reads a burst from each port, calls the function for each packet, and hands on what was written. The
//! clock is read by the caller, once a turn.
//!
//! This file holds the loop. Beside it: `parts.rs` (how an instance is made), `parked.rs` (late packets),
//! `held.rs` (packets that wait for other members), `stored.rs` (packets whose objects live in a store), `homes` (the stores), `recency.rs` (whether prefetching pays), `applying.rs` (what it takes from
//! others), `sharing.rs` (what it tells them),
//! `view.rs` (looking at it from outside), `saved.rs` (its state to and from a file), `trace.rs` (looking at single packets), `chained.rs` (packets between the
//! stages of a chain), `stopped.rs` (why it stops by itself).

mod announcing;
mod applying;
mod chained;
mod held;
mod homes;
mod kept;
mod parked;
mod parts;
mod prefetching;
mod recency;
mod repair;
mod reports;
mod saved;
mod sharing;
mod stopped;
mod stored;
mod trace;
mod view;
#[cfg(test)]
mod write_sets;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use asterism_function::chain::Place;
use asterism_function::{
    Call, EMITTED_FRAMES_MANY, Emissions, Late, Layout, NetworkFunction, Packet, PortNumber,
    Reason, Verdict, call,
};
use asterism_placement::Time;
use asterism_state::{Context, State};

use crate::branch::{Branch, taken};
use crate::holding::Holding;
use crate::mutant::{self, Mutant};
use crate::parking::Parking;
use crate::tally::Tally;
use asterism_io::frame::{BURST, Burst, Frame, FramePool};
use asterism_io::port::Port;

pub use applying::APPLY_GROUPS_PER_TURN;
use chained::take_within;
use held::{burst_sent, take_followers};
pub(crate) use parts::Exchange;
pub use parts::{InstanceParts, MisplacedError, check_in_shards, check_placed, shape_of};
use recency::Recency;
pub use repair::{Removal, Repair, Repaired};
pub(crate) use reports::Reports;
pub use saved::{ObjectUse, SAVED_PART_BYTES_MAX};
use sharing::SnapshotScan;
pub use sharing::{SNAPSHOT_PARTS_PER_TURN, SNAPSHOT_PLACES_PER_TURN};
pub use stopped::StopReason;
use stored::Stored;
pub use trace::{TRACED_BYTES_MAX, TracedEnd, TracedPacket, TracedStageEnd, TracedStep};
pub use view::origin_of;

/// Packets whose records the prefetch pass asks for together.
const PREFETCHED_TOGETHER: usize = 16;

/// Microseconds of a second.
const SECOND_US: u64 = 1_000_000;

/// Ports that packets pass between; those behind them only get copies.
const SIDES: usize = 2;

/// One packet loop and its state. See the module.
pub struct Instance<F: NetworkFunction> {
    #[allow(
        clippy::redundant_allocation,
        reason = "held once more for each burst, which must cost no atomic operation"
    )]
    function: Rc<Arc<F>>,
    state: F::State,
    context: Rc<Context>,
    emissions: Emissions,
    pool: FramePool,
    ports: Vec<Box<dyn Port>>,
    outgoing: Vec<Burst>,
    /// Away only while it is being handled.
    burst: Option<Box<Burst>>,
    /// When the packet being called again was parked first.
    parked_since_us: Option<u64>,
    /// When others were asked last how far they are.
    probed_us: Option<u64>,
    parking: Parking,
    /// Packets held back until other members have what they depend on, if the host does so.
    holding: Option<Box<Holding>>,
    /// The store in which objects live, if some do.
    stored: Option<Box<Stored>>,
    exchange: Option<Exchange>,
    /// Why it does nothing any more, once it was handed what it cannot apply.
    stopped: Option<StopReason>,
    /// The host holds what the others hold.
    serving: bool,
    /// The cluster's time at zero of the host's clock, in microseconds since 1970.
    time_at_zero_us: i64,
    /// When the cluster's second that was noted last began, by the host's clock.
    second_since_us: u64,
    serial: u64,
    now_us: u64,
    /// Bytes of the log that must be free before a burst is read.
    burst_log_bytes: usize,
    /// Packets that stages of a chain emitted to others, and the versions that they depend on; never more than are emitted in a burst.
    within: VecDeque<(Frame, u64)>,
    /// How often the packet being handled was handed on between stages from here.
    handed_on: u8,
    /// Bursts to be handled in two passes, the first of which prefetches.
    hinted_left: u32,
    recency: Recency,
    prefetch_above_bytes: usize,
    flush_us: u64,
    flushed_us: u64,
    /// The last flush that left nothing out.
    reported_all_us: u64,
    /// The last flush that passed over no object.
    reported_lazily_us: u64,
    /// The flush under way leaves nothing out.
    tells_all: bool,
    /// Objects that the flush under way has still to come to.
    flush_left: u8,
    /// The last round in which what had changed was logged, the last in which that was begun, and the bytes left of its share.
    drained_round: u64,
    begun_round: u64,
    round_bytes: usize,
    swept_us: u64,
    /// The object that the step of a sweep under way has come to, what is left of it there, if it has begun with it, and when the
    /// step began.
    sweep_object: u8,
    sweep_left: Option<u32>,
    sweep_begun_us: u64,
    sweep_outgrew: bool,
    scans: Vec<SnapshotScan>,
    /// Records of snapshots handed to the state channel.
    snapshot_records: u64,
    part: Vec<u8>,
    announcer: announcing::Announcer,
    tally: Tally,
}

impl<F: NetworkFunction> core::fmt::Debug for Instance<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Instance")
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

/// The first that a number's bits say. A call, so that a loop whose bound it is does not wait for it.
#[cold]
#[inline(never)]
fn first_of(bits: u32) -> usize {
    bits.trailing_zeros() as usize
}

impl<F: NetworkFunction> Instance<F> {
    /// Goes on with another function, whose state must be of the same shape: between two bursts, so that no packet meets both.
    /// Packets that are parked are called again with the new one. Costs an allocation.
    pub fn replace_function(&mut self, function: Arc<F>) {
        function.take_up(&mut self.state);
        self.function = Rc::new(function);
    }

    /// One turn of the loop at `now`. Returns how many packets were read: none means that the loop may
    /// rest until [`Instance::next_due`] or until something arrives.
    pub fn turn(&mut self, now: Time) -> usize {
        self.begin(now);
        if self.is_behind() {
            self.apply();
        }
        if self.stopped.is_some() {
            return 0;
        }
        if !self.parking.is_empty() {
            self.retry();
        }
        let read = match self.serving {
            true if self.context.may_serve() => self.read_ports(),
            true => {
                taken(Branch::TurnWithoutLease);
                self.tally.held_by_lease += 1;
                0
            }
            false => 0,
        };
        if self.stored.is_some() {
            self.serve_store();
        }
        // Before the packets leave: a reply to one of them must not overtake what it is known by.
        self.publish();
        self.send();
        self.upkeep(read);
        self.publish();
        read
    }

    #[inline]
    fn begin(&mut self, now: Time) {
        self.now_us = now.as_micros();
        match self.now_us.wrapping_sub(self.second_since_us) < SECOND_US {
            true => self.context.set_now_us(self.now_us),
            false => self.begin_second(),
        }
    }

    /// Another second of the cluster's time, or another cluster's time.
    #[cold]
    #[inline(never)]
    fn begin_second(&mut self) {
        let us = self.time_at_zero_us.saturating_add(self.now_us as i64);
        let into = us.rem_euclid(SECOND_US as i64);
        self.second_since_us = self.now_us.wrapping_sub(into as u64);
        self.context.set_now(self.now_us, self.tick());
    }

    /// The cluster's time is another one: this host takes over that of the others, or goes forward to it.
    #[cold]
    fn take_over_time(&mut self, at_zero_us: i64) {
        self.time_at_zero_us = at_zero_us;
        self.begin_second();
    }

    // --- packets

    fn read_ports(&mut self) -> usize {
        self.read_each_port(Self::handle_burst)
    }

    /// Reads a burst from each port and has it handled; tells how many packets came.
    #[inline(always)]
    fn read_each_port(&mut self, mut handle: impl FnMut(&mut Self, u16, &mut Burst)) -> usize {
        if self.parking.is_full() {
            self.tally.held_by_parking += 1;
            return 0;
        }
        let mut read = 0;
        for number in 0..self.ports.len() {
            if !self.has_log_room() {
                self.tally.held_by_log += 1;
                break;
            }
            let Some(mut burst) = self.burst.take() else {
                break;
            };
            let port = &mut self.ports[number];
            port.advance(Time::from_micros(self.now_us));
            if port.receive(&mut self.pool, &mut burst) > 0 {
                read += burst.len();
                self.tally.received += burst.len() as u64;
                handle(self, number as u16, &mut burst);
                self.commit();
            }
            self.burst = Some(burst);
        }
        read
    }

    #[inline]
    fn has_log_room(&mut self) -> bool {
        self.exchange
            .as_mut()
            .is_none_or(|exchange| exchange.up.has_free(self.burst_log_bytes))
    }

    fn handle_burst(&mut self, port: u16, burst: &mut Burst) {
        let port = PortNumber(port);
        let keeps = self.stored.is_some() && self.show_kept();
        if self.hinted_left > 0 {
            self.handle_hinted(port, burst);
        } else {
            self.prefetch_frames(burst.as_slice());
            self.handle_each(port, burst, |_, bytes| Packet::parse_plain(bytes));
        }
        if keeps {
            self.end_keeping();
        }
    }

    #[inline(always)]
    fn prefetch_frames(&self, frames: &[Frame]) {
        for frame in frames {
            self.pool.prefetch(frame);
        }
    }

    /// In two passes, the first of which only prefetches. Apart, so that neither way takes the other's registers.
    #[inline(never)]
    fn handle_hinted(&mut self, port: PortNumber, burst: &mut Burst) {
        self.hinted_left -= 1;
        self.tally.prefetched += burst.len() as u64;
        let mut parsed = [Layout::default(); BURST];
        self.prefetch(port, burst, &mut parsed);
        let context = self.context.clone();
        context.set_recalling(true);
        self.handle_each(port, burst, |number, bytes| {
            context.prefetch_hints().recall(number);
            Packet::plain_with_layout(bytes, parsed[number % BURST])
        });
        context.set_recalling(false);
    }

    /// Which packets may have to wait behind parked ones, by the bits of a number.
    #[inline(always)]
    fn which_may_follow(&self, frames: &[Frame]) -> u32 {
        match self.parking.is_empty() {
            true => 0,
            false => self.parking.which_may_follow(&self.pool, frames),
        }
    }

    /// Handles the packets of a burst. `plain` gives the packet in a frame, by its number in the burst, if it is a plain
    /// one. Those that may have to wait behind parked ones are found for all together: what lies between two of them is handled
    /// without a look at what is parked.
    #[inline(always)]
    fn handle_each(
        &mut self,
        port: PortNumber,
        burst: &mut Burst,
        plain: impl for<'f> Fn(usize, &'f mut [u8]) -> Option<Packet<'f>>,
    ) {
        self.context.arrive(self.now_us);
        self.context.begin(self.serial);
        self.serial += burst.len() as u64;
        let mut may_follow = self.which_may_follow(burst.as_slice());
        let mut done = 0;
        while done < burst.len() {
            let parked_before = self.parking.so_far();
            let rest = burst.as_mut_slice().get_mut(done..).unwrap_or_default();
            let run = match may_follow {
                0 => rest.len(),
                _ => rest.len().min(first_of(may_follow)),
            };
            let handled = match rest {
                [slot, ..] if run == 0 => {
                    self.handle_uncommon(slot, port);
                    1
                }
                _ if self.context.is_keeping() => {
                    let run = rest.get_mut(..run).unwrap_or_default();
                    self.handle_kept_run(port, run, done, &plain)
                }
                _ => self.handle_run(port, rest.get_mut(..run).unwrap_or_default(), done, &plain),
            };
            done += handled;
            may_follow = may_follow.unbounded_shr(handled as u32);
            if self.parking.so_far() != parked_before
                && !mutant::active(Mutant::ParkedInBurstUnseen)
            {
                let rest = burst.as_slice().get(done..).unwrap_or_default();
                may_follow = self.which_may_follow(rest);
            }
        }
        burst.forget();
    }

    /// Handles packets of a burst, from this number on, that need not wait behind parked ones, until one of them is parked. How many
    /// it handled.
    #[inline(always)]
    fn handle_run(
        &mut self,
        port: PortNumber,
        slots: &mut [Frame],
        first: usize,
        plain: &impl for<'f> Fn(usize, &'f mut [u8]) -> Option<Packet<'f>>,
    ) -> usize {
        // Held here, so that their addresses are known to the loop and not read for each packet.
        let (function, context) = (self.function.clone(), self.context.clone());
        let function: &F = &function;
        let parked_before = self.parking.so_far();
        for (number, slot) in slots.iter_mut().enumerate() {
            if let Some(packet) = plain(first + number, self.pool.bytes_mut(slot)) {
                // After the parse, whose values need not outlive this write: a frame's bytes are read again where they
                // are used, which is cheaper than keeping them.
                context.begin_next();
                let given = Call {
                    state: &mut self.state,
                    context: &context,
                    emissions: &mut self.emissions,
                    port,
                };
                let result = call(function, packet, given);
                if let Ok(Verdict::Forward(to)) = result
                    && !context.needs_attention()
                {
                    self.forward(to, slot);
                    continue;
                }
                self.conclude(result, slot, port);
            } else {
                self.handle_uncommon(slot, port);
            }
            if self.parking.so_far() != parked_before {
                return number + 1;
            }
        }
        slots.len()
    }

    /// A packet of another kind than most, or one that may have to wait behind others of its flow. Of a capture that
    /// was cut, only packets that are whole all the same are not handled here.
    #[inline(never)]
    fn handle_uncommon(&mut self, slot: &mut Frame, port: PortNumber) {
        self.context.begin_next();
        // A cut that took nothing but padding is none; it must not matter whether packets are parked.
        let is_cut =
            slot.is_truncated() && Packet::parse_plain(self.pool.bytes_mut(slot)).is_none();
        let layout = match Layout::parse(self.pool.bytes(slot)) {
            Ok(layout) if !is_cut => layout,
            Ok(_) => return self.discard(slot.alias(), Reason::TruncatedCapture),
            Err(malformed) => return self.discard(slot.alias(), malformed.into()),
        };
        if !self.parking.is_empty() {
            slot.set_port(port.0);
            if self.follows(slot, layout) {
                return self.park_behind(slot.alias(), layout);
            }
        }
        self.call(slot, layout, port);
    }

    /// Calls the function for a packet that the context has begun or resumed, and does as it says. The frame moves on
    /// from `slot`, whose content nobody may use afterwards.
    #[inline(never)]
    fn call(&mut self, slot: &mut Frame, layout: Layout, port: PortNumber) {
        let packet = Packet::with_layout(self.pool.bytes_mut(slot), layout);
        let given = Call {
            state: &mut self.state,
            context: &self.context,
            emissions: &mut self.emissions,
            port,
        };
        // Others of its flow may be parked at a stage that it has not come to.
        self.context.set_singly(true);
        let result = call(&**self.function, packet, given);
        self.context.set_singly(false);
        self.conclude(result, slot, port);
    }

    /// Does as the function said.
    #[inline(never)]
    fn conclude(&mut self, result: Result<Verdict, Late>, slot: &mut Frame, port: PortNumber) {
        let mut version = self.context.dependency();
        if self.context.needs_attention()
            && let Ok(verdict) = result
        {
            if self.context.is_staged() && self.commit_in_store(verdict, slot, port) {
                return;
            }
            version = self.context.dependency();
            self.settle();
        }
        match result {
            Ok(Verdict::Forward(to)) if version != 0 => self.forward_dependent(to, slot, version),
            Ok(Verdict::Forward(to)) => self.forward(to, slot),
            Ok(Verdict::Drop(reason)) => self.discard(slot.alias(), reason),
            Ok(Verdict::Consumed) => {
                self.tally.consumed += 1;
                self.pool.release(slot.alias());
            }
            Err(_) => {
                let (at, late_us_max) = self.waits_at(port);
                slot.set_port(at.0);
                self.park(slot.alias(), late_us_max);
            }
        }
        if version != 0 && !self.emissions.is_empty() {
            self.hold_emissions(version);
        }
        if self.emissions.len() >= EMITTED_FRAMES_MANY {
            self.send_many();
        }
    }

    /// What functions emitted leaves before there is no room for more of it.
    #[cold]
    fn send_many(&mut self) {
        // As at a turn's end: what packets are known by is published before they leave.
        self.commit();
        self.publish();
        self.send_emissions();
    }

    /// After a packet that took grants or wrote: unspent grants return, its group is closed.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        let state = &self.state;
        self.context.depend_on_nothing();
        self.context.end(|object, number| {
            state.give_back(object, number);
        });
        state.settle();
    }

    #[inline(always)]
    fn forward(&mut self, port: PortNumber, slot: &Frame) {
        let outgoing = self.outgoing.get_mut(usize::from(port.0));
        if !outgoing.is_some_and(|outgoing| outgoing.push_from(slot)) {
            self.make_room(port, slot.alias());
        }
    }

    /// The port's burst is full, or there is no such port.
    #[cold]
    fn make_room(&mut self, port: PortNumber, frame: Frame) {
        // As at a turn's end: what packets are known by is published before they leave.
        self.commit();
        self.publish();
        let number = usize::from(port.0);
        self.send_burst(number);
        let refused = match self.outgoing.get_mut(number) {
            Some(outgoing) => outgoing.push(frame),
            None => Err(frame),
        };
        if let Err(frame) = refused {
            self.refuse(port, frame);
        }
    }

    #[cold]
    fn discard(&mut self, frame: Frame, reason: Reason) {
        self.tally.drop(reason);
        self.pool.release(frame);
    }

    #[inline(always)]
    fn send(&mut self) {
        if !self.emissions.is_empty() {
            self.send_emissions();
        }
        if !self.within.is_empty() {
            self.hand_on_emitted();
        }
        if self.held() > 0 {
            return self.send_around_held();
        }
        for (port, outgoing) in self.ports.iter_mut().zip(&mut self.outgoing) {
            if !outgoing.is_empty() {
                self.tally.forwarded += outgoing.len() as u64;
                port.send(&mut self.pool, outgoing);
            }
        }
    }

    #[cold]
    fn send_emissions(&mut self) {
        self.count_emissions();
        let Self {
            emissions,
            pool,
            outgoing,
            ports,
            tally,
            within,
            holding,
            now_us,
            ..
        } = self;
        emissions.take(|port, bytes| {
            if Place::of(port).is_some() {
                return take_within(within, pool, tally, (port, bytes), 0);
            }
            let number = usize::from(port.0);
            if number >= ports.len().min(outgoing.len()) {
                tally.drop(Reason::PortDown);
                return;
            }
            let Some(frame) = pool.allocate_copy(bytes) else {
                tally.drop(Reason::NoBuffer);
                return;
            };
            if outgoing[number].room() == 0 {
                // A port that copies go to is not waited for: what they are copies of has left before it is asked.
                let first = if number < SIDES { number } else { 0 };
                for (number, (port, outgoing)) in ports
                    .iter_mut()
                    .zip(&mut *outgoing)
                    .enumerate()
                    .take(number + 1)
                    .skip(first)
                {
                    take_followers(
                        holding,
                        number,
                        outgoing,
                        (&mut *pool, &mut *tally, *now_us),
                    );
                    if !outgoing.is_empty() {
                        tally.forwarded += outgoing.len() as u64;
                        port.send(pool, outgoing);
                    }
                    burst_sent(holding, number);
                }
            }
            match outgoing[number].push(frame) {
                Ok(()) => tally.emitted += 1,
                Err(frame) => {
                    tally.drop(Reason::PortDown);
                    pool.release(frame);
                }
            }
        });
    }
}
