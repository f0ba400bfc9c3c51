//! The threads of heartbeats: one sends and receives datagrams, one hands epochs to the main thread and waits for its answer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use asterism_heartbeat::{
    DATAGRAM_BYTES_MAX, HostEvent, HostLink, HostLinkConfig, RegistrationRefused,
};
use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::questions::Questions;
use super::{LAST_WAIT, Message};
use crate::control::Ask;
use crate::control::request_handler::RequestHandler;
use asterism_event_log::Event;

/// How long the thread sleeps at most: so late it learns of facts.
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// A socket that could not be opened or used is opened again after so long.
const REOPEN_AFTER: Duration = Duration::from_millis(500);
/// Datagrams that are taken from a socket at a time.
const DATAGRAMS_AT_ONCE: usize = 64;
/// An orchestrator that was silent for so long is reported.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The socket to one orchestrator, connected: the kernel passes on what comes from there alone.
struct Line {
    address: SocketAddr,
    socket: Option<UdpSocket>,
    open_at: Time,
    is_reported: bool,
}

impl Line {
    fn new(address: SocketAddr) -> Line {
        Line {
            address,
            socket: None,
            open_at: Time::ZERO,
            is_reported: false,
        }
    }

    fn open(&mut self, now: Time) {
        if self.socket.is_some() || now < self.open_at {
            return;
        }
        self.open_at = now + REOPEN_AFTER;
        let any: SocketAddr = match self.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let opened = UdpSocket::bind(any).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.connect(self.address)?;
            Ok(socket)
        });
        self.socket = opened.ok();
    }

    /// Sends, or loses, as a network may. A socket that cannot send is opened again: its own address may be gone.
    fn send(&mut self, datagram: &[u8]) {
        let Some(socket) = &self.socket else {
            return;
        };
        match socket.send(datagram) {
            Ok(_) => {}
            // Nobody listens there yet, or the queue is full.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.socket = None,
        }
    }
}

/// Starts both threads.
pub(super) fn start(
    config: HostLinkConfig,
    orchestrators: Vec<SocketAddr>,
    clock: MonotonicClock,
    messages: Receiver<Message>,
    events: SyncSender<Event>,
    handler: Arc<RequestHandler>,
) -> io::Result<JoinHandle<()>> {
    // One that waits while another is handed is offered again.
    let (epochs, handed) = sync_channel(1);
    let refused = events.clone();
    let questions = Questions::start(handler.clone())?;
    Builder::new()
        .name("epochs-handed".to_owned())
        .spawn(move || hand_all(&handed, &handler, &refused))?;
    Builder::new().name("heartbeats".to_owned()).spawn(move || {
        let thread = Thread {
            link: HostLink::new(config),
            lines: orchestrators.into_iter().map(Line::new).collect(),
            clock,
            events,
            epochs,
            questions,
        };
        thread.run(&messages);
    })
}

/// Hands each epoch to the main thread, as the control socket does, and reports what it refuses before the main thread has seen it.
fn hand_all(handed: &Receiver<String>, handler: &RequestHandler, events: &SyncSender<Event>) {
    while let Ok(text) = handed.recv() {
        let cluster = None;
        if let Err(why) = handler.answer(Ask::Epoch { cluster, text }) {
            let event = Event::warning("epoch-not-taken")
                .with("why", why)
                .effect("the epoch in force stays; the orchestrator hands its epoch again");
            let _ = events.try_send(event);
        }
    }
}

struct Thread {
    link: HostLink,
    lines: Vec<Line>,
    clock: MonotonicClock,
    events: SyncSender<Event>,
    epochs: SyncSender<String>,
    questions: Questions,
}

