//! Pools of items that can run out (outside ports), leased so that two members never hand out the same item.
//!
//! The items of a pool lie on *ranges* (an address and a protocol) of equal length. Ranges are cut into blocks of 64 items,
//! and blocks are leased to instances by their place in the configured member list. An instance grants only from its own
//! blocks, so a grant needs no consent and never collides. The tables that use items show which are in use, and an item
//! returns when all members forgot its last user ([`Table::on_forget`](crate::Table::on_forget)).
//!
//! An epoch may assign the blocks of dead members to others ([`BlockAssignment`](crate::BlockAssignment)); the context of calls
//! decides when these may grant from them. So every instance tracks the use of every item, not only of its own: a bit each.
//! The only message about a pool is the epoch that an instance has in force, once an epoch assigns any blocks.

mod confirmed;

use core::cell::{Cell, RefCell};
use core::fmt::Debug;
use std::rc::Rc;

use asterism_block_assignment::PARTITIONS;
use asterism_memory::blocks::{Begin, BlockAllocator, Standing};

use crate::branch::{Branch, taken};
use crate::context::{Context, Late, Note, Notes, Tick, late_answer};
use crate::mutant::{self, Mutant};
use crate::object::{
    Absence, Audit, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, Sweep, Writable,
};
use crate::stamp::{NamedOrigins, OriginName, Stamp};
use crate::wire::{BadBytes, Reader, Writer};
use asterism_object_counts::{ObjectCount, ObjectCounts};

pub use asterism_memory::blocks::BLOCK_ITEMS;
use confirmed::Confirmed;

/// What a pool's items are: `ranges` × `items` of them, numbered range by range.
pub trait Space: Debug + 'static {
    /// An item.
    type Item: Copy + Debug;
    /// How many ranges there are.
    fn ranges(&self) -> u32;
    /// How many items a range has.
    fn items(&self) -> u32;
    /// The item at a place of a range.
    fn item(&self, range: u32, place: u32) -> Self::Item;
    /// Where an item is: range and place. `None` if it is not of this pool.
    fn place(&self, item: &Self::Item) -> Option<(u32, u32)>;
}

/// A reserved item: got while asking, spent by [`PoolAct::take`]. It returns by itself if it is not.
#[derive(Debug)]
#[must_use = "a grant that is not spent returns when the packet ends"]
pub struct Grant<T> {
    item: T,
    /// The item's number.
    number: u32,
    ticket: u8,
}

impl<T: Copy> Grant<T> {
    /// Which item it is, to look at.
    pub fn item(&self) -> T {
        self.item
    }
}

/// A pool of items.
#[derive(Debug)]
pub struct Pool<S: Space> {
    shared: Rc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    space: S,
    /// Which share of the blocks is this instance's by place, of how many.
    share: (u32, u32),
    ranges: RefCell<BlockAllocator>,
    leases: RefCell<PoolLeases>,
    /// Granted items that are neither spent nor returned, the latest last: those of parked packets, and of the packet being
    /// handled.
    outstanding: RefCell<Vec<u32>>,
    refused: Cell<u64>,
    /// It was said how long entries live that have its items.
    declared: Cell<bool>,
    confirmed: Confirmed,
}

/// What a pool knows of the epoch's assignment.
#[derive(Debug, Default)]
struct PoolLeases {
    notes: Notes,
    /// Members from whose places' partitions this instance may grant what was dealt to it.
    open: Vec<u16>,
    /// The state of the context's leases that was looked at last, and when.
    version: u64,
    judged_us: u64,
    /// The epoch by which blocks were dealt last; before the first nobody knows what is one's own.
    dealt: u32,
    /// The epoch that this instance put on record.
    noted: u32,
}

/// Room that is made for outstanding grants at the start: for all packets that may be parked, with as many grants as each may have.
const OUTSTANDING_EXPECTED: usize = 4_096;
/// Microseconds between two looks at whether quarantined blocks may be granted from.
const JUDGE_US: u64 = 100_000;

/// What a pool holds back; for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Items that this instance may grant.
    pub leased: u32,
    /// Items that the epoch has dealt to it and that it may not grant yet.
    pub quarantined: u32,
    /// Of those leased, items that were another member's by place.
    pub reclaimed: u32,
    /// Of those, granted and not returned.
    pub in_use: u32,
    /// Grants refused because the range was empty.
    pub refused: u64,
}

