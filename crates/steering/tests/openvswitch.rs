//! The driver of Open vSwitch on a real switch with the userspace datapath, in a network namespace, with hosts behind ports of
//! their own. Needs root, `ip` and `openvswitch-switch`; says `SKIPPED` without.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use asterism_lab::openvswitch::{OpenVSwitch, PROGRAMS};
use asterism_lab::steering::{BRIDGE, CLIENT_COUNT, SwitchLab, TARGETS};
use asterism_lab::{Node, pause, wait_until};
use asterism_steering::openvswitch::{
    COOKIE, Network, OvsAddress, OvsConfig, OvsSteering, Selection, Version,
};
use asterism_steering::{Desired, Generation, Steering, SteeringError, Target, laws};

const NAMES: [&str; 3] = TARGETS;
const SERVER: Ipv4Addr = SwitchLab::SERVER;
const PORT: u16 = 5_000;
/// Ports of the client's flows begin here.
const FLOW_PORTS: u16 = 20_000;
const FLOWS: u16 = 120;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn ready() -> bool {
    let ready = asterism_lab::needs(&PROGRAMS);
    if let Err(why) = &ready {
        println!("SKIPPED steering by Open vSwitch: {why}");
    }
    ready.is_ok()
}

/// The client's end of a flow.
fn endpoint(flow: u16) -> (Ipv4Addr, u16) {
    (
        SwitchLab::client_address(flow % CLIENT_COUNT),
        FLOW_PORTS + flow,
    )
}

fn driver(switch: &OpenVSwitch<'_>, hash: Selection) -> OvsSteering {
    OvsSteering::new(SwitchLab::config(switch, hash)).unwrap()
}

fn desired(generation: u64, takers: &[&str]) -> Desired {
    let takers = takers
        .iter()
        .map(|name| ((*name).to_owned(), Target::TAKES));
    Desired::new(Generation(generation), takers).unwrap()
}

/// Sockets of each host that receive the client's packets, and of each end that sends them.
struct Flows {
    receivers: Vec<UdpSocket>,
    senders: Vec<UdpSocket>,
}

