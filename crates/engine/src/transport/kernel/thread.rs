//! What a thread asks of the kernel: to be woken, to run in one place, how long it ran.

use core::mem::{MaybeUninit, size_of, zeroed};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Socket, checked};

/// A descriptor that wakes anyone who polls it.
#[derive(Debug)]
pub(in crate::transport) struct EventDescriptor(OwnedFd);

impl EventDescriptor {
    pub(in crate::transport) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the kernel just gave this descriptor to nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(in crate::transport) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are given. That it fails when 2^64 - 2 rings wait is of no matter.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(in crate::transport) fn quiet(&self) {
        let mut count = 0u64;
        // SAFETY: room for eight bytes is given. It fails when nobody rang.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transport) struct Ready {
    pub(in crate::transport) has_error: bool,
    pub(in crate::transport) is_rung: bool,
}

/// Waits until a socket has something (or room, if `wants_room`), the event rings or the time is over. Errors
/// of the first socket are reported.
pub(in crate::transport) fn wait(
    own: &Socket,
    group: Option<&Socket>,
    event: &EventDescriptor,
    wants_room: bool,
    timeout: Duration,
) -> Ready {
    let entry = |fd: RawFd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let room = if wants_room { libc::POLLOUT } else { 0 };
    let mut entries = [
        entry(own.as_raw_fd(), libc::POLLIN | room),
        entry(event.0.as_raw_fd(), libc::POLLIN),
        // A negative descriptor is passed over.
        entry(group.map_or(-1, Socket::as_raw_fd), libc::POLLIN),
    ];
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the entries and the time live until the call returns, and no mask of signals is given. An
    // interrupted wait is a short one.
    unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            &raw const timeout,
            core::ptr::null(),
        )
    };
    Ready {
        has_error: entries[0].revents & libc::POLLERR != 0,
        is_rung: entries[1].revents & libc::POLLIN != 0,
    }
}

/// Lets timers of this thread end when they are due, not up to 50 us later.
pub(in crate::transport) fn sharpen_timers() {
    // SAFETY: takes a number; it concerns this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}

/// Has this thread run on one processor.
pub(in crate::transport) fn pin(processor: usize) -> io::Result<()> {
    // SAFETY: all zeroes is the empty set; the set is one of the kernel's size.
    let done = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        if processor >= 8 * size_of::<libc::cpu_set_t>() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    checked(done).map(drop)
}

/// Time that this thread has spent on a processor.
pub(in crate::transport) fn thread_time() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: room for a time is given, which all zeroes is one of.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
