//! Counts heap allocations of marked threads while armed; otherwise the system's allocator.
//!
//! A packet-path thread marks itself once with [`mark_this_thread`]; [`counted`] arms the counters for
//! a piece of work. Unmarked threads (generators, reporters) never count. An unarmed allocation costs
//! one relaxed load more than the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ARMED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// What marked threads took from the heap while armed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes asked for by them.
    pub bytes: u64,
}

/// Marks or unmarks the calling thread as one whose allocations count.
pub fn mark_this_thread(marked: bool) {
    MARKED.set(marked);
}

/// Runs `work` with the counters armed and tells what marked threads took meanwhile. Not reentrant: one at a time.
pub fn counted<R>(work: impl FnOnce() -> R) -> (R, Taken) {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    BYTES.store(0, Ordering::SeqCst);
    ARMED.store(true, Ordering::SeqCst);
    let result = work();
    ARMED.store(false, Ordering::SeqCst);
    (
        result,
        Taken {
            allocations: ALLOCATIONS.load(Ordering::SeqCst),
            bytes: BYTES.load(Ordering::SeqCst),
        },
    )
}

struct Counting;

impl Counting {
    #[inline]
    fn note(bytes: usize) {
        // A thread that is being torn down has no marks any more: `try_with` says so instead of panicking.
        if ARMED.load(Ordering::Relaxed) && MARKED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::note(bytes);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(place, layout, bytes) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, because arming is for the whole process.
    #[test]
    fn only_marked_threads_count_and_only_while_armed() {
        mark_this_thread(true);
        drop(std::hint::black_box(vec![0u8; 100]));
        let (_, taken) = counted(|| {
            let mut list = std::hint::black_box(Vec::<u64>::with_capacity(4));
            list.extend(0..5);
            std::hint::black_box(list);
        });
        assert_eq!(taken.allocations, 2, "one to make, one to grow");
        assert!(taken.bytes >= 4 * 8 + 5 * 8);

        mark_this_thread(false);
        let (_, taken) = counted(|| drop(std::hint::black_box(Box::new([1u8; 64]))));
        assert_eq!(taken, Taken::default());
    }
}
