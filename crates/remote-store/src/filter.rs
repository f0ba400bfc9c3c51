//! Which keys may be in the store: a read of one that surely is not there is answered at once, as if that answer were kept (`cache.rs`).
//!
//! A Bloom filter has all keys of the function. The store announces each change of any of them on the connection that reads (`CLIENT
//! TRACKING ON BCAST`), and the keys that were there before are found by `SCAN`, piece by piece between other commands. `SCAN` finds what
//! is there from its beginning to its end, and what comes meanwhile is announced: so once it ends the filter is complete. Until then, and
//! after a connection is lost or all keys have changed, it answers nothing.
//!
//! Keys that are gone stay in it. When it has more than it is made for, another one is filled by a new scan and takes its place.
//!
//! A wrong answer cannot be written: what a transaction read is checked by the store when it is committed.

use std::collections::BTreeMap;

use asterism_resp::{CommandWriter, Value};
use asterism_sketches::Grid;
use asterism_state::{LANES_MAX, Tick, hash};

use crate::keys::Keys;
use crate::mutant::{self, Mutant};

/// The share of absent keys that are asked for all the same, when the filter has as many keys as it is made for.
const MISTAKEN: f64 = 0.02;
/// Keys of an entry at most. Most have one or two: the rest is for those of entries that ended since the last scan.
const KEYS_PER_ENTRY: u64 = LANES_MAX as u64;
/// Keys that a filter is made for at least and at most: 4 KiB and 66 MiB.
const KEYS_LEAST: u64 = 1 << 12;
const KEYS_MOST: u64 = 1 << 26;
/// Keys that the store looks at for one piece of a scan: adding them takes some ten microseconds.
const KEYS_EACH: i64 = 128;
/// Words that are cleared in one turn.
const CLEARED_EACH: usize = 1 << 13;
/// Microseconds from one scan to the next at least: those that a filter is full after are of little use.
const RESTS_US: u64 = 10_000_000;
const RESTS_FULL_US: u64 = 60_000_000;
/// Scans rest so many times as long as the last one took, at least.
const RESTS_TIMES: u64 = 9;
/// Microseconds until a scan that the store refused begins again.
const REFUSED_US: u64 = 1_000_000;
/// An object has plenty of room if so many entries may be added, and this share of all that it may have.
const PLENTY: u64 = 4_096;
const PLENTY_SHARE: u64 = 8;
/// Seconds after which it is not known any more how many entries an object has.
const COUNTED_S: Tick = 10;

/// Keys that were added.
#[derive(Debug)]
struct Bits {
    words: Vec<u64>,
    /// Places that are taken.
    taken: u32,
}

impl Bits {
    fn add(&mut self, grid: Grid, hash: u64) {
        for place in grid.places(hash) {
            let (word, bit) = split(place);
            if let Some(word) = self.words.get_mut(word) {
                self.taken += u32::from(*word & bit == 0);
                *word |= bit;
            }
        }
    }

    fn may_have(&self, grid: Grid, hash: u64) -> bool {
        grid.places(hash).all(|place| {
            let (word, bit) = split(place);
            self.words.get(word).is_none_or(|word| word & bit != 0)
        })
    }
}

/// The word of a place, and its bit there.
fn split(place: u32) -> (usize, u64) {
    ((place / u64::BITS) as usize, 1 << (place % u64::BITS))
}

/// What is done for a filter that is not complete, or too full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no connection.
    Away,
    /// Nothing, until then at least.
    Rests(u64),
    /// What is to be filled is cleared from this word on.
    Clears(usize),
    /// The next piece is from here on.
    Scans { cursor: u64, is_asked: bool },
    /// A key that is never there is read: a store that moves keys to another one says so then.
    Probes { is_asked: bool },
}

/// A command of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The number of the scan.
    scan: u64,
}

/// See the module. Times are microseconds.
#[derive(Debug)]
pub(crate) struct Filter {
    grid: Grid,
    seed: u64,
    /// Places that are taken when it has as many keys as it is made for.
    full: u32,
    /// One that answers, and one that is filled.
    halves: [Bits; 2],
    /// Which one answers.
    complete: Option<usize>,
    stage: Stage,
    scan: u64,
    begun_us: u64,
    /// Scans that came to their end.
    scans: u64,
}

