//! Wires do what their conditions say, and say when they did not. Bounds are wide: tests run beside other work.
#![expect(
    clippy::disallowed_methods,
    reason = "what is tested is time on a real network"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asterism_io::link::LinkConditions;
use asterism_lab::{
    Cable, Lab, LabError, Node, Offloads, Wire, WireConfig, WireReport, wait_until,
};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::lab;

const MS: Duration = Duration::from_millis(1);
/// How long anything may take that comes.
const PATIENCE: Duration = Duration::from_secs(20);
/// For so long nothing comes once the wire has done with all that was sent.
const SILENCE: Duration = Duration::from_millis(500);

fn pair(lab: &Lab, config: &WireConfig) -> (Node, Node, Wire) {
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let wire = lab.wire(&[(&a, "eth0"), (&b, "eth0")], config).unwrap();
    a.ip(&["addr add 10.1.0.1/24 dev eth0"]).unwrap();
    b.ip(&["addr add 10.1.0.2/24 dev eth0"]).unwrap();
    (a, b, wire)
}

fn udp(node: &Node, address: &str) -> UdpSocket {
    let socket = node.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Room for all datagrams that a test sends, in case the thread that receives them gets no time on a busy machine.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Frames of one path that are not under way: delivered, or lost in some way.
fn done_with(wire: &Wire) -> u64 {
    let report = wire.report().unwrap();
    let mut paths = report.paths.iter();
    let path = paths.find(|path| (path.from, path.to) == (0, 1)).unwrap();
    let path = path.statistics;
    (path.delivered + path.dropped()).saturating_sub(path.duplicated)
}

/// Sends `count` numbered datagrams, so many each millisecond; returns the numbers that arrived, in their order.
fn numbers((a, b): (&Node, &Node), wire: &Wire, count: u32, each_ms: u32) -> Vec<u32> {
    let (sender, receiver) = (udp(a, "10.1.0.1:0"), udp(b, "10.1.0.2:900"));
    receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let before = done_with(wire);
    set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER).unwrap();
    sender.connect("10.1.0.2:900").unwrap();
    let all_sent = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&all_sent);
    let arrived = std::thread::spawn(move || {
        let (mut buffer, mut arrived) = ([0; 2_000], Vec::new());
        loop {
            // Asked before: silence counts only if it began after the last datagram.
            let last = ended.load(Ordering::Acquire);
            match receiver.recv(&mut buffer) {
                Ok(length) => {
                    assert!(length >= 4);
                    arrived.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
                }
                Err(_) if last => return arrived,
                Err(_) => {}
            }
        }
    });
    for number in 0..count {
        let mut datagram = [0; 100];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        sender.send(&datagram).unwrap();
        if number % each_ms == 0 {
            std::thread::sleep(MS);
        }
    }
    // The wire's thread may stand still for longer than the receiver waits.
    let all = before + u64::from(count);
    wait_until("the wire", PATIENCE, || done_with(wire) >= all).unwrap();
    all_sent.store(true, Ordering::Release);
    arrived.join().unwrap()
}

/// Runs that are tried: one in which the machine was too busy to be on time says so, and shows nothing.
const RUNS_MAX: u32 = 24;

#[test]
fn a_delay_is_what_was_asked_for() {
    let Some(lab) = lab() else { return };
    for run in 1..=RUNS_MAX {
        match a_delay(&lab) {
            Ok(()) => return,
            Err(late) if run < RUNS_MAX => {
                println!("run {run} is void: {late}");
                // What kept the machine busy may end.
                std::thread::sleep(MS * 1_000);
            }
            Err(late) => panic!("{RUNS_MAX} runs are void: {late}"),
        }
    }
}

