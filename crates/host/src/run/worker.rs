//! The thread of one instance: turns while there is work, sleep while there is none, and between bursts the answers to what
//! others ask of its state. Nobody else touches its tables.

mod publish;
mod work;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use asterism_engine::Instance;
use asterism_engine::transport::Waker;
use asterism_function::NetworkFunction;
use asterism_io::clock::MonotonicClock;
use asterism_io::port::LinkState;
use asterism_placement::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use asterism_event_log::Event;
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;
use asterism_host_view::shared::Shared;
use work::{Find, RepairWork, Report, Restore, Save, Trace, Work};

/// Requests that wait for one instance at most.
pub const REQUESTS_MAX: usize = 16;
/// How often ports send what they still hold, and tell what failed, while packets leave no rest.
const FLUSH_US: u64 = 1_000;
/// How often an instance shows what it counted.
const PUBLISH_US: u64 = 100_000;
/// Turns between two looks for requests, while there are packets.
const TURNS_BETWEEN_REQUESTS: u64 = 64;
/// How long a worker that ends waits at most for room in the log for what it keeps back.
const TELL_REST: Duration = Duration::from_secs(2);
/// The longest sleep: how late an instance sees at most what others wrote, and requests.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// The longest sleep while packets wait for what others may have written, and while a snapshot goes out or comes in.
const SLEEP_PARKED: Duration = Duration::from_micros(50);
/// The shortest sleep.
const SLEEP_MIN: Duration = Duration::from_micros(10);
/// Packets that one trace looks at most.
pub const TRACED_MAX: usize = 1_000;

/// An instance with what its thread needs.
pub struct Worker<F: NetworkFunction> {
    instance: Instance<F>,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    /// Those that came while another took its time, at most [`REQUESTS_MAX`].
    waiting: VecDeque<Request>,
    events: SyncSender<Event>,
    waker: Waker,
    clock: MonotonicClock,
    work: Option<Work>,
    /// A report whose asker takes nothing meanwhile, while the state is saved.
    held_up: Option<Work>,
    turns: u64,
    sleeps: u64,
    published_us: u64,
    flushed_us: u64,
    /// Whether it stands still: the state channel has all that it wrote.
    is_still: bool,
    links: Vec<LinkState>,
    words: Vec<u64>,
}

impl<F: NetworkFunction> core::fmt::Debug for Worker<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Worker({:?})", self.instance)
    }
}

impl<F: NetworkFunction> Worker<F> {
    /// A worker. Runs on the thread that made the instance.
    pub fn new(
        instance: Instance<F>,
        shared: Arc<Shared>,
        requests: Receiver<Request>,
        events: SyncSender<Event>,
        waker: Waker,
        clock: MonotonicClock,
    ) -> Worker<F> {
        let links = instance.ports().iter().map(|_| LinkState::Up).collect();
        Worker {
            instance,
            shared,
            requests,
            waiting: VecDeque::with_capacity(REQUESTS_MAX),
            events,
            waker,
            clock,
            work: None,
            held_up: None,
            turns: 0,
            sleeps: 0,
            published_us: 0,
            flushed_us: 0,
            is_still: false,
            links,
            words: Vec::with_capacity(512),
        }
    }

    /// Runs until the phase is [`Phase::Ended`], or the instance was handed what it cannot apply.
    pub fn run(mut self) {
        self.publish(self.clock.now());
        loop {
            let now = self.clock.now();
            self.turns += 1;
            let phase = self.shared.phase();
            let before = self.written();
            let read = match phase {
                Phase::Running => self.turn(now),
                Phase::Listening | Phase::Draining => {
                    self.instance.turn_without_reading(now);
                    0
                }
                Phase::Telling => {
                    self.stand_still();
                    0
                }
                Phase::Ended => break,
            };
            if let Some(why) = self.instance.stopped() {
                // Before the thread ends, by which its host learns of it.
                let _ = self.shared.stopped.set(why);
                break;
            }
            let is_idle = read == 0;
            if self.work.is_some() || is_idle || self.turns.is_multiple_of(TURNS_BETWEEN_REQUESTS) {
                self.serve(now);
            }
            if self.written() != before {
                self.waker.ring();
            }
            if now.as_micros().saturating_sub(self.published_us) >= PUBLISH_US {
                self.publish(now);
            }
            if now.as_micros().saturating_sub(self.flushed_us) >= FLUSH_US {
                self.flush_ports(now);
            }
            let waits = self.instance.is_behind()
                || self.instance.snapshot_under_way().1
                || self.instance.held() > 0;
            if is_idle && !waits {
                self.rest(now);
            }
        }
        self.stand_still();
        self.publish(self.clock.now());
    }

    /// What counters still keep back goes to the state channel, which stops later, and frames go out. From then on nothing changes,
    /// so that what is reported then is all.
    fn stand_still(&mut self) {
        if core::mem::replace(&mut self.is_still, true) {
            return;
        }
        self.tell_rest();
        self.instance.flush_ports(|_| {});
    }

    fn tell_rest(&mut self) {
        let until = self.clock.now() + TELL_REST;
        loop {
            let now = self.clock.now();
            let is_said = self.instance.tell_all(now);
            self.waker.ring();
            // Held packets leave, or their time ends.
            if self.instance.held() > 0 || !is_said && now < until {
                self.rest(now);
                continue;
            }
            if !is_said {
                let event = Event::warning("counts-lost")
                    .effect("the others never learn what this instance counted last")
                    .cure("members that acknowledge: the log had no room for more");
                let _ = self.events.try_send(event);
            }
            return;
        }
    }

