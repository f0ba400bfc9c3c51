//! Port accounting (RFC 6888): the outside ports in use over all instances and their owners, in this instance's view. Quotas,
//! blocks and quarantine follow from it, and the log is written from it.
//!
//! Nothing here travels: every instance receives every session, and counts. The accounts change when a session is opened,
//! received or forgotten, never for a packet of a known session; all memory is allocated at the start. Read `accounts.rs` (a
//! subscriber's account), `blocks.rs` (the owner of each block), then `events.rs` (the log's events).
//!
//! Two instances never give one block to two subscribers. The instance that leases one certain port of a free block gives it
//! out. An instance opens ports in a subscriber's used block only while it knows a live session through the block. A session
//! is forgotten when all instances know that it ended, and each first reports the sessions that it opened until then. So when
//! the lease's holder forgets the last session through a block, no session through the block is in transit, and none can be
//! opened.

mod accounts;
mod blocks;
mod events;

use core::cell::{Cell, RefCell};
use core::fmt;
use std::collections::VecDeque;
use std::rc::Rc;

use asterism_function::objects::memory::prefetch;
use asterism_function::objects::{BLOCK_ITEMS, Context, Returns};
use asterism_function::{
    BadBytes, Endpoint, Pool, Protocol, Reader, Reason, Space, Tick, Wire, Writer,
};

use crate::config::NatConfig;
use crate::limits::{PortQuarantine, SubscriberLimits};
use crate::mutant::{self, Mutant};
use crate::ports::OutsidePorts;
use crate::session::Session;
use accounts::Accounts;
use blocks::{Blocks, CHAIN_MAX, Standing};
use events::Events;

pub use events::{EVENTS_MAX, NatEvent, NatEventKind};

/// The question that [`NatReportPart`] answer.
pub const NEWS_QUESTION: u32 = 0;

/// A session that comes to live here counts as opened now where it was used at most so many seconds ago: word of others takes
/// milliseconds, and clocks tell whole seconds. What a snapshot or a saved state brings was opened long ago.
const NEW_S: Tick = 2;
/// Thousandths of a session in one.
const WHOLE: u64 = 1_000;
/// Rested ports that one look returns at most.
const RESTS_PER_LOOK: usize = 256;
/// Blocks that one look frees at most, and whose end one report says for others at most.
const FREED_PER_LOOK: usize = 64;
const SAID_PER_REPORT: u32 = 1_024;

/// What one instance of a NAT counts for its carrier, in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NatUse {
    /// Subscribers with ports or blocks, of all instances.
    pub subscribers: u32,
    /// Blocks with ports in use, of all instances.
    pub blocks_used: u32,
    /// Blocks whose ports were all given back and that nobody else may have yet, of all instances.
    pub blocks_quarantined: u32,
    /// Ports that rest at this instance before they are granted again.
    pub ports_quarantined: u32,
    /// Ports that were granted again too early, because too many rested.
    pub quarantines_cut_short: u64,
    /// Events that found no room before the control plane took them.
    pub events_lost: u64,
    /// Packets of this instance that were routed untranslated, because their destination or source is exempt.
    pub exempt: u64,
}

/// What a report of a NAT says: what it counts, then what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatReportPart {
    /// What it counts.
    Use(NatUse),
    /// What happened.
    Event(NatEvent),
}

/// The first byte of counts in a report; events have their kind there.
const USE: u8 = 0xFF;

impl NatReportPart {
    /// Reads a part of a report; false if something else follows.
    pub fn read_all(bytes: &[u8], mut each: impl FnMut(Self)) -> bool {
        let mut left = bytes;
        while let Some(&first) = left.first() {
            let length = if first == USE {
                USE_BYTES
            } else {
                events::EVENT_BYTES
            };
            let Some((record, rest)) = left.split_at_checked(length) else {
                return false;
            };
            let Ok(news) = Self::read(first, record) else {
                return false;
            };
            each(news);
            left = rest;
        }
        true
    }

