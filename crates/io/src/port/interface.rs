//! The network interface under a port: whether it is there and up, and what happens when it goes and comes back.
//!
//! [`Attachment`] is what ports on interfaces share: it holds what was opened on the interface, looks after it ten times a
//! second, lets go when the interface vanished or its name means another one, and opens again with growing pauses. Imports
//! `system` and the `Time` of `asterism-placement`.

mod error;

pub use error::InterfaceError;

use super::system;
use super::{PortError, PortErrorKind, PortStatistics};
use asterism_placement::Time;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How often a port looks whether its interface is up and still the same, in microseconds.
pub const WATCH_INTERVAL_US: u64 = 100_000;
/// The same while it is down, so that packets pass soon after it came up.
pub const WATCH_INTERVAL_DOWN_US: u64 = 10_000;
/// The pause before an interface that vanished is looked for again, in microseconds: it doubles from this ...
pub const REOPEN_BACKOFF_US_MIN: u64 = 10_000;
/// ... to this.
pub const REOPEN_BACKOFF_US_MAX: u64 = 1_000_000;

/// The Ethernet address of an interface of the calling thread's network namespace.
///
/// # Errors
/// There is no such interface, or it has no such address.
pub fn ethernet_address(interface: &str) -> io::Result<[u8; 6]> {
    let interface = Interface::new(interface)?;
    if !interface.is_ethernet()? {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    // The kind of the address, and then the address.
    let [_, _, address @ ..] = interface.ask(libc::SIOCGIFHWADDR)?.to_ne_bytes();
    Ok(address)
}

/// Whether packets can pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// They can.
    Up,
    /// They cannot: the interface is down, has no carrier or is not there, or the peer is not.
    Down,
}

/// What a port does with the offloads of its own interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// Leaves them as they are.
    #[default]
    Keep,
    /// Switches transmit checksums, segmentation (TSO, GSO) and receive coalescing (GRO) off when it opens, and back to what
    /// they were when it closes. Ports that share an interface should all say so or none: the first to close restores.
    Off,
}

/// An interface by its name, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    socket: OwnedFd,
}

impl Interface {
    /// Does not ask whether there is one.
    pub(crate) fn new(name: &str) -> io::Result<Interface> {
        Ok(Interface {
            name: name.to_owned(),
            socket: system::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: u64) -> io::Result<u64> {
        system::interface_control(&self.socket, request, &self.name, 0)
    }

    /// Its number in the kernel. Another interface of the same name has another one.
    pub(crate) fn index(&self) -> io::Result<u32> {
        self.ask(libc::SIOCGIFINDEX).map(|index| index as u32)
    }

    /// Whether its frames are Ethernet's (the loopback interface's are too).
    pub(crate) fn is_ethernet(&self) -> io::Result<bool> {
        let kind = self.ask(libc::SIOCGIFHWADDR)? as u16;
        Ok(matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
    }

    /// Whether it is up and has a carrier.
    pub(crate) fn is_running(&self) -> io::Result<bool> {
        let flags = self.ask(libc::SIOCGIFFLAGS)? as i32;
        // The flag for the carrier may be a second late; the driver knows.
        let carrier = match system::ethtool_value(&self.socket, &self.name, ETHTOOL_LINK, 0) {
            Ok(carrier) => carrier != 0,
            Err(_) => flags & libc::IFF_RUNNING != 0,
        };
        Ok(flags & libc::IFF_UP != 0 && carrier)
    }

    /// Its MTU in bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        self.ask(libc::SIOCGIFMTU).map(|mtu| mtu as u32)
    }

    pub(crate) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        system::interface_control(&self.socket, libc::SIOCSIFMTU, &self.name, u64::from(mtu))
            .map(drop)
    }

    pub(crate) fn set_up(&self) -> io::Result<()> {
        let flags = self.ask(libc::SIOCGIFFLAGS)? as u16 | libc::IFF_UP as u16;
        system::interface_control(
            &self.socket,
            libc::SIOCSIFFLAGS,
            &self.name,
            u64::from(flags),
        )
        .map(drop)
    }

    /// A call for this purpose failed.
    pub(crate) fn refused(&self, what: &'static str, error: io::Error) -> InterfaceError {
        InterfaceError::Call {
            what,
            interface: self.name.clone(),
            error,
        }
    }
}

/// What the kernel counts of the interfaces of a network namespace: `/proc/net/dev`, which stays that of the namespace it was
/// opened in.
#[derive(Debug)]
pub(crate) struct DeviceCounters {
    file: std::fs::File,
    /// The last count seen, and the sum of those before the interface was made again.
    seen: std::cell::Cell<(u64, u64)>,
}

impl DeviceCounters {
    /// Of the calling thread's namespace; `None` without `/proc`.
    pub(crate) fn new() -> Option<DeviceCounters> {
        let file = std::fs::File::open("/proc/thread-self/net/dev").ok()?;
        let seen = std::cell::Cell::default();
        Some(DeviceCounters { file, seen })
    }