impl Flows {
    fn new(network: &SwitchLab) -> Flows {
        let listen = |host: &Node| {
            let socket = host.enter(|| UdpSocket::bind((SERVER, PORT)).unwrap());
            let socket = socket.unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let sender = |flow| UdpSocket::bind(endpoint(flow)).unwrap();
        Flows {
            receivers: network.hosts.iter().map(listen).collect(),
            senders: network
                .client
                .enter(|| (0..FLOWS).map(sender).collect())
                .unwrap(),
        }
    }

    /// Sends one datagram of each flow, and returns which host got it; none where it was lost.
    fn round(&self, number: u32, patience: Duration) -> Vec<Option<usize>> {
        for (flow, sender) in self.senders.iter().enumerate() {
            let payload = [number.to_be_bytes(), (flow as u32).to_be_bytes()].concat();
            sender.send_to(&payload, (SERVER, PORT)).unwrap();
        }
        let mut got = vec![None; self.senders.len()];
        let mut left = got.len();
        // What is lost is none that comes late.
        let _ = wait_until("all datagrams", patience, || {
            let mut bytes = [0; 8];
            for (host, socket) in self.receivers.iter().enumerate() {
                while socket.recv(&mut bytes).is_ok() {
                    let [a, b, c, d, e, f, g, h] = bytes;
                    if u32::from_be_bytes([a, b, c, d]) == number {
                        got[u32::from_be_bytes([e, f, g, h]) as usize] = Some(host);
                        left -= 1;
                    }
                }
            }
            left == 0
        });
        got
    }

    /// Which host gets each flow.
    fn hosts(&self, number: u32) -> Vec<usize> {
        let got = self.round(number, PATIENCE);
        got.into_iter()
            .map(|host| host.expect("none lost"))
            .collect()
    }

    /// The same once the switch's cache follows its rules: no flow is left with a host, and how many rounds that took.
    fn hosts_without(&self, number: u32, out: usize) -> (Vec<usize>, u32) {
        let mut rounds = 0;
        let mut hosts = Vec::new();
        wait_until("the switch's cache to follow", PATIENCE, || {
            hosts = self.hosts(number + rounds);
            rounds += 1;
            !hosts.contains(&out)
        })
        .unwrap();
        (hosts, rounds)
    }
}

#[test]
fn the_driver_keeps_the_laws_on_a_switch() {
    if !ready() {
        return;
    }
    for (version, hash) in [
        (Version::V15, Selection::Datapath),
        (Version::V15, Selection::FiveTuple),
        (Version::V15, Selection::Source),
        (Version::V15, Selection::Unnamed),
        (Version::V13, Selection::FiveTuple),
        (Version::V13, Selection::Source),
    ] {
        let network = SwitchLab::new().unwrap();
        let switch = network.start().unwrap();
        if version == Version::V13 {
            SwitchLab::only_openflow_13(&switch).unwrap();
        }
        let mut config = SwitchLab::config(&switch, hash);
        // Other networks that are read back as they were written.
        let others = [
            Network::ALL_IPV4,
            Network::ALL_IPV6,
            Network {
                address: "2001:db8:76::".parse().unwrap(),
                prefix_bits: 47,
            },
        ];
        config.directions[0].destinations.extend(others);
        let directions = config.directions.len();
        let driver = || OvsSteering::new(config.clone()).unwrap();
        let report = laws::check(&NAMES, &mut || Ok(Box::new(driver())));
        assert_eq!(report.share(), 1.0, "{version} {hash:?}: {report}");
        let mut driver = driver();
        driver.observe().unwrap();
        assert_eq!(driver.version(), Some(version));
        let wanted = format!("cookie={COOKIE:#x}/-1");
        let flows = switch.ofctl("OpenFlow13", &["dump-flows", BRIDGE, &wanted]);
        let flows = flows.unwrap();
        let count = directions + others.len();
        assert_eq!(flows.matches("group:").count(), count, "{flows}");
    }
}

/// Packets themselves: every host gets its share, who is out gets none, nobody else's flows move.
#[test]
fn flows_go_where_they_are_steered() {
    if !ready() {
        return;
    }
    for (version, hash) in [
        (Version::V15, Selection::Datapath),
        (Version::V15, Selection::FiveTuple),
        (Version::V15, Selection::Unnamed),
        (Version::V13, Selection::Unnamed),
    ] {
        let network = SwitchLab::new().unwrap();
        let switch = network.start().unwrap();
        if version == Version::V13 {
            SwitchLab::only_openflow_13(&switch).unwrap();
        }
        let flows = Flows::new(&network);
        let mut driver = driver(&switch, hash);
        let done = driver.apply(&desired(1, &NAMES)).unwrap();
        println!("{version}, {hash:?}: {done:?}");
        let before = flows.hosts(1_000);
        let count = |host| before.iter().filter(|one| **one == host).count();
        let counts: Vec<_> = (0..3).map(count).collect();
        let enough = counts.iter().all(|count| (15..=70).contains(count));
        assert!(enough, "{version}, {hash:?}: {counts:?}");
        // Whether a client's flows have different targets: the switch's own method spreads no datagrams by their ports.
        let together = (0..FLOWS - CLIENT_COUNT).all(|flow| {
            let (one, other) = (flow, flow + CLIENT_COUNT);
            before[usize::from(one)] == before[usize::from(other)]
        });
        assert_eq!(together, hash == Selection::Unnamed, "{version}, {hash:?}");
        let done = driver.apply(&desired(2, &["b", "c"])).unwrap();
        assert_eq!(done.moved_permille, Some(344));
        let (after, rounds) = flows.hosts_without(2_000, 0);
        println!("{counts:?}, then {done:?}; the cache followed in round {rounds}");
        let pairs = before.iter().zip(&after);
        let needless = pairs.filter(|(old, new)| **old != 0 && old != new);
        assert_eq!(needless.count(), 0, "{version}, {hash:?}");
        driver.apply(&desired(3, &NAMES)).unwrap();
        wait_until("the first host to get flows again", PATIENCE, || {
            flows.hosts(3_000).contains(&0)
        })
        .unwrap();
    }
}

/// A flow's packets reach the same host from both sides: by the client's address and port, or by a hash that is the same for both.
#[test]
fn both_directions_of_a_flow_reach_one_host() {
    if !ready() {
        return;
    }
    for (version, hash) in [
        (Version::V15, Selection::Source),
        (Version::V15, Selection::Unnamed),
        (Version::V13, Selection::Unnamed),
    ] {
        let network = SwitchLab::new().unwrap();
        let switch = network.start().unwrap();
        if version == Version::V13 {
            SwitchLab::only_openflow_13(&switch).unwrap();
        }
        let mut driver = driver(&switch, hash);
        driver.apply(&desired(1, &NAMES)).unwrap();
        let flows = Flows::new(&network);
        let there = flows.hosts(1);
        let receive = |host: &Node| {
            let socket = |flow| {
                let socket = UdpSocket::bind(endpoint(flow)).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let sockets = host.enter(|| (0..FLOWS).map(socket).collect::<Vec<_>>());
            sockets.unwrap()
        };
        let receivers: Vec<_> = network.hosts.iter().map(receive).collect();
        let server = network
            .server
            .enter(|| UdpSocket::bind((SERVER, PORT)).unwrap());
        let server = server.unwrap();
        for flow in 0..FLOWS {
            server.send_to(b"back", endpoint(flow)).unwrap();
        }
        let mut back = vec![usize::MAX; usize::from(FLOWS)];
        wait_until("the way back of all flows", PATIENCE, || {
            for (host, sockets) in receivers.iter().enumerate() {
                for (flow, socket) in sockets.iter().enumerate() {
                    if socket.recv(&mut [0; 4]).is_ok() {
                        back[flow] = host;
                    }
                }
            }
            !back.contains(&usize::MAX)
        })
        .unwrap();
        assert_eq!(there, back, "{version} {hash:?}");
        assert!((0..3).all(|host| there.contains(&host)));
    }
}

/// A stream goes on while targets leave and return: no datagram is lost, with bundles and without.
#[test]
fn no_packet_is_lost_while_targets_change() {
    if !ready() {
        return;
    }
    for (version, hash) in [
        (Version::V15, Selection::Datapath),
        (Version::V15, Selection::FiveTuple),
        (Version::V13, Selection::Unnamed),
    ] {
        let network = SwitchLab::new().unwrap();
        let switch = network.start().unwrap();
        if version == Version::V13 {
            SwitchLab::only_openflow_13(&switch).unwrap();
        }
        let flows = Flows::new(&network);
        let mut driver = driver(&switch, hash);
        driver.apply(&desired(1, &NAMES)).unwrap();
        assert_eq!(driver.version(), Some(version));
        let (changed, done) = (AtomicBool::new(false), AtomicU32::new(0));
        let (took, rounds, lost) = std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut took = Vec::new();
                // Until packets have come and gone meanwhile.
                for generation in (2..).take_while(|generation| {
                    *generation < 52 || done.load(Ordering::Relaxed) < 2 && *generation < 5_000
                }) {
                    let out = NAMES[generation as usize % 3];
                    let left = NAMES.into_iter().filter(|name| *name != out);
                    let left: Vec<_> = left.collect();
                    took.push(driver.apply(&desired(generation, &left)).unwrap().took);
                    pause(Duration::from_millis(10));
                }
                changed.store(true, Ordering::Relaxed);
                took
            });
            let (mut rounds, mut lost) = (0, 0);
            while !changed.load(Ordering::Relaxed) {
                let got = flows.round(rounds, PATIENCE);
                lost += got.iter().filter(|host| host.is_none()).count();
                rounds += 1;
                done.store(rounds, Ordering::Relaxed);
            }
            (changes.join().unwrap(), rounds, lost)
        });
        let mut took = took;
        took.sort_unstable();
        println!(
            "{version}, {hash:?}: 50 changes, median {:?}, worst {:?}; {} datagrams, {lost} lost",
            took[25],
            took[49],
            rounds * u32::from(FLOWS)
        );
        assert!(rounds > 1);
        assert_eq!(lost, 0, "{version}");
    }
}