    fn read(first: u8, record: &[u8]) -> Result<Self, BadBytes> {
        if first != USE {
            return NatEvent::decode(&mut Reader::new(record, &[])).map(Self::Event);
        }
        let mut input = Reader::new(record.get(1..).unwrap_or(&[]), &[]);
        Ok(Self::Use(NatUse {
            subscribers: input.u32()?,
            blocks_used: input.u32()?,
            blocks_quarantined: input.u32()?,
            ports_quarantined: input.u32()?,
            quarantines_cut_short: input.u64()?,
            events_lost: input.u64()?,
            exempt: input.u64()?,
        }))
    }
}

const USE_BYTES: usize = 1 + 4 * 4 + 3 * 8;

impl NatUse {
    fn write(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out, &[]);
        out.u8(USE);
        out.u32(self.subscribers);
        out.u32(self.blocks_used);
        out.u32(self.blocks_quarantined);
        out.u32(self.ports_quarantined);
        out.u64(self.quarantines_cut_short);
        out.u64(self.events_lost);
        out.u64(self.exempt);
    }
}

/// Who uses which outside port.
pub(crate) struct PortAccounting {
    space: OutsidePorts,
    context: Rc<Context>,
    mask: u32,
    limits: SubscriberLimits,
    quarantine_s: Tick,
    /// Ports that rest at most.
    quarantined_max: usize,
    exempt: Cell<u64>,
    counts: RefCell<Counts>,
}

struct Counts {
    /// A bit for each port, range by range, that some session has.
    used: Vec<u64>,
    accounts: Accounts,
    blocks: Option<Blocks>,
    /// Ports that nobody uses and that are not granted yet, the oldest first, with when they may be.
    quarantined: VecDeque<(u32, Tick)>,
    quarantines_cut_short: u64,
    events: Events,
    /// The block that the next report looks at first, for those that others were to say the end of.
    said_next: u32,
}

impl fmt::Debug for PortAccounting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PortAccounting")
    }
}

/// The blocks that a subscriber has in use, as far as they are looked at.
pub(crate) struct UsedBlocks {
    numbers: [u32; CHAIN_MAX],
    count: usize,
}

impl UsedBlocks {
    pub(crate) fn all(&self) -> &[u32] {
        &self.numbers[..self.count]
    }
}

impl PortAccounting {
    /// Of a NAT that has granted nothing yet.
    pub(crate) fn new(config: &NatConfig, space: OutsidePorts, context: Rc<Context>) -> Self {
        let items = (space.ranges() * space.items()) as usize;
        let PortQuarantine { seconds, ports_max } = config.port_quarantine;
        let quarantined_max = if seconds == 0 {
            0
        } else {
            items.min(ports_max as usize)
        };
        // Without quotas and blocks nobody asks for accounts.
        let subscribers = if config.counts_subscribers() {
            config.subscribers.count_max
        } else {
            1
        };
        let counts = Counts {
            used: vec![0; items.div_ceil(64)],
            accounts: Accounts::new(subscribers, context.seed()),
            blocks: Blocks::new(config),
            quarantined: VecDeque::with_capacity(quarantined_max),
            quarantines_cut_short: 0,
            events: Events::new(config.log),
            said_next: 0,
        };
        Self {
            space,
            context,
            mask: config.subscribers.mask(),
            limits: config.subscribers,
            quarantine_s: seconds,
            quarantined_max,
            exempt: Cell::new(0),
            counts: RefCell::new(counts),
        }
    }

    /// A packet left that is none of the NAT's business.
    pub(crate) fn passed_untranslated(&self) {
        self.exempt.set(self.exempt.get() + 1);
    }

    /// Whose an inside address is.
    pub(crate) fn subscriber(&self, inside: Endpoint) -> u32 {
        inside.address.to_bits() & self.mask
    }

