//! What parked packets wait for: the reads of their last calls, by key, so that a write wakes those packets alone that asked for what it
//! changes. The engine says which call's reads are noted and for which packet; tables say what changed.
//!
//! All memory is taken when the instance starts ([`Context::await_for`]); a context without waits for nothing, as in tests of functions.

use core::cell::{Cell, RefCell};

use super::Context;
use crate::mutant::{self, Mutant};

/// Reads of one call that its packet waits for one by one; a packet whose call reads more is called again after every change.
pub const AWAITED_READS_MAX: usize = 12;
/// Reads of this call are noted: a bit of [`Context::asking`].
pub(super) const NOTING: u16 = 32;
/// Chains of waiting reads; a power of two, and more than there are reads as a rule.
const CHAINS: usize = 4_096;
const NOTHING: u16 = u16::MAX;
/// In place of a lane: a read of the object that has no key of its own.
pub(super) const WHOLE: u8 = u8::MAX;
/// In place of a lane: a read of whether the object has entries.
const EMPTINESS: u8 = u8::MAX - 1;
/// What is read by no key of any object: whatever changes.
const ANYTHING: u64 = 0;

/// The reads of a call.
#[derive(Debug, Default)]
struct Noted {
    keys: [u64; AWAITED_READS_MAX],
    count: usize,
}

/// One read that a packet waits for.
#[derive(Clone, Copy, Debug)]
struct Read {
    key: u64,
    waiter: u16,
    /// In its chain.
    next: u16,
    previous: u16,
    /// The next read of the same packet.
    beside: u16,
}

/// Reads by their keys, in chains, and by their packets.
#[derive(Debug, Default)]
struct Reads {
    chains: Vec<u16>,
    reads: Vec<Read>,
    free: u16,
    first_of: Vec<u16>,
    woken: Vec<u16>,
}

#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Reads that packets wait for.
    count: Cell<u32>,
    /// Those of them that any change answers.
    of_anything: Cell<u32>,
    /// Packets that were woken and not handed out.
    woken: Cell<u32>,
    noted: RefCell<Noted>,
    reads: RefCell<Reads>,
}

/// One number for what is read, 2⁻⁶⁴ apart from every other. An odd factor keeps hashes of one object and lane apart.
#[inline(always)]
pub(super) fn key_of(object: u8, lane: u8, hash: u64) -> u64 {
    let of = (u64::from(object) << 8 | u64::from(lane)) + 1;
    (hash ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd134_2543_de82_ef95) | 1
}

#[inline(always)]
fn chain_of(key: u64) -> usize {
    (key >> (u64::BITS - CHAINS.ilog2())) as usize
}

impl Reads {
    fn new(waiting_max: usize, waiters: usize) -> Self {
        let count = waiting_max * AWAITED_READS_MAX;
        assert!(
            count < usize::from(NOTHING) && waiters < usize::from(NOTHING),
            "reads and packets that wait are numbered by 16 bits"
        );
        let free = |number: usize| Read {
            key: ANYTHING,
            waiter: NOTHING,
            next: if number + 1 < count {
                number as u16 + 1
            } else {
                NOTHING
            },
            previous: NOTHING,
            beside: NOTHING,
        };
        Self {
            chains: vec![NOTHING; CHAINS],
            reads: (0..count).map(free).collect(),
            free: if count > 0 { 0 } else { NOTHING },
            first_of: vec![NOTHING; waiters],
            woken: Vec::with_capacity(waiters),
        }
    }

    fn add(&mut self, key: u64, waiter: u16) -> bool {
        let number = self.free;
        let Some(read) = self.reads.get_mut(usize::from(number)) else {
            return false;
        };
        self.free = read.next;
        let chain = &mut self.chains[chain_of(key)];
        let first = &mut self.first_of[usize::from(waiter)];
        *read = Read {
            key,
            waiter,
            next: *chain,
            previous: NOTHING,
            beside: *first,
        };
        let next = core::mem::replace(chain, number);
        *first = number;
        if let Some(next) = self.reads.get_mut(usize::from(next)) {
            next.previous = number;
        }
        true
    }

    /// Takes out all reads of a packet; how many there were, and of anything.
    fn remove(&mut self, waiter: u16) -> (u32, u32) {
        let (mut count, mut of_anything) = (0, 0);
        let Some(first) = self.first_of.get_mut(usize::from(waiter)) else {
            return (0, 0);
        };
        let mut number = core::mem::replace(first, NOTHING);
        while number != NOTHING {
            let read = self.reads[usize::from(number)];
            match self.reads.get_mut(usize::from(read.previous)) {
                Some(previous) => previous.next = read.next,
                None => self.chains[chain_of(read.key)] = read.next,
            }
            if let Some(next) = self.reads.get_mut(usize::from(read.next)) {
                next.previous = read.previous;
            }
            self.reads[usize::from(number)].next = self.free;
            self.free = number;
            count += 1;
            of_anything += u32::from(read.key == ANYTHING);
            number = read.beside;
        }
        (count, of_anything)
    }

