//! A host joins two others that are under full write load: what each turn of their packet loops costs meanwhile.
//!
//! Whole hosts in virtual time, driven manually: every packet changes an entry or adds one, so every turn writes as many groups as
//! packets came and applies as many of the other. All that is done is a function of the seed, so that the same turn of several
//! runs does the same work: the least of its times is what the work takes, and what interrupts and neighbours took is left out.

use std::sync::Arc;
use std::time::Duration;

use asterism_io::ring::RingWriter;
use asterism_placement::membership::Roster;
use asterism_placement::{Epoch, Incarnation, MemberId};
use asterism_state::ObjectSettings;

use super::count_packets::CountPackets;
use super::replication_hosts::{Host, Hosts, Start, configuration, fed_ports, feed};
use crate::contract::Failure;
use crate::timing::thread_cpu_ns;
use crate::traffic::frames::frame_between;
use crate::traffic::{Flows, Random, SmallFrame};

/// Packets of a turn: one burst.
pub(super) const PACKETS: usize = 32;
/// Virtual microseconds of a turn: a million writes a second at each of two hosts.
const TURN_US: u64 = 32;
/// How long a group may wait for others to fill its datagram.
const LOOKAHEAD: Duration = Duration::from_micros(100);
/// One packet in so many adds an entry.
const PACKETS_PER_NEW: u64 = 100;
/// Turns before the newcomer is named, and after it has joined.
const TURNS_AROUND: usize = 4_000;
/// Turns before those: caches and the log are as they stay.
const TURNS_WARM: usize = 2_000;
/// Turns within which a join must be over: so many, and one for every ten entries, thrice what it takes.
const TURNS_MAX: usize = 100_000;
/// Bytes that the tables of all three hosts take for an entry.
pub(super) const BYTES_PER_ENTRY: usize = 3 * 300;
/// The places of the members.
const SPONSOR: usize = 0;
const OTHER: usize = 1;
const NEWCOMER: usize = 2;

fn turns_max(entries: u32) -> usize {
    TURNS_MAX + entries as usize / 10
}

/// On-CPU nanoseconds of each turn of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Turns {
    /// Of who walks its tables.
    pub(super) sponsor: Vec<u32>,
    /// Of the member beside it.
    pub(super) other: Vec<u32>,
    /// Of who joins, from the first turn of the join on until it had joined.
    pub(super) newcomer: Vec<u32>,
    /// The turn in which the newcomer was named, and the one in which it had joined.
    pub(super) join: (usize, usize),
    /// The first and the last turn in which the sponsor wrote a part of the snapshot.
    pub(super) walk: (usize, usize),
    /// The most places that the sponsor looked at in a turn.
    pub(super) places_most: u64,
    /// Parts of the snapshot.
    pub(super) parts: u64,
}

impl Turns {
    /// The least of each turn over several runs.
    ///
    /// # Errors
    /// The runs did not do the same.
    pub(super) fn least(runs: Vec<Turns>) -> Result<Turns, Failure> {
        let mut runs = runs.into_iter();
        let mut least = runs
            .next()
            .ok_or_else(|| Failure::Unsound("nothing was run".into()))?;
        for run in runs {
            let lengths = |turns: &Turns| {
                let lengths = [&turns.sponsor, &turns.other, &turns.newcomer].map(Vec::len);
                (lengths, turns.join, turns.walk, turns.parts)
            };
            if lengths(&run) != lengths(&least) {
                return Err(Failure::Unsound(
                    "two runs of one seed did not do the same".into(),
                ));
            }
            for (least, this) in [
                (&mut least.sponsor, &run.sponsor),
                (&mut least.other, &run.other),
                (&mut least.newcomer, &run.newcomer),
            ] {
                for (least, &this) in least.iter_mut().zip(this) {
                    *least = this.min(*least);
                }
            }
        }
        Ok(least)
    }
}

