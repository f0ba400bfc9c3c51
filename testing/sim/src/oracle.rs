//! What was really done, kept outside the system under test: every commit of every member, and what the
//! objects must hold once all is applied. Nothing here is reported by a protocol core.

use std::collections::{BTreeMap, BTreeSet};

use asterism_function::Tick;
use asterism_placement::Time;

use crate::exercise::{BULK, Done, Joined, SURGE_WINDOW, Verb, load_of};
use crate::spent::Spent;

/// One acting call of the function.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Its token, and its last one (they differ for bulk).
    pub tokens: (u32, u32),
    /// Its groups' numbers are at most this.
    pub through: u64,
    /// When, by the cluster's clock.
    pub at: Time,
}

/// A value that was removed.
#[derive(Clone, Copy, Debug)]
pub struct Erased {
    /// Its key.
    pub key: u16,
    /// The value that was there.
    pub value: u32,
    /// The token of the removal.
    pub token: u32,
    /// Who removed it.
    pub member: usize,
    /// The removal's group has at most this number.
    pub through: u64,
}

/// The truth.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Commits of each member, in order.
    pub commits: Vec<Vec<Commit>>,
    /// Numbers that each member's groups reached, flushes included.
    pub heads: Vec<u64>,
    /// Writing commands in all.
    pub commands: u64,
    /// Sums by key.
    pub tallies: BTreeMap<u16, u64>,
    /// Loads by place.
    pub loads: BTreeMap<u32, i64>,
    /// What the sketch was reported, by key.
    pub volumes: BTreeMap<u16, u64>,
    /// What the sketch of the last while was reported, by key and bucket of time.
    pub surges: BTreeMap<u16, BTreeMap<u32, u64>>,
    /// How often a key was put into the filter and not taken out.
    pub admitted: BTreeMap<u16, u64>,
    /// What was spent from buckets of tokens.
    pub spent: Spent,
    /// Values that join, by key.
    pub joined: BTreeMap<u16, Joined>,
    /// The register that joins.
    pub raised: Joined,
    /// Values ever written, by key.
    pub written: BTreeMap<u16, BTreeSet<u32>>,
    /// Values ever written to the register that one value wins.
    pub elected: BTreeSet<u32>,
    /// Values of visited entries, joined over their incarnations.
    pub visited: BTreeMap<u16, Joined>,
    /// Removed values.
    pub erased: Vec<Erased>,
    /// When a session of a client last was used, by (instance, client), and up to where it had applied
    /// each member's groups.
    pub used: BTreeMap<(usize, u16), (Time, Vec<u64>)>,
    /// Who last closed a session of a client, by (client, member): with which group at the latest.
    pub closed: BTreeMap<(u16, usize), u64>,
    /// The port that each command was granted while it asked.
    pub granted: BTreeMap<u32, u16>,
    /// Commands by verb that acted.
    pub acted: BTreeMap<Verb, u64>,
    /// Tokens handed out.
    pub tokens: u64,
    /// The idle time of sessions, in seconds.
    pub idle_seconds: u32,
    /// The most that two clocks differ.
    pub skew_most: core::time::Duration,
    /// Messages of strangers that a member may have to refuse.
    pub strange_messages: u64,
    /// A stranger with a member's identity is about.
    pub stranger_about: bool,
}

impl Oracle {
    /// Nothing was done yet.
    pub fn new(members: usize) -> Self {
        Self {
            commits: vec![Vec::new(); members],
            heads: vec![0; members],
            ..Self::default()
        }
    }

    /// Notes what a call on `member` did.
    pub fn note(&mut self, member: usize, through: u64, at: Time, done: &Done) {
        let command = done.command;
        let (key, token) = (command.key, command.token);
        let bulk = command.verb == Verb::Bulk;
        let last = if bulk { token + BULK - 1 } else { token };
        self.commits[member].push(Commit {
            tokens: (token, last),
            through,
            at,
        });
        self.tokens += u64::from(last - token + 1);
        self.commands += 1;
        *self.acted.entry(command.verb).or_default() += 1;
        match command.verb {
            Verb::Write => {
                self.written.entry(key).or_default().insert(token);
            }
            Verb::Erase => {
                if let Some(value) = done.before {
                    self.erased.push(Erased {
                        key,
                        value,
                        token,
                        member,
                        through,
                    });
                }
            }
            Verb::Join => join(&mut self.joined, key, token),
            Verb::Bulk => {
                for number in 0..BULK {
                    let row = key % 4 * 100 + 1_000 + number as u16;
                    join(&mut self.joined, row, token + number);
                }
            }
            Verb::Elect => {
                self.elected.insert(token);
            }
            Verb::Raise => {
                let contribution = Joined::of(token);
                self.raised.bits |= contribution.bits;
                self.raised.most = self.raised.most.max(contribution.most);
            }
            Verb::Tally => {
                let amount = u64::from(token % 5 + 1);
                *self.tallies.entry(key).or_default() += amount;
                *self.volumes.entry(key).or_default() += amount;
                let surges = self.surges.entry(key).or_default();
                *surges.entry(surge_bucket(done.arrived)).or_default() += amount;
                let (place, load) = load_of(&done.command);
                *self.loads.entry(place).or_default() += load;
            }
            Verb::Visit => {
                *self.tallies.entry(key).or_default() += u64::from(token % 5 + 1);
                join(&mut self.visited, key, token);
            }
            Verb::Close => {
                let closed = self.closed.entry((key, member)).or_default();
                *closed = through.max(*closed);
            }
            Verb::Admit => *self.admitted.entry(key).or_default() += 1,
            Verb::Dismiss => {
                // Nobody takes out what nobody put in: the load sees to it.
                let times = self.admitted.entry(key).or_default();
                *times = times.saturating_sub(1);
            }
            _ => {}
        }
    }

    /// The instances of a member are those of another incarnation.
    pub fn begins(&mut self, member: usize) {
        for lane in 0..2 {
            self.spent.begins(member * 2 + lane);
        }
    }

    /// What the sketch of the last while must find of a key at least, by a clock that says `tick`.
    pub fn surge(&self, key: u16, tick: Tick) -> u64 {
        let first = (surge_bucket(tick) + 1).saturating_sub(SURGE_WINDOW.buckets);
        let buckets = self.surges.get(&key);
        buckets.map_or(0, |buckets| {
            buckets.range(first..).map(|(_, sum)| sum).sum()
        })
    }
}

fn surge_bucket(tick: Tick) -> u32 {
    tick / SURGE_WINDOW.bucket_seconds
}

fn join(map: &mut BTreeMap<u16, Joined>, key: u16, token: u32) {
    let contribution = Joined::of(token);
    let known = map.entry(key).or_default();
    known.bits |= contribution.bits;
    known.most = known.most.max(contribution.most);
}
