//! The port that counts by tenant, around a port in memory.

use std::net::Ipv4Addr;
use std::sync::Arc;

use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{MemoryPort, MeteringPort, Port, TenantCounters, TenantCounts, TenantMap};
use asterism_packet::build::{self, Header4, Segment};
use asterism_packet::{Flow4, TcpFlags};
use asterism_placement::Time;

const BLUE: usize = 0;
const GREEN: usize = 1;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn host(tenant: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + tenant as u8, 0, 7)
}

fn metering(inner: MemoryPort) -> (MeteringPort<MemoryPort>, Arc<[TenantCounters]>) {
    let map = TenantMap::new([
        (Ipv4Addr::new(10, 1, 0, 0).into(), 16, 0),
        (Ipv4Addr::new(10, 2, 0, 0).into(), 16, 1),
    ]);
    let counters: Arc<[TenantCounters]> = [BLUE, GREEN].map(|_| TenantCounters::default()).into();
    let port = MeteringPort::new(inner, Arc::new(map), counters.clone(), 7);
    (port, counters)
}

fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut frame = vec![0; 100];
    let header = Header4::between(from.0, to.0);
    let length = build::udp4(&header, from.1, to.1, &[0; 30], &mut frame).unwrap();
    frame.truncate(length);
    frame
}

fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: TcpFlags) -> Vec<u8> {
    let mut frame = vec![0; 60];
    let header = Header4::between(from.0, to.0);
    let segment = Segment::with_flags(flags);
    let length = build::tcp4(&header, from.1, to.1, &segment, &[], &mut frame).unwrap();
    frame.truncate(length);
    frame
}

/// Has the port receive and send these frames at a time; what was counted since the last call, by tenant.
struct Bench {
    pool: FramePool,
    port: MeteringPort<MemoryPort>,
    counters: Arc<[TenantCounters]>,
    before: [TenantCounts; 2],
}

impl Bench {
    fn new(received: &[Vec<u8>]) -> Bench {
        let mut inner = MemoryPort::new("inside");
        received.iter().for_each(|frame| inner.feed(frame.clone()));
        let (port, counters) = metering(inner);
        Bench {
            pool: FramePool::new(64).unwrap(),
            port,
            counters,
            before: Default::default(),
        }
    }

    fn receive(&mut self, seconds: u64) -> [TenantCounts; 2] {
        self.port.advance(Time::from_micros(seconds * 1_000_000));
        let mut burst = Burst::new();
        // What is in the burst already was counted where it came from.
        let other = self.pool.allocate_copy(&udp((host(BLUE), 1), (SERVER, 1)));
        let _ = burst.push(other.unwrap());
        let received = self.port.receive(&mut self.pool, &mut burst);
        assert_eq!(burst.len(), 1 + received);
        self.pool.release_all(&mut burst);
        self.since()
    }

    fn send(&mut self, seconds: u64, frames: &[Vec<u8>]) -> [TenantCounts; 2] {
        self.port.advance(Time::from_micros(seconds * 1_000_000));
        let mut burst = Burst::new();
        for frame in frames {
            let _ = burst.push(self.pool.allocate_copy(frame).unwrap());
        }
        assert_eq!(self.port.send(&mut self.pool, &mut burst), frames.len());
        self.since()
    }

    fn since(&mut self) -> [TenantCounts; 2] {
        let now = [BLUE, GREEN].map(|tenant| self.counters[tenant].read());
        let before = std::mem::replace(&mut self.before, now);
        [BLUE, GREEN].map(|tenant| TenantCounts {
            packets: now[tenant].packets - before[tenant].packets,
            bytes: now[tenant].bytes - before[tenant].bytes,
            flows: now[tenant].flows - before[tenant].flows,
        })
    }
}

fn counts(packets: u64, bytes: u64, flows: u64) -> TenantCounts {
    TenantCounts {
        packets,
        bytes,
        flows,
    }
}

#[test]
fn packets_are_counted_for_the_address_behind_the_port() {
    let out = udp((host(BLUE), 1_000), (SERVER, 53));
    let bytes = out.len() as u64;
    let nobodys = udp((Ipv4Addr::new(10, 9, 0, 1), 1), (host(BLUE), 53));
    let arp = vec![0xff; 60];
    let short = vec![0; 7];
    let mut bench = Bench::new(&[out.clone(), out.clone(), nobodys.clone(), arp, short]);
    assert_eq!(
        bench.receive(1),
        [counts(2, 2 * bytes, 1), TenantCounts::default()]
    );
    // Answers count for their receiver, and begin nothing.
    let answer = udp((SERVER, 53), (host(GREEN), 1_000));
    assert_eq!(
        bench.send(1, &[answer.clone(), answer, nobodys]),
        [counts(1, bytes, 0), counts(2, 2 * bytes, 0)]
    );
    assert_eq!(bench.pool.in_use(), 0);
    assert_eq!(bench.port.statistics().sent_packets, 3, "those of the port");
}

