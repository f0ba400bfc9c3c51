//! An instance looked at and steered from outside its loop.

use asterism_function::chain::StageTally;
use asterism_function::{NetworkFunction, PortNumber, report_of, stage_tallies};
use asterism_placement::{MemberId, Time};
use asterism_state::{Context, OriginName, State, Tick};

use super::Instance;
use super::sharing::{SWEEP_STEP_US, SnapshotScan};
use crate::exchange::origin;
use crate::tally::Tally;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::Port;

/// How long the loop of an instance that stopped by itself may rest: it has nothing to do.
const STOPPED_REST_US: u64 = 1_000_000;

impl<F: NetworkFunction> Instance<F> {
    /// Seconds of the cluster's time, as of the last turn.
    #[must_use]
    pub fn tick(&self) -> Tick {
        let us = self.time_at_zero_us.saturating_add(self.now_us as i64);
        (us / 1_000_000).clamp(0, i64::from(Tick::MAX)) as Tick
    }

    /// The state, to read.
    pub fn state(&self) -> &F::State {
        &self.state
    }
    /// A part of the function's report: see [`report_of`]. What it asks of a store is not known, and nobody waits for it.
    pub fn report(&mut self, question: u32, range: (u32, u32), out: &mut Vec<u8>) -> Option<u32> {
        let next = report_of(&**self.function, &self.state, question, range, out);
        if self.context.needs_attention() {
            self.context.end(|_, _| {});
        }
        next
    }
    /// The shared part of the state.
    pub fn context(&self) -> &Context {
        &self.context
    }
    /// The function.
    pub fn function(&self) -> &F {
        &self.function
    }
    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
    /// A port.
    pub fn port_mut(&mut self, port: PortNumber) -> Option<&mut (dyn Port + 'static)> {
        self.ports
            .get_mut(usize::from(port.0))
            .map(|port| &mut **port)
    }
    /// A port and the pool of its frames.
    pub fn port_and_pool(
        &mut self,
        port: PortNumber,
    ) -> Option<(&mut (dyn Port + 'static), &mut FramePool)> {
        self.ports
            .get_mut(usize::from(port.0))
            .map(|port| (&mut **port, &mut self.pool))
    }
    /// Puts another port in the place of one; frames that the old one holds are lost to the pool.
    pub fn replace_port(&mut self, port: PortNumber, with: Box<dyn Port>) {
        if let Some(place) = self.ports.get_mut(usize::from(port.0)) {
            *place = with;
        }
    }
    /// Packets held back until other members have what they depend on.
    #[inline]
    pub fn held(&self) -> usize {
        self.holding.as_ref().map_or(0, |holding| holding.len())
    }
    /// Frames in use: parked and held ones and those that ports hold.
    pub fn frames_in_use(&self) -> usize {
        self.pool.in_use()
    }
    /// Incarnations of members that it distinguishes, of [`ORIGINS_MAX`](asterism_state::ORIGINS_MAX).
    pub fn incarnations(&self) -> usize {
        self.context.incarnations()
    }
    /// Whether this instance grants from pools: not before its host has joined, nor when its lease has run out.
    pub fn grants_from_pools(&self) -> bool {
        self.serving && self.context.may_lease()
    }
    /// Objects' names with their entries (live, held).
    pub fn entries(&self) -> Vec<(&'static str, usize, usize)> {
        self.state
            .objects()
            .iter()
            .enumerate()
            .filter_map(|(object, &name)| {
                let object = self.state.object(object as u8)?;
                Some((name, object.entries(), object.entries_held()))
            })
            .collect()
    }
    /// What the stages of a chain counted, in order; nothing of any other function.
    pub fn stage_tallies(&self) -> impl Iterator<Item = &StageTally> {
        stage_tallies(self.function(), &self.state)
    }
    /// One digest for each object.
    pub fn digests(&self) -> Vec<u64> {
        self.state.digests()
    }
    /// Applies a group that no other instance gets: for tests of what notices that replicas differ. False if it is none.
    #[doc(hidden)]
    pub fn apply_alone(&mut self, origin: OriginName, sequence: u64, group: &[u8]) -> bool {
        let applied = self.state.apply(&self.context, origin, sequence, group);
        applied.is_ok()
    }
    /// Whether groups of others wait to be applied: never once it has stopped.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.stopped.is_none()
            && self
                .exchange
                .as_ref()
                .is_some_and(|exchange| !exchange.down.is_empty())
    }
    /// Whether a snapshot is under way to another member, and whether its next part can be written now.
    #[inline]
    pub fn snapshot_under_way(&self) -> (bool, bool) {
        let writable = |scan: &SnapshotScan| scan.room > 0 || scan.cursor.is_none();
        (!self.scans.is_empty(), self.scans.iter().any(writable))
    }
    /// Records of snapshots, parts and ends, handed to the state channel so far: when it grows, ring the waker.
    pub fn snapshot_records(&self) -> u64 {
        self.snapshot_records
    }
    /// When the loop has something to do next, whatever arrives.
    pub fn next_due(&self) -> Time {
        if self.stopped.is_some() {
            return Time::from_micros(self.now_us + STOPPED_REST_US);
        }
        let mut due = self.swept_us + SWEEP_STEP_US;
        if self.exchange.is_some() {
            due = due.min(self.flushed_us + self.flush_us);
        }
        if let Some(parked) = self.parking.next_due_us() {
            let is_ready = self.parking.has_ready() || self.context.has_woken();
            due = due.min(if is_ready { self.now_us } else { parked });
        }
        if let Some(held) = self
            .holding
            .as_ref()
            .and_then(|holding| holding.next_due_us())
        {
            due = due.min(held);
        }
        if let Some(store) = self.stored.as_ref().and_then(|stored| stored.next_due()) {
            due = due.min(store.as_micros());
        }
        if self.announces() {
            due = self.now_us;
        }
        let ports = self.ports.iter().filter_map(|port| port.next_due());
        ports.fold(Time::from_micros(due), Time::min)
    }
    /// Handles one packet as [`Instance::inject_burst`] does; false if it could not be taken.
    pub fn inject(&mut self, now: Time, port: PortNumber, bytes: &[u8]) -> bool {
        self.inject_burst(now, port, [bytes]) == 1
    }
    /// Handles packets of one burst outside any port, as control-plane use and simulators do: they are read in the next
    /// turn by no port but handled now. Tells how many were taken: fewer than there are if there was no buffer or no log
    /// room, or more came than a burst holds.
    pub fn inject_burst<'p>(
        &mut self,
        now: Time,
        port: PortNumber,
        packets: impl IntoIterator<Item = &'p [u8]>,
    ) -> usize {
        self.begin(now);
        let may_serve = self.serving && self.context.may_serve() && self.stopped.is_none();
        if !may_serve || self.parking.is_full() || !self.has_log_room() {
            return 0;
        }
        let mut burst = Burst::default();
        for bytes in packets {
            let Some(frame) = self.pool.allocate_copy(bytes) else {
                break;
            };
            if let Err(frame) = burst.push(frame) {
                self.pool.release(frame);
                break;
            }
        }
        let taken = burst.len();
        self.tally.received += taken as u64;
        self.handle_burst(port.0, &mut burst);
        self.commit();
        self.publish();
        self.send();
        taken
    }
    /// Tables of more than so many bytes are prefetched, from the next sweep on; at first those that outgrow a core's own
    /// cache, if packets read more of them than it holds. With fewer bytes than that, whatever packets read.
    pub fn prefetch_above(&mut self, bytes: usize) {
        self.prefetch_above_bytes = bytes;
    }
}

/// The state layer's name of a member's incarnation, for looking up what it wrote.
pub fn origin_of(member: MemberId, incarnation: asterism_placement::Incarnation) -> OriginName {
    origin(member, incarnation)
}