impl Filter {
    /// Of objects that have so many entries together at most.
    pub(crate) fn new(entries: u64, seed: u64) -> Self {
        let keys = entries.saturating_mul(KEYS_PER_ENTRY);
        let keys = keys.clamp(KEYS_LEAST, KEYS_MOST) as u32;
        let grid = Grid::for_keys(keys, MISTAKEN);
        let rows = grid.len() / grid.width();
        let full = f64::from(grid.len()) * MISTAKEN.powf(1.0 / f64::from(rows));
        let bits = || Bits {
            words: vec![0; grid.len().div_ceil(u64::BITS) as usize],
            taken: 0,
        };
        Self {
            grid,
            seed,
            full: full as u32,
            halves: [bits(), bits()],
            complete: None,
            stage: Stage::Away,
            scan: 0,
            begun_us: 0,
            scans: 0,
        }
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let words = self.halves.iter().map(|half| half.words.len());
        (words.sum::<usize>() * size_of::<u64>()) as u64
    }

    /// Whether it has all keys.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.is_some()
    }

    /// Scans that came to their end.
    pub(crate) fn scans(&self) -> u64 {
        self.scans
    }

    /// Whether it has something to do that needs no reply.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Clears(_))
    }

    fn filled(&self) -> usize {
        self.complete.map_or(0, |complete| 1 - complete)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        hash::bytes(key, self.seed)
    }

    /// There is a connection, on which the changes of all keys are announced.
    pub(crate) fn connected(&mut self) {
        self.forget();
        self.begin();
    }

    /// The connection is lost: keys that come from now on are not announced.
    pub(crate) fn lost(&mut self) {
        self.forget();
        self.stage = Stage::Away;
    }

    /// All keys may have changed.
    pub(crate) fn all_changed(&mut self) {
        if self.stage != Stage::Away {
            self.complete = None;
            self.begin();
        }
    }

    fn forget(&mut self) {
        if !mutant::active(Mutant::CompleteOverConnections) {
            self.complete = None;
        }
    }

    fn begin(&mut self) {
        self.scan += 1;
        self.stage = Stage::Clears(0);
    }

    /// A key is in the store, or may be.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let hash = self.hash(key);
        if let Some(complete) = self.complete {
            self.halves[complete].add(self.grid, hash);
        }
        if matches!(self.stage, Stage::Scans { .. } | Stage::Probes { .. }) {
            let filled = self.filled();
            self.halves[filled].add(self.grid, hash);
        }
    }

    /// Whether a key is surely not in the store.
    pub(crate) fn lacks(&self, key: &[u8]) -> bool {
        self.complete
            .is_some_and(|complete| !self.halves[complete].may_have(self.grid, self.hash(key)))
    }

    /// Goes on with what is to be done: writes the next command of a scan, if there is one.
    pub(crate) fn write(&mut self, now_us: u64, keys: &Keys, out: &mut Vec<u8>) -> Option<Piece> {
        if let Stage::Rests(until_us) = self.stage
            && until_us <= now_us
            && (self.complete).is_none_or(|complete| self.halves[complete].taken > self.full)
        {
            self.begin();
        }
        if let Stage::Clears(from) = self.stage {
            self.clear(from, now_us);
        }
        match &mut self.stage {
            Stage::Scans { cursor, is_asked } if !*is_asked => {
                *is_asked = true;
                let mut writer = CommandWriter::new(out);
                writer.begin(6);
                writer.argument(b"SCAN");
                writer.argument(cursor.to_string().as_bytes());
                writer.argument(b"MATCH");
                writer.argument(&pattern(keys.prefix()));
                writer.argument(b"COUNT");
                writer.number(KEYS_EACH);
            }
            Stage::Probes { is_asked } if !*is_asked => {
                *is_asked = true;
                CommandWriter::new(out).command(&[b"GET", &keys.of_none()]);
            }
            _ => return None,
        }
        Some(Piece { scan: self.scan })
    }

    /// Clears some words of what is to be filled.
    fn clear(&mut self, from: usize, now_us: u64) {
        let filled = self.filled();
        let half = &mut self.halves[filled];
        let is_cleared = half.taken == 0;
        let until = (from + CLEARED_EACH).min(half.words.len());
        if !is_cleared && until < half.words.len() {
            half.words[from..until].fill(0);
            self.stage = Stage::Clears(until);
            return;
        }
        if !is_cleared {
            half.words[from..].fill(0);
            half.taken = 0;
        }
        self.begun_us = now_us;
        let (cursor, is_asked) = (0, false);
        self.stage = Stage::Scans { cursor, is_asked };
    }

    /// The reply to a command of a scan. False if it is none.
    pub(crate) fn reply(&mut self, piece: Piece, value: &Value<'_>, now_us: u64) -> bool {
        if piece.scan != self.scan {
            // That scan is given up.
            return true;
        }
        let is_well = match (self.stage, value) {
            (Stage::Scans { .. }, Value::Array(values)) => self.scanned(*values).is_some(),
            (Stage::Probes { .. }, Value::Null | Value::String(_)) => {
                self.end(now_us);
                true
            }
            _ => false,
        };
        if !is_well {
            self.scan += 1;
            self.stage = Stage::Rests(now_us + REFUSED_US);
        }
        is_well
    }

    /// Takes a piece of a scan.
    fn scanned(&mut self, mut values: asterism_resp::Values<'_>) -> Option<()> {
        let cursor = core::str::from_utf8(values.next()?.bytes()?).ok()?;
        let cursor: u64 = cursor.parse().ok()?;
        let Value::Array(keys) = values.next()? else {
            return None;
        };
        let filled = self.filled();
        for key in keys {
            let hash = self.hash(key.bytes()?);
            self.halves[filled].add(self.grid, hash);
        }
        let is_asked = false;
        self.stage = match cursor == 0 || mutant::active(Mutant::CompleteBeforeScanEnds) {
            true => Stage::Probes { is_asked },
            false => Stage::Scans { cursor, is_asked },
        };
        Some(())
    }

    /// What was filled has all keys.
    fn end(&mut self, now_us: u64) {
        let filled = self.filled();
        self.complete = Some(filled);
        self.scans += 1;
        let least_us = match self.halves[filled].taken > self.full {
            true => RESTS_FULL_US,
            false => RESTS_US,
        };
        let took_us = now_us.saturating_sub(self.begun_us);
        let rests_us = least_us.max(took_us.saturating_mul(RESTS_TIMES));
        self.stage = Stage::Rests(now_us.saturating_add(rests_us));
    }
}

