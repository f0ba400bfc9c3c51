//! One origin's stream as it arrives: the prefix, the extras above it, and what waits for its turn.

use crate::mutant::{self, Mutant};
use crate::{Incarnation, MemberId};

use super::Deliver;
use super::config::Delivery;
use super::counters::Counters;
use super::wire::Groups;

/// The receiving side of one stream.
#[derive(Debug)]
pub(super) struct Inbound {
    origin: MemberId,
    delivery: Delivery,
    /// Delivered up to here, without a gap.
    received: u64,
    /// Applied here up to here, without a gap; never beyond `received`.
    applied: u64,
    /// A bit for each extra, by its sequence modulo the window. All extras are within the window above `received`.
    present: Box<[u64]>,
    extras: usize,
    /// The greatest sequence that ever was an extra.
    highest: u64,
    window: u64,
    unapplied_max: u64,
    /// How often the prefix went on further along, over groups that were not delivered.
    jumps: u32,
    /// The bytes of the extras, in their slots; empty when delivery is unordered. A slot keeps its capacity.
    waiting: Box<[Vec<u8>]>,
}

/// What a frame of records did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Something was new.
    pub(super) new: bool,
    /// A gap stands below what arrived.
    pub(super) gap: bool,
}

impl Inbound {
    pub(super) fn new(
        origin: MemberId,
        delivery: Delivery,
        window: usize,
        unapplied_max: usize,
    ) -> Inbound {
        let slots = window.next_power_of_two();
        let waiting = match delivery {
            Delivery::Ordered => vec![Vec::new(); slots].into(),
            Delivery::Unordered => Box::default(),
        };
        Inbound {
            origin,
            delivery,
            received: 0,
            applied: 0,
            present: vec![0; slots.div_ceil(64)].into(),
            extras: 0,
            highest: 0,
            window: window as u64,
            unapplied_max: unapplied_max as u64,
            jumps: 0,
            waiting,
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// The greatest sequence that was delivered.
    pub(super) fn reaches(&self) -> u64 {
        match self.delivery {
            Delivery::Unordered if self.extras > 0 => self.highest.max(self.received),
            _ => self.received,
        }
    }

    /// The greatest sequence that arrived.
    pub(super) fn end(&self) -> u64 {
        match self.extras {
            0 => self.received,
            _ => self.highest.max(self.received),
        }
    }

    /// Whether all of these arrived.
    pub(super) fn has_all(&self, first: u64, last: u64) -> bool {
        let first = first.max(self.received + 1);
        first > last || (last <= self.end() && self.skip(first, true) > last)
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// How often a snapshot, or where the stream begins, took the prefix over groups that were not delivered.
    pub(super) fn jumps(&self) -> u32 {
        self.jumps
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(self.applied <= self.received);
        debug_assert!(self.extras as u64 <= self.window);
        debug_assert!(
            self.extras == 0 || self.highest <= self.received + self.window,
            "extras are within the window"
        );
        debug_assert!(
            self.extras == 0 || !self.is_present(self.received + 1),
            "the next group is not an extra"
        );
    }

    /// The bits of all extras; a look at the whole window.
    fn count_present(&self) -> usize {
        let words = self.present.iter();
        words.map(|word| word.count_ones() as usize).sum()
    }

    fn bit(&self, sequence: u64) -> (usize, u64) {
        let slot = sequence as usize & (self.present.len() * 64 - 1);
        (slot / 64, 1 << (slot % 64))
    }

    fn is_present(&self, sequence: u64) -> bool {
        let (word, bit) = self.bit(sequence);
        self.present[word] & bit != 0
    }

    fn slot(&self, sequence: u64) -> usize {
        sequence as usize & (self.waiting.len() - 1)
    }

    /// Takes the groups of a frame.
    pub(super) fn take(
        &mut self,
        incarnation: Incarnation,
        groups: Groups<'_>,
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) -> Arrival {
        let mut arrival = Arrival::default();
        if groups.end - 1 <= self.received && !mutant::active(Mutant::DuplicatesDelivered) {
            counters.groups_duplicate += groups.end - groups.first;
            return arrival;
        }
        for (sequence, group) in (groups.first..).zip(groups) {
            // The common case first: the next one, nothing waiting.
            if sequence == self.received + 1 && sequence - self.applied <= self.unapplied_max {
                deliver.group(self.origin, incarnation, sequence, group);
                self.received = sequence;
                counters.groups_delivered += 1;
                arrival.new = true;
                if self.extras > 0 {
                    self.drain(incarnation, counters, deliver);
                }
            } else {
                self.take_apart(
                    incarnation,
                    sequence,
                    group,
                    counters,
                    deliver,
                    &mut arrival,
                );
            }
        }
        self.assert_sound();
        arrival
    }

    /// A group that is not simply the next.
    fn take_apart(
        &mut self,
        incarnation: Incarnation,
        sequence: u64,
        group: &[u8],
        counters: &mut Counters,
        deliver: &mut impl Deliver,
        arrival: &mut Arrival,
    ) {
        if sequence <= self.received {
            return self.take_again(incarnation, sequence, group, counters, deliver);
        }
        if sequence - self.applied > self.unapplied_max {
            counters.groups_beyond_unapplied += 1;
            return;
        }
        arrival.gap = true;
        if sequence - self.received > self.window {
            return self.drop_beyond_window(sequence, counters);
        }
        if self.is_present(sequence) {
            counters.groups_duplicate += 1;
            return;
        }
        arrival.new = true;
        self.keep_early(incarnation, sequence, group, counters, deliver);
    }

    /// A group of the prefix: it came before.
    fn take_again(
        &mut self,
        incarnation: Incarnation,
        sequence: u64,
        group: &[u8],
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) {
        counters.groups_duplicate += 1;
        if mutant::active(Mutant::DuplicatesDelivered) {
            deliver.group(self.origin, incarnation, sequence, group);
        }
    }

    /// A group too far above the prefix. It is sent again.
    fn drop_beyond_window(&mut self, sequence: u64, counters: &mut Counters) {
        counters.groups_beyond_reorder += 1;
        if mutant::active(Mutant::ReorderDropsSilently) {
            self.clear_through(sequence);
            self.received = sequence;
        }
    }

    /// A new group above a gap: an extra, which is delivered now or waits for its turn.
    fn keep_early(
        &mut self,
        incarnation: Incarnation,
        sequence: u64,
        group: &[u8],
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) {
        let (word, bit) = self.bit(sequence);
        self.present[word] |= bit;
        self.extras += 1;
        self.highest = self.highest.max(sequence);
        counters.groups_early += 1;
        match self.delivery {
            Delivery::Ordered => {
                let slot = self.slot(sequence);
                let waiting = &mut self.waiting[slot];
                waiting.clear();
                waiting.extend_from_slice(group);
            }
            Delivery::Unordered => {
                counters.groups_delivered += 1;
                deliver.group(self.origin, incarnation, sequence, group);
            }
        }
    }

    /// Moves the prefix over the extras that follow it.
    fn drain(
        &mut self,
        incarnation: Incarnation,
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) {
        while self.extras > 0 && self.is_present(self.received + 1) {
            let sequence = self.received + 1;
            let (word, bit) = self.bit(sequence);
            self.present[word] &= !bit;
            self.extras -= 1;
            self.received = sequence;
            if self.delivery == Delivery::Ordered {
                counters.groups_delivered += 1;
                let slot = self.slot(sequence);
                deliver.group(self.origin, incarnation, sequence, &self.waiting[slot]);
                if self.extras == 0 && mutant::active(Mutant::LastWaitingTwice) {
                    deliver.group(self.origin, incarnation, sequence, &self.waiting[slot]);
                }
            }
        }
    }

    /// All local instances applied up to `sequence`. Whether that was news.
    pub(super) fn set_applied(&mut self, sequence: u64) -> bool {
        let sequence = sequence.min(self.received);
        let news = sequence > self.applied;
        self.applied = self.applied.max(sequence);
        self.assert_sound();
        news
    }

    /// A snapshot covers everything up to `sequence`: both prefixes jump, and what had waited above is delivered.
    pub(super) fn cover(
        &mut self,
        incarnation: Incarnation,
        sequence: u64,
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) {
        if sequence > self.received {
            let unordered = self.delivery == Delivery::Unordered;
            let cleared = self.clear_through(sequence);
            let delivered_already = if unordered { cleared } else { 0 };
            counters.groups_covered_by_snapshot += sequence - self.received - delivered_already;
            self.jumps += 1;
            self.received = sequence;
            self.drain(incarnation, counters, deliver);
        }
        self.applied = self.applied.max(sequence);
        self.assert_sound();
        debug_assert_eq!(self.extras, self.count_present());
    }

    /// A newcomer is sent this stream from here on; a snapshot brings what was before, or did already.
    pub(super) fn begin_at(&mut self, base: u64) {
        debug_assert!(self.extras == 0, "nothing is taken before");
        self.jumps += u32::from(base > self.received);
        self.received = self.received.max(base);
        self.applied = self.applied.max(base);
    }

    /// The stream has ended: what waits above gaps is delivered, and nothing more is taken. How far the prefix reached, how
    /// far anything did, and how many groups are missing between.
    pub(super) fn close(
        &mut self,
        incarnation: Incarnation,
        counters: &mut Counters,
        deliver: &mut impl Deliver,
    ) -> (u64, u64, u64) {
        let (prefix, mut highest) = (self.received, self.received);
        let had = self.extras as u64;
        while self.extras > 0 {
            let first = self.skip(highest + 1, false);
            let end = self.skip(first, true);
            for sequence in first..end {
                if self.delivery == Delivery::Ordered {
                    counters.groups_delivered += 1;
                    let slot = self.slot(sequence);
                    deliver.group(self.origin, incarnation, sequence, &self.waiting[slot]);
                }
            }
            self.extras -= ((end - first) as usize).min(self.extras);
            highest = end - 1;
        }
        (prefix, highest, highest - prefix - had)
    }

    /// Forgets the extras up to `sequence`; how many those were.
    fn clear_through(&mut self, sequence: u64) -> u64 {
        let before = self.extras;
        let last = sequence.min(self.highest);
        let mut at = self.received + 1;
        while self.extras > 0 && at <= last {
            let (word, bit) = self.bit(at);
            if self.present[word] & bit != 0 {
                self.present[word] &= !bit;
                self.extras -= 1;
            }
            at += 1;
        }
        (before - self.extras) as u64
    }

    /// The runs present above the prefix, at most [`RUNS_MAX`]. Whether all are there.
    pub(super) fn runs(&self, most: usize, out: &mut Vec<(u64, u64)>) -> bool {
        out.clear();
        let mut left = self.extras;
        let mut at = self.received + 2;
        while left > 0 {
            at = self.skip(at, false);
            let end = self.skip(at, true);
            if out.len() == most {
                return false;
            }
            left -= ((end - at) as usize).min(left);
            let first = if mutant::active(Mutant::GapOffByOne) {
                at - 1
            } else {
                at
            };
            out.push((first, end - 1));
            at = end;
        }
        true
    }

    /// The first sequence from `at` on that is not as `present` says. Ends, because one is missing just above the window
    /// and, when called for absence, one is present.
    fn skip(&self, mut at: u64, present: bool) -> u64 {
        let limit = self.received + self.window;
        while at <= limit {
            let (word, bit) = self.bit(at);
            let bits = self.present[word];
            if bit == 1 && bits == (if present { u64::MAX } else { 0 }) && at + 64 <= limit {
                at += 64;
            } else if (bits & bit != 0) == present {
                at += 1;
            } else {
                break;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Frame, Frames, RUNS_MAX};
    use super::*;
    use crate::envelope::{KIND_RECORDS, Reader, write_frame, write_varint};

    struct Seen(Vec<u64>);

    impl Deliver for Seen {
        fn group(&mut self, _: MemberId, _: Incarnation, sequence: u64, group: &[u8]) {
            assert_eq!(group, sequence.to_le_bytes());
            self.0.push(sequence);
        }
    }

    fn take(
        inbound: &mut Inbound,
        sequences: core::ops::RangeInclusive<u64>,
        seen: &mut Seen,
    ) -> Counters {
        let mut body = Vec::new();
        write_varint(&mut body, *sequences.start());
        for sequence in sequences {
            body.push(8);
            body.extend(sequence.to_le_bytes());
        }
        let mut frame = Vec::new();
        write_frame(&mut frame, KIND_RECORDS, &body);
        let mut counters = Counters::default();
        for frame in Frames::new(Reader::new(&frame)) {
            let Ok(Frame::Records(groups)) = frame else {
                panic!("not records")
            };
            inbound.take(Incarnation(1), groups, &mut counters, seen);
        }
        counters
    }

    #[test]
    fn ordered_delivery_waits_and_lists_what_is_present() {
        let mut inbound = Inbound::new(MemberId(1), Delivery::Ordered, 100, 1_000);
        let mut seen = Seen(Vec::new());
        take(&mut inbound, 1..=2, &mut seen);
        take(&mut inbound, 5..=6, &mut seen);
        take(&mut inbound, 8..=90, &mut seen);
        assert_eq!(seen.0, [1, 2]);
        let mut runs = Vec::new();
        assert!(inbound.runs(RUNS_MAX, &mut runs));
        assert_eq!(runs, [(5, 6), (8, 90)]);
        let counters = take(&mut inbound, 100..=104, &mut seen);
        assert_eq!(
            counters.groups_beyond_reorder, 2,
            "102 is the last of the window"
        );
        take(&mut inbound, 3..=4, &mut seen);
        assert_eq!(seen.0, [1, 2, 3, 4, 5, 6]);
        take(&mut inbound, 7..=7, &mut seen);
        assert_eq!(inbound.received(), 90);
        assert!(inbound.set_applied(1_000));
        assert_eq!(inbound.applied(), 90, "no more than was delivered");
        inbound.cover(Incarnation(1), 99, &mut Counters::default(), &mut seen);
        assert_eq!((inbound.received(), inbound.applied()), (102, 99));
        assert!(inbound.runs(RUNS_MAX, &mut runs) && runs.is_empty());
    }

    #[test]
    fn unordered_delivery_is_at_once_and_once() {
        let mut inbound = Inbound::new(MemberId(1), Delivery::Unordered, 64, 1_000);
        let mut seen = Seen(Vec::new());
        take(&mut inbound, 3..=4, &mut seen);
        take(&mut inbound, 1..=4, &mut seen);
        take(&mut inbound, 1..=4, &mut seen);
        assert_eq!(seen.0, [3, 4, 1, 2]);
        assert_eq!(inbound.received(), 4);
    }

    #[test]
    fn what_waits_to_be_applied_is_bounded() {
        let mut inbound = Inbound::new(MemberId(1), Delivery::Ordered, 64, 10);
        let mut seen = Seen(Vec::new());
        let counters = take(&mut inbound, 1..=20, &mut seen);
        assert_eq!((seen.0.len(), counters.groups_beyond_unapplied), (10, 10));
        inbound.set_applied(5);
        take(&mut inbound, 11..=20, &mut seen);
        assert_eq!(seen.0.len(), 15);
    }

    #[test]
    fn runs_are_right_for_any_pattern() {
        // A brute force over pseudo-random patterns, against the words' fast path.
        let mut state = 9u64;
        for _ in 0..300 {
            let mut inbound = Inbound::new(MemberId(1), Delivery::Unordered, 512, 10_000);
            let mut seen = Seen(Vec::new());
            let base = state % 1_000;
            inbound.cover(Incarnation(1), base, &mut Counters::default(), &mut seen);
            let mut at = base + 2;
            let mut expected = Vec::new();
            while at < base + 500 && expected.len() < RUNS_MAX {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let last = (at + (state >> 33) % 140).min(base + 512);
                take(&mut inbound, at..=last, &mut seen);
                expected.push((at, last));
                at = last + 2 + (state >> 20) % 90;
            }
            let mut runs = Vec::new();
            assert!(inbound.runs(RUNS_MAX, &mut runs));
            assert_eq!(runs, expected);
        }
    }
}
