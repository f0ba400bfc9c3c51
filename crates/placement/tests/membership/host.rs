//! A host above its replicator: a toy table, and the exact set of groups that it knows, which is the truth that promises are
//! held against.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use asterism_placement::replicated::{
    Config, Deliver, Delivery, Event, ImageEnd, ImageError, ImageKind, Replicator, Standing,
};
use asterism_placement::{Incarnation, MemberId, Time};

/// One life of one member: whose stream a group is of.
pub(crate) type Life = (MemberId, Incarnation);
/// A group by its life and number.
pub(crate) type Group = (Life, u64);
/// What a host knows.
pub(crate) type Known = BTreeSet<Group>;

const KEYS: u64 = 600;

/// A stamped entry: the greater stamp (sequence, then life) wins, so that merging is a join.
pub(crate) type Stamp = (u64, Life);

fn key((member, incarnation): Life, sequence: u64) -> u64 {
    (sequence.wrapping_mul(2_654_435_761) ^ u64::from(member.0) << 7 ^ incarnation.0) % KEYS
}

/// A group writes two entries, far from each other in the order of walks.
fn keys(life: Life, sequence: u64) -> [u64; 2] {
    let first = key(life, sequence);
    [first, (first + KEYS / 2) % KEYS]
}

pub(crate) fn group((member, incarnation): Life, sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::from(member.0.to_le_bytes());
    bytes.extend(incarnation.0.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes
}

enum Item {
    Group(Life, u64),
    Chunk(Vec<u8>),
    ImageEnd {
        from: MemberId,
        walk: u32,
    },
    /// All that was delivered of an ended life came before.
    Barrier(Life),
}

#[derive(Default)]
pub(crate) struct Inbox {
    items: VecDeque<Item>,
    seen: Known,
    last: BTreeMap<Life, u64>,
    ordered: bool,
    pub(crate) fault: Option<String>,
}

impl Deliver for Inbox {
    fn group(&mut self, member: MemberId, incarnation: Incarnation, sequence: u64, bytes: &[u8]) {
        let life = (member, incarnation);
        if bytes != group(life, sequence) {
            self.fault = Some(format!("{life:?}:{sequence} is another group"));
        }
        if !self.seen.insert((life, sequence)) {
            self.fault = Some(format!("{life:?}:{sequence} delivered twice"));
        }
        let last = self.last.entry(life).or_default();
        if self.ordered && sequence <= *last {
            self.fault = Some(format!("{life:?}:{sequence} delivered after {last}"));
        }
        *last = sequence.max(*last);
        self.items.push_back(Item::Group(life, sequence));
    }
    fn image(&mut self, _: MemberId, _: u32, chunk: &[u8]) {
        self.items.push_back(Item::Chunk(chunk.to_vec()));
    }
    fn image_end(&mut self, end: ImageEnd<'_>) {
        let (from, walk) = (end.from, end.walk);
        self.items.push_back(Item::ImageEnd { from, walk });
    }
}

struct Walk {
    walk: u32,
    next_key: u64,
}

/// What every walk of the run had when it began, by who walked and its number: told to who joins it beside the protocol.
pub(crate) type Walks = BTreeMap<(MemberId, u32), Rc<Known>>;

pub(crate) struct Host {
    pub(crate) life: Life,
    pub(crate) replicator: Replicator,
    pub(crate) inbox: Inbox,
    pub(crate) table: BTreeMap<u64, Stamp>,
    pub(crate) known: Known,
    /// The own head when a group came to be known here.
    pub(crate) head_when_known: BTreeMap<Group, u64>,
    /// For each life up to where its groups are known without a gap.
    prefixes: BTreeMap<Life, u64>,
    pub(crate) head: u64,
    /// What was stable when the roster in force was installed.
    pub(crate) stable_at_install: BTreeMap<Life, u64>,
    /// Up to where it was judged what it calls stable.
    pub(crate) stable_checked: BTreeMap<Life, u64>,
    /// Lives that were closed since the last look.
    pub(crate) closed: BTreeSet<Life>,
    /// It has what the others have, since the last look.
    pub(crate) has_joined: bool,
    /// It commits nothing more, and goes once all have what it wrote.
    pub(crate) leaves: bool,
    /// Lives of others that said that they leave.
    pub(crate) told_of: BTreeSet<Life>,
    walks: BTreeMap<MemberId, Walk>,
    /// How far each life's stream is applied, without a gap or by an image.
    applied: BTreeMap<Life, u64>,
    pub(crate) walks_begun: u64,
}

impl Host {
    pub(crate) fn new(config: Config, now: Time) -> Host {
        Host {
            life: (config.member, config.incarnation),
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
            told_of: BTreeSet::new(),
            walks: BTreeMap::new(),
            applied: BTreeMap::new(),
            walks_begun: 0,
        }
    }

    pub(crate) fn commit(&mut self, now: Time) {
        if !self.replicator.is_ready() || self.leaves {
            return;
        }
        let (life, sequence) = (self.life, self.head + 1);
        if self
            .replicator
            .submit(now, sequence, &group(life, sequence))
            .is_ok()
        {
            self.head = sequence;
            self.learn((life, sequence));
            self.write(life, sequence);
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
        let mut others = members
            .filter(|member| member.standing != Standing::Out && member.member != self.life.0);
        self.leaves
            && self.replicator.has_left()
            && self.replicator.ended().all(|ended| ended.closed)
            && others.all(|other| other.acknowledged >= self.head)
    }

    fn write(&mut self, life: Life, sequence: u64) {
        let stamp = (sequence, life);
        for key in keys(life, sequence) {
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

    /// Up to where the groups of a life are known without a gap.
    pub(crate) fn prefix(&self, life: Life) -> u64 {
        self.prefixes.get(&life).copied().unwrap_or(0)
    }

    fn current(&self, life: Life) -> bool {
        let progress = self.replicator.progress().member(life.0);
        progress.is_some_and(|progress| progress.incarnation == Some(life.1))
    }

    pub(crate) fn apply(&mut self, now: Time, budget: usize, walks: &Walks) -> bool {
        for _ in 0..budget {
            let Some(item) = self.inbox.items.pop_front() else {
                break;
            };
            match item {
                Item::Group(life, sequence) => {
                    self.write(life, sequence);
                    self.learn((life, sequence));
                    self.advance(now, life);
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
                Item::ImageEnd { from, walk } => {
                    let known = walks.get(&(from, walk)).cloned().unwrap_or_default();
                    known.iter().for_each(|&group| self.learn(group));
                    self.replicator
                        .image_applied(now, from, walk, &mut self.inbox);
                    let lives: Vec<Life> = self.applied.keys().copied().collect();
                    lives.into_iter().for_each(|life| self.advance(now, life));
                }
                Item::Barrier((member, incarnation)) => {
                    self.replicator.ended_applied(now, member, incarnation);
                }
            }
        }
        !self.inbox.items.is_empty()
    }

    /// Reports how far a stream is applied. What a newcomer's stream begins after counts as applied: its image is to come.
    fn advance(&mut self, now: Time, life: Life) {
        let prefix = self.applied.entry(life).or_default();
        if let Some(progress) = self.replicator.progress().member(life.0)
            && progress.incarnation == Some(life.1)
        {
            *prefix = (*prefix).max(progress.applied);
        }
        while self.inbox.seen.contains(&(life, *prefix + 1))
            && self.known.contains(&(life, *prefix + 1))
        {
            *prefix += 1;
        }
        let prefix = *prefix;
        if self.current(life) {
            self.replicator.applied(now, life.0, prefix);
        }
    }

    pub(crate) fn serve(&mut self, now: Time, walks: &mut Walks) {
        while let Some(event) = self.replicator.poll_event() {
            match event {
                Event::Laggard { member, walk, .. } => {
                    self.walks_begun += 1;
                    let known = Rc::new(self.known.clone());
                    walks.insert((self.life.0, walk), known);
                    self.walks.insert(member, Walk { walk, next_key: 0 });
                }
                Event::CaughtUp { member, .. } => {
                    self.walks.remove(&member);
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
                    self.told_of.extend(incarnation.map(|life| (member, life)));
                }
                Event::Heard { .. } => {}
            }
        }
        let mut done = Vec::new();
        for (&member, walk) in &mut self.walks {
            if self.replicator.image_room(member) == 0 {
                continue;
            }
            let bucket = walk.next_key..walk.next_key + 40;
            let mut chunk = Vec::new();
            for (key, (sequence, (member, incarnation))) in self.table.range(bucket.clone()) {
                chunk.extend(key.to_le_bytes());
                chunk.extend(sequence.to_le_bytes());
                chunk.extend(incarnation.0.to_le_bytes());
                chunk.extend(member.0.to_le_bytes());
            }
            walk.next_key = bucket.end;
            let sent = match chunk.is_empty() {
                true => Ok(()),
                false => self.replicator.submit_image(now, member, walk.walk, &chunk),
            };
            match sent {
                Ok(()) if walk.next_key >= KEYS => {
                    let kind = ImageKind::Changes;
                    let _ = self.replicator.finish_image(now, member, walk.walk, kind);
                    done.push(member);
                }
                Ok(()) => {}
                Err(ImageError::Busy) => walk.next_key = bucket.start,
                Err(_) => done.push(member),
            }
        }
        done.iter().for_each(|member| {
            self.walks.remove(member);
        });
    }

    pub(crate) fn is_walking(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Whether the table has both of a group's entries, or later ones.
    fn has_whole(&self, life: Life, sequence: u64) -> bool {
        let has = |key| self.table.get(&key) >= Some(&(sequence, life));
        keys(life, sequence).into_iter().all(has)
    }

    /// Whoever joined has no group by half. Of lives that ended the rest may come later, by an image of a survivor.
    fn check_whole(&mut self) {
        for &(sequence, life) in self.table.values() {
            if self.current(life) && !self.has_whole(life, sequence) {
                self.inbox.fault = Some(format!("joined with a half of {life:?}:{sequence}"));
            }
        }
    }

    /// Whether the table has all that the known groups make. It may have more: part of an image whose server died.
    pub(crate) fn check_table(&self) -> Result<(), String> {
        for &(life, sequence) in &self.known {
            if !self.has_whole(life, sequence) {
                return Err(format!(
                    "{:?} knows {life:?}:{sequence}, and its table does not",
                    self.life
                ));
            }
        }
        Ok(())
    }
}
