//! An instance whose state goes to a file or comes from one, between bursts and a part at a time.

use asterism_function::NetworkFunction;
use asterism_placement::Time;
use asterism_state::{BadBytes, ObjectCounts, Shown, Since, State};

use super::Instance;
use super::sharing::{BURST_LOG_BYTES, SNAPSHOT_PART_BYTES};

/// Bytes of one part of a saved state at most. A part is restored in one turn: its operations fit the room that a burst
/// would need.
pub const SAVED_PART_BYTES_MAX: usize = SNAPSHOT_PART_BYTES;
const _: () = assert!(SAVED_PART_BYTES_MAX * 8 < BURST_LOG_BYTES);

/// What an object holds, for `status` and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUse {
    /// Its name.
    pub name: &'static str,
    /// Entries that can be found.
    pub live: usize,
    /// Entries with those that ended and are not forgotten yet.
    pub held: usize,
    /// Of those, the ended ones. Of a graph `live` are edges, and `held` and these are edges as instances see them.
    pub ended: usize,
    /// Entries at most; 0 if there is no such bound.
    pub capacity: u32,
    /// Of a pool, items dealt to this instance that it may not grant yet.
    pub quarantined: u32,
    /// Of a pool, items that this instance may grant and that were another member's by place.
    pub reclaimed: u32,
    /// What it counted of losers and the like.
    pub counts: ObjectCounts,
}

impl<F: NetworkFunction> Instance<F> {
    /// One turn of the loop in which no port is read: while a host listens for others, and while it drains.
    pub fn turn_without_reading(&mut self, now: Time) {
        self.begin(now);
        if self.exchange.is_some() {
            self.apply();
        }
        if self.stopped.is_some() {
            return;
        }
        if !self.parking.is_empty() {
            self.retry();
        }
        if self.stored.is_some() {
            self.serve_store();
        }
        self.publish();
        self.send();
        // Nothing is read that could change it again. What is saved is what was announced.
        self.keep_nothing_back();
        self.upkeep(0);
        self.publish();
    }

    /// The next flush waits for no window and no interval, and leaves nothing out.
    fn keep_nothing_back(&mut self) {
        (self.drained_round, self.flushed_us) = (0, 0);
        (self.reported_all_us, self.reported_lazily_us) = (0, 0);
        self.flush_left = 0;
    }

    /// One turn of an instance that ends, in which no port is read: what it keeps back goes to the state channel. Whether that is
    /// now all: it is not while the log has no room for it.
    #[must_use]
    pub fn tell_all(&mut self, now: Time) -> bool {
        self.turn_without_reading(now);
        if self.stopped.is_some() || !self.serving {
            return true;
        }
        self.keep_nothing_back();
        let is_all = self.has_log_room() && self.flush();
        self.publish();
        is_all
    }

    /// Appends the next part of the whole shared state; where to go on, `None` at the end.
    pub fn save(&self, cursor: (u8, u32), part: &mut Vec<u8>) -> Option<(u8, u32)> {
        self.state.snapshot(cursor, SAVED_PART_BYTES_MAX, part)
    }

    /// Takes up a part of a saved state as writes of this host, which the others receive. `None` if the log has no room for
    /// it now: run a turn and come again. Tells how many entries it took.
    ///
    /// # Errors
    /// The part does not decode. What came before the bad bytes was taken.
    pub fn restore(&mut self, part: &[u8], since: &Since) -> Option<Result<u32, BadBytes>> {
        if !self.has_log_room() {
            return None;
        }
        let taken = self.state.restore(&self.context, part, since);
        if self.context.wrote() {
            self.settle();
        }
        self.commit();
        self.publish();
        Some(taken)
    }

    /// What each object holds.
    pub fn object_use(&self) -> Vec<ObjectUse> {
        let numbered = (0u8..).zip(self.state.objects());
        let used = |(number, &name): (u8, &&'static str)| {
            let object = self.state.object(number)?;
            let (quarantined, reclaimed) = object.inherited();
            Some(ObjectUse {
                name,
                live: object.entries(),
                held: object.entries_held(),
                ended: object.entries_ended(),
                capacity: object.capacity(),
                quarantined,
                reclaimed,
                counts: object.counts(),
            })
        };
        numbered.filter_map(used).collect()
    }

    /// Shows up to `records` entries of an object from `cursor` on; where to go on, `None` at the end.
    pub fn show(
        &self,
        object: u8,
        cursor: u32,
        records: u32,
        each: &mut dyn FnMut(&Shown<'_>),
    ) -> Option<u32> {
        self.state.object(object)?.show(cursor, records, each)
    }

    /// Packets that are parked.
    pub fn parked(&self) -> usize {
        self.parking.len()
    }

    /// Bytes of groups that wait for the state channel, and the room for them.
    pub fn log_use(&mut self) -> (usize, usize) {
        self.exchange.as_mut().map_or((0, 0), |exchange| {
            let capacity = exchange.up.capacity();
            (capacity - exchange.up.free_bytes().min(capacity), capacity)
        })
    }

    /// The ports.
    pub fn ports(&self) -> &[Box<dyn asterism_io::port::Port>] {
        &self.ports
    }

    /// Has every port send what it still holds; the first failure of each is handed to `failed`.
    pub fn flush_ports(&mut self, mut failed: impl FnMut(asterism_io::port::PortError)) {
        let Self { ports, pool, .. } = self;
        for port in ports {
            if let Err(error) = port.flush(pool) {
                failed(error);
            }
        }
    }
}
