//! The driver with directors that take commands on loopback, each with a packet loop on ports in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use asterism_director_control::Receiver as CommandReceiver;
use asterism_secure_channel::ClusterKey;

use super::super::DirectorSteering;
use super::super::tests::{NAMES, Running, driver, space};
use super::*;
use crate::{Target, laws};

mod moves;

const CLUSTER: ClusterId = ClusterId(3);

fn ring(id: u8) -> KeyRing {
    ClusterKey::from_random(id, [id; 32]).into()
}

/// A director that answers until it is dropped.
struct Served {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// It takes datagrams and answers none.
    is_mute: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    keys: Sender<KeyRing>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok());
        }
    }
}

/// Starts a director at this address, or at a free one. `start` is the number of its start.
fn serve(address: SocketAddr, start: u8) -> Served {
    serve_made(address, start, || driver(1))
}

fn serve_made(
    address: SocketAddr,
    start: u8,
    make: impl FnOnce() -> (DirectorSteering, Running) + Send + 'static,
) -> Served {
    let socket = UdpSocket::bind(address).unwrap();
    let patience = Some(Duration::from_millis(5));
    socket.set_read_timeout(patience).unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, is_mute) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (ends, mute) = (Arc::clone(&stop), Arc::clone(&is_mute));
    let (keys, other_keys) = channel();
    let thread = std::thread::spawn(move || {
        let (steering, _running) = make();
        let mut served = served(steering, start);
        let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
        while !ends.load(Ordering::Relaxed) {
            if let Ok(keys) = other_keys.try_recv() {
                served.set_keys(keys);
            }
            let Ok((length, from)) = socket.recv_from(&mut bytes) else {
                continue;
            };
            if mute.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(answer) = served.handle(&mut bytes[..length]) {
                // As lost as any other datagram.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    Served {
        address,
        stop,
        is_mute,
        thread: Some(thread),
        keys,
    }
}

fn served(steering: DirectorSteering, start: u8) -> ServedDirector {
    let receiver = CommandReceiver::new(CLUSTER, ring(1), [start; 16], [start; 16]);
    let names = NAMES.map(str::to_owned).to_vec();
    ServedDirector::new(steering, names, receiver, Duration::from_millis(350))
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// How long a director may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where none will.
const IMPATIENCE: Duration = Duration::from_secs(3);

fn steering(directors: &[&Served], start: u8) -> (RemoteDirectorSteering, Sender<KeyRing>) {
    let (keys, other_keys) = channel();
    let director = |(number, served): (usize, &&Served)| {
        let salt = [start + number as u8; 16];
        (format!("director-{number}"), served.address, salt)
    };
    let config = RemoteDirectorConfig {
        cluster: CLUSTER,
        keys: ring(1),
        other_keys,
        directors: directors.iter().enumerate().map(director).collect(),
        targets: NAMES.map(str::to_owned).to_vec(),
        space: space(),
        answer_time_max: PATIENCE,
    };
    (RemoteDirectorSteering::new(config).unwrap(), keys)
}

fn all(generation: u64) -> Desired {
    let all = NAMES.map(|name| (name.to_owned(), Target::TAKES));
    Desired::new(Generation(generation), all).unwrap()
}

/// Lets the driver look after its directors until something is so.
fn tend(
    driver: &mut RemoteDirectorSteering,
    mut until: impl FnMut(&RemoteDirectorSteering) -> bool,
) {
    let started = clock::now();
    while !until(driver) {
        driver.links_changed();
        assert!(started.elapsed() < Duration::from_secs(30));
        clock::pause(Duration::from_millis(5));
    }
}

#[test]
fn the_driver_keeps_the_laws_with_one_director_and_with_two() {
    for count in [1, 2] {
        let mut running = Vec::new();
        let mut start = 0;
        let report = laws::check(&NAMES, &mut || {
            start += 2;
            // Directors of the law before end here.
            running = (0..count).map(|_| serve(anywhere(), start)).collect();
            let directors: Vec<&Served> = running.iter().collect();
            Ok(Box::new(steering(&directors, start).0))
        });
        assert_eq!(report.share(), 1.0, "{count}: {report}");
    }
}

#[test]
fn a_director_that_was_started_again_gets_the_state_in_force() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    driver.apply(&all(7)).unwrap();
    let address = two.address;
    drop(two);
    let two = serve(address, 3);
    let has_it = |driver: &RemoteDirectorSteering| {
        let generations = driver.directors.iter().map(|one| one.status.generation);
        generations.collect::<Vec<_>>() == [Some(7), Some(7)]
    };
    // The answers of the one that ended are forgotten first.
    driver.directors[1].status = Status::default();
    tend(&mut driver, has_it);
    assert!(driver.observe().unwrap().as_applied);
    drop(two);
}

#[test]
fn the_state_is_in_force_without_a_director_that_nobody_hears() {
    let (one, two) = (serve(anywhere(), 1), serve(anywhere(), 2));
    let (mut driver, _keys) = steering(&[&one, &two], 10);
    driver.apply(&all(1)).unwrap();
    driver.links_changed();
    two.is_mute.store(true, Ordering::Relaxed);
    // Neither the driver nor the other director hears it, whose ports lead nowhere.
    driver.answer_time_max = IMPATIENCE;
    let first = driver.apply(&all(2)).unwrap();
    assert!(first.took >= SILENT_AFTER / 2, "it was waited for");
    tend(&mut driver, |driver| driver.directors[1].is_silent());
    driver.links_changed();
    let notices: Vec<&str> = driver.notices().iter().map(|one| one.kind).collect();
    assert_eq!(
        notices
            .iter()
            .filter(|kind| **kind == "director-heard")
            .count(),
        2
    );
    assert_eq!(notices.last(), Some(&"director-silent"));
    // From then on it is not.
    let took = (3..8).map(|generation| driver.apply(&all(generation)).unwrap().took);
    assert!(took.min().unwrap() < SILENT_AFTER / 2);
    // Where the other director hears it, it may forward by the older state.
    let answers = driver.exchange(&Request::Query);
    assert!(driver.check_present(&answers).is_ok());
    driver.directors[0].status.hears_other = true;
    assert_eq!(driver.check_present(&answers), Err("director-1".to_owned()));
    // When it is back, it gets what it has missed.
    two.is_mute.store(false, Ordering::Relaxed);
    tend(&mut driver, |driver| {
        driver.directors[1].status.generation == Some(7)
    });
    // Without any director nothing is in force.
    one.is_mute.store(true, Ordering::Relaxed);
    two.is_mute.store(true, Ordering::Relaxed);
    let error = driver.apply(&all(9)).unwrap_err();
    assert!(matches!(error, SteeringError::TimedOut { .. }), "{error}");
    assert!(matches!(
        driver.observe(),
        Err(SteeringError::Unreachable { .. })
    ));
}

#[test]
fn an_orchestrator_that_was_replaced_is_refused_by_the_directors() {
    let one = serve(anywhere(), 1);
    let (mut former, _) = steering(&[&one], 10);
    let (mut leader, _) = steering(&[&one], 20);
    former.apply(&all(1)).unwrap();
    leader.apply(&all(5)).unwrap();
    let error = former.apply(&all(2)).unwrap_err();
    let stale = SteeringError::Stale {
        offered: Generation(2),
        known: Generation(5),
    };
    assert_eq!(error, stale);
    // Nor does it put right what the leader has commanded.
    let now = clock::now();
    tend(&mut former, |_| now.elapsed() > 3 * QUERY_INTERVAL);
    assert!(leader.observe().unwrap().as_applied);
}

#[test]
fn keys_change_while_directors_run() {
    let one = serve(anywhere(), 1);
    let (mut driver, keys) = steering(&[&one], 10);
    driver.apply(&all(1)).unwrap();
    keys.send(ring(2)).unwrap();
    driver.answer_time_max = IMPATIENCE;
    assert!(driver.apply(&all(2)).is_err());
    one.keys.send(ring(2)).unwrap();
    tend(&mut driver, |driver| {
        driver.directors[0].status.generation == Some(1)
    });
    driver.answer_time_max = PATIENCE;
    driver.apply(&all(3)).unwrap();
}
