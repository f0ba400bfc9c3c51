//! What an instance tells others: groups, flushes, sweeps, snapshots. What it takes from them is in `applying.rs`.

use std::sync::atomic::Ordering;

use asterism_function::NetworkFunction;
use asterism_placement::{MemberId, mutant as placed};
use asterism_state::{GROUP_BYTES_MAX, OPERATION_BYTES_MAX, Part, State, forget_incarnations};

use super::Instance;
use super::reports::Report;
use crate::exchange::{RECORD_BYTES, SCAN_PARTS, Up};
use crate::mutant::{self, Mutant};
use asterism_io::frame::BURST;

/// Turns over which one sweep for idle entries is spread, per second of sweeping.
const SWEEP_STEPS: u32 = 256;
/// Entries swept before their operations are handed on: all may end at once and still fit [`BURST_LOG_BYTES`].
const SWEEP_PORTION: u32 = 64;
const _: () = assert!(SWEEP_PORTION as usize * OPERATION_BYTES_MAX * 2 <= BURST_LOG_BYTES);
/// What a turn sweeps at most, one for an entry that is looked at and [`SWEEP_END`] more for one that ends or is forgotten.
const SWEEP_PER_TURN: u32 = 1_024;
/// Ending an entry, or taking it out of all lanes, costs as much as looking at so many that lie beside each other.
const SWEEP_END: u32 = 16;
/// Entries whose writers a step notes where incarnations are to be forgotten: a million in four seconds.
const NAMED_PER_STEP: u32 = 1_024;
/// Microseconds for which flushes may leave out what can wait: of what nobody decides by, one total then tells of many changes.
const PATIENCE_US: u64 = 50_000;
/// The same for objects that are reported lazily.
const LAZINESS_US: u64 = 200_000;
/// Microseconds between two steps of the sweep: a whole turn over the tables takes about a second.
pub(super) const SWEEP_STEP_US: u64 = 1_000_000 / SWEEP_STEPS as u64;
/// Tables larger than this are prefetched if packets read more of them than the cache holds (`recency.rs`): half of a core's own
/// cache, which holds packets too. Below it a first call for each packet costs more than the misses that it hides.
pub(super) const CACHE_BYTES: usize = 1 << 19;
/// Bytes of the up ring that must be free before a burst is read: its packets' groups always fit.
pub(super) const BURST_LOG_BYTES: usize = BURST * 2 * (GROUP_BYTES_MAX + RECORD_BYTES + 8);
/// Bytes of one part of a snapshot.
pub(super) const SNAPSHOT_PART_BYTES: usize = 1_100;
/// Parts of a snapshot written in one turn at most.
pub const SNAPSHOT_PARTS_PER_TURN: usize = 4;
/// The same in a turn that read packets: a snapshot under full load takes twice as long, and a tenth of the throughput.
const SNAPSHOT_PARTS_BESIDE_PACKETS: usize = 2;
/// Places of tables looked at for snapshots in one turn at most, whether they hold anything or not.
pub const SNAPSHOT_PLACES_PER_TURN: u32 = 1_024;

/// The snapshot under way for a lagging member.
#[derive(Debug)]
pub(super) struct SnapshotScan {
    member: MemberId,
    scan: u32,
    pub(super) cursor: Option<(u8, u32)>,
    /// Parts for which there is room.
    pub(super) room: u32,
}

