//! The memory that an AF_XDP socket shares with the kernel: chunks for packets, and four rings that pass them to and fro
//! (`Documentation/networking/af_xdp.rst`).

use crate::port::system::{self, Mapping};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

/// One side's end of a ring of `size` entries (a power of two) that the other side is the kernel of.
#[derive(Debug)]
pub(super) struct SharedRing {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    entry_bytes: usize,
    mask: u32,
    /// Our own index; the kernel only reads it.
    own: u32,
    /// The kernel's index as last seen.
    other: u32,
}

impl SharedRing {
    fn new(
        socket: &OwnedFd,
        page_offset: u64,
        at: &libc::xdp_ring_offset,
        size: u32,
        entry_bytes: usize,
    ) -> io::Result<SharedRing> {
        let bytes = at.desc as usize + size as usize * entry_bytes;
        Ok(SharedRing {
            mapping: Mapping::new(socket, page_offset, bytes)?,
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            flags: at.flags as usize,
            entries: at.desc as usize,
            entry_bytes,
            mask: size - 1,
            own: 0,
            other: 0,
        })
    }

    /// For a ring that we read: how many entries wait, at least one if any.
    pub(super) fn waiting(&mut self) -> u32 {
        if self.other == self.own {
            self.other = self.mapping.word(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own).min(self.mask + 1)
    }

    /// For a ring that we write: how many entries are free, as far as that is wanted.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let size = self.mask + 1;
        if size - self.own.wrapping_sub(self.other).min(size) < wanted {
            self.other = self.mapping.word(self.consumer).load(Ordering::Acquire);
        }
        size - self.own.wrapping_sub(self.other).min(size)
    }

    fn at(&self, entry: u32) -> usize {
        self.entries + (entry & self.mask) as usize * self.entry_bytes
    }

    /// The address in the next entry that waits, and, if the ring has them, its packet's length.
    pub(super) fn take(&mut self) -> (u64, u32) {
        let at = self.at(self.own);
        let address = self.mapping.double_word(at).load(Ordering::Relaxed);
        let length = if self.entry_bytes > 8 {
            self.mapping.word(at + 8).load(Ordering::Relaxed)
        } else {
            0
        };
        self.own = self.own.wrapping_add(1);
        (address, length)
    }

    /// Gives taken entries back.
    pub(super) fn give_back(&self) {
        self.mapping
            .word(self.consumer)
            .store(self.own, Ordering::Release);
    }

    /// Writes the next entry; there is room.
    pub(super) fn put(&mut self, address: u64, length: u32) {
        let at = self.at(self.own);
        self.mapping
            .double_word(at)
            .store(address, Ordering::Relaxed);
        if self.entry_bytes > 8 {
            self.mapping.word(at + 8).store(length, Ordering::Relaxed);
            self.mapping.word(at + 12).store(0, Ordering::Relaxed);
        }
        self.own = self.own.wrapping_add(1);
    }

    /// Lets the kernel see what was written.
    pub(super) fn publish(&self) {
        self.mapping
            .word(self.producer)
            .store(self.own, Ordering::Release);
    }

    /// Whether the kernel waits for a system call to look at the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        self.mapping.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The chunks and the four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: SharedRing,
    pub(super) completion: SharedRing,
    pub(super) receive: SharedRing,
    pub(super) transmit: SharedRing,
    pub(super) chunks: Mapping,
    /// Chunks that may be sent from.
    pub(super) free: Vec<u64>,
    pub(super) chunk_bytes: u32,
}

impl Rings {
    /// Gives `socket` as many chunks for each way as its rings have entries. Those for receiving are the kernel's at once.
    pub(super) fn new(socket: &OwnedFd, entries: u32, chunk_bytes: u32) -> io::Result<Rings> {
        let bytes = 2 * entries as usize * chunk_bytes as usize;
        let file = system::memory_file("asterism-af-xdp", bytes as u64)?;
        let chunks = Mapping::new(&file, 0, bytes)?;
        let set = |name: i32, value: u32| system::set_option(socket, libc::SOL_XDP, name, &value);
        let memory = libc::xdp_umem_reg {
            addr: chunks.address(),
            len: bytes as u64,
            chunk_size: chunk_bytes,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        system::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        set(libc::XDP_UMEM_FILL_RING, entries)?;
        set(libc::XDP_UMEM_COMPLETION_RING, entries)?;
        set(libc::XDP_RX_RING, entries)?;
        set(libc::XDP_TX_RING, entries)?;
        let at: libc::xdp_mmap_offsets =
            system::option(socket.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let ring = |offset: u64, at: &libc::xdp_ring_offset, entry_bytes| {
            SharedRing::new(socket, offset, at, entries, entry_bytes)
        };
        let mut rings = Rings {
            fill: ring(libc::XDP_UMEM_PGOFF_FILL_RING, &at.fr, 8)?,
            completion: ring(libc::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, 8)?,
            receive: ring(libc::XDP_PGOFF_RX_RING as u64, &at.rx, 16)?,
            transmit: ring(libc::XDP_PGOFF_TX_RING as u64, &at.tx, 16)?,
            chunks,
            free: Vec::with_capacity(entries as usize),
            chunk_bytes,
        };
        for chunk in 0..u64::from(entries) {
            rings.fill.put(chunk * u64::from(chunk_bytes), 0);
            rings
                .free
                .push((u64::from(entries) + chunk) * u64::from(chunk_bytes));
        }
        rings.fill.publish();
        Ok(rings)
    }

    /// Takes back the chunks that were sent.
    pub(super) fn reclaim(&mut self) {
        let done = self.completion.waiting();
        for _ in 0..done {
            let (address, _) = self.completion.take();
            // There is room for every chunk; the kernel gives each back once.
            if self.free.len() < self.free.capacity() {
                self.free.push(address);
            }
        }
        if done > 0 {
            self.completion.give_back();
        }
    }
}