struct Bench {
    hosts: Hosts<CountPackets>,
    feeds: Vec<RingWriter>,
    known: Vec<SmallFrame>,
    fresh: std::vec::IntoIter<SmallFrame>,
    random: Random,
    turns: Turns,
}

/// One run: fills the tables, has the newcomer join under load, and demands that all three agree once the load is over.
///
/// # Errors
/// Something was lost or differs, or the join did not end.
pub(super) fn run(entries: u32, seed: u64) -> Result<Turns, Failure> {
    let turns = TURNS_WARM + 2 * TURNS_AROUND + turns_max(entries);
    // Which packets add an entry is drawn: some more than the mean.
    let fresh = turns * PACKETS * 2 / PACKETS_PER_NEW as usize * 11 / 10;
    let flows = Flows::of_both(entries + fresh as u32, seed);
    let mut known: Vec<SmallFrame> = flows
        .sessions()
        .iter()
        .map(|session| frame_between(session.protocol, session.inside, session.remote))
        .collect();
    let fresh = known.split_off(entries as usize).into_iter();
    let function = Arc::new(CountPackets {
        // Any of three may be the first to write any key.
        capacity: 3 * (known.len() + fresh.len()) as u32,
    });
    let (mut starts, mut feeds) = (Vec::new(), Vec::new());
    for _ in 0..=NEWCOMER {
        let (ports, feed) = fed_ports();
        feeds.push(feed);
        starts.push(Start {
            function: function.clone(),
            ports,
        });
    }
    let configure = |config: &mut asterism_engine::HostConfig| config.replica.lookahead = LOOKAHEAD;
    let hosts = Hosts::new(starts, configure, |_| ObjectSettings::REPLICATED)?;
    let mut bench = Bench {
        hosts,
        feeds,
        known,
        fresh,
        random: Random::new(seed),
        turns: Turns::default(),
    };
    bench.leave_one_out()?;
    bench.fill()?;
    for _ in 0..TURNS_WARM {
        bench.load()?;
    }
    bench.turns = Turns::default();
    for _ in 0..TURNS_AROUND {
        bench.load()?;
    }
    bench.join(function, entries)?;
    for _ in 0..TURNS_AROUND {
        bench.load()?;
    }
    bench.check(entries)
}

impl Bench {
    fn install(&mut self, epoch: u32, incarnations: &[(usize, u64)]) -> Result<(), Failure> {
        let name = |place: usize| MemberId(place as u16 + 1);
        let roster = Roster {
            epoch: Epoch(epoch),
            members: incarnations
                .iter()
                .map(|&(place, incarnation)| (name(place), Some(Incarnation(incarnation))))
                .collect(),
            assignment: Vec::new(),
        };
        for member in &mut self.hosts.members {
            let channel = member.mail.channel_mut();
            channel
                .install(self.hosts.now, &roster)
                .map_err(|why| Failure::Unsound(format!("an epoch was refused: {why}")))?;
        }
        Ok(())
    }

    /// The third host leaves the cluster that it founded with the others.
    fn leave_one_out(&mut self) -> Result<(), Failure> {
        self.hosts.members.truncate(NEWCOMER);
        self.install(2, &[(SPONSOR, 1), (OTHER, 2)])?;
        self.hosts.settle()
    }

    /// Each of the two adds every second entry.
    fn fill(&mut self) -> Result<(), Failure> {
        let known = std::mem::take(&mut self.known);
        for some in known.chunks(2 * PACKETS) {
            let (left, right) = some.split_at(some.len().div_ceil(2));
            for (place, frames) in [(SPONSOR, left), (OTHER, right)] {
                for frame in frames {
                    feed(&mut self.feeds[place], frame)?;
                }
            }
            self.turn();
        }
        self.known = known;
        self.hosts.settle()
    }

