//! Segments of one TCP connection that follow each other, merged into one packet for an interface that cuts it again: the
//! counterpart of `segments`. Only what the cutting gives back byte by byte is merged.

use super::checksum::{Place, place, pseudo_sum, write_pseudo_sum};
use super::{Offload, Segmentation};
use crate::frame::{BURST, Frame, FramePool};
use crate::port::system::{HEADER_BYTES, Header};
use asterism_packet::Network;
use asterism_packet::checksum::{self, Sum};

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const ETHERNET_BYTES: usize = 14;
/// The longest IP packet.
const PACKET_BYTES_MAX: usize = 65_535;

/// A burst as messages to send: each one frame, or a run of frames of which all but the first give only their payload.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Frames of the run that begins at a place.
    frames: [u8; BURST],
    headers: [Header; BURST],
    /// Where the payload begins in each frame of a run.
    payload_at: [u16; BURST],
}

impl Runs {
    /// Finds the runs of a burst that leaves by an interface of this MTU, and writes the headers of the first frame of each.
    /// Returns how many frames are in runs of two or more.
    pub(crate) fn find(pool: &mut FramePool, frames: &mut [Frame], mtu: usize) -> (Runs, usize) {
        let mut runs = Runs {
            frames: [1; BURST],
            headers: [[0; HEADER_BYTES]; BURST],
            payload_at: [0; BURST],
        };
        let (mut at, mut merged) = (0, 0);
        while at < frames.len().min(BURST) {
            let count = runs.find_at(pool, frames, at, mtu);
            if count > 1 {
                merged += count;
            }
            at += count;
        }
        (runs, merged)
    }

    /// How many frames the message that begins at this place has.
    pub(crate) fn frames(&self, at: usize) -> usize {
        self.frames.get(at).map_or(1, |frames| usize::from(*frames))
    }

    /// What goes in front of it.
    pub(crate) fn header(&self, at: usize) -> &Header {
        &self.headers[at]
    }

    /// Where the payload of its frames begins.
    pub(crate) fn payload_at(&self, at: usize) -> usize {
        usize::from(self.payload_at[at])
    }

    fn find_at(
        &mut self,
        pool: &mut FramePool,
        frames: &mut [Frame],
        at: usize,
        mtu: usize,
    ) -> usize {
        let Some(first) = frames
            .get(at)
            .and_then(|frame| Segment::of(pool, frame, mtu))
        else {
            return 1;
        };
        let (mut count, mut payload) = (1, first.payload());
        let mut last = first;
        // A push or a shorter segment ends what one packet can be cut into.
        while !last.pushes && last.payload() == first.payload() {
            let Some(next) = frames.get(at + count).filter(|_| at + count < BURST) else {
                break;
            };
            let Some(segment) = Segment::of(pool, next, mtu) else {
                break;
            };
            let all = first.place.payload_at + payload + segment.payload();
            if all - ETHERNET_BYTES > PACKET_BYTES_MAX
                || !segment.follows(&first, count, payload)
                || !segment.has_headers_of(&first, pool.bytes(next), pool.bytes(&frames[at]))
                // What is cut gets good checksums, and a packet damaged on its way is not to be repaired by that.
                || (count == 1 && !first.is_valid(pool.bytes(&frames[at])))
                || !segment.is_valid(pool.bytes(next))
            {
                break;
            }
            payload += segment.payload();
            last = segment;
            count += 1;
        }
        if count == 1 {
            return 1;
        }
        let place = Place {
            end: first.place.payload_at + payload,
            ..first.place
        };
        let packet = pool.bytes_mut(&mut frames[at]);
        let network = place.network_at;
        if place.network == Network::Ipv6 {
            let length = (place.end - network - 40) as u16;
            packet[network + 4..network + 6].copy_from_slice(&length.to_be_bytes());
        } else {
            let length = (place.end - network) as u16;
            packet[network + 2..network + 4].copy_from_slice(&length.to_be_bytes());
            packet[network + 10..network + 12].fill(0);
            let sum = Sum::ZERO.bytes(&packet[network..place.transport_at]);
            packet[network + 10..network + 12].copy_from_slice(&sum.finish());
        }
        if last.pushes {
            packet[place.transport_at + 13] |= PSH;
        }
        write_pseudo_sum(packet, &place);
        let offload = Offload {
            checksum_start: place.transport_at as u16,
            checksum_offset: place.field as u16,
            segmentation: Some(Segmentation {
                tcp: true,
                congestion: false,
                segment_bytes: first.payload() as u16,
            }),
        };
        // The length of the headers that it says is bounded by this frame, which has them all.
        self.headers[at] = offload.header(packet, &place);
        self.payload_at[at] = place.payload_at as u16;
        self.frames[at] = count as u8;
        count
    }
}

