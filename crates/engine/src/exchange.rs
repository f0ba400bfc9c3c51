//! What instances and their host's state channel tell each other over rings.
//!
//! Up, on a ring of its own for each instance: operation groups in the order of their numbers, how far
//! others' streams are applied, snapshots for lagging_replicas. Down, on one ring that all instances of the host read:
//! groups of other members and of sibling instances, progress, requests for snapshots. Nobody waits on a ring.

use core::sync::atomic::{AtomicU64, Ordering};

use asterism_placement::{Incarnation, MemberId};
use asterism_state::OriginName;

use asterism_io::ring::{Refused, RingWriter};

/// What an instance tells its state channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Up<'a> {
    /// An operation group that it committed.
    Group { sequence: u64, bytes: &'a [u8] },
    /// It has applied that incarnation's stream up to here.
    Applied { origin: OriginName, sequence: u64 },
    /// A part of the snapshot for a member that lags.
    SnapshotPart {
        member: MemberId,
        scan: u32,
        bytes: &'a [u8],
    },
    /// The snapshot for a member that lags is complete.
    SnapshotDone { member: MemberId, scan: u32 },
    /// It has applied all parts of a snapshot.
    SnapshotApplied { from: MemberId, scan: u32 },
    /// A packet waits for what others may have written: ask them how far they are.
    Probe,
    /// It has applied all that was delivered of that incarnation, which has ended.
    EndedApplied { origin: OriginName },
    /// What it read for an auditor, having written up to `written` itself: digests, or nothing if the object has none.
    Audit {
        ticket: u32,
        written: u64,
        leaves: &'a [u8],
    },
    /// It did what [`Down::Share`] of this number asks for; the objects whose operations it logs.
    Shared { number: u32, objects: u64 },
    /// It has written again all that [`Down::Announce`] of this number asks for, in the groups before this record.
    Announced { number: u32 },
    /// What had changed in its accumulators is in the groups before this record: the whole of it, or its share of what may be
    /// logged in this round.
    Drained { round: u64, whole: bool },
    /// A read of an object that lives in a home on the state channel's thread.
    Ask {
        ticket: u64,
        object: u8,
        lane: u8,
        hash: u64,
        key: &'a [u8],
    },
    /// A transaction that such a home is to commit.
    Commit { attempt: u64, transaction: &'a [u8] },
}

/// What a state channel tells its host's instances.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Down<'a> {
    /// A group of another member, or of the instance in `lane` of this host.
    Group {
        lane: u8,
        origin: OriginName,
        sequence: u64,
        bytes: &'a [u8],
    },
    /// How far a member is: everything of it up to `received` came before this record; `stable`, `covered_us` and `confirmed` as the
    /// placement says.
    Progress {
        origin: OriginName,
        received: u64,
        stable: u64,
        covered_us: u64,
        confirmed: u64,
    },
    /// Scans the tables for a member that lags: the first instance does, [`SCAN_PARTS`] parts far.
    SnapshotScan { member: MemberId, scan: u32 },
    /// There is room for [`SCAN_PARTS`] more parts of that scan.
    ScanOn { member: MemberId, scan: u32 },
    /// That scan is not needed any more.
    StopScan { member: MemberId, scan: u32 },
    /// A part of a member's snapshot.
    SnapshotPart { from: MemberId, bytes: &'a [u8] },
    /// All parts of a snapshot came before this record.
    SnapshotEnd { from: MemberId, scan: u32 },
    /// What the epoch that comes next says of pools.
    BlockAssignment { epoch: u32, bytes: &'a [u8] },
    /// An epoch: which incarnations it names, ten bytes each.
    Epoch { incarnations: &'a [u8] },
    /// Whether another member has a later epoch in force than this host.
    Outdated { is_outdated: bool },
    /// An epoch ended that incarnation; all that was delivered of it came before this record.
    Ended { origin: OriginName },
    /// All members have the same of that incarnation, and it is stable.
    Closed { origin: OriginName },
    /// This host holds what the others hold: it may read packets, and write.
    Ready,
    /// The cluster's time at zero of the host's clock, for all that comes after this record: microseconds since 1970.
    ClusterTime { at_zero_us: i64 },
    /// Of the `movable` objects, a bit for each, these are `shared` from here on, and others are not.
    Share {
        number: u32,
        movable: u64,
        shared: u64,
    },
    /// Writes again all that there is of these objects, as far as they are shared: instances may lack it that shared them later.
    Announce { number: u32, objects: u64 },
    /// Read digests for an auditor, of what came before this record.
    Audit {
        ticket: u32,
        object: u8,
        segment: u8,
    },
}

/// What a state channel tells its host's instances in words instead of records, since it must reach them also while their
/// ring is full. It alone writes them.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// In which instances may log what changed in their accumulators; zero: at any time.
    number: AtomicU64,
    /// Bytes that each may log in it.
    bytes: AtomicU64,
}

impl Round {
    pub(crate) fn set(&self, number: u64, bytes: u64) {
        if self.number.load(Ordering::Relaxed) != number {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.number.store(number, Ordering::Release);
        }
    }

    /// The number and the bytes. These may be the next round's already, which does no harm.
    pub(crate) fn get(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Acquire);
        (number, self.bytes.load(Ordering::Relaxed))
    }
}

/// The lane of a group that came from another member.
pub(crate) const REMOTE: u8 = u8::MAX;
/// Parts of a snapshot that an instance hands over before it waits to be asked to go on. It hears when half as many are
/// left, so the channel keeps up to half more of a scan for which the placement has no room.
pub(crate) const SCAN_PARTS: u32 = 64;
/// Bytes that a record adds to the group or snapshot part in it.
pub(crate) const RECORD_BYTES: usize = 32;

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn member(&mut self) -> Option<MemberId> {
        self.u16().map(MemberId)
    }
    fn origin(&mut self) -> Option<OriginName> {
        Some(OriginName {
            member: self.u16()?,
            incarnation: self.u64()?,
        })
    }
}

