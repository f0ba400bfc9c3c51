//! The state of a reassembled TCP stream: its runs of bytes without a gap, and for each run the parts of signatures at its two ends.
//!
//! No byte of a segment is kept. A signature has 64 bytes at most. So a signature that begins before a run depends on the longest prefix
//! of the run that is a signature's suffix (its head), and one that goes on behind the run on the longest suffix of the run that is
//! a signature's prefix (its tail). Each is a place in the list of all ends (`finder.rs`) and a length; shorter ones are parts of the longest. Of a
//! run within a signature the head is the whole run. Where two runs meet, head and tail of the result follow from those of both.
//! So neither the order of segments nor the instance of each matters.

use core::cmp::Ordering;
use core::fmt;
use core::net::IpAddr;

use asterism_function::objects::hash;
use asterism_function::{BadBytes, Key, Reader, Value, Wire, Writer, layout};

use super::finder::{Edge, Finder, Found};
use super::flow::Stream;
use super::mutant::{self, Mutant};

/// Runs of a stream at most, so one gap less.
pub const RUNS_MAX: usize = 8;

/// Bytes of the longest run. Of a longer one the last half is kept: what is sent again is not older than a window.
pub const RUN_BYTES_MAX: u32 = (1 << 24) - 1;

/// A stream as a list of signatures reads it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Reading {
    /// The stream.
    pub stream: Stream,
    /// Names the list: the same on hosts whose signatures have the same bytes.
    pub list: u32,
}

impl Key for Reading {
    const IS_OF_CONVERSATION: bool = true;
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        self.stream.between()
    }
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        hash::word(self.list.into(), self.stream.hash(seed))
    }
}

/// Bytes of some signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire)]
pub struct Part {
    /// Which bytes they are: the first in the sorted list of all ends of all signatures that begins with them.
    pub rank: u16,
    /// How many, 0 to 63. With 0 no signature crosses this end.
    pub length: u8,
}

impl Part {
    fn of(edge: Option<Edge>) -> Self {
        edge.map_or_else(Self::default, |edge| Self {
            rank: edge.rank,
            length: edge.length as u8,
        })
    }
}

/// Bytes of a stream without a gap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Wire)]
#[wire(check = Self::is_sane)]
pub struct Run {
    /// The sequence number of the first.
    pub begin: u32,
    /// How many, at least 1.
    #[wire(u24)]
    pub length: u32,
    /// The longest prefix that is a signature's suffix; all bytes of a run within a signature.
    pub head: Part,
    /// The longest suffix that is a signature's prefix; all bytes of a run within a signature. After a SYN it may be longer than the run.
    pub tail: Part,
}

/// As `1000+512`, with the bytes of its parts: `1000+512 (2, 5)`.
impl fmt::Debug for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{}", self.begin, self.length)?;
        match (self.head.length, self.tail.length) {
            (0, 0) => Ok(()),
            parts => write!(out, " {parts:?}"),
        }
    }
}

impl Run {
    /// The segment with these edges, as [`Finder::edges`] finds them; its payload has a byte at least.
    pub(super) fn of(sequence: u32, payload: &[u8], edges: [Option<Edge>; 2]) -> Self {
        let [head, tail] = match edges {
            [Some(edge), None] if edge.open == (true, true) => [Part::of(Some(edge)); 2],
            edges => edges.map(Part::of),
        };
        Self {
            begin: sequence,
            length: payload.len() as u32,
            head,
            tail,
        }
    }

    const fn is_sane(&self) -> bool {
        let (head, tail) = (self.head.length, self.tail.length);
        self.length > 0 && head as u32 <= self.length && head < 64 && tail < 64
    }

