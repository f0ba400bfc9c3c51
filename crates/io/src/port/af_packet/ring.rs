//! The receive ring of a packet socket, TPACKET_V2: each slot is filled by the kernel, read here and given back. Version 3
//! hands over blocks by a timer of a millisecond, which is no use to a network function.

use super::Failure;
use crate::frame::{Burst, FramePool};
use crate::port::offload::complete_unmarked;
use crate::port::statistics::{PortDrop, PortStatistics};
use crate::port::system::{self, Mapping};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Bytes of a block of the ring: memory that the kernel finds in one piece, or, if it cannot, page by page.
const BLOCK_BYTES: u32 = 256 * 1024;
/// Offsets in a slot's header, `struct tpacket2_hdr`.
const STATUS: usize = 0;
const LENGTH: usize = 4;
const CAPTURED: usize = 8;
const OFFSETS: usize = 12;
const VLAN: usize = 24;
/// The Ethernet type of a VLAN tag, where the kernel does not say another.
const VLAN_TYPE: u16 = 0x8100;
/// Bytes of the two Ethernet addresses, behind which a VLAN tag stands.
pub(super) const ADDRESS_BYTES: usize = 12;

/// The ring, mapped.
#[derive(Debug)]
pub(super) struct Ring {
    mapping: Mapping,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

impl Ring {
    /// Makes the ring of a socket that is not bound yet.
    pub(super) fn new(socket: &OwnedFd, slots: u32, slot_bytes: u32) -> io::Result<Ring> {
        system::set_option(
            socket,
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as i32),
        )?;
        let slots = slots.next_power_of_two().max(BLOCK_BYTES / slot_bytes);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: slots / (BLOCK_BYTES / slot_bytes),
            tp_frame_size: slot_bytes,
            tp_frame_nr: slots,
        };
        system::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (slots, slot_bytes) = (slots as usize, slot_bytes as usize);
        Ok(Ring {
            mapping: Mapping::new(socket, 0, slots * slot_bytes)?,
            slot_bytes,
            slots,
            next: 0,
        })
    }

    /// Copies what the kernel has filled into frames. Reads no slot for which there is no frame.
    pub(super) fn receive(
        &mut self,
        pool: &mut FramePool,
        burst: &mut Burst,
        statistics: &mut PortStatistics,
        failure: &mut Failure,
    ) -> usize {
        let before = burst.len();
        while burst.room() > 0 {
            let slot = self.next * self.slot_bytes;
            let status = self.mapping.word(slot + STATUS).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            let Some(mut frame) = pool.allocate() else {
                break;
            };
            let word = |at: usize| self.mapping.word(slot + at).load(Ordering::Relaxed);
            let (length, captured) = (word(LENGTH) as usize, word(CAPTURED) as usize);
            let packet = slot + (word(OFFSETS) as u16) as usize;
            let tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
            let tag_bytes = if tagged { 4 } else { 0 };
            let inside = packet + captured <= slot + self.slot_bytes;
            let taken = if length > captured || !inside || (tagged && captured < ADDRESS_BYTES) {
                false
            } else if pool.set_length(&mut frame, captured + tag_bytes) {
                let bytes = pool.bytes_mut(&mut frame);
                if tagged {
                    let (addresses, rest) = bytes.split_at_mut(ADDRESS_BYTES);
                    self.mapping.copy_out(packet, addresses);
                    let vlan = word(VLAN);
                    rest[..4].copy_from_slice(&tag(status, vlan as u16, (vlan >> 16) as u16));
                    self.mapping
                        .copy_out(packet + ADDRESS_BYTES, &mut rest[4..]);
                } else {
                    self.mapping.copy_out(packet, bytes);
                }
                if status & libc::TP_STATUS_CSUMNOTREADY != 0 && complete_unmarked(bytes) {
                    statistics.checksums_completed += 1;
                }
                true
            } else {
                false
            };
            self.mapping
                .word(slot + STATUS)
                .store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) & (self.slots - 1);
            if !taken {
                statistics.count_dropped(PortDrop::TooLong);
                failure.too_long(length + tag_bytes);
                pool.release(frame);
                continue;
            }
            statistics.count_received(frame.len());
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
            }
        }
        burst.len() - before
    }
}

/// The tag that the kernel took off, as it was on the wire (IEEE 802.1Q).
pub(super) fn tag(status: u32, tag: u16, kind: u16) -> [u8; 4] {
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        kind
    } else {
        VLAN_TYPE
    };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), tag.to_be_bytes());
    [a, b, c, d]
}
