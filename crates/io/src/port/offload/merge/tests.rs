//! What is merged and cut again is what it was.

use super::super::checksum::write_checksum;
use super::super::segments::Segments;
use super::*;
use crate::frame::Burst;

const MTU: usize = 1500;

/// A segment of one connection: `number` packets and `offset` bytes into it.
fn segment(version: u8, number: u16, offset: u32, payload: usize, flags: u8) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let tcp_bytes = 32 + payload;
    if version == 4 {
        packet.extend([8, 0, 0x45, 0]);
        packet.extend(((20 + tcp_bytes) as u16).to_be_bytes());
        packet.extend(0xfffe_u16.wrapping_add(number).to_be_bytes());
        packet.extend([0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 198, 51, 100, 2]);
        let sum = Sum::ZERO.bytes(&packet[14..34]).finish();
        packet[24..26].copy_from_slice(&sum);
    } else {
        packet.extend([0x86, 0xdd, 0x60, 0, 0x12, 0x34]);
        packet.extend((tcp_bytes as u16).to_be_bytes());
        packet.extend([6, 64]);
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
    packet.extend([0x9c, 0x40, 0x14, 0x51]);
    packet.extend(0xffff_f000_u32.wrapping_add(offset).to_be_bytes());
    packet.extend([0, 0, 0, 9, 0x80, flags, 1, 0xf5, 0, 0, 0, 0]);
    // No-operation twice, then time stamps.
    packet.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8]);
    packet.extend((0..payload).map(|at| (offset as usize + at) as u8));
    let place = place(&packet).unwrap();
    write_checksum(&mut packet, &place);
    packet
}

/// So many segments of 1,400 bytes, and a shorter one that pushes.
fn stream(version: u8, full: u16) -> Vec<Vec<u8>> {
    let mut packets: Vec<_> = (0..full)
        .map(|number| segment(version, number, u32::from(number) * 1_400, 1_400, ACK))
        .collect();
    packets.push(segment(
        version,
        full,
        u32::from(full) * 1_400,
        333,
        ACK | PSH,
    ));
    packets
}

/// How many frames each message had, and the packets that an interface would make of them.
fn through(packets: &[Vec<u8>]) -> (Vec<usize>, Vec<Vec<u8>>) {
    let mut pool = FramePool::with_stride(128, 68 * 1024).unwrap();
    let mut burst = Burst::new();
    for packet in packets {
        burst.push(pool.allocate_copy(packet).unwrap()).unwrap();
    }
    let (runs, merged) = Runs::find(&mut pool, burst.as_mut_slice(), MTU);
    let (mut counts, mut made, mut at) = (Vec::new(), Vec::new(), 0);
    while at < burst.len() {
        let count = runs.frames(at);
        let frames = &burst.as_slice()[at..at + count];
        let mut message = pool.bytes(&frames[0]).to_vec();
        for frame in &frames[1..] {
            message.extend_from_slice(&pool.bytes(frame)[runs.payload_at(at)..]);
        }
        match Offload::parse(runs.header(at), &message).unwrap() {
            None => made.push(message),
            Some(offload) => {
                let cut = offload.segmentation.unwrap();
                let frame = pool.allocate_copy(&message).unwrap();
                let mut segments = Segments::new(&message, &offload, cut).unwrap();
                while let Some(segment) = segments.next(&mut pool, &frame) {
                    let segment = segment.unwrap();
                    made.push(pool.bytes(&segment).to_vec());
                    pool.release(segment);
                }
                pool.release(frame);
            }
        }
        counts.push(count);
        at += count;
    }
    let in_runs: usize = counts.iter().filter(|count| **count > 1).sum();
    assert_eq!(merged, in_runs);
    pool.release_all(&mut burst);
    assert_eq!(pool.in_use(), 0);
    (counts, made)
}

#[test]
fn segments_that_follow_each_other_leave_as_one_and_come_out_as_they_were() {
    for version in [4, 6] {
        // Sequence numbers and identifications wrap on the way.
        let packets = stream(version, 9);
        let (counts, made) = through(&packets);
        assert_eq!(counts, [10], "IPv{version}");
        assert_eq!(made, packets, "IPv{version}");
        let whole = through(&stream(version, 31));
        assert_eq!((whole.0, whole.1), (vec![32], stream(version, 31)));
    }
}

