//! The steady state of the replicated protocol core allocates nothing: submit, messages, delivery, acknowledgements, and
//! the repair of losses.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use asterism_placement::replicated::{Config, Deliver, Replicator};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

struct Nothing;

impl Deliver for Nothing {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

#[test]
fn the_steady_state_allocates_nothing() {
    let members = vec![MemberId(0), MemberId(1)];
    let node = |member: u16| {
        let incarnation = Incarnation(u64::from(member));
        let mut config = Config::new(
            ClusterId(1),
            Epoch(1),
            MemberId(member),
            incarnation,
            members.clone(),
        );
        config.reorder_groups_max = 256;
        Replicator::new(config, Time::ZERO).unwrap()
    };
    let mut nodes = [node(0), node(1)];
    let mut buffer = Vec::with_capacity(2_000);
    let mut sequence = 0;
    let mut lost = 0;
    let mut before = 0;
    for turn in 0..40_000u64 {
        if turn == 20_000 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        let now = Time(turn * 50);
        if turn % 4 != 3 {
            for _ in 0..20 {
                sequence += 1;
                nodes[0].submit(now, sequence, &[7; 30]).unwrap();
            }
        }
        for from in 0..2 {
            nodes[from].handle_timeout(now);
            while nodes[from].poll_transmit(now, &mut buffer).is_some() {
                lost += u64::from(turn % 97 == 5);
                if turn % 97 == 5 {
                    continue;
                }
                let incarnation = Incarnation(from as u64);
                let to = &mut nodes[1 - from];
                to.handle(
                    now,
                    MemberId(from as u16),
                    incarnation,
                    &buffer,
                    &mut Nothing,
                )
                .unwrap();
                let received = to
                    .progress()
                    .member(MemberId(from as u16))
                    .unwrap()
                    .received;
                to.applied(now, MemberId(from as u16), received);
            }
            while nodes[from].poll_event().is_some() {}
        }
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(lost > 300 && nodes[0].counters().groups_retransmitted > 1_000);
    assert!(
        nodes[1].progress().applied(MemberId(0)) + 1_000 > sequence,
        "{:?}",
        nodes[1].progress()
    );
    assert_eq!(after - before, 0, "allocations in 20,000 turns");
}
