//! Sockets to a switch, TCP or Unix, with a time for each step.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use super::config::OvsAddress;
use crate::clock;

/// When a call has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    started: Instant,
    whole: Duration,
}

impl Deadline {
    /// So long from now.
    pub(super) fn after(whole: Duration) -> Deadline {
        let started = clock::now();
        Deadline { started, whole }
    }

    /// How long is left; an error once it is nothing.
    pub(super) fn left(&self) -> io::Result<Duration> {
        match self.whole.saturating_sub(self.started.elapsed()) {
            Duration::ZERO => Err(late(self.whole)),
            left => Ok(left),
        }
    }

    pub(super) fn whole(&self) -> Duration {
        self.whole
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn late(whole: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("no answer within {whole:?}"))
}

/// A way to a switch. A trait, so that the driver is tested without one too.
pub(super) trait Dial: Send {
    /// Connects.
    fn dial(&mut self, deadline: Deadline) -> io::Result<Box<dyn Channel>>;
}

/// A stream of bytes to and from a switch. Closed when it is dropped.
pub(super) trait Channel: Send {
    /// Sends all of it.
    fn send(&mut self, bytes: &[u8], deadline: Deadline) -> io::Result<()>;

    /// Receives some bytes, by the deadline ([`ErrorKind::TimedOut`]); without one, only what is there already
    /// ([`ErrorKind::WouldBlock`]). 0: the other end has closed it.
    fn receive(&mut self, into: &mut [u8], deadline: Option<Deadline>) -> io::Result<usize>;
}

impl Dial for OvsAddress {
    fn dial(&mut self, deadline: Deadline) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Socket::connect(self, deadline)?))
    }
}

/// A socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn connect(address: &OvsAddress, deadline: Deadline) -> io::Result<Socket> {
        match address {
            OvsAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, deadline.left()?)?;
                // Requests are small, and each is waited for.
                stream.set_nodelay(true)?;
                Ok(Socket(stream.into()))
            }
            OvsAddress::Unix(path) => {
                let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
                let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
                // A listener that takes no connections has connecting ones wait.
                set_socket_timeout(&socket, Timeout::Send, Some(some(deadline.left()?)))?;
                connect(&socket, &SocketAddrUnix::new(path.as_path())?)
                    .map_err(|error| timed(error.into(), deadline))?;
                Ok(Socket(socket))
            }
        }
    }
}

/// No time at all would be taken as no bound at all.
fn some(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}

/// A socket's time-out, named as such.
fn timed(error: io::Error, deadline: Deadline) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => late(deadline.whole()),
        _ => error,
    }
}

impl Channel for Socket {
    fn send(&mut self, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
        while !bytes.is_empty() {
            set_socket_timeout(&self.0, Timeout::Send, Some(some(deadline.left()?)))?;
            match send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(timed(error.into(), deadline)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8], deadline: Option<Deadline>) -> io::Result<usize> {
        let Some(deadline) = deadline else {
            return Ok(recv(&self.0, &mut *into, RecvFlags::DONTWAIT)?.0);
        };
        loop {
            set_socket_timeout(&self.0, Timeout::Recv, Some(some(deadline.left()?)))?;
            match recv(&self.0, &mut *into, RecvFlags::empty()) {
                Ok((received, _)) => return Ok(received),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(timed(error.into(), deadline)),
            }
        }
    }
}
