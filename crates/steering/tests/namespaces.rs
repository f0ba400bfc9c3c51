//! The driver of routes on real kernels: routers in network namespaces, with hosts behind ports of their own that all have one
//! address. Needs root and `ip`; says `SKIPPED` without.

use std::net::{Ipv4Addr, UdpSocket};

use asterism_lab::Node;
use asterism_lab::steering::{RouterLab, TARGETS};
use asterism_steering::ecmp::{EcmpSteering, Spread};
use asterism_steering::{Desired, Generation, Standing, Steering, SteeringError, Target, laws};

const NAMES: [&str; 3] = TARGETS;
const ROUTER: Ipv4Addr = RouterLab::ROUTER;
const BEHIND: Ipv4Addr = RouterLab::BEHIND;

fn ready() -> bool {
    let ready = asterism_lab::needs(&["ip"]);
    if let Err(why) = &ready {
        println!("SKIPPED steering by routes: {why}");
    }
    ready.is_ok()
}

fn driver(network: &RouterLab, spread: Spread) -> EcmpSteering {
    network.driver(spread).unwrap()
}

fn desired(generation: u64, takers: &[&str]) -> Desired {
    let takers = takers
        .iter()
        .map(|name| ((*name).to_owned(), Target::TAKES));
    Desired::new(Generation(generation), takers).unwrap()
}

/// Which host gets a datagram from each of so many ports of the router.
fn who_gets(network: &RouterLab, flows: u16) -> Vec<usize> {
    let listen = |host: &Node| {
        let socket = host.enter(|| UdpSocket::bind((BEHIND, 5_000)).unwrap());
        let socket = socket.unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let sockets: Vec<_> = network.hosts.iter().map(listen).collect();
    let mut got = vec![usize::MAX; usize::from(flows)];
    for round in 0..20 {
        network
            .router
            .enter(|| {
                for flow in (0..flows).filter(|flow| got[usize::from(*flow)] == usize::MAX) {
                    let socket = UdpSocket::bind((ROUTER, 20_000 + flow)).unwrap();
                    // The first to each host waits for its Ethernet address, and may be lost.
                    let _ = socket.send_to(&flow.to_be_bytes(), (BEHIND, 5_000));
                }
            })
            .unwrap();
        asterism_lab::pause(std::time::Duration::from_millis(20 + 10 * round));
        let mut bytes = [0; 2];
        for (host, socket) in sockets.iter().enumerate() {
            while socket.recv(&mut bytes).is_ok() {
                got[usize::from(u16::from_be_bytes(bytes))] = host;
            }
        }
        if !got.contains(&usize::MAX) {
            return got;
        }
    }
    panic!("datagrams reached nobody: {got:?}");
}

#[test]
fn the_driver_keeps_the_laws_on_a_kernel() {
    if !ready() {
        return;
    }
    for spread in [Spread::Slots(24), Spread::Weights] {
        let network = RouterLab::new().unwrap();
        let mut make = || -> Result<Box<dyn Steering>, SteeringError> {
            Ok(Box::new(driver(&network, spread)))
        };
        let report = laws::check(&NAMES, &mut make);
        assert_eq!(report.share(), 1.0, "{spread:?}: {report}");
        let routes = network.router.ip(&["route show proto 77"]).unwrap();
        assert_eq!(routes.lines().count(), 2, "{routes}");
    }
}

/// Packets themselves: every host gets its share, who is out gets none, and with slots nobody else's flows move.
#[test]
fn flows_go_where_they_are_steered() {
    if !ready() {
        return;
    }
    const FLOWS: u16 = 240;
    let mut moved = Vec::new();
    for spread in [Spread::Slots(24), Spread::Weights] {
        let network = RouterLab::new().unwrap();
        let mut driver = driver(&network, spread);
        driver.apply(&desired(1, &NAMES)).unwrap();
        let before = who_gets(&network, FLOWS);
        for host in 0..3 {
            let count = before.iter().filter(|one| **one == host).count();
            assert!((40..=120).contains(&count), "host {host} got {count}");
        }
        let done = driver.apply(&desired(2, &["b", "c"])).unwrap();
        assert_eq!(done.changed, 2);
        println!("{spread:?}: {done:?}");
        let after = who_gets(&network, FLOWS);
        assert!(after.iter().all(|host| *host != 0));
        let pairs = before.iter().zip(&after);
        let needless = pairs.filter(|(old, new)| **old != 0 && old != new).count();
        moved.push(needless);
        driver.apply(&desired(3, &NAMES)).unwrap();
        assert!(who_gets(&network, FLOWS).contains(&0));
    }
    println!("flows of hosts that stayed and moved all the same: {moved:?} of some 160");
    assert_eq!(moved[0], 0);
    assert!(moved[1] > 10, "{moved:?}");
}

#[test]
fn what_the_kernel_refuses_is_reported_and_what_was_in_force_stays() {
    if !ready() {
        return;
    }
    let network = RouterLab::new().unwrap();
    let mut driver = driver(&network, Spread::Slots(6));
    driver.apply(&desired(1, &["a", "b"])).unwrap();
    network.router.ip(&["link delete to-c"]).unwrap();
    let error = driver.apply(&desired(2, &NAMES)).unwrap_err();
    assert!(
        matches!(&error, SteeringError::Refused { said, .. } if said.contains("to-c")),
        "{error}"
    );
    let seen = driver.observe().unwrap();
    assert!(!seen.as_applied && seen.generation.is_none());
    let shares: Vec<_> = seen.targets.iter().map(|one| one.share_permille).collect();
    assert_eq!(shares, [500, 500, 0]);
    driver.apply(&desired(3, &["a", "b"])).unwrap();

    // A port without a carrier is seen; that nothing answers behind one is not the driver's to know.
    network.hosts[1].ip(&["link set dev in down"]).unwrap();
    asterism_lab::wait_until(
        "the carrier to be gone",
        std::time::Duration::from_secs(30),
        || driver.observe().unwrap().targets[1].link_down,
    )
    .unwrap();
    assert!(!driver.observe().unwrap().targets[0].link_down);

    // Somebody takes a route away: applying the same again brings it back.
    network.router.ip(&["route delete default"]).unwrap();
    assert!(!driver.observe().unwrap().as_applied);
    let done = driver.apply(&desired(3, &["a", "b"])).unwrap();
    assert_eq!(done.changed, 1);
    assert_eq!(driver.counts().repaired, 1);
}

/// A driver that restarts finds the slots in the kernel, and leaves flows where they are.
#[test]
fn a_new_driver_goes_on_from_the_routes_that_it_finds() {
    if !ready() {
        return;
    }
    let network = RouterLab::new().unwrap();
    let drains = Target {
        standing: Standing::Drains,
        ..Target::TAKES
    };
    let state = |generation, second| {
        let all = [("a", Target::TAKES), ("b", second), ("c", Target::TAKES)];
        let all = all.map(|(name, target)| (name.to_owned(), target));
        Desired::new(Generation(generation), all).unwrap()
    };
    let mut first = driver(&network, Spread::Slots(24));
    first.apply(&state(1, Target::TAKES)).unwrap();
    let done = first.apply(&state(2, drains)).unwrap();
    assert_eq!(done.moved_permille, Some(334));
    drop(first);
    let mut second = driver(&network, Spread::Slots(24));
    assert!(!second.observe().unwrap().as_applied);
    let done = second.apply(&state(2, drains)).unwrap();
    assert_eq!((done.changed, done.moved_permille), (0, Some(0)));
    assert!(second.observe().unwrap().as_applied);
}
