//! Frames of 64 bytes and the buffers that a packet loop receives them in.

use super::flows::{Endpoint, Flows, Protocol, Session};
use super::random::Random;
use crate::memory::{HugeSlice, Zeroed};

/// Bytes of a generated frame.
pub const FRAME_BYTES: usize = 64;
/// Bytes before a frame in its buffer.
pub const HEADROOM_BYTES: usize = 128;
/// Bytes from one buffer to the next.
pub const STRIDE_BYTES: usize = 2_048;

/// An Ethernet frame of 64 bytes.
pub type SmallFrame = [u8; FRAME_BYTES];

/// Which way a packet of a session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the inside endpoint to the remote one.
    Outbound,
    /// From the remote endpoint to the outside one.
    Inbound,
}

/// Where frames come from and go to, in [`frame`].
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const HOST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x99];
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const TTL: u8 = 64;
const TCP_ACK: u8 = 0x10;

/// A frame of the session as it reaches the NAT, both checksums right. TCP segments carry ACK alone, as an
/// established connection's do. `outside` is the endpoint that the NAT gave the session.
pub fn frame(session: &Session, direction: Direction, outside: Endpoint) -> SmallFrame {
    match direction {
        Direction::Outbound => frame_between(session.protocol, session.inside, session.remote),
        Direction::Inbound => frame_between(session.protocol, session.remote, outside),
    }
}

