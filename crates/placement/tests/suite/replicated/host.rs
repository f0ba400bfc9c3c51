//! A host with a toy table above its replicator: it commits, applies in its own time, and scans its table for lagging_replicas.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use asterism_placement::replicated::{
    Config, Deliver, Event, Replicator, SnapshotEnd, SnapshotError, SnapshotKind,
};
use asterism_placement::{Incarnation, MemberId, Time};

/// A stamped entry: the greater stamp (sequence, then origin) wins, so that merging is a join.
pub(crate) type Stamp = (u64, u16);
pub(crate) type Table = BTreeMap<u32, Stamp>;

const KEYS: u64 = 40;

/// Names are not places, and not in order.
const NAMES: [u16; 5] = [7, 3, 300, 1, 9];

/// The member at this place.
pub(crate) fn name(place: usize) -> MemberId {
    MemberId(NAMES[place])
}

fn place(member: MemberId) -> usize {
    NAMES
        .iter()
        .position(|&name| name == member.0)
        .expect("a member")
}

/// The key that a group writes.
pub(crate) fn key(origin: u16, sequence: u64) -> u32 {
    ((sequence.wrapping_mul(2_654_435_761) ^ (u64::from(origin) << 7)) % KEYS) as u32
}

/// The bytes of a group: any change shows.
pub(crate) fn group(origin: u16, sequence: u64, out: &mut Vec<u8>) {
    out.clear();
    let length = 10
        + (sequence * 31 + u64::from(origin)) % 40
        + if sequence.is_multiple_of(50) {
            1_050
        } else {
            0
        };
    out.extend_from_slice(&origin.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    while (out.len() as u64) < length {
        out.push((out.len() as u64 ^ sequence) as u8);
    }
}

/// What was delivered and waits to be applied.
enum Item {
    Group {
        origin: MemberId,
        sequence: u64,
    },
    Chunk(Vec<u8>),
    SnapshotEnd {
        from: MemberId,
        scan: u32,
        vector: Vec<(MemberId, u64)>,
    },
}

/// Where the replicator delivers.
#[derive(Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    seen: BTreeSet<(MemberId, u64)>,
    last: BTreeMap<MemberId, u64>,
    ordered: bool,
    waiting: BTreeMap<MemberId, u64>,
    pub(crate) waiting_max: u64,
    scratch: Vec<u8>,
    pub(crate) fault: Option<String>,
}

impl Deliver for Inbox {
    fn group(&mut self, origin: MemberId, _: Incarnation, sequence: u64, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        group(origin.0, sequence, &mut scratch);
        if scratch != bytes {
            self.fault = Some(format!("{origin}:{sequence} arrived changed"));
        }
        self.scratch = scratch;
        if !self.seen.insert((origin, sequence)) {
            self.fault = Some(format!("{origin}:{sequence} delivered twice"));
        }
        let last = self.last.entry(origin).or_default();
        if self.ordered && sequence <= *last {
            self.fault = Some(format!("{origin}:{sequence} delivered after {last}"));
        }
        *last = (*last).max(sequence);
        let waiting = self.waiting.entry(origin).or_default();
        *waiting += 1;
        self.waiting_max = self.waiting_max.max(*waiting);
        self.items.push_back(Item::Group { origin, sequence });
    }

    fn snapshot(&mut self, _: MemberId, _: u32, chunk: &[u8]) {
        self.items.push_back(Item::Chunk(chunk.to_vec()));
    }

    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        let vector = end.vector.to_vec();
        self.items.push_back(Item::SnapshotEnd {
            from: end.from,
            scan: end.scan,
            vector,
        });
    }
}

/// A scan for a member that lags.
struct SnapshotScan {
    scan: u32,
    beyond: Vec<(MemberId, u64)>,
    next_key: u32,
}

pub(crate) struct Host {
    pub(crate) replicator: Replicator,
    pub(crate) inbox: Inbox,
    pub(crate) table: Table,
    /// What is applied of each origin, by place, without a gap: the truth that acknowledgements are held against.
    pub(crate) applied: Vec<u64>,
    extras: BTreeSet<(MemberId, u64)>,
    /// For each origin and sequence, the own head when it was applied here.
    pub(crate) head_when_applied: Vec<Vec<u64>>,
    /// When each own group was committed, in the world's time.
    pub(crate) committed_at: Vec<Time>,
    scans: BTreeMap<MemberId, SnapshotScan>,
    pub(crate) scans_begun: u64,
    member: MemberId,
}

impl Host {
    pub(crate) fn new(config: Config, now: Time) -> Host {
        let ordered = config.delivery == asterism_placement::replicated::Delivery::Ordered;
        let member = config.member;
        let members = config.members.clone();
        Host {
            replicator: Replicator::new(config, now).expect("a good configuration"),
            inbox: Inbox {
                ordered,
                ..Inbox::default()
            },
            table: Table::new(),
            applied: vec![0; members.len()],
            extras: BTreeSet::new(),
            head_when_applied: vec![vec![0]; members.len()],
            committed_at: Vec::new(),
            scans: BTreeMap::new(),
            scans_begun: 0,
            member,
        }
    }

