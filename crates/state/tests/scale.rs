//! A table at size: nothing is allocated after it was built, and no insertion pays for the growth of more
//! than one bucket.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    BiMap, Builder, Context, Counters, Graph, Identity, ObjectSettings, OriginName, Sequencer,
    Spending, State, TokenBucket, TokenRate, TopK, Window, WindowedCountMin, WindowedCounters,
    state,
};

struct Counting;

std::thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[state]
struct Large {
    bindings: BiMap<u64, u64>,
    volumes: Counters<u64>,
}

const ENTRIES: u64 = 200_000;

fn large(member: u16) -> (Rc<Context>, Large) {
    let identity = Identity {
        own: OriginName {
            member,
            incarnation: 1,
        },
        members: vec![1, 2],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 99, vec![]);
    let context = Rc::new(context);
    context.set_now(0, 10);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let state = Large {
        bindings: builder.table("bindings", 2 * ENTRIES as u32, &[60]),
        volumes: builder.counters("volumes", 2 * ENTRIES as u32),
    };
    (context, state)
}

#[test]
fn many_entries_come_and_go_without_allocation() {
    let (context, mut state) = large(1);
    let before = ALLOCATIONS.get();
    for key in 0..ENTRIES {
        context.begin(key);
        let vacancy = state.bindings.vacancy().expect("local").expect("room");
        let tally = state.volumes.find(&key).expect("local").expect("room");
        let mut act = state.act();
        act.bindings.insert(vacancy, (key, !key), ());
        act.volumes.add(&tally, key);
        context.end(|_, _| {});
        if key % 256 == 0 {
            context.take_groups(|_, _| {});
        }
    }
    assert!(state.bindings.vacancy().expect("local").is_none(), "full");
    for key in 0..ENTRIES {
        let found = state.bindings.by_left(&key).expect("local").expect("held");
        assert_eq!(found.row.1, !key);
        assert!(state.bindings.by_right(&!key).expect("local").is_some());
        assert_eq!(state.volumes.get(&key), Ok(key));
    }
    for key in 0..ENTRIES {
        let at = state.bindings.by_left(&key).expect("local").expect("held");
        context.begin(key);
        state.act().bindings.remove(&at);
        context.end(|_, _| {});
        if key % 256 == 0 {
            context.take_groups(|_, _| {});
        }
    }
    context.set_stable(asterism_state::Origins::OWN, u64::MAX);
    state.object_mut(0).expect("an object").sweep_share(1);
    assert_eq!(state.bindings.held(), 0);
    assert_eq!(state.bindings.by_left(&5), Ok(None));
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations after the build");
}

#[test]
fn applying_others_operations_allocates_nothing() {
    let (context, mut state) = large(1);
    let mut groups = Vec::new();
    for key in 0..1_000 {
        context.begin(key);
        let vacancy = state.bindings.vacancy().expect("local").expect("room");
        let tally = state.volumes.find(&key).expect("local").expect("room");
        let mut act = state.act();
        act.bindings.insert(vacancy, (key, !key), ());
        act.volumes.add(&tally, key);
        let mut bytes = 1_000;
        state.object_mut(1).expect("an object").flush(&mut bytes);
        context.end(|_, _| {});
        context.take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
    }
    let (far, mut reader) = large(2);
    let name = context.identity().own;
    let before = ALLOCATIONS.get();
    for (sequence, group) in &groups {
        reader
            .apply(&far, name, *sequence, group)
            .expect("good bytes");
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations while applying");
    assert_eq!(reader.digests(), state.digests());
}

#[state]
struct Flows {
    flows: BiMap<u64, u64>,
}

/// The most entries that a configuration may ask for in a table of flows.
const MOST: u32 = 1 << 24;

/// Bytes of memory that this process has taken; `None` where the system does not say.
fn taken() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let resident: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(resident * 4_096)
}

#[test]
fn a_table_for_sixteen_million_takes_memory_as_it_fills() {
    let identity = Identity {
        own: OriginName {
            member: 0,
            incarnation: 1,
        },
        members: (0..64).collect(),
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 99, vec![]);
    let context = Rc::new(context);
    context.set_now(0, 10);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let before = taken();
    let mut state = Flows {
        flows: builder.table("flows", MOST, &[60]),
    };
    // This instance's share of it, of 64 members.
    let share = u64::from(MOST) / 64;
    for key in 0..share {
        context.begin(key);
        let vacancy = state.flows.vacancy().expect("local").expect("room");
        state.act().flows.insert(vacancy, (key, !key), ());
        context.end(|_, _| {});
        context.take_groups(|_, _| {});
    }
    assert!(state.flows.vacancy().expect("local").is_none());
    for key in (0..share).step_by(999) {
        let found = state.flows.by_right(&!key).expect("local").expect("held");
        assert_eq!(found.row.0, key);
    }
    if let (Some(before), Some(after)) = (before, taken()) {
        // Some 50 MB; other tests of this process take theirs beside it. All that is reserved would be ten gigabytes.
        let grown = after.saturating_sub(before);
        assert!(grown < 600 << 20, "{grown} bytes for {share} entries");
    }
}

