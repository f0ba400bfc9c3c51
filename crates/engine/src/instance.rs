//! An instance: one packet loop with its own state, on one core.
//!
//! A turn applies what came from others (in a budget), calls again the packets whose answers may be here,
//! reads a burst from each port, calls the function for each packet, and hands on what was written. The
//! clock is read by the caller, once a turn.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asterism_function::{
    Call, Emissions, FlowKey, Late, Layout, NetworkFunction, Packet, PortNumber, Reason, Verdict,
    call,
};
use asterism_placement::{MemberId, Time, mutant as placed};
use asterism_state::{
    Builder, Context, Entries, Flush, GROUP_BYTES_MAX, GiveBack, Identity, ObjectSettings,
    OriginName, OutgrewCache, PrefetchRecord, Sequencer, Settle, State, Sweep, Tick,
};

use crate::exchange::{Down, RECORD_BYTES, Up, WALK_PARTS, origin};
use crate::frame::{BURST, Burst, Frame, FramePool};
use crate::mutant::{self, Mutant};
use crate::parking::{PARKED_US_MAX, Parked, Parking, Until};
use crate::port::Port;
use crate::ring::{RingReader, RingWriter};
use crate::tally::Tally;

/// Groups of others applied in one turn at most; the rest is reported as lag.
pub const APPLY_GROUPS_PER_TURN: usize = 256;
/// Turns over which one sweep for idle entries is spread, per second of sweeping.
const SWEEP_STEPS: u32 = 256;
/// Microseconds between two steps of the sweep: a whole turn over the tables takes about a second.
const SWEEP_STEP_US: u64 = 1_000_000 / SWEEP_STEPS as u64;
/// Tables larger than this are prefetched: about a core's own cache. Below it the second call costs more than it saves.
const CACHE_BYTES: usize = 2 << 20;
/// Bytes of the up ring that must be free before a burst is read: its packets' groups always fit.
const BURST_LOG_BYTES: usize = BURST * 2 * (GROUP_BYTES_MAX + RECORD_BYTES + 8);

/// How an instance is made; everything in it can be sent to the thread that will run it.
#[derive(Debug)]
pub struct InstanceParts {
    pub(crate) identity: Identity,
    pub(crate) sequencer: Sequencer,
    pub(crate) seed: u64,
    pub(crate) tick_at_zero: Tick,
    pub(crate) flush_us: u64,
    pub(crate) exchange: Option<Exchange>,
}

/// An instance's ends of the rings to and from its state channel.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) up: RingWriter,
    pub(crate) down: RingReader,
    /// The last number drawn for a group of this host.
    pub(crate) committed: Arc<AtomicU64>,
}

impl InstanceParts {
    /// An instance alone: no other instance hears of its state.
    pub fn alone(seed: u64) -> Self {
        Self {
            identity: Identity::alone(),
            sequencer: Sequencer::Own(core::cell::Cell::new(0)),
            seed,
            tick_at_zero: 1_000,
            flush_us: 200,
            exchange: None,
        }
    }

    /// The time of the cluster's base at time zero of the clock that turns are given, in seconds.
    #[must_use]
    pub fn with_tick_at_zero(mut self, tick: Tick) -> Self {
        self.tick_at_zero = tick;
        self
    }