#[test]
fn a_switch_that_was_killed_gets_its_rules_again() {
    if !ready() {
        return;
    }
    let network = SwitchLab::new().unwrap();
    let mut switch = network.start().unwrap();
    let flows = Flows::new(&network);
    let mut driver = driver(&switch, Selection::FiveTuple);
    driver.apply(&desired(1, &["a", "b"])).unwrap();
    driver.apply(&desired(2, &NAMES)).unwrap();
    let before = flows.hosts(1);

    // One that does not answer, to a driver that has little time.
    switch.suspend();
    let config = OvsConfig {
        time_max: Duration::from_millis(100),
        ..SwitchLab::config(&switch, Selection::FiveTuple)
    };
    let mut hasty = OvsSteering::new(config).unwrap();
    let error = hasty.apply(&desired(1, &["a"])).unwrap_err();
    assert!(
        matches!(&error, SteeringError::Unreachable { said, .. } if said.contains("100ms")),
        "{error}"
    );
    drop(hasty);
    switch.resume();
    assert!(driver.observe().unwrap().as_applied);

    switch.kill();
    let error = driver.apply(&desired(3, &NAMES)).unwrap_err();
    assert!(
        matches!(&error, SteeringError::Unreachable { .. }),
        "{error}"
    );
    switch.start_again().unwrap();
    // The driver comes back by itself, and sees that its rules are gone.
    let mut seen = None;
    wait_until("the switch to be reached", PATIENCE, || {
        seen = driver.observe().ok();
        seen.is_some()
    })
    .unwrap();
    let seen = seen.unwrap();
    assert!(!seen.as_applied && seen.targets.iter().all(|one| one.share_permille == 0));
    // Ports return one after another.
    wait_until("the rules", PATIENCE, || {
        driver.apply(&desired(3, &NAMES)).is_ok()
    })
    .unwrap();
    assert!(driver.observe().unwrap().as_applied);
    assert_eq!(flows.hosts(2), before);
    let done = driver.apply(&desired(3, &NAMES)).unwrap();
    assert_eq!(done.changed, 0);
}

