//! The floor: a NAT loop written manually, without any framework, as fast as we can make it.
//!
//! [`TwoWay`] does the work of the product's NAT on a packet of a known flow: check Ethernet and IPv4
//! (checksum, lengths, no fragment, TTL), find the session, refresh its idle time, follow the TCP state,
//! rewrite address and port of source or destination with both checksums (RFC 1624), decrement the TTL, address the
//! frame to its next hop. [`OneWay`] is the smaller loop that the earlier floor was: outbound UDP,
//! source rewritten, TTL and Ethernet addresses left alone.
//!
//! What makes it fast: bursts of 32 in two passes (parse and prefetch, then rewrite); the next burst's frames
//! prefetched; 32-byte slots on huge pages, so a probe is one cache line; both directions of a session in slots of their
//! own, so each packet probes once; checksum differences computed when the session is made; no branch that random
//! traffic makes unpredictable. What it does not do: new flows while it runs, expiry, counters, replication, reasons for drops.

use std::hint::select_unpredictable;

use crate::memory::{HugeSlice, Zeroed, prefetch};
use crate::traffic::{Buffer, Direction, Endpoint, Session, SmallFrame};

pub use on_ports::OnPorts;

/// Packets of a burst.
pub const BURST: usize = 32;
/// What a burst is asked to do with each packet.
pub type Verdicts = [Verdict; BURST];
/// The floor that does the product's work.
pub type TwoWay = Nat<true>;
/// The floor for outbound UDP.
pub type OneWay = Nat<false>;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not sent on: malformed, a fragment, at the end of its TTL, or of no known session.
    Drop,
    /// Sent on towards the outside.
    ToOutside,
    /// Sent on towards the inside.
    ToInside,
}

/// The hand-written NAT; `TWO_WAY` tells [`TwoWay`] from [`OneWay`].
pub struct Nat<const TWO_WAY: bool> {
    slots: HugeSlice<Slot>,
    mask: usize,
    sessions: usize,
    /// Destination and source MAC of a frame, by direction.
    hops: [[u8; 12]; 2],
}

/// A direction of a session: key and value in half a cache line. `ports_protocol` is zero in a free slot.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
struct Slot {
    /// Source and destination address, as they stand in the packet, read little-endian.
    addresses: u64,
    /// Source and destination port likewise, the protocol above them.
    ports_protocol: u64,
    /// What replaces the source (outbound) or the destination (inbound), in the packet's byte order.
    address: u32,
    port: u16,
    header_difference: u16,
    transport_difference: u16,
    connection: u8,
    inbound: u8,
    /// Ticks at the last refresh.
    seen: u32,
}

// SAFETY: integers only; all zeros is a free slot, and it is `Copy`.
unsafe impl Zeroed for Slot {}

const UDP: u64 = 17;
const TCP: u64 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// States of a connection that are not `ESTABLISHED` take the long way, a packet each.
const ESTABLISHED: u8 = 0;
const OPENING: u8 = 1;
const CLOSED_OUTBOUND: u8 = 2;
const CLOSED_INBOUND: u8 = 4;
const RESET: u8 = 8;
/// Ticks after which a packet refreshes its session: fewer writes than packets, none for most.
const REFRESH_TICKS: u32 = 10;
/// TTL and protocol are one word of the header; less one, in one's complement.
const TTL_DIFFERENCE: u16 = 0xfffe;
/// The key of a packet that must not find a session.
const NO_KEY: u64 = u64::MAX;

const GATEWAY: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const OUTSIDE_HOP: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 0x01];
const INSIDE_HOP: [u8; 6] = [0x02, 0, 0, 0, 0x0b, 0x01];

impl<const TWO_WAY: bool> Nat<TWO_WAY> {
    /// Room for `sessions` sessions at half load: 128 bytes each (`OneWay`: 64), rounded up to a power of two.
    pub fn new(sessions: u32) -> Self {
        let directions = if TWO_WAY { 2 } else { 1 };
        let slots = (sessions.max(1) as usize * directions * 2).next_power_of_two();
        let hop = |next: [u8; 6]| {
            std::array::from_fn(|index| {
                if index < 6 {
                    next[index]
                } else {
                    GATEWAY[index - 6]
                }
            })
        };
        Self {
            slots: HugeSlice::new(slots),
            mask: slots - 1,
            sessions: 0,
            hops: [hop(OUTSIDE_HOP), hop(INSIDE_HOP)],
        }
    }