    /// The sequence number behind its last byte.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.begin.wrapping_add(self.length)
    }

    /// Whether it lies within a signature, so that its parts name all of its bytes.
    fn is_whole(&self) -> bool {
        u32::from(self.head.length) == self.length
    }

    /// How far behind its begin a sequence number is that lies within it or right behind it.
    fn offset_of(&self, sequence: u32) -> Option<u32> {
        let offset = sequence.wrapping_sub(self.begin);
        (offset <= self.length).then_some(offset)
    }

    fn contains(&self, other: &Self) -> bool {
        self.offset_of(other.begin)
            .is_some_and(|offset| offset + other.length <= self.length)
    }

    /// Its last byte, with the tail.
    fn last_byte(&self) -> Self {
        let tail = match mutant::active(Mutant::SynBelieved) {
            true => Part::default(),
            false => self.tail,
        };
        Self {
            begin: self.end().wrapping_sub(1),
            length: 1,
            head: Part::default(),
            tail,
        }
    }

    /// How many of its first bytes another one has, which begins before it and ends within it.
    fn overlap_with(&self, left: &Self) -> usize {
        match mutant::active(Mutant::OverlapTakenTwice) {
            true => 0,
            false => left.end().wrapping_sub(self.begin) as usize,
        }
    }

    /// Leaves its last bytes alone, if it is longer than a run may be.
    fn shorten(&mut self) {
        if self.length > RUN_BYTES_MAX {
            self.begin = self.end().wrapping_sub(RUN_BYTES_MAX / 2);
            self.length = RUN_BYTES_MAX / 2;
            self.head = Part::default();
        }
    }
}

/// The runs of a stream. They do not join: their number falls as gaps are filled, and a bound on a number that can fall would make a
/// join depend on its order. Of two values that instances write within the lag of each other, the one with more bytes wins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    count: u8,
    /// In ascending order, none within another; the rest is zero, so that equal sets are equal.
    held: [Run; RUNS_MAX],
}

const NONE: Run = Run {
    begin: 0,
    length: 0,
    head: Part { rank: 0, length: 0 },
    tail: Part { rank: 0, length: 0 },
};

impl fmt::Debug for Runs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.all()).finish()
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self::NONE
    }
}

impl Runs {
    /// Nothing is known.
    pub(super) const NONE: Self = Self {
        count: 0,
        held: [NONE; RUNS_MAX],
    };

    /// The runs, by sequence number.
    #[must_use]
    pub fn all(&self) -> &[Run] {
        &self.held[..usize::from(self.count)]
    }

    fn of(runs: &[Run]) -> Self {
        let mut made = Self {
            count: runs.len() as u8,
            ..Self::default()
        };
        made.held[..runs.len()].copy_from_slice(runs);
        made.held[..runs.len()].sort_unstable();
        made
    }

    /// Whether a run contains the sequence number or ends right before it.
    pub(super) fn is_preceded(&self, sequence: u32) -> bool {
        self.all()
            .iter()
            .any(|run| run.offset_of(sequence).is_some())
    }

    /// The runs after a SYN whose connection's first byte has the number `sequence`; `None` if nothing changes. A run that contains this
    /// number is of an earlier connection, so its bytes are unknown again. Its last byte stays, with the tail, so that a SYN that the
    /// receiver ignores hides no signature.
    pub(super) fn begun_at(&self, sequence: u32) -> Option<Self> {
        let earlier = |run: &Run| run.offset_of(sequence).is_some_and(|at| at < run.length);
        if !self.all().iter().any(earlier) || mutant::active(Mutant::SynIgnored) {
            return None;
        }
        let mut runs = *self;
        let held = &mut runs.held[..usize::from(self.count)];
        for run in held.iter_mut().filter(|run| earlier(run)) {
            *run = run.last_byte();
        }
        Some(Self::of(held))
    }

    /// Bytes that are known.
    fn length(&self) -> u64 {
        self.all().iter().map(|run| u64::from(run.length)).sum()
    }
}

impl Value for Runs {
    fn order(&self, other: &Self) -> Ordering {
        let by_length = self.length().cmp(&other.length());
        by_length.then_with(|| self.all().cmp(other.all()))
    }
}

