//! A link to another process on the same machine by shared memory: no system call for a packet while both are busy, which
//! makes it some forty times as fast as any interface.
//!
//! `ring.rs` has the memory, `greeting.rs` the set-up. The other process may end, stop reading or write anything: that costs
//! the link, or packets, each counted.

mod error;
mod greeting;
mod ring;

pub use error::{LinkEnd, SharedMemoryError};
pub use greeting::{GreetingError, SLOT_BYTES_RANGE, SLOTS_RANGE};

use super::interface::{REOPEN_BACKOFF_US_MAX, REOPEN_BACKOFF_US_MIN, WATCH_INTERVAL_US};
use super::offload::{header_of, plainly};
use super::system::{self, HEADER_BYTES};
use super::{LinkState, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{Burst, Frame, FramePool};
use asterism_placement::Time;
use greeting::{Incoming, Shared};
use ring::{Broken, Division, End};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// How long a peer may take to greet, in microseconds.
const GREETING_US_MAX: u64 = 1_000_000;
/// What a peer that ended had written is kept so long for anyone who reads it.
const READ_DRY_US_MAX: u64 = 1_000_000;

/// Which end of a link a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemoryRole {
    /// Makes the socket and the memory. Start it first, or not: the other end tries again.
    Listen,
    /// Connects to the socket, and takes the sizes that the other end has.
    Connect,
}

/// How a [`SharedMemoryPort`] is opened. [`SharedMemoryConfig::new`] has sane values for all but name, path and role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemoryConfig {
    /// What the port is called in configuration, logs and metrics.
    pub name: String,
    /// The Unix socket where the two ends meet. Mode 0600; its directory must exist.
    pub path: PathBuf,
    /// Which end this is.
    pub role: SharedMemoryRole,
    /// Packets that may wait each way. Sane: 4096; below that the two processes wait for each other. Bound: [`SLOTS_RANGE`], a
    /// power of two. The end that listens decides.
    pub slots: u32,
    /// The longest packet in bytes. Sane: 2048. Bound: [`SLOT_BYTES_RANGE`], a multiple of 64. The end that listens decides.
    pub slot_bytes: u32,
}

impl SharedMemoryConfig {
    /// A port called `name` that meets its other end at `path`.
    pub fn new(
        name: impl Into<String>,
        path: impl Into<PathBuf>,
        role: SharedMemoryRole,
    ) -> SharedMemoryConfig {
        SharedMemoryConfig {
            name: name.into(),
            path: path.into(),
            role,
            slots: 4096,
            slot_bytes: 2048,
        }
    }

    fn division(&self) -> Division {
        Division {
            slots: self.slots,
            slot_bytes: self.slot_bytes,
        }
    }
}

/// A port to another process by shared memory. Both must belong to one user, or the other to root.
///
/// Without a peer the link is down; a peer that comes, or comes back, is taken by `advance`. A new peer is new memory: what the
/// old one had not read is lost. Meeting a peer allocates and maps; nothing else does.
#[derive(Debug)]
pub struct SharedMemoryPort {
    config: SharedMemoryConfig,
    listener: Option<UnixListener>,
    state: State,
    statistics: PortStatistics,
    met: u64,
    now_us: u64,
    due_us: u64,
    backoff_us: u64,
    problem: Option<SharedMemoryError>,
}

#[derive(Debug)]
enum State {
    Alone,
    Greeting {
        stream: UnixStream,
        incoming: Incoming,
        until_us: u64,
    },
    Linked(Box<Link>),
}

/// Memory shared with a living peer.
#[derive(Debug)]
struct Link {
    shared: Shared,
    stream: UnixStream,
    outbound: End,
    inbound: End,
    /// Which of the two events is ours.
    own_event: usize,
    /// Readable when the peer woke us or hung up.
    any: OwnedFd,
    hung_up: bool,
    /// When that was seen.
    hung_up_us: u64,
}

impl Link {
    fn new(shared: Shared, stream: UnixStream, role: SharedMemoryRole) -> std::io::Result<Link> {
        let (own, other) = match role {
            SharedMemoryRole::Listen => (0, 1),
            SharedMemoryRole::Connect => (1, 0),
        };
        let any = system::any_readable(&[shared.events[own].as_fd(), stream.as_fd()])?;
        Ok(Link {
            outbound: End::new(shared.division, other),
            inbound: End::new(shared.division, own),
            own_event: own,
            shared,
            stream,
            any,
            hung_up: false,
            hung_up_us: 0,
        })
    }
}

