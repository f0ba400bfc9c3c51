//! Telling the service manager how a program is: the datagrams of `sd_notify(3)`, to the socket that `NOTIFY_SOCKET` names.
//! Without one nothing is reported.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants a sign of life; `None` if it does not.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The one that the environment names. `pid` is this process's: a watchdog may be meant for another.
    #[must_use]
    pub fn from_environment(pid: u32) -> Manager {
        let variable = |name: &str| std::env::var_os(name);
        Manager::new(
            variable("NOTIFY_SOCKET"),
            variable("WATCHDOG_USEC"),
            variable("WATCHDOG_PID"),
            pid,
        )
    }

    fn new(
        socket: Option<OsString>,
        watchdog_us: Option<OsString>,
        watchdog_pid: Option<OsString>,
        pid: u32,
    ) -> Manager {
        let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
        let for_us = watchdog_pid
            .as_deref()
            .is_none_or(|text| number(text) == Some(pid.into()));
        let interval = watchdog_us
            .as_deref()
            .and_then(number)
            .filter(|us| *us > 0 && for_us);
        Manager {
            socket: socket.as_deref().and_then(open),
            // Twice as often as it must be, as the manual asks.
            watchdog: interval.map(|us| Duration::from_micros(us / 2)),
        }
    }

    /// How often [`Manager::alive`] is to be called; `None` if it need not be.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some())
    }

    fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that does not listen is none of the host's troubles.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }

    /// The host takes packets.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// What it does, in a line for people.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}", one_line(status)));
    }

    /// It reads its configuration again; `monotonic_us` is `CLOCK_MONOTONIC` now. [`Manager::ready`] ends it.
    pub fn reloading(&self, monotonic_us: u64) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={monotonic_us}"));
    }

    /// It stops.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// It lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// An absolute path, or an abstract name behind `@`; anything else is no address (`sd_notify(3)`).
fn open(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name).ok()?,
        [b'/', ..] => SocketAddr::from_pathname(name).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn it_says_what_the_manual_asks_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::new(
            Some(path.into_os_string()),
            Some("2000000".into()),
            Some("42".into()),
            42,
        );
        assert_eq!(manager.watchdog(), Some(Duration::from_secs(1)));
        manager.ready("two\nlines");
        assert_eq!(received(&socket), "READY=1\nSTATUS=two lines");
        manager.reloading(17);
        assert_eq!(received(&socket), "RELOADING=1\nMONOTONIC_USEC=17");
        manager.stopping("bye");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=bye");
        manager.alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
        drop(socket);
        manager.status("nobody listens");
    }

    #[test]
    fn abstract_names_and_bad_ones() {
        let name = format!("@asterism-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = Manager::new(Some(name.into()), None, None, 1);
        assert_eq!(manager.watchdog(), None);
        manager.status("here");
        assert_eq!(received(&socket), "STATUS=here");
        for bad in ["", "@", "relative", "vsock:2:1"] {
            assert!(
                Manager::new(Some(bad.into()), None, None, 1)
                    .socket
                    .is_none(),
                "{bad}"
            );
        }
        let other = Manager::new(None, Some("1000".into()), Some("2".into()), 1);
        assert_eq!(other.watchdog(), None, "another process is watched");
        other.ready("nobody");
    }
}
