//! Places of members, in two orders that must not be mixed up: among *all* members, and among the *others*.
//!
//! Both follow the names. A [`MemberIndex`] counts this member too, a [`PeerIndex`] does not, so that they differ for half of the members.
//! Each has its own tables ([`ByMember`], [`ByPeer`]) and sets ([`MemberSet`], [`PeerSet`]); `order` translates between them.

use core::marker::PhantomData;
use core::ops::{self, BitOr};

/// The most members of a cluster.
pub const MEMBERS_MAX: usize = 64;

/// A place in one of the two orders.
pub trait Place: Copy + Eq {
    /// The place of this number. Only for who walks over an order; others are handed places.
    fn at(number: usize) -> Self;

    /// Its number, from 0.
    fn number(self) -> usize;
}

/// A member's place among all members in the order of their names, this member included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(usize);

impl Place for MemberIndex {
    #[inline]
    fn at(number: usize) -> MemberIndex {
        debug_assert!(number < MEMBERS_MAX);
        MemberIndex(number)
    }

    #[inline]
    fn number(self) -> usize {
        self.0
    }
}

/// Another member's place among the other members in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerIndex(usize);

impl Place for PeerIndex {
    #[inline]
    fn at(number: usize) -> PeerIndex {
        debug_assert!(number < MEMBERS_MAX);
        PeerIndex(number)
    }

    #[inline]
    fn number(self) -> usize {
        self.0
    }
}

/// A set of places, a bit for each.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PlaceSet<I>(u64, PhantomData<I>);

/// Members by their place among all.
pub type MemberSet = PlaceSet<MemberIndex>;
/// Other members by their place among the others.
pub(crate) type PeerSet = PlaceSet<PeerIndex>;

impl<I> Clone for PlaceSet<I> {
    fn clone(&self) -> PlaceSet<I> {
        *self
    }
}

impl<I> Copy for PlaceSet<I> {}

impl<I> Default for PlaceSet<I> {
    fn default() -> PlaceSet<I> {
        PlaceSet::EMPTY
    }
}

impl<I> PlaceSet<I> {
    /// Nobody.
    pub const EMPTY: PlaceSet<I> = PlaceSet(0, PhantomData);
    /// Everybody that there can be.
    pub const ALL: PlaceSet<I> = PlaceSet(u64::MAX, PhantomData);

    /// Whether nobody is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }
}

impl<I: Place> PlaceSet<I> {
    /// One alone.
    #[must_use]
    #[inline]
    pub fn of(place: I) -> PlaceSet<I> {
        PlaceSet(1 << place.number(), PhantomData)
    }

    /// Whether a place is in it.
    #[must_use]
    #[inline]
    pub fn has(self, place: I) -> bool {
        self.0 >> place.number() & 1 != 0
    }

    /// The set with one more.
    #[must_use]
    #[inline]
    pub fn with(self, place: I) -> PlaceSet<I> {
        self | PlaceSet::of(place)
    }

    /// The set with one less.
    #[must_use]
    #[inline]
    pub fn without(self, place: I) -> PlaceSet<I> {
        self.without_all(PlaceSet::of(place))
    }

    /// The set without those of another.
    #[must_use]
    #[inline]
    pub fn without_all(self, others: PlaceSet<I>) -> PlaceSet<I> {
        PlaceSet(self.0 & !others.0, PhantomData)
    }

    /// Whether all of another set are in it.
    #[must_use]
    #[inline]
    pub fn has_all(self, others: PlaceSet<I>) -> bool {
        others.without_all(self).is_empty()
    }

    /// The only one; `None` where nobody or several are in it.
    #[must_use]
    pub fn only(self) -> Option<I> {
        (self.len() == 1).then(|| I::at(self.0.trailing_zeros() as usize))
    }

    /// Takes out the first.
    #[inline]
    pub fn pop(&mut self) -> Option<I> {
        if self.is_empty() {
            return None;
        }
        let first = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(I::at(first))
    }

    /// All, in order.
    #[inline]
    pub fn iter(mut self) -> impl Iterator<Item = I> {
        core::iter::from_fn(move || self.pop())
    }
}

impl<I> BitOr for PlaceSet<I> {
    type Output = PlaceSet<I>;

    #[inline]
    fn bitor(self, others: PlaceSet<I>) -> PlaceSet<I> {
        PlaceSet(self.0 | others.0, PhantomData)
    }
}

