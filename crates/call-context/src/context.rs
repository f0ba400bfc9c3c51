//! What all objects of one instance share: the clock, the packet being handled, the operations that it
//! wrote, and what the placement reports about other members.
//!
//! Single-threaded on purpose: an instance is one packet loop on one core. Cells instead of locks.

mod accumulated;
mod awaited;
mod chained;
mod late;
mod requests;
mod unconfirmed;
mod undecided;
mod write_set;

use core::cell::{Cell, RefCell};

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::answer::{Late, Nearby, Wait, late_answer};
use crate::forgetting::Forgetting;
use crate::identity::{Identity, Sequencer};
use crate::leases::Leasing;
use crate::mutant::{self, Mutant};
use crate::stamp::{Origin, OriginName, Origins, Stamp, raise, reaches};

use crate::tick::Tick;
use crate::trace::Step;
use crate::wire::Writer;
pub use asterism_requests::{
    ANSWER_BYTES_MAX, Answered, Depends, LANE_ANY, LANE_CELLS, LANE_ROOM, LANE_SUM, LANE_SUMS,
    Query, REQUESTS_PER_PACKET_MAX, Ticket, Transaction, entry_hash, stable_hash,
};
pub use awaited::AWAITED_READS_MAX;
pub use unconfirmed::UNCONFIRMED_MAX;
pub use write_set::{ADDITIONS_PER_CALL, WRITES_PER_PACKET, WriteSet, WriteSetTooLong};

/// Bytes of operations that one group may hold, so that a group always fits a datagram; and so what one packet writes at most.
pub const GROUP_BYTES_MAX: usize = 1_100;
/// Grants that one packet may hold.
pub const GRANTS_PER_PACKET_MAX: usize = 4;
/// Late reads of one packet; further ones are answered at once.
pub const MISSES_PER_PACKET_MAX: usize = 8;

/// What is pinned to one packet over all calls that handle it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    arrived_us: u64,
    arrived_tick: Tick,
    serial: u64,
    grants: [Granted; GRANTS_PER_PACKET_MAX],
    grants_held: u8,
    /// A bit for each grant that this call was reported already.
    grants_reported: u8,
    misses: [Miss; MISSES_PER_PACKET_MAX],
    misses_held: u8,
    misses_fetched: u8,
    /// What the packet waits for, if its last call was late.
    wait: Wait,
    /// When a call of it was late first; zero: none was. Begins again at each stage of a chain.
    late_since_us: u64,
    /// The version that its calls depended on.
    dependency: u64,
    /// The number of what it asked stores for; 0: nothing.
    requests: u16,
}

