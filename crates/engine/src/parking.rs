//! Packets whose answers are late: kept in order for each flow, bounded, each with a deadline, and each found by what it waits for.
//!
//! A packet waits for one of five things, and nothing else touches it meanwhile. Reads under way, and every deadline, are in one
//! heap of times. Entries that its call read are awaited in the context, which says what was written. What a member wrote before
//! the packet arrived is awaited in a list for that member, in order of arrival. A packet behind another of its flow waits for that one to
//! leave. What has come of it makes a packet *ready*, and ready packets are called in their order.
//!
//! Nothing here grows: all memory is taken at start. `lists.rs` has the lists, `timers.rs` the heap. `flow_filter.rs` tells packets of other
//! flows that they need not wait.

mod lists;
mod timers;

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};

use asterism_function::Reason;
use asterism_state::{Call, Context, Wait};

use crate::flow_filter::FlowFilter;
use crate::mutant::{self, Mutant};
use crate::store::LATE_US;
use asterism_io::frame::{BURST, Frame, FramePool};
use lists::{Link, List, NOTHING};
use timers::Timers;

/// Packets parked at most. At the bound no port is read; what waits for absent entries, or behind other packets, cannot
/// reach it alone.
pub const PARKED_MAX: usize = 1_024;
/// Packets parked for entries that may be on their way, at most. At the bound the oldest is dropped.
pub const PARKED_ABSENT_MAX: usize = 256;
/// Packets parked behind others of their flows, at most. At the bound the newest is dropped.
pub const PARKED_BEHIND_MAX: usize = 512;
/// Packets of one flow parked at most, fragments between two hosts being one flow. At the bound the newest is dropped: six
/// initial windows of TCP (RFC 6928).
pub const PARKED_FLOW_MAX: usize = 64;
/// Microseconds after which a parked packet is dropped, whatever it waits for.
pub const PARKED_US_MAX: u64 = 2_000_000;

/// Places for packets: those of bursts that were read before the bound was reached, and of what stages emitted meanwhile, find one.
pub(crate) const PLACES: usize = PARKED_MAX + 256;

/// The lists that a packet may be in: its flow's, that of all which wait for entries, and that of a member.
const OF_FLOW: usize = 0;
const ABSENT: usize = 1;
const OF_MEMBER: usize = 2;

/// A parked packet.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) frame: Frame,
    pub(crate) call: Call,
    /// The hash of its flow, and the digest of its flow's key.
    pub(crate) flow: u64,
    pub(crate) digest: u64,
    /// It is a fragment, which others of its flow may overtake (RFC 791 §3.2): nobody waits behind it.
    pub(crate) is_fragment: bool,
    /// When it was parked first.
    pub(crate) since_us: u64,
    /// When it arrived.
    pub(crate) arrived_us: u64,
    pub(crate) until: Until,
}

/// What a parked packet waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Its fetched reads, ready at this time.
    Fetched { at_us: u64 },
    /// An entry that it read, or this time.
    Written { until_us: u64 },
    /// An entry that it read, or all that a member (`None`: every other one) wrote before it arrived, or this time.
    Absent { member: Option<u16>, until_us: u64 },
    /// The answers of a store to its requests, of this number, or this time.
    Answers { requests: u16, until_us: u64 },
    /// The store's decision on what its call read and wrote. If that refuses it, answers again, or this time.
    Decided { requests: u16, until_us: u64 },
    /// A packet of the same flow before it: it was not called yet.
    Turn { serial: u64 },
}

impl Until {
    pub(crate) fn new(wait: Wait, call: &Call, now_us: u64) -> Self {
        match wait {
            Wait::Fetch { delay_us } => Self::Fetched {
                at_us: now_us.saturating_add(delay_us),
            },
            Wait::Absent { member, until_us } => Self::Absent { member, until_us },
            Wait::Written { until_us } => Self::Written { until_us },
            Wait::Answers => Self::Answers {
                requests: call.requests(),
                until_us: u64::MAX,
            },
            // A function that returns `Err` without a late read is called again at once; too much is not parked.
            Wait::Nothing | Wait::TooMuch => Self::Fetched { at_us: now_us },
        }
    }

