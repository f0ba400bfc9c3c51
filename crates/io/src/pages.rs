//! Anonymous memory mappings: the one place where the engine asks the kernel for pages.
//!
//! Frame pools and rings live in these. A mapping of 2 MiB or more is aligned to 2 MiB and asks for huge pages with `madvise`
//! (the platform gives them only when asked), because a table or pool that outgrows the cache pays for each missed page-table
//! entry.

use std::io;
use std::ptr::NonNull;

/// Size and alignment of a huge page on x86-64, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Size of a small page, in bytes. Mappings are whole multiples of it.
pub const PAGE_BYTES: usize = 4096;
/// The largest mapping that is granted, in bytes (64 TiB: more than the address space leaves room for).
pub const MAPPING_BYTES_MAX: usize = 1 << 46;

/// When the kernel finds the memory behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A page is found when it is first touched (about 1.1 µs each).
    OnDemand,
    /// Every page is found before the call returns, so that the packet path never waits for one.
    Populated,
    /// Address space alone, not counted against the machine's memory; pages are found when first touched.
    Reserved,
}

/// Zeroed memory from the kernel, unmapped on drop.
///
/// A mapping below 2 MiB is aligned to 4 KiB and rounded up to it; a larger one to 2 MiB.
/// The bytes are always initialised (the kernel hands out zeroes).
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    mapped: usize,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access through references follows the
// borrow of `Pages`, and access through `as_ptr` is the caller's obligation.
unsafe impl Send for Pages {}
// SAFETY: as above: `&Pages` gives only shared slices.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `bytes` bytes (`len` is exactly `bytes`; zero is treated as one page of mapping).
    ///
    /// Costs system calls, and with [`Backing::Populated`] about 0.3 ms per MiB. Fails with the
    /// kernel's error when there is no memory or address space, or when `bytes` exceeds [`MAPPING_BYTES_MAX`].
    pub fn new(bytes: usize, backing: Backing) -> io::Result<Pages> {
        if bytes > MAPPING_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "a mapping of {bytes} bytes was asked for; the largest is {MAPPING_BYTES_MAX}"
                ),
            ));
        }
        let alignment = if bytes >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            PAGE_BYTES
        };
        let mapped = bytes.max(1).next_multiple_of(alignment);
        let base = map_aligned(mapped, alignment, backing)?;
        Ok(Pages {
            base,
            mapped,
            length: bytes,
        })
    }

    /// The number of usable bytes, as asked for.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no byte is usable.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first byte. Valid for reads and writes of `len` bytes while this value lives; a caller that
    /// writes through it answers for there being no reference to the same bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// All bytes, to read.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// All bytes, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    /// Hints the processor to load the cache line at `offset`. Any offset is safe; one beyond the end is of no use.
    #[inline(always)]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing that the program can see and faults on no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().wrapping_add(offset).cast());
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unmap(self.base, self.mapped);
    }
}

#[cfg(not(miri))]
fn map_aligned(mapped: usize, alignment: usize, backing: Backing) -> io::Result<NonNull<u8>> {
    // The kernel aligns to small pages only, so one alignment more is mapped and the ends are given back.
    let slack = if alignment > PAGE_BYTES { alignment } else { 0 };
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if backing == Backing::Reserved {
        flags |= libc::MAP_NORESERVE;
    }
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory in use.
    let raw = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped + slack,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let raw = raw.cast::<u8>();
    let head = raw.align_offset(alignment.max(1));
    debug_assert!(head <= slack);
    // SAFETY: `head <= slack`, so `head + mapped` stays inside the mapping made above.
    let base = unsafe { raw.add(head) };
    let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    if head > 0 {
        unmap(NonNull::new(raw).unwrap_or(base), head);
    }
    if slack > head {
        // SAFETY: the tail starts inside the mapping, `mapped` bytes after `base`.
        let tail = unsafe { base.add(mapped) };
        unmap(tail, slack - head);
    }
    if alignment >= HUGE_PAGE_BYTES {
        // A kernel without huge pages refuses this; small pages are correct, only slower.
        // SAFETY: the range is exactly the mapping owned here.
        unsafe { libc::madvise(base.as_ptr().cast(), mapped, libc::MADV_HUGEPAGE) };
    }
    if backing == Backing::Populated && !asterism_state::memory::is_sparing() {
        populate(base, mapped);
    }
    Ok(base)
}

#[cfg(not(miri))]
fn populate(base: NonNull<u8>, mapped: usize) {
    // SAFETY: the range is exactly the mapping owned by the caller.
    let refused =
        unsafe { libc::madvise(base.as_ptr().cast(), mapped, libc::MADV_POPULATE_WRITE) } != 0;
    if refused {
        // Kernels before 5.14 do not know the call: touch each page instead.
        for offset in (0..mapped).step_by(PAGE_BYTES) {
            // SAFETY: `offset < mapped`, and nobody else has the mapping yet.
            unsafe { base.as_ptr().add(offset).write_volatile(0) };
        }
    }
}

#[cfg(not(miri))]
fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: called only with page-aligned ranges of mappings made here, each once.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
}

// Miri knows no `madvise`: under it the allocator stands in for the kernel.
#[cfg(miri)]
fn map_aligned(mapped: usize, _alignment: usize, _backing: Backing) -> io::Result<NonNull<u8>> {
    let layout =
        std::alloc::Layout::from_size_align(mapped, PAGE_BYTES).map_err(io::Error::other)?;
    // SAFETY: `mapped` is at least a page, so the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(miri)]
fn unmap(base: NonNull<u8>, bytes: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES) {
        // SAFETY: allocated above with the same layout.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_mappings_are_zeroed_and_writable() {
        let mut pages = Pages::new(10_000, Backing::OnDemand).unwrap();
        assert_eq!(pages.len(), 10_000);
        assert!(pages.bytes().iter().all(|&byte| byte == 0));
        pages.bytes_mut()[9_999] = 7;
        assert_eq!(pages.bytes()[9_999], 7);
        assert_eq!(pages.as_ptr() as usize % PAGE_BYTES, 0);
        pages.prefetch(0);
        pages.prefetch(usize::MAX);
    }

    #[test]
    #[cfg(not(miri))]
    fn large_mappings_are_aligned_to_huge_pages() {
        for backing in [Backing::OnDemand, Backing::Populated, Backing::Reserved] {
            let mut pages = Pages::new(HUGE_PAGE_BYTES + 5, backing).unwrap();
            assert_eq!(pages.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            let last = pages.len() - 1;
            pages.bytes_mut()[last] = 1;
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn reserving_takes_address_space_only() {
        let pages = Pages::new(1 << 40, Backing::Reserved).unwrap();
        assert_eq!(pages.bytes()[1 << 39], 0);
    }

    #[test]
    fn refuses_the_absurd_and_accepts_nothing() {
        assert!(Pages::new(usize::MAX, Backing::Reserved).is_err());
        let empty = Pages::new(0, Backing::OnDemand).unwrap();
        assert!(empty.is_empty() && empty.bytes().is_empty());
    }
}
