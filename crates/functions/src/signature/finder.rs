//! Finds signatures in bytes, and pieces of them at the edges of a segment.
//!
//! Whole signatures: one automaton over all (Aho and Corasick 1975). Pieces: all ends of all signatures stand in one
//! sorted list, in which the first that begins with some bytes names these bytes alike on all instances. Of an edge only
//! the longest piece is taken: the shorter ones are parts of it. What several segments reported is put together by bytes, not
//! by signature: so signatures that begin alike need one piece, not one each.

use aho_corasick::automaton::OverlappingState;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

use asterism_function::objects::hash;

use super::config::{Carrier, Signature, SignatureConfig};
use super::flow::Stream;
use super::pieces::{PIECES_MAX, Piece, Pieces};
use crate::mutant::{self, Mutant};

/// Signatures found by one packet at most; further ones are left out and counted.
pub(super) const FOUND_MAX: usize = 7;

/// A signature must have so many times `min_piece` bytes if one may lack fewer than `min_piece` at its edges.
const TOLERANT: usize = 4;

/// Bytes up to which the automaton is made for speed: some kilobytes of it for each byte of a signature.
const FAST_BYTES_MAX: usize = 4_096;

/// Signatures that were found, by their places in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    places: [u16; FOUND_MAX],
    count: usize,
    /// There were more.
    pub(super) is_cut: bool,
}

impl Found {
    pub(super) fn all(&self) -> &[u16] {
        &self.places[..self.count]
    }
    /// Leaves out all beyond so many.
    pub(super) fn truncate(&mut self, most: usize) {
        self.is_cut |= self.count > most;
        self.count = self.count.min(most);
    }
    fn add(&mut self, place: u16) {
        if self.all().contains(&place) {
            return;
        }
        match self.places.get_mut(self.count) {
            Some(free) => {
                *free = place;
                self.count += 1;
            }
            None => self.is_cut = true,
        }
    }
}

/// A piece at an edge of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// Its first byte's place in the payload.
    pub(super) at: usize,
    pub(super) rank: u16,
    pub(super) length: usize,
    /// Whether the payload begins and ends with it.
    pub(super) open: (bool, bool),
}

/// A set of pairs of bytes, or of what threes of bytes hash to.
#[derive(Clone, Debug)]
struct Couples(Box<[u64; 1024]>);

impl Couples {
    fn new() -> Self {
        Self(Box::new([0; 1024]))
    }
    fn add(&mut self, couple: u16) {
        self.0[usize::from(couple >> 6)] |= 1 << (couple & 63);
    }
    #[inline(always)]
    fn has(&self, couple: u16) -> bool {
        self.0[usize::from(couple >> 6)] >> (couple & 63) & 1 == 1
    }
}

/// The signatures, ready to be found.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    signatures: Vec<Signature>,
    automaton: AhoCorasick,
    /// Different bytes, sorted.
    patterns: Vec<Box<[u8]>>,
    /// Which signatures have a pattern's bytes.
    meanings: Vec<Vec<u16>>,
    /// All ends of all patterns, as pattern and first byte, sorted by what they are; of equal ones the shortest part of its
    /// pattern first.
    ends: Vec<(u16, u8)>,
    /// First three bytes of patterns, and last three: most edges are none by these alone.
    first: Couples,
    last: Couples,
    /// Destination ports that some signature is looked for at: by TCP, by UDP.
    ports: [Couples; 2],
    /// Names the bytes of all patterns and the shortest piece.
    list: u32,
    /// Bytes of the longest piece there can be.
    piece_max: usize,
    piece_min: usize,
    /// Streams are reassembled: a signature is found whole or not at all.
    is_exact: bool,
}

