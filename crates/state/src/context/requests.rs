//! Reads that a store answers, and writes that it may refuse: what the call under way knows of objects that live elsewhere.
//!
//! An object that lives in a store has no entries here, but those that were answered for the call under way. A read that finds none is
//! a *request*: the key's bytes and a [`Ticket`]. The packet is parked, its answers come in any order, and when all are here the engine
//! installs them in the objects ([`State::install`](crate::State::install)) and calls the function again. So what a call reads is pinned: it is
//! what was answered, whatever others write meanwhile.
//!
//! A call with answers is *staged*: what it writes is recorded and not made. Its reads and its writes are one transaction
//! ([`Context::seal`]), which the store commits whole, or refuses if what was read is not so any more. Then the call is made again.

use core::cell::{Cell, RefCell};
use core::ops::Range;

use super::transaction::{Depends, Transaction, entry_hash, stable_hash};
use super::{Call, Context};
use crate::answer::{Late, Wait};
use crate::mutant::{self, Mutant};
use crate::wire::Writer;

/// Requests of one packet. With more it is not handled: [`Wait::TooMuch`].
pub const REQUESTS_PER_PACKET_MAX: usize = 16;
/// Bytes of the answers to one packet's requests. With more it is not handled.
pub const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Reads of this call are answered by a store, and its writes are recorded: a bit of [`Context::asking`].
pub(super) const STAGED: u8 = 64;
/// In place of a lane: how many entries may be added.
pub const LANE_ROOM: u8 = u8::MAX;
/// In place of a lane: whether there is any entry.
pub const LANE_ANY: u8 = u8::MAX - 1;
/// In place of a lane: all sums of an object.
pub const LANE_SUMS: u8 = u8::MAX - 2;
/// In place of a lane: the sum under the field that is in place of the key.
pub const LANE_SUM: u8 = u8::MAX - 3;

/// The number of a request, which its answer comes with. Those of requests that nobody waits for any more name nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    fn new(generation: u32, slot: u16, place: usize) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot) << 8 | place as u64)
    }
    /// The ticket as a number, to be carried with a request and back.
    pub fn to_bits(self) -> u64 {
        self.0
    }
    /// The ticket of a number. That of no request names nothing.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn parts(self) -> (u32, u16, usize) {
        let place = (self.0 & 0xff) as usize;
        ((self.0 >> 32) as u32, (self.0 >> 8) as u16, place)
    }
}

/// What is read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Number of the object.
    pub object: u8,
    /// The lane of the key, or [`LANE_ROOM`], [`LANE_ANY`], [`LANE_SUMS`] or [`LANE_SUM`].
    pub lane: u8,
    /// The key's hash with the cluster's seed.
    pub hash: u64,
    /// The key's bytes; none where the lane has no keys.
    pub key: &'a [u8],
}

impl Query<'_> {
    /// Whether it reads sums: what is answered may be otherwise when the call is committed.
    pub fn is_of_sums(&self) -> bool {
        matches!(self.lane, LANE_SUMS | LANE_SUM)
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nobody waits for it: it was answered before, or its packet is gone.
    Unasked,
    /// Its packet waits for others yet.
    Waits,
    /// It was the last one that its packet waited for, which this number names: [`Call::requests`](super::Call::requests).
    Complete(u16),
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It was not taken yet.
    #[default]
    New,
    /// Its answer has not come.
    Sent,
    /// Its answer, by its place.
    Answered(u32, u32),
}

#[derive(Clone, Copy, Debug, Default)]
struct Request {
    object: u8,
    lane: u8,
    hash: u64,
    key: (u32, u32),
    stage: Stage,
    used: Used,
}

/// What the call under way has used of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Used {
    /// Nothing that said so.
    #[default]
    Unsaid,
    /// One entry, by its hash.
    Entry(u64),
    /// That there is none, or several.
    All,
}

fn range((from, to): (u32, u32)) -> Range<usize> {
    from as usize..to as usize
}

/// The requests of one packet.
#[derive(Debug, Default)]
struct Slot {
    /// Of a packet; else it is free.
    is_taken: bool,
    /// Differs from one packet to the next.
    generation: u32,
    requests: [Request; REQUESTS_PER_PACKET_MAX],
    count: usize,
    unanswered: usize,
    keys: Vec<u8>,
    answers: Vec<u8>,
    /// Its requests, or their answers, were too many.
    is_too_much: bool,
}

