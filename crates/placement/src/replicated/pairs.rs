//! A value for each ordered pair of members.

use core::ops::{Index, IndexMut};

use crate::membership::{MemberIndex, Place};

/// A value for each pair of a row's member and a column's.
#[derive(Clone, Debug)]
pub(super) struct Pairs<T> {
    members: usize,
    values: Box<[T]>,
}

impl<T: Copy + Default> Pairs<T> {
    /// All values are the default.
    pub(super) fn new(members: usize) -> Pairs<T> {
        Pairs {
            members,
            values: vec![T::default(); members * members].into(),
        }
    }

    /// The values of a member's row, by column.
    pub(super) fn row(&self, row: MemberIndex) -> &[T] {
        let row = row.number();
        &self.values[row * self.members..(row + 1) * self.members]
    }

    /// All values of a member, in its row and its column, are the default again.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        for other in (0..self.members).map(MemberIndex::at) {
            self[(member, other)] = T::default();
            self[(other, member)] = T::default();
        }
    }
}

impl<T> Index<(MemberIndex, MemberIndex)> for Pairs<T> {
    type Output = T;

    fn index(&self, (row, column): (MemberIndex, MemberIndex)) -> &T {
        debug_assert!(column.number() < self.members);
        &self.values[row.number() * self.members + column.number()]
    }
}

impl<T> IndexMut<(MemberIndex, MemberIndex)> for Pairs<T> {
    fn index_mut(&mut self, (row, column): (MemberIndex, MemberIndex)) -> &mut T {
        debug_assert!(column.number() < self.members);
        &mut self.values[row.number() * self.members + column.number()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_forgotten_has_no_values() {
        let mut pairs = Pairs::new(3);
        let all = [0, 1, 2].map(MemberIndex::at);
        for row in all {
            for column in all {
                pairs[(row, column)] = 10 * row.number() + column.number();
            }
        }
        let [first, second, third] = all;
        assert_eq!(pairs.row(second), [10, 11, 12]);
        pairs.forget(second);
        assert_eq!(pairs.row(second), [0, 0, 0]);
        assert_eq!(pairs.row(first), [0, 0, 2]);
        assert_eq!(pairs.row(third), [20, 0, 22]);
    }
}