    /// A turn of all, under full load of the two that are members.
    fn load(&mut self) -> Result<(), Failure> {
        for place in [SPONSOR, OTHER] {
            for _ in 0..PACKETS {
                let frame = if self.random.below(PACKETS_PER_NEW) == 0 {
                    self.fresh.next()
                } else {
                    let known = self.random.below(self.known.len() as u64);
                    self.known.get(known as usize).copied()
                };
                let frame = frame.ok_or_else(|| Failure::Unsound("no keys are left".into()))?;
                feed(&mut self.feeds[place], &frame)?;
            }
        }
        self.turn();
        Ok(())
    }

    fn turn(&mut self) {
        for feed in &mut self.feeds {
            feed.publish();
        }
        self.hosts.now = self.hosts.now + Duration::from_micros(TURN_US);
        let now = self.hosts.now;
        for (place, host) in self.hosts.members.iter_mut().enumerate() {
            host.mail.pass(now, usize::MAX);
            let parts = host.instance.tally().snapshot_parts_written;
            let begin = thread_cpu_ns();
            host.instance.turn(now);
            let took = (thread_cpu_ns() - begin).min(u64::from(u32::MAX)) as u32;
            let turns = &mut self.turns;
            match place {
                SPONSOR => {
                    let turn = turns.sponsor.len();
                    turns.sponsor.push(took);
                    if host.instance.tally().snapshot_parts_written > parts {
                        let first = if turns.walk.1 == 0 {
                            turn
                        } else {
                            turns.walk.0
                        };
                        turns.walk = (first, turn);
                    }
                }
                OTHER => turns.other.push(took),
                _ => turns.newcomer.push(took),
            }
            host.mail.pass(now, 0);
        }
        self.hosts.deliver();
    }

    /// A third host is named and joins under load.
    fn join(&mut self, function: Arc<CountPackets>, entries: u32) -> Result<(), Failure> {
        let incarnation = 9;
        let mut config = configuration(NEWCOMER as u16, NEWCOMER as u16 + 1);
        config.joins = true;
        config.incarnation = Incarnation(incarnation);
        config.secrets = [incarnation as u8; 48];
        config.replica.lookahead = LOOKAHEAD;
        let (ports, feed) = fed_ports();
        self.feeds[NEWCOMER] = feed;
        let start = Start { function, ports };
        let settings = |_: &str| ObjectSettings::REPLICATED;
        let now = self.hosts.now;
        self.hosts
            .members
            .push(Host::start(config, now, start, settings));
        self.turns.join.0 = self.turns.sponsor.len();
        self.install(3, &[(SPONSOR, 1), (OTHER, 2), (NEWCOMER, incarnation)])?;
        let most = turns_max(entries);
        while self.turns.sponsor.len() - self.turns.join.0 < most {
            self.load()?;
            let newcomer = self.hosts.members[NEWCOMER].mail.channel();
            if newcomer.is_ready() {
                self.turns.join.1 = self.turns.sponsor.len();
                for member in &mut self.hosts.members {
                    member.forgive_refused();
                }
                return Ok(());
            }
        }
        Err(Failure::Unsound(format!(
            "the join was not over after {most} turns"
        )))
    }

    /// That all came to the same, and that there was a join to measure.
    fn check(mut self, entries: u32) -> Result<Turns, Failure> {
        self.hosts.settle()?;
        self.hosts.check()?;
        let tally = self.hosts.members[SPONSOR].instance.tally();
        let mut turns = self.turns;
        (turns.places_most, turns.parts) =
            (tally.snapshot_places_most, tally.snapshot_parts_written);
        let held = self.hosts.members[NEWCOMER]
            .instance
            .state()
            .entries
            .len_now();
        if held < entries as usize || turns.parts == 0 || turns.walk.0 < turns.join.0 {
            return Err(Failure::Unsound(format!(
                "{held} of {entries} entries came by {} parts of a snapshot",
                turns.parts
            )));
        }
        turns.newcomer.truncate(turns.join.1 - turns.join.0);
        Ok(turns)
    }
}