    /// The same, at this time at the latest.
    pub(crate) fn by(mut self, latest_us: u64) -> Self {
        match &mut self {
            Self::Fetched { at_us: until_us }
            | Self::Written { until_us }
            | Self::Answers { until_us, .. }
            | Self::Absent { until_us, .. } => *until_us = latest_us.min(*until_us),
            Self::Decided { .. } | Self::Turn { .. } => {}
        }
        self
    }

    /// The number of the requests that a store is to answer, or decide of.
    fn requests(self) -> Option<u16> {
        match self {
            Self::Answers { requests, .. } | Self::Decided { requests, .. } => Some(requests),
            _ => None,
        }
    }

    /// Until when it waits for answers, if it does.
    fn answers_until_us(self) -> Option<u64> {
        match self {
            Self::Answers { until_us, .. } => Some(until_us),
            _ => None,
        }
    }

    fn is_absent(self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Written { .. })
    }
}

/// How far a parked packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// What it waits for has not come.
    #[default]
    Waiting,
    /// It waits for those of its flow that are before it, and for nothing else.
    Woken,
    /// It is called in its order.
    Ready,
}

#[derive(Debug, Default)]
struct Place {
    parked: Option<Parked>,
    phase: Phase,
    /// In which order it was parked.
    order: u64,
    links: [Link; 3],
    /// The member in whose list it is.
    member: u16,
    /// Where its time stands among all.
    timer: u16,
}

/// What is known of a flow with parked packets.
#[derive(Clone, Copy, Debug, Default)]
struct OfFlow {
    packets: usize,
    /// All but fragments.
    in_order: List,
}

/// Flows are known by hashes that nobody outside can predict: they need not be hashed again.
#[derive(Clone, Copy, Debug, Default)]
struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The parked packets of an instance.
#[derive(Debug)]
pub(crate) struct Parking {
    places: Vec<Place>,
    free: Vec<u16>,
    /// Never grows: it has room for twice as many flows as packets can be parked.
    flows: HashMap<u64, OfFlow, BuildHasherDefault<HashedAlready>>,
    filter: FlowFilter,
    ready: VecDeque<u16>,
    timers: Timers,
    absent: List,
    absent_count: usize,
    of_members: Vec<List>,
    /// Places of packets that wait for a store, by the numbers of their requests.
    of_requests: Vec<u16>,
    /// Requests whose answers, or decisions, are late: to be asked for again.
    unanswered: VecDeque<u16>,
    behind: usize,
    parked_so_far: u64,
    /// The flow of the packet that is called again now: it stands before all others of it.
    called: Option<u64>,
    /// Also packets of other flows may have to wait: those whose flow a stage changes.
    has_stages: bool,
}