    /// Packets that were to leave by the interface and were dropped. Reads and allocates: not for the packet path.
    pub(crate) fn transmit_dropped(&self, name: &str) -> u64 {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while let Ok(bytes @ 1..) = self.file.read_at(&mut part, text.len() as u64)
            && text.len() < 1 << 20
        {
            text.extend_from_slice(&part[..bytes]);
        }
        let now = transmit_dropped(&String::from_utf8_lossy(&text), name);
        let (last, before) = self.seen.get();
        let now = now.unwrap_or(last);
        // Less than before: another interface of that name.
        let before = if now < last { before + last } else { before };
        self.seen.set((now, before));
        before + now
    }
}

/// The twelfth number in the interface's line.
fn transmit_dropped(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

/// The command of `SIOCETHTOOL` that asks for the carrier.
const ETHTOOL_LINK: u32 = 0x0a;

/// Offloads that were switched off, to be switched on again when this is dropped.
#[derive(Debug)]
pub(crate) struct OffloadsOff {
    interface: Interface,
    /// The command that sets each, and what it was.
    before: Vec<(u32, u32)>,
}

/// Commands of `SIOCETHTOOL` that ask for and set what hands over or expects packets that are not as on the wire: transmit
/// checksums, TCP segmentation, generic segmentation, generic receive coalescing. In the order in which they are restored.
const OFFLOADS: [(u32, u32); 4] = [(0x16, 0x17), (0x1e, 0x1f), (0x23, 0x24), (0x2b, 0x2c)];

impl OffloadsOff {
    /// Switches them off. What the driver does not know is left out.
    pub(crate) fn new(name: &str) -> io::Result<OffloadsOff> {
        let mut off = OffloadsOff {
            interface: Interface::new(name)?,
            before: Vec::with_capacity(OFFLOADS.len()),
        };
        for (ask, set) in OFFLOADS {
            // Asked for all before any is changed: to switch one off takes others along.
            match system::ethtool_value(&off.interface.socket, name, ask, 0) {
                // What is off already stays off: another port of this interface may have switched it off, and restores it.
                Ok(0) => {}
                Ok(value) => off.before.push((set, value)),
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        for place in (0..off.before.len()).rev() {
            let (set, _) = off.before[place];
            match system::ethtool_value(&off.interface.socket, name, set, 0) {
                Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(error),
                _ => {}
            }
        }
        Ok(off)
    }
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        for &(set, value) in &self.before {
            // The interface may be gone, and its settings with it.
            let _ = system::ethtool_value(&self.interface.socket, &self.interface.name, set, value);
        }
    }
}

/// Whether a port switches offloads off, done.
pub(crate) fn apply_offloads(
    interface: &Interface,
    offloads: Offloads,
) -> Result<Option<OffloadsOff>, InterfaceError> {
    match offloads {
        Offloads::Keep => Ok(None),
        Offloads::Off => OffloadsOff::new(interface.name())
            .map(Some)
            .map_err(|error| InterfaceError::Offloads {
                interface: interface.name.clone(),
                error,
            }),
    }
}

/// How often opening is tried again while the kernel, or a program that is just being started and has a copy of our descriptors,
/// still holds what was closed before, ...
const OPEN_ATTEMPTS_MAX: u32 = 100;
/// ... and the pause between, in milliseconds.
const OPEN_PAUSE_MS: u64 = 5;

/// Opens, and waits up to half a second for what is busy. Not for the packet loop.
pub(crate) fn patiently<M>(
    mut open: impl FnMut() -> Result<M, InterfaceError>,
) -> Result<M, InterfaceError> {
    for _ in 1..OPEN_ATTEMPTS_MAX {
        match open() {
            Err(error) if error.is_busy() => pause(),
            result => return result,
        }
    }
    open()
}

/// Between two attempts to open.
#[expect(
    clippy::disallowed_methods,
    reason = "opening a port happens outside the packet loop, and the kernel says nothing when something is free"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(OPEN_PAUSE_MS));
}

/// What a port opened on an interface (`M`: its socket and rings), and the care for both.
#[derive(Debug)]
pub(crate) struct Attachment<M> {
    pub(crate) port: String,
    pub(crate) interface: Interface,
    /// What was opened; away while the interface is.
    pub(crate) medium: Option<M>,
    index: u32,
    link: LinkState,
    now_us: u64,
    due_us: u64,
    backoff_us: u64,
    link_downs: u64,
    reopened: u64,
    /// The first failure that was not reported yet.
    problem: Option<PortErrorKind>,
}

impl<M> Attachment<M> {
    /// Opens `interface` by `open`, for the port called `port`.
    pub(crate) fn new(
        port: &str,
        interface: &str,
        open: impl FnOnce(&Interface, io::Result<u32>) -> Result<M, InterfaceError>,
    ) -> Result<Attachment<M>, PortError> {
        let refused = |error: InterfaceError| PortError::new(port, error);
        let interface =
            Interface::new(interface).map_err(|error| refused(InterfaceError::NoSocket(error)))?;
        let medium = open(&interface, interface.index()).map_err(refused)?;
        let index = interface
            .index()
            .map_err(|error| refused(interface.refused("opening a port", error)))?;
        let up = interface.is_running().unwrap_or(false);
        Ok(Attachment {
            port: port.to_owned(),
            interface,
            medium: Some(medium),
            index,
            link: if up { LinkState::Up } else { LinkState::Down },
            now_us: 0,
            due_us: 0,
            backoff_us: REOPEN_BACKOFF_US_MIN,
            link_downs: 0,
            reopened: 0,
            problem: None,
        })
    }