/// The fixed part of a record, built on the stack.
struct Head {
    bytes: [u8; RECORD_BYTES],
    length: usize,
}

impl Head {
    fn new(kind: u8) -> Self {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = kind;
        Self { bytes, length: 1 }
    }
    fn and(mut self, field: &[u8]) -> Self {
        self.bytes[self.length..self.length + field.len()].copy_from_slice(field);
        self.length += field.len();
        self
    }
    fn origin(self, origin: OriginName) -> Self {
        self.and(&origin.member.to_le_bytes())
            .and(&origin.incarnation.to_le_bytes())
    }
    fn push(self, sink: &mut impl Sink, body: &[u8]) -> Result<(), Refused> {
        sink.put(&self.bytes[..self.length], body)
    }
}

/// Where a record goes: a ring, or memory of its own while the ring is full.
pub(crate) trait Sink {
    /// Appends a record of two parts.
    fn put(&mut self, head: &[u8], body: &[u8]) -> Result<(), Refused>;
}

impl Sink for RingWriter {
    #[inline]
    fn put(&mut self, head: &[u8], body: &[u8]) -> Result<(), Refused> {
        let length = head.len() + body.len();
        let room = self.reserve(length)?;
        room[..head.len()].copy_from_slice(head);
        room[head.len()..].copy_from_slice(body);
        self.commit(length);
        Ok(())
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, head: &[u8], body: &[u8]) -> Result<(), Refused> {
        self.extend_from_slice(head);
        self.extend_from_slice(body);
        Ok(())
    }
}

