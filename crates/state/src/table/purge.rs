//! What a repair removes: entries that the host it is made from did not have.
//!
//! That host writes all that it has of some leaves again, and then says how far it had applied every stream when it began. What another
//! host has in these leaves of a write up to there is what the first did not have: all that it had was written again since,
//! and what others wrote meanwhile lies beyond. Each host removes it by itself, as its sweep passes; nothing is logged, and it does
//! not matter when, since both sides of the comparison only ever grow.

use super::record::{CONFIRMED, LIVE};
use super::{Row, Table, Value};
use crate::audit::{LeafSet, Leaves};
use crate::branch::{Branch, taken};
use crate::context::{Context, OPERATION_BYTES_MAX};
use crate::mutant::{self, Mutant};
use crate::stamp::{NamedOrigins, Origin, OriginName, Stamp, raise};
use crate::wire::{BadBytes, Reader, Writer};

use super::operations::OPERATION_PURGE;

/// Streams that one operation names: some 200 bytes of it.
const STREAMS_MAX: usize = 10;
/// Purges under way at most; of more than so many the oldest is given up, and what it did not come to still differs.
const PURGES_MAX: usize = 64;

/// What is looked for.
#[derive(Debug)]
pub(super) struct Purge {
    leaves: LeafSet,
    /// How far each stream was applied there, by origin.
    through: Vec<u64>,
    /// Of these all was there: those before them may be forgotten there, and are meant too.
    closed: Vec<OriginName>,
    /// Records from here on came to use behind it: nothing that it looks for is there.
    below: u32,
    /// Of those below, the ones that are still to be looked at.
    left: u32,
}

impl Purge {
    fn covers(&self, leaf: usize, stamp: Stamp) -> bool {
        let through = self.through.get(usize::from(stamp.origin.0));
        self.leaves.contains(leaf)
            && through.is_some_and(|&through| {
                // What has no number yet nobody else can have written.
                through > 0
                    && stamp.sequence > 0
                    && (through >= stamp.sequence || mutant::active(Mutant::RepairRemovesNews))
            })
    }
}

impl Purge {
    /// Takes in the incarnations of which the other host has all, and which it does not name. They come in the order of their names, so
    /// those before one that is in are in as well.
    fn include_forgotten(&mut self, context: &Context) {
        for name in self.closed.drain(..) {
            context.each_over_before(name, |origin| {
                let place = usize::from(origin.0);
                if self.through.get(place) == Some(&u64::MAX) {
                    return false;
                }
                context.keep_origin(origin);
                raise(&mut self.through, origin, u64::MAX);
                true
            });
        }
    }
}

/// Appends what an operation says after its tag.
fn encode(leaves: &LeafSet, streams: &[(OriginName, u64)], out: &mut Writer<'_>) {
    leaves.words().iter().for_each(|word| out.u64(*word));
    out.u8(streams.len() as u8);
    for (name, through) in streams {
        out.u16(name.member);
        out.u64(name.incarnation);
        out.varint(*through);
    }
}

fn decode(input: &mut Reader<'_>, context: &Context) -> Result<Purge, BadBytes> {
    let mut words = [0; 4];
    for word in &mut words {
        *word = input.u64()?;
    }
    let count = usize::from(input.u8()?);
    if count > STREAMS_MAX {
        return Err(BadBytes);
    }
    let (mut through, mut closed) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let name = OriginName {
            member: input.u16()?,
            incarnation: input.u64()?,
        };
        let sequence = input.varint()?;
        // Of who is not known here, nothing is here.
        if let Some(origin) = context.known_origin(name) {
            raise(&mut through, origin, sequence);
        } else {
            taken(Branch::StreamUnknown);
        }
        if sequence == u64::MAX {
            closed.push(name);
        }
    }
    Ok(Purge {
        leaves: LeafSet::of_words(words),
        through,
        closed,
        below: 0,
        left: 0,
    })
}

impl<R: Row, V: Value> Table<R, V> {
    /// Has all other instances remove what they have in these leaves of writes up to `through`: this one has written all that it has
    /// of them again since.
    pub(crate) fn write_purge(&mut self, leaves: &LeafSet, through: &[(OriginName, u64)]) {
        if !self.settings.logged {
            return;
        }
        for streams in through.chunks(STREAMS_MAX) {
            // Longer than an entry.
            let _ = self.context.stamp(true, OPERATION_BYTES_MAX);
            let object = self.object;
            self.context.log(|out| {
                out.tag(object, OPERATION_PURGE);
                encode(leaves, streams, out);
            });
        }
    }

