//! Outstanding work on a packet before it may go on a wire: its checksum, or segmentation.
//!
//! Interfaces with offloads hand over packets of up to 64 KiB without checksums, with the hardware's outstanding work in a
//! `struct virtio_net_hdr`. Ports that support this header note it in the frame's buffer, beside the packet
//! ([`Offload::note`]); network functions do not know of it. A function's changes to the checksum field do not matter: the
//! sending port writes it again. A port to a medium that cannot take such packets lets [`plainly`] finish them.

mod checksum;
mod merge;
mod segments;

use super::statistics::{PortDrop, PortStatistics};
use super::system::{HEADER_BYTES, Header};
use crate::frame::{Burst, Frame, FramePool};
use asterism_packet::Network;
use checksum::{Place, complete, place, write_pseudo_sum};
pub(crate) use checksum::{complete_if_partial, complete_unmarked};
pub(crate) use merge::Runs;
use segments::Segments;

const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// A flag of TCP's: congestion was notified in the first segment.
const CONGESTION: u8 = 0x80;

/// What a frame's packet lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Where the checksum begins to sum, in bytes from the packet's start.
    pub checksum_start: u16,
    /// Where its field is, in bytes from there.
    pub checksum_offset: u16,
    /// The packet is to be cut into segments.
    pub segmentation: Option<Segmentation>,
}

/// How a packet is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// TCP; else UDP, each segment a datagram.
    pub tcp: bool,
    /// Congestion was notified in the first segment (TCP's ECN).
    pub congestion: bool,
    /// Bytes of payload of each segment but the last.
    pub segment_bytes: u16,
}

/// A header that contradicts its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadHeader;

impl Offload {
    /// Reads a `struct virtio_net_hdr` in this machine's byte order: `None` if nothing is left to do.
    pub(crate) fn parse(header: &Header, packet: &[u8]) -> Result<Option<Offload>, BadHeader> {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (flags, kind) = (header[0], header[1]);
        let segmentation = match kind & !CONGESTION {
            0 => None,
            TCP4 | TCP6 | UDP => Some(Segmentation {
                tcp: kind & !CONGESTION != UDP,
                congestion: kind & CONGESTION != 0,
                segment_bytes: word(4),
            }),
            _ => return Err(BadHeader),
        };
        if segmentation.is_some_and(|cut| cut.segment_bytes == 0) {
            return Err(BadHeader);
        }
        if flags & NEEDS_CHECKSUM == 0 {
            // Cut packets always lack their checksums; say so for one that does not.
            return match segmentation {
                None => Ok(None),
                Some(_) => {
                    let place = place(packet).ok_or(BadHeader)?;
                    Ok(Some(Offload {
                        checksum_start: place.transport_at as u16,
                        checksum_offset: place.field as u16,
                        segmentation,
                    }))
                }
            };
        }
        let (start, offset) = (word(6), word(8));
        if usize::from(start) + usize::from(offset) + 2 > packet.len() {
            return Err(BadHeader);
        }
        Ok(Some(Offload {
            checksum_start: start,
            checksum_offset: offset,
            segmentation,
        }))
    }

