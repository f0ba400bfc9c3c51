//! One value that any instance may write.

use std::rc::Rc;

use crate::audit::{Leaf, LeafSet};
use crate::context::{
    Context, Late, OPERATION_BYTES_MAX, Query, STAMP_BYTES_MAX, late_answer, read_stamp,
    skip_stamp, write_stamp,
};
use crate::mutant::{self, Mutant};
use crate::object::{
    Audit, Fetch, FetchedEntry, Inspect, ObjectSettings, Operations, Part, PerPacket, Replicate,
    Since, Snapshot, Sweep, Writable,
};
use crate::stamp::{NamedOrigins, Origins, Stamp};
use crate::table::Value;
use crate::wire::{BadBytes, Reader, Writer};

/// Flag of an operation: the stamp of the operation that wrote the value is another, and follows.
const OPERATION_STAMPED: u8 = 1;

/// One value. A write that knows of another beats it; of concurrent ones the value's order decides, then
/// the stamp. Values that join do so instead.
#[derive(Debug)]
pub struct Register<V: Value> {
    context: Rc<Context>,
    object: u8,
    settings: ObjectSettings,
    value: V,
    /// What it is before anybody writes it, and whether anybody did.
    initial: V,
    is_written: bool,
    generation: u64,
    stamp: Stamp,
    /// The version of its last change, where packets are held back for it.
    version: u64,
}

impl<V: Value> Register<V> {
    pub(crate) fn new(
        context: Rc<Context>,
        object: u8,
        settings: ObjectSettings,
        initial: V,
    ) -> Self {
        let stamp = Stamp {
            origin: Origins::OWN,
            sequence: 0,
        };
        if settings.is_remote() {
            context.expect_written_unread(object);
        }
        Self {
            context,
            object,
            settings,
            value: initial,
            initial,
            is_written: false,
            generation: 0,
            stamp,
            version: 0,
        }
    }

    /// The value as it is known here.
    #[inline(always)]
    pub fn get(&self) -> Result<V, Late> {
        if !self.context.answers_plainly() {
            self.ahead()?;
        }
        if self.version != 0 {
            self.context.depend_on(self.version);
        }
        Ok(self.value)
    }

    #[cold]
    fn ahead(&self) -> Result<(), Late> {
        self.context.note_read_of(self.object);
        if self.context.is_prefetching() {
            return Ok(());
        }
        if self.settings.is_remote() {
            return self.context.answered((self.object, 0, 0), |_| {});
        }
        self.context.decided_whole(self.object)?;
        let late_us = u64::from(self.settings.late_us);
        if late_us != 0 && !self.context.fetched(self.object, 0, late_us) {
            return Err(late_answer());
        }
        Ok(())
    }

    fn merge(&mut self, value: V, generation: u64, stamp: Stamp) {
        if generation == self.generation && V::JOINS {
            if mutant::active(Mutant::ValuesOverwritten) {
                self.value = value;
            } else {
                self.value.join(&value);
            }
            if self.context.compare(stamp, self.stamp).is_gt() {
                self.stamp = stamp;
            }
            return;
        }
        let wins = generation > self.generation
            || generation == self.generation
                && value
                    .order(&self.value)
                    .then_with(|| self.context.compare(stamp, self.stamp))
                    .is_gt();
        if wins {
            (self.value, self.generation, self.stamp) = (value, generation, stamp);
        }
    }
}

/// The writes of a [`Register`].
#[derive(Debug)]
pub struct RegisterAct<'a, V: Value>(&'a mut Register<V>);

impl<V: Value> RegisterAct<'_, V> {
    /// Writes the value (joins it, for values that do).
    pub fn set(&mut self, value: V) {
        let register = &mut *self.0;
        if register.context.is_staged() {
            register
                .context
                .record(register.object, 0, |out| value.encode(out));
            return;
        }
        let mut joined = value;
        if V::JOINS {
            joined = register.value;
            joined.join(&value);
        }
        if joined == register.value {
            return;
        }
        let generation = if V::JOINS {
            register.generation
        } else {
            register.generation.saturating_add(1)
        };
        register.write(value, generation);
    }
}