    /// Gives `session` the outside endpoint. Panics beyond the room asked for.
    pub fn bind(&mut self, session: &Session, outside: Endpoint, now_ticks: u32) {
        self.sessions += 1;
        assert!(
            self.sessions * 2 <= self.slots.len(),
            "more sessions than the floor was made for"
        );
        let protocol = session.protocol.number();
        self.insert(
            protocol,
            session.inside,
            session.remote,
            Direction::Outbound,
            outside,
            now_ticks,
        );
        if TWO_WAY {
            self.insert(
                protocol,
                session.remote,
                outside,
                Direction::Inbound,
                session.inside,
                now_ticks,
            );
        }
    }

    /// Handles all buffers, burst by burst; tells how many packets it sends on.
    pub fn pass(&mut self, buffers: &mut [Buffer], lengths: &[u16], now_ticks: u32) -> u32 {
        let mut verdicts = [Verdict::Drop; BURST];
        let mut forwarded = 0;
        let mut rest = buffers;
        let mut lengths = lengths;
        while !rest.is_empty() {
            let count = rest.len().min(BURST);
            let (burst, ahead) = rest.split_at_mut(count);
            let (now_lengths, later_lengths) = lengths.split_at(count);
            forwarded += self.burst(burst, now_lengths, ahead, now_ticks, &mut verdicts);
            rest = ahead;
            lengths = later_lengths;
        }
        forwarded
    }

    /// Handles at most [`BURST`] packets in place and tells how many are sent on. `ahead` are the buffers that come
    /// next, to be prefetched.
    #[inline]
    pub fn burst(
        &mut self,
        burst: &mut [Buffer],
        lengths: &[u16],
        ahead: &[Buffer],
        now_ticks: u32,
        verdicts: &mut Verdicts,
    ) -> u32 {
        let mut keys = [(0u64, 0u64, 0usize); BURST];
        for buffer in ahead.iter().take(BURST) {
            prefetch(buffer.frame());
        }
        for ((buffer, length), key) in burst.iter().zip(lengths).zip(&mut keys) {
            let (addresses, ports_protocol) = key_of::<TWO_WAY>(buffer.frame(), *length);
            let home = hash(addresses, ports_protocol) & self.mask;
            prefetch(&self.slots[home]);
            *key = (addresses, ports_protocol, home);
        }
        let mut forwarded = 0;
        for ((buffer, (addresses, ports_protocol, home)), verdict) in
            burst.iter_mut().zip(&keys).zip(verdicts)
        {
            *verdict = match self.find(*addresses, *ports_protocol, *home) {
                Some(place) => {
                    forwarded += 1;
                    self.translate(place, buffer.frame_mut(), now_ticks)
                }
                None => Verdict::Drop,
            };
        }
        forwarded
    }

    #[inline(always)]
    fn find(&self, addresses: u64, ports_protocol: u64, home: usize) -> Option<usize> {
        let mut place = home;
        loop {
            let slot = &self.slots[place];
            if slot.addresses == addresses && slot.ports_protocol == ports_protocol {
                return Some(place);
            }
            if slot.ports_protocol == 0 {
                return None;
            }
            place = (place + 1) & self.mask;
        }
    }

    #[inline(always)]
    fn translate(&mut self, place: usize, frame: &mut SmallFrame, now_ticks: u32) -> Verdict {
        let slot = &mut self.slots[place];
        if now_ticks.wrapping_sub(slot.seen) >= REFRESH_TICKS {
            slot.seen = now_ticks;
        }
        let tcp = TWO_WAY && slot.ports_protocol >> 32 == TCP;
        if TWO_WAY {
            let mask = select_unpredictable(tcp, FIN | SYN | RST, 0);
            if (frame[47] & mask) | slot.connection != ESTABLISHED {
                return self.translate_unusual(place, frame, now_ticks);
            }
        }
        rewrite::<TWO_WAY>(slot, tcp, &self.hops, frame)
    }

