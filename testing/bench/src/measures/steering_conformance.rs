//! `steering.conformance`: the laws of steering (`asterism_orchestrator::steering::laws`), each on a driver of its own, and the
//! drivers on what they steer in the field: routes of a kernel, an Open vSwitch, directors that turn, in this process and by
//! datagrams on loopback.
//!
//! The value is the share of the driver that keeps the fewest laws. A law that was not reached counts as broken.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_director::table::BucketSpace;
use asterism_director::{
    ArmConfig, Control, Director, DirectorConfig, Host, HostLink, MacAddress, run,
};
use asterism_director_control::Receiver;
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::FramePool;
use asterism_io::port::{MemoryPort, Port};
use asterism_lab::LabError;
use asterism_lab::openvswitch::PROGRAMS;
use asterism_lab::steering::{RouterLab, SwitchLab, TARGETS};
use asterism_orchestrator::steering::director::DirectorSteering;
use asterism_orchestrator::steering::director::remote::{
    ANSWER_TIME_SANE, RemoteDirectorConfig, RemoteDirectorSteering, ServedDirector,
};
use asterism_orchestrator::steering::ecmp::{SLOTS_SANE, Spread};
use asterism_orchestrator::steering::laws::{self, Report};
use asterism_orchestrator::steering::openvswitch::{OvsSteering, Selection, Version};
use asterism_orchestrator::steering::{Steering, SteeringError};
use asterism_secure_channel::{ClusterId, ClusterKey, DATAGRAM_BYTES_MAX, KeyRing};

use super::lab::{absent, needs};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "steering.conformance",
    make: conformance,
}];

/// Buckets and seed of the directors' flow space.
const SPACE: (u32, u64) = (1_024, 5);
/// A director alone hears no other one.
const TAKEOVER_AFTER: Duration = Duration::from_millis(350);
/// Frames that a director has room for: none arrives.
const FRAMES: usize = 128;

fn conformance(context: &Context) -> Result<Outcome, Failure> {
    needs(&PROGRAMS)?;
    let mut reports = Vec::new();
    for (name, spread) in [
        ("routes-slots", Spread::Slots(SLOTS_SANE)),
        ("routes-weights", Spread::Weights),
    ] {
        reports.push((name, routes(spread)?));
    }
    for (name, version, hash) in [
        (
            "openvswitch-1.5-datapath",
            Version::V15,
            Selection::Datapath,
        ),
        ("openvswitch-1.5-tuple", Version::V15, Selection::FiveTuple),
        ("openvswitch-1.5-source", Version::V15, Selection::Source),
        ("openvswitch-1.5-unnamed", Version::V15, Selection::Unnamed),
        ("openvswitch-1.3-tuple", Version::V13, Selection::FiveTuple),
        ("openvswitch-1.3-source", Version::V13, Selection::Source),
    ] {
        reports.push((name, openvswitch(version, hash)?));
    }
    for (name, directors) in [("director", 1), ("director-pair", 2)] {
        reports.push((name, self::directors(directors)?));
    }
    for (name, directors) in [("director-remote", 1), ("director-remote-pair", 2)] {
        reports.push((name, remote_directors(directors)?));
    }
    let mut outcome = Outcome::new(0.0, 1).variant("laws", laws::laws().count() as f64);
    let mut worst = 1.0_f64;
    for (name, report) in &reports {
        context.say(&format!("{name}: {report}"));
        worst = worst.min(report.share());
        outcome = outcome.variant(*name, report.share());
    }
    Ok(outcome.with_value(worst, 1))
}

fn routes(spread: Spread) -> Result<Report, Failure> {
    let network = RouterLab::new().map_err(absent)?;
    Ok(laws::check(&TARGETS, &mut || {
        let driver = network.driver(spread).map_err(unreachable)?;
        Ok(Box::new(driver) as Box<dyn Steering>)
    }))
}

/// The driver was not made.
fn unreachable(error: LabError) -> SteeringError {
    SteeringError::Unreachable {
        what: "the driver".to_owned(),
        said: error.to_string(),
    }
}

fn openvswitch(version: Version, hash: Selection) -> Result<Report, Failure> {
    let network = SwitchLab::new().map_err(absent)?;
    let switch = network.start().map_err(absent)?;
    if version == Version::V13 {
        SwitchLab::only_openflow_13(&switch).map_err(absent)?;
    }
    let config = SwitchLab::config(&switch, hash);
    let driver = || {
        OvsSteering::new(config.clone()).map_err(|error| SteeringError::Unreachable {
            what: "the driver".to_owned(),
            said: error.to_string(),
        })
    };
    let report = laws::check(&TARGETS, &mut || Ok(Box::new(driver()?)));
    // A driver that spoke another version was not the one that is measured.
    let spoken = driver().and_then(|mut driver| driver.observe().map(|_| driver.version()));
    match spoken {
        Ok(Some(spoken)) if spoken == version => Ok(report),
        other => Err(Failure::Unsound(format!(
            "the driver was to speak OpenFlow {version} to the switch: {other:?}"
        ))),
    }
}

