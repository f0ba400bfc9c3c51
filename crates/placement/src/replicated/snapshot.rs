//! Serving a member that fell off the log, and being served: chunks of a snapshot over one member's link, each until it is
//! acknowledged (rule 15).

use core::time::Duration;

use crate::{Incarnation, MemberId, Time};

use super::SnapshotKind;
use super::wire::SnapshotAcknowledge;
use crate::membership::Held;

/// Chunks in flight to one lagging. At most 64, the bits of an acknowledgement.
pub(super) const SNAPSHOT_WINDOW_CHUNKS: usize = 32;

/// An incarnation's scans are numbered in this many bits, below bits of the incarnation's name.
const SCANS_OF_AN_INCARNATION_BITS: u32 = 16;

/// The numbers of scans that begin here: none that an earlier incarnation gave.
#[derive(Debug)]
pub(super) struct ScanNumbers {
    last: u32,
}

impl ScanNumbers {
    pub(super) fn new(incarnation: Incarnation) -> ScanNumbers {
        let name = (incarnation.0 ^ incarnation.0 >> 32) as u32;
        ScanNumbers {
            last: name << SCANS_OF_AN_INCARNATION_BITS,
        }
    }

    /// The number of a scan that begins.
    pub(super) fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }
}

/// A scan for one lagging, as its server sees it.
#[derive(Debug)]
pub(super) struct OutboundSnapshot {
    pub(super) scan: u32,
    /// For each origin what was applied here when the scan began.
    pub(super) vector: Vec<(MemberId, u64)>,
    /// What was applied here of ended incarnations when the scan began, first what its end should name if it cannot name all.
    pub(super) held: Vec<Held>,
    /// How many of them every end named that was sent.
    pub(super) named: usize,
    /// Since when it is known that all of it is joined.
    pub(super) joined_at: Option<Time>,
    chunks: Vec<Chunk>,
    /// The index of the next chunk.
    pub(super) next: u32,
    pub(super) finished: Option<SnapshotKind>,
    end_sent: Option<Time>,
    end_acknowledged: bool,
    backoff: u32,
}

#[derive(Debug, Default)]
struct Chunk {
    /// `None`: the slot is free.
    index: Option<u32>,
    bytes: Vec<u8>,
    /// `None`: it is to be sent.
    sent: Option<Time>,
    again: bool,
}

/// What of a scan is to be sent now.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Chunk {
        index: u32,
        bytes: &'a [u8],
        again: bool,
    },
    End,
}

impl OutboundSnapshot {
    pub(super) fn new(
        scan: u32,
        vector: Vec<(MemberId, u64)>,
        held: Vec<Held>,
    ) -> OutboundSnapshot {
        let chunks = (0..SNAPSHOT_WINDOW_CHUNKS)
            .map(|_| Chunk::default())
            .collect();
        OutboundSnapshot {
            scan,
            vector,
            named: held.len(),
            held,
            joined_at: None,
            chunks,
            next: 0,
            finished: None,
            end_sent: None,
            end_acknowledged: false,
            backoff: 0,
        }
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        let mut kept = self.chunks.iter().filter_map(|chunk| chunk.index);
        debug_assert!(kept.all(|index| {
            index < self.next && (self.next - index) as usize <= SNAPSHOT_WINDOW_CHUNKS
        }));
        debug_assert_eq!(self.end_acknowledged, self.joined_at.is_some());
        debug_assert!(self.named <= self.held.len());
    }

    /// How many chunks fit. The window spans indices, so a lost chunk holds back those far after it.
    pub(super) fn room(&self) -> usize {
        let oldest = self
            .chunks
            .iter()
            .filter_map(|chunk| chunk.index)
            .min()
            .unwrap_or(self.next);
        SNAPSHOT_WINDOW_CHUNKS - (self.next - oldest) as usize
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let Some(chunk) = self.chunks.iter_mut().find(|chunk| chunk.index.is_none()) else {
            return false;
        };
        chunk.index = Some(self.next);
        chunk.bytes.clear();
        chunk.bytes.extend_from_slice(bytes);
        chunk.sent = None;
        chunk.again = false;
        self.next += 1;
        self.assert_sound();
        true
    }

    /// Whether all of it is known to be joined.
    pub(super) fn is_joined(&self) -> bool {
        self.joined_at.is_some()
    }

    /// Whether something is to be sent now.
    pub(super) fn has_piece(&self) -> bool {
        self.chunks
            .iter()
            .any(|chunk| chunk.index.is_some() && chunk.sent.is_none())
            || (self.finished.is_some() && self.end_sent.is_none() && !self.end_acknowledged)
    }

