//! A director on a real segment: a client, a director on an AF_PACKET port, and three hosts that all have the shared address,
//! each in a network namespace. Needs root and `ip`; says `SKIPPED` without.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_director::{
    Command, Control, Director, DirectorConfig, DirectorStatistics, Done, Host, HostLink,
    MacAddress, run,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{AfPacketConfig, AfPacketPort, Port};
use asterism_lab::{Cable, Lab, Node};

use crate::harness::{NAMES, SHARED, config, slot, table};

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const PORT: u16 = 5_000;
/// How long a test waits for what must happen.
const WAIT: Duration = Duration::from_secs(30);

fn host_address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 50 + number as u8)
}

/// A segment, with a director that runs on a thread until it is dropped.
struct Segment {
    client: Node,
    hosts: Vec<UdpSocket>,
    control: Control,
    /// So that a late answer to what was asked before is none to what is asked now.
    asked: u8,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<DirectorStatistics>>,
    // Dropped last: nodes and programs end with it.
    _nodes: Vec<Node>,
    _lab: Lab,
}

impl Segment {
    fn new() -> Segment {
        let lab = Lab::new().unwrap();
        let switch = lab.node("switch").unwrap();
        let client = lab.node("client").unwrap();
        let director = lab.node("director").unwrap();
        let hosts: Vec<Node> = NAMES[..3]
            .iter()
            .map(|name| lab.node(name).unwrap())
            .collect();
        let mut ends = vec![(&client, "out"), (&director, "out")];
        ends.extend(hosts.iter().map(|host| (host, "in")));
        lab.bridge(&switch, "segment", &ends, &Cable::default())
            .unwrap();
        client
            .ip(&[format!("address add {CLIENT}/24 dev out")])
            .unwrap();
        let mut sockets = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            // The shared address is on no interface of the segment, and not answered for.
            host.sysctl("net/ipv4/conf/all/arp_ignore", "1").unwrap();
            host.sysctl("net/ipv4/conf/all/arp_announce", "2").unwrap();
            host.ip(&[
                format!("address add {}/24 dev in", host_address(number)),
                format!("address add {SHARED}/32 dev lo"),
            ])
            .unwrap();
            let socket = host.enter(|| UdpSocket::bind((SHARED, PORT)).unwrap());
            let socket = socket.unwrap();
            socket.set_nonblocking(true).unwrap();
            sockets.push(socket);
        }
        let open = || AfPacketPort::open(&AfPacketConfig::new("out", "out")).unwrap();
        let port = director.enter(open).unwrap();
        let mac = mac_of(&director, "out");
        let mut config: DirectorConfig = config();
        config.arms[0].mac = mac;
        let clock = MonotonicClock::new();
        let pool = FramePool::new(2_048).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![Box::new(port)];
        let (mut director_loop, control) = Director::new(config, ports, pool, clock.now()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            run(&mut director_loop, clock, &stopped);
            director_loop.statistics()
        });
        let mut nodes = hosts;
        nodes.extend([switch, director]);
        let mut segment = Segment {
            client,
            hosts: sockets,
            control,
            asked: 0,
            stop,
            thread: Some(thread),
            _nodes: nodes,
            _lab: lab,
        };
        segment.set_up();
        segment
    }

    /// Gives the director its hosts, whose Ethernet addresses it learns, and waits until it has.
    fn set_up(&mut self) {
        for number in 0..3 {
            let link = HostLink {
                mac: None,
                address: Some(host_address(number)),
            };
            self.command(Command::SetHost {
                slot: slot(number),
                host: Host::on_first_arm(link),
            });
        }
        self.command(Command::Table(Box::new(table(&[0, 1, 2], &[]))));
        asterism_lab::wait_until("the hosts' Ethernet addresses", WAIT, || {
            let statistics = self.control.statistics();
            statistics.is_some_and(|all| all.targets[..3].iter().all(|one| one.is_reachable))
        })
        .unwrap();
    }

    fn command(&mut self, command: Command) -> Done {
        let number = self.control.send(command).unwrap();
        let mut answer = None;
        asterism_lab::wait_until("an answer of the director", WAIT, || {
            answer = self.control.poll().unwrap();
            answer.is_some()
        })
        .unwrap();
        let answer = answer.unwrap();
        assert_eq!(answer.number, number);
        answer.result.unwrap()
    }

    /// Which host answers each of so many flows of the client.
    fn who_answers(&mut self, flows: u16) -> Vec<usize> {
        self.asked += 1;
        let question = [self.asked];
        let sockets: Vec<UdpSocket> = self
            .client
            .enter(|| {
                let open = |flow| UdpSocket::bind((CLIENT, 20_000 + flow)).unwrap();
                (0..flows).map(open).collect()
            })
            .unwrap();
        let mut found = vec![usize::MAX; usize::from(flows)];
        asterism_lab::wait_until("an answer to every flow", WAIT, || {
            for (socket, host) in sockets.iter().zip(&found) {
                if *host == usize::MAX {
                    // The first may wait for ARP, and be lost.
                    let _ = socket.send_to(&question, (SHARED, PORT));
                }
            }
            asterism_lab::pause(Duration::from_millis(20));
            let mut bytes = [0; 16];
            for (number, host) in self.hosts.iter().enumerate() {
                while let Ok((_, from)) = host.recv_from(&mut bytes) {
                    let _ = host.send_to(&[number as u8, bytes[0]], from);
                }
            }
            asterism_lab::pause(Duration::from_millis(5));
            for (socket, host) in sockets.iter().zip(&mut found) {
                socket.set_nonblocking(true).unwrap();
                while let Ok((2, from)) = socket.recv_from(&mut bytes) {
                    assert_eq!(from, (SHARED, PORT).into(), "the answer comes directly");
                    if bytes[1] == self.asked {
                        *host = usize::from(bytes[0]);
                    }
                }
            }
            !found.contains(&usize::MAX)
        })
        .unwrap();
        found
    }

    fn end(mut self) -> DirectorStatistics {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it counted is of no more interest.
            let _ = thread.join();
        }
    }
}

/// The Ethernet address of an interface of a node.
fn mac_of(node: &Node, interface: &str) -> MacAddress {
    let shown = node.ip(&[format!("link show dev {interface}")]).unwrap();
    let (_, rest) = shown.split_once("link/ether ").unwrap();
    let mut mac = MacAddress::default();
    let digits = rest.split(' ').next().unwrap().split(':');
    for (byte, digits) in mac.0.iter_mut().zip(digits) {
        *byte = u8::from_str_radix(digits, 16).unwrap();
    }
    mac
}

#[test]
fn a_client_finds_the_cluster_and_its_flows_spread_over_three_hosts() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a director on a segment: {why}");
        return;
    }
    const FLOWS: u16 = 240;
    let mut segment = Segment::new();
    let before = segment.who_answers(FLOWS);
    for host in 0..3 {
        let count = before.iter().filter(|one| **one == host).count();
        assert!((40..=120).contains(&count), "host {host} answered {count}");
    }
    assert_eq!(segment.who_answers(FLOWS), before, "flows stay");

    // A host is taken out: its flows go to the others, whose flows stay where they are.
    segment.command(Command::Table(Box::new(table(&[0, 2], &[]))));
    let after = segment.who_answers(FLOWS);
    for (old, new) in before.iter().zip(&after) {
        assert!(*new != 1 && (*old == 1 || old == new));
    }
    let statistics = segment.end();
    assert!(statistics.answered >= 1, "the client asked by ARP");
    assert_eq!(statistics.hosts_learnt, 3);
    assert!(statistics.forwarded >= 3 * u64::from(FLOWS));
}