impl<I: Place> FromIterator<I> for PlaceSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(places: T) -> PlaceSet<I> {
        places.into_iter().fold(PlaceSet::EMPTY, PlaceSet::with)
    }
}

/// A value for each place of one of the two orders. Their number never changes.
#[derive(Clone, Debug)]
pub(crate) struct Table<I, T> {
    values: Box<[T]>,
    places: PhantomData<I>,
}

/// A value for each member, this one included.
pub(crate) type ByMember<T> = Table<MemberIndex, T>;
/// A value for each other member.
pub(crate) type ByPeer<T> = Table<PeerIndex, T>;

impl<I: Place, T> Table<I, T> {
    /// The same value for so many places.
    pub(crate) fn filled(value: T, count: usize) -> Table<I, T>
    where
        T: Clone,
    {
        core::iter::repeat_n(value, count).collect()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.values
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, T> {
        self.values.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, T> {
        self.values.iter_mut()
    }

    pub(crate) fn fill(&mut self, value: T)
    where
        T: Clone,
    {
        self.values.fill(value);
    }

    /// All places in order. Does not borrow the table.
    #[inline]
    pub(crate) fn places(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.values.len()).map(I::at)
    }

    /// All places once, from one on and around.
    #[inline]
    pub(crate) fn places_from(&self, first: I) -> impl Iterator<Item = I> + use<I, T> {
        let count = self.values.len();
        (0..count).map(move |step| I::at((first.number() + step) % count))
    }

    /// The place so many after another, around.
    pub(crate) fn place_after(&self, place: I, steps: usize) -> I {
        I::at((place.number() + steps) % self.values.len())
    }

    /// All values with their places.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = (I, &T)> {
        self.values
            .iter()
            .enumerate()
            .map(|(number, value)| (I::at(number), value))
    }

    /// All values with their places.
    #[inline]
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.values
            .iter_mut()
            .enumerate()
            .map(|(number, value)| (I::at(number), value))
    }

    /// The first place with such a value.
    pub(crate) fn position(&self, is_it: impl FnMut(&T) -> bool) -> Option<I> {
        self.values.iter().position(is_it).map(I::at)
    }
}

impl<I, T> FromIterator<T> for Table<I, T> {
    fn from_iter<V: IntoIterator<Item = T>>(values: V) -> Table<I, T> {
        Table {
            values: values.into_iter().collect(),
            places: PhantomData,
        }
    }
}

impl<I: Place, T> ops::Index<I> for Table<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, place: I) -> &T {
        &self.values[place.number()]
    }
}

impl<I: Place, T> ops::IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, place: I) -> &mut T {
        &mut self.values[place.number()]
    }
}

impl<'a, I, T> IntoIterator for &'a Table<I, T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> core::slice::Iter<'a, T> {
        self.values.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut Table<I, T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> core::slice::IterMut<'a, T> {
        self.values.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_taken_apart_in_order() {
        let mut set: PeerSet = [5, 0, 63].map(PeerIndex::at).into_iter().collect();
        assert_eq!(set.len(), 3);
        assert!(set.has(PeerIndex(63)) && !set.has(PeerIndex(1)));
        assert_eq!(set.only(), None);
        assert_eq!(set.pop(), Some(PeerIndex(0)));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [PeerIndex(5), PeerIndex(63)]
        );
        let rest = set.without(PeerIndex(63));
        assert_eq!(rest.only(), Some(PeerIndex(5)));
        assert!(set.has_all(rest) && !rest.has_all(set) && PeerSet::ALL.has_all(set));
        assert!(rest.without_all(set).is_empty());
        assert_eq!(PeerSet::EMPTY.only(), None);
        assert_eq!(rest.with(PeerIndex(63)), set);
    }

    #[test]
    fn a_table_is_walked_from_any_place_around() {
        let table: ByPeer<char> = "abc".chars().collect();
        let around: String = table
            .places_from(PeerIndex(2))
            .map(|place| table[place])
            .collect();
        assert_eq!(around, "cab");
        assert_eq!(table.place_after(PeerIndex(2), 2), PeerIndex(1));
        assert_eq!(table.position(|&value| value == 'b'), Some(PeerIndex(1)));
        assert_eq!(table.places().count(), table.len());
        let none = ByPeer::<char>::filled('x', 0);
        assert_eq!(none.places_from(PeerIndex(0)).count(), 0);
    }
}