impl SharedMemoryPort {
    /// Opens this end. Waits for no peer: until there is one the link is down. Fails in words when the socket cannot be made, when
    /// another program listens there, or for values out of bounds.
    pub fn open(config: &SharedMemoryConfig) -> Result<SharedMemoryPort, PortError> {
        let refused = |error: SharedMemoryError| PortError::new(&config.name, error);
        greeting::check(config.division())
            .map_err(|error| refused(SharedMemoryError::Setting(error)))?;
        let listener = match config.role {
            SharedMemoryRole::Connect => None,
            SharedMemoryRole::Listen => Some(greeting::listen(&config.path).map_err(|error| {
                refused(SharedMemoryError::NoSocket {
                    path: config.path.clone(),
                    error,
                })
            })?),
        };
        let mut port = SharedMemoryPort {
            config: config.clone(),
            listener,
            state: State::Alone,
            statistics: PortStatistics::default(),
            met: 0,
            now_us: 0,
            due_us: 0,
            backoff_us: REOPEN_BACKOFF_US_MIN,
            problem: None,
        };
        port.check();
        Ok(port)
    }

    /// Looks after the peer: takes one that comes, lets go of one that ended.
    fn check(&mut self) {
        self.due_us = self.now_us + WATCH_INTERVAL_US;
        match &mut self.state {
            State::Linked(link) => {
                if !link.hung_up && greeting::has_hung_up(&link.stream) {
                    (link.hung_up, link.hung_up_us) = (true, self.now_us);
                    self.statistics.link_downs += 1;
                }
                if !link.hung_up {
                    return;
                }
                // What it had written is read first, unless nobody reads.
                let waits = link.inbound.waiting(&link.shared.memory).unwrap_or(0);
                if waits > 0 && self.now_us < link.hung_up_us + READ_DRY_US_MAX {
                    self.due_us = self.now_us + 1_000;
                    return;
                }
                self.statistics
                    .count_dropped_many(PortDrop::LinkDown, waits as usize);
                self.part(LinkEnd::PeerEnded);
            }
            State::Alone => self.meet(),
            State::Greeting { .. } => self.greet(),
        }
    }

    /// A signal that comes after what it was for had been read would end every rest from here on.
    fn take_late_signals(&mut self) {
        let State::Linked(link) = &mut self.state else {
            return;
        };
        let own = &link.shared.events[link.own_event];
        if link.inbound.sleeps {
            system::take_signals(own);
            if !matches!(link.inbound.waiting(&link.shared.memory), Ok(0)) {
                // It was for these.
                system::signal(own);
            }
        }
    }

    /// The link is over. The next peer is welcome at once.
    fn part(&mut self, end: LinkEnd) {
        if let State::Linked(link) = &self.state
            && !link.hung_up
        {
            self.statistics.link_downs += 1;
        }
        self.state = State::Alone;
        self.backoff_us = REOPEN_BACKOFF_US_MIN;
        self.due_us = self.now_us + REOPEN_BACKOFF_US_MIN;
        let path = self.config.path.clone();
        self.report(SharedMemoryError::LinkDown { path, end });
    }

    fn report(&mut self, why: SharedMemoryError) {
        self.problem.get_or_insert(why);
    }

    fn meet(&mut self) {
        let stream = match &self.listener {
            Some(listener) => match listener.accept() {
                Ok((stream, _)) if greeting::is_trusted(&stream) => Some(stream),
                Ok(_) => {
                    self.report(SharedMemoryError::OtherUser);
                    None
                }
                Err(_) => None,
            },
            None => {
                self.due_us = self.now_us + self.backoff_us;
                self.backoff_us = (2 * self.backoff_us).min(REOPEN_BACKOFF_US_MAX);
                let hello = greeting::greeting(self.config.division());
                UnixStream::connect(&self.config.path)
                    .ok()
                    .filter(|stream| system::send_descriptors(stream, &hello, &[]).is_ok())
            }
        };
        if let Some(stream) = stream
            && stream.set_nonblocking(true).is_ok()
        {
            self.state = State::Greeting {
                stream,
                incoming: Incoming::new(),
                until_us: self.now_us + GREETING_US_MAX,
            };
            self.due_us = self.now_us + 1_000;
            self.greet();
        }
    }

