//! What a seed decides of a run with real clients: the links, what is kept, who dies in which stage, when the store fails over, and whether
//! it has shards.

use std::time::Duration;

use super::division::Division;
use super::ledger::CLIENTS_OF_SHARD;
use super::servers::Refusal;

use crate::scenario::Draws;

/// What draws whether a store has shards: other plans are as they were without.
const SHARDS: u64 = 75;
/// What draws whether packets add to sums in the store.
const ADDS: u64 = 76;
/// What draws whether primaries refuse what is written for a while.
const REFUSES: u64 = 77;
/// The staleness where nothing comes for seconds.
const STALENESS_LONG: Duration = Duration::from_millis(400);
/// Microseconds for which a shard is away.
const AWAY_LEAST_US: u64 = 200_000;
const AWAY_MOST_US: u64 = 400_000;

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
    /// Nothing comes through between a host and the store, or a shard of it, and nothing is lost.
    Stall,
    /// All connections of a host, or those to a shard, are cut.
    Cut,
}

/// When which host, or its links to which shard, does what and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct HiccupPlan {
    /// When.
    pub at: Duration,
    /// The host's place.
    pub place: usize,
    /// The links to which shard.
    pub shard: usize,
    /// What.
    pub hiccup: Hiccup,
    /// For how long.
    pub length: Duration,
}