impl Thread {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut until = None;
        loop {
            let now = self.clock.now();
            match messages.try_recv() {
                Ok(Message::Facts(heartbeat)) => {
                    self.link.set(now, heartbeat);
                    continue;
                }
                Ok(Message::Keys(keys)) => {
                    self.link.set_keys(keys);
                    continue;
                }
                Ok(Message::Last(heartbeat)) => {
                    self.link.set(now, heartbeat);
                    until = Some(now + LAST_WAIT);
                }
                Err(TryRecvError::Empty) => {}
                // The process ends.
                Err(TryRecvError::Disconnected) if until.is_none() => return,
                Err(TryRecvError::Disconnected) => {}
            }
            self.turn(now);
            if let Some(until) = until
                && (now >= until || self.link.is_answered())
            {
                return;
            }
            self.sleep();
        }
    }

    fn turn(&mut self, now: Time) {
        for line in &mut self.lines {
            line.open(now);
        }
        self.receive(now);
        self.questions.answer(&mut self.link, now);
        if self.link.poll_timeout().is_some_and(|at| at <= now) {
            self.link.handle_timeout(now);
        }
        while let Some(event) = self.link.poll_event() {
            match event {
                HostEvent::Epoch { text, .. } => {
                    let _ = self.epochs.try_send(text);
                }
                HostEvent::Question {
                    orchestrator,
                    number,
                    text,
                } => self
                    .questions
                    .ask(&mut self.link, orchestrator, number, text),
                HostEvent::Registration {
                    orchestrator,
                    refused: Some(why),
                } => _ = self.events.try_send(self.not_registered(orchestrator, why)),
                HostEvent::Registration { refused: None, .. } => {}
            }
        }
        while let Some((place, datagram)) = self.link.poll_transmit() {
            if let Some(line) = self.lines.get_mut(place) {
                line.send(&datagram);
            }
        }
        self.report(now);
    }

    fn not_registered(&self, orchestrator: usize, why: RegistrationRefused) -> Event {
        let line = self.lines.get(orchestrator).map(|line| line.address);
        Event::warning("registration-refused")
            .with(
                "orchestrator",
                line.map_or_else(String::new, |at| at.to_string()),
            )
            .with("reason", why.word())
            .with("why", why)
            .effect("the host takes no part in the cluster; it asks again by itself")
            .cure(why.cure())
    }

    fn receive(&mut self, now: Time) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        for (place, line) in self.lines.iter().enumerate() {
            let Some(socket) = &line.socket else {
                continue;
            };
            for _ in 0..DATAGRAMS_AT_ONCE {
                match socket.recv(&mut buffer) {
                    Ok(length) => self.link.handle(now, place, &mut buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // What nobody listened to comes back as an error, once.
                    Err(_) => {}
                }
            }
        }
    }

    /// Reports orchestrators that begin and cease to answer.
    fn report(&mut self, now: Time) {
        for (line, known) in self.lines.iter_mut().zip(self.link.orchestrators()) {
            let is_silent = now.since(known.heard.unwrap_or(Time::ZERO)) >= SILENT_AFTER;
            if is_silent == line.is_reported {
                continue;
            }
            line.is_reported = is_silent;
            let event = match is_silent {
                true => Event::warning("orchestrator-silent")
                    .with("address", line.address)
                    .effect("packets and the state channel go on; the host hears of no later epoch from it")
                    .cure("see that it runs, that it has the cluster's key, and that the network carries UDP to its address"),
                false => Event::info("orchestrator-heard").with("address", line.address),
            };
            let _ = self.events.try_send(event);
        }
    }

    fn sleep(&self) {
        let now = self.clock.now();
        let due = self.link.poll_timeout().unwrap_or(now + SLEEP_MAX);
        let sleep = due.since(now).min(SLEEP_MAX);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: sleep.subsec_nanos().into(),
        };
        let mut waited: Vec<PollFd<'_>> = self
            .lines
            .iter()
            .filter_map(|line| line.socket.as_ref())
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        // Interrupted or failed, the loop turns and looks again.
        let _ = poll(&mut waited, Some(&timeout));
    }
}