    /// The name in configuration.
    pub(crate) fn name(&self) -> &str {
        &self.port
    }

    pub(crate) fn link(&self) -> LinkState {
        self.link
    }

    /// Whether the link was down when last looked at.
    #[inline]
    pub(crate) fn is_down(&self) -> bool {
        self.link == LinkState::Down
    }

    /// How often it was opened again.
    pub(crate) fn reopened(&self) -> u64 {
        self.reopened
    }

    /// Notes the time; whether it is time to call [`Attachment::watch`].
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) -> bool {
        self.now_us = now.as_micros();
        self.now_us >= self.due_us
    }

    /// When `watch` wants to be called next.
    pub(crate) fn next_due(&self) -> Time {
        Time::from_micros(self.due_us)
    }

    /// Asks for `watch` in a millisecond, because something failed.
    pub(crate) fn watch_soon(&mut self) {
        self.due_us = self.due_us.min(self.now_us + 1_000);
    }

    /// Looks after the interface: lets go of one that vanished, opens one that came back. A few system calls. `open` gets the
    /// interface's number, or the error that says that there is none.
    pub(crate) fn watch(
        &mut self,
        open: impl FnOnce(&Interface, io::Result<u32>) -> Result<M, InterfaceError>,
    ) {
        let found = self.interface.index();
        if let Ok(index) = found
            && index == self.index
            && self.medium.is_some()
        {
            let up = self.interface.is_running().unwrap_or(false);
            self.set_link(if up { LinkState::Up } else { LinkState::Down });
            self.due_us = self.now_us
                + if up {
                    WATCH_INTERVAL_US
                } else {
                    WATCH_INTERVAL_DOWN_US
                };
            return;
        }
        if self.medium.take().is_some() {
            self.set_link(LinkState::Down);
            self.backoff_us = REOPEN_BACKOFF_US_MIN;
            let interface = self.interface.name.clone();
            self.report(InterfaceError::Vanished { interface });
        }
        let opened = open(&self.interface, found).and_then(|medium| {
            let found = self.interface.index();
            let index = found.map_err(|error| self.interface.refused("opening again", error))?;
            Ok((index, medium))
        });
        match opened {
            Ok((index, medium)) => {
                (self.index, self.medium) = (index, Some(medium));
                self.reopened += 1;
                self.backoff_us = REOPEN_BACKOFF_US_MIN;
                self.due_us = self.now_us + WATCH_INTERVAL_US;
                let up = self.interface.is_running().unwrap_or(false);
                self.set_link(if up { LinkState::Up } else { LinkState::Down });
            }
            Err(why) => {
                self.report(why);
                self.due_us = self.now_us + self.backoff_us;
                self.backoff_us = (2 * self.backoff_us).min(REOPEN_BACKOFF_US_MAX);
            }
        }
    }

