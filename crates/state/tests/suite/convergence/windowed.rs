//! What was added to windowed objects in which bucket of time, and what they must say of it.

use std::collections::BTreeMap;

use asterism_state::{Context, Late, State, Window};

use crate::convergence::accumulated::SKETCH;
use crate::convergence::shared::{Chance, Shared};

/// Eight to twelve seconds.
pub const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 4,
};

/// The truth, by key and bucket.
#[derive(Default)]
pub struct Windowed {
    counted: BTreeMap<(u32, u32), u64>,
    volumes: BTreeMap<(u32, u32), u64>,
}

fn bucket(context: &Context) -> u32 {
    context.tick() / WINDOW.bucket_seconds
}

impl Windowed {
    /// Adds something for a key. Few keys at a time and others later, so that they come and go.
    pub fn write(
        &mut self,
        context: &Context,
        state: &mut Shared,
        chance: &mut Chance,
    ) -> Result<(), Late> {
        let key = context.tick() / 16 * 8 + chance.below(9) as u32;
        let amount = chance.below(100) as u64;
        let place = (key, bucket(context));
        if let Some(tally) = state.recent.find(&key)? {
            let mut act = state.act();
            act.recent.add(&tally, amount);
            *self.counted.entry(place).or_default() += amount;
        }
        let mut act = state.act();
        act.recent_volumes.add(&key, amount);
        *self.volumes.entry(place).or_default() += amount;
        Ok(())
    }

    /// What every replica says once it knows all: the sum over its own clock's window.
    pub fn check(&self, context: &Context, state: &Shared) -> Result<(), Late> {
        context.arrive(0);
        let now = bucket(context);
        let first = (now + 1).saturating_sub(WINDOW.buckets);
        let shown = |truth: &BTreeMap<(u32, u32), u64>| {
            let mut sums = BTreeMap::<u32, u64>::new();
            for (place, amount) in truth.iter().filter(|(place, _)| place.1 >= first) {
                *sums.entry(place.0).or_default() += amount;
            }
            sums
        };
        let (counted, volumes) = (shown(&self.counted), shown(&self.volumes));
        let mut listed = BTreeMap::new();
        state
            .recent
            .for_each(|&key, sum| assert!(listed.insert(key, sum).is_none()));
        let total: u64 = volumes.values().sum();
        let excess = state.recent_volumes.excess();
        assert!((excess - SKETCH.0 * total as f64).abs() < 1e-6 * total as f64 + 1e-9);
        let mut over = 0;
        for key in 0..200 {
            let counted = counted.get(&key).copied().unwrap_or(0);
            assert_eq!(state.recent.get(&key)?, counted, "key {key} at {now}");
            assert_eq!(listed.get(&key).copied().unwrap_or(0), counted);
            let volume = volumes.get(&key).copied().unwrap_or(0);
            let said = state.recent_volumes.get(&key)?;
            assert!(said >= volume, "{said} of {volume} for key {key}");
            over += u32::from((said - volume) as f64 > excess);
        }
        assert!(over <= 10, "{over} sums are too large");
        for tally in [state.recent.tally(), state.recent_volumes.tally()] {
            assert_eq!((tally.ahead, tally.set_back), (0, 0), "clocks are near");
        }
        Ok(())
    }
}
