//! The own groups that somebody may still need: a byte ring and the ends of the groups in it.
//!
//! A group is kept as it travels, its length before it, so that sending a run of groups copies one range.

use super::audit::of_group;
use crate::envelope::varint_bytes;

/// The log. Positions in the ring are offsets counted from the start of time; they wrap only when the memory is touched.
#[derive(Debug)]
pub(super) struct Log {
    bytes: Box<[u8]>,
    bytes_max: usize,
    /// For a kept sequence the offset after it.
    ends: Box<[u64]>,
    /// For a kept sequence the sum of the digests of all groups up to it, those that were pruned included.
    digests: Box<[u64]>,
    groups_max: usize,
    /// The last sequence that was pruned.
    pruned: u64,
    /// The offset after it.
    pruned_end: u64,
    /// The sum of digests up to it.
    pruned_digest: u64,
    /// The last sequence.
    head: u64,
    /// The offset after it.
    head_end: u64,
}

impl Log {
    pub(super) fn new(bytes_max: usize, groups_max: usize) -> Log {
        Log {
            bytes: vec![0; bytes_max.next_power_of_two()].into(),
            bytes_max,
            ends: vec![0; groups_max.next_power_of_two()].into(),
            digests: vec![0; groups_max.next_power_of_two()].into(),
            groups_max,
            pruned: 0,
            pruned_end: 0,
            pruned_digest: 0,
            head: 0,
            head_end: 0,
        }
    }

