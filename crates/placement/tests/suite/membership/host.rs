//! A host above its replicator: a toy table, and the exact set of groups that it knows, which is the truth that promises are
//! held against.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use asterism_placement::replicated::{
    Config, Deliver, Delivery, Event, Replicator, SnapshotEnd, SnapshotError, SnapshotKind,
    Standing,
};
use asterism_placement::{Incarnation, MemberId, Time};

/// One incarnation of one member: whose stream a group is of.
pub(crate) type Origin = (MemberId, Incarnation);
/// A group by its incarnation and number.
pub(crate) type Group = (Origin, u64);
/// What a host knows.
pub(crate) type Known = BTreeSet<Group>;

const KEYS: u64 = 600;

/// A stamped entry: the greater stamp (sequence, then incarnation) wins, so that merging is a join.
pub(crate) type Stamp = (u64, Origin);

fn key((member, incarnation): Origin, sequence: u64) -> u64 {
    (sequence.wrapping_mul(2_654_435_761) ^ u64::from(member.0) << 7 ^ incarnation.0) % KEYS
}

/// A group writes two entries, far from each other in the order of scans.
fn keys(incarnation: Origin, sequence: u64) -> [u64; 2] {
    let first = key(incarnation, sequence);
    [first, (first + KEYS / 2) % KEYS]
}

pub(crate) fn group((member, incarnation): Origin, sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::from(member.0.to_le_bytes());
    bytes.extend(incarnation.0.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes
}

enum Item {
    Group(Origin, u64),
    Chunk(Vec<u8>),
    SnapshotEnd {
        from: MemberId,
        scan: u32,
    },
    /// All that was delivered of an ended incarnation came before.
    Barrier(Origin),
}

#[derive(Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    seen: Known,
    last: BTreeMap<Origin, u64>,
    ordered: bool,
    pub(crate) fault: Option<String>,
}

impl Deliver for Inbox {
    fn group(&mut self, member: MemberId, incarnation: Incarnation, sequence: u64, bytes: &[u8]) {
        let incarnation = (member, incarnation);
        if bytes != group(incarnation, sequence) {
            self.fault = Some(format!("{incarnation:?}:{sequence} is another group"));
        }
        if !self.seen.insert((incarnation, sequence)) {
            self.fault = Some(format!("{incarnation:?}:{sequence} delivered twice"));
        }
        let last = self.last.entry(incarnation).or_default();
        if self.ordered && sequence <= *last {
            self.fault = Some(format!("{incarnation:?}:{sequence} delivered after {last}"));
        }
        *last = sequence.max(*last);
        self.items.push_back(Item::Group(incarnation, sequence));
    }
    fn snapshot(&mut self, _: MemberId, _: u32, chunk: &[u8]) {
        self.items.push_back(Item::Chunk(chunk.to_vec()));
    }
    fn snapshot_end(&mut self, end: SnapshotEnd<'_>) {
        let (from, scan) = (end.from, end.scan);
        self.items.push_back(Item::SnapshotEnd { from, scan });
    }
}

struct SnapshotScan {
    scan: u32,
    next_key: u64,
}

/// What every scan of the run had when it began, by who scanned and its number: asked to who joins it beside the protocol.
pub(crate) type SnapshotScans = BTreeMap<(MemberId, u32), Rc<Known>>;

pub(crate) struct Host {
    pub(crate) incarnation: Origin,
    pub(crate) replicator: Replicator,
    pub(crate) inbox: Inbox,
    pub(crate) table: BTreeMap<u64, Stamp>,
    pub(crate) known: Known,
    /// The own head when a group came to be known here.
    pub(crate) head_when_known: BTreeMap<Group, u64>,
    /// For each incarnation up to where its groups are known without a gap.
    prefixes: BTreeMap<Origin, u64>,
    pub(crate) head: u64,
    /// What was stable when the roster in force was installed.
    pub(crate) stable_at_install: BTreeMap<Origin, u64>,
    /// Up to where it was judged what it calls stable.
    pub(crate) stable_checked: BTreeMap<Origin, u64>,
    /// Incarnations that were closed since the last look.
    pub(crate) closed: BTreeSet<Origin>,
    /// It has what the others have, since the last look.
    pub(crate) has_joined: bool,
    /// It commits nothing more, and goes once all have what it wrote.
    pub(crate) leaves: bool,
    /// Incarnations of others that said that they leave.
    pub(crate) reported_of: BTreeSet<Origin>,
    scans: BTreeMap<MemberId, SnapshotScan>,
    /// How far each incarnation's stream is applied, without a gap or by a snapshot.
    applied: BTreeMap<Origin, u64>,
    pub(crate) scans_begun: u64,
}

