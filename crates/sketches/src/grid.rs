//! Where a sketch keeps what it knows of a key.

use asterism_memory::hash;

/// Rows of a sketch at most: more would not make it surer, only slower.
const ROWS_MAX: u32 = 16;
/// Tells the hashes of rows apart from each other and from those of tables.
const ROW: u64 = 0x5EC7_0000_0000_0001;

/// Rows of equal width; a key has one place in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    rows: u32,
    width: u32,
}

impl Grid {
    /// Of sums that exceed the true one by more than `error` × all that was added with a probability of at most `doubt`
    /// (Cormode and Muthukrishnan 2005): e/error places in each of ln(1/doubt) rows.
    pub fn for_sums(error: f64, doubt: f64) -> Self {
        assert!(
            error > 0.0 && error < 1.0 && doubt > 0.0 && doubt < 1.0,
            "a sketch's error and doubt lie between 0 and 1"
        );
        Self::new(
            (1.0 / doubt).ln().ceil(),
            (core::f64::consts::E / error).ceil(),
        )
    }

    /// Of membership of `keys` keys, where others are found with a probability of `mistaken`: log₂(1/mistaken) rows, each as wide
    /// as half of its places stay free.
    pub fn for_keys(keys: u32, mistaken: f64) -> Self {
        assert!(
            mistaken > 0.0 && mistaken < 1.0,
            "a filter's share of mistakes lies between 0 and 1"
        );
        let rows = (1.0 / mistaken)
            .log2()
            .round()
            .clamp(1.0, f64::from(ROWS_MAX));
        // A row is full to a share of 1 - exp(-keys/width), and a key is mistaken if its places in all rows are.
        let full = mistaken.powf(1.0 / rows);
        Self::new(rows, (-f64::from(keys.max(1)) / (1.0 - full).ln()).ceil())
    }

    fn new(rows: f64, width: f64) -> Self {
        let rows = (rows as u32).clamp(1, ROWS_MAX);
        let width = width.clamp(1.0, f64::from(u32::MAX / ROWS_MAX)) as u32;
        Self { rows, width }
    }

    /// Places in all rows.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always a place")]
    pub fn len(self) -> u32 {
        self.rows * self.width
    }

    /// Places in a row.
    #[inline]
    #[must_use]
    pub fn width(self) -> u32 {
        self.width
    }

    /// The places of a key, by its hash.
    #[inline(always)]
    pub fn places(self, hash: u64) -> impl Iterator<Item = u32> {
        (0..self.rows).map(move |row| {
            let in_row = (hash::word(hash, ROW + u64::from(row)) >> 32) * u64::from(self.width);
            row * self.width + (in_row >> 32) as u32
        })
    }

    /// Differs, but for one in 65,536, between sketches in which a key has other places: other sizes, another seed.
    pub fn mark(self, seed: u64) -> u16 {
        hash::words(self.rows.into(), self.width.into(), seed) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_bounds() {
        let sums = Grid::for_sums(0.001, 0.01);
        assert_eq!((sums.rows, sums.width), (5, 2_719));
        let keys = Grid::for_keys(1_000, 0.01);
        // 1 - (1 - exp(-1000/width))^7 = 0.99: 9.6 places a key, as Bloom has it.
        assert_eq!(keys.rows, 7);
        assert!((1_350..1_410).contains(&keys.width), "{}", keys.width);
        assert_eq!(Grid::for_keys(0, 0.999).len(), 1);
    }

    #[test]
    fn places_are_spread_over_each_row_and_differ_between_them() {
        let grid = Grid {
            rows: 4,
            width: 100,
        };
        let mut held = [0u32; 400];
        let mut same = 0;
        for key in 0..100_000u64 {
            let places: Vec<u32> = grid.places(hash::word(key, 7)).collect();
            for (row, &place) in places.iter().enumerate() {
                assert_eq!(place / 100, row as u32);
                held[place as usize] += 1;
            }
            same += u32::from(places[0] % 100 == places[1] % 100);
        }
        assert!(held.iter().all(|held| (850..1_150).contains(held)));
        assert!((800..1_200).contains(&same), "{same} of 100,000");
    }

    #[test]
    fn marks_tell_sizes_and_seeds_apart() {
        let grid = Grid::for_sums(0.01, 0.01);
        assert_ne!(grid.mark(1), grid.mark(2));
        assert_ne!(grid.mark(1), Grid::for_sums(0.02, 0.01).mark(1));
    }
}