    fn greet(&mut self) {
        let State::Greeting {
            stream,
            mut incoming,
            until_us,
        } = std::mem::replace(&mut self.state, State::Alone)
        else {
            return;
        };
        self.due_us = self.now_us + 1_000;
        let linked = match incoming.poll(&stream) {
            Ok(false) if self.now_us < until_us => {
                self.state = State::Greeting {
                    stream,
                    incoming,
                    until_us,
                };
                return;
            }
            Ok(false) => Err(GreetingError::Late),
            Err(why) => Err(why),
            Ok(true) => match self.config.role {
                SharedMemoryRole::Connect => incoming.accept(),
                SharedMemoryRole::Listen => incoming.division().and_then(|_| {
                    greeting::offer(&stream, self.config.division())
                        .map_err(GreetingError::NoMemory)
                }),
            },
        };
        let linked = linked.and_then(|shared| {
            Link::new(shared, stream, self.config.role).map_err(GreetingError::NoEvents)
        });
        match linked {
            Ok(link) => {
                self.state = State::Linked(Box::new(link));
                self.met += 1;
                self.backoff_us = REOPEN_BACKOFF_US_MIN;
                self.due_us = self.now_us + WATCH_INTERVAL_US;
            }
            Err(error) => {
                let path = self.config.path.clone();
                self.report(SharedMemoryError::NoLink { path, error });
                self.due_us = self.now_us + self.backoff_us;
            }
        }
    }
}

impl Drop for SharedMemoryPort {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = std::fs::remove_file(&self.config.path);
        }
    }
}

/// Writes a burst into the ring.
fn transmit(
    link: &mut Link,
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
) -> Result<usize, Broken> {
    let memory = &link.shared.memory;
    let room = link.outbound.room(memory, burst.len() as u32);
    let mut room = match room {
        Ok(room) => room,
        Err(broken) => {
            statistics.count_dropped_many(PortDrop::LinkDown, burst.len());
            pool.release_all(burst);
            return Err(broken);
        }
    };
    let mut sent = 0;
    for frame in burst.as_mut_slice() {
        let header = if frame.is_offloaded() {
            header_of(pool, frame, statistics)
        } else {
            Ok([0; HEADER_BYTES])
        };
        let reason = match header {
            Err(reason) => reason,
            Ok(_) if frame.len() > link.shared.division.slot_bytes as usize => PortDrop::TooLong,
            Ok(_) if room == 0 => PortDrop::QueueFull,
            Ok(header) => {
                link.outbound.put(memory, &header, pool.bytes(frame));
                statistics.count_sent(frame.len());
                room -= 1;
                sent += 1;
                continue;
            }
        };
        statistics.count_dropped(reason);
    }
    pool.release_all(burst);
    if sent > 0 && link.outbound.publish(memory) {
        system::signal(&link.shared.events[1 - link.own_event]);
    }
    Ok(sent)
}