/// Directors that turn, each on a thread of its own, until they are dropped.
struct Turning {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A director that panicked ended before, which its driver reported.
            let _ = thread.join();
        }
    }
}

fn space() -> Result<BucketSpace, Failure> {
    let (buckets, seed) = SPACE;
    BucketSpace::new(buckets, seed)
        .ok_or_else(|| Failure::Unsound("the flow space of the director is none".to_owned()))
}

fn directors(count: usize) -> Result<Report, Failure> {
    let space = space()?;
    // Kept while the law runs; the next law gets other directors, and these end.
    let mut turning = None;
    let report = laws::check(&TARGETS, &mut || {
        turning = None;
        let (driver, threads) = driver(space, count)?;
        turning = Some(threads);
        Ok(Box::new(driver))
    });
    drop(turning);
    Ok(report)
}

/// A driver of directors in this process.
fn driver(space: BucketSpace, count: usize) -> Result<(DirectorSteering, Turning), SteeringError> {
    let (controls, threads) = turn(space, count)?;
    let mut driver = DirectorSteering::new(space, controls);
    for (number, name) in (1..).zip(TARGETS) {
        let link = HostLink {
            mac: Some(MacAddress([2, 0, 0, 0, 1, number])),
            address: None,
        };
        driver.set_host(name, Host::on_first_arm(link))?;
    }
    Ok((driver, threads))
}

const CLUSTER: ClusterId = ClusterId(3);

fn keys() -> KeyRing {
    ClusterKey::from_random(1, [1; 32]).into()
}

/// Directors that take commands by datagrams, each on a thread of its own.
fn remote_directors(count: usize) -> Result<Report, Failure> {
    let space = space()?;
    let mut serving: Option<Turning> = None;
    let mut starts = 0_u8;
    let report = laws::check(&TARGETS, &mut || {
        serving = None;
        let mut threads = Turning {
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        let mut directors = Vec::new();
        for place in 0..count {
            starts += 1;
            let (address, thread) = serve(space, starts, Arc::clone(&threads.stop))?;
            threads.threads.push(thread);
            directors.push((format!("director-{place}"), address, [starts; 16]));
        }
        serving = Some(threads);
        let (_, other_keys) = channel();
        let driver = RemoteDirectorSteering::new(RemoteDirectorConfig {
            cluster: CLUSTER,
            keys: keys(),
            other_keys,
            directors,
            targets: TARGETS.map(str::to_owned).to_vec(),
            space,
            answer_time_max: ANSWER_TIME_SANE,
        });
        Ok(Box::new(driver.map_err(no_socket)?))
    });
    drop(serving);
    Ok(report)
}

fn no_socket(error: std::io::Error) -> SteeringError {
    SteeringError::Unreachable {
        what: "a director".to_owned(),
        said: error.to_string(),
    }
}

fn serve(
    space: BucketSpace,
    start: u8,
    stop: Arc<AtomicBool>,
) -> Result<(SocketAddr, JoinHandle<()>), SteeringError> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_socket)?;
    let look = Some(Duration::from_millis(5));
    socket.set_read_timeout(look).map_err(no_socket)?;
    let address = socket.local_addr().map_err(no_socket)?;
    let (driver, turning) = driver(space, 1)?;
    let thread = std::thread::spawn(move || {
        let receiver = Receiver::new(CLUSTER, keys(), [start; 16], [start; 16]);
        let names = TARGETS.map(str::to_owned).to_vec();
        let mut served = ServedDirector::new(driver, names, receiver, TAKEOVER_AFTER);
        let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
        while !stop.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut bytes) else {
                continue;
            };
            if let Some(answer) = served.handle(&mut bytes[..length]) {
                // As lost as any other datagram.
                let _ = socket.send_to(&answer, from);
            }
        }
        drop(turning);
    });
    Ok((address, thread))
}

fn turn(space: BucketSpace, count: usize) -> Result<(Vec<Control>, Turning), SteeringError> {
    let refused = |said: String| SteeringError::Unreachable {
        what: "a director".to_owned(),
        said,
    };
    let mut turning = Turning {
        stop: Arc::new(AtomicBool::new(false)),
        threads: Vec::new(),
    };
    let mut controls = Vec::new();
    for _ in 0..count {
        let shared = Ipv4Addr::new(192, 0, 2, 1).into();
        let arm = ArmConfig::one_armed(MacAddress([2, 0, 0, 0, 0, 1]), vec![shared]);
        let mut config = DirectorConfig::new(vec![arm], space);
        config.suspended.packets_max = FRAMES as u32 / 2;
        let ports: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::sink("network"))];
        let pool = FramePool::new(FRAMES).map_err(|error| refused(error.to_string()))?;
        let now = MonotonicClock::new().now();
        let (mut director, control) =
            Director::new(config, ports, pool, now).map_err(|error| refused(error.to_string()))?;
        controls.push(control);
        let stop = Arc::clone(&turning.stop);
        turning.threads.push(std::thread::spawn(move || {
            run(&mut director, MonotonicClock::new(), &stop);
        }));
    }
    Ok((controls, turning))
}
