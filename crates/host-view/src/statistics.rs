//! What a packet loop shows of itself, for others to read at any time without holding it up.
//!
//! The loop writes the words of a seqlock a few times a second; a reader has them whole, if the loop pauses too. Imports the
//! engine's counts.

use asterism_engine::{ObjectUse, Tally};
use asterism_function::Reason;
use asterism_function::chain::StageTally;
use asterism_io::port::{PortDrop, PortStatistics};
use asterism_io::seqlock::Seqlock;
use asterism_placement::Time;
use asterism_state::{ObjectCount, ObjectCounts};

/// Stands for a count that an object does not have: no count gets as far.
const NO_COUNT: u64 = u64::MAX;
/// A place that one instance's loop writes and others read.
pub type InstanceStatistics = Seqlock;

/// A count of an instance: its name in metrics, its meaning, and where it is found.
pub struct InstanceCount {
    /// The name, without `asterism_` and `_total`.
    pub name: &'static str,
    /// What is counted.
    pub meaning: &'static str,
    /// Reads it.
    pub of: fn(&Tally) -> u64,
}

macro_rules! counts {
    ($($name:literal $field:ident $meaning:literal;)*) => {
        /// What instances count, but for drops, which have a reason each.
        pub const COUNTS: &[InstanceCount] = &[$(InstanceCount {
            name: $name,
            meaning: $meaning,
            of: |tally| tally.$field,
        },)*];
    };
}

counts! {
    "packets_received" received "Packets taken from ports.";
    "packets_forwarded" forwarded "Packets sent to ports, those that the function emitted included.";
    "packets_emitted" emitted "Packets that the function emitted.";
    "copies" copies "Copies of packets that were sent to the port `span`.";
    "copies_lost" copies_lost "Copies for the port `span` that were not made: longer than 1,600 bytes, or too many in a turn.";
    "packets_consumed" consumed "Packets that were for the function itself.";
    "calls_late" late "Calls of the function that ended late.";
    "packets_prefetched" prefetched "Packets handled in two passes, the first of which prefetches: most of them while packets read more of the tables than the cache holds.";
    "turns_held_by_parking" held_by_parking "Turns in which no port was read because packets were parked to the bound.";
    "turns_held_by_log" held_by_log "Turns in which no port was read because the log had no room.";
    "turns_held_by_lease" held_by_lease "Turns in which no port was read because the lease of ports ran out so long ago that others may have them.";
    "packets_held" held "Packets held back until other hosts have what they depend on, those that followed one of their flow included.";
    "packets_released_unconfirmed" released_unconfirmed "Held packets that left although too few hosts were known to have what they depend on.";
    "groups_applied" groups_applied "Operation groups of others that were applied.";
    "groups_bad" groups_bad "Operation groups and snapshot parts of others that did not decode: the host stops at the first.";
    "groups_written" groups_written "Operation groups that were committed.";
    "group_bytes_written" group_bytes_written "Bytes of those groups.";
    "counter_changes" counter_changes "Changes of counters' and sketches' cells that were logged.";
    "counters_reported" counters_reported "Totals of cells with which they were logged: the fewer, the more was coalesced.";
    "snapshot_parts_written" snapshot_parts_written "Parts of snapshots that were written for members that join or lag.";
    "snapshot_places" snapshot_places "Places of tables that were looked at for snapshots, used ones or not.";
    "snapshot_places_most" snapshot_places_most "The most places of tables that one turn looked at for snapshots; bounded, so that no packet waits for a join.";
    "snapshot_parts_applied" snapshot_parts_applied "Parts of others' snapshots that were joined.";
}

/// A port as its instance knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// What it counted.
    pub statistics: PortStatistics,
    /// Whether packets can pass.
    pub is_up: bool,
}

/// A stage of a chain as its instance knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Calls that ended with a verdict.
    pub acted: u64,
    /// Calls that were late.
    pub late: u64,
    /// Packets that went on although the stage had failed for them.
    pub bypassed: u64,
    /// Copies that it got.
    pub mirrored: u64,
    /// Copies for which there was no room.
    pub mirror_lost: u64,
    /// Packets for which it said a reason to drop them, in the order of [`Reason::ALL`].
    pub dropped: Vec<u64>,
}

