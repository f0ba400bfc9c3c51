//! A long packet cut into segments, as an interface would: each gets the headers, its part of the payload, its lengths, numbers
//! and checksums (as `net/ipv4/tcp_offload.c` and `udp_offload.c` of Linux do it).

use super::checksum::{Place, place, write_checksum};
use super::{Offload, Segmentation};
use crate::frame::{Frame, FramePool};
use crate::port::PortDrop;
use asterism_packet::Network;
use asterism_packet::checksum::Sum;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The segments of one packet, made one by one.
#[derive(Debug)]
pub(super) struct Segments {
    place: Place,
    segment_bytes: usize,
    /// Payload bytes that went into segments so far.
    done: usize,
    number: u16,
}

impl Segments {
    /// `None` if the packet is not what `offload` says: no TCP or UDP, or headers changed their places in a way not known here.
    pub(super) fn new(packet: &[u8], offload: &Offload, cut: Segmentation) -> Option<Segments> {
        let place = place(packet)?;
        let fits = place.tcp == cut.tcp
            && place.transport_at == usize::from(offload.checksum_start)
            && place.payload_at <= place.end
            && place.end <= packet.len();
        fits.then_some(Segments {
            place,
            segment_bytes: usize::from(cut.segment_bytes).max(1),
            done: 0,
            number: 0,
        })
    }

    /// The next segment, in a frame of its own, or why it could not be made; `None` after the last.
    pub(super) fn next(
        &mut self,
        pool: &mut FramePool,
        source: &Frame,
    ) -> Option<Result<Frame, PortDrop>> {
        let payload = self.place.end - self.place.payload_at;
        if self.done >= payload && self.number > 0 {
            return None;
        }
        let bytes = (payload - self.done).min(self.segment_bytes);
        let (from, number) = (self.done, self.number);
        self.done += bytes;
        self.number = self.number.wrapping_add(1);
        if bytes == 0 && payload > 0 {
            return None;
        }
        Some(self.make(pool, source, from, bytes, number, self.done >= payload))
    }

    fn make(
        &self,
        pool: &mut FramePool,
        source: &Frame,
        from: usize,
        bytes: usize,
        number: u16,
        last: bool,
    ) -> Result<Frame, PortDrop> {
        let place = &self.place;
        if place.payload_at + bytes > pool.packet_bytes_max() {
            return Err(PortDrop::TooLong);
        }
        let mut frame = pool.allocate().ok_or(PortDrop::NoBuffer)?;
        frame.set_port(source.port());
        let whole = pool.copy_part(source, 0..place.payload_at, &mut frame)
            && pool.copy_part(
                source,
                place.payload_at + from..place.payload_at + from + bytes,
                &mut frame,
            );
        if !whole {
            pool.release(frame);
            return Err(PortDrop::NotSegmented);
        }
        let packet = pool.bytes_mut(&mut frame);
        let end = place.payload_at + bytes;
        let ip = place.network_at;
        if place.network == Network::Ipv6 {
            let length = (end - ip - 40) as u16;
            packet[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
        } else {
            let length = (end - ip) as u16;
            packet[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
            let identification = u16::from_be_bytes([packet[ip + 4], packet[ip + 5]]);
            let identification = identification.wrapping_add(number);
            packet[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
            packet[ip + 10..ip + 12].fill(0);
            let header = Sum::ZERO.bytes(&packet[ip..place.transport_at]).finish();
            packet[ip + 10..ip + 12].copy_from_slice(&header);
        }
        let at = place.transport_at;
        if place.tcp {
            let sequence = &mut packet[at + 4..at + 8];
            let first = sequence
                .iter()
                .fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte));
            sequence.copy_from_slice(&first.wrapping_add(from as u32).to_be_bytes());
            if !last {
                packet[at + 13] &= !(FIN | PSH);
            }
            if number > 0 {
                packet[at + 13] &= !CWR;
            }
        } else {
            let length = (end - at) as u16;
            packet[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
        }
        let place = Place { end, ..*place };
        write_checksum(packet, &place);
        Ok(frame)
    }
}
