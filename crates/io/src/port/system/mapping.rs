//! Memory that the kernel or another process writes too. Nothing here makes a reference to its bytes: words are read and
//! written as atomics, and packets are copied in and out.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A mapping of a descriptor, shared with anyone else who has it, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access is by atomics or by copying.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes (not 0) from `offset`, all pages present.
    pub(crate) fn new(file: impl AsFd, offset: u64, length: usize) -> io::Result<Mapping> {
        // SAFETY: a mapping at an address of the kernel's choice touches no memory in use.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length.max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_fd().as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(raw.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping {
            base,
            length: length.max(1),
        })
    }

    /// Where it is, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as usize as u64
    }

    /// Whether `bytes` bytes from `at` are inside.
    #[inline]
    pub(crate) fn holds(&self, at: usize, bytes: usize) -> bool {
        at <= self.length && bytes <= self.length - at
    }

    /// The word at `at`. Callers give offsets that are multiples of its size and inside: others are a fault of the program, and
    /// give the mapping's first word.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        let fits = self.holds(at, 4) && at.is_multiple_of(4);
        debug_assert!(fits, "a word at {at} of {}", self.length);
        let at = if fits { at } else { 0 };
        // SAFETY: inside the mapping (a page at least), aligned, always initialised, and shared by atomics only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The double word at `at`, as [`Mapping::word`].
    #[inline]
    pub(crate) fn double_word(&self, at: usize) -> &AtomicU64 {
        let fits = self.holds(at, 8) && at.is_multiple_of(8);
        debug_assert!(fits, "a double word at {at} of {}", self.length);
        let at = if fits { at } else { 0 };
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Copies from `at` into `into`; false, and nothing is copied, when it is not inside. Bytes that the other side writes
    /// meanwhile come out old or new.
    #[inline]
    pub(crate) fn copy_out(&self, at: usize, into: &mut [u8]) -> bool {
        let fits = self.holds(at, into.len());
        if fits {
            // SAFETY: the source is inside the mapping; the target is a slice of our own, which no mapping overlaps.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.base.as_ptr().add(at),
                    into.as_mut_ptr(),
                    into.len(),
                );
            }
        }
        fits
    }

    /// Copies `from` to `at`; false, and nothing is copied, when that is not inside.
    #[inline]
    pub(crate) fn copy_in(&self, at: usize, from: &[u8]) -> bool {
        let fits = self.holds(at, from.len());
        if fits {
            // SAFETY: the target is inside the mapping, of which no reference exists; the source is a slice of our own.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.as_ptr(),
                    self.base.as_ptr().add(at),
                    from.len(),
                );
            }
        }
        fits
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
