//! What a relay keeps of what it handed on, for members of its site that ask for it (rule 26): the datagrams as they came, sealed by
//! their origin, and which groups each brings. Bounded in bytes and in age; the oldest goes first. Nothing of it is ever opened
//! again or changed here.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use super::super::wire::Asked;
use super::asks::BROUGHT_MAX;
use crate::mutant::{self, Mutant};
use crate::{MemberId, Time};

/// Datagrams that are kept at most, however short: their names take 200 bytes each, beside the bytes that
/// [`SitesConfig::cache_bytes_max`](super::SitesConfig::cache_bytes_max) bounds.
pub const CACHE_DATAGRAMS_MAX: usize = 8_192;
/// Pieces that a run that was asked for may be in.
const PIECES_MAX: usize = 16;

/// A datagram that is kept.
#[derive(Clone, Copy, Debug)]
struct CachedDatagram {
    origin: MemberId,
    at: Time,
    start: usize,
    length: usize,
    runs: [(u64, u64); BROUGHT_MAX],
    count: usize,
}

impl CachedDatagram {
    fn runs(&self) -> &[(u64, u64)] {
        &self.runs[..self.count]
    }
}

/// The last datagrams that a relay handed on. Memory: its bytes, taken when the first is kept, and a name for each.
#[derive(Debug)]
pub(super) struct Cache {
    bytes_max: usize,
    age_max: Duration,
    /// A ring: datagrams lie in it one after the other, each in one piece.
    bytes: Vec<u8>,
    kept: VecDeque<CachedDatagram>,
    /// The number of the first of them.
    first: u64,
    kept_bytes: usize,
}

/// What is left of a run that was asked for.
struct Pieces {
    runs: [(u64, u64); PIECES_MAX],
    count: usize,
}

impl Pieces {
    fn of(asked: &Asked) -> Pieces {
        let mut runs = [(0, 0); PIECES_MAX];
        runs[0] = (asked.first, asked.last);
        Pieces { runs, count: 1 }
    }

    /// Takes the groups of a run out; whether any of them was left. What would be too many pieces stays one.
    fn take(&mut self, (first, last): (u64, u64)) -> bool {
        let (before, count) = (self.runs, self.count);
        let mut took = false;
        self.count = 0;
        for &(from, to) in &before[..count] {
            if last < from || to < first {
                self.push(from, to);
                continue;
            }
            took = true;
            let splits = from < first && last < to;
            if splits && count == PIECES_MAX {
                self.push(from, to);
                continue;
            }
            if from < first {
                self.push(from, first - 1);
            }
            if last < to {
                self.push(last + 1, to);
            }
        }
        took
    }

    fn push(&mut self, from: u64, to: u64) {
        if let Some(free) = self.runs.get_mut(self.count) {
            *free = (from, to);
            self.count += 1;
        }
    }
}

impl Cache {
    pub(super) fn new(bytes_max: usize, age_max: Duration) -> Cache {
        Cache {
            bytes_max,
            age_max,
            bytes: Vec::new(),
            kept: VecDeque::new(),
            first: 0,
            kept_bytes: 0,
        }
    }

