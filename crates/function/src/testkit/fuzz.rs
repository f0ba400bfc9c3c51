//! What the fuzz target runs: any bytes as operation groups and as snapshots, to a state with an object of every kind. A panic
//! is a fault; so is memory that grows without bound.

use std::rc::Rc;

use asterism_state::{Context, Inspect, ObjectSettings, OriginName, state};

use crate::{
    BadBytes, BiMap, Bloom, Builder, CountMin, Counter, Counters, CountingBloom, Graph, Map,
    Reader, Register, Set, Spending, State, TokenBucket, TokenRate, TopK, Value, Vector, Window,
    WindowedCountMin, WindowedCounters, Wire, Writer,
};

/// Longer inputs are cut.
const INPUT_MAX: usize = 4096;
/// Bytes of a part of a snapshot.
const PART_BYTES: usize = 1_100;
/// Parts of the snapshot of a state this small, at most.
const PARTS_MAX: usize = 4_000;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Bits(u8);

impl Wire for Bits {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.0);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.u8().map(Self)
    }
}

impl Value for Bits {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        self.0 |= other.0;
    }
    fn idle_class(&self) -> u8 {
        self.0
    }
}

#[state]
struct Everything {
    map: Map<u16, Bits>,
    pairs: BiMap<u8, u8>,
    set: Set<u64>,
    register: Register<Bits>,
    counter: Counter,
    counters: Counters<u16>,
    vector: Vector,
    sketch: CountMin<u16>,
    filter: Bloom<u16>,
    counting: CountingBloom<u16>,
    graph: Graph<u8>,
    recent: WindowedCounters<u16>,
    recent_sketch: WindowedCountMin<u16>,
    limits: TokenBucket<u16>,
    shares: TokenBucket<u16>,
    heavy: TopK<u16>,
}

/// What the windowed objects sum here: as far as to buckets near the fuzzed clock.
const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 100,
};

const RATE: TokenRate = TokenRate {
    tokens_per_second: 10,
    burst_tokens: 1_000,
};

/// Entries that each table has room for here.
const CAPACITY: u32 = 64;

/// Applies `data` as a snapshot and as a group, lets time pass, writes over what came, and scans the state.
pub fn fuzz_apply(data: &[u8]) {
    let data = data.get(..INPUT_MAX).unwrap_or(data);
    let context = Rc::new(Context::alone());
    context.set_now(0, 1_000);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let mut state = Everything {
        map: builder.table("map", CAPACITY, &[5, 50]),
        pairs: builder.table("pairs", CAPACITY, &[5]),
        set: builder.table("set", CAPACITY, &[0]),
        register: builder.register("register", Bits(0)),
        counter: builder.counter("counter"),
        counters: builder.counters("counters", CAPACITY),
        vector: builder.vector("vector", CAPACITY),
        sketch: builder.count_min("sketch", 0.1, 0.1),
        filter: builder.bloom("filter", CAPACITY, 0.1),
        counting: builder.counting_bloom("counting", CAPACITY, 0.1),
        graph: builder.graph("graph", CAPACITY, 5),
        recent: builder.windowed_counters("recent", CAPACITY, WINDOW),
        recent_sketch: builder.windowed_count_min("recent_sketch", (0.1, 0.1), WINDOW),
        limits: builder.token_bucket("limits", CAPACITY, RATE, Spending::Approximate),
        shares: builder.token_bucket("shares", CAPACITY, RATE, Spending::Escrow),
        heavy: builder.top_k("heavy", 8),
    };
    let from = OriginName {
        member: 9,
        incarnation: 1,
    };
    let (snapshot, group) = data.split_at(data.len() / 2);
    // Refused or not: what was applied before the fault stays, and is as good as any state.
    let _ = state.apply_snapshot(&context, snapshot);
    for ahead in [snapshot, group, data] {
        state.prefetch(&context, ahead);
    }
    let _ = state.apply(&context, from, 7, group);
    let _ = state.apply(&context, from, 8, data);
    write_over(&mut state, &context);
    for tick in [1_001, 1_100, u32::MAX] {
        context.set_now(0, tick);
        state.for_each_object(|object| _ = object.sweep_share(1));
    }
    context.end(|_, _| {});
    context.take_groups(|_, _| {});
    assert!(state.map.held() <= 2 * CAPACITY as usize);
    assert!(state.recent.entries() <= 2 * CAPACITY as usize);
    assert!(state.limits.entries() <= 2 * CAPACITY as usize);
    assert!(state.graph.nodes() <= 4 * CAPACITY as usize);
    scan(&state, &context);
}