impl Host {
    pub(crate) fn new(config: Config, now: Time) -> Host {
        Host {
            incarnation: (config.member, config.incarnation),
            inbox: Inbox {
                ordered: config.delivery == Delivery::Ordered,
                ..Inbox::default()
            },
            replicator: Replicator::new(config, now).expect("a good configuration"),
            table: BTreeMap::new(),
            known: Known::new(),
            head_when_known: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            head: 0,
            stable_at_install: BTreeMap::new(),
            stable_checked: BTreeMap::new(),
            closed: BTreeSet::new(),
            has_joined: false,
            leaves: false,
            reported_of: BTreeSet::new(),
            scans: BTreeMap::new(),
            applied: BTreeMap::new(),
            scans_begun: 0,
        }
    }

    pub(crate) fn commit(&mut self, now: Time) {
        if !self.replicator.is_ready() || self.leaves {
            return;
        }
        let (incarnation, sequence) = (self.incarnation, self.head + 1);
        if self
            .replicator
            .submit(now, sequence, &group(incarnation, sequence))
            .is_ok()
        {
            self.head = sequence;
            self.learn((incarnation, sequence));
            self.write(incarnation, sequence);
        }
    }

    /// Stops writing, and says so to all.
    pub(crate) fn leave(&mut self, now: Time) {
        self.leaves = true;
        self.replicator.leave(now);
    }

    /// Whether all take part in what it wrote and know that it goes: a host that drains ends then.
    pub(crate) fn has_left(&self) -> bool {
        let members = self.replicator.progress().members().iter();
        let mut others = members.filter(|member| {
            member.standing != Standing::Out && member.member != self.incarnation.0
        });
        self.leaves
            && self.replicator.has_left()
            && self.replicator.ended().all(|ended| ended.closed)
            && others.all(|other| other.acknowledged >= self.head)
    }

    fn write(&mut self, incarnation: Origin, sequence: u64) {
        let stamp = (sequence, incarnation);
        for key in keys(incarnation, sequence) {
            let entry = self.table.entry(key).or_insert(stamp);
            *entry = stamp.max(*entry);
        }
    }

    fn learn(&mut self, group: Group) {
        if self.known.insert(group) {
            self.head_when_known.insert(group, self.head);
            let prefix = self.prefixes.entry(group.0).or_default();
            while self.known.contains(&(group.0, *prefix + 1)) {
                *prefix += 1;
            }
        }
    }

    /// Up to where the groups of an incarnation are known without a gap.
    pub(crate) fn prefix(&self, incarnation: Origin) -> u64 {
        self.prefixes.get(&incarnation).copied().unwrap_or(0)
    }

    fn current(&self, incarnation: Origin) -> bool {
        let progress = self.replicator.progress().member(incarnation.0);
        progress.is_some_and(|progress| progress.incarnation == Some(incarnation.1))
    }

    pub(crate) fn apply(&mut self, now: Time, budget: usize, scans: &SnapshotScans) -> bool {
        for _ in 0..budget {
            let Some(item) = self.inbox.items.pop_front() else {
                break;
            };
            match item {
                Item::Group(incarnation, sequence) => {
                    self.write(incarnation, sequence);
                    self.learn((incarnation, sequence));
                    self.advance(now, incarnation);
                }
                Item::Chunk(bytes) => {
                    for entry in bytes.chunks_exact(26) {
                        let word = |at: usize| {
                            u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"))
                        };
                        let member = MemberId(u16::from_le_bytes([entry[24], entry[25]]));
                        let stamp = (word(8), (member, Incarnation(word(16))));
                        let held = self.table.entry(word(0)).or_insert(stamp);
                        *held = stamp.max(*held);
                    }
                }
                Item::SnapshotEnd { from, scan } => {
                    let known = scans.get(&(from, scan)).cloned().unwrap_or_default();
                    known.iter().for_each(|&group| self.learn(group));
                    self.replicator
                        .snapshot_applied(now, from, scan, &mut self.inbox);
                    let incarnations: Vec<Origin> = self.applied.keys().copied().collect();
                    incarnations
                        .into_iter()
                        .for_each(|incarnation| self.advance(now, incarnation));
                }
                Item::Barrier((member, incarnation)) => {
                    self.replicator.ended_applied(now, member, incarnation);
                }
            }
        }
        !self.inbox.items.is_empty()
    }

