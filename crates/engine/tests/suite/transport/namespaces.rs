//! Hosts in network namespaces: real interfaces, a bridge, routers with a narrow path. Needs root.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use asterism_engine::transport::{Notice, PeerFault, RunConfig, TransportEvent, UdpConfig};
use asterism_lab::{Cable, Lab, Node, permitted};
use asterism_placement::MemberId;

use crate::transport::hosts::{Host, exercise, host_config, meet};

/// Whether the tests of this file can run; says so if not.
fn may_run() -> bool {
    if !permitted() {
        println!("SKIPPED hosts in network namespaces: only root may make them");
    }
    permitted()
}

/// The addresses of a segment.
#[derive(Clone, Copy)]
struct Segment {
    prefix: &'static str,
    length: u8,
    group: &'static str,
}

const V4: Segment = Segment {
    prefix: "10.77.0.",
    length: 24,
    group: "239.192.7.7:4748",
};
const V6: Segment = Segment {
    prefix: "fd77::",
    length: 64,
    group: "[ff15::7:7]:4748",
};

impl Segment {
    fn ip(self, number: u16) -> String {
        format!("{}{}", self.prefix, number + 1)
    }
    fn at(self, number: u16) -> SocketAddr {
        SocketAddr::new(self.ip(number).parse().unwrap(), 4747)
    }
    fn config(self, number: u16, count: u16) -> UdpConfig {
        let others = (0..count).filter(|&other| other != number);
        UdpConfig::new(
            self.at(number),
            others.map(|other| (MemberId(other), self.at(other))),
        )
    }
}

fn lines(node: &Node, lines: &[String]) {
    node.ip(lines).unwrap();
}

/// Nodes on one bridge, each with an address on `eth0`.
fn bridged(lab: &Lab, segment: Segment, count: u16) -> (Node, Vec<Node>) {
    let switch = lab.node("switch").unwrap();
    let nodes: Vec<Node> = (0..count)
        .map(|number| lab.node(&format!("host{number}")).unwrap())
        .collect();
    let ends: Vec<_> = nodes.iter().map(|node| (node, "eth0")).collect();
    lab.bridge(&switch, "br", &ends, &Cable::default()).unwrap();
    for (number, node) in nodes.iter().enumerate() {
        address(node, segment, number as u16);
    }
    (switch, nodes)
}

fn address(node: &Node, segment: Segment, number: u16) {
    node.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0").unwrap();
    let (ip, length) = (segment.ip(number), segment.length);
    let flag = if segment.length == 64 { "nodad" } else { "" };
    lines(
        node,
        &[format!("address add {ip}/{length} dev eth0 {flag}")],
    );
}

fn start(node: &Node, number: u16, count: u16, udp: &UdpConfig) -> Host {
    node.enter(|| Host::start(number, count, udp, RunConfig::default()))
        .unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn three_hosts_on_a_bridge_send_one_frame_for_all() {
    if !may_run() {
        return;
    }
    for segment in [V4, V6] {
        let lab = Lab::new().unwrap();
        let (_switch, nodes) = bridged(&lab, segment, 3);
        let hosts: Vec<Host> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| {
                let udp = segment
                    .config(number as u16, 3)
                    .with_multicast(segment.group.parse().unwrap(), "eth0");
                start(node, number as u16, 3, &udp)
            })
            .collect();
        meet(&hosts);
        exercise(&hosts, 3_000, 0);
        for (host, node) in hosts.iter().zip(&nodes) {
            let before = host.snapshot().transport;
            assert!(before.multicast_sent > 20, "{before:?}");
            let frames = node.interface_counts("eth0").unwrap().sent;
            let after = host.snapshot().transport;
            // Offloads are off: every datagram is a frame. Beside them there are the neighbours' questions.
            assert!(
                frames <= after.datagrams_sent + 60,
                "{frames} frames, {after:?}"
            );
            assert!(
                frames + 60 >= before.datagrams_sent,
                "{frames} frames, {before:?}"
            );
            assert_eq!(after.own_received, 0, "no loop");
        }
    }
}

