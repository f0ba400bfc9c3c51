//! The floor: a NAT loop written by hand, without any framework, as fast as we can make it.
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

use crate::memory::{HugeSlice, Zeroed, prefetch};
use crate::traffic::{Buffer, Direction, Endpoint, Session};

/// Packets of a burst.
pub const BURST: usize = 32;
/// What a burst is told to do with each packet.
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
            let (addresses, ports_protocol) = key_of::<TWO_WAY>(buffer.room(), *length);
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
                    self.translate(place, buffer.room_mut(), now_ticks)
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
    fn translate(&mut self, place: usize, frame: &mut [u8; 1920], now_ticks: u32) -> Verdict {
        let slot = &mut self.slots[place];
        if now_ticks.wrapping_sub(slot.seen) >= REFRESH_TICKS {
            slot.seen = now_ticks;
        }
        let tcp = TWO_WAY && slot.ports_protocol >> 32 == TCP;
        if TWO_WAY {
            let mask = if tcp { FIN | SYN | RST } else { 0 };
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
        frame: &mut [u8; 1920],
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
fn key_of<const TWO_WAY: bool>(frame: &[u8; 1920], length: u16) -> (u64, u64) {
    let ethernet_and_version = read_u32(frame, 12) & 0x00ff_ffff;
    let protocol = u64::from(frame[23]);
    let total = u16::from_be_bytes([frame[16], frame[17]]);
    let needed = if TWO_WAY && protocol == TCP { 40 } else { 28 };
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
    frame: &mut [u8; 1920],
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

    let at = if tcp { 50 } else { 40 };
    let old = read_u16(frame, at);
    let mut new = apply(old, slot.transport_difference);
    if !tcp {
        // RFC 768: zero means that there is no checksum; a sum that comes to zero is sent as all ones.
        new = if new == 0 { 0xffff } else { new };
        new = if old == 0 { 0 } else { new };
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

#[inline(always)]
fn hash(addresses: u64, ports_protocol: u64) -> usize {
    let product = u128::from(addresses ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(ports_protocol ^ 0xe703_7ed1_a0b4_28db);
    (product as u64 ^ (product >> 64) as u64) as usize
}

/// RFC 1071 over the 20 bytes at 14, in the packet's byte order: all ones if right.
#[inline(always)]
fn header_sum_is_right(frame: &[u8; 1920]) -> bool {
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
fn read_u16(frame: &[u8; 1920], at: usize) -> u16 {
    u16::from_le_bytes([frame[at], frame[at + 1]])
}

#[inline(always)]
fn read_u32(frame: &[u8; 1920], at: usize) -> u32 {
    u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}

#[inline(always)]
fn read_u64(frame: &[u8; 1920], at: usize) -> u64 {
    u64::from(read_u32(frame, at)) | u64::from(read_u32(frame, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::frames::{checksums_are_right, frame_between};
    use crate::traffic::{Buffers, FRAME_BYTES, Flows, Protocol, Random, SmallFrame, Templates};

    struct Desk<const TWO_WAY: bool> {
        nat: Nat<TWO_WAY>,
        flows: Flows,
        buffers: Buffers,
    }

    impl<const TWO_WAY: bool> Desk<TWO_WAY> {
        fn new(flows: Flows) -> Self {
            let mut nat = Nat::new(flows.count());
            for (index, session) in (0..).zip(flows.sessions()) {
                nat.bind(session, flows.outside(index), 0);
            }
            Self {
                nat,
                flows,
                buffers: Buffers::new(1),
            }
        }

        fn send(&mut self, frame: &SmallFrame) -> (Verdict, SmallFrame) {
            let mut verdicts = [Verdict::Drop; BURST];
            self.buffers.receive(0, [frame].into_iter());
            let (buffers, lengths) = self.buffers.all();
            let forwarded = self.nat.burst(buffers, lengths, &[], 1, &mut verdicts);
            assert_eq!(forwarded == 1, verdicts[0] != Verdict::Drop);
            (verdicts[0], *buffers[0].frame())
        }

        fn slot(&self, frame: &SmallFrame) -> Slot {
            let mut buffer = Buffers::new(1);
            buffer.receive(0, [frame].into_iter());
            let (addresses, ports) =
                key_of::<TWO_WAY>(buffer.all().0[0].room(), FRAME_BYTES as u16);
            let place = self
                .nat
                .find(addresses, ports, hash(addresses, ports) & self.nat.mask);
            self.nat.slots[place.expect("a known session")]
        }
    }

    /// The frame as it must leave: rebuilt from the translated endpoints, not edited.
    fn expected(
        protocol: Protocol,
        source: Endpoint,
        destination: Endpoint,
        next_hop: [u8; 6],
    ) -> SmallFrame {
        let mut frame = frame_between(protocol, source, destination);
        frame[..6].copy_from_slice(&next_hop);
        frame[6..12].copy_from_slice(&GATEWAY);
        frame[22] = 63;
        // A TTL one lower makes the checksum 0x0100 higher, with the carry round the end.
        let checksum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x0100;
        let checksum = ((checksum & 0xffff) + (checksum >> 16)) as u16;
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn both_directions_leave_as_frames_built_anew() {
        let mut desk = Desk::<true>::new(Flows::of_both(2_000, 21));
        for index in 0..desk.flows.count() {
            let session = desk.flows.sessions()[index as usize];
            let outside = desk.flows.outside(index);
            let (verdict, left) = desk.send(&frame_between(
                session.protocol,
                session.inside,
                session.remote,
            ));
            assert_eq!(verdict, Verdict::ToOutside);
            assert!(checksums_are_right(&left));
            assert_eq!(
                left,
                expected(session.protocol, outside, session.remote, OUTSIDE_HOP)
            );
            let (verdict, left) =
                desk.send(&frame_between(session.protocol, session.remote, outside));
            assert_eq!(verdict, Verdict::ToInside);
            assert!(checksums_are_right(&left));
            assert_eq!(
                left,
                expected(session.protocol, session.remote, session.inside, INSIDE_HOP)
            );
        }
    }

    #[test]
    fn the_one_way_floor_rewrites_the_source_alone() {
        let mut desk = Desk::<false>::new(Flows::of(Protocol::Udp, 2_000, 21));
        for index in 0..desk.flows.count() {
            let session = desk.flows.sessions()[index as usize];
            let (verdict, left) = desk.send(&frame_between(
                Protocol::Udp,
                session.inside,
                session.remote,
            ));
            assert_eq!(verdict, Verdict::ToOutside);
            assert_eq!(
                left,
                frame_between(Protocol::Udp, desk.flows.outside(index), session.remote)
            );
        }
    }

    #[test]
    fn what_must_not_pass_is_dropped_and_left_as_it_was() {
        let mut desk = Desk::<true>::new(Flows::of_both(10, 21));
        let session = desk.flows.sessions()[0];
        let fine = frame_between(session.protocol, session.inside, session.remote);
        // (offset, byte, whether the header's checksum is to be made right again)
        let broken = [
            (12, 0x86, false),
            (14, 0x46, true),
            (17, 0xff, true),
            (17, 20, true),
            (20, 0x20, true),
            (21, 1, true),
            (22, 1, true),
            (24, !fine[24], false),
            (23, 1, true),
            (29, fine[29] ^ 1, true),
            (35, fine[35] ^ 1, false),
        ];
        for (offset, byte, repair) in broken {
            let mut frame = fine;
            frame[offset] = byte;
            if repair {
                let mut sum: u32 = (14..34)
                    .step_by(2)
                    .filter(|at| *at != 24)
                    .map(|at| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])))
                    .sum();
                while sum > 0xffff {
                    sum = (sum >> 16) + (sum & 0xffff);
                }
                frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            }
            assert_eq!(
                desk.send(&frame),
                (Verdict::Drop, frame),
                "byte {offset} = {byte}"
            );
        }
        assert_eq!(desk.send(&fine).0, Verdict::ToOutside);
    }

    #[test]
    fn any_bytes_are_handled() {
        let mut desk = Desk::<true>::new(Flows::of_both(10, 21));
        let mut random = Random::new(2);
        for _ in 0..20_000 {
            let frame: SmallFrame = std::array::from_fn(|_| random.bits() as u8);
            assert_eq!(desk.send(&frame).0, Verdict::Drop);
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_stays_without() {
        let mut desk = Desk::<true>::new(Flows::of(Protocol::Udp, 10, 21));
        let session = desk.flows.sessions()[0];
        let mut frame = frame_between(Protocol::Udp, session.inside, session.remote);
        frame[40..42].fill(0);
        let (verdict, left) = desk.send(&frame);
        assert_eq!((verdict, &left[40..42]), (Verdict::ToOutside, &[0, 0][..]));
    }

    #[test]
    fn the_other_direction_learns_that_a_connection_opens_and_closes() {
        let mut desk = Desk::<true>::new(Flows::of(Protocol::Tcp, 10, 21));
        let session = desk.flows.sessions()[0];
        let outbound = frame_between(Protocol::Tcp, session.inside, session.remote);
        let inbound = frame_between(Protocol::Tcp, session.remote, desk.flows.outside(0));
        let mut with_flags = |frame: &SmallFrame, flags: u8| {
            let mut frame = *frame;
            frame[47] = flags;
            let (verdict, left) = desk.send(&frame);
            assert_ne!(verdict, Verdict::Drop);
            assert_ne!(left, frame);
            (
                desk.slot(&outbound).connection,
                desk.slot(&inbound).connection,
            )
        };
        assert_eq!(with_flags(&outbound, SYN), (OPENING, OPENING));
        assert_eq!(with_flags(&inbound, 0x10), (ESTABLISHED, ESTABLISHED));
        assert_eq!(
            with_flags(&outbound, FIN),
            (CLOSED_OUTBOUND, CLOSED_OUTBOUND)
        );
        assert_eq!(
            with_flags(&inbound, FIN),
            (
                CLOSED_OUTBOUND | CLOSED_INBOUND,
                CLOSED_OUTBOUND | CLOSED_INBOUND
            )
        );
        let both = CLOSED_OUTBOUND | CLOSED_INBOUND | RESET;
        assert_eq!(with_flags(&outbound, RST), (both, both));
    }

    #[test]
    fn idle_time_is_refreshed_once_in_a_while() {
        let mut desk = Desk::<true>::new(Flows::of(Protocol::Udp, 10, 21));
        let session = desk.flows.sessions()[0];
        let frame = frame_between(Protocol::Udp, session.inside, session.remote);
        for (now, seen) in [
            (REFRESH_TICKS - 1, 0),
            (REFRESH_TICKS, REFRESH_TICKS),
            (REFRESH_TICKS + 1, REFRESH_TICKS),
        ] {
            desk.buffers.receive(0, [&frame].into_iter());
            let (buffers, lengths) = desk.buffers.all();
            assert_eq!(desk.nat.pass(buffers, lengths, now), 1);
            assert_eq!(desk.slot(&frame).seen, seen);
        }
    }

    #[test]
    fn a_pass_over_random_bursts_sends_every_packet_on() {
        let flows = Flows::of_both(5_000, 3);
        let templates = Templates::both_ways(&flows, |index| flows.outside(index));
        let mut desk = Desk::<true>::new(flows);
        let mut buffers = Buffers::new(1_001);
        buffers.fill(&templates, &mut Random::new(8));
        let (all, lengths) = buffers.all();
        assert_eq!(desk.nat.pass(all, lengths, 1), 1_001);
        assert!(all.iter().all(|buffer| checksums_are_right(buffer.frame())));
    }
}