    /// Reports how far a stream is applied. What a newcomer's stream begins after counts as applied: its snapshot is to come.
    fn advance(&mut self, now: Time, incarnation: Origin) {
        let prefix = self.applied.entry(incarnation).or_default();
        if let Some(progress) = self.replicator.progress().member(incarnation.0)
            && progress.incarnation == Some(incarnation.1)
        {
            *prefix = (*prefix).max(progress.applied);
        }
        while self.inbox.seen.contains(&(incarnation, *prefix + 1))
            && self.known.contains(&(incarnation, *prefix + 1))
        {
            *prefix += 1;
        }
        let prefix = *prefix;
        if self.current(incarnation) {
            self.replicator.applied(now, incarnation.0, prefix);
        }
    }

    pub(crate) fn serve(&mut self, now: Time, scans: &mut SnapshotScans) {
        while let Some(event) = self.replicator.poll_event() {
            match event {
                Event::LaggingReplica { member, scan, .. } => {
                    self.scans_begun += 1;
                    let known = Rc::new(self.known.clone());
                    scans.insert((self.incarnation.0, scan), known);
                    self.scans
                        .insert(member, SnapshotScan { scan, next_key: 0 });
                }
                Event::CaughtUp { member, .. } => {
                    self.scans.remove(&member);
                }
                Event::Ended {
                    member,
                    incarnation,
                } => self
                    .inbox
                    .items
                    .push_back(Item::Barrier((member, incarnation))),
                Event::Closed {
                    member,
                    incarnation,
                } => {
                    self.closed.insert((member, incarnation));
                }
                Event::Ready => {
                    self.has_joined = true;
                    self.check_whole();
                }
                Event::Leaving { member } => {
                    let progress = self.replicator.progress().member(member);
                    let incarnation = progress.and_then(|progress| progress.incarnation);
                    self.reported_of
                        .extend(incarnation.map(|incarnation| (member, incarnation)));
                }
                Event::Heard { .. } => {}
            }
        }
        let mut done = Vec::new();
        for (&member, scan) in &mut self.scans {
            if self.replicator.snapshot_room(member) == 0 {
                continue;
            }
            let bucket = scan.next_key..scan.next_key + 40;
            let mut chunk = Vec::new();
            for (key, (sequence, (member, incarnation))) in self.table.range(bucket.clone()) {
                chunk.extend(key.to_le_bytes());
                chunk.extend(sequence.to_le_bytes());
                chunk.extend(incarnation.0.to_le_bytes());
                chunk.extend(member.0.to_le_bytes());
            }
            scan.next_key = bucket.end;
            let sent = match chunk.is_empty() {
                true => Ok(()),
                false => self
                    .replicator
                    .submit_snapshot(now, member, scan.scan, &chunk),
            };
            match sent {
                Ok(()) if scan.next_key >= KEYS => {
                    let kind = SnapshotKind::Changes;
                    let _ = self
                        .replicator
                        .finish_snapshot(now, member, scan.scan, kind);
                    done.push(member);
                }
                Ok(()) => {}
                Err(SnapshotError::Busy) => scan.next_key = bucket.start,
                Err(_) => done.push(member),
            }
        }
        done.iter().for_each(|member| {
            self.scans.remove(member);
        });
    }

    pub(crate) fn is_scanning(&self) -> bool {
        !self.scans.is_empty()
    }

    /// Whether the table has both of a group's entries, or later ones.
    fn has_whole(&self, incarnation: Origin, sequence: u64) -> bool {
        let has = |key| self.table.get(&key) >= Some(&(sequence, incarnation));
        keys(incarnation, sequence).into_iter().all(has)
    }

    /// Anyone who joined has no group by half. Of incarnations that ended the rest may come later, by a snapshot of a participant.
    fn check_whole(&mut self) {
        for &(sequence, incarnation) in self.table.values() {
            if self.current(incarnation) && !self.has_whole(incarnation, sequence) {
                self.inbox.fault =
                    Some(format!("joined with a half of {incarnation:?}:{sequence}"));
            }
        }
    }

    /// Whether the table has all that the known groups make. It may have more: part of a snapshot whose server died.
    pub(crate) fn check_table(&self) -> Result<(), String> {
        for &(incarnation, sequence) in &self.known {
            if !self.has_whole(incarnation, sequence) {
                return Err(format!(
                    "{:?} knows {incarnation:?}:{sequence}, and its table does not",
                    self.incarnation
                ));
            }
        }
        Ok(())
    }
}

/// The groups of one incarnation.
pub(crate) fn groups_of(known: &Known, incarnation: Origin) -> Vec<u64> {
    known
        .range((incarnation, 0)..=(incarnation, u64::MAX))
        .map(|&(_, sequence)| sequence)
        .collect()
}