    pub(crate) fn head(&self) -> u64 {
        self.committed_at.len() as u64
    }

    /// Commits one own group; false when the log is full.
    pub(crate) fn commit(&mut self, local: Time, world: Time, scratch: &mut Vec<u8>) -> bool {
        let sequence = self.head() + 1;
        group(self.member.0, sequence, scratch);
        if self.replicator.submit(local, sequence, scratch).is_err() {
            return false;
        }
        self.committed_at.push(world);
        self.applied[place(self.member)] = sequence;
        self.write(self.member.0, sequence);
        true
    }

    fn write(&mut self, origin: u16, sequence: u64) {
        let entry = self.table.entry(key(origin, sequence)).or_default();
        *entry = (*entry).max((sequence, origin));
    }

    /// Applies at most so many items; whether some are left.
    pub(crate) fn apply(&mut self, local: Time, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(item) = self.inbox.items.pop_front() else {
                break;
            };
            match item {
                Item::Group { origin, sequence } => {
                    self.write(origin.0, sequence);
                    self.extras.insert((origin, sequence));
                    *self.inbox.waiting.entry(origin).or_default() -= 1;
                    self.advance(local, origin, 0);
                }
                Item::Chunk(bytes) => {
                    for entry in bytes.chunks_exact(14) {
                        let key = u32::from_le_bytes(entry[..4].try_into().unwrap());
                        let sequence = u64::from_le_bytes(entry[4..12].try_into().unwrap());
                        let origin = u16::from_le_bytes(entry[12..].try_into().unwrap());
                        let stamp = self.table.entry(key).or_default();
                        *stamp = (*stamp).max((sequence, origin));
                    }
                }
                Item::SnapshotEnd { from, scan, vector } => {
                    for (origin, sequence) in vector {
                        if origin != self.member {
                            self.advance(local, origin, sequence);
                        }
                    }
                    self.replicator
                        .snapshot_applied(local, from, scan, &mut self.inbox);
                    // What was applied above a gap that the snapshot closed is now part of the prefix.
                    for (origin, &prefix) in self.applied.iter().enumerate() {
                        self.replicator.applied(local, name(origin), prefix);
                    }
                }
            }
        }
        !self.inbox.items.is_empty()
    }

    fn advance(&mut self, local: Time, origin: MemberId, covered: u64) {
        let head = self.head();
        let mut prefix = self.applied[place(origin)].max(covered);
        while self.extras.remove(&(origin, prefix + 1)) {
            prefix += 1;
        }
        let heads = &mut self.head_when_applied[place(origin)];
        while heads.len() as u64 <= prefix {
            heads.push(head);
        }
        self.applied[place(origin)] = prefix;
        if covered == 0 {
            self.replicator.applied(local, origin, prefix);
        }
    }

    /// Takes events and goes on with the scans.
    pub(crate) fn serve(&mut self, local: Time) {
        while let Some(event) = self.replicator.poll_event() {
            match event {
                Event::LaggingReplica {
                    member,
                    scan,
                    beyond,
                } => {
                    self.scans_begun += 1;
                    self.scans.insert(
                        member,
                        SnapshotScan {
                            scan,
                            beyond,
                            next_key: 0,
                        },
                    );
                }
                Event::CaughtUp { member, .. } => {
                    self.scans.remove(&member);
                }
                Event::Heard { .. }
                | Event::Ended { .. }
                | Event::Closed { .. }
                | Event::Leaving { .. }
                | Event::Ready => {}
            }
        }
        let mut done = Vec::new();
        for (&member, scan) in &mut self.scans {
            // One bucket of a few keys a turn, so that the table changes under the cursor.
            if self.replicator.snapshot_room(member) == 0 {
                continue;
            }
            let bucket = scan.next_key..scan.next_key + 5;
            let is_beyond = |&(sequence, origin): &Stamp| {
                let has = scan.beyond.iter().find(|(member, _)| member.0 == origin);
                has.is_none_or(|&(_, through)| sequence > through)
            };
            let mut chunk = Vec::new();
            for (key, stamp) in self
                .table
                .range(bucket.clone())
                .filter(|(_, stamp)| is_beyond(stamp))
            {
                chunk.extend_from_slice(&key.to_le_bytes());
                chunk.extend_from_slice(&stamp.0.to_le_bytes());
                chunk.extend_from_slice(&stamp.1.to_le_bytes());
            }
            scan.next_key = bucket.end;
            let sent = if chunk.is_empty() {
                Ok(())
            } else {
                self.replicator
                    .submit_snapshot(local, member, scan.scan, &chunk)
            };
            match sent {
                Ok(()) if u64::from(scan.next_key) >= KEYS => {
                    let _ = self.replicator.finish_snapshot(
                        local,
                        member,
                        scan.scan,
                        SnapshotKind::Changes,
                    );
                    done.push(member);
                }
                Ok(()) => {}
                Err(SnapshotError::Busy) => scan.next_key = bucket.start,
                Err(_) => done.push(member),
            }
        }
        for member in done {
            self.scans.remove(&member);
        }
    }

    pub(crate) fn is_scanning(&self) -> bool {
        !self.scans.is_empty()
    }
}