    /// What the state channel is to hear of.
    fn written(&self) -> u64 {
        let tally = self.instance.tally();
        tally.groups_written + tally.groups_applied + self.instance.snapshot_records()
    }

    fn turn(&mut self, now: Time) -> usize {
        let Some(Work::Trace(trace)) = &mut self.work else {
            return self.instance.turn(now);
        };
        self.instance
            .turn_traced(now, trace.packets, nanoseconds, &mut trace.traced)
    }

    // --- what others ask

    fn serve(&mut self, now: Time) {
        if let Some(work) = self.work.take() {
            self.replace_meanwhile();
            self.work = work.go_on(&mut self.instance, self.shared.phase(), now);
            self.save_meanwhile(now);
            return;
        }
        if let Some(work) = self.held_up.take() {
            self.work = Some(work);
            return;
        }
        let next = match self.waiting.pop_front() {
            Some(request) => Ok(request),
            None => self.requests.try_recv(),
        };
        match next {
            Ok(request) => self.begin(request, now),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }

    /// Another function is not kept waiting by a request that takes long, as a trace of packets that do not come.
    fn replace_meanwhile(&mut self) {
        while self.waiting.len() < REQUESTS_MAX {
            match self.requests.try_recv() {
                Ok(Request::Replace { function, taken }) => self.replace(function, &taken),
                Ok(request) => self.waiting.push_back(request),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
    }

    fn replace(&mut self, function: Box<dyn Any + Send>, taken: &SyncSender<()>) {
        if let Ok(function) = function.downcast::<Arc<F>>() {
            self.instance.replace_function(*function);
            let _ = taken.try_send(());
        }
    }

    /// The state is not kept waiting by a report that its asker does not take: who saves may be who asked.
    fn save_meanwhile(&mut self, now: Time) {
        if !self.work.as_ref().is_some_and(Work::is_held_up) {
            return;
        }
        let is_save = |request: &Request| matches!(request, Request::Save { .. });
        if let Some(place) = self.waiting.iter().position(is_save)
            && let Some(save) = self.waiting.remove(place)
        {
            self.held_up = self.work.take();
            self.begin(save, now);
        }
    }

    fn begin(&mut self, request: Request, now: Time) {
        self.work = match request {
            Request::Digests { reply } => {
                let _ = reply.try_send(self.instance.digests());
                None
            }
            Request::Replace { function, taken } => {
                self.replace(function, &taken);
                None
            }
            Request::Trace {
                packets,
                within,
                reply,
            } => Some(Work::Trace(Trace {
                packets: packets.clamp(1, TRACED_MAX),
                until: now + within,
                traced: Vec::new(),
                reply,
            })),
            Request::Find {
                sought,
                object,
                reply,
            } => Some(Work::Find(Find::new(sought, object, reply))),
            Request::Repair {
                object,
                leaves,
                removes,
                reply,
            } => Some(Work::Repair(RepairWork {
                repair: self.instance.begin_repair(object, leaves, removes),
                reply,
            })),
            Request::Tell {
                port,
                frame,
                called,
            } => {
                // What finds no room is reported again.
                let is_called = !self.is_still && self.instance.inject(now, port, &frame);
                if let Some(called) = called {
                    let _ = called.try_send(is_called);
                }
                None
            }
            Request::Report { question, parts } => Some(Work::Report(Report::new(question, parts))),
            Request::Save { parts } => Some(Work::Save(Save::new(parts))),
            Request::Restore {
                parts,
                since,
                reply,
            } => Some(Work::Restore(Restore::new(parts, since, reply))),
        };
    }

    // --- rest

    /// Has ports send what they hold, and tells what failed.
    fn flush_ports(&mut self, now: Time) {
        self.flushed_us = now.as_micros();
        let events = &self.events;
        self.instance.flush_ports(|error| {
            let event = Event::warning("port-failed")
                .with("port", &error.port)
                .effect(error.kind.to_string());
            let _ = events.try_send(event);
        });
    }

    fn rest(&mut self, now: Time) {
        if self.shared.spins.load(Ordering::Relaxed) {
            core::hint::spin_loop();
            return;
        }
        self.flush_ports(now);
        let phase = self.shared.phase();
        // Ports that are not read have nothing due.
        let waits = matches!(phase, Phase::Listening | Phase::Telling);
        let hurries = self.work.is_some()
            || self.instance.parked() > 0
            || self.instance.snapshot_under_way().0
            || self.instance.announces()
            || waits;
        let most = if hurries { SLEEP_PARKED } else { SLEEP_MAX };
        let due = if waits {
            now + SLEEP_PARKED
        } else {
            self.instance.next_due()
        };
        let left = Duration::from_micros(due.as_micros().saturating_sub(now.as_micros()));
        let timeout = left.clamp(SLEEP_MIN, most);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut descriptors: Vec<PollFd<'_>> = Vec::with_capacity(4);
        if phase == Phase::Running {
            let ports = self.instance.ports().iter();
            let waits = ports.filter_map(|port| port.wait_descriptor());
            descriptors.extend(
                waits.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
            );
        }
        self.sleeps += 1;
        // A signal that ends the sleep early costs a turn.
        let _ = poll(&mut descriptors, Some(&timeout));
    }
}

/// The monotonic clock in nanoseconds.
fn nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