    /// What holds after every change.
    fn assert_sound(&self) {
        debug_assert!(self.pruned <= self.head && self.pruned_end <= self.head_end);
        debug_assert!(self.groups() <= self.groups_max && self.bytes() <= self.bytes_max);
        // A group takes a byte at least, and one that is kept is found by its end.
        debug_assert!(self.groups() <= self.bytes());
        debug_assert_eq!(self.end_of(self.head), self.head_end);
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    pub(super) fn pruned(&self) -> u64 {
        self.pruned
    }

    pub(super) fn groups(&self) -> usize {
        (self.head - self.pruned) as usize
    }

    pub(super) fn bytes(&self) -> usize {
        (self.head_end - self.pruned_end) as usize
    }

    pub(super) fn room(&self) -> (usize, usize) {
        (
            self.groups_max - self.groups(),
            self.bytes_max - self.bytes(),
        )
    }

    /// Whether three quarters of the groups or bytes are taken.
    #[inline]
    pub(super) fn is_high(&self) -> bool {
        self.groups() >= self.groups_max / 4 * 3 || self.bytes() >= self.bytes_max / 4 * 3
    }

    /// Whether what lies above `above`, up to `through`, takes more than half of the groups or bytes.
    pub(super) fn is_half(&self, above: u64, through: u64) -> bool {
        let above = above.clamp(self.pruned, self.head);
        let through = through.clamp(above, self.head);
        (through - above) as usize > self.groups_max / 2
            || (self.end_of(through) - self.end_of(above)) as usize > self.bytes_max / 2
    }

    /// Appends a group of at most 16,383 bytes. `false`, and nothing changed, when there is no room.
    #[inline]
    pub(super) fn append(&mut self, group: &[u8]) -> bool {
        debug_assert!(group.len() < 1 << 14, "its length takes two bytes");
        let length = varint_bytes(group.len() as u64) + group.len();
        let (groups_room, bytes_room) = self.room();
        if groups_room == 0 || bytes_room < length {
            return false;
        }
        let mask = self.bytes.len() - 1;
        let mut at = self.head_end as usize & mask;
        if length > group.len() + 1 {
            self.bytes[at] = group.len() as u8 | 0x80;
            at = (at + 1) & mask;
            self.bytes[at] = (group.len() >> 7) as u8;
        } else {
            self.bytes[at] = group.len() as u8;
        }
        at = (at + 1) & mask;
        let straight = group.len().min(self.bytes.len() - at);
        self.bytes[at..at + straight].copy_from_slice(&group[..straight]);
        if straight < group.len() {
            self.bytes[..group.len() - straight].copy_from_slice(&group[straight..]);
        }
        let digest = self.digest_through(self.head);
        self.head += 1;
        self.head_end += length as u64;
        let ends_mask = self.ends.len() as u64 - 1;
        self.ends[(self.head & ends_mask) as usize] = self.head_end;
        let digest = digest.wrapping_add(of_group(self.head, group));
        self.digests[(self.head & ends_mask) as usize] = digest;
        self.assert_sound();
        true
    }

    /// The sum, modulo 2⁶⁴, of the digests of all groups up to a kept sequence, or to the last pruned one.
    #[inline]
    pub(super) fn digest_through(&self, sequence: u64) -> u64 {
        if sequence <= self.pruned {
            return self.pruned_digest;
        }
        self.digests[(sequence & (self.digests.len() as u64 - 1)) as usize]
    }

    /// The offset after a kept sequence, or after the last pruned one.
    #[inline]
    fn end_of(&self, sequence: u64) -> u64 {
        debug_assert!(sequence >= self.pruned && sequence <= self.head);
        if sequence <= self.pruned {
            return self.pruned_end;
        }
        self.ends[(sequence & (self.ends.len() as u64 - 1)) as usize]
    }

    /// Bytes of all groups up to `sequence`, since the start; of what was pruned, up to the last pruned one.
    pub(super) fn bytes_through(&self, sequence: u64) -> u64 {
        self.end_of(sequence.clamp(self.pruned, self.head))
    }

    /// Bytes that the groups `first..=last` take in a frame.
    pub(super) fn run_bytes(&self, first: u64, last: u64) -> usize {
        (self.end_of(last) - self.end_of(first - 1)) as usize
    }

    /// The last sequence of the longest run of whole groups from `first` on that takes at most `bytes_max`; `first - 1`
    /// when not one fits.
    #[inline]
    pub(super) fn longest_run(&self, first: u64, bytes_max: usize) -> u64 {
        let limit = self.end_of(first - 1) + bytes_max as u64;
        let mut last = first - 1;
        while last < self.head && self.end_of(last + 1) <= limit {
            last += 1;
        }
        last
    }

    /// Appends the groups `first..=last`, each with its length before it.
    pub(super) fn copy_run(&self, first: u64, last: u64, out: &mut Vec<u8>) {
        debug_assert!(self.pruned < first && first <= last && last <= self.head);
        let (from, to) = (self.end_of(first - 1), self.end_of(last));
        let mask = self.bytes.len() as u64 - 1;
        let (at, length) = ((from & mask) as usize, (to - from) as usize);
        let straight = length.min(self.bytes.len() - at);
        out.extend_from_slice(&self.bytes[at..at + straight]);
        out.extend_from_slice(&self.bytes[..length - straight]);
    }

    /// Forgets the groups up to `through`; how many that were.
    pub(super) fn prune(&mut self, through: u64) -> u64 {
        let through = through.min(self.head);
        if through <= self.pruned {
            return 0;
        }
        let count = through - self.pruned;
        self.pruned_end = self.end_of(through);
        self.pruned_digest = self.digest_through(through);
        self.pruned = through;
        self.assert_sound();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_wrap_around_the_ring_and_come_out_as_they_went_in() {
        let mut log = Log::new(5_000, 8);
        let mut submitted = Vec::new();
        for round in 0..2_000u64 {
            let group: Vec<u8> = (0..1 + round * 37 % 1_200)
                .map(|i| (i + round) as u8)
                .collect();
            if !log.append(&group) {
                let first = log.pruned() + 1;
                let mut out = Vec::new();
                log.copy_run(first, first, &mut out);
                let expected: &Vec<u8> = &submitted[first as usize - 1];
                let prefix = varint_bytes(expected.len() as u64);
                assert_eq!(&out[prefix..], &expected[..]);
                assert_eq!(log.run_bytes(first, first), out.len());
                assert_eq!(log.prune(first + 1), (log.head() > first) as u64 + 1);
                continue;
            }
            submitted.push(group);
        }
        assert!(submitted.len() > 900);
    }

    #[test]
    fn room_is_exact() {
        let mut log = Log::new(4_096, 100);
        let group = [7; 127];
        for _ in 0..32 {
            assert!(log.append(&group));
        }
        assert_eq!(log.room(), (68, 0));
        assert!(!log.append(&[1]));
        assert!(log.is_high());
        assert!(log.is_half(0, 32) && !log.is_half(16, 32) && !log.is_half(0, 16));
        log.prune(1);
        assert_eq!(log.longest_run(2, 300), 3);
        assert_eq!(log.longest_run(2, 127), 1);
        assert!(log.append(&[1; 127]));
        assert!(!log.append(&[]), "a group costs its length byte");
    }
}
