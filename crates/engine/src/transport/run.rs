//! The state channel's thread: it alone owns the [`StateChannel`] and the [`UdpTransport`], and never touches a
//! table. See [`spawn`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_placement::membership::{InstallError, Roster};
use asterism_placement::{Epoch, MemberId, Time};
use asterism_secure_channel::KeyRing;

use super::config::{RunConfig, RunMode, TransportError, UdpConfig};
use super::kernel;
use super::snapshot::{ChannelSnapshot, Publisher, Snapshots, ThreadTally};
use super::statistics::TransportEvent;
use super::udp::UdpTransport;
use super::watch::{PeerFault, Watch};
use crate::channel::{ChannelEvent, StateChannel};
use asterism_io::clock::MonotonicClock;

/// Events kept for a reader at most; more are counted in [`ThreadTally::events_lost`].
pub const EVENTS_MAX: usize = 1_024;
/// Rosters and rings of keys that wait to be put in force at most.
const ORDERS_MAX: usize = 8;
/// Times that the queue of datagrams is filled and handed to the kernel in one turn at most.
const BATCHES_PER_TURN: usize = 4;
/// The shortest sleep: what is due sooner was just tried.
const SLEEP_MIN: Duration = Duration::from_micros(10);
/// The longest sleep while records wait for room in the ring to the instances.
const SLEEP_BACKLOG: Duration = Duration::from_micros(100);

/// What a state channel's thread tells its host, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Of the state channel: admissions, duplicate identities, lagging_replicas.
    Channel(ChannelEvent),
    /// Of the transport.
    Transport(TransportEvent),
    /// There is a fault with a member for [`PEER_SILENT_AFTER`](super::PEER_SILENT_AFTER) now, or another one than before.
    Fault {
        /// The member.
        member: MemberId,
        /// The fault.
        fault: PeerFault,
    },
    /// The fault with a member is over.
    FaultOver {
        /// The member.
        member: MemberId,
        /// The fault.
        fault: PeerFault,
    },
    /// A roster was not put in force.
    NotInstalled {
        /// Its epoch.
        epoch: Epoch,
        /// Why. When [`InstallError::is_end`], this host has no part in the cluster any more and must stop at once.
        why: InstallError,
    },
    /// The thread could not be bound to its processor; it runs on any.
    NotPinned {
        /// The processor asked for.
        processor: usize,
        /// Error number.
        errno: i32,
    },
}

impl core::fmt::Display for Notice {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Channel(event) => write!(formatter, "{event:?}"),
            Self::Transport(event) => event.fmt(formatter),
            Self::Fault { member, fault } => write!(formatter, "{member}: {}", fault.label()),
            Self::FaultOver { member, fault } => {
                write!(formatter, "{member}: {} is over", fault.label())
            }
            Self::NotInstalled { epoch, why } => {
                write!(formatter, "epoch {} is not in force: {why}", epoch.0)
            }
            Self::NotPinned { processor, errno } => write!(
                formatter,
                "the state channel runs on any processor, not on {processor} ({}): see which ones this process may use",
                std::io::Error::from_raw_os_error(*errno)
            ),
        }
    }
}

/// Wakes a state channel's thread that sleeps. An instance rings after it has published what it wrote.
///
/// While the thread is awake a ring is one read of a shared byte. A thread about to sleep may miss the ring by
/// the time that a store takes to be seen; it then sees the group at the latest after
/// [`RunConfig::sleep_max`](super::RunConfig::sleep_max).
#[derive(Clone, Debug)]
pub struct Waker(Arc<WakerState>);

#[derive(Debug)]
struct WakerState {
    is_asleep: AtomicBool,
    waker: kernel::EventDescriptor,
}

impl Waker {
    /// Wakes the thread if it sleeps.
    #[inline]
    pub fn ring(&self) {
        if self.0.is_asleep.load(Ordering::Relaxed) {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        // One of several that ring at once is enough.
        if self.0.is_asleep.swap(false, Ordering::AcqRel) {
            self.0.waker.ring();
        }
    }
}

/// A running state channel. Dropping it stops the thread without waiting for it.
#[derive(Debug)]
pub struct StateChannelThread {
    snapshots: Snapshots,
    events: Receiver<Notice>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    orders: SyncSender<Order>,
    /// Whether an order waits that the thread has not looked at.
    ordered: Arc<AtomicBool>,
    /// What the thread will run, until it is started.
    turner: Option<Unstarted>,
    thread: Option<JoinHandle<StateChannel>>,
}

/// What a thread runs that was not started yet.
struct Unstarted(Box<Turner>);

impl core::fmt::Debug for Unstarted {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Unstarted")
    }
}

