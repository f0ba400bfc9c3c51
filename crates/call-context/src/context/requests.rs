//! Reads that a store answers, and writes that it may refuse: what the call under way knows of objects that live elsewhere.
//!
//! An object that lives in a store has no entries here, but those that were answered for the call under way. A read that finds none is
//! a *request*: the key's bytes and a [`Ticket`]. The packet is parked, its answers come in any order, and when all are here the engine
//! installs them in the objects (`State::install`) and calls the function again. So what a call reads is pinned: it is
//! what was answered, whatever others write meanwhile.
//!
//! A call with answers is *staged*: what it writes is recorded and not made. Its reads and its writes are one transaction
//! ([`Context::seal`]), which the store commits whole, or refuses if what was read is not so any more. Then the call is made again.

use core::cell::{Cell, RefCell};

use asterism_requests::{Answered, Query, Reading, Slots, Ticket, Transaction};

use super::{Call, Context, KEEPING, KEEPING_RECORDED, LATE_OBJECTS};
use crate::answer::{Late, Wait, late_answer};
use crate::mutant::{self, Mutant};
use crate::wire::Writer;

/// Reads of this call are answered by a store, and its writes are recorded: a bit of [`Context::asking`].
pub(super) const STAGED: u16 = 64;

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The objects that are to live in a store, a bit for each.
    in_store: Cell<u64>,
    /// Some of them calls may write that read nothing there.
    any_written_unread: Cell<bool>,
    slots: RefCell<Slots>,
    /// Some request was not taken yet.
    any_new: Cell<bool>,
    /// Some object that is here must be said to begin to record: [`Context::set_keeping`].
    any_begins_recording: Cell<bool>,
    /// Writes of the call under way that are to be committed.
    recorded: RefCell<Vec<u8>>,
    /// An entry that a call has used, as an answer has it.
    entry: RefCell<Vec<u8>>,
}

