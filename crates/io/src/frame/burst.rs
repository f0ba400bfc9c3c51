//! A burst: the frames that the engine handles at once.

use super::Frame;

/// The most frames that the engine handles at once.
pub const BURST: usize = 32;

/// Up to [`BURST`] frames, in order. Fixed size; nothing here allocates.
///
/// A burst that is dropped with frames in it loses their buffers, as a [`Frame`] does.
#[derive(Debug)]
pub struct Burst {
    frames: [Frame; BURST],
    length: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Burst::new()
    }
}

impl Burst {
    /// No frames. Keep one and use it again: making it writes 512 bytes.
    pub const fn new() -> Burst {
        Burst {
            frames: [Frame::EMPTY; BURST],
            length: 0,
        }
    }

    /// Adds a frame at the end, or hands it back when the burst is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        match self.frames.get_mut(self.length) {
            Some(slot) => {
                *slot = frame;
                self.length += 1;
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// Adds the frame that `slot` holds; false when the burst is full. The caller forgets the slot's content. One copy from
    /// memory to memory, which moving the frame by value is not.
    #[inline(always)]
    pub fn push_from(&mut self, slot: &Frame) -> bool {
        match self.frames.get_mut(self.length) {
            Some(free) => {
                *free = slot.alias();
                self.length += 1;
                true
            }
            None => false,
        }
    }

    /// Adds as many of `frames` as fit and returns how many: the caller forgets those.
    #[inline]
    pub(crate) fn fill(&mut self, frames: &[Frame]) -> usize {
        let free = self.frames.get_mut(self.length..).unwrap_or(&mut []);
        let mut filled = 0;
        for (slot, frame) in free.iter_mut().zip(frames) {
            *slot = frame.alias();
            filled += 1;
        }
        self.length += filled;
        filled
    }

    /// Takes the last frame.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let last = self.length.checked_sub(1)?;
        let frame = self.frames.get(last)?;
        self.length = last;
        Some(frame.alias())
    }

    /// Takes all frames, first to last. What the iterator is dropped with stays in the burst, in order.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        Drain {
            next: 0,
            burst: self,
        }
    }

    /// Moves frames from the front of `from` until this burst is full; returns how many.
    pub fn fill_from(&mut self, from: &mut Burst) -> usize {
        let moved = from.len().min(self.room());
        for frame in from.drain().take(moved) {
            // There is room for `moved` frames, so none comes back.
            let _ = self.push(frame);
        }
        moved
    }

    /// Takes out the frames that `out` chooses and hands them to `taken`; the others stay in order.
    #[inline]
    pub fn extract(&mut self, mut out: impl FnMut(&Frame) -> bool, mut taken: impl FnMut(Frame)) {
        let mut kept = 0;
        for index in 0..self.length.min(BURST) {
            let frame = self.frames[index].alias();
            if out(&frame) {
                taken(frame);
            } else {
                self.frames[kept] = frame;
                kept += 1;
            }
        }
        self.length = kept;
    }

    /// Empties the burst of frames whose buffers were given back or moved elsewhere.
    #[inline]
    pub fn forget(&mut self) {
        self.length = 0;
    }

    /// How many frames it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many more frames fit.
    #[inline]
    pub fn room(&self) -> usize {
        BURST - self.length
    }

    /// The frames, to look at.
    #[inline]
    pub fn as_slice(&self) -> &[Frame] {
        self.frames.get(..self.length).unwrap_or(&[])
    }

    /// The frames, to change in place.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Frame] {
        self.frames.get_mut(..self.length).unwrap_or(&mut [])
    }

    /// The frames, first to last.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Frame> {
        self.as_slice().iter()
    }
}

/// Takes a burst's frames first to last; see [`Burst::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    burst: &'a mut Burst,
    next: usize,
}

impl Iterator for Drain<'_> {
    type Item = Frame;

    #[inline]
    fn next(&mut self) -> Option<Frame> {
        if self.next >= self.burst.length {
            return None;
        }
        let slot = self.burst.frames.get(self.next)?;
        self.next += 1;
        Some(slot.alias())
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.burst.length - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        let left = self.burst.length - self.next;
        if left > 0 && self.next > 0 {
            self.burst.frames[..self.burst.length].rotate_left(self.next);
        }
        self.burst.length = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FramePool;

    #[test]
    fn a_burst_keeps_order_and_what_a_drain_leaves() {
        let mut pool = FramePool::new(BURST + 1).unwrap();
        let mut burst = Burst::new();
        for value in 0..BURST as u8 {
            assert!(burst.push(pool.allocate_copy(&[value]).unwrap()).is_ok());
        }
        let refused = burst.push(pool.allocate().unwrap()).unwrap_err();
        pool.release(refused);
        let mut drain = burst.drain();
        assert_eq!(drain.len(), BURST);
        for value in 0..5u8 {
            let frame = drain.next().unwrap();
            assert_eq!(pool.bytes(&frame), &[value]);
            pool.release(frame);
        }
        drop(drain);
        let left: Vec<u8> = burst.iter().map(|frame| pool.bytes(frame)[0]).collect();
        assert_eq!(left, (5..BURST as u8).collect::<Vec<_>>());
        let last = burst.pop().unwrap();
        assert_eq!(pool.bytes(&last), &[BURST as u8 - 1]);
        pool.release(last);
        let mut index = 0;
        burst.extract(
            |_| {
                index += 1;
                index % 2 == 0
            },
            |frame| pool.release(frame),
        );
        let left: Vec<u8> = burst.iter().map(|frame| pool.bytes(frame)[0]).collect();
        assert_eq!(left, (5..BURST as u8 - 1).step_by(2).collect::<Vec<_>>());
        let mut second = Burst::new();
        assert_eq!(second.fill_from(&mut burst), (BURST - 6) / 2);
        assert!(burst.is_empty() && burst.pop().is_none());
        pool.release_all(&mut second);
        assert_eq!(pool.in_use(), 0);
    }
}