impl<V: Value> Register<V> {
    /// An operation at most: tag, generation, value.
    pub(crate) const OPERATION_BYTES: usize = if V::BYTES_MAX + 12 < OPERATION_BYTES_MAX {
        V::BYTES_MAX + 12
    } else {
        OPERATION_BYTES_MAX
    };

    /// The value may be another one by this write.
    fn note_change(&mut self, stamp: Stamp) {
        if self.settings.holds_output && self.settings.is_replicated() {
            self.version = self.context.version_of(stamp).unwrap_or(self.version);
        }
    }

    /// The stamp of an operation with so many bytes beside those of a write.
    fn stamp_write(&self, more: usize) -> Stamp {
        let bytes = Self::OPERATION_BYTES + more;
        self.context.stamp(self.settings.is_replicated(), bytes)
    }

    /// Writes a value here, and for the others.
    fn write(&mut self, value: V, generation: u64) {
        let stamp = self.stamp_write(0);
        self.write_as(value, generation, (stamp, stamp));
    }

    /// The same by the operation of one stamp, as what another one wrote.
    fn write_as(&mut self, value: V, generation: u64, (stamp, writer): (Stamp, Stamp)) {
        self.merge(value, generation, writer);
        self.is_written = true;
        self.note_change(stamp);
        self.context.depend_on(self.version);
        if self.settings.is_replicated() {
            let is_stamped = writer != stamp;
            let flags = if is_stamped { OPERATION_STAMPED } else { 0 };
            self.context.log(|out| {
                out.tag(self.object, flags);
                out.varint(generation);
                self.value.encode(out);
                if is_stamped {
                    write_stamp(&self.context, writer, out);
                }
            });
        }
    }
}

impl<V: Value> Writable for Register<V> {
    type Act<'a> = RegisterAct<'a, V>;

    fn act(&mut self) -> RegisterAct<'_, V> {
        RegisterAct(self)
    }
}

impl<V: Value> Replicate for Register<V> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        let generation = input.varint()?;
        let value = V::decode(input)?;
        let writer = match flags & OPERATION_STAMPED {
            0 => stamp,
            _ => read_stamp(&self.context, input)?,
        };
        self.merge(value, generation, writer);
        self.note_change(stamp);
        Ok(())
    }
    fn share(&mut self, shares: bool) -> bool {
        self.settings.share(shares)
    }
    fn announce(&mut self, _: u32, _: u32) -> Option<u32> {
        // One that joins has one generation, whether it was written or not.
        if V::JOINS || self.generation > 0 {
            let stamp = self.stamp_write(STAMP_BYTES_MAX);
            // Others may have this value by the operation that wrote it, or lack it: with the later stamp it is the same everywhere.
            let is_later = self.context.compare(self.stamp, stamp).is_gt();
            let writer = if is_later { self.stamp } else { stamp };
            self.write_as(self.value, self.generation, (stamp, writer));
        }
        None
    }
}

impl<V: Value> Sweep for Register<V> {
    fn origins_named(&self, _: u32, _: u32, named: &mut NamedOrigins) -> Option<u32> {
        named.mark(self.stamp.origin.0);
        None
    }
}

impl<V: Value> Audit for Register<V> {
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        out.fill(Leaf::default());
        if first == 0
            && let Some(leaf) = out.first_mut()
        {
            leaf.digest = self.digest();
            // What was once there does not come back: generations and joined values only grow.
            leaf.changes = leaf.digest as u32;
        }
        self.settings.is_replicated() && self.settings.audited
    }
    fn write_again(&mut self, leaves: &LeafSet, _: u32, _: u32) -> (Option<u32>, u32) {
        if !leaves.contains(0) || self.stamp.sequence == 0 {
            return (None, 0);
        }
        let (value, generation) = (self.value, self.generation.saturating_add(1));
        self.write(value, generation);
        (None, 1)
    }
    fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes, self.context.addresses());
        self.value.encode(&mut out);
        out.u64(self.generation);
        if self.stamp.sequence > 0 {
            write_stamp(&self.context, self.stamp, &mut out);
        }
        asterism_memory::hash::bytes(&bytes, 0)
    }
}