    /// What is to be sent now, the lowest index first; it counts as sent.
    pub(super) fn take_piece(&mut self, now: Time) -> Option<Piece<'_>> {
        let next = self
            .chunks
            .iter_mut()
            .filter(|chunk| chunk.index.is_some() && chunk.sent.is_none())
            .min_by_key(|chunk| chunk.index);
        if let Some(chunk) = next {
            chunk.sent = Some(now);
            let again = core::mem::replace(&mut chunk.again, true);
            return Some(Piece::Chunk {
                index: chunk.index?,
                bytes: &chunk.bytes,
                again,
            });
        }
        if self.finished.is_some() && self.end_sent.is_none() && !self.end_acknowledged {
            self.end_sent = Some(now);
            return Some(Piece::End);
        }
        None
    }

    /// The lagging says what it has of a scan. True when it is news that all of this one is joined.
    pub(super) fn acknowledged(&mut self, now: Time, acknowledge: &SnapshotAcknowledge) -> bool {
        if acknowledge.scan != self.scan {
            return false;
        }
        for chunk in &mut self.chunks {
            let Some(index) = chunk.index else { continue };
            let has = match index.checked_sub(acknowledge.prefix) {
                None => true,
                Some(above) => above < 64 && acknowledge.bits >> above & 1 != 0,
            };
            if has {
                chunk.index = None;
                self.backoff = 0;
            }
        }
        // That the end arrived is not enough: it goes again, ever more rarely, until the snapshot is joined.
        let news = acknowledge.joined && self.joined_at.is_none();
        if news {
            self.end_acknowledged = true;
            self.joined_at = Some(now);
        }
        self.assert_sound();
        news
    }

    fn each_sent(&mut self) -> impl Iterator<Item = &mut Option<Time>> {
        let end = (!self.end_acknowledged).then_some(&mut self.end_sent);
        self.chunks
            .iter_mut()
            .filter(|chunk| chunk.index.is_some())
            .map(|chunk| &mut chunk.sent)
            .chain(end)
    }

    /// Sets to go again what was sent so long before an echoed message that it must be lost.
    pub(super) fn want_lost(&mut self, echoed: Time, reordering: Duration) {
        for sent in self.each_sent() {
            if sent.is_some_and(|at| at + reordering < echoed) {
                *sent = None;
            }
        }
    }

    fn wait(&self, timeout: Duration, most: Duration) -> Duration {
        timeout.saturating_mul(1 << self.backoff.min(20)).min(most)
    }

    /// Sets to go again what was sent longer than the timeout ago.
    pub(super) fn timed_out(&mut self, now: Time, timeout: Duration, most: Duration) {
        let wait = self.wait(timeout, most);
        let mut any = false;
        for sent in self.each_sent() {
            if sent.is_some_and(|at| at + wait <= now) {
                *sent = None;
                any = true;
            }
        }
        self.backoff += u32::from(any);
    }

    /// When the first of what was sent will have waited for the timeout.
    pub(super) fn deadline(&self, timeout: Duration, most: Duration) -> Option<Time> {
        let wait = self.wait(timeout, most);
        let end = if self.end_acknowledged {
            None
        } else {
            self.end_sent
        };
        let chunks = self
            .chunks
            .iter()
            .filter(|chunk| chunk.index.is_some())
            .filter_map(|chunk| chunk.sent);
        chunks.chain(end).min().map(|at| at + wait)
    }
}

/// A scan of another member, as the member that it serves sees it.
#[derive(Debug, Default)]
pub(super) struct InboundSnapshot {
    pub(super) scan: u32,
    /// Every chunk below arrived.
    prefix: u32,
    /// Bit n: the chunk `prefix + n` arrived.
    bits: u64,
    end: Option<(u32, SnapshotKind)>,
    pub(super) vector: Vec<(MemberId, u64)>,
    /// What it has of ended incarnations.
    pub(super) held: Vec<Held>,
    /// The end was delivered and the snapshot is not joined yet.
    pub(super) complete: bool,
    /// It is joined.
    pub(super) joined: bool,
    complete_once: bool,
    /// Something of a snapshot was delivered that is not joined, of this scan or an earlier one.
    pub(super) unjoined: bool,
    /// When to acknowledge.
    pub(super) acknowledge_at: Option<Time>,
}

