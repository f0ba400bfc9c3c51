//! Tests of the floor: what leaves it is what a frame built again would be.

use super::*;
use crate::traffic::frames::{checksums_are_right, frame_between};
use crate::traffic::{Buffers, FRAME_BYTES, Flows, Protocol, Random, SmallFrame, Templates};

struct Rig<const TWO_WAY: bool> {
    nat: Nat<TWO_WAY>,
    flows: Flows,
    buffers: Buffers,
}

impl<const TWO_WAY: bool> Rig<TWO_WAY> {
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
        let (addresses, ports) = key_of::<TWO_WAY>(buffer.all().0[0].frame(), FRAME_BYTES as u16);
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
fn both_directions_leave_as_frames_built_again() {
    let mut desk = Rig::<true>::new(Flows::of_both(2_000, 21));
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
        let (verdict, left) = desk.send(&frame_between(session.protocol, session.remote, outside));
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
    let mut desk = Rig::<false>::new(Flows::of(Protocol::Udp, 2_000, 21));
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
    let mut desk = Rig::<true>::new(Flows::of_both(10, 21));
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
    let mut desk = Rig::<true>::new(Flows::of_both(10, 21));
    let mut random = Random::new(2);
    for _ in 0..20_000 {
        let frame: SmallFrame = std::array::from_fn(|_| random.bits() as u8);
        assert_eq!(desk.send(&frame).0, Verdict::Drop);
    }
}

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    let mut desk = Rig::<true>::new(Flows::of(Protocol::Udp, 10, 21));
    let session = desk.flows.sessions()[0];
    let mut frame = frame_between(Protocol::Udp, session.inside, session.remote);
    frame[40..42].fill(0);
    let (verdict, left) = desk.send(&frame);
    assert_eq!((verdict, &left[40..42]), (Verdict::ToOutside, &[0, 0][..]));
}

#[test]
fn the_other_direction_learns_that_a_connection_opens_and_closes() {
    let mut desk = Rig::<true>::new(Flows::of(Protocol::Tcp, 10, 21));
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
    let mut desk = Rig::<true>::new(Flows::of(Protocol::Udp, 10, 21));
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
    let mut desk = Rig::<true>::new(flows);
    let mut buffers = Buffers::new(1_001);
    buffers.fill(&templates, &mut Random::new(8));
    let (all, lengths) = buffers.all();
    assert_eq!(desk.nat.pass(all, lengths, 1), 1_001);
    assert!(all.iter().all(|buffer| checksums_are_right(buffer.frame())));
}