impl StageSnapshot {
    /// What a stage counted.
    #[must_use]
    pub fn new(tally: &StageTally) -> StageSnapshot {
        StageSnapshot {
            acted: tally.acted,
            late: tally.late,
            bypassed: tally.bypassed,
            mirrored: tally.mirrored,
            mirror_lost: tally.mirror_lost,
            dropped: Reason::ALL
                .iter()
                .map(|reason| tally.dropped(*reason))
                .collect(),
        }
    }

    /// Calls of the stage.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.acted + self.late
    }
}

/// An instance at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSnapshot {
    /// When, by the host's clock.
    pub at: Time,
    /// Turns of its loop, and how often it slept.
    pub turns: u64,
    /// How often it slept.
    pub sleeps: u64,
    /// What it counted, in the order of [`COUNTS`].
    pub counts: Vec<u64>,
    /// Packets dropped, in the order of [`Reason::ALL`].
    pub dropped: Vec<u64>,
    /// Packets parked now.
    pub parked: u64,
    /// The most packets parked at any time.
    pub parked_most: u64,
    /// Packets held back now.
    pub held: u64,
    /// Bytes of these packets.
    pub held_bytes: u64,
    /// The most packets held back at any time.
    pub held_most: u64,
    /// Incarnations of members that it distinguishes.
    pub incarnations: u64,
    /// Frames in use.
    pub frames_in_use: u64,
    /// Bytes that wait for the state channel.
    pub ring_bytes: u64,
    /// Room for them.
    pub ring_capacity: u64,
    /// Its ports, in order.
    pub ports: Vec<PortSnapshot>,
    /// Its objects, in order.
    pub objects: Vec<ObjectUse>,
    /// Its stages, in order, if it runs a chain.
    pub stages: Vec<StageSnapshot>,
    /// Values of the function's own metrics, in order.
    pub own: Vec<u64>,
}

impl InstanceSnapshot {
    /// A count by its name.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        let place = COUNTS.iter().position(|count| count.name == name);
        place
            .and_then(|place| self.counts.get(place))
            .copied()
            .unwrap_or(0)
    }

    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// As words for a [`InstanceStatistics`], appended to `words`.
    pub fn write(&self, words: &mut Vec<u64>) {
        words.extend([self.at.as_micros(), self.turns, self.sleeps]);
        words.extend(&self.counts);
        words.extend(&self.dropped);
        words.extend([
            self.parked,
            self.parked_most,
            self.held,
            self.held_bytes,
            self.held_most,
            self.incarnations,
            self.frames_in_use,
            self.ring_bytes,
            self.ring_capacity,
            self.ports.len() as u64,
        ]);
        for port in &self.ports {
            let statistics = &port.statistics;
            words.extend([
                u64::from(port.is_up),
                statistics.received_packets,
                statistics.received_bytes,
                statistics.sent_packets,
                statistics.sent_bytes,
                statistics.checksums_completed,
                statistics.segments_made,
                statistics.segments_merged,
                statistics.link_downs,
                statistics.reopened,
            ]);
            words.extend(statistics.dropped);
        }
        for object in &self.objects {
            words.extend([
                object.live as u64,
                object.held as u64,
                object.ended as u64,
                u64::from(object.capacity),
                u64::from(object.quarantined),
                u64::from(object.reclaimed),
            ]);
            let counts = ObjectCount::ALL.iter().copied();
            words.extend(counts.map(|count| object.counts.get(count).unwrap_or(NO_COUNT)));
        }
        for stage in &self.stages {
            words.extend([
                stage.acted,
                stage.late,
                stage.bypassed,
                stage.mirrored,
                stage.mirror_lost,
            ]);
            words.extend(&stage.dropped);
        }
        words.extend(&self.own);
    }

    /// From the words of a [`InstanceStatistics`]; `objects` are the function's, and it has so many stages and metrics of its own.
    #[must_use]
    pub fn read(
        words: &[u64],
        objects: &'static [&'static str],
        (stages, own): (usize, usize),
    ) -> Option<InstanceSnapshot> {
        let mut words = words.iter().copied();
        let mut next = || words.next();
        let (at, turns, sleeps) = (Time::from_micros(next()?), next()?, next()?);
        let counted = (0..COUNTS.len()).map(|_| next()).collect::<Option<_>>()?;
        let dropped = (0..Reason::ALL.len())
            .map(|_| next())
            .collect::<Option<_>>()?;
        let (parked, parked_most) = (next()?, next()?);
        let (held, held_bytes, held_most) = (next()?, next()?, next()?);
        let (incarnations, frames_in_use) = (next()?, next()?);
        let (ring_bytes, ring_capacity, ports) = (next()?, next()?, next()?);
        let mut port = || {
            let is_up = next()? != 0;
            let mut statistics = PortStatistics {
                received_packets: next()?,
                received_bytes: next()?,
                sent_packets: next()?,
                sent_bytes: next()?,
                checksums_completed: next()?,
                segments_made: next()?,
                segments_merged: next()?,
                link_downs: next()?,
                reopened: next()?,
                dropped: [0; PortDrop::COUNT],
            };
            for dropped in &mut statistics.dropped {
                *dropped = next()?;
            }
            Some(PortSnapshot { statistics, is_up })
        };
        let ports = (0..ports.min(64)).map(|_| port()).collect::<Option<_>>()?;
        let mut object = |name: &&'static str| {
            Some(ObjectUse {
                name,
                live: next()? as usize,
                held: next()? as usize,
                ended: next()? as usize,
                capacity: next()? as u32,
                quarantined: next()? as u32,
                reclaimed: next()? as u32,
                counts: counts(&mut next)?,
            })
        };
        let objects = objects.iter().map(&mut object).collect::<Option<_>>()?;
        let stage = |_| {
            Some(StageSnapshot {
                acted: next()?,
                late: next()?,
                bypassed: next()?,
                mirrored: next()?,
                mirror_lost: next()?,
                dropped: (0..Reason::ALL.len())
                    .map(|_| next())
                    .collect::<Option<_>>()?,
            })
        };
        let stages = (0..stages).map(stage).collect::<Option<_>>()?;
        let own = (0..own).map(|_| next()).collect::<Option<_>>()?;
        Some(InstanceSnapshot {
            at,
            turns,
            sleeps,
            counts: counted,
            dropped,
            parked,
            parked_most,
            held,
            held_bytes,
            held_most,
            incarnations,
            frames_in_use,
            ring_bytes,
            ring_capacity,
            ports,
            objects,
            stages,
            own,
        })
    }
}