    fn waiter_of(&self, key: u64) -> Option<u16> {
        let mut number = self.chains.get(chain_of(key)).copied()?;
        while let Some(read) = self.reads.get(usize::from(number)) {
            if read.key == key {
                return Some(read.waiter);
            }
            number = read.next;
        }
        None
    }
}

impl Awaited {
    #[cold]
    #[inline(never)]
    fn wake(&self, key: u64) {
        let mut reads = self.reads.borrow_mut();
        while let Some(waiter) = reads.waiter_of(key) {
            self.take_out(&mut reads, waiter);
            // Each packet once until it waits again, and there are no more packets than there is memory for here.
            reads.woken.push(waiter);
        }
        self.woken.set(reads.woken.len() as u32);
    }

    fn take_out(&self, reads: &mut Reads, waiter: u16) {
        let (count, of_anything) = reads.remove(waiter);
        self.count.set(self.count.get() - count);
        self.of_anything.set(self.of_anything.get() - of_anything);
    }

    fn changed(&self, key: u64) {
        self.wake(key);
        if self.of_anything.get() > 0 {
            self.wake(ANYTHING);
        }
    }
}

impl Context {
    /// Takes memory for so many packets that wait for entries at a time, known by numbers below `waiters`.
    pub fn await_for(&self, waiting_max: usize, waiters: usize) {
        *self.awaited.reads.borrow_mut() = Reads::new(waiting_max, waiters);
    }

    /// From here on what calls read is noted, beginning with nothing; or no longer.
    pub fn note_reads(&self, notes: bool) {
        let others = self.asking.get() & !NOTING;
        self.asking.set(others | if notes { NOTING } else { 0 });
        self.awaited.noted.borrow_mut().count = 0;
    }
    /// Whether what calls read is noted.
    #[inline(always)]
    pub fn notes_reads(&self) -> bool {
        self.asking.get() & NOTING != 0
    }
    /// A read of an entry: of `object`, by the key of this hash in one of its lanes.
    #[inline]
    pub fn note_read(&self, object: u8, lane: u8, hash: u64) {
        if self.notes_reads() {
            self.note_key(key_of(object, lane, hash));
        }
    }
    /// A read of an object by what no change names.
    #[inline]
    pub fn note_read_of(&self, object: u8) {
        self.note_read(object, WHOLE, 0);
    }
    /// A read of whether an object has entries.
    #[inline]
    pub fn note_read_of_emptiness(&self, object: u8) {
        self.note_read(object, EMPTINESS, 0);
    }
    fn note_key(&self, key: u64) {
        let mut noted = self.awaited.noted.borrow_mut();
        let count = noted.count;
        if noted.keys[..count].contains(&key) {
            return;
        }
        match noted.keys.get_mut(count) {
            Some(place) => {
                *place = key;
                noted.count += 1;
            }
            None => noted.keys[0] = ANYTHING,
        }
    }

    /// The packet of this number waits for what was noted.
    pub fn await_noted(&self, waiter: u16) {
        let awaited = &self.awaited;
        let noted = awaited.noted.borrow();
        let mut reads = awaited.reads.borrow_mut();
        for &key in &noted.keys[..noted.count] {
            if mutant::active(Mutant::WakesByFirstReadAlone) && key != noted.keys[0] {
                break;
            }
            if !reads.add(key, waiter) {
                break;
            }
            awaited.count.set(awaited.count.get() + 1);
            let of_anything = u32::from(key == ANYTHING);
            awaited
                .of_anything
                .set(awaited.of_anything.get() + of_anything);
        }
    }
    /// The packet of this number waits no longer, or was woken and is not to be handed out.
    pub fn stop_awaiting(&self, waiter: u16) {
        let mut reads = self.awaited.reads.borrow_mut();
        self.awaited.take_out(&mut reads, waiter);
        if !reads.woken.is_empty() {
            reads.woken.retain(|&woken| woken != waiter);
            self.awaited.woken.set(reads.woken.len() as u32);
        }
    }
    /// The next packet of which something that it waits for was written.
    pub fn next_woken(&self) -> Option<u16> {
        let mut reads = self.awaited.reads.borrow_mut();
        let woken = reads.woken.pop();
        self.awaited.woken.set(reads.woken.len() as u32);
        woken
    }
    /// Whether there is one.
    #[inline]
    pub fn has_woken(&self) -> bool {
        self.awaited.woken.get() > 0
    }

    /// Whether packets wait for entries, so that changes matter to somebody.
    #[inline(always)]
    pub fn is_awaited(&self) -> bool {
        self.awaited.count.get() > 0
    }
    /// What a read by this key answers has changed.
    pub fn changed(&self, object: u8, lane: u8, hash: u64) {
        self.awaited.changed(key_of(object, lane, hash));
    }
    /// An object has its first entry, or lost its last one.
    pub fn changed_emptiness(&self, object: u8) {
        self.changed(object, EMPTINESS, 0);
    }
    /// Something of an object has changed.
    #[inline]
    pub fn changed_some(&self, object: u8) {
        if self.is_awaited() {
            self.changed(object, WHOLE, 0);
        }
    }
}
