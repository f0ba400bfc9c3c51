//! Wrapping ports around a port in memory: what they hold, lose and write, and that no buffer gets lost.

use asterism_io::frame::{BURST, Burst, FramePool};
use asterism_io::link::SeededRandom;
use asterism_io::port::{
    CaptureReader, CaptureWriter, CapturingPort, DelayedPort, Direction, LossyPort, MemoryPort,
    Port, PortDrop, SendingPort,
};
use asterism_placement::Time;
use std::io::Cursor;
use std::time::Duration;

fn numbered(count: u32) -> MemoryPort {
    let mut port = MemoryPort::new("memory");
    for number in 0..count {
        port.feed([&number.to_le_bytes()[..], &[0; 60]].concat());
    }
    port.close();
    port
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// Passes everything through a port once; the numbers that came out again.
fn pass(port: &mut impl Port, pool: &mut FramePool) -> usize {
    let mut burst = Burst::new();
    let mut received = 0;
    while !port.exhausted() {
        received += port.receive(pool, &mut burst);
        port.send(pool, &mut burst);
    }
    received
}

#[test]
fn a_lossy_port_loses_by_seed_each_way_and_counts() {
    let run = |seed| {
        let mut pool = FramePool::new(64).unwrap();
        let mut port = LossyPort::new(numbered(10_000), 0.1, 0.2, SeededRandom::new(seed));
        let received = pass(&mut port, &mut pool);
        let sent: Vec<u32> = port
            .inner_mut()
            .take_sent()
            .iter()
            .map(|bytes| number(bytes))
            .collect();
        let statistics = port.statistics();
        assert_eq!(pool.in_use(), 0);
        assert!(sent.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(statistics.received_packets as usize, received);
        assert_eq!(statistics.sent_packets as usize, sent.len());
        assert_eq!(
            statistics.dropped(PortDrop::Lossy) as usize + sent.len(),
            10_000
        );
        assert!((8_800..9_200).contains(&received), "{received}");
        assert!((6_900..7_500).contains(&sent.len()), "{}", sent.len());
        sent
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut pool = FramePool::new(64).unwrap();
    let mut port = LossyPort::new(numbered(100), 1.0, 0.0, SeededRandom::new(1));
    assert_eq!(pass(&mut port, &mut pool), 0);
}

#[test]
fn a_lossy_port_leaves_what_was_in_the_burst_alone() {
    let mut pool = FramePool::new(64).unwrap();
    let mut port = LossyPort::new(numbered(5), 1.0, 0.0, SeededRandom::new(1));
    let mut burst = Burst::new();
    let _ = burst.push(pool.allocate_copy(b"before").unwrap());
    assert_eq!(port.receive(&mut pool, &mut burst), 0);
    assert_eq!(
        (burst.len(), pool.bytes(&burst.as_slice()[0])),
        (1, &b"before"[..])
    );
    pool.release_all(&mut burst);
}

#[test]
fn a_delayed_port_holds_each_way_in_order() {
    let mut pool = FramePool::new(256).unwrap();
    let (there, back) = (Duration::from_micros(100), Duration::from_micros(50));
    let mut port = DelayedPort::new(numbered(100), there, back, 128);
    let mut burst = Burst::new();
    port.advance(Time::from_micros(1000));
    assert_eq!(port.receive(&mut pool, &mut burst), 0);
    assert_eq!(port.statistics().received_packets, 0);
    assert_eq!(port.next_due(), Some(Time::from_micros(1100)));
    assert!(!port.exhausted());
    port.advance(Time::from_micros(1099));
    assert_eq!(port.receive(&mut pool, &mut burst), 0);
    port.advance(Time::from_micros(1100));
    let mut received = 0;
    while port.receive(&mut pool, &mut burst) > 0 {
        received += burst.len();
        assert_eq!(port.send(&mut pool, &mut burst), 0, "held");
    }
    assert_eq!(
        (
            received,
            port.statistics().received_packets,
            port.exhausted()
        ),
        (100, 100, true)
    );
    assert_eq!(port.next_due(), Some(Time::from_micros(1150)));
    port.flush(&mut pool).unwrap();
    assert!(port.inner_mut().take_sent().is_empty());
    port.advance(Time::from_micros(1150));
    port.flush(&mut pool).unwrap();
    let sent: Vec<u32> = port
        .inner_mut()
        .take_sent()
        .iter()
        .map(|bytes| number(bytes))
        .collect();
    assert_eq!(sent, (0..100).collect::<Vec<_>>());
    assert_eq!((pool.in_use(), port.next_due()), (0, None));
}

#[test]
fn a_slow_port_sends_one_after_the_other() {
    let mut pool = FramePool::new(256).unwrap();
    let port = DelayedPort::new(numbered(100), Duration::ZERO, Duration::ZERO, 64);
    let mut port = port.with_send_spacing(Duration::from_micros(10));
    let mut burst = Burst::new();
    port.advance(Time::from_micros(1000));
    let mut offered = 0;
    while port.receive(&mut pool, &mut burst) > 0 {
        offered += burst.len();
        port.send(&mut pool, &mut burst);
    }
    assert_eq!(offered, 100);
    let sent = |port: &mut DelayedPort<MemoryPort>| port.inner_mut().take_sent().len();
    // The first leaves at once and 64 wait; more are dropped, and take no time of those that follow.
    let at_once = sent(&mut port);
    let dropped = port.statistics().dropped(PortDrop::QueueFull);
    assert_eq!(dropped as usize, 100 - 64 - at_once);
    for step in 1..=3 {
        port.advance(Time::from_micros(1000 + 10 * step));
        port.flush(&mut pool).unwrap();
        assert_eq!(sent(&mut port), 1, "{step}");
    }
    assert_eq!(port.next_due(), Some(Time::from_micros(1040)));
    port.advance(Time::from_micros(5000));
    port.flush(&mut pool).unwrap();
    assert_eq!((sent(&mut port), pool.in_use()), (64 - 3, 0));
}

#[test]
fn a_delayed_port_holds_only_so_many() {
    let mut pool = FramePool::new(256).unwrap();
    let delay = Duration::from_secs(1);
    let mut port = DelayedPort::new(numbered(200), delay, delay, 64);
    let mut burst = Burst::new();
    port.receive(&mut pool, &mut burst);
    assert_eq!(pool.in_use(), 64, "the rest waits in the port within");
    for _ in 0..3 {
        for _ in 0..BURST {
            let _ = burst.push(pool.allocate_copy(&[0; 60]).unwrap());
        }
        port.send(&mut pool, &mut burst);
    }
    assert_eq!(port.statistics().dropped(PortDrop::QueueFull), BURST as u64);
    assert_eq!(pool.in_use(), 128);
}

#[test]
fn a_capturing_port_writes_the_directions_asked_for() {
    let folder = std::env::temp_dir();
    for (direction, expected) in [
        (Direction::Received, 10),
        (Direction::Sent, 10),
        (Direction::Both, 20),
    ] {
        let path = folder.join(format!(
            "asterism-capturing-{}-{direction:?}.pcap",
            std::process::id()
        ));
        let mut pool = FramePool::new(64).unwrap();
        let mut port = CapturingPort::new(
            numbered(10),
            CaptureWriter::create(&path).unwrap(),
            direction,
        );
        port.advance(Time::from_micros(7));
        assert_eq!(pass(&mut port, &mut pool), 10);
        port.flush(&mut pool).unwrap();
        assert_eq!(port.inner_mut().take_sent().len(), 10);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut reader = CaptureReader::new("written", Cursor::new(bytes)).unwrap();
        let mut into = Vec::new();
        let mut count = 0;
        while let Some(packet) = reader.next(&mut into).unwrap() {
            assert_eq!((packet.timestamp_ns, into.len()), (7000, 64));
            count += 1;
        }
        assert_eq!(count, expected);
    }
}

#[test]
fn a_sending_port_hands_out_nothing_and_keeps_no_buffer() {
    let mut pool = FramePool::new(64).unwrap();
    let mut port = SendingPort::new(numbered(100));
    let mut burst = Burst::new();
    while !port.exhausted() {
        assert_eq!(port.receive(&mut pool, &mut burst), 0);
        assert!(burst.is_empty());
        assert_eq!(pool.in_use(), 0);
    }
    burst.push(pool.allocate_copy(&[7; 64]).unwrap()).unwrap();
    assert_eq!(port.send(&mut pool, &mut burst), 1);
    let statistics = port.statistics();
    assert_eq!(statistics.dropped(PortDrop::SendsOnly), 100);
    assert_eq!(
        (statistics.received_packets, statistics.received_bytes),
        (0, 0)
    );
    assert_eq!((statistics.sent_packets, pool.in_use()), (1, 0));
}

#[test]
fn ports_can_be_boxed_wrapped_and_lent() {
    let mut pool = FramePool::new(256).unwrap();
    let inner: Box<dyn Port> = Box::new(numbered(50));
    let lossy = LossyPort::new(inner, 0.0, 0.0, SeededRandom::new(1));
    let mut port: Box<dyn Port> =
        Box::new(DelayedPort::new(lossy, Duration::ZERO, Duration::ZERO, 64));
    assert_eq!(port.name(), "memory");
    assert_eq!(pass(&mut (&mut port), &mut pool), 50);
    assert_eq!(port.statistics().sent_packets, 50);
}