/// The pattern of all keys that begin so.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// How many entries objects had when they were counted last, for those that are to be added.
#[derive(Debug, Default)]
pub(crate) struct Rooms(BTreeMap<u8, (Tick, u64)>);

impl Rooms {
    /// An object had so many entries in this second.
    pub(crate) fn note(&mut self, object: u8, entries: u64, tick: Tick) {
        self.0.insert(object, (tick, entries));
    }

    /// A transaction was refused: perhaps there was no room.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// How many entries may be added to an object, if there surely was plenty of room a short while ago. It is checked by the store when
    /// they are added.
    pub(crate) fn plenty(&self, object: u8, capacity: u64, tick: Tick) -> Option<u64> {
        let (counted, entries) = self.0.get(&object)?;
        let room = capacity.saturating_sub(*entries);
        let is_recent = tick.saturating_sub(*counted) <= COUNTED_S;
        let is_plenty = room >= PLENTY.max(capacity / PLENTY_SHARE);
        (is_recent && is_plenty).then_some(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &str) -> Vec<u8> {
        bytes.replace('\n', "\r\n").into_bytes()
    }

    fn take(filter: &mut Filter, piece: Piece, bytes: &[u8]) -> bool {
        let (value, _) = Value::read(bytes).expect("a value").expect("whole");
        filter.reply(piece, &value, 1)
    }

    /// What a filter asks for now, up to the cursor or key.
    fn asked(filter: &mut Filter, now_us: u64) -> Option<(Piece, String)> {
        let mut out = Vec::new();
        let piece = filter.write(now_us, &Keys::new("a*b"), &mut out)?;
        let text = String::from_utf8(out).expect("text");
        let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).take(4).collect();
        Some((piece, words.join(" ")))
    }