impl<S: Space> Pool<S> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        space: S,
    ) -> Self {
        let share = if settings.is_replicated() {
            context.expect_leases();
            context.identity().share()
        } else {
            (0, 1)
        };
        assert!(
            space.ranges().checked_mul(space.items()).is_some(),
            "a pool has fewer than 2^32 items"
        );
        let ranges = BlockAllocator::new(space.ranges(), space.items());
        let shared = Shared {
            context,
            object,
            settings,
            space,
            share,
            ranges: RefCell::new(ranges),
            leases: RefCell::default(),
            outstanding: RefCell::new(Vec::with_capacity(OUTSTANDING_EXPECTED)),
            refused: Cell::new(0),
            declared: Cell::new(false),
            confirmed: Confirmed::default(),
        };
        shared.deal();
        Self {
            shared: Rc::new(shared),
        }
    }

    /// Reserves an item of a range: the one at `wish` if it is leased here and free, else another.
    /// `None` when this instance's leases of the range are used up. Never late.
    pub fn grant(&self, range: u32, wish: u32) -> Result<Option<Grant<S::Item>>, Late> {
        self.granted(range, |shared| shared.take(range, wish))
    }

    /// The item of the range that the packet was granted already, or the one that `take` takes.
    fn granted(
        &self,
        range: u32,
        take: impl FnOnce(&Shared<S>) -> Option<u32>,
    ) -> Result<Option<Grant<S::Item>>, Late> {
        let shared = &*self.shared;
        if shared.context.is_prefetching() {
            return Err(late_answer());
        }
        let items = shared.space.items();
        let granted = shared.context.grant(
            shared.object,
            // What it was granted and may grant no more returns when the packet ends.
            |number| number / items == range && shared.is_granted_from(range, number % items),
            || take(shared).map(|place| range * items + place),
        );
        if granted.is_none() {
            shared.refused.set(shared.refused.get() + 1);
        }
        Ok(granted.map(|(number, ticket)| Grant {
            item: shared.space.item(number / items, number % items),
            number,
            ticket,
        }))
    }

    /// Whether this instance grants anything now. It does not while its leases are not in force: that passes, and says nothing of how many
    /// items are free.
    pub fn grants_now(&self) -> bool {
        self.shared.grants_now()
    }

    /// Asks for what [`Pool::grant`] reads first, where there are other things to do before: a cache line comes meanwhile. Answers
    /// nothing and is never late.
    #[inline]
    pub fn prefetch(&self, range: u32, wish: u32) {
        self.shared.ranges.borrow().prefetch(range, wish);
    }

    /// Whether nobody can have put `item` to use without it being known here: late while the living
    /// member that leases it may have (its operations are on their way), for at most the object's
    /// `absent` wait.
    pub fn settled(&self, item: &S::Item) -> Result<(), Late> {
        let shared = &*self.shared;
        let Absence::Wait { us } = shared.settings.absence else {
            return Ok(());
        };
        match shared.space.place(item) {
            Some((range, place)) if !shared.is_granted_from(range, place) => {
                let member = shared.holder(range, place / BLOCK_ITEMS);
                let mut members = shared.context.identity().members.iter();
                let place = members.position(|&known| known == member).unwrap_or(0);
                shared.context.absent(Some(place as u16), us.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether nobody can have put any item to use without that being known here: late while some other member may have,
    /// for at most the object's `absent` wait.
    pub fn settled_by_all(&self) -> Result<(), Late> {
        let shared = &*self.shared;
        match shared.settings.absence {
            Absence::Wait { us } => shared.context.absent(None, us.into()),
            Absence::Answer => Ok(()),
        }
    }

    /// Whether the item is leased to this instance, which may grant it.
    pub fn is_own(&self, item: &S::Item) -> bool {
        let place = self.shared.space.place(item);
        self.shared.knows_its_own()
            && place.is_some_and(|(range, place)| self.shared.is_granted_from(range, place))
    }

    /// Whether the item is in use, as far as this instance knows, no matter who granted it.
    pub fn is_used(&self, item: &S::Item) -> bool {
        let place = self.shared.space.place(item);
        place.is_some_and(|(range, place)| self.shared.ranges.borrow().is_used(range, place))
    }

    /// The items' space.
    pub fn space(&self) -> &S {
        &self.shared.space
    }

    fn take_note(&self, note: Note) -> Result<(), BadBytes> {
        let mut leases = self.shared.leases.borrow_mut();
        // Whatever it changes is looked at with the next step of the sweep.
        leases.judged_us = 0;
        let taken = leases.notes.take(&self.shared.context, note);
        taken.then_some(()).ok_or(BadBytes)
    }

    /// How much of the leases is used.
    pub fn usage(&self) -> PoolUse {
        let shared = &*self.shared;
        let ranges = shared.ranges.borrow();
        PoolUse {
            leased: ranges.free() + ranges.in_use(),
            quarantined: ranges.quarantined(),
            reclaimed: ranges.reclaimed(),
            in_use: ranges.in_use(),
            refused: shared.refused.get(),
        }
    }

    /// Says how long entries that have items of this pool live when nobody uses them, in seconds for each of their idle classes
    /// (0: they never end by themselves). The ports of a dead member then rest for the longest of these, and not for the longest of
    /// any table of the function. Say it of all tables whose entries have items, in one call.
    pub fn held_for(&self, idle: &[Tick]) {
        let is_leased = self.shared.settings.is_replicated();
        if is_leased && !self.shared.declared.replace(true) {
            self.shared.context.expect_holders(idle);
        }
    }

    /// A handle that takes items back, for [`Table::on_forget`](crate::Table::on_forget).
    pub fn returns(&self) -> Returns<S> {
        Returns {
            shared: self.shared.clone(),
        }
    }
}

/// Takes items back into a pool, and holds those that are in use already.
#[derive(Debug)]
pub struct Returns<S: Space> {
    shared: Rc<Shared<S>>,
}

impl<S: Space> Returns<S> {
    /// Asks for what [`Returns::hold`] and [`Returns::item`] read; a cache line comes meanwhile.
    #[inline]
    pub fn prefetch(&self, item: &S::Item) {
        if let Some((range, place)) = self.shared.space.place(item) {
            self.shared.ranges.borrow().prefetch(range, place);
        }
    }

    /// The item is in use: a row has it that this instance did not write now. It is granted to nobody until it returns.
    pub fn hold(&self, item: &S::Item) {
        if let Some((range, place)) = self.shared.space.place(item) {
            self.shared.hold(range, place);
        }
    }

    /// The item is used by nobody any more. Items leased elsewhere are not this instance's business.
    pub fn item(&self, item: &S::Item) {
        if let Some((range, place)) = self.shared.space.place(item) {
            self.shared.put(range, place);
        }
    }
}

impl<S: Space> Shared<S> {
    /// Whether blocks were judged since the epoch deals them. A process that has just begun has all of its place's until then, and
    /// others may still grant from those.
    fn knows_its_own(&self) -> bool {
        if !self.settings.is_replicated() || mutant::active(Mutant::GrantsUnjudged) {
            return true;
        }
        let leases = self.context.leases();
        self.leases.borrow().dealt > 0 || leases.assignment().dealt.is_empty()
    }

    fn is_granted_from(&self, range: u32, place: u32) -> bool {
        self.ranges.borrow().is_granted_from(range, place)
    }

    /// Whose a block is by place, and its number among those of that place. Shifted from range to range, so that a rest does not
    /// always fall to the same member.
    fn home(&self, range: u32, block: u32) -> (u16, u32) {
        let members = &self.context.identity().members;
        let (turn, count) = (block + range, members.len().max(1) as u32);
        let member = members.get((turn % count) as usize);
        (member.copied().unwrap_or(0), turn / count)
    }

    /// The member that holds a block.
    fn holder(&self, range: u32, block: u32) -> u16 {
        let (home, number) = self.home(range, block);
        let leases = self.context.leases();
        leases
            .assignment()
            .holder(home, number as usize % PARTITIONS)
    }

    /// What this instance may do with a block.
    fn judge(&self, range: u32, block: u32, open: &[u16]) -> Standing {
        if !self.settings.is_replicated() {
            return Standing::Own;
        }
        let is_share = self.is_in_share(range, block);
        let leases = self.context.leases();
        if leases.assignment().dealt.is_empty() {
            return match is_share {
                true => Standing::Own,
                false => Standing::Foreign,
            };
        }
        let own = self.context.identity().own;
        let (home, number) = self.home(range, block);
        let is_home = home == own.member;
        let holder = leases
            .assignment()
            .holder(home, number as usize % PARTITIONS);
        let is_mine = match is_home {
            true => is_share,
            false => self.is_dealt_to_lane(number),
        };
        let is_dealt = leases.assignment().dealt.contains_key(&home);
        if holder != own.member || !is_mine {
            Standing::Foreign
        } else if is_dealt && is_quarantined(home, open) {
            taken(Branch::BlockQuarantined);
            Standing::Quarantined
        } else if is_home {
            if is_dealt {
                taken(Branch::BlockReturned);
            }
            Standing::Own
        } else {
            taken(Branch::BlockReclaimed);
            Standing::Reclaimed
        }
    }

    /// Whether a block is this instance's as long as no epoch gives it to another host.
    fn is_in_share(&self, range: u32, block: u32) -> bool {
        let (mine, shares) = self.share;
        if mutant::active(Mutant::BlocksAssignedByRange) {
            return (block + range).is_multiple_of(shares);
        }
        (block + range) % shares == mine
    }

    /// Whether a block of another member's place, by its number there, falls to this instance if this host holds it.
    fn is_dealt_to_lane(&self, number: u32) -> bool {
        // Of a place's blocks a holder has every so many: dealt out once more by number, all could fall to one lane.
        let (lane, lanes) = self.context.identity().lane;
        let lanes = u32::from(lanes.max(1));
        (number.wrapping_mul(0x9E37_79B1) >> 16) % lanes == u32::from(lane)
    }

    /// Looks at every block again; only when an epoch or the end of a quarantine changes something.
    fn deal(&self) {
        let leases = self.leases.borrow();
        // Who granted from a block and holds it still needs nobody's release, anyone who held it before.
        let keeps = leases.dealt > 0;
        let judge = |range, block| self.judge(range, block, &leases.open);
        let kept = self.ranges.borrow_mut().deal(keeps, judge);
        (0..kept).for_each(|_| taken(Branch::BlockKept));
    }

    fn take(&self, range: u32, wish: u32) -> Option<u32> {
        self.take_by(range, |ranges, begin| match self.confirmed.is_asked_for() {
            true => self.take_wished(ranges, (range, wish), begin),
            false => ranges.take(range, wish, begin),
        })
    }

    /// Whether anything may be granted now, whatever is free.
    fn grants_now(&self) -> bool {
        !self.settings.is_replicated() || self.context.may_lease() && self.knows_its_own()
    }

    /// Takes an item of a range by `take`, if anything may be granted now.
    fn take_by(
        &self,
        range: u32,
        take: impl FnOnce(&mut BlockAllocator, Begin) -> Option<u32>,
    ) -> Option<u32> {
        if !self.grants_now() {
            taken(Branch::GrantWithoutLease);
            return None;
        }
        let begin = if self.settings.is_replicated() {
            Begin::AtWish
        } else {
            Begin::WhereLastEnded
        };
        let place = take(&mut self.ranges.borrow_mut(), begin)?;
        let number = range * self.space.items() + place;
        self.outstanding.borrow_mut().push(number);
        Some(place)
    }

    /// A grant is outstanding no more; false if it was not.
    fn settle(&self, number: u32) -> bool {
        let mut outstanding = self.outstanding.borrow_mut();
        let place = outstanding.iter().rposition(|&known| known == number);
        place.map(|place| outstanding.swap_remove(place)).is_some()
    }

    fn hold(&self, range: u32, place: u32) {
        let is_new = self.ranges.borrow_mut().hold(range, place);
        if !is_new && !self.is_granted_from(range, place) {
            // Anyone who has the block now has put to use what was granted here before and never spent.
            self.settle(range * self.space.items() + place);
        }
    }

    fn put(&self, range: u32, place: u32) {
        self.ranges.borrow_mut().put(range, place);
    }

    /// Does what a change of leases needs: deals again, and puts on record which epoch is in force. Between packets.
    fn refresh(&self) {
        let context = &*self.context;
        context.renew_lease();
        let (version, epoch, is_dealt) = {
            let leases = context.leases();
            (
                leases.version(),
                leases.epoch(),
                !leases.assignment().dealt.is_empty(),
            )
        };
        let mut leases = self.leases.borrow_mut();
        let due = leases.version != version || context.now_us() >= leases.judged_us + JUDGE_US;
        if !due {
            return;
        }
        leases.judged_us = context.now_us();
        let shared = context.leases();
        let homes = shared.assignment().dealt.keys().copied();
        let open: Vec<u16> = homes
            .filter(|&home| shared.may_grant(context, home, &leases.notes))
            .collect();
        drop(shared);
        let changed = leases.version != version || leases.open != open;
        (leases.version, leases.open) = (version, open);
        drop(leases);
        if changed {
            self.deal();
        }
        let mut leases = self.leases.borrow_mut();
        leases.dealt = epoch;
        if is_dealt && leases.noted < epoch {
            leases.noted = epoch;
            let identity = context.identity();
            let note = Note {
                origin: identity.own,
                lane: identity.lane.0 as u8,
                lanes: identity.lane.1.max(1) as u8,
                epoch,
                sequence: context
                    .stamp(true, crate::context::OPERATION_BYTES_MAX)
                    .sequence,
            };
            leases.notes.take(context, note);
            context.log(|out| {
                out.tag(self.object, 0);
                write_note(&note, out);
            });
        }
    }
}

/// Whether nothing may be granted yet from dealt blocks of a member's place; `open` are the places of which all may be granted.
fn is_quarantined(home: u16, open: &[u16]) -> bool {
    !open.contains(&home) && !mutant::active(Mutant::QuarantineSkipped)
}

fn write_note(note: &Note, out: &mut Writer<'_>) {
    out.u8(note.lane);
    out.u8(note.lanes);
    out.u32(note.epoch);
}

fn read_note(input: &mut Reader<'_>, origin: OriginName) -> Result<Note, BadBytes> {
    Ok(Note {
        origin,
        lane: input.u8()?,
        lanes: input.u8()?,
        epoch: input.u32()?,
        sequence: 0,
    })
}

/// A note in a snapshot says of which incarnation it is, and where it stands in its stream.
fn read_note_of(input: &mut Reader<'_>) -> Result<Note, BadBytes> {
    let incarnation = OriginName {
        member: input.u16()?,
        incarnation: input.u64()?,
    };
    let sequence = input.u64()?;
    let note = read_note(input, incarnation)?;
    Ok(Note { sequence, ..note })
}

/// The writes of a [`Pool`].
#[derive(Debug)]
pub struct PoolAct<'a, S: Space>(&'a Pool<S>);

impl<S: Space> PoolAct<'_, S> {
    /// Spends a grant: the item is in use from here on.
    pub fn take(&mut self, grant: Grant<S::Item>) -> S::Item {
        let shared = &self.0.shared;
        shared.context.spend(grant.ticket);
        if shared.context.is_staged() {
            let number = grant.number;
            shared
                .context
                .record(shared.object, 0, |out| out.varint(number.into()));
        } else {
            shared.settle(grant.number);
        }
        grant.item
    }
}

impl<S: Space> Writable for Pool<S> {
    type Act<'a> = PoolAct<'a, S>;

    fn act(&mut self) -> PoolAct<'_, S> {
        PoolAct(self)
    }
}

