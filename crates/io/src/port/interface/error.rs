//! Why a network interface cannot be used.

use std::fmt;
use std::io;

/// Why the interface under a port cannot be used. The port is not open, or drops packets until it is open again.
#[derive(Debug)]
pub enum InterfaceError {
    /// There is no socket to ask the kernel for interfaces.
    NoSocket(io::Error),
    /// The interface does not carry Ethernet frames.
    NotEthernet {
        /// Its name.
        interface: String,
    },
    /// A system call failed.
    Call {
        /// The purpose of the call.
        what: &'static str,
        /// The interface's name.
        interface: String,
        /// The system's error.
        error: io::Error,
    },
    /// The interface's offloads were not switched off.
    Offloads {
        /// The interface's name.
        interface: String,
        /// The system's error.
        error: io::Error,
    },
    /// The interface's packets were not kept from the kernel.
    Exclusive {
        /// The interface's name.
        interface: String,
        /// The system's error.
        error: io::Error,
    },
    /// The interface vanished under an open port.
    Vanished {
        /// Its name.
        interface: String,
    },
}

impl InterfaceError {
    /// Whether something still holds what only one may have (`EBUSY`), so that to open again may help.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, InterfaceError::Call { error, .. } if error.raw_os_error() == Some(libc::EBUSY))
    }
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::NoSocket(error) => {
                write!(formatter, "no socket to ask for interfaces: {error}")
            }
            InterfaceError::NotEthernet { interface } => write!(
                formatter,
                "interface {interface} carries no Ethernet frames: packet functions need an Ethernet, veth, bridge or TAP interface"
            ),
            InterfaceError::Call {
                what,
                interface,
                error,
            } => failed(formatter, what, interface, error),
            InterfaceError::Offloads { interface, error } => {
                failed(formatter, "switching offloads off", interface, error)
            }
            InterfaceError::Exclusive { interface, error } => {
                failed(
                    formatter,
                    "keeping packets from the kernel",
                    interface,
                    error,
                )?;
                formatter.write_str(match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => " (exclusive = true needs CAP_BPF too)",
                    _ => " (exclusive = true needs Linux 6.6)",
                })
            }
            InterfaceError::Vanished { interface } => write!(
                formatter,
                "interface {interface} vanished; packets to it are dropped, and it is opened again once there is one of that name"
            ),
        }
    }
}

impl std::error::Error for InterfaceError {}

fn failed(
    formatter: &mut fmt::Formatter<'_>,
    what: &str,
    interface: &str,
    error: &io::Error,
) -> fmt::Result {
    write!(
        formatter,
        "{what} on interface {interface} failed: {error}; {}",
        cure(error)
    )
}

fn cure(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => {
            "there is no such interface in this network namespace: `ip link` lists those there are"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "it needs root, or the capabilities CAP_NET_RAW and CAP_NET_ADMIN (systemd: AmbientCapabilities=)"
        }
        Some(libc::ENETDOWN) => "set the interface up: `ip link set up dev …`",
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            "the kernel had no memory for the port's rings: ask for fewer or smaller slots"
        }
        Some(libc::EBUSY) => "another program holds what is asked for",
        Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::EAFNOSUPPORT) => {
            "this kernel or driver does not have it"
        }
        _ => "the port is not open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_interface_the_system_and_a_cure() {
        let interface = || "eth0".to_owned();
        let error = io::Error::from_raw_os_error;
        let busy = |what| InterfaceError::Call {
            what,
            interface: interface(),
            error: error(libc::EBUSY),
        };
        assert_eq!(
            busy("binding a packet socket").to_string(),
            "binding a packet socket on interface eth0 failed: Device or resource busy (os error 16); another program holds what is asked for"
        );
        let offloads = InterfaceError::Offloads {
            interface: interface(),
            error: error(libc::EBUSY),
        };
        assert!(busy("binding").is_busy() && !offloads.is_busy());
        for (number, hint) in [
            (libc::EPERM, "needs CAP_BPF too)"),
            (
                libc::EINVAL,
                "the port is not open (exclusive = true needs Linux 6.6)",
            ),
        ] {
            let exclusive = InterfaceError::Exclusive {
                interface: interface(),
                error: error(number),
            };
            assert!(exclusive.to_string().ends_with(hint), "{exclusive}");
        }
    }
}
