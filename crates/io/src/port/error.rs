//! What goes wrong at a port, worded for the operator: the effect, where, and a cure.

use super::capture::CaptureError;
use super::interface::InterfaceError;
use super::setting::SettingError;
use super::shared_memory::SharedMemoryError;
use std::fmt;

/// What went wrong at a port.
#[derive(Debug)]
pub struct PortError {
    /// The port's name.
    pub port: String,
    /// What happened and what to do.
    pub kind: PortErrorKind,
}

impl PortError {
    pub(crate) fn new(port: &str, kind: impl Into<PortErrorKind>) -> PortError {
        PortError {
            port: port.to_owned(),
            kind: kind.into(),
        }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "port {}: {}", self.port, self.kind)
    }
}

impl std::error::Error for PortError {}

/// What happened at a port; see [`PortError`].
#[derive(Debug)]
pub enum PortErrorKind {
    /// A value of the port's configuration is out of bounds. The port is not open.
    Setting(SettingError),
    /// The interface under the port cannot be used.
    Interface(InterfaceError),
    /// A packet that came in was too long. It was dropped; the port goes on.
    PacketTooLong(PacketTooLongError),
    /// There is no shared memory with another process.
    SharedMemory(SharedMemoryError),
    /// A capture file cannot be read or written any further.
    Capture(CaptureError),
}

impl fmt::Display for PortErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortErrorKind::Setting(error) => error.fmt(formatter),
            PortErrorKind::Interface(error) => error.fmt(formatter),
            PortErrorKind::PacketTooLong(error) => error.fmt(formatter),
            PortErrorKind::SharedMemory(error) => error.fmt(formatter),
            PortErrorKind::Capture(error) => error.fmt(formatter),
        }
    }
}

macro_rules! from_each {
    ($($variant:ident($error:ty)),*) => {$(
        impl From<$error> for PortErrorKind {
            fn from(error: $error) -> PortErrorKind {
                PortErrorKind::$variant(error)
            }
        }
    )*};
}

from_each!(
    Setting(SettingError),
    Interface(InterfaceError),
    PacketTooLong(PacketTooLongError),
    SharedMemory(SharedMemoryError),
    Capture(CaptureError)
);

/// A packet that came in, did not fit, and was dropped. The first of a port is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketTooLongError {
    /// It came by a receive ring.
    Ring {
        /// Its length in bytes.
        bytes: usize,
        /// Bytes of the ring's slots.
        slot_bytes: u32,
        /// The port's interface.
        interface: String,
    },
    /// It came in bulk mode.
    Bulk {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It came by an AF_XDP socket.
    Xdp {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It came by a TAP interface.
    Tap {
        /// Bytes of it that were read.
        bytes: usize,
        /// The interface.
        interface: String,
    },
}

impl fmt::Display for PacketTooLongError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketTooLongError::Ring {
                bytes,
                slot_bytes,
                interface,
            } => write!(
                formatter,
                "a packet of {bytes} bytes did not fit a slot of {slot_bytes} or a frame and was dropped; use mode bulk, or raise slot_bytes \
                 and the frames' stride, or switch GRO and TSO off where the packets come from (offloads = \"off\" does so at {interface})"
            ),
            PacketTooLongError::Bulk { bytes } => write!(
                formatter,
                "a packet of {bytes} bytes did not fit a frame and was dropped: bulk mode needs a frame pool of 68 KiB a frame"
            ),
            PacketTooLongError::Xdp { bytes } => write!(
                formatter,
                "a packet of {bytes} bytes did not fit a frame and was dropped: give the instance's frames a longer stride"
            ),
            PacketTooLongError::Tap { bytes, interface } => write!(
                formatter,
                "a packet of {bytes} bytes or more did not fit a frame and was dropped: give the instance's frames a longer stride, \
                 or lower the MTU of {interface}"
            ),
        }
    }
}

impl std::error::Error for PacketTooLongError {}