impl<S: Space> Replicate for Pool<S> {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let note = read_note(input, self.shared.context.origin_name(stamp.origin))?;
        let sequence = stamp.sequence;
        self.take_note(Note { sequence, ..note })
    }
}

impl<S: Space> Sweep for Pool<S> {
    fn sweep(&mut self, _: u32) -> u32 {
        if self.shared.settings.is_replicated() {
            self.shared.refresh();
        }
        0
    }
    fn sweep_length(&self) -> u32 {
        u32::from(self.shared.settings.is_replicated())
    }
    fn origins_named(&self, _: u32, _: u32, _: &mut NamedOrigins) -> Option<u32> {
        // Records of who has an epoch in force bear names, not slots.
        None
    }
}

impl<S: Space> Audit for Pool<S> {
    fn digest(&self) -> u64 {
        0
    }
}

impl<S: Space> Snapshot for Pool<S> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let leases = self.shared.leases.borrow();
        for (number, note) in (0..).zip(leases.notes.all()).skip(cursor as usize) {
            if !part.query() || !part.has_room() {
                return Some(number);
            }
            let mut writer = Writer::new(part.out(), self.shared.context.addresses());
            writer.tag(self.shared.object, 0);
            writer.u16(note.origin.member);
            writer.u64(note.origin.incarnation);
            writer.u64(note.sequence);
            write_note(note, &mut writer);
        }
        None
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let note = read_note_of(input)?;
        self.take_note(note)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        // Of hosts that have all ended.
        read_note_of(input)?;
        Ok(false)
    }
}

impl<S: Space> Inspect for Pool<S> {
    fn capacity(&self) -> u32 {
        self.usage().leased
    }
    fn counts(&self) -> ObjectCounts {
        ObjectCounts::default().with(ObjectCount::Refused, self.usage().refused)
    }
    fn inherited(&self) -> (u32, u32) {
        let usage = self.usage();
        (usage.quarantined, usage.reclaimed)
    }
    fn entries(&self) -> usize {
        self.shared.ranges.borrow().in_use() as usize
    }
}

impl<S: Space> Operations for Pool<S> {
    fn must_begin_recording(&self) -> bool {
        false
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let number = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        self.shared.settle(number);
        Ok(())
    }
}

impl<S: Space> PerPacket for Pool<S> {
    fn give_back(&self, number: u32) {
        let items = self.shared.space.items();
        let (range, place) = (number / items, number % items);
        // What was dealt to another since may be in use there by now.
        if self.shared.settle(number) {
            self.shared.put(range, place);
        }
    }
}
