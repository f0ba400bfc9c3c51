//! Nothing on the packet path allocates once it is warm: counted by an allocator, for ports, rings, links and chains.

use asterism_engine::InstanceParts;
use asterism_function::chain::{Chain, Stage};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Verdict, build, state,
};
use asterism_io::frame::{Burst, FramePool};
use asterism_io::link::{LinkConditions, Network, SeededRandom, ThreadedLink};
use asterism_io::port::{
    CapturePort, CaptureReader, CaptureWriter, DelayedPort, LossyPort, MemoryPort, Port,
};
use asterism_io::ring::Broadcast;
use asterism_placement::Time;
use asterism_state::ObjectSettings;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counter is a thread's own and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `work` allocates when it is done a thousand times after a thousand to warm up.
fn allocations(mut work: impl FnMut(u64)) -> u64 {
    (0..1000).for_each(&mut work);
    let before = ALLOCATIONS.with(Cell::get);
    (1000..2000).for_each(&mut work);
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|round| drop(std::hint::black_box(Box::new(round)))) >= 1000);
}

#[test]
fn ports_do_not_allocate() {
    let packets: Vec<Vec<u8>> = (0..100u8)
        .map(|value| vec![value; 64 + usize::from(value)])
        .collect();
    let slices = || packets.iter().map(|packet| &packet[..]);
    let mut pool = FramePool::new(2048).unwrap();
    let mut written = CaptureWriter::new("memory", std::io::sink());
    let mut file = Vec::new();
    {
        let path =
            std::env::temp_dir().join(format!("asterism-allocations-{}.pcap", std::process::id()));
        let mut writer = CaptureWriter::create(&path).unwrap();
        for round in 0..100_000usize {
            assert!(writer.write(round as u64 * 1000, 60, &packets[round % 100]));
        }
        drop(writer);
        file.extend(std::fs::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    let reader = CaptureReader::new("memory", Cursor::new(file)).unwrap();
    let looping = MemoryPort::looping("looping", &mut pool, slices()).restoring(40);
    let delayed = MemoryPort::looping("delayed", &mut pool, slices());
    let lossy = MemoryPort::looping("lossy", &mut pool, slices());
    let mut ports: Vec<Box<dyn Port>> = vec![
        Box::new(looping),
        Box::new(MemoryPort::cycling("cycling", slices(), u64::MAX)),
        Box::new(DelayedPort::new(
            delayed,
            Duration::from_micros(3),
            Duration::from_micros(5),
            128,
        )),
        Box::new(LossyPort::new(lossy, 0.1, 0.1, SeededRandom::new(1))),
        Box::new(
            CapturePort::reading("capture", reader)
                .with_output(CaptureWriter::new("sink", std::io::sink())),
        ),
    ];
    let mut burst = Burst::new();
    for port in &mut ports {
        let mut received = 0;
        let count = allocations(|round| {
            port.advance(Time::from_micros(round));
            received += port.receive(&mut pool, &mut burst);
            port.send(&mut pool, &mut burst);
        });
        assert_eq!(count, 0, "{} allocated", port.name());
        assert!(received >= 10_000, "{} gave {received}", port.name());
    }
    assert_eq!(
        allocations(|round| assert!(written.write(round, 60, &packets[0]))),
        0
    );
}

#[test]
fn rings_and_links_do_not_allocate() {
    let (mut writer, mut readers) = Broadcast::new(4096, 2).unwrap();
    let count = allocations(|round| {
        for _ in 0..7 {
            assert_eq!(writer.try_push(&round.to_le_bytes()), Ok(()));
        }
        writer.publish();
        assert!(readers[0].next().is_some());
        for reader in &mut readers {
            assert!(
                reader.drain(usize::MAX, |record| assert_eq!(record, round.to_le_bytes())) >= 6
            );
        }
    });
    assert_eq!(count, 0, "rings");

    let conditions = LinkConditions {
        delay: Duration::from_micros(40),
        jitter: Duration::from_micros(10),
        loss: 0.01,
        duplication: 0.01,
        reordering: 0.1,
        reordering_delay: Duration::from_micros(30),
        ..LinkConditions::default()
    };
    let mut network = Network::new(1);
    network.set_defaults(conditions.clone());
    let mut delivered = 0;
    let count = allocations(|round| {
        let now = Time::from_micros(round);
        network.multicast(now, 0, 0..4, &[1; 200]);
        while let Some((_, _, buffer)) = network.receive(now) {
            delivered += 1;
            network.recycle(buffer);
        }
    });
    // The most that were ever on their way may still grow a little by chance.
    assert!(
        count <= 20 && delivered > 5000,
        "the network allocated {count} times"
    );

    let (mut sender, mut receiver) = ThreadedLink::new(conditions, 1, 1 << 16, 1000).unwrap();
    let mut delivered = 0;
    let count = allocations(|round| {
        let now = Time::from_micros(round);
        sender.send(now, &[1; 200]);
        sender.publish();
        delivered += receiver.deliver(now, |_| ());
    });
    assert!(
        count <= 20 && delivered > 1800,
        "the threaded link allocated {count} times"
    );
}

/// Remembers sources.
#[derive(Debug)]
struct Remembers;

#[state]
struct Sources {
    seen: Map<Endpoint, ()>,
}

impl NetworkFunction for Remembers {
    type State = Sources;
    fn state(&self, builder: &Builder) -> Sources {
        Sources {
            seen: builder.table("seen", 1_024, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, Sources>) -> Result<Verdict, Late> {
        let out = PortNumber(ask.port().0 ^ 1);
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Consumed);
        };
        if ask.seen.get(&flow.source())?.is_none()
            && let Some(room) = ask.seen.vacancy()?
        {
            ask.act()?.seen.insert(room, flow.source(), ());
        }
        Ok(Verdict::Forward(out))
    }
}

#[test]
fn chains_do_not_allocate() {
    let packets: Vec<Vec<u8>> = (0..40u16)
        .map(|number| {
            let flow = Flow4 {
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                source_port: 1_000 + number,
                destination_port: 53,
                protocol: 17,
            };
            let mut bytes = vec![0; 128];
            let length = build::flow4(&flow, &[0; 30], &mut bytes).unwrap();
            bytes.truncate(length);
            bytes
        })
        .collect();
    let slices = || packets.iter().map(|packet| &packet[..]);
    let mut pool = FramePool::new(2_048).unwrap();
    let ports: Vec<Box<dyn Port>> = vec![
        Box::new(MemoryPort::looping("inside", &mut pool, slices())),
        Box::new(MemoryPort::looping("outside", &mut pool, slices())),
    ];
    let stages = vec![
        Stage::new("copies", Arc::new(Remembers)).mirrors(),
        Stage::new("prompt", Arc::new(Remembers)),
        Stage::new("late", Arc::new(Remembers)),
    ];
    let chain = Arc::new(Chain::new(stages).unwrap());
    let late = |name: &str| ObjectSettings {
        late_us: if name == "late.seen" { 2 } else { 0 },
        ..ObjectSettings::LOCAL
    };
    let mut instance = InstanceParts::alone(1).start(chain, late, pool, ports);
    let count = allocations(|round| {
        instance.turn(Time::from_micros(round));
    });
    assert_eq!(count, 0);
    let tallies: Vec<_> = instance.stage_tallies().cloned().collect();
    assert!(tallies[0].mirrored > 10_000 && tallies[2].late > 10_000);
    assert!(instance.tally().forwarded > 10_000);
}
