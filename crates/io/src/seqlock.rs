//! A seqlock over plain words: statistics that one thread writes and others read at any time, without holding it up.
//!
//! A packet loop writes its words a few times a second; a reader that finds it writing reads again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Words that a loop may publish: more than any has.
pub const WORDS_MAX: usize = 4_096;
/// Times that a reader begins again before it gives up: a loop writes for about a microsecond.
const READS_MAX: usize = 10_000;

/// A place that one thread writes and others read.
#[derive(Debug)]
pub struct Seqlock {
    /// Odd while it is being written.
    sequence: AtomicU64,
    used: AtomicUsize,
    words: Box<[AtomicU64]>,
}

impl Default for Seqlock {
    fn default() -> Self {
        Seqlock {
            sequence: AtomicU64::new(0),
            used: AtomicUsize::new(0),
            words: (0..WORDS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Seqlock {
    /// Replaces what is shown. One thread only. What does not fit is left out.
    pub fn publish(&self, words: &[u64]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let used = words.len().min(self.words.len());
        self.used.store(used, Ordering::Relaxed);
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// What is shown, whole; `None` before the first time, and if the writer stopped half-way.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u64>> {
        for _ in 0..READS_MAX {
            let before = self.sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            if before.is_multiple_of(2) {
                let used = self.used.load(Ordering::Relaxed).min(self.words.len());
                let words = self.words[..used].iter();
                let words = words.map(|word| word.load(Ordering::Relaxed)).collect();
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Some(words);
                }
            }
            core::hint::spin_loop();
        }
        None
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
}
