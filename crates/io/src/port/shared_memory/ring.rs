//! Two rings of slots in memory that two processes share, one for each way. Each has one writer and one reader.
//!
//! The other process is not trusted: what is read from the memory is read once, checked, and only then used. Its indices may be
//! wrong in any way and cost it the link; a wrong descriptor costs it the packet.
//!
//! The memory: a page of indices (for each way, a cache line apart: written, read, and whether the reader sleeps), the
//! descriptors (16 bytes each), the slots. A descriptor is the packet's length (4 bytes), its offload header (10) and 2
//! unused; descriptor and slot of one number go together.

use crate::frame::{Frame, FramePool};
use crate::port::PortDrop;
use crate::port::offload::Offload;
use crate::port::system::{HEADER_BYTES, Header, Mapping};
use std::sync::atomic::{Ordering, fence};

const INDICES_BYTES: usize = 4096;
const WAY_BYTES: usize = 256;
const WRITTEN: usize = 0;
const READ: usize = 64;
const SLEEPS: usize = 128;
const DESCRIPTOR_BYTES: usize = 16;

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Slots each way, a power of two.
    pub(super) slots: u32,
    pub(super) slot_bytes: u32,
}

impl Division {
    /// The size of the memory.
    pub(super) fn bytes(&self) -> usize {
        self.slots_at(2)
    }

    fn descriptors_at(&self, way: usize) -> usize {
        INDICES_BYTES + way * self.slots as usize * DESCRIPTOR_BYTES
    }

    fn slots_at(&self, way: usize) -> usize {
        self.descriptors_at(2) + way * self.slots as usize * self.slot_bytes as usize
    }
}

/// The other side's index is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Our end of one way.
#[derive(Debug)]
pub(super) struct End {
    division: Division,
    indices: usize,
    descriptors: usize,
    slots: usize,
    /// Our own index. The memory has a copy for the other side, which is never read back.
    own: u32,
    /// The other side's, as last read and checked.
    other: u32,
    /// Reading: the other side was informed that we sleep.
    pub(super) sleeps: bool,
}

impl End {
    pub(super) fn new(division: Division, way: usize) -> End {
        End {
            division,
            indices: way * WAY_BYTES,
            descriptors: division.descriptors_at(way),
            slots: division.slots_at(way),
            own: 0,
            other: 0,
            sleeps: false,
        }
    }

    fn place(&self, index: u32) -> (usize, usize) {
        let slot = (index & (self.division.slots - 1)) as usize;
        (
            self.descriptors + slot * DESCRIPTOR_BYTES,
            self.slots + slot * self.division.slot_bytes as usize,
        )
    }

    // --- writing

    /// How many slots are free, looked up in the memory if fewer than `wanted` were.
    pub(super) fn room(&mut self, memory: &Mapping, wanted: u32) -> Result<u32, Broken> {
        let slots = self.division.slots;
        if slots - self.own.wrapping_sub(self.other) < wanted {
            let read = memory.word(self.indices + READ).load(Ordering::Acquire);
            if self.own.wrapping_sub(read) > self.own.wrapping_sub(self.other) {
                return Err(Broken);
            }
            self.other = read;
        }
        Ok(slots - self.own.wrapping_sub(self.other))
    }