/// What is handed to the thread while it runs.
#[derive(Debug)]
enum Order {
    Install(Roster, Option<Vec<(MemberId, SocketAddr)>>),
    SetKeys(KeyRing),
    SettleClusterTime,
    SetReplicated(u64),
}

/// A state channel that was stopped.
#[derive(Debug)]
pub struct Stopped {
    /// The state channel, whose instances may still be asked.
    pub channel: StateChannel,
    /// The last snapshot. Its `is_quiet` says whether everything was acknowledged by all.
    pub snapshot: Arc<ChannelSnapshot>,
    /// What happened and was not read.
    pub events: Vec<Notice>,
}

/// Opens the sockets and starts the thread.
///
/// ```no_run
/// # fn example(config: asterism_engine::HostConfig, udp: asterism_engine::transport::UdpConfig)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use asterism_io::clock::MonotonicClock;
/// use asterism_engine::transport::{self, RunConfig};
///
/// let clock = MonotonicClock::new();
/// // `config.tick_at_zero` is `clock.wall_at_zero()`.
/// let (channel, parts) = asterism_engine::host(config, clock.now())?;
/// let running = transport::spawn(channel, &udp, RunConfig::default(), clock)?;
/// // Each instance's thread starts one of `parts`, has a copy of `clock` and of the waker, and after each
/// // turn in which it wrote something:
/// let waker = running.waker();
/// waker.ring();
/// // Anyone who shows the host's state keeps `running.snapshots()`; the log takes the events.
/// let snapshots = running.snapshots();
/// println!("{} datagrams", snapshots.latest().transport.datagrams_sent);
/// for event in running.events() {
///     println!("{event:?}");
/// }
/// // First the instances stop, then this: it waits until the others have what was written.
/// let stopped = running.stop()?;
/// println!("all acknowledged: {}", stopped.snapshot.is_quiet);
/// # drop(parts);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// See [`TransportError`]; nothing runs or stays open.
pub fn spawn(
    channel: StateChannel,
    udp: &UdpConfig,
    run: RunConfig,
    clock: MonotonicClock,
) -> Result<StateChannelThread, TransportError> {
    let mut thread = open(channel, udp, run, clock)?;
    thread.start()?;
    Ok(thread)
}

