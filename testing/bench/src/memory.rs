//! Memory for tables and packets on huge pages, prefetching, and what the process has in memory: the crate's `unsafe` for memory.

use std::ops::{Deref, DerefMut};

use crate::contract::Failure;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Marks types for which every pattern of bytes, zeros above all, is a value.
///
/// # Safety
/// All-zero bytes must be a value of the type, and it must not need `Drop`.
pub unsafe trait Zeroed: Copy {}

// SAFETY: integers and arrays of them are valid when zero, and are `Copy`.
unsafe impl Zeroed for u8 {}
// SAFETY: as above.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl<const N: usize> Zeroed for [u8; N] {}

/// A fixed slice of zeroed values, aligned to 2 MiB and advised onto huge pages, every page touched.
///
/// Costs its whole size at once, rounded up to 2 MiB. Panics if the system has no such memory.
pub struct HugeSlice<T: Zeroed> {
    mapping: *mut libc::c_void,
    mapping_bytes: usize,
    start: *mut T,
    len: usize,
}

// SAFETY: the mapping is owned and reached only through the slice's own borrows.
unsafe impl<T: Zeroed + Send> Send for HugeSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed + Sync> Sync for HugeSlice<T> {}

impl<T: Zeroed> HugeSlice<T> {
    /// `len` zeroed values on huge pages where the kernel has them.
    pub fn new(len: usize) -> Self {
        Self::with_advice(len, libc::MADV_HUGEPAGE)
    }

    /// The same on ordinary 4 KiB pages, to tell what huge pages bring.
    pub fn on_small_pages(len: usize) -> Self {
        Self::with_advice(len, libc::MADV_NOHUGEPAGE)
    }

    fn with_advice(len: usize, advice: libc::c_int) -> Self {
        let bytes = len
            .checked_mul(size_of::<T>())
            .expect("a size that fits")
            .max(1)
            .next_multiple_of(HUGE_PAGE_BYTES);
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a fresh private anonymous mapping touches no memory of others.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(
            mapping != libc::MAP_FAILED,
            "no {bytes} bytes of memory: {}",
            std::io::Error::last_os_error()
        );
        let shift = mapping.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `shift` < HUGE_PAGE_BYTES, so `bytes` bytes from there lie within the mapping; advice
        // changes no contents, and a kernel without huge pages refuses it harmlessly. The volatile
        // writes store the zeros that are there already, one a small page, to fault all pages in.
        let start = unsafe {
            let start = mapping.cast::<u8>().add(shift);
            libc::madvise(start.cast(), bytes, advice);
            for page in (0..bytes).step_by(4096) {
                start.add(page).write_volatile(0);
            }
            start
        };
        Self {
            mapping,
            mapping_bytes,
            start: start.cast(),
            len,
        }
    }
}

impl<T: Zeroed> Deref for HugeSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `start` points to `len` values, zeroed at first and only written as `T` since; 2 MiB alignment suits any `T`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T: Zeroed> DerefMut for HugeSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T: Zeroed> Drop for HugeSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no borrow outlives `self`.
        unsafe { libc::munmap(self.mapping, self.mapping_bytes) };
    }
}

/// Asks for the cache line of `place`, which will be read or written soon.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(place).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> Result<f64, Failure> {
    let absent = |error: String| Failure::Absent(format!("/proc/self/statm: {error}"));
    let text =
        std::fs::read_to_string("/proc/self/statm").map_err(|error| absent(error.to_string()))?;
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    Ok(pages.ok_or_else(|| absent(text.clone()))? * 4_096.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_zeroed_aligned_and_writable() {
        for mut slice in [
            HugeSlice::<u32>::new(1_000_000),
            HugeSlice::on_small_pages(1_000_000),
        ] {
            assert_eq!(slice.len(), 1_000_000);
            assert_eq!(slice.as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
            assert!(slice.iter().all(|word| *word == 0));
            slice[999_999] = 7;
            assert_eq!(slice.iter().sum::<u32>(), 7);
        }
    }
}