#[test]
fn a_member_without_multicast_gets_unicast() {
    if !may_run() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (_switch, nodes) = bridged(&lab, V4, 3);
    let hosts: Vec<Host> = (0..3u16)
        .map(|number| {
            let mut udp = V4.config(number, 3);
            if number < 2 {
                udp = udp.with_multicast(V4.group.parse().unwrap(), "eth0");
                for peer in &mut udp.peers {
                    peer.multicast = peer.member != MemberId(2);
                }
            }
            start(&nodes[usize::from(number)], number, 3, &udp)
        })
        .collect();
    meet(&hosts);
    exercise(&hosts, 1_000, 0);
    let snapshot = hosts[0].snapshot();
    let traffic = |member| snapshot.member(MemberId(member)).unwrap().traffic.unwrap();
    assert!(snapshot.transport.multicast_sent > 10);
    assert!(traffic(1).multicast && !traffic(2).multicast);
    assert!(traffic(2).datagrams_sent >= snapshot.transport.multicast_sent);
    assert_eq!(hosts[2].snapshot().transport.multicast_sent, 0);
}

/// Two hosts with two routers between them, of which the link in the middle has that MTU.
fn routed(lab: &Lab, middle_mtu: u32) -> (Vec<Node>, Vec<Host>) {
    routed_by(lab, middle_mtu, V4_NETS, 1_472)
}

/// The networks of the routed hosts: the left one's, the right one's, and between the routers.
const V4_NETS: [&str; 3] = ["10.1.0.", "10.2.0.", "10.3.0."];
const V6_NETS: [&str; 3] = ["fd01::", "fd02::", "fd03::"];

fn routed_by(
    lab: &Lab,
    middle_mtu: u32,
    [left, right, middle]: [&str; 3],
    datagram_bytes_max: usize,
) -> (Vec<Node>, Vec<Host>) {
    let is_v6 = left.contains(':');
    let length = if is_v6 { 64 } else { 24 };
    let nodes = ["host0", "host1", "router", "second"].map(|name| lab.node(name).unwrap());
    let [host0, host1, router, second] = &nodes;
    let narrow = Cable {
        mtu_bytes: middle_mtu,
        ..Cable::default()
    };
    // Hosts far enough apart that the narrow link is nobody's own: host - router - second router - host.
    for (one, other, cable) in [
        ((host0, "eth0"), (router, "left"), &Cable::default()),
        ((router, "right"), (second, "left"), &narrow),
        ((second, "right"), (host1, "eth0"), &Cable::default()),
    ] {
        lab.cable(one, other, cable).unwrap();
        for (node, interface) in [one, other].into_iter().filter(|_| is_v6) {
            let name = format!("net/ipv6/conf/{interface}/disable_ipv6");
            node.sysctl(&name, "0").unwrap();
        }
    }
    let forwarding = match is_v6 {
        true => "net/ipv6/conf/all/forwarding",
        false => "net/ipv4/ip_forward",
    };
    for node in [router, second] {
        node.sysctl(forwarding, "1").unwrap();
    }
    let flag = if is_v6 { "nodad" } else { "" };
    let add = |node: &Node, at: &str, interface: &str| {
        node.ip(&[format!("address add {at}/{length} dev {interface} {flag}")])
            .unwrap();
    };
    let (a, b) = (format!("{left}1"), format!("{right}1"));
    let (gate_a, gate_b) = (format!("{left}99"), format!("{right}99"));
    let (first_hop, second_hop) = (format!("{middle}1"), format!("{middle}2"));
    add(host0, &a, "eth0");
    add(router, &gate_a, "left");
    add(router, &first_hop, "right");
    add(second, &second_hop, "left");
    add(second, &gate_b, "right");
    add(host1, &b, "eth0");
    for (node, to, by) in [
        (host0, "default", &gate_a),
        (host1, "default", &gate_b),
        (router, &*b, &second_hop),
        (second, &*a, &first_hop),
    ] {
        node.ip(&[format!("route add {to} via {by}")]).unwrap();
    }
    let at = [a, b].map(|ip| SocketAddr::new(ip.parse().unwrap(), 4747));
    let hosts = (0..2u16)
        .map(|number| {
            let (own, other) = (usize::from(number), 1 - number);
            let udp = UdpConfig::new(at[own], [(MemberId(other), at[1 - own])]);
            let mut config = host_config(number, 2);
            config.datagram_bytes_max = datagram_bytes_max;
            nodes[own]
                .enter(|| Host::start_as(config, &udp, RunConfig::default()))
                .unwrap()
        })
        .collect();
    // The routers live as long as somebody holds them.
    (nodes.into(), hosts)
}