/// Forty round trips over 20 ms each way; `Err` if the wire says of itself that it was too late, or if the two ends were.
fn a_delay(lab: &Lab) -> Result<(), LabError> {
    const ROUND_TRIPS: u8 = 41;
    let delay = MS * 20;
    let (a, b, wire) = pair(lab, &WireConfig::default().delay(delay));
    let (client, server) = (udp(&a, "10.1.0.1:0"), udp(&b, "10.1.0.2:7"));
    client.connect("10.1.0.2:7").unwrap();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        for _ in 0..ROUND_TRIPS {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(&buffer[..length], from).unwrap();
        }
    });
    let mut round_trips = Vec::new();
    // The first also asks for the neighbours' addresses.
    for number in 0..ROUND_TRIPS {
        let sent = Instant::now();
        client.send(&[number]).unwrap();
        client.recv(&mut [0; 10]).unwrap();
        round_trips.push(sent.elapsed());
        if number == 0 {
            wire.forget_lateness().unwrap();
        }
    }
    echo.join().unwrap();
    let steady = &mut round_trips[1..];
    steady.sort();
    assert!(steady[0] >= delay * 2, "{:?}", steady[0]);
    let report = wire.report().unwrap();
    assert!(report.lateness.frames() >= 80, "{:?}", report.lateness);
    report.sound(2_000)?;
    if steady[20] >= delay * 2 + MS * 8 {
        return Err(LabError::Failed {
            what: "the median round trip".to_owned(),
            said: format!("{:?}", steady[20]),
        });
    }
    assert!(matches!(
        report.lateness.within(0),
        Err(LabError::Late { .. }) | Ok(())
    ));
    println!(
        "round trips {:?} to {:?}; {:?}",
        steady[0], steady[39], report.lateness
    );
    Ok(())
}

#[test]
fn loss_duplication_and_reordering_take_effect_and_are_counted() {
    let Some(lab) = lab() else { return };
    let (a, b, wire) = pair(&lab, &WireConfig::default());
    assert_eq!(numbers((&a, &b), &wire, 100, 10).len(), 100);
    let before = wire.report().unwrap().paths[0].statistics;
    wire.set(
        0,
        1,
        LinkConditions {
            loss: 0.1,
            duplication: 0.05,
            reordering: 0.05,
            reordering_delay: MS * 5,
            delay: MS,
            ..LinkConditions::default()
        },
    )
    .unwrap();
    let arrived = numbers((&a, &b), &wire, 4_000, 20);
    let report = wire.report().unwrap();
    let path = report
        .paths
        .iter()
        .find(|path| (path.from, path.to) == (0, 1))
        .unwrap()
        .statistics;
    let (lost, duplicated) = (path.lost - before.lost, path.duplicated - before.duplicated);
    assert!((300..500).contains(&lost), "{path:?}");
    assert!((100..300).contains(&duplicated), "{path:?}");
    assert!(path.reordered > 50, "{path:?}");
    // Frames of ARP are frames too.
    let expected = 4_000 - lost + duplicated;
    assert!(
        (arrived.len() as u64).abs_diff(expected) <= 4,
        "{} {path:?}",
        arrived.len()
    );
    assert!(arrived.windows(2).any(|two| two[0] > two[1]));
    assert!(wire.set(0, 2, LinkConditions::default()).is_err());
}

fn transfer(a: &Node, b: &Node, bytes: usize) -> Duration {
    let server = b
        .enter(|| TcpListener::bind("10.1.0.2:0"))
        .unwrap()
        .unwrap();
    let address = server.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let mut stream = server.accept().unwrap().0;
        let (mut buffer, mut total) = (vec![0; 1 << 20], 0);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return (total, Instant::now()),
                length => total += length,
            }
        }
    });
    let mut stream = a.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    let started = Instant::now();
    stream.write_all(&vec![1; bytes]).unwrap();
    drop(stream);
    let (total, ended) = receiver.join().unwrap();
    assert_eq!(total, bytes);
    ended - started
}

#[test]
fn a_rate_limits_and_partitions_cut() {
    let Some(lab) = lab() else { return };
    let (a, b, wire) = pair(&lab, &WireConfig::default());
    wire.set_all(&LinkConditions {
        bits_per_second: Some(100_000_000),
        delay: MS,
        ..LinkConditions::default()
    })
    .unwrap();
    let bytes = 5_000_000;
    // None is faster than that, and one finds the machine at leisure.
    let mut rates = Vec::new();
    while rates.last().is_none_or(|megabits| *megabits < 40.0) {
        assert!(rates.len() < RUNS_MAX as usize, "{rates:?}");
        let took = transfer(&a, &b, bytes);
        rates.push(bytes as f64 * 8.0 / took.as_secs_f64() / 1e6);
    }
    assert!(rates.iter().all(|megabits| *megabits < 99.0), "{rates:?}");
    wire.set_all(&LinkConditions {
        partitioned: true,
        ..LinkConditions::default()
    })
    .unwrap();
    assert_eq!(numbers((&a, &b), &wire, 20, 10), Vec::<u32>::new());
    assert!(wire.report().unwrap().total().partitioned >= 20);
    wire.set_all(&LinkConditions::default()).unwrap();
    assert_eq!(numbers((&a, &b), &wire, 20, 10).len(), 20);
}

