//! A node: a network namespace with a name in its laboratory.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::error::LabError;
use crate::interface;
use crate::namespace::{apart, enter_network, new_network};
use crate::program::{ProgramCommand, Registry, wait_until};

/// What frames on a pair of interfaces look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// As on a wire: every frame has its checksum and fits the MTU. For whatever counts, loses or delays frames.
    #[default]
    Off,
    /// As the kernel likes it: frames without checksum and of up to 64 KiB. For bulk traffic.
    On,
}

/// A network namespace with its own interfaces, addresses, routes and sockets. Only the laboratory's process and the
/// programs in it hold it: it is gone when they are.
#[derive(Debug)]
pub struct Node {
    name: String,
    network: OwnedFd,
    processes: RawFd,
    registry: Registry,
}

impl Node {
    pub(crate) fn new(name: &str, processes: RawFd, registry: Registry) -> Result<Node, LabError> {
        let network = new_network().map_err(|error| {
            LabError::kernel(format!("making a network namespace for {name}"), error)
        })?;
        let node = Node {
            name: name.to_owned(),
            network,
            processes,
            registry,
        };
        // Neither router advertisements nor neighbours' questions disturb what a test counts.
        node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        node.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        // Asymmetric paths are what laboratories are for.
        // A machine that forwards, as one with containers does, passes that on to new namespaces.
        node.sysctl("net/ipv4/ip_forward", "0")?;
        node.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        node.sysctl("net/ipv4/conf/default/rp_filter", "0")?;
        node.ip(&["link set dev lo up"])?;
        Ok(node)
    }

    /// Its name in the laboratory.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file by which other programs enter it while this process lives, as `nsenter --net=FILE`.
    #[must_use]
    pub fn namespace_file(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.network.as_raw_fd()
        )
    }

    /// The kernel's number of the namespace, to see whether it is still there.
    pub fn namespace_number(&self) -> Result<u64, LabError> {
        std::fs::metadata(self.namespace_file())
            .map(|file| file.ino())
            .map_err(|error| {
                LabError::kernel(format!("looking at the namespace of {}", self.name), error)
            })
    }

    /// Does `work` on a thread inside: sockets that it opens belong to this node for ever, wherever they are used.
    /// Costs a thread, some 50 µs.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        let network = self.network.as_raw_fd();
        apart(move || enter_network(network).map(|()| work()))
            .map_err(|error| LabError::kernel(format!("entering {}", self.name), error))
    }

    /// Runs lines of `ip`, as one batch with one line a record: the first that fails ends it. About 2 ms, however many lines.
    pub fn ip(&self, lines: &[impl AsRef<str>]) -> Result<String, LabError> {
        let mut batch = String::new();
        for line in lines {
            batch.push_str(line.as_ref());
            batch.push('\n');
        }
        let result = self
            .program("ip")
            .args(["-oneline", "-batch", "-"])
            .input(batch.clone());
        match result.run() {
            Ok(finished) => Ok(finished.text()),
            Err(LabError::Failed { what, said }) => Err(LabError::Failed {
                what: format!("{what} with {}", batch.trim_end().replace('\n', "; ")),
                said,
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes a kernel setting, as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, setting: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/{setting}");
        self.enter(|| std::fs::write(&path, value))?
            .map_err(|error| LabError::kernel(format!("{}: {setting} = {value}", self.name), error))
    }

    /// Switches an interface's offloads on or off.
    pub fn offloads(&self, name: &str, offloads: Offloads) -> Result<(), LabError> {
        let on = offloads == Offloads::On;
        self.enter(|| interface::set_offloads(name, on))?
            .map_err(|error| LabError::kernel(format!("{}: offloads of {name}", self.name), error))
    }

    /// Has what an interface receives worked off on this core, as the interrupts of a network card are tied to one (receive packet
    /// steering, RPS). Otherwise anyone who sends a frame does the receiver's work too, on the sender's core: in a laboratory
    /// that is often a core that neither end would have on machines of their own. Refused for a core that there is not.
    pub fn receive_on_core(&self, interface: &str, core: usize) -> Result<(), LabError> {
        self.enter(|| interface::receive_on_core(interface, core))?
            .map_err(|error| {
                LabError::kernel(format!("{}: queues of {interface}", self.name), error)
            })
    }

    /// A program to be run inside.
    pub fn program(&self, program: impl AsRef<OsStr>) -> ProgramCommand {
        ProgramCommand::new(
            &self.name,
            self.network.as_raw_fd(),
            self.processes,
            self.registry.clone(),
            program.as_ref(),
        )
    }

    /// Waits until a TCP server inside accepts connections.
    pub fn wait_for_tcp(&self, server: SocketAddr, time_max: Duration) -> Result<(), LabError> {
        let what = format!("a server at {server} in {}", self.name);
        self.enter(|| {
            wait_until(&what, time_max, || {
                TcpStream::connect_timeout(&server, Duration::from_millis(200)).is_ok()
            })
        })?
    }

    /// TCP segments that this node's kernel has sent again since the node was made (`RetransSegs`, RFC 4022).
    pub fn tcp_retransmissions(&self) -> Result<u64, LabError> {
        let doing = || format!("{}: TCP counters", self.name);
        let table = self
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))?
            .map_err(|error| LabError::kernel(doing(), error))?;
        counter_of(&table, "Tcp:", "RetransSegs").ok_or_else(|| {
            let fault = std::io::Error::other("no RetransSegs in /proc/net/snmp");
            LabError::kernel(doing(), fault)
        })
    }

    /// Counters of an interface.
    pub fn interface_counts(&self, interface: &str) -> Result<InterfaceCounts, LabError> {
        let table = self
            .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(|error| LabError::kernel(format!("{}: counters", self.name), error))?;
        InterfaceCounts::of(&table, interface).ok_or_else(|| LabError::BadName {
            name: interface.to_owned(),
            fault: "there is no such interface",
        })
    }
}

/// A counter of the kernel's table (`/proc/net/snmp`): a line of names, then a line of numbers.
fn counter_of(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|word| word == name)?;
    numbers.split(' ').nth(place)?.parse().ok()
}

/// What an interface has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Frames received; with offloads on, one may be 64 KiB.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that could not be received or sent.
    pub dropped: u64,
}

impl InterfaceCounts {
    /// Reads the kernel's table (`/proc/net/dev`).
    fn of(table: &str, interface: &str) -> Option<InterfaceCounts> {
        let row = table
            .lines()
            .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
        let columns: Vec<u64> = row
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let column = |place: usize| columns.get(place).copied();
        Some(InterfaceCounts {
            received_bytes: column(0)?,
            received: column(1)?,
            sent_bytes: column(8)?,
            sent: column(9)?,
            dropped: column(3)? + column(11)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_columns() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes    packets errs drop\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0:100 7 0 1 0 0 0 0 200 9 0 2 0 0 0 0\n";
        let counts = InterfaceCounts::of(table, "eth0").unwrap();
        assert_eq!(
            (
                counts.received,
                counts.received_bytes,
                counts.sent,
                counts.sent_bytes,
                counts.dropped
            ),
            (7, 100, 9, 200, 3)
        );
        assert!(InterfaceCounts::of(table, "eth").is_none());
        let table = "Ip: A\nIp: 1\nTcp: A RetransSegs B\nTcp: -1 17 2\n";
        assert_eq!(counter_of(table, "Tcp:", "RetransSegs"), Some(17));
        assert_eq!(counter_of(table, "Udp:", "RetransSegs"), None);
        assert!(InterfaceCounts::of("eth0: 1 2", "eth0").is_none());
    }
}