/// Writes over, refreshes and removes what the bytes left behind.
fn write_over(state: &mut Everything, context: &Context) {
    context.begin(1);
    let mut rows = Vec::new();
    state.map.for_each(|row, _| rows.push(row.0));
    for (place, key) in rows.into_iter().enumerate() {
        let Ok(Some(at)) = state.map.get(&key) else {
            panic!("what is listed is found");
        };
        match place % 3 {
            0 => state.act().map.update(&at, Bits(0xff)),
            1 => state.act().map.touch(&at),
            _ => {
                state.act().map.remove(&at);
                assert_eq!(state.map.contains(&key), Ok(false));
            }
        }
    }
    if let Ok(Some(vacancy)) = state.map.vacancy() {
        state.act().map.insert(vacancy, 77, Bits(1));
        assert_eq!(
            state.map.contains(&77),
            Ok(true),
            "an own write is seen at once, whatever came before"
        );
    }
    let weight = state.graph.weight(&1, &2).ok().flatten().unwrap_or(0);
    if let Ok(Some(link)) = state.graph.link(&1, &2) {
        state.act().graph.add(link, 5);
        let raised = Some(weight.saturating_add(5));
        assert_eq!(state.graph.weight(&1, &2), Ok(raised));
    }
    context.arrive(0);
    let before = (state.recent.get(&3), state.recent_sketch.get(&3));
    if let Ok(Some(tally)) = state.recent.find(&3) {
        state.act().recent.add(&tally, 1);
        let raised = before.0.map(|sum| sum.wrapping_add(1));
        assert_eq!(state.recent.get(&3), raised);
    }
    state.act().recent_sketch.add(&3, 1);
    state.act().heavy.add(&3, 1);
    let listed = state.heavy.heaviest(usize::MAX);
    assert!(
        listed.iter().any(|heavy| heavy.key == 3),
        "an own key has a place"
    );
    let available = state.limits.available(&3);
    if let Ok(Some(tokens)) = state.limits.tokens(&3, 1) {
        state.act().limits.spend(tokens);
        let left = available.map(|tokens| tokens - 1);
        assert_eq!(state.limits.available(&3), left);
    }
    state.act().register.set(Bits(1));
    state.act().counter.add(1);
    state.act().vector.add(3, -1);
    state.act().sketch.add(&3, 1);
    state.act().filter.add(&3);
    state.act().counting.remove(&3);
    assert_eq!(
        state.filter.contains(&3),
        Ok(true),
        "an own write is seen at once"
    );
}

/// The scan ends, and what it says can be read by a fresh state of the same kind.
fn scan(state: &Everything, context: &Context) {
    let mut cursor = (0, 0);
    let mut part = Vec::new();
    for _ in 0..PARTS_MAX {
        part.clear();
        let next = state.snapshot(cursor, PART_BYTES, &mut part);
        assert!(part.len() <= PART_BYTES);
        let mut input = Reader::new(&part, context.addresses());
        assert!(part.is_empty() || input.u8().is_ok());
        match next {
            Some(next) => cursor = next,
            None => return,
        }
    }
    panic!("the scan over a small state does not end");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are mostly well formed, so that the fuzzing reaches what lies behind the decoders.
    fn likely(bits: &mut impl FnMut() -> u64) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..bits() % 24 {
            out.push((bits() % 17) as u8 * 8 + (bits() % 8) as u8);
            for _ in 0..bits() % 40 {
                out.push(match bits() % 4 {
                    0 => 0,
                    1 => 0xff,
                    2 => (bits() % 8) as u8,
                    _ => bits() as u8,
                });
            }
        }
        out
    }

    #[test]
    fn any_bytes_are_applied_or_refused() {
        let mut seed = 1u64;
        let mut bits = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            asterism_state::hash::word(seed, 3)
        };
        for round in 0..3_000 {
            let data = if round % 2 == 0 {
                likely(&mut bits)
            } else {
                (0..bits() % 200).map(|_| bits() as u8).collect()
            };
            fuzz_apply(&data);
        }
    }

    #[test]
    fn greatest_numbers_leave_room_for_writes() {
        // map, key, generation 2^31, bits, seen and expired at their ends, stamp of a member
        let mut part = Vec::new();
        let mut out = Writer::new(&mut part, &[]);
        out.u8(0);
        out.u16(77);
        out.varint(1 << 31);
        out.u8(0);
        out.u32(u32::MAX);
        out.u32(u32::MAX);
        out.raw(&[0; 10]);
        out.varint(u64::MAX);
        out.u8(0);
        fuzz_apply(&[part.clone(), vec![0; part.len()]].concat());
    }
}