    /// Why a subscriber may have no further port, if so.
    pub(crate) fn refuses(&self, subscriber: u32) -> Option<Reason> {
        let most = self.limits.ports_max;
        let counts = self.counts.borrow();
        let ports = || counts.accounts.get(subscriber).map_or(0, |own| own.ports);
        if most != 0 && ports() >= most {
            return Some(Reason::SubscriberQuota);
        }
        let is_counted = most != 0 || self.limits.sessions_per_second != 0;
        let has_room =
            !is_counted && counts.blocks.is_none() || counts.accounts.has_room_for(subscriber);
        (!has_room).then_some(Reason::TableFull)
    }

    /// Whether a subscriber may open a session now, by how many it opened lately.
    pub(crate) fn may_open(&self, subscriber: u32, arrived_us: u64) -> bool {
        let SubscriberLimits {
            sessions_per_second,
            sessions_burst,
            ..
        } = self.limits;
        let account = || self.counts.borrow().accounts.get(subscriber);
        sessions_per_second == 0
            || account().is_none_or(|account| {
                let spent = account.spent_at(arrived_us, sessions_per_second);
                spent + WHOLE <= u64::from(sessions_burst) * WHOLE
            })
    }

    /// Returns ports and frees blocks that have rested, a bounded number. That they have is said by the clock alone, so it is
    /// the same whenever this is called.
    pub(crate) fn wake(&self, now: Tick, pool: &Pool<OutsidePorts>) {
        let counts = &mut *self.counts.borrow_mut();
        let is_due = |until: Tick| now >= until;
        if counts
            .quarantined
            .front()
            .is_some_and(|rest| is_due(rest.1))
        {
            let returns = pool.returns();
            for _ in 0..RESTS_PER_LOOK {
                match counts.quarantined.front() {
                    Some(&(number, until)) if is_due(until) => {
                        counts.quarantined.pop_front();
                        self.give_back(counts, number, &returns);
                    }
                    _ => break,
                }
            }
        }
        for _ in 0..FREED_PER_LOOK {
            let Some(blocks) = &mut counts.blocks else {
                return;
            };
            let Some(number) = blocks.next_rested(now) else {
                return;
            };
            if self.leads(blocks, number, pool) {
                self.note_block(counts, NatEventKind::BlockFreed, number, now);
            } else {
                blocks.all[number as usize].unsaid = true;
            }
            self.free(counts, number);
        }
    }

    fn give_back(&self, counts: &Counts, number: u32, returns: &Returns<OutsidePorts>) {
        // Who was given the lease meanwhile may have granted it.
        let is_used = counts.used[number as usize / 64] & 1 << (number % 64) != 0;
        if !is_used {
            let items = self.space.items();
            returns.item(&self.space.item(number / items, number % items));
        }
    }

    // --- blocks

    /// The blocks that a subscriber uses.
    pub(crate) fn used_blocks(&self, subscriber: u32) -> UsedBlocks {
        let mut used = UsedBlocks {
            numbers: [0; CHAIN_MAX],
            count: 0,
        };
        let counts = self.counts.borrow();
        let account = counts.accounts.get(subscriber);
        if let (Some(blocks), Some(account)) = (&counts.blocks, account) {
            for number in blocks.chain(account.first_block) {
                if blocks.all[number as usize].standing == Standing::Used {
                    used.numbers[used.count] = number;
                    used.count += 1;
                }
            }
        }
        used
    }

    /// The place of a block's address, and its ports.
    pub(crate) fn block(&self, number: u32) -> Option<(u32, (u16, u16))> {
        let counts = self.counts.borrow();
        let blocks = counts.blocks.as_ref()?;
        Some((blocks.place(number).0, blocks.ports(number)))
    }

    /// Whether a port may be a subscriber's: it lies in a block that is the subscriber's, or that this instance may give to it.
    pub(crate) fn fits(
        &self,
        outside: Endpoint,
        subscriber: u32,
        now: Tick,
        pool: &Pool<OutsidePorts>,
    ) -> bool {
        let counts = self.counts.borrow();
        let Some((blocks, number)) = self.block_of(&counts, outside) else {
            return false;
        };
        let block = &blocks.all[number as usize];
        match block.standing {
            Standing::Used => block.owner == subscriber,
            _ => self.may_give(blocks, number, subscriber, now, pool),
        }
    }

