//! An allocator that counts a thread's heap allocations, so that a test can show that a function allocates nothing for a
//! packet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread. [`contract!`](crate::contract) makes it that of the test program.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

std::thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread took memory so far, or had some grown; always 0 in a program with another allocator.
#[must_use]
pub fn allocations() -> u64 {
    TAKEN.get()
}

fn note() {
    // A thread that is being torn down has no count any more: `try_with` says so instead of panicking.
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
}

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract; counting touches no heap.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(place, layout, bytes) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}