#[state]
struct Observed {
    talk: Graph<u32>,
    recent: WindowedCounters<u32>,
    sketch: WindowedCountMin<u32>,
    limits: TokenBucket<u32>,
    shares: TokenBucket<u32>,
    heavy: TopK<u32>,
}

fn observed(member: u16) -> (Rc<Context>, Observed) {
    let identity = Identity {
        own: OriginName {
            member,
            incarnation: 1,
        },
        members: vec![1, 2],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 99, vec![]);
    let context = Rc::new(context);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let window = Window {
        buckets: 6,
        bucket_seconds: 5,
    };
    let rate = TokenRate {
        tokens_per_second: 100,
        burst_tokens: 200,
    };
    let state = Observed {
        talk: builder.graph("talk", 20_000, 10),
        recent: builder.windowed_counters("recent", 20_000, window),
        sketch: builder.windowed_count_min("sketch", (0.01, 0.01), window),
        limits: builder.token_bucket("limits", 20_000, rate, Spending::Approximate),
        shares: builder.token_bucket("shares", 20_000, rate, Spending::Escrow),
        heavy: builder.top_k("heavy", 100),
    };
    (context, state)
}

impl Observed {
    fn packet(&mut self, source: u32, destination: u32, bytes: u64) {
        let link = self.talk.link(&source, &destination).expect("local");
        let tally = self.recent.find(&source).expect("local");
        let tokens = self.limits.tokens(&source, 1).expect("local");
        let share = self.shares.tokens(&source, 1).expect("local");
        let degree = self.talk.out_degree(&source).expect("local");
        let known = self.sketch.get(&source).expect("local") + u64::from(degree);
        let mut act = self.act();
        link.into_iter().for_each(|link| act.talk.add(link, bytes));
        tally.iter().for_each(|tally| act.recent.add(tally, bytes));
        tokens
            .into_iter()
            .for_each(|tokens| act.limits.spend(tokens));
        share.into_iter().for_each(|share| act.shares.spend(share));
        act.sketch.add(&source, 1 + known % 2);
        act.heavy.add(&destination, bytes);
    }
}

#[test]
fn observing_traffic_allocates_nothing_here_and_where_it_is_heard_of() {
    let (context, mut state) = observed(1);
    let (far, mut reader) = observed(2);
    let name = context.identity().own;
    let mut group = Vec::with_capacity(64 << 10);
    let mut sequences = Vec::with_capacity(1_024);
    let mut allocations = [0, 0];
    for step in 0..200u32 {
        let now_us = u64::from(step) * 500_000;
        for context in [&context, &far] {
            context.set_now(now_us, 1_000 + step / 2);
            context.arrive(now_us);
        }
        let before = ALLOCATIONS.get();
        for packet in 0..100 {
            let draw = asterism_state::hash::word(u64::from(step * 100 + packet), 7);
            context.begin(u64::from(step * 100 + packet));
            state.packet(step * 7 + packet % 50, (draw % 400) as u32, draw % 1_500);
            context.end(|_, _| {});
        }
        let mut bytes = 60_000;
        for object in 0..Observed::OBJECTS.len() as u8 {
            state
                .object_mut(object)
                .expect("an object")
                .flush(&mut bytes);
            state.object_mut(object).expect("an object").sweep_share(4);
        }
        context.end(|_, _| {});
        sequences.clear();
        group.clear();
        context.take_groups(|sequence, bytes| {
            sequences.push((sequence, group.len()..group.len() + bytes.len()));
            group.extend_from_slice(bytes);
        });
        context.set_stable(
            asterism_state::Origins::OWN,
            sequences.last().map_or(0, |last| last.0),
        );
        allocations[0] += ALLOCATIONS.get() - before;
        let before = ALLOCATIONS.get();
        for (sequence, range) in &sequences {
            let applied = reader.apply(&far, name, *sequence, &group[range.clone()]);
            applied.expect("good bytes");
        }
        reader.for_each_object(|object| _ = object.sweep_share(4));
        far.take_groups(|_, _| {});
        // The first step hears of a new writer: its totals get memory of their own.
        if step > 0 {
            allocations[1] += ALLOCATIONS.get() - before;
        }
    }
    assert_eq!(
        allocations,
        [0, 0],
        "allocations on packets' path, and hearing"
    );
    assert!(state.talk.edges() > 0 && state.recent.tally().expired == 0);
    for (object, (here, there)) in state
        .digests()
        .into_iter()
        .zip(reader.digests())
        .enumerate()
    {
        assert_eq!(here, there, "{}", Observed::OBJECTS[object]);
    }
}
