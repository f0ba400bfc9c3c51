//! A seqlock over plain words: statistics that one thread writes and others read at any time, without holding it up.
//!
//! There are two halves. The writer fills the one that is not shown and then shows it, so that a reader finds whole words however
//! long the writer pauses: on a machine that is busy, half-way. It begins again only if the writer began to fill the half that it
//! reads, which is after the other one was shown.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Words that a loop may publish: more than any has.
pub const WORDS_MAX: usize = 4_096;

/// A place that one thread writes and others read.
#[derive(Debug, Default)]
pub struct Seqlock {
    /// Twice the times that words were shown, and one more while a half is being filled.
    sequence: AtomicU64,
    halves: [Half; 2],
}

#[derive(Debug)]
struct Half {
    used: AtomicUsize,
    words: Box<[AtomicU64]>,
}

impl Default for Half {
    fn default() -> Self {
        Half {
            used: AtomicUsize::new(0),
            words: (0..WORDS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Seqlock {
    /// Replaces what is shown. One thread only. What does not fit is left out.
    pub fn publish(&self, words: &[u64]) {
        let time = self.begin();
        self.half(time).write(words);
        self.sequence.store(2 * time, Ordering::Release);
    }

    /// Begins to fill a half: which time this is.
    fn begin(&self) -> u64 {
        let sequence = self.sequence.load(Ordering::Relaxed);
        // A reader that sees this number reads the half that was shown before: that must be whole for it too.
        self.sequence.store(sequence + 1, Ordering::Release);
        fence(Ordering::Release);
        sequence / 2 + 1
    }

    fn half(&self, time: u64) -> &Half {
        &self.halves[usize::from(!time.is_multiple_of(2))]
    }

    /// What is shown, whole; `None` before the first time.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u64>> {
        loop {
            let shown = self.sequence.load(Ordering::Acquire) / 2;
            if shown == 0 {
                return None;
            }
            let words = self.half(shown).read();
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) <= 2 * (shown + 1) {
                return Some(words);
            }
            core::hint::spin_loop();
        }
    }
}

impl Half {
    fn write(&self, words: &[u64]) {
        let used = words.len().min(self.words.len());
        self.used.store(used, Ordering::Relaxed);
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Vec<u64> {
        let used = self.used.load(Ordering::Relaxed).min(self.words.len());
        let words = self.words[..used].iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn readers_see_whole_states_only() {
        let statistics = Arc::new(Seqlock::default());
        assert!(statistics.read().is_none());
        let writer = statistics.clone();
        let thread = std::thread::spawn(move || {
            for round in 1..20_000u64 {
                writer.publish(&[round; 300]);
            }
        });
        let mut last = 0;
        while last < 19_999 {
            if let Some(words) = statistics.read() {
                assert_eq!(words.len(), 300);
                assert!(words.iter().all(|word| *word == words[0]) && words[0] >= last);
                last = words[0];
            }
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_writer_that_pauses_half_way_hides_nothing() {
        let statistics = Seqlock::default();
        let _ = statistics.begin();
        assert_eq!(statistics.read(), None);

        let statistics = Seqlock::default();
        for round in 1..4 {
            statistics.publish(&[round; 300]);
            assert_eq!(statistics.read(), Some(vec![round; 300]));
        }
        let time = statistics.begin();
        statistics.half(time).write(&[9; 200]);
        assert_eq!(statistics.read(), Some(vec![3; 300]));
    }
}
