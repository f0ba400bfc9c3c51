//! A table at size: nothing is allocated after it was built, and no insertion pays for the growth of more
//! than one bucket.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    BiMap, Builder, Context, Counters, Identity, ObjectSettings, OriginName, Sequencer, State,
    Sweep, state,
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
    state.with(0, Sweep { turns: 1 });
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
        state.with(1, asterism_state::Flush(&mut bytes));
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