    /// Makes the instance, on the thread that will run it.
    pub fn start<F: NetworkFunction>(
        self,
        function: Arc<F>,
        settings: impl Fn(&str) -> ObjectSettings + 'static,
        pool: FramePool,
        ports: Vec<Box<dyn Port>>,
    ) -> Instance<F> {
        let addresses = function
            .addresses()
            .iter()
            .map(|address| address.to_bits())
            .collect();
        let context = Rc::new(Context::new(
            self.identity,
            self.sequencer,
            self.seed,
            addresses,
        ));
        let state = function.state(&Builder::new(context.clone(), settings));
        context.set_now(0, self.tick_at_zero);
        Instance {
            function,
            state,
            context,
            emissions: Emissions::default(),
            outgoing: ports.iter().map(|_| Burst::default()).collect(),
            ports,
            pool,
            burst: Some(Box::default()),
            parked_since_us: None,
            news: false,
            parking: Parking::default(),
            exchange: self.exchange,
            tick_at_zero: self.tick_at_zero,
            serial: 0,
            now_us: 0,
            prefetches: false,
            flush_us: self.flush_us,
            flushed_us: 0,
            flush_cursor: 0,
            swept_us: 0,
            walks: Vec::new(),
            part: Vec::with_capacity(IMAGE_PART_BYTES),
            tally: Tally::default(),
        }
    }
}

/// Bytes of one part of an image.
const IMAGE_PART_BYTES: usize = 1_100;
/// Parts of an image written in one turn at most.
const IMAGE_PARTS_PER_TURN: usize = 4;

/// A laggard's image under way.
#[derive(Debug)]
struct Walk {
    member: MemberId,
    walk: u32,
    cursor: Option<(u8, u32)>,
    /// Parts for which there is room.
    room: u32,
}

/// One packet loop and its state. See the module.
pub struct Instance<F: NetworkFunction> {
    function: Arc<F>,
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
    /// Something of others was applied since parked packets were last called again.
    news: bool,
    parking: Parking,
    exchange: Option<Exchange>,
    tick_at_zero: Tick,
    serial: u64,
    now_us: u64,
    prefetches: bool,
    flush_us: u64,
    flushed_us: u64,
    flush_cursor: u8,
    swept_us: u64,
    walks: Vec<Walk>,
    part: Vec<u8>,
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

impl<F: NetworkFunction> Instance<F> {
    /// One turn of the loop at `now`. Returns how many packets were read: none means that the loop may
    /// rest until [`Instance::next_due`] or until something arrives.
    pub fn turn(&mut self, now: Time) -> usize {
        self.begin(now);
        if self.exchange.is_some() {
            self.apply();
        }
        if !self.parking.is_empty() {
            self.retry();
        }
        let read = self.read_ports();
        self.send();
        self.upkeep();
        self.publish();
        read
    }

    fn begin(&mut self, now: Time) {
        self.now_us = now.as_micros();
        let tick = self.tick_at_zero + (self.now_us / 1_000_000) as Tick;
        self.context.set_now(self.now_us, tick);
    }

    // --- packets

    fn read_ports(&mut self) -> usize {
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
                self.handle_burst(number as u16, &mut burst);
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
            .is_none_or(|exchange| exchange.up.free_bytes() >= BURST_LOG_BYTES)
    }

    fn handle_burst(&mut self, port: u16, burst: &mut Burst) {
        for frame in burst.as_slice() {
            self.pool.prefetch(frame);
        }
        if self.prefetches {
            self.prefetch(port, burst);
        }
        self.context.arrive(self.now_us);
        let port = PortNumber(port);
        for slot in burst.as_mut_slice() {
            self.serial += 1;
            let truncated = slot.is_truncated();
            let mut packet = match Packet::parse(self.pool.bytes_mut(slot)) {
                Ok(packet) if !truncated => packet,
                parsed => {
                    let reason = match parsed {
                        Ok(_) => Reason::TruncatedCapture,
                        Err(malformed) => malformed.into(),
                    };
                    self.discard(slot.alias(), reason);
                    continue;
                }
            };
            let layout = *packet.layout();
            if !self.parking.is_empty() {
                if self.follows(slot, layout) {
                    slot.set_port(port.0);
                    self.park_behind(slot.alias(), layout);
                    continue;
                }
                packet = Packet::with_layout(self.pool.bytes_mut(slot), layout);
            }
            self.context.begin(self.serial);
            let given = Call {
                state: &mut self.state,
                context: &self.context,
                emissions: &mut self.emissions,
                port,
            };
            let result = call(&*self.function, packet, given);
            self.conclude(result, slot, layout, port);
        }
        burst.forget();
    }

