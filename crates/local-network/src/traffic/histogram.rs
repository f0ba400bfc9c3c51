//! Round trips in classes whose width is a sixteenth of their value, so that percentiles are right to 6 %.

/// Classes below which the width is a microsecond.
const LINEAR: u64 = 32;
/// Classes of each doubling beyond.
const PER_DOUBLING: u64 = 16;
/// Doublings with classes of their own: up to 2^25 µs, half a minute.
const DOUBLINGS: u64 = 20;
/// Classes.
pub(super) const CLASSES: usize = (LINEAR + PER_DOUBLING * DOUBLINGS) as usize;

/// Counts of round trips by their length in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    counts: Box<[u64]>,
}

impl Default for RoundTrips {
    fn default() -> Self {
        RoundTrips {
            counts: vec![0; CLASSES].into(),
        }
    }
}

impl RoundTrips {
    /// Counts one.
    #[inline]
    pub(super) fn count(&mut self, us: u64) {
        self.counts[class_of(us)] += 1;
    }

    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// How many were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The round trip in microseconds which so many of a thousand do not exceed, to 6 % above; `None` if none was counted.
    #[must_use]
    pub fn permille(&self, permille: u64) -> Option<u64> {
        let total = self.total();
        let wanted = (total * permille.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        class.map(|class| longest_of(class as u64))
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &RoundTrips) -> RoundTrips {
        let counts = self.counts.iter().zip(&earlier.counts);
        RoundTrips {
            counts: counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
        }
    }

    pub(super) fn write(&self, words: &mut Vec<u64>) {
        words.extend(&self.counts);
    }

    pub(super) fn read(words: &[u64]) -> Option<RoundTrips> {
        (words.len() == CLASSES).then(|| RoundTrips {
            counts: words.into(),
        })
    }
}

#[inline]
fn class_of(us: u64) -> usize {
    if us < LINEAR {
        return us as usize;
    }
    // 32 to 63 is the first doubling, in classes of 2 µs.
    let doubling = u64::from(us.ilog2()) - 5;
    let within = (us >> (doubling + 1)) & (PER_DOUBLING - 1);
    let class = LINEAR + doubling * PER_DOUBLING + within;
    (class as usize).min(CLASSES - 1)
}

fn longest_of(class: u64) -> u64 {
    if class < LINEAR {
        return class;
    }
    let (doubling, within) = (
        (class - LINEAR) / PER_DOUBLING,
        (class - LINEAR) % PER_DOUBLING,
    );
    ((PER_DOUBLING + within + 1) << (doubling + 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_its_bounds_say() {
        for us in 0..200_000 {
            let class = class_of(us);
            let longest = longest_of(class as u64);
            assert!(
                us <= longest && longest * 16 <= us * 17 + 16,
                "{us}: {longest}"
            );
            assert!(class == 0 || longest_of(class as u64 - 1) < us, "{us}");
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn percentiles_are_of_all_that_was_counted() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.permille(500), None);
        (1..=1_000).for_each(|us| trips.count(us));
        let median = trips.permille(500).unwrap();
        assert!((500..=531).contains(&median), "{median}");
        let most = trips.permille(1_000).unwrap();
        assert!((1_000..=1_063).contains(&most), "{most}");
        let before = trips.clone();
        (0..100).for_each(|_| trips.count(7));
        let since = trips.since(&before);
        assert_eq!((since.total(), since.permille(990)), (100, Some(7)));
        let mut words = Vec::new();
        trips.write(&mut words);
        assert_eq!(RoundTrips::read(&words), Some(trips.clone()));
        assert_eq!(RoundTrips::read(&words[1..]), None);
        trips.clear();
        assert_eq!(trips.total(), 0);
    }
}