impl<V: Value> Snapshot for Register<V> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        if cursor > 0 || self.stamp.sequence == 0 || !self.settings.is_replicated() {
            return None;
        }
        if !part.has_room() {
            return Some(0);
        }
        let mut writer = Writer::new(part.out(), self.context.addresses());
        writer.tag(self.object, 0);
        writer.varint(self.generation);
        self.value.encode(&mut writer);
        write_stamp(&self.context, self.stamp, &mut writer);
        None
    }
    fn apply_snapshot(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let generation = input.varint()?;
        let value = V::decode(input)?;
        let stamp = read_stamp(&self.context, input)?;
        self.merge(value, generation, stamp);
        Ok(())
    }
    fn restore(&mut self, _: u8, input: &mut Reader<'_>, _: &Since) -> Result<bool, BadBytes> {
        input.varint()?;
        let value = V::decode(input)?;
        skip_stamp(input)?;
        RegisterAct(self).set(value);
        Ok(true)
    }
}

impl<V: Value> Inspect for Register<V> {
    fn entries(&self) -> usize {
        1
    }
}

impl<V: Value> Fetch for Register<V> {
    fn stays_because(&self) -> Option<&'static str> {
        None
    }
    fn extract(&self, _: &Query<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 2]);
        if self.is_written {
            let mut writer = Writer::new(out, self.context.addresses());
            self.value.encode(&mut writer);
            let length = (out.len() - start - 2) as u16;
            out[start..start + 2].copy_from_slice(&length.to_le_bytes());
        }
    }
    fn install(&mut self, _: u8, answer: &[u8]) -> Result<(), BadBytes> {
        if let Some(value) = stable(answer)? {
            let input = &mut Reader::new(value, self.context.addresses());
            self.value = V::decode(input)?;
            self.is_written = true;
        }
        Ok(())
    }
    fn withdraw(&mut self) {
        if self.settings.is_remote() {
            self.clear();
        }
    }
    fn clear(&mut self) {
        (self.value, self.is_written) = (self.initial, false);
    }
    fn reads_of(&self, _: &[u8], each: &mut dyn FnMut(&[Query<'_>])) -> Result<(), BadBytes> {
        each(&[self.query()]);
        Ok(())
    }
    fn each_entry(
        &self,
        answer: &[u8],
        each: &mut dyn FnMut(&FetchedEntry<'_>),
    ) -> Result<(), BadBytes> {
        if let Some(value) = stable(answer)? {
            each(&FetchedEntry {
                bytes: value,
                row: &[],
                ends: None,
                reads: &[self.query()],
                unique: 1,
                is_shadowed: false,
            });
        }
        Ok(())
    }
}

/// The value of an answer; `None` if nobody wrote it.
fn stable(answer: &[u8]) -> Result<Option<&[u8]>, BadBytes> {
    let (length, rest) = answer.split_first_chunk().ok_or(BadBytes)?;
    let length = usize::from(u16::from_le_bytes(*length));
    let value = rest.get(..length).ok_or(BadBytes)?;
    Ok((length > 0).then_some(value))
}

impl<V: Value> Register<V> {
    /// The read that finds it in a store.
    fn query(&self) -> Query<'static> {
        Query {
            object: self.object,
            lane: 0,
            hash: 0,
            key: &[],
            conversation: 0,
        }
    }
}

impl<V: Value> Operations for Register<V> {
    fn must_begin_recording(&self) -> bool {
        false
    }
    fn note_undecided(&mut self, _: u8, _: &mut Reader<'_>, begins: bool) -> Result<(), BadBytes> {
        self.context.note_undecided_entry(self.object, begins);
        Ok(())
    }
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let value = V::decode(input)?;
        RegisterAct(self).set(value);
        Ok(())
    }
}

impl<V: Value> PerPacket for Register<V> {}