    /// Connections that open, close or are reset: both directions follow.
    #[cold]
    #[inline(never)]
    fn translate_unusual(
        &mut self,
        place: usize,
        frame: &mut SmallFrame,
        now_ticks: u32,
    ) -> Verdict {
        let slot = self.slots[place];
        let flags = frame[47];
        let mut connection = slot.connection;
        if flags & RST != 0 {
            connection |= RESET;
        } else if flags & FIN != 0 {
            connection |= if slot.inbound == 0 {
                CLOSED_OUTBOUND
            } else {
                CLOSED_INBOUND
            };
        } else if flags & SYN != 0 {
            connection = OPENING;
        } else if connection == OPENING {
            connection = ESTABLISHED;
        }
        let verdict =
            rewrite::<TWO_WAY>(&slot, slot.ports_protocol >> 32 == TCP, &self.hops, frame);
        self.slots[place].connection = connection;
        self.slots[place].seen = now_ticks;
        // The other direction's packets are this translated packet's answers.
        let addresses = read_u64(frame, 26).rotate_left(32);
        let ports = read_u32(frame, 34).rotate_left(16);
        let ports_protocol = u64::from(ports) | slot.ports_protocol & !0xffff_ffff;
        if let Some(other) = self.find(
            addresses,
            ports_protocol,
            hash(addresses, ports_protocol) & self.mask,
        ) {
            self.slots[other].connection = connection;
            self.slots[other].seen = now_ticks;
        }
        verdict
    }

    fn insert(
        &mut self,
        protocol: u8,
        source: Endpoint,
        destination: Endpoint,
        direction: Direction,
        new: Endpoint,
        now_ticks: u32,
    ) {
        let address = |endpoint: Endpoint| u64::from(endpoint.address.swap_bytes());
        let port = |endpoint: Endpoint| u64::from(endpoint.port.swap_bytes());
        let addresses = address(source) | address(destination) << 32;
        let ports_protocol = port(source) | port(destination) << 16 | u64::from(protocol) << 32;
        let old = if direction == Direction::Outbound {
            source
        } else {
            destination
        };
        let of_addresses = difference(
            &words(old.address.swap_bytes()),
            &words(new.address.swap_bytes()),
        );
        let of_ports = difference(&[old.port.swap_bytes()], &[new.port.swap_bytes()]);
        let mut place = hash(addresses, ports_protocol) & self.mask;
        while self.slots[place].ports_protocol != 0 {
            place = (place + 1) & self.mask;
        }
        self.slots[place] = Slot {
            addresses,
            ports_protocol,
            address: new.address.swap_bytes(),
            port: new.port.swap_bytes(),
            header_difference: if TWO_WAY {
                fold(u32::from(of_addresses) + u32::from(TTL_DIFFERENCE))
            } else {
                of_addresses
            },
            transport_difference: fold(u32::from(of_addresses) + u32::from(of_ports)),
            connection: ESTABLISHED,
            inbound: u8::from(direction == Direction::Inbound),
            seen: now_ticks,
        };
    }
}

/// The key of a packet, or one that finds nothing if the packet is not to be translated. No branches: the
/// checks of a burst run while its slots are being fetched.
#[inline(always)]
fn key_of<const TWO_WAY: bool>(frame: &SmallFrame, length: u16) -> (u64, u64) {
    let ethernet_and_version = read_u32(frame, 12) & 0x00ff_ffff;
    let protocol = u64::from(frame[23]);
    let total = u16::from_be_bytes([frame[16], frame[17]]);
    // 40 for TCP (6), 28 for UDP (17), without a branch: only bit 1 tells. Others find no session anyway.
    let needed = if TWO_WAY {
        28 + (u16::from(frame[23]) & 2) * 6
    } else {
        28
    };
    let fine = (ethernet_and_version == 0x0045_0008)
        & (total >= needed)
        & (u32::from(length) >= u32::from(total) + 14)
        & (read_u16(frame, 20) & 0xff3f == 0)
        & (!TWO_WAY | (frame[22] > 1))
        & (TWO_WAY | (protocol == UDP))
        & header_sum_is_right(frame);
    let addresses = read_u64(frame, 26);
    let ports_protocol = u64::from(read_u32(frame, 34)) | protocol << 32;
    (addresses, if fine { ports_protocol } else { NO_KEY })
}

