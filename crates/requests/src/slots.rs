//! The requests of packets: what each asked stores for, what it was answered, and what its call used of that.
//!
//! A packet's requests are in a slot, which has a number. A request is new until it is taken, to be sent, and is answered once. When nothing is
//! unanswered the packet is called again, with the answers.

use core::ops::Range;

use crate::query::{Query, Ticket};
use crate::transaction::{Depends, Transaction, entry_hash, stable_hash};

/// Requests of one packet. With more it is not handled.
pub const REQUESTS_PER_PACKET_MAX: usize = 16;
/// Bytes of the answers to one packet's requests. With more it is not handled.
pub const ANSWER_BYTES_MAX: usize = 16 << 10;
/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nobody waits for it: it was answered before, or its packet is gone.
    Unasked,
    /// Its packet waits for others yet.
    Waits,
    /// It was the last one that its packet waited for, which this number names.
    Complete(u16),
}

/// How far a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The packet has its answer.
    Answered,
    /// It waits for it.
    Waits,
    /// The packet asks for more than one may, or its answers are too long.
    TooMuch,
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
    /// Of the packet: see [`Slots::set_conversation`].
    conversation: u64,
    keys: Vec<u8>,
    answers: Vec<u8>,
    /// Its requests, or their answers, were too many.
    is_too_much: bool,
}

impl Slot {
    fn reset(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        (self.count, self.unanswered, self.conversation) = (0, 0, 0);
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
            conversation: self.conversation,
        }
    }
    fn requests(&self) -> &[Request] {
        &self.requests[..self.count]
    }
}

/// The slots of all packets, by their numbers: a packet's is one more than the place of its slot.
#[derive(Debug, Default)]
pub struct Slots {
    all: Vec<Slot>,
    free: Vec<u16>,
    /// Those with requests that were not taken.
    new: Vec<u16>,
}

impl Slots {
    /// Makes room for so many packets at a time.
    pub fn expect(&mut self, packets: u16) {
        self.all.resize_with(usize::from(packets), Slot::default);
        self.free = (1..=packets).rev().collect();
        self.new.reserve(usize::from(packets));
    }

    fn get(&self, number: u16) -> Option<&Slot> {
        self.all.get(usize::from(number).checked_sub(1)?)
    }
    fn get_mut(&mut self, number: u16) -> Option<&mut Slot> {
        self.all.get_mut(usize::from(number).checked_sub(1)?)
    }

    /// A slot for another packet; 0 if none is free.
    pub fn take(&mut self) -> u16 {
        let Some(number) = self.free.pop() else {
            return 0;
        };
        if let Some(slot) = self.get_mut(number) {
            slot.reset();
            slot.is_taken = true;
        }
        number
    }
    /// Nobody waits for answers to a packet any more.
    pub fn release(&mut self, number: u16) {
        if let Some(slot) = self.get_mut(number) {
            slot.is_taken = false;
            slot.reset();
            self.free.push(number);
        }
    }
    fn note_new(&mut self, number: u16) {
        if !self.new.contains(&number) {
            self.new.push(number);
        }
    }

