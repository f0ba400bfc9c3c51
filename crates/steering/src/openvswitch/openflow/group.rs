//! Groups that select a bucket by a hash of each packet.

use super::bytes::{Reader, Writer};
use super::matching::{
    Field, IPV4_DST, IPV4_SRC, IPV6_DST, IPV6_SRC, SCTP_DST, SCTP_SRC, TCP_DST, TCP_SRC, UDP_DST,
    UDP_SRC, field,
};
use super::{Action, Version, WireError};

/// `OFPGT_SELECT`.
const SELECT: u8 = 1;
/// All groups, of a question (`OFPG_ALL`).
pub const ALL_GROUPS: u32 = 0xffff_fffc;
/// Nothing is watched.
const ANY: u32 = 0xffff_ffff;
/// `OFPG_BUCKET_ALL`.
const ALL_BUCKETS: u32 = 0xffff_ffff;
/// The experimenter, and the type, of the property that names a method of selection (Open vSwitch, `group-table.md`).
const SELECTION_EXPERIMENTER: u32 = 0x154d;
const SELECTION_TYPE: u32 = 1;
const METHOD_FIELD_BYTES: usize = 16;

const FIVE_TUPLE: &[u8] = &[
    IPV4_SRC, IPV4_DST, TCP_SRC, TCP_DST, UDP_SRC, UDP_DST, SCTP_SRC, SCTP_DST, IPV6_SRC, IPV6_DST,
];
const SOURCE: &[u8] = &[IPV4_SRC, TCP_SRC, UDP_SRC, SCTP_SRC, IPV6_SRC];
const DESTINATION: &[u8] = &[IPV4_DST, TCP_DST, UDP_DST, SCTP_DST, IPV6_DST];

/// By what a group selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// As the switch does without being asked: a hash of both addresses and, except of UDP, both ports, the same for both
    /// directions. Its cache has one entry a slot. All that can be said in OpenFlow 1.3.
    #[default]
    Unnamed,
    /// The datapath's hash of addresses and ports, of a network card where it has one. Its cache has one entry a slot.
    Datapath,
    /// A hash of addresses and ports. Its cache has one entry a flow, as have the next two.
    FiveTuple,
    /// A hash of the source's address and port.
    Source,
    /// A hash of the destination's address and port.
    Destination,
    /// Another method; only received.
    Other,
}

impl Selection {
    /// The method's name, and the fields that it hashes.
    fn method(self) -> Option<(&'static str, &'static [u8])> {
        match self {
            Selection::Datapath => Some(("dp_hash", &[])),
            Selection::FiveTuple => Some(("hash", FIVE_TUPLE)),
            Selection::Source => Some(("hash", SOURCE)),
            Selection::Destination => Some(("hash", DESTINATION)),
            Selection::Unnamed | Selection::Other => None,
        }
    }

    /// Whether the switch makes equal slots of powers of two alone.
    #[must_use]
    pub fn wants_power_of_two(self) -> bool {
        matches!(self, Selection::Unnamed | Selection::Datapath)
    }

    fn write(self, to: &mut Writer) -> Result<(), WireError> {
        let Some((method, fields)) = self.method() else {
            return match self {
                Selection::Other => Err(WireError::NotInVersion("a selection that was not read")),
                _ => Ok(()),
            };
        };
        let start = to.len();
        to.u16(0xffff);
        to.u16(0);
        to.u32(SELECTION_EXPERIMENTER);
        to.u32(SELECTION_TYPE);
        to.zeros(4);
        to.text(method, METHOD_FIELD_BYTES)?;
        to.zeros(8); // The basis of the hash; of dp_hash, the algorithm too: 0 is that of addresses and ports.
        for number in fields {
            // A field's value says which of its bits are hashed.
            let all = [0xff; 16];
            field(to, *number, &all[..field_bytes(*number)]);
        }
        to.count(start, 2, "a group's property")?;
        to.align(start, 8);
        Ok(())
    }

