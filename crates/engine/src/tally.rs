//! Counters of an instance.

use asterism_function::Reason;

/// Counts since the instance was made. Plain numbers of its own thread; nothing is shared.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Packets taken from ports.
    pub received: u64,
    /// Packets sent to ports, including emissions of functions.
    pub forwarded: u64,
    /// Packets that functions emitted.
    pub emitted: u64,
    /// Copies of packets that functions sent by a port of their own; also counted in `emitted`.
    pub copies: u64,
    /// Copies not made: the packet was too long, or there were too many in a turn.
    pub copies_lost: u64,
    /// Packets addressed to the function itself.
    pub consumed: u64,
    /// Late calls, without the prefetch pass.
    pub late: u64,
    /// Calls for parked packets, including packets that waited behind others.
    pub called_again: u64,
    /// Packets handled in two passes, the first of which prefetches.
    pub prefetched: u64,
    /// Packets parked now.
    pub parked: usize,
    /// The most packets parked at any time.
    pub parked_most: usize,
    /// Turns in which no port was read because the most packets were parked.
    pub held_by_parking: u64,
    /// Turns in which no port was read because the log was full.
    pub held_by_log: u64,
    /// Turns in which no port was read because the host's lease of ports ended so long ago that others may have the
    /// ports.
    pub held_by_lease: u64,
    /// Packets held back until other members have what they depend on, including those that followed one of their flow.
    pub held: u64,
    /// Packets held now.
    pub held_now: usize,
    /// Bytes of these packets.
    pub held_bytes: usize,
    /// The most packets held at any time.
    pub held_most: usize,
    /// Held packets that left although too few members were known to have what they depend on.
    pub released_unconfirmed: u64,
    /// Reads that a store was asked for.
    pub store_reads: u64,
    /// Calls whose reads a store answered at once, by what it keeps or by entries that stay here, so that their packets were not parked.
    pub answered_at_once: u64,
    /// Packets whose reads and writes a store committed.
    pub store_commits: u64,
    /// Packets that made one read of a store, or read what was so at one time, and wrote nothing there: the store did not decide on them.
    pub store_reads_alone: u64,
    /// How often a store refused to commit those of a packet, which was called again.
    pub store_refusals: u64,
    /// Requests to a store that found no room in the ring to the state channel; they are made again.
    pub store_without_room: u64,
    /// Remote groups applied.
    pub groups_applied: u64,
    /// Remote groups and snapshot parts that did not decode: the instance stops at the first.
    pub groups_bad: u64,
    /// Groups that this instance committed.
    pub groups_written: u64,
    /// Bytes of these groups.
    pub group_bytes_written: u64,
    /// Changes of cells of counters and sketches that were logged: without coalescing each would be an operation.
    pub counter_changes: u64,
    /// Cell totals in which these changes were logged.
    pub counters_reported: u64,
    /// Snapshot parts written for other members.
    pub snapshot_parts_written: u64,
    /// Places of tables scanned for snapshots, used or not.
    pub snapshot_places: u64,
    /// The most places scanned in a turn, at most [`SNAPSHOT_PLACES_PER_TURN`](crate::SNAPSHOT_PLACES_PER_TURN).
    pub snapshot_places_most: u64,
    /// Parts of remote snapshots that were joined; also counted in `groups_applied`.
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
            held: 0,
            held_now: 0,
            held_bytes: 0,
            held_most: 0,
            released_unconfirmed: 0,
            store_reads: 0,
            answered_at_once: 0,
            store_commits: 0,
            store_reads_alone: 0,
            store_refusals: 0,
            store_without_room: 0,
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
