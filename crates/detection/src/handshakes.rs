//! Remembered handshakes of a service: sets that join.
//!
//! A handshake is a cell of a set, chosen by a keyed hash of both ends; the share of clear cells estimates the number in a
//! set (linear counting, Whang et al. 1990). So a SYN that is sent again, or that two instances saw, counts once.

use asterism_function::{BadBytes, Host, Key, Reader, Tick, Value, Wire, Writer};

/// Words of a set.
const WORDS: usize = 5;
/// Words64 of a set: as many as fit into one operation with four sets of them.
pub(crate) const CELLS: u32 = 64 * WORDS as u32;
/// Words64 that no completed handshake has, at least, and open ones among them: with fewer nothing is said.
const USABLE_LEAST: u32 = 16;
const OPEN_LEAST: u32 = 8;
/// Open handshakes are a flood if they are more than one in so many of all that were begun: of a very busy service some always fail.
const BEGUN_TO_OPEN: i32 = 8;

/// Windows for which half the threshold keeps a flood going: of a sample one may have too few by chance.
const FLOODED: u32 = 3;

/// A service: who is flooded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Service {
    /// Its address.
    pub host: Host,
    /// Its TCP port.
    pub port: u16,
}

impl Key for Service {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        self.host.hash(seed ^ u64::from(self.port) << 32)
    }
}

/// A sample of a service's handshakes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Sample {
    /// Whose handshakes.
    pub service: Service,
    /// How sparse it is: each level holds a sixteenth of what the one before holds.
    pub level: u8,
}

impl Key for Sample {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        self.service.hash(seed ^ (u64::from(self.level) + 1) << 56)
    }
}

/// A flood that was found. Joins: the earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[join(min)]
pub struct Flood {
    /// When it was found, in seconds of the cluster's time.
    pub first: Tick,
    /// Handshakes of a window that were not completed, estimated.
    #[wire(varint)]
    pub open: u32,
    /// Distinct sources of the handshakes that were looked at, those that were completed among them, estimated; 300 stands for more than
    /// can be reported.
    #[wire(varint)]
    pub sources: u16,
    /// The source of the SYN that it was found by.
    pub source: Host,
}

/// A set of handshakes.
type Words64 = [u64; WORDS];

/// What was seen of a sample in one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    begun: Words64,
    /// Handshakes that somebody completed or refused, whenever they were begun.
    done: Words64,
    /// Sources of those that were begun, in 64 cells of their own.
    sources: u64,
}

impl Seen {
    #[inline]
    fn words(&self) -> impl Iterator<Item = &u64> {
        self.begun.iter().chain(&self.done).chain([&self.sources])
    }
    #[inline]
    fn words_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        let sources = core::iter::once(&mut self.sources);
        self.begun.iter_mut().chain(&mut self.done).chain(sources)
    }
}

/// Words of a window.
const SEEN_WORDS: usize = 2 * WORDS + 1;

/// A sample of a service's handshakes in the current window and the one before: 184 bytes.
///
/// Joining: as histories, the union for each window, cut to the latest and the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes {
    /// The number of the current window.
    epoch: u32,
    /// Up to this window half the threshold is a flood; 0: there was none.
    flooded_until: u32,
    windows: [Seen; 2],
}

/// What makes a flood of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Open handshakes in the sample.
    open: f32,
    /// The share of cells that so many leave clear.
    clear: f32,
}

impl Limit {
    pub(crate) fn new(open: f32) -> Self {
        Self {
            open,
            clear: (-open / CELLS as f32).exp(),
        }
    }
}

impl Handshakes {
    /// With a handshake begun by a source.
    #[inline]
    pub(crate) fn begun(mut self, epoch: u32, cell: u32, source: u64) -> Self {
        self.advance(epoch);
        let seen = &mut self.windows[0];
        seen.begun[cell as usize / 64] |= 1 << (cell % 64);
        seen.sources |= source;
        self
    }