/// The count, then the runs: 105 bytes at most.
impl Wire for Runs {
    const LAYOUT: u64 = layout::manual("signature runs", 1);
    const BYTES_MAX: usize = 1 + RUNS_MAX * Run::BYTES_MAX;
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.count);
        for run in self.all() {
            run.encode(out);
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let count = input.u8()?;
        let mut runs = Self::default();
        for _ in 0..count {
            let run = Run::decode(input)?;
            let ascends = runs.all().last().is_none_or(|last| *last < run);
            let is_new = |other: &Run| !other.contains(&run) && !run.contains(other);
            if !ascends || !runs.all().iter().all(is_new) || runs.all().len() == RUNS_MAX {
                return Err(BadBytes);
            }
            runs.held[usize::from(runs.count)] = run;
            runs.count += 1;
        }
        Ok(runs)
    }
}

/// A stream's runs with a segment added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) runs: Runs,
    /// Gaps that were given up.
    pub(super) gaps: u32,
}

/// The runs of a stream under work: one more than are kept.
struct Held {
    runs: [Run; RUNS_MAX + 1],
    count: usize,
}

impl Held {
    fn all(&self) -> &[Run] {
        &self.runs[..self.count]
    }
    fn remove(&mut self, place: usize) {
        self.count -= 1;
        self.runs[place] = self.runs[self.count];
    }
}

impl Finder {
    /// Adds a segment to the runs of its stream, and to `found` the signatures across the borders of runs that meet.
    pub(super) fn take(
        &self,
        known: &Runs,
        segment: Option<Run>,
        stream: &Stream,
        found: &mut Found,
    ) -> Taken {
        let mut held = Held {
            runs: [NONE; RUNS_MAX + 1],
            count: known.all().len(),
        };
        held.runs[..held.count].copy_from_slice(known.all());
        if let Some(run) = segment {
            held.runs[held.count] = run;
            held.count += 1;
        }
        self.meet(&mut held, stream, found);
        let mut gaps = 0;
        while held.count > RUNS_MAX {
            gaps += 1;
            give_up_a_gap(&mut held, segment.unwrap_or(NONE).begin);
        }
        for run in &mut held.runs[..held.count] {
            run.shorten();
        }
        Taken {
            runs: Runs::of(held.all()),
            gaps,
        }
    }

    /// Merges runs that meet or overlap.
    fn meet(&self, held: &mut Held, stream: &Stream, found: &mut Found) {
        'again: loop {
            for left in 0..held.count {
                for right in (0..held.count).filter(|&right| right != left) {
                    let (one, other) = (held.runs[left], held.runs[right]);
                    if one.offset_of(other.begin).is_none() {
                        continue;
                    }
                    if !one.contains(&other) {
                        held.runs[left] = self.joined(&one, &other, stream, found);
                    }
                    held.remove(right);
                    continue 'again;
                }
            }
            return;
        }
    }

    /// Merges two runs, of which the second begins within the first or right behind it, and ends beyond it.
    fn joined(&self, left: &Run, right: &Run, stream: &Stream, found: &mut Found) -> Run {
        let before = self.bytes_of(left.tail.rank, left.tail.length.into());
        let behind = self.bytes_of(right.head.rank, right.head.length.into());
        let behind = behind.get(right.overlap_with(left)..).unwrap_or_default();
        let mut bytes = [0; 128];
        bytes[..before.len()].copy_from_slice(before);
        bytes[before.len()..before.len() + behind.len()].copy_from_slice(behind);
        let border = &bytes[..before.len() + behind.len()];
        if !before.is_empty() && !behind.is_empty() && !mutant::active(Mutant::MeetingUnsearched) {
            self.find(border, stream, found);
        }
        let (head, tail) = match (left.is_whole(), right.is_whole()) {
            (true, true) => {
                let whole = Run::of(left.begin, border, self.edges(border, 1));
                (whole.head, whole.tail)
            }
            (true, false) => (self.head_of(border, left), right.tail),
            (false, true) => (left.head, self.tail_of(border, right)),
            (false, false) => (left.head, right.tail),
        };
        Run {
            begin: left.begin,
            length: right.end().wrapping_sub(left.begin),
            head,
            tail,
        }
    }

    /// The head of a run that begins with `left`, which lies within a signature, and has `border` at its begin.
    fn head_of(&self, border: &[u8], left: &Run) -> Part {
        match mutant::active(Mutant::HeadOfFirstAlone) {
            true => left.head,
            false => Part::of(self.first_edge(border, 1)),
        }
    }

    /// The tail of a run that ends with `right`, which lies within a signature, and has `border` at its end.
    fn tail_of(&self, border: &[u8], right: &Run) -> Part {
        match mutant::active(Mutant::TailOfLastAlone) {
            true => right.tail,
            false => Part::of(self.last_edge(border, 1)),
        }
    }
}

