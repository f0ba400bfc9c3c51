//! The replay window: which counters of one session were already opened (in the manner of RFC 4303 section 3.4.3 and
//! RFC 6479, with the exact window kept by a ring twice its size).

/// How far below the greatest opened counter a counter may lie and still be accepted, in counters. At 100,000 datagrams
/// per second that is 160 ms of reordering.
pub const WINDOW_COUNTERS: u64 = 16_384;

const RING_WORDS: usize = 2 * WINDOW_COUNTERS as usize / 64;

/// Which counters of one session were opened: 4 KiB per session, constant time but for a jump ahead, which clears at
/// most 4 KiB.
#[derive(Clone)]
pub struct ReplayWindow {
    /// Nothing at or below is accepted, ever.
    floor: u64,
    /// The greatest counter opened, or the floor.
    greatest: u64,
    ring: Box<[u64; RING_WORDS]>,
}

/// What a window says about a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Never opened: accept it.
    New,
    /// Opened before.
    Before,
    /// Below the window, or at or below its floor: whether it was opened is not known.
    TooOld,
}

impl ReplayWindow {
    /// A window that accepts counters above `floor`.
    #[must_use]
    pub fn above(floor: u64) -> ReplayWindow {
        ReplayWindow {
            floor,
            greatest: floor,
            ring: Box::new([0; RING_WORDS]),
        }
    }

    /// The greatest counter opened so far, or the floor.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// Asks without changing anything: first, before any cryptography.
    pub(super) fn query(&self, counter: u64) -> Seen {
        if counter <= self.floor || self.greatest.saturating_sub(counter) >= WINDOW_COUNTERS {
            return Seen::TooOld;
        }
        let (word, bit) = place(counter);
        if counter <= self.greatest && self.ring[word] & bit != 0 {
            return Seen::Before;
        }
        Seen::New
    }

    /// Marks a counter for which [`Self::look`] said [`Seen::New`] and whose datagram was authentic.
    pub(super) fn mark(&mut self, counter: u64) {
        debug_assert_eq!(self.query(counter), Seen::New, "it was asked before");
        if counter > self.greatest {
            // The words after the one that holds the greatest, up to the counter's, hold counters of a round ago.
            let fresh = (counter / 64 - self.greatest / 64).min(RING_WORDS as u64);
            for step in 0..fresh {
                let (word, _) = place((counter / 64 - step) * 64);
                self.ring[word] = 0;
            }
            self.greatest = counter;
        }
        let (word, bit) = place(counter);
        self.ring[word] |= bit;
        debug_assert!(self.floor <= self.greatest && counter <= self.greatest);
        debug_assert_eq!(self.query(counter), Seen::Before);
    }
}

fn place(counter: u64) -> (usize, u64) {
    (
        ((counter / 64) % RING_WORDS as u64) as usize,
        1 << (counter % 64),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn edges() {
        let mut window = ReplayWindow::above(10);
        assert_eq!(window.query(0), Seen::TooOld);
        assert_eq!(window.query(10), Seen::TooOld);
        assert_eq!(window.query(11), Seen::New);
        let top = 100_000;
        window.mark(top);
        assert_eq!(window.query(top), Seen::Before);
        assert_eq!(window.query(top - WINDOW_COUNTERS), Seen::TooOld);
        assert_eq!(window.query(top - WINDOW_COUNTERS + 1), Seen::New);
        window.mark(top - WINDOW_COUNTERS + 1);
        assert_eq!(window.query(top - WINDOW_COUNTERS + 1), Seen::Before);
        window.mark(u64::MAX);
        assert_eq!(window.query(u64::MAX), Seen::Before);
        assert_eq!(window.query(u64::MAX - 1), Seen::New);
        assert_eq!(window.query(top), Seen::TooOld);
    }

    /// Against a set that forgets nothing, over jumps of every size.
    #[test]
    fn agrees_with_a_set() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut window = ReplayWindow::above(5);
        let mut opened = BTreeSet::new();
        let mut accepted_late = 0;
        for _ in 0..60_000 {
            let greatest = window.greatest();
            let counter = match draw(20) {
                0 => greatest + draw(3 * WINDOW_COUNTERS),
                1..=8 => greatest + draw(4),
                _ => greatest.saturating_sub(draw(WINDOW_COUNTERS + 100)),
            };
            let expected = if counter <= 5 || counter + WINDOW_COUNTERS <= greatest {
                Seen::TooOld
            } else if opened.contains(&counter) {
                Seen::Before
            } else {
                Seen::New
            };
            assert_eq!(
                window.query(counter),
                expected,
                "counter {counter}, greatest {greatest}"
            );
            if expected == Seen::New {
                accepted_late += u32::from(counter < greatest);
                window.mark(counter);
                opened.insert(counter);
            }
        }
        assert!(accepted_late > 1_000, "the test must reorder");
    }
}
