//! Memory is provided ahead of its first use, by a thread of its own.
//!
//! The kernel clears a huge page when it is first touched: 0.2 to 0.4 ms here, and some more if the host of a virtual machine
//! must find one first. A packet that adds the entry which touches it would wait for that. So a table says how far it has
//! come, and a thread of the process has the kernel provide what follows, one huge page at least half a page ahead. The
//! kernel alone writes: the contents of what is provided already stay as they are, and a page that the table reaches first
//! is cleared there, as without all this.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{Builder, Thread};

use super::HUGE_PAGE_BYTES;

/// Smaller ranges are touched so seldom for the first time that no thread looks after them.
pub(super) const AHEAD_FROM_BYTES: usize = 4 * HUGE_PAGE_BYTES;
/// Bits of the set of processors on which the thread may run: any.
const PROCESSORS_MAX: usize = 1_024;

/// How far a range is used and provided.
#[derive(Debug)]
pub(super) struct Edge {
    start: usize,
    bytes: usize,
    /// Up to where the range is to be provided, whole huge pages.
    wanted: AtomicUsize,
    /// The thread is about it, or the range is about to be given back: of the two only one goes on.
    is_busy: AtomicBool,
    is_gone: AtomicBool,
}

struct Helper {
    edges: Sender<Weak<Edge>>,
    thread: Thread,
}

/// The thread, once a range is large enough; `None` if the system gives none: then anyone who touches a page first waits for it.
static HELPER: OnceLock<Option<Helper>> = OnceLock::new();

impl Edge {
    /// Has the thread look after a mapped range that begins at a huge page.
    pub(super) fn new(start: usize, bytes: usize) -> Arc<Edge> {
        let edge = Arc::new(Edge {
            start,
            bytes,
            wanted: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        });
        if let Some(helper) = HELPER.get_or_init(spawn) {
            // The thread never ends, so it takes what it is sent.
            let _ = helper.edges.send(Arc::downgrade(&edge));
        }
        edge
    }

    /// The range is used so far, in bytes. One comparison mostly; once a huge page, a wake-up of the thread.
    #[inline]
    pub(super) fn reach(&self, bytes: usize) {
        let ahead = bytes.min(self.bytes) + HUGE_PAGE_BYTES / 2;
        let wanted = ahead.next_multiple_of(HUGE_PAGE_BYTES).min(self.bytes);
        if wanted > self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(wanted, Ordering::Release);
            if let Some(Some(helper)) = HELPER.get() {
                helper.thread.unpark();
            }
        }
    }

    /// The range is given back after this returns: the thread does not touch it any more. May wait for one huge page.
    pub(super) fn end(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        while self.is_busy.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Has the kernel provide a huge page at `at`.
    fn provide(&self, at: usize) {
        self.is_busy.store(true, Ordering::SeqCst);
        if !self.is_gone.load(Ordering::SeqCst) {
            let length = HUGE_PAGE_BYTES.min(self.bytes - at);
            // SAFETY: the range is mapped, since `end` waits while this is busy and anyone who unmaps it calls that first. The
            // advice changes no byte. An older kernel refuses it, with no effect.
            unsafe {
                let start = core::ptr::without_provenance_mut(self.start + at);
                libc::madvise(start, length, libc::MADV_POPULATE_WRITE);
            }
        }
        self.is_busy.store(false, Ordering::SeqCst);
    }
}

fn spawn() -> Option<Helper> {
    let (edges, come) = channel();
    let thread = Builder::new()
        .name("table-memory".into())
        .spawn(move || look_after(&come));
    let thread = thread.ok()?.thread().clone();
    Some(Helper { edges, thread })
}

/// The thread: sleeps until a table reaches further.
fn look_after(come: &Receiver<Weak<Edge>>) {
    leave_the_core();
    let mut known: Vec<(Weak<Edge>, usize)> = Vec::new();
    loop {
        known.extend(come.try_iter().map(|edge| (edge, 0)));
        known.retain_mut(|(edge, provided)| {
            let Some(edge) = edge.upgrade() else {
                return false;
            };
            while *provided < edge.wanted.load(Ordering::Acquire) {
                edge.provide(*provided);
                *provided += HUGE_PAGE_BYTES;
            }
            true
        });
        // A wake-up since then is not lost: this returns at once.
        std::thread::park();
    }
}

/// A thread inherits the core to which its maker is bound, a packet loop's: it may run on any.
fn leave_the_core() {
    let any = [u64::MAX; PROCESSORS_MAX / 64];
    // SAFETY: the set is as long as is said. What the process may not use, the kernel leaves out.
    unsafe { libc::sched_setaffinity(0, size_of_val(&any), any.as_ptr().cast()) };
}

#[cfg(test)]
mod tests {
    use super::super::Region;
    use super::*;

    /// Whether the kernel has provided a page at each huge page of a region.
    fn provided(region: &Region<u64>) -> Vec<bool> {
        let start = region.as_ptr() as usize;
        let pages = (0..size_of_val::<[u64]>(region)).step_by(HUGE_PAGE_BYTES);
        pages
            .map(|at| {
                let mut resident = 0u8;
                // SAFETY: the page is mapped as long as the region exists; one byte is written, for one page.
                let reported = unsafe {
                    let page = core::ptr::without_provenance_mut(start + at);
                    libc::mincore(page, 4096, &raw mut resident)
                };
                assert_eq!(reported, 0, "the page is mapped");
                resident & 1 != 0
            })
            .collect()
    }

    fn until_provided(region: &Region<u64>, huge_pages: usize) {
        for _ in 0..2_000 {
            if provided(region)[..huge_pages].iter().all(|&is| is) {
                return;
            }
            std::thread::park_timeout(core::time::Duration::from_millis(5));
        }
        panic!("{:?} after 10 s", provided(region));
    }

    #[test]
    fn what_follows_is_provided_before_it_is_used_and_nothing_is_changed() {
        const PAGE: usize = HUGE_PAGE_BYTES / size_of::<u64>();
        let mut region = Region::<u64>::new(16 * PAGE);
        region[0] = 7;
        region.reach(1);
        until_provided(&region, 1);
        region.reach(PAGE / 2 + 1);
        until_provided(&region, 2);
        region[2 * PAGE + 5] = 9;
        region.reach(3 * PAGE + PAGE / 2 + 1);
        until_provided(&region, 5);
        assert!(!provided(&region)[5..].contains(&true), "no more than that");
        assert_eq!((region[0], region[2 * PAGE + 5]), (7, 9));
        region.reach(usize::MAX);
        until_provided(&region, 16);
        assert_eq!(region.iter().sum::<u64>(), 16);
        // Another that is given back while the thread is about it.
        for _ in 0..8 {
            let region = Region::<u64>::new(8 * PAGE);
            region.reach(8 * PAGE);
        }
    }

    #[test]
    fn small_ranges_are_left_alone() {
        let region = Region::<u64>::new(AHEAD_FROM_BYTES / 8 - 1);
        assert!(region.edge.is_some(), "rounded up to whole huge pages");
        let region = Region::<u64>::new(AHEAD_FROM_BYTES / 8 - HUGE_PAGE_BYTES / 8);
        assert!(region.edge.is_none());
        region.reach(1 << 20);
    }
}