#[test]
fn rules_of_others_stay_and_ports_that_go_down_are_noticed() {
    if !ready() {
        return;
    }
    let network = SwitchLab::new().unwrap();
    let switch = network.start().unwrap();
    let foreign = [
        "table=0,priority=1,actions=NORMAL",
        "table=7,cookie=5,priority=9,ip,actions=drop",
    ];
    for flow in foreign {
        switch
            .ofctl("OpenFlow13", &["add-flow", BRIDGE, flow])
            .unwrap();
    }
    let group = "group_id=7,type=select,bucket=actions=output:1";
    switch
        .ofctl("OpenFlow13", &["add-group", BRIDGE, group])
        .unwrap();
    let mut driver = driver(&switch, Selection::FiveTuple);
    driver.apply(&desired(1, &NAMES)).unwrap();
    // Somebody takes ours away: it is seen, and put right; nothing of theirs is touched.
    let ours = format!("cookie={COOKIE:#x}/-1");
    switch
        .ofctl("OpenFlow13", &["del-flows", BRIDGE, &ours])
        .unwrap();
    assert!(!driver.observe().unwrap().as_applied);
    assert_eq!(driver.apply(&desired(1, &NAMES)).unwrap().changed, 1);
    assert_eq!(driver.counts().repaired, 1);
    driver.apply(&desired(2, &["a", "b"])).unwrap();
    let flows = switch.ofctl("OpenFlow13", &["dump-flows", BRIDGE]).unwrap();
    for words in ["actions=NORMAL", "actions=drop", "group:"] {
        assert_eq!(flows.matches(words).count(), 1, "{flows}");
    }
    let groups = switch
        .ofctl("OpenFlow13", &["dump-groups", BRIDGE])
        .unwrap();
    assert!(groups.contains("group_id=7,"), "{groups}");
    // A flow of theirs in our place is not written over.
    let theirs =
        format!("table=0,cookie=9,priority=20000,in_port=up,ip,nw_dst={SERVER},actions=drop");
    switch
        .ofctl("OpenFlow13", &["del-flows", BRIDGE, &ours])
        .unwrap();
    switch
        .ofctl("OpenFlow13", &["add-flow", BRIDGE, &theirs])
        .unwrap();
    let error = driver.apply(&desired(2, &["a", "b"])).unwrap_err();
    assert!(
        matches!(&error, SteeringError::Refused { said, .. } if said.contains("cookie 0x9")),
        "{error}"
    );
    switch
        .ofctl("OpenFlow13", &["del-flows", BRIDGE, "cookie=9/-1"])
        .unwrap();
    driver.apply(&desired(2, &["a", "b"])).unwrap();

    // The switch says so by itself when a host's cable has no carrier, or the operator switches a port off.
    let down = |driver: &mut OvsSteering| {
        let seen = driver.observe().unwrap();
        seen.targets
            .iter()
            .map(|one| one.link_down)
            .collect::<Vec<_>>()
    };
    assert_eq!(down(&mut driver), [false; 3]);
    while driver.wait_for_ports(Duration::from_millis(50)).unwrap() {}
    network.hosts[1].ip(&["link set dev in down"]).unwrap();
    assert!(driver.wait_for_ports(PATIENCE).unwrap());
    wait_until("the carrier to be gone", PATIENCE, || {
        down(&mut driver) == [false, true, false]
    })
    .unwrap();
    switch
        .ofctl("OpenFlow13", &["mod-port", BRIDGE, "in-a", "down"])
        .unwrap();
    assert!(driver.wait_for_ports(PATIENCE).unwrap());
    assert_eq!(down(&mut driver), [true, true, false]);
    assert!(driver.observe().unwrap().as_applied);
}

