//! What an entry is.

use core::cmp::Ordering;
use core::fmt::Debug;
use core::net::IpAddr;

use asterism_memory::region::Zeroed;

use super::LANES_MAX;
use crate::context::Tick;
use crate::stamp::{Origin, Stamp};
use crate::wire::{BadBytes, Reader, Wire, Writer};

/// What an entry is found by. Rows are plain data; equal rows are the same entry.
///
/// The first [`Row::UNIQUE`] lanes are unique keys: of several live rows that share one, only the best by
/// [`Row::order`] is found by its first key. Further lanes are groups, which many rows may share.
pub trait Row: Copy + Eq + Debug + Wire + 'static {
    /// How many lanes are unique keys (1 to 4).
    const UNIQUE: usize;
    /// How many lanes there are (up to 4).
    const LANES: usize;
    /// The hash of the key in a lane.
    fn lane_hash(&self, lane: usize, seed: u64) -> u64;
    /// Writes the key in a lane, as it is written where it is asked for.
    fn lane_key(&self, lane: usize, out: &mut Writer<'_>);
    /// Whether two rows have the same key in a lane.
    fn lane_equal(&self, lane: usize, other: &Self) -> bool;
    /// Each key, in all lanes, is of one conversation, which is that of the row: [`Key::IS_OF_CONVERSATION`](crate::Key::IS_OF_CONVERSATION).
    const IS_OF_CONVERSATION: bool = false;
    /// The two addresses of a key in a lane, which is read as [`Row::lane_key`] writes it: [`Key::between`](crate::Key::between).
    ///
    /// # Errors
    /// It is no key of that lane.
    fn between(_lane: usize, _key: &mut Reader<'_>) -> Result<Option<(IpAddr, IpAddr)>, BadBytes> {
        Ok(None)
    }
    /// Which of two different rows that share a unique key is better. A total order, the same everywhere.
    fn order(&self, other: &Self) -> Ordering;
}

/// A value in a table. Plain data. With `#[derive(Value)]` each field says the law by which it joins.
pub trait Value: Copy + PartialEq + Debug + Wire + 'static {
    /// Whether two values written for the same generation join ([`Value::join`]); else one of them wins.
    const JOINS: bool = false;
    /// Which of two concurrent values wins; the stamp decides between equals.
    fn order(&self, _other: &Self) -> Ordering {
        Ordering::Equal
    }
    /// Takes up what `other` knows. Must commute, associate and be idempotent; checked by
    /// [`laws::value`](crate::laws::value).
    fn join(&mut self, _other: &Self) {}
    /// Which of the object's idle classes the entry is in while it has this value.
    fn idle_class(&self) -> u8 {
        0
    }
}

impl Value for () {}

/// The entry is found.
pub(crate) const LIVE: u16 = 1;
/// The entry was removed (by its generation).
pub(crate) const REMOVED: u16 = 2;
/// The record holds an entry.
pub(crate) const USED: u16 = 4;
/// This instance touched the entry last: it is the one that says when it idled out.
pub(crate) const OWN_TOUCH: u16 = 8;
/// The entry counts against this instance's share of the capacity.
pub(crate) const OWN_SHARE: u16 = 16;
/// A better row has one of the unique keys.
pub(crate) const DOMINATED: u16 = 32;
/// The record is in a chain of several rows with one key.
pub(crate) const CHAINED: u16 = 64;
/// The entry was found here at some time: an ended copy of an entry never held has no user to forget.
pub(crate) const LIVED: u16 = 128;
/// The entry is found, and no packet has to wait for its last change; see `unconfirmed.rs`.
pub(crate) const CONFIRMED: u16 = 256;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Header {
    /// From here on a use of the entry is announced again.
    pub(crate) touch_due: Tick,
    /// The last announced use, of this generation.
    pub(crate) seen: Tick,
    /// Uses up to this one were declared over, of this generation. The entry lives while `seen > expired`.
    pub(crate) expired: Tick,
    /// The lower half of the entry's generation; see [`Links`] and [`Table::generation`](super::Table::generation).
    pub(crate) generation_low: u32,
    pub(crate) sequence_low: u32,
    pub(crate) sequence_high: u16,
    pub(crate) origin: u16,
    /// Who announced the last use.
    pub(crate) toucher: u16,
    pub(crate) flags: u16,
}

