//! The driver with directors on ports in memory, each on a thread of its own.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use asterism_director::{
    ArmConfig, Director, DirectorConfig, HostLink, MacAddress, SUSPENSIONS_MAX, run,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_packet::{Flow4, Packet, Protocol, build};

use super::*;
use crate::{Target, laws};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Directors that run until they are dropped.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok());
        }
    }
}

pub(super) fn space() -> BucketSpace {
    BucketSpace::new(1_024, 5).unwrap()
}

fn director() -> (Director, Control) {
    director_on(Box::new(MemoryPort::sink("network")))
}

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn director_on(port: Box<dyn Port>) -> (Director, Control) {
    let shared = Ipv4Addr::new(192, 0, 2, 1).into();
    let mut config = DirectorConfig::new(vec![ArmConfig::one_armed(MAC, vec![shared])], space());
    config.suspended.packets_max = 64;
    let ports = vec![port];
    let pool = FramePool::new(128).unwrap();
    Director::new(config, ports, pool, MonotonicClock::new().now()).unwrap()
}

fn host(number: u8) -> Host {
    Host::on_first_arm(HostLink {
        mac: Some(MacAddress([2, 0, 0, 0, 1, number])),
        address: None,
    })
}

pub(super) fn driver(directors: usize) -> (DirectorSteering, Running) {
    driver_of((0..directors).map(|_| director()).collect())
}

/// A driver of one director to which packets of so many flows come without end.
pub(super) fn driver_under_load(flows: u16) -> (DirectorSteering, Running) {
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    let frames = frames.iter().map(Vec::as_slice);
    let port = MemoryPort::cycling("network", frames, u64::MAX);
    driver_of(vec![director_on(Box::new(port))])
}

/// A datagram of a flow to the director.
fn frame(flow: u16) -> Vec<u8> {
    let flow = Flow4 {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(192, 0, 2, 1),
        source_port: 10_000 + flow,
        destination_port: 80,
        protocol: Protocol::UDP.0,
    };
    let mut out = vec![0; 200];
    let length = build::flow4(&flow, &[0; 32], &mut out).unwrap();
    out.truncate(length);
    let mut packet = Packet::parse(&mut out).unwrap();
    packet.set_ethernet(MacAddress([2, 0xc1, 0, 0, 0, 1]), MAC);
    out
}

fn driver_of(directors: Vec<(Director, Control)>) -> (DirectorSteering, Running) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = Running {
        stop: Arc::clone(&stop),
        threads: Vec::new(),
    };
    let mut controls = Vec::new();
    for (mut director, control) in directors {
        controls.push(control);
        let stop = Arc::clone(&stop);
        running.threads.push(std::thread::spawn(move || {
            run(&mut director, MonotonicClock::new(), &stop);
        }));
    }
    let mut driver = DirectorSteering::new(space(), controls);
    for (number, name) in (0..).zip(NAMES) {
        driver.set_host(name, host(number)).unwrap();
    }
    (driver, running)
}

fn desired(generation: u64, targets: &[(&str, Standing)]) -> Desired {
    let targets = targets.iter().map(|(name, standing)| {
        let target = Target {
            standing: *standing,
            ..Target::TAKES
        };
        ((*name).to_owned(), target)
    });
    Desired::new(Generation(generation), targets).unwrap()
}

fn all(generation: u64) -> Desired {
    desired(generation, &NAMES.map(|name| (name, Standing::Takes)))
}

#[test]
fn the_driver_keeps_the_laws_with_one_director_and_with_two() {
    for directors in [1, 2] {
        let mut running = None;
        let report = laws::check(&NAMES, &mut || {
            let (driver, threads) = driver(directors);
            // Directors of the law before end here.
            running = Some(threads);
            Ok(Box::new(driver))
        });
        assert_eq!(report.share(), 1.0, "{directors}: {report}");
    }
}

#[test]
fn only_flows_of_who_leaves_move() {
    let (mut driver, _running) = driver(2);
    driver.apply(&all(1)).unwrap();
    let before = driver.table.clone();
    let share = before.buckets_of(driver.slot_of("b").unwrap());
    let without = [("a", Standing::Takes), ("c", Standing::Takes)];
    let done = driver.apply(&desired(2, &without)).unwrap();
    assert_eq!(done.changed, share);
    let moved = u64::from(done.moved_permille.unwrap());
    assert_eq!(moved, u64::from(share) * 1_000 / 1_024);
    driver.apply(&all(3)).unwrap();
    assert_eq!(driver.table, before, "as if it had never left");
}

