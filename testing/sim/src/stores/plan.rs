//! What a seed decides of a run with a store: the function, which of its objects live there, the links, who dies, when the store is away.

use std::time::Duration;

use asterism_io::link::LinkConditions;

use crate::scenario::Draws;

/// Which function a seed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Accounts that the packets of several flows use: the simulator's own function.
    Accounts,
    /// The finder of signatures.
    Signature,
}

impl Subject {
    /// All of them: seed `n` runs the one at `n` modulo their number.
    pub const ALL: [Self; 2] = [Self::Accounts, Self::Signature];
}

/// Which objects live in the store, of those that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Homes {
    /// All.
    All,
    /// The first of the state, the third, and so on.
    Even,
    /// The others.
    Odd,
}

impl Homes {
    /// All of them: seeds take turns.
    pub const ALL: [Self; 3] = [Self::All, Self::Even, Self::Odd];

    /// Whether the object of this number is to live in the store.
    #[must_use]
    pub fn has(self, object: usize) -> bool {
        match self {
            Self::All => true,
            Self::Even => object.is_multiple_of(2),
            Self::Odd => !object.is_multiple_of(2),
        }
    }
}

/// The end of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Death {
    /// Its place.
    pub victim: usize,
    /// When, from the start.
    pub at: Duration,
    /// How long routers go on sending it packets, all of which are lost.
    pub noticed: Duration,
    /// From the death to the host that begins in its place.
    pub replaced: Duration,
    /// What it had sent to the store is lost too.
    pub is_sent_lost: bool,
}

/// What a seed decides.
#[derive(Clone, Debug, PartialEq)]
pub struct StorePlan {
    /// The seed.
    pub seed: u64,
    /// The function.
    pub subject: Subject,
    /// Which objects live in the store.
    pub homes: Homes,
    /// Hosts: 2 to 4, of one instance each.
    pub hosts: usize,
    /// Each direction between a host and the store.
    pub link: LinkConditions,
    /// Packets that come to the hosts.
    pub packets: u32,
    /// Two packets come at most so many microseconds after one another.
    pub between_us: u64,
    /// Ends of hosts.
    pub deaths: Vec<Death>,
    /// When the store is away, from the start, and for how long.
    pub outages: Vec<(Duration, Duration)>,
}

impl StorePlan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let draws = &mut Draws::new(seed, 60);
        let subjects = Subject::ALL.len() as u64;
        let delay_us = draws.one_of(&[30, 100, 400, 1_500]);
        let clean = draws.percent(10);
        let share = |draws: &mut Draws, of: &[f64]| if clean { 0.0 } else { draws.one_of(of) };
        let link = LinkConditions {
            delay: Duration::from_micros(delay_us),
            jitter: draws.micros(0, delay_us * 2),
            loss: share(draws, &[0.01, 0.05, 0.12]),
            duplication: share(draws, &[0.02, 0.1, 0.3]),
            reordering: share(draws, &[0.05, 0.15, 0.3]),
            reordering_delay: draws.micros(delay_us, delay_us * 20),
            mtu_bytes: 1 << 16,
            ..LinkConditions::default()
        };
        let hosts = draws.within(2, 4) as usize;
        // Of hosts that are far from the store the transactions are in each other's way for long.
        let packets = draws.within(100, if delay_us > 1_000 { 150 } else { 300 }) as u32;
        let between_us = draws.one_of(&[100, 400, 1_000]);
        let load_us = u64::from(packets) * between_us / 2;
        let deaths = (0..draws.one_of(&[0, 1, 1, 2, 3])).map(|_| Death {
            victim: draws.within(0, hosts as u64 - 1) as usize,
            at: draws.micros(0, load_us),
            noticed: draws.micros(0, 3_000),
            replaced: draws.micros(3_000, 30_000),
            is_sent_lost: draws.percent(50),
        });
        let deaths = deaths.collect();
        let outages = (0..draws.one_of(&[0, 0, 1, 1, 2]))
            .map(|_| (draws.micros(0, load_us), draws.micros(2_000, 50_000)));
        let outages = outages.collect();
        Self {
            seed,
            subject: Subject::ALL[(seed % subjects) as usize],
            homes: Homes::ALL[(seed / subjects % Homes::ALL.len() as u64) as usize],
            hosts,
            link,
            packets,
            between_us,
            deaths,
            outages,
        }
    }

    /// What counts in reports as runs of this function with these homes.
    pub(super) fn name(&self) -> &'static str {
        match (self.subject, self.homes) {
            (Subject::Accounts, Homes::All) => "accounts, all in the store",
            (Subject::Accounts, Homes::Even) => "accounts, even in the store",
            (Subject::Accounts, Homes::Odd) => "accounts, odd in the store",
            (Subject::Signature, Homes::All) => "signature, all in the store",
            (Subject::Signature, Homes::Even) => "signature, even in the store",
            (Subject::Signature, Homes::Odd) => "signature, odd in the store",
        }
    }
}