#[test]
fn links_of_1280_bytes_carry_every_datagram_whole() {
    if !may_run() {
        return;
    }
    for (nets, headers) in [(V4_NETS, 28), (V6_NETS, 48)] {
        // Configured so: no datagram is longer.
        let lab = Lab::new().unwrap();
        let (_nodes, hosts) = routed_by(&lab, 1_280, nets, 1_280 - headers);
        exercise(&hosts, 6_000, 0);
        for host in &hosts {
            let traffic = host.snapshot().transport;
            assert_eq!((traffic.fragmented_sent, traffic.too_long), (0, 0));
        }
        // Found out.
        let lab = Lab::new().unwrap();
        let (_nodes, hosts) = routed_by(&lab, 1_280, nets, 1_472);
        let done = exercise_until_reported(&hosts, 1_280);
        for host in &hosts {
            let snapshot = host.snapshot();
            assert_eq!(snapshot.state.datagram_bytes_max, 1_280 - headers);
        }
        // What was cut for the wider path before it was known may go in fragments; what follows goes whole.
        let before: Vec<_> = hosts.iter().map(|host| host.snapshot().transport).collect();
        exercise(&hosts, 2_000, done);
        for (host, before) in hosts.iter().zip(before) {
            let after = host.snapshot().transport;
            assert_eq!(after.fragmented_sent, before.fragmented_sent);
            assert_eq!(after.too_long, before.too_long);
        }
    }
}

/// Exercises hosts until each has sent a datagram that the path did not take, and has learnt its MTU: while they keep up with
/// what they are fed, datagrams are short. How many operations each was fed.
fn exercise_until_reported(hosts: &[Host], mtu: usize) -> u32 {
    const EACH: u32 = 3_000;
    let mut done = 0;
    while done == 0
        || hosts
            .iter()
            .any(|host| host.snapshot().state.path_mtu != mtu)
    {
        assert!(
            done < 15 * EACH,
            "a host was not informed of the path's MTU"
        );
        exercise(hosts, EACH, done);
        done += EACH;
    }
    done
}

#[test]
fn a_path_narrower_than_configured_makes_datagrams_smaller() {
    if !may_run() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (_nodes, mut hosts) = routed(&lab, 1_400);
    let done = exercise_until_reported(&hosts, 1_400);
    for host in &mut hosts {
        let snapshot = host.snapshot();
        assert_eq!(snapshot.state.datagram_bytes_max, 1_400 - 28);
        assert!(snapshot.transport.too_long > 0, "{:?}", snapshot.transport);
        let is_reported = |notice: &Notice| {
            *notice
                == Notice::Transport(TransportEvent::DatagramBytes {
                    bytes: 1_372,
                    mtu: 1_400,
                })
        };
        assert!(host.take_notices().iter().any(is_reported));
    }
    let before: Vec<_> = hosts.iter().map(|host| host.snapshot().transport).collect();
    exercise(&hosts, 1_000, done);
    for (host, before) in hosts.iter().zip(before) {
        assert_eq!(
            host.snapshot().transport.too_long,
            before.too_long,
            "smaller now"
        );
    }
}

#[test]
fn a_path_too_narrow_for_the_longest_group_fragments() {
    if !may_run() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (_nodes, hosts) = routed(&lab, 1_000);
    exercise_until_reported(&hosts, 1_000);
    for host in &hosts {
        let snapshot = host.snapshot();
        assert!(snapshot.state.is_fragmenting);
        assert!(
            snapshot.transport.fragmented_sent > 0,
            "{:?}",
            snapshot.transport
        );
    }
}