    /// The pass that only prefetches: first the index lines of the whole burst, then the records.
    fn prefetch(&mut self, port: u16, burst: &mut Burst) {
        let mut noted = [None; BURST];
        self.context.prefetch();
        for (frame, noted) in burst.as_mut_slice().iter_mut().zip(&mut noted) {
            let Ok(packet) = Packet::parse(self.pool.bytes_mut(frame)) else {
                continue;
            };
            let given = Call {
                state: &mut self.state,
                context: &self.context,
                emissions: &mut self.emissions,
                port: PortNumber(port),
            };
            // The verdict of a call that reads nothing is not taken: the packet is handled below.
            let _ = call(&*self.function, packet, given);
            *noted = self.context.take_prefetched();
        }
        self.context.answer();
        for noted in noted.into_iter().flatten() {
            self.state.look(noted.object, PrefetchRecord(noted));
        }
    }

    /// Calls the function again for a packet that was parked, and does as it says. The frame moves on from
    /// `slot`, whose content nobody may use afterwards.
    fn call_again(&mut self, slot: &mut Frame, layout: Layout, port: PortNumber) {
        let packet = Packet::with_layout(self.pool.bytes_mut(slot), layout);
        let given = Call {
            state: &mut self.state,
            context: &self.context,
            emissions: &mut self.emissions,
            port,
        };
        let result = call(&*self.function, packet, given);
        self.conclude(result, slot, layout, port);
    }

    /// Does as the function said.
    #[inline(always)]
    fn conclude(
        &mut self,
        result: Result<Verdict, Late>,
        slot: &mut Frame,
        layout: Layout,
        port: PortNumber,
    ) {
        if self.context.needs_attention() && result.is_ok() {
            self.settle();
        }
        if let Ok(Verdict::Forward(to)) = result {
            self.forward(to, slot);
        } else {
            self.end(result, slot, layout, port);
        }
    }

    /// A packet that is not sent on, now at least.
    fn end(
        &mut self,
        result: Result<Verdict, Late>,
        slot: &mut Frame,
        layout: Layout,
        port: PortNumber,
    ) {
        match result {
            Ok(Verdict::Drop(reason)) => self.discard(slot.alias(), reason),
            Ok(Verdict::Consumed | Verdict::Forward(_)) => {
                self.tally.consumed += 1;
                self.pool.release(slot.alias());
            }
            Err(_) => {
                slot.set_port(port.0);
                self.park(slot.alias(), layout);
            }
        }
    }

    /// After a packet that took grants or wrote: unspent grants return, its group is closed.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        let state = &self.state;
        self.context.end(|object, number| {
            state.look(object, GiveBack(number));
        });
        for object in 0..F::State::OBJECTS.len() as u8 {
            state.look(object, Settle);
        }
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
        let number = usize::from(port.0);
        let refused = match (self.outgoing.get_mut(number), self.ports.get_mut(number)) {
            (Some(outgoing), Some(port)) => {
                self.tally.forwarded += outgoing.len() as u64;
                port.send(&mut self.pool, outgoing);
                outgoing.push(frame)
            }
            _ => Err(frame),
        };
        if let Err(frame) = refused {
            self.discard(frame, Reason::PortDown);
        }
    }

    #[cold]
    fn discard(&mut self, frame: Frame, reason: Reason) {
        self.tally.drop(reason);
        self.pool.release(frame);
    }

