//! One sum.

use std::rc::Rc;

use super::announced::{digest, writer};
use super::{
    NEVER, Party, WRITERS_MAX, WriterPlace, Writing, bears_old_name, change,
    is_of_later_incarnation, late, newer, read_cell, read_saved, read_writing, write_cell,
};
use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, LANE_SUM, Late, OPERATION_BYTES_MAX, Query};
use crate::mutant::{self, Mutant};
use crate::object::{
    Addition, Audit, Fetch, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate, Since,
    Snapshot, Sweep, Writable,
};
use crate::recording::ADDS;
use crate::stamp::{NamedOrigins, Stamp};
use crate::wire::{BadBytes, PlaceField, Reader, Writer, amount_in_store, each_sum, write_sums};

/// One counter. Read and add cost a few instructions; other instances see an addition after the flush
/// interval and the lag.
#[derive(Debug)]
pub struct Counter {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    /// Reads are late by settings, or answered by a store; a byte of its own, since every read looks at it.
    is_late: bool,
    own: u64,
    others: u64,
    /// The total that was last flushed.
    reported: u64,
    /// (writer, its total, the group that said so)
    writer_counters: Vec<(WriterPlace, u64, Stamp)>,
    /// What the instance in this one's place announced in earlier incarnations of the host: part of `own`, and what is reported until this incarnation
    /// announced something.
    before: (u64, Stamp),
    flushed: Stamp,
    /// It is to be reported though it did not change.
    again: bool,
    /// Of a call that is recorded: `own` when it began to write.
    before_call: Option<u64>,
    /// In a store: the sum that was answered for the call under way, and the one of some seconds ago.
    answered: u64,
    known: u64,
}

/// The field of the only sum.
const FIELD: u32 = 0;

impl Counter {
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: ObjectSettings) -> Self {
        let writer_counters = Vec::with_capacity(64);
        if settings.is_remote() {
            context.expect_written_unread(object);
        }
        Self {
            context,
            object,
            is_late: settings.late_us != 0 || settings.is_remote(),
            settings,
            own: 0,
            others: 0,
            reported: 0,
            writer_counters,
            before: (0, NEVER),
            flushed: NEVER,
            again: false,
            before_call: None,
            answered: 0,
            known: 0,
        }
    }

    /// What each writer announced, this instance first; additions that are not flushed follow in the log.
    fn announcements(&self) -> impl Iterator<Item = (Writing, u64, Stamp)> + '_ {
        let (seat, own) = (
            WriterPlace::own(&self.context),
            (self.reported, self.flushed),
        );
        let (total, stamp) = if self.is_reported() { own } else { self.before };
        let own = (stamp != NEVER).then_some((seat, total, stamp));
        let all = own.into_iter().chain(self.writer_counters.iter().copied());
        all.map(|(seat, total, stamp)| {
            let origin = stamp.origin.0;
            let lane = seat.lane;
            (Writing { origin, lane }, total, stamp)
        })
    }

    /// Whether this incarnation announced anything.
    fn is_reported(&self) -> bool {
        self.flushed != NEVER
    }

    /// The sum over all instances, as far as it is known here. Additions of this instance count at once.
    #[inline(always)]
    pub fn get(&self) -> Result<u64, Late> {
        if self.is_late {
            return self.ahead();
        }
        Ok(self.own.wrapping_add(self.others))
    }

    #[cold]
    fn ahead(&self) -> Result<u64, Late> {
        if self.settings.is_remote() {
            let (read, field) = (
                (self.object, LANE_SUM, FIELD.into()),
                PlaceField::new(FIELD),
            );
            self.context.answered(read, |key| key.raw(field.bytes()))?;
            return Ok(self.answered);
        }
        late(&self.context, self.object, 0, self.settings.late_us)?;
        Ok(self.total())
    }

    /// [`Counter::get`] for the control plane: never late; in a store as of some seconds ago.
    #[must_use]
    pub fn total(&self) -> u64 {
        if self.is_late && self.settings.is_remote() {
            return self.known;
        }
        self.own.wrapping_add(self.others)
    }

    fn learn(&mut self, writing: Writing, total: u64, stamp: Stamp) -> Result<(), BadBytes> {
        let seat = match Party::of(&self.context, writing) {
            Party::Own => return Ok(()),
            Party::Before => {
                self.go_on_from(total, stamp);
                return Ok(());
            }
            Party::Other(seat) => seat,
        };
        let full = self.writer_counters.len() >= WRITERS_MAX;
        match self.writer_counters.iter_mut().find(|cell| cell.0 == seat) {
            Some((_, known, said)) => {
                if replaces(&self.context, (total, stamp), (*known, *said)) {
                    self.others = self.others.wrapping_add(change(total, *known));
                    (*known, *said) = (total, stamp);
                }
            }
            None if full => return Err(BadBytes),
            None => {
                self.others = self.others.wrapping_add(total);
                self.writer_counters.push((seat, total, stamp));
            }
        }
        Ok(())
    }

    /// An earlier incarnation of this host announced a total, which is this instance's from now on. One that comes once this incarnation has
    /// announced a total of its own is reported by the next flush.
    fn go_on_from(&mut self, total: u64, stamp: Stamp) {
        let known = self.before;
        if known.1 != NEVER && !replaces(&self.context, (total, stamp), known) {
            return;
        }
        let more = change(total, known.0);
        self.before = (total, stamp);
        self.own = self.own.wrapping_add(more);
        if !self.is_reported() {
            // The others have it from who announced it.
            self.reported = self.reported.wrapping_add(more);
        }
    }
}