#[test]
fn a_connection_begins_once_from_either_side() {
    let (own, server) = ((host(BLUE), 40_000), (SERVER, 80));
    let syn = tcp(own, server, TcpFlags::SYN);
    let data = tcp(own, server, TcpFlags::ACK);
    let bytes = syn.len() as u64;
    let mut bench = Bench::new(&[syn.clone(), data.clone(), syn.clone(), data]);
    assert_eq!(bench.receive(1)[BLUE], counts(4, 4 * bytes, 1));
    let accepted = tcp(server, own, TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(bench.send(1, &[accepted])[BLUE], counts(1, bytes, 0));
    // From outside, and the same ports again after a minute.
    let from_outside = tcp((SERVER, 5_000), (host(BLUE), 22), TcpFlags::SYN);
    let both = [from_outside.clone(), from_outside];
    assert_eq!(bench.send(2, &both)[BLUE], counts(2, 2 * bytes, 1));
    assert_eq!(bench.send(120, &both)[BLUE].flows, 1);
}

/// Makes a packet the first of several fragments, with the header's checksum (RFC 1624, equation 3).
fn set_more_fragments(frame: &mut [u8]) {
    let word = |at: usize, frame: &[u8]| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let (before, checksum) = (word(20, frame), word(24, frame));
    let mut sum = (!checksum & 0xffff) + (!before & 0xffff) + 0x2000;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[20..22].copy_from_slice(&[0x20, 0]);
    frame[24..26].copy_from_slice(&(!sum as u16).to_be_bytes());
}

#[test]
fn other_protocols_errors_and_fragments() {
    let mut frame = vec![0; 98];
    let flow = Flow4 {
        source: host(GREEN),
        destination: SERVER,
        source_port: 9,
        destination_port: 0,
        protocol: 1,
    };
    let length = build::flow4(&flow, &[0; 40], &mut frame).unwrap();
    frame.truncate(length);
    let ping = frame;
    let lost = udp((SERVER, 53), (host(GREEN), 1_000));
    let mut error = vec![0; 200];
    let length = build::icmp_unreachable(&lost, host(GREEN), 3, &mut error).unwrap();
    error.truncate(length);
    let mut fragment = udp((host(GREEN), 1_000), (SERVER, 53));
    set_more_fragments(&mut fragment);
    let packets = [ping.clone(), ping, error, fragment];
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let mut bench = Bench::new(&packets);
    assert_eq!(bench.receive(1)[GREEN], counts(4, bytes as u64, 1));
}

#[test]
fn ipv6_is_counted_too() {
    let map = TenantMap::new([("2001:db8:1::".parse().unwrap(), 48, 1)]);
    let counters: Arc<[TenantCounters]> = [BLUE, GREEN].map(|_| TenantCounters::default()).into();
    let mut frame = vec![0; 14 + 40 + 8];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[14 + 5] = 8;
    frame[14 + 6] = 17;
    frame[14 + 7] = 64;
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    frame[22..38].copy_from_slice(&address("2001:db8:1::5"));
    frame[38..54].copy_from_slice(&address("2001:db8:9::1"));
    frame[54..62].copy_from_slice(&[0x10, 0, 0, 53, 0, 8, 0, 0]);
    let mut inner = MemoryPort::new("inside");
    inner.feed(frame.clone());
    inner.feed(frame);
    let mut port = MeteringPort::new(inner, Arc::new(map), counters.clone(), 7);
    let mut pool = FramePool::new(64).unwrap();
    let mut burst = Burst::new();
    assert_eq!(port.receive(&mut pool, &mut burst), 2);
    pool.release_all(&mut burst);
    assert_eq!(counters[GREEN].read(), counts(2, 124, 1));
    // A tenant of the map that has no counters is not counted, and nothing fails.
    let map = TenantMap::new([(host(BLUE).into(), 32, 9)]);
    let mut inner = MemoryPort::new("inside");
    inner.feed(udp((host(BLUE), 1), (SERVER, 1)));
    let mut port = MeteringPort::new(inner, Arc::new(map), counters.clone(), 7);
    assert_eq!(port.receive(&mut pool, &mut burst), 1);
    pool.release_all(&mut burst);
    assert_eq!(counters[BLUE].read(), TenantCounts::default());
}