#[test]
fn an_interface_that_changes_its_mtu_goes_down_or_vanishes_is_survived() {
    if !may_run() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (switch, nodes) = bridged(&lab, V4, 2);
    let hosts: Vec<Host> = (0..2u16)
        .map(|number| {
            let udp = V4
                .config(number, 2)
                .with_multicast(V4.group.parse().unwrap(), "eth0");
            start(&nodes[usize::from(number)], number, 2, &udp)
        })
        .collect();
    exercise(&hosts, 500, 0);

    // Narrower: the next full datagram is refused by this machine itself.
    for node in &nodes {
        lines(node, &["link set dev eth0 mtu 1400".into()]);
    }
    exercise(&hosts, 1_000, 500);
    wait_until("narrower", || {
        hosts[0].snapshot().state.datagram_bytes_max == 1_372
    });

    // Down for a while: what was written meanwhile arrives later.
    lines(&nodes[0], &["link set dev eth0 down".into()]);
    hosts[0].feed(1_500..1_600);
    hosts[1].feed((1 << 16) + 1_500..(1 << 16) + 1_600);
    std::thread::sleep(Duration::from_millis(300));
    lines(
        &nodes[0],
        &[
            "link set dev eth0 up".into(),
            "link set dev eth0 mtu 1500".into(),
        ],
    );
    lines(&nodes[1], &["link set dev eth0 mtu 1500".into()]);
    crate::transport::hosts::converge(&hosts, 3_200, 3_200);

    // Gone, and another of that name.
    lines(&nodes[0], &["link delete dev eth0".into()]);
    hosts[0].feed(1_600..1_700);
    std::thread::sleep(Duration::from_millis(100));
    lab.cable((&nodes[0], "eth0"), (&switch, "br9"), &Cable::default())
        .unwrap();
    lines(&switch, &["link set dev br9 master br".into()]);
    address(&nodes[0], V4, 0);
    crate::transport::hosts::converge(&hosts, 3_300, 3_300);
    let before = hosts[0].snapshot().transport.multicast_sent;
    hosts[0].feed(1_700..1_800);
    crate::transport::hosts::converge(&hosts, 3_400, 3_400);
    wait_until("multicast again", || {
        let snapshot = hosts[0].snapshot();
        snapshot.transport.interface_changes == 1 && snapshot.transport.multicast_sent > before
    });
    wait_until("as wide as before", || {
        hosts[0].snapshot().state.datagram_bytes_max == 1_472
    });
}

#[test]
fn an_interface_that_swallows_long_datagrams_is_reported() {
    if !may_run() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (_switch, nodes) = bridged(&lab, V4, 2);
    let mut hosts: Vec<Host> = (0..2u16)
        .map(|number| {
            start(
                &nodes[usize::from(number)],
                number,
                2,
                &V4.config(number, 2),
            )
        })
        .collect();
    exercise(&hosts, 200, 0);
    // The other end takes less than this end sends, and nobody says so.
    lines(&nodes[1], &["link set dev eth0 mtu 1400".into()]);
    // So many that the instance gets ahead of the channel, and datagrams are full.
    hosts[0].feed(200..20_000);
    let is_reported = |notice: &Notice| {
        matches!(
            notice,
            Notice::Fault {
                member: MemberId(1),
                fault: PeerFault::LongLost {
                    datagram_bytes: 1_300..
                },
            }
        )
    };
    wait_until("reported", || {
        hosts[0].take_notices().iter().any(is_reported)
    });
    assert!(
        hosts[0]
            .take_notices()
            .iter()
            .filter(|&notice| is_reported(notice))
            .count()
            < 4
    );
    let other = hosts[1].snapshot().members[0].fault;
    assert_eq!(other, None, "the other end misses nothing");
    lines(&nodes[1], &["link set dev eth0 mtu 1500".into()]);
    crate::transport::hosts::converge(&hosts, 20_200, 20_200);
    wait_until("it is over", || {
        hosts[0].snapshot().members[1].fault.is_none()
    });
}