    /// Begins to look for what another host's repair removes.
    pub(super) fn apply_purge(&mut self, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let mut purge = decode(input, &self.context)?;
        purge.below = self.used;
        purge.left = self.used;
        // A repair names more streams than an operation holds: they are looked for together.
        if let Some(last) = self
            .purges
            .last_mut()
            .filter(|last| last.leaves == purge.leaves)
        {
            for (origin, through) in (0..).map(Origin).zip(&last.through) {
                raise(&mut purge.through, origin, *through);
            }
            purge.include_forgotten(&self.context);
            *last = purge;
            taken(Branch::RemovalJoined);
            return Ok(());
        }
        purge.include_forgotten(&self.context);
        taken(Branch::RemovalBegun);
        if self.purges.len() == PURGES_MAX {
            self.purges.remove(0);
        }
        self.purges.push(purge);
        Ok(())
    }

    /// Marks the slots of the streams that are looked for.
    pub(super) fn purges_named(&self, named: &mut NamedOrigins) {
        for purge in &self.purges {
            for (slot, _) in (0..)
                .zip(&purge.through)
                .filter(|(_, through)| **through > 0)
            {
                named.mark(slot);
            }
        }
    }

    /// Removes a record if it is looked for; whether it was.
    #[cold]
    pub(super) fn purge(&mut self, number: u32) -> bool {
        let before = self.records[number as usize];
        let leaf = Leaves::of(before.row.lane_hash(0, self.context.seed()));
        let stamp = before.header.stamp();
        let is_live = before.header.flags & LIVE != 0;
        let goes = is_live && self.purges.iter().any(|purge| purge.covers(leaf, stamp));
        self.purges.retain_mut(|purge| {
            purge.left -= u32::from(number < purge.below && purge.left > 0);
            purge.left > 0
        });
        taken(match goes {
            true => Branch::RemovedByRepair,
            false => Branch::KeptByRepair,
        });
        if !goes {
            return false;
        }
        self.records[number as usize].header.flags &= !(LIVE | CONFIRMED);
        self.live -= 1;
        self.turn(number, false);
        let after = self.records[number as usize];
        if !mutant::active(Mutant::RemovedStaysInDigest) {
            self.audit(number, Some(&before), &after);
        }
        self.relink(number);
        self.forget(number);
        self.tally.forgotten -= 1;
        self.tally.removed_by_repair += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_short_enough_and_every_cut_of_it_is_refused() {
        let identity = crate::Identity {
            own: OriginName {
                member: 1,
                incarnation: 1,
            },
            members: vec![1],
            lane: (0, 1),
        };
        let sequencer = crate::Sequencer::Own(0.into());
        let context = Context::new(identity, sequencer, 1, vec![]);
        let stream = |member| {
            let name = OriginName {
                member,
                incarnation: u64::MAX,
            };
            (name, (1 << 48) - 1)
        };
        let streams: Vec<_> = (0..STREAMS_MAX as u16).map(stream).collect();
        let known = context.origin(streams[3].0).expect("room");
        let mut bytes = Vec::new();
        let leaves: LeafSet = [3, 250].into_iter().collect();
        encode(&leaves, &streams, &mut Writer::new(&mut bytes, &[]));
        assert!(bytes.len() + 2 <= crate::context::OPERATION_BYTES_MAX);
        let purge = decode(&mut Reader::new(&bytes, &[]), &context).expect("it decodes");
        let stamp = |sequence| Stamp {
            origin: known,
            sequence,
        };
        assert!(purge.covers(250, stamp(7)) && !purge.covers(249, stamp(7)));
        assert!(!purge.covers(3, stamp(1 << 48)), "written since");
        let named = purge.through.iter().filter(|through| **through > 0);
        assert_eq!(named.count(), 1, "the rest is of likely_misses");
        for cut in 0..bytes.len() {
            assert!(decode(&mut Reader::new(&bytes[..cut], &[]), &context).is_err());
        }
        bytes[32] = STREAMS_MAX as u8 + 1;
        assert!(decode(&mut Reader::new(&bytes, &[]), &context).is_err());
    }
}