impl Port for SharedMemoryPort {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let State::Linked(link) = &mut self.state else {
            return 0;
        };
        let memory = &link.shared.memory;
        let mut waiting = link.inbound.waiting(memory);
        if waiting == Ok(0) {
            waiting = link.inbound.sleep(memory);
        }
        let waiting = match waiting {
            Ok(0) => return 0,
            Ok(waiting) => waiting,
            Err(Broken) => {
                self.statistics.count_dropped(PortDrop::BadDescriptor);
                self.part(LinkEnd::ImpossibleIndex);
                return 0;
            }
        };
        if std::mem::take(&mut link.inbound.sleeps) {
            system::take_signals(&link.shared.events[link.own_event]);
        }
        let before = burst.len();
        for _ in 0..waiting {
            if burst.room() == 0 {
                break;
            }
            let Some(mut frame) = pool.allocate() else {
                break;
            };
            match link.inbound.take(memory, pool, &mut frame) {
                Ok(()) => {
                    self.statistics.count_received(frame.len());
                    if let Err(frame) = burst.push(frame) {
                        pool.release(frame);
                    }
                }
                Err(reason) => {
                    self.statistics.count_dropped(reason);
                    pool.release(frame);
                }
            }
        }
        link.inbound.give_back(memory);
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let statistics = &mut self.statistics;
        let link = match &mut self.state {
            State::Linked(link) if !link.hung_up => link,
            _ => {
                statistics.count_dropped_many(PortDrop::LinkDown, burst.len());
                pool.release_all(burst);
                return 0;
            }
        };
        let slot_bytes = link.shared.division.slot_bytes as usize;
        let too_long = |frame: &Frame| frame.is_offloaded() && frame.len() > slot_bytes;
        let mut broken = false;
        let mut write =
            |pool: &mut FramePool, burst: &mut Burst, statistics: &mut PortStatistics| {
                transmit(link, pool, burst, statistics).unwrap_or_else(|Broken| {
                    broken = true;
                    0
                })
            };
        let sent = if burst.iter().any(too_long) {
            plainly(pool, burst, statistics, write)
        } else {
            write(pool, burst, statistics)
        };
        if broken {
            self.statistics.count_dropped(PortDrop::BadDescriptor);
            self.part(LinkEnd::ImpossibleIndex);
        }
        sent
    }

    fn statistics(&self) -> PortStatistics {
        PortStatistics {
            reopened: self.met.saturating_sub(1),
            ..self.statistics
        }
    }

    fn advance(&mut self, now: Time) {
        self.now_us = now.as_micros();
        if self.now_us >= self.due_us {
            self.check();
        }
    }

    fn next_due(&self) -> Option<Time> {
        Some(Time::from_micros(self.due_us))
    }

    fn flush(&mut self, _pool: &mut FramePool) -> Result<(), PortError> {
        self.take_late_signals();
        let waits = self.listener.is_none() && matches!(self.state, State::Alone);
        // A port that connects keeps to its pauses.
        if !waits || self.now_us >= self.due_us {
            self.check();
        }
        match self.problem.take() {
            None => Ok(()),
            Some(error) => Err(PortError::new(&self.config.name, error)),
        }
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Linked(link) => Some(link.any.as_fd()),
            State::Greeting { stream, .. } => Some(stream.as_fd()),
            State::Alone => self.listener.as_ref().map(AsFd::as_fd),
        }
    }

    fn link(&self) -> LinkState {
        match &self.state {
            State::Linked(link) if !link.hung_up => LinkState::Up,
            _ => LinkState::Down,
        }
    }
}

/// Memory as a hostile peer may leave it: a target for fuzzing.
#[doc(hidden)]
pub fn fuzz_shared_memory(data: &[u8]) {
    ring::fuzz(data);
    let mut bytes = [0; greeting::GREETING_BYTES];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    if let Ok(division) = greeting::read_greeting(&bytes) {
        assert!(greeting::check(division).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_event(port: &SharedMemoryPort) -> &std::os::fd::OwnedFd {
        let State::Linked(link) = &port.state else {
            panic!("there is a link")
        };
        &link.shared.events[link.own_event]
    }

    /// Whether it was, which this takes away.
    fn was_signalled(port: &SharedMemoryPort) -> bool {
        let mut count = [0; 8];
        rustix::io::read(own_event(port), &mut count) == Ok(8)
    }

    #[test]
    fn a_signal_for_what_was_read_already_ends_no_rest_and_none_is_lost() {
        let path = std::env::temp_dir().join(format!("asterism-late-{}", std::process::id()));
        let open =
            |role| SharedMemoryPort::open(&SharedMemoryConfig::new("link", &path, role)).unwrap();
        let mut listening = open(SharedMemoryRole::Listen);
        let mut connecting = open(SharedMemoryRole::Connect);
        let mut pool = FramePool::new(64).unwrap();
        let mut burst = Burst::new();
        for turn in 1..1_000 {
            for port in [&mut listening, &mut connecting] {
                port.advance(Time::from_micros(turn * 1_000));
                let _ = port.flush(&mut pool);
            }
        }
        assert_eq!(listening.receive(&mut pool, &mut burst), 0);
        // As of a peer that was held up between what it wrote, which was read meanwhile, and this.
        system::signal(own_event(&listening));
        listening.flush(&mut pool).unwrap();
        assert!(!was_signalled(&listening));
        // What came right before a flush is not taken for such a one.
        assert_eq!(listening.receive(&mut pool, &mut burst), 0);
        let _ = burst.push(pool.allocate_copy(&[7; 60]).unwrap());
        assert_eq!(connecting.send(&mut pool, &mut burst), 1);
        listening.flush(&mut pool).unwrap();
        assert!(was_signalled(&listening));
        assert_eq!(listening.receive(&mut pool, &mut burst), 1);
        pool.release_all(&mut burst);
    }
}
