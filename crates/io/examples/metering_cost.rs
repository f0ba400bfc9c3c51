//! Instructions that counting by tenant adds to a packet, for an instruction counter:
//!
//! ```text
//! cargo build --release -p asterism-io --example metering_cost
//! valgrind --tool=callgrind --toggle-collect='metering_cost::measured*' target/release/examples/metering_cost KIND PORT ROUNDS
//! ```
//!
//! `KIND` is `tcp`, `udp`, `nobody` or `syn`, `PORT` is `plain` or `metering`, `ROUNDS` how often 32 packets are received. The difference
//! of two counts of rounds, divided by the packets, is free of what the start costs; the difference of the two ports is what
//! counting adds.

use std::net::Ipv4Addr;
use std::sync::Arc;

use asterism_io::frame::{BURST, Burst, FramePool};
use asterism_io::port::{MemoryPort, MeteringPort, Port, TenantCounters, TenantMap};
use asterism_packet::TcpFlags;
use asterism_packet::build::{self, Header4, Segment};
use asterism_placement::Time;

/// Tenants, each with a network.
const TENANTS: u16 = 16;

fn frame(kind: &str, number: u8) -> Option<Vec<u8>> {
    let tenant = if kind == "nobody" { 200 } else { number % 16 };
    let header = Header4::between(
        Ipv4Addr::new(10, tenant, 0, number),
        Ipv4Addr::new(192, 0, 2, 1),
    );
    let flags = match kind {
        "syn" => TcpFlags::SYN,
        _ => TcpFlags::ACK,
    };
    let mut bytes = vec![0; 64];
    match kind {
        "udp" => build::udp4(&header, 4_000, 53, &[0; 18], &mut bytes),
        _ => build::tcp4(
            &header,
            4_000,
            443,
            &Segment::with_flags(flags),
            &[0; 6],
            &mut bytes,
        ),
    }?;
    Some(bytes)
}

#[inline(never)]
fn measured(port: &mut dyn Port, pool: &mut FramePool, rounds: u32) -> usize {
    let mut burst = Burst::new();
    let mut received = 0;
    for _ in 0..rounds {
        received += port.receive(pool, &mut burst);
        pool.release_all(&mut burst);
    }
    received
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, port, rounds] = &arguments[..] else {
        eprintln!("metering_cost KIND PORT ROUNDS");
        return;
    };
    let frames: Vec<Vec<u8>> = (0..BURST as u8)
        .filter_map(|number| frame(kind, number))
        .collect();
    let inner = MemoryPort::cycling("inside", frames.iter().map(Vec::as_slice), u64::MAX);
    let networks =
        (0..TENANTS).map(|tenant| (Ipv4Addr::new(10, tenant as u8, 0, 0).into(), 16, tenant));
    let counters: Arc<[TenantCounters]> = (0..TENANTS).map(|_| TenantCounters::default()).collect();
    let mut port: Box<dyn Port> = match port.as_str() {
        "plain" => Box::new(inner),
        _ => {
            let map = Arc::new(TenantMap::new(networks));
            Box::new(MeteringPort::new(inner, map, counters.clone(), 7))
        }
    };
    let Ok(mut pool) = FramePool::new(256) else {
        return;
    };
    port.advance(Time::from_micros(1_000_000));
    let received = measured(&mut *port, &mut pool, rounds.parse().unwrap_or(1));
    let counted: u64 = counters
        .iter()
        .map(|counters| counters.read().packets)
        .sum();
    println!("{received} packets, {counted} of them counted");
}
