//! The lookup table of Maglev (Eisenbud et al., NSDI 2016, section 3.4), with weights.
//!
//! Each backend orders all places by preference: a start and a step, drawn from its name. In turn, each backend takes its
//! preferred free place, until no place is free. With a weight, a backend takes its turn in that share of the rounds. The
//! same backends give the same table on every host, in whatever order they are listed.

use asterism_function::objects::hash;

/// Places of a table: a prime, as the steps need, and the smaller of the two sizes that the paper measures. With up to
/// 655 backends it is more than a hundred places for each, for which the paper finds shares within one percent.
pub const PLACES: u32 = 65_537;

/// Nobody: a place of a table without backends.
const NOBODY: u16 = u16::MAX;

/// Which backend has which place: two bytes for each of [`PLACES`].
#[derive(Clone, PartialEq, Eq)]
pub struct Maglev {
    places: Box<[u16]>,
}

impl core::fmt::Debug for Maglev {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Maglev")
    }
}

/// A backend while the table is made.
struct Turn {
    number: u16,
    next: u32,
    step: u32,
    weight: u64,
    credit: u64,
}

impl Maglev {
    /// The table of backends, each by a name of 64 bits that is its own and a weight; those of weight zero get no place.
    /// Takes time in proportion to the places and the greatest weight over the mean one; for the control plane.
    ///
    /// # Panics
    /// With 65,535 backends or more.
    #[must_use]
    pub fn new(backends: &[(u64, u32)]) -> Self {
        assert!(backends.len() < usize::from(NOBODY), "too many backends");
        let mut places = vec![NOBODY; PLACES as usize].into_boxed_slice();
        let mut turns: Vec<(u64, Turn)> = backends
            .iter()
            .enumerate()
            .filter(|(_, (_, weight))| *weight > 0)
            .map(|(number, &(name, weight))| {
                let turn = Turn {
                    number: number as u16,
                    next: (hash::word(name, OFFSET_SEED) % u64::from(PLACES)) as u32,
                    step: (hash::word(name, STEP_SEED) % u64::from(PLACES - 1)) as u32 + 1,
                    weight: weight.into(),
                    credit: 0,
                };
                (name, turn)
            })
            .collect();
        turns.sort_unstable_by_key(|(name, _)| *name);
        let greatest = turns.iter().map(|(_, turn)| turn.weight).max();
        let mut free = PLACES;
        'rounds: while let Some(greatest) = greatest {
            for (_, turn) in &mut turns {
                turn.credit += turn.weight;
                if turn.credit < greatest {
                    continue;
                }
                turn.credit -= greatest;
                while places[turn.next as usize] != NOBODY {
                    turn.advance();
                }
                places[turn.next as usize] = turn.number;
                free -= 1;
                if free == 0 {
                    break 'rounds;
                }
            }
        }
        Self { places }
    }

    /// Who has a place, by its place in the list that the table was made of; `None` where nobody has.
    #[inline]
    #[must_use]
    pub fn at(&self, place: u32) -> Option<usize> {
        let number = *self.places.get(place as usize)?;
        (number != NOBODY).then_some(usize::from(number))
    }
}

impl Turn {
    fn advance(&mut self) {
        self.next = (self.next + self.step) % PLACES;
    }
}

/// What the two hashes of a name start from: any two numbers that differ.
const OFFSET_SEED: u64 = 0x6f66_6673_6574;
const STEP_SEED: u64 = 0x7374_6570;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(count: u64) -> Vec<(u64, u32)> {
        (0..count).map(|number| (number * 7 + 3, 1)).collect()
    }

    fn shares(table: &Maglev, backends: usize) -> Vec<u32> {
        let mut shares = vec![0; backends];
        for place in 0..PLACES {
            shares[table.at(place).expect("every place is taken")] += 1;
        }
        shares
    }

    /// Turns make the shares of equal backends differ by one place at most, whatever the names.
    #[test]
    fn equal_backends_have_equal_shares() {
        for count in [1, 2, 3, 10, 100, 655] {
            let shares = shares(&Maglev::new(&named(count)), count as usize);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count} backends: {least} to {most}");
            // The paper's bound for so many backends: within one percent.
            assert!(f64::from(*most) <= 1.01 * f64::from(PLACES) / count as f64 + 1.0);
        }
    }

    #[test]
    fn shares_are_as_the_weights() {
        let backends = [(11, 1), (12, 2), (13, 5), (14, 0), (15, 100)];
        let shares = shares(&Maglev::new(&backends), backends.len());
        for (share, (_, weight)) in shares.iter().zip(backends) {
            let due = f64::from(PLACES) * f64::from(weight) / 108.0;
            assert!((f64::from(*share) - due).abs() <= 2.0, "{shares:?}");
        }
        assert_eq!(shares[3], 0);
    }

    /// When one of ten leaves, its places are dealt again, and few others change hands (the paper's figure 12).
    #[test]
    fn few_places_change_when_one_leaves() {
        let all = named(10);
        let before = Maglev::new(&all);
        for gone in 0..10 {
            let mut weights = all.clone();
            weights[gone].1 = 0;
            let after = Maglev::new(&weights);
            let moved = (0..PLACES)
                .filter(|place| before.at(*place) != Some(gone))
                .filter(|place| before.at(*place) != after.at(*place))
                .count();
            assert!(moved < PLACES as usize / 20, "{moved} moved without need");
            assert!((0..PLACES).all(|place| after.at(place) != Some(gone)));
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let forward = named(20);
        let backward: Vec<_> = forward.iter().rev().copied().collect();
        let (one, other) = (Maglev::new(&forward), Maglev::new(&backward));
        for place in 0..PLACES {
            assert_eq!(one.at(place).map(|number| 19 - number), other.at(place));
        }
    }

    #[test]
    fn nobody_is_nobody() {
        for backends in [&[][..], &[(1, 0)]] {
            let table = Maglev::new(backends);
            assert!((0..PLACES).all(|place| table.at(place).is_none()));
        }
        assert_eq!(Maglev::new(&named(3)).at(PLACES), None);
    }
}