impl Header {
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            origin: Origin(self.origin),
            sequence: u64::from(self.sequence_high) << 32 | u64::from(self.sequence_low),
        }
    }
    pub(crate) fn set_stamp(&mut self, stamp: Stamp) {
        self.origin = stamp.origin.0;
        self.sequence_low = stamp.sequence as u32;
        // 2^48 groups last 89 years at 100,000 a second.
        self.sequence_high = (stamp.sequence >> 32) as u16;
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Record<R, V> {
    pub(crate) header: Header,
    pub(crate) row: R,
    pub(crate) value: V,
}

impl<R: Row, V: Value> Record<R, V> {
    /// Whether the entry may be found by its key in a lane: by its first key only if that is undisputed, by another
    /// one also if it lost its first key to a better entry. Replies to it still need it (an alias).
    #[inline(always)]
    pub(crate) fn is_found_by(&self, lane: usize) -> bool {
        let wanted = if lane == 0 { LIVE | DOMINATED } else { LIVE };
        self.header.flags & wanted == LIVE
    }

    /// The same, and its last change is not one that a packet may have to wait for.
    #[inline(always)]
    pub(crate) fn is_found_plainly_by(&self, lane: usize) -> bool {
        let wanted = if lane == 0 {
            CONFIRMED | DOMINATED
        } else {
            CONFIRMED
        };
        self.header.flags & wanted == CONFIRMED
    }

    #[inline(always)]
    pub(crate) fn at(&self, number: u32) -> At<R, V> {
        At {
            number,
            touch_due: self.header.touch_due,
            row: self.row,
            value: self.value,
            alias: self.header.flags & DOMINATED != 0,
        }
    }
}

// SAFETY: a record is only read as a `Record` of real rows and values once `allocate` has written it;
// rows and values are plain data. Zeroed records are reached by nothing but `allocate`, which overwrites
// them, and by sweeps up to `used`, which excludes them.
unsafe impl<R: Copy, V: Copy> Zeroed for Record<R, V> {}

/// Neighbours in the chains of rows that share a key (plus one; 0 is none), and the operation that ended
/// the entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) next: [u32; LANES_MAX],
    pub(crate) previous: [u32; LANES_MAX],
    pub(crate) death_origin: u16,
    /// The upper half of the entry's generation, zero in nearly all tables.
    pub(crate) generation_high: u32,
    pub(crate) death_sequence: u64,
}

// SAFETY: zero links are links to nothing.
unsafe impl Zeroed for Links {}

impl Links {
    pub(crate) fn death(&self) -> Stamp {
        Stamp {
            origin: Origin(self.death_origin),
            sequence: self.death_sequence,
        }
    }
    pub(crate) fn set_death(&mut self, stamp: Stamp) {
        self.death_origin = stamp.origin.0;
        self.death_sequence = stamp.sequence;
    }
}

/// An entry that was found: its row and value as they were, and where it is.
///
/// Valid until the packet ends; hand it to the writes of the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<R, V> {
    pub(crate) number: u32,
    /// As it was: so that a use which is not to be announced does not look at the entry again.
    pub(crate) touch_due: Tick,
    pub(crate) alias: bool,
    /// The row.
    pub row: R,
    /// The value.
    pub value: V,
}

impl<R, V> At<R, V> {
    /// Whether another row with the same first key is preferred: packets of this one are served until it
    /// idles out, new ones should not use it.
    pub fn is_alias(&self) -> bool {
        self.alias
    }
}