    /// A packet reads this; `key` appends the key's bytes, if it did not read it before.
    pub fn read(
        &mut self,
        number: u16,
        (object, lane, hash): (u8, u8, u64),
        key: impl FnOnce(&mut Vec<u8>),
    ) -> Reading {
        let Some(slot) = self.get_mut(number) else {
            return Reading::TooMuch;
        };
        let same = |known: &Request| (known.object, known.lane, known.hash) == (object, lane, hash);
        let known = slot.requests().iter().copied().find(same);
        match known.map(|known| known.stage) {
            Some(Stage::Answered(..)) if !slot.is_too_much => return Reading::Answered,
            Some(_) => {}
            None if slot.count == REQUESTS_PER_PACKET_MAX => slot.is_too_much = true,
            None => {
                let from = slot.keys.len() as u32;
                key(&mut slot.keys);
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
        if slot.is_too_much {
            return Reading::TooMuch;
        }
        self.note_new(number);
        Reading::Waits
    }

    /// Hands out the requests that were made since the last time.
    pub fn take_new(&mut self, mut each: impl FnMut(Ticket, Query<'_>)) {
        let Self { all, new, .. } = self;
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
    /// Has what a packet was not answered asked again, under its tickets.
    pub fn ask_again(&mut self, number: u16) {
        let Some(slot) = self.get_mut(number) else {
            return;
        };
        let count = slot.count;
        for request in &mut slot.requests[..count] {
            if request.stage == Stage::Sent {
                request.stage = Stage::New;
            }
        }
        self.note_new(number);
    }
    /// Has all that a packet was answered asked again, under other tickets.
    pub fn ask_all_again(&mut self, number: u16) {
        let Some(slot) = self.get_mut(number) else {
            return;
        };
        slot.generation = slot.generation.wrapping_add(1);
        slot.answers.clear();
        slot.unanswered = slot.count;
        let count = slot.count;
        for request in &mut slot.requests[..count] {
            request.stage = Stage::New;
        }
        self.note_new(number);
    }

    /// An answer came; `takes_any`: of another packet, too, which is a bug that is planted.
    pub fn answer(&mut self, ticket: Ticket, answer: &[u8], takes_any: bool) -> Answered {
        let (generation, number, place) = ticket.parts();
        let Some(slot) = self.get_mut(number) else {
            return Answered::Unasked;
        };
        let is_asked = slot.is_taken
            && slot.generation == generation
            && place < slot.count
            && !matches!(slot.requests[place].stage, Stage::Answered(..));
        if !is_asked && !takes_any {
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
    /// Has what is new of a packet answered, as far as `give` appends an answer. Whether something was unanswered, or nothing was ever asked, and
    /// all is answered now.
    pub fn answer_at_once(
        &mut self,
        number: u16,
        mut give: impl FnMut(Query<'_>, &mut Vec<u8>) -> bool,
    ) -> bool {
        let Some(slot) = self.get_mut(number) else {
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
        is_new && slot.unanswered == 0 && !slot.is_too_much
    }
    /// Whether a packet waits for no answer.
    pub fn has_all_answers(&self, number: u16) -> bool {
        self.get(number).is_some_and(|slot| slot.unanswered == 0)
    }

    /// A packet is of this conversation, which its reads and its transaction say from here on: a hash of its two addresses.
    pub fn set_conversation(&mut self, number: u16, conversation: u64) {
        if let Some(slot) = self.get_mut(number) {
            slot.conversation = conversation;
        }
    }
    /// A packet is called with its answers.
    pub fn begin_call(&mut self, number: u16) {
        if let Some(slot) = self.get_mut(number) {
            let count = slot.count;
            let requests = slot.requests[..count].iter_mut();
            requests.for_each(|request| request.used = Used::Unsaid);
        }
    }
    /// The call asked for any entry of a group, which was answered, and uses this one, as an answer has it; `None`: there is none for it.
    pub fn use_entry(
        &mut self,
        number: u16,
        (object, lane, hash): (u8, u8, u64),
        entry: Option<&[u8]>,
    ) {
        let used = entry.map_or(Used::All, |bytes| Used::Entry(entry_hash(bytes)));
        let Some(slot) = self.get_mut(number) else {
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
    /// Hands out what a packet was answered.
    pub fn each_answer(&self, number: u16, mut each: impl FnMut(Query<'_>, &[u8])) {
        self.each_answered(number, |query, answer, _| each(query, answer));
    }
    /// Notes what a packet was answered in a transaction, and what its call depends on.
    pub fn seal(&self, number: u16, transaction: &mut Transaction) {
        let slot = self.get(number);
        transaction.set_conversation(slot.map_or(0, |slot| slot.conversation));
        self.each_answered(number, |query, answer, used| {
            let depends = match used {
                Used::Entry(entry) => Depends::OnEntry(entry),
                Used::Unsaid | Used::All => Depends::OnAnswer(stable_hash(answer)),
            };
            transaction.add_read(query, depends);
        });
    }
    fn each_answered(&self, number: u16, mut each: impl FnMut(Query<'_>, &[u8], Used)) {
        let Some(slot) = self.get(number) else {
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
}