impl Finder {
    /// Builds it from a configuration without faults.
    pub(super) fn new(config: &SignatureConfig) -> Self {
        let mut patterns: Vec<Box<[u8]>> = config
            .signatures
            .iter()
            .map(|signature| signature.bytes.clone().into_boxed_slice())
            .collect();
        patterns.sort();
        patterns.dedup();
        let mut meanings = vec![Vec::new(); patterns.len()];
        let mut ports = [Couples::new(), Couples::new()];
        for (place, signature) in config.signatures.iter().enumerate() {
            if let Ok(pattern) = patterns.binary_search_by(|bytes| (**bytes).cmp(&signature.bytes))
            {
                meanings[pattern].push(place as u16);
            }
            for (ports, other) in ports.iter_mut().zip([Carrier::Udp, Carrier::Tcp]) {
                if signature.carrier == other {
                    continue;
                }
                if signature.ports.is_empty() {
                    (0..=u16::MAX).for_each(|port| ports.add(port));
                }
                signature.ports.iter().for_each(|&port| ports.add(port));
            }
        }
        let (mut first, mut last) = (Couples::new(), Couples::new());
        for bytes in &patterns {
            first.add(three(&bytes[..3]));
            last.add(three(&bytes[bytes.len() - 3..]));
        }
        let mut ends: Vec<(u16, u8)> = patterns
            .iter()
            .enumerate()
            .flat_map(|(pattern, bytes)| (0..bytes.len()).map(move |at| (pattern as u16, at as u8)))
            .collect();
        let bytes_of =
            |&(pattern, at): &(u16, u8)| &patterns[usize::from(pattern)][usize::from(at)..];
        ends.sort_by(|one, other| {
            let by_bytes = bytes_of(one).cmp(bytes_of(other));
            by_bytes.then(other.1.cmp(&one.1)).then(one.0.cmp(&other.0))
        });
        let list = patterns
            .iter()
            .fold(config.min_piece.into(), |list, bytes| {
                hash::bytes(bytes, list)
            });
        let longest = patterns.iter().map(|bytes| bytes.len()).max().unwrap_or(1);
        let kind = if ends.len() <= FAST_BYTES_MAX {
            AhoCorasickKind::DFA
        } else {
            AhoCorasickKind::ContiguousNFA
        };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(kind))
            .build(&patterns)
            .expect("64 KiB of patterns are far below what an automaton can hold");
        Self {
            signatures: config.signatures.clone(),
            automaton,
            patterns,
            meanings,
            ends,
            first,
            last,
            ports,
            list: list as u32,
            piece_max: longest - 1,
            piece_min: config.min_piece.into(),
            is_exact: config.reassembly,
        }
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.automaton.memory_usage() + 8 * self.ends.len() + 4 * 8_192
    }

    /// A signature by its place in the list.
    pub(super) fn signature(&self, place: u16) -> &Signature {
        &self.signatures[usize::from(place)]
    }

    /// Names the list of bytes: equal on hosts that can share pieces.
    #[inline(always)]
    pub(super) fn list(&self) -> u32 {
        if mutant::active(Mutant::ListsMistaken) {
            return 0;
        }
        self.list
    }

    /// Whether any signature is looked for in a stream.
    #[inline(always)]
    pub(super) fn is_watched(&self, stream: &Stream) -> bool {
        self.ports[usize::from(!stream.is_tcp)].has(stream.destination.1)
    }

    /// Adds what `bytes` hold whole.
    #[inline(always)]
    pub(super) fn find(&self, bytes: &[u8], stream: &Stream, found: &mut Found) {
        if self.automaton.is_match(bytes) {
            self.find_all(bytes, stream, found);
        }
    }

    #[cold]
    fn find_all(&self, bytes: &[u8], stream: &Stream, found: &mut Found) {
        let (input, mut state) = (Input::new(bytes), OverlappingState::start());
        loop {
            self.automaton.find_overlapping(input.clone(), &mut state);
            let Some(one) = state.get_match() else { return };
            self.add(one.pattern().as_usize(), stream, found);
        }
    }

    fn add(&self, pattern: usize, stream: &Stream, found: &mut Found) {
        for &place in &self.meanings[pattern] {
            let signature = self.signature(place);
            let carried = match signature.carrier {
                Carrier::Tcp => stream.is_tcp,
                Carrier::Udp => !stream.is_tcp,
                Carrier::Any => true,
            };
            let ports = &signature.ports;
            if carried && (ports.is_empty() || ports.contains(&stream.destination.1)) {
                found.add(place);
            }
        }
    }

    /// The pieces at a payload's edges: the whole payload if it lies within a signature, else the longest at its begin and
    /// the longest at its end. Costs a bit looked up for each of up to 63 bytes at either edge, and a binary search for each
    /// that is set and two for what is shorter. The shortest have `least` bytes.
    #[inline(always)]
    pub(super) fn edges(&self, payload: &[u8], least: usize) -> [Option<Edge>; 2] {
        let length = payload.len();
        if length <= self.piece_max
            && let Some(rank) = self.rank(payload)
        {
            let open = (true, true);
            let whole = Edge {
                at: 0,
                rank,
                length,
                open,
            };
            return [Some(whole), None];
        }
        [
            self.first_edge(payload, least),
            self.last_edge(payload, least),
        ]
    }

    /// The longest piece that the payload begins with and a signature ends with.
    #[inline(always)]
    pub(super) fn first_edge(&self, payload: &[u8], least: usize) -> Option<Edge> {
        let head = &payload[..payload.len().min(self.piece_max)];
        for (at, bytes) in head.windows(3).enumerate().rev() {
            if self.last.has(three(bytes))
                && let Some(edge) = self.head_edge(&head[..at + 3])
            {
                return Some(edge);
            }
        }
        let mut short = (least..=2.min(head.len())).rev();
        short.find_map(|length| self.head_edge(&head[..length]))
    }

    fn head_edge(&self, head: &[u8]) -> Option<Edge> {
        let (rank, length) = (self.rank(head)?, head.len());
        self.is_end(rank, length).then_some(Edge {
            at: 0,
            rank,
            length,
            open: (true, false),
        })
    }

    /// The longest piece that the payload ends with and a signature begins with.
    #[inline(always)]
    pub(super) fn last_edge(&self, payload: &[u8], least: usize) -> Option<Edge> {
        let begin = payload.len() - payload.len().min(self.piece_max);
        let tail = &payload[begin..];
        for (at, bytes) in tail.windows(3).enumerate() {
            if self.first.has(three(bytes)) && self.is_begin(&tail[at..], least) {
                return self.tail_edge(payload, begin + at);
            }
        }
        let mut short = (least..=2.min(tail.len())).rev();
        let length = short.find(|length| self.is_begin(&tail[tail.len() - length..], least))?;
        self.tail_edge(payload, payload.len() - length)
    }

    fn tail_edge(&self, payload: &[u8], at: usize) -> Option<Edge> {
        Some(Edge {
            at,
            rank: self.rank(&payload[at..])?,
            length: payload.len() - at,
            open: (false, true),
        })
    }

    /// The first end of a pattern that begins with `bytes`.
    fn rank(&self, bytes: &[u8]) -> Option<u16> {
        let rank = self.ends.partition_point(|end| self.end(end) < bytes);
        let end = self.ends.get(rank)?;
        self.end(end).starts_with(bytes).then_some(rank as u16)
    }

    #[inline(always)]
    fn end(&self, &(pattern, at): &(u16, u8)) -> &[u8] {
        &self.patterns[usize::from(pattern)][usize::from(at)..]
    }

    /// Whether a pattern ends with these bytes and has others before.
    fn is_end(&self, rank: u16, length: usize) -> bool {
        let end = &self.ends[usize::from(rank)];
        end.1 > 0 && self.end(end).len() == length
    }

    /// Whether a pattern begins with these bytes and has others behind.
    fn is_begin(&self, bytes: &[u8], least: usize) -> bool {
        if bytes.len() < least {
            return false;
        }
        let place = self.patterns.partition_point(|pattern| **pattern <= *bytes);
        self.patterns
            .get(place)
            .is_some_and(|pattern| pattern.starts_with(bytes))
    }

    /// Whether the payload may be the begin of a signature.
    pub(super) fn may_begin(&self, payload: &[u8]) -> bool {
        self.is_begin(payload, if self.is_exact { 1 } else { self.piece_min })
    }

    /// So many bytes of the signature's end of this rank; none if it is not of this list.
    pub(super) fn bytes_of(&self, rank: u16, length: usize) -> &[u8] {
        let end = self.ends.get(usize::from(rank));
        end.and_then(|end| self.end(end).get(..length))
            .unwrap_or_default()
    }

    /// Adds what pieces hold when they are put together. Where two pieces disagree about a byte, that of the one
    /// that begins first counts.
    pub(super) fn put_together(&self, pieces: &Pieces, stream: &Stream, found: &mut Found) {
        let mut bytes = [0; PIECES_MAX * 64];
        let mut run = Run::default();
        for &piece in pieces.all() {
            let content = self.bytes_of(piece.rank, piece.length());
            if content.is_empty() {
                continue;
            }
            let offset = usize::from(piece.offset);
            if offset > run.begin + run.length || run.length == 0 {
                self.find_in_run(&bytes, &run, stream, found);
                run = Run {
                    begin: offset,
                    ..Run::default()
                };
            }
            run.open.0 |= offset == run.begin && piece.is_open_left();
            let known = run.begin + run.length - offset;
            if let Some(more) = content.get(known..) {
                if more.is_empty() {
                    run.open.1 |= piece.is_open_right();
                } else {
                    run.open.1 = piece.is_open_right();
                }
                bytes[run.length..run.length + more.len()].copy_from_slice(more);
                run.length += more.len();
            }
        }
        self.find_in_run(&bytes, &run, stream, found);
    }

    fn find_in_run(&self, bytes: &[u8], run: &Run, stream: &Stream, found: &mut Found) {
        let bytes = &bytes[..run.length];
        if bytes.len() < TOLERANT {
            return;
        }
        self.find(bytes, stream, found);
        if self.is_exact || self.piece_min == 1 || !(run.open.0 || run.open.1) {
            return;
        }
        for (place, pattern) in self.patterns.iter().enumerate() {
            if pattern.len() >= TOLERANT * self.piece_min && self.nearly(pattern, bytes, run.open) {
                self.add(place, stream, found);
            }
        }
    }

    /// Whether a run is a pattern, but for less than the shortest piece at an edge beyond which nothing is known.
    fn nearly(&self, pattern: &[u8], bytes: &[u8], open: (bool, bool)) -> bool {
        let lacks = |is_open: bool| 0..if is_open { self.piece_min } else { 1 };
        lacks(open.0).any(|left| {
            lacks(open.1).any(|right| {
                let rest = &pattern[left..pattern.len() - right];
                match (left, right) {
                    (0, 0) => false,
                    (0, _) => bytes.ends_with(rest),
                    (_, 0) => bytes.starts_with(rest),
                    _ => bytes == rest,
                }
            })
        })
    }

    /// Whether something is known that ends where `piece` begins, or reaches into it.
    pub(super) fn is_preceded(pieces: &Pieces, piece: Piece) -> bool {
        pieces
            .all()
            .iter()
            .any(|other| other.offset < piece.offset && other.end() >= usize::from(piece.offset))
    }
}