/// What an object counted, as [`InstanceSnapshot::write`] says it.
fn counts(next: &mut impl FnMut() -> Option<u64>) -> Option<ObjectCounts> {
    let mut counts = ObjectCounts::default();
    for count in ObjectCount::ALL {
        let value = next()?;
        if value != NO_COUNT {
            counts = counts.with(*count, value);
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::seqlock::WORDS_MAX;

    #[test]
    fn a_snapshot_goes_through_words() {
        let snapshot = InstanceSnapshot {
            at: Time::from_micros(7),
            turns: 1,
            sleeps: 2,
            counts: (0..COUNTS.len() as u64).collect(),
            dropped: (100..100 + Reason::ALL.len() as u64).collect(),
            parked: 3,
            parked_most: 4,
            held: 13,
            held_bytes: 14,
            held_most: 15,
            incarnations: 12,
            frames_in_use: 5,
            ring_bytes: 6,
            ring_capacity: 7,
            ports: vec![
                PortSnapshot {
                    statistics: PortStatistics {
                        received_packets: 9,
                        dropped: [8; PortDrop::COUNT],
                        ..PortStatistics::default()
                    },
                    is_up: true,
                },
                PortSnapshot::default(),
            ],
            objects: vec![ObjectUse {
                name: "sessions",
                live: 1,
                held: 2,
                ended: 7,
                capacity: 3,
                quarantined: 4,
                reclaimed: 5,
                counts: ObjectCounts::default()
                    .with(ObjectCount::Shadowed, 0)
                    .with(ObjectCount::WrittenOff, 6),
            }],
            stages: vec![StageSnapshot {
                acted: 10,
                dropped: (200..200 + Reason::ALL.len() as u64).collect(),
                ..StageSnapshot::default()
            }],
            own: vec![11, 12],
        };
        let mut words = Vec::new();
        snapshot.write(&mut words);
        assert!(words.len() < WORDS_MAX);
        assert_eq!(
            InstanceSnapshot::read(&words, &["sessions"], (1, 2)),
            Some(snapshot.clone())
        );
        assert_eq!(snapshot.count("packets_forwarded"), 1);
        for cut in 0..words.len() {
            let read = InstanceSnapshot::read(&words[..cut], &["sessions"], (1, 2));
            assert_eq!(read, None);
        }
    }
}