/// A frame from one endpoint to another.
pub fn frame_between(protocol: Protocol, source: Endpoint, destination: Endpoint) -> SmallFrame {
    let mut frame = [0u8; FRAME_BYTES];
    frame[0..6].copy_from_slice(&GATEWAY_MAC);
    frame[6..12].copy_from_slice(&HOST_MAC);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);

    let header = &mut frame[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((FRAME_BYTES - ETHERNET_BYTES) as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = TTL;
    header[9] = protocol.number();
    header[12..16].copy_from_slice(&source.address.to_be_bytes());
    header[16..20].copy_from_slice(&destination.address.to_be_bytes());
    let checksum = !sum_words(header, 0);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());

    let transport = &mut frame[ETHERNET_BYTES + IPV4_BYTES..];
    let length = transport.len() as u16;
    transport[0..2].copy_from_slice(&source.port.to_be_bytes());
    transport[2..4].copy_from_slice(&destination.port.to_be_bytes());
    let place = match protocol {
        Protocol::Udp => {
            transport[4..6].copy_from_slice(&length.to_be_bytes());
            6
        }
        Protocol::Tcp => {
            transport[12] = 5 << 4;
            transport[13] = TCP_ACK;
            transport[14..16].copy_from_slice(&[0xff, 0xff]);
            16
        }
    };
    let checksum = match !transport_sum(&frame) {
        0 if protocol == Protocol::Udp => 0xffff,
        checksum => checksum,
    };
    frame[ETHERNET_BYTES + IPV4_BYTES + place..][..2].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Whether the IPv4 header's and the transport's checksum of an option-less frame are right.
pub fn checksums_are_right(frame: &[u8]) -> bool {
    sum_words(&frame[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES], 0) == 0xffff
        && transport_sum(frame) == 0xffff
}

/// One's complement sum of pseudo header and transport (RFC 768, RFC 9293).
fn transport_sum(frame: &[u8]) -> u16 {
    let header = &frame[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES];
    let transport = &frame[ETHERNET_BYTES + IPV4_BYTES..];
    let pseudo = u32::from(header[9]) + transport.len() as u32;
    sum_words(transport, pseudo + u32::from(sum_words(&header[12..20], 0)))
}

fn sum_words(bytes: &[u8], start: u32) -> u16 {
    let mut sum = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .fold(start, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// One receive buffer: 2 KiB, the frame after [`HEADROOM_BYTES`].
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Buffer {
    bytes: [u8; STRIDE_BYTES],
}

// SAFETY: an array of bytes; all zeros is a value, and it is `Copy`.
unsafe impl Zeroed for Buffer {}

impl Buffer {
    /// The room for a frame: whatever its length, at least `FRAME_BYTES`.
    #[inline(always)]
    pub fn room(&self) -> &[u8; STRIDE_BYTES - HEADROOM_BYTES] {
        self.bytes
            .last_chunk()
            .expect("the headroom is smaller than the buffer")
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn room_mut(&mut self) -> &mut [u8; STRIDE_BYTES - HEADROOM_BYTES] {
        self.bytes
            .last_chunk_mut()
            .expect("the headroom is smaller than the buffer")
    }

    /// The generated frame.
    #[inline(always)]
    pub fn frame(&self) -> &SmallFrame {
        self.room()
            .first_chunk()
            .expect("a frame is smaller than its room")
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn frame_mut(&mut self) -> &mut SmallFrame {
        self.room_mut()
            .first_chunk_mut()
            .expect("a frame is smaller than its room")
    }

    /// Receives a frame.
    #[inline(always)]
    pub fn receive(&mut self, frame: &SmallFrame) {
        *self.frame_mut() = *frame;
    }
}

/// A ring of receive buffers on huge pages. 4,096 of them are more than the second-level cache holds at this
/// stride, so a loop finds their frames where a network card would have put them: in the last level.
pub struct Buffers {
    buffers: HugeSlice<Buffer>,
    lengths: Vec<u16>,
}

impl Buffers {
    /// `count` empty buffers.
    pub fn new(count: u32) -> Self {
        Self {
            buffers: HugeSlice::new(count as usize),
            lengths: vec![0; count as usize],
        }
    }

    /// Receives into every buffer a frame drawn at random from `templates`. Some 20 ns each; not to be timed.
    pub fn fill(&mut self, templates: &Templates, random: &mut Random) {
        for buffer in self.buffers.iter_mut() {
            buffer.receive(templates.draw(random));
        }
        self.lengths.fill(FRAME_BYTES as u16);
    }

    /// Receives these frames into the buffers from `first` on, as a port does burst by burst.
    #[inline]
    pub fn receive<'a>(&mut self, first: usize, frames: impl Iterator<Item = &'a SmallFrame>) {
        let places = self.buffers[first..]
            .iter_mut()
            .zip(&mut self.lengths[first..]);
        for ((buffer, length), frame) in places.zip(frames) {
            buffer.receive(frame);
            *length = FRAME_BYTES as u16;
        }
    }

    /// All buffers in the order of receiving, and the bytes received into each.
    pub fn all(&mut self) -> (&mut [Buffer], &[u16]) {
        (&mut self.buffers, &self.lengths)
    }
}

/// The frames that can come: one a session and direction.
pub struct Templates {
    frames: HugeSlice<SmallFrame>,
}

impl Templates {
    /// Frames of both directions of every session; `outside` tells what the NAT gave session `index`.
    pub fn both_ways(flows: &Flows, mut outside: impl FnMut(u32) -> Endpoint) -> Self {
        let mut frames = HugeSlice::<SmallFrame>::new(flows.sessions().len() * 2);
        for ((index, session), pair) in (0..).zip(flows.sessions()).zip(frames.chunks_exact_mut(2))
        {
            let outside = outside(index);
            pair[0] = frame(session, Direction::Outbound, outside);
            pair[1] = frame(session, Direction::Inbound, outside);
        }
        Self { frames }
    }

    /// Outbound frames alone.
    pub fn outbound(flows: &Flows) -> Self {
        let mut frames = HugeSlice::<SmallFrame>::new(flows.sessions().len());
        for (session, place) in flows.sessions().iter().zip(frames.iter_mut()) {
            *place = frame_between(session.protocol, session.inside, session.remote);
        }
        Self { frames }
    }

    /// One at random.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> &SmallFrame {
        &self.frames[random.below(self.frames.len() as u64) as usize]
    }

    /// All of them: session by session, outbound first where both ways are there.
    pub fn all(&self) -> &[SmallFrame] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_and_their_checksums_right() {
        let flows = Flows::of_both(500, 11);
        let templates = Templates::both_ways(&flows, |index| flows.outside(index));
        assert_eq!(templates.all().len(), 1_000);
        assert!(
            templates
                .all()
                .iter()
                .all(|frame| checksums_are_right(frame))
        );
        let mut broken = templates.all()[0];
        broken[30] ^= 1;
        assert!(!checksums_are_right(&broken));
    }

    #[test]
    fn buffers_receive_at_random_and_both_directions_mix() {
        let flows = Flows::of_both(1_000, 11);
        let templates = Templates::both_ways(&flows, |index| flows.outside(index));
        let mut buffers = Buffers::new(4_096);
        buffers.fill(&templates, &mut Random::new(1));
        let outbound = buffers
            .all()
            .0
            .iter()
            .filter(|buffer| buffer.frame()[26] == 10)
            .count();
        assert!((1_900..2_200).contains(&outbound), "{outbound}");
    }
}
