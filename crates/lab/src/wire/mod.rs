//! A wire: a switch in user space between interfaces of nodes, whose paths delay, jitter, lose, duplicate, reorder and limit,
//! because the kernels that tests run on have no `netem`. Read next: `schedule.rs`, then `pump.rs`.
//!
//! One thread serves all ports: it sleeps until the next frame arrives or is nearly due, and spins for the rest. The delay
//! counts from the kernel's time stamp of the arrival, so that a thread that reads late does not send late. Remaining
//! lateness is recorded ([`Lateness`]); a run with a late link counts for nothing ([`WireReport::sound`]).

mod lateness;
mod pump;
mod schedule;
mod socket;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_io::link::{LinkConditions, LinkStatistics};

use crate::error::LabError;
use crate::interface::{index_of, mtu_of};
use crate::lab::{Cable, Lab};
use crate::node::{Node, Offloads};

pub use lateness::Lateness;
pub use schedule::ADDRESSES_MAX;
pub use socket::PortFaults;

use pump::{Pump, Request};
use schedule::Schedule;
use socket::RawInterface;

/// Ports of a wire at most.
pub const PORTS_MAX: usize = 64;
/// Bytes of the largest frame that a kernel hands over whole, with room for headers.
const LARGEST_FRAME_BYTES: usize = 65_536 + 64;
/// Bytes of the receive ring of a port whose frames fit the MTU, and of one with 64 KiB frames.
const RING_BYTES: usize = 16 << 20;
const LARGE_RING_BYTES: usize = 64 << 20;

/// How a wire is made.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// What the cables to the nodes are like. With offloads on, a frame of up to 64 KiB is one frame to delay and lose.
    pub cable: Cable,
    /// Conditions of every path at the start. `mtu_bytes` is not looked at: the interfaces' MTU bounds frames.
    pub conditions: LinkConditions,
    /// Bytes of frames under way on all paths; what exceeds them is dropped and counted as `queue_full`. Give it the rate
    /// times the delay.
    pub held_bytes_max: usize,
    /// The source of loss, jitter and the like: the same seed and the same frames give the same faults.
    pub seed: u64,
    /// How long before a frame is due the thread stops sleeping.
    pub spin: Duration,
}

impl Default for WireConfig {
    /// A perfect switch, 256 MiB of frames under way, spinning for 50 µs.
    fn default() -> WireConfig {
        WireConfig {
            cable: Cable::default(),
            conditions: LinkConditions::default(),
            held_bytes_max: 256 << 20,
            seed: 1,
            spin: Duration::from_micros(50),
        }
    }
}

impl WireConfig {
    /// The same with this delay one way on every path.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> WireConfig {
        self.conditions.delay = delay;
        self
    }

    /// The same with this probability (0 to 1) of loss on every path.
    #[must_use]
    pub fn loss(mut self, loss: f64) -> WireConfig {
        self.conditions.loss = loss;
        self
    }
}

/// A user-space switch. Dropped, its thread ends and its interfaces vanish with their peers in the nodes.
#[derive(Debug)]
pub struct Wire {
    ports: usize,
    requests: Option<Sender<Request>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// Holds the wire's ends of the cables.
    _node: Node,
}

