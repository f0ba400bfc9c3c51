//! The firewall on the engine, on two hosts: a forged segment does not hold up the connection that it is made to look of.

use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, host};
use asterism_function::build::{self, Header4, Segment};
use asterism_function::{PortNumber, Reason, TcpFlags};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::ObjectSettings;

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 5], 40_000);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 9], 443);
const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);

fn cluster() -> Cluster<Firewall> {
    let names = [MemberId(0), MemberId(1)];
    let mut network = Network::new(3);
    network.set_defaults(LinkConditions::with_delay(Duration::from_millis(2)));
    let function = Arc::new(Firewall::new(FirewallConfig {
        rules: read_rules("allow any on inside\n").expect("good rules"),
        ..FirewallConfig::default()
    }));
    let members = names.map(|name| {
        let key = ClusterKey::from_random(1, [7; 32]);
        let config = HostConfig::new(
            ClusterId(9),
            name,
            Incarnation(5),
            names.to_vec(),
            key,
            [name.0 as u8 + 1; 48],
        );
        let (channel, mut parts) = host(config, Time::ZERO).expect("a host");
        let ports: Vec<Box<dyn Port>> = vec![
            Box::new(MemoryPort::sink("inside")),
            Box::new(MemoryPort::sink("outside")),
        ];
        let pool = FramePool::new(2_048).expect("a pool");
        let settings = |_: &str| ObjectSettings::REPLICATED;
        let instance = parts
            .remove(0)
            .start(function.clone(), settings, pool, ports);
        (name, channel, vec![instance])
    });
    let mut cluster = Cluster::new(members.into(), network);
    cluster.run_until(Time::from_micros(500_000));
    cluster
}

fn segment(back: bool, flags: u8, (sequence, acknowledgement): (u32, u32), data: &[u8]) -> Vec<u8> {
    let (from, to) = if back {
        (SERVER, CLIENT)
    } else {
        (CLIENT, SERVER)
    };
    let segment = Segment {
        sequence,
        acknowledgement,
        window: 64_000,
        ..Segment::with_flags(TcpFlags(flags))
    };
    let header = Header4::between(from.0.into(), to.0.into());
    let mut bytes = vec![0; 1_600];
    let length = build::tcp4(&header, from.1, to.1, &segment, data, &mut bytes).expect("it fits");
    bytes.truncate(length);
    bytes
}

#[test]
fn a_forged_segment_holds_up_nothing_of_its_connection() {
    const SYN: u8 = TcpFlags::SYN.0;
    const ACK: u8 = TcpFlags::ACK.0;
    const RST: u8 = TcpFlags::RST.0;
    let mut cluster = cluster();
    let opening = [
        (INSIDE, segment(false, SYN, (1_000, 0), b"")),
        (OUTSIDE, segment(true, SYN | ACK, (9_000, 1_001), b"")),
        (INSIDE, segment(false, ACK, (1_001, 9_001), b"")),
    ];
    for (port, packet) in opening {
        assert!(cluster.inject(0, 0, port, &packet));
        cluster.run_until(cluster.now() + Duration::from_millis(20));
    }
    let forwarded = |cluster: &Cluster<Firewall>| {
        let tally = cluster.members()[0].instances[0].tally();
        (tally.forwarded, tally.parked)
    };
    assert_eq!(forwarded(&cluster), (3, 0));
    let begins = cluster.now();
    let forged = segment(true, RST, (0x4000_0000, 0), b"");
    assert!(cluster.inject(0, 0, OUTSIDE, &forged));
    for number in 0..100 {
        let (port, packet) = match number % 2 {
            0 => (
                OUTSIDE,
                segment(true, ACK, (9_001 + 50 * number, 1_001), &[7; 100]),
            ),
            _ => (
                INSIDE,
                segment(false, ACK, (1_001, 9_051 + 50 * number), b""),
            ),
        };
        assert!(cluster.inject(0, 0, port, &packet));
    }
    assert_eq!(forwarded(&cluster), (103, 0), "at once");
    cluster.run_until(begins + Duration::from_millis(100));
    let tally = cluster.members()[0].instances[0].tally();
    assert_eq!(tally.dropped(Reason::ParkedFlow), 0);
    assert_eq!(tally.dropped(Reason::OutOfWindow), 1);
}