impl Slot {
    fn reset(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        (self.count, self.unanswered) = (0, 0);
        self.keys.clear();
        self.answers.clear();
        self.is_too_much = false;
    }
    fn query(&self, request: &Request) -> Query<'_> {
        let Request {
            object, lane, hash, ..
        } = *request;
        Query {
            object,
            lane,
            hash,
            key: self.keys.get(range(request.key)).unwrap_or_default(),
        }
    }
    fn requests(&self) -> &[Request] {
        &self.requests[..self.count]
    }
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The objects that are to live in a store, a bit for each.
    in_store: Cell<u64>,
    /// Some of them calls may write that read nothing there.
    any_written_unread: Cell<bool>,
    slots: RefCell<Slots>,
    /// Some request was not taken yet.
    any_new: Cell<bool>,
    /// Writes of the call under way that are to be committed.
    recorded: RefCell<Vec<u8>>,
    /// An entry that a call has used, as an answer has it.
    entry: RefCell<Vec<u8>>,
}

/// The slots of all packets, by their numbers: a packet's is one more than the place of its slot.
#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u16>,
    /// Those with requests that were not taken.
    new: Vec<u16>,
}

impl Slots {
    fn get(&self, number: u16) -> Option<&Slot> {
        self.all.get(usize::from(number).checked_sub(1)?)
    }
    fn get_mut(&mut self, number: u16) -> Option<&mut Slot> {
        self.all.get_mut(usize::from(number).checked_sub(1)?)
    }
    fn take(&mut self) -> u16 {
        let Some(number) = self.free.pop() else {
            return 0;
        };
        if let Some(slot) = self.get_mut(number) {
            slot.reset();
            slot.is_taken = true;
        }
        number
    }
    fn note_new(&mut self, number: u16) {
        if !self.new.contains(&number) {
            self.new.push(number);
        }
    }
}

impl Context {
    /// An object is to live in a store.
    pub(crate) fn expect_in_store(&self, object: u8) {
        let in_store = &self.requests.in_store;
        in_store.set(in_store.get() | 1 << object);
    }
    /// The same of one that calls may write without a read: each call that writes is staged.
    pub(crate) fn expect_written_unread(&self, object: u8) {
        self.expect_in_store(object);
        self.requests.any_written_unread.set(true);
        self.expect_late_objects();
    }
    /// A call begins to write. Unless it is staged it is late if it has to be: it is called again at once.
    pub(super) fn begin_writes_in_store(&self) -> Result<(), Late> {
        if !self.requests.any_written_unread.get() || self.is_staged() {
            return Ok(());
        }
        let mut call = self.call.borrow_mut();
        if call.requests == 0 {
            call.requests = self.requests.slots.borrow_mut().take();
            call.wait = match call.requests {
                0 => Wait::TooMuch,
                _ => Wait::Answers,
            };
        }
        drop(call);
        self.note_late();
        Err(Late::new())
    }
    /// Whether a packet with these requests waits for no answer.
    pub fn has_all_answers(&self, requests: u16) -> bool {
        let slots = self.requests.slots.borrow();
        slots.get(requests).is_some_and(|slot| slot.unanswered == 0)
    }
    /// An object that is to live in a store has nothing there: another one says what is to be known of it.
    pub(crate) fn keeps_nothing_in_store(&self, object: u8) {
        let in_store = &self.requests.in_store;
        in_store.set(in_store.get() & !(1 << object));
    }
    /// The objects that are to live in a store, a bit for each by its number.
    pub fn in_store(&self) -> u64 {
        self.requests.in_store.get()
    }

    /// Takes memory for so many packets with requests at a time. Without it no object can live in a store.
    pub fn expect_requests(&self, packets: u16) {
        let mut slots = self.requests.slots.borrow_mut();
        slots.all.resize_with(usize::from(packets), Slot::default);
        slots.free = (1..=packets).rev().collect();
        slots.new.reserve(usize::from(packets));
    }