#[test]
fn a_push_or_a_short_segment_ends_a_run() {
    for (version, payload, flags) in [(4, 1_400, ACK | PSH), (6, 1_400, ACK | PSH), (4, 700, ACK)] {
        let mut packets = stream(version, 3);
        packets[1] = segment(version, 1, 1_400, payload, flags);
        let offset = 1_400 + payload as u32;
        packets[2] = segment(version, 2, offset, 1_400, ACK);
        packets[3] = segment(version, 3, offset + 1_400, 333, ACK);
        let (counts, made) = through(&packets);
        assert_eq!(counts, [2, 2]);
        assert_eq!(made, packets);
    }
}

#[test]
fn what_cutting_would_change_stays_as_it_is() {
    type Change = fn(&mut Vec<u8>);
    let again = |packet: &mut Vec<u8>| {
        if let Some(place) = place(packet) {
            packet[24..26].fill(0);
            let sum = Sum::ZERO.bytes(&packet[14..34]).finish();
            packet[24..26].copy_from_slice(&sum);
            write_checksum(packet, &place);
        }
    };
    let changes: [(&str, Change, bool); 14] = [
        ("a damaged payload", |packet| packet[900] ^= 1, false),
        ("a damaged checksum", |packet| packet[50] ^= 1, false),
        ("a damaged address", |packet| packet[28] ^= 1, false),
        ("a damaged header checksum", |packet| packet[24] ^= 1, false),
        ("another source", |packet| packet[29] = 9, true),
        ("another port", |packet| packet[35] = 9, true),
        ("another Ethernet address", |packet| packet[3] = 9, true),
        ("another time to live", |packet| packet[22] = 63, true),
        ("another class", |packet| packet[15] = 2, true),
        ("another identification", |packet| packet[19] ^= 8, true),
        ("another acknowledgement", |packet| packet[45] = 10, true),
        ("another window", |packet| packet[48] = 2, true),
        ("another time stamp", |packet| packet[61] = 9, true),
        ("another sequence number", |packet| packet[40] ^= 8, true),
    ];
    for (what, change, completed) in changes {
        let mut packets = stream(4, 4);
        change(&mut packets[2]);
        if completed {
            again(&mut packets[2]);
        }
        let (counts, made) = through(&packets);
        assert_eq!(counts, [2, 1, 2], "{what}");
        assert_eq!(made, packets, "{what}");
    }
}

#[test]
fn only_plain_data_is_merged() {
    for flags in [
        ACK | 1,
        ACK | 2,
        ACK | 4,
        ACK | 0x20,
        ACK | 0x40,
        ACK | 0x80,
        0,
    ] {
        let packets: Vec<_> = (0..4)
            .map(|number| segment(4, number, u32::from(number) * 100, 100, flags))
            .collect();
        assert_eq!(through(&packets), (vec![1; 4], packets), "{flags:#x}");
    }
    let acknowledgements = vec![segment(4, 0, 0, 0, ACK), segment(4, 1, 0, 0, ACK)];
    assert_eq!(through(&acknowledgements), (vec![1; 2], acknowledgements));
    // Longer than the MTU: the kernel has to say so of each.
    let long = vec![
        segment(4, 0, 0, 1_449, ACK),
        segment(4, 1, 1_449, 1_449, ACK),
    ];
    assert_eq!(through(&long), (vec![1; 2], long));
    // Padded to the shortest Ethernet frame.
    let mut padded = vec![segment(4, 0, 0, 1, ACK), segment(4, 1, 1, 1, ACK)];
    padded.iter_mut().for_each(|packet| packet.push(0));
    assert_eq!(through(&padded), (vec![1; 2], padded));
}

#[test]
fn two_connections_are_kept_apart() {
    let other: Vec<_> = stream(6, 2);
    let packets: Vec<_> = stream(4, 2).into_iter().chain(other).collect();
    let (counts, made) = through(&packets);
    assert_eq!(counts, [3, 3]);
    assert_eq!(made, packets);
}
