//! Shared-memory links with peers that end, lie, or are somebody else; and the fuzz targets of what ports read from others.

use crate::ports::suite::frames::numbered;
use crate::ports::suite::media::{Folder, sleep_on};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::SeededRandom;
use asterism_io::port::{
    LinkState, Port, PortDrop, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole,
    fuzz_offload, fuzz_shared_memory,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

fn config(folder: &Path, role: SharedMemoryRole) -> SharedMemoryConfig {
    SharedMemoryConfig::new("link", folder.join("link"), role)
}

/// Turns of both ends until something holds.
fn until(
    ports: &mut [&mut SharedMemoryPort],
    mut holds: impl FnMut(&mut [&mut SharedMemoryPort]) -> bool,
) {
    let clock = MonotonicClock::new();
    let mut pool = FramePool::new(1).unwrap();
    while !holds(ports) {
        assert!(clock.now().as_micros() < 3_000_000, "it did not come to be");
        for port in ports.iter_mut() {
            port.advance(clock.now());
            let _ = port.flush(&mut pool);
        }
        sleep_on(None, 1);
    }
}

fn is_up(ports: &mut [&mut SharedMemoryPort]) -> bool {
    ports.iter().all(|port| port.link() == LinkState::Up)
}

#[test]
fn a_full_ring_drops_and_a_reader_that_comes_late_gets_the_rest() {
    let folder = Folder::new("full");
    let mut listening = SharedMemoryPort::open(&SharedMemoryConfig {
        slots: 64,
        ..config(&folder.0, SharedMemoryRole::Listen)
    })
    .unwrap();
    let mut connecting =
        SharedMemoryPort::open(&config(&folder.0, SharedMemoryRole::Connect)).unwrap();
    until(&mut [&mut listening, &mut connecting], is_up);
    let mut pool = FramePool::new(256).unwrap();
    let mut burst = Burst::new();
    let mut sent = 0;
    for number in 0..100 {
        let _ = burst.push(pool.allocate_copy(&numbered(number, 100)).unwrap());
        sent += connecting.send(&mut pool, &mut burst);
    }
    let counted = connecting.statistics();
    assert_eq!((sent, counted.dropped(PortDrop::QueueFull)), (64, 36));
    // What the peer had sent is read also after it ended.
    drop(connecting);
    let clock = MonotonicClock::new();
    let mut received = 0;
    while received < 64 {
        // However long the reader takes between two bursts.
        listening.advance(clock.now());
        listening.flush(&mut pool).unwrap();
        sleep_on(None, 3);
        let came = listening.receive(&mut pool, &mut burst);
        assert!(came > 0, "after {received}");
        received += came;
        pool.release_all(&mut burst);
    }
    assert_eq!(received, 64);
    until(&mut [&mut listening], |ports| {
        ports[0].link() == LinkState::Down
    });
    let _ = burst.push(pool.allocate_copy(&numbered(1, 100)).unwrap());
    assert_eq!(listening.send(&mut pool, &mut burst), 0);
    assert_eq!(listening.statistics().dropped(PortDrop::LinkDown), 1);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_idle_end_sleeps_and_is_woken() {
    let folder = Folder::new("wake");
    let mut listening =
        SharedMemoryPort::open(&config(&folder.0, SharedMemoryRole::Listen)).unwrap();
    let mut connecting =
        SharedMemoryPort::open(&config(&folder.0, SharedMemoryRole::Connect)).unwrap();
    until(&mut [&mut listening, &mut connecting], is_up);
    let clock = MonotonicClock::new();
    std::thread::scope(|scope| {
        // The other end of each packet's journey sends it back, asleep in between.
        let answering = scope.spawn(move || {
            let mut pool = FramePool::new(64).unwrap();
            let mut burst = Burst::new();
            for _ in 0..200 {
                while listening.receive(&mut pool, &mut burst) == 0 {
                    listening.flush(&mut pool).unwrap();
                    sleep_on(listening.wait_descriptor(), 2_000);
                }
                listening.send(&mut pool, &mut burst);
            }
        });
        let mut pool = FramePool::new(64).unwrap();
        let mut burst = Burst::new();
        for number in 0..200 {
            let _ = burst.push(pool.allocate_copy(&numbered(number, 100)).unwrap());
            assert_eq!(connecting.send(&mut pool, &mut burst), 1);
            while connecting.receive(&mut pool, &mut burst) == 0 {
                connecting.flush(&mut pool).unwrap();
                sleep_on(connecting.wait_descriptor(), 2_000);
            }
            assert_eq!(pool.bytes(&burst.as_slice()[0]), numbered(number, 100));
            pool.release_all(&mut burst);
        }
        answering.join().unwrap();
    });
    // One lost wake-up would have cost two seconds.
    assert!(clock.now().as_micros() < 2_000_000, "{:?}", clock.now());
}

#[test]
fn a_socket_of_a_dead_program_is_replaced_and_a_living_one_refused() {
    let folder = Folder::new("stale");
    let config = config(&folder.0, SharedMemoryRole::Listen);
    drop(UnixListener::bind(&config.path).unwrap());
    assert!(config.path.exists());
    let first = SharedMemoryPort::open(&config).unwrap();
    let refusal = SharedMemoryPort::open(&config).unwrap_err().to_string();
    assert!(refusal.contains("no other program may listen"), "{refusal}");
    drop(first);
    assert!(!config.path.exists());
    let nowhere = SharedMemoryConfig {
        path: folder.0.join("none/link"),
        ..config.clone()
    };
    assert!(SharedMemoryPort::open(&nowhere).is_err());
    for (slots, slot_bytes) in [(63, 2048), (100, 2048), (4096, 100), (4096, 2049)] {
        let unfit = SharedMemoryConfig {
            slots,
            slot_bytes,
            ..config.clone()
        };
        let refusal = SharedMemoryPort::open(&unfit).unwrap_err().to_string();
        assert!(refusal.contains("must be"), "{refusal}");
    }
}

/// What the port reported, once it reported something.
fn reported(port: &mut SharedMemoryPort, mut meanwhile: impl FnMut()) -> String {
    let clock = MonotonicClock::new();
    let mut pool = FramePool::new(1).unwrap();
    loop {
        assert!(clock.now().as_micros() < 4_000_000, "nothing was reported");
        port.advance(clock.now());
        if let Err(why) = port.flush(&mut pool) {
            return why.to_string();
        }
        meanwhile();
        sleep_on(None, 1);
    }
}

#[test]
fn strangers_are_refused_in_words() {
    let folder = Folder::new("strangers");
    let listen = config(&folder.0, SharedMemoryRole::Listen);
    let mut port = SharedMemoryPort::open(&listen).unwrap();
    let mut old = *b"ASTRSHM\n\x09\0\0\0\x00\x10\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut huge = old;
    (huge[8], huge[15]) = (1, 0x7f);
    old[8] = 9;
    for (greeting, reports) in [
        (
            &b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"[..32],
            "no shared-memory port",
        ),
        (&old[..], "version 9"),
        (&huge[..], "must be"),
        (&old[..7], "did not greet in time"),
        (&[][..], "did not greet in time"),
    ] {
        let mut stranger = UnixStream::connect(&listen.path).unwrap();
        stranger.write_all(greeting).unwrap();
        let why = reported(&mut port, || {});
        assert!(why.contains(reports), "{why}");
        assert_eq!(port.link(), LinkState::Down);
    }
    // One that hangs up in the middle, and then a real one.
    drop(UnixStream::connect(&listen.path).unwrap());
    assert!(reported(&mut port, || {}).contains("hung up"));
    let mut real = SharedMemoryPort::open(&config(&folder.0, SharedMemoryRole::Connect)).unwrap();
    until(&mut [&mut port, &mut real], is_up);
    // The lie of a peer that breaks the silence costs it the link.
    drop(real);
    assert!(reported(&mut port, || {}).contains("peer ended"));
}

#[test]
fn what_a_lying_listener_offers_is_refused_in_words() {
    let folder = Folder::new("liar");
    let connect = config(&folder.0, SharedMemoryRole::Connect);
    let listener = UnixListener::bind(&connect.path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let good = *b"ASTRSHM\n\x01\0\0\0\x00\x10\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut port = SharedMemoryPort::open(&connect).unwrap();
    let mut streams = Vec::new();
    // The right greeting, but nothing to share with it.
    let why = reported(&mut port, || {
        if let Ok((mut stream, _)) = listener.accept() {
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let mut greeting = [0; 32];
            stream.read_exact(&mut greeting).unwrap();
            assert_eq!(greeting, good);
            stream.write_all(&good).unwrap();
            streams.push(stream);
        }
    });
    assert!(why.contains("did not send what is to be shared"), "{why}");
    assert_eq!(port.link(), LinkState::Down);
}

/// Seeded random bytes, and words that are likely to matter.
fn random_bytes(random: &mut SeededRandom, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        match random.up_to(3) {
            0 => bytes.extend((random.up_to(79) as u32).to_ne_bytes()),
            1 => bytes.extend([0, 0]),
            2 => bytes.extend(u32::MAX.to_ne_bytes()),
            _ => bytes.extend(random.next_u64().to_ne_bytes()),
        }
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn any_shared_memory_is_survived() {
    let mut random = SeededRandom::new(11);
    for round in 0..1_500 {
        let length = round % 700;
        fuzz_shared_memory(&random_bytes(&mut random, length));
    }
}

#[test]
fn any_offload_header_is_survived() {
    let mut random = SeededRandom::new(12);
    let packet = numbered(1, 900);
    let mut tcp = packet.clone();
    tcp[23] = 6;
    tcp[46] = 0x50;
    for _ in 0..20_000 {
        let mut data = random_bytes(&mut random, 10);
        // Mostly headers that say something.
        data[0] = 1;
        data[1] = [0, 1, 4, 5, 0x81, 3][random.up_to(5) as usize];
        if random.up_to(1) == 0 {
            let field = if data[1] == 5 { 6 } else { 16 };
            data[4..10].copy_from_slice(&[100, 0, 34, 0, field, 0]);
        }
        data.extend(if data[1] == 5 { &packet } else { &tcp });
        if random.up_to(2) == 0 {
            let at = random.up_to(data.len() as u64 - 1) as usize;
            data[at] = random.next_u64() as u8;
        }
        fuzz_offload(&data);
    }
}