    fn send(&mut self) {
        if !self.emissions.is_empty() {
            self.send_emissions();
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
        let Self {
            emissions,
            pool,
            outgoing,
            ports,
            tally,
            ..
        } = self;
        emissions.take(|port, bytes| {
            let (Some(outgoing), Some(port)) = (
                outgoing.get_mut(usize::from(port.0)),
                ports.get_mut(usize::from(port.0)),
            ) else {
                tally.drop(Reason::PortDown);
                return;
            };
            let Some(frame) = pool.allocate_copy(bytes) else {
                tally.drop(Reason::NoBuffer);
                return;
            };
            if outgoing.room() == 0 {
                tally.forwarded += outgoing.len() as u64;
                port.send(pool, outgoing);
            }
            match outgoing.push(frame) {
                Ok(()) => tally.emitted += 1,
                Err(frame) => {
                    tally.drop(Reason::PortDown);
                    pool.release(frame);
                }
            }
        });
    }

    // --- parked packets

    fn flow(&mut self, frame: &mut Frame, layout: Layout) -> u64 {
        FlowKey::of(&Packet::with_layout(self.pool.bytes_mut(frame), layout))
            .hash(self.context.seed())
    }

    #[cold]
    fn follows(&mut self, frame: &mut Frame, layout: Layout) -> bool {
        let flow = self.flow(frame, layout);
        self.parking.must_follow(flow)
    }

    #[cold]
    fn park_behind(&mut self, mut frame: Frame, layout: Layout) {
        let flow = self.flow(&mut frame, layout);
        let until = Until::Turn {
            serial: self.serial,
        };
        let parked = Parked {
            frame,
            call: asterism_state::Call::default(),
            flow,
            since_us: self.now_us,
            until,
        };
        self.put(parked);
    }

    #[cold]
    #[inline(never)]
    fn park(&mut self, mut frame: Frame, layout: Layout) {
        self.tally.late += 1;
        let (call, wait) = self.context.park();
        let state = &self.state;
        if mutant::active(Mutant::GrantReturnedAtPark) {
            self.context.resume(call);
            self.context.end(|object, number| {
                state.look(object, GiveBack(number));
            });
        }
        for object in 0..F::State::OBJECTS.len() as u8 {
            state.look(object, Settle);
        }
        let until = Until::new(wait, self.now_us);
        if matches!(until, Until::Absent { .. })
            && let Some(exchange) = &mut self.exchange
        {
            // What does not fit is no loss: keep-alives tell the same a little later.
            let _ = Up::Probe.push(&mut exchange.up);
        }
        let flow = self.flow(&mut frame, layout);
        let since_us = self.parked_since_us.take().unwrap_or(self.now_us);
        self.put(Parked {
            frame,
            call,
            flow,
            since_us,
            until,
        });
    }

    fn put(&mut self, parked: Parked) {
        if let Some(oldest) = self.parking.park(parked) {
            self.give_up(oldest, Reason::ParkedOverflow);
        }
        self.tally.parked = self.parking.len();
        self.tally.parked_most = self.tally.parked_most.max(self.tally.parked);
    }

    /// Drops a parked packet; what it had reserved returns.
    fn give_up(&mut self, parked: Parked, reason: Reason) {
        self.context.resume(parked.call);
        self.settle();
        if mutant::active(Mutant::GivenUpFrameKept) {
            self.tally.drop(reason);
            let _ = parked.frame;
            return;
        }
        self.discard(parked.frame, reason);
    }

    /// Calls again every parked packet that may be answered now, in order for each flow.
    #[cold]
    fn retry(&mut self) {
        let count = self.parking.begin_pass();
        let mut held = crate::parking::FlowFilter::default();
        for _ in 0..count {
            let Some(mut parked) = self.parking.next() else {
                break;
            };
            let ready = !held.may_hold(parked.flow)
                && match parked.until {
                    Until::Fetched { at_us } => self.now_us >= at_us,
                    // Others' writes may have brought the entry itself, or cover the time.
                    Until::Absent { until_us } => self.now_us >= until_us || self.news,
                    Until::Turn { .. } => true,
                };
            if self.now_us.saturating_sub(parked.since_us) > PARKED_US_MAX {
                self.give_up(parked, Reason::ParkedTooLong);
                continue;
            }
            if !ready || !self.has_log_room() {
                held.add(parked.flow);
                if let Some(oldest) = self.parking.keep(parked) {
                    self.give_up(oldest, Reason::ParkedOverflow);
                }
                continue;
            }
            let Ok(layout) = Layout::parse(self.pool.bytes(&parked.frame)) else {
                self.give_up(parked, Reason::UnsupportedProtocol);
                continue;
            };
            match parked.until {
                Until::Turn { serial } => {
                    self.context.arrive(parked.since_us);
                    self.context.begin(serial);
                }
                _ => self.context.resume(core::mem::take(&mut parked.call)),
            }
            let before = self.parking.len();
            self.parked_since_us = Some(parked.since_us);
            let port = PortNumber(parked.frame.port());
            self.call_again(&mut parked.frame, layout, port);
            self.parked_since_us = None;
            if self.parking.len() > before {
                held.add(parked.flow);
            }
        }
        self.tally.parked = self.parking.len();
        self.news = false;
        self.commit();
    }

    // --- what others wrote, and what they are told

    fn apply(&mut self) {
        let Some(mut exchange) = self.exchange.take() else {
            return;
        };
        let mut left = APPLY_GROUPS_PER_TURN;
        let lane = self.context.identity().lane.0 as u8;
        while left > 0 {
            left -= 1;
            let Some(record) = exchange.down.next() else {
                break;
            };
            match Down::read(record) {
                Some(Down::Group {
                    lane: from,
                    origin,
                    sequence,
                    bytes,
                }) if from != lane => {
                    self.news = true;
                    self.tally.groups_applied += 1;
                    if self
                        .state
                        .apply(&self.context, origin, sequence, bytes)
                        .is_err()
                    {
                        self.tally.groups_bad += 1;
                    }
                }
                Some(Down::Progress {
                    origin,
                    received,
                    stable,
                    covered_us,
                }) => {
                    self.news = true;
                    self.learn(origin, stable, covered_us);
                    // Room for this is part of what a burst leaves free.
                    let _ = Up::Applied {
                        member: MemberId(origin.member),
                        sequence: received,
                    }
                    .push(&mut exchange.up);
                }
                Some(Down::Walk { member, walk }) if lane == 0 => {
                    let before = self.walks.iter().find(|known| known.member == member);
                    let begin = match before {
                        Some(known) if placed::active(placed::Mutant::WalkNotRestarted) => {
                            known.cursor
                        }
                        _ => Some((0, 0)),
                    };
                    self.walks.retain(|known| known.member != member);
                    self.walks.push(Walk {
                        member,
                        walk,
                        cursor: begin,
                        room: WALK_PARTS,
                    });
                }
                Some(Down::WalkOn { member, walk }) => {
                    for known in &mut self.walks {
                        if (known.member, known.walk) == (member, walk) {
                            known.room += WALK_PARTS;
                        }
                    }
                }
                Some(Down::StopWalk { member, walk }) => {
                    self.walks
                        .retain(|known| known.member != member || known.walk != walk);
                }
                Some(Down::ImagePart { bytes }) => {
                    self.news = true;
                    self.tally.groups_applied += 1;
                    if self.state.apply_image(&self.context, bytes).is_err() {
                        self.tally.groups_bad += 1;
                    }
                }
                Some(Down::ImageEnd { from, walk }) => {
                    let _ = Up::ImageApplied { from, walk }.push(&mut exchange.up);
                }
                Some(_) | None => {}
            }
        }
        if left == 0 && mutant::active(Mutant::BudgetSkipsGroup) {
            let _ = exchange.down.next();
        }
        exchange.down.release();
        self.exchange = Some(exchange);
    }

    fn learn(&mut self, origin: OriginName, stable: u64, covered_us: u64) {
        if let Some(slot) = self.context.origin(origin) {
            self.context.set_stable(slot, stable);
        }
        let identity = self.context.identity();
        if let Some(place) = identity
            .members
            .iter()
            .position(|&member| member == origin.member)
        {
            self.context.set_covered(place as u16, covered_us);
        }
    }

    /// Hands the groups written so far to the state channel. A burst was read only with room for them.
    #[inline]
    fn commit(&mut self) {
        if self.context.wrote() {
            self.push_groups();
        }
    }

    #[cold]
    #[inline(never)]
    fn push_groups(&mut self) {
        let (tally, exchange) = (&mut self.tally, &mut self.exchange);
        self.context.take_groups(|sequence, bytes| {
            tally.groups_written += 1;
            tally.group_bytes_written += bytes.len() as u64;
            if let Some(exchange) = exchange {
                // Whoever shares the counter draws from it; alone, it is told here.
                exchange.committed.fetch_max(sequence, Ordering::Release);
                let pushed = Up::Group { sequence, bytes }.push(&mut exchange.up);
                assert!(
                    pushed.is_ok(),
                    "a group was written without room for it: the host stops"
                );
            }
        });
    }

    /// Timers, flushes, images: what a turn does besides packets.
    fn upkeep(&mut self) {
        if self.now_us.saturating_sub(self.flushed_us) >= self.flush_us && self.has_log_room() {
            self.flush();
        }
        if self.now_us.saturating_sub(self.swept_us) >= SWEEP_STEP_US && self.has_log_room() {
            self.sweep();
        }
        if !self.walks.is_empty() {
            self.walk();
        }
    }

    fn flush(&mut self) {
        let Some(exchange) = &mut self.exchange else {
            self.flushed_us = self.now_us;
            return;
        };
        // Accumulators wait while the log is more than half full: what they hold back only grows together.
        let held = exchange.up.lag_bytes() * 2 > exchange.up.capacity();
        self.context.hold_accumulators(held);
        let mut bytes = BURST_LOG_BYTES / 2;
        let objects = F::State::OBJECTS.len() as u8;
        for _ in 0..objects {
            let all = self
                .state
                .with(self.flush_cursor, Flush(&mut bytes))
                .unwrap_or(true);
            if !all {
                break;
            }
            self.flush_cursor = (self.flush_cursor + 1) % objects;
        }
        if self.context.wrote() {
            self.settle();
            self.push_groups();
        }
        if bytes > asterism_state::OPERATION_BYTES_MAX {
            self.flushed_us = self.now_us;
        }
    }

    #[cold]
    fn sweep(&mut self) {
        self.swept_us = self.now_us;
        let mut outgrew = false;
        for object in 0..F::State::OBJECTS.len() as u8 {
            self.state.with(object, Sweep { turns: SWEEP_STEPS });
            outgrew |= self
                .state
                .look(object, OutgrewCache(CACHE_BYTES))
                .unwrap_or(false);
            if self.context.wrote() {
                self.settle();
                self.push_groups();
            }
            if !self.has_log_room() {
                break;
            }
        }
        self.prefetches = outgrew;
    }

    #[cold]
    fn walk(&mut self) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        for _ in 0..IMAGE_PARTS_PER_TURN {
            // Whose end is all that is left needs no room.
            let Some(place) = self
                .walks
                .iter()
                .position(|walk| walk.room > 0 || walk.cursor.is_none())
            else {
                return;
            };
            let walk = &mut self.walks[place];
            if exchange.up.free_bytes() < BURST_LOG_BYTES + 2 * (IMAGE_PART_BYTES + RECORD_BYTES) {
                return;
            }
            let Walk {
                member,
                walk: number,
                cursor,
                room,
            } = walk;
            match *cursor {
                Some(from) => {
                    self.part.clear();
                    *cursor = self.state.image(from, IMAGE_PART_BYTES, &mut self.part);
                    if !self.part.is_empty() {
                        *room -= 1;
                        let part = Up::ImagePart {
                            member: *member,
                            walk: *number,
                            bytes: &self.part,
                        };
                        let _ = part.push(&mut exchange.up);
                    }
                }
                None => {
                    let _ = Up::ImageDone {
                        member: *member,
                        walk: *number,
                    }
                    .push(&mut exchange.up);
                    self.walks.remove(place);
                }
            }
        }
    }