    /// Writes a packet into the next slot. The caller has seen that there is room, and that the packet fits a slot.
    pub(super) fn put(&mut self, memory: &Mapping, header: &Header, packet: &[u8]) {
        let (descriptor, slot) = self.place(self.own);
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&(packet.len() as u32).to_ne_bytes());
        bytes[4..4 + HEADER_BYTES].copy_from_slice(header);
        memory.copy_in(slot, packet);
        memory.copy_in(descriptor, &bytes);
        self.own = self.own.wrapping_add(1);
    }

    /// Lets the other side see what was written. Returns whether it sleeps and must be woken.
    pub(super) fn publish(&self, memory: &Mapping) -> bool {
        memory
            .word(self.indices + WRITTEN)
            .store(self.own, Ordering::Release);
        // The reader says that it sleeps before it looks a last time; we look whether it does after writing.
        fence(Ordering::SeqCst);
        let sleeps = memory.word(self.indices + SLEEPS);
        let asleep = sleeps.load(Ordering::Relaxed) != 0;
        if asleep {
            sleeps.store(0, Ordering::Relaxed);
        }
        asleep
    }

    // --- reading

    /// How many packets wait.
    pub(super) fn waiting(&mut self, memory: &Mapping) -> Result<u32, Broken> {
        if self.other == self.own {
            let written = memory.word(self.indices + WRITTEN).load(Ordering::Acquire);
            if written.wrapping_sub(self.own) > self.division.slots {
                return Err(Broken);
            }
            self.other = written;
        }
        Ok(self.other.wrapping_sub(self.own))
    }

    /// Tells the other side that we may sleep, and looks a last time whether something came.
    pub(super) fn sleep(&mut self, memory: &Mapping) -> Result<u32, Broken> {
        self.sleeps = true;
        memory
            .word(self.indices + SLEEPS)
            .store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.waiting(memory)
    }

    /// Takes the next packet, which waits, into `frame`. An error drops this packet alone.
    pub(super) fn take(
        &mut self,
        memory: &Mapping,
        pool: &mut FramePool,
        frame: &mut Frame,
    ) -> Result<(), PortDrop> {
        let (descriptor, slot) = self.place(self.own);
        self.own = self.own.wrapping_add(1);
        // A copy of our own: what the other side does to the memory from here on changes nothing that was checked.
        let mut bytes = [0; DESCRIPTOR_BYTES];
        memory.copy_out(descriptor, &mut bytes);
        let (length, rest) = bytes.split_at(4);
        let length = length
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        if length > self.division.slot_bytes {
            return Err(PortDrop::BadDescriptor);
        }
        if !pool.set_length(frame, length as usize) {
            return Err(PortDrop::TooLong);
        }
        memory.copy_out(slot, pool.bytes_mut(frame));
        let header = rest.first_chunk().unwrap_or(&[0; HEADER_BYTES]);
        let offload = Offload::parse(header, pool.bytes(frame));
        if let Some(offload) = offload.map_err(|_| PortDrop::BadDescriptor)? {
            offload.note(pool, frame);
        }
        Ok(())
    }

    /// Gives the slots of taken packets back.
    pub(super) fn give_back(&self, memory: &Mapping) {
        memory
            .word(self.indices + READ)
            .store(self.own, Ordering::Release);
    }
}

/// What a hostile peer may leave in the memory, read and written around: a target for fuzzing.
pub(super) fn fuzz(data: &[u8]) {
    use crate::port::system;
    const DIVISION: Division = Division {
        slots: 8,
        slot_bytes: 512,
    };
    let Ok(file) = system::memory_file("asterism-fuzz", DIVISION.bytes() as u64) else {
        return;
    };
    let Ok(memory) = Mapping::new(&file, 0, DIVISION.bytes()) else {
        return;
    };
    let Ok(mut pool) = FramePool::with_stride(4, 1024) else {
        return;
    };
    let (mut reader, mut writer) = (End::new(DIVISION, 0), End::new(DIVISION, 1));
    // Each piece: where in the indices and descriptors, and what is written there; then both ends are used.
    for piece in data.chunks(24) {
        let Some((at, bytes)) = piece.split_first_chunk::<2>() else {
            break;
        };
        let at = usize::from(u16::from_le_bytes(*at));
        let indices_or_descriptors = if at & 1 == 0 {
            at % (2 * WAY_BYTES)
        } else {
            INDICES_BYTES + at % (2 * 8 * DESCRIPTOR_BYTES)
        };
        memory.copy_in(indices_or_descriptors, bytes);
        memory.copy_in(DIVISION.slots_at(0) + at % 4096, bytes);
        for _ in 0..reader.waiting(&memory).unwrap_or(0).min(16) {
            let Some(mut frame) = pool.allocate() else {
                break;
            };
            if reader.take(&memory, &mut pool, &mut frame).is_ok() {
                assert!(frame.len() <= 512);
                let mut statistics = crate::port::PortStatistics::default();
                let mut burst = crate::frame::Burst::new();
                let _ = burst.push(frame);
                crate::port::offload::plainly(
                    &mut pool,
                    &mut burst,
                    &mut statistics,
                    |pool, burst, _| {
                        pool.release_all(burst);
                        0
                    },
                );
            } else {
                pool.release(frame);
            }
        }
        reader.give_back(&memory);
        let _ = reader.sleep(&memory);
        if writer.room(&memory, 1).is_ok_and(|room| room > 0) {
            writer.put(&memory, &[0; HEADER_BYTES], &piece[2..]);
            writer.publish(&memory);
        }
    }
    assert_eq!(pool.in_use(), 0);
}
