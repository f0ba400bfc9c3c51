//! A probe of what a network loses: numbered datagrams from a node to another one, which sends each back.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{self, sleep};
use crate::error::LabError;
use crate::node::Node;

/// Flows of a probe at most.
pub const FLOWS_MAX: usize = 64;
/// Bytes of a datagram.
const BYTES: usize = 64;
/// How long the last answers may take. Once all are there they are not waited for.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks of the server's end at whether the probe has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A probe that runs, from a client to a server's address and port: flows whose datagrams follow one another at an interval.
#[derive(Debug)]
pub struct Probe {
    ends: Arc<AtomicBool>,
    /// Set once nothing is waited for any more: till then the server's end sends back what comes, however late.
    has_ended: Arc<AtomicBool>,
    sender: JoinHandle<Vec<Sent>>,
    echo: JoinHandle<()>,
}

/// One datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When it was sent, by the laboratory's clock.
    pub at: Duration,
    /// Its flow.
    pub flow: usize,
    /// Whether it came back.
    pub came_back: bool,
}

impl Probe {
    /// Starts a probe. Each flow has a port of its own; one datagram leaves at each interval, flow after flow.
    pub fn start(
        client: &Node,
        server: &Node,
        at: SocketAddr,
        flows: usize,
        interval: Duration,
    ) -> Result<Probe, LabError> {
        let kernel = |error| LabError::kernel("making a probe", error);
        let answers = server.enter(|| UdpSocket::bind(at))?.map_err(kernel)?;
        answers.set_read_timeout(Some(LOOK_AGAIN)).map_err(kernel)?;
        let sockets: Result<Vec<UdpSocket>, _> = client.enter(|| {
            (0..flows.clamp(1, FLOWS_MAX))
                .map(|_| {
                    let socket = UdpSocket::bind("0.0.0.0:0")?;
                    socket.connect(at)?;
                    socket.set_nonblocking(true)?;
                    Ok(socket)
                })
                .collect()
        })?;
        let sockets = sockets.map_err(kernel)?;
        let ends = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::new(AtomicBool::new(false));
        let (send_ends, echo_ends) = (ends.clone(), has_ended.clone());
        let echo = std::thread::spawn(move || send_back(&answers, &echo_ends));
        let sender = std::thread::spawn(move || send(&sockets, interval, &send_ends));
        Ok(Probe {
            ends,
            has_ended,
            sender,
            echo,
        })
    }

    /// Now, by the clock of [`Sent::at`].
    #[must_use]
    pub fn now() -> Duration {
        clock::monotonic()
    }

    /// Ends the probe: every datagram that was sent, in order.
    #[must_use]
    pub fn end(self) -> Vec<Sent> {
        self.ends.store(true, Ordering::Release);
        let sent = self.sender.join().unwrap_or_default();
        self.has_ended.store(true, Ordering::Release);
        let _ = self.echo.join();
        sent
    }
}

fn send(sockets: &[UdpSocket], interval: Duration, ends: &AtomicBool) -> Vec<Sent> {
    let mut sent = Vec::new();
    let mut due = clock::monotonic();
    while !ends.load(Ordering::Acquire) {
        let flow = sent.len() % sockets.len();
        let mut datagram = [0; BYTES];
        datagram[..8].copy_from_slice(&(sent.len() as u64).to_le_bytes());
        let at = clock::monotonic();
        // One that could not be sent is lost like any other.
        let _ = sockets[flow].send(&datagram);
        sent.push(Sent {
            at,
            flow,
            came_back: false,
        });
        receive(sockets, &mut sent);
        due += interval;
        sleep(due.saturating_sub(clock::monotonic()));
    }
    let until = clock::monotonic() + LAST_WAIT;
    while clock::monotonic() < until && sent.iter().any(|one| !one.came_back) {
        receive(sockets, &mut sent);
        sleep(interval);
    }
    sent
}

fn receive(sockets: &[UdpSocket], sent: &mut [Sent]) {
    let mut datagram = [0; BYTES];
    for socket in sockets {
        loop {
            match socket.recv(&mut datagram) {
                Ok(BYTES) => {
                    let mut number = [0; 8];
                    number.copy_from_slice(&datagram[..8]);
                    if let Some(one) = sent.get_mut(u64::from_le_bytes(number) as usize) {
                        one.came_back = true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An ICMP error comes back as an error, once.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn send_back(socket: &UdpSocket, has_ended: &AtomicBool) {
    let mut datagram = [0; BYTES];
    while !has_ended.load(Ordering::Acquire) {
        if let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..length], from);
        }
    }
}