/// Listeners that the operator sets, and the mode in which a switch forgets its rules.
#[test]
fn listeners_and_the_mode_are_as_the_operator_sets_them() {
    if !ready() {
        return;
    }
    let network = SwitchLab::new().unwrap();
    let switch = network.start().unwrap();
    // A bridge makes sockets of such names alone.
    let socket = switch.management(BRIDGE).with_extension("controllers");
    let unix = format!("punix:{}", socket.display());
    let listeners = ["set-controller", BRIDGE, "ptcp:6653:127.0.0.1", &unix];
    switch.vsctl("--", &listeners).unwrap();
    let with = |address| OvsConfig {
        switch: address,
        ..SwitchLab::config(&switch, Selection::FiveTuple)
    };
    let mut by_socket = OvsSteering::new(with(OvsAddress::Unix(socket.clone()))).unwrap();
    wait_until("the listener", PATIENCE, || by_socket.observe().is_ok()).unwrap();
    by_socket.apply(&desired(1, &NAMES)).unwrap();
    let address = OvsAddress::Tcp(([127, 0, 0, 1], 6_653).into());
    let mut by_tcp = OvsSteering::new(with(address)).unwrap();
    let done = network.switch.enter(|| by_tcp.apply(&desired(1, &NAMES)));
    assert_eq!(done.unwrap().unwrap().changed, 0);

    // From a network that does not reach it.
    let elsewhere = network.client.enter(|| {
        let address = OvsAddress::Tcp(([127, 0, 0, 1], 6_653).into());
        OvsSteering::new(with(address)).unwrap().observe()
    });
    assert!(matches!(
        elsewhere.unwrap(),
        Err(SteeringError::Unreachable { .. })
    ));
    switch
        .vsctl("--", &["set-fail-mode", BRIDGE, "standalone"])
        .unwrap();
    let mut late = driver(&switch, Selection::FiveTuple);
    for _ in 0..2 {
        let error = late.apply(&desired(1, &NAMES)).unwrap_err();
        assert!(
            error.to_string().contains("set-fail-mode br0 secure"),
            "{error}"
        );
        switch.vsctl("--", &["del-fail-mode", BRIDGE]).unwrap();
    }
    switch
        .vsctl("--", &["set-fail-mode", BRIDGE, "secure"])
        .unwrap();
    late.apply(&desired(1, &NAMES)).unwrap();
}