/// Whether what was said of a writer's total is newer than what is known of it.
fn replaces(context: &Context, (total, stamp): (u64, Stamp), (known, said): (u64, Stamp)) -> bool {
    if stamp.origin == said.origin {
        newer((total, stamp.sequence), (known, said.sequence))
    } else {
        is_of_later_incarnation(context, stamp.origin, said.origin)
    }
}

/// The writes of a [`Counter`].
#[derive(Debug)]
pub struct CounterAct<'a>(&'a mut Counter);

impl CounterAct<'_> {
    /// Adds; wraps at 2⁶⁴.
    #[inline(always)]
    pub fn add(&mut self, amount: u64) {
        self.0.own = self.0.own.wrapping_add(amount);
    }
}

impl Writable for Counter {
    type Act<'a> = CounterAct<'a>;

    fn act(&mut self) -> CounterAct<'_> {
        CounterAct(self)
    }
}

impl Replicate for Counter {
    fn apply(&mut self, _: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let writing = read_writing(input, stamp)?;
        let total = input.varint()?;
        self.learn(writing, total, stamp)
    }
    fn share(&mut self, shares: bool) -> bool {
        let was_shared = self.settings.is_replicated();
        if mutant::active(Mutant::LocalTotalCountedTwice) && shares && !was_shared {
            self.own = self.own.wrapping_add(change(self.own, self.reported));
        }
        self.settings.share(shares)
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        let changed = self.own != self.reported || self.again;
        if !changed || !self.settings.is_replicated() || self.context.accumulators_held() {
            return true;
        }
        if *bytes < OPERATION_BYTES_MAX {
            return false;
        }
        self.flushed = self
            .context
            .stamp(true, crate::context::OPERATION_BYTES_MAX);
        let lane = self.context.identity().lane.0;
        let length = self.context.log(|out| {
            out.tag(self.object, 0);
            out.varint(lane.into());
            out.varint(self.own);
        });
        *bytes = bytes.saturating_sub(length);
        self.reported = self.own;
        self.again = false;
        true
    }
    fn joined(&mut self) {
        let (_, stamp) = self.before;
        self.again |= stamp != NEVER && bears_old_name(&self.context, stamp.origin);
    }
}