impl Lab {
    /// A wire with an interface in each of the nodes, in this order; two ends are a link, more are a switch.
    /// Costs 16 MiB a port, 64 MiB with offloads on, and a thread.
    pub fn wire(&self, ends: &[(&Node, &str)], config: &WireConfig) -> Result<Wire, LabError> {
        if !(2..=PORTS_MAX).contains(&ends.len()) {
            return Err(LabError::BadName {
                name: format!("{} ends", ends.len()),
                fault: "a wire has 2 to 64",
            });
        }
        let node = self.node("wire")?;
        let mut ports = Vec::new();
        for (number, end) in ends.iter().enumerate() {
            let port = format!("port{number}");
            self.cable(*end, (&node, &port), &config.cable)?;
            let large = config.cable.offloads == Offloads::On;
            let opened = node.enter(|| {
                let (frame_bytes, ring_bytes) = if large {
                    (LARGEST_FRAME_BYTES, LARGE_RING_BYTES)
                } else {
                    (mtu_of(&port)? + 32, RING_BYTES)
                };
                RawInterface::open(index_of(&port)?, frame_bytes, ring_bytes)
            })?;
            ports
                .push(opened.map_err(|error| LabError::kernel("opening an end of a wire", error))?);
        }
        let mut schedule = Schedule::new(ports.len(), config.held_bytes_max, config.seed);
        for from in 0..ports.len() {
            for to in 0..ports.len() {
                schedule.set(from, to, config.conditions.clone());
            }
        }
        let (requests, receiver) = channel();
        let made = UnixStream::pair().and_then(|(wake, woken)| {
            woken.set_nonblocking(true)?;
            wake.set_nonblocking(true)?;
            Ok((wake, woken))
        });
        let (wake, woken) = made.map_err(|error| LabError::kernel("making a wire", error))?;
        let count = ports.len();
        let pump = Pump {
            ports,
            schedule,
            requests: receiver,
            wake: woken,
            spin: config.spin,
            lateness: Lateness::default(),
        };
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || pump.run())
            .map_err(|error| LabError::kernel("starting a wire's thread", error))?;
        Ok(Wire {
            ports: count,
            requests: Some(requests),
            wake,
            thread: Some(thread),
            _node: node,
        })
    }
}

impl Wire {
    /// Sets the conditions of the path from one end to another, for frames that arrive from now on.
    pub fn set(&self, from: usize, to: usize, conditions: LinkConditions) -> Result<(), LabError> {
        if from >= self.ports || to >= self.ports {
            return Err(LabError::BadName {
                name: format!("path {from} to {to}"),
                fault: "the wire has no such end",
            });
        }
        self.ask(Request::Set {
            from,
            to,
            conditions,
        })
    }

    /// Sets the conditions of every path.
    pub fn set_all(&self, conditions: &LinkConditions) -> Result<(), LabError> {
        for from in 0..self.ports {
            for to in 0..self.ports {
                self.set(from, to, conditions.clone())?;
            }
        }
        Ok(())
    }

    /// Forgets the lateness so far: for what comes after setting up.
    pub fn forget_lateness(&self) -> Result<(), LabError> {
        self.ask(Request::ForgetLateness)
    }

    /// What it has done so far.
    pub fn report(&self) -> Result<WireReport, LabError> {
        let (sender, answer) = channel();
        self.ask(Request::Report(sender))?;
        answer.recv().map_err(|_| gone())
    }

    fn ask(&self, request: Request) -> Result<(), LabError> {
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(request).map_err(|_| gone())?;
        // A full pipe means that the thread is about to wake anyway.
        let _ = (&self.wake).write(&[1]);
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = (&self.wake).write(&[1]);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn gone() -> LabError {
    LabError::Failed {
        what: "a wire".to_owned(),
        said: "its thread has ended".to_owned(),
    }
}

/// What a wire has done.
#[derive(Clone, Debug)]
pub struct WireReport {
    /// What each path did.
    pub paths: Vec<PathReport>,
    /// What each port could not do.
    pub ports: Vec<PortFaults>,
    /// How late frames left.
    pub lateness: Lateness,
}

/// What a path of a wire has done.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// The end at which frames arrived.
    pub from: usize,
    /// The end by which they left.
    pub to: usize,
    /// What happened to them.
    pub statistics: LinkStatistics,
}

impl WireReport {
    /// All paths together.
    #[must_use]
    pub fn total(&self) -> LinkStatistics {
        let mut total = LinkStatistics::default();
        for path in &self.paths {
            total.add(&path.statistics);
        }
        total
    }

    /// An error if the wire did not do what its conditions say: frames lost by itself, or 99 % of them later than `bound_us`.
    pub fn sound(&self, bound_us: u64) -> Result<(), LabError> {
        let mut faults = PortFaults::default();
        for port in &self.ports {
            faults.ring_full += port.ring_full;
            faults.not_carried += port.not_carried;
            faults.not_sent += port.not_sent;
        }
        if faults != PortFaults::default() {
            return Err(LabError::Failed {
                what: "a wire".to_owned(),
                said: format!(
                    "it lost frames by itself ({faults:?}); the run counts for nothing, repeat it on a quieter machine"
                ),
            });
        }
        self.lateness.within(bound_us)
    }
}
