//! Packets that a function sends besides the one it was called for.

use crate::function::PortNumber;

/// Frames emitted during one burst, in one buffer that is reused.
#[derive(Debug)]
pub struct Emissions {
    bytes: Vec<u8>,
    used: usize,
    frames: Vec<(PortNumber, usize, usize)>,
    refused: u64,
    copies: u64,
    copies_lost: u64,
    /// Copies, and those lost, that nobody has asked for yet.
    untold: (u64, u64),
}

/// Bytes of an emitted frame at most.
pub(crate) const EMITTED_BYTES_MAX: usize = 1_600;
/// Frames emitted during one burst at most.
pub(crate) const EMITTED_FRAMES_MAX: usize = 128;

impl Default for Emissions {
    fn default() -> Self {
        Self {
            bytes: vec![0; EMITTED_BYTES_MAX * EMITTED_FRAMES_MAX],
            used: 0,
            frames: Vec::with_capacity(EMITTED_FRAMES_MAX),
            refused: 0,
            copies: 0,
            copies_lost: 0,
            untold: (0, 0),
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
        }
        true
    }

    /// Adds a copy of a packet, if it is no longer than a frame may be and leaves room for what functions have to say. False if
    /// not; both counted.
    pub(crate) fn copy(&mut self, port: PortNumber, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= EMITTED_BYTES_MAX && self.has_room_for_copies();
        if !fits {
            self.copies_lost += 1;
            self.untold.1 += 1;
            return false;
        }
        self.copies += 1;
        self.untold.0 += 1;
        self.emit(port, |room| {
            room[..bytes.len()].copy_from_slice(bytes);
            Some(bytes.len())
        })
    }

    /// Copies ever, and those for which there was no room.
    #[inline(always)]
    pub(crate) fn copies(&self) -> (u64, u64) {
        (self.copies, self.copies_lost)
    }

    /// Copies since the last time, and those for which there was no room.
    pub fn take_copies(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.untold)
    }

    /// Says anew by which ports the frames after the first `kept` leave.
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
        }
    }

    /// Whether there is nothing to send, and nothing to tell of copies.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.untold.1 == 0
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
        self.used = 0;
    }

    /// Frames that were refused for lack of room, ever.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