    fn publish(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.up.publish();
        }
    }

    // --- to look at, and to steer from outside

    /// The state, to read.
    pub fn state(&self) -> &F::State {
        &self.state
    }
    /// The shared part of the state.
    pub fn context(&self) -> &Context {
        &self.context
    }
    /// The function.
    pub fn function(&self) -> &F {
        &self.function
    }
    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
    /// A port.
    pub fn port_mut(&mut self, port: PortNumber) -> Option<&mut (dyn Port + 'static)> {
        self.ports
            .get_mut(usize::from(port.0))
            .map(|port| &mut **port)
    }
    /// A port and the pool of its frames.
    pub fn port_and_pool(
        &mut self,
        port: PortNumber,
    ) -> Option<(&mut (dyn Port + 'static), &mut FramePool)> {
        self.ports
            .get_mut(usize::from(port.0))
            .map(|port| (&mut **port, &mut self.pool))
    }
    /// Puts another port in the place of one; frames that the old one holds are lost to the pool.
    pub fn replace_port(&mut self, port: PortNumber, with: Box<dyn Port>) {
        if let Some(place) = self.ports.get_mut(usize::from(port.0)) {
            *place = with;
        }
    }
    /// Frames in use: parked ones and those that ports hold.
    pub fn frames_in_use(&self) -> usize {
        self.pool.in_use()
    }
    /// Objects' names with their entries (live, held).
    pub fn entries(&self) -> Vec<(&'static str, usize, usize)> {
        F::State::OBJECTS
            .iter()
            .enumerate()
            .filter_map(|(object, &name)| {
                self.state
                    .look(object as u8, Entries)
                    .map(|(live, held)| (name, live, held))
            })
            .collect()
    }
    /// One digest for each object.
    pub fn digests(&self) -> Vec<u64> {
        self.state.digests()
    }
    /// Whether groups of others wait to be applied.
    pub fn is_behind(&self) -> bool {
        self.exchange
            .as_ref()
            .is_some_and(|exchange| !exchange.down.is_empty())
    }
    /// When the loop has something to do next, whatever arrives.
    pub fn next_due(&self) -> Time {
        let mut due = self.swept_us + SWEEP_STEP_US;
        if self.exchange.is_some() {
            due = due.min(self.flushed_us + self.flush_us);
        }
        if let Some(ready) = self.parking.next_ready_us() {
            due = due.min(ready);
        }
        let ports = self.ports.iter().filter_map(|port| port.next_due());
        ports.fold(Time::from_micros(due), Time::min)
    }
    /// Handles one packet outside any port, as control-plane use and simulators do: it is read in the next
    /// turn by no port but handled now. Returns false if it could not be taken (no buffer, no log room).
    pub fn inject(&mut self, now: Time, port: PortNumber, bytes: &[u8]) -> bool {
        self.begin(now);
        if self.parking.is_full() || !self.has_log_room() {
            return false;
        }
        let Some(frame) = self.pool.allocate_copy(bytes) else {
            return false;
        };
        let mut burst = Burst::default();
        if let Err(frame) = burst.push(frame) {
            self.pool.release(frame);
            return false;
        }
        self.tally.received += 1;
        self.handle_burst(port.0, &mut burst);
        self.commit();
        self.send();
        self.publish();
        true
    }
}

/// The state layer's name of a member's life, for looking up what it wrote.
pub fn origin_of(member: MemberId, incarnation: asterism_placement::Incarnation) -> OriginName {
    origin(member, incarnation)
}
