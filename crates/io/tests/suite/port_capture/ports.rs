//! Ports whose medium is a capture.

use crate::port_capture::files::{Pipe, collected, pcap};
use asterism_io::frame::{BURST, Burst, FramePool};
use asterism_io::port::{
    CapturePort, CaptureReader, CaptureWriter, CapturingPort, Direction, MemoryPort, Port, PortDrop,
};
use asterism_placement::Time;
use std::io::Cursor;

fn reader(records: &[(u32, u32, &[u8], u32)]) -> CaptureReader {
    CaptureReader::new("in.pcap", Cursor::new(pcap(false, 0xA1B2_C3D4, 1, records))).unwrap()
}

#[test]
fn a_capture_passes_a_port_from_file_to_file() {
    let (pipe, written) = Pipe::new();
    let long = [3u8; 3000];
    let mut port = CapturePort::reading(
        "replay",
        reader(&[
            (1, 5, &[1; 60], 60),
            (2, 6, &[2; 61], 90),
            (3, 7, &long, 3000),
            (4, 8, &[4; 60], 60),
        ]),
    )
    .with_output(CaptureWriter::new("out.pcap", pipe));
    let mut pool = FramePool::new(8).unwrap();
    let mut burst = Burst::new();
    assert_eq!(port.next_due(), Some(Time::from_micros(1_000_005)));
    while !port.exhausted() {
        port.receive(&mut pool, &mut burst);
        assert_eq!(burst.iter().filter(|frame| frame.is_truncated()).count(), 1);
        assert_eq!(port.arrival(), Time::from_micros(4_000_008));
        assert_eq!(port.send(&mut pool, &mut burst), 3);
    }
    port.flush(&mut pool).unwrap();
    let statistics = port.statistics();
    assert_eq!(
        (statistics.received_packets, statistics.received_bytes),
        (3, 181)
    );
    assert_eq!(
        (
            statistics.sent_packets,
            statistics.dropped(PortDrop::TooLong)
        ),
        (3, 1)
    );
    assert_eq!(pool.in_use(), 0);
    let out = collected(&written);
    assert_eq!(
        out.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(),
        [60, 61, 60]
    );
    assert!(
        out.iter()
            .all(|(packet, _)| packet.timestamp_ns == 4_000_008_000)
    );
}

#[test]
fn a_paced_port_drives_a_virtual_clock() {
    let (pipe, written) = Pipe::new();
    let records: Vec<(u32, u32, &[u8], u32)> = vec![
        (100, 0, &[1; 60], 60),
        (100, 10, &[2; 60], 60),
        (107, 0, &[3; 60], 60),
    ];
    let mut port = CapturePort::reading("paced", reader(&records))
        .with_output(CaptureWriter::new("out.pcap", pipe))
        .paced()
        .starting_at(Time::from_micros(500));
    let mut pool = FramePool::new(8).unwrap();
    let mut burst = Burst::new();
    assert_eq!(
        port.receive(&mut pool, &mut burst),
        0,
        "no time was reported yet"
    );
    let mut times = Vec::new();
    while let Some(due) = port.next_due() {
        port.advance(due - std::time::Duration::from_micros(1));
        assert_eq!(port.receive(&mut pool, &mut burst), 0);
        port.advance(due);
        assert_eq!(port.receive(&mut pool, &mut burst), 1);
        times.push(due.as_micros());
        port.send(&mut pool, &mut burst);
    }
    assert_eq!(times, [500, 510, 7_000_500]);
    port.flush(&mut pool).unwrap();
    let stamps: Vec<u64> = collected(&written)
        .iter()
        .map(|(packet, _)| packet.timestamp_ns)
        .collect();
    assert_eq!(stamps, [100_000_000_000, 100_000_010_000, 107_000_000_000]);
}

#[test]
fn a_damaged_capture_ends_the_port_and_flush_says_why_once() {
    let mut bytes = pcap(false, 0xA1B2_C3D4, 1, &[(1, 0, &[1; 60], 60)]);
    bytes.extend([9; 20]);
    let mut port = CapturePort::reading(
        "in",
        CaptureReader::new("bad.pcap", Cursor::new(bytes)).unwrap(),
    );
    let mut pool = FramePool::new(8).unwrap();
    let mut burst = Burst::new();
    assert_eq!(port.receive(&mut pool, &mut burst), 1);
    assert!(port.exhausted());
    pool.release_all(&mut burst);
    let error = port.flush(&mut pool).unwrap_err().to_string();
    assert!(
        error.starts_with("port in: capture bad.pcap is damaged at byte 100"),
        "{error}"
    );
    assert!(port.flush(&mut pool).is_ok());
}

#[test]
fn a_full_disk_is_a_clear_error_and_every_lost_packet_is_counted() {
    let mut pool = FramePool::new(64).unwrap();
    let mut burst = Burst::new();
    let mut port = CapturePort::writing("out", CaptureWriter::create("/dev/full").unwrap());
    let mut sent = 0;
    for _ in 0..40 {
        for _ in 0..BURST {
            let _ = burst.push(pool.allocate_copy(&[1; 1000]).unwrap());
        }
        sent += port.send(&mut pool, &mut burst);
    }
    assert!(
        sent < 300,
        "the port says so as soon as its buffer is written, after {sent}"
    );
    let error = port.flush(&mut pool).unwrap_err().to_string();
    assert!(
        error.contains("/dev/full")
            && error.contains("No space left")
            && error.contains("free space"),
        "{error}"
    );
    let statistics = port.statistics();
    assert_eq!((statistics.sent_packets, statistics.sent_bytes), (0, 0));
    assert_eq!(statistics.dropped(PortDrop::WriteFailed), 40 * BURST as u64);
    assert_eq!(pool.in_use(), 0);

    // A wrapping capture that cannot be written does not hold traffic up.
    let mut port = CapturingPort::new(
        MemoryPort::new("wire"),
        CaptureWriter::create("/dev/full").unwrap(),
        Direction::Both,
    );
    port.inner_mut().feed([1; 60]);
    assert_eq!(port.receive(&mut pool, &mut burst), 1);
    assert_eq!(port.send(&mut pool, &mut burst), 1);
    assert!(
        port.flush(&mut pool)
            .unwrap_err()
            .to_string()
            .contains("No space left")
    );
    assert!(port.flush(&mut pool).is_ok(), "once");
    assert_eq!(port.writer().lost_packets(), 2);
    assert!(
        CaptureWriter::create("/nonexistent/out.pcap")
            .unwrap_err()
            .to_string()
            .contains("name another file")
    );
}
