//! What a seed decides of a run with real clients: the links, what is kept, who dies in which stage, when the store fails over.

use std::time::Duration;

use crate::scenario::Draws;

/// When a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The primary has its writes.
    Primary,
    /// A replica has them too.
    Replica,
}

/// What clients keep of what they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing.
    Nothing,
    /// Answers.
    Answers,
    /// Answers, and which keys there are.
    AnswersAndKeys,
}

impl Keeps {
    /// All of them: seeds take turns.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Answers, Self::AnswersAndKeys];
}

/// What a host is about when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Packets wait, and nothing is being written.
    Reading,
    /// What is to be committed is read and decided.
    Loading,
    /// What was decided is under way.
    Executing,
    /// The primary has it, and a replica is waited for.
    Replicating,
    /// Entries are being ended.
    Ending,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Reading,
        Self::Loading,
        Self::Executing,
        Self::Replicating,
        Self::Ending,
    ];
}

/// The end of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDeath {
    /// Its place.
    pub victim: usize,
    /// From when on.
    pub at: Duration,
    /// In the first such moment; if there is none for long, anyhow.
    pub stage: Stage,
    /// How long routers go on sending it packets.
    pub noticed: Duration,
    /// From then on until another one begins in its place.
    pub replaced: Duration,
}

/// The store gets another primary: what the replica did not have then is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Failover {
    /// When the primary is one no more.
    pub at: Duration,
    /// It dies; else it is a replica from then on, and clients still talk to it.
    pub dies: bool,
    /// From a death until the replica is promoted.
    pub promoted: Duration,
    /// From the promotion until the old one has what the new one has, and follows it.
    pub follows: Duration,
}

/// Something that hosts or links do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hiccup {
    /// A host stands still.
    Pause,
    /// Nothing comes through between a host and the store, and nothing is lost.
    Stall,
    /// All connections of a host are cut.
    Cut,
}

/// What a seed decides.
#[derive(Clone, Debug, PartialEq)]
pub struct RemotePlan {
    /// The seed.
    pub seed: u64,
    /// Hosts: 2 to 4, of one instance each.
    pub hosts: usize,
    /// Connections of a host that commit.
    pub commit_pipes: usize,
    /// When a packet leaves.
    pub ack: Ack,
    /// What clients keep.
    pub keeps: Keeps,
    /// Most packets only read, so that entries stay at hosts.
    pub reads_mostly: bool,
    /// An answer that is given out was so within this time.
    pub staleness: Duration,
    /// How long a reply may take.
    pub timeout: Duration,
    /// Microseconds of each direction between a host and the store, and as much again by chance.
    pub delay_us: u64,
    /// One message of so many cuts its connection in its midst; 0: none does.
    pub cut_of: u64,
    /// Keys of others that the store has.
    pub others_keys: u32,
    /// Microseconds from the primary to its replica, at most.
    pub lag_us: u64,
    /// Packets that come to the hosts.
    pub packets: u32,
    /// Two packets come at most so many microseconds after one another.
    pub between_us: u64,
    /// After which packets nothing comes for so long.
    pub gaps: Vec<(u32, Duration)>,
    /// At last all entries that may end do.
    pub idles: bool,
    /// Ends of hosts.
    pub deaths: Vec<HostDeath>,
    /// The store's failovers, one after the other.
    pub failovers: Vec<Failover>,
    /// When, which host, what, and for how long.
    pub hiccups: Vec<(Duration, usize, Hiccup, Duration)>,
}

impl RemotePlan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let draws = &mut Draws::new(seed, 70);
        let hosts = draws.within(2, 4) as usize;
        let delay_us = draws.one_of(&[30, 80, 200, 500]);
        let packets = draws.within(60, if delay_us > 300 { 100 } else { 150 }) as u32;
        let between_us = draws.one_of(&[100, 400, 1_000]);
        let load_us = u64::from(packets) * between_us / 2;
        let keeps = Keeps::ALL[(seed % 3) as usize];
        let ack = match draws.percent(50) {
            true => Ack::Primary,
            false => Ack::Replica,
        };
        let deaths = (0..draws.one_of(&[0, 1, 1, 2, 3])).map(|_| HostDeath {
            victim: draws.within(0, hosts as u64 - 1) as usize,
            at: draws.micros(0, load_us),
            stage: draws.one_of(&Stage::ALL),
            noticed: draws.micros(0, 3_000),
            replaced: draws.micros(1_000, 30_000),
        });
        let deaths = deaths.collect();
        let mut at = Duration::ZERO;
        let failovers = (0..draws.one_of(&[0, 0, 1, 1, 2])).map(|_| {
            at += draws.micros(load_us / 8, load_us * 2 / 3);
            let dies = draws.percent(60);
            let promoted = match dies {
                true => draws.micros(1_000, 60_000),
                false => Duration::ZERO,
            };
            let follows = draws.micros(0, 40_000);
            let failover = Failover {
                at,
                dies,
                promoted,
                follows,
            };
            at += promoted + follows;
            failover
        });
        let failovers = failovers.collect();
        let hiccups = (0..draws.one_of(&[0, 1, 2, 4])).map(|_| {
            let hiccup = draws.one_of(&[Hiccup::Pause, Hiccup::Stall, Hiccup::Cut]);
            let place = draws.within(0, hosts as u64 - 1) as usize;
            let length = draws.micros(500, 150_000);
            (draws.micros(0, load_us), place, hiccup, length)
        });
        let hiccups = hiccups.collect();
        let idles = draws.percent(15);
        let gaps = (0..draws.one_of(&[0, 0, 0, 1, 2])).map(|_| {
            let after = draws.within(10, u64::from(packets) - 10) as u32;
            (after, draws.micros(500_000, 7_000_000))
        });
        let gaps: Vec<_> = gaps.collect();
        let staleness = match gaps.is_empty() && !idles {
            true => draws.one_of(&[2, 5, 20]),
            // What is kept is asked after that often, which costs most where nothing else happens.
            false => 400,
        };
        Self {
            seed,
            hosts,
            commit_pipes: draws.within(1, 3) as usize,
            ack,
            keeps,
            reads_mostly: seed / 3 % 2 == 1,
            staleness: Duration::from_millis(staleness),
            timeout: Duration::from_millis(draws.one_of(&[20, 60])),
            delay_us,
            cut_of: draws.one_of(&[0, 30, 100, 400]),
            // More than a scan looks at for one piece.
            others_keys: if keeps == Keeps::AnswersAndKeys {
                200
            } else {
                0
            },
            lag_us: draws.one_of(match ack {
                Ack::Primary => &[500, 3_000, 15_000],
                Ack::Replica => &[100, 500, 3_000],
            }),
            packets,
            between_us,
            gaps,
            idles,
            deaths,
            failovers,
            hiccups,
        }
    }

    /// What counts in reports as runs of this kind.
    pub(super) fn name(&self) -> &'static str {
        match (self.keeps, self.ack) {
            (Keeps::Nothing, Ack::Primary) => "nothing kept, the primary has it",
            (Keeps::Nothing, Ack::Replica) => "nothing kept, a replica has it",
            (Keeps::Answers, Ack::Primary) => "answers kept, the primary has it",
            (Keeps::Answers, Ack::Replica) => "answers kept, a replica has it",
            (Keeps::AnswersAndKeys, Ack::Primary) => "keys known, the primary has it",
            (Keeps::AnswersAndKeys, Ack::Replica) => "keys known, a replica has it",
        }
    }
}
