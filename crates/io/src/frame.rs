//! Packet buffers: a pool of fixed-stride buffers, the small handle that names one, and a burst of handles.
//!
//! A pool belongs to one instance, so nothing here is shared between threads. Every function that the packet path calls is
//! O(1), allocates nothing and cannot panic. Read [`FramePool`] first.

mod burst;

pub use burst::{BURST, Burst, Drain};

use crate::pages::{Backing, Pages};
use std::io;

/// Bytes left free before a received packet, so that headers can be put in front without moving it. The first
/// [`PORT_BYTES`] of them are the ports' own.
pub const HEADROOM_BYTES: u16 = 128;
/// Bytes at the start of each buffer that never are part of a packet: there a port notes for the sending port what it knows
/// of the packet (see [`Offload`](crate::port::Offload)).
pub const PORT_BYTES: u16 = 16;
/// How many cache lines the packets of neighbouring buffers are staggered over.
const STAGGERS: u16 = 4;
/// Distance between buffers unless asked otherwise: a packet of 1,514 bytes with tags and headroom fits.
pub const STRIDE_BYTES: usize = 2048;
/// Distance between buffers for jumbo frames of 9,000 bytes and more.
pub const STRIDE_BYTES_JUMBO: usize = 16 * 1024;
/// The largest distance between buffers: with it a frame holds the longest packet that an interface with offloads hands over,
/// 65,535 bytes of IP behind an Ethernet header with two tags.
pub const STRIDE_BYTES_MAX: usize = 68 * 1024;
/// The most buffers in a pool (2 GiB of the default stride).
pub const POOL_FRAMES_MAX: usize = 1 << 20;

/// A packet held in a [`FramePool`]: a buffer's index and the part of it that is the packet.
///
/// A handle can be moved but not copied, so a buffer has one holder. It must end in [`FramePool::release`] or in
/// a port's `send`; dropping it loses the buffer until the pool is dropped ([`FramePool::in_use`]
/// shows it). There is no `Drop` check: it would cost the packet path a test per move.
#[must_use = "a frame that is dropped is a buffer lost: release it to its pool"]
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Frame {
    buffer: u32,
    length: u32,
    start: u16,
    port: u16,
    /// The tag in the lower 24 bits, flags above. Together, so that there is no hole: without holes a handle moves as one
    /// 16-byte word.
    tag_and_flags: u32,
}

/// The frame carries less than was on the wire: a capture cut it at its snap length.
const FLAG_TRUNCATED: u32 = 1 << 24;
/// The buffer's first [`PORT_BYTES`] say what is left for the sending port to do.
const FLAG_OFFLOADED: u32 = 1 << 25;
/// The bits of the tag: enough for one more than [`POOL_FRAMES_MAX`].
const TAG_MASK: u32 = (1 << 24) - 1;
/// The port of a frame that no port received.
pub const NO_PORT: u16 = u16::MAX;

impl Frame {
    /// No buffer: what slots without a frame hold.
    pub(crate) const EMPTY: Frame = Frame {
        buffer: u32::MAX,
        length: 0,
        start: 0,
        port: NO_PORT,
        tag_and_flags: 0,
    };

    /// The same handle again. Only for moving one out of a slot whose content nobody looks at any more: it spares
    /// writing a placeholder there.
    #[inline(always)]
    pub fn alias(&self) -> Frame {
        Frame { ..*self }
    }

    /// The packet's length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The buffer's index in its pool, below [`FramePool::count`]: the index for tables kept beside the pool.
    #[inline]
    pub fn buffer(&self) -> usize {
        self.buffer as usize
    }

    /// The number of the port that received it, [`NO_PORT`] if none did.
    #[inline]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Notes the port that received it.
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Whether bytes that were on the wire are missing at the end (a capture's snap length).
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.tag_and_flags & FLAG_TRUNCATED != 0
    }

    /// Notes that bytes that were on the wire are missing at the end.
    #[inline]
    pub fn set_truncated(&mut self) {
        self.tag_and_flags |= FLAG_TRUNCATED;
    }