    /// Reads properties to the end of the part.
    fn read(mut from: Reader<'_>) -> Result<Selection, WireError> {
        let mut selection = Selection::Unnamed;
        while !from.is_empty() {
            let mut property = from.counted(2, 4, 8, "a group's property")?;
            let kind = property.u16()?;
            property.skip(2)?;
            let is_it = kind == 0xffff
                && property.u32()? == SELECTION_EXPERIMENTER
                && property.u32()? == SELECTION_TYPE;
            selection = match is_it {
                true => Selection::read_method(property)?,
                false => Selection::Other,
            };
        }
        Ok(selection)
    }

    fn read_method(mut from: Reader<'_>) -> Result<Selection, WireError> {
        from.skip(4)?;
        let name = from.bytes(METHOD_FIELD_BYTES)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let basis = from.u64()?;
        let mut numbers = Vec::new();
        while !from.is_empty() {
            let one = Field::read(&mut from)?;
            let is_whole = one.value.iter().all(|byte| *byte == 0xff);
            // A field of another class, or a part of one, is none of ours.
            let number = Some(one.number).filter(|number| is_whole && one.is_basic(*number));
            numbers.push(number.unwrap_or(u8::MAX));
        }
        numbers.sort_unstable();
        let is_it = |selection: &Selection| {
            selection.method().is_some_and(|(method, fields)| {
                let mut fields = fields.to_vec();
                fields.sort_unstable();
                method.as_bytes() == name && fields == numbers
            })
        };
        let known = [
            Selection::Datapath,
            Selection::FiveTuple,
            Selection::Source,
            Selection::Destination,
        ];
        let found = known.into_iter().find(|one| basis == 0 && is_it(one));
        Ok(found.unwrap_or(Selection::Other))
    }
}

fn field_bytes(number: u8) -> usize {
    match number {
        IPV4_SRC | IPV4_DST => 4,
        IPV6_SRC | IPV6_DST => 16,
        _ => 2,
    }
}

/// One bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its number, by which the hash finds it. In OpenFlow 1.3 it is its place in the list.
    pub number: u32,
    /// Its weight.
    pub weight: u16,
    /// What happens to its packets.
    pub actions: Vec<Action>,
}

impl Bucket {
    fn write(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        to.u16(0);
        match version {
            Version::V13 => {
                to.u16(self.weight);
                to.u32(ANY);
                to.u32(ANY);
                to.zeros(4);
                self.write_actions(to)?;
            }
            Version::V15 => {
                to.u16(0);
                to.u32(self.number);
                self.write_actions(to)?;
                to.set_u16(start + 2, to.len() - start - 8, "a bucket's actions")?;
                to.u16(0); // OFPGBPT_WEIGHT
                to.u16(8);
                to.u16(self.weight);
                to.zeros(2);
            }
        }
        to.count(start, 0, "a bucket")
    }

    fn write_actions(&self, to: &mut Writer) -> Result<(), WireError> {
        self.actions.iter().try_for_each(|action| action.write(to))
    }

    /// Reads buckets to the end of the part.
    fn read_all(version: Version, mut from: Reader<'_>) -> Result<Vec<Bucket>, WireError> {
        let mut buckets = Vec::new();
        while !from.is_empty() {
            let place = buckets.len() as u32;
            buckets.push(match version {
                Version::V13 => Bucket::read_13(place, &mut from)?,
                Version::V15 => Bucket::read_15(&mut from)?,
            });
        }
        Ok(buckets)
    }

    fn read_13(number: u32, from: &mut Reader<'_>) -> Result<Bucket, WireError> {
        let mut bucket = from.counted(0, 16, 8, "a bucket")?;
        bucket.skip(2)?;
        let weight = bucket.u16()?;
        bucket.skip(12)?;
        Ok(Bucket {
            number,
            weight,
            actions: Action::read_all(bucket)?,
        })
    }

    fn read_15(from: &mut Reader<'_>) -> Result<Bucket, WireError> {
        let mut bucket = from.counted(0, 8, 8, "a bucket")?;
        bucket.skip(2)?;
        let actions = bucket.u16()?;
        let number = bucket.u32()?;
        let actions = Action::read_all(bucket.part(actions.into(), "a bucket's actions")?)?;
        let mut weight = 1;
        while !bucket.is_empty() {
            let mut property = bucket.counted(2, 4, 8, "a bucket's property")?;
            let kind = property.u16()?;
            property.skip(2)?;
            if kind == 0 {
                weight = property.u16()?;
            }
        }
        Ok(Bucket {
            number,
            weight,
            actions,
        })
    }
}