    /// Scans a store that has these keys.
    fn scan(filter: &mut Filter, now_us: u64, keys: &[&str]) {
        for _ in 0..1_000 {
            let Some((piece, words)) = asked(filter, now_us) else {
                continue;
            };
            if words.starts_with("GET") {
                assert_eq!(words, "GET {a*b}none");
                assert!(take(filter, piece, b"_\r\n"));
                return;
            }
            assert_eq!(words, "SCAN 0 MATCH {a\\*b}*");
            let mut found = format!("*2\n$1\n0\n*{}\n", keys.len());
            for key in keys {
                found.push_str(&format!("${}\n{key}\n", key.len()));
            }
            assert!(take(filter, piece, &reply(&found)));
        }
        panic!("it does not end");
    }

    #[test]
    fn a_filter_answers_once_its_scan_has_ended() {
        let mut filter = Filter::new(100, 7);
        assert!(asked(&mut filter, 0).is_none());
        filter.connected();
        let (piece, words) = asked(&mut filter, 0).expect("a scan");
        assert_eq!(words, "SCAN 0 MATCH {a\\*b}*");
        assert!(asked(&mut filter, 0).is_none(), "one at a time");
        filter.add(b"announced");
        assert!(take(&mut filter, piece, &reply("*2\n$2\n17\n*1\n$1\nx\n")));
        let (piece, words) = asked(&mut filter, 0).expect("the next piece");
        assert_eq!(words, "SCAN 17 MATCH {a\\*b}*");
        assert!(take(&mut filter, piece, &reply("*2\n$1\n0\n*1\n$1\ny\n")));
        assert!(!filter.lacks(b"z"), "keys may be elsewhere");
        let (piece, words) = asked(&mut filter, 0).expect("a probe");
        assert_eq!(words, "GET {a*b}none");
        assert!(!filter.is_complete());
        assert!(take(&mut filter, piece, b"_\r\n"));
        assert!(filter.is_complete() && filter.lacks(b"z"));
        for key in [&b"x"[..], b"y", b"announced"] {
            assert!(!filter.lacks(key));
        }
        assert!(asked(&mut filter, u64::MAX).is_none(), "it is not full");
        filter.add(b"z");
        assert!(!filter.lacks(b"z"));
        filter.lost();
        assert!(!filter.is_complete() && !filter.lacks(b"w"));
    }

    #[test]
    fn a_scan_that_is_cut_short_begins_again() {
        for cut in [Filter::all_changed as fn(&mut Filter), |filter| {
            filter.lost();
            filter.connected();
        }] {
            let mut filter = Filter::new(100, 7);
            filter.connected();
            scan(&mut filter, 0, &["x"]);
            filter.all_changed();
            let (old, _) = asked(&mut filter, 0).expect("a scan");
            cut(&mut filter);
            assert!(!filter.is_complete() && !filter.lacks(b"z"));
            let (piece, words) = asked(&mut filter, 0).expect("another scan");
            assert_eq!(words, "SCAN 0 MATCH {a\\*b}*");
            // What the first one found is not taken for the end of the second.
            assert!(take(&mut filter, old, &reply("*2\n$1\n0\n*0\n")));
            assert!(asked(&mut filter, 0).is_none());
            assert!(take(&mut filter, piece, &reply("*2\n$1\n0\n*1\n$1\ny\n")));
            let (piece, _) = asked(&mut filter, 0).expect("a probe");
            assert!(take(&mut filter, piece, b"_\r\n"));
            assert!(filter.lacks(b"x") && !filter.lacks(b"y"));
        }
    }

