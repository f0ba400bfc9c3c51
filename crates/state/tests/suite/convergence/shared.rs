//! A state with one object of every kind, its values, and a source of chance.

use std::rc::Rc;

use asterism_state::{
    BiMap, Bloom, Builder, Context, CountMin, Counter, Counters, CountingBloom, Graph, Grouped,
    Key, Map, ObjectSettings, Paired, Pool, Register, Row, Set, Space, Spending, Table,
    TokenBucket, TokenRate, TopK, Value, Vector, WindowedCountMin, WindowedCounters, Wire, Writer,
    state,
};
use core::cmp::Ordering;

use crate::convergence::accumulated::{FILTER, HEAVY, PLACES, SKETCH};
use crate::convergence::windowed::WINDOW;

/// A value of which the greater one wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct Score(pub u8);

impl Value for Score {
    fn order(&self, other: &Self) -> Ordering {
        // Coarser than equality on purpose: the stamp must decide the rest.
        (self.0 / 4).cmp(&(other.0 / 4))
    }
    fn idle_class(&self) -> u8 {
        self.0 & 1
    }
}

/// A value whose bits add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub struct Seen(#[join(or)] pub u8);

/// A row with two unique keys and two groups, computed from its fields as a NAT session's are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire)]
pub struct Session {
    pub inside: u8,
    pub outside: u8,
    pub remote: u8,
}

impl Paired for Session {
    type Left = (u8, u8);
    type Right = (u8, u8);
    fn left(&self) -> (u8, u8) {
        (self.inside, self.remote)
    }
    fn right(&self) -> (u8, u8) {
        (self.outside, self.remote)
    }
}

impl Grouped for Session {
    type Group = u8;
    fn group(&self, group: usize) -> u8 {
        if group == 0 {
            self.inside
        } else {
            self.outside
        }
    }
}

impl Row for Session {
    const UNIQUE: usize = 2;
    const LANES: usize = 4;
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        match lane {
            0 => self.left().hash(seed),
            1 => self.right().hash(seed),
            _ => self.group(lane - 2).hash(seed),
        }
    }
    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            0 => self.left().encode(out),
            1 => self.right().encode(out),
            _ => self.group(lane - 2).encode(out),
        }
    }
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        match lane {
            0 => self.left() == other.left(),
            1 => self.right() == other.right(),
            _ => self.group(lane - 2) == other.group(lane - 2),
        }
    }
    fn order(&self, other: &Self) -> Ordering {
        (self.inside, self.outside, self.remote).cmp(&(other.inside, other.outside, other.remote))
    }
}

/// Numbers on two ranges of a length that is no multiple of a block.
#[derive(Debug)]
pub struct Ports;

impl Ports {
    pub const ITEMS: u32 = 330;
}

impl Space for Ports {
    type Item = u32;
    fn ranges(&self) -> u32 {
        2
    }
    fn items(&self) -> u32 {
        Self::ITEMS
    }
    fn item(&self, range: u32, place: u32) -> u32 {
        range * 1_000 + place
    }
    fn place(&self, item: &u32) -> Option<(u32, u32)> {
        (*item < 2_000 && item % 1_000 < Self::ITEMS).then_some((item / 1_000, item % 1_000))
    }
}

/// One object of every kind.
#[state]
pub struct Shared {
    pub winners: Map<u32, Score>,
    pub joins: Map<u32, Seen>,
    pub members: Set<u32>,
    pub pairs: BiMap<u8, u8>,
    pub sessions: Table<Session, Seen>,
    pub latest: Register<Score>,
    pub flags: Register<Seen>,
    pub total: Counter,
    pub keyed: Counters<u32>,
    pub users: Map<u32, Score>,
    pub ports: Pool<Ports>,
    pub loads: Vector,
    pub volumes: CountMin<u32>,
    pub present: CountingBloom<u32>,
    pub seen: Bloom<u32>,
    pub talk: Graph<u8>,
    pub recent: WindowedCounters<u32>,
    pub recent_volumes: WindowedCountMin<u32>,
    pub limits: TokenBucket<u32>,
    pub heavy: TopK<u32>,
}

/// A full bucket's worth every three seconds.
const RATE: TokenRate = TokenRate {
    tokens_per_second: 7,
    burst_tokens: 20,
};

/// Entries of each table over all members.
pub const CAPACITY: u32 = 48;

impl Shared {
    pub fn new(context: &Rc<Context>) -> Self {
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let mut shared = Self {
            winners: builder.table("winners", CAPACITY, &[8, 16]),
            joins: builder.table("joins", CAPACITY, &[12]),
            members: builder.table("members", CAPACITY, &[8]),
            pairs: builder.table("pairs", CAPACITY, &[10]),
            sessions: builder.table("sessions", CAPACITY, &[10]),
            latest: builder.register("latest", Score(0)),
            flags: builder.register("flags", Seen(0)),
            total: builder.counter("total"),
            keyed: builder.counters("keyed", CAPACITY),
            users: builder.table("users", 4 * CAPACITY, &[8, 8]),
            ports: builder.pool("ports", Ports),
            loads: builder.vector("loads", PLACES),
            volumes: builder.count_min("volumes", SKETCH.0, SKETCH.1),
            present: builder.counting_bloom("present", FILTER.0, FILTER.1),
            seen: builder.bloom("seen", FILTER.0, FILTER.1),
            talk: builder.graph("talk", 2 * CAPACITY, 10),
            recent: builder.windowed_counters("recent", CAPACITY, WINDOW),
            recent_volumes: builder.windowed_count_min("recent_volumes", SKETCH, WINDOW),
            limits: builder.token_bucket("limits", CAPACITY, RATE, Spending::Approximate),
            heavy: builder.top_k("heavy", HEAVY),
        };
        let returns = shared.ports.returns();
        shared.users.on_forget(0, move |row, last| {
            if last {
                returns.item(&row.0);
            }
        });
        shared
    }
}

/// Chance from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }
    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}