    fn set_link(&mut self, link: LinkState) {
        if self.link != link {
            self.link = link;
            self.link_downs += u64::from(link == LinkState::Down);
        }
    }

    /// Keeps the first failure until it was reported.
    pub(crate) fn report(&mut self, why: impl Into<PortErrorKind>) {
        self.problem.get_or_insert_with(|| why.into());
    }

    /// The first failure since the last call.
    pub(crate) fn take_problem(&mut self) -> Result<(), PortError> {
        match self.problem.take() {
            None => Ok(()),
            Some(kind) => Err(PortError::new(&self.port, kind)),
        }
    }

    /// Adds what is counted here.
    pub(crate) fn add_to(&self, statistics: &mut PortStatistics) {
        statistics.link_downs += self.link_downs;
        statistics.reopened += self.reopened;
    }

    /// An error of the medium's socket is taken and looked into, so that a sleeping loop is not woken by it for ever.
    pub(crate) fn take_socket_error(&mut self) -> bool
    where
        M: AsFd,
    {
        let error = self.medium.as_ref().and_then(system::take_error);
        if error.is_some() {
            self.watch_soon();
        }
        error.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_refused_in_words() {
        let none = |interface: &Interface, index: io::Result<u32>| match index {
            Ok(_) => Ok(()),
            Err(error) => Err(interface.refused("opening a port", error)),
        };
        let error = Attachment::new("inside", "asterism-none0", none).unwrap_err();
        assert!(
            error.to_string().contains("port inside")
                && error.kind.to_string().contains("no such interface"),
            "{error}"
        );
        for name in ["", "a-name-of-16-bytes", "a/b", "a b"] {
            assert!(Attachment::new("inside", name, |_, _| Ok(())).is_err());
        }
    }

    #[test]
    fn the_kernels_counters_are_read_by_name() {
        let text = "Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n eth01:0 0 0 0 0 0 0 0 0 0 0 7 0 0 0 0\n";
        assert_eq!(transmit_dropped(text, "eth0"), Some(12));
        assert_eq!(transmit_dropped(text, "eth01"), Some(7));
        assert_eq!(transmit_dropped(text, "eth"), None);
        let counters = DeviceCounters::new().unwrap();
        assert_eq!(counters.transmit_dropped("lo"), 0);
    }

    #[test]
    fn what_vanished_is_looked_for_with_growing_pauses() {
        let mut port = Attachment::new("inside", "lo", |_, index| Ok(index.unwrap())).unwrap();
        assert!(port.medium.is_some() && port.interface.mtu().unwrap() >= 1500);
        // As if it had been another interface of that name.
        port.index = u32::MAX;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            port.now_us = port.due_us;
            let refused = || io::Error::from_raw_os_error(libc::EPERM);
            port.watch(|interface, _| Err(interface.refused("opening again", refused())));
            pauses.push(port.due_us - port.now_us);
        }
        assert_eq!(pauses[..3], [10_000, 20_000, 40_000]);
        assert_eq!(pauses[9], REOPEN_BACKOFF_US_MAX);
        assert_eq!((port.link(), port.medium), (LinkState::Down, None));
        let reported = port.take_problem().unwrap_err();
        assert!(reported.to_string().contains("vanished"), "{reported}");
        assert!(port.take_problem().is_ok());
        port.now_us = port.due_us;
        port.watch(|_, index| Ok(index.unwrap()));
        assert_eq!((port.reopened, port.medium.is_some()), (1, true));
        assert_eq!(port.due_us - port.now_us, WATCH_INTERVAL_US);
    }
}
