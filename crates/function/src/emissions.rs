//! Packets that a function sends besides the packet that it was called for.

use crate::function::PortNumber;

/// Frames emitted during one burst, in one buffer that is reused.
#[derive(Debug)]
pub struct Emissions {
    bytes: Vec<u8>,
    used: usize,
    frames: Vec<(PortNumber, usize, usize)>,
    /// Frames for which there was no room, that the loop has not asked for yet.
    refused: u64,
    /// Copies, and those lost, that the loop has not asked for yet, and that a chain has not.
    unreported: (u64, u64),
    made: (u64, u64),
    /// How many frames there are, below; copies lost ever, above.
    mark: u64,
}

/// Bytes of an emitted frame at most.
pub(crate) const EMITTED_BYTES_MAX: usize = 1_600;
/// Frames emitted during one burst at most.
pub(crate) const EMITTED_FRAMES_MAX: usize = 128;
/// With so many frames they are to be sent before the next packet is handled: one packet cut for a narrow link makes 45.
pub const EMITTED_FRAMES_MANY: usize = EMITTED_FRAMES_MAX / 2;

/// What a lost copy adds to the mark: more than there are frames.
const LOST: u64 = 1 << 8;
const _: () = assert!((EMITTED_FRAMES_MAX as u64) < LOST);

impl Default for Emissions {
    fn default() -> Self {
        Self {
            bytes: vec![0; EMITTED_BYTES_MAX * EMITTED_FRAMES_MAX],
            used: 0,
            frames: Vec::with_capacity(EMITTED_FRAMES_MAX),
            refused: 0,
            unreported: (0, 0),
            made: (0, 0),
            mark: 0,
        }
    }
}

impl Emissions {
    /// Adds a frame that `write` puts into the room it is given. False when there is none, counted.
    pub fn emit(
        &mut self,
        port: PortNumber,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        if self.frames.len() == EMITTED_FRAMES_MAX {
            self.refused += 1;
            return false;
        }
        let room = &mut self.bytes[self.used..self.used + EMITTED_BYTES_MAX];
        if let Some(length) = write(room) {
            let length = length.min(EMITTED_BYTES_MAX);
            self.frames.push((port, self.used, length));
            self.used += length;
            self.mark += 1;
        }
        true
    }

    /// Adds a copy of a packet, if it is no longer than a frame may be and leaves room for what functions have to say. False if
    /// not; both counted.
    pub(crate) fn copy(&mut self, port: PortNumber, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= EMITTED_BYTES_MAX && self.has_room_for_copies();
        if !fits {
            self.unreported.1 += 1;
            self.made.1 += 1;
            self.mark = self.mark.wrapping_add(LOST);
            return false;
        }
        self.unreported.0 += 1;
        self.made.0 += 1;
        self.emit(port, |room| {
            room[..bytes.len()].copy_from_slice(bytes);
            Some(bytes.len())
        })
    }

    /// A number that is another one after a frame was added or a copy was lost; [`Emissions::kept`] tells how many frames there
    /// were.
    #[inline(always)]
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// How many frames there were when the mark was this.
    pub(crate) fn kept(mark: u64) -> usize {
        (mark % LOST) as usize
    }

    /// Copies since a chain asked last, and those for which there was no room.
    pub(crate) fn take_made(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.made)
    }

    /// Copies since the last time, and those for which there was no room.
    pub fn take_copies(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.unreported)
    }

    /// Says again by which ports the frames after the first `kept` leave.
    pub(crate) fn redirect(&mut self, kept: usize, to: impl Fn(PortNumber) -> PortNumber) {
        for (port, ..) in self.frames.iter_mut().skip(kept) {
            *port = to(*port);
        }
    }

    /// Forgets the frames after the first `kept`.
    pub(crate) fn truncate(&mut self, kept: usize) {
        if let Some(&(_, start, _)) = self.frames.get(kept) {
            self.used = start;
            self.frames.truncate(kept);
            self.mark = self.mark - self.mark % LOST + kept as u64;
        }
    }

    /// Whether there is nothing to send, and nothing to tell of copies or of what found no room.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.unreported.1 == 0 && self.refused == 0
    }

    /// Whether there is room for a copy beside what functions may have to say.
    pub(crate) fn has_room_for_copies(&self) -> bool {
        self.frames.len() < EMITTED_FRAMES_MAX * 3 / 4
    }

    /// How many frames wait to be sent.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Hands out every frame and forgets them.
    pub fn take(&mut self, mut send: impl FnMut(PortNumber, &[u8])) {
        for &(port, start, length) in &self.frames {
            send(port, &self.bytes[start..start + length]);
        }
        self.frames.clear();
        self.mark -= self.mark % LOST;
        self.used = 0;
    }

    /// Hands out every frame after the first `kept`, and forgets those.
    pub fn take_after(&mut self, kept: usize, mut send: impl FnMut(PortNumber, &[u8])) {
        for &(port, start, length) in self.frames.iter().skip(kept) {
            send(port, &self.bytes[start..start + length]);
        }
        self.truncate(kept);
    }

    /// Frames that were refused for lack of room since the last time.
    pub fn take_refused(&mut self) -> u64 {
        core::mem::take(&mut self.refused)
    }
}