    /// Whether the packet is not ready for a plain medium: its checksum is to be completed, or it is to be cut into segments.
    #[inline]
    pub(crate) fn is_offloaded(&self) -> bool {
        self.tag_and_flags & FLAG_OFFLOADED != 0
    }

    /// Notes whether the buffer's first bytes say what is left to do.
    #[inline]
    pub(crate) fn set_offloaded(&mut self, offloaded: bool) {
        self.tag_and_flags &= !FLAG_OFFLOADED;
        if offloaded {
            self.tag_and_flags |= FLAG_OFFLOADED;
        }
    }

    /// Where the packet begins in its buffer.
    #[inline]
    pub(crate) fn start(&self) -> u16 {
        self.start
    }

    /// A number of the receiving port's own, below 2^24; 0 after allocation.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag_and_flags & TAG_MASK
    }

    #[inline]
    pub(crate) fn set_tag(&mut self, tag: u32) {
        debug_assert!(tag <= TAG_MASK, "a tag has 24 bits");
        self.tag_and_flags = self.tag_and_flags & !TAG_MASK | tag & TAG_MASK;
    }
}

/// A fixed number of equal buffers in one mapping, and the list of those free.
///
/// The last buffer released is the first given out again, because it is still in the cache.
/// A frame given to a pool that it does not come from is a fault of the program: memory stays safe, contents do not.
#[derive(Debug)]
pub struct FramePool {
    pages: Pages,
    stride: usize,
    count: usize,
    free: Vec<u32>,
    exhausted: u64,
}

impl FramePool {
    /// A pool of `count` buffers of [`STRIDE_BYTES`], all pages present. Fails as [`FramePool::with_stride`].
    pub fn new(count: usize) -> io::Result<FramePool> {
        FramePool::with_stride(count, STRIDE_BYTES)
    }