/// A group that selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Whether it selects; a received group of another type does not.
    pub selects: bool,
    /// By what.
    pub selection: Selection,
    /// From what.
    pub buckets: Vec<Bucket>,
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommand {
    /// Adds a group; refused if there is one with this number.
    Add = 0,
    /// Replaces a group; refused if there is none with this number.
    Modify = 1,
    /// Deletes a group, and every flow that refers to it; nothing happens if there is none.
    Delete = 2,
}

/// A change of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What it does.
    pub command: GroupCommand,
    /// The group as it is to be; a deletion needs its number alone.
    pub group: Group,
}

impl GroupMod {
    /// A deletion.
    #[must_use]
    pub fn delete(id: u32) -> GroupMod {
        GroupMod {
            command: GroupCommand::Delete,
            group: Group {
                id,
                selects: true,
                selection: Selection::Unnamed,
                buckets: Vec::new(),
            },
        }
    }

    pub(super) fn write(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        to.u16(self.command as u16);
        let lengths = self.group.write_head(to)?;
        if version == Version::V15 {
            to.zeros(4);
            to.u32(ALL_BUCKETS);
        }
        self.group.write_rest(version, lengths, to)
    }

    pub(super) fn read(version: Version, mut from: Reader<'_>) -> Result<GroupMod, WireError> {
        let command = match from.u16()? {
            0 => GroupCommand::Add,
            1 => GroupCommand::Modify,
            2 => GroupCommand::Delete,
            other => {
                return Err(WireError::Value {
                    what: "the command of a group-mod",
                    value: other.into(),
                });
            }
        };
        let group = Group::read_parts(version, from)?;
        Ok(GroupMod { command, group })
    }
}

impl Group {
    /// As the answer to a question has it.
    pub(super) fn write(&self, version: Version, to: &mut Writer) -> Result<(), WireError> {
        let start = to.len();
        to.u16(0);
        let lengths = self.write_head(to)?;
        if version == Version::V15 {
            to.zeros(8);
        }
        self.write_rest(version, lengths, to)?;
        to.count(start, 0, "a group")
    }

    pub(super) fn read(version: Version, from: &mut Reader<'_>) -> Result<Group, WireError> {
        let mut group = from.counted(0, 8, 1, "a group")?;
        group.skip(2)?;
        Group::read_parts(version, group)
    }

    /// Its type and number; and where the length of its buckets will stand, if its version has one.
    fn write_head(&self, to: &mut Writer) -> Result<usize, WireError> {
        if !self.selects {
            return Err(WireError::NotInVersion("a group that was not read"));
        }
        to.u8(SELECT);
        to.zeros(1);
        to.u32(self.id);
        Ok(to.len())
    }

    fn write_rest(
        &self,
        version: Version,
        length_at: usize,
        to: &mut Writer,
    ) -> Result<(), WireError> {
        let start = to.len();
        for bucket in &self.buckets {
            bucket.write(version, to)?;
        }
        if version == Version::V15 {
            to.set_u16(length_at, to.len() - start, "a group's buckets")?;
            self.selection.write(to)?;
        }
        Ok(())
    }

    /// Reads what changes and answers have alike, from the type on.
    fn read_parts(version: Version, mut from: Reader<'_>) -> Result<Group, WireError> {
        let selects = from.u8()? == SELECT;
        from.skip(1)?;
        let id = from.u32()?;
        let (buckets, selection) = match version {
            Version::V13 => (Bucket::read_all(version, from)?, Selection::Unnamed),
            Version::V15 => {
                let length = from.u16()?;
                from.skip(6)?;
                let buckets = from.part(length.into(), "a group's buckets")?;
                (Bucket::read_all(version, buckets)?, Selection::read(from)?)
            }
        };
        Ok(Group {
            id,
            selects,
            selection,
            buckets,
        })
    }
}