/// Bytes of a stream without a gap.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    begin: usize,
    length: usize,
    /// Whether nothing is known of what is before, and of what follows.
    open: (bool, bool),
}

#[inline(always)]
fn three(bytes: &[u8]) -> u16 {
    let pair = u16::from_be_bytes([bytes[0], bytes[1]]);
    pair ^ u16::from(bytes[2]).wrapping_mul(0x9e37)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finder(min_piece: u8, list: &[&[u8]]) -> Finder {
        let signatures = list.iter().enumerate().map(|(place, bytes)| Signature {
            id: place as u32 + 1,
            message: String::new(),
            bytes: bytes.to_vec(),
            carrier: Carrier::Any,
            ports: Vec::new(),
        });
        Finder::new(&SignatureConfig {
            min_piece,
            ..SignatureConfig::new(signatures.collect())
        })
    }

    fn texts(finder: &Finder, payload: &[u8]) -> Vec<(usize, String, (bool, bool))> {
        let edges = finder.edges(payload, finder.piece_min);
        let text = |edge: Edge| {
            let bytes = finder.bytes_of(edge.rank, edge.length);
            assert_eq!(bytes, &payload[edge.at..edge.at + edge.length]);
            (
                edge.at,
                String::from_utf8_lossy(bytes).into_owned(),
                edge.open,
            )
        };
        edges.into_iter().flatten().map(text).collect()
    }

    #[test]
    fn the_longest_piece_of_each_edge_is_taken() {
        let finder = finder(2, &[b"abcdefgh", b"ghxx", b"efghzz", b"defgh"]);
        let (first, last, whole) = ((true, false), (false, true), (true, true));
        assert_eq!(
            texts(&finder, b"efgh....................abcd"),
            [(0, "efgh".into(), first), (24, "abcd".into(), last)]
        );
        assert_eq!(
            texts(&finder, b"...abcdefgh"),
            [(7, "efgh".into(), last)],
            "the end is a begin of another one"
        );
        assert_eq!(texts(&finder, b"cde"), [(0, "cde".into(), whole)]);
        assert_eq!(
            texts(&finder, b"h........a"),
            [],
            "one byte is below the shortest piece"
        );
        assert_eq!(texts(&finder, b"................"), []);
    }

    #[test]
    fn every_end_and_begin_of_every_signature_is_an_edge() {
        let list: [&[u8]; 4] = [b"GET /a", b"GET /ab", b"\x00\x00\x00\x00\x00", b"aXbYcZdW"];
        for min_piece in 1..=3usize {
            let finder = finder(min_piece as u8, &list);
            for bytes in list {
                for cut in min_piece..=bytes.len() - min_piece {
                    let before = [&[0xEE; 80][..], &bytes[..cut]].concat();
                    let after = [&bytes[cut..], &[0xEE; 80][..]].concat();
                    assert_eq!(
                        finder.edges(&before, min_piece)[1].expect("an end").length,
                        cut
                    );
                    let first = finder.edges(&after, min_piece)[0].expect("a begin");
                    assert!(first.length >= bytes.len() - cut);
                }
            }
        }
    }
}