/// TCP of a kernel with its offloads on: frames without checksum, up to 64 KiB.
#[test]
fn offloaded_frames_pass_as_they_are() {
    let Some(lab) = lab() else { return };
    let cable = Cable::default().offloads(Offloads::On);
    let (a, b, wire) = pair(
        &lab,
        &WireConfig {
            cable,
            ..WireConfig::default()
        },
    );
    let took = transfer(&a, &b, 64 << 20);
    let report = wire.report().unwrap();
    let path = report.paths[0].statistics;
    assert!(path.sent_bytes / path.sent > 2_000, "{path:?}");
    println!(
        "{:.1} Gb/s; {:?}",
        (64u64 << 23) as f64 / took.as_secs_f64() / 1e9,
        report.lateness
    );
    assert!(
        report.ports.iter().all(|port| port.not_carried == 0),
        "{:?}",
        report.ports
    );
}

#[test]
fn a_switch_delays_each_pair_by_its_own() {
    let Some(lab) = lab() else { return };
    let nodes: Vec<_> = (0..3)
        .map(|n| lab.node(&format!("n{n}")).unwrap())
        .collect();
    let ends: Vec<_> = nodes.iter().map(|node| (node, "chan0")).collect();
    let wire = lab.wire(&ends, &WireConfig::default()).unwrap();
    let sockets: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(place, node)| {
            node.ip(&[
                format!("addr add 10.1.0.{}/24 dev chan0", place + 1),
                "route add 224.0.0.0/4 dev chan0".to_owned(),
            ])
            .unwrap();
            let socket = udp(node, "0.0.0.0:901");
            socket
                .join_multicast_v4(
                    &"239.1.2.3".parse().unwrap(),
                    &format!("10.1.0.{}", place + 1).parse().unwrap(),
                )
                .unwrap();
            socket
        })
        .collect();
    wire.set(0, 2, LinkConditions::with_delay(MS * 60)).unwrap();
    sockets[0].set_multicast_loop_v4(false).unwrap();
    // The far one is never early, and once the machine finds the time for the near one.
    let mut times = Vec::new();
    while times.last().is_none_or(|near| *near >= MS * 55) {
        assert!(times.len() < RUNS_MAX as usize, "{times:?}");
        let sent = Instant::now();
        sockets[0].send_to(b"news", "239.1.2.3:901").unwrap();
        sockets[1].recv(&mut [0; 10]).unwrap();
        times.push(sent.elapsed());
        sockets[2].recv(&mut [0; 10]).unwrap();
        let far = sent.elapsed();
        assert!(far >= MS * 60, "{far:?}");
    }
    let counts = |from, to| {
        let report = wire.report().unwrap();
        report
            .paths
            .iter()
            .find(|path| (path.from, path.to) == (from, to))
            .unwrap()
            .statistics
            .sent
    };
    assert!(counts(0, 1) >= 1 && counts(0, 2) >= 1);
    assert!(lab.wire(&ends[..1], &WireConfig::default()).is_err());
}

/// An interface that goes down under the wire loses frames, and the wire says so and goes on.
#[test]
fn a_port_that_goes_down_is_counted_and_comes_back() {
    let Some(lab) = lab() else { return };
    let (a, b, wire) = pair(&lab, &WireConfig::default());
    assert_eq!(numbers((&a, &b), &wire, 20, 10).len(), 20);
    b.ip(&["link set dev eth0 down"]).unwrap();
    let sender = udp(&a, "10.1.0.1:0");
    for _ in 0..10 {
        sender.send_to(b"lost", "10.1.0.2:900").unwrap();
    }
    let lost = |report: &WireReport| report.ports.iter().map(|port| port.not_sent).sum::<u64>();
    let is_lost = || lost(&wire.report().unwrap()) >= 10;
    wait_until("the wire to lose them", PATIENCE, is_lost).unwrap();
    b.ip(&["link set dev eth0 up"]).unwrap();
    let back = udp(&b, "10.1.0.2:901");
    back.set_nonblocking(true).unwrap();
    let is_back = || {
        sender.send_to(b"back", "10.1.0.2:901").unwrap();
        back.recv(&mut [0; 10]).is_ok()
    };
    wait_until("the port to be up", PATIENCE, is_back).unwrap();
    assert_eq!(numbers((&a, &b), &wire, 20, 10).len(), 20);
    let report = wire.report().unwrap();
    assert!(report.paths[0].statistics.sent >= 50, "{report:?}");
}