impl Parking {
    /// For a host of so many members, and a function with stages or without.
    pub(crate) fn new(context: &Context, has_stages: bool) -> Self {
        context.await_for(PARKED_ABSENT_MAX + 1, PLACES);
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            free: (0..PLACES as u16).rev().collect(),
            flows: HashMap::with_capacity_and_hasher(2 * PLACES, BuildHasherDefault::default()),
            filter: FlowFilter::new(context.seed()),
            ready: VecDeque::with_capacity(PLACES),
            timers: Timers::new(PLACES),
            absent: List::default(),
            absent_count: 0,
            of_members: vec![List::default(); context.identity().members.len()],
            of_requests: vec![NOTHING; PLACES + 1],
            unanswered: VecDeque::with_capacity(PLACES),
            behind: 0,
            parked_so_far: 0,
            called: None,
            has_stages,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == PLACES
    }
    pub(crate) fn len(&self) -> usize {
        PLACES - self.free.len()
    }
    /// Whether reading another burst could overflow the bound.
    pub(crate) fn is_full(&self) -> bool {
        self.len() + BURST > PARKED_MAX
    }
    /// Whether a packet of this flow must wait behind one that is parked.
    pub(crate) fn must_follow(&self, flow: u64) -> bool {
        let known = self.flows.get(&flow);
        self.called != Some(flow) && known.is_some_and(|of| of.in_order.first != NOTHING)
    }
    /// Which packets of some may have to wait behind one that is parked, by the bits of a number: some ten instructions for each, and
    /// rarely true of one that need not.
    #[inline(never)]
    pub(crate) fn which_may_follow(&self, pool: &FramePool, frames: &[Frame]) -> u32 {
        const { assert!(BURST <= u32::BITS as usize) };
        if self.has_stages {
            return u32::MAX;
        }
        let mut may_follow = 0;
        for (number, frame) in frames.iter().enumerate() {
            may_follow |= u32::from(self.filter.may_have(pool.bytes(frame))) << number;
        }
        may_follow
    }
    /// How many packets were ever parked.
    #[inline(always)]
    pub(crate) fn so_far(&self) -> u64 {
        self.parked_so_far
    }
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
    /// When the next parked packet becomes ready, or is given up, by time alone.
    #[inline]
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.timers.first()
    }

    /// Parks a packet, which waits for what the context has noted of its reads. Gives back the one that is too many, if one is, and
    /// why.
    pub(crate) fn park(&mut self, parked: Parked, context: &Context) -> Option<(Parked, Reason)> {
        let of_flow = self.flows.get(&parked.flow).map_or(0, |of| of.packets);
        if of_flow >= PARKED_FLOW_MAX && !mutant::active(Mutant::FlowFillsParking) {
            return Some((parked, Reason::ParkedFlow));
        }
        let is_behind = matches!(parked.until, Until::Turn { .. });
        let is_one_too_many =
            self.behind >= PARKED_BEHIND_MAX && !mutant::active(Mutant::FlowFillsParking);
        if is_behind && is_one_too_many {
            return Some((parked, Reason::ParkedOverflow));
        }
        let Some(number) = self.free.pop() else {
            return Some((parked, Reason::ParkedOverflow));
        };
        self.put(number, parked, context);
        if self.absent_count <= PARKED_ABSENT_MAX {
            self.assert_sound();
            return None;
        }
        let oldest = self.remove(self.absent.first, context)?;
        self.assert_sound();
        Some((oldest, Reason::ParkedOverflow))
    }

    /// What holds between calls.
    fn assert_sound(&self) {
        debug_assert!(self.absent_count <= PARKED_ABSENT_MAX && self.absent_count <= self.len());
        debug_assert!(self.behind <= PARKED_BEHIND_MAX || mutant::active(Mutant::FlowFillsParking));
        debug_assert!(self.flows.len() <= self.len() && self.ready.len() <= self.len());
    }

    fn put(&mut self, number: u16, parked: Parked, context: &Context) {
        let (until, since_us, flow) = (parked.until, parked.since_us, parked.flow);
        let (is_fragment, arrived_us) = (parked.is_fragment, parked.arrived_us);
        self.parked_so_far += 1;
        let of = self.flows.entry(flow).or_default();
        of.packets += 1;
        if !is_fragment {
            self.filter.add(parked.digest);
        }
        self.places[usize::from(number)] = Place {
            parked: Some(parked),
            order: self.parked_so_far,
            ..Place::default()
        };
        if !is_fragment {
            // One that was called again and is late again is still the first of its flow.
            let is_first = self.called == Some(flow) && !mutant::active(Mutant::LateAgainIsLast);
            let list = &mut of.in_order;
            match is_first {
                true => list.push_first(&mut self.places, OF_FLOW, number),
                false => list.push_last(&mut self.places, OF_FLOW, number),
            }
        }
        let give_up_us = since_us.saturating_add(PARKED_US_MAX + 1);
        let due_us = match until {
            Until::Fetched { at_us: until_us }
            | Until::Written { until_us }
            | Until::Absent { until_us, .. } => until_us.min(give_up_us),
            Until::Answers { .. } | Until::Decided { .. } => {
                let latest_us = until.answers_until_us().unwrap_or(u64::MAX);
                give_up_us
                    .min(latest_us)
                    .min(context.now_us().saturating_add(LATE_US))
            }
            Until::Turn { .. } => give_up_us,
        };
        if let Some(of) = until
            .requests()
            .and_then(|of| self.of_requests.get_mut(usize::from(of)))
        {
            *of = number;
        }
        self.timers.add(&mut self.places, number, due_us);
        if until.is_absent() {
            self.absent_count += 1;
            let since = |place: &Place| place.parked.as_ref().map_or(0, |parked| parked.since_us);
            self.absent
                .insert_by(&mut self.places, ABSENT, number, since);
            context.await_noted(number);
        }
        match until {
            Until::Absent { member, .. } => {
                self.await_member(number, (member, arrived_us), context)
            }
            Until::Turn { .. } => {
                self.behind += 1;
                self.wake(number, context);
            }
            _ => {}
        }
    }

    /// Waits for a member that has not said yet that all it wrote before then is here, or no longer.
    fn await_member(
        &mut self,
        number: u16,
        (member, arrived_us): (Option<u16>, u64),
        context: &Context,
    ) {
        match context.uncovered(member, arrived_us) {
            Some(by) if usize::from(by) < self.of_members.len() => {
                self.places[usize::from(number)].member = by;
                let arrived = |place: &Place| {
                    let parked = place.parked.as_ref();
                    parked.map_or(0, |parked| parked.arrived_us)
                };
                let list = &mut self.of_members[usize::from(by)];
                list.insert_by(&mut self.places, OF_MEMBER, number, arrived);
            }
            _ => self.wake(number, context),
        }
    }

    /// What a packet waits for has come: it is ready, or the next of its flow.
    fn wake(&mut self, number: u16, context: &Context) {
        let Some(place) = self.places.get_mut(usize::from(number)) else {
            return;
        };
        let Some(parked) = place.parked.as_ref() else {
            return;
        };
        if place.phase != Phase::Waiting {
            return;
        }
        place.phase = Phase::Woken;
        let (is_fragment, flow) = (parked.is_fragment, parked.flow);
        let give_up_us = parked.since_us.saturating_add(PARKED_US_MAX + 1);
        self.stop_waiting(number, context);
        self.timers.change(&mut self.places, number, give_up_us);
        if is_fragment {
            self.make_ready(number);
        } else {
            self.look_at_first(flow);
        }
    }

    /// The first packet of a flow is ready if nothing else keeps it.
    fn look_at_first(&mut self, flow: u64) {
        if self.called == Some(flow) {
            return;
        }
        let Some(of) = self.flows.get(&flow) else {
            return;
        };
        let first = of.in_order.first;
        let place = self.places.get(usize::from(first));
        if place.is_some_and(|place| place.phase == Phase::Woken) {
            self.make_ready(first);
        }
    }

    fn make_ready(&mut self, number: u16) {
        self.places[usize::from(number)].phase = Phase::Ready;
        self.ready.push_back(number);
    }

    /// Takes a packet out of what it waits for, but for its time and its flow.
    fn stop_waiting(&mut self, number: u16, context: &Context) {
        let place = &self.places[usize::from(number)];
        let Some(parked) = place.parked.as_ref() else {
            return;
        };
        if let Some(of) = parked
            .until
            .requests()
            .and_then(|of| self.of_requests.get_mut(usize::from(of)))
        {
            *of = NOTHING;
        }
        if !parked.until.is_absent() {
            return;
        }
        context.stop_awaiting(number);
        let member = usize::from(place.member);
        if let Some(list) = self.of_members.get_mut(member) {
            list.remove(&mut self.places, OF_MEMBER, number);
        }
    }

    /// Takes a packet out.
    fn remove(&mut self, number: u16, context: &Context) -> Option<Parked> {
        self.places.get(usize::from(number))?.parked.as_ref()?;
        self.stop_waiting(number, context);
        self.timers.remove(&mut self.places, number);
        if self.places[usize::from(number)].phase == Phase::Ready {
            self.ready.retain(|&ready| ready != number);
        }
        let parked = self.take(number)?;
        self.look_at_first(parked.flow);
        Some(parked)
    }

    /// The rest of taking a packet out.
    fn take(&mut self, number: u16) -> Option<Parked> {
        let parked = self.places.get_mut(usize::from(number))?.parked.take()?;
        if parked.until.is_absent() {
            self.absent_count -= 1;
            self.absent.remove(&mut self.places, ABSENT, number);
        }
        if matches!(parked.until, Until::Turn { .. }) {
            self.behind -= 1;
        }
        if let Some(of) = self.flows.get_mut(&parked.flow) {
            of.packets -= 1;
            if !parked.is_fragment {
                self.filter.remove(parked.digest);
                of.in_order.remove(&mut self.places, OF_FLOW, number);
            }
            if of.packets == 0 {
                self.flows.remove(&parked.flow);
            }
        }
        self.free.push(number);
        Some(parked)
    }

    /// Wakes packets that wait for an entry which was written, of one entry in the order in which they were parked.
    pub(crate) fn take_woken(&mut self, context: &Context) {
        while let Some(number) = context.next_woken() {
            self.wake(number, context);
        }
    }

    /// Makes packets ready whose time has come; gives one that has waited too long, if there is one.
    pub(crate) fn take_due(&mut self, now_us: u64, context: &Context) -> Option<Parked> {
        while self.timers.first().is_some_and(|due_us| due_us <= now_us) {
            let number = self.timers.first_number();
            let parked = self.places[usize::from(number)].parked.as_ref()?;
            if now_us.saturating_sub(parked.since_us) > PARKED_US_MAX {
                return self.remove(number, context);
            }
            let latest_us = parked.until.answers_until_us().unwrap_or(u64::MAX);
            if let Some(requests) = parked.until.requests()
                && now_us < latest_us
            {
                let again_us = now_us.saturating_add(LATE_US).min(latest_us);
                let give_up_us = parked.since_us.saturating_add(PARKED_US_MAX + 1);
                if self.places[usize::from(number)].phase == Phase::Waiting {
                    self.unanswered.push_back(requests);
                }
                self.timers
                    .change(&mut self.places, number, again_us.min(give_up_us));
                continue;
            }
            self.wake(number, context);
        }
        None
    }

    /// The next requests that are to be asked again, whose answers or whose decision did not come in time.
    pub(crate) fn next_unanswered(&mut self) -> Option<u16> {
        self.unanswered.pop_front()
    }

    /// A store has answered all requests of a packet, or has decided of it.
    pub(crate) fn take_answered(&mut self, requests: u16, context: &Context) {
        if let Some(&number) = self.of_requests.get(usize::from(requests)) {
            self.wake(number, context);
        }
    }

    /// A member has said how far it is: wakes packets that arrived before.
    pub(crate) fn take_covered(&mut self, member: u16, context: &Context) {
        loop {
            let Some(list) = self.of_members.get_mut(usize::from(member)) else {
                return;
            };
            let number = list.first;
            let Some(place) = self.places.get(usize::from(number)) else {
                return;
            };
            let Some(parked) = place.parked.as_ref() else {
                return;
            };
            let Until::Absent { member: of, .. } = parked.until else {
                return;
            };
            let arrived_us = parked.arrived_us;
            if !context.covers(Some(member), arrived_us) {
                return;
            }
            list.remove(&mut self.places, OF_MEMBER, number);
            self.await_member(number, (of, arrived_us), context);
        }
    }

    /// Who takes part has changed: wakes all packets that wait for entries.
    #[cold]
    pub(crate) fn wake_absent(&mut self, context: &Context) {
        let mut number = self.absent.first;
        while let Some(place) = self.places.get(usize::from(number)) {
            let next = place.links[ABSENT].next;
            self.wake(number, context);
            number = next;
        }
    }

    /// The next packet to be called again. Until [`Parking::was_called`] it is the first of its flow.
    pub(crate) fn next_ready(&mut self) -> Option<Parked> {
        let number = self.ready.pop_front()?;
        self.timers.remove(&mut self.places, number);
        let parked = self.take(number)?;
        self.called = (!parked.is_fragment).then_some(parked.flow);
        Some(parked)
    }

    /// The packet that was taken last was called.
    pub(crate) fn was_called(&mut self) {
        if let Some(flow) = self.called.take()
            && !mutant::active(Mutant::NextOfFlowForgotten)
        {
            self.look_at_first(flow);
        }
    }
}

#[cfg(test)]
mod tests;
