//! Our NAT as it ships: one instance of the engine, with ports that hand over what was sent. Imports `setup`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use asterism_engine::frame::{Burst, FramePool};
use asterism_engine::port::{Port, PortStatistics};
use asterism_engine::{Instance, InstanceParts};
use asterism_function::{PortNumber, Reason};
use asterism_functions::nat::{Nat, NatConfig, Side};
use asterism_placement::Time;
use asterism_state::ObjectSettings;

/// Buffers for packets under way: a packet at a time, and what is parked.
const FRAMES: usize = 1_024;
/// Turns between two packets at most: some ten days of sweeps.
const TURNS_MAX: u64 = 100_000_000;

/// A port that sends to a channel and never receives: packets are injected.
#[derive(Debug)]
struct Outlet {
    side: Side,
    sent: Sender<(Side, Vec<u8>)>,
}

impl Port for Outlet {
    fn name(&self) -> &str {
        match self.side {
            Side::Inside => "inside",
            Side::Outside => "outside",
        }
    }
    fn receive(&mut self, _pool: &mut FramePool, _burst: &mut Burst) -> usize {
        0
    }
    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let count = burst.len();
        for frame in burst.as_slice() {
            // Nobody listens only when the subject is being dropped.
            let _ = self.sent.send((self.side, pool.bytes(frame).to_vec()));
        }
        while let Some(frame) = burst.pop() {
            pool.release(frame);
        }
        count
    }
    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }
}

/// Our NAT under test.
#[derive(Debug)]
pub(crate) struct Subject {
    instance: Instance<Nat>,
    sent: Receiver<(Side, Vec<u8>)>,
    now: Time,
}

impl Subject {
    pub(crate) fn new(config: NatConfig) -> Result<Self, String> {
        let nat = Nat::new(config).map_err(|faults| format!("{faults:?}"))?;
        let pool = FramePool::new(FRAMES).map_err(|error| format!("{error:?}"))?;
        let (sender, sent) = channel();
        let port = |side| -> Box<dyn Port> {
            Box::new(Outlet {
                side,
                sent: sender.clone(),
            })
        };
        let instance = InstanceParts::alone(SEED).start(
            Arc::new(nat),
            |_| ObjectSettings::LOCAL,
            pool,
            vec![port(Side::Inside), port(Side::Outside)],
        );
        Ok(Self {
            instance,
            sent,
            now: Time::ZERO,
        })
    }

    /// Lets time pass; what is sent meanwhile.
    pub(crate) fn run_until(&mut self, time_us: u64) -> Vec<(Side, Vec<u8>)> {
        let until = Time::from_micros(time_us);
        for _ in 0..TURNS_MAX {
            let due = self.instance.next_due().max(self.now);
            if due > until {
                break;
            }
            self.now = due + std::time::Duration::from_micros(1);
            self.instance.turn(self.now);
        }
        self.now = self.now.max(until);
        self.sent.try_iter().collect()
    }

    /// Handles a packet now; what is sent for it. False: it could not be taken.
    pub(crate) fn packet(&mut self, side: Side, bytes: &[u8]) -> (bool, Vec<(Side, Vec<u8>)>) {
        let port = PortNumber(match side {
            Side::Inside => 0,
            Side::Outside => 1,
        });
        let taken = self.instance.inject(self.now, port, bytes);
        self.instance.turn(self.now);
        (taken, self.sent.try_iter().collect())
    }

    /// Packets dropped so far, by reason.
    pub(crate) fn drops(&self) -> Vec<(Reason, u64)> {
        self.instance.tally().drops().collect()
    }
}

/// Of the instance's secret choices: any will do, and the same one makes a comparison repeatable.
const SEED: u64 = 0x0041_5354_4552;
