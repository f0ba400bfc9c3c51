//! Memory for tables: reserved once, touched as it fills, on huge pages.
//!
//! A table never allocates on the packet's path: its whole range is reserved when it is built, costs
//! nothing until touched, and grows in place. This is the crate's one place that talks to the kernel.

mod ahead;

use core::fmt::Debug;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Arc;

use ahead::{AHEAD_FROM_BYTES, Edge};

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// Every bit pattern of zeros must be a valid value of the type, and it must need no drop.
pub unsafe trait Zeroed: Copy {}

// SAFETY: zero is a valid integer.
unsafe impl Zeroed for u8 {}
// SAFETY: zero is a valid integer.
unsafe impl Zeroed for u16 {}
// SAFETY: zero is a valid integer.
unsafe impl Zeroed for u32 {}
// SAFETY: zero is a valid integer.
unsafe impl Zeroed for u64 {}
// SAFETY: an array of zeroes is a valid array of such types.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

// SAFETY: zero is `false`.
unsafe impl Zeroed for bool {}

/// Declares a struct of which all fields are [`Zeroed`], so that it is itself.
#[macro_export]
macro_rules! zeroed {
    (
        $(#[$about:meta])*
        $visible:vis struct $name:ident $(<$parameter:ident: $bound:path>)? {
            $($(#[$about_field:meta])* $visible_field:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        $visible struct $name $(<$parameter: $bound>)? {
            $($(#[$about_field])* $visible_field $field: $type,)*
        }
        // SAFETY: zero is a valid value of every field, which is all there is but padding.
        #[allow(trivial_bounds, reason = "fields that are no parameter's")]
        unsafe impl $(<$parameter: $bound>)? $crate::region::Zeroed for $name $(<$parameter>)?
        where
            $($type: $crate::region::Zeroed,)*
        {
        }
    };
}
/// A value of a type of which zero may be none: absent where memory is zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slot<T: Copy> {
    value: MaybeUninit<T>,
    is_set: bool,
}

// SAFETY: zero is a slot that is not set, whose value is not read.
unsafe impl<T: Copy> Zeroed for Slot<T> {}

impl<T: Copy> Slot<T> {
    /// No value.
    pub const NONE: Self = Self {
        value: MaybeUninit::uninit(),
        is_set: false,
    };

    /// A value.
    #[inline(always)]
    pub fn of(value: T) -> Self {
        Self {
            value: MaybeUninit::new(value),
            is_set: true,
        }
    }

    /// The value, if it is set.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: `of` is all that sets a slot, with a value.
        self.is_set.then(|| unsafe { self.value.assume_init_ref() })
    }

    /// Whether it holds this value.
    #[inline(always)]
    pub fn is(&self, value: &T) -> bool
    where
        T: PartialEq,
    {
        self.get().is_some_and(|held| held == value)
    }
}

impl<T: Copy + Debug> Debug for Slot<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(formatter)
    }
}

/// A fixed-length array of zeroed memory, reserved from the kernel rather than the heap.
#[derive(Debug)]
pub struct Region<T: Zeroed> {
    start: NonNull<T>,
    length: usize,
    mapped_bytes: usize,
    /// Of the heap instead, where it is small and memory is used [sparingly](set_sparing).
    heap: Option<Layout>,
    /// How far it is used, if it is large.
    edge: Option<Arc<Edge>>,
    marker: PhantomData<T>,
}

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Ranges of at least this many bytes are aligned to, and advised to use, huge pages, even if they fill only a part of one: small
/// pages lie wherever the kernel has some, and where those of a table that just fits the cache share its sets, it does not fit.
const HUGE_FROM_BYTES: usize = HUGE_PAGE_BYTES / 8;

/// Whether memory is taken late and in small pages.
static SPARING: AtomicBool = AtomicBool::new(false);

/// Ranges of at most so many bytes come from the heap while memory is used sparingly: a mapping of their own would cost more than
/// they hold.
const HEAP_BYTES_MAX: usize = 8 << 10;
/// A cache line's, as those of pages have it.
const HEAP_ALIGNMENT: usize = 64;

/// From now on new ranges of this process lie on small pages or, if they are small themselves, in the heap, and none is touched
/// ahead, or again on huge ones; tells how it was before. For a program that builds and drops
/// thousands of clusters of nearly empty tables, like the simulator, where the kernel's zeroing of pages that hold next to nothing
/// would cost a third of the time. Nothing but time depends on it.
pub fn set_sparing(on: bool) -> bool {
    SPARING.swap(on, Ordering::Relaxed)
}

/// Whether memory is used [sparingly](set_sparing).
pub fn is_sparing() -> bool {
    SPARING.load(Ordering::Relaxed)
}

impl<T: Zeroed> Region<T> {
    /// Reserves `length` zeroed items.
    ///
    /// # Panics
    /// When the kernel refuses the reservation; that happens at start-up, never on a packet's path.
    pub fn new(length: usize) -> Self {
        Self::map(length, true)
    }

    /// The same without a look ahead at what is used next: for what is made while packets pass, which takes nothing from the heap.
    pub fn made_late(length: usize) -> Self {
        Self::map(length, false)
    }

    fn map(length: usize, ahead: bool) -> Self {
        let bytes = length
            .checked_mul(size_of::<T>())
            .expect("a table fits the address space")
            .max(1);
        if bytes <= HEAP_BYTES_MAX && is_sparing() {
            return Self::of_heap(length, bytes);
        }
        let huge = bytes >= HUGE_FROM_BYTES && !is_sparing();
        let mapped_bytes = if huge {
            bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES
        } else {
            bytes
        };
        // SAFETY: an anonymous private mapping at an address of the kernel's choice aliases nothing.
        let raw = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(
            raw != libc::MAP_FAILED,
            "the kernel refused to reserve {mapped_bytes} bytes for a table"
        );
        let mut start = raw.cast::<u8>();
        let mut kept = mapped_bytes;
        if huge {
            let head = start.align_offset(HUGE_PAGE_BYTES);
            let tail = HUGE_PAGE_BYTES - head;
            kept -= HUGE_PAGE_BYTES;
            // SAFETY: both ranges lie inside the mapping just made and are not used by anything;
            // the advice changes only how the kernel backs the rest.
            unsafe {
                if head > 0 {
                    libc::munmap(start.cast(), head);
                }
                start = start.add(head);
                if tail > 0 {
                    libc::munmap(start.add(kept).cast(), tail);
                }
                libc::madvise(start.cast(), kept, libc::MADV_HUGEPAGE);
            }
        }
        Self {
            start: NonNull::new(start.cast()).expect("a mapping is not at address zero"),
            length,
            mapped_bytes: kept,
            heap: None,
            edge: (ahead && huge && kept >= AHEAD_FROM_BYTES)
                .then(|| Edge::new(start as usize, kept)),
            marker: PhantomData,
        }
    }

    fn of_heap(length: usize, bytes: usize) -> Self {
        let alignment = HEAP_ALIGNMENT.max(align_of::<T>());
        let layout = Layout::from_size_align(bytes, alignment).expect("a small range has a layout");
        // SAFETY: the layout has at least a byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self {
            start: start.unwrap_or_else(|| handle_alloc_error(layout)).cast(),
            length,
            mapped_bytes: bytes,
            heap: Some(layout),
            edge: None,
            marker: PhantomData,
        }
    }

    /// Touches the first `items`, so that no later access pays for the kernel's zeroing (about 1 µs a
    /// 4 KiB page). Does nothing where memory is used [sparingly](set_sparing).
    pub fn touch(&mut self, items: usize) {
        if is_sparing() {
            return;
        }
        let bytes = (items.min(self.length) * size_of::<T>()).min(self.mapped_bytes);
        let start = self.start.as_ptr().cast::<u8>();
        for at in (0..bytes).step_by(4096) {
            // SAFETY: `at` is inside the mapping; writing back the byte that is there changes nothing.
            unsafe { start.add(at).write_volatile(start.add(at).read_volatile()) };
        }
    }

    /// The first `items` are used, or soon will be: what follows them is provided ahead, by another thread, so that nobody
    /// waits for the kernel's zeroing when they grow. Of a range below 8 MiB nothing is.
    #[inline]
    pub fn reach(&self, items: usize) {
        if let Some(edge) = &self.edge {
            edge.reach(items.saturating_mul(size_of::<T>()));
        }
    }

    /// The item at `at`, without asking whether there is one: for probes, three instructions less.
    ///
    /// # Safety
    /// `at` is below the region's length.
    #[inline(always)]
    pub unsafe fn item(&self, at: u32) -> &T {
        debug_assert!((at as usize) < self.length);
        // SAFETY: in range, by the caller; the item is initialised, as in `deref`.
        unsafe { &*self.start.as_ptr().add(at as usize) }
    }

    /// Asks the processor to bring the cache line of item `at` closer. Out of range does nothing.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if at < self.length {
            // SAFETY: in range; a prefetch reads nothing that the program can see.
            prefetch(unsafe { self.start.as_ptr().add(at) });
        }
    }
}