impl InboundSnapshot {
    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(self.bits & 1 == 0, "the first missing chunk is missing");
        debug_assert!(self.complete_once || !(self.complete || self.joined));
        debug_assert!(!(self.complete && self.joined));
    }

    /// A frame of this scan arrived. Whether it is of the newest scan.
    fn is_newest(&mut self, scan: u32) -> bool {
        if scan > self.scan {
            let vector = core::mem::take(&mut self.vector);
            *self = InboundSnapshot {
                scan,
                vector,
                acknowledge_at: self.acknowledge_at,
                unjoined: self.unjoined,
                ..InboundSnapshot::default()
            };
            self.vector.clear();
        }
        scan == self.scan
    }

    /// A chunk arrived. Whether it is new and to be delivered.
    pub(super) fn chunk(&mut self, scan: u32, index: u32) -> bool {
        if !self.is_newest(scan) {
            return false;
        }
        let Some(above) = index.checked_sub(self.prefix).filter(|&above| above < 64) else {
            return false;
        };
        if self.bits >> above & 1 != 0 {
            return false;
        }
        self.bits |= 1 << above;
        self.unjoined = true;
        let whole = self.bits.trailing_ones();
        self.bits = self.bits.checked_shr(whole).unwrap_or(0);
        self.prefix = self.prefix.saturating_add(whole);
        self.assert_sound();
        true
    }

    /// The end arrived.
    pub(super) fn ended(
        &mut self,
        scan: u32,
        chunks: u32,
        kind: SnapshotKind,
        vector: impl Iterator<Item = (MemberId, u64)>,
        held: Vec<Held>,
    ) {
        if self.is_newest(scan) && self.end.is_none() {
            self.end = Some((chunks, kind));
            self.vector.clear();
            self.vector.extend(vector);
            self.held = held;
        }
    }

    /// Whether the snapshot just became complete: its end, and every chunk, arrived. True once per scan.
    pub(super) fn completes(&mut self, without_chunks: bool) -> Option<SnapshotKind> {
        let (chunks, kind) = self.end?;
        if self.complete_once || (self.prefix < chunks && !without_chunks) {
            return None;
        }
        self.complete = true;
        self.complete_once = true;
        self.assert_sound();
        Some(kind)
    }

    pub(super) fn acknowledge(&self) -> SnapshotAcknowledge {
        SnapshotAcknowledge {
            scan: self.scan,
            prefix: self.prefix,
            bits: self.bits,
            end: self.end.is_some(),
            joined: self.joined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_of_a_later_incarnation_have_greater_numbers() {
        let [mut before, mut after] = [1, 2].map(|name| ScanNumbers::new(Incarnation(name)));
        assert_eq!((before.next(), before.next()), (0x1_0001, 0x1_0002));
        assert_eq!(after.next(), 0x2_0001);
    }

    #[test]
    fn a_window_of_chunks_gets_through_with_loss() {
        let mut out = OutboundSnapshot::new(1, vec![(MemberId(1), 9)], Vec::new());
        let mut into = InboundSnapshot::default();
        let mut delivered = vec![0u32; 500];
        let (timeout, most) = (Duration::from_micros(10), Duration::from_millis(1));
        let mut state = 5u64;
        for round in 0..10_000u64 {
            let now = Time(round * 20);
            while out.next < 500 && out.push(&[1, 2, 3]) {}
            if out.next == 500 {
                out.finished = Some(SnapshotKind::Changes);
            }
            out.timed_out(now, timeout, most);
            while let Some(piece) = out.take_piece(now) {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                match piece {
                    _ if state >> 62 == 0 => {}
                    Piece::Chunk { index, .. } => {
                        delivered[index as usize] += u32::from(into.chunk(1, index))
                    }
                    Piece::End => {
                        let vector = [(MemberId(1), 9)].into_iter();
                        into.ended(1, 500, SnapshotKind::Changes, vector, Vec::new());
                    }
                }
            }
            if state >> 61 & 1 == 0 {
                out.acknowledged(now, &into.acknowledge());
            }
            if into.completes(false).is_some() {
                assert!(!out.is_joined() && !into.acknowledge().joined);
                assert!(delivered.iter().all(|&times| times == 1));
                assert_eq!(into.vector, [(MemberId(1), 9)]);
                assert!(into.completes(false).is_none());
                assert!(!into.chunk(1, 3) && !into.chunk(0, 700));
                assert!(into.chunk(2, 0), "a newer scan begins again");
                return;
            }
        }
        panic!("never complete");
    }
}
