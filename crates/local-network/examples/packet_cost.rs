//! What the network costs, by the clock of processor time: a packet from a client's port through the inside segment to the director,
//! and through the segment again to a host; and a network whose hosts do not run.
//!
//!     cargo run --release -p asterism-local-network --example packet_cost

use std::net::Ipv4Addr;
use std::time::Duration;

use asterism_director::table::{BucketSpace, Share, Slot, Table};
use asterism_director::{
    ArmConfig, Command, Director, DirectorConfig, FlowBy, Host, HostLink, Side,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_local_network::addresses::LinkSide;
use asterism_local_network::segment::Segment;
use asterism_local_network::{LocalNetwork, LocalNetworkConfig, cable};
use asterism_packet::build::{self, Header4};
use asterism_placement::Time;
use rustix::time::{ClockId, clock_gettime};

const FLOWS: u32 = 10_000;
const PACKETS: u64 = 20_000_000;
const SIDE: LinkSide = LinkSide::Inside;

fn main() {
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(frame).collect();
    let source = || MemoryPort::cycling("clients", frames.iter().map(Vec::as_slice), u64::MAX);

    // The segment alone, to a sink: what its share is.
    let mut segment = Segment::new(1).expect("memory");
    let port = segment.add_port(Box::new(source())).expect("a port");
    segment
        .add_station(SIDE.router_mac(), port)
        .expect("a place");
    let sink = segment
        .add_port(Box::new(MemoryPort::sink("director")))
        .expect("a port");
    segment
        .add_station(SIDE.director_mac(0), sink)
        .expect("a place");
    let alone = measure(|now| segment.turn(now));
    println!("one segment, memory to sink: {alone:.1} ns a packet");

    let mut segment = Segment::new(1).expect("memory");
    let port = segment.add_port(Box::new(source())).expect("a port");
    segment
        .add_station(SIDE.router_mac(), port)
        .expect("a place");
    let (own, other) = cable("director", "segment").expect("memory");
    let arm = segment.add_port(Box::new(other)).expect("a port");
    segment
        .add_station(SIDE.director_mac(0), arm)
        .expect("a place");
    let space = BucketSpace::new(16_384, 7).expect("a power of two");
    let mut director = director(space, Box::new(own));
    for number in 0..3 {
        let host = segment
            .add_port(Box::new(MemoryPort::sink("host")))
            .expect("a port");
        segment
            .add_station(SIDE.host_mac(number), host)
            .expect("a place");
    }
    let through = measure(|now| {
        let received = segment.turn(now);
        director.turn(now);
        // Frames of the clients and of the director: a packet is received twice.
        received.div_ceil(2)
    });
    let dropped: u64 = segment.statistics().dropped.iter().sum();
    println!(
        "segment, cable, director, cable, segment: {through:.1} ns a packet; {dropped} dropped"
    );
    println!(
        "a network that waits for three hosts: {:.2} % of a core",
        idle_percent()
    );
}

/// Processor time of a network without hosts that run, in percent of a core.
fn idle_percent() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = ["a", "b", "c"].map(String::from).to_vec();
    let config = LocalNetworkConfig::new(folder.path(), hosts);
    let clock = MonotonicClock::new();
    let (network, _controls) = LocalNetwork::start(config, clock).expect("a network");
    let pass = |time: Duration| {
        let until = clock.now().saturating_add(time);
        while clock.now() < until {
            std::thread::park_timeout(until.since(clock.now()));
        }
    };
    pass(Duration::from_millis(500));
    let (begin, at) = (read(ClockId::ProcessCPUTime), clock.now());
    pass(Duration::from_secs(3));
    let spent = read(ClockId::ProcessCPUTime) - begin;
    let passed = clock.now().since(at).as_nanos();
    drop(network);
    100.0 * spent as f64 / passed as f64
}

/// Nanoseconds of processor time for each packet.
fn measure(mut turn: impl FnMut(Time) -> usize) -> f64 {
    let mut packets = 0;
    let mut round = 0;
    let mut run = |until: u64| {
        let mut handled = 0;
        while handled < until {
            round += 1;
            handled += turn(Time::from_micros(round)) as u64;
        }
        handled
    };
    run(PACKETS / 10);
    let begin = read(ClockId::ThreadCPUTime);
    packets += run(PACKETS);
    (read(ClockId::ThreadCPUTime) - begin) as f64 / packets as f64
}

fn read(clock: ClockId) -> u64 {
    let read = clock_gettime(clock);
    read.tv_sec as u64 * 1_000_000_000 + read.tv_nsec as u64
}

fn frame(number: u32) -> Vec<u8> {
    let mut header = Header4::between(
        Ipv4Addr::new(10, 78, 0, 1 + (number % 250) as u8),
        Ipv4Addr::new(198, 18, 0, 1 + (number % 253) as u8),
    );
    header.ethernet_source = SIDE.router_mac();
    header.ethernet_destination = SIDE.director_mac(0);
    let mut bytes = vec![0; 200];
    let port = 20_000 + (number / 250) as u16;
    let length = build::udp4(&header, port, 7_000, &[0; 18], &mut bytes);
    bytes.truncate(length.expect("it fits"));
    bytes
}

fn director(space: BucketSpace, port: Box<dyn Port>) -> Director {
    let arm = ArmConfig {
        mac: SIDE.director_mac(0),
        own_address: Some(SIDE.director(0)),
        shared: vec![SIDE.gateway().into()],
        by: FlowBy::OutsideEndpoint,
        side: Side::Inside,
        sends_to: Some(0),
    };
    let mut config = DirectorConfig::new(vec![arm], space);
    config.suspended.packets_max = 1_024;
    let pool = FramePool::new(4_096).expect("memory");
    let (mut director, mut control) =
        Director::new(config, vec![port], pool, Time::ZERO).expect("a director");
    let names = ["a", "b", "c"];
    let slots = [0, 1, 2].map(|number| Slot::new(number).expect("a slot"));
    for (number, slot) in (0..).zip(slots) {
        let host = Host::on_first_arm(HostLink {
            mac: Some(SIDE.host_mac(number)),
            address: None,
        });
        control
            .send(Command::SetHost { slot, host })
            .expect("a place");
        director.turn(Time::ZERO);
    }
    let shares: Vec<_> = names
        .iter()
        .zip(slots)
        .map(|(name, slot)| Share {
            slot,
            name,
            weight: 100,
        })
        .collect();
    let table = Table::new(space, &shares, &[], &Default::default());
    control
        .send(Command::Table(Box::new(table)))
        .expect("a place");
    director.turn(Time::ZERO);
    director
}