    /// With a handshake that was completed or refused; `None` if that is known, or nothing was begun lately.
    #[inline]
    pub(crate) fn done(mut self, epoch: u32, cell: u32) -> Option<Self> {
        self.advance(epoch);
        let is_idle = self.windows.iter().all(|seen| seen.begun == [0; WORDS]);
        let (place, bit) = (cell as usize / 64, 1 << (cell % 64));
        if is_idle || self.windows[0].done[place] & bit != 0 {
            return None;
        }
        self.windows[0].done[place] |= bit;
        Some(self)
    }

    /// With a flood found in window `epoch`.
    #[inline]
    pub(crate) fn flooded(mut self, epoch: u32) -> Self {
        self.flooded_until = self.flooded_until.max(epoch.saturating_add(FLOODED));
        self
    }

    /// How many handshakes of the window before `epoch` are open and how many sources were seen, if that is a flood; with half of
    /// `limit` if there was one lately. Handshakes of the current window may yet be completed.
    ///
    /// Words64 of completed handshakes are left out and the others stand for all, so it makes no difference whether an instance hears
    /// of a completion before the beginning, nor do connections of old hide a flood.
    #[inline]
    pub(crate) fn judge(&self, epoch: u32, full: Limit, half: Limit) -> Option<(f32, u64)> {
        if self.epoch != epoch {
            return None;
        }
        let [current, before] = &self.windows;
        let (mut usable, mut open, mut begun) = (0, 0, 0);
        for place in 0..WORDS {
            let pending = !(current.done[place] | before.done[place]);
            usable += pending.count_ones();
            open += (pending & before.begun[place]).count_ones();
            begun += before.begun[place].count_ones();
        }
        if usable < USABLE_LEAST || open < OPEN_LEAST {
            return None;
        }
        let clear = (usable - open) as f32 / usable as f32;
        let limit = match epoch < self.flooded_until {
            true => half,
            false => full,
        };
        let most_complete = clear.powi(BEGUN_TO_OPEN) > (CELLS - begun) as f32 / CELLS as f32;
        if clear > limit.clear || most_complete {
            return None;
        }
        // Half a cell stands for none, whose logarithm is without end.
        let clear = clear.max(0.5 / usable as f32);
        let open = limit.open.max(-clear.ln() * CELLS as f32);
        Some((open, before.sources))
    }

    /// Moves on to window `epoch` if that is later.
    #[inline]
    fn advance(&mut self, epoch: u32) {
        if epoch <= self.epoch {
            return;
        }
        self.windows[1] = match epoch - self.epoch {
            1 => self.windows[0],
            _ => Seen::default(),
        };
        self.windows[0] = Seen::default();
        self.epoch = epoch;
    }
}

impl Value for Handshakes {
    const JOINS: bool = true;

    #[inline]
    fn join(&mut self, other: &Self) {
        self.advance(other.epoch);
        let behind = (self.epoch - other.epoch) as usize;
        for (place, theirs) in other.windows.iter().enumerate() {
            if let Some(ours) = self.windows.get_mut(place.saturating_add(behind)) {
                for (ours, theirs) in ours.words_mut().zip(theirs.words()) {
                    *ours |= theirs;
                }
            }
        }
        self.flooded_until = self.flooded_until.max(other.flooded_until);
    }
}