impl Call {
    /// The pinned part of a packet that was not called yet, and that depends on a version.
    pub fn depending_on(dependency: u64) -> Self {
        Self {
            dependency,
            ..Self::default()
        }
    }
    /// The version that the packet depends on.
    pub fn dependency(&self) -> u64 {
        self.dependency
    }
    /// The number by which its requests are known; 0: it has none.
    pub fn requests(&self) -> u16 {
        self.requests
    }
    /// What was spent is only granted again.
    fn unspend(&mut self) {
        self.grants
            .iter_mut()
            .for_each(|granted| granted.spent = false);
    }
    fn return_grants(&self, mut give_back: impl FnMut(u8, u32)) {
        let held = self.grants[..self.grants_held.into()].iter();
        held.filter(|granted| !granted.spent)
            .for_each(|granted| give_back(granted.object, granted.number));
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    object: u8,
    spent: bool,
    number: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Miss {
    object: u8,
    hash: u64,
}

/// How a read of the common path answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayToRead {
    /// At once.
    Plainly,
    /// At once, and it looks first at what was hinted.
    Recalling,
    /// Perhaps not at all: [`Context::answers_plainly`] says when.
    Otherwise,
}

/// Reads answer, and none of the call was late.
const PLAINLY: u16 = 0;
/// Reads only prefetch.
const PREFETCHING: u16 = 1;
/// A read of the call was late.
const LATE: u16 = 2;
/// Some object's reads are late by settings.
const LATE_OBJECTS: u16 = 4;
/// Reads and writes are noted, see `trace.rs`.
pub(crate) const TRACED: u16 = 8;
/// Reads answer, and look first at what was hinted, see `prefetch_hints.rs`.
const RECALLING: u16 = 16;
/// Calls may be answered by entries of a store that are kept here: what they write is recorded.
const KEEPING: u16 = 256;
/// Beside that: some objects must be said to begin.
const KEEPING_RECORDED: u16 = 512;

/// The shared part of one instance's state.
#[derive(Debug)]
pub struct Context {
    pub(crate) identity: Identity,
    seed: u64,
    addresses: Vec<u32>,
    now_us: Cell<u64>,
    tick: Cell<Tick>,
    /// How reads answer: see [`PLAINLY`], [`PREFETCHING`], [`LATE`] and [`RECALLING`].
    pub(crate) asking: Cell<u16>,
    /// What is noted while [`TRACED`].
    pub(crate) steps: RefCell<Vec<Step>>,
    /// What only chains of functions look at.
    pub(crate) chained: chained::Chained,
    /// What parked packets wait for.
    awaited: awaited::Awaited,
    writing: write_set::Writing,
    requests: requests::Requests,
    unconfirmed: unconfirmed::Unconfirmed,
    undecided: undecided::Undecided,
    prefetch_hints: PrefetchHints,
    /// The packet took a grant, missed a read or wrote: its end has something to settle.
    attention: Cell<bool>,
    /// The call went on to write.
    acted: Cell<bool>,
    arrived_us: Cell<u64>,
    arrived_tick: Cell<Tick>,
    serial: Cell<u64>,
    /// Differs from call to call: reservations of an earlier one are void.
    resumed: Cell<u64>,
    call: RefCell<Call>,
    sequencer: Sequencer,
    pub(crate) groups: RefCell<Groups>,
    /// The last group takes more operations.
    group_open: Cell<bool>,
    pub(crate) origins: RefCell<Origins>,
    pub(crate) stable: RefCell<Vec<u64>>,
    /// Up to where each origin's stream is applied here.
    pub(crate) applied: RefCell<Vec<u64>>,
    pub(crate) covered_us: RefCell<Vec<u64>>,
    hold_accumulators: Cell<bool>,
    patience: accumulated::Patience,
    /// Changes of cells that flushes reported, and totals that they reported.
    reported: Cell<(u64, u64)>,
    /// The incarnations that the epoch names, by name; empty until one was informed of.
    pub(crate) living: RefCell<Vec<OriginName>>,
    /// What the epoch says of pools, and who may still grant; see `leases.rs`.
    pub(crate) leasing: Leasing,
    pub(crate) forgetting: Forgetting,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) bytes: Vec<u8>,
    /// (sequence, where its bytes start)
    starts: Vec<(u64, usize)>,
}

impl Context {
    /// A context at time zero. `seed` is secret; it must be equal on all instances of a cluster for them to
    /// choose alike, and so must `addresses` be for them to read each other.
    pub fn new(identity: Identity, sequencer: Sequencer, seed: u64, addresses: Vec<u32>) -> Self {
        let members = identity.members.len();
        Self {
            origins: RefCell::new(Origins::new(identity.own)),
            identity,
            seed,
            addresses,
            now_us: Cell::new(0),
            tick: Cell::new(0),
            asking: Cell::new(PLAINLY),
            steps: RefCell::default(),
            chained: chained::Chained::default(),
            awaited: awaited::Awaited::default(),
            writing: write_set::Writing::default(),
            requests: requests::Requests::default(),
            unconfirmed: unconfirmed::Unconfirmed::default(),
            undecided: undecided::Undecided::default(),
            prefetch_hints: PrefetchHints::default(),
            attention: Cell::new(false),
            acted: Cell::new(false),
            arrived_us: Cell::new(0),
            arrived_tick: Cell::new(0),
            serial: Cell::new(0),
            resumed: Cell::new(0),
            group_open: Cell::new(false),
            call: RefCell::default(),
            sequencer,
            groups: RefCell::new(Groups {
                bytes: Vec::with_capacity(64 << 10),
                starts: Vec::with_capacity(1024),
            }),
            stable: RefCell::new(vec![0; 64]),
            applied: RefCell::new(vec![0; 64]),
            covered_us: RefCell::new(vec![0; members]),
            hold_accumulators: Cell::new(false),
            patience: Default::default(),
            reported: Cell::new((0, 0)),
            living: RefCell::default(),
            leasing: Leasing::default(),
            forgetting: Forgetting::default(),
        }
    }

