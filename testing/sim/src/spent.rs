//! What token buckets promise, judged by each spending: its amount, instance and time.
//!
//! An instance knows at least what it spent itself, and what all had spent when all was at rest last. What is missing in a bucket
//! by that is the least that is missing in its own view of it, whatever was lost or late since: if it spends more than such a bucket
//! has, the cluster passes more than its [bound](asterism_function::Spending::Approximate) of the time since then.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_placement::Time;

use crate::exercise::LIMIT;

/// Parts of a token: what a rate of 1 a second refills in a microsecond.
const PARTS: u64 = 1_000_000;
const BURST: u64 = LIMIT.burst_tokens * PARTS;
/// What is spent from a bucket that is more than half full waits so long before others are reported.
const PATIENCE: Duration = Duration::from_millis(50);

/// What is missing in a bucket, at least.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    parts: u64,
    at: Time,
}

impl Missing {
    /// At a later time, when a part of it was refilled.
    fn by(self, now: Time) -> u64 {
        let us = now.since(self.at).as_micros() as u64;
        self.parts
            .saturating_sub(us.saturating_mul(LIMIT.tokens_per_second))
    }

    fn spend(&mut self, now: Time, tokens: u64) {
        (self.parts, self.at) = (self.by(now) + tokens * PARTS, now);
    }
}

/// What was spent, by key.
#[derive(Debug, Default)]
pub struct Spent {
    all: BTreeMap<u16, Vec<(Time, u64)>>,
    /// In the view of each instance, by (instance, key).
    views: BTreeMap<(usize, u16), Missing>,
    /// What clocks that step forward may refill at once.
    stepped: u64,
    /// More is written_off.
    owed_most: u64,
    reported_within: Duration,
}

impl Spent {
    /// Of so many instances whose clocks step forward by so much in all, which flush and hold back changes so long at most.
    pub fn new(instances: u64, steps: Duration, (flush, held): (Duration, Duration)) -> Self {
        Self {
            stepped: steps.as_micros() as u64 * LIMIT.tokens_per_second,
            owed_most: instances * (BURST + LIMIT.tokens_per_second * PARTS),
            reported_within: PATIENCE + (flush + held) * 2 + Duration::from_millis(10),
            ..Self::default()
        }
    }

    /// An instance spent so many tokens, now.
    ///
    /// # Errors
    /// Its bucket had fewer, by what it knew.
    pub fn spend(
        &mut self,
        instance: usize,
        now: Time,
        (key, tokens): (u16, u64),
    ) -> Result<(), String> {
        self.all.entry(key).or_default().push((now, tokens));
        let view = self.views.entry((instance, key)).or_default();
        view.spend(now, tokens);
        if view.parts > BURST + self.stepped {
            let (over, rate) = (view.parts - BURST, LIMIT.tokens_per_second);
            return Err(format!(
                "{over} millionths of a token too many of {key}, which has {} and {rate} a second",
                LIMIT.burst_tokens
            ));
        }
        Ok(())
    }

    /// An instance refused so many tokens.
    ///
    /// # Errors
    /// All that was ever spent leaves as many in the bucket.
    pub fn refuse(&self, key: u16, tokens: u64) -> Result<(), String> {
        let spent = self.all.get(&key).into_iter().flatten();
        let spent: u64 = spent.map(|&(_, tokens)| tokens).sum();
        if spent + tokens <= LIMIT.burst_tokens {
            return Err(format!(
                "{tokens} of {key} were refused, of which {spent} were ever spent"
            ));
        }
        Ok(())
    }

    /// Whole tokens of a bucket at most, once all is at rest: what anybody spent is missing everywhere, but for what
    /// waits yet to be reported.
    pub fn left(&self, key: u16, now: Time) -> u64 {
        BURST.saturating_sub(self.missing(key, now)) / PARTS
    }

    /// Keys of which something was spent.
    pub fn keys(&self) -> impl Iterator<Item = u16> {
        self.all.keys().copied()
    }

    /// All is at rest: from here on these instances know.
    pub fn known(&mut self, now: Time, instances: impl Iterator<Item = usize> + Clone) {
        let keys: Vec<u16> = self.keys().collect();
        for key in keys {
            let parts = self.missing(key, now);
            for instance in instances.clone() {
                let view = self.views.entry((instance, key)).or_default();
                (view.parts, view.at) = (view.by(now).max(parts), now);
            }
        }
    }

    /// An instance begins again, with full buckets.
    pub fn begins(&mut self, instance: usize) {
        self.views.retain(|&(of, _), _| of != instance);
    }

    fn missing(&self, key: u16, now: Time) -> u64 {
        let mut missing = Missing::default();
        let reported = now - self.reported_within;
        let spent = self.all.get(&key).into_iter().flatten();
        for &(at, tokens) in spent.take_while(|&&(at, _)| at <= reported) {
            missing.spend(at, tokens);
            missing.parts = missing.parts.min(self.owed_most);
        }
        missing.by(now).saturating_sub(self.stepped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn spent() -> Spent {
        Spent::new(2, Duration::ZERO, (Duration::ZERO, Duration::ZERO))
    }

    #[test]
    fn each_spends_a_burst_and_what_is_refilled_until_it_knows_of_others() {
        let mut spent = spent();
        let start = Time::ZERO + SECOND;
        for (at, tokens) in [(start, 30), (start + SECOND, 3)] {
            for instance in 0..2 {
                assert!(spent.spend(instance, at, (1, tokens)).is_ok());
            }
        }
        let rest = start + SECOND * 2;
        assert_eq!((spent.left(1, rest), spent.left(2, rest)), (0, 30));
        spent.known(rest, 0..2);
        // 60 are missing, and 3 are refilled a second.
        assert!(spent.spend(0, rest + SECOND * 10, (1, 1)).is_err());
        assert!(spent.spend(1, rest + SECOND * 11, (1, 3)).is_ok());
        assert!(spent.spend(1, rest + SECOND * 11, (1, 1)).is_err());
        spent.begins(1);
        assert!(spent.spend(1, rest + SECOND * 11, (1, 30)).is_ok());
    }

    #[test]
    fn what_was_spent_just_now_may_not_be_reported_yet() {
        let mut spent = spent();
        let start = Time::ZERO + SECOND;
        assert!(spent.spend(0, start, (1, 30)).is_ok());
        assert_eq!(spent.left(1, start + Duration::from_millis(50)), 30);
        assert_eq!(spent.left(1, start + Duration::from_millis(100)), 0);
    }

    #[test]
    fn a_refusal_needs_that_something_was_spent() {
        let mut spent = spent();
        assert!(spent.refuse(1, 7).is_err());
        assert!(spent.spend(0, Time::ZERO, (1, 24)).is_ok());
        assert!(spent.refuse(1, 7).is_ok() && spent.refuse(1, 6).is_err());
    }
}