/// Window number, end of the flood, a bit for each word that is not 0, those words.
impl Wire for Handshakes {
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.varint(self.epoch.into());
        out.varint(self.flooded_until.into());
        let words = || self.windows.iter().flat_map(Seen::words);
        let present = words().enumerate().fold(0u32, |present, (place, word)| {
            present | u32::from(*word != 0) << place
        });
        out.u32(present);
        words()
            .filter(|word| **word != 0)
            .for_each(|word| out.u64(*word));
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let epoch = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let flooded_until = u32::try_from(input.varint()?).map_err(|_| BadBytes)?;
        let present = input.u32()?;
        if present >> (2 * SEEN_WORDS) != 0 {
            return Err(BadBytes);
        }
        let mut windows = [Seen::default(); 2];
        let words = windows.iter_mut().flat_map(Seen::words_mut);
        for (place, word) in words.enumerate() {
            if present >> place & 1 == 1 {
                *word = input.u64()?;
            }
        }
        Ok(Self {
            epoch,
            flooded_until,
            windows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{laws, objects::hash};

    fn random(draw: u64) -> Handshakes {
        let number = |place: u64| hash::words(draw, place, 78);
        let mut windows = [Seen::default(); 2];
        for (place, word) in windows.iter_mut().flat_map(Seen::words_mut).enumerate() {
            *word = number(place as u64) & number(100 + place as u64);
        }
        Handshakes {
            epoch: (number(50) % 5) as u32,
            flooded_until: (number(51) % 4) as u32,
            windows,
        }
    }

    #[test]
    fn handshakes_join_as_the_law_says() {
        for draw in 0..2_000 {
            laws::value(random(draw), random(draw + 10_000), random(draw + 20_000));
        }
    }

    #[test]
    fn handshakes_come_back_from_the_wire() {
        for draw in 0..300 {
            let mut sample = random(draw);
            if draw % 3 == 0 {
                sample.windows[1] = Seen::default();
            }
            let mut bytes = Vec::new();
            sample.encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(Handshakes::decode(&mut input), Ok(sample));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                let cut = Handshakes::decode(&mut Reader::new(&bytes[..length], &[]));
                assert_eq!(cut, Err(BadBytes));
            }
        }
        let no_such_word = [0, 0, 0, 0x40, 0, 0];
        let read = Handshakes::decode(&mut Reader::new(&no_such_word, &[]));
        assert_eq!(read, Err(BadBytes));
    }

    /// Random handshakes of window 10, of which the first `completed` are completed.
    fn sample(begun: u64, completed: u64, older: u64) -> Handshakes {
        let cell = |number: u64| (hash::words(number, 3, 79) % u64::from(CELLS)) as u32;
        let mut sample = Handshakes::default();
        for number in 0..begun {
            sample = sample.begun(10, cell(number), 1);
        }
        for number in (0..completed).chain(1_000_000..1_000_000 + older) {
            sample = sample.done(10, cell(number)).unwrap_or(sample);
        }
        sample
    }

    fn judge(sample: &Handshakes, epoch: u32) -> Option<f32> {
        let mut sample = *sample;
        sample.advance(epoch);
        let found = sample.judge(epoch, Limit::new(60.0), Limit::new(30.0));
        found.map(|(open, _)| open)
    }

    #[test]
    fn open_handshakes_are_reported_from_completed_ones_and_old_connections_do_not_hide_them() {
        let within = |found: Option<f32>, open: f32| {
            let found = found.expect("a flood");
            assert!((found - open).abs() < open / 3.0, "{found} for {open}");
        };
        within(judge(&sample(100, 0, 0), 11), 100.0);
        within(judge(&sample(200, 100, 0), 11), 100.0);
        within(judge(&sample(150, 0, 400), 11), 150.0);
        assert_eq!(judge(&sample(300, 290, 0), 11), None);
        assert_eq!(judge(&sample(40, 0, 0), 11), None, "below the threshold");
        assert_eq!(judge(&sample(100, 0, 0), 10), None, "they may be completed");
        assert_eq!(judge(&sample(100, 0, 0), 12), None, "too old");
        // More handshakes than cells: all that can be reported.
        assert!(judge(&sample(9_000, 0, 0), 11).is_some_and(|open| open > 2_000.0));
        // No cell is left that could tell.
        assert_eq!(judge(&sample(9_000, 0, 9_000), 11), None);
    }

    #[test]
    fn a_busy_service_of_which_one_in_twenty_fails_is_not_flooded() {
        assert_eq!(judge(&sample(1_300, 1_235, 0), 11), None);
        assert!(judge(&sample(260, 190, 0), 11).is_some());
    }

    #[test]
    fn half_the_threshold_keeps_a_flood_going() {
        let small = sample(40, 0, 0);
        assert_eq!(judge(&small, 11), None);
        assert!(judge(&small.flooded(10), 11).is_some());
        assert_eq!(judge(&small.flooded(8), 11), None, "it was over");
    }
}
