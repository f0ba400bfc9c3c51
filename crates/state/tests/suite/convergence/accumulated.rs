//! What was added to vectors, sketches and filters, and what they must say of it.

use std::collections::{BTreeMap, BTreeSet};

use asterism_state::{Late, State};

use crate::convergence::shared::{Chance, Shared};

/// Places of the vector.
pub const PLACES: u32 = 7;
/// Places for the heaviest keys: far fewer than there are keys.
pub const HEAVY: u32 = 8;
/// What the sketch promises: error, and doubt.
pub const SKETCH: (f64, f64) = (0.02, 0.01);
/// Keys that the filters are made for, and the share of others that they may find.
pub const FILTER: (u32, f64) = (64, 0.02);

/// The truth.
#[derive(Default)]
pub struct Accumulated {
    loads: BTreeMap<u32, i64>,
    volumes: BTreeMap<u32, u64>,
    present: BTreeMap<u32, i64>,
    seen: BTreeSet<u32>,
}

impl Accumulated {
    /// Adds something somewhere.
    pub fn write(&mut self, state: &mut Shared, chance: &mut Chance) {
        let key = chance.below(60) as u32;
        let place = chance.below(PLACES as usize + 1) as u32;
        // Falls as often as it rises, and below zero.
        let load = chance.below(9) as i64 - 4;
        let volume = chance.below(1_000) as u64;
        let net = self.present.entry(key).or_default();
        let removes = *net > 0 && chance.one_in(2);
        let mut act = state.act();
        act.loads.add(place, load);
        act.volumes.add(&key, volume);
        act.heavy.add(&key, volume);
        if removes {
            act.present.remove(&key);
        } else {
            act.present.add(&key);
        }
        act.seen.add(&key);
        *net += if removes { -1 } else { 1 };
        if place < PLACES {
            *self.loads.entry(place).or_default() += load;
        }
        *self.volumes.entry(key).or_default() += volume;
        self.seen.insert(key);
    }

    /// What every replica says once it knows all.
    pub fn check(&self, state: &Shared) -> Result<(), Late> {
        for place in 0..=PLACES {
            let load = self.loads.get(&place).copied().unwrap_or(0);
            assert_eq!(state.loads.get(place)?, load, "the sum in place {place}");
        }
        let least = (0..PLACES).min_by_key(|place| self.loads.get(place).copied().unwrap_or(0));
        assert_eq!(state.loads.lowest(0..=PLACES)?, least);
        let total: u64 = self.volumes.values().sum();
        assert!(
            (state.volumes.excess() - SKETCH.0 * total as f64).abs() < 1e-6 * total as f64 + 1e-9
        );
        assert_eq!(state.heavy.total(), total);
        for heavy in state.heavy.heaviest(usize::MAX) {
            let volume = self.volumes.get(&heavy.key).copied().unwrap_or(0);
            assert!(
                (heavy.at_least..=heavy.at_most).contains(&volume),
                "{heavy:?}"
            );
        }
        let (mut over, mut mistaken) = (0, 0);
        for key in 0..1_000 {
            let volume = self.volumes.get(&key).copied().unwrap_or(0);
            let said = state.volumes.get(&key)?;
            assert!(said >= volume, "{said} of {volume} for key {key}");
            over += u32::from((said - volume) as f64 > state.volumes.excess());
            let excess = total / u64::from(HEAVY);
            let heavy = state.heavy.get(&key)?;
            assert!(
                heavy.abs_diff(volume) <= excess,
                "{heavy} of {volume} for key {key}"
            );
            let seen = state.seen.contains(&key)?;
            assert!(seen || !self.seen.contains(&key), "key {key} was added");
            let present = self.present.get(&key).is_some_and(|&net| net > 0);
            assert!(
                state.present.contains(&key)? || !present,
                "key {key} was added and not removed"
            );
            mistaken += u32::from(seen && !self.seen.contains(&key));
        }
        // Of 1,000 keys ten are expected at most, and nineteen.
        assert!(
            over <= 40,
            "{over} sums are too large by more than they may be"
        );
        assert!(
            mistaken <= 60,
            "{mistaken} keys are found that are not there"
        );
        Ok(())
    }
}