impl<F: NetworkFunction> Instance<F> {
    /// Hands the groups written so far to the state channel. A burst was read only with room for them.
    #[inline]
    pub(super) fn commit(&mut self) {
        if self.context.wrote() {
            self.push_groups();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn push_groups(&mut self) {
        let (tally, exchange) = (&mut self.tally, &mut self.exchange);
        self.context.take_groups(|sequence, bytes| {
            tally.groups_written += 1;
            tally.group_bytes_written += bytes.len() as u64;
            if let Some(exchange) = exchange {
                exchange.written = sequence;
                // Anyone who shares the counter draws from it; alone, it is reported here.
                exchange.committed.fetch_max(sequence, Ordering::Release);
                let pushed = Up::Group { sequence, bytes }.push(&mut exchange.up);
                assert!(
                    pushed.is_ok(),
                    "a group was written without room for it: the host stops"
                );
            }
        });
    }

    /// Timers, flushes, snapshots: what a turn that read so many packets does besides them.
    pub(super) fn upkeep(&mut self, read: usize) {
        if let Some(exchange) = &mut self.exchange {
            exchange.say_waiting();
            self.announce(read);
        }
        if !self.serving {
            (self.flushed_us, self.swept_us) = (self.now_us, self.now_us);
            return;
        }
        // Both times are of earlier turns. A clock that went back flushes and sweeps once too often.
        if self.now_us.wrapping_sub(self.flushed_us) >= self.flush_us && self.has_log_room() {
            self.flush();
        }
        if self.now_us.wrapping_sub(self.swept_us) >= SWEEP_STEP_US && self.has_log_room() {
            self.sweep();
        }
        if !self.scans.is_empty() {
            self.scan(if read > 0 {
                SNAPSHOT_PARTS_BESIDE_PACKETS
            } else {
                SNAPSHOT_PARTS_PER_TURN
            });
        }
    }

    /// Has the objects report what they keep back. Whether nothing is kept back any more.
    pub(super) fn flush(&mut self) -> bool {
        let Some(exchange) = &mut self.exchange else {
            self.flushed_us = self.now_us;
            return true;
        };
        // Accumulators wait while the log is more than half full, and while the path is congested once they were drained in
        // its round: what they hold back only grows together.
        let is_full = exchange.up.lag_bytes() * 2 > exchange.up.capacity();
        let (round, share) = exchange.round.get();
        let is_drained = round != 0 && round == self.drained_round;
        let is_held = is_full || is_drained;
        self.context.hold_accumulators(is_held);
        let mut bytes = BURST_LOG_BYTES / 2;
        let objects = self.state.objects().len() as u8;
        if is_held {
            self.context.be_patient(true);
            self.state
                .for_each_object(|object| _ = object.flush(&mut bytes));
            self.flushed_us = self.now_us;
            return false;
        }
        if round == 0 {
            self.round_bytes = usize::MAX;
        } else if round != self.begun_round {
            self.round_bytes = share as usize;
        }
        self.begun_round = round;
        let most = bytes.min(self.round_bytes);
        bytes = most;
        // In as many turns as it takes, each object once: what changes meanwhile is for the next flush.
        if self.flush_left == 0 {
            self.flush_left = objects;
            let waited_us = self.now_us.saturating_sub(self.reported_all_us);
            self.tells_all = waited_us >= PATIENCE_US;
            if self.tells_all {
                self.reported_all_us = self.now_us;
            }
            let waited_us = self.now_us.saturating_sub(self.reported_lazily_us);
            let lazy = waited_us < LAZINESS_US || mutant::active(Mutant::LazyNeverReported);
            self.context.be_lazy(lazy);
            if !lazy {
                self.reported_lazily_us = self.now_us;
            }
        }
        self.context.be_patient(!self.tells_all);
        while self.flush_left > 0 {
            let object = objects - self.flush_left;
            if !self.context.passes_over(object)
                && let Some(object) = self.state.object_mut(object)
                && !object.flush(&mut bytes)
            {
                break;
            }
            self.flush_left -= 1;
        }
        if self.context.wrote() {
            self.settle();
            self.push_groups();
            (self.tally.counter_changes, self.tally.counters_reported) = self.context.reported();
        }
        self.round_bytes -= most - bytes;
        let whole = self.flush_left == 0;
        if whole || self.round_bytes < OPERATION_BYTES_MAX {
            self.flushed_us = self.now_us;
            self.end_round(round, whole);
        }
        whole && self.tells_all && self.reported_lazily_us == self.now_us
    }

    /// What had changed is logged, or as much as may be.
    fn end_round(&mut self, round: u64, whole: bool) {
        self.drained_round = round;
        if round != 0
            && let Some(exchange) = &mut self.exchange
        {
            exchange.say(Report::Drained { round, whole });
        }
    }

    /// Goes on with a sweep over the tables, or begins one. A step takes as many turns as its budgets ask for: until it is
    /// over the next one is due, and the loop does not rest.
    #[cold]
    pub(super) fn sweep(&mut self) {
        if self.sweep_object == 0 && self.sweep_left.is_none() {
            self.sweep_begun_us = self.now_us;
            self.sweep_outgrew = false;
        }
        let mut budget = SWEEP_PER_TURN;
        while usize::from(self.sweep_object) < self.state.objects().len() {
            let object = self.sweep_object;
            let mut left = match self.sweep_left {
                Some(left) => left,
                None => {
                    let object = self.state.object(object);
                    self.sweep_outgrew |= object
                        .is_some_and(|object| object.outgrew_cache(self.prefetch_above_bytes));
                    let length = object.map_or(0, |object| object.sweep_length());
                    length.div_ceil(SWEEP_STEPS)
                }
            };
            // In portions, each of which fits the room that was found even if all its entries end.
            while left > 0 {
                if budget == 0 || !self.has_log_room() {
                    self.sweep_left = Some(left);
                    return;
                }
                let portion = left.min(SWEEP_PORTION).min(budget);
                left -= portion;
                let object = self.state.object_mut(object);
                let ended = object.map_or(0, |object| object.sweep(portion));
                budget = budget.saturating_sub(portion + ended.saturating_mul(SWEEP_END));
                if self.context.wrote() {
                    self.settle();
                    self.push_groups();
                }
            }
            self.sweep_left = None;
            self.sweep_object += 1;
        }
        self.sweep_object = 0;
        self.swept_us = self.sweep_begun_us;
        forget_incarnations(&self.state, &self.context, NAMED_PER_STEP);
        self.hinted_left = match self.sweep_outgrew {
            false => 0,
            // Anyone who asks for less than the cache knows what is to be prefetched.
            true if self.prefetch_above_bytes < CACHE_BYTES => u32::MAX,
            true => self.recency.bursts_to_foresee(),
        };
    }

    /// Begins to scan the tables for a member; of an earlier scan for it nothing more is needed.
    pub(super) fn begin_scan(&mut self, member: MemberId, scan: u32) {
        let before = self.scans.iter().find(|known| known.member == member);
        let begin = match before {
            Some(known) if placed::active(placed::Mutant::ScanNotRestarted) => known.cursor,
            _ => Some((0, 0)),
        };
        self.scans.retain(|known| known.member != member);
        self.scans.push(SnapshotScan {
            member,
            scan,
            cursor: begin,
            room: SCAN_PARTS,
        });
    }

    /// There is room for more parts of a scan.
    pub(super) fn go_on_with_scan(&mut self, member: MemberId, scan: u32) {
        for known in &mut self.scans {
            if (known.member, known.scan) == (member, scan) {
                known.room += SCAN_PARTS;
            }
        }
    }

    /// A scan is not needed any more.
    pub(super) fn stop_scan(&mut self, member: MemberId, scan: u32) {
        self.scans
            .retain(|known| known.member != member || known.scan != scan);
    }

    /// Goes on with snapshots for members that lag, so many parts.
    #[cold]
    pub(super) fn scan(&mut self, parts_max: usize) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        let mut places = 0;
        for _ in 0..parts_max {
            // Whose end is all that is left needs no room.
            let Some(place) = self
                .scans
                .iter()
                .position(|scan| scan.room > 0 || scan.cursor.is_none())
            else {
                break;
            };
            if places == SNAPSHOT_PLACES_PER_TURN {
                break;
            }
            let scan = &mut self.scans[place];
            if exchange.up.free_bytes() < BURST_LOG_BYTES + 2 * (SNAPSHOT_PART_BYTES + RECORD_BYTES)
            {
                break;
            }
            let SnapshotScan {
                member,
                scan: number,
                cursor,
                room,
            } = scan;
            match *cursor {
                Some(from) => {
                    self.part.clear();
                    let most = SNAPSHOT_PLACES_PER_TURN - places;
                    let mut part = Part::new(&mut self.part, SNAPSHOT_PART_BYTES, most);
                    *cursor = self.state.snapshot_part(from, &mut part);
                    places += part.looked();
                    if !self.part.is_empty() {
                        *room -= 1;
                        let part = Up::SnapshotPart {
                            member: *member,
                            scan: *number,
                            bytes: &self.part,
                        };
                        let _ = part.push(&mut exchange.up);
                        self.snapshot_records += 1;
                        self.tally.snapshot_parts_written += 1;
                    }
                }
                None => {
                    let _ = Up::SnapshotDone {
                        member: *member,
                        scan: *number,
                    }
                    .push(&mut exchange.up);
                    self.snapshot_records += 1;
                    self.scans.remove(place);
                }
            }
        }
        // What makes a join free of pauses: no turn looks at more, however large or empty the tables are.
        assert!(
            places <= SNAPSHOT_PLACES_PER_TURN,
            "a turn looked at {places} places for a snapshot: the host stops"
        );
        self.tally.snapshot_places += u64::from(places);
        self.tally.snapshot_places_most = self.tally.snapshot_places_most.max(u64::from(places));
    }

    pub(super) fn publish(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.up.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asterism_function::{Ask, Builder, Counter, Late, Map, Single, Verdict, state};
    use asterism_placement::Time;
    use asterism_state::{ObjectSettings, OriginName};

    use super::*;
    use crate::exchange::{Down, write_incarnations};
    use crate::instance::{Exchange, InstanceParts};
    use asterism_io::frame::FramePool;
    use asterism_io::ring::{ByteRing, RingReader};

    struct Nothing;

    #[state]
    struct Entries {
        entries: Map<u32, ()>,
        changes: Counter,
    }

    impl NetworkFunction for Nothing {
        type State = Entries;
        fn state(&self, builder: &Builder) -> Entries {
            Entries {
                entries: builder.table("entries", 200_000, &[5]),
                changes: builder.counter("changes"),
            }
        }
        fn packet(&self, _: Ask<'_, Entries>) -> Result<Verdict, Late> {
            Ok(Verdict::Consumed)
        }
    }

    fn instance(parts: InstanceParts, settings: ObjectSettings) -> Instance<Nothing> {
        let pool = FramePool::new(16).expect("memory for frames");
        parts.start(Arc::new(Nothing), move |_| settings, pool, Vec::new())
    }

    #[test]
    fn parts_of_a_snapshot_leave_time_for_packets_unless_none_are_read() {
        for (joins, in_a_turn) in [(false, 11), (true, 64)] {
            let (up, _reader) = ByteRing::new(1 << 20).expect("memory for a ring");
            let (mut writer, down) = ByteRing::new(1 << 20).expect("memory for a ring");
            let mut parts = InstanceParts::alone(1);
            parts.joins = joins;
            parts.exchange = Some(Exchange::of_rings(up, down));
            let mut instance = instance(parts, ObjectSettings::REPLICATED);
            for _ in 0..64 {
                let part = Down::SnapshotPart {
                    from: MemberId(1),
                    bytes: &[],
                };
                part.push(&mut writer).expect("room");
            }
            writer.publish();
            instance.turn(Time::from_micros(1));
            assert_eq!(instance.tally().snapshot_parts_applied, in_a_turn);
            assert_eq!(instance.is_behind(), !joins);
            for _ in 0..8 {
                instance.turn(Time::from_micros(2));
            }
            assert_eq!(instance.tally().snapshot_parts_applied, 64);
        }
    }

    #[test]
    fn an_incarnation_that_is_closed_says_nothing_of_how_far_the_next_one_is_covered() {
        let (up, _reader) = ByteRing::new(1 << 16).expect("memory for a ring");
        let (mut writer, down) = ByteRing::new(1 << 16).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.identity.members = vec![parts.identity.own.member, 7];
        parts.exchange = Some(Exchange::of_rings(up, down));
        let mut instance = instance(parts, ObjectSettings::REPLICATED);
        let incarnation = |incarnation| OriginName {
            member: 7,
            incarnation,
        };
        let incarnations = write_incarnations([incarnation(2)].into_iter());
        let epoch = Down::Epoch {
            incarnations: &incarnations,
        };
        epoch.push(&mut writer).expect("room");
        let progress = Down::Progress {
            origin: incarnation(2),
            received: 3,
            stable: 0,
            covered_us: 500,
            confirmed: 0,
        };
        progress.push(&mut writer).expect("room");
        let closed = Down::Closed {
            origin: incarnation(1),
        };
        closed.push(&mut writer).expect("room");
        writer.publish();
        instance.turn(Time::from_micros(1_000));
        assert!(!instance.is_behind());
        assert!(instance.context.covers(Some(1), 500));
        let known = instance.context.applied_through();
        assert!(
            known.contains(&(incarnation(1), u64::MAX)),
            "all have all of it: {known:?}"
        );
    }

    #[test]
    fn all_is_reported_once_the_log_has_room_for_what_was_kept_back() {
        let (up, mut reader) = ByteRing::new(1 << 18).expect("memory for a ring");
        let (_writer, down) = ByteRing::new(1 << 16).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.exchange = Some(Exchange::of_rings(up, down));
        let mut instance = instance(parts, ObjectSettings::REPLICATED);
        let now = Time::from_micros(1_000_000);
        instance.turn(now);
        let mut keys = 0..;
        while instance.has_log_room() {
            let room = instance.state.entries.vacancy().expect("local");
            let key = Single(keys.next().expect("a key"));
            let mut act = instance.state.act();
            act.entries.insert(room.expect("room"), key, ());
            act.changes.add(1);
            instance.commit();
        }
        assert!(!instance.tell_all(now), "the log is full");
        let totals = |reader: &mut RingReader| {
            let mut groups = 0;
            while let Some(record) = reader.next() {
                groups += u32::from(matches!(Up::read(record), Some(Up::Group { .. })));
            }
            reader.release();
            groups
        };
        assert!(totals(&mut reader) > 0);
        assert!(instance.tell_all(now), "there is room");
        assert_eq!(totals(&mut reader), 1, "the count");
        assert!(instance.tell_all(now));
        assert_eq!(totals(&mut reader), 0, "reported once");
    }

    #[test]
    fn a_table_that_ends_at_once_is_swept_in_budgets() {
        const ENTRIES: u32 = 100_000;
        let mut instance = instance(InstanceParts::alone(1), ObjectSettings::LOCAL);
        instance.turn(Time::from_micros(1));
        for key in 0..ENTRIES {
            let room = instance.state.entries.vacancy().expect("local");
            let room = room.expect("room");
            instance.state.act().entries.insert(room, Single(key), ());
            instance.settle();
        }
        let idle = Time::from_micros(60_000_000);
        let (mut now, mut unfinished) = (idle, 0);
        while instance.state.entries.held() > 0 {
            let ends = |instance: &Instance<Nothing>| {
                let entries = &instance.state.entries;
                (entries.len_now() + entries.held()) as u32
            };
            let before = ends(&instance);
            instance.turn(now);
            assert!(
                before - ends(&instance) <= SWEEP_PORTION,
                "a turn ended {} entries",
                before - ends(&instance)
            );
            let due = instance.next_due();
            unfinished += u32::from(due <= now);
            now = due.max(now + std::time::Duration::from_micros(100));
            assert!(
                now.since(idle) < std::time::Duration::from_secs(4),
                "{} entries are left after 4 s",
                instance.state.entries.held()
            );
        }
        assert!(unfinished > 1_000, "steps took several turns: {unfinished}");
    }
}
