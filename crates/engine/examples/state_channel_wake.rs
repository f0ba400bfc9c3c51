//! What waking a state channel's thread costs: lag from a write to the other host's having applied it, and the share of a
//! core that the idle thread takes, by longest sleep, with and without wakers. Its figures are in `docs/src/architecture/packet-path.md`.
//!
//!     cargo run --release -p asterism-engine --example state_channel_wake
#![allow(
    clippy::disallowed_methods,
    reason = "it measures waiting, and waits between writes"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::transport::{RunConfig, RunMode, UdpConfig, UdpTransport, spawn};
use asterism_engine::{HostConfig, Instance, InstanceParts, StateChannel, host};
use asterism_function::{
    Ask, Builder, Endpoint, Flow4, Late, Map, NetworkFunction, PortNumber, Protocol, Reason,
    Verdict, state,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

const WRITES: u16 = 400;

struct Noting;

#[state]
struct Noted {
    seen: Map<Endpoint, ()>,
}

impl NetworkFunction for Noting {
    type State = Noted;
    fn state(&self, builder: &Builder) -> Noted {
        Noted {
            seen: builder.table("seen", 4_096, &[300]),
        }
    }
    fn packet(&self, ask: Ask<'_, Noted>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(room) = ask.seen.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.seen.insert(room, flow.source(), ());
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

fn packet(number: u16) -> Vec<u8> {
    let source = Endpoint::new([10, 0, 0, 1].into(), number, Protocol::UDP);
    let flow = Flow4 {
        source: source.address,
        destination: [192, 0, 2, 1].into(),
        source_port: source.port,
        destination_port: 53,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = asterism_function::build::flow4(&flow, b"note", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn parts(number: u16, clock: MonotonicClock) -> (StateChannel, Instance<Noting>) {
    let names = vec![MemberId(0), MemberId(1)];
    let config = HostConfig::new(
        ClusterId(5),
        MemberId(number),
        Incarnation(u64::from(number) + 1),
        names,
        ClusterKey::from_random(1, [5; 32]),
        [number as u8 + 1; 48],
    );
    let (channel, mut parts) = host(config, clock.now()).unwrap();
    let ports: Vec<Box<dyn Port>> = vec![
        Box::new(MemoryPort::new("in")),
        Box::new(MemoryPort::sink("out")),
    ];
    let parts: InstanceParts = parts.remove(0);
    let pool = FramePool::new(64).unwrap();
    let instance = parts.start(
        Arc::new(Noting),
        |_| ObjectSettings::REPLICATED,
        pool,
        ports,
    );
    (channel, instance)
}

/// One turn of the host that is driven manually.
fn turn(
    channel: &mut StateChannel,
    instance: &mut Instance<Noting>,
    transport: &mut UdpTransport,
    clock: MonotonicClock,
) {
    let now = clock.now();
    transport.receive(now, |from, datagram| {
        let _ = channel.handle(now, from, datagram);
    });
    channel.turn(now);
    instance.turn(now);
    channel.turn(now);
    while let Some(buffer) = transport.buffer(now)
        && let Some(destination) = channel.poll_transmit(now, buffer)
    {
        transport.queue(destination);
    }
    transport.flush(now);
}

fn measure(mode: RunMode, sleep_max: Duration, rings: bool) {
    let clock = MonotonicClock::new();
    let at: [SocketAddr; 2] = ["127.99.0.1:4747", "127.99.0.2:4747"].map(|at| at.parse().unwrap());
    let (own, mut writer) = parts(0, clock);
    let (mut other, mut reader) = parts(1, clock);
    let run = RunConfig {
        mode,
        sleep_max,
        snapshot_interval: Duration::from_millis(10),
        ..RunConfig::default()
    };
    let running = spawn(
        own,
        &UdpConfig::new(at[0], [(MemberId(1), at[1])]),
        run,
        clock,
    )
    .unwrap();
    let waker = running.waker();
    let udp = UdpConfig::new(at[1], [(MemberId(0), at[0])]);
    let mut transport = UdpTransport::open(&udp, other.datagram_bytes_max(), clock.now()).unwrap();

    let mut lags = Vec::new();
    for number in 0..WRITES {
        // Any phase of the sleeper's.
        let pause = clock.now() + Duration::from_micros(1_000 + u64::from(number) * 7_919 % 1_000);
        while clock.now() < pause {
            turn(&mut other, &mut reader, &mut transport, clock);
        }
        let begun = clock.now();
        assert!(writer.inject(begun, PortNumber(0), &packet(1_000 + number)));
        writer.turn(begun);
        if rings {
            waker.ring();
        }
        while reader.state().seen.len_now() <= usize::from(number) {
            turn(&mut other, &mut reader, &mut transport, clock);
            writer.turn(clock.now());
        }
        lags.push((clock.now() - begun).as_micros());
    }
    lags.sort_unstable();

    // Idle but for keep-alives: the reader sleeps between its turns.
    let idle = |seconds: u64| {
        let spent = || running.snapshot().thread.processor_time;
        let (begun, before) = (clock.now(), spent());
        (begun, before, begun + Duration::from_secs(seconds))
    };
    let (begun, before, end) = idle(2);
    while clock.now() < end {
        turn(&mut other, &mut reader, &mut transport, clock);
        writer.turn(clock.now());
        std::thread::sleep(Duration::from_millis(1));
    }
    let spent = running.snapshot().thread.processor_time - before;
    let share = spent.as_secs_f64() / (clock.now() - begun).as_secs_f64();
    println!(
        "{mode:?}, {sleep_max:>6?}, {}: lag {:>4} us, 99 % {:>5} us; idle {:>5.2} % of a core",
        if rings { "wakers   " } else { "no wakers" },
        lags[lags.len() / 2],
        lags[lags.len() * 99 / 100],
        share * 100.0,
    );
    running.stop().unwrap();
}

fn main() {
    for micros in [100, 1_000, 10_000] {
        for rings in [false, true] {
            measure(RunMode::Poll, Duration::from_micros(micros), rings);
        }
    }
    measure(RunMode::Spin, Duration::from_millis(1), false);
}