    /// The header that says this of `packet`.
    fn header(self, packet: &[u8], place: &Place) -> Header {
        let mut header = [0; HEADER_BYTES];
        let mut put = |at: usize, word: u16| {
            header[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        };
        put(6, self.checksum_start);
        put(8, self.checksum_offset);
        if let Some(cut) = self.segmentation {
            put(2, place.payload_at.min(packet.len()) as u16);
            put(4, cut.segment_bytes);
            header[1] = match (cut.tcp, place.network) {
                (true, Network::Ipv6) => TCP6,
                (true, _) => TCP4,
                (false, _) => UDP,
            } | if cut.congestion { CONGESTION } else { 0 };
        }
        header[0] = NEEDS_CHECKSUM;
        header
    }

    /// What is noted of a frame of `pool`; `None` for a packet that lacks nothing.
    pub fn of(pool: &FramePool, frame: &Frame) -> Option<Offload> {
        if !frame.is_offloaded() {
            return None;
        }
        let note = pool.port_bytes(frame);
        let word = |at: usize| u16::from_ne_bytes([note[at], note[at + 1]]);
        // The function may have put headers in front since, or taken some off.
        let moved = i32::from(word(8)) - i32::from(frame.start());
        let start = u16::try_from(i32::from(word(0)) + moved).unwrap_or(u16::MAX);
        Some(Offload {
            checksum_start: start,
            checksum_offset: word(2),
            segmentation: (note[6] & 1 != 0).then_some(Segmentation {
                tcp: note[6] & 2 != 0,
                congestion: note[6] & 4 != 0,
                segment_bytes: word(4),
            }),
        })
    }

    /// Notes this of a frame.
    pub fn note(self, pool: &mut FramePool, frame: &mut Frame) {
        let start = frame.start();
        let note = pool.port_bytes_mut(frame);
        note[0..2].copy_from_slice(&self.checksum_start.to_ne_bytes());
        note[2..4].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        let cut = self.segmentation;
        let bytes = cut.map_or(0, |cut| cut.segment_bytes);
        note[4..6].copy_from_slice(&bytes.to_ne_bytes());
        note[6] = cut.map_or(0, |cut| {
            1 | u8::from(cut.tcp) << 1 | u8::from(cut.congestion) << 2
        });
        note[8..10].copy_from_slice(&start.to_ne_bytes());
        frame.set_offloaded(true);
    }
}

/// The header to send in front of a frame's packet, to a medium that takes one. The checksum field becomes the sum of the
/// pseudo header as the packet is now, whatever was done to it. What no header can describe is finished here, or refused.
pub(crate) fn header_of(
    pool: &mut FramePool,
    frame: &mut Frame,
    statistics: &mut PortStatistics,
) -> Result<Header, PortDrop> {
    let Some(offload) = Offload::of(pool, frame) else {
        return Ok([0; HEADER_BYTES]);
    };
    let packet = pool.bytes_mut(frame);
    let found = place(packet).filter(|place| {
        place.transport_at == usize::from(offload.checksum_start)
            && place.field == usize::from(offload.checksum_offset)
    });
    match found {
        Some(place) => {
            write_pseudo_sum(packet, &place);
            Ok(offload.header(packet, &place))
        }
        None if offload.segmentation.is_some() => Err(PortDrop::NotSegmented),
        None => {
            complete(packet, &offload);
            statistics.checksums_completed += 1;
            frame.set_offloaded(false);
            Ok([0; HEADER_BYTES])
        }
    }
}

/// Sends a burst by `transmit`, to a medium that takes packets only as they go on the wire: those that lack something are
/// finished first. `transmit` empties the burst that it is given, and returns how many it sent; so does this.
pub(crate) fn plainly(
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
    mut transmit: impl FnMut(&mut FramePool, &mut Burst, &mut PortStatistics) -> usize,
) -> usize {
    if !burst.iter().any(Frame::is_offloaded) {
        return transmit(pool, burst, statistics);
    }
    let mut plain = Burst::new();
    let mut sent = 0;
    for mut frame in burst.drain() {
        let Some(offload) = Offload::of(pool, &frame) else {
            sent += add(pool, &mut plain, frame, statistics, &mut transmit);
            continue;
        };
        frame.set_offloaded(false);
        let Some(cut) = offload.segmentation else {
            complete(pool.bytes_mut(&mut frame), &offload);
            statistics.checksums_completed += 1;
            sent += add(pool, &mut plain, frame, statistics, &mut transmit);
            continue;
        };
        match Segments::new(pool.bytes(&frame), &offload, cut) {
            Some(mut segments) => {
                while let Some(made) = segments.next(pool, &frame) {
                    match made {
                        Ok(segment) => {
                            statistics.segments_made += 1;
                            sent += add(pool, &mut plain, segment, statistics, &mut transmit);
                        }
                        Err(reason) => statistics.count_dropped(reason),
                    }
                }
            }
            None => statistics.count_dropped(PortDrop::NotSegmented),
        }
        pool.release(frame);
    }
    if !plain.is_empty() {
        sent += transmit(pool, &mut plain, statistics);
    }
    sent
}

/// Puts a frame into `plain`, which is sent when it is full.
fn add(
    pool: &mut FramePool,
    plain: &mut Burst,
    frame: Frame,
    statistics: &mut PortStatistics,
    transmit: &mut impl FnMut(&mut FramePool, &mut Burst, &mut PortStatistics) -> usize,
) -> usize {
    let sent = if plain.room() == 0 {
        transmit(pool, plain, statistics)
    } else {
        0
    };
    if let Err(frame) = plain.push(frame) {
        // `transmit` empties what it is given.
        pool.release(frame);
    }
    sent
}

/// An offload header and a packet, as an interface or a peer may claim them: a target for fuzzing. Whatever passes the parse is
/// finished, for a medium with offloads and for one without; segments that come out are well-formed.
#[doc(hidden)]
pub fn fuzz_offload(data: &[u8]) {
    let Some((header, packet)) = data.split_first_chunk::<HEADER_BYTES>() else {
        return;
    };
    let Ok(Some(offload)) = Offload::parse(header, packet) else {
        return;
    };
    let Ok(mut pool) = FramePool::with_stride(64, 4096) else {
        return;
    };
    let Some(mut frame) = pool.allocate_copy(packet) else {
        return;
    };
    offload.note(&mut pool, &mut frame);
    assert_eq!(Offload::of(&pool, &frame), Some(offload));
    let mut statistics = PortStatistics::default();
    let mut copy = pool.duplicate(&frame);
    if let Some(copy) = &mut copy
        && let Ok(header) = header_of(&mut pool, copy, &mut statistics)
        && copy.is_offloaded()
    {
        let reported = Offload::parse(&header, pool.bytes(copy));
        assert_eq!(reported.ok().flatten(), Some(offload));
    }
    if let Some(copy) = copy {
        pool.release(copy);
    }
    let cut = offload.segmentation.is_some();
    let mut burst = Burst::new();
    let _ = burst.push(frame);
    plainly(&mut pool, &mut burst, &mut statistics, |pool, burst, _| {
        let sent = burst.len();
        for mut frame in burst.drain() {
            assert!(!frame.is_offloaded());
            let packet = asterism_packet::Packet::parse(pool.bytes_mut(&mut frame));
            if cut {
                // A bad checksum of the IPv4 header is made again; nothing else about a segment can be wrong.
                let valid = packet.map(|packet| packet.verify_transport_checksum());
                assert!(valid != Ok(Some(false)), "{valid:?}");
            }
            pool.release(frame);
        }
        sent
    });
    assert_eq!(pool.in_use(), 0);
}