#[inline(always)]
fn rewrite<const TWO_WAY: bool>(
    slot: &Slot,
    tcp: bool,
    hops: &[[u8; 12]; 2],
    frame: &mut SmallFrame,
) -> Verdict {
    let inbound = if TWO_WAY { slot.inbound & 1 } else { 0 };
    // The matched slot holds what the packet's own addresses and ports are.
    let shift = u32::from(inbound) * 32;
    let addresses = slot.addresses & !(0xffff_ffff << shift) | u64::from(slot.address) << shift;
    let shift = u32::from(inbound) * 16;
    let ports = slot.ports_protocol as u32 & !(0xffff << shift) | u32::from(slot.port) << shift;
    frame[26..34].copy_from_slice(&addresses.to_le_bytes());
    frame[34..38].copy_from_slice(&ports.to_le_bytes());

    let ttl_and_checksum = read_u32(frame, 22);
    let checksum = apply((ttl_and_checksum >> 16) as u16, slot.header_difference);
    let ttl_and_protocol = (ttl_and_checksum & 0xffff) - u32::from(TWO_WAY);
    frame[22..26].copy_from_slice(&(ttl_and_protocol | u32::from(checksum) << 16).to_le_bytes());

    let at = select_unpredictable(tcp, 50, 40);
    let old = read_u16(frame, at);
    let mut new = apply(old, slot.transport_difference);
    // Asked in this order because zeros are rare and the transport is anyone's guess.
    if (old == 0) | (new == 0) {
        new = checksum_of_zero(tcp, old, new);
    }
    frame[at..at + 2].copy_from_slice(&new.to_le_bytes());
    if TWO_WAY {
        frame[..12].copy_from_slice(&hops[usize::from(inbound)]);
    }
    if inbound == 0 {
        Verdict::ToOutside
    } else {
        Verdict::ToInside
    }
}

/// RFC 768: a zero in UDP means that there is no checksum, and a sum that comes to zero is sent as all ones.
#[cold]
#[inline(never)]
fn checksum_of_zero(tcp: bool, old: u16, new: u16) -> u16 {
    match (tcp, old, new) {
        (false, 0, _) => 0,
        (false, _, 0) => 0xffff,
        _ => new,
    }
}

#[inline(always)]
fn hash(addresses: u64, ports_protocol: u64) -> usize {
    let product = u128::from(addresses ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(ports_protocol ^ 0xe703_7ed1_a0b4_28db);
    (product as u64 ^ (product >> 64) as u64) as usize
}

/// RFC 1071 over the 20 bytes at 14, in the packet's byte order: all ones if right.
#[inline(always)]
fn header_sum_is_right(frame: &SmallFrame) -> bool {
    let (first, second, third) = (
        read_u64(frame, 14),
        read_u64(frame, 22),
        read_u32(frame, 30),
    );
    let (sum, carry) = first.overflowing_add(second);
    let (sum, again) = sum.overflowing_add(u64::from(third) + u64::from(carry));
    let sum = sum + u64::from(again);
    // Adding the halves crosswise leaves their one's complement sum, carry included, in the upper half.
    fold((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32) == 0xffff
}

/// One's complement of the old words plus the new ones (RFC 1624, equation 3).
fn difference(old: &[u16], new: &[u16]) -> u16 {
    fold(
        old.iter()
            .map(|word| u32::from(!word))
            .chain(new.iter().map(|word| u32::from(*word)))
            .sum(),
    )
}

#[inline(always)]
fn apply(checksum: u16, difference: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(difference))
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

fn words(address: u32) -> [u16; 2] {
    [address as u16, (address >> 16) as u16]
}

#[inline(always)]
fn read_u16(frame: &SmallFrame, at: usize) -> u16 {
    u16::from_le_bytes([frame[at], frame[at + 1]])
}

#[inline(always)]
fn read_u32(frame: &SmallFrame, at: usize) -> u32 {
    u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}

#[inline(always)]
fn read_u64(frame: &SmallFrame, at: usize) -> u64 {
    u64::from(read_u32(frame, at)) | u64::from(read_u32(frame, at + 4)) << 32
}

mod on_ports;
#[cfg(test)]
mod tests;
