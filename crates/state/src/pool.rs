//! Things that can run out (outside ports), dealt so that two members never hand out the same one.
//!
//! The items of a pool lie on *shelves* (an address and a protocol) of equal length. Shelves are cut into
//! blocks of 64 items, and blocks are leased to instances by their place in the epoch's member list. An
//! instance grants only from its own blocks, so a grant needs nobody's consent and never collides.
//! Nothing about a pool travels: what is in use is seen in the tables that use it, and an item returns
//! when its last user was forgotten by everybody ([`Table::on_forget`](crate::Table::on_forget)).

use core::cell::{Cell, RefCell};
use core::fmt::Debug;
use std::rc::Rc;

use crate::answer::Late;
use crate::context::Context;
use crate::mutant::{self, Mutant};
use crate::object::{Absence, Object, ObjectSettings, Part, Since};
use crate::stamp::Stamp;
use crate::wire::{BadBytes, Reader};

/// Items in a leased block.
pub const BLOCK_ITEMS: u32 = 64;

/// What a pool's items are: `shelves` × `items` of them, numbered shelf by shelf.
pub trait Space: Debug + 'static {
    /// An item.
    type Item: Copy + Debug;
    /// How many shelves there are.
    fn shelves(&self) -> u32;
    /// How many items a shelf has.
    fn items(&self) -> u32;
    /// The item at a place of a shelf.
    fn item(&self, shelf: u32, place: u32) -> Self::Item;
    /// Where an item is: shelf and place. `None` if it is not of this pool.
    fn place(&self, item: &Self::Item) -> Option<(u32, u32)>;
}

/// A reserved item: got while asking, spent by [`PoolAct::take`]. It returns by itself if it is not.
#[derive(Debug)]
#[must_use = "a grant that is not spent returns when the packet ends"]
pub struct Grant<T> {
    item: T,
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
    /// Which share of the blocks is this instance's, of how many.
    share: (u32, u32),
    /// A bit for each item that is free: a word for each own block, shelf by shelf.
    free: RefCell<Vec<u64>>,
    blocks: Vec<OwnBlocks>,
    in_use: Cell<u32>,
    refused: Cell<u64>,
}

/// The own blocks of one shelf: every `shares`-th block from `first`; their words start at `word`.
#[derive(Clone, Debug)]
struct OwnBlocks {
    first: u32,
    count: u32,
    word: usize,
    /// Where the last search ended.
    next: Cell<u32>,
    free: Cell<u32>,
}

/// What a pool holds back; for `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Items that this instance may grant.
    pub leased: u32,
    /// Of those, granted and not returned.
    pub in_use: u32,
    /// Grants refused because the shelf was empty.
    pub refused: u64,
}