    /// Keeps a datagram that brings these groups of a stream. Whether it was; and how many had to go for it.
    pub(super) fn keep(
        &mut self,
        now: Time,
        origin: MemberId,
        runs: &[(u64, u64)],
        datagram: &[u8],
    ) -> (bool, u64) {
        let length = datagram.len();
        if length > self.bytes_max || runs.is_empty() {
            return (false, 0);
        }
        self.expire(now);
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.bytes_max];
        }
        let mut evicted = 0;
        if self.kept.len() == CACHE_DATAGRAMS_MAX {
            self.forget_oldest();
            evicted += 1;
        }
        let start = loop {
            match self.place(length) {
                Some(start) => break start,
                None => self.forget_oldest(),
            }
            evicted += 1;
        };
        self.bytes[start..start + length].copy_from_slice(datagram);
        let mut kept = CachedDatagram {
            origin,
            at: now,
            start,
            length,
            runs: [(0, 0); BROUGHT_MAX],
            count: runs.len().min(BROUGHT_MAX),
        };
        kept.runs[..kept.count].copy_from_slice(&runs[..kept.count]);
        self.kept.push_back(kept);
        self.kept_bytes += length;
        (true, evicted)
    }

    /// Where so many bytes are free.
    fn place(&self, length: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.kept.front(), self.kept.back()) else {
            return Some(0);
        };
        let end = newest.start + newest.length;
        if newest.start >= oldest.start {
            if end + length <= self.bytes.len() {
                return Some(end);
            }
            return (length <= oldest.start).then_some(0);
        }
        (end + length <= oldest.start).then_some(end)
    }

    fn forget_oldest(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.kept_bytes -= kept.length;
            self.first += 1;
        }
    }

    /// Forgets what is too old.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(oldest) = self.kept.front()
            && now.since(oldest.at) > self.age_max
            && !mutant::active(Mutant::KeptForever)
        {
            self.forget_oldest();
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.first += self.kept.len() as u64;
        self.kept.clear();
        self.kept_bytes = 0;
    }

    /// Visits the numbers of the datagrams that together bring what was asked for, the latest of those that bring the same;
    /// then what is not here. `visit` tells whether it can be sent: if not, it counts as not here.
    pub(super) fn find(
        &mut self,
        now: Time,
        asked: &Asked,
        mut visit: impl FnMut(u64) -> bool,
        mut lacks: impl FnMut(Asked),
    ) {
        self.expire(now);
        let mut pieces = Pieces::of(asked);
        for (place, kept) in self.kept.iter().enumerate().rev() {
            if pieces.count == 0 {
                break;
            }
            let mut runs = kept.runs().iter();
            let meets = kept.origin == asked.origin
                && runs.any(|&(first, last)| asked.meets(kept.origin, first, last));
            if !meets {
                continue;
            }
            let mut rest = Pieces { ..pieces };
            let mut brings = false;
            for &run in kept.runs() {
                brings |= rest.take(run);
            }
            if brings && visit(self.first + place as u64) {
                pieces = rest;
            }
        }
        for &(first, last) in &pieces.runs[..pieces.count] {
            lacks(Asked {
                first,
                last,
                ..*asked
            });
        }
    }

    /// A datagram by its number, if it is still there.
    pub(super) fn get(&self, number: u64) -> Option<&[u8]> {
        let place = number.checked_sub(self.first)?;
        let kept = self.kept.get(usize::try_from(place).ok()?)?;
        self.bytes.get(kept.range())
    }

    /// How many datagrams are kept, and their bytes.
    pub(super) fn holds(&self) -> (usize, usize) {
        (self.kept.len(), self.kept_bytes)
    }
}