impl<'a> Up<'a> {
    /// Appends the record; readers see it after the ring's `publish`.
    #[inline]
    pub(crate) fn push(&self, ring: &mut impl Sink) -> Result<(), Refused> {
        let scan = |kind, member: &MemberId, scan: &u32| {
            Head::new(kind)
                .and(&member.0.to_le_bytes())
                .and(&scan.to_le_bytes())
        };
        match self {
            Self::Group { sequence, bytes } => {
                // Once a write: a head of known length is stored, not copied by a call.
                let mut head = [0; 9];
                head[1..].copy_from_slice(&sequence.to_le_bytes());
                ring.put(&head, bytes)
            }
            Self::Applied { origin, sequence } => Head::new(1)
                .origin(*origin)
                .and(&sequence.to_le_bytes())
                .push(ring, &[]),
            Self::SnapshotPart {
                member,
                scan: number,
                bytes,
            } => scan(2, member, number).push(ring, bytes),
            Self::SnapshotDone {
                member,
                scan: number,
            } => scan(3, member, number).push(ring, &[]),
            Self::SnapshotApplied { from, scan: number } => scan(4, from, number).push(ring, &[]),
            Self::Probe => Head::new(5).push(ring, &[]),
            Self::EndedApplied { origin } => Head::new(6).origin(*origin).push(ring, &[]),
            Self::Audit {
                ticket,
                written,
                leaves,
            } => Head::new(7)
                .and(&ticket.to_le_bytes())
                .and(&written.to_le_bytes())
                .push(ring, leaves),
            Self::Shared { number, objects } => Head::new(11)
                .and(&number.to_le_bytes())
                .and(&objects.to_le_bytes())
                .push(ring, &[]),
            Self::Announced { number } => Head::new(12).and(&number.to_le_bytes()).push(ring, &[]),
            Self::Drained { round, whole } => Head::new(8)
                .and(&round.to_le_bytes())
                .and(&[u8::from(*whole)])
                .push(ring, &[]),
            Self::Ask {
                ticket,
                object,
                lane,
                hash,
                key,
            } => Head::new(9)
                .and(&ticket.to_le_bytes())
                .and(&[*object, *lane])
                .and(&hash.to_le_bytes())
                .push(ring, key),
            Self::Commit {
                attempt,
                transaction,
            } => Head::new(10)
                .and(&attempt.to_le_bytes())
                .push(ring, transaction),
        }
    }

    /// Reads a record back. `None` is impossible but for a fault of this program.
    pub(crate) fn read(record: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(record);
        Some(match fields.take::<1>()?[0] {
            0 => Self::Group {
                sequence: fields.u64()?,
                bytes: fields.0,
            },
            1 => Self::Applied {
                origin: fields.origin()?,
                sequence: fields.u64()?,
            },
            2 => Self::SnapshotPart {
                member: fields.member()?,
                scan: fields.u32()?,
                bytes: fields.0,
            },
            3 => Self::SnapshotDone {
                member: fields.member()?,
                scan: fields.u32()?,
            },
            4 => Self::SnapshotApplied {
                from: fields.member()?,
                scan: fields.u32()?,
            },
            5 => Self::Probe,
            6 => Self::EndedApplied {
                origin: fields.origin()?,
            },
            7 => Self::Audit {
                ticket: fields.u32()?,
                written: fields.u64()?,
                leaves: fields.0,
            },
            8 => Self::Drained {
                round: fields.u64()?,
                whole: fields.take::<1>()?[0] != 0,
            },
            9 => Self::Ask {
                ticket: fields.u64()?,
                object: fields.take::<1>()?[0],
                lane: fields.take::<1>()?[0],
                hash: fields.u64()?,
                key: fields.0,
            },
            10 => Self::Commit {
                attempt: fields.u64()?,
                transaction: fields.0,
            },
            11 => Self::Shared {
                number: fields.u32()?,
                objects: fields.u64()?,
            },
            12 => Self::Announced {
                number: fields.u32()?,
            },
            _ => return None,
        })
    }
}

