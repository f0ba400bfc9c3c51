//! Bounds of what ports of the kernel are configured with.

use std::fmt;

/// The most slots of a receive ring.
pub const RING_SLOTS_MAX: u32 = 1 << 18;
/// The largest slot of a receive ring, in bytes.
pub const SLOT_BYTES_MAX: u32 = 128 * 1024;
/// The most chunks of an AF_XDP socket each way.
pub const XDP_CHUNKS_MAX: u32 = 1 << 16;
/// The largest MTU that a TAP interface takes.
pub const TAP_MTU_MAX: u32 = 65_521;

/// A value of a port's configuration that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// So many slots of a receive ring.
    RingSlots(u32),
    /// So many bytes of a receive ring's slot.
    SlotBytes(u32),
    /// So many chunks of an AF_XDP socket.
    Chunks(u32),
    /// So many bytes of a chunk.
    ChunkBytes(u32),
    /// This MTU of a TAP interface.
    TapMtu(u32),
}

impl fmt::Display for SettingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::RingSlots(slots) => write!(
                formatter,
                "ring_slots is {slots}: it must be 32 to {RING_SLOTS_MAX}"
            ),
            SettingError::SlotBytes(bytes) => write!(
                formatter,
                "slot_bytes is {bytes}: it must be a power of two from 2048 to {SLOT_BYTES_MAX}"
            ),
            SettingError::Chunks(chunks) => write!(
                formatter,
                "chunks is {chunks}: it must be 64 to {XDP_CHUNKS_MAX}"
            ),
            SettingError::ChunkBytes(bytes) => write!(
                formatter,
                "chunk_bytes is {bytes}: the kernel takes 2048 or 4096"
            ),
            SettingError::TapMtu(_) => write!(
                formatter,
                "the MTU of a TAP interface must be 68 to {TAP_MTU_MAX}"
            ),
        }
    }
}

impl std::error::Error for SettingError {}
