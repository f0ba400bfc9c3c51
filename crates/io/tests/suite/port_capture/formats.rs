//! Every variant of the formats.

use crate::port_capture::files::{
    Bytes, Pipe, collected, enhanced, interface, pcap, read, section,
};
use asterism_io::port::{CaptureWriter, PACKET_BYTES_MAX};
use asterism_placement::Time;
use proptest::prelude::*;

#[test]
fn pcap_of_every_byte_order_and_resolution() {
    let packet = [7u8; 61];
    for big in [false, true] {
        for (magic, expected_ns) in [
            (0xA1B2_C3D4, 5_000_123_000u64),
            (0xA1B2_3C4D, 5_000_000_123),
            (0xA1B2_CD34, 5_000_123_000),
        ] {
            let (packets, error) = read(&pcap(
                big,
                magic,
                1,
                &[(5, 123, &packet, 61), (5, 123, &packet[..60], 1500)],
            ));
            assert_eq!(error, None);
            let [(first, bytes), (second, _)] = &packets[..] else {
                panic!("{packets:?}")
            };
            assert_eq!(
                (first.timestamp_ns, first.original_length, first.truncated),
                (expected_ns, 61, false)
            );
            assert_eq!(bytes, &packet);
            assert_eq!((second.original_length, second.truncated), (1500, true));
            assert_eq!(first.time(), Time::from_micros(expected_ns / 1000));
        }
    }
}

#[test]
fn pcapng_of_every_block_that_has_packets_and_both_byte_orders() {
    let mut whole = Vec::new();
    for big in [false, true] {
        let mut file = Bytes {
            big,
            ..Bytes::default()
        };
        section(&mut file);
        interface(&mut file, 1, 0, 6, 0);
        interface(&mut file, 1, 40, 9, 10);
        interface(&mut file, 1, 0, 0x80 | 10, 0);
        interface(&mut file, 1, 0, 12, -1);
        enhanced(&mut file, 0, 7_000_001, &[1; 61], 61);
        enhanced(&mut file, 1, 7_000_000_001, &[2; 40], 900);
        enhanced(&mut file, 2, 3 * 1024 + 512, &[3; 60], 60);
        enhanced(&mut file, 3, 2_000_000_000_000, &[4; 60], 60);
        let mut unknown = file.fresh();
        unknown.raw(&[9; 400]);
        file.block(0x0BAD, &unknown);
        let mut simple = file.fresh();
        simple.u32(62).padded(&[5; 62]);
        file.block(3, &simple);
        let mut obsolete = file.fresh();
        obsolete
            .u16(1)
            .u16(99)
            .u32(0)
            .u32(1000)
            .u32(5)
            .u32(6)
            .padded(&[6; 5]);
        file.block(2, &obsolete);
        whole.extend(file.bytes);
    }
    // Two sections with different byte orders in one file.
    let (packets, error) = read(&whole);
    assert_eq!(error, None);
    assert_eq!(packets.len(), 12);
    for half in [&packets[..6], &packets[6..]] {
        let seen: Vec<(u64, usize, u32, bool)> = half
            .iter()
            .map(|(packet, bytes)| {
                (
                    packet.timestamp_ns,
                    bytes.len(),
                    packet.interface,
                    packet.truncated,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (7_000_001_000, 61, 0, false),
                (17_000_000_001, 40, 1, true),
                (3_500_000_000, 60, 2, false),
                (1_000_000_000, 60, 3, false),
                (1_000_000_000, 62, 0, false),
                (10_000_001_000, 5, 1, true),
            ]
        );
        for (index, (_, bytes)) in half.iter().enumerate() {
            assert!(bytes.iter().all(|&byte| usize::from(byte) == index + 1));
        }
    }
}

#[test]
fn a_simple_packet_is_cut_at_its_interfaces_snap_length() {
    let mut file = Bytes::default();
    section(&mut file);
    interface(&mut file, 1, 30, 6, 0);
    let mut simple = file.fresh();
    simple.u32(1000).padded(&[5; 30]);
    file.block(3, &simple);
    let (packets, error) = read(&file.bytes);
    assert_eq!(error, None);
    assert_eq!(
        (
            packets[0].1.len(),
            packets[0].0.original_length,
            packets[0].0.truncated
        ),
        (30, 1000, true)
    );

    // Without a snap length the block's end is what says how much there is.
    let mut file = Bytes::default();
    section(&mut file);
    interface(&mut file, 1, 0, 6, 0);
    let mut simple = file.fresh();
    simple.u32(1000).raw(&[5; 28]);
    file.block(3, &simple);
    let (packets, error) = read(&file.bytes);
    assert_eq!(error, None);
    assert_eq!((packets[0].1.len(), packets[0].0.truncated), (28, true));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(
        packets in proptest::collection::vec((0..u64::from(u32::MAX) * 1_000_000_000, proptest::collection::vec(any::<u8>(), 0..300), 0usize..2000), 0..40),
    ) {
        let (pipe, written) = Pipe::new();
        let mut writer = CaptureWriter::new("pipe", pipe);
        for (timestamp_ns, bytes, original) in &packets {
            prop_assert!(writer.write(*timestamp_ns, *original, bytes));
        }
        writer.flush().unwrap();
        prop_assert_eq!(writer.written_packets(), packets.len() as u64);
        drop(writer);
        let (seen, error) = read(&written.iter().flatten().collect::<Vec<u8>>());
        prop_assert_eq!(error, None);
        prop_assert_eq!(seen.len(), packets.len());
        for ((packet, bytes), (timestamp_ns, expected, original)) in seen.iter().zip(&packets) {
            prop_assert_eq!(packet.timestamp_ns, *timestamp_ns);
            prop_assert_eq!(bytes, expected);
            prop_assert_eq!(packet.original_length as usize, *original.max(&expected.len()));
        }
    }
}

#[test]
fn the_longest_packet_passes() {
    let long = vec![5; PACKET_BYTES_MAX + 1];
    let (pipe, written) = Pipe::new();
    let mut writer = CaptureWriter::new("pipe", pipe);
    assert!(writer.write(1, long.len(), &long) && writer.write(u64::MAX, 0, &[]));
    drop(writer);
    let packets = collected(&written);
    assert_eq!(
        (packets[0].1.len(), packets[0].0.truncated),
        (PACKET_BYTES_MAX, true)
    );
    assert_eq!(packets[1].1.len(), 0);
}
