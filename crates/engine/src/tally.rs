//! What an instance counts.

use asterism_function::Reason;

/// Counts since the instance was made. Plain numbers of its own thread; nothing is shared.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Packets taken from ports.
    pub received: u64,
    /// Packets sent to ports, those that functions emitted included.
    pub forwarded: u64,
    /// Packets that functions emitted.
    pub emitted: u64,
    /// Copies of packets that functions sent by a port of their own, counted in `emitted` too.
    pub copies: u64,
    /// Copies that were not made: too long, or too many in a turn.
    pub copies_lost: u64,
    /// Packets that were for the function itself.
    pub consumed: u64,
    /// Calls that were late, the prefetch pass not counted.
    pub late: u64,
    /// Calls for packets that were parked, of those that waited behind others too.
    pub called_again: u64,
    /// Packets handled in two passes, the first of which prefetches.
    pub prefetched: u64,
    /// Packets parked now, and the most at any time.
    pub parked: usize,
    /// The most packets parked at any time.
    pub parked_most: usize,
    /// Turns in which no port was read because packets were parked to the bound.
    pub held_by_parking: u64,
    /// Turns in which no port was read because the log had no room.
    pub held_by_log: u64,
    /// Turns in which no port was read because the host's lease of ports ran out so long ago that others may have them.
    pub held_by_lease: u64,
    /// Groups of others that were applied.
    pub groups_applied: u64,
    /// Groups and snapshot parts of others that did not decode: the instance stops at the first.
    pub groups_bad: u64,
    /// Groups that this instance committed.
    pub groups_written: u64,
    /// Bytes of those groups.
    pub group_bytes_written: u64,
    /// Changes of counters' and sketches' cells that were logged: without coalescing each would be one.
    pub counter_changes: u64,
    /// Totals of cells with which they were logged.
    pub counters_reported: u64,
    /// Parts of snapshots that were written for others.
    pub snapshot_parts_written: u64,
    /// Places of tables that were looked at for that, used ones or not.
    pub snapshot_places: u64,
    /// The most of them in one turn, at most [`SNAPSHOT_PLACES_PER_TURN`](crate::SNAPSHOT_PLACES_PER_TURN).
    pub snapshot_places_most: u64,
    /// Parts of others' snapshots that were joined, counted in `groups_applied` too.
    pub snapshot_parts_applied: u64,
    dropped: [u64; Reason::ALL.len()],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            received: 0,
            forwarded: 0,
            emitted: 0,
            copies: 0,
            copies_lost: 0,
            consumed: 0,
            late: 0,
            called_again: 0,
            prefetched: 0,
            parked: 0,
            parked_most: 0,
            held_by_parking: 0,
            held_by_log: 0,
            held_by_lease: 0,
            groups_applied: 0,
            groups_bad: 0,
            groups_written: 0,
            group_bytes_written: 0,
            counter_changes: 0,
            counters_reported: 0,
            snapshot_parts_written: 0,
            snapshot_places: 0,
            snapshot_places_most: 0,
            snapshot_parts_applied: 0,
            dropped: [0; Reason::ALL.len()],
        }
    }
}

impl Tally {
    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }
    /// Packets dropped, and why, for every reason that occurred.
    pub fn drops(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL
            .iter()
            .map(|&reason| (reason, self.dropped(reason)))
            .filter(|&(_, count)| count > 0)
    }
    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
    pub(crate) fn drop(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }
}