impl<'a> Down<'a> {
    /// Appends the record; readers see it after the ring's `publish`.
    #[inline]
    pub(crate) fn push(&self, ring: &mut impl Sink) -> Result<(), Refused> {
        let scan = |kind, member: &MemberId, scan: &u32| {
            Head::new(kind)
                .and(&member.0.to_le_bytes())
                .and(&scan.to_le_bytes())
        };
        match self {
            Self::Group {
                lane,
                origin,
                sequence,
                bytes,
            } => {
                // As above.
                let mut head = [0; 20];
                head[1] = *lane;
                head[2..4].copy_from_slice(&origin.member.to_le_bytes());
                head[4..12].copy_from_slice(&origin.incarnation.to_le_bytes());
                head[12..].copy_from_slice(&sequence.to_le_bytes());
                ring.put(&head, bytes)
            }
            Self::Progress {
                origin,
                received,
                stable,
                covered_us,
                confirmed,
            } => {
                let mut body = [0; 32];
                body[..8].copy_from_slice(&received.to_le_bytes());
                body[8..16].copy_from_slice(&stable.to_le_bytes());
                body[16..24].copy_from_slice(&covered_us.to_le_bytes());
                body[24..].copy_from_slice(&confirmed.to_le_bytes());
                Head::new(1).origin(*origin).push(ring, &body)
            }
            Self::SnapshotScan {
                member,
                scan: number,
            } => scan(2, member, number).push(ring, &[]),
            Self::StopScan {
                member,
                scan: number,
            } => scan(3, member, number).push(ring, &[]),
            Self::SnapshotPart { from, bytes } => {
                Head::new(4).and(&from.0.to_le_bytes()).push(ring, bytes)
            }
            Self::SnapshotEnd { from, scan: number } => scan(5, from, number).push(ring, &[]),
            Self::ScanOn {
                member,
                scan: number,
            } => scan(6, member, number).push(ring, &[]),
            Self::Epoch { incarnations } => Head::new(7).push(ring, incarnations),
            Self::Ended { origin } => Head::new(8).origin(*origin).push(ring, &[]),
            Self::Closed { origin } => Head::new(9).origin(*origin).push(ring, &[]),
            Self::Ready => Head::new(10).push(ring, &[]),
            Self::Outdated { is_outdated } => {
                Head::new(13).and(&[u8::from(*is_outdated)]).push(ring, &[])
            }
            Self::ClusterTime { at_zero_us } => {
                Head::new(14).and(&at_zero_us.to_le_bytes()).push(ring, &[])
            }
            Self::BlockAssignment { epoch, bytes } => {
                Head::new(12).and(&epoch.to_le_bytes()).push(ring, bytes)
            }
            Self::Share {
                number,
                movable,
                shared,
            } => Head::new(15)
                .and(&number.to_le_bytes())
                .and(&movable.to_le_bytes())
                .and(&shared.to_le_bytes())
                .push(ring, &[]),
            Self::Announce { number, objects } => Head::new(16)
                .and(&number.to_le_bytes())
                .and(&objects.to_le_bytes())
                .push(ring, &[]),
            Self::Audit {
                ticket,
                object,
                segment,
            } => Head::new(11)
                .and(&ticket.to_le_bytes())
                .and(&[*object, *segment])
                .push(ring, &[]),
        }
    }

    /// Reads a record back. `None` is impossible but for a fault of this program.
    #[inline]
    pub(crate) fn read(record: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(record);
        Some(match fields.take::<1>()?[0] {
            0 => {
                let lane = fields.take::<1>()?[0];
                Self::Group {
                    lane,
                    origin: fields.origin()?,
                    sequence: fields.u64()?,
                    bytes: fields.0,
                }
            }
            1 => Self::Progress {
                origin: fields.origin()?,
                received: fields.u64()?,
                stable: fields.u64()?,
                covered_us: fields.u64()?,
                confirmed: fields.u64()?,
            },
            2 => Self::SnapshotScan {
                member: fields.member()?,
                scan: fields.u32()?,
            },
            3 => Self::StopScan {
                member: fields.member()?,
                scan: fields.u32()?,
            },
            4 => Self::SnapshotPart {
                from: fields.member()?,
                bytes: fields.0,
            },
            5 => Self::SnapshotEnd {
                from: fields.member()?,
                scan: fields.u32()?,
            },
            6 => Self::ScanOn {
                member: fields.member()?,
                scan: fields.u32()?,
            },
            7 => Self::Epoch {
                incarnations: fields.0,
            },
            8 => Self::Ended {
                origin: fields.origin()?,
            },
            9 => Self::Closed {
                origin: fields.origin()?,
            },
            10 => Self::Ready,
            11 => Self::Audit {
                ticket: fields.u32()?,
                object: fields.take::<1>()?[0],
                segment: fields.take::<1>()?[0],
            },
            12 => Self::BlockAssignment {
                epoch: fields.u32()?,
                bytes: fields.0,
            },
            13 => Self::Outdated {
                is_outdated: fields.take::<1>()?[0] != 0,
            },
            14 => Self::ClusterTime {
                at_zero_us: fields.u64()?.cast_signed(),
            },
            15 => Self::Share {
                number: fields.u32()?,
                movable: fields.u64()?,
                shared: fields.u64()?,
            },
            16 => Self::Announce {
                number: fields.u32()?,
                objects: fields.u64()?,
            },
            _ => return None,
        })
    }
}

