//! What the auditor found, in `status` and for `asterism audit`.

use asterism_engine::Removal;
use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use asterism_placement::replicated::audit::{Place, SEGMENT_LEAVES};
use serde::{Deserialize, Serialize};

use crate::names::Names;

/// The results of an auditor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditDocument {
    /// The reference host, with which the others compare; none before this host has joined.
    pub reference: Option<String>,
    /// Whether this host is the reference.
    pub leads: bool,
    /// The objects that are compared.
    pub objects: Vec<AuditedDocument>,
    /// Parts found equal, each time that they were compared.
    pub parts_equal: u64,
    /// Parts found different.
    pub parts_different: u64,
    /// Parts that changed while they were compared, and were left for the next turn.
    pub parts_changing: u64,
    /// Comparisons without a result.
    pub rounds_void: u64,
    /// Messages that were malformed, or not from the reference.
    pub refused: u64,
    /// The other hosts' streams: deliveries here compared with the messages sent.
    pub streams: Vec<StreamDocument>,
}

/// A stream of another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDocument {
    /// The host.
    pub member: String,
    /// The last group that was compared; 0 before the first comparison.
    pub through: u64,
    /// Time since the stream was last found delivered as sent; none before that.
    pub equal_us_ago: Option<u64>,
    /// Ranges of groups that were delivered otherwise than sent.
    pub ranges_different: u64,
    /// The first group of the last such range.
    pub different_first: Option<u64>,
    /// The last group of that range.
    pub different_last: Option<u64>,
}

/// An object that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedDocument {
    /// Its name.
    pub object: String,
    /// Time since the whole object was found equal; none if there is no comparison.
    pub equal_us_ago: Option<u64>,
    /// The differences.
    pub differs: Vec<DifferenceDocument>,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceDocument {
    /// The packet loop of this host.
    pub instance: usize,
    /// The parts that differ, of the object's 256.
    pub parts: Vec<u8>,
}

impl AuditDocument {
    /// The state channel's last report, with names.
    #[must_use]
    pub fn new(channel: &ChannelSnapshot, names: &Names) -> AuditDocument {
        let audit = &channel.audit;
        let name = |member: MemberId| names.members.get(member);
        let reference = audit.reference.and_then(name);
        let streams = audit.streams.iter().map(|stream| StreamDocument {
            member: name(stream.origin).unwrap_or_else(|| "?".to_owned()),
            through: stream.through,
            equal_us_ago: stream
                .equal_at
                .map(|at| channel.at.since(at).as_micros() as u64),
            ranges_different: stream.faults,
            different_first: stream.last_fault.map(|fault| fault.first),
            different_last: stream.last_fault.map(|fault| fault.last),
        });
        let objects = audit.objects.iter().map(|&(object, since)| {
            let of = audit
                .differing
                .iter()
                .filter(|(at, ..)| at.object == object);
            let mut differs: Vec<DifferenceDocument> = Vec::new();
            for &(place, instance, leaves) in of {
                let parts = parts_of(place, leaves);
                match differs.iter_mut().find(|known| known.instance == instance) {
                    Some(known) => known.parts.extend(parts),
                    None => differs.push(DifferenceDocument { instance, parts }),
                }
            }
            let name = names.objects.get(usize::from(object));
            AuditedDocument {
                object: name.copied().unwrap_or("?").to_owned(),
                equal_us_ago: since.map(|since| channel.at.since(since).as_micros() as u64),
                differs,
            }
        });
        AuditDocument {
            leads: audit.reference == Some(channel.member),
            objects: objects.collect(),
            reference,
            parts_equal: audit.tally.equal,
            parts_different: audit.tally.different,
            parts_changing: audit.tally.changing,
            rounds_void: audit.tally.rounds_void,
            refused: audit.tally.refused,
            streams: streams.collect(),
        }
    }

    /// Whether something differs, or was delivered otherwise than sent since the host was started.
    #[must_use]
    pub fn differs(&self) -> bool {
        let mut streams = self.streams.iter();
        self.objects.iter().any(|object| !object.differs.is_empty())
            || streams.any(|stream| stream.ranges_different > 0)
    }
}

/// The numbers of the parts whose bits are set in a segment.
#[must_use]
pub fn parts_of(place: Place, leaves: u64) -> Vec<u8> {
    (0..SEGMENT_LEAVES)
        .filter(|leaf| leaves >> leaf & 1 != 0)
        .map(|leaf| (place.first_leaf() + leaf) as u8)
        .collect()
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairDocument {
    /// Entries that were written again.
    pub entries: u64,
    /// Whether the others were asked to remove surplus entries; none without `--remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalDocument>,
}

/// Whether the others were asked to remove the entries that this host lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalDocument {
    /// In an object of this kind, one host cannot tell that an entry of the others is surplus.
    NotOfThisObject,
    /// No member has written anything yet that others could hold.
    NothingWritten,
    /// The others were asked.
    Reported,
}

impl RemovalDocument {
    /// The result over all instances of a host.
    #[must_use]
    pub fn of(removal: Removal) -> Option<RemovalDocument> {
        match removal {
            Removal::NotAsked => None,
            Removal::NotOfThisObject => Some(RemovalDocument::NotOfThisObject),
            Removal::NothingWritten => Some(RemovalDocument::NothingWritten),
            Removal::Reported => Some(RemovalDocument::Reported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_bits_of_a_segment() {
        let place = Place {
            object: 0,
            segment: 1,
        };
        assert_eq!(parts_of(place, 1 | 1 << 13), [64, 77]);
    }
}