/// A TCP segment with payload that may be part of a run.
#[derive(Clone, Copy, Debug)]
struct Segment {
    place: Place,
    sequence: u32,
    identification: u16,
    pushes: bool,
}

impl Segment {
    /// `None` for all that cutting would not give back as it is.
    fn of(pool: &FramePool, frame: &Frame, mtu: usize) -> Option<Segment> {
        let packet = pool.bytes(frame);
        if frame.is_offloaded() || packet.len() > mtu + ETHERNET_BYTES {
            return None;
        }
        let place = place(packet)?;
        let transport = packet.get(place.transport_at..place.payload_at)?;
        let flags = *transport.get(13)?;
        let header_bytes = if place.network == Network::Ipv6 {
            40
        } else {
            20
        };
        let fits = place.tcp
            && place.network_at == ETHERNET_BYTES
            && place.transport_at == place.network_at + header_bytes
            && place.payload_at < place.end
            && place.end == packet.len()
            && flags & !PSH == ACK;
        if !fits {
            return None;
        }
        let network = &packet[place.network_at..place.transport_at];
        let identification = match place.network {
            Network::Ipv6 => 0,
            _ => u16::from_be_bytes([network[4], network[5]]),
        };
        Some(Segment {
            place,
            sequence: u32::from_be_bytes(*transport.get(4..8)?.first_chunk()?),
            identification,
            pushes: flags & PSH != 0,
        })
    }

    fn payload(&self) -> usize {
        self.place.end - self.place.payload_at
    }

    /// Whether it is the one at this place of a run, with so much payload before it.
    fn follows(&self, first: &Segment, number: usize, payload: usize) -> bool {
        let identification = match self.place.network {
            Network::Ipv6 => 0,
            // A sender that does not count its packets has its numbers changed by the cutting.
            _ => first.identification.wrapping_add(number as u16),
        };
        self.place.network == first.place.network
            && self.place.payload_at == first.place.payload_at
            && self.payload() <= first.payload()
            && self.identification == identification
            && self.sequence == first.sequence.wrapping_add(payload as u32)
    }

    /// Whether all else in the headers is alike: `packet` and `other` are this and the first.
    fn has_headers_of(&self, first: &Segment, packet: &[u8], other: &[u8]) -> bool {
        let transport = self.place.transport_at;
        let network = self.place.network_at;
        let alike = |from: usize, to: usize| packet.get(from..to) == other.get(from..to);
        let network_alike = if self.place.network == Network::Ipv6 {
            alike(0, network + 4) && alike(network + 6, transport)
        } else {
            alike(0, network + 2)
                && alike(network + 6, network + 10)
                && alike(network + 12, transport)
        };
        network_alike
            // Ports; the acknowledgement and the header's length; the window; the urgent pointer and options.
            && alike(transport, transport + 4)
            && alike(transport + 8, transport + 13)
            && alike(transport + 14, transport + 16)
            && alike(transport + 18, first.place.payload_at)
    }

    /// Whether its checksums are right.
    fn is_valid(&self, packet: &[u8]) -> bool {
        let place = &self.place;
        let header = packet[place.network_at..].first_chunk::<20>();
        (place.network == Network::Ipv6 || header.is_some_and(checksum::is_valid_ipv4_header))
            && pseudo_sum(packet, place)
                .bytes(&packet[place.transport_at..place.end])
                .is_valid()
    }
}

#[cfg(test)]
mod tests;