impl<S: Space> Pool<S> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        space: S,
    ) -> Self {
        let share = if settings.logged {
            context.identity().share()
        } else {
            (0, 1)
        };
        let (mine, shares) = share;
        let mine = if mutant::active(Mutant::BlocksDealtByShelf) {
            0
        } else {
            mine
        };
        assert!(
            space.shelves().checked_mul(space.items()).is_some(),
            "a pool has fewer than 2^32 items"
        );
        let all_blocks = space.items().div_ceil(BLOCK_ITEMS);
        let mut free = Vec::new();
        let mut blocks = Vec::new();
        for shelf in 0..space.shelves() {
            // Shifted from shelf to shelf, so that a rest does not always fall to the same member.
            let first = (mine + shares - shelf % shares) % shares;
            let count = all_blocks.saturating_sub(first).div_ceil(shares);
            let word = free.len();
            let mut total = 0;
            for number in 0..count {
                let start = (first + number * shares) * BLOCK_ITEMS;
                let items = (space.items() - start).min(BLOCK_ITEMS);
                free.push(if items == BLOCK_ITEMS {
                    u64::MAX
                } else {
                    (1 << items) - 1
                });
                total += items;
            }
            blocks.push(OwnBlocks {
                first,
                count,
                word,
                next: Cell::new(0),
                free: Cell::new(total),
            });
        }
        let shared = Shared {
            context,
            object,
            settings,
            space,
            share,
            free: RefCell::new(free),
            blocks,
            in_use: Cell::new(0),
            refused: Cell::new(0),
        };
        Self {
            shared: Rc::new(shared),
        }
    }

    /// Reserves an item of a shelf: the one at `wish` if it is leased here and free, else another.
    /// `None` when this instance's leases of the shelf are used up. Never late.
    pub fn grant(&self, shelf: u32, wish: u32) -> Result<Option<Grant<S::Item>>, Late> {
        let shared = &*self.shared;
        if shared.context.is_prefetching() {
            return Err(Late::new());
        }
        let items = shared.space.items();
        let granted = shared.context.grant(
            shared.object,
            |number| number / items == shelf,
            || shared.take(shelf, wish).map(|place| shelf * items + place),
        );
        if granted.is_none() {
            shared.refused.set(shared.refused.get() + 1);
        }
        Ok(granted.map(|(number, ticket)| Grant {
            item: shared.space.item(number / items, number % items),
            ticket,
        }))
    }

    /// Whether nobody can have put `item` to use without it being known here: late while the living
    /// member that leases it may have (its operations are on their way), for at most the object's
    /// `absent` wait.
    pub fn settled(&self, item: &S::Item) -> Result<(), Late> {
        let shared = &*self.shared;
        let Absence::Wait { us } = shared.settings.absence else {
            return Ok(());
        };
        match shared.owner(item) {
            Some(share) if share != shared.share.0 => {
                let members = shared.context.identity().members.len().max(1) as u32;
                shared
                    .context
                    .absent(Some((share % members) as u16), us.into())
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

    /// Whether the item is leased to this instance.
    pub fn is_own(&self, item: &S::Item) -> bool {
        self.shared.owner(item) == Some(self.shared.share.0)
    }

    /// The items' space.
    pub fn space(&self) -> &S {
        &self.shared.space
    }

    /// How much of the leases is used.
    pub fn usage(&self) -> PoolUse {
        let shared = &*self.shared;
        let free: u32 = shared.blocks.iter().map(|blocks| blocks.free.get()).sum();
        PoolUse {
            leased: free + shared.in_use.get(),
            in_use: shared.in_use.get(),
            refused: shared.refused.get(),
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
    /// The item is in use: a row has it that this instance did not write now. It is granted to nobody until it returns.
    pub fn hold(&self, item: &S::Item) {
        if let Some((shelf, place)) = self.shared.space.place(item) {
            self.shared.hold(shelf, place);
        }
    }

    /// The item is used by nobody any more. Items leased elsewhere are not this instance's business.
    pub fn item(&self, item: &S::Item) {
        if let Some((shelf, place)) = self.shared.space.place(item) {
            self.shared.put(shelf, place);
        }
    }
}

impl<S: Space> Shared<S> {
    /// The share that an item's block is leased to.
    fn owner(&self, item: &S::Item) -> Option<u32> {
        let (shelf, place) = self.space.place(item)?;
        Some((place / BLOCK_ITEMS + shelf) % self.share.1)
    }

    /// The word and bit of an item leased here.
    fn bit(&self, shelf: u32, place: u32) -> Option<(usize, u64)> {
        let blocks = self.blocks.get(shelf as usize)?;
        let block = place / BLOCK_ITEMS;
        let number = block.checked_sub(blocks.first)?;
        (number.is_multiple_of(self.share.1) && number / self.share.1 < blocks.count).then(|| {
            (
                blocks.word + (number / self.share.1) as usize,
                1 << (place % BLOCK_ITEMS),
            )
        })
    }

    fn take(&self, shelf: u32, wish: u32) -> Option<u32> {
        let blocks = self.blocks.get(shelf as usize)?;
        if blocks.free.get() == 0 {
            return None;
        }
        let mut free = self.free.borrow_mut();
        let place = match self.bit(shelf, wish) {
            Some((word, bit)) if free[word] & bit != 0 => wish,
            _ => {
                // Begin at the wished place within the own block nearest to it: neighbouring wishes stay
                // neighbours, and outsiders cannot count upwards.
                let start = if self.settings.logged {
                    (wish / BLOCK_ITEMS / self.share.1) % blocks.count
                } else {
                    blocks.next.get() % blocks.count
                };
                let number = (0..blocks.count)
                    .map(|step| (start + step) % blocks.count)
                    .find(|&number| free[blocks.word + number as usize] != 0)?;
                blocks.next.set(number);
                let word = free[blocks.word + number as usize];
                let turn = wish % BLOCK_ITEMS;
                let bit = (word.rotate_right(turn).trailing_zeros() + turn) % BLOCK_ITEMS;
                (blocks.first + number * self.share.1) * BLOCK_ITEMS + bit
            }
        };
        let (word, bit) = self.bit(shelf, place)?;
        free[word] &= !bit;
        blocks.free.set(blocks.free.get() - 1);
        self.in_use.set(self.in_use.get() + 1);
        Some(place)
    }

    fn hold(&self, shelf: u32, place: u32) {
        let Some((word, bit)) = self.bit(shelf, place) else {
            return;
        };
        let mut free = self.free.borrow_mut();
        if free[word] & bit != 0 {
            free[word] &= !bit;
            let blocks = &self.blocks[shelf as usize];
            blocks.free.set(blocks.free.get() - 1);
            self.in_use.set(self.in_use.get() + 1);
        }
    }

    fn put(&self, shelf: u32, place: u32) {
        let Some((word, bit)) = self.bit(shelf, place) else {
            return;
        };
        let mut free = self.free.borrow_mut();
        if free[word] & bit == 0 {
            free[word] |= bit;
            let blocks = &self.blocks[shelf as usize];
            blocks.free.set(blocks.free.get() + 1);
            self.in_use.set(self.in_use.get() - 1);
        }
    }
}

/// The writes of a [`Pool`].
#[derive(Debug)]
pub struct PoolAct<'a, S: Space>(&'a Pool<S>);

impl<S: Space> PoolAct<'_, S> {
    /// Spends a grant: the item is in use from here on.
    pub fn take(&mut self, grant: Grant<S::Item>) -> S::Item {
        self.0.shared.context.spend(grant.ticket);
        grant.item
    }
}

impl<S: Space> Object for Pool<S> {
    type Act<'a> = PoolAct<'a, S>;

    fn act(&mut self) -> PoolAct<'_, S> {
        PoolAct(self)
    }
    fn apply(&mut self, _: u8, _: &mut Reader<'_>, _: Stamp) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    fn digest(&self) -> u64 {
        0
    }
    fn image(&self, _: u32, _: &mut Part<'_>) -> Option<u32> {
        None
    }
    fn apply_image(&mut self, _: u8, _: &mut Reader<'_>) -> Result<(), BadBytes> {
        Err(BadBytes)
    }
    fn restore(&mut self, _: u8, _: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        Err(BadBytes)
    }
    fn capacity(&self) -> u32 {
        self.usage().leased
    }
    fn give_back(&self, number: u32) {
        let items = self.shared.space.items();
        self.shared.put(number / items, number % items);
    }
    fn entries(&self) -> usize {
        self.shared.in_use.get() as usize
    }
}