impl Context {
    /// An object is to live in a store, by its number.
    pub fn expect_in_store(&self, object: u8) {
        let in_store = &self.requests.in_store;
        in_store.set(in_store.get() | 1 << object);
    }
    /// The same of one that calls may write without a read: each call that writes is staged.
    pub fn expect_written_unread(&self, object: u8) {
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
            call.wait = self.number_requests(&mut call);
        }
        drop(call);
        self.note_late();
        Err(late_answer())
    }
    /// Has a call's requests a number, if they have none yet: what the call waits for then. All numbers may be taken.
    fn number_requests(&self, call: &mut Call) -> Wait {
        if call.requests == 0 {
            call.requests = self.requests.slots.borrow_mut().take();
        }
        match call.requests {
            0 => Wait::TooMuch,
            _ => Wait::Answers,
        }
    }
    /// Whether a packet with these requests waits for no answer.
    pub fn has_all_answers(&self, requests: u16) -> bool {
        self.requests.slots.borrow().has_all_answers(requests)
    }
    /// An object that is to live in a store has nothing there: another one says what is to be known of it.
    pub fn keeps_nothing_in_store(&self, object: u8) {
        let in_store = &self.requests.in_store;
        in_store.set(in_store.get() & !(1 << object));
    }
    /// The objects that are to live in a store, a bit for each by its number.
    #[inline]
    pub fn in_store(&self) -> u64 {
        self.requests.in_store.get()
    }

    /// Takes memory for so many packets with requests at a time. Without it no object can live in a store.
    pub fn expect_requests(&self, packets: u16) {
        self.requests.slots.borrow_mut().expect(packets);
    }

    /// A read of an object that lives in a store: `read` is its object, lane and hash, and `key` writes the key's bytes.
    ///
    /// # Errors
    /// The store has not answered it for this call: it is asked, and the packet is late. In the prefetch pass always, and nothing is asked.
    #[cold]
    pub fn answered(
        &self,
        read: (u8, u8, u64),
        key: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Late> {
        if self.is_prefetching() {
            return Err(late_answer());
        }
        let mut slots = self.requests.slots.borrow_mut();
        let mut call = self.call.borrow_mut();
        if call.requests == 0 {
            call.requests = slots.take();
        }
        let key = |out: &mut Vec<u8>| key(&mut Writer::new(out, &self.addresses));
        call.wait = match slots.read(call.requests, read, key) {
            Reading::Answered => return Ok(()),
            Reading::Waits => {
                self.requests.any_new.set(true);
                Wait::Answers
            }
            Reading::TooMuch => Wait::TooMuch,
        };
        drop(call);
        self.note_late();
        Err(late_answer())
    }

    /// The packet of the call under way is of this conversation, for a store of several shards.
    pub fn set_conversation(&self, conversation: u64) {
        let number = self.call.borrow().requests;
        let mut slots = self.requests.slots.borrow_mut();
        slots.set_conversation(number, conversation);
    }

    /// Hands out the requests that were made since the last time, of packets that are parked or under way.
    pub fn take_requests(&self, each: impl FnMut(Ticket, Query<'_>)) {
        if self.requests.any_new.take() {
            self.requests.slots.borrow_mut().take_new(each);
        }
    }
    /// Has the requests of a packet that are not answered asked again, under their tickets: an answer was lost.
    pub fn ask_again(&self, requests: u16) {
        self.requests.slots.borrow_mut().ask_again(requests);
        self.requests.any_new.set(true);
    }
    /// An answer came. One that comes twice, or for a packet that is gone, changes nothing.
    pub fn take_answer(&self, ticket: Ticket, answer: &[u8]) -> Answered {
        let takes_any = mutant::active(Mutant::AnswerOfAnother);
        let mut slots = self.requests.slots.borrow_mut();
        slots.answer(ticket, answer, takes_any)
    }

    /// Has what the call that is late asked for answered, as far as `give` appends an answer now. Whether it waits for answers and has all of them.
    pub fn answer_at_once(&self, give: impl FnMut(Query<'_>, &mut Vec<u8>) -> bool) -> bool {
        let call = self.call.borrow();
        let mut slots = self.requests.slots.borrow_mut();
        slots.answer_at_once(call.requests, give) && matches!(call.wait, Wait::Answers)
    }
    /// A packet that was late is called again, with what was answered if anything was asked.
    pub(super) fn begin_staged(&self, requests: u16) {
        let staged = if requests != 0 { STAGED } else { 0 };
        self.asking.set(self.asking.get() & !STAGED | staged);
        self.requests.slots.borrow_mut().begin_call(requests);
    }
    /// The call asked for any entry of a group, which was answered, and uses the one that `entry` writes; `None`: there is none for it.
    #[cold]
    pub fn uses_entry(&self, read: (u8, u8, u64), entry: Option<impl FnOnce(&mut Writer<'_>)>) {
        let mut bytes = self.requests.entry.borrow_mut();
        bytes.clear();
        let is_any = entry.is_some();
        if let Some(write) = entry {
            write(&mut Writer::new(&mut bytes, &self.addresses));
        }
        let mut slots = self.requests.slots.borrow_mut();
        let number = self.call.borrow().requests;
        slots.use_entry(number, read, is_any.then_some(&**bytes));
    }
    /// Whether calls may be answered by entries of a store that are kept here: each writes what it has read, and reads what is here at once.
    pub fn may_keep(&self) -> bool {
        let is_late = self.asking.get() & LATE_OBJECTS != 0;
        self.in_store() != 0 && !is_late && !self.requests.any_written_unread.get()
    }
    /// Some object that is here must be said to begin to record what a call writes.
    pub fn expect_recording(&self) {
        self.requests.any_begins_recording.set(true);
    }
    /// Calls from here on may be answered by what is kept (`keeping`), and are staged; or no more.
    pub fn set_keeping(&self, keeping: bool) {
        let keeps = match self.requests.any_begins_recording.get() {
            _ if !keeping => 0,
            true => KEEPING | KEEPING_RECORDED,
            false => KEEPING,
        };
        let others = self.asking.get() & !(KEEPING | KEEPING_RECORDED);
        self.asking.set(others | keeps);
    }
    /// Whether they may.
    #[inline]
    pub fn is_keeping(&self) -> bool {
        self.asking.get() & KEEPING != 0
    }
    /// A call that was answered by what is kept is to be made again with answers of the store: what it recorded is forgotten, and what it spent is
    /// granted again. The packet is to be parked; it waits for nothing.
    pub fn retract(&self) -> Late {
        self.requests.recorded.borrow_mut().clear();
        let mut call = self.call.borrow_mut();
        call.unspend();
        call.wait = self.number_requests(&mut call);
        drop(call);
        self.note_late();
        late_answer()
    }
    /// The call under way has ended, and what it recorded is to be made.
    pub fn end_staged(&self) {
        self.begin_staged(0);
    }
    /// Whether writes of the call under way are recorded and not made: it reads what lives in stores, and is to be sealed and committed.
    #[inline]
    pub fn is_staged(&self) -> bool {
        self.asking.get() & (STAGED | KEEPING) != 0
    }
    /// The number of what the call under way asked stores for; 0: nothing.
    #[inline]
    pub fn requests(&self) -> u16 {
        self.call.borrow().requests
    }
    /// Hands out what was answered for the call under way.
    pub fn each_answer(&self, each: impl FnMut(Query<'_>, &[u8])) {
        let number = self.call.borrow().requests;
        self.requests.slots.borrow().each_answer(number, each);
    }

    /// A grant is the packet's no longer, if it is the last one that it was granted; else it returns when the packet ends. Whether it was.
    pub fn drop_grant(&self, ticket: u8) -> bool {
        let mut call = self.call.borrow_mut();
        let is_last = ticket + 1 == call.grants_held;
        if is_last {
            call.grants_held = ticket;
            call.grants_reported &= !(1 << ticket);
        }
        is_last
    }

    /// Records a write of the call under way, to be committed: its object, flags of the object's own, and what `write` writes, of
    /// [`OPERATION_BYTES_MAX`](super::OPERATION_BYTES_MAX) bytes at most.
    #[cold]
    pub fn record(&self, object: u8, flags: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.count_write();
        self.record_uncounted(object, flags, write);
    }
    /// Records what the call under way adds to an accumulator, which is no entry: as [`Context::record`], and counted apart.
    #[cold]
    #[inline(never)]
    pub fn record_addition(&self, object: u8, flags: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.count_addition();
        self.record_uncounted(object, flags, write);
    }
    fn record_uncounted(&self, object: u8, flags: u8, write: impl FnOnce(&mut Writer<'_>)) {
        debug_assert!(
            self.is_staged(),
            "what is in a store is read before it is written"
        );
        self.attention.set(true);
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
        transaction.swap_writes(&mut self.requests.recorded.borrow_mut());
        let number = self.call.borrow().requests;
        self.requests.slots.borrow().seal(number, transaction);
    }
    /// The transaction of a call was refused. Its grants are unspent again, and all that was answered is asked again; the packet is to be
    /// parked until the answers are here.
    pub fn refuse(&self, call: &mut Call) {
        if !mutant::active(Mutant::RefusedGrantSpent) {
            call.unspend();
        }
        call.wait = Wait::Answers;
        self.requests
            .slots
            .borrow_mut()
            .ask_all_again(call.requests);
        self.requests.any_new.set(true);
    }
    /// A call ended for good: nobody waits for answers to it.
    pub(super) fn forget_requests(&self, requests: u16) {
        self.requests.slots.borrow_mut().release(requests);
    }
}