    /// A block of an address that this instance may give to a subscriber: one that was the subscriber's, else a free one.
    pub(crate) fn vacant_block(
        &self,
        subscriber: u32,
        (address, turn): (u32, u32),
        now: Tick,
        pool: &Pool<OutsidePorts>,
    ) -> Option<u32> {
        let counts = self.counts.borrow();
        let blocks = counts.blocks.as_ref()?;
        let account = counts.accounts.get(subscriber);
        let first = account.map_or(0, |account| account.first_block);
        let may = |number: u32| self.may_give(blocks, number, subscriber, now, pool);
        blocks
            .chain(first)
            .find(|&number| blocks.place(number).0 == address && may(number))
            .or_else(|| blocks.vacant((address, turn), now, may))
    }

    /// Whether this instance may give a block to a subscriber: nobody uses it, nobody else's rest goes on, and the lease that
    /// decides is this instance's.
    fn may_give(
        &self,
        blocks: &Blocks,
        number: u32,
        subscriber: u32,
        now: Tick,
        pool: &Pool<OutsidePorts>,
    ) -> bool {
        let block = &blocks.all[number as usize];
        let rests_for_it =
            matches!(block.standing, Standing::Resting { .. }) && block.owner == subscriber;
        (rests_for_it || blocks.is_vacant(number, now)) && self.leads(blocks, number, pool)
    }

    /// Whether this instance gives a block out, and says when it is free: it leases a certain port of it.
    fn leads(&self, blocks: &Blocks, number: u32, pool: &Pool<OutsidePorts>) -> bool {
        let address = blocks.address(number, self.space.all_addresses());
        let lead = blocks.lead(number, BLOCK_ITEMS);
        pool.is_own(&Endpoint::new(address, lead, Protocol::TCP))
    }