    #[test]
    fn what_is_refused_is_asked_for_later() {
        let mut filter = Filter::new(100, 7);
        filter.connected();
        for refused in ["-NOPERM no\n", "+OK\n", "*1\n$1\n0\n", "*2\n$1\nx\n*0\n"] {
            let (piece, _) = asked(&mut filter, 2_000_000).expect("a scan");
            assert!(!take(&mut filter, piece, &reply(refused)));
            assert!(asked(&mut filter, 1_000_000).is_none());
        }
        // Its keys move to another member of a cluster: some may be there already.
        let (piece, _) = asked(&mut filter, 2_000_000).expect("a scan");
        assert!(take(&mut filter, piece, &reply("*2\n$1\n0\n*0\n")));
        let (piece, _) = asked(&mut filter, 2_000_000).expect("a probe");
        let moving = reply("-ASK 3999 192.0.2.1:6379\n");
        assert!(!take(&mut filter, piece, &moving));
        assert!(!filter.is_complete());
        scan(&mut filter, 2_000_000, &[]);
        assert!(filter.is_complete());
    }

    #[test]
    fn a_filter_that_is_full_is_filled_again_without_what_is_gone() {
        // One that is cleared in several turns.
        let mut filter = Filter::new(1 << 17, 7);
        filter.connected();
        scan(&mut filter, 0, &["x"]);
        let mistaken = |filter: &Filter| {
            let absent =
                (0..10_000_u32).filter(|key| !filter.lacks(format!("no {key}").as_bytes()));
            absent.count()
        };
        let mut added = 0;
        for round in 0..3_u64 {
            while filter.halves[filter.complete.expect("it is complete")].taken <= filter.full {
                filter.add(format!("{added}").as_bytes());
                added += 1;
            }
            // Some 2 % as it was made for half a million keys.
            assert!(
                (150..250).contains(&mistaken(&filter)),
                "{}",
                mistaken(&filter)
            );
            if round == 0 {
                assert!((520_000..530_000).contains(&added), "{added} keys");
            }
            let now_us = (round + 1) * RESTS_US;
            assert!(asked(&mut filter, now_us - RESTS_US / 2).is_none());
            // It answers all the while, and what is announced is in both.
            if round > 0 {
                assert!(asked(&mut filter, now_us + 1).is_none() && filter.is_busy());
            }
            filter.add(b"before");
            scan(&mut filter, now_us + 1, &["y", "before"]);
            filter.add(b"after");
            assert!(filter.lacks(b"x") && mistaken(&filter) == 0);
            for key in [&b"y"[..], b"before", b"after"] {
                assert!(!filter.lacks(key));
            }
        }
        assert_eq!(filter.scans(), 4);
    }

    #[test]
    fn sizes_are_bounded() {
        let of = |entries| Filter::new(entries, 7).bytes();
        assert_eq!(of(0), of(1 << 10));
        // Two of 33 bits an entry.
        let entry = of(1 << 17) as f64 / f64::from(1 << 17);
        assert!((8.0..8.4).contains(&entry), "{entry} bytes an entry");
        assert_eq!(of(1 << 24), of(u64::MAX));
        assert!(of(u64::MAX) < 140 << 20);
    }

    #[test]
    fn room_is_known_while_there_is_plenty() {
        let mut rooms = Rooms::default();
        assert_eq!(rooms.plenty(1, 100_000, 50), None);
        rooms.note(1, 87_000, 50);
        assert_eq!(rooms.plenty(1, 100_000, 60), Some(13_000));
        assert_eq!(rooms.plenty(1, 100_000, 61), None, "it was long ago");
        assert_eq!(rooms.plenty(2, 100_000, 60), None);
        rooms.note(1, 88_000, 60);
        assert_eq!(rooms.plenty(1, 100_000, 60), None, "an eighth");
        rooms.note(1, 4_000, 60);
        assert_eq!(rooms.plenty(1, 8_096, 60), Some(4_096));
        assert_eq!(rooms.plenty(1, 8_095, 60), None, "few may be added");
        rooms.forget();
        assert_eq!(rooms.plenty(1, 8_096, 60), None);
    }
}
