//! What a packet socket's port leaves to the kernel, and what it keeps from it: merged segments that the kernel cuts, and packets
//! that only the port is to see.

use crate::ports::permitted;
use crate::ports::suite::media::{PATIENCE, RawSocket, Stand};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{AfPacketConfig, AfPacketPort, Port, PortDrop};
use asterism_lab::Offloads;
use asterism_packet::TcpFlags;
use asterism_packet::build::{Header4, Segment, tcp4};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// So many segments of one connection, numbered as a sender numbers them.
fn stream(count: u16, payload: usize) -> Vec<Vec<u8>> {
    let (source, destination) = (Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2));
    let made = |number: u16| {
        let header = Header4 {
            identification: 100 + number,
            ..Header4::between(source, destination)
        };
        let segment = Segment {
            sequence: 1 + u32::from(number) * payload as u32,
            ..Segment::with_flags(TcpFlags::ACK)
        };
        let mut frame = vec![0; 54 + payload];
        let bytes: Vec<u8> = (0..payload).map(|at| (at as u16 ^ number) as u8).collect();
        tcp4(&header, 40_000, 80, &segment, &bytes, &mut frame).expect("it fits");
        frame
    };
    (0..count).map(made).collect()
}

/// What the far side sees of packets that leave by a port with `merges_segments`, and what the port counted.
fn sent_merged(
    packets: &[Vec<u8>],
    mtu: Option<u32>,
) -> (Vec<Vec<u8>>, asterism_io::port::PortStatistics) {
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    if let Some(mtu) = mtu {
        let line = format!("link set dev port0 mtu {mtu}");
        stand.near.ip(&[line]).unwrap();
    }
    let raw = stand
        .far
        .enter(|| RawSocket::open("far0"))
        .unwrap()
        .unwrap();
    let statistics = stand
        .near
        .enter(|| {
            let config = AfPacketConfig {
                merges_segments: true,
                ..AfPacketConfig::new("inside", "port0")
            };
            let mut port = AfPacketPort::open(&config).unwrap();
            let mut pool = FramePool::new(64).unwrap();
            let mut burst = Burst::new();
            for packet in packets {
                burst.push(pool.allocate_copy(packet).unwrap()).unwrap();
            }
            port.send(&mut pool, &mut burst);
            assert_eq!(pool.in_use(), 0);
            port.statistics()
        })
        .unwrap();
    let clock = MonotonicClock::new();
    let end = clock.now() + PATIENCE;
    let expected = statistics.sent_packets as usize;
    let mut seen = Vec::new();
    while seen.len() < expected && clock.now() < end {
        if let Ok(packet) = raw.receive()
            && packet.get(23) == Some(&6)
        {
            seen.push(packet);
        }
    }
    (seen, statistics)
}

#[test]
fn merged_segments_arrive_as_they_were() {
    if !permitted("merged segments") {
        return;
    }
    let mut packets = stream(32, 1_446);
    let (seen, statistics) = sent_merged(&packets, None);
    assert_eq!(statistics.segments_merged, 32);
    assert_eq!(statistics.sent_packets, 32);
    assert!(seen == packets, "they were cut in another way");
    // One that was damaged on its way stays so, and goes alone.
    packets[5][700] ^= 1;
    let (seen, statistics) = sent_merged(&packets, None);
    assert_eq!(statistics.segments_merged, 31);
    assert!(seen == packets, "the damaged one was changed");
}

#[test]
fn segments_beyond_the_mtu_are_refused_one_by_one() {
    if !permitted("merged segments and the MTU") {
        return;
    }
    let packets = stream(8, 1_446);
    let (seen, statistics) = sent_merged(&packets, Some(1_400));
    assert_eq!(statistics.dropped(PortDrop::BeyondMtu), 8);
    assert_eq!((statistics.sent_packets, seen.len()), (0, 0));
}

#[test]
fn an_exclusive_port_keeps_packets_from_the_kernel() {
    if !permitted("exclusive ports") {
        return;
    }
    let stand = Stand::new(Offloads::Off, Offloads::Off).unwrap();
    for (node, line) in [
        (&stand.near, "address add 10.78.0.1/24 dev port0"),
        (&stand.far, "address add 10.78.0.2/24 dev far0"),
    ] {
        node.ip(&[line]).unwrap();
    }
    let reported = stand.near.ip(&["link show dev port0"]).unwrap();
    let mut reports = reported.split_whitespace();
    let mac = reports
        .find(|report| *report == "link/ether")
        .and_then(|_| reports.next())
        .unwrap();
    // The kernel answers no question for the address once the port is open.
    stand
        .far
        .ip(&[format!("neighbour add 10.78.0.1 lladdr {mac} dev far0")])
        .unwrap();
    let sender = stand
        .far
        .enter(|| UdpSocket::bind("10.78.0.2:7001").unwrap())
        .unwrap();
    stand
        .near
        .enter(|| {
            let receiver = UdpSocket::bind("10.78.0.1:7000").unwrap();
            receiver
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let mut sent = 0_u32;
            // Whether the last datagram comes: one before it may come late.
            let mut hears = || {
                sent += 1;
                let number = sent.to_be_bytes();
                sender.send_to(&number, "10.78.0.1:7000").unwrap();
                loop {
                    let mut bytes = [0; 4];
                    match receiver.recv(&mut bytes) {
                        Ok(_) if bytes == number => return true,
                        Ok(_) => {}
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::WouldBlock);
                            return false;
                        }
                    }
                }
            };
            assert!((0..100).any(|_| hears()));
            let mut pool = FramePool::new(64).unwrap();
            let mut burst = Burst::new();
            for exclusive in [false, true] {
                let config = AfPacketConfig {
                    exclusive,
                    ..AfPacketConfig::new("inside", "port0")
                };
                let mut port = AfPacketPort::open(&config).unwrap();
                match exclusive {
                    true => assert!(!hears()),
                    false => assert!((0..100).any(|_| hears())),
                }
                let clock = MonotonicClock::new();
                let end = clock.now() + PATIENCE;
                while port.receive(&mut pool, &mut burst) == 0 {
                    assert!(clock.now() < end, "the port saw nothing");
                }
                pool.release_all(&mut burst);
            }
            // Gone with the port, once the kernel has come to it.
            assert!((0..100).any(|_| hears()));
        })
        .unwrap();
}