    fn block_of<'c>(&self, counts: &'c Counts, outside: Endpoint) -> Option<(&'c Blocks, u32)> {
        let blocks = counts.blocks.as_ref()?;
        let address = self.space.place_of_address(outside.address)?;
        Some((blocks, blocks.of(address, outside.port)?))
    }

    // --- what happens to sessions

    /// Asks for what the opening of a session through an outside endpoint reads; a cache line comes meanwhile.
    pub(crate) fn prefetch(&self, outside: &Endpoint) {
        if let Some(number) = self.number(outside) {
            self.prefetch_number(number);
        }
    }

    /// The same, by the endpoint's number.
    pub(crate) fn prefetch_number(&self, number: u32) {
        if let Some(word) = self.counts.borrow().used.get(number as usize / 64) {
            prefetch(word);
        }
    }

    /// This instance opened a session.
    pub(crate) fn opened(&self, session: &Session, arrived_us: u64) {
        self.begin(session, true, Some(arrived_us));
    }

    /// A session came to live that this instance did not open now, and that was used then.
    pub(crate) fn adopted(&self, session: &Session, used: Tick) {
        let age = self.context.tick().saturating_sub(used);
        let opened_us = (age <= NEW_S).then(|| self.context.now_us());
        self.begin(session, false, opened_us);
    }

    /// `opened_us` of one that its subscriber opened now.
    fn begin(&self, session: &Session, is_own: bool, opened_us: Option<u64>) {
        let counts = &mut *self.counts.borrow_mut();
        let (inside, outside) = (session.inside(), session.outside());
        let subscriber = self.subscriber(inside);
        let is_new = self.number(&outside).is_some_and(|number| {
            let (word, bit) = (number as usize / 64, 1 << (number % 64));
            let is_new = counts.used[word] & bit == 0;
            counts.used[word] |= bit;
            is_new
        });
        if is_new {
            self.port_begins(counts, (inside, outside), subscriber, is_own);
        }
        let per_second = self.limits.sessions_per_second;
        if let Some(now_us) = opened_us
            && per_second != 0
            && counts.accounts.get(subscriber).is_some()
        {
            let most = u64::from(self.limits.sessions_burst) * WHOLE;
            counts.accounts.change(subscriber, |account| {
                account.spent = (account.spent_at(now_us, per_second) + WHOLE).min(most);
                account.reckoned_us = account.reckoned_us.max(now_us);
            });
        }
    }

    fn port_begins(
        &self,
        counts: &mut Counts,
        (inside, outside): (Endpoint, Endpoint),
        subscriber: u32,
        is_own: bool,
    ) {
        let now = self.context.tick();
        let is_counted = self.limits.is_counted() || counts.blocks.is_some();
        let counts_it = is_own || !mutant::active(Mutant::QuotaPerInstance);
        let has_account = is_counted
            && counts
                .accounts
                .change(subscriber, |account| account.ports += u32::from(counts_it));
        if counts.blocks.is_none() {
            if is_own {
                self.note_binding(counts, NatEventKind::BindingMade, (inside, outside), now);
            }
            return;
        }
        let number = self.block_of(counts, outside).map(|(_, number)| number);
        let Some(number) = number else {
            return;
        };
        self.free_anothers(counts, number, subscriber);
        let Some(blocks) = &mut counts.blocks else {
            return;
        };
        if blocks.begin(number, subscriber, now) {
            // Others may have opened it for one more subscriber than are counted: the block is taken all the same.
            if has_account {
                counts.accounts.change(subscriber, |account| {
                    blocks.all[number as usize].next = account.first_block;
                    account.first_block = number + 1;
                });
            }
            if is_own {
                self.note_block(counts, NatEventKind::BlockAllocated, number, now);
            }
        }
    }

    /// Takes a block that rests from its owner if that is somebody else.
    fn free_anothers(&self, counts: &mut Counts, number: u32, subscriber: u32) {
        let Some(blocks) = &counts.blocks else {
            return;
        };
        let block = blocks.all[number as usize];
        if matches!(block.standing, Standing::Resting { .. }) && block.owner != subscriber {
            self.free(counts, number);
        }
    }

    /// A block that rested is nobody's any more.
    fn free(&self, counts: &mut Counts, number: u32) {
        let Some(blocks) = &mut counts.blocks else {
            return;
        };
        let (owner, after) = {
            let block = &blocks.all[number as usize];
            (block.owner, block.next)
        };
        counts.accounts.change(owner, |account| {
            if account.first_block == number + 1 {
                account.first_block = after;
                return;
            }
            let mut at = account.first_block;
            for _ in 0..blocks.all.len() {
                let Some(place) = at.checked_sub(1) else {
                    return;
                };
                let next = blocks.all[place as usize].next;
                if next == number + 1 {
                    blocks.all[place as usize].next = after;
                    return;
                }
                at = next;
            }
        });
        blocks.free(number);
    }

    /// The last session through an outside port was forgotten by everybody.
    pub(crate) fn left(&self, session: &Session, returns: &Returns<OutsidePorts>) {
        let counts = &mut *self.counts.borrow_mut();
        let (inside, outside) = (session.inside(), session.outside());
        let now = self.context.tick();
        let Some(number) = self.number(&outside) else {
            return;
        };
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if counts.used[word] & bit != 0 {
            counts.used[word] &= !bit;
            self.port_ends(counts, (inside, outside), now);
        }
        // Connections of TCP are followed to their end (RFC 6888 REQ-8 A).
        if self.quarantined_max == 0 || outside.protocol == Protocol::TCP {
            returns.item(&outside);
            return;
        }
        if counts.quarantined.len() >= self.quarantined_max
            && let Some((oldest, _)) = counts.quarantined.pop_front()
        {
            counts.quarantines_cut_short += 1;
            self.give_back(counts, oldest, returns);
        }
        let until = now.saturating_add(self.quarantine_s);
        counts.quarantined.push_back((number, until));
    }

    fn port_ends(&self, counts: &mut Counts, ends: (Endpoint, Endpoint), now: Tick) {
        let subscriber = self.subscriber(ends.0);
        let number = self.block_of(counts, ends.1).map(|(_, number)| number);
        match (&mut counts.blocks, number) {
            (Some(blocks), Some(number)) => {
                blocks.end(number, now.saturating_add(self.quarantine_s));
            }
            (Some(_), None) => {}
            (None, _) => self.note_binding(counts, NatEventKind::BindingEnded, ends, now),
        }
        if counts.accounts.get(subscriber).is_some() {
            counts.accounts.change(subscriber, |account| {
                account.ports = account.ports.saturating_sub(1);
            });
        }
    }

    fn number(&self, outside: &Endpoint) -> Option<u32> {
        let (range, place) = self.space.place(outside)?;
        Some(range * self.space.items() + place)
    }

    // --- the log

    fn note_binding(
        &self,
        counts: &mut Counts,
        kind: NatEventKind,
        (inside, outside): (Endpoint, Endpoint),
        now: Tick,
    ) {
        let since = if kind == NatEventKind::BindingMade {
            now
        } else {
            0
        };
        counts.events.note(NatEvent {
            kind,
            at: now,
            since,
            inside,
            outside: outside.address,
            ports: (outside.port, outside.port),
        });
    }

    fn note_block(&self, counts: &mut Counts, kind: NatEventKind, number: u32, now: Tick) {
        let Some(blocks) = &counts.blocks else {
            return;
        };
        let block = blocks.all[number as usize];
        counts.events.note(NatEvent {
            kind,
            at: now,
            since: block.since,
            inside: Endpoint::new(block.owner.into(), 0, Protocol(0)),
            outside: blocks.address(number, self.space.all_addresses()),
            ports: blocks.ports(number),
        });
    }

    /// What the control plane is reported: what is counted, then what happened. Takes the events.
    pub(crate) fn report(
        &self,
        pool: &Pool<OutsidePorts>,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        self.wake(self.context.tick(), pool);
        let counts = &mut *self.counts.borrow_mut();
        if cursor == 0 {
            self.say_for_others(counts, pool);
            let (used, quarantined) = counts
                .blocks
                .as_ref()
                .map_or((0, 0), |blocks| (blocks.used, blocks.quarantined));
            let counted = NatUse {
                subscribers: counts.accounts.len(),
                blocks_used: used,
                blocks_quarantined: quarantined,
                ports_quarantined: counts.quarantined.len() as u32,
                quarantines_cut_short: counts.quarantines_cut_short,
                events_lost: counts.events.lost,
                exempt: self.exempt.get(),
            };
            counted.write(out);
        }
        let mut writer = Writer::new(out, &[]);
        for _ in 0..count {
            let event = counts.events.take()?;
            // The end of a binding is said by who leases the port.
            let outside = Endpoint::new(event.outside, event.ports.0, event.inside.protocol);
            if event.kind != NatEventKind::BindingEnded || pool.is_own(&outside) {
                event.encode(&mut writer);
            }
        }
        (!counts.events.is_empty()).then(|| cursor.saturating_add(1))
    }

    /// Says of blocks that are free what another instance was to say, of those whose lease was dealt to this one: the other may
    /// have died before it said so. A bounded number of blocks is looked at.
    fn say_for_others(&self, counts: &mut Counts, pool: &Pool<OutsidePorts>) {
        let now = self.context.tick();
        let Some(blocks) = &counts.blocks else {
            return;
        };
        let count = blocks.all.len() as u32;
        for _ in 0..SAID_PER_REPORT.min(count) {
            let number = counts.said_next % count;
            counts.said_next = (number + 1) % count;
            let Some(blocks) = &mut counts.blocks else {
                return;
            };
            if blocks.all[number as usize].unsaid && self.leads(blocks, number, pool) {
                if let Some(blocks) = &mut counts.blocks {
                    blocks.all[number as usize].unsaid = false;
                }
                self.note_block(counts, NatEventKind::BlockFreed, number, now);
            }
        }
    }
}
