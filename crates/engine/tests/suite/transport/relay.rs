//! A hostile network of sockets: it stands between hosts and drops, repeats and reorders what passes, or records it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_io::link::SeededRandom;

/// What a relay does to each datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions {
    /// Share that is dropped.
    pub(crate) loss: f64,
    /// Copies that are passed on of each.
    pub(crate) copies: usize,
    /// Datagrams that wait to be overtaken.
    pub(crate) waiting: usize,
}

/// What a relay did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) arrived: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) overtaken: AtomicU64,
}

/// A relay between hosts; each believes that the others are at addresses of the relay.
pub(crate) struct Relay {
    addresses: Vec<Vec<SocketAddr>>,
    pub(crate) counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    recorded: mpsc::Receiver<(usize, usize, Vec<u8>)>,
    sockets: Vec<Vec<Option<UdpSocket>>>,
    hosts: Vec<SocketAddr>,
    /// By sender and receiver: whether nothing passes.
    cut: Vec<Vec<Arc<AtomicBool>>>,
}

/// Datagrams recorded at most.
const RECORDED_MAX: usize = 20_000;

impl Relay {
    /// Between the hosts at these addresses. `hosts[from]` reaches `hosts[to]` by [`Relay::address`]`(from, to)`.
    pub(crate) fn start(hosts: &[SocketAddr], conditions: Conditions, seed: u64) -> Self {
        let sockets: Vec<Vec<Option<UdpSocket>>> = (0..hosts.len())
            .map(|from| {
                let bind = |to| {
                    (from != to).then(|| {
                        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
                        let wait = Some(Duration::from_millis(1));
                        socket.set_read_timeout(wait).unwrap();
                        socket
                    })
                };
                (0..hosts.len()).map(bind).collect()
            })
            .collect();
        let addresses = sockets
            .iter()
            .map(|row| {
                let address = |socket: &Option<UdpSocket>| {
                    let socket = socket.as_ref()?;
                    socket.local_addr().ok()
                };
                let own = SocketAddr::from(([0; 4], 0));
                row.iter().map(|one| address(one).unwrap_or(own)).collect()
            })
            .collect();
        let (record, recorded) = mpsc::sync_channel(RECORDED_MAX);
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let open = || (0..hosts.len()).map(|_| Arc::default()).collect();
        let cut: Vec<Vec<Arc<AtomicBool>>> = (0..hosts.len()).map(|_| open()).collect();
        let copy = |socket: &Option<UdpSocket>| socket.as_ref().unwrap().try_clone().unwrap();
        for (from, row) in sockets.iter().enumerate() {
            for (to, input) in row.iter().enumerate() {
                if from == to {
                    continue;
                }
                let way = Direction {
                    from,
                    to,
                    input: copy(input),
                    output: copy(&sockets[to][from]),
                    target: hosts[to],
                    conditions,
                    random: SeededRandom::new(seed + (from * 16 + to) as u64),
                    counts: counts.clone(),
                    record: record.clone(),
                    stop: stop.clone(),
                    cut: cut[from][to].clone(),
                };
                threads.push(std::thread::spawn(move || way.run()));
            }
        }
        Self {
            addresses,
            counts,
            stop,
            threads,
            recorded,
            sockets,
            hosts: hosts.to_vec(),
            cut,
        }
    }

    /// Has nothing pass from one host to another, or all again.
    pub(crate) fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.cut[from][to].store(is_cut, Ordering::Relaxed);
    }

    /// Where host `from` believes host `to` to be.
    pub(crate) fn address(&self, from: usize, to: usize) -> SocketAddr {
        self.addresses[from][to]
    }

    /// What passed so far: from, to, bytes.
    pub(crate) fn take_recorded(&self) -> Vec<(usize, usize, Vec<u8>)> {
        self.recorded.try_iter().collect()
    }

    /// Sends bytes to `to` that seem to come from `from`.
    pub(crate) fn forge(&self, from: usize, to: usize, bytes: &[u8]) {
        let socket = self.sockets[to][from].as_ref().unwrap();
        let _ = socket.send_to(bytes, self.hosts[to]);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One direction between two hosts.
struct Direction {
    from: usize,
    to: usize,
    input: UdpSocket,
    output: UdpSocket,
    target: SocketAddr,
    conditions: Conditions,
    random: SeededRandom,
    counts: Arc<Counts>,
    record: mpsc::SyncSender<(usize, usize, Vec<u8>)>,
    stop: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
}

impl Direction {
    fn run(mut self) {
        let mut buffer = vec![0; 1 << 16];
        let mut waiting: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut number, mut highest) = (0, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let is_idle = match self.input.recv(&mut buffer) {
                Ok(length) => {
                    self.counts.arrived.fetch_add(1, Ordering::Relaxed);
                    let bytes = &buffer[..length];
                    let _ = self.record.try_send((self.from, self.to, bytes.to_vec()));
                    let is_cut = self.cut.load(Ordering::Relaxed);
                    if is_cut || self.random.chance(self.conditions.loss) {
                        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    number += 1;
                    for _ in 0..self.conditions.copies.max(1) {
                        waiting.push((number, bytes.to_vec()));
                    }
                    false
                }
                Err(_) => true,
            };
            // One by one, any of those that wait; all of them once nothing more comes.
            while waiting.len() > if is_idle { 0 } else { self.conditions.waiting } {
                let place = self.random.up_to(waiting.len() as u64 - 1) as usize;
                let (number, bytes) = waiting.swap_remove(place);
                if number < highest {
                    self.counts.overtaken.fetch_add(1, Ordering::Relaxed);
                }
                highest = highest.max(number);
                let _ = self.output.send_to(&bytes, self.target);
                self.counts.passed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