impl Sweep for Counter {
    fn origins_named(&self, _: u32, _: u32, named: &mut NamedOrigins) -> Option<u32> {
        // All at once: there is one for each instance of a host.
        let reported = [self.before.1, self.flushed];
        let others = self.writer_counters.iter().map(|&(_, _, stamp)| stamp);
        others
            .chain(reported)
            .for_each(|stamp| named.mark(stamp.origin.0));
        None
    }
}

impl Audit for Counter {
    fn tells_own(&self) -> bool {
        true
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        out.fill(Leaf::default());
        if first == 0
            && let Some(leaf) = out.first_mut()
        {
            leaf.digest = self.announced();
            // A newer total of a writer replaces an older one for good: what was once there does not come back.
            leaf.changes = leaf.digest as u32;
        }
        self.settings.is_replicated() && self.settings.audited
    }
    fn announced(&self) -> u64 {
        self.announcements()
            .fold(0, |sum, (writing, total, stamp)| {
                let writer = writer(&self.context, writing);
                sum.wrapping_add(digest(0, writer, (total, stamp.sequence)))
            })
    }
    fn write_again(&mut self, leaves: &LeafSet, _: u32, _: u32) -> (Option<u32>, u32) {
        let asked = leaves.contains(0) && (self.is_reported() || self.before.1 != NEVER);
        // One that was asked for before, and is not reported yet, stays.
        self.again |= asked;
        (None, asked.into())
    }
    fn digest(&self) -> u64 {
        asterism_memory::hash::word(self.own.wrapping_add(self.others), 0)
    }
}

impl Snapshot for Counter {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        let writer_counters = self.announcements().enumerate();
        for (place, (writing, total, stamp)) in writer_counters.skip(cursor as usize) {
            if !part.has_room() {
                return Some(place as u32);
            }
            let mut writer = Writer::new(part.out(), self.context.addresses());
            writer.tag(self.object, 0);
            write_cell(&self.context, writing, total, stamp, &mut writer);
        }
        None
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let (writing, total, stamp) = read_cell(&self.context, input)?;
        self.learn(writing, total, stamp)
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        let total = read_saved(input)?;
        self.own = self.own.wrapping_add(total);
        Ok(total > 0)
    }
}

impl Inspect for Counter {
    fn entries(&self) -> usize {
        1
    }
}

/// The sum of an answer.
fn read_sum(answer: &[u8]) -> Result<u64, BadBytes> {
    let mut found = 0;
    each_sum(answer, |_, sum| found = sum as u64)?;
    Ok(found)
}

impl Fetch for Counter {
    fn stays_because(&self) -> Option<&'static str> {
        None
    }
    fn extract(&self, _: &Query<'_>, out: &mut Vec<u8>) {
        let field = PlaceField::new(FIELD);
        write_sums([(field.bytes(), self.total() as i64)], out);
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        self.answered = read_sum(answer)?;
        Ok(())
    }
    fn has_sums(&self) -> bool {
        true
    }
    fn each_addition(
        &self,
        write: &[u8],
        each: &mut dyn FnMut(&Addition<'_>),
    ) -> Result<(), BadBytes> {
        let amount = Reader::new(write, &[]).varint()?;
        let field = PlaceField::new(FIELD);
        each(&Addition::new(field.bytes(), amount_in_store(amount)));
        Ok(())
    }
    fn note_sums(&mut self, answer: &[u8]) {
        self.known = read_sum(answer).unwrap_or(self.known);
    }
    fn withdraw(&mut self) {
        self.answered = 0;
    }
}

impl Operations for Counter {
    fn begin_recording(&mut self) {
        self.before_call = Some(self.own);
    }
    fn end_recording(&mut self) {
        let Some(before) = self.before_call.take() else {
            return;
        };
        let added = self.own.wrapping_sub(before);
        if added != 0 {
            self.context
                .record_addition(self.object, ADDS, |out| out.varint(added));
        }
        if !mutant::active(Mutant::RefusedCallCounted) {
            self.own = before;
        }
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.own = self.own.wrapping_add(input.varint()?);
        Ok(())
    }
}

impl PerPacket for Counter {}
