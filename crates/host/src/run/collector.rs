//! A collector of messages of IPFIX (RFC 7011) or NetFlow version 9 (RFC 3954), which are sent to it over UDP and counted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// Why nothing can be sent to a collector.
#[derive(Debug, Error)]
#[error("nothing can be sent to the collector {address}: {error}")]
pub struct CollectorError {
    address: SocketAddr,
    error: std::io::Error,
}

/// Where messages go. Nothing that is sent waits.
#[derive(Debug)]
pub(super) struct Collector {
    socket: UdpSocket,
    pub(super) address: SocketAddr,
    /// Messages that could not be sent, since the last [`Collector::take_lost`].
    lost: u64,
}

impl Collector {
    pub(super) fn open(address: SocketAddr) -> Result<Self, CollectorError> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .and_then(|socket| socket.connect(address).map(|()| socket))
            .map_err(|error| CollectorError { address, error })?;
        Ok(Self {
            socket,
            address,
            lost: 0,
        })
    }

    /// Sends a message, or counts it as lost: a collector that does not listen, or a queue that is full. Whether it was sent.
    pub(super) fn send(&mut self, message: &[u8], sent: &AtomicU64, lost: &AtomicU64) -> bool {
        let is_sent = self.socket.send(message).is_ok();
        let count = if is_sent { sent } else { lost };
        count.fetch_add(1, Ordering::Relaxed);
        self.lost += u64::from(!is_sent);
        is_sent
    }

    /// Counts what was refused since the last message was sent: else the next one would tell. For the end.
    pub(super) fn settle(&mut self, sent: &AtomicU64, lost: &AtomicU64) {
        if !matches!(self.socket.take_error(), Ok(None)) {
            sent.fetch_sub(1, Ordering::Relaxed);
            lost.fetch_add(1, Ordering::Relaxed);
            self.lost += 1;
        }
    }

    /// Messages that were lost since this was asked.
    pub(super) fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::time::Duration;

    #[test]
    fn what_is_sent_comes_and_what_is_not_is_counted() {
        let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut collector = Collector::open(listener.local_addr().unwrap()).unwrap();
        let (sent, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        collector.send(b"one", &sent, &lost);
        let mut buffer = [0; 16];
        assert_eq!(listener.recv(&mut buffer).unwrap(), 3);
        collector.settle(&sent, &lost);
        assert_eq!(lost.load(Ordering::Relaxed), 0);
        drop(listener);
        // The kernel's answer may come a moment later.
        let await_refusal = |collector: &Collector| {
            let mut look = [PollFd::new(&collector.socket, PollFlags::empty())];
            let time = Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            };
            assert_eq!(poll(&mut look, Some(&time)), Ok(1), "it is refused");
        };
        // One that nobody takes, and nothing after it.
        collector.send(b"one", &sent, &lost);
        await_refusal(&collector);
        collector.settle(&sent, &lost);
        assert_eq!(
            (collector.take_lost(), lost.load(Ordering::Relaxed)),
            (1, 1)
        );
        // The first that nobody takes is reported by ICMP, at the next.
        for _ in 0..10 {
            if collector.send(b"two", &sent, &lost) {
                await_refusal(&collector);
            }
        }
        let (sent, lost) = (sent.into_inner(), lost.into_inner());
        assert_eq!(sent + lost, 12);
        assert!(lost > 1);
        assert_eq!(
            (collector.take_lost(), collector.take_lost()),
            (lost - 1, 0)
        );
    }
}
