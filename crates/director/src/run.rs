//! A director on a thread of its own: turns while there are packets, and sleeps on the ports while there are none.

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use asterism_io::clock::MonotonicClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::ARMS_MAX;
use crate::director::Director;

/// Turns without a packet before the loop sleeps.
const IDLE_TURNS: u32 = 64;
/// The longest sleep: how long a command waits at most.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Turns a director until `stop` is set. Takes a core while packets come; else it wakes once a millisecond.
pub fn run(director: &mut Director, clock: MonotonicClock, stop: &AtomicBool) {
    let mut idle = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if director.turn(now) > 0 {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < IDLE_TURNS {
            continue;
        }
        director.flush();
        let until_due = director.next_due().since(clock.now()).min(SLEEP_MAX);
        if until_due.is_zero() {
            continue;
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: until_due.subsec_nanos().into(),
        };
        let mut descriptors: [Option<BorrowedFd<'_>>; ARMS_MAX] = [None; ARMS_MAX];
        director.wait_descriptors(&mut descriptors);
        let mut waited: Vec<PollFd<'_>> = descriptors
            .iter()
            .flatten()
            .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
            .collect();
        // Interrupted or failed, the loop turns and looks again.
        let _ = poll(&mut waited, Some(&timeout));
    }
}