/// What a seed decides of a shard: a primary and its replica. A store without shards is one.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardPlan {
    /// Microseconds from the primary to its replica, at most.
    pub lag_us: u64,
    /// Its failovers, one after the other.
    pub failovers: Vec<Failover>,
    /// When nothing comes through between it and any host, and for how long.
    pub away: Option<(Duration, Duration)>,
    /// When its primary begins to refuse what is written, for how long, and how.
    pub refuses: Option<(Duration, Duration, Refusal)>,
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
    /// Its shards: 1 to 3.
    pub shards: Vec<ShardPlan>,
    /// Who talks: of several shards each has as many of their conversations.
    pub clients: Vec<u8>,
    /// Most packets that only look come to the host of their conversation, and flows are few, so that hosts have entries of several shards that stay.
    pub is_steered: bool,
    /// What packets add to sums is in the store. Else it stays at hosts: only functions without such sums have entries that stay.
    pub adds: bool,
    /// After which packet one comes whose key is another shard's, and whether it only writes it.
    pub stray: Option<(u32, bool)>,
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
    /// What hosts and links do for a while.
    pub hiccups: Vec<HiccupPlan>,
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
        let failovers = failovers(load_us, draws);
        let hiccups = (0..draws.one_of(&[0, 1, 2, 4])).map(|_| {
            let hiccup = draws.one_of(&[Hiccup::Pause, Hiccup::Stall, Hiccup::Cut]);
            let place = draws.within(0, hosts as u64 - 1) as usize;
            let length = draws.micros(500, 150_000);
            HiccupPlan {
                at: draws.micros(0, load_us),
                place,
                shard: 0,
                hiccup,
                length,
            }
        });
        let hiccups = hiccups.collect();
        let idles = draws.percent(15);
        let gaps = (0..draws.one_of(&[0, 0, 0, 1, 2])).map(|_| {
            let after = draws.within(10, u64::from(packets) - 10) as u32;
            (after, draws.micros(500_000, 7_000_000))
        });
        let gaps: Vec<_> = gaps.collect();
        let staleness = match gaps.is_empty() && !idles {
            true => Duration::from_millis(draws.one_of(&[2, 5, 20])),
            // What is kept is asked after that often, which costs most where nothing else happens.
            false => STALENESS_LONG,
        };
        let plan = Self {
            seed,
            hosts,
            commit_pipes: draws.within(1, 3) as usize,
            ack,
            keeps,
            reads_mostly: seed / 3 % 2 == 1,
            staleness,
            timeout: Duration::from_millis(draws.one_of(&[20, 60])),
            delay_us,
            cut_of: draws.one_of(&[0, 30, 100, 400]),
            // More than a scan looks at for one piece.
            others_keys: if keeps == Keeps::AnswersAndKeys {
                200
            } else {
                0
            },
            shards: vec![ShardPlan {
                lag_us: lag_us(ack, draws),
                failovers,
                away: None,
                refuses: None,
            }],
            clients: vec![0],
            is_steered: false,
            adds: Draws::new(seed, ADDS).percent(40),
            stray: None,
            packets,
            between_us,
            gaps,
            idles,
            deaths,
            hiccups,
        };
        let plan = plan.divided(&mut Draws::new(seed, SHARDS));
        plan.refusing(&mut Draws::new(seed, REFUSES))
    }

    /// The same, in some seeds, with primaries that refuse what is written for a while.
    fn refusing(mut self, draws: &mut Draws) -> Self {
        if !draws.percent(20) {
            return self;
        }
        let load_us = self.load_us();
        for shard in &mut self.shards {
            let refusal = draws.one_of(&[Refusal::Full, Refusal::NoReplicas]);
            let (at, length) = (draws.micros(0, load_us), draws.micros(5_000, 200_000));
            shard.refuses = draws.percent(70).then_some((at, length, refusal));
        }
        self
    }

    /// Microseconds within which its packets come, about.
    fn load_us(&self) -> u64 {
        u64::from(self.packets) * self.between_us / 2
    }

    /// The same, in some seeds, with a store of several shards: each with failovers of its own, and what happens to links is one shard's.
    fn divided(mut self, draws: &mut Draws) -> Self {
        if !draws.percent(25) {
            return self;
        }
        self.is_steered = draws.percent(match self.keeps {
            Keeps::Nothing => 20,
            _ => 60,
        });
        if self.is_steered {
            // Packets find what the one before read.
            (self.between_us, self.delay_us) = (2_000, draws.one_of(&[30, 80]));
            self.packets = self.packets.max(150);
            self.staleness = Duration::from_millis(draws.one_of(&[8, 15]));
            (self.idles, self.gaps) = (false, Vec::new());
            self.adds = false;
        }
        let load_us = self.load_us();
        let count = draws.within(2, 3) as usize;
        let away = draws.within(0, count as u64 - 1) as usize;
        let shard = |place| ShardPlan {
            lag_us: lag_us(self.ack, draws),
            failovers: failovers(load_us, draws),
            away: (place == away && draws.percent(80)).then(|| {
                let length = draws.micros(AWAY_LEAST_US, AWAY_MOST_US);
                (draws.micros(0, load_us / 2), length)
            }),
            refuses: None,
        };
        self.shards = (0..count).map(shard).collect();
        let division = Division::new(self.seed, count);
        self.clients = division.clients(CLIENTS_OF_SHARD);
        for hiccup in &mut self.hiccups {
            hiccup.shard = draws.within(0, count as u64 - 1) as usize;
        }
        if self.is_steered || draws.percent(60) {
            // The host to which most packets of a client come.
            let client = draws.one_of(&self.clients);
            self.hiccups.push(HiccupPlan {
                at: draws.micros(load_us / 8, load_us / 2),
                place: usize::from(client) % self.hosts,
                shard: division.of_client(client),
                hiccup: Hiccup::Stall,
                length: draws.micros(20_000, 120_000),
            });
        }
        if count > 2 {
            // Each second costs most there.
            self.idles = false;
            self.gaps.truncate(1);
        }
        let after = draws.within(1, u64::from(self.packets) - 1) as u32;
        let is_blind = draws.percent(15);
        self.stray = draws.percent(25).then_some((after, is_blind));
        self
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

/// How far a replica is behind, at most.
fn lag_us(ack: Ack, draws: &mut Draws) -> u64 {
    draws.one_of(match ack {
        Ack::Primary => &[500, 3_000, 15_000],
        Ack::Replica => &[100, 500, 3_000],
    })
}

/// Failovers of a primary, one after the other.
fn failovers(load_us: u64, draws: &mut Draws) -> Vec<Failover> {
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
    failovers.collect()
}