/// Opens the sockets, and does not start the thread: until [`StateChannelThread::start`] no datagram is sent and none is read. So a
/// host whose start fails has been heard by nobody.
///
/// # Errors
/// See [`TransportError`]; nothing stays open.
pub fn open(
    mut channel: StateChannel,
    udp: &UdpConfig,
    run: RunConfig,
    clock: MonotonicClock,
) -> Result<StateChannelThread, TransportError> {
    let errors = run.errors();
    if !errors.is_empty() {
        return Err(TransportError::Configuration(errors));
    }
    let now = clock.now();
    let transport = UdpTransport::open(udp, channel.datagram_bytes_max(), now)?;
    let waker = Waker(Arc::new(WakerState {
        is_asleep: AtomicBool::new(false),
        waker: kernel::EventDescriptor::new().map_err(TransportError::Thread)?,
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let ordered = Arc::new(AtomicBool::new(false));
    let (sender, events) = sync_channel(EVENTS_MAX);
    let (orders, handed_in) = sync_channel(ORDERS_MAX);
    channel.announce_keys();
    channel.set_date(clock.date_at_zero_us());
    let seen = (&channel, &transport, &Watch::default());
    let first = ChannelSnapshot::take(now, seen, ThreadTally::default());
    let publisher = Publisher::new(first);
    let snapshots = publisher.snapshots();
    let turner = Turner {
        channel,
        transport,
        run,
        clock,
        waker: waker.clone(),
        stop: stop.clone(),
        orders: handed_in,
        ordered: ordered.clone(),
        events: sender,
        publisher,
        tally: ThreadTally::default(),
        publish_at: Time::ZERO,
        watch: Watch::default(),
    };
    Ok(StateChannelThread {
        snapshots,
        events,
        stop,
        waker,
        orders,
        ordered,
        turner: Some(Unstarted(Box::new(turner))),
        thread: None,
    })
}

impl StateChannelThread {
    /// Starts the thread of a state channel that was only opened; a second call does nothing.
    ///
    /// # Errors
    /// [`TransportError::Thread`]; nothing was sent.
    pub fn start(&mut self) -> Result<(), TransportError> {
        if let Some(Unstarted(turner)) = self.turner.take() {
            let thread = std::thread::Builder::new()
                .name("state-channel".into())
                .spawn(move || turner.run())
                .map_err(TransportError::Thread)?;
            self.thread = Some(thread);
        }
        Ok(())
    }

    /// The latest snapshot, at most [`RunConfig::snapshot_interval`] old while the thread runs.
    pub fn snapshot(&self) -> Arc<ChannelSnapshot> {
        self.snapshots.latest()
    }

    /// Where snapshots are found, for other threads.
    pub fn snapshots(&self) -> Snapshots {
        self.snapshots.clone()
    }

    /// What happened since this was last asked, in order. Waits for nothing.
    pub fn events(&self) -> impl Iterator<Item = Notice> {
        self.events.try_iter()
    }

    /// Hands a roster to the thread, which puts it in force at its next turn. False if it has too many waiting, or has
    /// ended: then try again. That one was refused is reported by [`Notice::NotInstalled`].
    pub fn install(&self, roster: Roster) -> bool {
        self.order(Order::Install(roster, None))
    }

    /// The same, and members are at these addresses from then on: see [`UdpTransport::set_addresses`].
    pub fn install_at(&self, roster: Roster, addresses: Vec<(MemberId, SocketAddr)>) -> bool {
        self.order(Order::Install(roster, Some(addresses)))
    }

    /// Hands a ring of keys to the thread, which goes over to it at its next turn; no datagram is lost to that and no session
    /// made again. False if it has too much waiting, or has ended: then try again. The keys' [`hash_seed`](crate::hash_seed) must be that of the keys before.
    pub fn set_keys(&self, keys: KeyRing) -> bool {
        self.order(Order::SetKeys(keys))
    }

    /// This host begins to serve: from now on it takes over no other cluster time. False as above.
    pub fn settle_cluster_time(&self) -> bool {
        self.order(Order::SettleClusterTime)
    }

    /// These of the objects that may be changed are replicated by the host's configuration from now on, and the rest of them is local:
    /// see [`StateChannel::set_replicated`]. False as above.
    pub fn set_replicated(&self, objects: u64) -> bool {
        self.order(Order::SetReplicated(objects))
    }

    fn order(&self, order: Order) -> bool {
        let taken = self.orders.try_send(order).is_ok();
        self.ordered.store(true, Ordering::Release);
        self.waker.0.waker.ring();
        taken
    }

    /// What wakes the thread: a copy for each instance.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Whether the thread runs. It ends before [`StateChannelThread::stop`] only by a panic: then stop the host.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it: what instances wrote is sent, and the others' acknowledgements are awaited, at most for
    /// [`RunConfig::flush_max`]. Stop the instances first.
    ///
    /// # Errors
    /// [`TransportError::Panicked`].
    pub fn stop(mut self) -> Result<Stopped, TransportError> {
        self.tell_stop();
        let thread = self.thread.take().ok_or(TransportError::Panicked)?;
        let channel = thread.join().map_err(|_| TransportError::Panicked)?;
        Ok(Stopped {
            channel,
            snapshot: self.snapshots.latest(),
            events: self.events.try_iter().collect(),
        })
    }

    fn tell_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.0.waker.ring();
    }
}

impl Drop for StateChannelThread {
    fn drop(&mut self) {
        self.tell_stop();
    }
}

struct Turner {
    channel: StateChannel,
    transport: UdpTransport,
    run: RunConfig,
    clock: MonotonicClock,
    waker: Waker,
    stop: Arc<AtomicBool>,
    orders: Receiver<Order>,
    ordered: Arc<AtomicBool>,
    events: SyncSender<Notice>,
    publisher: Publisher,
    tally: ThreadTally,
    /// When the next snapshot is due.
    publish_at: Time,
    watch: Watch,
}

impl Turner {
    fn run(mut self) -> StateChannel {
        kernel::sharpen_timers();
        if let Some(processor) = self.run.processor
            && let Err(error) = kernel::pin(processor)
        {
            let errno = error.raw_os_error().unwrap_or(0);
            self.tell(Notice::NotPinned { processor, errno });
        }
        let mut stop_at = None;
        loop {
            let now = self.clock.now();
            self.tally.turns += 1;
            let channel = &mut self.channel;
            let received = self.transport.receive(now, |from, datagram| {
                // Refusals are counted by the channel.
                let _ = channel.handle(now, from, datagram);
            });
            let sent = self.exchange(now);
            if self.ordered.load(Ordering::Relaxed) {
                self.obey(now);
            }
            if now >= self.publish_at {
                self.publish_at = now + self.run.snapshot_interval;
                self.channel.set_date(self.clock.date_at_zero_us());
                self.look_for_faults(now);
                self.publish(now);
            }
            if stop_at.is_none() && self.stop.load(Ordering::Acquire) {
                // From when the request is seen: the turn may have begun, and been set aside, long
                // before it was made.
                stop_at = Some(self.clock.now() + self.run.flush_max);
                self.channel.leave(now);
            }
            if let Some(stop_at) = stop_at {
                let is_done = sent == 0 && !self.transport.is_waiting() && self.channel.is_quiet();
                if is_done || now >= stop_at {
                    break;
                }
            }
            if received == 0 && sent == 0 {
                self.rest();
            }
        }
        self.transport.give_up_waiting();
        self.publish(self.clock.now());
        self.channel
    }

    /// Puts in force what was handed in.
    fn obey(&mut self, now: Time) {
        // Before they are taken: what comes meanwhile is taken now, or has the next turn look again.
        self.ordered.swap(false, Ordering::AcqRel);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Install(roster, addresses) => {
                    let epoch = roster.epoch;
                    match self.channel.install(now, &roster) {
                        Ok(()) => {
                            if let Some(addresses) = addresses {
                                self.transport.set_addresses(now, &addresses);
                            }
                        }
                        Err(why) => self.tell(Notice::NotInstalled { epoch, why }),
                    }
                }
                Order::SetKeys(keys) => self.channel.set_keys(&keys),
                Order::SettleClusterTime => {
                    self.channel.settle_cluster_time();
                    // It is waited for.
                    self.publish_at = Time::ZERO;
                }
                Order::SetReplicated(objects) => self.channel.set_replicated(objects),
            }
        }
    }

    /// Takes what instances wrote, runs timers and sends what is due; how many datagrams.
    fn exchange(&mut self, now: Time) -> usize {
        self.channel
            .set_datagram_bytes(self.transport.datagram_bytes());
        self.channel.set_padding(self.transport.is_segmenting());
        self.channel.turn(now);
        let mut sent = 0;
        for _ in 0..BATCHES_PER_TURN {
            let before = sent;
            while let Some(buffer) = self.transport.buffer(now)
                && let Some(destination) = self.channel.poll_transmit(now, buffer)
            {
                self.transport.queue(destination);
                sent += 1;
            }
            self.transport.flush(now);
            if sent == before || self.transport.is_waiting() {
                break;
            }
        }
        while let Some(event) = self.channel.poll_event() {
            // Somebody waits to see it in a snapshot.
            if matches!(event, ChannelEvent::Ready | ChannelEvent::Epoch(_)) {
                self.publish_at = now;
            }
            self.tell(Notice::Channel(event));
        }
        while let Some(event) = self.transport.poll_event() {
            self.tell(Notice::Transport(event));
        }
        sent
    }

    /// Sleeps until something is due, arrives or is written, unless it must not.
    fn rest(&mut self) {
        if self.run.mode == RunMode::Spin {
            core::hint::spin_loop();
            return;
        }
        let rope = self.waker.0.clone();
        rope.is_asleep.store(true, Ordering::SeqCst);
        // What was written before the flag was seen is looked for once more.
        let now = self.clock.now();
        if self.exchange(now) > 0 || self.publish_at <= now {
            rope.is_asleep.store(false, Ordering::Relaxed);
            return;
        }
        let most = if self.channel.backlog_bytes() > 0 {
            self.run.sleep_max.min(SLEEP_BACKLOG)
        } else {
            self.run.sleep_max
        };
        let mut until = self.channel.poll_timeout().unwrap_or(Time::MAX);
        if self.transport.is_waiting() {
            // Nothing more can be sent; room at the socket wakes it.
            until = Time::MAX;
        }
        if let Some(at) = self.transport.next_send()
            && (until <= at || self.transport.is_waiting())
        {
            // What is due before that cannot go, and what waits goes then.
            until = at;
        }
        let timeout = (until - now).clamp(SLEEP_MIN, most);
        self.tally.sleeps += 1;
        self.transport.wait(now, &rope.waker, timeout);
        if !rope.is_asleep.swap(false, Ordering::AcqRel) {
            self.tally.wakers += 1;
        }
    }

    fn publish(&mut self, now: Time) {
        self.tally.processor_time = kernel::thread_time();
        let seen = (&self.channel, &self.transport, &self.watch);
        self.publisher.publish(now, seen, self.tally);
    }

    fn look_for_faults(&mut self, now: Time) {
        for change in self.watch.query(now, &self.channel, &self.transport) {
            let (member, fault) = (change.member, change.fault);
            self.tell(match change.is_over {
                true => Notice::FaultOver { member, fault },
                false => Notice::Fault { member, fault },
            });
        }
    }

    fn tell(&mut self, notice: Notice) {
        if self.events.try_send(notice).is_err() {
            self.tally.events_lost += 1;
        }
    }
}