    /// A pool of `count` buffers of `stride` bytes. The stride is a multiple of 64 from 512 to [`STRIDE_BYTES_MAX`],
    /// the count from 1 to [`POOL_FRAMES_MAX`]; otherwise, or without memory, an error that says so.
    pub fn with_stride(count: usize, stride: usize) -> io::Result<FramePool> {
        if !(512..=STRIDE_BYTES_MAX).contains(&stride) || !stride.is_multiple_of(64) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a frame stride of {stride} bytes: it must be a multiple of 64 from 512 to {STRIDE_BYTES_MAX}"
                ),
            ));
        }
        if count == 0 || count > POOL_FRAMES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a frame pool of {count} buffers: it must have from 1 to {POOL_FRAMES_MAX}"
                ),
            ));
        }
        let pages = Pages::new(count * stride, Backing::Populated)?;
        let free = (0..count as u32).rev().collect();
        Ok(FramePool {
            pages,
            stride,
            count,
            free,
            exhausted: 0,
        })
    }

    /// An empty packet with the usual headroom, or `None` (counted) when every buffer is in use.
    #[inline]
    pub fn allocate(&mut self) -> Option<Frame> {
        match self.free.pop() {
            Some(buffer) => Some(Frame {
                buffer,
                length: 0,
                start: first_byte(buffer),
                port: NO_PORT,
                tag_and_flags: 0,
            }),
            None => {
                self.exhausted += 1;
                None
            }
        }
    }

    /// A packet with a copy of `bytes`; `None` when every buffer is in use or `bytes` exceeds [`FramePool::packet_bytes_max`].
    #[inline]
    pub fn allocate_copy(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.packet_bytes_max() {
            return None;
        }
        let mut frame = self.allocate()?;
        frame.length = bytes.len() as u32;
        self.bytes_mut(&mut frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// A second packet with the same bytes, port and flags; `None` when every buffer is in use.
    pub fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.allocate()?;
        self.copy(frame, &mut copy);
        Some(copy)
    }

    /// Has the same bytes, port and flags in a frame as in another one.
    pub fn copy(&mut self, frame: &Frame, copy: &mut Frame) {
        (copy.start, copy.length, copy.port) = (frame.start, frame.length, frame.port);
        copy.tag_and_flags = frame.tag_and_flags & !TAG_MASK;
        let notes = *self.port_bytes(frame);
        *self.port_bytes_mut(copy) = notes;
        let (from, to) = (self.offset(frame), self.offset(copy));
        if let Some(end) = from
            .checked_add(frame.len())
            .filter(|&end| end <= self.pages.len())
        {
            self.pages.bytes_mut().copy_within(from..end, to);
        }
    }

    /// Appends a part of one packet to another; `false`, and nothing changes, when it is not inside the one or does not fit the
    /// other.
    pub(crate) fn copy_part(
        &mut self,
        from: &Frame,
        part: core::ops::Range<usize>,
        to: &mut Frame,
    ) -> bool {
        let room = self.stride.saturating_sub(to.start as usize + to.len());
        let (source, target) = (self.offset(from), self.offset(to) + to.len());
        let fits = part.start <= part.end
            && part.end <= from.len()
            && part.len() <= room
            && target + part.len() <= self.pages.len()
            && source + part.end <= self.pages.len();
        if fits {
            to.length += part.len() as u32;
            let part = source + part.start..source + part.end;
            self.pages.bytes_mut().copy_within(part, target);
        }
        fits
    }

    /// Gives a buffer back.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        debug_assert!(
            (frame.buffer as usize) < self.count,
            "a frame of another pool"
        );
        debug_assert!(
            self.free.len() < self.count,
            "more frames released than the pool has"
        );
        // The list was made with room for every buffer, so this never allocates.
        self.free.push(frame.buffer);
    }

    /// Gives every frame of a burst back.
    #[inline]
    pub fn release_all(&mut self, burst: &mut Burst) {
        debug_assert!(
            self.free.len() + burst.len() <= self.count,
            "more frames released than the pool has"
        );
        // One check for room instead of one a frame; there is room for every buffer.
        self.free
            .extend(burst.as_slice().iter().map(|frame| frame.buffer));
        burst.forget();
    }

    /// The packet, to read. A handle that does not belong here gives no bytes, or another packet's.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let start = self.offset(frame);
        self.pages
            .bytes()
            .get(start..start + frame.len())
            .unwrap_or(&[])
    }

    /// The packet, to write in place.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let start = self.offset(frame);
        // Two steps: their sum could overflow for all that the compiler knows.
        let tail = self.pages.bytes_mut().get_mut(start..);
        match tail.and_then(|tail| tail.get_mut(..frame.len())) {
            Some(bytes) => bytes,
            None => no_bytes(),
        }
    }

    /// Everything from the packet's first byte to the buffer's end, for a port to fill before [`FramePool::set_length`].
    #[inline]
    pub fn space_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let start = self.offset(frame);
        let room = self.stride.saturating_sub(frame.start as usize);
        self.pages
            .bytes_mut()
            .get_mut(start..start + room)
            .unwrap_or(&mut [])
    }

    /// Sets the packet's length, cutting or extending it at its end; `false`, and nothing changes, when the buffer is too short.
    #[inline]
    #[must_use = "false means that the length did not change"]
    pub fn set_length(&mut self, frame: &mut Frame, length: usize) -> bool {
        let fits = length <= self.stride.saturating_sub(frame.start as usize);
        if fits {
            frame.length = length as u32;
        }
        fits
    }

    /// Puts `bytes` bytes of headroom in front of the packet (contents arbitrary); `false`, and nothing changes, when there are
    /// not so many. The ports' own bytes stay.
    #[inline]
    #[must_use = "false means that nothing was put in front"]
    pub fn extend_front(&mut self, frame: &mut Frame, bytes: usize) -> bool {
        let fits = bytes <= usize::from(frame.start.saturating_sub(PORT_BYTES));
        if fits {
            frame.start -= bytes as u16;
            frame.length += bytes as u32;
        }
        fits
    }

    /// Takes `bytes` bytes off the packet's front; `false`, and nothing changes, when it is shorter, or would begin beyond the
    /// buffer's 65,535th byte.
    #[inline]
    #[must_use = "false means that nothing was taken off"]
    pub fn trim_front(&mut self, frame: &mut Frame, bytes: usize) -> bool {
        let fits = bytes <= frame.len().min(usize::from(u16::MAX - frame.start));
        if fits {
            frame.start += bytes as u16;
            frame.length -= bytes as u32;
        }
        fits
    }

    /// Makes the frame `length` bytes behind the usual headroom again, contents as they are. Too long a length is cut.
    #[inline]
    pub(crate) fn reset(&mut self, frame: &mut Frame, length: usize) {
        frame.start = first_byte(frame.buffer);
        frame.length = length.min(self.packet_bytes_max()) as u32;
    }

    /// What ports note of the packet for each other. A handle that does not belong here gives zeroes, or another packet's.
    pub(crate) fn port_bytes(&self, frame: &Frame) -> &[u8; PORT_BYTES as usize] {
        let start = frame.buffer as usize * self.stride;
        let bytes = self.pages.bytes().get(start..);
        bytes
            .and_then(|bytes| bytes.first_chunk())
            .unwrap_or(&[0; PORT_BYTES as usize])
    }

    /// The same, to write. A handle that does not belong here writes into this pool's first buffer.
    pub(crate) fn port_bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8; PORT_BYTES as usize] {
        let belongs = (frame.buffer as usize) < self.count;
        debug_assert!(belongs, "a frame of another pool");
        let start = if belongs {
            frame.buffer as usize * self.stride
        } else {
            0
        };
        // Strides are multiples of 64: there are so many bytes at each buffer's start.
        let (chunks, _) = self.pages.bytes_mut().as_chunks_mut();
        &mut chunks[start / PORT_BYTES as usize]
    }

    /// The address of the packet's first byte and how many bytes of the buffer follow: for system calls that read or write
    /// several frames at once. Valid until the frame is released; none for a handle that does not belong here.
    #[inline]
    pub(crate) fn room(&mut self, frame: &Frame) -> (*mut u8, usize) {
        let room = self.stride.saturating_sub(frame.start as usize);
        if frame.buffer as usize >= self.count {
            return (self.pages.as_ptr(), 0);
        }
        // Inside the mapping, since the buffer is and the start is below the stride.
        (self.pages.as_ptr().wrapping_add(self.offset(frame)), room)
    }

    /// Hints the processor to load the packet's first cache line.
    #[inline(always)]
    pub fn prefetch(&self, frame: &Frame) {
        self.pages.prefetch(self.offset(frame));
    }

    /// The longest packet that a fresh frame holds, in bytes.
    #[inline]
    pub fn packet_bytes_max(&self) -> usize {
        self.stride - first_byte(STAGGERS as u32 - 1) as usize
    }

    /// How many buffers the pool has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many buffers are free.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// How many buffers have a holder. When an engine stops, whatever its ports and park do not hold is lost.
    pub fn in_use(&self) -> usize {
        self.count - self.free.len()
    }

    /// How many allocations found no free buffer.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    #[inline(always)]
    fn offset(&self, frame: &Frame) -> usize {
        frame.buffer as usize * self.stride + frame.start as usize
    }
}

