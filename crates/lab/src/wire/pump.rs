//! The thread of a wire: frames in, frames out when they are due.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use asterism_io::link::LinkConditions;

use super::lateness::Lateness;
use super::schedule::{Due, Schedule};
use super::socket::{BATCH, META_BYTES, RawInterface, keep_time, wait_readable};
use super::{PathReport, WireReport};
use crate::clock;

/// Frames taken from one port before the others have their turn.
const FRAMES_PER_TURN: usize = 256;
/// A frame cannot have waited longer than this for the wire: its time stamp is from before the real clock was set.
const ARRIVED_BEFORE_MAX_NS: u64 = 1_000_000_000;

/// What the wire's owner asks of it.
#[derive(Debug)]
pub(super) enum Request {
    Set {
        from: usize,
        to: usize,
        conditions: LinkConditions,
    },
    Report(Sender<WireReport>),
    ForgetLateness,
}

/// What runs on the thread.
#[derive(Debug)]
pub(super) struct Pump {
    pub(super) ports: Vec<RawInterface>,
    pub(super) schedule: Schedule,
    pub(super) requests: Receiver<Request>,
    pub(super) wake: UnixStream,
    pub(super) spin: Duration,
    pub(super) lateness: Lateness,
}

impl Pump {
    /// Runs until the sending end of `requests` is gone.
    pub(super) fn run(mut self) {
        keep_time();
        let mut descriptors: Vec<libc::pollfd> = self
            .ports
            .iter()
            .map(RawInterface::descriptor)
            .chain([self.wake.as_raw_fd()])
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let spin_ns = u64::try_from(self.spin.as_nanos()).unwrap_or(u64::MAX);
        let mut arrived_ns = vec![0; self.ports.len()];
        let mut leaving: Vec<Vec<Due>> = vec![Vec::with_capacity(BATCH); self.ports.len()];
        loop {
            match self.requests.try_recv() {
                Ok(request) => {
                    self.obey(request);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let received = self.receive(&mut arrived_ns);
            let sent = self.send_due(&mut leaving);
            if received + sent > 0 {
                continue;
            }
            let wait_ns = self
                .schedule
                .next_due()
                .map(|due| (due.as_micros() * 1_000).saturating_sub(clock::monotonic_ns()));
            match wait_ns {
                Some(wait_ns) if wait_ns <= spin_ns => core::hint::spin_loop(),
                _ => {
                    let time = wait_ns.map(|wait_ns| Duration::from_nanos(wait_ns - spin_ns));
                    wait_readable(&mut descriptors, time);
                    if descriptors.last().is_some_and(|wake| wake.revents != 0) {
                        // One byte a request; how many were read does not matter.
                        let _ = self.wake.read(&mut [0; 64]);
                    }
                }
            }
        }
    }

    fn receive(&mut self, arrived_ns: &mut [u64]) -> usize {
        let real_ahead_ns = clock::real_minus_monotonic_ns();
        let mut received = 0;
        for (from, port) in self.ports.iter_mut().enumerate() {
            let (schedule, last_ns) = (&mut self.schedule, &mut arrived_ns[from]);
            received += port.receive(FRAMES_PER_TURN, |real_ns, bytes| {
                let now_ns = clock::monotonic_ns();
                let stamped_ns = real_ns.wrapping_sub(real_ahead_ns.cast_unsigned());
                let arrival_ns =
                    if stamped_ns > now_ns || now_ns - stamped_ns > ARRIVED_BEFORE_MAX_NS {
                        now_ns
                    } else {
                        stamped_ns
                    };
                *last_ns = arrival_ns.max(*last_ns);
                schedule.accept(clock::time_of(*last_ns), from, bytes, META_BYTES);
            });
        }
        received
    }

    /// Sends what is due, in batches by port.
    fn send_due(&mut self, leaving: &mut [Vec<Due>]) -> usize {
        let mut sent = 0;
        let now = clock::time_of(clock::monotonic_ns());
        while let Some(due) = self.schedule.pop(now) {
            sent += 1;
            let batch = &mut leaving[due.to];
            batch.push(due);
            if batch.len() == BATCH {
                self.send_batch(due.to, batch);
            }
            if sent == FRAMES_PER_TURN {
                break;
            }
        }
        if sent > 0 {
            for (to, batch) in leaving.iter_mut().enumerate() {
                if !batch.is_empty() {
                    self.send_batch(to, batch);
                }
            }
        }
        sent
    }

    fn send_batch(&mut self, to: usize, batch: &mut Vec<Due>) {
        let schedule = &self.schedule;
        self.ports[to].send(batch.iter().map(|due| schedule.bytes(due.frame)));
        let now_us = clock::monotonic_ns() / 1_000;
        for due in batch.drain(..) {
            self.lateness
                .record(now_us.saturating_sub(due.time.as_micros()));
            self.schedule.left(&due);
        }
    }

    fn obey(&mut self, request: Request) {
        match request {
            Request::Set {
                from,
                to,
                conditions,
            } => self.schedule.set(from, to, conditions),
            Request::ForgetLateness => self.lateness.clear(),
            Request::Report(answer) => {
                let ports = self.ports.len();
                let pairs = (0..ports).flat_map(|from| (0..ports).map(move |to| (from, to)));
                let paths = pairs
                    .filter(|(from, to)| from != to)
                    .map(|(from, to)| PathReport {
                        from,
                        to,
                        statistics: self.schedule.statistics(from, to),
                    })
                    .collect();
                // Nobody waits for it any more if this fails.
                let _ = answer.send(WireReport {
                    paths,
                    ports: self.ports.iter_mut().map(RawInterface::faults).collect(),
                    lateness: self.lateness.clone(),
                });
            }
        }
    }
}