impl CachedDatagram {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);

    fn cache(bytes: usize) -> Cache {
        Cache::new(bytes, Duration::from_millis(10))
    }

    fn ask(
        cache: &mut Cache,
        now: Time,
        origin: MemberId,
        first: u64,
        last: u64,
    ) -> (Vec<u64>, Vec<(u64, u64)>) {
        let asked = Asked {
            origin,
            first,
            last,
        };
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        cache.find(
            now,
            &asked,
            |number| {
                found.push(number);
                true
            },
            |rest| lacking.push((rest.first, rest.last)),
        );
        (found, lacking)
    }

    #[test]
    fn what_is_asked_for_is_found_by_its_groups_and_the_rest_is_named() {
        let mut cache = cache(10_000);
        let now = Time::ZERO;
        cache.keep(now, A, &[(1, 4)], &[1; 100]);
        cache.keep(now, B, &[(1, 9)], &[2; 100]);
        cache.keep(now, A, &[(5, 6), (9, 9)], &[3; 100]);
        assert_eq!(ask(&mut cache, now, A, 2, 3), (vec![0], vec![]));
        assert_eq!(
            ask(&mut cache, now, A, 3, 10),
            (vec![2, 0], vec![(7, 8), (10, 10)])
        );
        assert_eq!(ask(&mut cache, now, B, 4, 5), (vec![1], vec![]));
        assert_eq!(
            ask(&mut cache, now, MemberId(7), 4, 5),
            (vec![], vec![(4, 5)])
        );
        assert_eq!(cache.get(1), Some(&[2; 100][..]));
        assert_eq!(cache.get(3), None);
        // Of two that bring the same, the later.
        cache.keep(now, A, &[(2, 3)], &[4; 100]);
        assert_eq!(ask(&mut cache, now, A, 2, 3), (vec![3], vec![]));
    }

    #[test]
    fn what_cannot_be_sent_counts_as_lacking() {
        let mut cache = cache(10_000);
        cache.keep(Time::ZERO, A, &[(1, 4)], &[1; 100]);
        let asked = Asked {
            origin: A,
            first: 2,
            last: 3,
        };
        let mut lacking = 0;
        cache.find(Time::ZERO, &asked, |_| false, |rest| lacking += rest.last);
        assert_eq!(lacking, 3);
    }

    #[test]
    fn bytes_count_and_age_are_bounded_and_the_oldest_goes_first() {
        let mut cache = cache(1_000);
        let at = |micros: u64| Time::from_micros(micros);
        let mut evicted = 0;
        // Lengths that do not divide the ring: its end is passed by again and again.
        for number in 1..=500u64 {
            let length = 60 + (number as usize * 37) % 190;
            let (kept, gone) = cache.keep(
                at(number),
                A,
                &[(number, number)],
                &vec![number as u8; length],
            );
            assert!(kept);
            evicted += gone;
            let (count, bytes) = cache.holds();
            assert!(
                bytes <= 1_000 && count as u64 + evicted == number,
                "{number}"
            );
            for place in 0..count as u64 {
                let sequence = number - place;
                let bytes = cache.get(sequence - 1).expect("kept");
                assert!(
                    bytes.iter().all(|&byte| byte == sequence as u8),
                    "{sequence}"
                );
            }
        }
        assert!(cache.holds().1 > 500, "it is used");
        assert_eq!(
            cache.keep(at(500), A, &[(501, 501)], &[0; 1_001]),
            (false, 0),
            "too long"
        );
        assert_eq!(
            ask(&mut cache, at(10_500), A, 500, 500),
            (vec![499], vec![])
        );
        assert_eq!(
            ask(&mut cache, at(10_501), A, 500, 500),
            (vec![], vec![(500, 500)])
        );
        assert_eq!(cache.holds(), (0, 0));
        let mut short = Cache::new(1 << 20, Duration::from_secs(1));
        for number in 1..=CACHE_DATAGRAMS_MAX as u64 + 5 {
            short.keep(Time::ZERO, A, &[(number, number)], &[1; 48]);
        }
        assert_eq!(short.holds().0, CACHE_DATAGRAMS_MAX);
        short.clear();
        assert_eq!(
            (short.holds(), short.get(CACHE_DATAGRAMS_MAX as u64)),
            ((0, 0), None)
        );
        let mut none = Cache::new(0, Duration::from_secs(1));
        assert_eq!(none.keep(Time::ZERO, A, &[(1, 1)], &[1; 48]), (false, 0));
    }

    #[test]
    fn a_run_in_many_pieces_is_never_forgotten() {
        let asked = Asked {
            origin: A,
            first: 1,
            last: 100,
        };
        let mut pieces = Pieces::of(&asked);
        for even in (2..100).step_by(2) {
            assert!(pieces.take((even, even)));
        }
        assert_eq!(pieces.count, PIECES_MAX);
        let left = |pieces: &Pieces, of| {
            pieces.runs[..pieces.count]
                .iter()
                .any(|run| run.0 <= of && of <= run.1)
        };
        assert!((1..100).step_by(2).all(|odd| left(&pieces, odd)));
        assert!(pieces.take((1, 100)) && pieces.count == 0);
    }
}
