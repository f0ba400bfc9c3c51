//! The socket on which a host reports that it takes packets: datagrams of `sd_notify(3)`, in the launcher's folder, which only
//! the launcher's user may enter.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::identity::Process;
use super::{LaunchError, record};
use crate::clock;

/// Bytes of a path of a Unix socket at most, with its end.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 108;
/// Bytes of a report that are read.
const REPORT_BYTES_MAX: usize = 4_096;
/// Bytes of a status that are kept.
const STATUS_BYTES_MAX: usize = 512;

/// The receiving end. Dropped, it leaves the path; the next one replaces it.
#[derive(Debug)]
pub(super) struct Notices {
    socket: UnixDatagram,
    status: String,
}

/// What came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The report that the host takes packets.
    Ready,
    /// The end of its process.
    Ended,
    /// The end of the wait.
    Neither,
}

impl Notices {
    pub(super) fn bind(path: &Path) -> Result<Notices, LaunchError> {
        let failed = |error| record::failed("making the socket", path, error);
        // A socket that an earlier launch left, or none.
        let _ = std::fs::remove_file(path);
        let socket = UnixDatagram::bind(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Notices {
            socket,
            status: String::new(),
        })
    }

    /// The last status that the host reported, in words.
    pub(super) fn status(&self) -> &str {
        if self.status.is_empty() {
            "none"
        } else {
            &self.status
        }
    }

    /// Waits for the report or the end of the process, until this time at most.
    pub(super) fn wait(&mut self, process: &Process, until: Instant) -> First {
        loop {
            if self.is_ready() {
                return First::Ready;
            }
            if process.ends_within(Duration::ZERO) {
                // What it reported last may have come after the first look.
                return if self.is_ready() {
                    First::Ready
                } else {
                    First::Ended
                };
            }
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                return First::Neither;
            }
            let mut descriptors = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::from_borrowed_fd(process.descriptor().as_fd(), PollFlags::IN),
            ];
            let timeout = Timespec::try_from(left).ok();
            // Interrupted or not, the loop looks at both.
            let _ = poll(&mut descriptors, timeout.as_ref());
        }
    }

    /// Reads all that has come; whether the host is ready.
    pub(super) fn is_ready(&mut self) -> bool {
        let mut bytes = [0; REPORT_BYTES_MAX];
        let mut is_ready = false;
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]);
            for line in text.lines() {
                is_ready |= line == "READY=1";
                if let Some(status) = line.strip_prefix("STATUS=") {
                    let printable = status.chars().filter(|letter| !letter.is_control());
                    self.status = printable.take(STATUS_BYTES_MAX / 4).collect();
                }
            }
            if is_ready {
                break;
            }
        }
        is_ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_and_others_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let mut notices = Notices::bind(&path).unwrap();
        let host = UnixDatagram::unbound().unwrap();
        assert!(!notices.is_ready());
        for report in [
            "STATUS=awaits an epoch\x1b[1m",
            "READY=10",
            "",
            "WATCHDOG=1",
        ] {
            host.send_to(report.as_bytes(), &path).unwrap();
        }
        host.send_to(&[0xff; 3], &path).unwrap();
        assert!(!notices.is_ready());
        assert_eq!(notices.status(), "awaits an epoch[1m");
        host.send_to(b"READY=1\nSTATUS=takes packets", &path)
            .unwrap();
        assert!(notices.is_ready());
        assert_eq!(notices.status(), "takes packets");
        // Made again, it replaces the one before.
        let mut again = Notices::bind(&path).unwrap();
        host.send_to(b"READY=1", &path).unwrap();
        assert!(again.is_ready());
        assert!(!notices.is_ready());
    }
}
