//! A value for each ordered pair of members.

use core::ops::{Index, IndexMut};

/// A value for each pair of a row's member and a column's, both by index.
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
    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.members..(row + 1) * self.members]
    }

    /// The values of a member's column, by row.
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = T> + '_ {
        debug_assert!(column < self.members);
        self.values
            .iter()
            .skip(column)
            .step_by(self.members)
            .copied()
    }

    /// All values of a member, in its row and its column, are the default again.
    pub(super) fn forget(&mut self, member: usize) {
        for other in 0..self.members {
            self[(member, other)] = T::default();
            self[(other, member)] = T::default();
        }
    }
}

impl<T> Index<(usize, usize)> for Pairs<T> {
    type Output = T;

    fn index(&self, (row, column): (usize, usize)) -> &T {
        debug_assert!(column < self.members);
        &self.values[row * self.members + column]
    }
}

impl<T> IndexMut<(usize, usize)> for Pairs<T> {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut T {
        debug_assert!(column < self.members);
        &mut self.values[row * self.members + column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_forgotten_has_no_values() {
        let mut pairs = Pairs::new(3);
        for row in 0..3 {
            for column in 0..3 {
                pairs[(row, column)] = 10 * row + column;
            }
        }
        assert_eq!(pairs.row(1), [10, 11, 12]);
        assert_eq!(pairs.column(2).collect::<Vec<_>>(), [2, 12, 22]);
        pairs.forget(1);
        assert_eq!(pairs.row(1), [0, 0, 0]);
        assert_eq!(pairs.column(1).collect::<Vec<_>>(), [0, 0, 0]);
        assert_eq!((pairs[(0, 2)], pairs[(2, 0)]), (2, 20));
    }
}