#[test]
fn a_moved_bucket_is_its_targets_whenever_that_is_there() {
    let (mut driver, _running) = driver(2);
    let early = driver.move_buckets(&[1], "a");
    assert!(matches!(early, Err(SteeringError::Refused { .. })));
    driver.apply(&all(1)).unwrap();
    let beyond = driver.move_buckets(&[3, 1_024], "a").unwrap_err();
    assert!(beyond.to_string().contains("there are 1024"), "{beyond}");
    assert_eq!(driver.moves().count(), 0);
    let a = driver.slot_of("a").unwrap();
    let others = (0..1_024).filter(|bucket| driver.table.target(*bucket) != Some(a));
    let buckets: Vec<u32> = others.take(100).collect();
    let before = driver.table.clone();
    let tables = driver.statistics(0).unwrap().tables;
    driver.move_buckets(&buckets, "a").unwrap();
    assert!(driver.observe().unwrap().as_applied);
    assert_eq!(driver.statistics(0).unwrap().tables, tables + 1, "one step");
    assert_eq!(before.differences(&driver.table), 100);
    assert_eq!(driver.apply(&all(2)).unwrap().changed, 0);
    assert!(
        driver
            .moves()
            .eq(buckets.iter().map(|bucket| (*bucket, "a")))
    );
    // While it drains it keeps them.
    let drains = [
        ("a", Standing::Drains),
        ("b", Standing::Takes),
        ("c", Standing::Takes),
    ];
    driver.apply(&desired(3, &drains)).unwrap();
    assert_eq!(driver.moves().count(), 100);
    let late = driver.move_buckets(&[1], "a").unwrap_err();
    assert!(late.to_string().contains("takes no packets"), "{late}");
    let without = [("b", Standing::Takes), ("c", Standing::Drains)];
    driver.apply(&desired(4, &without)).unwrap();
    assert_eq!(driver.table.buckets_of(a), 0);
    driver.apply(&all(5)).unwrap();
    assert_eq!(before.differences(&driver.table), 100, "it has returned");
    assert!(matches!(
        driver.move_buckets(&[1], "nobody"),
        Err(SteeringError::UnknownTarget(_))
    ));
}

#[test]
fn flows_and_buckets_are_pinned_suspended_and_resumed_in_both_directors() {
    let (mut driver, _running) = driver(2);
    driver.apply(&all(1)).unwrap();
    let flow = SteeredFlow {
        one: "10.0.0.1:4000".parse().unwrap(),
        other: "192.0.2.1:80".parse().unwrap(),
        protocol: 6,
    };
    driver.pin(&flow, "b", Duration::from_secs(60)).unwrap();
    driver.suspend(&Suspended::Bucket(7)).unwrap();
    driver.look().unwrap();
    for director in [0, 1] {
        let statistics = driver.statistics(director).unwrap();
        let found = (statistics.exceptions_now, statistics.suspensions_now);
        assert_eq!(found, (1, 1));
    }
    driver.unpin(&flow).unwrap();
    driver.suspend(&Suspended::Flow(flow)).unwrap();
    assert!(driver.resume(&Suspended::Flow(flow), None).is_err());
    driver.resume(&Suspended::Flow(flow), Some("c")).unwrap();
    driver.resume(&Suspended::Bucket(7), Some("c")).unwrap();
    assert_eq!(driver.table.target(7), driver.slot_of("c").ok());
    assert!(driver.observe().unwrap().as_applied);
    let again = driver.resume(&Suspended::Bucket(7), None);
    assert!(matches!(again, Err(DirectorError::Refused { .. })));
    let mut refused = 0;
    for bucket in 0..1_000 {
        refused += usize::from(driver.suspend(&Suspended::Bucket(bucket)).is_err());
    }
    assert_eq!(refused, 1_000 - SUSPENSIONS_MAX, "bounded work");
}

#[test]
fn hosts_come_and_go_within_the_bound() {
    let (mut driver, _running) = driver(1);
    driver.apply(&all(1)).unwrap();
    for number in 3..TARGETS_MAX {
        driver
            .set_host(&number.to_string(), host(number as u8))
            .unwrap();
    }
    assert_eq!(
        driver.set_host("one more", host(0)),
        Err(DirectorError::TooManyHosts(TARGETS_MAX))
    );
    driver.remove_host("3").unwrap();
    driver.set_host("one more", host(0)).unwrap();
    let unknown = Host::default();
    driver.set_host("one more", unknown).unwrap();
    let seen = driver.observe().unwrap();
    let down = seen.targets.iter().filter(|target| target.link_down);
    let down: Vec<_> = down.map(|target| target.name.as_str()).collect();
    assert_eq!(down, ["one more"], "its Ethernet address is not known");
}

#[test]
fn a_director_that_is_gone_or_silent_is_reported() {
    let (mut driver, running) = driver(1);
    driver.apply(&all(1)).unwrap();
    drop(running);
    let gone = driver.apply(&all(2));
    assert!(matches!(gone, Err(SteeringError::Unreachable { .. })));
    assert_eq!(driver.counts().failed, 1);

    let (_silent, control) = director();
    let mut driver = DirectorSteering::new(space(), vec![control]);
    assert!(matches!(
        driver.observe(),
        Err(SteeringError::TimedOut { .. })
    ));
}

/// Either of two may end: the other goes on, and one that is started again gets what is in force.
#[test]
fn one_of_two_directors_may_end() {
    let (mut driver, _running) = driver(1);
    let (second, control) = director();
    let stop = Arc::new(AtomicBool::new(false));
    let mut others = Running {
        stop: Arc::clone(&stop),
        threads: Vec::new(),
    };
    let start = |mut director: Director| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || run(&mut director, MonotonicClock::new(), &stop))
    };
    others.threads.push(start(second));
    driver.apply(&all(1)).unwrap();
    driver.add_director(control).unwrap();
    assert_eq!(driver.directors(), (2, 0));
    assert!(driver.observe().unwrap().as_applied, "it has the table");
    assert_eq!(
        driver.add_director(director().1),
        Err(DirectorError::TooManyDirectors)
    );
    drop(others);
    let without = [("a", Standing::Takes)];
    assert!(driver.apply(&desired(2, &without)).unwrap().changed > 0);
    assert_eq!(driver.directors(), (1, 1));
    assert!(driver.observe().unwrap().as_applied);
}