/// What a handle that does not belong to a pool gives.
#[cold]
fn no_bytes<'a>() -> &'a mut [u8] {
    &mut []
}

/// Where a fresh packet begins in a buffer. Neighbours differ by a cache line: at equal offsets a power of two apart, the
/// headers of a burst would compete for one set of the first-level cache.
#[inline(always)]
fn first_byte(buffer: u32) -> u16 {
    HEADROOM_BYTES + (buffer as u16 % STAGGERS) * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_sixteen_bytes() {
        assert_eq!(size_of::<Frame>(), 16);
    }

    #[test]
    fn buffers_are_distinct_and_come_back() {
        let mut pool = FramePool::new(4).unwrap();
        let mut held: Vec<Frame> = (0..4u8)
            .map(|value| pool.allocate_copy(&[value; 60]).unwrap())
            .collect();
        assert!(pool.allocate().is_none());
        assert_eq!(
            (pool.exhausted(), pool.available(), pool.in_use()),
            (1, 0, 4)
        );
        for (value, frame) in held.iter().enumerate() {
            assert_eq!(pool.bytes(frame), &[value as u8; 60]);
        }
        let last = held.pop().unwrap();
        let index = last.buffer();
        pool.release(last);
        let again = pool.allocate().unwrap();
        assert_eq!(again.buffer(), index);
        assert!(again.is_empty() && again.port() == NO_PORT && !again.is_truncated());
        pool.release(again);
        held.into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn both_ends_of_a_packet_move_within_its_buffer() {
        let mut pool = FramePool::with_stride(2, 512).unwrap();
        let mut frame = pool.allocate_copy(b"payload").unwrap();
        assert!(pool.extend_front(&mut frame, 2));
        pool.bytes_mut(&mut frame)[..2].copy_from_slice(b"h:");
        assert_eq!(pool.bytes(&frame), b"h:payload");
        assert!(!pool.extend_front(&mut frame, 111));
        assert!(pool.trim_front(&mut frame, 4) && pool.bytes(&frame) == b"yload");
        assert!(!pool.trim_front(&mut frame, 6));
        assert!(pool.set_length(&mut frame, 382));
        assert!(!pool.set_length(&mut frame, 383));
        assert_eq!(pool.space_mut(&mut frame).len(), 382);
        assert!(pool.allocate_copy(&[0; 193]).is_none());
        let copy = pool.duplicate(&frame).unwrap();
        assert_eq!(pool.bytes(&copy), pool.bytes(&frame));
        assert_ne!(copy.buffer(), frame.buffer());
        assert!(pool.duplicate(&frame).is_none());
        pool.release(copy);
        pool.release(frame);
    }

    #[test]
    fn a_frame_holds_the_longest_packet_there_is() {
        let mut pool = FramePool::with_stride(4, STRIDE_BYTES_MAX).unwrap();
        let packet: Vec<u8> = (0..65_557u32).map(|at| at as u8).collect();
        let mut held: Vec<Frame> = (0..4)
            .map(|_| pool.allocate_copy(&packet).unwrap())
            .collect();
        for frame in &held {
            assert_eq!(pool.bytes(frame), packet);
        }
        let mut frame = held.pop().unwrap();
        assert!(pool.extend_front(&mut frame, 112) && frame.len() == 65_669);
        assert!(!pool.extend_front(&mut frame, 65_000));
        assert!(pool.trim_front(&mut frame, 65_000) && frame.len() == 669);
        assert!(!pool.trim_front(&mut frame, 660), "its start has 16 bits");
        held.push(frame);
        held.into_iter().for_each(|frame| pool.release(frame));
    }

    #[test]
    fn what_ports_note_is_not_touched_by_the_packet_and_is_duplicated() {
        let mut pool = FramePool::with_stride(2, 512).unwrap();
        let mut frame = pool.allocate_copy(b"payload").unwrap();
        frame.set_tag(77);
        frame.set_offloaded(true);
        *pool.port_bytes_mut(&mut frame) = [9; 16];
        while pool.extend_front(&mut frame, 1) {}
        pool.bytes_mut(&mut frame).fill(1);
        assert_eq!(pool.port_bytes(&frame), &[9; 16]);
        let copy = pool.duplicate(&frame).unwrap();
        assert_eq!(pool.port_bytes(&copy), &[9; 16]);
        assert!(copy.is_offloaded() && copy.tag() == 0 && frame.tag() == 77);
        frame.set_offloaded(false);
        assert!(!frame.is_offloaded() && frame.tag() == 77 && !frame.is_truncated());
        pool.release(copy);
        pool.release(frame);
    }

    #[test]
    fn unfit_pools_are_refused_in_words() {
        for (count, stride) in [
            (0, 2048),
            (POOL_FRAMES_MAX + 1, 2048),
            (4, 100),
            (4, 2049),
            (4, 128 * 1024),
        ] {
            let error = FramePool::with_stride(count, stride)
                .unwrap_err()
                .to_string();
            assert!(error.contains("must"), "{error}");
        }
    }

    #[test]
    fn a_handle_of_another_pool_never_reaches_outside() {
        let mut large = FramePool::new(64).unwrap();
        let small = FramePool::new(1).unwrap();
        let frames: Vec<Frame> = (0..64)
            .map(|_| large.allocate_copy(&[1; 1500]).unwrap())
            .collect();
        assert_eq!(small.bytes(&frames[63]), &[] as &[u8]);
        frames.into_iter().for_each(|frame| large.release(frame));
    }
}