/// Asks the processor to bring the cache line at `pointer` closer. Reads nothing, whatever the pointer is.
#[inline(always)]
pub fn prefetch<T>(pointer: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching any address is allowed; it never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

impl<T: Zeroed> Deref for Region<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `length` zero-initialised items, valid by `Zeroed`, and lives as
        // long as `self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroed> Drop for Region<T> {
    fn drop(&mut self) {
        if let Some(edge) = &self.edge {
            edge.end();
        }
        if let Some(layout) = self.heap {
            // SAFETY: `of_heap` got it by this layout, and nothing borrows it any more.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
            return;
        }
        // SAFETY: the range was mapped by `map` and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

// SAFETY: a region owns its memory alone, as a boxed slice would.
unsafe impl<T: Zeroed + Send> Send for Region<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    zeroed! {
        struct Named<T: Copy> {
            name: Slot<T>,
            count: u32,
        }
    }

    #[test]
    fn slots_are_empty_until_they_are_set() {
        // Zero is no character of this type's.
        let mut region = Region::<Named<core::num::NonZeroU32>>::new(3);
        let one = core::num::NonZeroU32::MIN;
        assert!(region.iter().all(|named| named.name.get().is_none()));
        region[1].name = Slot::of(one);
        region[1].count = 4;
        assert!(region[1].name.is(&one) && !region[0].name.is(&one));
        assert_eq!((region[1].count, region[2].count), (4, 0));
        assert_eq!(format!("{:?}", region[0].name), "None");
    }

    #[test]
    fn small_ranges_of_the_heap_are_as_those_of_pages() {
        for length in [0, 1, 7, HEAP_BYTES_MAX / 8] {
            let mut region = Region::<u64>::of_heap(length, (length * 8).max(1));
            assert_eq!(region.as_ptr() as usize % HEAP_ALIGNMENT, 0);
            assert!(region.len() == length && region.iter().all(|&item| item == 0));
            region.iter_mut().for_each(|item| *item = 7);
            assert_eq!(region.iter().sum::<u64>(), 7 * length as u64);
        }
    }

    #[test]
    fn is_zeroed_writable_and_aligned() {
        for length in [1, 1000, 1 << 15, 1 << 19, (1 << 20) + 3] {
            let mut region = Region::<u64>::new(length);
            assert_eq!(region.len(), length);
            region.touch(length);
            region[length - 1] = 7;
            assert_eq!(region.iter().sum::<u64>(), 7);
            if length * 8 >= HUGE_FROM_BYTES {
                assert_eq!(region.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            }
        }
    }
}