    /// A context for one box alone, for tests.
    pub fn alone() -> Self {
        Self::new(
            Identity::alone(),
            Sequencer::Own(Cell::new(0)),
            0x5EED,
            Vec::new(),
        )
    }

    /// Who this instance is.
    #[inline]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    /// The secret seed of this instance's hashes.
    #[inline]
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// The addresses worth one byte on the wire.
    #[inline]
    pub fn addresses(&self) -> &[u32] {
        &self.addresses
    }
    /// Sets the time: monotonic microseconds, and seconds of the cluster's common base.
    #[inline]
    pub fn set_now(&self, now_us: u64, tick: Tick) {
        self.now_us.set(now_us);
        self.tick.set(tick);
    }
    /// Sets the time within the second that was set last.
    #[inline(always)]
    pub fn set_now_us(&self, now_us: u64) {
        self.now_us.set(now_us);
    }
    /// Monotonic microseconds, read once a burst.
    #[inline(always)]
    pub fn now_us(&self) -> u64 {
        self.now_us.get()
    }
    /// Seconds of the cluster's common base.
    #[inline(always)]
    pub fn tick(&self) -> Tick {
        self.tick.get()
    }

    // --- the packet being handled

    /// Says when the packets that begin from here on arrived; once a burst.
    #[inline(always)]
    pub fn arrive(&self, arrived_us: u64) {
        self.arrived_us.set(arrived_us);
        self.arrived_tick.set(self.tick.get());
    }
    /// Starts the next packet; `serial` differs for every packet of this instance.
    #[inline(always)]
    pub fn begin(&self, serial: u64) {
        self.serial.set(serial);
    }
    /// Starts the packet after the one that was started last.
    #[inline(always)]
    pub fn begin_next(&self) {
        self.serial.set(self.serial.get().wrapping_add(1));
    }
    /// What the packet being handled was begun with.
    #[inline]
    pub fn serial(&self) -> u64 {
        self.serial.get()
    }
    /// A number that differs for every call of the function, also for two calls with one packet.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.serial.get().wrapping_add(self.resumed.get() << 40)
    }
    /// Ends the asking of a packet: `Err` in the prefetch pass, which must write nothing.
    #[inline(always)]
    pub fn act(&self) -> Result<(), Late> {
        if !self.acts_plainly() {
            return self.act_uncommonly();
        }
        Ok(())
    }
    /// Whether a call may begin to write without more ado; else [`Context::act_uncommonly`] says.
    #[inline(always)]
    pub fn acts_plainly(&self) -> bool {
        self.asking.get() & !(RECALLING | KEEPING) == PLAINLY
    }
    /// [`Context::act`] of a call whose reads are known to have answered.
    #[inline(always)]
    pub fn act_nearby(&self, _: Nearby) {
        debug_assert!(self.answers_plainly());
    }
    /// Ends the asking of a packet in the prefetch pass, which must write nothing (`Err`), although a read was late, or with answers of
    /// stores.
    #[cold]
    pub fn act_uncommonly(&self) -> Result<(), Late> {
        if self.is_prefetching() {
            return Err(late_answer());
        }
        self.begin_writes_in_store()?;
        self.trace(Step::Act);
        self.acted.set(self.asking.get() & LATE != 0);
        Ok(())
    }
    /// Whether the call went on to write although a read of it was late: then it must not end late.
    #[inline]
    pub fn acted(&self) -> bool {
        self.acted.get()
    }
    /// Takes up a packet again that was late.
    pub fn resume(&self, mut call: Call) {
        if matches!(call.wait, Wait::Fetch { .. }) {
            call.misses_fetched = call.misses_held;
        }
        call.grants_reported = 0;
        call.wait = Wait::Nothing;
        self.arrived_us.set(call.arrived_us);
        self.arrived_tick.set(call.arrived_tick);
        self.begin(call.serial);
        self.resumed.set(self.resumed.get().wrapping_add(1));
        self.attention.set(true);
        self.depend_on(call.dependency);
        self.begin_staged(call.requests);
        *self.call.borrow_mut() = call;
    }
    /// Goes on with a packet whose call has ended: its time and its draws are those of that call.
    pub fn go_on_after(&self, call: &Call) {
        self.arrived_us.set(call.arrived_us);
        self.arrived_tick.set(call.arrived_tick);
        self.begin(call.serial);
    }
    /// Ends a call that was late: the packet's pinned part, to keep while it is parked, and what it
    /// waits for.
    pub fn park(&self) -> (Call, Wait) {
        let mut call = core::mem::take(&mut *self.call.borrow_mut());
        call.arrived_us = self.arrived_us.get();
        call.arrived_tick = self.arrived_tick.get();
        call.serial = self.serial.get();
        if call.late_since_us == 0 {
            call.late_since_us = self.now_us().max(1);
        }
        call.dependency = self.take_dependency();
        self.attention.set(false);
        self.forget_late();
        (call, call.wait)
    }
    /// Whether the packet took grants, missed reads or wrote, so that [`Context::end`] has work.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.attention.get()
    }
    /// Ends the packet, or one stage of a chain with it: closes its operation group and hands every unspent grant to
    /// `give_back(object, number)`. What the packet depends on stays, until [`Context::depend_on_nothing`].
    pub fn end(&self, give_back: impl FnMut(u8, u32)) {
        self.attention.set(self.depends());
        self.forget_late();
        self.group_open.set(false);
        let call = core::mem::take(&mut *self.call.borrow_mut());
        if call.requests != 0 {
            self.forget_requests(call.requests);
        }
        call.return_grants(give_back);
    }
    /// Ends a packet that was parked and is not taken up again: its unspent grants go to `give_back`, as by [`Context::end`]. What is
    /// handled meanwhile keeps its time and its draws.
    pub fn abandon(&self, call: Call, give_back: impl FnMut(u8, u32)) {
        if call.requests != 0 {
            self.forget_requests(call.requests);
        }
        call.return_grants(give_back);
    }
    /// When the packet being handled arrived.
    #[inline]
    pub fn arrived_us(&self) -> u64 {
        self.arrived_us.get()
    }
    /// The cluster's common time when it arrived: the same over all calls for one packet.
    #[inline(always)]
    pub fn arrived_tick(&self) -> Tick {
        self.arrived_tick.get()
    }
    /// Bits that look random to everybody outside and stay the same over all calls for one packet.
    #[inline]
    pub fn random(&self, draw: u64) -> u64 {
        let seed = self.seed ^ 0xA5A5_5A5A_0F0F_F0F0;
        asterism_memory::hash::words(self.serial.get(), draw ^ self.chained.salt(), seed)
    }

    /// The next grant of the packet: one that it got in an earlier call and that `fits`, or a fresh one from `take`. Its number, and the
    /// ticket by which [`Context::spend`] knows it; `None` if `take` gives none, or the packet holds [`GRANTS_PER_PACKET_MAX`].
    pub fn grant(
        &self,
        object: u8,
        fits: impl Fn(u32) -> bool,
        take: impl FnOnce() -> Option<u32>,
    ) -> Option<(u32, u8)> {
        let mut call = self.call.borrow_mut();
        let held = call.grants_held;
        for ticket in 0..held {
            let granted = call.grants[usize::from(ticket)];
            let reported =
                call.grants_reported & (1 << ticket) != 0 || mutant::active(Mutant::GrantPerRetry);
            // What was found while asking may have changed since the earlier call, and with it what the
            // function asks for: a grant of another pool or range waits for the packet's end.
            if !reported && !granted.spent && granted.object == object && fits(granted.number) {
                call.grants_reported |= 1 << ticket;
                return Some((granted.number, ticket));
            }
        }
        if usize::from(held) >= GRANTS_PER_PACKET_MAX {
            return None;
        }
        let number = take();
        self.trace(Step::Grant { object, number });
        let number = number?;
        call.grants[usize::from(held)] = Granted {
            object,
            spent: false,
            number,
        };
        call.grants_held += 1;
        call.grants_reported |= 1 << held;
        self.attention.set(true);
        Some((number, held))
    }
    /// A grant is used: it does not return when the packet ends. A ticket that no grant has changes nothing.
    pub fn spend(&self, ticket: u8) {
        if let Some(granted) = self.call.borrow_mut().grants.get_mut(usize::from(ticket)) {
            granted.spent = true;
        }
    }
    // --- late answers

    /// From here on reads only prefetch, until [`Context::answer`].
    pub fn prefetch(&self) {
        self.asking.set(self.asking.get() | PREFETCHING);
    }
    /// From here on reads answer.
    pub fn answer(&self) {
        self.asking.set(self.asking.get() & !PREFETCHING);
    }
    /// Whether reads only prefetch.
    #[inline(always)]
    pub fn is_prefetching(&self) -> bool {
        self.asking.get() & PREFETCHING != 0
    }
    /// Whether reads answer at once: not in the prefetch pass, of no object that is late by settings, and not
    /// in a call of which a read was late already.
    #[inline(always)]
    pub fn answers_plainly(&self) -> bool {
        self.asking.get() & !(RECALLING | KEEPING | KEEPING_RECORDED) == PLAINLY
    }
    /// [`Context::answers_plainly`], and how. The commonest first: one comparison.
    #[inline(always)]
    pub fn way_to_read(&self) -> WayToRead {
        match self.asking.get() & !KEEPING {
            PLAINLY => WayToRead::Plainly,
            RECALLING => WayToRead::Recalling,
            _ => WayToRead::Otherwise,
        }
    }
    /// Some object's reads are late by settings: reads look at their object's.
    pub fn expect_late_objects(&self) {
        self.asking.set(self.asking.get() | LATE_OBJECTS);
    }
    /// What the prefetch pass foresees of a burst's reads.
    #[inline(always)]
    pub fn prefetch_hints(&self) -> &PrefetchHints {
        &self.prefetch_hints
    }
    /// From here on reads look first at what was hinted of their packet ([`PrefetchHints::recall`]), or no longer.
    #[inline]
    pub fn set_recalling(&self, recalling: bool) {
        let others = self.asking.get() & !RECALLING;
        self.asking
            .set(others | if recalling { RECALLING } else { 0 });
    }
    /// The record that the packet being handled is likely to ask an object's lane for; `None` if nothing was hinted.
    #[inline(always)]
    pub fn hinted(&self, object: u8, lane: usize) -> Option<u32> {
        if self.asking.get() & RECALLING == 0 {
            return None;
        }
        self.prefetch_hints.record(object, lane)
    }

    // --- operations written

    /// The stamp for a write of up to so many bytes in the group being built; draws the group's number on the first write. Only what is
    /// no packet's, as flushes and sweeps, goes on in another group.
    pub fn stamp(&self, logged: bool, bytes_max: usize) -> Stamp {
        self.count_write();
        if !logged {
            return Stamp {
                origin: Origins::OWN,
                sequence: 0,
            };
        }
        let bytes_max = match mutant::active(Mutant::WriteSetSplit) {
            true => OPERATION_BYTES_MAX,
            false => bytes_max,
        };
        let mut groups = self.groups.borrow_mut();
        let Groups { bytes, starts } = &mut *groups;
        if self.group_open.get()
            && let Some(&(sequence, start)) = starts.last()
            && bytes.len() - start + bytes_max <= GROUP_BYTES_MAX
        {
            return Stamp {
                origin: Origins::OWN,
                sequence,
            };
        }
        self.refuse_second_group();
        let sequence = self.sequencer.draw();
        starts.push((sequence, bytes.len()));
        self.group_open.set(true);
        self.attention.set(true);
        Stamp {
            origin: Origins::OWN,
            sequence,
        }
    }
    /// Appends an operation to the group that [`Context::stamp`] opened; tells its length in bytes.
    pub fn log(&self, encode: impl FnOnce(&mut Writer<'_>)) -> usize {
        let mut groups = self.groups.borrow_mut();
        let before = groups.bytes.len();
        encode(&mut Writer::new(&mut groups.bytes, &self.addresses));
        let length = groups.bytes.len() - before;
        debug_assert!(
            length <= OPERATION_BYTES_MAX,
            "an operation of {length} bytes: keys and values must be smaller"
        );
        debug_assert!(
            (groups.starts.last())
                .is_none_or(|&(_, start)| groups.bytes.len() - start <= GROUP_BYTES_MAX),
            "a group that nobody takes: its stamp was asked for fewer bytes"
        );
        length
    }
    /// Whether operations wait to be taken.
    #[inline]
    pub fn wrote(&self) -> bool {
        !self.groups.borrow().starts.is_empty()
    }
    /// Takes bytes for a group of this instance, whatever they say: for tests of what others do with it. Its number.
    #[doc(hidden)]
    pub fn commit_foreign(&self, group: &[u8]) -> u64 {
        let sequence = self.sequencer.draw();
        let mut groups = self.groups.borrow_mut();
        let start = groups.bytes.len();
        groups.starts.push((sequence, start));
        groups.bytes.extend_from_slice(group);
        self.group_open.set(false);
        sequence
    }
    /// Hands out each group written since the last call: its sequence number and its bytes.
    pub fn take_groups(&self, mut take: impl FnMut(u64, &[u8])) {
        let mut groups = self.groups.borrow_mut();
        for place in 0..groups.starts.len() {
            let (sequence, start) = groups.starts[place];
            let end = groups
                .starts
                .get(place + 1)
                .map_or(groups.bytes.len(), |next| next.1);
            take(sequence, &groups.bytes[start..end]);
        }
        groups.bytes.clear();
        groups.starts.clear();
        self.group_open.set(false);
    }

    // --- what the placement reports

    /// Which of two writes is the later one, alike on all members: by their sequences if one origin made both, else by
    /// [`Origins::compare`].
    pub fn compare(&self, left: Stamp, right: Stamp) -> core::cmp::Ordering {
        if left.origin == right.origin {
            return left.sequence.cmp(&right.sequence);
        }
        self.origins.borrow().compare(left, right)
    }
    /// Reports that every member has applied `origin`'s stream up to `sequence`, and that all they wrote
    /// before they had is applied here.
    pub fn set_stable(&self, origin: Origin, sequence: u64) {
        raise(&mut self.stable.borrow_mut(), origin, sequence);
    }
    /// Reports that `origin`'s stream is applied here up to `sequence`, all that came before included.
    pub fn set_applied(&self, origin: Origin, sequence: u64) {
        raise(&mut self.applied.borrow_mut(), origin, sequence);
    }
    /// Whether what was written then was here once, as far as that is known.
    #[inline]
    pub fn has_applied(&self, stamp: Stamp) -> bool {
        reaches(&self.applied.borrow(), stamp)
    }
    /// Whether every member has applied this write, as far as that was reported ([`Context::set_stable`]).
    #[inline]
    pub fn is_stable(&self, stamp: Stamp) -> bool {
        reaches(&self.stable.borrow(), stamp)
    }
}

/// Bytes of one operation at most: a key, a value and the framing around them.
pub const OPERATION_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests;