/// Writes which incarnations an epoch names, as [`Down::Epoch`] carries it.
pub(crate) fn write_incarnations(incarnations: impl Iterator<Item = OriginName>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for incarnation in incarnations {
        bytes.extend(incarnation.member.to_le_bytes());
        bytes.extend(incarnation.incarnation.to_le_bytes());
    }
    bytes
}

/// Reads them back.
pub(crate) fn read_incarnations(bytes: &[u8]) -> impl Iterator<Item = OriginName> + '_ {
    bytes
        .chunks_exact(10)
        .filter_map(|incarnation| Fields(incarnation).origin())
}

/// The state layer's name for one incarnation of a member.
pub(crate) fn origin(member: MemberId, incarnation: Incarnation) -> OriginName {
    OriginName {
        member: member.0,
        incarnation: incarnation.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_io::ring::ByteRing;

    #[test]
    fn records_come_back() {
        let (mut writer, mut reader) = ByteRing::new(1 << 16).unwrap();
        let name = OriginName {
            member: 7,
            incarnation: u64::MAX,
        };
        let ups = [
            Up::Group {
                sequence: 9,
                bytes: b"group",
            },
            Up::Applied {
                origin: name,
                sequence: 1 << 40,
            },
            Up::SnapshotPart {
                member: MemberId(1),
                scan: 2,
                bytes: b"",
            },
            Up::SnapshotDone {
                member: MemberId(1),
                scan: 2,
            },
            Up::SnapshotApplied {
                from: MemberId(4),
                scan: 5,
            },
            Up::Probe,
            Up::EndedApplied { origin: name },
            Up::Audit {
                ticket: 9,
                written: 1 << 50,
                leaves: b"digests",
            },
            Up::Drained {
                round: 1 << 50,
                whole: true,
            },
            Up::Ask {
                ticket: 1 << 40,
                object: 3,
                lane: 255,
                hash: u64::MAX,
                key: b"key",
            },
            Up::Commit {
                attempt: 7 << 16,
                transaction: b"reads and writes",
            },
            Up::Shared {
                number: 7,
                objects: 1 << 63,
            },
            Up::Announced { number: u32::MAX },
        ];
        let downs = [
            Down::Group {
                lane: REMOTE,
                origin: name,
                sequence: 5,
                bytes: b"x",
            },
            Down::Progress {
                origin: name,
                received: 1,
                stable: 2,
                covered_us: 3,
                confirmed: 0,
            },
            Down::SnapshotScan {
                member: MemberId(6),
                scan: 7,
            },
            Down::StopScan {
                member: MemberId(6),
                scan: 7,
            },
            Down::ScanOn {
                member: MemberId(6),
                scan: 7,
            },
            Down::SnapshotPart {
                from: MemberId(6),
                bytes: b"part",
            },
            Down::Epoch {
                incarnations: b"ten bytes.",
            },
            Down::BlockAssignment {
                epoch: 1 << 30,
                bytes: b"who holds what",
            },
            Down::Ended { origin: name },
            Down::Closed { origin: name },
            Down::Ready,
            Down::ClusterTime {
                at_zero_us: -1_700_000_000,
            },
            Down::Outdated { is_outdated: true },
            Down::Share {
                number: 3,
                movable: 1 << 40,
                shared: 1,
            },
            Down::Announce {
                number: 4,
                objects: u64::MAX,
            },
            Down::Audit {
                ticket: 1 << 30,
                object: 5,
                segment: 3,
            },
            Down::SnapshotEnd {
                from: MemberId(6),
                scan: 7,
            },
        ];
        ups.iter().for_each(|up| up.push(&mut writer).unwrap());
        downs
            .iter()
            .for_each(|down| down.push(&mut writer).unwrap());
        writer.publish();
        for up in &ups {
            assert_eq!(Up::read(reader.next().unwrap()).as_ref(), Some(up));
        }
        for down in &downs {
            assert_eq!(Down::read(reader.next().unwrap()).as_ref(), Some(down));
        }
        assert_eq!(Up::read(&[]), None);
        assert_eq!(Down::read(&[0, 1]), None);
    }
}