    /// Whether the store answered a read for this call; else it is asked, and the packet is late.
    #[cold]
    pub(crate) fn answered(
        &self,
        (object, lane, hash): (u8, u8, u64),
        key: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Late> {
        if self.is_prefetching() {
            return Err(Late::new());
        }
        let mut slots = self.requests.slots.borrow_mut();
        let mut call = self.call.borrow_mut();
        if call.requests == 0 {
            call.requests = slots.take();
        }
        let same = |known: &Request| (known.object, known.lane, known.hash) == (object, lane, hash);
        let mut wait = Wait::TooMuch;
        if let Some(slot) = slots.get_mut(call.requests) {
            let known = slot.requests().iter().copied().find(same);
            match known.map(|known| known.stage) {
                Some(Stage::Answered(..)) if !slot.is_too_much => return Ok(()),
                Some(_) => {}
                None if slot.count == REQUESTS_PER_PACKET_MAX => slot.is_too_much = true,
                None => {
                    let from = slot.keys.len() as u32;
                    key(&mut Writer::new(&mut slot.keys, &self.addresses));
                    slot.requests[slot.count] = Request {
                        object,
                        lane,
                        hash,
                        key: (from, slot.keys.len() as u32),
                        ..Request::default()
                    };
                    (slot.count, slot.unanswered) = (slot.count + 1, slot.unanswered + 1);
                }
            }
            if !slot.is_too_much {
                wait = Wait::Answers;
                slots.note_new(call.requests);
                self.requests.any_new.set(true);
            }
        }
        call.wait = wait;
        drop(call);
        self.note_late();
        Err(Late::new())
    }

    /// Hands out the requests that were made since the last time, of packets that are parked or under way.
    pub fn take_requests(&self, mut each: impl FnMut(Ticket, Query<'_>)) {
        if !self.requests.any_new.take() {
            return;
        }
        let mut slots = self.requests.slots.borrow_mut();
        let Slots { all, new, .. } = &mut *slots;
        for number in new.drain(..) {
            let Some(slot) = all.get_mut(usize::from(number) - 1) else {
                continue;
            };
            for place in 0..slot.count {
                if slot.requests[place].stage == Stage::New {
                    slot.requests[place].stage = Stage::Sent;
                    let ticket = Ticket::new(slot.generation, number, place);
                    each(ticket, slot.query(&slot.requests[place]));
                }
            }
        }
    }
    /// Has the requests of a packet that are not answered asked again, under their tickets: an answer was lost.
    pub fn ask_again(&self, requests: u16) {
        let mut slots = self.requests.slots.borrow_mut();
        let Some(slot) = slots.get_mut(requests) else {
            return;
        };
        let count = slot.count;
        for request in &mut slot.requests[..count] {
            if request.stage == Stage::Sent {
                request.stage = Stage::New;
            }
        }
        slots.note_new(requests);
        self.requests.any_new.set(true);
    }
    /// An answer came. One that comes twice, or for a packet that is gone, changes nothing.
    pub fn take_answer(&self, ticket: Ticket, answer: &[u8]) -> Answered {
        let (generation, number, place) = ticket.parts();
        let mut slots = self.requests.slots.borrow_mut();
        let Some(slot) = slots.get_mut(number) else {
            return Answered::Unasked;
        };
        let is_asked = slot.is_taken
            && slot.generation == generation
            && place < slot.count
            && !matches!(slot.requests[place].stage, Stage::Answered(..));
        if !is_asked && !mutant::active(Mutant::AnswerOfAnother) {
            return Answered::Unasked;
        }
        let from = slot.answers.len();
        slot.is_too_much |= from + answer.len() > ANSWER_BYTES_MAX;
        if !slot.is_too_much {
            slot.answers.extend_from_slice(answer);
        }
        slot.requests[place].stage = Stage::Answered(from as u32, slot.answers.len() as u32);
        slot.unanswered -= 1;
        match slot.unanswered {
            0 => Answered::Complete(number),
            _ => Answered::Waits,
        }
    }

    /// Has what the call that is late asked for answered, as far as `give` appends an answer now. Whether it waits for answers and has all of them.
    pub fn answer_at_once(&self, mut give: impl FnMut(Query<'_>, &mut Vec<u8>) -> bool) -> bool {
        let call = self.call.borrow();
        let mut slots = self.requests.slots.borrow_mut();
        let Some(slot) = slots.get_mut(call.requests) else {
            return false;
        };
        let (mut answers, had) = (core::mem::take(&mut slot.answers), slot.unanswered);
        for place in 0..slot.count {
            let (request, from) = (slot.requests[place], answers.len());
            if request.stage != Stage::New {
                continue;
            }
            if !give(slot.query(&request), &mut answers) {
                break;
            }
            slot.is_too_much |= answers.len() > ANSWER_BYTES_MAX;
            slot.requests[place].stage = Stage::Answered(from as u32, answers.len() as u32);
            slot.unanswered -= 1;
        }
        slot.answers = answers;
        // One that asked for nothing is late since it writes. Another one that waits for nothing new would be late again and again.
        let is_new = had > 0 || slot.count == 0;
        is_new && slot.unanswered == 0 && !slot.is_too_much && matches!(call.wait, Wait::Answers)
    }
    /// A packet that was late is called again, with what was answered if anything was asked.
    pub(super) fn begin_staged(&self, requests: u16) {
        let staged = if requests != 0 { STAGED } else { 0 };
        self.asking.set(self.asking.get() & !STAGED | staged);
        if let Some(slot) = self.requests.slots.borrow_mut().get_mut(requests) {
            let requests = slot.requests.iter_mut();
            requests.for_each(|request| request.used = Used::Unsaid);
        }
    }
    /// The call asked for any entry of a group, which was answered, and uses this one; `None`: there is none for it.
    #[cold]
    pub(crate) fn uses_entry(
        &self,
        (object, lane, hash): (u8, u8, u64),
        entry: Option<impl FnOnce(&mut Writer<'_>)>,
    ) {
        let used = entry.map_or(Used::All, |write| {
            let mut bytes = self.requests.entry.borrow_mut();
            bytes.clear();
            write(&mut Writer::new(&mut bytes, &self.addresses));
            Used::Entry(entry_hash(&bytes))
        });
        let mut slots = self.requests.slots.borrow_mut();
        let Some(slot) = slots.get_mut(self.call.borrow().requests) else {
            return;
        };
        let count = slot.count;
        for request in &mut slot.requests[..count] {
            if (request.object, request.lane, request.hash) == (object, lane, hash) {
                request.used = match request.used {
                    Used::Unsaid => used,
                    known if known == used => used,
                    _ => Used::All,
                };
            }
        }
    }
    /// The call under way has ended, and what it recorded is to be made.
    pub fn end_staged(&self) {
        self.begin_staged(0);
    }
    /// Whether writes of the call under way are recorded and not made: it reads what lives in stores, and is to be sealed and committed.
    #[inline]
    pub fn is_staged(&self) -> bool {
        self.asking.get() & STAGED != 0
    }
    /// The number of what the call under way asked stores for; 0: nothing.
    pub fn requests(&self) -> u16 {
        self.call.borrow().requests
    }
    /// Hands out what was answered for the call under way.
    pub(crate) fn each_answer(&self, mut each: impl FnMut(Query<'_>, &[u8])) {
        self.each_answered(|query, answer, _| each(query, answer));
    }
    /// The same, with what the call depends on.
    fn each_answered(&self, mut each: impl FnMut(Query<'_>, &[u8], Used)) {
        let slots = self.requests.slots.borrow();
        let Some(slot) = slots.get(self.call.borrow().requests) else {
            return;
        };
        for request in slot.requests() {
            if let Stage::Answered(from, to) = request.stage {
                let answer = slot.answers.get(range((from, to)));
                let answer = answer.unwrap_or_default();
                each(slot.query(request), answer, request.used);
            }
        }
    }

    /// A grant is the packet's no longer, if it is the last one that it was granted; else it returns when the packet ends. Whether it was.
    pub(crate) fn drop_grant(&self, ticket: u8) -> bool {
        let mut call = self.call.borrow_mut();
        let is_last = ticket + 1 == call.grants_held;
        if is_last {
            call.grants_held = ticket;
            call.grants_reported &= !(1 << ticket);
        }
        is_last
    }

    /// Records a write of the call under way, to be committed: its object, flags of the object's own, and what `write` writes.
    #[cold]
    pub(crate) fn record(&self, object: u8, flags: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.count_write();
        self.record_uncounted(object, flags, write);
    }
    /// Records what the call under way adds to an accumulator, which is no entry.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_addition(
        &self,
        object: u8,
        flags: u8,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        self.count_addition();
        self.record_uncounted(object, flags, write);
    }
    fn record_uncounted(&self, object: u8, flags: u8, write: impl FnOnce(&mut Writer<'_>)) {
        debug_assert!(
            self.is_staged(),
            "what is in a store is read before it is written"
        );
        let mut recorded = self.requests.recorded.borrow_mut();
        Writer::new(&mut recorded, &self.addresses).tag(object, flags);
        let at = recorded.len();
        recorded.extend([0; 2]);
        write(&mut Writer::new(&mut recorded, &self.addresses));
        let length = (recorded.len() - at - 2) as u16;
        recorded[at..at + 2].copy_from_slice(&length.to_le_bytes());
    }
    /// The transaction of the call that just ended: what it read of stores, and all that it recorded.
    pub fn seal(&self, transaction: &mut Transaction) {
        transaction.clear();
        core::mem::swap(
            &mut transaction.writes,
            &mut *self.requests.recorded.borrow_mut(),
        );
        self.each_answered(|query, answer, used| {
            let depends = match used {
                Used::Entry(entry) => Depends::OnEntry(entry),
                Used::Unsaid | Used::All => Depends::OnAnswer(stable_hash(answer)),
            };
            transaction.add_read(query, depends);
        });
    }
    /// The transaction of a call was refused. Its grants are unspent again, and all that was answered is asked again; the packet is to be
    /// parked until the answers are here.
    pub fn refuse(&self, call: &mut Call) {
        if !mutant::active(Mutant::RefusedGrantSpent) {
            call.unspend();
        }
        call.wait = Wait::Answers;
        let mut slots = self.requests.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(call.requests) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.answers.clear();
            slot.unanswered = slot.count;
            let count = slot.count;
            for request in &mut slot.requests[..count] {
                request.stage = Stage::New;
            }
            slots.note_new(call.requests);
            self.requests.any_new.set(true);
        }
    }
    /// A call ended for good: nobody waits for answers to it.
    pub(super) fn forget_requests(&self, requests: u16) {
        let mut slots = self.requests.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(requests) {
            slot.is_taken = false;
            slot.reset();
            slots.free.push(requests);
        }
    }
}