/// Counts a gap as searched: the one farthest behind `sequence`, which is the least likely to be filled. Where runs are too far apart,
/// removes the run that is farthest from `sequence`.
fn give_up_a_gap(held: &mut Held, sequence: u32) {
    held.runs[..held.count].sort_unstable();
    let gaps = (0..held.count).map(|left| {
        let right = (left + 1) % held.count;
        let begin = held.runs[right].begin;
        let length = begin.wrapping_sub(held.runs[left].end());
        (
            length,
            sequence.wrapping_sub(begin).cast_signed(),
            (left, right),
        )
    });
    let oldest = gaps
        .filter(|(length, ..)| *length <= RUN_BYTES_MAX / 2)
        .max_by_key(|(_, behind, _)| *behind);
    if let Some((_, _, (left, right))) = oldest {
        let other = held.runs[right];
        let run = &mut held.runs[left];
        (run.length, run.tail) = (other.end().wrapping_sub(run.begin), other.tail);
        run.shorten();
        return held.remove(right);
    }
    let distance = |run: &Run| {
        let offset = run.begin.wrapping_sub(sequence);
        offset.min(offset.wrapping_neg())
    };
    let farthest = (0..held.count).max_by_key(|&place| distance(&held.runs[place]));
    held.remove(farthest.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::signature::config::{Carrier, Signature, SignatureConfig};
    use asterism_function::Host;

    fn finder(list: &[&[u8]]) -> Finder {
        let signatures = list.iter().enumerate().map(|(place, bytes)| Signature {
            id: place as u32 + 1,
            message: String::new(),
            bytes: bytes.to_vec(),
            carrier: Carrier::Any,
            ports: Vec::new(),
        });
        Finder::new(&SignatureConfig {
            reassembly: true,
            ..SignatureConfig::new(signatures.collect())
        })
    }

    fn stream() -> Stream {
        let host: Host = core::net::Ipv4Addr::new(192, 0, 2, 1).into();
        Stream {
            source: (host, 1_025),
            destination: (host, 80),
            is_tcp: true,
        }
    }

    fn number(draw: u64, place: u64, below: u64) -> u64 {
        hash::words(draw, place, 17) % below
    }

    /// A text of few different bytes, and signatures that are parts of it or nearly so: one within another, one that goes on with another.
    fn text_and_signatures(draw: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
        let text: Vec<u8> = (0..90)
            .map(|place| b'a' + number(draw, place, 2 + draw % 3) as u8)
            .collect();
        let signatures = (0..6).map(|place| {
            let from = number(draw, 200 + place, 60) as usize;
            let length = 4 + number(draw, 210 + place, 20) as usize;
            let mut bytes = text[from..from + length].to_vec();
            if number(draw, 220 + place, 3) == 0 {
                bytes[length / 2] ^= 3;
            }
            bytes
        });
        let signatures: BTreeSet<Vec<u8>> = signatures.collect();
        (text, signatures.into_iter().collect())
    }

    /// A part of the text: mostly short ones, now and then one that was there before.
    fn cut(draw: u64, step: u64) -> (usize, usize) {
        let step = step - number(draw, 1_000 + step, 4) / 3 * step.min(3);
        let from = number(draw, 300 + 2 * step, 90) as usize;
        let most = if number(draw, 500 + step, 3) == 0 {
            40
        } else {
            6
        };
        let length = 1 + number(draw, 301 + 2 * step, most) as usize;
        (from, (from + length).min(90))
    }

    /// The signatures in the parts of the text that are covered without a gap.
    fn covered(text: &[u8], seen: &[bool], signatures: &[Vec<u8>]) -> BTreeSet<usize> {
        let is_in = |signature: &Vec<u8>| {
            (0..=text.len() - signature.len()).any(|from| {
                let to = from + signature.len();
                text[from..to] == signature[..] && seen[from..to].iter().all(|seen| *seen)
            })
        };
        let all = signatures.iter().enumerate();
        all.filter(|(_, signature)| is_in(signature))
            .map(|(place, _)| place)
            .collect()
    }

    /// A stream, from a sequence number on.
    struct Read {
        finder: Finder,
        begin: u32,
        runs: Runs,
        found: BTreeSet<usize>,
        gaps: u32,
    }

    impl Read {
        fn new(signatures: &[Vec<u8>], begin: u32) -> Self {
            let list: Vec<&[u8]> = signatures.iter().map(|bytes| &bytes[..]).collect();
            Self {
                finder: finder(&list),
                begin,
                runs: Runs::default(),
                found: BTreeSet::new(),
                gaps: 0,
            }
        }

        fn take(&mut self, at: usize, payload: &[u8]) {
            let (stream, mut found) = (stream(), Found::default());
            self.finder.find(payload, &stream, &mut found);
            let edges = self.finder.edges(payload, 1);
            let run = Run::of(self.begin.wrapping_add(at as u32), payload, edges);
            let taken = self.finder.take(&self.runs, Some(run), &stream, &mut found);
            // As it comes to another instance.
            let mut bytes = Vec::new();
            taken.runs.encode(&mut Writer::new(&mut bytes, &[]));
            let runs = Runs::decode(&mut Reader::new(&bytes, &[]));
            assert_eq!(runs, Ok(taken.runs));
            (self.runs, self.gaps) = (taken.runs, self.gaps + taken.gaps);
            let all = found.all().iter();
            self.found.extend(all.map(|place| usize::from(*place)));
        }
    }

    #[test]
    fn what_is_found_is_what_lies_in_bytes_without_a_gap() {
        let (mut compared, mut across, mut given_up) = (0, 0, 0);
        for draw in 0..700 {
            let (text, signatures) = text_and_signatures(draw);
            let begin = (number(draw, 1, 200) as u32).wrapping_sub(100);
            let mut read = Read::new(&signatures, begin);
            let mut seen = vec![false; text.len()];
            let mut whole = BTreeSet::new();
            for step in 0..60 {
                let (from, to) = cut(draw, step);
                read.take(from, &text[from..to]);
                seen[from..to].fill(true);
                let alone: Vec<bool> = (0..text.len()).map(|at| at >= from && at < to).collect();
                whole.extend(covered(&text, &alone, &signatures));
                let wanted = covered(&text, &seen, &signatures);
                assert!(read.found.is_subset(&wanted), "{draw} {step}");
                if read.gaps > 0 {
                    given_up += 1;
                    break;
                }
                assert_eq!(read.found, wanted, "{draw} {step}");
                compared += 1;
            }
            across += read.found.difference(&whole).count();
        }
        assert!(
            compared > 20_000 && across > 300 && (15..600).contains(&given_up),
            "{compared} {across} {given_up}"
        );
    }

    #[test]
    fn runs_come_back_from_the_wire_and_bad_ones_do_not() {
        let decode = |bytes: &[u8]| Runs::decode(&mut Reader::new(bytes, &[]));
        let run = |begin: u8, length: u8, head: u8, tail: u8| {
            [begin, 0, 0, 0, length, 0, 0, 0, 0, head, 0, 0, tail]
        };
        let many = |runs: &[[u8; 13]]| [&[runs.len() as u8][..], &runs.concat()].concat();
        let right = many(&[run(1, 2, 2, 63), run(9, 1, 0, 0)]);
        assert!(decode(&right).is_ok());
        for length in 0..right.len() {
            assert_eq!(decode(&right[..length]), Err(BadBytes));
        }
        for (bytes, why) in [
            (many(&[run(9, 1, 0, 0), run(1, 1, 0, 0)]), "out of order"),
            (many(&[run(9, 1, 0, 0); 2]), "twice"),
            (many(&[run(9, 4, 0, 0), run(10, 2, 0, 0)]), "one in another"),
            (many(&[run(9, 1, 0, 0), run(9, 2, 0, 0)]), "another in one"),
            (many(&[run(9, 0, 0, 0)]), "no byte"),
            (many(&[run(9, 1, 2, 0)]), "a head longer than the run"),
            (many(&[run(9, 1, 0, 64)]), "a tail longer than a part"),
        ] {
            assert_eq!(decode(&bytes), Err(BadBytes), "{why}");
        }
        let nine: Vec<[u8; 13]> = (0..9).map(|place| run(10 * place, 1, 0, 0)).collect();
        assert_eq!(decode(&many(&nine)), Err(BadBytes), "more than fit");
        assert!(decode(&many(&nine[..8])).is_ok());
        assert_eq!(many(&nine[..8]).len(), Runs::BYTES_MAX);
    }

    #[test]
    fn of_two_that_did_not_know_of_each_other_the_longer_counts() {
        let run = |begin, length| Run {
            begin,
            length,
            ..NONE
        };
        let all = [
            Runs::default(),
            Runs::of(&[run(7, 1)]),
            Runs::of(&[run(9, 1)]),
            Runs::of(&[run(2, 1), run(5, 2)]),
            Runs::of(&[run(1, 9)]),
        ];
        for (place, one) in all.iter().enumerate() {
            for (other_place, other) in all.iter().enumerate() {
                assert_eq!(one.order(other), place.cmp(&other_place));
            }
        }
    }

    #[test]
    fn long_runs_keep_their_last_half_and_their_tail() {
        let mut read = Read::new(&[b"EVIL-stuf7+X".to_vec()], u32::MAX - 5_000);
        let filler = vec![b'.'; 60_000];
        let mut at = 0;
        for _ in 0..400 {
            read.take(at, &filler);
            at += filler.len();
        }
        let [run] = read.runs.all() else {
            panic!("{:?}", read.runs);
        };
        assert!((RUN_BYTES_MAX / 2..=RUN_BYTES_MAX).contains(&run.length));
        assert_eq!(run.end(), read.begin.wrapping_add(at as u32));
        read.take(at, b"..EVIL-");
        read.take(at + 7, b"stuf7+X");
        assert_eq!(read.found.len(), 1);
    }

    #[test]
    fn after_a_syn_earlier_bytes_are_read_again_and_nothing_is_hidden() {
        let mut read = Read::new(&[b"EVIL-stuf7+X".to_vec()], 1_000);
        read.take(0, b"harmless EVIL-st");
        assert_eq!(read.runs.begun_at(1_016), None, "right behind it");
        let begun = read.runs.begun_at(1_004).expect("it lies within");
        assert_eq!(begun.all().len(), 1);
        assert_eq!((begun.all()[0].begin, begun.all()[0].length), (1_015, 1));
        read.runs = begun;
        assert_eq!(begun.begun_at(1_004), None, "the same one sent again");
        // The receiver ignored it: the stream goes on.
        read.take(16, b"uf7+X");
        assert_eq!(read.found.len(), 1);
        // The receiver did not: other bytes come under the same numbers.
        let mut read = Read::new(&[b"EVIL-stuf7+X".to_vec()], 1_000);
        read.take(0, b"harmless text");
        read.runs = read.runs.begun_at(1_004).expect("it lies within");
        read.take(4, b"EVIL-");
        read.take(9, b"stuf7+X");
        assert_eq!(read.found.len(), 1);
    }
}
