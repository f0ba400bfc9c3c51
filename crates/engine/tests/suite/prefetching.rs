//! Packets are prefetched while they read more of the tables than a core's cache holds, and not because tables are large. What first
//! packets touch is asked for by the function.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use asterism_engine::{Instance, InstanceParts};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Reason, Verdict, build,
    state,
};
use asterism_io::frame::FramePool;
use asterism_io::port::Port;
use asterism_placement::Time;
use asterism_state::ObjectSettings;

/// Remembers sources.
#[derive(Default)]
struct Seen {
    prefetched: AtomicU32,
}

#[state]
struct SeenState {
    seen: Map<Endpoint, ()>,
}

impl NetworkFunction for Seen {
    type State = SeenState;
    fn state(&self, builder: &Builder) -> SeenState {
        SeenState {
            seen: builder.table("seen", 1 << 17, &[3_000]),
        }
    }
    fn packet(&self, ask: Ask<'_, SeenState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if ask.seen.get(&flow.source())?.is_none() {
            let room = ask.seen.vacancy()?;
            let mut act = ask.act()?;
            match room {
                Some(room) => act.seen.insert(room, flow.source(), ()),
                None => return Ok(Verdict::Drop(Reason::TableFull)),
            }
        }
        Ok(Verdict::Drop(Reason::Filtered))
    }
    fn prefetch(&self, ask: &Ask<'_, SeenState>) {
        self.prefetched.fetch_add(1, Ordering::Relaxed);
        // Answers nothing, and spoils nothing that is hinted of others.
        let source = ask.packet().flow4().map(|flow| flow.source());
        assert!(source.is_some_and(|source| ask.seen.get(&source).is_err()));
    }
}

struct Bench {
    function: Arc<Seen>,
    instance: Instance<Seen>,
    now: Time,
    random: u64,
}

/// Microseconds between two bursts: some ten million packets a second.
const BURST_US: u64 = 3;

impl Bench {
    fn new() -> Self {
        let pool = FramePool::new(64).expect("memory for frames");
        let settings = |_: &str| ObjectSettings::LOCAL;
        let ports: Vec<Box<dyn Port>> = Vec::new();
        let function = Arc::new(Seen::default());
        Self {
            instance: InstanceParts::alone(7).start(function.clone(), settings, pool, ports),
            function,
            now: Time::ZERO,
            random: 1,
        }
    }

    fn packet(flow: u32) -> Vec<u8> {
        let flow = Flow4 {
            source: (0x0a00_0000 | flow).into(),
            destination: [192, 0, 2, 1].into(),
            source_port: 1_000,
            destination_port: 53,
            protocol: 17,
        };
        let mut bytes = vec![0; 128];
        let length = build::flow4(&flow, &[0; 24], &mut bytes).expect("room for it");
        bytes.truncate(length);
        bytes
    }

    /// Bursts of these flows.
    fn take(&mut self, flows: impl Iterator<Item = u32>) {
        let flows: Vec<u32> = flows.collect();
        for burst in flows.chunks(32) {
            let packets: Vec<_> = burst.iter().map(|&flow| Self::packet(flow)).collect();
            self.now = Time::from_micros(self.now.as_micros() + BURST_US);
            let packets = packets.iter().map(|packet| &packet[..]);
            let taken = self.instance.inject_burst(self.now, PortNumber(0), packets);
            assert_eq!(taken, burst.len());
            self.instance.turn(self.now);
        }
    }

    /// The share of so many packets, of some flows at random, that was prefetched.
    fn share(&mut self, packets: u32, flows: u32) -> f64 {
        let before = self.instance.tally().prefetched;
        let mut random = self.random;
        let drawn: Vec<u32> = (0..packets)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) as u32 % flows
            })
            .collect();
        self.random = random;
        self.take(drawn.into_iter());
        (self.instance.tally().prefetched - before) as f64 / f64::from(packets)
    }
}

#[test]
fn first_packets_are_prefetched_and_others_are_not() {
    let mut bench = Bench::new();
    let prefetched = |bench: &Bench| bench.function.prefetched.swap(0, Ordering::Relaxed);
    bench.take(0..1_000);
    assert_eq!(prefetched(&bench), 0, "nothing is prefetched");
    bench.instance.prefetch_above(1);
    bench.share(100_000, 1_000);
    // A known one may be taken for a first one, if its entry lies where the index continues a bucket.
    let known = prefetched(&bench);
    assert!(known < 1_000, "{known} of 100,000");
    bench.take(1_000..5_000);
    // A first one may be taken for a known one, if a tag fits by chance.
    let first = prefetched(&bench);
    assert!((3_600..=4_000).contains(&first), "{first} of 4,000");
    bench.take(0..5_000);
    let known = prefetched(&bench);
    assert!(known < 100, "{known} of 5,000");
    // Some among many: every eleventh.
    bench.take((0..4_400).map(|packet| {
        if packet % 11 == 0 {
            10_000 + packet
        } else {
            packet
        }
    }));
    let first = prefetched(&bench);
    assert!((360..=480).contains(&first), "{first} of 400 and some");
    assert_eq!(bench.instance.state().seen.len_now(), 5_400);
}

#[test]
fn what_packets_read_decides_once_tables_are_large() {
    let mut bench = Bench::new();
    bench.take(0..1_000);
    assert_eq!(bench.share(100_000, 1_000), 0.0, "all fits the cache");
    bench.take(1_000..100_000);
    assert!(bench.share(100_000, 100_000) > 0.9, "most reads miss");
    // It takes some steps to learn that these few come back.
    bench.share(200_000, 1_000);
    let share = bench.share(200_000, 1_000);
    assert!(share > 0.0 && share < 0.05, "{share} are looked at");
    // And some to learn that they do not.
    bench.share(200_000, 100_000);
    assert!(bench.share(100_000, 100_000) > 0.99);
    // Anyone who asks for it always gets it.
    bench.instance.prefetch_above(1);
    bench.share(100_000, 1_000);
    assert_eq!(bench.share(100_000, 1_000), 1.0);
}
